#include "npu/opencl/lowering.h"

#include <stdlib.h>
#include <string.h>

#include "npu/dequantize.h"
#include "npu/gguf.h"
#include "npu/opencl/pack.h"

/* What an entry reads and writes, for barriers: activations of both row sets, and the rest. */
enum {
    OTHER_KEYS = 1,
    OTHER_VALUES = 2,
    OTHER_SCRATCH = 4,
    OTHER_SELECT = 8
};

struct resources {
    uint64_t activations;
    unsigned other;
};

/* A norm or rope of heads that waits for the op that reads the result, to be one entry with it. */
struct pending {
    bool waits;
    int source; /* the activation that is read: another one where a norm is not in place */
    int first_op, last_op;
    const struct op *norm, *rope;
};

struct lowering {
    struct plan *plan;
    struct npu_error *error;
    enum npu_status status;
    int row_set;
    struct pending pending[GRAPH_MAX_ACTIVATIONS];
    bool quantized[2][GRAPH_MAX_ACTIVATIONS]; /* the quantized copy is up to date */
    struct resources reads, writes; /* since the last barrier */
};

static void fail(struct lowering *lowering, enum npu_status status, const char *what)
{
    if (lowering->status == NPU_OK)
        lowering->status = npu_error_set(lowering->error, status, "%s", what);
}

static uint64_t activation_bit(const struct lowering *lowering, int activation)
{
    return activation == NO_INDEX ? 0 : (uint64_t)1 << (lowering->row_set * 32 + activation);
}

/* Sets the barrier flag on the entry before, where the new one conflicts with anything since the last barrier. */
static void order_after(struct lowering *lowering, struct resources reads, struct resources writes)
{
    struct resources *r = &lowering->reads, *w = &lowering->writes;
    bool conflict = (reads.activations & w->activations) || (reads.other & w->other) ||
                    (writes.activations & (r->activations | w->activations)) || (writes.other & (r->other | w->other));
    struct plan *plan = lowering->plan;
    if (conflict && plan->n_entries > 0) {
        plan->entries[plan->n_entries - 1].flags |= FLAG_BARRIER;
        *r = *w = (struct resources){0};
    }
    r->activations |= reads.activations;
    r->other |= reads.other;
    w->activations |= writes.activations;
    w->other |= writes.other;
}

static struct op_entry *add_entry(struct lowering *lowering, int kind, int first_op, int last_op,
                                  struct resources reads, struct resources writes)
{
    struct plan *plan = lowering->plan;
    if (plan->n_entries == plan->capacity) {
        int capacity = plan->capacity ? 2 * plan->capacity : 512;
        struct op_entry *entries = realloc(plan->entries, (size_t)capacity * sizeof *entries);
        if (entries != NULL)
            plan->entries = entries;
        int *firsts = realloc(plan->first_ops, (size_t)capacity * sizeof *firsts);
        if (firsts != NULL)
            plan->first_ops = firsts;
        int *lasts = realloc(plan->last_ops, (size_t)capacity * sizeof *lasts);
        if (lasts != NULL)
            plan->last_ops = lasts;
        if (entries == NULL || firsts == NULL || lasts == NULL) {
            fail(lowering, NPU_ERROR_MEMORY, "no memory for the op table");
            return NULL;
        }
        plan->capacity = capacity;
    }
    order_after(lowering, reads, writes);
    struct op_entry *entry = &plan->entries[plan->n_entries];
    plan->first_ops[plan->n_entries] = first_op;
    plan->last_ops[plan->n_entries] = last_op;
    plan->n_entries++;
    int capacity = lowering->row_set ? plan->limits.max_returning : plan->limits.max_rows;
    *entry = (struct op_entry){.kind = kind,
                               .layer = plan->model->graph.ops[first_op].layer,
                               .row_set = lowering->row_set,
                               .capacity = capacity,
                               .quantized = -1,
                               .vector = -1,
                               .rope = -1};
    return entry;
}

static void set_in(struct lowering *lowering, struct op_entry *entry, int activation)
{
    entry->in = lowering->plan->activation_offsets[lowering->row_set][activation];
    entry->in_stride = lowering->plan->activation_strides[activation];
}

