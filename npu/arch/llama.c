/* Llama, and what is converted to the same form (SmolLM2, Mistral, ...). Queries and keys in GGUF files are permuted so
 * that rope turns neighbouring elements. */
#include <math.h>
#include <stddef.h>

#include "npu/arch/blocks.h"

void arch_llama_build(struct model_builder *builder)
{
    struct model *model = builder->model;
    struct op_graph *graph = &model->graph;
    int n_embd = model->n_embd;

    int first_heads = (int)builder_layer_int(builder, "attention.head_count", 0, 1, 1024);
    int head_size = (int)builder_int_or(builder, "attention.key_length", 2, 4096, n_embd / first_heads);
    int value_size = (int)builder_int_or(builder, "attention.value_length", 2, 4096, n_embd / first_heads);
    int rope_dims = (int)builder_int_or(builder, "rope.dimension_count", 2, head_size, head_size);
    double epsilon = builder_float(builder, "attention.layer_norm_rms_epsilon");
    double scale = builder_float_or(builder, "attention.scale", 0.0);
    if (scale == 0.0)
        scale = 1.0 / sqrt(head_size);
    if (value_size != head_size)
        builder_fail(builder, NPU_ERROR_UNSUPPORTED,
                     "keys of %d and values of %d elements per head; they must be equal", head_size, value_size);
    if (builder_int_or(builder, "expert_count", 0, INT32_MAX, 0) > 0)
        builder_fail(builder, NPU_ERROR_UNSUPPORTED, "mixture-of-experts models are not supported");
    struct rope rope = {.dims = rope_dims,
                        .base = builder_float_or(builder, "rope.freq_base", 10000.0),
                        .position_scale = builder_rope_position_scale(builder),
                        .interleaved = true,
                        .factors = builder_rope_factors(builder, rope_dims)};
    int rope_index = builder_add_rope(builder, rope);
    if (builder->failed)
        return;

    int hidden = graph_activation(graph, "hidden", n_embd);
    int normed = graph_activation(graph, "normed", n_embd);
    int projected = graph_activation(graph, "projected", n_embd);
    const struct weight *table = builder_weight(builder, n_embd, model->n_vocab, "token_embd.weight");
    block_embed(builder, table, 1.0f, hidden);

    for (int layer = 0; layer < model->n_layers; layer++) {
        int n_heads = (int)builder_layer_int(builder, "attention.head_count", layer, 1, 1024);
        int n_kv_heads = (int)builder_layer_int_or(builder, "attention.head_count_kv", layer, 1, 1024, n_heads);
        int n_ff = (int)builder_layer_int(builder, "feed_forward_length", layer, 1, 1 << 20);
        if (n_heads % n_kv_heads != 0)
            builder_fail(builder, NPU_ERROR_INPUT, "layer %d has %d heads, not a multiple of its %d KV heads", layer,
                         n_heads, n_kv_heads);
        if (builder->failed)
            return;
        int n_query = n_heads * head_size;
        int n_kv = n_kv_heads * head_size;
        int query = graph_activation(graph, "query", n_query);
        int key = graph_activation(graph, "key", n_kv);
        int value = graph_activation(graph, "value", n_kv);
        int attended = graph_activation(graph, "attended", n_query);
        int gate = graph_activation(graph, "gate", n_ff);
        int up = graph_activation(graph, "up", n_ff);
        int gated = graph_activation(graph, "gated", n_ff);
        int kv_layer = builder_add_kv_layer(builder, n_kv_heads, head_size);

        block_rms_norm(builder, layer, builder_weight(builder, n_embd, 1, "blk.%d.attn_norm.weight", layer), epsilon, 1,
                       n_embd, hidden, normed);
        block_matmul(builder, layer, builder_weight(builder, n_embd, n_query, "blk.%d.attn_q.weight", layer),
                     builder_find_weight(builder, n_query, 1, "blk.%d.attn_q.bias", layer), normed, query);
        block_matmul(builder, layer, builder_weight(builder, n_embd, n_kv, "blk.%d.attn_k.weight", layer),
                     builder_find_weight(builder, n_kv, 1, "blk.%d.attn_k.bias", layer), normed, key);
        block_matmul(builder, layer, builder_weight(builder, n_embd, n_kv, "blk.%d.attn_v.weight", layer),
                     builder_find_weight(builder, n_kv, 1, "blk.%d.attn_v.bias", layer), normed, value);
        block_rope(builder, layer, rope_index, n_heads, head_size, query);
        block_rope(builder, layer, rope_index, n_kv_heads, head_size, key);
        block_kv_write(builder, layer, kv_layer, key, value);
        block_attention(builder, layer, kv_layer, WINDOW_FULL, n_heads, head_size, scale, query, attended);
        block_matmul(builder, layer, builder_weight(builder, n_query, n_embd, "blk.%d.attn_output.weight", layer),
                     builder_find_weight(builder, n_embd, 1, "blk.%d.attn_output.bias", layer), attended, projected);
        block_add(builder, layer, n_embd, hidden, projected, hidden);

        block_rms_norm(builder, layer, builder_weight(builder, n_embd, 1, "blk.%d.ffn_norm.weight", layer), epsilon, 1,
                       n_embd, hidden, normed);
        block_matmul(builder, layer, builder_weight(builder, n_embd, n_ff, "blk.%d.ffn_gate.weight", layer),
                     builder_find_weight(builder, n_ff, 1, "blk.%d.ffn_gate.bias", layer), normed, gate);
        block_matmul(builder, layer, builder_weight(builder, n_embd, n_ff, "blk.%d.ffn_up.weight", layer),
                     builder_find_weight(builder, n_ff, 1, "blk.%d.ffn_up.bias", layer), normed, up);
        block_gated(builder, layer, ACTIVATION_SILU, n_ff, gate, up, gated);
        block_matmul(builder, layer, builder_weight(builder, n_ff, n_embd, "blk.%d.ffn_down.weight", layer),
                     builder_find_weight(builder, n_embd, 1, "blk.%d.ffn_down.bias", layer), gated, projected);
        block_add(builder, layer, n_embd, hidden, projected, hidden);
    }

    block_rms_norm(builder, NO_INDEX, builder_weight(builder, n_embd, 1, "output_norm.weight"), epsilon, 1, n_embd,
                   hidden, normed);
    const struct weight *head = builder_find_weight(builder, n_embd, model->n_vocab, "output.weight");
    int logits = graph_activation(graph, "logits", model->n_vocab);
    block_matmul(builder, NO_INDEX, head ? head : table, NULL, normed, logits);
    graph->hidden = normed;
    graph->logits = logits;
}
