#include "npu/arch/blocks.h"

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

void block_gated(struct model_builder *builder, int layer, enum activation_function function, int width, int gate,
                 int up, int out)
{
    struct op *op = graph_add(&builder->model->graph, OP_GATED, layer);
    op->function = function;
    op->width = width;
    op->in = gate;
    op->in2 = up;
    op->out = out;
}

void block_add(struct model_builder *builder, int layer, int width, int in, int in2, int out)
{
    struct op *op = graph_add(&builder->model->graph, OP_ADD, layer);
    op->width = width;
    op->in = in;
    op->in2 = in2;
    op->out = out;
}