static void set_in2(struct lowering *lowering, struct op_entry *entry, int activation)
{
    entry->in2 = lowering->plan->activation_offsets[lowering->row_set][activation];
    entry->in2_stride = lowering->plan->activation_strides[activation];
}

static void set_out(struct lowering *lowering, struct op_entry *entry, int activation)
{
    lowering->quantized[lowering->row_set][activation] = false;
    entry->out = lowering->plan->activation_offsets[lowering->row_set][activation];
    entry->out_stride = lowering->plan->activation_strides[activation];
}

/* Is the activation, as it stands after op `index`, read by a matmul with quantized weights before it is written again? */
static bool wants_quantized(const struct op_graph *graph, int index, int activation)
{
    for (int i = index + 1; i < graph->n_ops; i++) {
        const struct op *op = &graph->ops[i];
        int layout;
        if (op->kind == OP_MATMUL && op->in == activation && pack_layout(op->weight->type, &layout) &&
            pack_layout_is_quantized(layout))
            return true;
        if (op->out == activation)
            return false;
    }
    return false;
}

static void set_quantized(struct lowering *lowering, struct op_entry *entry, int op_index, int activation, int width)
{
    if (!wants_quantized(&lowering->plan->model->graph, op_index, activation))
        return;
    entry->flags |= FLAG_QUANTIZE;
    entry->quantized = lowering->plan->quantized_offsets[lowering->row_set][activation];
    entry->quantized_width = width;
    lowering->quantized[lowering->row_set][activation] = true;
}

/* Appends a vector's floats (any type that dequantizes), padded so that 8-float loads stay inside. */
static int add_vector(struct lowering *lowering, const struct weight *weight)
{
    struct plan *plan = lowering->plan;
    int n = (int)weight->n_in, room = (n + 7) / 8 * 8 + 8, at = plan->n_vectors;
    float *vectors = realloc(plan->vectors, (size_t)(at + room) * sizeof *vectors);
    if (vectors == NULL) {
        fail(lowering, NPU_ERROR_MEMORY, "no memory for norm weights");
        return -1;
    }
    plan->vectors = vectors;
    memset(vectors + at, 0, (size_t)room * sizeof *vectors);
    dequantize_row(weight->type, weight->data, vectors + at, n);
    plan->n_vectors = at + room;
    return at;
}

static int find_or_add_weight(struct lowering *lowering, const struct weight *weight)
{
    struct plan *plan = lowering->plan;
    for (int i = 0; i < plan->n_weights; i++) {
        if (plan->weights[i].weight == weight)
            return i;
    }
    struct packed_weight packed = {.weight = weight};
    if (!pack_layout(weight->type, &packed.layout)) {
        if (lowering->status == NPU_OK)
            lowering->status = npu_error_set(lowering->error, NPU_ERROR_UNSUPPORTED,
                                             "tensor '%s' has type %s, which the OpenCL executor cannot compute with",
                                             weight->name, tensor_type_name(weight->type));
        return 0;
    }
    packed.bytes = pack_bytes(packed.layout, weight->n_in, weight->n_out);
    size_t limit = plan->limits.max_segment_bytes;
    if (packed.bytes > limit) {
        fail(lowering, NPU_ERROR_DEVICE, "a single weight matrix is larger than the device's largest allocation");
        return 0;
    }
    packed.segment = plan->n_segments > 0 ? plan->n_segments - 1 : 0;
    if (plan->n_segments == 0 || plan->segment_bytes[packed.segment] + packed.bytes > limit) {
        if (plan->n_segments == PLAN_MAX_SEGMENTS) {
            fail(lowering, NPU_ERROR_DEVICE, "the weights need more than four of the device's largest allocations");
            return 0;
        }
        packed.segment = plan->n_segments++;
    }
    packed.offset = plan->segment_bytes[packed.segment];
    plan->segment_bytes[packed.segment] += packed.bytes;
    struct packed_weight *weights = realloc(plan->weights, (size_t)(plan->n_weights + 1) * sizeof *weights);
    if (weights == NULL) {
        fail(lowering, NPU_ERROR_MEMORY, "no memory for the list of weights");
        return 0;
    }
    plan->weights = weights;
    weights[plan->n_weights] = packed;
    return plan->n_weights++;
}

