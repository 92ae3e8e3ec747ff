#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "npu/bench.h"
#include "npu/opencl/device.h"
#include "npu/opencl/device_buffer.h"
#include "npu/opencl/program.h"

enum {
    VECTOR_BYTES = 32,
    FLOAT_MACS = 96, /* of one round of one work-item: kernels' roof.cl */
    INT8_MACS = 256,
    MAX_LANES = 1 << 16,
    LANES_PER_UNIT = 2048, /* where units are spread over work-items */
    RUNS = 5
};
static const size_t memory_bytes = (size_t)512 << 20, cache_bytes = (size_t)2 << 20;
static const double least_us = 20000.0; /* of a timed run */
static const double enough_us = 2e6; /* of all timed runs of one kernel */

struct roof {
    struct device_profile profile;
    cl_context context;
    cl_command_queue queue;
    struct program program;
    struct device_buffer data;
    cl_mem out;
    size_t lanes;
    struct npu_error *error;
};

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static enum npu_status failed(struct roof *roof, const char *call, cl_int code)
{
    return npu_error_set(roof->error, NPU_ERROR_DEVICE, "%s: %s (%d)", call, opencl_error_name(code), code);
}

static enum npu_status open_roof(struct roof *roof)
{
    cl_int code;
    struct device_profile *profile = &roof->profile;
    roof->context = clCreateContext(NULL, 1, &profile->id, NULL, NULL, &code);
    if (code != CL_SUCCESS)
        return failed(roof, "clCreateContext", code);
    roof->queue = clCreateCommandQueueWithProperties(roof->context, profile->id, NULL, &code);
    if (code != CL_SUCCESS)
        return failed(roof, "clCreateCommandQueueWithProperties", code);
    device_probe_x86(profile, roof->context);
    struct program_options options = {
        .sources = PROGRAM_ROOF, .weight_segments = 1, .kv_segments = 1, .x86_kernels = profile->x86_kernels};
    enum npu_status status = program_build(&roof->program, roof->context, profile, &options, NULL, roof->error);
    if (status != NPU_OK)
        return status;
    size_t bytes = memory_bytes < profile->max_allocation / 2 ? memory_bytes : profile->max_allocation / 2;
    bytes = bytes < profile->global_memory / 8 ? bytes : profile->global_memory / 8;
    status = device_buffer_create(&roof->data, roof->context, profile, bytes, "reading", roof->error);
    if (status != NPU_OK)
        return status;
    static const cl_uint pattern = 0x5a5a5a5a;
    code = clEnqueueFillBuffer(roof->queue, roof->data.memory, &pattern, sizeof pattern, 0, roof->data.bytes, 0, NULL,
                               NULL);
    if (code != CL_SUCCESS)
        return failed(roof, "clEnqueueFillBuffer", code);
    roof->out = clCreateBuffer(roof->context, CL_MEM_READ_WRITE, MAX_LANES * sizeof(cl_uint), NULL, &code);
    if (code != CL_SUCCESS)
        return failed(roof, "clCreateBuffer", code);
    roof->lanes = profile->spread ? (size_t)profile->compute_units * LANES_PER_UNIT : (size_t)profile->workers;
    if (roof->lanes > MAX_LANES)
        roof->lanes = MAX_LANES;
    return NPU_OK;
}

static void close_roof(struct roof *roof)
{
    if (roof->queue != NULL)
        clFinish(roof->queue);
    device_buffer_destroy(&roof->data);
    if (roof->out != NULL)
        clReleaseMemObject(roof->out);
    if (roof->program.program != NULL)
        clReleaseProgram(roof->program.program);
    if (roof->queue != NULL)
        clReleaseCommandQueue(roof->queue);
    if (roof->context != NULL)
        clReleaseContext(roof->context);
}

/* Enqueues the kernel `times` times and waits. */
static cl_int run(struct roof *roof, cl_kernel kernel, int times, double *us)
{
    size_t local = (size_t)roof->profile.local_size, global = (roof->lanes + local - 1) / local * local;
    cl_int code = CL_SUCCESS;
    double start = now_us();
    for (int i = 0; i < times && code == CL_SUCCESS; i++)
        code = clEnqueueNDRangeKernel(roof->queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL);
    if (code == CL_SUCCESS)
        code = clFinish(roof->queue);
    *us = now_us() - start;
    return code;
}

