/* OpenCL devices: finding, choosing, and the profile that decides how each is used. */
#ifndef NPU_OPENCL_DEVICE_H
#define NPU_OPENCL_DEVICE_H

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "npu/error.h"

enum {
    DEVICE_MAX = 32
};

/* Made once from what the driver reports. */
struct device_profile {
    cl_platform_id platform;
    cl_device_id id;
    char platform_name[128], device_name[192], driver_version[64];
    bool is_cpu;
    bool unified_memory; /* shares the host's memory: buffers are used in place */
    bool atomics; /* OpenCL C 3.0 acquire/release atomics at device scope: a barrier between groups can be built */
    bool x86_kernels; /* the driver's compiler takes clang builtins for AVX2: kernels/x86 */
    int vnni_encoding; /* how the host's processor has vpdpbusd: 512 (AVX-512 VNNI), 256 (AVX-VNNI), 0: not */
    unsigned compute_units;
    size_t max_allocation, global_memory;
    int workers; /* groups that run at once: the smallest of compute units, CPUs in the affinity mask and the cgroup quota */
    bool fma; /* fused multiply-add in hardware */
    bool spread; /* work-items take a unit each (GPUs, llvmpipe); else one work-item a group takes a share of all */
    int rows_per_pass; /* rows that share unpacked weights and K/V loads: 4, or 1 where units are spread */
    int local_size; /* work-items per group: 1 on CPU drivers, which run a group on one thread */
};

/* Lists all devices in platform order. When there is none, the message says what to install or which cache folder the
 * driver could not write. */
enum npu_status device_list(struct device_profile profiles[DEVICE_MAX], int *ret_n, struct npu_error *error);

/* selector: NULL (the first GPU or accelerator, else the first CPU), an index into the list, or text that stands in the
 * platform or device name. */
enum npu_status device_select(struct device_profile *profile, const char *selector, struct npu_error *error);

/* Sets x86_kernels and vnni_encoding of a CPU that is the host's: compiles a few lines to find out. */
void device_probe_x86(struct device_profile *profile, cl_context context);

/* CPUs this process may use: affinity mask and cgroup quota (at least 1). */
int device_host_cpus(void);

const char *opencl_error_name(cl_int code);

#endif
