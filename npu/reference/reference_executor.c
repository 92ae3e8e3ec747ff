#include "npu/reference/reference_executor.h"

#include <stdlib.h>
#include <string.h>

#include "npu/half.h"
#include "npu/reference/reference_op.h"
#include "npu/step.h"

/* A KV layer's place in a block: KV_BLOCK_TOKENS slots of a key and a value, each width floats. */
struct layer_place {
    size_t offset; /* floats from the block's start */
    size_t width;
};

struct reference_executor {
    struct executor head;
    float *pool;
    size_t block_floats;
    struct layer_place *layers;
    bool kv_f16;
    /* What the last step returned, kept until the next call. */
    float *activations;
    struct token_logit *tops;
};

struct row_context {
    struct reference_executor *executor;
    const struct block_table *table;
};

static float *kv_slot(const struct row_context *context, int kv_layer, int32_t position)
{
    struct reference_executor *executor = context->executor;
    const struct layer_place *place = &executor->layers[kv_layer];
    size_t block = (size_t)context->table->blocks[position / KV_BLOCK_TOKENS];
    size_t slot = (size_t)(position % KV_BLOCK_TOKENS);
    return executor->pool + block * executor->block_floats + place->offset + slot * 2 * place->width;
}

static void kv_read(void *opaque, int kv_layer, int32_t position, float *key, float *value)
{
    const struct row_context *context = opaque;
    size_t width = context->executor->layers[kv_layer].width;
    const float *slot = kv_slot(context, kv_layer, position);
    if (key)
        memcpy(key, slot, width * sizeof *key);
    if (value)
        memcpy(value, slot + width, width * sizeof *value);
}

static void kv_write(void *opaque, int kv_layer, int32_t position, const float *key, const float *value)
{
    const struct row_context *context = opaque;
    size_t width = context->executor->layers[kv_layer].width;
    bool round = context->executor->kv_f16;
    float *slot = kv_slot(context, kv_layer, position);
    for (size_t i = 0; i < width; i++) {
        slot[i] = round ? half_to_float(float_to_half(key[i])) : key[i];
        slot[width + i] = round ? half_to_float(float_to_half(value[i])) : value[i];
    }
}

