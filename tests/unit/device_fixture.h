/* The OpenCL device that NPUD_TEST_DEVICE selects (as --device does; default: PoCL's), for tests that compute on it. */
#ifndef TESTS_DEVICE_FIXTURE_H
#define TESTS_DEVICE_FIXTURE_H

#include <stdbool.h>

#include "npu/opencl/opencl_executor.h"

enum {
    TEST_SKIPPED = 77 /* what ctest takes an exit status for that means skipped */
};

/* The kernels and launch modes that a device may be used with. */
struct device_variant {
    enum opencl_kernels kernels;
    bool launch_each, kv_f32;
    size_t max_allocation; /* bytes of the largest buffer, so that weights and K/V are split; 0: the device's */
};

/* Finds the device and makes a folder for compiled kernels. False: a line that says which driver is missing; main should
 * then return TEST_SKIPPED. */
bool device_fixture_open(void);
void device_fixture_close(void);

/* The kinds of kernels that differ on it, portable ones first. */
int device_kernel_kinds(enum opencl_kernels kinds[3]);
const char *device_kernels_name(const struct opencl_executor *executor);

/* Whether units are spread over work-items: on a CPU that plays a GPU, steps are slow. */
bool device_is_spread(void);

/* Fails the running test when the device does. */
struct opencl_executor *device_executor(const struct model *model, const struct device_variant *variant, int n_blocks,
                                        int max_context);

/* Fills all KV blocks with random values in [-1, 1): a history that nothing had to compute. */
void device_fill_history(struct opencl_executor *executor);

#endif
