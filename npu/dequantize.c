#include "npu/dequantize.h"

#include <stddef.h>
#include <string.h>

#include "npu/gguf.h"
#include "npu/half.h"

enum {
    K_BLOCK = 256
}; /* elements of a block of the K types */

static uint16_t load_u16(const uint8_t *bytes)
{
    return (uint16_t)(bytes[0] | bytes[1] << 8);
}

static uint32_t load_u32(const uint8_t *bytes)
{
    return load_u16(bytes) | (uint32_t)load_u16(bytes + 2) << 16;
}

static float load_half(const uint8_t *bytes)
{
    return half_to_float(load_u16(bytes));
}

/* 16 bytes hold 32 nibbles: elements 0..15 low, 16..31 high. */
static int nibble_of_32(const uint8_t *packed, int i)
{
    return i < 16 ? packed[i] & 15 : packed[i - 16] >> 4;
}

static void f32_block(const uint8_t *block, float *out)
{
    memcpy(out, block, sizeof *out);
}

static void f16_block(const uint8_t *block, float *out)
{
    *out = load_half(block);
}

static void bf16_block(const uint8_t *block, float *out)
{
    *out = bfloat16_to_float(load_u16(block));
}

static void q4_0_block(const uint8_t *block, float *out)
{
    float scale = load_half(block);
    for (int i = 0; i < 32; i++)
        out[i] = scale * (float)(nibble_of_32(block + 2, i) - 8);
}

static void q4_1_block(const uint8_t *block, float *out)
{
    float scale = load_half(block), minimum = load_half(block + 2);
    for (int i = 0; i < 32; i++)
        out[i] = scale * (float)nibble_of_32(block + 4, i) + minimum;
}

static void q5_0_block(const uint8_t *block, float *out)
{
    float scale = load_half(block);
    uint32_t fifth_bits = load_u32(block + 2);
    for (int i = 0; i < 32; i++)
        out[i] = scale * (float)((nibble_of_32(block + 6, i) | (int)(fifth_bits >> i & 1) << 4) - 16);
}

static void q5_1_block(const uint8_t *block, float *out)
{
    float scale = load_half(block), minimum = load_half(block + 2);
    uint32_t fifth_bits = load_u32(block + 4);
    for (int i = 0; i < 32; i++)
        out[i] = scale * (float)(nibble_of_32(block + 8, i) | (int)(fifth_bits >> i & 1) << 4) + minimum;
}

static void q8_0_block(const uint8_t *block, float *out)
{
    float scale = load_half(block);
    for (int i = 0; i < 32; i++)
        out[i] = scale * (float)(int8_t)block[2 + i];
}