static void set_weight(struct lowering *lowering, struct op_entry *entry, const struct weight *weight)
{
    int index = find_or_add_weight(lowering, weight);
    if (lowering->status != NPU_OK)
        return;
    const struct packed_weight *packed = &lowering->plan->weights[index];
    entry->layout = packed->layout;
    entry->weight_segment = packed->segment;
    entry->weight_offset = (unsigned)(packed->offset / 64);
    entry->n_in = (int)weight->n_in;
    entry->n_out = (int)weight->n_out;
}

static struct resources activations(uint64_t bits)
{
    return (struct resources){bits, 0};
}

/* Emits what waits for an activation. */
static void flush_pending(struct lowering *lowering, int activation, int destination, int kv_layer, int op_index)
{
    struct pending pending = lowering->pending[activation];
    const struct model *model = lowering->plan->model;
    if (!pending.waits && destination == DESTINATION_PLACE)
        return;
    if (!pending.waits)
        pending = (struct pending){.source = activation, .first_op = op_index};
    if (destination != DESTINATION_PLACE)
        pending.last_op = op_index;
    lowering->pending[activation] = (struct pending){0};
    struct resources reads = activations(activation_bit(lowering, pending.source)), writes = {0};
    if (destination == DESTINATION_PLACE)
        writes.activations = activation_bit(lowering, activation);
    else
        writes.other = destination == DESTINATION_KEYS ? OTHER_KEYS : OTHER_VALUES;
    struct op_entry *entry = add_entry(lowering, ENTRY_HEADS, pending.first_op, pending.last_op, reads, writes);
    if (entry == NULL)
        return;
    set_in(lowering, entry, pending.source);
    set_out(lowering, entry, activation);
    entry->layout = destination;
    if (destination != DESTINATION_PLACE) {
        const struct kv_layer *kv = &model->kv_layers[kv_layer];
        entry->n_heads = kv->n_heads;
        entry->head_size = kv->head_size;
        entry->kv_heads = kv->n_heads;
        entry->kv_offset = lowering->plan->kv_offsets[kv_layer] +
                           (destination == DESTINATION_VALUES ? kv->n_heads * KV_TOKENS * kv->head_size : 0);
    } else {
        const struct op *shape = pending.rope ? pending.rope : pending.norm;
        entry->n_heads = shape->n_heads;
        entry->head_size = shape->head_size;
    }
    if (pending.norm) {
        entry->epsilon = pending.norm->epsilon;
        if (pending.norm->weight)
            entry->vector = add_vector(lowering, pending.norm->weight);
    }
    if (pending.rope) {
        const struct rope *rope = &model->ropes[pending.rope->rope];
        entry->rope = lowering->plan->rope_offsets[pending.rope->rope];
        entry->rope_dims = rope->dims;
        if (rope->interleaved)
            entry->flags |= FLAG_INTERLEAVED;
    }
}

/* Whether a norm's result goes to rope, the KV cache or attention next: a norm of heads, not of the whole row. */
static bool is_head_norm(const struct op_graph *graph, int index)
{
    int activation = graph->ops[index].out;
    for (int i = index + 1; i < graph->n_ops; i++) {
        const struct op *op = &graph->ops[i];
        if (op->in == activation || op->in2 == activation || (op->kind == OP_ROPE && op->out == activation))
            return op->kind == OP_ROPE || op->kind == OP_KV_WRITE || op->kind == OP_ATTENTION;
        if (op->out == activation)
            return false;
    }
    return false;
}

/* Whether the op after `index` adds its result (needed nowhere else) to a running sum: then both are one entry. */
static bool is_accumulated(const struct op_graph *graph, int index)
{
    const struct op *op = &graph->ops[index], *next = op + 1;
    if (index + 1 >= graph->n_ops || next->kind != OP_ADD || next->in2 != op->out || next->in != next->out ||
        next->in == op->in)
        return false;
    bool live[GRAPH_MAX_ACTIVATIONS];
    graph_live_activations(graph, index + 2, live);
    return !live[op->out];
}

