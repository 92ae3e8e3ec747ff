/* How the op table gets onto the device: the whole step in one launch (a persistent kernel whose groups meet at barriers)
 * where a probe has shown that this works, else one op a launch. Changes over while running when steps turn slow. */
#ifndef NPU_OPENCL_LAUNCHER_H
#define NPU_OPENCL_LAUNCHER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/op_entry.h"
#include "npu/opencl/device.h"
#include "npu/opencl/device_buffer.h"

enum launch_mode {
    LAUNCH_ONE,
    LAUNCH_EACH
};
enum {
    LAUNCHER_BUCKETS = 9
}; /* 1, 2, 4 ... 256 rows */

/* Step times of one bucket, and when to try one launch again after another process took a core. */
struct launch_calm {
    double usual_us; /* of undisturbed steps in one launch; follows drops at once, rises slowly */
    double each_us; /* of steps with one op a launch; 0: none yet */
    int each_left; /* steps still to run one op a launch */
    int backoff; /* of those, next time */
};

struct launcher {
    cl_command_queue queue;
    /* With their constant arguments set: run_ops, or one for each kind of entry. */
    cl_kernel run_ops;
    cl_kernel kinds[ENTRY_KINDS];
    const struct device_profile *profile;
    bool one_launch; /* the probe passed, or there is one worker only */
    double spins_per_us;
    double barrier_us;
    atomic_uint_least64_t switches; /* to one op a launch, since start */
    struct launch_calm calm[LAUNCHER_BUCKETS];
};

enum {
    ARGUMENT_TABLE,
    ARGUMENT_FIRST,
    ARGUMENT_LAST,
    ARGUMENT_SYNC,
    ARGUMENT_SPIN_LIMIT,
    ARGUMENT_INPUT,
    ARGUMENT_ARENA,
    ARGUMENT_VECTORS,
    ARGUMENT_BLOCKS_PER_SEGMENT,
    ARGUMENT_BLOCK_ELEMENTS,
    ARGUMENT_SEGMENTS
};

/* Measures the barrier on the program's probe kernels and decides launcher->one_launch. reason says why not. */
enum npu_status launcher_probe(struct launcher *launcher, cl_context context, cl_program program, char *reason,
                               size_t reason_size, struct npu_error *error);

/* Enqueues entries [first, last) in one launch over that many lanes; kind is that of a single entry, or anything where
 * run_ops serves. A worker gives up when it has waited wait_us at barriers. */
enum npu_status launcher_run(struct launcher *launcher, int kind, int first, int last, size_t lanes, double wait_us,
                             struct npu_error *error);

/* Waiting is the sign of a core that another process took: the groups on it are late at every barrier, whatever the step
 * costs by itself. How long the workers of a step in one launch may wait for each other in all: a tenth of a second where
 * nothing is known yet, else a few times as long as the step usually takes. Short disturbances pass; a lasting one costs
 * that much before the step runs one op a launch. */
double launcher_wait_us(const struct launcher *launcher, int bucket);

/* The mode for the next step of a bucket (0: 1 row, 1: 2 rows, ... 8: 256 rows), and what its time says. */
enum launch_mode launcher_mode(struct launcher *launcher, int bucket);
/* A step that finished in that mode. The mode that turns out slower is left. */
void launcher_note(struct launcher *launcher, int bucket, enum launch_mode mode, double us);
void launcher_note_abandoned(struct launcher *launcher, int bucket); /* one whose barrier was given up */

#endif
