/* Half precision (IEEE binary16) and bfloat16 to and from float: exact one way, round to nearest even the other.
 * NaN stays NaN (made quiet); what is too large becomes infinity. */
#ifndef NPU_HALF_H
#define NPU_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float half_to_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = (half >> 10) & 0x1f;
    uint32_t mantissa = half & 0x3ff;
    if (exponent == 0) /* zero and subnormals: mantissa * 2^-24, exact in float */
        return float_from_bits(sign | float_bits((float)mantissa * 0x1p-24f));
    if (exponent == 0x1f)
        return float_from_bits(sign | 0x7f800000 | (mantissa ? 0x400000 : 0) | mantissa << 13);
    return float_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

static inline uint16_t float_to_half(float value)
{
    uint32_t bits = float_bits(value);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000) /* 65520 and above round to infinity */
        return sign | 0x7c00;
    if (magnitude < 0x38800000) {
        /* Below 2^-14 halves are multiples of 2^-24: adding 0.5 lets the float unit round to one of them. */
        return (uint16_t)(sign | (float_bits(float_from_bits(magnitude) + 0.5f) - 0x3f000000));
    }
    uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | (rounded - (112u << 23)) >> 13);
}

static inline float bfloat16_to_float(uint16_t value)
{
    return float_from_bits((uint32_t)value << 16);
}

static inline uint16_t float_to_bfloat16(float value)
{
    uint32_t bits = float_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
