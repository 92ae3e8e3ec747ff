/* The executor on an OpenCL device. */
#ifndef NPU_OPENCL_OPENCL_EXECUTOR_H
#define NPU_OPENCL_OPENCL_EXECUTOR_H

#include "npu/executor.h"
#include "npu/model.h"
#include "npu/opencl/device.h"
#include "npu/opencl/device_buffer.h"
#include "npu/opencl/launcher.h"
#include "npu/opencl/plan.h"
#include "npu/opencl/program.h"
#include "npu/opencl/step_input.h"
#include "npu/opencl/step_lookup.h"

/* All give the same bits; tests compare them. */
enum opencl_kernels {
    OPENCL_KERNELS_BEST, /* of those that the driver and the processor take */
    OPENCL_KERNELS_WITHOUT_VNNI,
    OPENCL_KERNELS_PORTABLE
};

struct opencl_options {
    int32_t n_blocks;
    int max_tables;
    int max_returning;
    int32_t max_context;
    bool kv_half;
    enum opencl_kernels kernels;
    bool launch_each_only; /* never one launch a step (tests compare both) */
    const char *cache_dir; /* or NULL */
};

struct opencl_executor {
    struct executor base;
    struct device_profile profile;
    struct opencl_options options;
    cl_context context;
    cl_command_queue queue;
    struct program program;
    struct launcher launcher;
    char launch_reason[128]; /* why not one launch, or empty */
    struct plan *plan;
    struct device_buffer table, input, arena, vectors;
    struct device_buffer weights[PLAN_MAX_SEGMENTS], kv[PLAN_MAX_SEGMENTS];
    int n_kv_segments;
    int32_t blocks_per_segment;
    size_t kv_element_bytes;
    int32_t *input_words; /* staging of the input buffer */
    int32_t stamp;
    struct step_shape shape;
    float *results; /* staging: done word, then selections of returning rows */
    float *vectors_out; /* staging: what returning rows give, `widest` floats each */
    size_t widest;
    struct step_lookup lookup;
};

/* Borrows model, whose file stays mapped. Packs the weights, compiles, probes, and runs every bucket once. */
enum npu_status opencl_executor_create(struct opencl_executor **ret_executor, const struct model *model,
                                       const struct device_profile *profile, const struct opencl_options *options,
                                       struct npu_error *error);

/* The pieces of a step, for checks and measurements that run the table op by op. */
enum npu_status opencl_executor_upload(struct opencl_executor *executor, const struct step *step,
                                       struct npu_error *error);
/* Runs entries [first, last) on the uploaded step, each in a launch of its own or all in one, and waits. */
enum npu_status opencl_executor_run_entries(struct opencl_executor *executor, int first, int last, bool one_launch,
                                            struct npu_error *error);
enum npu_status opencl_executor_read_arena(struct opencl_executor *executor, int64_t word, void *to, size_t words,
                                           struct npu_error *error);
enum npu_status opencl_executor_write_arena(struct opencl_executor *executor, int64_t word, const void *from,
                                            size_t words, struct npu_error *error);

/* Bytes of the KV cache for each block, and what the device holds besides KV. */
size_t opencl_executor_fixed_bytes(const struct opencl_executor *executor);

#endif
