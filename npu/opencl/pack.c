#include "npu/opencl/pack.h"

#include <string.h>

#include "kernels/op_entry.h"
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
        *layout = LAYOUT_Q8;
        return true;
    case TENSOR_Q6_K:
        *layout = LAYOUT_Q6;
        return true;
    default:
        return false;
    }
}

bool pack_layout_is_quantized(int layout)
{
    return layout == LAYOUT_Q4 || layout == LAYOUT_Q8 || layout == LAYOUT_Q6;
}

size_t pack_tile_bytes(int layout, int64_t n_in)
{
    switch (layout) {
    case LAYOUT_F32:
        return (size_t)n_in * 32;
    case LAYOUT_Q4:
        return (size_t)(n_in / 32) * 160;
    case LAYOUT_Q8:
        return (size_t)(n_in / 32) * 288;
    case LAYOUT_Q6:
        return (size_t)(n_in / 32) * 224;
    default:
        return (size_t)n_in * 16;
    }
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

static void pack_q6_block(const uint8_t *super, int block, int lane, uint8_t *to)
{
    for (int k = 0; k < 16; k++) {
        int first = q6_value(super, block * 32 + k), second = q6_value(super, block * 32 + 16 + k);
        int j = k / 4;
        to[vector_byte(lane, k)] = (uint8_t)((first & 15) | (second & 15) << 4);
        to[128 + 32 * (j / 2) + 4 * lane + k % 4] |= (uint8_t)(((first >> 4) | (second >> 4) << 2) << (4 * (j % 2)));
    }
    to[192 + lane] = super[192 + block * 2];
    to[200 + lane] = super[192 + block * 2 + 1];
    uint16_t d;
    memcpy(&d, super + 208, 2);
    put16(to + 208, lane, d);
}

static void pack_row(const struct weight *weight, int layout, const uint8_t *row, int lane, uint8_t *tile)
{
    int64_t n = weight->n_in;
    switch (layout) {
    case LAYOUT_F32:
        for (int64_t i = 0; i < n; i++)
            memcpy(tile + (i * 8 + lane) * 4, row + i * 4, 4);
        break;
    case LAYOUT_F16:
    case LAYOUT_BF16:
        for (int64_t i = 0; i < n; i++)
            memcpy(tile + (i * 8 + lane) * 2, row + i * 2, 2);
        break;
    case LAYOUT_Q4: {
        int bytes = tensor_type_block_bytes(weight->type);
        for (int64_t b = 0; b < n / 32; b++)
            pack_q4_block(weight->type, row + b * bytes, lane, tile + b * 160);
        break;
    }
    case LAYOUT_Q8:
        for (int64_t b = 0; b < n / 32; b++)
            pack_q8_block(row + b * 34, lane, tile + b * 288);
        break;
    case LAYOUT_Q6:
        for (int64_t b = 0; b < n / 32; b++)
            pack_q6_block(row + b / 8 * 210, (int)(b % 8), lane, tile + b * 224);
        break;
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
