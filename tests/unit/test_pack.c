/* Packed weights, read as npu/opencl/pack.h draws them, are the tensor's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/op_entry.h"
#include "npu/dequantize.h"
#include "npu/gguf.h"
#include "npu/half.h"
#include "npu/opencl/pack.h"
#include "random_model.h"

static int fifth_bit(const uint8_t *block, int byte, int side, int j)
{
    return block[128 + byte] >> (4 * side + j) & 1;
}

static double half_of(const uint8_t *halves, int lane)
{
    uint16_t half;
    memcpy(&half, halves + 2 * lane, sizeof half);
    return (double)half_to_float(half);
}

/* Element i of a lane of a tile: one formula per layout. */
static double element_of(int layout, const uint8_t *tile, int lane, int i)
{
    int k = i % 32, byte = 4 * lane + k % 4, side = k / 16, j = k % 16 / 4;
    uint32_t bits = 0;
    float value;
    if (layout == LAYOUT_F32) {
        memcpy(&value, tile + 32 * i + 4 * lane, 4);
        return (double)value;
    }
    if (layout == LAYOUT_F16 || layout == LAYOUT_BF16) {
        memcpy(&bits, tile + 16 * i + 2 * lane, 2);
        return (double)(layout == LAYOUT_F16 ? half_to_float((uint16_t)bits) : bfloat16_to_float((uint16_t)bits));
    }
    const uint8_t *block = tile + (size_t)(i / 32) * (pack_tile_bytes(layout, 32));
    int nibble = block[32 * j + byte] >> (4 * side) & 15;
    switch (layout) {
    case LAYOUT_Q4:
        return half_of(block + 128, lane) * nibble + half_of(block + 144, lane);
    case LAYOUT_Q8:
        return half_of(block + 256, lane) * (int8_t)block[32 * (k / 4) + byte];
    case LAYOUT_Q6: {
        int high = block[128 + 32 * (j / 2) + byte] >> (4 * (j % 2) + 2 * side) & 3;
        return half_of(block + 208, lane) * (int8_t)block[192 + 8 * side + lane] * ((nibble | high << 4) - 32);
    }
    case LAYOUT_Q5:
        return half_of(block + 160, lane) * (nibble | fifth_bit(block, byte, side, j) << 4) +
               half_of(block + 176, lane);
    case LAYOUT_Q4K:
        return half_of(block + 128, lane) * block[160 + lane] * nibble + half_of(block + 144, lane) * block[168 + lane];
    case LAYOUT_Q5K:
        return half_of(block + 160, lane) * block[192 + lane] * (nibble | fifth_bit(block, byte, side, j) << 4) +
               half_of(block + 176, lane) * block[200 + lane];
    case LAYOUT_Q8S:
        return half_of(block + 256, lane) * (int8_t)block[272 + lane] * (int8_t)block[32 * (k / 4) + byte];
    case LAYOUT_Q2: {
        int pair = block[32 * side + byte] >> (2 * j) & 3;
        int s = block[96 + lane] >> (4 * side) & 15, t = block[104 + lane] >> (4 * side) & 15;
        return half_of(block + 64, lane) * s * pair + half_of(block + 80, lane) * t;
    }
    default:
        fail_msg("layout %d is not drawn", layout);
        return 0.0;
    }
}

/* Sub-blocks whose minima have nothing to do with their scales, unlike those of random_rows: neither may be taken for the
 * other. */
static void scramble_scales(uint32_t type, uint8_t *rows, size_t bytes, uint32_t *state)
{
    size_t block = (size_t)tensor_type_block_bytes(type);
    size_t first = type == TENSOR_Q2_K ? 0 : 4,
           end = type == TENSOR_Q2_K || type == TENSOR_Q4_K || type == TENSOR_Q5_K ? 16 : 0;
    for (size_t at = 0; at < bytes; at += block) {
        for (size_t i = first; i < end; i++)
            rows[at + i] = (uint8_t)(random_bits(state) >> 11);
    }
}

