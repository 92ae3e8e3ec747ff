#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "daemon/wait_estimate.h"

static void expect_near(double value, double expected)
{
    assert_true(value > expected - 0.01 && value < expected + 0.01);
}

static void test_a_generation_that_nothing_ends_early_takes_all_its_tokens(void **state)
{
    (void)state;
    struct running_place place = {.age_ms = 20000, .n_left = 3000, .token_ms = 20, .takes_all = true};
    expect_near(wait_estimate_place_ms(&place, 80), 60000);
    place.n_left = 0;
    expect_near(wait_estimate_place_ms(&place, 80), 0);
}

static void test_other_generations_take_what_is_usual_and_no_more_than_their_tokens(void **state)
{
    (void)state;
    struct running_place place = {.age_ms = 300, .n_left = 3000, .token_ms = 20};
    expect_near(wait_estimate_place_ms(&place, 1000), 700);
    place.age_ms = 5000; /* it has outlived the average */
    expect_near(wait_estimate_place_ms(&place, 1000), 1000);
    place.n_left = 2;
    expect_near(wait_estimate_place_ms(&place, 1000), 40);
    place.token_ms = 0; /* not measured yet */
    expect_near(wait_estimate_place_ms(&place, 1000), 1000);
    expect_near(wait_estimate_place_ms(&place, 0), 0);
}

static void test_a_free_place_means_no_wait_until_those_before_have_taken_it(void **state)
{
    (void)state;
    static const double places[3] = {0, 0, 500};
    assert_true(wait_estimate_ms(places, 3, 0, 1000) == 0);
    assert_true(wait_estimate_ms(places, 3, 1, 1000) == 0);
    expect_near(wait_estimate_ms(places, 3, 2, 1000), 500);
    expect_near(wait_estimate_ms(places, 3, 3, 1000), 1000);
}

static void test_places_that_turn_over_fast_serve_several_while_one_is_held(void **state)
{
    (void)state;
    static const double places[2] = {60000, 50};
    expect_near(wait_estimate_ms(places, 2, 0, 100), 50);
    expect_near(wait_estimate_ms(places, 2, 5, 100), 550);
    static const double equal[4] = {100, 100, 100, 100};
    expect_near(wait_estimate_ms(equal, 4, 3, 100), 100);
    expect_near(wait_estimate_ms(equal, 4, 4, 100), 200);
    expect_near(wait_estimate_ms(equal, 4, 400, 100), 10100);
}

static void test_what_is_not_known_counts_as_soon(void **state)
{
    (void)state;
    static const double places[2] = {300, 200};
    expect_near(wait_estimate_ms(places, 2, 100, 0), 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_generation_that_nothing_ends_early_takes_all_its_tokens),
        cmocka_unit_test(test_other_generations_take_what_is_usual_and_no_more_than_their_tokens),
        cmocka_unit_test(test_a_free_place_means_no_wait_until_those_before_have_taken_it),
        cmocka_unit_test(test_places_that_turn_over_fast_serve_several_while_one_is_held),
        cmocka_unit_test(test_what_is_not_known_counts_as_soon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