/* These return how many ops the lowering took. */
static int lower_norm(struct lowering *lowering, int index)
{
    const struct op_graph *graph = &lowering->plan->model->graph;
    const struct op *op = &graph->ops[index];
    if (is_head_norm(graph, index)) {
        lowering->pending[op->out] =
            (struct pending){.waits = true, .source = op->in, .first_op = index, .last_op = index, .norm = op};
        return 1;
    }
    bool accumulate = is_accumulated(graph, index);
    int out = accumulate ? op[1].out : op->out;
    uint64_t read = activation_bit(lowering, op->in) | (accumulate ? activation_bit(lowering, out) : 0);
    struct op_entry *entry = add_entry(lowering, ENTRY_NORM, index, index + accumulate, activations(read),
                                       activations(activation_bit(lowering, out)));
    if (entry == NULL)
        return 1;
    set_in(lowering, entry, op->in);
    set_out(lowering, entry, out);
    entry->n_heads = op->n_heads;
    entry->head_size = op->head_size;
    entry->epsilon = op->epsilon;
    if (accumulate)
        entry->flags |= FLAG_ACCUMULATE;
    if (op->weight)
        entry->vector = add_vector(lowering, op->weight);
    if (op->n_heads == 1)
        set_quantized(lowering, entry, index + accumulate, out, op->head_size);
    return 1 + accumulate;
}

/* Makes the quantized copy of an activation that stands only in floats. */
static void quantize_input(struct lowering *lowering, int index, int activation, int width)
{
    if (lowering->quantized[lowering->row_set][activation])
        return;
    uint64_t bit = activation_bit(lowering, activation);
    struct op_entry *entry = add_entry(lowering, ENTRY_QUANTIZE, index, index, activations(bit), activations(bit));
    if (entry == NULL)
        return;
    set_in(lowering, entry, activation);
    set_out(lowering, entry, activation);
    entry->n_in = width;
    entry->flags |= FLAG_QUANTIZE;
    entry->quantized = lowering->plan->quantized_offsets[lowering->row_set][activation];
    entry->quantized_width = width;
    lowering->quantized[lowering->row_set][activation] = true;
}

static int lower_matmul(struct lowering *lowering, int index)
{
    const struct op_graph *graph = &lowering->plan->model->graph;
    const struct op *op = &graph->ops[index];
    bool accumulate = is_accumulated(graph, index);
    int out = accumulate ? op[1].out : op->out, layout;
    bool quantized = pack_layout(op->weight->type, &layout) && pack_layout_is_quantized(layout);
    if (quantized)
        quantize_input(lowering, index, op->in, (int)op->weight->n_in);
    uint64_t read = activation_bit(lowering, op->in) | (accumulate ? activation_bit(lowering, out) : 0);
    struct op_entry *entry = add_entry(lowering, ENTRY_MATMUL, index, index + accumulate, activations(read),
                                       activations(activation_bit(lowering, out)));
    if (entry == NULL)
        return 1;
    set_in(lowering, entry, op->in);
    set_out(lowering, entry, out);
    set_weight(lowering, entry, op->weight);
    if (quantized) {
        entry->quantized = lowering->plan->quantized_offsets[lowering->row_set][op->in];
        entry->quantized_width = entry->n_in;
    }
    if (op->bias)
        entry->vector = add_vector(lowering, op->bias);
    if (accumulate)
        entry->flags |= FLAG_ACCUMULATE;
    return 1 + accumulate;
}

