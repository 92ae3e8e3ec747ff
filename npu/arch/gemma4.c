/* Gemma 4 (text, dense): sliding and full layers differ in head size, KV heads and rope; the last layers own no K/V and read
 * that of an earlier layer of their own type; every layer adds a gated projection of a per-layer embedding, made of a part
 * by token and a part projected from the embedded input. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "npu/arch/blocks.h"
#include "npu/dequantize.h"

struct hyperparameters {
    int head_sizes[2]; /* by enum window, as are ropes */
    int ropes[2];
    double epsilon;
    int n_per_layer; /* elements of a layer's embedding; 0: the model has none */
    int n_owning; /* layers before this own K/V */
    int last_owning[2]; /* by enum window: the last of those layers of each type, or NO_INDEX */
};

/* Activations that all layers use. */
struct stream {
    int hidden, normed, projected;
    int layer_inputs; /* n_layers * n_per_layer, when there are any */
};

static enum window window_of(struct model_builder *builder, int layer)
{
    return builder_layer_window(builder, layer, 6);
}

static int read_head_size(struct model_builder *builder, const char *key_length, const char *value_length)
{
    int size = (int)builder_int(builder, key_length, 2, 4096);
    int value_size = (int)builder_int_or(builder, value_length, 2, 4096, size);
    if (value_size != size)
        builder_fail(builder, NPU_ERROR_UNSUPPORTED,
                     "keys of %d and values of %d elements per head; they must be equal", size, value_size);
    return size;
}

static void read_ropes(struct model_builder *builder, struct hyperparameters *h)
{
    int full = h->head_sizes[WINDOW_FULL], sliding = h->head_sizes[WINDOW_SLIDING];
    struct rope full_rope = {.dims = (int)builder_int_or(builder, "rope.dimension_count", 2, full, full),
                             .base = builder_float_or(builder, "rope.freq_base", 10000.0),
                             .position_scale = builder_rope_position_scale(builder)};
    /* Only a part of a head turns: the file divides the other frequencies by a huge number. */
    builder_weight(builder, full_rope.dims / 2, 1, "rope_freqs.weight");
    full_rope.factors = builder_rope_factors(builder, full_rope.dims);
    struct rope sliding_rope = {.dims = (int)builder_int_or(builder, "rope.dimension_count_swa", 2, sliding, sliding),
                                .base = builder_float_or(builder, "rope.freq_base_swa", 10000.0),
                                .position_scale = 1.0};
    h->ropes[WINDOW_FULL] = builder_add_rope(builder, full_rope);
    h->ropes[WINDOW_SLIDING] = builder_add_rope(builder, sliding_rope);
}

static struct hyperparameters read_hyperparameters(struct model_builder *builder)
{
    struct model *model = builder->model;
    struct hyperparameters h = {
        .epsilon = builder_float(builder, "attention.layer_norm_rms_epsilon"),
        .n_per_layer = (int)builder_int_or(builder, "embedding_length_per_layer_input", 0, 1 << 16, 0),
        .last_owning = {NO_INDEX, NO_INDEX},
    };
    if (builder_int_or(builder, "expert_count", 0, INT32_MAX, 0) > 0)
        builder_fail(builder, NPU_ERROR_UNSUPPORTED, "mixture-of-experts Gemma 4 models are not supported");
    h.head_sizes[WINDOW_FULL] = read_head_size(builder, "attention.key_length", "attention.value_length");
    h.head_sizes[WINDOW_SLIDING] = read_head_size(builder, "attention.key_length_swa", "attention.value_length_swa");
    model->window = (int)builder_int(builder, "attention.sliding_window", 1, INT32_MAX);
    read_ropes(builder, &h);
    int n_sharing = (int)builder_int_or(builder, "attention.shared_kv_layers", 0, model->n_layers - 1, 0);
    h.n_owning = model->n_layers - n_sharing;
    for (int layer = 0; layer < h.n_owning; layer++)
        h.last_owning[window_of(builder, layer)] = layer;
    return h;
}

