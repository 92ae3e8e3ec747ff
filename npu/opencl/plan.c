#include "npu/opencl/plan.h"

#include <stdlib.h>
#include <string.h>

#include "npu/executor.h"
#include "npu/opencl/lowering.h"
#include "npu/opencl/pack.h"

static int64_t take_words(struct plan *plan, int64_t words)
{
    int64_t at = plan->arena_words;
    plan->arena_words += (words + 15) / 16 * 16;
    return at;
}

/* Gives every activation its places: one per row set that uses it, and one for its quantized copy. */
static void place_activations(struct plan *plan)
{
    const struct op_graph *graph = &plan->model->graph;
    for (int set = 0; set < 2; set++) {
        int rows = set ? plan->limits.max_returning : plan->limits.max_rows;
        bool after = false;
        bool used[GRAPH_MAX_ACTIVATIONS] = {false}, quantized[GRAPH_MAX_ACTIVATIONS] = {false};
        for (int i = 0; i < graph->n_ops; i++) {
            const struct op *op = &graph->ops[i];
            if (op->kind == OP_GATHER) {
                if (set == 1)
                    graph_live_activations(graph, i + 1, used);
                after = true;
            }
            if (after != (set == 1))
                continue;
            int touched[3] = {op->in, op->in2, op->out};
            for (int t = 0; t < 3; t++)
                if (touched[t] != NO_INDEX)
                    used[touched[t]] = true;
            int layout;
            if (op->kind == OP_MATMUL && pack_layout(op->weight->type, &layout) && pack_layout_is_quantized(layout))
                quantized[op->in] = true;
        }
        for (int a = 0; a < graph->n_activations; a++) {
            int64_t width = (graph->activations[a].width + 31) / 32 * 32;
            plan->activation_strides[a] = (int)width;
            plan->activation_offsets[set][a] = used[a] ? (int)take_words(plan, rows * width) : -1;
            plan->quantized_offsets[set][a] =
                quantized[a] ? (int)take_words(plan, (int64_t)rows * (width / 4 + 3 * (width / 32))) : -1;
        }
    }
    plan->embeddings_offset = (int)take_words(plan, (int64_t)plan->limits.max_rows * plan->model->n_embd);
}

/* Partial results of attention and of selections, and where selections end. */
static void place_scratch(struct plan *plan)
{
    const struct op_graph *graph = &plan->model->graph;
    int64_t per_row = 0, returning = plan->limits.max_returning;
    for (int i = 0; i < graph->n_ops; i++) {
        const struct op *op = &graph->ops[i];
        if (op->kind == OP_ATTENTION && (int64_t)op->n_heads * (op->head_size + 8) > per_row)
            per_row = (int64_t)op->n_heads * (op->head_size + 8);
    }
    plan->attention_splits = (plan->limits.max_context + SPLIT_TOKENS - 1) / SPLIT_TOKENS;
    plan->attention_scratch_stride = (int)(per_row * plan->attention_splits);
    plan->attention_scratch_offset = (int)take_words(plan, (int64_t)SPLIT_ROWS * plan->attention_scratch_stride);
    plan->attention_state_offsets[0] = (int)take_words(plan, plan->limits.max_rows * per_row);
    plan->attention_state_offsets[1] = (int)take_words(plan, returning * per_row);

    plan->select_chunks = (plan->model->n_vocab + SELECT_CHUNK - 1) / SELECT_CHUNK;
    plan->partials_stride = plan->select_chunks * (2 * SELECT_MAX + 2);
    plan->partials_offset = (int)take_words(plan, returning * plan->partials_stride);
    plan->select_stride = 2 * SELECT_MAX;
    plan->done_offset = (int)take_words(plan, 16 + returning * plan->select_stride);
    plan->select_offset = plan->done_offset + 16; /* one read brings both */
}

