/* Gemma 3 (text): most layers attend over a sliding window with a rope of their own, every sixth over everything; norms
 * before and after attention and feed-forward; queries and keys normed per head. GGUF files hold norm weights with the
 * one that Gemma adds already in them. */
#include <math.h>
#include <stddef.h>

#include "npu/arch/blocks.h"

enum {
    DEFAULT_PATTERN = 6,
    LAYERS_OF_27B = 62
};

struct hyperparameters {
    int head_size;
    double epsilon;
    double scale;
    int ropes[2]; /* by enum window */
};

static struct hyperparameters read_hyperparameters(struct model_builder *builder)
{
    struct model *model = builder->model;
    int heads = (int)builder_layer_int(builder, "attention.head_count", 0, 1, 1024);
    struct hyperparameters h = {
        .head_size = (int)builder_int_or(builder, "attention.key_length", 2, 4096, model->n_embd / heads),
        .epsilon = builder_float(builder, "attention.layer_norm_rms_epsilon"),
    };
    int value_size = (int)builder_int_or(builder, "attention.value_length", 2, 4096, model->n_embd / heads);
    if (value_size != h.head_size)
        builder_fail(builder, NPU_ERROR_UNSUPPORTED,
                     "keys of %d and values of %d elements per head; they must be equal", h.head_size, value_size);
    /* The files do not say how scores are scaled; the 27B model alone takes its width per head instead of the head size. */
    int scaled_by = model->n_layers == LAYERS_OF_27B ? model->n_embd / heads : h.head_size;
    h.scale = builder_float_or(builder, "attention.scale", 1.0 / sqrt(scaled_by));
    int dims = (int)builder_int_or(builder, "rope.dimension_count", 2, h.head_size, h.head_size);
    struct rope full = {.dims = dims,
                        .base = builder_float_or(builder, "rope.freq_base", 10000.0),
                        .position_scale = builder_rope_position_scale(builder)};
    struct rope sliding = {
        .dims = dims, .base = builder_float_or(builder, "rope.freq_base_swa", 10000.0), .position_scale = 1.0};
    h.ropes[WINDOW_FULL] = builder_add_rope(builder, full);
    model->window = (int)builder_int_or(builder, "attention.sliding_window", 0, INT32_MAX, 0);
    if (model->window > 0)
        h.ropes[WINDOW_SLIDING] = builder_add_rope(builder, sliding);
    return h;
}

static void build_attention(struct model_builder *builder, const struct hyperparameters *h, int layer, int normed,
                            int projected)
{
    struct op_graph *graph = &builder->model->graph;
    int n_embd = builder->model->n_embd;
    enum window window = WINDOW_FULL;
    if (builder->model->window > 0)
        window = builder_layer_window(builder, layer, DEFAULT_PATTERN);
    int n_heads = (int)builder_layer_int(builder, "attention.head_count", layer, 1, 1024);
    int n_kv_heads = (int)builder_layer_int_or(builder, "attention.head_count_kv", layer, 1, 1024, n_heads);
    if (n_heads % n_kv_heads != 0)
        builder_fail(builder, NPU_ERROR_INPUT, "layer %d has %d heads, not a multiple of its %d KV heads", layer,
                     n_heads, n_kv_heads);
    int n_query = n_heads * h->head_size, n_kv = n_kv_heads * h->head_size;
    int query = graph_activation(graph, "query", n_query);
    int key = graph_activation(graph, "key", n_kv);
    int value = graph_activation(graph, "value", n_kv);
    int attended = graph_activation(graph, "attended", n_query);
    int kv_layer = builder_add_kv_layer(builder, n_kv_heads, h->head_size);

    block_matmul(builder, layer, builder_weight(builder, n_embd, n_query, "blk.%d.attn_q.weight", layer), NULL, normed,
                 query);
    block_matmul(builder, layer, builder_weight(builder, n_embd, n_kv, "blk.%d.attn_k.weight", layer), NULL, normed,
                 key);
    block_matmul(builder, layer, builder_weight(builder, n_embd, n_kv, "blk.%d.attn_v.weight", layer), NULL, normed,
                 value);
    block_rms_norm(builder, layer, builder_weight(builder, h->head_size, 1, "blk.%d.attn_q_norm.weight", layer),
                   h->epsilon, n_heads, h->head_size, query, query);
    block_rms_norm(builder, layer, builder_weight(builder, h->head_size, 1, "blk.%d.attn_k_norm.weight", layer),
                   h->epsilon, n_kv_heads, h->head_size, key, key);
    block_rope(builder, layer, h->ropes[window], n_heads, h->head_size, query);
    block_rope(builder, layer, h->ropes[window], n_kv_heads, h->head_size, key);
    block_kv_write(builder, layer, kv_layer, key, value);
    block_attention(builder, layer, kv_layer, window, n_heads, h->head_size, h->scale, query, attended);
    block_matmul(builder, layer, builder_weight(builder, n_query, n_embd, "blk.%d.attn_output.weight", layer), NULL,
                 attended, projected);
}

void arch_gemma3_build(struct model_builder *builder)
{
    struct model *model = builder->model;
    struct op_graph *graph = &model->graph;
    int n_embd = model->n_embd;
    struct hyperparameters h = read_hyperparameters(builder);
    if (builder->failed)
        return;
    int hidden = graph_activation(graph, "hidden", n_embd);
    int normed = graph_activation(graph, "normed", n_embd);
    int projected = graph_activation(graph, "projected", n_embd);
    const struct weight *table = builder_weight(builder, n_embd, model->n_vocab, "token_embd.weight");

    block_embed(builder, table, sqrtf((float)n_embd), hidden);
    for (int layer = 0; layer < model->n_layers && !builder->failed; layer++) {
        block_rms_norm(builder, layer, builder_weight(builder, n_embd, 1, "blk.%d.attn_norm.weight", layer), h.epsilon,
                       1, n_embd, hidden, normed);
        build_attention(builder, &h, layer, normed, projected);
        block_rms_norm(builder, layer, builder_weight(builder, n_embd, 1, "blk.%d.post_attention_norm.weight", layer),
                       h.epsilon, 1, n_embd, projected, projected);
        block_add(builder, layer, n_embd, hidden, projected, hidden);
        block_rms_norm(builder, layer, builder_weight(builder, n_embd, 1, "blk.%d.ffn_norm.weight", layer), h.epsilon,
                       1, n_embd, hidden, normed);
        block_feed_forward(builder, layer, ACTIVATION_GELU_TANH, normed, projected);
        block_rms_norm(builder, layer, builder_weight(builder, n_embd, 1, "blk.%d.post_ffw_norm.weight", layer),
                       h.epsilon, 1, n_embd, projected, projected);
        block_add(builder, layer, n_embd, hidden, projected, hidden);
    }
    block_output(builder, table, h.epsilon, hidden, normed);
}
