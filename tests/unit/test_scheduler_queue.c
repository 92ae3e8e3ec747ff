/* Whose turn it is. The world holds every start against the rule; here are its consequences. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tests/unit/scheduler_world.h"

enum {
    MANY = 40
};

static struct job *submit_one(struct world *world, uint64_t request, int size, int priority, int32_t n_output)
{
    int32_t prompt[10];
    world_make_prompt(prompt, 10, (int32_t)request);
    struct job *job = world_new_job(prompt, 10, n_output);
    job->sequence.request = request;
    job->sequence.request_size = size;
    job->sequence.priority = priority;
    world_submit(world, job);
    return job;
}

static void submit_request(struct world *world, struct job **jobs, uint64_t request, int size, int32_t n_output)
{
    for (int i = 0; i < size; i++)
        jobs[i] = submit_one(world, request, size, 5, n_output);
}

static int count_started(struct job *const *jobs, int n)
{
    int started = 0;
    for (int i = 0; i < n; i++)
        started += jobs[i]->started;
    return started;
}

static int count_ended(struct job *const *jobs, int n)
{
    int ended = 0;
    for (int i = 0; i < n; i++)
        ended += jobs[i]->ended;
    return ended;
}

static void free_jobs(struct job **jobs, int n)
{
    for (int i = 0; i < n; i++)
        free(jobs[i]);
}

static struct world *create_world(int parallel)
{
    struct scheduler_options options = world_options;
    options.parallel = parallel;
    return world_create(world_fake, options);
}

static void run_until_started(struct world *world, const struct job *job)
{
    while (!job->started)
        assert_true(scheduler_step(world->scheduler));
}

static void test_requests_of_more_sequences_than_places_leave_one_to_others(void **state)
{
    (void)state;
    struct world *world = create_world(4);
    struct job *many[MANY];
    submit_request(world, many, 8, MANY / 2, 100);
    submit_request(world, many + MANY / 2, 9, MANY / 2, 100);
    for (int i = 0; i < 10; i++)
        scheduler_step(world->scheduler);
    assert_int_equal(count_started(many, MANY), 3);
    for (uint64_t other = 2; other < 6; other++) { /* others come and go while it goes on */
        struct job *one = submit_one(world, other, 1, (int)other, 3);
        scheduler_step(world->scheduler);
        assert_true(one->started);
        while (!one->ended)
            scheduler_step(world->scheduler);
        assert_int_equal(count_ended(many, MANY), 0);
        free(one);
    }
    world_run_to_end(world);
    assert_int_equal(count_ended(many, MANY), MANY);
    free_jobs(many, MANY);
    world_destroy(world);
}

static void test_a_request_that_fits_takes_all_places(void **state)
{
    (void)state;
    for (int parallel = 1; parallel <= 8; parallel++) {
        struct world *world = create_world(parallel);
        struct job *jobs[MANY];
        submit_request(world, jobs, 1, parallel, 20);
        scheduler_step(world->scheduler);
        assert_int_equal(scheduler_running(world->scheduler), parallel);
        world_run_to_end(world);
        free_jobs(jobs, parallel);
        world_destroy(world);
    }
}

static void test_one_sequence_waits_for_one_of_many_to_end_and_no_more(void **state)
{
    (void)state;
    for (int parallel = 1; parallel < SCHEDULER_SHARED_PLACES; parallel++) {
        struct world *world = create_world(parallel);
        struct job *many[MANY];
        submit_request(world, many, 1, MANY, 30);
        for (int i = 0; i < 200 || scheduler_running(world->scheduler) < parallel; i++) /* it has had many a turn */
            scheduler_step(world->scheduler);
        int started = count_started(many, MANY), ended = count_ended(many, MANY);
        assert_true(ended > 0 && started < MANY);
        struct job *one = submit_one(world, 2, 1, 5, 3);
        run_until_started(world, one);
        for (int i = started; i < MANY; i++) /* all that ran may have ended at once */
            assert_true(!many[i]->started || many[i]->sequence.order > one->sequence.order);
        assert_true(count_ended(many, MANY) > ended);
        world_run_to_end(world);
        free_jobs(many, MANY);
        free(one);
        world_destroy(world);
    }
}

