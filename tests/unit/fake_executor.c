#include "fake_executor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RULE(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "fake executor: broken rule: %s\n", #condition);                                           \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 32)) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 32);
}

/* The state behind a position: everything visible, in order. */
static uint64_t see(uint64_t state, uint64_t slot)
{
    return mix(state * 31 + slot);
}

/* What is written at a position: it depends on the token and on all that its row sees. */
static uint64_t slot_of(uint64_t state, int32_t token, int32_t position)
{
    return mix(state + ((uint64_t)(uint32_t)token << 32) + (uint64_t)position + 1);
}

static float logit_of(uint64_t state, int32_t token)
{
    return (float)(mix(state + (uint64_t)token * 0x2545f4914f6cdd1du) >> 40) / (float)(1 << 24) * 16 - 8;
}

static int32_t best_of(uint64_t state, int32_t n_vocab)
{
    int32_t best = 0;
    float logit = logit_of(state, 0);
    for (int32_t token = 1; token < n_vocab; token++) {
        float other = logit_of(state, token);
        if (other > logit) {
            logit = other;
            best = token;
        }
    }
    return best;
}

static uint64_t state_after(const int32_t *tokens, int32_t n)
{
    uint64_t state = 0;
    for (int32_t i = 0; i < n; i++)
        state = see(state, slot_of(state, tokens[i], i));
    return state;
}

void fake_logits(const int32_t *tokens, int32_t n, int32_t n_vocab, float *logits)
{
    uint64_t state = state_after(tokens, n);
    for (int32_t token = 0; token < n_vocab; token++)
        logits[token] = logit_of(state, token);
}

int32_t fake_best(const int32_t *tokens, int32_t n, int32_t n_vocab)
{
    return best_of(state_after(tokens, n), n_vocab);
}

void fake_poison(struct fake_executor *fake, int32_t block)
{
    for (int i = 0; i < KV_BLOCK_TOKENS; i++)
        fake->slots[(size_t)block * KV_BLOCK_TOKENS + (size_t)i] = 0xdeadbeefu + (uint64_t)fake->n_steps;
}

static void check_step(struct fake_executor *fake, const struct step *step)
{
    const struct executor *base = &fake->base;
    RULE(step->n_rows >= 1 && step->n_rows <= base->max_rows);
    RULE(step->n_tables >= 1 && step->n_tables <= base->max_tables);
    int n_returning = 0;
    for (int i = 0; i < step->n_rows; i++) {
        const struct step_row *row = &step->rows[i];
        RULE(row->token >= 0 && row->token < base->n_vocab);
        RULE(row->position >= 0 && row->position < base->max_context);
        RULE(row->visible_end == row->position + 1);
        RULE(row->table < step->n_tables);
        RULE(row->returns != ROW_RETURN_TOP_K || (row->top_k >= 1 && row->top_k <= EXECUTOR_MAX_TOP_K));
        n_returning += row->returns != ROW_RETURN_NOTHING;
        const struct block_table *table = &step->tables[row->table];
        RULE(row->visible_end <= table->n_blocks * KV_BLOCK_TOKENS);
        if (i > 0 && row[-1].table == row->table)
            RULE(row[-1].position < row->position);
        for (int j = 0; j < i; j++)
            RULE(step->rows[j].table != row->table || row[-1].table == row->table);
        int32_t block = table->blocks[row->position / KV_BLOCK_TOKENS];
        RULE(block >= 0 && block < base->n_blocks);
        RULE(fake->writer[block] == -1 || fake->writer[block] == row->table);
        fake->writer[block] = row->table;
    }
    RULE(n_returning <= base->max_returning);
    /* Nobody sees what another one is writing. */
    for (int i = 0; i < step->n_rows; i++) {
        const struct block_table *table = &step->tables[step->rows[i].table];
        for (int32_t b = 0; b * KV_BLOCK_TOKENS < step->rows[i].visible_end; b++) {
            RULE(table->blocks[b] >= 0 && table->blocks[b] < base->n_blocks);
            RULE(fake->writer[table->blocks[b]] == -1 || fake->writer[table->blocks[b]] == step->rows[i].table);
        }
    }
    for (int i = 0; i < step->n_rows; i++)
        fake->writer[step->tables[step->rows[i].table].blocks[step->rows[i].position / KV_BLOCK_TOKENS]] = -1;
}

