#include "npu/compare.h"

#include <math.h>

#define NEAR_TIE 0.02

int32_t logit_argmax(const float *logits, int n)
{
    int32_t best = 0;
    for (int i = 1; i < n; i++) {
        if (logits[i] > logits[best] || isnan(logits[best]))
            best = i;
    }
    return best;
}

struct logit_comparison logit_compare(const float *tested, const float *reference, int n)
{
    struct logit_comparison result = {.finite = true};
    double sum = 0.0, low = INFINITY, high = -INFINITY;
    for (int i = 0; i < n; i++) {
        if (!isfinite(tested[i]) || !isfinite(reference[i]))
            result.finite = false;
        double difference = fabs((double)tested[i] - (double)reference[i]);
        sum += difference;
        result.max_difference = fmax(result.max_difference, difference);
        low = fmin(low, (double)reference[i]);
        high = fmax(high, (double)reference[i]);
    }
    result.argmax = logit_argmax(tested, n);
    result.reference_argmax = logit_argmax(reference, n);
    result.argmax_agrees = result.argmax == result.reference_argmax;
    if (!result.finite) {
        result.mean_difference = result.max_difference = result.peir = INFINITY;
        result.argmax_agrees = false;
        return result;
    }
    result.mean_difference = sum / n;
    result.range = high - low;
    if (result.max_difference > 0.0)
        result.peir = result.max_difference / result.range;
    result.near_tie = high - (double)reference[result.argmax] <= NEAR_TIE * result.range;
    return result;
}