static void test_many_are_not_kept_out_by_an_endless_row_of_single_ones(void **state)
{
    (void)state;
    struct world *world = create_world(1);
    struct job *many[4], *ones[MANY];
    submit_request(world, many, 1, 4, 5);
    for (int i = 0; i < MANY; i++) { /* two wait at any time */
        ones[i] = submit_one(world, 100 + (uint64_t)i, 1, 5, 5);
        for (int step = 0; i > 1 && !ones[i - 2]->ended; step++)
            scheduler_step(world->scheduler);
    }
    assert_int_equal(count_ended(many, 4), 4);
    world_run_to_end(world);
    free_jobs(many, 4);
    free_jobs(ones, MANY);
    world_destroy(world);
}

static void test_two_requests_of_many_share_the_places(void **state)
{
    (void)state;
    struct world *world = create_world(6);
    struct job *a[MANY], *b[MANY];
    submit_request(world, a, 1, MANY, 20);
    submit_request(world, b, 2, MANY, 20);
    while (count_ended(a, MANY) < MANY / 2) {
        scheduler_step(world->scheduler);
        int between = count_started(a, MANY) - count_started(b, MANY);
        assert_in_range(between + 1, 0, 2);
    }
    world_run_to_end(world);
    free_jobs(a, MANY);
    free_jobs(b, MANY);
    world_destroy(world);
}

static void test_priority_comes_before_fairness(void **state)
{
    (void)state;
    struct world *world = create_world(1);
    struct job *many[3], *one = submit_one(world, 1, 1, 4, 3);
    submit_request(world, many, 2, 3, 3);
    run_until_started(world, one);
    assert_int_equal(count_ended(many, 3), 3);
    world_run_to_end(world);
    free_jobs(many, 3);
    free(one);
    world_destroy(world);
}

static void test_a_cancelled_first_one_passes_the_turn_of_its_request_on(void **state)
{
    (void)state;
    struct world *world = create_world(1);
    struct job *many[4];
    submit_request(world, many, 1, 4, 5);
    while (!many[0]->ended)
        scheduler_step(world->scheduler); /* the next one is not admitted yet */
    struct job *one = submit_one(world, 2, 1, 5, 5), *later = submit_one(world, 3, 1, 5, 5);
    scheduler_step(world->scheduler); /* many[1], which waits for its turn since before the others came */
    assert_true(many[1]->started && !one->started);
    while (!many[1]->ended)
        scheduler_step(world->scheduler);
    scheduler_cancel(world->scheduler, &many[2]->sequence);
    run_until_started(world, later);
    assert_true(one->ended && !many[3]->started);
    world_run_to_end(world);
    free_jobs(many, 4);
    free(one);
    free(later);
    world_destroy(world);
}

static void test_the_queue_counts_requests_until_their_last_sequence_starts(void **state)
{
    (void)state;
    struct world *world = create_world(4);
    struct job *many[8], *ones[3];
    struct scheduler_queue queue = scheduler_queue(world->scheduler);
    assert_true(queue.requests == 0 && queue.staying == 0 && queue.spare_places == 4);
    ones[0] = submit_one(world, 1, 1, 5, 200);
    submit_request(world, many, 2, 8, 20);
    queue = scheduler_queue(world->scheduler);
    assert_true(queue.requests == 2 && queue.staying == 1 && queue.spare_places == 0);
    for (int i = 1; i < 3; i++)
        ones[i] = submit_one(world, 2 + (uint64_t)i, 1, 5, 200);
    queue = scheduler_queue(world->scheduler);
    assert_true(queue.requests == 4 && queue.staying == 1 && queue.spare_places == 0);
    while (count_started(many, 8) < 8) {
        scheduler_step(world->scheduler);
        queue = scheduler_queue(world->scheduler);
        assert_int_equal(queue.requests, count_started(many, 8) < 8);
        if (scheduler_running(world->scheduler) == 4)
            assert_int_equal(queue.staying, queue.requests);
    }
    world_run_to_end(world);
    free_jobs(many, 8);
    free_jobs(ones, 3);
    world_destroy(world);
}