static int compare_top(const void *a, const void *b)
{
    const struct token_logit *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->token < y->token ? -1 : x->token > y->token;
}

static void fill_result(struct fake_executor *fake, const struct step_row *row, uint64_t state, int slot,
                        struct row_result *result)
{
    int32_t n_vocab = fake->base.n_vocab;
    float *logits = fake->logits + (size_t)slot * (size_t)n_vocab;
    struct token_logit *top = fake->top + (size_t)slot * (size_t)n_vocab;
    switch ((enum row_return)row->returns) {
    case ROW_RETURN_NOTHING:
        break;
    case ROW_RETURN_BEST:
        result->best.token = best_of(state, n_vocab);
        result->best.logit = logit_of(state, result->best.token);
        break;
    case ROW_RETURN_TOP_K:
        for (int32_t token = 0; token < n_vocab; token++)
            top[token] = (struct token_logit){token, logit_of(state, token)};
        qsort(top, (size_t)n_vocab, sizeof *top, compare_top);
        result->top = top;
        result->n_top = row->top_k < n_vocab ? row->top_k : n_vocab;
        result->best = top[0];
        break;
    case ROW_RETURN_LOGITS:
    case ROW_RETURN_HIDDEN:
        for (int32_t token = 0; token < n_vocab; token++)
            logits[token] = logit_of(state, token);
        *(row->returns == ROW_RETURN_LOGITS ? &result->logits : &result->hidden) = logits;
        break;
    }
}

static enum npu_status fake_step(struct executor *executor, const struct step *step, struct row_result *results,
                                 struct npu_error *error)
{
    struct fake_executor *fake = (struct fake_executor *)executor;
    check_step(fake, step);
    int bucket = 1;
    while (bucket < step->n_rows)
        bucket *= 2;
    if (fake->clock_us != NULL)
        *fake->clock_us += fake->step_us + fake->row_us * (uint64_t)bucket;
    if (fake->sleep_us > 0)
        usleep(fake->sleep_us);
    fake->n_steps++;
    for (int i = 0; i < step->n_rows; i++)
        fake->n_unannounced += !fake->announced[step->rows[i].token];
    memset(results, 0, (size_t)step->n_rows * sizeof *results);
    int n_rows = fake->fail_steps > 0 ? step->n_rows / 2 : step->n_rows;
    uint64_t state = 0;
    int n_returning = 0;
    for (int i = 0; i < n_rows; i++) {
        const struct step_row *row = &step->rows[i];
        const int32_t *blocks = step->tables[row->table].blocks;
        int32_t first = 0;
        if (i > 0 && row[-1].table == row->table && row[-1].position == row->position - 1)
            first = row->position; /* the state goes on from the row before */
        else
            state = 0;
        for (int32_t p = first; p < row->position; p++)
            state =
                see(state,
                    fake->slots[(size_t)blocks[p / KV_BLOCK_TOKENS] * KV_BLOCK_TOKENS + (size_t)(p % KV_BLOCK_TOKENS)]);
        uint64_t slot = slot_of(state, row->token, row->position);
        fake->slots[(size_t)blocks[row->position / KV_BLOCK_TOKENS] * KV_BLOCK_TOKENS +
                    (size_t)(row->position % KV_BLOCK_TOKENS)] = slot;
        state = see(state, slot);
        if (row->returns != ROW_RETURN_NOTHING)
            fill_result(fake, row, state, n_returning++, &results[i]);
    }
    if (fake->fail_steps > 0) {
        fake->fail_steps--;
        return npu_error_set(error, NPU_ERROR_DEVICE, "the fake device was told to fail");
    }
    fake->n_rows += (uint64_t)n_rows;
    return NPU_OK;
}

