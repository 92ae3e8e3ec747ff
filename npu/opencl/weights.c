#include "npu/opencl/weights.h"

#include <pthread.h>
#include <stdlib.h>

#include "npu/gguf.h"
#include "npu/opencl/pack.h"

enum {
    MAX_THREADS = 16,
    GRAB_BYTES = 1 << 19 /* what a thread packs before it asks for more */
};

/* A weight that is being packed. */
struct job {
    const struct packed_weight *packed;
    uint8_t *to;
    int64_t tiles, grab; /* grab: tiles that a thread takes at a time */
    int64_t first_grab; /* number of the first one among those of all jobs */
    int64_t unpacked; /* tiles; shared between the threads */
};

struct packing {
    const struct gguf_file *file;
    struct job *jobs;
    int n_jobs;
    int64_t n_grabs, next; /* next is shared between the threads */
};

static void add_job(struct packing *packing, const struct packed_weight *packed, uint8_t *to)
{
    size_t tile_bytes = pack_tile_bytes(packed->layout, packed->weight->n_in);
    struct job *job = &packing->jobs[packing->n_jobs++];
    job->packed = packed;
    job->to = to;
    job->tiles = job->unpacked = (packed->weight->n_out + PACK_TILE_ROWS - 1) / PACK_TILE_ROWS;
    job->grab = tile_bytes < GRAB_BYTES ? (int64_t)(GRAB_BYTES / tile_bytes) : 1;
    job->first_grab = packing->n_grabs;
    packing->n_grabs += (job->tiles + job->grab - 1) / job->grab;
}

static void *pack_some(void *argument)
{
    struct packing *packing = argument;
    int at = 0;
    for (;;) {
        int64_t grab = __atomic_fetch_add(&packing->next, 1, __ATOMIC_RELAXED);
        if (grab >= packing->n_grabs)
            return NULL;
        while (at + 1 < packing->n_jobs && packing->jobs[at + 1].first_grab <= grab) /* a thread's grabs ascend */
            at++;
        struct job *job = &packing->jobs[at];
        int64_t first = (grab - job->first_grab) * job->grab;
        int64_t last = first + job->grab < job->tiles ? first + job->grab : job->tiles;
        pack_tiles(job->packed->weight, job->packed->layout, first, last, job->to);
        if (__atomic_sub_fetch(&job->unpacked, last - first, __ATOMIC_ACQ_REL) == 0)
            gguf_drop_pages(packing->file, job->packed->weight->tensor);
    }
}

/* All jobs, by as many threads as there are CPUs; then there are none. */
static void pack_all(struct packing *packing)
{
    pthread_t threads[MAX_THREADS];
    int n_threads = device_host_cpus(), started = 0;
    while (started < n_threads - 1 && started < MAX_THREADS && started + 1 < packing->n_grabs &&
           pthread_create(&threads[started], NULL, pack_some, packing) == 0)
        started++;
    pack_some(packing); /* fewer threads than asked for will do */
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    packing->n_jobs = 0;
    packing->n_grabs = packing->next = 0;
}

/* By way of a copy that the device takes over. */
static enum npu_status pack_staged(struct packing *packing, const struct packed_weight *packed,
                                   const struct device_buffer *segment, cl_command_queue queue, struct npu_error *error)
{
    uint8_t *staging = malloc(packed->bytes);
    if (staging == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory to repack '%s' (%zu bytes)", packed->weight->name,
                             packed->bytes);
    add_job(packing, packed, staging);
    pack_all(packing);
    enum npu_status status = device_buffer_write(segment, queue, packed->offset, staging, packed->bytes, error);
    free(staging);
    return status == NPU_OK ? NPU_OK : npu_error_prefix(error, "loading '%s'", packed->weight->name);
}

enum npu_status weights_load(const struct plan *plan, struct device_buffer segments[PLAN_MAX_SEGMENTS],
                             cl_command_queue queue, struct npu_error *error)
{
    struct packing packing = {.file = plan->model->file};
    enum npu_status status = NPU_OK;
    packing.jobs = calloc((size_t)plan->n_weights + 1, sizeof *packing.jobs);
    if (packing.jobs == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory to repack %d weights", plan->n_weights);
    for (int i = 0; i < plan->n_weights; i++) {
        const struct packed_weight *packed = &plan->weights[i];
        if (segments[packed->segment].host != NULL)
            add_job(&packing, packed, (uint8_t *)segments[packed->segment].host + packed->offset);
    }
    pack_all(&packing);
    for (int i = 0; status == NPU_OK && i < plan->n_weights; i++) {
        const struct packed_weight *packed = &plan->weights[i];
        if (segments[packed->segment].host == NULL)
            status = pack_staged(&packing, packed, &segments[packed->segment], queue, error);
    }
    free(packing.jobs);
    return status;
}