static void test_the_place_that_many_leave_free_is_spare(void **state)
{
    (void)state;
    struct world *world = create_world(4);
    struct job *many[MANY];
    submit_request(world, many, 1, MANY, 30);
    assert_int_equal(scheduler_queue(world->scheduler).spare_places, 1);
    scheduler_step(world->scheduler);
    struct scheduler_queue queue = scheduler_queue(world->scheduler);
    assert_true(queue.requests == 1 && queue.staying == 1 && queue.spare_places == 1);
    assert_int_equal(scheduler_free_places(world->scheduler, &many[MANY - 1]->sequence), 0);
    struct job *more[8];
    submit_request(world, more, 2, 8, 30); /* may not take it either */
    assert_int_equal(scheduler_queue(world->scheduler).spare_places, 1);
    struct sequence newcomer = {.request = 9, .priority = 5};
    assert_int_equal(scheduler_free_places(world->scheduler, &newcomer), 1);
    assert_int_equal(scheduler_before(world->scheduler, &newcomer), 0);
    newcomer.request_size = MANY;
    assert_int_equal(scheduler_before(world->scheduler, &newcomer), 1);
    world_run_to_end(world);
    free_jobs(many, MANY);
    free_jobs(more, 8);
    world_destroy(world);
}

/* What scheduler_before says when one comes is what then starts before it. */
static void test_those_before_a_newcomer_are_foretold(void **state)
{
    (void)state;
    struct world *world = create_world(1);
    struct job *jobs[20];
    int n = 0;
    for (int i = 0; i < 10; i++)
        jobs[n++] = submit_one(world, 1, 10, 5, 5);
    scheduler_step(world->scheduler); /* the first runs */
    jobs[n++] = submit_one(world, 2, 1, 5, 5);
    for (int i = 0; i < 3; i++)
        jobs[n++] = submit_one(world, 3, 3, 5, 5);
    jobs[n++] = submit_one(world, 4, 1, 3, 5);
    jobs[n++] = submit_one(world, 5, 1, 8, 5);
    for (int i = 0; i < 2; i++) {
        struct sequence newcomer = {.request = 6, .request_size = 2, .priority = 5};
        int foretold = scheduler_before(world->scheduler, &newcomer);
        assert_int_equal(foretold, i == 0 ? 3 : 6);
        jobs[n++] = submit_one(world, 6, 2, 5, 5);
    }
    run_until_started(world, jobs[n - 2]);
    assert_int_equal(count_started(jobs, n), 1 + 3 + 1);
    run_until_started(world, jobs[n - 1]);
    assert_int_equal(count_started(jobs, n), 1 + 6 + 1);
    world_run_to_end(world);
    free_jobs(jobs, n);
    world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_of_more_sequences_than_places_leave_one_to_others),
        cmocka_unit_test(test_a_request_that_fits_takes_all_places),
        cmocka_unit_test(test_one_sequence_waits_for_one_of_many_to_end_and_no_more),
        cmocka_unit_test(test_many_are_not_kept_out_by_an_endless_row_of_single_ones),
        cmocka_unit_test(test_two_requests_of_many_share_the_places),
        cmocka_unit_test(test_priority_comes_before_fairness),
        cmocka_unit_test(test_a_cancelled_first_one_passes_the_turn_of_its_request_on),
        cmocka_unit_test(test_the_queue_counts_requests_until_their_last_sequence_starts),
        cmocka_unit_test(test_the_place_that_many_leave_free_is_spare),
        cmocka_unit_test(test_those_before_a_newcomer_are_foretold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