static uint64_t *block_slots(struct executor *executor, int32_t block)
{
    RULE(block >= 0 && block < executor->n_blocks);
    return ((struct fake_executor *)executor)->slots + (size_t)block * KV_BLOCK_TOKENS;
}

static enum npu_status fake_read_block(struct executor *executor, int32_t block, void *to, struct npu_error *error)
{
    if (((struct fake_executor *)executor)->fail_transfers)
        return npu_error_set(error, NPU_ERROR_DEVICE, "the fake device was told not to give and take blocks");
    memcpy(to, block_slots(executor, block), executor->block_bytes);
    return NPU_OK;
}

static enum npu_status fake_write_block(struct executor *executor, int32_t block, const void *from,
                                        struct npu_error *error)
{
    if (((struct fake_executor *)executor)->fail_transfers)
        return npu_error_set(error, NPU_ERROR_DEVICE, "the fake device was told not to give and take blocks");
    memcpy(block_slots(executor, block), from, executor->block_bytes);
    return NPU_OK;
}

static enum npu_status fake_copy_block(struct executor *executor, int32_t from, int32_t to, struct npu_error *error)
{
    struct fake_executor *fake = (struct fake_executor *)executor;
    if (fake->fail_copies)
        return npu_error_set(error, NPU_ERROR_DEVICE, "the fake device was told not to copy");
    RULE(from != to);
    memcpy(block_slots(executor, to), block_slots(executor, from), executor->block_bytes);
    fake->n_copies++;
    return NPU_OK;
}

static void fake_prefetch(struct executor *executor, const int32_t *tokens, int n)
{
    for (int i = 0; i < n; i++)
        ((struct fake_executor *)executor)->announced[tokens[i]] = true;
}

static void fake_destroy(struct executor *executor)
{
    struct fake_executor *fake = (struct fake_executor *)executor;
    free(fake->announced);
    free(fake->writer);
    free(fake->slots);
    free(fake->logits);
    free(fake->top);
    free(fake);
}

struct fake_executor *fake_create(struct fake_options options)
{
    static const struct executor_interface interface = {
        .step = fake_step,
        .read_block = fake_read_block,
        .write_block = fake_write_block,
        .copy_block = fake_copy_block,
        .destroy = fake_destroy,
        .prefetch = fake_prefetch,
    };
    struct fake_executor *fake = calloc(1, sizeof *fake);
    RULE(fake != NULL);
    fake->base = (struct executor){
        .interface = &interface,
        .n_blocks = options.n_blocks,
        .block_bytes = KV_BLOCK_TOKENS * sizeof(uint64_t),
        .n_vocab = options.n_vocab,
        .n_embd = options.n_vocab,
        .max_context = options.max_context,
        .max_rows = options.max_rows,
        .max_tables = options.max_tables,
        .max_returning = options.max_returning,
        .numerics = 1,
    };
    size_t n_blocks = (size_t)options.n_blocks, n_logits = (size_t)options.max_returning * (size_t)options.n_vocab;
    fake->announced = calloc((size_t)options.n_vocab, sizeof *fake->announced);
    fake->writer = malloc(n_blocks * sizeof *fake->writer);
    fake->slots = calloc(n_blocks * KV_BLOCK_TOKENS, sizeof *fake->slots);
    fake->logits = calloc(n_logits, sizeof *fake->logits);
    fake->top = calloc(n_logits, sizeof *fake->top);
    RULE(fake->announced != NULL && fake->writer != NULL && fake->slots != NULL && fake->logits != NULL &&
         fake->top != NULL);
    for (size_t i = 0; i < n_blocks; i++)
        fake->writer[i] = -1;
    return fake;
}
