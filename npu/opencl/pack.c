/* Four consecutive elements of a lane are four bytes in the file and four bytes of a vector: all work is done on words
 * of four bytes, whose bytes do not touch each other. A block's eight lanes are packed one after the other, so that it
 * is written while it is in the nearest cache. */
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
        *layout = LAYOUT_Q2;
        return true;
    case TENSOR_IQ4_XS:
        *layout = LAYOUT_Q8S;
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
    case LAYOUT_Q2:
        return 128;
    case LAYOUT_Q4:
        return 160;
    case LAYOUT_Q5:
    case LAYOUT_Q4K:
        return 192;
    case LAYOUT_Q6:
    case LAYOUT_Q5K:
        return 224;
    case LAYOUT_Q8:
    case LAYOUT_Q8S:
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

static inline uint32_t word_at(const uint8_t *from, int index)
{
    uint32_t word;
    memcpy(&word, from + 4 * index, 4);
    return word;
}

static inline uint16_t half_at(const uint8_t *from)
{
    uint16_t half;
    memcpy(&half, from, 2);
    return half;
}

/* Four elements of a lane to vector number `vector`. */
static inline void put_word(uint8_t *to, int vector, int lane, uint32_t word)
{
    memcpy(to + 32 * vector + 4 * lane, &word, 4);
}

static inline void put_half(uint8_t *to, int lane, uint16_t half)
{
    memcpy(to + 2 * lane, &half, 2);
}

/* The same byte in all four. */
static inline uint32_t all(uint32_t byte)
{
    return byte * 0x01010101u;
}

/* Packs 32 elements of a lane: block `part` of the ones that `from` holds. */
typedef void block_packer(const uint8_t *from, int part, int lane, uint8_t *to);

static inline void put_nibbles(const uint8_t *from, uint16_t d, uint16_t m, int lane, uint8_t *to)
{
    for (int j = 0; j < 4; j++) /* the file's byte k holds elements k and 16 + k, as a vector's does */
        put_word(to, j, lane, word_at(from, j));
    put_half(to + 128, lane, d);
    put_half(to + 144, lane, m);
}

static inline void pack_q4_0(const uint8_t *from, int part, int lane, uint8_t *to)
{
    (void)part;
    uint16_t d = half_at(from),
             m = float_to_half(-8.0f * half_to_float(d)); /* exact but at the ends of the half range */
    put_nibbles(from + 2, d, m, lane, to);
}

static inline void pack_q4_1(const uint8_t *from, int part, int lane, uint8_t *to)
{
    (void)part;
    put_nibbles(from + 4, half_at(from), half_at(from + 2), lane, to);
}

static inline void pack_q8_0(const uint8_t *from, int part, int lane, uint8_t *to)
{
    (void)part;
    for (int j = 0; j < 8; j++)
        put_word(to, j, lane, word_at(from + 2, j));
    put_half(to + 256, lane, half_at(from));
}

/* Values of six bits, eight words of four; sub-blocks of 16 with signed scales. */
static inline void put_q6(const uint32_t *values, uint8_t scale0, uint8_t scale1, uint16_t d, int lane, uint8_t *to)
{
    uint32_t high[2] = {0, 0};
    for (int j = 0; j < 4; j++) {
        uint32_t first = values[j], second = values[4 + j];
        put_word(to, j, lane, (first & all(15)) | (second & all(15)) << 4);
        high[j / 2] |= ((first >> 4 & all(3)) | (second >> 4 & all(3)) << 2) << (4 * (j % 2));
    }
    put_word(to + 128, 0, lane, high[0]);
    put_word(to + 128, 1, lane, high[1]);
    to[192 + lane] = scale0;
    to[200 + lane] = scale1;
    put_half(to + 208, lane, d);
}

