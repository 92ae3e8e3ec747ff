/* How the op table gets onto the device: the whole step in one launch (a persistent kernel whose groups meet at barriers)
 * where a probe has shown that this works, else one op a launch. Changes over while running when steps turn slow. */
#ifndef NPU_OPENCL_LAUNCHER_H
#define NPU_OPENCL_LAUNCHER_H

#include <stdbool.h>
#include <stdint.h>

#include "npu/opencl/device.h"
#include "npu/opencl/device_buffer.h"

enum launch_mode { LAUNCH_ONE, LAUNCH_EACH };

/* Step times of one bucket, and when to try one launch again. */
struct launch_calm {
    double usual_us;      /* running mean of undisturbed steps */
    int each_left;        /* steps still to run one op a launch */
    int backoff;          /* of those, next time */
    uint64_t switches;    /* since start */
};

struct launcher {
    cl_command_queue queue;
    cl_kernel kernel; /* run_ops, with its constant arguments set */
    const struct device_profile *profile;
    bool one_launch; /* the probe passed, or there is one worker only */
    int spin_limit;  /* about a second */
    double barrier_us;
    struct launch_calm calm[9]; /* per bucket */
};

enum { ARGUMENT_TABLE, ARGUMENT_FIRST, ARGUMENT_LAST, ARGUMENT_SYNC, ARGUMENT_SPIN_LIMIT, ARGUMENT_INPUT, ARGUMENT_ARENA,
       ARGUMENT_VECTORS, ARGUMENT_BLOCKS_PER_SEGMENT, ARGUMENT_BLOCK_ELEMENTS, ARGUMENT_SEGMENTS };

/* Measures the barrier on the program's probe kernels and decides launcher->one_launch. reason says why not. */
enum npu_status launcher_probe(struct launcher *launcher, cl_context context, cl_program program, char *reason,
                               size_t reason_size, struct npu_error *error);

/* Enqueues entries [first, last) in one launch over the workers. */
enum npu_status launcher_run(struct launcher *launcher, int first, int last, size_t lanes, struct npu_error *error);

/* The mode for the next step of a bucket (0: 1 row, 1: 2 rows, ... 8: 256 rows), and what its time says. */
enum launch_mode launcher_mode(struct launcher *launcher, int bucket);
void launcher_note(struct launcher *launcher, int bucket, enum launch_mode mode, double us);

#endif
