/* From hidden states to the embedding in the last event. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "daemon/generation_state.h"

static struct generation *prepare(enum pooling pooling)
{
    struct generation *generation = generation_create();
    struct npu_error error;
    assert_non_null(generation);
    generation->pooling = pooling;
    generation->prompt = calloc(3, sizeof *generation->prompt);
    generation->n_prompt = 3;
    assert_int_equal(generation_state_prepare_embedding(generation->engine_state, 2, &error), NPU_OK);
    return generation;
}

static void rows_return_what_the_pooling_needs(void **state)
{
    (void)state;
    for (int last = 0; last <= 1; last++) {
        struct generation *generation = prepare(last ? POOLING_LAST : POOLING_MEAN);
        const struct sequence *sequence = &((struct generation_state *)generation->engine_state)->sequence;
        assert_true(sequence->transient);
        assert_int_equal(sequence->returns, ROW_RETURN_HIDDEN);
        assert_int_equal(sequence->prompt_returns, last ? ROW_RETURN_NOTHING : ROW_RETURN_HIDDEN);
        generation_destroy(generation);
    }
}

static void the_sum_of_the_rows_gets_length_1(void **state)
{
    (void)state;
    static const float rows[3][2] = {{1, 0}, {1e8f, -4}, {-1e8f, 0}}; /* in double nothing of the first is lost */
    struct generation *generation = prepare(POOLING_MEAN);
    for (int i = 0; i < 3; i++) {
        assert_null(generation_state_take_event(generation->engine_state));
        generation_state_pool(generation->engine_state, rows[i], i == 2);
    }
    struct generation_event *event = generation_state_take_event(generation->engine_state);
    assert_non_null(event);
    assert_true(event->finished && event->reason == FINISH_STOP && event->n_tokens == 0 && event->text_length == 0);
    assert_int_equal(event->usage.prompt_tokens, 3);
    assert_float_equal(event->embedding[0], 1 / sqrt(17), 1e-7);
    assert_float_equal(event->embedding[1], -4 / sqrt(17), 1e-7);
    generation_event_destroy(event);
    generation_destroy(generation);
}

static void what_has_no_direction_fails(void **state)
{
    (void)state;
    static const float rows[][2] = {{0, 0}, {NAN, 1}, {INFINITY, 1}};
    for (int i = 0; i < 3; i++) {
        struct generation *generation = prepare(POOLING_LAST);
        generation_state_pool(generation->engine_state, rows[i], true);
        struct generation_event *event = generation_state_take_event(generation->engine_state);
        assert_true(event->finished && event->reason == FINISH_ERROR && event->failure == FAILURE_DEVICE);
        generation_event_destroy(event);
        generation_destroy(generation);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_return_what_the_pooling_needs),
        cmocka_unit_test(the_sum_of_the_rows_gets_length_1),
        cmocka_unit_test(what_has_no_direction_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