static int lower_elementwise(struct lowering *lowering, int index)
{
    const struct op *op = &lowering->plan->model->graph.ops[index];
    int kind = op->kind == OP_GATED   ? ENTRY_GATED
               : op->kind == OP_ADD   ? ENTRY_ADD
               : op->kind == OP_SCALE ? ENTRY_SCALE
                                      : ENTRY_SOFTCAP;
    uint64_t read = activation_bit(lowering, op->in) | activation_bit(lowering, op->in2);
    struct op_entry *entry =
        add_entry(lowering, kind, index, index, activations(read), activations(activation_bit(lowering, op->out)));
    if (entry == NULL)
        return 1;
    set_in(lowering, entry, op->in);
    if (op->in2 != NO_INDEX) {
        set_in2(lowering, entry, op->in2);
        entry->in2 += op->in2_offset;
    }
    set_out(lowering, entry, op->out);
    entry->n_in = op->width;
    entry->scale = op->scale;
    if (op->kind == OP_GATED) {
        if (op->function == ACTIVATION_GELU_TANH)
            entry->flags |= FLAG_GELU;
        set_quantized(lowering, entry, index, op->out, entry->n_in);
    }
    return 1;
}

static void lower_attention(struct lowering *lowering, int index)
{
    const struct model *model = lowering->plan->model;
    const struct op *op = &model->graph.ops[index];
    const struct kv_layer *kv = &model->kv_layers[op->kv_layer];
    flush_pending(lowering, op->in, DESTINATION_PLACE, NO_INDEX, index);
    struct op_entry shape = {.n_heads = op->n_heads,
                             .head_size = op->head_size,
                             .kv_heads = kv->n_heads,
                             .kv_offset = lowering->plan->kv_offsets[op->kv_layer],
                             .scratch = lowering->plan->attention_scratch_offset,
                             .scratch_stride = lowering->plan->attention_scratch_stride,
                             .splits = lowering->plan->attention_splits,
                             .state = lowering->plan->attention_state_offsets[lowering->row_set],
                             .scale = op->scale,
                             .flags = op->window == WINDOW_SLIDING ? FLAG_SLIDING : 0};
    for (int part = 0; part < 2; part++) {
        struct resources reads = {part == 0 ? activation_bit(lowering, op->in) : 0,
                                  part == 0 ? OTHER_KEYS | OTHER_VALUES : OTHER_SCRATCH};
        struct resources writes = {part == 0 ? 0 : activation_bit(lowering, op->out), part == 0 ? OTHER_SCRATCH : 0};
        struct op_entry *entry =
            add_entry(lowering, part == 0 ? ENTRY_ATTENTION : ENTRY_ATTENTION_MERGE, index, index, reads, writes);
        if (entry == NULL)
            return;
        int kind = entry->kind, capacity = entry->capacity;
        *entry = shape;
        entry->kind = kind;
        entry->capacity = capacity;
        entry->layer = op->layer;
        entry->row_set = lowering->row_set;
        entry->quantized = entry->vector = entry->rope = -1;
        set_in(lowering, entry, op->in);
        set_out(lowering, entry, op->out);
        if (part == 1 && op->head_size % 32 == 0)
            set_quantized(lowering, entry, index, op->out, op->n_heads * op->head_size);
    }
}

static void lower_gather(struct lowering *lowering, int index)
{
    struct plan *plan = lowering->plan;
    const struct op_graph *graph = &plan->model->graph;
    bool live[GRAPH_MAX_ACTIVATIONS];
    graph_live_activations(graph, index + 1, live);
    plan->gather_entry = plan->n_entries;
    for (int a = 0; a < graph->n_activations; a++) {
        if (!live[a])
            continue;
        struct resources reads = activations((uint64_t)1 << a), writes = activations((uint64_t)1 << (32 + a));
        struct op_entry *entry = add_entry(lowering, ENTRY_GATHER, index, index, reads, writes);
        if (entry == NULL)
            return;
        entry->row_set = 1;
        entry->capacity = plan->limits.max_returning;
        set_in(lowering, entry, a);
        entry->out = plan->activation_offsets[1][a];
        entry->out_stride = plan->activation_strides[a];
        entry->n_in = graph->activations[a].width;
    }
    lowering->row_set = 1;
}

/* No entry: the host reads the rows of the mapped table and writes them with the step's inputs. */
static int lower_lookup(struct lowering *lowering, int index)
{
    struct plan *plan = lowering->plan;
    const struct op *op = &plan->model->graph.ops[index];
    if (plan->n_lookups == PLAN_MAX_LOOKUPS || lowering->row_set != 0) {
        fail(lowering, NPU_ERROR_UNSUPPORTED, "a lookup of embeddings where the plan has no place for it");
        return 1;
    }
    plan->lookups[plan->n_lookups++] =
        (struct plan_lookup){op, plan->activation_offsets[0][op->out], plan->activation_strides[op->out]};
    return 1;
}

