/* How far a row that a device computed is from the reference's. Pure. */
#ifndef NPU_OPENCL_VERIFY_COMPARE_H
#define NPU_OPENCL_VERIFY_COMPARE_H

#include <stdbool.h>
#include <stdint.h>

#include "npu/executor.h"
#include "npu/opencl/verify_state.h"

/* The worst place of a row. */
struct row_difference {
    double error; /* max|device - reference| / max|reference|; infinite: not finite, or not what it must be */
    int element;
    double device, reference;
};

/* Which elements count: n_ranges stretches of them. */
struct element_range {
    int first, n;
};

struct row_difference compare_floats(const float *device, const float *reference, const struct element_range *ranges,
                                     int n_ranges);
/* With halves, the rounding to them is free: one unit in the last place. */
struct row_difference compare_kv(const float *device, const float *reference, int n, bool halves);
/* The int8 copy must be what rounding the device's own floats gives; scales and sums may be off by rounding. */
struct row_difference compare_quantized(const struct quantized_copy *copy, const float *floats, int n);
/* values and tokens are what the device chose of logits: the k largest, equal ones by ascending token. */
struct row_difference compare_choice(const float *values, const int32_t *tokens, int k, const float *logits,
                                     int n_vocab);

#endif
