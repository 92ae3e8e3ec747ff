/* The kernel program: sources put together for a device profile, compiled, and cached on disk by everything that decides
 * the result (sources, options, platform, device, driver version). */
#ifndef NPU_OPENCL_PROGRAM_H
#define NPU_OPENCL_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "npu/opencl/device.h"

/* The kernels of steps, or those of the barrier's probe or of the driver's limits alone, which compile in a moment. */
enum program_sources {
    PROGRAM_STEP,
    PROGRAM_PROBE,
    PROGRAM_ROOF
};

struct program_options {
    enum program_sources sources;
    int weight_segments, kv_segments; /* 1, 2 or 4 */
    unsigned layouts; /* a bit for each weight layout that the model has */
    int max_head_size;
    bool kv_half;
    bool one_launch;
    bool x86_kernels;
};

struct program {
    cl_program program;
    uint64_t key; /* of the sources, options, device and driver: what the arithmetic depends on */
    bool from_cache;
};

/* cache_dir may be NULL (no cache). A cache that cannot be read or written is no error: the program is compiled. */
enum npu_status program_build(struct program *program, cl_context context, const struct device_profile *profile,
                              const struct program_options *options, const char *cache_dir, struct npu_error *error);

#endif