static bool token_before(struct token_logit a, struct token_logit b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

/* The k largest, descending, by insertion into a sorted list. */
static void select_top(const float *logits, int n_vocab, struct token_logit *top, int k)
{
    int n = 0;
    for (int token = 0; token < n_vocab; token++) {
        struct token_logit candidate = {token, logits[token]};
        if (n == k && !token_before(candidate, top[k - 1]))
            continue;
        int at = n < k ? n++ : k - 1;
        for (; at > 0 && token_before(candidate, top[at - 1]); at--)
            top[at] = top[at - 1];
        top[at] = candidate;
    }
}

static void fill_result(struct reference_executor *executor, const struct step_row *row,
                        const struct reference_row *computed, struct token_logit *top, struct row_result *result)
{
    const struct op_graph *graph = &executor->head.model->graph;
    const float *logits = computed->activations[graph->logits];
    switch (row->returns) {
    case ROW_RETURN_BEST:
        select_top(logits, executor->head.n_vocab, &result->best, 1);
        break;
    case ROW_RETURN_TOP_K:
        select_top(logits, executor->head.n_vocab, top, row->top_k);
        result->best = top[0];
        result->top = top;
        result->n_top = row->top_k;
        break;
    case ROW_RETURN_LOGITS:
        result->logits = logits;
        break;
    case ROW_RETURN_HIDDEN:
        result->hidden = computed->activations[graph->hidden];
        break;
    }
}

/* One allocation for all rows: logits only for rows that return something, everything else for all. */
static enum npu_status allocate_rows(struct reference_executor *executor, const struct step *step,
                                     struct reference_row *rows, struct npu_error *error)
{
    const struct op_graph *graph = &executor->head.model->graph;
    size_t floats = 0;
    for (int r = 0; r < step->n_rows; r++) {
        for (int a = 0; a < graph->n_activations; a++) {
            if (a != graph->logits || step->rows[r].returns != ROW_RETURN_NOTHING)
                floats += (size_t)graph->activations[a].width;
        }
    }
    free(executor->activations);
    free(executor->tops);
    executor->activations = calloc(floats, sizeof *executor->activations);
    executor->tops = calloc((size_t)step->n_rows * EXECUTOR_MAX_TOP_K, sizeof *executor->tops);
    if (executor->activations == NULL || executor->tops == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the activations of %d rows", step->n_rows);
    float *next = executor->activations;
    for (int r = 0; r < step->n_rows; r++) {
        for (int a = 0; a < graph->n_activations; a++) {
            if (a == graph->logits && step->rows[r].returns == ROW_RETURN_NOTHING)
                continue;
            rows[r].activations[a] = next;
            next += graph->activations[a].width;
        }
    }
    return NPU_OK;
}

static enum npu_status run_step(struct executor *head, const struct step *step, struct row_result *results,
                                struct npu_error *error)
{
    struct reference_executor *executor = (struct reference_executor *)head;
    const struct model *model = head->model;
    enum npu_status status = step_validate(head, step, error);
    if (status != NPU_OK)
        return status;
    struct reference_row rows[EXECUTOR_MAX_ROWS];
    struct row_context contexts[EXECUTOR_MAX_ROWS];
    int origin[EXECUTOR_MAX_ROWS]; /* rows[i] is step->rows[origin[i]] once the gather has dropped some */
    memset(rows, 0, sizeof rows);
    status = allocate_rows(executor, step, rows, error);
    if (status != NPU_OK)
        return status;
    int n_rows = step->n_rows;
    for (int r = 0; r < n_rows; r++) {
        const struct step_row *row = &step->rows[r];
        origin[r] = r;
        contexts[r] = (struct row_context){executor, &step->tables[row->table]};
        rows[r].token = row->token;
        rows[r].position = row->position;
        rows[r].visible_end = row->visible_end;
        rows[r].embedding = row->embedding;
        rows[r].kv = (struct reference_kv){kv_read, kv_write, &contexts[r]};
    }
    for (int i = 0; i < model->graph.n_ops && status == NPU_OK; i++) {
        if (model->graph.ops[i].kind == OP_GATHER) {
            int kept = 0;
            for (int r = 0; r < n_rows; r++) {
                if (step->rows[origin[r]].returns == ROW_RETURN_NOTHING)
                    continue;
                rows[kept] = rows[r];
                origin[kept++] = origin[r];
            }
            n_rows = kept;
        }
        if (n_rows > 0)
            status = reference_op_run(model, &model->graph.ops[i], rows, n_rows, error);
    }
    if (status != NPU_OK)
        return status;
    memset(results, 0, (size_t)step->n_rows * sizeof *results);
    for (int r = 0; r < n_rows; r++)
        fill_result(executor, &step->rows[origin[r]], &rows[r], executor->tops + (size_t)origin[r] * EXECUTOR_MAX_TOP_K,
                    &results[origin[r]]);
    return NPU_OK;
}

static float *pool_block(struct executor *head, int32_t block, struct npu_error *error)
{
    struct reference_executor *executor = (struct reference_executor *)head;
    if (block < 0 || block >= head->n_blocks) {
        npu_error_set(error, NPU_ERROR_INPUT, "KV block %d; blocks are 0 to %d", block, head->n_blocks - 1);
        return NULL;
    }
    return executor->pool + (size_t)block * executor->block_floats;
}

static enum npu_status read_block(struct executor *head, int32_t block, void *to, struct npu_error *error)
{
    const float *from = pool_block(head, block, error);
    if (from == NULL)
        return NPU_ERROR_INPUT;
    memcpy(to, from, head->block_bytes);
    return NPU_OK;
}

static enum npu_status write_block(struct executor *head, int32_t block, const void *from, struct npu_error *error)
{
    float *to = pool_block(head, block, error);
    if (to == NULL)
        return NPU_ERROR_INPUT;
    memcpy(to, from, head->block_bytes);
    return NPU_OK;
}

static enum npu_status copy_block(struct executor *head, int32_t from, int32_t to, struct npu_error *error)
{
    const float *source = pool_block(head, from, error);
    float *target = pool_block(head, to, error);
    if (source == NULL || target == NULL)
        return NPU_ERROR_INPUT;
    memmove(target, source, head->block_bytes);
    return NPU_OK;
}

static void destroy(struct executor *head)
{
    struct reference_executor *executor = (struct reference_executor *)head;
    free(executor->tops);
    free(executor->activations);
    free(executor->layers);
    free(executor->pool);
    free(executor);
}

static const struct executor_interface reference_interface = {
    .step = run_step,
    .read_block = read_block,
    .write_block = write_block,
    .copy_block = copy_block,
    .destroy = destroy,
};

enum npu_status reference_executor_create(struct executor **ret_executor, const struct model *model,
                                          const struct reference_options *options, struct npu_error *error)
{
    if (options->n_blocks < 1 || options->max_tables < 1 || options->max_context < 1)
        return npu_error_set(error, NPU_ERROR_INPUT,
                             "reference executor: %d blocks, %d tables and a context of %d; each must be at least 1",
                             options->n_blocks, options->max_tables, options->max_context);
    struct reference_executor *executor = calloc(1, sizeof *executor);
    if (executor == NULL)
        goto no_memory;
    executor->head.interface = &reference_interface;
    executor->layers = calloc((size_t)model->n_kv_layers + 1, sizeof *executor->layers);
    if (executor->layers == NULL)
        goto no_memory;
    for (int i = 0; i < model->n_kv_layers; i++) {
        size_t width = (size_t)model->kv_layers[i].n_heads * (size_t)model->kv_layers[i].head_size;
        executor->layers[i] = (struct layer_place){executor->block_floats, width};
        executor->block_floats += KV_BLOCK_TOKENS * 2 * width;
    }
    executor->kv_f16 = options->kv_f16;
    executor->pool = calloc((size_t)options->n_blocks, executor->block_floats * sizeof *executor->pool);
    if (executor->pool == NULL)
        goto no_memory;
    executor->head.model = model;
    executor->head.n_blocks = options->n_blocks;
    executor->head.block_bytes = executor->block_floats * sizeof *executor->pool;
    executor->head.n_vocab = model->n_vocab;
    executor->head.n_embd = model->n_embd;
    executor->head.max_context = options->max_context;
    executor->head.max_rows = EXECUTOR_MAX_ROWS;
    executor->head.max_tables = options->max_tables;
    executor->head.max_returning = EXECUTOR_MAX_ROWS;
    executor->head.numerics =
        options->kv_f16 ? 0x7265666631360001 : 0x7265666633320001; /* "reff16", "reff32", version */
    *ret_executor = &executor->head;
    return NPU_OK;

no_memory:
    if (executor != NULL)
        destroy(&executor->head);
    return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the reference executor with %d KV blocks",
                         options->n_blocks);
}