/* Source: ggml's Q6_K: 128 bytes of low nibbles, 64 of high bit pairs, 16 scales, d, for 256 elements. */
static inline void pack_q6_k(const uint8_t *super, int part, int lane, uint8_t *to)
{
    const uint8_t *low = super + part / 4 * 64 + part % 2 * 32, *high = super + 128 + part / 4 * 32;
    int low_shift = part % 4 < 2 ? 0 : 4, high_shift = 2 * (part % 4);
    uint32_t values[8];
    for (int j = 0; j < 8; j++)
        values[j] = (word_at(low, j) >> low_shift & all(15)) | (word_at(high, j) >> high_shift & all(3)) << 4;
    put_q6(values, super[192 + 2 * part], super[193 + 2 * part], half_at(super + 208), lane, to);
}

/* Scale i of Q3_K: six bits with an offset of 32. */
static inline uint8_t q3_scale(const uint8_t *packed, int i)
{
    int low = i < 8 ? packed[i] & 15 : packed[i - 8] >> 4;
    int high = packed[8 + i % 4] >> (2 * (i / 4)) & 3;
    return (uint8_t)((low | high << 4) - 32);
}

/* Source: ggml's Q3_K: 32 bytes of high bits, 64 of low bit pairs, 12 of 16 six-bit scales, d. A value is its two low bits,
 * less 4 where the high bit is clear: its three bits less 4, which as six bits less 32 are the three bits plus 28. */
static inline void pack_q3_k(const uint8_t *super, int part, int lane, uint8_t *to)
{
    const uint8_t *low = super + 32 + part / 4 * 32;
    uint32_t values[8];
    for (int j = 0; j < 8; j++) {
        uint32_t three = (word_at(low, j) >> (2 * (part % 4)) & all(3)) | (word_at(super, j) >> part & all(1)) << 2;
        values[j] = three + all(28);
    }
    put_q6(values, q3_scale(super + 96, 2 * part), q3_scale(super + 96, 2 * part + 1), half_at(super + 108), lane, to);
}

/* Source: ggml's Q2_K: 16 bytes of scales (low nibble) and minima (high), 64 of bit pairs, d, dmin. */
static inline void pack_q2_k(const uint8_t *super, int part, int lane, uint8_t *to)
{
    const uint8_t *pairs = super + 16 + part / 4 * 32;
    uint8_t first = super[2 * part], second = super[2 * part + 1];
    for (int half = 0; half < 2; half++) {
        uint32_t word = 0;
        for (int j = 0; j < 4; j++)
            word |= (word_at(pairs, 4 * half + j) >> (2 * (part % 4)) & all(3)) << (2 * j);
        put_word(to, half, lane, word);
    }
    put_half(to + 64, lane, half_at(super + 80));
    put_half(to + 80, lane, half_at(super + 82) ^ 0x8000); /* subtracted */
    to[96 + lane] = (uint8_t)((first & 15) | second << 4);
    to[104 + lane] = (uint8_t)(first >> 4 | (second & 0xf0));
}

/* Bit 4 j + i of each half to bit j of nibble i, then the nibbles of the halves side by side in byte i. */
static inline uint32_t fifth_bits(uint32_t bits)
{
    uint32_t swapped = (bits ^ bits >> 3) & 0x0a0a0a0au;
    bits ^= swapped ^ swapped << 3;
    swapped = (bits ^ bits >> 6) & 0x00cc00ccu;
    bits ^= swapped ^ swapped << 6;
    uint32_t low = bits & 0xffff, high = bits >> 16;
    low = (low | low << 8) & 0x00ff00ffu;
    low = (low | low << 4) & 0x0f0f0f0fu;
    high = (high | high << 8) & 0x00ff00ffu;
    high = (high | high << 4) & 0x0f0f0f0fu;
    return low | high << 4;
}

/* Source: ggml's Q5_0 and Q5_1: d (, m), 4 bytes of high bits, 16 of nibbles. */
static inline void put_q5(const uint8_t *bits, uint16_t d, uint16_t m, int lane, uint8_t *to)
{
    for (int j = 0; j < 4; j++)
        put_word(to, j, lane, word_at(bits + 4, j));
    put_word(to, 4, lane, fifth_bits(word_at(bits, 0)));
    put_half(to + 160, lane, d);
    put_half(to + 176, lane, m);
}

