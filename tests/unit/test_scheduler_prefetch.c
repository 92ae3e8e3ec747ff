/* The scheduler announces every token before the step that computes it, so that an executor can read ahead what it needs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "daemon/scheduler.h"
#include "fake_executor.h"

enum {
    N_VOCAB = 4096, /* so many that most tokens come up once */
    N_SEQUENCES = 5,
    LONGEST = 500
};

struct job {
    struct sequence sequence; /* first: the callbacks get it back */
    int32_t prompt[LONGEST];
    int32_t n_left; /* tokens still to come */
};

static struct job jobs[N_SEQUENCES];

static uint64_t now_us(void *context)
{
    return (*(uint64_t *)context)++;
}

static void on_start(void *context, struct sequence *sequence)
{
    (void)context;
    (void)sequence;
}

static int32_t on_row(void *context, struct sequence *sequence, int32_t position, const struct row_result *result)
{
    (void)context;
    (void)position;
    struct job *job = (struct job *)sequence;
    return --job->n_left == 0 ? SEQUENCE_END : result->best.token;
}

static void on_failed(void *context, struct sequence *sequence, const struct npu_error *error)
{
    (void)context;
    (void)sequence;
    fail_msg("%s", error->message);
}

/* Prompts longer than a step and short ones, and a pool so small that sequences are moved out and in again. */
static void every_token_is_announced_before_its_step(void **state)
{
    (void)state;
    static const int32_t lengths[N_SEQUENCES] = {300, 7, 150, 1, 64}, outputs[N_SEQUENCES] = {100, 250, 3, 120, 60};
    struct fake_executor *fake = fake_create((struct fake_options){.n_blocks = 15,
                                                                   .n_vocab = N_VOCAB,
                                                                   .max_context = LONGEST,
                                                                   .max_rows = 64,
                                                                   .max_tables = 8,
                                                                   .max_returning = 8});
    uint64_t clock_us = 1;
    struct scheduler_callbacks callbacks = {
        .context = &clock_us, .now_us = now_us, .on_start = on_start, .on_row = on_row, .on_failed = on_failed};
    struct scheduler_options options = {.parallel = 3, .step_target_ms = 50, .max_sessions = 10};
    struct scheduler *scheduler;
    assert_int_equal(scheduler_create(&scheduler, &options, &fake->base, &callbacks, NULL), NPU_OK);
    memset(jobs, 0, sizeof jobs);
    for (int i = 0; i < N_SEQUENCES; i++) {
        struct job *job = &jobs[i];
        for (int k = 0; k < lengths[i]; k++)
            job->prompt[k] = 700 * i + k;
        job->n_left = outputs[i];
        job->sequence.prompt = job->prompt;
        job->sequence.n_prompt = lengths[i];
        job->sequence.returns = ROW_RETURN_BEST;
        assert_int_equal(scheduler_submit(scheduler, &job->sequence, NULL), NPU_OK);
    }
    while (scheduler_step(scheduler))
        ;
    uint32_t moved_out = 0;
    for (int i = 0; i < N_SEQUENCES; i++) {
        assert_int_equal(jobs[i].n_left, 0);
        moved_out += jobs[i].sequence.times_moved_out;
    }
    assert_true(moved_out > 0);
    assert_true(fake->n_rows >= 522 + 533 - N_SEQUENCES);
    assert_int_equal(fake->n_unannounced, 0);
    scheduler_destroy(scheduler);
    executor_destroy(&fake->base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_token_is_announced_before_its_step),
    };
    return cmocka_run_group_tests_name("scheduler prefetch", tests, NULL, NULL);
}
