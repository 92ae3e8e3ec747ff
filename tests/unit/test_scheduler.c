#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/scheduler_world.h"

static void test_a_generation_alone_gives_what_the_model_gives(void **state)
{
    (void)state;
    struct world *world = world_create(world_fake, world_options);
    int32_t prompt[100];
    world_make_prompt(prompt, 100, 1);
    struct job *job = world_new_job(prompt, 100, 60);
    world_submit(world, job);
    assert_int_equal(job->sequence.state, SEQUENCE_WAITING);
    world_run_to_end(world);
    assert_true(job->ended && !job->failed);
    assert_int_equal(job->sequence.state, SEQUENCE_ENDED);
    assert_int_equal(job->n_tokens, 160);
    assert_false(scheduler_step(world->scheduler));
    free(job);
    world_destroy(world);
}

static void test_an_executor_that_is_too_small_is_refused(void **state)
{
    (void)state;
    struct fake_options options = world_fake;
    options.max_tables = 1;
    struct fake_executor *fake = fake_create(options);
    struct scheduler *scheduler;
    struct npu_error error;
    struct scheduler_callbacks callbacks = {NULL};
    assert_int_equal(scheduler_create(&scheduler, &world_options, &fake->base, &callbacks, &error), NPU_ERROR_INPUT);
    executor_destroy(&fake->base);
}

static void test_a_prompt_that_can_never_fit_is_refused_with_both_numbers(void **state)
{
    (void)state;
    struct fake_options fake = world_fake;
    fake.n_blocks = 3;
    struct world *world = world_create(fake, world_options);
    int32_t prompt[100];
    world_make_prompt(prompt, 100, 1);
    struct job *job = world_new_job(prompt, 97, 1);
    struct npu_error error;
    assert_int_equal(scheduler_submit(world->scheduler, &job->sequence, &error), NPU_ERROR_INPUT);
    assert_non_null(strstr(error.message, "97"));
    assert_non_null(strstr(error.message, "96"));
    free(job);
    job = world_new_job(prompt, 96, 1); /* exactly full */
    world_submit(world, job);
    world_run_to_end(world);
    assert_true(job->ended && !job->failed);
    free(job);
    world_destroy(world);
}

static void test_the_second_turn_computes_its_new_tokens_only(void **state)
{
    (void)state;
    struct world *world = world_create(world_fake, world_options);
    int32_t prompt[WORLD_MAX_CONTEXT];
    world_make_prompt(prompt, 100, 1);
    struct job *first = world_new_job(prompt, 100, 20);
    world_submit(world, first);
    world_run_to_end(world);
    memcpy(prompt, first->tokens, 120 * sizeof *prompt);
    world_make_prompt(prompt + 120, 30, 2);
    struct job *second = world_new_job(prompt, 150, 5);
    uint64_t before = world->fake->n_rows;
    world_submit(world, second);
    world_run_to_end(world);
    assert_int_equal(second->sequence.cache.n_cached, 119); /* all but the last, which was never computed */
    assert_int_equal(world->fake->n_rows - before, 31 + 4);
    free(first);
    free(second);
    world_destroy(world);
}

static void test_no_step_passes_the_executors_limits_and_all_finish(void **state)
{
    (void)state;
    /* The fake aborts when a limit is passed. */
    for (int max_rows = 2; max_rows <= 40; max_rows += 19) {
        for (int small = 2; small <= 5; small++) {
            struct fake_options fake = world_fake;
            fake.max_rows = max_rows;
            fake.max_tables = small;
            fake.max_returning = 7 - small;
            struct scheduler_options options = world_options;
            options.parallel = 12;
            struct world *world = world_create(fake, options);
            struct job *jobs[20];
            for (int i = 0; i < 20; i++) {
                int32_t prompt[100];
                world_make_prompt(prompt, 100, i);
                jobs[i] = world_new_job(prompt, 5 + i * 3, 20);
                world_submit(world, jobs[i]);
            }
            world_run_to_end(world);
            for (int i = 0; i < 20; i++) {
                assert_true(jobs[i]->ended && !jobs[i]->failed);
                free(jobs[i]);
            }
            world_destroy(world);
        }
    }
}

