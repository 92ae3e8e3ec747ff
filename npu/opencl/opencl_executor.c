#include "npu/opencl/opencl_executor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "npu/opencl/weights.h"

enum {
    RESULT_HEAD = 16
};
static const double enough_us = 2e5; /* spent on warming up a bucket: no further runs */

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static enum npu_status failed(struct npu_error *error, const char *call, cl_int code)
{
    return npu_error_set(error, NPU_ERROR_DEVICE, "%s: %s (%d)", call, opencl_error_name(code), code);
}

/* The bucket that holds n rows: 1, 2, 4 ... 256. */
static int bucket_of(int n)
{
    int bucket = 0;
    while (1 << bucket < n)
        bucket++;
    return bucket;
}

/* Writes the step's rows of tables that stay in the mapped file into the arena. */
static cl_int write_lookups(struct opencl_executor *executor, const struct step *step)
{
    const struct plan *plan = executor->plan;
    const void *rows[EXECUTOR_MAX_ROWS];
    cl_int code = CL_SUCCESS;
    step_lookup_hold(&executor->lookup, step, rows);
    for (int i = 0; i < plan->n_lookups && code == CL_SUCCESS; i++) {
        const struct plan_lookup *lookup = &plan->lookups[i];
        const float *floats = step_lookup_floats(&executor->lookup, i, rows, step->n_rows);
        code = clEnqueueWriteBuffer(executor->queue, executor->arena.memory, CL_TRUE, (size_t)lookup->offset * 4,
                                    (size_t)step->n_rows * (size_t)lookup->stride * 4, floats, 0, NULL, NULL);
    }
    return code;
}

/* Rows of a run that are one unit of attention: many share K/V loads, few leave each worker enough units. Bits do not depend
 * on it. */
static int tile_rows(const struct opencl_executor *executor, int n_rows)
{
    int rows = n_rows * executor->plan->min_kv_heads / (4 * executor->profile.workers);
    return executor->profile.spread || rows < 1 ? 1 : rows > TILE_ROWS ? TILE_ROWS : rows;
}

enum npu_status opencl_executor_upload(struct opencl_executor *executor, const struct step *step,
                                       struct npu_error *error)
{
    const struct plan *plan = executor->plan;
    step_input_fill(plan, step, tile_rows(executor, step->n_rows), ++executor->stamp, executor->input_words,
                    &executor->shape);
    cl_mem input = executor->input.memory;
    cl_int code = clEnqueueWriteBuffer(executor->queue, input, CL_FALSE, 0, (size_t)executor->shape.used_words * 4,
                                       executor->input_words, 0, NULL, NULL);
    for (int r = 0; r < plan->model->n_ropes && code == CL_SUCCESS; r++)
        code = clEnqueueWriteBuffer(executor->queue, input, CL_FALSE, (size_t)plan->rope_offsets[r] * 4,
                                    (size_t)step->n_rows * (size_t)plan->model->ropes[r].dims * 4,
                                    executor->input_words + plan->rope_offsets[r], 0, NULL, NULL);
    if (code == CL_SUCCESS)
        code = write_lookups(executor, step);
    int place = 0;
    for (int i = 0; i < step->n_rows && code == CL_SUCCESS; i++) {
        if (step->rows[i].embedding == NULL)
            continue;
        size_t bytes = (size_t)plan->model->n_embd * 4;
        code = clEnqueueWriteBuffer(executor->queue, executor->arena.memory, CL_TRUE,
                                    (size_t)plan->embeddings_offset * 4 + (size_t)place++ * bytes, bytes,
                                    step->rows[i].embedding, 0, NULL, NULL);
    }
    return code == CL_SUCCESS ? NPU_OK : failed(error, "clEnqueueWriteBuffer", code);
}

