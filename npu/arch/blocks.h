/* The ops as calls, for descriptions of architectures: each appends one op to the builder's graph (block_gated gives it, for
 * its in2_offset).
 * Activations are indices from graph_activation; layer is NO_INDEX outside layers. Shapes in n_in/n_out of GGUF. */
#ifndef NPU_ARCH_BLOCKS_H
#define NPU_ARCH_BLOCKS_H

#include "npu/model.h"

void block_embed(struct model_builder *builder, const struct weight *table, float scale, int out);
/* n_groups vectors of group_size elements, each normed on its own; weight (or NULL) is shared by the groups. */
void block_rms_norm(struct model_builder *builder, int layer, const struct weight *weight, double epsilon, int n_groups,
                    int group_size, int in, int out);
void block_matmul(struct model_builder *builder, int layer, const struct weight *weight, const struct weight *bias,
                  int in, int out);
void block_rope(struct model_builder *builder, int layer, int rope, int n_heads, int head_size, int in_place);
void block_kv_write(struct model_builder *builder, int layer, int kv_layer, int key, int value);
void block_attention(struct model_builder *builder, int layer, int kv_layer, enum window window, int n_heads,
                     int head_size, double scale, int in, int out);
struct op *block_gated(struct model_builder *builder, int layer, enum activation_function function, int width, int gate,
                       int up, int out);
void block_add(struct model_builder *builder, int layer, int width, int in, int in2, int out);
/* out = factor * in; in and out may be the same. */
void block_scale(struct model_builder *builder, int layer, int width, double factor, int in, int out);

/* Larger pieces. feed_forward: projected = ffn_down (function(ffn_gate normed) * ffn_up normed), of the layer's
 * feed_forward_length. output: the final norm, the head (output.weight, else the embedding table) and its softcap. */
void block_feed_forward(struct model_builder *builder, int layer, enum activation_function function, int normed,
                        int projected);
void block_output(struct model_builder *builder, const struct weight *table, double epsilon, int hidden, int normed);

#endif
