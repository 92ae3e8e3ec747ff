#include "scheduler_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

const struct fake_options world_fake = {.n_blocks = 64,
                                        .n_vocab = WORLD_N_VOCAB,
                                        .max_context = WORLD_MAX_CONTEXT,
                                        .max_rows = 64,
                                        .max_tables = 8,
                                        .max_returning = 8};
const struct scheduler_options world_options = {.parallel = 4, .step_target_ms = 50, .max_sessions = 50};

static uint64_t now_us(void *context)
{
    return ((struct world *)context)->now_us;
}

static int running_of(const struct scheduler *scheduler, const struct sequence *one)
{
    int n = 0;
    for (int i = 0; i < scheduler->n_running; i++) {
        const struct sequence *other = scheduler->running[i];
        n += other == one || (one->request != 0 && other->request == one->request);
    }
    return n;
}

static bool is_wide(const struct scheduler *scheduler, const struct sequence *one)
{
    return scheduler->options.parallel >= SCHEDULER_SHARED_PLACES && one->request_size > scheduler->options.parallel;
}

/* It is this one's turn, and not that of any that still waits. */
static void check_turn(const struct scheduler *scheduler, const struct job *job)
{
    const struct sequence *one = &job->sequence;
    int n = running_of(scheduler, one) - 1, n_wide = -is_wide(scheduler, one); /* it counts already */
    for (int i = 0; i < scheduler->n_running; i++)
        n_wide += is_wide(scheduler, scheduler->running[i]);
    bool wide_may_start = n_wide < scheduler->options.parallel - 1;
    assert_true(wide_may_start || !is_wide(scheduler, one));
    for (const struct sequence *other = scheduler->first_waiting; other != NULL; other = other->next) {
        int n_other = running_of(scheduler, other);
        bool is_alone = one->request == 0 && other->request == 0;
        bool is_sister = one->request != 0 && one->request == other->request;
        assert_int_equal(other->state, SEQUENCE_WAITING);
        if (!wide_may_start && is_wide(scheduler, other))
            continue;
        assert_true(other->priority <= one->priority);
        if (is_alone || is_sister)
            assert_true(other->priority < one->priority || ((const struct job *)other)->submission > job->submission);
        else
            assert_true(other->priority < one->priority || n_other >= n);
    }
}

static void on_start(void *context, struct sequence *sequence)
{
    struct world *world = context;
    struct job *job = (struct job *)sequence;
    assert_false(job->started);
    job->started = true;
    check_turn(world->scheduler, job);
}

static int32_t on_row(void *context, struct sequence *sequence, int32_t position, const struct row_result *result)
{
    struct world *world = context;
    struct job *job = (struct job *)sequence;
    int32_t expected = fake_best(job->tokens, position + 1, WORLD_N_VOCAB);
    assert_true(job->started && !job->ended && !sequence->paused && sequence->restore == NULL);
    if (position < job->n_tokens - 1) {
        assert_int_equal(position, job->n_prompt_rows);
        float logits[WORLD_N_VOCAB];
        fake_logits(job->tokens, position + 1, WORLD_N_VOCAB, logits);
        assert_memory_equal(result->logits, logits, sizeof logits);
        job->n_prompt_rows++;
        return 0;
    }
    assert_int_equal(position, job->n_tokens - 1);
    if (sequence->returns == ROW_RETURN_LOGITS) {
        float logits[WORLD_N_VOCAB];
        fake_logits(job->tokens, position + 1, WORLD_N_VOCAB, logits);
        assert_memory_equal(result->logits, logits, sizeof logits);
    } else {
        assert_int_equal(result->best.token, expected);
    }
    if (job->first_token_us == 0)
        job->first_token_us = world->now_us;
    else if (world->now_us - job->last_token_us > job->longest_gap_us)
        job->longest_gap_us = world->now_us - job->last_token_us;
    job->last_token_us = world->now_us;
    job->tokens[job->n_tokens++] = expected;
    if (job->n_tokens == job->n_end) {
        job->ended = true;
        return SEQUENCE_END;
    }
    return expected;
}

static void on_failed(void *context, struct sequence *sequence, const struct npu_error *error)
{
    (void)context;
    struct job *job = (struct job *)sequence;
    assert_false(job->ended);
    job->ended = job->failed = true;
    /* Never because a step was refused as wrong. */
    assert_true(strstr(error->message, "told to fail") != NULL || strstr(error->message, "KV blocks") != NULL);
    strcpy(job->message, error->message);
}