/* Work-items for a launch: one per worker, or as many as the entry has units. */
static size_t entry_lanes(const struct opencl_executor *executor, int entry)
{
    if (!executor->profile.spread)
        return (size_t)executor->profile.workers;
    int units = plan_entry_units(executor->plan, entry, 1 << bucket_of(executor->shape.n_rows),
                                 executor->shape.n_returning == 0 ? 0 : 1 << bucket_of(executor->shape.n_returning));
    return units < 1 ? 1 : (size_t)units;
}

/* Enqueues without waiting. */
static enum npu_status enqueue_entries(struct opencl_executor *executor, int first, int last, bool one_launch,
                                       struct npu_error *error)
{
    if (one_launch)
        return launcher_run(&executor->launcher, 0, first, last, (size_t)executor->profile.workers,
                            launcher_wait_us(&executor->launcher, bucket_of(executor->shape.n_rows)), error);
    for (int i = first; i < last; i++) {
        enum npu_status status = launcher_run(&executor->launcher, executor->plan->entries[i].kind, i, i + 1,
                                              entry_lanes(executor, i), 0, error);
        if (status != NPU_OK)
            return status;
    }
    return NPU_OK;
}

enum npu_status opencl_executor_run_entries(struct opencl_executor *executor, int first, int last, bool one_launch,
                                            struct npu_error *error)
{
    static const cl_int zeros[INPUT_ROWS - INPUT_ARRIVED] = {0};
    cl_int code = clEnqueueWriteBuffer(executor->queue, executor->input.memory, CL_FALSE, INPUT_ARRIVED * 4,
                                       sizeof zeros, zeros, 0, NULL, NULL);
    if (code != CL_SUCCESS)
        return failed(error, "clEnqueueWriteBuffer", code);
    enum npu_status status = enqueue_entries(executor, first, last, one_launch, error);
    if (status != NPU_OK)
        return status;
    code = clFinish(executor->queue);
    return code == CL_SUCCESS ? NPU_OK : failed(error, "clFinish", code);
}

enum npu_status opencl_executor_read_arena(struct opencl_executor *executor, int64_t word, void *to, size_t words,
                                           struct npu_error *error)
{
    return device_buffer_read(&executor->arena, executor->queue, (size_t)word * 4, to, words * 4, error);
}

enum npu_status opencl_executor_write_arena(struct opencl_executor *executor, int64_t word, const void *from,
                                            size_t words, struct npu_error *error)
{
    return device_buffer_write(&executor->arena, executor->queue, (size_t)word * 4, from, words * 4, error);
}

/* One attempt at the uploaded step. *ret_done: the stamp arrived (a barrier that was given up leaves none). */
static enum npu_status attempt(struct opencl_executor *executor, enum launch_mode mode, bool *ret_done,
                               struct npu_error *error)
{
    const struct plan *plan = executor->plan;
    /* Without returning rows the entries behind the gather have nothing to do. */
    int last = executor->shape.needs_logits      ? plan->n_entries
               : executor->shape.n_returning > 0 ? plan->head_entry
                                                 : plan->gather_entry;
    enum npu_status status = enqueue_entries(executor, 0, last, mode == LAUNCH_ONE, error);
    if (status != NPU_OK)
        return status;
    size_t words = RESULT_HEAD + (size_t)executor->shape.n_returning * (size_t)plan->select_stride;
    status = opencl_executor_read_arena(executor, plan->done_offset, executor->results, words, error);
    if (status != NPU_OK)
        return status;
    int32_t done;
    memcpy(&done, executor->results, sizeof done);
    *ret_done = done == executor->stamp;
    return NPU_OK;
}

