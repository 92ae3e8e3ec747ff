#include "npu/opencl/pack.h"

#include <string.h>

#include "kernels/op_entry.h"
#include "npu/dequantize.h"
#include "npu/gguf.h"
#include "npu/half.h"

bool pack_layout(uint32_t type, int *layout)
{
    switch (type) {
    case TENSOR_F32:
        *layout = LAYOUT_F32;
        return true;
    case TENSOR_F16:
        *layout = LAYOUT_F16;
        return true;
    case TENSOR_BF16:
        *layout = LAYOUT_BF16;
        return true;
    case TENSOR_Q4_0:
    case TENSOR_Q4_1:
        *layout = LAYOUT_Q4;
        return true;
    case TENSOR_Q8_0:
    case TENSOR_IQ4_NL:
        *layout = LAYOUT_Q8;
        return true;
    case TENSOR_Q6_K:
    case TENSOR_Q3_K:
        *layout = LAYOUT_Q6;
        return true;
    case TENSOR_Q5_0:
    case TENSOR_Q5_1:
        *layout = LAYOUT_Q5;
        return true;
    case TENSOR_Q4_K:
        *layout = LAYOUT_Q4K;
        return true;
    case TENSOR_Q5_K:
        *layout = LAYOUT_Q5K;
        return true;
    case TENSOR_Q2_K:
    case TENSOR_IQ4_XS:
        *layout = LAYOUT_F32;
        return true;
    default:
        return false;
    }
}

bool pack_layout_is_quantized(int layout)
{
    return layout >= LAYOUT_Q4;
}

/* Bytes of a block of 32 elements of 8 rows; 0: the layout has no blocks. */
static size_t block_bytes(int layout)
{
    switch (layout) {
    case LAYOUT_Q4:
        return 160;
    case LAYOUT_Q5:
    case LAYOUT_Q4K:
        return 192;
    case LAYOUT_Q6:
    case LAYOUT_Q5K:
        return 224;
    case LAYOUT_Q8:
        return 288;
    default:
        return 0;
    }
}

size_t pack_tile_bytes(int layout, int64_t n_in)
{
    if (pack_layout_is_quantized(layout))
        return (size_t)(n_in / 32) * block_bytes(layout);
    return (size_t)n_in * PACK_TILE_ROWS * (layout == LAYOUT_F32 ? 4 : 2);
}

size_t pack_bytes(int layout, int64_t n_in, int64_t n_out)
{
    size_t tiles = (size_t)(n_out + PACK_TILE_ROWS - 1) / PACK_TILE_ROWS;
    return (tiles * pack_tile_bytes(layout, n_in) + 63) / 64 * 64;
}

static void put16(uint8_t *to, int lane, uint16_t value)
{
    memcpy(to + 2 * lane, &value, 2);
}

/* Byte of element k (0..31) of a lane among vectors that hold 4 elements of 8 lanes each. */
static int vector_byte(int lane, int k)
{
    return 32 * (k / 4) + 4 * lane + k % 4;
}

static void pack_q4_block(uint32_t type, const uint8_t *from, int lane, uint8_t *to)
{
    uint16_t d, m;
    memcpy(&d, from, 2);
    from += 2;
    if (type == TENSOR_Q4_1) {
        memcpy(&m, from, 2);
        from += 2;
    } else {
        m = float_to_half(-8.0f * half_to_float(d)); /* exact but at the ends of the half range */
    }
    for (int k = 0; k < 16; k++) /* the file's byte k holds elements k and 16 + k */
        to[vector_byte(lane, k)] = from[k];
    put16(to + 128, lane, d);
    put16(to + 144, lane, m);
}

static void pack_q8_block(const uint8_t *from, int lane, uint8_t *to)
{
    uint16_t d;
    memcpy(&d, from, 2);
    for (int k = 0; k < 32; k++)
        to[vector_byte(lane, k)] = from[2 + k];
    put16(to + 256, lane, d);
}

/* Source: ggml's Q6_K: 128 bytes of low nibbles, 64 of high bit pairs, 16 scales, d, for 256 elements. */
static int q6_value(const uint8_t *super, int i)
{
    int group = i / 128, k = i % 128, quarter = k / 32, l = k % 32;
    int low = super[group * 64 + (quarter % 2) * 32 + l] >> (quarter < 2 ? 0 : 4);
    int high = super[128 + group * 32 + l] >> (2 * quarter);
    return (low & 15) | (high & 3) << 4;
}

