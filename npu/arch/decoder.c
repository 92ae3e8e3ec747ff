#include "npu/arch/decoder.h"

#include <math.h>
#include <stddef.h>

#include "npu/arch/blocks.h"

struct hyperparameters {
    int head_size;
    double epsilon;
    double scale; /* of attention scores */
    int rope;
};

static struct hyperparameters read_hyperparameters(struct model_builder *builder, const struct decoder_traits *traits)
{
    int n_embd = builder->model->n_embd;
    int first_heads = (int)builder_layer_int(builder, "attention.head_count", 0, 1, 1024);
    struct hyperparameters h = {
        .head_size = (int)builder_int_or(builder, "attention.key_length", 2, 4096, n_embd / first_heads),
        .epsilon = builder_float(builder, "attention.layer_norm_rms_epsilon"),
        .scale = builder_float_or(builder, "attention.scale", 0.0),
    };
    int value_size = (int)builder_int_or(builder, "attention.value_length", 2, 4096, n_embd / first_heads);
    int rope_dims = (int)builder_int_or(builder, "rope.dimension_count", 2, h.head_size, h.head_size);
    if (h.scale == 0.0)
        h.scale = 1.0 / sqrt(h.head_size);
    if (value_size != h.head_size)
        builder_fail(builder, NPU_ERROR_UNSUPPORTED,
                     "keys of %d and values of %d elements per head; they must be equal", h.head_size, value_size);
    if (builder_int_or(builder, "expert_count", 0, INT32_MAX, 0) > 0)
        builder_fail(builder, NPU_ERROR_UNSUPPORTED, "mixture-of-experts models are not supported");
    struct rope rope = {.dims = rope_dims,
                        .base = builder_float_or(builder, "rope.freq_base", 10000.0),
                        .position_scale = builder_rope_position_scale(builder),
                        .interleaved = traits->interleaved_rope,
                        .factors = builder_rope_factors(builder, rope_dims)};
    h.rope = builder_add_rope(builder, rope);
    return h;
}

static void build_attention(struct model_builder *builder, const struct decoder_traits *traits,
                            const struct hyperparameters *h, int layer, int normed, int projected)
{
    struct op_graph *graph = &builder->model->graph;
    int n_embd = builder->model->n_embd;
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

    block_matmul(builder, layer, builder_weight(builder, n_embd, n_query, "blk.%d.attn_q.weight", layer),
                 builder_find_weight(builder, n_query, 1, "blk.%d.attn_q.bias", layer), normed, query);
    block_matmul(builder, layer, builder_weight(builder, n_embd, n_kv, "blk.%d.attn_k.weight", layer),
                 builder_find_weight(builder, n_kv, 1, "blk.%d.attn_k.bias", layer), normed, key);
    block_matmul(builder, layer, builder_weight(builder, n_embd, n_kv, "blk.%d.attn_v.weight", layer),
                 builder_find_weight(builder, n_kv, 1, "blk.%d.attn_v.bias", layer), normed, value);
    if (traits->head_norms) {
        block_rms_norm(builder, layer, builder_weight(builder, h->head_size, 1, "blk.%d.attn_q_norm.weight", layer),
                       h->epsilon, n_heads, h->head_size, query, query);
        block_rms_norm(builder, layer, builder_weight(builder, h->head_size, 1, "blk.%d.attn_k_norm.weight", layer),
                       h->epsilon, n_kv_heads, h->head_size, key, key);
    }
    block_rope(builder, layer, h->rope, n_heads, h->head_size, query);
    block_rope(builder, layer, h->rope, n_kv_heads, h->head_size, key);
    block_kv_write(builder, layer, kv_layer, key, value);
    block_attention(builder, layer, kv_layer, WINDOW_FULL, n_heads, h->head_size, h->scale, query, attended);
    block_matmul(builder, layer, builder_weight(builder, n_query, n_embd, "blk.%d.attn_output.weight", layer),
                 builder_find_weight(builder, n_embd, 1, "blk.%d.attn_output.bias", layer), attended, projected);
}

void decoder_build(struct model_builder *builder, const struct decoder_traits *traits)
{
    struct model *model = builder->model;
    struct op_graph *graph = &model->graph;
    int n_embd = model->n_embd;
    struct hyperparameters h = read_hyperparameters(builder, traits);
    if (builder->failed)
        return;
    int hidden = graph_activation(graph, "hidden", n_embd);
    int normed = graph_activation(graph, "normed", n_embd);
    int projected = graph_activation(graph, "projected", n_embd);
    const struct weight *table = builder_weight(builder, n_embd, model->n_vocab, "token_embd.weight");

    block_embed(builder, table, 1.0f, hidden);
    for (int layer = 0; layer < model->n_layers && !builder->failed; layer++) {
        block_rms_norm(builder, layer, builder_weight(builder, n_embd, 1, "blk.%d.attn_norm.weight", layer), h.epsilon,
                       1, n_embd, hidden, normed);
        build_attention(builder, traits, &h, layer, normed, projected);
        block_add(builder, layer, n_embd, hidden, projected, hidden);
        block_rms_norm(builder, layer, builder_weight(builder, n_embd, 1, "blk.%d.ffn_norm.weight", layer), h.epsilon,
                       1, n_embd, hidden, normed);
        block_feed_forward(builder, layer, ACTIVATION_SILU, normed, projected);
        block_add(builder, layer, n_embd, hidden, projected, hidden);
    }
    block_output(builder, table, h.epsilon, hidden, normed);
}