/* Reads what returning row `index` asked for. */
static enum npu_status collect(struct opencl_executor *executor, const struct step_row *row, int index,
                               struct row_result *result, struct npu_error *error)
{
    const struct plan *plan = executor->plan;
    const struct model *model = plan->model;
    const float *values = executor->results + RESULT_HEAD + (size_t)index * (size_t)plan->select_stride;
    int activation = row->returns == ROW_RETURN_LOGITS ? model->graph.logits : model->graph.hidden;
    int width = row->returns == ROW_RETURN_LOGITS ? model->n_vocab : model->n_embd;
    float *out = executor->vectors_out + (size_t)index * executor->widest;
    switch (row->returns) {
    case ROW_RETURN_BEST:
    case ROW_RETURN_TOP_K: {
        int n = row->returns == ROW_RETURN_BEST ? 1 : row->top_k;
        /* Logits and tokens stand in two arrays; the pairs are put together in place of a row's staging. */
        struct token_logit *pairs = (struct token_logit *)(void *)out;
        for (int i = 0; i < n; i++) {
            memcpy(&pairs[i].token, values + SELECT_MAX + i, sizeof pairs[i].token);
            pairs[i].logit = values[i];
        }
        result->best = pairs[0];
        if (row->returns == ROW_RETURN_TOP_K) {
            result->top = pairs;
            result->n_top = n;
        }
        return NPU_OK;
    }
    case ROW_RETURN_LOGITS:
        result->logits = out;
        break;
    default:
        result->hidden = out;
        break;
    }
    return opencl_executor_read_arena(
        executor, plan->activation_offsets[1][activation] + (int64_t)index * plan->activation_strides[activation], out,
        (size_t)width, error);
}

static enum npu_status opencl_step(struct executor *base, const struct step *step, struct row_result *results,
                                   struct npu_error *error)
{
    struct opencl_executor *executor = (struct opencl_executor *)base;
    int bucket = bucket_of(step->n_rows);
    enum launch_mode mode = launcher_mode(&executor->launcher, bucket);
    double start = now_us();
    enum npu_status status = opencl_executor_upload(executor, step, error);
    bool done = false;
    if (status == NPU_OK)
        status = attempt(executor, mode, &done, error);
    if (status == NPU_OK && !done && mode == LAUNCH_ONE) { /* a barrier was given up; a step is idempotent */
        mode = LAUNCH_EACH;
        launcher_note_abandoned(&executor->launcher, bucket);
        status = opencl_executor_upload(executor, step, error);
        if (status == NPU_OK)
            status = attempt(executor, mode, &done, error);
    }
    if (status == NPU_OK && !done)
        status = npu_error_set(error, NPU_ERROR_DEVICE, "%s did not finish a step", executor->profile.device_name);
    if (status != NPU_OK)
        return status;
    launcher_note(&executor->launcher, bucket, mode, now_us() - start);
    memset(results, 0, (size_t)step->n_rows * sizeof *results);
    for (int i = 0; i < executor->shape.n_returning && status == NPU_OK; i++) {
        int row = executor->shape.returning[i];
        status = collect(executor, &step->rows[row], i, &results[row], error);
    }
    return status;
}

static enum npu_status opencl_read_block(struct executor *base, int32_t block, void *to, struct npu_error *error)
{
    struct opencl_executor *executor = (struct opencl_executor *)base;
    return device_buffer_read(&executor->kv[block / executor->blocks_per_segment], executor->queue,
                              (size_t)(block % executor->blocks_per_segment) * base->block_bytes, to, base->block_bytes,
                              error);
}

static enum npu_status opencl_write_block(struct executor *base, int32_t block, const void *from,
                                          struct npu_error *error)
{
    struct opencl_executor *executor = (struct opencl_executor *)base;
    return device_buffer_write(&executor->kv[block / executor->blocks_per_segment], executor->queue,
                               (size_t)(block % executor->blocks_per_segment) * base->block_bytes, from,
                               base->block_bytes, error);
}

static enum npu_status opencl_copy_block(struct executor *base, int32_t from, int32_t to, struct npu_error *error)
{
    struct opencl_executor *executor = (struct opencl_executor *)base;
    if (from == to)
        return NPU_OK;
    int32_t per = executor->blocks_per_segment;
    cl_int code = clEnqueueCopyBuffer(executor->queue, executor->kv[from / per].memory, executor->kv[to / per].memory,
                                      (size_t)(from % per) * base->block_bytes, (size_t)(to % per) * base->block_bytes,
                                      base->block_bytes, 0, NULL, NULL);
    if (code == CL_SUCCESS)
        code = clFinish(executor->queue);
    return code == CL_SUCCESS ? NPU_OK : failed(error, "clEnqueueCopyBuffer", code);
}

