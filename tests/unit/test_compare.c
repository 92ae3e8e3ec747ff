#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "npu/compare.h"

static void differences_are_taken_relative_to_the_references_range(void **state)
{
    (void)state;
    const float reference[4] = {-2, 0, 1, 8}, tested[4] = {-2, 0.5f, 1, 7};
    struct logit_comparison c = logit_compare(tested, reference, 4);
    assert_true(c.finite && c.argmax_agrees && c.near_tie);
    assert_float_equal(c.mean_difference, 0.375, 1e-12);
    assert_float_equal(c.max_difference, 1, 1e-12);
    assert_float_equal(c.range, 10, 1e-12);
    assert_float_equal(c.peir, 0.1, 1e-12);
    assert_int_equal(c.argmax, 3);
}

static void equal_vectors_differ_by_nothing(void **state)
{
    (void)state;
    const float constant[3] = {4, 4, 4};
    struct logit_comparison c = logit_compare(constant, constant, 3);
    assert_true(c.peir == 0 && c.argmax_agrees && c.near_tie);
    assert_int_equal(c.argmax, 0); /* the smallest id of equal ones */
}

static void a_near_tie_is_within_two_percent_of_the_range(void **state)
{
    (void)state;
    const float reference[3] = {0, 98, 100}, below[3] = {0, 97.9f, 100};
    const float choice[3] = {0, 101, 100};
    struct logit_comparison c = logit_compare(choice, reference, 3);
    assert_false(c.argmax_agrees);
    assert_true(c.near_tie);
    assert_int_equal(c.argmax, 1);
    assert_int_equal(c.reference_argmax, 2);
    assert_false(logit_compare(choice, below, 3).near_tie);
}

static void a_nan_is_never_agreement(void **state)
{
    (void)state;
    const float reference[3] = {0, 1, 2}, tested[3] = {NAN, 1, 2};
    struct logit_comparison c = logit_compare(tested, reference, 3);
    assert_false(c.finite || c.argmax_agrees || c.near_tie);
    assert_true(isinf(c.peir) && isinf(c.max_difference));
    assert_int_equal(logit_argmax(tested, 3), 2);
    const float infinite[3] = {0, INFINITY, 2};
    assert_false(logit_compare(infinite, infinite, 3).finite);
}

static void a_constant_reference_makes_any_difference_infinite(void **state)
{
    (void)state;
    const float reference[2] = {1, 1}, tested[2] = {1, 2};
    assert_true(isinf(logit_compare(tested, reference, 2).peir));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(differences_are_taken_relative_to_the_references_range),
        cmocka_unit_test(equal_vectors_differ_by_nothing),
        cmocka_unit_test(a_near_tie_is_within_two_percent_of_the_range),
        cmocka_unit_test(a_nan_is_never_agreement),
        cmocka_unit_test(a_constant_reference_makes_any_difference_infinite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
