#include "npu/opencl/weights.h"

#include <pthread.h>
#include <stdlib.h>

#include "npu/gguf.h"
#include "npu/opencl/pack.h"

enum {
    MAX_THREADS = 16,
    TILES_PER_GRAB = 64
};

struct packing {
    const struct packed_weight *packed;
    uint8_t *to;
    int64_t tiles, next; /* next is shared between the threads */
};

static void *pack_some(void *argument)
{
    struct packing *packing = argument;
    for (;;) {
        int64_t first = __atomic_fetch_add(&packing->next, TILES_PER_GRAB, __ATOMIC_RELAXED);
        if (first >= packing->tiles)
            return NULL;
        int64_t last = first + TILES_PER_GRAB < packing->tiles ? first + TILES_PER_GRAB : packing->tiles;
        pack_tiles(packing->packed->weight, packing->packed->layout, first, last, packing->to);
    }
}

static void pack_all(const struct packed_weight *packed, uint8_t *to, int n_threads)
{
    struct packing packing = {packed, to, (packed->weight->n_out + PACK_TILE_ROWS - 1) / PACK_TILE_ROWS, 0};
    pthread_t threads[MAX_THREADS];
    int started = 0;
    if (packing.tiles >= 4 * TILES_PER_GRAB) {
        while (started < n_threads - 1 && pthread_create(&threads[started], NULL, pack_some, &packing) == 0)
            started++;
    }
    pack_some(&packing);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}

enum npu_status weights_load(const struct plan *plan, struct device_buffer segments[PLAN_MAX_SEGMENTS],
                             cl_command_queue queue, struct npu_error *error)
{
    int n_threads = device_host_cpus();
    if (n_threads > MAX_THREADS)
        n_threads = MAX_THREADS;
    for (int i = 0; i < plan->n_weights; i++) {
        const struct packed_weight *packed = &plan->weights[i];
        struct device_buffer *segment = &segments[packed->segment];
        if (segment->host != NULL) {
            pack_all(packed, (uint8_t *)segment->host + packed->offset, n_threads);
        } else {
            uint8_t *staging = malloc(packed->bytes);
            if (staging == NULL)
                return npu_error_set(error, NPU_ERROR_MEMORY, "no memory to repack '%s' (%zu bytes)",
                                     packed->weight->name, packed->bytes);
            pack_all(packed, staging, n_threads);
            enum npu_status status = device_buffer_write(segment, queue, packed->offset, staging, packed->bytes, error);
            free(staging);
            if (status != NPU_OK)
                return npu_error_prefix(error, "loading '%s'", packed->weight->name);
        }
        gguf_drop_pages(plan->model->file, packed->weight->tensor);
    }
    return NPU_OK;
}