/* layer_inputs = (the token's part + the norm of the projected embedding) / sqrt(2), all layers in one vector. */
static void build_layer_inputs(struct model_builder *builder, const struct hyperparameters *h, struct stream *stream)
{
    struct model *model = builder->model;
    int64_t n_all = (int64_t)model->n_layers * h->n_per_layer;
    int token_part = graph_activation(&model->graph, "token_part", (int)n_all);
    stream->layer_inputs = graph_activation(&model->graph, "layer_inputs", (int)n_all);

    struct op *lookup = graph_add(&model->graph, OP_LOOKUP, NO_INDEX);
    lookup->weight = builder_weight(builder, n_all, model->n_vocab, "per_layer_token_embd.weight");
    lookup->scale = sqrtf((float)h->n_per_layer);
    lookup->out = token_part;
    block_matmul(builder, NO_INDEX, builder_weight(builder, model->n_embd, n_all, "per_layer_model_proj.weight"), NULL,
                 stream->hidden, stream->layer_inputs);
    block_scale(builder, NO_INDEX, (int)n_all, 1.0 / sqrt(model->n_embd), stream->layer_inputs, stream->layer_inputs);
    block_rms_norm(builder, NO_INDEX, builder_weight(builder, h->n_per_layer, 1, "per_layer_proj_norm.weight"),
                   h->epsilon, model->n_layers, h->n_per_layer, stream->layer_inputs, stream->layer_inputs);
    block_add(builder, NO_INDEX, (int)n_all, stream->layer_inputs, token_part, stream->layer_inputs);
    block_scale(builder, NO_INDEX, (int)n_all, sqrt(0.5), stream->layer_inputs, stream->layer_inputs);
}

/* Computes and stores the layer's own K/V; returns its KV layer. */
static int build_own_kv(struct model_builder *builder, const struct hyperparameters *h, int layer, enum window window,
                        int normed)
{
    struct model *model = builder->model;
    int head_size = h->head_sizes[window];
    int n_kv_heads = (int)builder_layer_int(builder, "attention.head_count_kv", layer, 1, 1024);
    int n_kv = n_kv_heads * head_size;
    int key = graph_activation(&model->graph, "key", n_kv);
    int value = graph_activation(&model->graph, "value", n_kv);
    int kv_layer = builder_add_kv_layer(builder, n_kv_heads, head_size);
    const struct weight *value_weight =
        builder_find_weight(builder, model->n_embd, n_kv, "blk.%d.attn_v.weight", layer);

    block_matmul(builder, layer, builder_weight(builder, model->n_embd, n_kv, "blk.%d.attn_k.weight", layer), NULL,
                 normed, key);
    if (value_weight)
        block_matmul(builder, layer, value_weight, NULL, normed, value);
    /* Without a projection of their own, values are the keys before norm and rope. */
    block_rms_norm(builder, layer, NULL, h->epsilon, n_kv_heads, head_size, value_weight ? value : key, value);
    block_rms_norm(builder, layer, builder_weight(builder, head_size, 1, "blk.%d.attn_k_norm.weight", layer),
                   h->epsilon, n_kv_heads, head_size, key, key);
    block_rope(builder, layer, h->ropes[window], n_kv_heads, head_size, key);
    block_kv_write(builder, layer, kv_layer, key, value);
    return kv_layer;
}

static void build_attention(struct model_builder *builder, const struct hyperparameters *h, int layer, int *kv_layers,
                            const struct stream *stream)
{
    struct model *model = builder->model;
    enum window window = window_of(builder, layer);
    int head_size = h->head_sizes[window];
    int n_heads = (int)builder_layer_int(builder, "attention.head_count", layer, 1, 1024);
    int n_query = n_heads * head_size;
    int query = graph_activation(&model->graph, "query", n_query);
    int attended = graph_activation(&model->graph, "attended", n_query);

    block_matmul(builder, layer, builder_weight(builder, model->n_embd, n_query, "blk.%d.attn_q.weight", layer), NULL,
                 stream->normed, query);
    block_rms_norm(builder, layer, builder_weight(builder, head_size, 1, "blk.%d.attn_q_norm.weight", layer),
                   h->epsilon, n_heads, head_size, query, query);
    block_rope(builder, layer, h->ropes[window], n_heads, head_size, query);
    if (layer < h->n_owning)
        kv_layers[layer] = build_own_kv(builder, h, layer, window, stream->normed);
    else if (h->last_owning[window] == NO_INDEX)
        builder_fail(builder, NPU_ERROR_INPUT, "layer %d shares K/V, but no layer of its type before layer %d owns any",
                     layer, h->n_owning);
    if (builder->failed)
        return;
    int kv_layer = kv_layers[layer < h->n_owning ? layer : h->last_owning[window]];
    int n_kv_heads = model->kv_layers[kv_layer].n_heads;
    if (n_heads % n_kv_heads != 0)
        builder_fail(builder, NPU_ERROR_INPUT, "layer %d has %d heads, not a multiple of its %d KV heads", layer,
                     n_heads, n_kv_heads);
    block_attention(builder, layer, kv_layer, window, n_heads, head_size, 1.0, query, attended);
    block_matmul(builder, layer, builder_weight(builder, n_query, model->n_embd, "blk.%d.attn_output.weight", layer),
                 NULL, attended, stream->projected);
}

