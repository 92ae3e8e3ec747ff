/* Weights repacked for the device, once at load.
 *
 * Rows of a matrix are taken in tiles of 8; a tile holds all n_in elements of its 8 rows (rows past n_out are zero), so
 * that one vector lane is one row and elements come in order. Elements of quantized types go in blocks of 32; inside,
 * vector j (32 bytes) holds, for row r at bytes 4r..4r+3, four consecutive elements:
 *
 *   LAYOUT_F32   per element: 8 floats            LAYOUT_F16, LAYOUT_BF16  per element: 8 x 16 bits
 *
 *   LAYOUT_Q4    160 bytes a block:
 *                | v0 v1 v2 v3 : elements 4j.. in the low nibbles, 16+4j.. in the high ones | d: half[8] | m: half[8] |
 *                element = d * nibble + m
 *
 *   LAYOUT_Q8    288 bytes a block:
 *                | v0 ... v7 : elements 4j.. as int8 | d: half[8] | 16 bytes of padding |
 *                element = d * value
 *
 *   LAYOUT_Q6    224 bytes a block:
 *                | v0 v1 v2 v3 : low 4 bits, as LAYOUT_Q4 | u0 u1 : high 2 bits of v0 v1, v2 v3, per byte
 *                  [element 4j | 16+4j of the even v, then of the odd v] from bit 0 | s0: int8[8] | s1: int8[8] | d: half[8] |
 *                element = d * s * (value - 32), s0 for the first 16 elements, s1 for the others
 *
 *   LAYOUT_Q5    192 bytes a block:
 *                | v0 v1 v2 v3 as LAYOUT_Q4 | u : bit 4 of the values, per byte of the vectors: element 4j.. in bit j,
 *                  16+4j.. in bit 4+j | d: half[8] | m: half[8] |
 *
 *   LAYOUT_Q4K   192 bytes a block:
 *                | v0 v1 v2 v3 as LAYOUT_Q4 | d: half[8] | m: half[8] | s: uint8[8] | t: uint8[8] | 16 of padding |
 *                element = d * s * nibble + m * t
 *
 *   LAYOUT_Q5K   224 bytes a block:
 *                | v0 v1 v2 v3 u as LAYOUT_Q5 | d | m | s | t | 16 of padding |
 *
 *   LAYOUT_Q8S   288 bytes a block:
 *                | v0 ... v7 d as LAYOUT_Q8 | s: int8[8] | 8 bytes of padding |
 *                element = d * s * value
 *
 *   LAYOUT_Q2    128 bytes a block:
 *                | v0 v1 : two bits an element, 16h+4j.. of half h in v_h from bit 2j | d: half[8] | m: half[8] |
 *                  s: uint8[8], a nibble for each half, the first one low | t: uint8[8], likewise | 16 of padding |
 *                element = d * s * value + m * t
 *
 * Types without a layout of their own go where they fit exactly: Q3_K to LAYOUT_Q6, IQ4_NL to LAYOUT_Q8, IQ4_XS to
 * LAYOUT_Q8S.
 *
 * All block sizes are multiples of 32 bytes, for aligned vector loads. */
#ifndef NPU_OPENCL_PACK_H
#define NPU_OPENCL_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "npu/ops.h"

enum {
    PACK_TILE_ROWS = 8
};

/* The layout that a GGUF tensor type is packed to; false: none. */
bool pack_layout(uint32_t type, int *layout);
bool pack_layout_is_quantized(int layout);
size_t pack_tile_bytes(int layout, int64_t n_in);
/* Of the whole matrix, a multiple of 64. */
size_t pack_bytes(int layout, int64_t n_in, int64_t n_out);
/* Packs tiles [first, last) of weight to `to`, where tile 0 begins at to. Any thread. */
void pack_tiles(const struct weight *weight, int layout, int64_t first, int64_t last, uint8_t *to);

#endif
