#include "npu/opencl/self_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npu/opencl/random_history.h"
#include "npu/verify_ops.h"

enum {
    MAX_ROWS = 40,
    HISTORY = 250, /* positions before the rows: decode and prefill both pass the end of a split at 256 */
    SAMPLED_ROWS = 4,
    SAMPLED_OUTPUTS = 64,
};

struct check_step {
    struct step_row rows[MAX_ROWS];
    struct block_table tables[2];
    int32_t *blocks; /* of both tables */
};

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

static enum npu_status no_memory(struct npu_error *error)
{
    return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the self-check");
}

/* Gives both tables their blocks, as many as the pool and the context have. */
static enum npu_status make_tables(struct check_step *check, struct opencl_executor *executor, struct npu_error *error)
{
    int32_t wanted = (HISTORY + MAX_ROWS + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    int32_t context = executor->base.max_context / KV_BLOCK_TOKENS, half = executor->base.n_blocks / 2;
    int32_t first = wanted < context ? wanted : context > 0 ? context : 1;
    int32_t second = first < half ? first : half;
    if (first > executor->base.n_blocks - second)
        first = executor->base.n_blocks - second;
    check->blocks = malloc((size_t)(first + second) * sizeof *check->blocks);
    if (check->blocks == NULL)
        return no_memory(error);
    for (int32_t i = 0; i < first + second; i++)
        check->blocks[i] = i;
    check->tables[0] = (struct block_table){check->blocks, first};
    check->tables[1] = (struct block_table){check->blocks + first, second};
    return random_history_write(executor, first + second, error);
}

static int positions_of(const struct check_step *check, const struct opencl_executor *executor, int table)
{
    int held = check->tables[table].n_blocks * KV_BLOCK_TOKENS;
    return held < executor->base.max_context ? held : executor->base.max_context;
}

/* n rows of the first table and, where the pool has room for it, one of the second. The last row of each returns. */
static struct step make_step(struct check_step *check, const struct opencl_executor *executor, int n, bool two_tables,
                             enum row_return returns)
{
    uint32_t state = (uint32_t)n + 1;
    int room = positions_of(check, executor, 0), n_rows = 0;
    n = n < room ? n : room;
    int first = HISTORY + n < room ? HISTORY : room - n;
    for (int i = 0; i < n; i++)
        check->rows[n_rows++] = (struct step_row){.position = first + i};
    check->rows[n_rows - 1].returns = (uint8_t)returns;
    int second = positions_of(check, executor, 1);
    if (two_tables && second > 0 && n_rows < MAX_ROWS)
        check->rows[n_rows++] =
            (struct step_row){.position = second / 2, .table = 1, .returns = ROW_RETURN_TOP_K, .top_k = 4};
    for (int i = 0; i < n_rows; i++) {
        check->rows[i].token = (int32_t)(next_random(&state) % (uint32_t)executor->base.n_vocab);
        check->rows[i].visible_end = check->rows[i].position + 1;
        if (check->rows[i].top_k > executor->base.n_vocab)
            check->rows[i].top_k = (uint8_t)executor->base.n_vocab;
    }
    return (struct step){check->rows, n_rows, check->tables, check->tables[1].n_blocks > 0 ? 2 : 1};
}

static enum npu_status check_ops(struct opencl_executor *executor, const struct step *step, bool quick,
                                 struct npu_error *error)
{
    struct verify_ops_options options = {.limit = VERIFY_OPS_LIMIT};
    if (quick) {
        options.max_rows = SAMPLED_ROWS;
        options.max_outputs = SAMPLED_OUTPUTS;
        options.distinct_only = true;
    }
    struct op_checks checks = {0};
    enum npu_status status = verify_ops_run(&checks, &executor->base, step, &options, error);
    for (int i = 0; i < checks.n && status == NPU_OK; i++) {
        if (checks.checks[i].passed)
            continue;
        char text[384];
        op_check_describe(&checks.checks[i], text, sizeof text);
        status = npu_error_set(error, NPU_ERROR_DEVICE, "the driver of %.80s computes garbage: %s (of %d rows)",
                               executor->profile.device_name, text, step->n_rows);
    }
    op_checks_destroy(&checks);
    return status;
}

/* A step's logits in one launch must be, bit for bit, those of one op a launch; else one launch is given up. */
static enum npu_status compare_launch_modes(struct opencl_executor *executor, const struct step *step, int row,
                                            struct npu_error *error)
{
    if (!executor->launcher.one_launch)
        return NPU_OK;
    struct row_result results[MAX_ROWS];
    size_t bytes = (size_t)executor->base.n_vocab * sizeof(float);
    float *logits = malloc(bytes);
    if (logits == NULL)
        return no_memory(error);
    executor->launcher.one_launch = false;
    enum npu_status status = executor_step(&executor->base, step, results, error);
    if (status == NPU_OK) {
        memcpy(logits, results[row].logits, bytes);
        executor->launcher.one_launch = true;
        memset(executor->launcher.calm, 0, sizeof executor->launcher.calm);
        status = executor_step(&executor->base, step, results, error);
    }
    if (status == NPU_OK && memcmp(logits, results[row].logits, bytes) != 0) {
        executor->launcher.one_launch = false;
        snprintf(executor->launch_reason, sizeof executor->launch_reason,
                 "a step in one launch computed something else");
    }
    free(logits);
    return status;
}

enum npu_status self_check_run(struct opencl_executor *executor, enum self_check mode, struct npu_error *error)
{
    /* What kernels do differently: few and many rows, whole fours of rows and remainders, one table and several. */
    static const struct {
        int n_rows;
        bool two_tables;
    } steps[2][4] = {
        [false] = {{1, false}, {2, true}, {23, true}}, [true] = {{1, false}, {2, true}, {7, true}, {MAX_ROWS, false}}};
    if (mode == SELF_CHECK_OFF)
        return NPU_OK;
    bool quick = mode == SELF_CHECK_QUICK;
    struct check_step check = {0};
    struct launch_calm calm[LAUNCHER_BUCKETS]; /* what the probe found; the times of checks are not usual ones */
    memcpy(calm, executor->launcher.calm, sizeof calm);
    enum npu_status status = make_tables(&check, executor, error);
    for (int i = 0; i < 4 && steps[quick][i].n_rows > 0 && status == NPU_OK; i++) {
        struct step step =
            make_step(&check, executor, steps[quick][i].n_rows, steps[quick][i].two_tables, ROW_RETURN_BEST);
        status = check_ops(executor, &step, quick, error);
    }
    if (status == NPU_OK) {
        struct step step = make_step(&check, executor, 1, false, ROW_RETURN_LOGITS);
        status = compare_launch_modes(executor, &step, 0, error);
    }
    memcpy(executor->launcher.calm, calm, sizeof calm);
    free(check.blocks);
    if (status != NPU_OK)
        npu_error_prefix(error, "self-check");
    return status;
}