/* Q2_K and Q3_K: element i's two bits. Each half of a block has 32 bytes; four passes over them, two bits a pass. */
static int two_bits(const uint8_t *packed, int i)
{
    return packed[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
}

/* 16 scales with a minimum each (4 bits), 64 bytes of quants, scale, minimum's scale. */
static void q2_k_block(const uint8_t *block, float *out)
{
    const uint8_t *quants = block + 16;
    float scale = load_half(block + 80), minimum_scale = load_half(block + 82);
    for (int group = 0; group < 16; group++) {
        float group_scale = scale * (float)(block[group] & 15);
        float group_minimum = minimum_scale * (float)(block[group] >> 4);
        for (int i = group * 16; i < group * 16 + 16; i++)
            out[i] = group_scale * (float)two_bits(quants, i) - group_minimum;
    }
}

/* 32 bytes of third bits, 64 bytes of quants, 16 scales of 6 bits in 12 bytes, scale. */
static void q3_k_block(const uint8_t *block, float *out)
{
    const uint8_t *quants = block + 32, *scales = block + 96;
    float scale = load_half(block + 108);
    for (int group = 0; group < 16; group++) {
        int low = group < 8 ? scales[group] & 15 : scales[group - 8] >> 4;
        int high = scales[8 + group % 4] >> (group / 4 * 2) & 3;
        float group_scale = scale * (float)((low | high << 4) - 32);
        for (int i = group * 16; i < group * 16 + 16; i++) {
            int third_bit = block[i % 32] >> (i / 32) & 1;
            out[i] = group_scale * (float)(two_bits(quants, i) - (third_bit ? 0 : 4));
        }
    }
}

/* Q4_K and Q5_K: 8 scales and 8 minimums of 6 bits in 12 bytes. The first four of each stand whole in bytes 0..3 and
 * 4..7; the others have their low four bits in bytes 8..11 and their high two on top of the first four. */
static void six_bit_scale(const uint8_t *packed, int group, int *scale, int *minimum)
{
    if (group < 4) {
        *scale = packed[group] & 63;
        *minimum = packed[group + 4] & 63;
    } else {
        *scale = (packed[group + 4] & 15) | (packed[group - 4] >> 6) << 4;
        *minimum = packed[group + 4] >> 4 | (packed[group] >> 6) << 4;
    }
}

/* fifth_bits: NULL for Q4_K, or 32 bytes; bit g of byte j belongs to element 32 g + j. */
static void q4_or_q5_k_block(const uint8_t *block, const uint8_t *fifth_bits, const uint8_t *quants, float *out)
{
    float scale = load_half(block), minimum_scale = load_half(block + 2);
    for (int group = 0; group < 8; group++) {
        int six_scale, six_minimum;
        six_bit_scale(block + 4, group, &six_scale, &six_minimum);
        float group_scale = scale * (float)six_scale;
        float group_minimum = minimum_scale * (float)six_minimum;
        for (int j = 0; j < 32; j++) {
            int quant = quants[group / 2 * 32 + j] >> (group % 2 * 4) & 15;
            if (fifth_bits)
                quant |= (fifth_bits[j] >> group & 1) << 4;
            out[group * 32 + j] = group_scale * (float)quant - group_minimum;
        }
    }
}

static void q4_k_block(const uint8_t *block, float *out)
{
    q4_or_q5_k_block(block, NULL, block + 16, out);
}

static void q5_k_block(const uint8_t *block, float *out)
{
    q4_or_q5_k_block(block, block + 16, block + 48, out);
}

/* 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed scales, scale. */
static void q6_k_block(const uint8_t *block, float *out)
{
    const uint8_t *low = block, *high = block + 128, *scales = block + 192;
    float scale = load_half(block + 208);
    for (int i = 0; i < K_BLOCK; i++) {
        int half = i / 128, rest = i % 128;
        int nibble = low[half * 64 + rest % 64] >> (rest / 64 * 4) & 15;
        int pair = high[half * 32 + rest % 32] >> (rest / 32 * 2) & 3;
        out[i] = scale * (float)(int8_t)scales[i / 16] * (float)((nibble | pair << 4) - 32);
    }
}

/* The levels that a nibble of IQ4_NL and IQ4_XS stands for: denser near zero. */
static const int8_t nonlinear_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static void iq4_nl_block(const uint8_t *block, float *out)
{
    float scale = load_half(block);
    for (int i = 0; i < 32; i++)
        out[i] = scale * (float)nonlinear_levels[nibble_of_32(block + 2, i)];
}

/* Scale, high pairs of 8 scales, low nibbles of 8 scales, 128 bytes of quants. */
static void iq4_xs_block(const uint8_t *block, float *out)
{
    float scale = load_half(block);
    uint16_t high = load_u16(block + 2);
    for (int group = 0; group < 8; group++) {
        int low = block[4 + group / 2] >> (group % 2 * 4) & 15;
        float group_scale = scale * (float)((low | (high >> group * 2 & 3) << 4) - 32);
        for (int i = 0; i < 32; i++)
            out[group * 32 + i] = group_scale * (float)nonlinear_levels[nibble_of_32(block + 8 + group * 16, i)];
    }
}

typedef void dequantize_block_function(const uint8_t *block, float *out);

static dequantize_block_function *block_function(uint32_t type)
{
    switch (type) {
    case TENSOR_F32:
        return f32_block;
    case TENSOR_F16:
        return f16_block;
    case TENSOR_BF16:
        return bf16_block;
    case TENSOR_Q4_0:
        return q4_0_block;
    case TENSOR_Q4_1:
        return q4_1_block;
    case TENSOR_Q5_0:
        return q5_0_block;
    case TENSOR_Q5_1:
        return q5_1_block;
    case TENSOR_Q8_0:
        return q8_0_block;
    case TENSOR_Q2_K:
        return q2_k_block;
    case TENSOR_Q3_K:
        return q3_k_block;
    case TENSOR_Q4_K:
        return q4_k_block;
    case TENSOR_Q5_K:
        return q5_k_block;
    case TENSOR_Q6_K:
        return q6_k_block;
    case TENSOR_IQ4_NL:
        return iq4_nl_block;
    case TENSOR_IQ4_XS:
        return iq4_xs_block;
    default:
        return NULL;
    }
}

bool dequantize_supported(uint32_t type)
{
    return block_function(type) != NULL;
}

int64_t dequantize_row_bytes(uint32_t type, int64_t n)
{
    return n / tensor_type_block_elements(type) * tensor_type_block_bytes(type);
}

void dequantize_row(uint32_t type, const void *row, float *out, int64_t n)
{
    dequantize_block_function *block = block_function(type);
    int elements = tensor_type_block_elements(type);
    int bytes = tensor_type_block_bytes(type);
    const uint8_t *packed = row;
    for (int64_t i = 0; i < n; i += elements, packed += bytes)
        block(packed, out + i);
}