/* Sub-blocks of 16 with values of six bits and signed scales. */
static void put_q6_block(const int *values, int8_t scale0, int8_t scale1, uint16_t d, int lane, uint8_t *to)
{
    for (int k = 0; k < 16; k++) {
        int first = values[k], second = values[16 + k], j = k / 4;
        to[vector_byte(lane, k)] = (uint8_t)((first & 15) | (second & 15) << 4);
        to[128 + 32 * (j / 2) + 4 * lane + k % 4] |=
            (uint8_t)(((first >> 4) | (second >> 4) << 2) << (4 * (j % 2)));
    }
    to[192 + lane] = (uint8_t)scale0;
    to[200 + lane] = (uint8_t)scale1;
    put16(to + 208, lane, d);
}

static void pack_q6_block(const uint8_t *super, int block, int lane, uint8_t *to)
{
    int values[32];
    uint16_t d;
    for (int k = 0; k < 32; k++)
        values[k] = q6_value(super, block * 32 + k);
    memcpy(&d, super + 208, 2);
    put_q6_block(values, (int8_t)super[192 + block * 2], (int8_t)super[192 + block * 2 + 1], d, lane, to);
}

/* Source: ggml's Q3_K: 32 bytes of high bits, 64 of low bit pairs, 12 of 16 six-bit scales (offset 32), d. A value is its
 * two low bits, less 4 where the high bit is clear; d * scale * (value - 4 ...) is d * scale * ((value + 28) - 32). */
static void pack_q3_block(const uint8_t *super, int block, int lane, uint8_t *to)
{
    int values[32];
    int8_t scales[2];
    uint16_t d;
    for (int k = 0; k < 32; k++) {
        int i = block * 32 + k, group = i / 128, quarter = i % 128 / 32;
        int low = super[32 + group * 32 + k] >> (2 * quarter) & 3;
        int high = super[k] >> (group * 4 + quarter) & 1;
        values[k] = low + (high ? 0 : -4) + 32;
    }
    for (int half = 0; half < 2; half++) {
        int i = block * 2 + half;
        const uint8_t *packed = super + 96;
        int low = i < 8 ? packed[i] & 15 : packed[i - 8] >> 4;
        int high = packed[8 + i % 4] >> (2 * (i / 4)) & 3;
        scales[half] = (int8_t)((low | high << 4) - 32);
    }
    memcpy(&d, super + 108, 2);
    put_q6_block(values, scales[0], scales[1], d, lane, to);
}

/* Source: ggml's Q5_0 and Q5_1: d (, m), 4 bytes of high bits, 16 of nibbles. */
static void pack_q5_block(uint32_t type, const uint8_t *from, int lane, uint8_t *to)
{
    uint16_t d, m;
    uint32_t high;
    memcpy(&d, from, 2);
    from += 2;
    if (type == TENSOR_Q5_1) {
        memcpy(&m, from, 2);
        from += 2;
    } else {
        m = float_to_half(-16.0f * half_to_float(d));
    }
    memcpy(&high, from, 4);
    from += 4;
    for (int k = 0; k < 16; k++) {
        to[vector_byte(lane, k)] = from[k];
        to[128 + 4 * lane + k % 4] |= (uint8_t)((high >> k & 1) << (k / 4) | (high >> (16 + k) & 1) << (4 + k / 4));
    }
    put16(to + 160, lane, d);
    put16(to + 176, lane, m);
}

/* Source: ggml's Q4_K and Q5_K: d, dmin, 12 bytes of 8 six-bit scales and minima, (32 of high bits,) 128 of nibbles. */
static void pack_k_block(const uint8_t *super, int block, bool five, int lane, uint8_t *to)
{
    const uint8_t *scales = super + 4, *high = super + 16, *nibbles = super + (five ? 48 : 16);
    uint16_t d, m;
    memcpy(&d, super, 2);
    memcpy(&m, super + 2, 2);
    m ^= 0x8000; /* subtracted */
    uint8_t s, t;
    if (block < 4) {
        s = scales[block] & 63;
        t = scales[block + 4] & 63;
    } else {
        s = (uint8_t)((scales[block + 4] & 15) | (scales[block - 4] >> 6) << 4);
        t = (uint8_t)(scales[block + 4] >> 4 | (scales[block] >> 6) << 4);
    }
    for (int k = 0; k < 16; k++) {
        uint8_t first = nibbles[block / 2 * 32 + k], second = nibbles[block / 2 * 32 + 16 + k];
        int shift = block % 2 * 4;
        to[vector_byte(lane, k)] = (uint8_t)((first >> shift & 15) | (second >> shift & 15) << 4);
        if (five)
            to[128 + 4 * lane + k % 4] |=
                (uint8_t)((high[k] >> block & 1) << (k / 4) | (high[16 + k] >> block & 1) << (4 + k / 4));
    }
    uint8_t *tail = to + (five ? 160 : 128);
    put16(tail, lane, d);
    put16(tail + 16, lane, m);
    tail[32 + lane] = s;
    tail[40 + lane] = t;
}