static enum npu_status place_kv(struct plan *plan, struct npu_error *error)
{
    const struct model *model = plan->model;
    plan->kv_offsets = calloc((size_t)model->n_kv_layers, sizeof *plan->kv_offsets);
    if (plan->kv_offsets == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the KV layout");
    for (int i = 0; i < model->n_kv_layers; i++) {
        const struct kv_layer *kv = &model->kv_layers[i];
        if (kv->head_size % 8 != 0)
            return npu_error_set(error, NPU_ERROR_UNSUPPORTED,
                                 "KV layer %d has heads of %d elements; the kernels need a multiple of 8", i,
                                 kv->head_size);
        plan->kv_offsets[i] = plan->block_elements;
        plan->block_elements += 2 * kv->n_heads * kv->head_size * KV_TOKENS;
        if (kv->head_size > plan->max_head_size)
            plan->max_head_size = kv->head_size;
        if (i == 0 || kv->n_heads < plan->min_kv_heads)
            plan->min_kv_heads = kv->n_heads;
    }
    return NPU_OK;
}

static void place_input(struct plan *plan)
{
    plan->table_words = (plan->limits.max_context + KV_TOKENS - 1) / KV_TOKENS;
    plan->input_words = INPUT_TABLES + (plan->limits.max_tables * plan->table_words + 15) / 16 * 16;
    for (int i = 0; i < plan->model->n_ropes; i++) {
        plan->rope_offsets[i] = plan->input_words;
        plan->input_words += plan->limits.max_rows * plan->model->ropes[i].dims;
    }
}

enum npu_status plan_create(struct plan **ret_plan, const struct model *model, const struct plan_limits *limits,
                            struct npu_error *error)
{
    struct plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the plan");
    plan->model = model;
    plan->limits = *limits;
    enum npu_status status = place_kv(plan, error);
    if (status == NPU_OK) {
        place_input(plan);
        place_activations(plan);
        place_scratch(plan);
        if (plan->arena_words > INT32_MAX)
            status =
                npu_error_set(error, NPU_ERROR_MEMORY, "the activations need more than 8 GiB: use a smaller --context");
    }
    if (status == NPU_OK)
        status = lowering_run(plan, error);
    if (status != NPU_OK) {
        plan_destroy(plan);
        return status;
    }
    *ret_plan = plan;
    return NPU_OK;
}

void plan_destroy(struct plan *plan)
{
    if (plan == NULL)
        return;
    free(plan->entries);
    free(plan->first_ops);
    free(plan->last_ops);
    free(plan->weights);
    free(plan->vectors);
    free(plan->kv_offsets);
    free(plan);
}

int plan_entry_units(const struct plan *plan, int entry, int rows, int returning)
{
    const struct op_entry *e = &plan->entries[entry];
    int n = e->row_set ? returning : rows;
    switch (e->kind) {
    case ENTRY_MATMUL:
        return n * ((e->n_out + PACK_TILE_ROWS - 1) / PACK_TILE_ROWS);
    case ENTRY_HEADS:
    case ENTRY_ATTENTION_MERGE:
        return n * e->n_heads;
    case ENTRY_ATTENTION:
        return n <= SPLIT_ROWS ? n * e->n_heads * e->splits : n * e->n_heads;
    case ENTRY_NORM:
        return n * e->n_heads;
    case ENTRY_GATED:
    case ENTRY_ADD:
    case ENTRY_SCALE:
    case ENTRY_SOFTCAP:
    case ENTRY_QUANTIZE:
        return n * ((e->n_in + 31) / 32);
    case ENTRY_SELECT:
        return n * e->splits;
    default:
        return n;
    }
}

const char *plan_kind_name(int kind)
{
    static const char *const names[] = {
        [ENTRY_EMBED] = "embed",         [ENTRY_NORM] = "norm",
        [ENTRY_MATMUL] = "matmul",       [ENTRY_HEADS] = "heads",
        [ENTRY_ATTENTION] = "attention", [ENTRY_ATTENTION_MERGE] = "attention_merge",
        [ENTRY_GATED] = "gated",         [ENTRY_ADD] = "add",
        [ENTRY_SCALE] = "scale",         [ENTRY_SOFTCAP] = "softcap",
        [ENTRY_QUANTIZE] = "quantize",   [ENTRY_GATHER] = "gather",
        [ENTRY_SELECT] = "select",       [ENTRY_SELECT_MERGE] = "select_merge",
    };
    return names[kind];
}

const char *plan_entry_name(const struct op_entry *entry)
{
    return plan_kind_name(entry->kind);
}
