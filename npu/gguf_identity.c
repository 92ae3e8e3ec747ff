#include "npu/gguf_internal.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    SAMPLED_BYTES = 64, /* of each tensor's data */
};

uint64_t gguf_identity(const struct gguf_file *file)
{
    /* Metadata and tensor table are all that stands before the first tensor. */
    const uint8_t *end = file->data + file->size;
    for (int i = 0; i < file->n_tensors; i++) {
        const uint8_t *data = file->tensors[i].tensor.data;
        if (data < end)
            end = data;
    }
    uint64_t hash = XXH3_64bits_withSeed(file->data, (size_t)(end - file->data), file->size);
    for (int i = 0; i < file->n_tensors; i++) {
        const struct gguf_tensor *tensor = &file->tensors[i].tensor;
        size_t n = tensor->bytes < SAMPLED_BYTES ? tensor->bytes : SAMPLED_BYTES;
        hash = XXH3_64bits_withSeed(tensor->data, n, hash);
    }
    return hash;
}
