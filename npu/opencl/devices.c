#include "npu/devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npu/opencl/device.h"
#include "npu/opencl/launcher.h"
#include "npu/opencl/program.h"

static const char *type_name(cl_device_id id)
{
    cl_device_type type = 0;
    clGetDeviceInfo(id, CL_DEVICE_TYPE, sizeof type, &type, NULL);
    if (type & CL_DEVICE_TYPE_GPU)
        return "GPU";
    if (type & CL_DEVICE_TYPE_ACCELERATOR)
        return "accelerator";
    return type & CL_DEVICE_TYPE_CPU ? "CPU" : "other";
}

/* Decides as the executor does at load, with the probe's kernels alone. */
static enum npu_status probe(struct device_summary *summary, const struct device_profile *profile, cl_context context,
                             struct npu_error *error)
{
    struct device_profile own = *profile;
    device_probe_x86(&own, context);
    summary->x86_kernels = own.x86_kernels;
    summary->workers = own.workers;
    struct program_options options = {.sources = PROGRAM_PROBE,
                                      .weight_segments = 1,
                                      .kv_segments = 1,
                                      .one_launch = own.atomics && own.is_cpu,
                                      .x86_kernels = own.x86_kernels};
    struct program program = {0};
    enum npu_status status = program_build(&program, context, &own, &options, NULL, error);
    if (status != NPU_OK)
        return status;
    cl_int code;
    struct launcher launcher = {.profile = &own};
    launcher.queue = clCreateCommandQueueWithProperties(context, own.id, NULL, &code);
    if (code != CL_SUCCESS)
        status = npu_error_set(error, NPU_ERROR_DEVICE, "clCreateCommandQueueWithProperties: %s (%d)",
                               opencl_error_name(code), code);
    else
        status = launcher_probe(&launcher, context, program.program, summary->reason, sizeof summary->reason, error);
    summary->one_launch = launcher.one_launch;
    summary->barrier_us = launcher.barrier_us;
    if (launcher.queue != NULL)
        clReleaseCommandQueue(launcher.queue);
    clReleaseProgram(program.program);
    return status;
}

static void describe(struct device_summary *summary, const struct device_profile *profile)
{
    *summary = (struct device_summary){.type = type_name(profile->id),
                                       .compute_units = profile->compute_units,
                                       .memory_bytes = profile->global_memory,
                                       .allocation_bytes = profile->max_allocation};
    memcpy(summary->platform, profile->platform_name, sizeof summary->platform);
    memcpy(summary->name, profile->device_name, sizeof summary->name);
    memcpy(summary->driver, profile->driver_version, sizeof summary->driver);
    struct npu_error error = {0};
    cl_int code;
    cl_context context = clCreateContext(NULL, 1, &profile->id, NULL, NULL, &code);
    if (code != CL_SUCCESS) {
        snprintf(summary->reason, sizeof summary->reason, "clCreateContext: %s (%d)", opencl_error_name(code), code);
        return;
    }
    summary->usable = probe(summary, profile, context, &error) == NPU_OK;
    if (!summary->usable)
        snprintf(summary->reason, sizeof summary->reason, "%s", error.message);
    clReleaseContext(context);
}

enum npu_status devices_describe(struct device_summary *summaries, int *ret_n, struct npu_error *error)
{
    struct device_profile *profiles = calloc(DEVICE_MAX, sizeof *profiles), chosen;
    if (profiles == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the device list");
    int n = 0;
    enum npu_status status = device_list(profiles, &n, error);
    if (status == NPU_OK)
        status = device_select(&chosen, NULL, error);
    if (status != NPU_OK) {
        free(profiles);
        return status;
    }
    for (int i = 0; i < n; i++) {
        describe(&summaries[i], &profiles[i]);
        summaries[i].is_default = profiles[i].id == chosen.id;
    }
    free(profiles);
    *ret_n = n;
    return NPU_OK;
}