/* hidden += post_norm(proj (gelu(inp_gate hidden) * the layer's input)) */
static void build_layer_input(struct model_builder *builder, const struct hyperparameters *h, int layer,
                              const struct stream *stream)
{
    struct model *model = builder->model;
    int n_embd = model->n_embd;
    int gate = graph_activation(&model->graph, "input_gate", h->n_per_layer);
    int gated = graph_activation(&model->graph, "input_gated", h->n_per_layer);
    block_matmul(builder, layer, builder_weight(builder, n_embd, h->n_per_layer, "blk.%d.inp_gate.weight", layer), NULL,
                 stream->hidden, gate);
    struct op *op =
        block_gated(builder, layer, ACTIVATION_GELU_TANH, h->n_per_layer, gate, stream->layer_inputs, gated);
    op->in2_offset = layer * h->n_per_layer;
    block_matmul(builder, layer, builder_weight(builder, h->n_per_layer, n_embd, "blk.%d.proj.weight", layer), NULL,
                 gated, stream->projected);
    block_rms_norm(builder, layer, builder_weight(builder, n_embd, 1, "blk.%d.post_norm.weight", layer), h->epsilon, 1,
                   n_embd, stream->projected, stream->projected);
    block_add(builder, layer, n_embd, stream->hidden, stream->projected, stream->hidden);
}

static void build_layer(struct model_builder *builder, const struct hyperparameters *h, int layer, int *kv_layers,
                        const struct stream *stream)
{
    int n_embd = builder->model->n_embd;
    block_rms_norm(builder, layer, builder_weight(builder, n_embd, 1, "blk.%d.attn_norm.weight", layer), h->epsilon, 1,
                   n_embd, stream->hidden, stream->normed);
    build_attention(builder, h, layer, kv_layers, stream);
    block_rms_norm(builder, layer, builder_weight(builder, n_embd, 1, "blk.%d.post_attention_norm.weight", layer),
                   h->epsilon, 1, n_embd, stream->projected, stream->projected);
    block_add(builder, layer, n_embd, stream->hidden, stream->projected, stream->hidden);
    block_rms_norm(builder, layer, builder_weight(builder, n_embd, 1, "blk.%d.ffn_norm.weight", layer), h->epsilon, 1,
                   n_embd, stream->hidden, stream->normed);
    block_feed_forward(builder, layer, ACTIVATION_GELU_TANH, stream->normed, stream->projected);
    block_rms_norm(builder, layer, builder_weight(builder, n_embd, 1, "blk.%d.post_ffw_norm.weight", layer), h->epsilon,
                   1, n_embd, stream->projected, stream->projected);
    block_add(builder, layer, n_embd, stream->hidden, stream->projected, stream->hidden);
    if (h->n_per_layer > 0)
        build_layer_input(builder, h, layer, stream);
    const struct weight *scale = builder_find_weight(builder, 1, 1, "blk.%d.layer_output_scale.weight", layer);
    if (scale) {
        float factor;
        dequantize_row(scale->type, scale->data, &factor, 1);
        block_scale(builder, layer, n_embd, (double)factor, stream->hidden, stream->hidden);
    }
}

void arch_gemma4_build(struct model_builder *builder)
{
    struct model *model = builder->model;
    struct hyperparameters h = read_hyperparameters(builder);
    int *kv_layers = calloc((size_t)model->n_layers, sizeof *kv_layers);
    if (kv_layers == NULL)
        builder_fail(builder, NPU_ERROR_MEMORY, "no memory for the KV layers");
    if (builder->failed)
        goto cleanup;
    struct stream stream = {.hidden = graph_activation(&model->graph, "hidden", model->n_embd),
                            .normed = graph_activation(&model->graph, "normed", model->n_embd),
                            .projected = graph_activation(&model->graph, "projected", model->n_embd)};
    const struct weight *table = builder_weight(builder, model->n_embd, model->n_vocab, "token_embd.weight");

    block_embed(builder, table, sqrtf((float)model->n_embd), stream.hidden);
    if (h.n_per_layer > 0)
        build_layer_inputs(builder, &h, &stream);
    for (int layer = 0; layer < model->n_layers && !builder->failed; layer++)
        build_layer(builder, &h, layer, kv_layers, &stream);
    block_output(builder, table, h.epsilon, stream.hidden, stream.normed);
cleanup:
    free(kv_layers);
}
