#include "npu/loader.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "npu/executor.h"
#include "npu/gguf.h"
#include "npu/host_memory.h"
#include "npu/model.h"
#include "npu/opencl/opencl_executor.h"
#include "npu/opencl/self_check.h"

enum {
    DEFAULT_CONTEXT = 4096,
    DEFAULT_PARALLEL = 8,
    LEAST_RETURNING = 16
};

/* Memory that the KV cache may take by default: what the device has free, the host's available memory where both share
 * it, less an eighth for everything else. */
static uint64_t available_memory(const struct device_profile *profile)
{
    uint64_t bytes = profile->global_memory;
    uint64_t host = profile->unified_memory ? host_memory_available("") : UINT64_MAX;
    if (host < bytes)
        bytes = host;
    return bytes - bytes / 8;
}

static size_t block_bytes(const struct model *model, bool kv_f32)
{
    size_t elements = 0;
    for (int i = 0; i < model->n_kv_layers; i++)
        elements += 2 * (size_t)model->kv_layers[i].n_heads * (size_t)model->kv_layers[i].head_size * KV_BLOCK_TOKENS;
    return elements * (kv_f32 ? 4 : 2);
}

static uint64_t weight_bytes(const struct model *model)
{
    uint64_t bytes = 0;
    for (int i = 0; i < model->n_weights; i++)
        bytes += (uint64_t)model->weights[i].tensor->bytes;
    return bytes;
}

/* KV blocks for the budget. A budget that is named is kept to; the default shrinks to the memory that there is. */
static enum npu_status choose_blocks(const struct npu_load_options *options, const struct model *model,
                                     const struct device_profile *profile, int32_t context, int parallel,
                                     int32_t *n_blocks, struct npu_error *error)
{
    size_t bytes = block_bytes(model, options->kv_f32);
    int64_t per_session = (context + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS, wanted = per_session * parallel;
    if (options->kv_memory_bytes > 0) {
        wanted = (int64_t)(options->kv_memory_bytes / bytes);
        if (wanted < per_session)
            return npu_error_set(
                error, NPU_ERROR_INPUT,
                "--kv-memory %llu holds %lld tokens, less than one session of --context %d: give at least "
                "%llu or a smaller context",
                (unsigned long long)options->kv_memory_bytes, (long long)wanted * KV_BLOCK_TOKENS, context,
                (unsigned long long)per_session * bytes);
    } else {
        uint64_t available = available_memory(profile), weights = weight_bytes(model);
        int64_t fits = available > weights ? (int64_t)((available - weights) / bytes) : 0;
        if (wanted > fits)
            wanted = fits;
        if (wanted < per_session)
            return npu_error_set(
                error, NPU_ERROR_MEMORY,
                "there is no memory for the KV cache of one session of %d tokens (%.1f MiB): use a smaller "
                "--context",
                context, (double)per_session * (double)bytes / (1 << 20));
    }
    if (wanted > INT32_MAX / 2)
        wanted = INT32_MAX / 2;
    *n_blocks = (int32_t)wanted;
    return NPU_OK;
}

static double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void describe(struct npu_loaded *loaded, const struct opencl_executor *executor, int self_check,
                     double check_seconds)
{
    const struct device_profile *profile = &executor->profile;
    char launch[200], check[64] = "not checked";
    snprintf(loaded->device, sizeof loaded->device, "%s", profile->device_name);
    snprintf(loaded->platform, sizeof loaded->platform, "%s", profile->platform_name);
    snprintf(loaded->driver, sizeof loaded->driver, "%s", profile->driver_version);
    if (self_check != SELF_CHECK_OFF)
        snprintf(check, sizeof check, "%s self-check passed in %.2f s",
                 self_check == SELF_CHECK_QUICK ? "quick" : "full", check_seconds);
    if (executor->launcher.one_launch && profile->workers > 1 && executor->launcher.barrier_us > 1e6)
        snprintf(launch, sizeof launch, "one launch a step once the machine is calm (%d groups)", profile->workers);
    else if (executor->launcher.one_launch)
        snprintf(launch, sizeof launch, "one launch a step (%d groups, barrier %.2f us)", profile->workers,
                 profile->workers > 1 ? executor->launcher.barrier_us : 0.0);
    else
        snprintf(launch, sizeof launch, "one op a launch (%s)", executor->launch_reason);
    snprintf(loaded->description, sizeof loaded->description,
             "%s on %s, driver %s, %s kernels%s, %s, %.0f MiB weights and activations, %.0f MiB KV (%d blocks of %d "
             "tokens), %s",
             profile->device_name, profile->platform_name, profile->driver_version,
             profile->x86_kernels ? "x86" : "portable", executor->program.from_cache ? " (cached)" : "", launch,
             (double)opencl_executor_fixed_bytes(executor) / (1 << 20),
             (double)executor->base.n_blocks * (double)executor->base.block_bytes / (1 << 20), executor->base.n_blocks,
             KV_BLOCK_TOKENS, check);
}

static enum npu_status load_executor(struct npu_loaded *loaded, const struct npu_load_options *options,
                                     struct npu_error *error)
{
    struct device_profile profile;
    enum npu_status status = device_select(&profile, options->device, error);
    if (status != NPU_OK)
        return status;
    const struct model *model = loaded->model;
    int64_t context = options->context > 0 ? options->context : DEFAULT_CONTEXT;
    if (context > model->trained_context && model->trained_context > 0) {
        if (options->context > 0)
            return npu_error_set(error, NPU_ERROR_INPUT,
                                 "--context %d is more than the %lld tokens the model was made for", options->context,
                                 (long long)model->trained_context);
        context = model->trained_context;
    }
    loaded->context = (int32_t)context;
    int parallel = options->parallel > 0 ? options->parallel : DEFAULT_PARALLEL;
    struct opencl_options executor_options = {.max_tables = parallel < 8                   ? 8
                                                            : parallel > EXECUTOR_MAX_ROWS ? EXECUTOR_MAX_ROWS
                                                                                           : parallel,
                                              .max_returning = parallel < LEAST_RETURNING     ? LEAST_RETURNING
                                                               : parallel > EXECUTOR_MAX_ROWS ? EXECUTOR_MAX_ROWS
                                                                                              : parallel,
                                              .max_context = loaded->context,
                                              .kv_half = !options->kv_f32,
                                              .cache_dir = options->cache_dir};
    status = choose_blocks(options, model, &profile, loaded->context, parallel, &executor_options.n_blocks, error);
    if (status != NPU_OK)
        return status;
    struct opencl_executor *executor;
    status = opencl_executor_create(&executor, model, &profile, &executor_options, error);
    if (status != NPU_OK)
        return status;
    loaded->executor = &executor->base;
    double start = now_seconds();
    status = self_check_run(executor, (enum self_check)options->self_check, error);
    if (status == NPU_OK)
        describe(loaded, executor, options->self_check, now_seconds() - start);
    return status;
}

enum npu_status npu_load(struct npu_loaded *loaded, const struct npu_load_options *options, struct npu_error *error)
{
    memset(loaded, 0, sizeof *loaded);
    enum npu_status status = gguf_open(&loaded->file, options->model_path, error);
    if (status == NPU_OK)
        status = model_create(&loaded->model, loaded->file, error);
    if (status == NPU_OK)
        status = load_executor(loaded, options, error);
    if (status != NPU_OK)
        npu_unload(loaded);
    return status;
}

void npu_unload(struct npu_loaded *loaded)
{
    executor_destroy(loaded->executor);
    model_destroy(loaded->model);
    gguf_close(loaded->file);
    *loaded = (struct npu_loaded){0};
}