static void test_prompt_rows_keep_the_step_under_the_target_while_others_decode(void **state)
{
    (void)state;
    struct fake_options fake = world_fake;
    fake.max_rows = 256;
    struct world *world = world_create(fake, world_options);
    world->fake->row_us = 1000; /* 32 rows: 32 ms, 64 rows: 64 ms */
    int32_t prompt[WORLD_MAX_CONTEXT];
    world_make_prompt(prompt, WORLD_MAX_CONTEXT, 1);
    struct job *talk = world_new_job(prompt, 10, 200);
    world_submit(world, talk);
    for (int i = 0; i < 10; i++)
        scheduler_step(world->scheduler);
    world_make_prompt(prompt, WORLD_MAX_CONTEXT, 2);
    struct job *book = world_new_job(prompt, 350, 5);
    world_submit(world, book);
    world_run_to_end(world);
    assert_true(talk->longest_gap_us <= 50000);
    /* Alone, steps may take 250 ms. */
    world_make_prompt(prompt, WORLD_MAX_CONTEXT, 3);
    struct job *alone = world_new_job(prompt, 350, 1);
    world_submit(world, alone);
    uint64_t before = world->fake->n_steps;
    world_run_to_end(world);
    assert_true(world->fake->n_steps - before <= 4);
    free(talk);
    free(book);
    free(alone);
    world_destroy(world);
}

static void test_a_prompt_moves_by_eight_rows_even_when_one_row_passes_the_target(void **state)
{
    (void)state;
    struct world *world = world_create(world_fake, world_options);
    world->fake->row_us = 400000;
    int32_t prompt[WORLD_MAX_CONTEXT];
    world_make_prompt(prompt, WORLD_MAX_CONTEXT, 1);
    struct job *talk = world_new_job(prompt, 1, 100);
    world_submit(world, talk);
    for (int i = 0; i < 3; i++)
        scheduler_step(world->scheduler);
    world_make_prompt(prompt, WORLD_MAX_CONTEXT, 2);
    struct job *book = world_new_job(prompt, 160, 1);
    world_submit(world, book);
    for (int i = 0; i < 3; i++) {
        scheduler_step(world->scheduler);
        const struct scheduler_counters *counters = scheduler_count(world->scheduler);
        assert_int_equal(counters->last_decode_rows, 1);
        assert_in_range(counters->last_prompt_rows, 8, 15);
    }
    world_run_to_end(world);
    free(talk);
    free(book);
    world_destroy(world);
}

static void test_a_prompt_takes_many_rows_where_even_a_step_of_one_passes_the_target(void **state)
{
    (void)state;
    struct fake_options fake = world_fake;
    fake.max_rows = 256;
    struct world *world = world_create(fake, world_options);
    world->fake->step_us = 1000000; /* a machine that is taken: every launch waits for its turn */
    world->fake->row_us = 1000;
    int32_t prompt[WORLD_MAX_CONTEXT];
    world_make_prompt(prompt, WORLD_MAX_CONTEXT, 1);
    struct job *talk = world_new_job(prompt, 1, 100);
    world_submit(world, talk);
    for (int i = 0; i < 3; i++)
        scheduler_step(world->scheduler);
    world_make_prompt(prompt, WORLD_MAX_CONTEXT, 2);
    struct job *book = world_new_job(prompt, 350, 1);
    world_submit(world, book);
    uint64_t before = world->fake->n_steps;
    while (book->first_token_us == 0)
        scheduler_step(world->scheduler);
    assert_true(world->fake->n_steps - before <= 6);
    world_run_to_end(world);
    free(talk);
    free(book);
    world_destroy(world);
}

static void test_a_short_question_does_not_wait_for_a_book(void **state)
{
    (void)state;
    struct world *world = world_create(world_fake, world_options);
    int32_t prompt[WORLD_MAX_CONTEXT];
    world_make_prompt(prompt, WORLD_MAX_CONTEXT, 1);
    struct job *book = world_new_job(prompt, 390, 1);
    world_make_prompt(prompt, WORLD_MAX_CONTEXT, 2);
    struct job *question = world_new_job(prompt, 20, 1);
    world_submit(world, book);
    scheduler_step(world->scheduler);
    world_submit(world, question);
    scheduler_step(world->scheduler);
    assert_true(question->ended);
    assert_false(book->ended);
    world_run_to_end(world);
    free(book);
    free(question);
    world_destroy(world);
}