static void opencl_destroy(struct executor *base)
{
    struct opencl_executor *executor = (struct opencl_executor *)base;
    if (executor->queue != NULL)
        clFinish(executor->queue);
    device_buffer_destroy(&executor->table);
    device_buffer_destroy(&executor->input);
    device_buffer_destroy(&executor->arena);
    device_buffer_destroy(&executor->vectors);
    for (int i = 0; i < PLAN_MAX_SEGMENTS; i++) {
        device_buffer_destroy(&executor->weights[i]);
        device_buffer_destroy(&executor->kv[i]);
    }
    if (executor->launcher.run_ops != NULL)
        clReleaseKernel(executor->launcher.run_ops);
    for (int kind = 0; kind < ENTRY_KINDS; kind++)
        if (executor->launcher.kinds[kind] != NULL)
            clReleaseKernel(executor->launcher.kinds[kind]);
    if (executor->program.program != NULL)
        clReleaseProgram(executor->program.program);
    if (executor->queue != NULL)
        clReleaseCommandQueue(executor->queue);
    if (executor->context != NULL)
        clReleaseContext(executor->context);
    step_lookup_destroy(&executor->lookup);
    plan_destroy(executor->plan);
    free(executor->input_words);
    free(executor->results);
    free(executor->vectors_out);
    free(executor);
}

static void opencl_prefetch(struct executor *base, const int32_t *tokens, int n)
{
    step_lookup_ask(&((struct opencl_executor *)base)->lookup, tokens, n);
}

static uint64_t opencl_launch_switches(const struct executor *base)
{
    const struct opencl_executor *executor = (const struct opencl_executor *)base;
    return atomic_load_explicit(&executor->launcher.switches, memory_order_relaxed);
}

static const struct executor_interface opencl_interface = {
    .step = opencl_step,
    .read_block = opencl_read_block,
    .write_block = opencl_write_block,
    .copy_block = opencl_copy_block,
    .destroy = opencl_destroy,
    .prefetch = opencl_prefetch,
    .launch_switches = opencl_launch_switches,
};

static int segments_argument(int n)
{
    return n > 2 ? 4 : n < 1 ? 1 : n;
}

static enum npu_status create_queue(struct opencl_executor *executor, struct npu_error *error)
{
    cl_int code;
    executor->context = clCreateContext(NULL, 1, &executor->profile.id, NULL, NULL, &code);
    if (code != CL_SUCCESS)
        return failed(error, "clCreateContext", code);
    executor->queue = clCreateCommandQueueWithProperties(executor->context, executor->profile.id, NULL, &code);
    if (code != CL_SUCCESS)
        return failed(error, "clCreateCommandQueueWithProperties", code);
    if (executor->options.kernels != OPENCL_KERNELS_PORTABLE)
        device_probe_x86(&executor->profile, executor->context);
    if (executor->options.kernels == OPENCL_KERNELS_WITHOUT_VNNI)
        executor->profile.vnni_encoding = 0;
    return NPU_OK;
}

