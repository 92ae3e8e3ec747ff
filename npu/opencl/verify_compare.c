#include "npu/opencl/verify_compare.h"

#include <math.h>

#include "npu/half.h"

/* Divisions may be rounded differently on the device: that much of one int8 step decides a tie. */
static const double tie_width = 1e-4;
static const double scale_limit = 1e-6;

static struct row_difference wrong(int element, double device, double reference)
{
    return (struct row_difference){INFINITY, element, device, reference};
}

static double half_ulp_of(double value)
{
    int exponent;
    frexp(value, &exponent);
    return ldexp(1.0, exponent - 11 < -24 ? -24 : exponent - 11);
}

/* free_ulps: units in the last place of a half that do not count. */
static struct row_difference compare(const float *device, const float *reference, const struct element_range *ranges,
                                     int n_ranges, int free_ulps)
{
    struct row_difference worst = {0};
    double most = -1.0, scale = 0.0;
    for (int range = 0; range < n_ranges; range++) {
        for (int i = ranges[range].first; i < ranges[range].first + ranges[range].n; i++) {
            double a = (double)device[i], b = (double)reference[i];
            if (!isfinite(a) || !isfinite(b))
                return wrong(i, a, b);
            double difference = fabs(a - b) - (free_ulps ? free_ulps * half_ulp_of(b) : 0.0);
            scale = fmax(scale, fabs(b));
            if (difference > most) {
                most = difference;
                worst = (struct row_difference){0.0, i, a, b};
            }
        }
    }
    worst.error = most <= 0.0 ? 0.0 : scale > 0.0 ? most / scale : INFINITY;
    return worst;
}

struct row_difference compare_floats(const float *device, const float *reference, const struct element_range *ranges,
                                     int n_ranges)
{
    return compare(device, reference, ranges, n_ranges, 0);
}

struct row_difference compare_kv(const float *device, const float *reference, int n, bool halves)
{
    struct element_range all = {0, n};
    return compare(device, reference, &all, 1, halves ? 1 : 0);
}

static bool about(double a, double b, double limit)
{
    return fabs(a - b) <= limit * fabs(b);
}

struct row_difference compare_quantized(const struct quantized_copy *copy, const float *floats, int n)
{
    struct row_difference worst = {0};
    for (int block = 0; block < n / 32; block++) {
        const float *x = floats + block * 32;
        const int8_t *q = copy->values + block * 32;
        double largest = 0.0;
        for (int i = 0; i < 32; i++)
            largest = fmax(largest, fabs((double)x[i]));
        int halves[2] = {0, 0};
        for (int i = 0; i < 32; i++) {
            double exact = largest > 0.0 ? (double)x[i] * 127.0 / largest : 0.0;
            double distance = fabs((double)q[i] - exact);
            if (!(distance <= 0.5 + tie_width))
                return wrong(block * 32 + i, (double)q[i], exact);
            if (distance - 0.5 > worst.error)
                worst = (struct row_difference){0.0, block * 32 + i, (double)q[i], exact};
            halves[i / 16] += q[i];
        }
        double scale = largest / 127.0;
        if (!about((double)copy->scales[block], scale, scale_limit))
            return wrong(block * 32, (double)copy->scales[block], scale);
        double sum = (double)copy->scales[block] * (halves[0] + halves[1]);
        if (!about((double)copy->sums[block], sum, scale_limit))
            return wrong(block * 32, (double)copy->sums[block], sum);
        int32_t both = (int32_t)((uint32_t)(halves[0] & 0xffff) | (uint32_t)halves[1] << 16);
        if (copy->halves[block] != both)
            return wrong(block * 32, copy->halves[block], both);
    }
    return worst;
}

static float ranked(float logit)
{
    return isnan(logit) ? -INFINITY : logit;
}

/* What comes after `token` in descending order (-1: the first of all); -1: nothing. */
static int32_t next_choice(const float *logits, int n_vocab, int32_t token)
{
    int32_t best = -1;
    for (int32_t i = 0; i < n_vocab; i++) {
        float v = ranked(logits[i]), last = token < 0 ? 0.0f : ranked(logits[token]);
        bool after = token < 0 || v < last || (v == last && i > token);
        if (after && (best < 0 || v > ranked(logits[best])))
            best = i;
    }
    return best;
}

struct row_difference compare_choice(const float *values, const int32_t *tokens, int k, const float *logits,
                                     int n_vocab)
{
    int32_t token = -1;
    for (int i = 0; i < k; i++) {
        token = next_choice(logits, n_vocab, token);
        if (token < 0 || tokens[i] != token)
            return wrong(i, tokens[i], token);
        if (float_bits(values[i]) != float_bits(ranked(logits[token])))
            return wrong(i, (double)values[i], (double)logits[token]);
    }
    return (struct row_difference){.device = k > 0 ? tokens[0] : 0, .reference = k > 0 ? tokens[0] : 0};
}