/* The best of a few runs of `times` enqueues each, in us; fewer where they are slow. */
static cl_int best_time(struct roof *roof, cl_kernel kernel, int times, double *best)
{
    cl_int code = CL_SUCCESS;
    double total = 0;
    for (int i = 0; i < RUNS && total < enough_us && code == CL_SUCCESS; i++) {
        double us = 0;
        code = run(roof, kernel, times, &us);
        total += us;
        if (i == 0 || us < *best)
            *best = us;
    }
    return code;
}

static enum npu_status measure_read(struct roof *roof, size_t bytes, double *rate)
{
    cl_int code, vectors = (cl_int)(bytes / VECTOR_BYTES);
    cl_int chunk = roof->profile.spread ? 1 : (cl_int)((size_t)vectors / roof->lanes);
    cl_kernel kernel = clCreateKernel(roof->program.program, "roof_read", &code);
    if (code != CL_SUCCESS)
        return failed(roof, "clCreateKernel roof_read", code);
    code = clSetKernelArg(kernel, 0, sizeof(cl_mem), &roof->data.memory);
    code |= clSetKernelArg(kernel, 1, sizeof vectors, &vectors);
    code |= clSetKernelArg(kernel, 2, sizeof chunk, &chunk);
    code |= clSetKernelArg(kernel, 3, sizeof roof->out, &roof->out);
    double us = 0;
    int times = 1;
    if (code == CL_SUCCESS)
        code = run(roof, kernel, 1, &us); /* compiles */
    for (us = 0; us < least_us && code == CL_SUCCESS && times < 1 << 16; times *= 2)
        code = run(roof, kernel, times, &us);
    if (code == CL_SUCCESS)
        code = best_time(roof, kernel, times, &us);
    *rate = (double)vectors * VECTOR_BYTES * times / us * 1e-3;
    clReleaseKernel(kernel);
    return code == CL_SUCCESS ? NPU_OK : failed(roof, "roof_read", code);
}

static enum npu_status measure_macs(struct roof *roof, const char *name, const void *seed, double macs_per_round,
                                    double *rate)
{
    cl_int code, rounds = 8;
    cl_kernel kernel = clCreateKernel(roof->program.program, name, &code);
    if (code != CL_SUCCESS)
        return failed(roof, name, code);
    code = clSetKernelArg(kernel, 0, sizeof rounds, &rounds);
    code |= clSetKernelArg(kernel, 1, 4, seed);
    code |= clSetKernelArg(kernel, 2, sizeof roof->out, &roof->out);
    double us = 0;
    if (code == CL_SUCCESS)
        code = run(roof, kernel, 1, &us); /* compiles */
    for (us = 0; us < least_us && code == CL_SUCCESS && rounds < 1 << 28;) {
        rounds *= 2;
        code = clSetKernelArg(kernel, 0, sizeof rounds, &rounds);
        if (code == CL_SUCCESS)
            code = run(roof, kernel, 1, &us);
    }
    if (code == CL_SUCCESS)
        code = best_time(roof, kernel, 1, &us);
    *rate = macs_per_round * rounds * (double)roof->lanes / us * 1e-3;
    clReleaseKernel(kernel);
    return code == CL_SUCCESS ? NPU_OK : failed(roof, name, code);
}

enum npu_status bench_measure_roof(struct bench_roof *result, const char *device, struct npu_error *error)
{
    struct roof roof = {.error = error};
    enum npu_status status = device_select(&roof.profile, device, error);
    if (status != NPU_OK)
        return status;
    static const float factor = 0.75f;
    static const cl_int seed = 0x03050709;
    *result = (struct bench_roof){0};
    status = open_roof(&roof);
    if (status == NPU_OK)
        status = measure_read(&roof, roof.data.bytes, &result->memory_bytes);
    if (status == NPU_OK)
        status =
            measure_read(&roof, cache_bytes < roof.data.bytes ? cache_bytes : roof.data.bytes, &result->cache_bytes);
    if (status == NPU_OK)
        status = measure_macs(&roof, "roof_int8", &seed, INT8_MACS, &result->int8_macs);
    if (status == NPU_OK)
        status = measure_macs(&roof, "roof_float", &factor, FLOAT_MACS, &result->float_macs);
    snprintf(result->device, sizeof result->device, "%s", roof.profile.device_name);
    result->x86_kernels = roof.profile.x86_kernels;
    close_roof(&roof);
    return status;
}
