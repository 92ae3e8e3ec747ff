/* Qwen 3 (dense): queries and keys are normed per head, head sizes are free of the model's width. */
#include "npu/arch/decoder.h"

void arch_qwen3_build(struct model_builder *builder)
{
    decoder_build(builder, &(struct decoder_traits){.interleaved_rope = false, .head_norms = true});
}