static int lower_op(struct lowering *lowering, int index)
{
    const struct model *model = lowering->plan->model;
    const struct op *op = &model->graph.ops[index];
    struct op_entry *entry;
    switch (op->kind) {
    case OP_EMBED:
        entry = add_entry(lowering, ENTRY_EMBED, index, index, (struct resources){0},
                          activations(activation_bit(lowering, op->out)));
        if (entry == NULL)
            return 1;
        set_out(lowering, entry, op->out);
        set_weight(lowering, entry, op->weight);
        entry->scale = op->scale;
        return 1;
    case OP_RMS_NORM:
        return lower_norm(lowering, index);
    case OP_MATMUL:
        return lower_matmul(lowering, index);
    case OP_ROPE: {
        struct pending *pending = &lowering->pending[op->out];
        if (!pending->waits)
            *pending = (struct pending){.waits = true, .source = op->out, .first_op = index};
        pending->last_op = index;
        pending->rope = op;
        return 1;
    }
    case OP_KV_WRITE:
        flush_pending(lowering, op->in, DESTINATION_KEYS, op->kv_layer, index);
        flush_pending(lowering, op->in2, DESTINATION_VALUES, op->kv_layer, index);
        return 1;
    case OP_ATTENTION:
        lower_attention(lowering, index);
        return 1;
    case OP_GATED:
    case OP_ADD:
    case OP_SCALE:
    case OP_SOFTCAP:
        return lower_elementwise(lowering, index);
    case OP_LOOKUP:
        return lower_lookup(lowering, index);
    case OP_GATHER:
        lower_gather(lowering, index);
        return 1;
    }
    return 1;
}

static void lower_select(struct lowering *lowering)
{
    struct plan *plan = lowering->plan;
    const struct model *model = plan->model;
    int last = model->graph.n_ops - 1;
    for (int part = 0; part < 2; part++) {
        struct resources reads = {part == 0 ? activation_bit(lowering, model->graph.logits) : 0,
                                  part == 0 ? 0 : OTHER_SCRATCH};
        struct resources writes = {0, part == 0 ? OTHER_SCRATCH : OTHER_SELECT};
        struct op_entry *entry =
            add_entry(lowering, part == 0 ? ENTRY_SELECT : ENTRY_SELECT_MERGE, last, last, reads, writes);
        if (entry == NULL)
            return;
        entry->layer = NO_INDEX;
        set_in(lowering, entry, model->graph.logits);
        entry->out = plan->select_offset;
        entry->out_stride = plan->select_stride;
        entry->scratch = plan->partials_offset;
        entry->scratch_stride = plan->partials_stride;
        entry->splits = plan->select_chunks;
        entry->n_in = model->n_vocab;
    }
}

/* The first entry behind the last op that writes the hidden state. */
static int find_head(const struct plan *plan)
{
    const struct op_graph *graph = &plan->model->graph;
    int last_op = graph->n_ops - 1, entry = plan->gather_entry;
    while (last_op > 0 && graph->ops[last_op].out != graph->hidden)
        last_op--;
    while (entry < plan->n_entries && plan->first_ops[entry] <= last_op)
        entry++;
    return entry;
}

enum npu_status lowering_run(struct plan *plan, struct npu_error *error)
{
    struct lowering lowering = {.plan = plan, .error = error};
    for (int i = 0; i < plan->model->graph.n_ops && lowering.status == NPU_OK;)
        i += lower_op(&lowering, i);
    if (lowering.status == NPU_OK)
        lower_select(&lowering);
    if (lowering.status == NPU_OK && plan->n_segments == 0)
        fail(&lowering, NPU_ERROR_INPUT, "the model has no weights");
    plan->head_entry = lowering.status == NPU_OK ? find_head(plan) : 0;
    return lowering.status;
}