static enum npu_status create_buffers(struct opencl_executor *executor, struct npu_error *error)
{
    const struct plan *plan = executor->plan;
    const struct device_profile *profile = &executor->profile;
    cl_context context = executor->context;
    size_t table_bytes = (size_t)plan->n_entries * sizeof *plan->entries;
    size_t vector_bytes = (size_t)(plan->n_vectors > 0 ? plan->n_vectors : 8) * sizeof(float);
    enum npu_status status =
        device_buffer_create(&executor->table, context, profile, table_bytes, "the op table", error);
    if (status == NPU_OK)
        status = device_buffer_create(&executor->input, context, profile, (size_t)plan->input_words * 4, "step inputs",
                                      error);
    if (status == NPU_OK)
        status = device_buffer_create(&executor->arena, context, profile, (size_t)plan->arena_words * 4, "activations",
                                      error);
    if (status == NPU_OK)
        status = device_buffer_create(&executor->vectors, context, profile, vector_bytes, "norm weights", error);
    for (int i = 0; i < plan->n_segments && status == NPU_OK; i++)
        status =
            device_buffer_create(&executor->weights[i], context, profile, plan->segment_bytes[i], "weights", error);
    for (int i = 0; i < executor->n_kv_segments && status == NPU_OK; i++) {
        int32_t first = i * executor->blocks_per_segment, rest = executor->base.n_blocks - first;
        int32_t blocks = rest < executor->blocks_per_segment ? rest : executor->blocks_per_segment;
        status =
            device_buffer_create(&executor->kv[i], context, profile,
                                 (size_t)(blocks < 1 ? 1 : blocks) * executor->base.block_bytes, "the KV cache", error);
    }
    if (status == NPU_OK)
        status = device_buffer_write(&executor->table, executor->queue, 0, plan->entries, table_bytes, error);
    if (status == NPU_OK && plan->n_vectors > 0)
        status = device_buffer_write(&executor->vectors, executor->queue, 0, plan->vectors, vector_bytes, error);
    if (status == NPU_OK)
        status = weights_load(plan, executor->weights, executor->queue, error);
    return status;
}

/* All arguments but first, last and the spin limit stay as they are for ever. */
static enum npu_status create_kernel(struct opencl_executor *executor, const char *name, int weight_segments,
                                     int kv_segments, cl_kernel *ret_kernel, struct npu_error *error)
{
    cl_int code;
    cl_kernel kernel = *ret_kernel = clCreateKernel(executor->program.program, name, &code);
    if (code != CL_SUCCESS)
        return failed(error, name, code);
    cl_int per_segment = executor->blocks_per_segment, block_elements = executor->plan->block_elements;
    code = clSetKernelArg(kernel, ARGUMENT_TABLE, sizeof(cl_mem), &executor->table.memory);
    code |= clSetKernelArg(kernel, ARGUMENT_SYNC, sizeof(cl_mem), &executor->input.memory);
    code |= clSetKernelArg(kernel, ARGUMENT_INPUT, sizeof(cl_mem), &executor->input.memory);
    code |= clSetKernelArg(kernel, ARGUMENT_ARENA, sizeof(cl_mem), &executor->arena.memory);
    code |= clSetKernelArg(kernel, ARGUMENT_VECTORS, sizeof(cl_mem), &executor->vectors.memory);
    code |= clSetKernelArg(kernel, ARGUMENT_BLOCKS_PER_SEGMENT, sizeof per_segment, &per_segment);
    code |= clSetKernelArg(kernel, ARGUMENT_BLOCK_ELEMENTS, sizeof block_elements, &block_elements);
    cl_uint argument = ARGUMENT_SEGMENTS;
    for (int i = 0; i < weight_segments; i++) /* unused ones repeat the first: never read */
        code |= clSetKernelArg(kernel, argument++, sizeof(cl_mem),
                               &executor->weights[i < executor->plan->n_segments ? i : 0].memory);
    for (int i = 0; i < kv_segments; i++)
        code |= clSetKernelArg(kernel, argument++, sizeof(cl_mem),
                               &executor->kv[i < executor->n_kv_segments ? i : 0].memory);
    return code == CL_SUCCESS ? NPU_OK : failed(error, "clSetKernelArg", code);
}