static inline void pack_q5_0(const uint8_t *from, int part, int lane, uint8_t *to)
{
    (void)part;
    uint16_t d = half_at(from);
    put_q5(from + 2, d, float_to_half(-16.0f * half_to_float(d)), lane, to);
}

static inline void pack_q5_1(const uint8_t *from, int part, int lane, uint8_t *to)
{
    (void)part;
    put_q5(from + 4, half_at(from), half_at(from + 2), lane, to);
}

/* Source: ggml's Q4_K and Q5_K: d, dmin, 12 bytes of 8 six-bit scales and minima, (32 of high bits,) 128 of nibbles. */
static inline void put_k_nibbles(const uint8_t *nibbles, int part, int lane, uint8_t *to)
{
    const uint8_t *from = nibbles + part / 2 * 32;
    int shift = part % 2 * 4;
    for (int j = 0; j < 4; j++)
        put_word(to, j, lane, (word_at(from, j) >> shift & all(15)) | (word_at(from, 4 + j) >> shift & all(15)) << 4);
}

static inline void put_k_scales(const uint8_t *super, int part, int lane, uint8_t *to)
{
    const uint8_t *scales = super + 4;
    uint8_t s, t;
    if (part < 4) {
        s = scales[part] & 63;
        t = scales[part + 4] & 63;
    } else {
        s = (uint8_t)((scales[part + 4] & 15) | (scales[part - 4] >> 6) << 4);
        t = (uint8_t)(scales[part + 4] >> 4 | (scales[part] >> 6) << 4);
    }
    put_half(to, lane, half_at(super));
    put_half(to + 16, lane, half_at(super + 2) ^ 0x8000); /* subtracted */
    to[32 + lane] = s;
    to[40 + lane] = t;
}

static inline void pack_q4_k(const uint8_t *super, int part, int lane, uint8_t *to)
{
    put_k_nibbles(super + 16, part, lane, to);
    put_k_scales(super, part, lane, to + 128);
}

static inline void pack_q5_k(const uint8_t *super, int part, int lane, uint8_t *to)
{
    uint32_t fifth = 0;
    put_k_nibbles(super + 48, part, lane, to);
    for (int j = 0; j < 8; j++)
        fifth |= (word_at(super + 16, j) >> part & all(1)) << j;
    put_word(to, 4, lane, fifth);
    put_k_scales(super, part, lane, to + 160);
}