static void test_the_same_prompt_at_once_is_computed_once(void **state)
{
    (void)state;
    struct scheduler_options options = world_options;
    options.parallel = 8;
    struct world *world = world_create(world_fake, options);
    int32_t prompt[WORLD_MAX_CONTEXT];
    world_make_prompt(prompt, WORLD_MAX_CONTEXT, 1);
    struct job *jobs[8];
    for (int i = 0; i < 8; i++) {
        prompt[320 + i] = 5; /* each parts from the others behind a common beginning */
        jobs[i] = world_new_job(prompt, 340, 3);
        world_submit(world, jobs[i]);
    }
    world_run_to_end(world);
    assert_true(world->fake->n_rows < 340 + 7 * 40 + 8 * 3);
    for (int i = 0; i < 8; i++) {
        assert_true(jobs[i]->ended && !jobs[i]->failed);
        free(jobs[i]);
    }
    world_destroy(world);
}

static void test_cancelling_works_in_queue_in_prefill_and_in_decode(void **state)
{
    (void)state;
    struct scheduler_options options = world_options;
    options.parallel = 2;
    struct world *world = world_create(world_fake, options);
    int32_t prompt[WORLD_MAX_CONTEXT];
    world_make_prompt(prompt, WORLD_MAX_CONTEXT, 1);
    struct job *decoding = world_new_job(prompt, 10, 300);
    world_make_prompt(prompt, WORLD_MAX_CONTEXT, 2);
    struct job *reading = world_new_job(prompt, 390, 5);
    world_make_prompt(prompt, WORLD_MAX_CONTEXT, 3);
    struct job *waiting = world_new_job(prompt, 50, 5);
    world_submit(world, decoding);
    for (int i = 0; i < 5; i++)
        scheduler_step(world->scheduler);
    world_submit(world, reading);
    world_submit(world, waiting);
    scheduler_step(world->scheduler);
    assert_int_equal(waiting->sequence.state, SEQUENCE_WAITING);
    assert_true(reading->sequence.session->n_resident < 390);
    scheduler_cancel(world->scheduler, &waiting->sequence);
    scheduler_cancel(world->scheduler, &reading->sequence);
    scheduler_cancel(world->scheduler, &decoding->sequence);
    scheduler_cancel(world->scheduler, &decoding->sequence);
    assert_false(scheduler_step(world->scheduler));
    assert_int_equal(scheduler_kv_counters(world->scheduler).held, 0);
    assert_true(decoding->n_tokens > 10 && !decoding->ended);
    free(decoding);
    free(reading);
    free(waiting);
    world_destroy(world);
}

static void test_the_youngest_moves_out_when_the_pool_runs_out_and_gives_the_same_text(void **state)
{
    (void)state;
    struct fake_options fake = world_fake;
    fake.n_blocks = 12; /* three generations of 160 tokens take 15 */
    struct world *world = world_create(fake, world_options);
    struct job *jobs[3];
    for (int i = 0; i < 3; i++) {
        int32_t prompt[100];
        world_make_prompt(prompt, 100, i + 1);
        jobs[i] = world_new_job(prompt, 60, 100);
        world_submit(world, jobs[i]);
    }
    world_run_to_end(world);
    assert_int_equal(jobs[0]->sequence.times_moved_out, 0);
    assert_int_equal(jobs[1]->sequence.times_moved_out, 0);
    assert_true(jobs[2]->sequence.times_moved_out > 0);
    assert_true(scheduler_count(world->scheduler)->moved_out < 10);
    for (int i = 0; i < 3; i++) {
        assert_true(jobs[i]->ended && !jobs[i]->failed); /* on_row compared each token */
        free(jobs[i]);
    }
    world_destroy(world);
}

static void test_a_generation_that_outgrows_the_pool_alone_fails_with_numbers(void **state)
{
    (void)state;
    struct fake_options fake = world_fake;
    fake.n_blocks = 3;
    struct world *world = world_create(fake, world_options);
    int32_t prompt[100];
    world_make_prompt(prompt, 100, 1);
    struct job *job = world_new_job(prompt, 90, 50);
    world_submit(world, job);
    world_run_to_end(world);
    assert_true(job->failed);
    assert_non_null(strstr(job->message, "97"));
    assert_non_null(strstr(job->message, "3"));
    free(job);
    world_destroy(world);
}