/* Source: ggml's IQ4_NL: d, 16 bytes of nibbles that index a table of int8 values. */
static void pack_iq4_block(const uint8_t *from, int lane, uint8_t *to)
{
    static const int8_t table[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    uint16_t d;
    memcpy(&d, from, 2);
    for (int k = 0; k < 32; k++)
        to[vector_byte(lane, k)] = (uint8_t)table[from[2 + k % 16] >> (k < 16 ? 0 : 4) & 15];
    put16(to + 256, lane, d);
}

static void pack_block(uint32_t type, const uint8_t *row, int64_t block, int lane, uint8_t *to)
{
    int64_t elements = tensor_type_block_elements(type), bytes = tensor_type_block_bytes(type);
    const uint8_t *from = row + block * 32 / elements * bytes;
    int part = (int)(block % (elements / 32));
    switch (type) {
    case TENSOR_Q8_0:
        pack_q8_block(from, lane, to);
        break;
    case TENSOR_IQ4_NL:
        pack_iq4_block(from, lane, to);
        break;
    case TENSOR_Q5_0:
    case TENSOR_Q5_1:
        pack_q5_block(type, from, lane, to);
        break;
    case TENSOR_Q3_K:
        pack_q3_block(from, part, lane, to);
        break;
    case TENSOR_Q4_K:
    case TENSOR_Q5_K:
        pack_k_block(from, part, type == TENSOR_Q5_K, lane, to);
        break;
    case TENSOR_Q6_K:
        pack_q6_block(from, part, lane, to);
        break;
    default:
        pack_q4_block(type, from, lane, to);
        break;
    }
}

/* Floats, as they are or dequantized a block at a time. */
static void pack_floats(const struct weight *weight, const uint8_t *row, int lane, uint8_t *tile)
{
    float values[256];
    int64_t elements = tensor_type_block_elements(weight->type), bytes = tensor_type_block_bytes(weight->type);
    for (int64_t i = 0; i < weight->n_in; i += elements) {
        dequantize_row(weight->type, row + i / elements * bytes, values, elements);
        for (int64_t k = 0; k < elements; k++)
            memcpy(tile + ((i + k) * 8 + lane) * 4, &values[k], 4);
    }
}

static void pack_row(const struct weight *weight, int layout, const uint8_t *row, int lane, uint8_t *tile)
{
    if (pack_layout_is_quantized(layout)) {
        for (int64_t b = 0; b < weight->n_in / 32; b++)
            pack_block(weight->type, row, b, lane, tile + (size_t)b * block_bytes(layout));
    } else if (layout == LAYOUT_F32) {
        pack_floats(weight, row, lane, tile);
    } else {
        for (int64_t i = 0; i < weight->n_in; i++)
            memcpy(tile + (i * 8 + lane) * 2, row + i * 2, 2);
    }
}

void pack_tiles(const struct weight *weight, int layout, int64_t first, int64_t last, uint8_t *to)
{
    size_t tile_bytes = pack_tile_bytes(layout, weight->n_in);
    size_t row_bytes = (size_t)(weight->n_in / tensor_type_block_elements(weight->type)) *
                       (size_t)tensor_type_block_bytes(weight->type);
    for (int64_t tile = first; tile < last; tile++) {
        uint8_t *at = to + (size_t)tile * tile_bytes;
        memset(at, 0, tile_bytes);
        for (int lane = 0; lane < PACK_TILE_ROWS; lane++) {
            int64_t row = tile * PACK_TILE_ROWS + lane;
            if (row < weight->n_out)
                pack_row(weight, layout, (const uint8_t *)weight->data + (size_t)row * row_bytes, lane, at);
        }
    }
}