/* Nibbles that index a table of int8 values, in IQ4_NL and IQ4_XS. */
static inline void put_table_values(const uint8_t *nibbles, int lane, uint8_t *to)
{
    static const int8_t table[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    for (int j = 0; j < 4; j++) {
        uint8_t *low = to + 32 * j + 4 * lane, *high = low + 128;
        for (int k = 0; k < 4; k++) {
            low[k] = (uint8_t)table[nibbles[4 * j + k] & 15];
            high[k] = (uint8_t)table[nibbles[4 * j + k] >> 4];
        }
    }
}

/* Source: ggml's IQ4_NL: d, 16 bytes of nibbles. */
static inline void pack_iq4_nl(const uint8_t *from, int part, int lane, uint8_t *to)
{
    (void)part;
    put_table_values(from + 2, lane, to);
    put_half(to + 256, lane, half_at(from));
}

/* Source: ggml's IQ4_XS: d, 2 bytes of high bit pairs and 4 of low nibbles of 8 scales with an offset of 32, 128 of nibbles. */
static inline void pack_iq4_xs(const uint8_t *super, int part, int lane, uint8_t *to)
{
    int low = super[4 + part / 2] >> (4 * (part % 2)) & 15, high = super[2 + part / 4] >> (2 * (part % 4)) & 3;
    put_table_values(super + 8 + 16 * part, lane, to);
    put_half(to + 256, lane, half_at(super));
    to[272 + lane] = (uint8_t)((low | high << 4) - 32);
}

/* A tile's rows in the file; those past the last one are NULL. */
struct tile_rows {
    const uint8_t *rows[PACK_TILE_ROWS];
};

/* Inlined with each packer, so that its loops are compiled for it. */
static inline __attribute__((always_inline)) void pack_blocks(const struct tile_rows *from, const struct weight *weight,
                                                              size_t bytes, block_packer *pack, uint8_t *tile)
{
    int parts = tensor_type_block_elements(weight->type) / 32, from_bytes = tensor_type_block_bytes(weight->type);
    int64_t n = weight->n_in / (32 * parts);
    for (int64_t b = 0; b < n; b++) {
        for (int part = 0; part < parts; part++, tile += bytes) {
            memset(tile, 0, bytes);
            for (int lane = 0; lane < PACK_TILE_ROWS; lane++) {
                if (from->rows[lane] != NULL)
                    pack(from->rows[lane] + b * from_bytes, part, lane, tile);
            }
        }
    }
}

/* Numbers as they are, of 2 or 4 bytes. */
static inline __attribute__((always_inline)) void pack_numbers(const struct tile_rows *from, int64_t n, size_t bytes,
                                                               uint8_t *tile)
{
    for (int lane = 0; lane < PACK_TILE_ROWS; lane++) {
        const uint8_t *row = from->rows[lane];
        for (int64_t i = 0; i < n; i++) {
            uint8_t *to = tile + ((size_t)i * PACK_TILE_ROWS + (size_t)lane) * bytes;
            if (row != NULL)
                memcpy(to, row + (size_t)i * bytes, bytes);
            else
                memset(to, 0, bytes);
        }
    }
}

static void pack_tile(const struct tile_rows *from, const struct weight *weight, int layout, uint8_t *tile)
{
    size_t bytes = block_bytes(layout);
    switch (weight->type) {
    case TENSOR_F32:
        pack_numbers(from, weight->n_in, 4, tile);
        break;
    case TENSOR_F16:
    case TENSOR_BF16:
        pack_numbers(from, weight->n_in, 2, tile);
        break;
    case TENSOR_Q4_0:
        pack_blocks(from, weight, bytes, pack_q4_0, tile);
        break;
    case TENSOR_Q4_1:
        pack_blocks(from, weight, bytes, pack_q4_1, tile);
        break;
    case TENSOR_Q5_0:
        pack_blocks(from, weight, bytes, pack_q5_0, tile);
        break;
    case TENSOR_Q5_1:
        pack_blocks(from, weight, bytes, pack_q5_1, tile);
        break;
    case TENSOR_Q8_0:
        pack_blocks(from, weight, bytes, pack_q8_0, tile);
        break;
    case TENSOR_Q2_K:
        pack_blocks(from, weight, bytes, pack_q2_k, tile);
        break;
    case TENSOR_Q3_K:
        pack_blocks(from, weight, bytes, pack_q3_k, tile);
        break;
    case TENSOR_Q4_K:
        pack_blocks(from, weight, bytes, pack_q4_k, tile);
        break;
    case TENSOR_Q5_K:
        pack_blocks(from, weight, bytes, pack_q5_k, tile);
        break;
    case TENSOR_Q6_K:
        pack_blocks(from, weight, bytes, pack_q6_k, tile);
        break;
    case TENSOR_IQ4_NL:
        pack_blocks(from, weight, bytes, pack_iq4_nl, tile);
        break;
    case TENSOR_IQ4_XS:
        pack_blocks(from, weight, bytes, pack_iq4_xs, tile);
        break;
    }
}

void pack_tiles(const struct weight *weight, int layout, int64_t first, int64_t last, uint8_t *to)
{
    size_t tile_bytes = pack_tile_bytes(layout, weight->n_in);
    size_t row_bytes = (size_t)(weight->n_in / tensor_type_block_elements(weight->type)) *
                       (size_t)tensor_type_block_bytes(weight->type);
    for (int64_t tile = first; tile < last; tile++) {
        struct tile_rows from;
        for (int lane = 0; lane < PACK_TILE_ROWS; lane++) {
            int64_t row = tile * PACK_TILE_ROWS + lane;
            from.rows[lane] = row < weight->n_out ? (const uint8_t *)weight->data + (size_t)row * row_bytes : NULL;
        }
        pack_tile(&from, weight, layout, to + (size_t)tile * tile_bytes);
    }
}