static void check_matrix(uint32_t type, int64_t n_in, int64_t n_out, uint32_t seed)
{
    int layout;
    size_t bytes;
    uint32_t state = seed;
    assert_true(pack_layout(type, &layout));
    uint8_t *rows = random_rows(type, n_in, n_out, 2.0f, &state, &bytes);
    scramble_scales(type, rows, bytes, &state);
    struct weight weight = {.name = "w", .type = type, .n_in = n_in, .n_out = n_out, .data = rows};
    int64_t tiles = (n_out + PACK_TILE_ROWS - 1) / PACK_TILE_ROWS;
    size_t tile_bytes = pack_tile_bytes(layout, n_in), room = pack_bytes(layout, n_in, n_out);
    assert_true(room >= (size_t)tiles * tile_bytes && room % 64 == 0);
    uint8_t *packed = malloc(room);
    float *row = malloc((size_t)n_in * sizeof *row);
    assert_true(packed != NULL && row != NULL);
    memset(packed, 0xa5, room);
    for (int64_t t = tiles - 1; t >= 0; t--) /* tiles in any order, as threads take them */
        pack_tiles(&weight, layout, t, t + 1, packed);
    for (int64_t r = 0; r < tiles * PACK_TILE_ROWS; r++) {
        memset(row, 0, (size_t)n_in * sizeof *row); /* rows past the end are zero */
        if (r < n_out)
            dequantize_row(type, rows + r * dequantize_row_bytes(type, n_in), row, n_in);
        double scale = 0.0;
        for (int64_t i = 0; i < n_in; i++)
            scale = fmax(scale, fabs((double)row[i]));
        for (int64_t i = 0; i < n_in; i++) {
            double got = element_of(layout, packed + r / 8 * (int64_t)tile_bytes, (int)(r % 8), (int)i);
            if (!(fabs(got - (double)row[i]) <= 2e-7 * scale))
                fail_msg("%s, %ld x %ld: element %ld of row %ld is %.9g, not %.9g", tensor_type_name(type), (long)n_out,
                         (long)n_in, (long)i, (long)r, got, (double)row[i]);
        }
    }
    free(row);
    free(packed);
    free(rows);
}

static void packed_elements_are_the_tensors(void **state)
{
    (void)state;
    int n_types = 0;
    for (uint32_t type = 0; type < 64; type++) {
        int layout;
        int64_t block = tensor_type_block_elements(type);
        if (!pack_layout(type, &layout))
            continue;
        n_types++;
        check_matrix(type, block, 1, 1);
        check_matrix(type, 3 * (block < 32 ? 11 : block), 8, 2);
        check_matrix(type, 2 * (block < 32 ? 32 : block), 13, 3);
    }
    assert_int_equal(n_types, 15);
}

static void the_types_that_npud_promises_can_be_packed(void **state)
{
    (void)state;
    static const uint32_t types[] = {TENSOR_F32,  TENSOR_F16,  TENSOR_BF16, TENSOR_Q4_0,   TENSOR_Q4_1,
                                     TENSOR_Q5_0, TENSOR_Q5_1, TENSOR_Q8_0, TENSOR_Q2_K,   TENSOR_Q3_K,
                                     TENSOR_Q4_K, TENSOR_Q5_K, TENSOR_Q6_K, TENSOR_IQ4_NL, TENSOR_IQ4_XS};
    int layout;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        assert_true(pack_layout(types[i], &layout));
        assert_true(pack_layout_is_quantized(layout) == (i > 2)); /* none is blown up to floats */
    }
    assert_false(pack_layout(39, &layout)); /* MXFP4 */
    assert_false(pack_layout(1000000, &layout));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_elements_are_the_tensors),
        cmocka_unit_test(the_types_that_npud_promises_can_be_packed),
    };
    return cmocka_run_group_tests_name("pack", tests, NULL, NULL);
}
