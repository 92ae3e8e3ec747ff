/* Llama, and what is converted to the same form (SmolLM2, Mistral, ...). Queries and keys in GGUF files are permuted so
 * that rope turns neighbouring elements. */
#include "npu/arch/decoder.h"

void arch_llama_build(struct model_builder *builder)
{
    decoder_build(builder, &(struct decoder_traits){.interleaved_rope = true});
}
