/* Qwen 2 and 2.5: Llama's structure with biases on queries, keys and values, and rope over the two halves of a head. */
#include "npu/arch/decoder.h"

void arch_qwen2_build(struct model_builder *builder)
{
    decoder_build(builder, &(struct decoder_traits){.interleaved_rope = false});
}
