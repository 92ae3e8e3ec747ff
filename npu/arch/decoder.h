/* The decoder that most open models share: pre-norm attention with rope, then a gated feed-forward network, residuals
 * around both. What differs between them is in the traits and in which tensors the file has. */
#ifndef NPU_ARCH_DECODER_H
#define NPU_ARCH_DECODER_H

#include <stdbool.h>

#include "npu/model.h"

struct decoder_traits {
    bool interleaved_rope; /* pairs of neighbours turn; else element i with i + dims/2 */
    bool head_norms; /* queries and keys are normed per head before rope (attn_q_norm, attn_k_norm) */
};

void decoder_build(struct model_builder *builder, const struct decoder_traits *traits);

#endif
