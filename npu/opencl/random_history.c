#include "npu/opencl/random_history.h"

#include <stdlib.h>
#include <string.h>

#include "npu/half.h"

enum {
    BLOCK_SHIFT = 8 /* elements by which the contents of neighbouring blocks are shifted */
};

static float next_value(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return (float)(int32_t)*state * 0x1p-31f;
}

enum npu_status random_history_write(struct opencl_executor *executor, int32_t n, struct npu_error *error)
{
    size_t element = executor->kv_element_bytes;
    size_t count = executor->base.block_bytes / element + (size_t)n * BLOCK_SHIFT;
    unsigned char *bytes = malloc(count * element + 1);
    if (bytes == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for %zu random K/V elements", count);
    uint32_t state = 1;
    for (size_t i = 0; i < count; i++) {
        float value = next_value(&state);
        uint16_t half = float_to_half(value);
        memcpy(bytes + i * element, element == 2 ? (void *)&half : (void *)&value, element);
    }
    enum npu_status status = NPU_OK;
    for (int32_t block = 0; block < n && status == NPU_OK; block++)
        status = executor_write_block(&executor->base, block, bytes + (size_t)block * BLOCK_SHIFT * element, error);
    free(bytes);
    return status;
}
