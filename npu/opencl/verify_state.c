#include "npu/opencl/verify_state.h"

#include <stdlib.h>
#include <string.h>

#include "npu/half.h"

enum npu_status verify_read_activation(struct opencl_executor *executor, int row_set, int activation, int row,
                                       float *to, struct npu_error *error)
{
    const struct plan *plan = executor->plan;
    int64_t at = plan->activation_offsets[row_set][activation] + (int64_t)row * plan->activation_strides[activation];
    return opencl_executor_read_arena(executor, at, to, (size_t)plan->model->graph.activations[activation].width,
                                      error);
}

enum npu_status verify_read_quantized(struct opencl_executor *executor, const struct op_entry *entry, int row,
                                      const struct quantized_copy *copy, struct npu_error *error)
{
    int64_t width = entry->quantized_width, blocks = width / 32, capacity = entry->capacity;
    int64_t values = entry->quantized, scales = values + capacity * (width / 4), sums = scales + capacity * blocks;
    int64_t halves = sums + capacity * blocks;
    enum npu_status status =
        opencl_executor_read_arena(executor, values + row * (width / 4), copy->values, (size_t)(width / 4), error);
    if (status == NPU_OK)
        status = opencl_executor_read_arena(executor, scales + row * blocks, copy->scales, (size_t)blocks, error);
    if (status == NPU_OK)
        status = opencl_executor_read_arena(executor, sums + row * blocks, copy->sums, (size_t)blocks, error);
    if (status == NPU_OK)
        status = opencl_executor_read_arena(executor, halves + row * blocks, copy->halves, (size_t)blocks, error);
    return status;
}

static size_t layer_elements(const struct kv_layer *layer)
{
    return 2 * (size_t)layer->n_heads * (size_t)layer->head_size * KV_BLOCK_TOKENS;
}

enum npu_status kv_view_init(struct kv_view *view, struct opencl_executor *executor, const struct block_table *table,
                             struct npu_error *error)
{
    const struct model *model = executor->plan->model;
    size_t most = 0;
    for (int i = 0; i < model->n_kv_layers; i++) {
        size_t elements = layer_elements(&model->kv_layers[i]);
        most = elements > most ? elements : most;
    }
    *view = (struct kv_view){.executor = executor, .table = table, .kv_layer = -1};
    view->bytes = malloc(most * executor->kv_element_bytes + 1);
    if (view->bytes == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for a block of the KV cache");
    return NPU_OK;
}

void kv_view_done(struct kv_view *view)
{
    free(view->bytes);
    view->bytes = NULL;
}

void kv_view_forget(struct kv_view *view)
{
    view->kv_layer = -1;
}

static bool hold(struct kv_view *view, int kv_layer, int32_t block)
{
    struct opencl_executor *executor = view->executor;
    if (view->kv_layer == kv_layer && view->block == block)
        return true;
    size_t element = executor->kv_element_bytes;
    size_t offset = (size_t)(block % executor->blocks_per_segment) * executor->base.block_bytes +
                    (size_t)executor->plan->kv_offsets[kv_layer] * element;
    enum npu_status status =
        device_buffer_read(&executor->kv[block / executor->blocks_per_segment], executor->queue, offset, view->bytes,
                           layer_elements(&executor->plan->model->kv_layers[kv_layer]) * element, &view->error);
    view->kv_layer = status == NPU_OK ? kv_layer : -1;
    view->block = block;
    if (status != NPU_OK && view->status == NPU_OK)
        view->status = status;
    return status == NPU_OK;
}

static float element_at(const struct kv_view *view, size_t index)
{
    if (view->executor->kv_element_bytes == 2) {
        uint16_t half;
        memcpy(&half, view->bytes + 2 * index, sizeof half);
        return half_to_float(half);
    }
    float value;
    memcpy(&value, view->bytes + 4 * index, sizeof value);
    return value;
}

/* Keys of a head stand as [position / 8][element][position % 8], values as [position][element]: kernels' heads.cl. */
static void read_position(void *context, int kv_layer, int32_t position, float *key, float *value)
{
    struct kv_view *view = context;
    const struct kv_layer *layer = &view->executor->plan->model->kv_layers[kv_layer];
    size_t size = (size_t)layer->head_size, heads = (size_t)layer->n_heads;
    size_t slot = (size_t)(position % KV_BLOCK_TOKENS);
    bool held = hold(view, kv_layer, view->table->blocks[position / KV_BLOCK_TOKENS]);
    for (size_t head = 0; head < heads; head++) {
        size_t keys = head * KV_BLOCK_TOKENS * size + slot / 8 * 8 * size + slot % 8;
        size_t values = (heads + head) * KV_BLOCK_TOKENS * size + slot * size;
        for (size_t i = 0; i < size; i++) {
            if (key != NULL)
                key[head * size + i] = held ? element_at(view, keys + i * 8) : 0.0f;
            if (value != NULL)
                value[head * size + i] = held ? element_at(view, values + i) : 0.0f;
        }
    }
}

struct reference_kv kv_view_reference(struct kv_view *view)
{
    return (struct reference_kv){.read = read_position, .context = view};
}