static void test_a_step_that_fails_once_is_run_again(void **state)
{
    (void)state;
    struct world *world = world_create(world_fake, world_options);
    int32_t prompt[100];
    world_make_prompt(prompt, 100, 1);
    struct job *job = world_new_job(prompt, 90, 20);
    world_submit(world, job);
    for (int i = 0; scheduler_step(world->scheduler); i++)
        world->fake->fail_steps = i % 3 == 0;
    assert_true(job->ended && !job->failed);
    assert_true(scheduler_count(world->scheduler)->failed_steps > 3);
    free(job);
    world_destroy(world);
}

static void test_a_step_that_fails_twice_ends_its_generations_and_no_others(void **state)
{
    (void)state;
    struct scheduler_options options = world_options;
    options.parallel = 1;
    struct world *world = world_create(world_fake, options);
    int32_t prompt[100];
    world_make_prompt(prompt, 100, 1);
    struct job *first = world_new_job(prompt, 90, 20);
    struct job *second = world_new_job(prompt, 90, 20);
    world_submit(world, first);
    world_submit(world, second);
    for (int i = 0; i < 6; i++)
        scheduler_step(world->scheduler);
    world->fake->fail_steps = 2;
    scheduler_step(world->scheduler);
    assert_true(first->failed);
    assert_non_null(strstr(first->message, "told to fail"));
    world_run_to_end(world);
    assert_true(second->ended && !second->failed);
    free(first);
    free(second);
    world_destroy(world);
}

static void test_prompt_results_come_for_every_position_in_order(void **state)
{
    (void)state;
    struct fake_options fake = world_fake;
    fake.n_blocks = 14;
    fake.max_returning = 5;
    struct world *world = world_create(fake, world_options);
    struct job *jobs[3];
    for (int i = 0; i < 3; i++) {
        int32_t prompt[200];
        world_make_prompt(prompt, 200, 1); /* the same one: the cache must not swallow results */
        jobs[i] = world_new_job(prompt, 120, 60);
        jobs[i]->sequence.returns = ROW_RETURN_LOGITS;
        jobs[i]->sequence.prompt_returns = ROW_RETURN_LOGITS;
        world_submit(world, jobs[i]);
    }
    world_run_to_end(world);
    for (int i = 0; i < 3; i++) {
        assert_true(jobs[i]->ended && !jobs[i]->failed);
        assert_int_equal(jobs[i]->n_prompt_rows, 119);
        free(jobs[i]);
    }
    world_destroy(world);
}

static void test_paused_sequences_get_no_rows_and_disturb_nobody(void **state)
{
    (void)state;
    struct world *world = world_create(world_fake, world_options);
    int32_t prompt[100];
    world_make_prompt(prompt, 100, 1);
    struct job *slow = world_new_job(prompt, 30, 50);
    world_make_prompt(prompt, 100, 2);
    struct job *other = world_new_job(prompt, 30, 50);
    world_submit(world, slow);
    world_submit(world, other);
    for (int i = 0; i < 5; i++)
        scheduler_step(world->scheduler);
    scheduler_set_paused(world->scheduler, &slow->sequence, true);
    int32_t before = slow->n_tokens;
    while (scheduler_step(world->scheduler)) {
    }
    assert_true(other->ended);
    assert_int_equal(slow->n_tokens, before);
    scheduler_set_paused(world->scheduler, &slow->sequence, false);
    world_run_to_end(world);
    assert_true(slow->ended);
    free(slow);
    free(other);
    world_destroy(world);
}

static void test_priority_moves_a_request_within_the_queue(void **state)
{
    (void)state;
    struct scheduler_options options = world_options;
    options.parallel = 1;
    struct world *world = world_create(world_fake, options);
    struct job *jobs[4];
    static const int priorities[4] = {5, 3, 5, 9};
    for (int i = 0; i < 4; i++) {
        int32_t prompt[100];
        world_make_prompt(prompt, 100, i);
        jobs[i] = world_new_job(prompt, 30, 5);
        jobs[i]->sequence.priority = priorities[i];
        world_submit(world, jobs[i]);
    }
    world_run_to_end(world);
    assert_true(jobs[3]->last_token_us < jobs[0]->first_token_us);
    assert_true(jobs[0]->last_token_us < jobs[2]->first_token_us);
    assert_true(jobs[2]->last_token_us < jobs[1]->first_token_us);
    for (int i = 0; i < 4; i++)
        free(jobs[i]);
    world_destroy(world);
}

