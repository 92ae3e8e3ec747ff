/* How far two vectors of logits are apart: the figures by which a device is judged. Pure; any thread. */
#ifndef NPU_COMPARE_H
#define NPU_COMPARE_H

#include <stdbool.h>
#include <stdint.h>

struct logit_comparison {
    double mean_difference; /* of |a - b| */
    double max_difference;
    double range; /* the reference's largest logit minus its smallest */
    double peir; /* max_difference / range; 0 when both are constant and equal, infinite when only the reference is */
    int32_t argmax; /* of the tested side; the smallest id of equal ones */
    int32_t reference_argmax;
    bool argmax_agrees;
    bool near_tie; /* the reference's logit of the tested side's choice lies at most 2% of range below its maximum */
    bool finite; /* false: a NaN or infinity on either side; the differences are then infinite */
};

struct logit_comparison logit_compare(const float *tested, const float *reference, int n);

/* The index of the largest; the smallest index of equal ones; NaN never wins. */
int32_t logit_argmax(const float *logits, int n);

#endif
