#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npu/dequantize.h"
#include "npu/gguf.h"
#include "npu/half.h"

static void check_fixture(const char *name, uint32_t type)
{
    char path[512];
    snprintf(path, sizeof path, "%s/dequantize/%s.bin", TEST_DATA_DIR, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    uint32_t header[2];
    assert_int_equal(fread(header, sizeof header, 1, file), 1);
    assert_int_equal(header[0], type);
    size_t n = header[1];
    size_t bytes = (size_t)dequantize_row_bytes(type, (int64_t)n);
    uint8_t *packed = malloc(bytes + 1);
    float *expected = malloc(n * sizeof *expected);
    float *out = malloc(n * sizeof *out);
    assert_true(packed && expected && out);
    assert_int_equal(fread(packed + 1, bytes, 1, file), 1); /* an odd address: rows in files are unaligned */
    assert_int_equal(fread(expected, n * sizeof *expected, 1, file), 1);
    assert_int_equal(fgetc(file), EOF);
    fclose(file);
    dequantize_row(type, packed + 1, out, (int64_t)n);
    for (size_t i = 0; i < n; i++) {
        if (float_bits(out[i]) != float_bits(expected[i]))
            fail_msg("%s element %zu is %.9g; it must be %.9g", name, i, (double)out[i], (double)expected[i]);
    }
    free(packed);
    free(expected);
    free(out);
}

static void every_type_agrees_bit_for_bit_with_the_python_package(void **state)
{
    (void)state;
    static const uint32_t types[] = {TENSOR_F32,  TENSOR_F16,  TENSOR_BF16, TENSOR_Q4_0,   TENSOR_Q4_1,
                                     TENSOR_Q5_0, TENSOR_Q5_1, TENSOR_Q8_0, TENSOR_Q2_K,   TENSOR_Q3_K,
                                     TENSOR_Q4_K, TENSOR_Q5_K, TENSOR_Q6_K, TENSOR_IQ4_NL, TENSOR_IQ4_XS};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        assert_true(dequantize_supported(types[i]));
        check_fixture(tensor_type_name(types[i]), types[i]);
    }
}

static void other_types_are_not_supported(void **state)
{
    (void)state;
    assert_false(dequantize_supported(9)); /* Q8_1 */
    assert_false(dequantize_supported(16)); /* IQ2_XXS */
    assert_false(dequantize_supported(39)); /* MXFP4 */
    assert_false(dequantize_supported(UINT32_MAX));
}

static void every_half_survives_the_way_to_float_and_back(void **state)
{
    (void)state;
    for (uint32_t half = 0; half <= 0xffff; half++) {
        float value = half_to_float((uint16_t)half);
        if ((half & 0x7fff) > 0x7c00) {
            assert_true(isnan(value));
            assert_int_equal(float_to_half(value), half | 0x200);
        } else {
            assert_int_equal(float_to_half(value), half);
        }
    }
}

static void halves_round_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t half = 0; half < 0x7bff; half++) {
        double low = (double)half_to_float((uint16_t)half), high = (double)half_to_float((uint16_t)(half + 1));
        float middle = (float)((low + high) / 2); /* exact: halves have 11 bits, floats 24 */
        uint32_t even = half & 1 ? half + 1 : half;
        assert_int_equal(float_to_half(middle), even);
        assert_int_equal(float_to_half(nextafterf(middle, 0.0f)), half);
        assert_int_equal(float_to_half(nextafterf(middle, INFINITY)), half + 1);
        assert_int_equal(float_to_half(-middle), even | 0x8000);
    }
    assert_int_equal(float_to_half(65519.99f), 0x7bff);
    assert_int_equal(float_to_half(65520.0f), 0x7c00);
    assert_int_equal(float_to_half(-1e30f), 0xfc00);
    assert_int_equal(float_to_half(1e-30f), 0);
}

static void bfloat16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t value = 0; value < 0x7f7f; value++) {
        assert_int_equal(float_to_bfloat16(bfloat16_to_float((uint16_t)value)), value);
        assert_int_equal(float_to_bfloat16(float_from_bits(value << 16 | 0x7fff)), value);
        assert_int_equal(float_to_bfloat16(float_from_bits(value << 16 | 0x8000)), value & 1 ? value + 1 : value);
        assert_int_equal(float_to_bfloat16(float_from_bits(value << 16 | 0x8001)), value + 1);
    }
    assert_true(isnan(bfloat16_to_float(float_to_bfloat16(float_from_bits(0x7f800001)))));
    assert_int_equal(float_to_bfloat16(INFINITY), 0x7f80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_agrees_bit_for_bit_with_the_python_package),
        cmocka_unit_test(other_types_are_not_supported),
        cmocka_unit_test(every_half_survives_the_way_to_float_and_back),
        cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(bfloat16_rounds_to_nearest_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