/* All rows of several prompts at once, beside a generation, in a pool that is too small for all of them. */
static void test_transient_sequences_deliver_every_row_once_and_leave_nothing(void **state)
{
    (void)state;
    struct fake_options fake = world_fake;
    fake.n_blocks = 20;
    fake.max_returning = 3; /* prompts take long */
    struct world *world = world_create(fake, world_options);
    int32_t prompt[WORLD_MAX_CONTEXT];
    world_make_prompt(prompt, WORLD_MAX_CONTEXT, 1);
    struct job *before = world_new_job(prompt, 100, 1);
    world_submit(world, before);
    world_run_to_end(world);
    struct job *jobs[6], *talk = world_new_job(prompt + 7, 20, 300);
    world_submit(world, talk);
    uint32_t moved_out = 0;
    for (int i = 0; i < 6; i++) { /* two of them the tokens of a session */
        jobs[i] = world_new_job(i < 2 ? prompt : prompt + i, 250, 1);
        jobs[i]->sequence.transient = true;
        jobs[i]->sequence.returns = ROW_RETURN_LOGITS;
        jobs[i]->sequence.prompt_returns = i % 3 < 2 ? ROW_RETURN_LOGITS : ROW_RETURN_NOTHING;
        world_submit(world, jobs[i]);
    }
    world_run_to_end(world);
    for (int i = 0; i < 6; i++) {
        assert_true(jobs[i]->ended && !jobs[i]->failed);
        assert_int_equal(jobs[i]->n_prompt_rows, i % 3 < 2 ? 249 : 0);
        assert_int_equal(jobs[i]->sequence.cache.n_cached, 0);
        moved_out += jobs[i]->sequence.times_moved_out;
        free(jobs[i]);
    }
    assert_true(talk->ended && !talk->failed);
    assert_true(moved_out > 0);
    assert_int_equal(session_count(scheduler_sessions(world->scheduler), SESSION_BUSY), 0);
    assert_true(session_count(scheduler_sessions(world->scheduler), SESSION_IDLE) <= 2);
    free(before);
    free(talk);
    world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_generation_alone_gives_what_the_model_gives),
        cmocka_unit_test(test_an_executor_that_is_too_small_is_refused),
        cmocka_unit_test(test_a_prompt_that_can_never_fit_is_refused_with_both_numbers),
        cmocka_unit_test(test_the_second_turn_computes_its_new_tokens_only),
        cmocka_unit_test(test_no_step_passes_the_executors_limits_and_all_finish),
        cmocka_unit_test(test_prompt_rows_keep_the_step_under_the_target_while_others_decode),
        cmocka_unit_test(test_a_prompt_moves_by_eight_rows_even_when_one_row_passes_the_target),
        cmocka_unit_test(test_a_prompt_takes_many_rows_where_even_a_step_of_one_passes_the_target),
        cmocka_unit_test(test_a_short_question_does_not_wait_for_a_book),
        cmocka_unit_test(test_the_same_prompt_at_once_is_computed_once),
        cmocka_unit_test(test_cancelling_works_in_queue_in_prefill_and_in_decode),
        cmocka_unit_test(test_the_youngest_moves_out_when_the_pool_runs_out_and_gives_the_same_text),
        cmocka_unit_test(test_a_generation_that_outgrows_the_pool_alone_fails_with_numbers),
        cmocka_unit_test(test_a_step_that_fails_once_is_run_again),
        cmocka_unit_test(test_a_step_that_fails_twice_ends_its_generations_and_no_others),
        cmocka_unit_test(test_prompt_results_come_for_every_position_in_order),
        cmocka_unit_test(test_paused_sequences_get_no_rows_and_disturb_nobody),
        cmocka_unit_test(test_priority_moves_a_request_within_the_queue),
        cmocka_unit_test(test_transient_sequences_deliver_every_row_once_and_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