static enum npu_status create_kernels(struct opencl_executor *executor, struct npu_error *error)
{
    struct launcher *launcher = &executor->launcher;
    struct program_options options = {.weight_segments = segments_argument(executor->plan->n_segments),
                                      .kv_segments = segments_argument(executor->n_kv_segments),
                                      .max_head_size = executor->plan->max_head_size,
                                      .kv_half = executor->options.kv_half,
                                      .one_launch = executor->profile.atomics && !executor->profile.spread,
                                      .x86_kernels = executor->profile.x86_kernels};
    for (int i = 0; i < executor->plan->n_weights; i++)
        options.layouts |= 1u << executor->plan->weights[i].layout;
    enum npu_status status = program_build(&executor->program, executor->context, &executor->profile, &options,
                                           executor->options.cache_dir, error);
    bool wanted[ENTRY_KINDS] = {false};
    for (int i = 0; i < executor->plan->n_entries; i++)
        wanted[executor->plan->entries[i].kind] = true;
    if (status == NPU_OK && options.one_launch)
        status =
            create_kernel(executor, "run_ops", options.weight_segments, options.kv_segments, &launcher->run_ops, error);
    for (int kind = 0; kind < ENTRY_KINDS && status == NPU_OK && !options.one_launch; kind++) {
        char name[64];
        snprintf(name, sizeof name, "run_%s", plan_kind_name(kind));
        if (wanted[kind])
            status = create_kernel(executor, name, options.weight_segments, options.kv_segments, &launcher->kinds[kind],
                                   error);
    }
    if (status != NPU_OK)
        return status;
    launcher->queue = executor->queue;
    launcher->profile = &executor->profile;
    status = launcher_probe(launcher, executor->context, executor->program.program, executor->launch_reason,
                            sizeof executor->launch_reason, error);
    if (status == NPU_OK && executor->options.launch_each_only)
        launcher->one_launch = false;
    return status;
}

/* A few steps of n rows, one where a big model takes long. In one launch each, and before that one op a launch once where
 * the kernels are new. */
static enum npu_status warm_up_bucket(struct opencl_executor *executor, int n, bool one_launch, struct npu_error *error)
{
    struct step_row rows[KV_BLOCK_TOKENS] = {{0}};
    struct row_result results[KV_BLOCK_TOKENS];
    int32_t block = 0;
    struct block_table table = {&block, 1};
    struct step step = {rows, n, &table, 1};
    int runs = one_launch ? 4 : 1, measured = n == 1 ? 2 : 1; /* the first run that tells a usual time */
    double start = now_us();
    enum npu_status status = NPU_OK;
    for (int i = 0; i < n; i++)
        rows[i] = (struct step_row){
            .position = i, .visible_end = i + 1, .returns = i + 1 == n ? ROW_RETURN_BEST : ROW_RETURN_NOTHING};
    for (int run = n == 1 || !one_launch ? 0 : 1; run < runs && status == NPU_OK; run++) {
        if (run > measured && now_us() - start > enough_us)
            break;
        executor->launcher.one_launch = one_launch && run > 0;
        status = opencl_step(&executor->base, &step, results, error);
        if (n == 1 && run == 1) /* compiled just now: not a usual time */
            executor->launcher.calm[0] = (struct launch_calm){0};
    }
    return status;
}

/* Runs the smaller buckets in both modes, since drivers compile at the first enqueue, and learns their usual times. Writes
 * K/V of block 0, which nobody owns yet. */
static enum npu_status warm_up(struct opencl_executor *executor, struct npu_error *error)
{
    bool one_launch = executor->launcher.one_launch;
    enum npu_status status = NPU_OK;
    for (int n = 1; n <= KV_BLOCK_TOKENS && n <= executor->base.max_context && status == NPU_OK; n *= 2)
        status = warm_up_bucket(executor, n, one_launch, error);
    executor->launcher.one_launch = one_launch;
    for (int bucket = 0; bucket < LAUNCHER_BUCKETS; bucket++) {
        struct launch_calm *calm = &executor->launcher.calm[bucket];
        calm->each_left = calm->backoff = 0;
        calm->each_us = 0;
        if (calm->usual_us == 0 && bucket > 0)
            calm->usual_us = 3 * executor->launcher.calm[bucket - 1].usual_us;
    }
    atomic_store_explicit(&executor->launcher.switches, 0, memory_order_relaxed);
    return status;
}

