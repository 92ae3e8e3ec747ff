#include "npu/arch/blocks.h"

#include <stddef.h>

void block_embed(struct model_builder *builder, const struct weight *table, float scale, int out)
{
    struct op *op = graph_add(&builder->model->graph, OP_EMBED, NO_INDEX);
    op->weight = table;
    op->scale = scale;
    op->out = out;
}

void block_rms_norm(struct model_builder *builder, int layer, const struct weight *weight, double epsilon, int n_groups,
                    int group_size, int in, int out)
{
    struct op *op = graph_add(&builder->model->graph, OP_RMS_NORM, layer);
    op->weight = weight;
    op->epsilon = (float)epsilon;
    op->n_heads = n_groups;
    op->head_size = group_size;
    op->in = in;
    op->out = out;
}

void block_matmul(struct model_builder *builder, int layer, const struct weight *weight, const struct weight *bias,
                  int in, int out)
{
    struct op *op = graph_add(&builder->model->graph, OP_MATMUL, layer);
    op->weight = weight;
    op->bias = bias;
    op->in = in;
    op->out = out;
}

void block_rope(struct model_builder *builder, int layer, int rope, int n_heads, int head_size, int in_place)
{
    struct op *op = graph_add(&builder->model->graph, OP_ROPE, layer);
    op->rope = rope;
    op->n_heads = n_heads;
    op->head_size = head_size;
    op->out = in_place;
}

void block_kv_write(struct model_builder *builder, int layer, int kv_layer, int key, int value)
{
    struct op *op = graph_add(&builder->model->graph, OP_KV_WRITE, layer);
    op->kv_layer = kv_layer;
    op->in = key;
    op->in2 = value;
}

void block_attention(struct model_builder *builder, int layer, int kv_layer, enum window window, int n_heads,
                     int head_size, double scale, int in, int out)
{
    struct op *op = graph_add(&builder->model->graph, OP_ATTENTION, layer);
    op->kv_layer = kv_layer;
    op->window = window;
    op->n_heads = n_heads;
    op->head_size = head_size;
    op->scale = (float)scale;
    op->in = in;
    op->out = out;
}

struct op *block_gated(struct model_builder *builder, int layer, enum activation_function function, int width, int gate,
                       int up, int out)
{
    struct op *op = graph_add(&builder->model->graph, OP_GATED, layer);
    op->function = function;
    op->width = width;
    op->in = gate;
    op->in2 = up;
    op->out = out;
    return op;
}

void block_add(struct model_builder *builder, int layer, int width, int in, int in2, int out)
{
    struct op *op = graph_add(&builder->model->graph, OP_ADD, layer);
    op->width = width;
    op->in = in;
    op->in2 = in2;
    op->out = out;
}

void block_scale(struct model_builder *builder, int layer, int width, double factor, int in, int out)
{
    struct op *op = graph_add(&builder->model->graph, OP_SCALE, layer);
    op->scale = (float)factor;
    op->width = width;
    op->in = in;
    op->out = out;
}

void block_feed_forward(struct model_builder *builder, int layer, enum activation_function function, int normed,
                        int projected)
{
    struct op_graph *graph = &builder->model->graph;
    int n_embd = builder->model->n_embd;
    int n_ff = (int)builder_layer_int(builder, "feed_forward_length", layer, 1, 1 << 20);
    int gate = graph_activation(graph, "gate", n_ff);
    int up = graph_activation(graph, "up", n_ff);
    int gated = graph_activation(graph, "gated", n_ff);
    block_matmul(builder, layer, builder_weight(builder, n_embd, n_ff, "blk.%d.ffn_gate.weight", layer),
                 builder_find_weight(builder, n_ff, 1, "blk.%d.ffn_gate.bias", layer), normed, gate);
    block_matmul(builder, layer, builder_weight(builder, n_embd, n_ff, "blk.%d.ffn_up.weight", layer),
                 builder_find_weight(builder, n_ff, 1, "blk.%d.ffn_up.bias", layer), normed, up);
    block_gated(builder, layer, function, n_ff, gate, up, gated);
    block_matmul(builder, layer, builder_weight(builder, n_ff, n_embd, "blk.%d.ffn_down.weight", layer),
                 builder_find_weight(builder, n_embd, 1, "blk.%d.ffn_down.bias", layer), gated, projected);
}

void block_output(struct model_builder *builder, const struct weight *table, double epsilon, int hidden, int normed)
{
    struct model *model = builder->model;
    struct op_graph *graph = &model->graph;
    block_rms_norm(builder, NO_INDEX, builder_weight(builder, model->n_embd, 1, "output_norm.weight"), epsilon, 1,
                   model->n_embd, hidden, normed);
    const struct weight *head = builder_find_weight(builder, model->n_embd, model->n_vocab, "output.weight");
    const struct weight *bias = builder_find_weight(builder, model->n_vocab, 1, "output.bias");
    int logits = graph_activation(graph, "logits", model->n_vocab);
    block_matmul(builder, NO_INDEX, head ? head : table, bias, normed, logits);
    double cap = builder_float_or(builder, "final_logit_softcapping", 0.0);
    if (cap < 0.0)
        builder_fail(builder, NPU_ERROR_INPUT, "the logits' softcap is %g; it must be positive, or 0 for none", cap);
    if (cap != 0.0) {
        struct op *op = graph_add(graph, OP_SOFTCAP, NO_INDEX);
        op->scale = (float)cap;
        op->width = model->n_vocab;
        op->in = op->out = logits;
    }
    graph->hidden = normed;
    graph->logits = logits;
}
