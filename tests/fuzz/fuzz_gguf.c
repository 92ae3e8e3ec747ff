/* Any bytes as a GGUF file: opening either fails with a message or gives a file that is safe to read. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "npu/gguf.h"
#include "tests/unit/gguf_walk.h"

static const char *const keys[] = {
    "general.architecture",
    "general.alignment",
    "tokenizer.ggml.model",
    "tokenizer.ggml.tokens",
    "tokenizer.ggml.merges",
    "tokenizer.ggml.token_type",
    "tokenizer.ggml.bos_token_id",
    "x",
    NULL,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf_file *file;
    struct npu_error error;
    if (gguf_open_memory(&file, data, size, "fuzz.gguf", &error) != NPU_OK) {
        if (error.message[0] == 0)
            abort();
        return 0;
    }
    gguf_walk(file, keys);
    gguf_close(file);
    return 0;
}