static uint64_t numerics_id(const struct opencl_executor *executor)
{
    struct {
        uint64_t program;
        uint64_t kv_elements;
    } parts = {executor->program.key, (uint64_t)executor->plan->block_elements};
    return XXH3_64bits(&parts, sizeof parts);
}

enum npu_status opencl_executor_create(struct opencl_executor **ret_executor, const struct model *model,
                                       const struct device_profile *profile, const struct opencl_options *options,
                                       struct npu_error *error)
{
    struct opencl_executor *executor = calloc(1, sizeof *executor);
    if (executor == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the executor");
    executor->profile = *profile;
    executor->options = *options;
    executor->base = (struct executor){.interface = &opencl_interface,
                                       .model = model,
                                       .n_blocks = options->n_blocks,
                                       .n_vocab = model->n_vocab,
                                       .n_embd = model->n_embd,
                                       .max_context = options->max_context,
                                       .max_rows = EXECUTOR_MAX_ROWS,
                                       .max_tables = options->max_tables,
                                       .max_returning = options->max_returning};
    struct plan_limits limits = {.max_rows = EXECUTOR_MAX_ROWS,
                                 .max_returning = options->max_returning,
                                 .max_tables = options->max_tables,
                                 .max_context = options->max_context,
                                 .max_segment_bytes = profile->max_allocation};
    enum npu_status status = plan_create(&executor->plan, model, &limits, error);
    if (status == NPU_OK) {
        executor->kv_element_bytes = options->kv_half ? 2 : 4;
        executor->base.block_bytes = (size_t)executor->plan->block_elements * executor->kv_element_bytes;
        int32_t most = (int32_t)(profile->max_allocation / executor->base.block_bytes);
        executor->n_kv_segments = most < 1 ? PLAN_MAX_SEGMENTS + 1 : (options->n_blocks + most - 1) / most;
        if (executor->n_kv_segments > PLAN_MAX_SEGMENTS)
            status = npu_error_set(error, NPU_ERROR_MEMORY,
                                   "a KV cache of %d blocks needs more than four of the device's largest allocations",
                                   options->n_blocks);
        else
            executor->blocks_per_segment = (options->n_blocks + executor->n_kv_segments - 1) / executor->n_kv_segments;
    }
    if (status == NPU_OK) {
        executor->widest = (size_t)(model->n_vocab > model->n_embd ? model->n_vocab : model->n_embd);
        if (executor->widest < 2 * SELECT_MAX)
            executor->widest = 2 * SELECT_MAX;
        executor->input_words = calloc((size_t)executor->plan->input_words, 4);
        executor->results =
            calloc(RESULT_HEAD + (size_t)options->max_returning * (size_t)executor->plan->select_stride, 4);
        executor->vectors_out = malloc((size_t)options->max_returning * executor->widest * sizeof(float));
        if (executor->input_words == NULL || executor->results == NULL || executor->vectors_out == NULL)
            status = npu_error_set(error, NPU_ERROR_MEMORY, "no memory for step staging");
    }
    if (status == NPU_OK)
        status = step_lookup_create(&executor->lookup, executor->plan, error);
    if (status == NPU_OK)
        status = create_queue(executor, error);
    if (status == NPU_OK)
        status = create_buffers(executor, error);
    if (status == NPU_OK)
        status = create_kernels(executor, error);
    if (status == NPU_OK) {
        executor->base.numerics = numerics_id(executor);
        status = warm_up(executor, error);
    }
    if (status != NPU_OK) {
        opencl_destroy(&executor->base);
        return status;
    }
    *ret_executor = executor;
    return NPU_OK;
}

size_t opencl_executor_fixed_bytes(const struct opencl_executor *executor)
{
    size_t total = executor->arena.bytes + executor->input.bytes + executor->table.bytes + executor->vectors.bytes;
    for (int i = 0; i < executor->plan->n_segments; i++)
        total += executor->weights[i].bytes;
    return total;
}