struct state_identity world_identity(void)
{
    return (struct state_identity){.model = 5,
                                   .numerics = 6,
                                   .block_bytes = KV_BLOCK_TOKENS * sizeof(uint64_t),
                                   .block_tokens = KV_BLOCK_TOKENS,
                                   .n_vocab = WORLD_N_VOCAB};
}

static void create_scheduler(struct world *world, struct scheduler_options options, struct fake_options fake)
{
    world->fake = fake_create(fake);
    world->fake->clock_us = &world->now_us;
    world->fake->row_us = 1000;
    options.store = world->store;
    struct scheduler_callbacks callbacks = {world, now_us, on_start, on_row, on_failed, NULL};
    struct npu_error error;
    assert_int_equal(scheduler_create(&world->scheduler, &options, &world->fake->base, &callbacks, &error), NPU_OK);
}

struct world *world_create(struct fake_options fake, struct scheduler_options options)
{
    struct world *world = calloc(1, sizeof *world);
    world->now_us = 1;
    create_scheduler(world, options, fake);
    return world;
}

struct world *world_create_on(struct fake_options fake, struct scheduler_options options, struct fake_fs *fs,
                              uint64_t max_bytes, uint64_t start_us)
{
    struct world *world = calloc(1, sizeof *world);
    struct state_store_options store = {
        .dir = "/state", .max_bytes = max_bytes, .identity = world_identity(), .fs = &fs->fs};
    struct npu_error error;
    world->now_us = start_us;
    options.session_id_seed = start_us;
    assert_int_equal(state_store_open(&world->store, &store, &error), NPU_OK);
    create_scheduler(world, options, fake);
    return world;
}

void world_destroy(struct world *world)
{
    assert_true(scheduler_is_consistent(world->scheduler));
    assert_int_equal(scheduler_kv_counters(world->scheduler).held, kv_pool_count(world->scheduler->pool).pinned);
    scheduler_destroy(world->scheduler);
    state_store_close(world->store);
    executor_destroy(&world->fake->base);
    free(world);
}

struct job *world_new_job(const int32_t *prompt, int32_t n_prompt, int32_t n_output)
{
    struct job *job = calloc(1, sizeof *job);
    memcpy(job->tokens, prompt, (size_t)n_prompt * sizeof *prompt);
    job->n_prompt = job->n_tokens = n_prompt;
    job->n_end = n_prompt + n_output;
    assert_true(job->n_end <= WORLD_MAX_CONTEXT);
    job->sequence.prompt = job->tokens;
    job->sequence.n_prompt = n_prompt;
    job->sequence.returns = ROW_RETURN_BEST;
    return job;
}

void world_submit(struct world *world, struct job *job)
{
    struct npu_error error;
    job->submission = world->n_submitted++;
    assert_int_equal(scheduler_submit(world->scheduler, &job->sequence, &error), NPU_OK);
}

void world_run_to_end(struct world *world)
{
    for (int i = 0;; i++) {
        assert_true(i < 100000);
        bool wrote = world->store != NULL && state_store_run(world->store, 1) > 0;
        if (!scheduler_step(world->scheduler) && !wrote &&
            (world->store == NULL || snapshots_is_settled(scheduler_snapshots(world->scheduler))))
            break;
    }
    assert_int_equal(scheduler_running(world->scheduler), 0);
    assert_int_equal(scheduler_waiting(world->scheduler), 0);
}

void world_make_prompt(int32_t *tokens, int32_t n, int32_t seed)
{
    for (int32_t i = 0; i < n; i++)
        tokens[i] = (i * 7 + seed * 13 + i * i * seed) % WORLD_N_VOCAB;
}

void world_forge(char *file, size_t n)
{
    struct state_manifest manifest;
    struct npu_error error;
    size_t at = 0;
    assert_int_equal(state_manifest_decode(&manifest, file, n, &at, &error), NPU_OK);
    size_t one = STATE_BLOCK_HEADER_BYTES + manifest.identity.block_bytes;
    for (int32_t i = 0; at + one + STATE_END_BYTES <= n; i++, at += one) {
        memset(file + at + STATE_BLOCK_HEADER_BYTES, 0x5a, manifest.identity.block_bytes);
        state_block_encode(file + at, &manifest.identity, manifest.hashes[i],
                           state_block_tokens(&manifest.identity, manifest.n_tokens, i));
    }
    state_manifest_clear(&manifest);
}
