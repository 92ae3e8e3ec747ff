/* What OpenCL devices there are, and what npud would use of each. Free of OpenCL types. */
#ifndef NPU_DEVICES_H
#define NPU_DEVICES_H

#include <stdbool.h>
#include <stddef.h>

#include "npu/error.h"

enum {
    DEVICES_MAX = 32
};

struct device_summary {
    char platform[128], name[192], driver[64];
    const char *type; /* CPU, GPU, accelerator or other; static */
    unsigned compute_units;
    size_t memory_bytes, allocation_bytes; /* of the device, of its largest buffer */
    bool is_default; /* what an absent --device selects */
    bool usable; /* false: reason says why not, and what follows is not set */
    int workers; /* groups that run at once */
    bool x86_kernels;
    bool one_launch; /* a whole step in one launch, else one op a launch and reason says why */
    double barrier_us; /* with one launch and several workers */
    char reason[256];
};

/* Fills summaries (DEVICES_MAX of them) in the order of --device's index. Blocking: compiles and runs the barrier's probe
 * on each device. Fails only when there is no device; the message says what to install or to make writable. */
enum npu_status devices_describe(struct device_summary *summaries, int *ret_n, struct npu_error *error);

#endif
