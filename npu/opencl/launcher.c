#include "npu/opencl/launcher.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "kernels/op_entry.h"

enum {
    PROBE_ROUNDS = 100,
    PROBE_ATTEMPTS = 40,
    PROBE_PASSES = 4,
    PROBE_SPINS = 200000,
    EACH_STEPS_FIRST = 4, /* how long one op a launch lasts after the first disturbance; doubles while it goes on */
    EACH_STEPS_MOST = 256,
};
static const double barrier_limit_us = 20.0, busy_barrier_us = 200.0, probe_wait_us = 20000.0;
static const double slower_factor = 1.25;
static const double wait_least_us = 5000.0, unknown_wait_us = 1e5;

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

struct probe {
    cl_kernel barrier, spin;
    cl_mem sync, words, result;
};

static void probe_done(struct probe *probe)
{
    if (probe->barrier)
        clReleaseKernel(probe->barrier);
    if (probe->spin)
        clReleaseKernel(probe->spin);
    if (probe->sync)
        clReleaseMemObject(probe->sync);
    if (probe->words)
        clReleaseMemObject(probe->words);
    if (probe->result)
        clReleaseMemObject(probe->result);
}

static cl_int zero_sync(struct launcher *launcher, cl_mem sync)
{
    static const cl_int zeros[64] = {0};
    return clEnqueueWriteBuffer(launcher->queue, sync, CL_TRUE, 0, sizeof zeros, zeros, 0, NULL, NULL);
}

static cl_int run_timed(struct launcher *launcher, cl_kernel kernel, size_t workers, double *us)
{
    size_t one = 1;
    double start = now_us();
    cl_int code = clEnqueueNDRangeKernel(launcher->queue, kernel, 1, NULL, &workers, &one, 0, NULL, NULL);
    if (code == CL_SUCCESS)
        code = clFinish(launcher->queue);
    *us = now_us() - start;
    return code;
}

static int spins_of(const struct launcher *launcher, double us)
{
    double spins = launcher->spins_per_us * us;
    return spins > 1e9 ? 1000000000 : spins < 16 ? 16 : (int)spins;
}

static int smallest(const cl_int *values, int n)
{
    int least = values[0];
    for (int i = 1; i < n; i++)
        least = values[i] < least ? values[i] : least;
    return least;
}

/* Times the spins first (one worker waits for nobody), so that a barrier that hangs is given up after a second. Then many
 * short attempts: on a busy machine most are disturbed, but one that all groups went through together shows that they can.
 * *best_rounds is negative when data was not seen across a barrier. */
static cl_int measure(struct launcher *launcher, struct probe *probe, int *best_rounds)
{
    int workers = launcher->profile->workers, spins = PROBE_SPINS, rounds = PROBE_ROUNDS;
    double us = 0;
    cl_int code = clSetKernelArg(probe->spin, 0, sizeof probe->sync, &probe->sync);
    code |= clSetKernelArg(probe->spin, 1, sizeof spins, &spins);
    code |= clSetKernelArg(probe->spin, 2, sizeof probe->result, &probe->result);
    for (int i = 0; i < 2 && code == CL_SUCCESS; i++) { /* the first run compiles */
        code = zero_sync(launcher, probe->sync);
        if (code == CL_SUCCESS)
            code = run_timed(launcher, probe->spin, 1, &us);
    }
    if (code != CL_SUCCESS)
        return code;
    launcher->spins_per_us = us > 0 ? PROBE_SPINS / us : 100.0;

    int limit = spins_of(launcher, probe_wait_us);
    code = clSetKernelArg(probe->barrier, 0, sizeof probe->sync, &probe->sync);
    code |= clSetKernelArg(probe->barrier, 1, sizeof limit, &limit);
    code |= clSetKernelArg(probe->barrier, 2, sizeof rounds, &rounds);
    code |= clSetKernelArg(probe->barrier, 3, sizeof probe->words, &probe->words);
    code |= clSetKernelArg(probe->barrier, 4, sizeof probe->result, &probe->result);
    *best_rounds = 0;
    launcher->barrier_us = 1e9;
    for (int attempt = 0, passed = 0; attempt < PROBE_ATTEMPTS && passed < PROBE_PASSES && code == CL_SUCCESS;
         attempt++) {
        cl_int results[256] = {0};
        code = zero_sync(launcher, probe->sync);
        if (code == CL_SUCCESS)
            code = run_timed(launcher, probe->barrier, (size_t)workers, &us);
        if (code == CL_SUCCESS)
            code = clEnqueueReadBuffer(launcher->queue, probe->result, CL_TRUE, 0, (size_t)workers * sizeof *results,
                                       results, 0, NULL, NULL);
        int held = smallest(results, workers);
        if (held < 0) {
            *best_rounds = held;
            return code;
        }
        if (held > *best_rounds)
            *best_rounds = held;
        if (held == PROBE_ROUNDS && us / (2.0 * PROBE_ROUNDS) < launcher->barrier_us)
            launcher->barrier_us = us / (2.0 * PROBE_ROUNDS);
        passed += launcher->barrier_us <= barrier_limit_us;
    }
    return code;
}

/* Groups can meet, but the machine is too busy now to let them: begin as if a step had just been given up. */
static void start_disturbed(struct launcher *launcher)
{
    launcher->one_launch = true;
    for (int bucket = 0; bucket < LAUNCHER_BUCKETS; bucket++)
        launcher->calm[bucket].each_left = launcher->calm[bucket].backoff = EACH_STEPS_FIRST;
}

enum npu_status launcher_probe(struct launcher *launcher, cl_context context, cl_program program, char *reason,
                               size_t reason_size, struct npu_error *error)
{
    const struct device_profile *profile = launcher->profile;
    launcher->one_launch = false;
    launcher->spins_per_us = 1;
    reason[0] = '\0';
    if (profile->spread || profile->workers > 256) {
        snprintf(reason, reason_size, "its units are spread over work-items");
        return NPU_OK;
    }
    if (profile->atomics && profile->workers == 1) { /* nobody to meet */
        launcher->one_launch = true;
        return NPU_OK;
    }
    if (!profile->atomics) {
        snprintf(reason, reason_size, "the driver reports no OpenCL 3.0 device-scope atomics");
        return NPU_OK;
    }
    struct probe probe = {0};
    cl_int code, codes[5];
    probe.barrier = clCreateKernel(program, "probe_barrier", &codes[0]);
    probe.spin = clCreateKernel(program, "probe_spin", &codes[1]);
    probe.sync = clCreateBuffer(context, CL_MEM_READ_WRITE, 4096, NULL, &codes[2]);
    probe.words = clCreateBuffer(context, CL_MEM_READ_WRITE, 256 * 64, NULL, &codes[3]);
    probe.result = clCreateBuffer(context, CL_MEM_READ_WRITE, 4096, NULL, &codes[4]);
    code = codes[0] | codes[1] | codes[2] | codes[3] | codes[4];
    int good = 0;
    if (code == CL_SUCCESS)
        code = measure(launcher, &probe, &good);
    probe_done(&probe);
    if (code != CL_SUCCESS)
        return failed(error, "the barrier probe", code);
    if (good < 0)
        snprintf(reason, reason_size, "the probe's groups did not see each other's data");
    else if (good == 0)
        snprintf(reason, reason_size, "the probe's groups never met");
    else if (good < PROBE_ROUNDS || (launcher->barrier_us > barrier_limit_us && launcher->barrier_us < busy_barrier_us))
        start_disturbed(launcher);
    else if (good == PROBE_ROUNDS && launcher->barrier_us > barrier_limit_us)
        snprintf(reason, reason_size, "a barrier takes %.1f us", launcher->barrier_us);
    else
        launcher->one_launch = true;
    return NPU_OK;
}

enum npu_status launcher_run(struct launcher *launcher, int kind, int first, int last, size_t lanes, double wait_us,
                             struct npu_error *error)
{
    cl_kernel kernel = launcher->run_ops != NULL ? launcher->run_ops : launcher->kinds[kind];
    int spins = spins_of(launcher, wait_us);
    cl_int code = clSetKernelArg(kernel, ARGUMENT_FIRST, sizeof first, &first);
    code |= clSetKernelArg(kernel, ARGUMENT_LAST, sizeof last, &last);
    code |= clSetKernelArg(kernel, ARGUMENT_SPIN_LIMIT, sizeof spins, &spins);
    if (code != CL_SUCCESS)
        return failed(error, "clSetKernelArg", code);
    size_t local = (size_t)launcher->profile->local_size, global = (lanes + local - 1) / local * local;
    code = clEnqueueNDRangeKernel(launcher->queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL);
    if (code != CL_SUCCESS)
        return failed(error, "clEnqueueNDRangeKernel", code);
    return NPU_OK;
}

enum launch_mode launcher_mode(struct launcher *launcher, int bucket)
{
    if (!launcher->one_launch)
        return LAUNCH_EACH;
    struct launch_calm *calm = &launcher->calm[bucket];
    if (calm->each_left == 0)
        return LAUNCH_ONE;
    calm->each_left--;
    return LAUNCH_EACH;
}

double launcher_wait_us(const struct launcher *launcher, int bucket)
{
    double usual = launcher->calm[bucket].usual_us;
    return usual > 0 ? 3 * usual + wait_least_us : unknown_wait_us;
}

void launcher_note_abandoned(struct launcher *launcher, int bucket)
{
    struct launch_calm *calm = &launcher->calm[bucket];
    calm->backoff = calm->backoff == 0                    ? EACH_STEPS_FIRST
                    : 2 * calm->backoff > EACH_STEPS_MOST ? EACH_STEPS_MOST
                                                          : 2 * calm->backoff;
    calm->each_left = calm->backoff;
    atomic_fetch_add_explicit(&launcher->switches, 1, memory_order_relaxed);
}

void launcher_note(struct launcher *launcher, int bucket, enum launch_mode mode, double us)
{
    struct launch_calm *calm = &launcher->calm[bucket];
    double *mean = mode == LAUNCH_ONE ? &calm->usual_us : &calm->each_us;
    *mean = *mean == 0 || us < *mean ? us : *mean + 0.1 * (us - *mean);
    if (mode != LAUNCH_ONE)
        return;
    if (calm->each_us > 0 && calm->usual_us > slower_factor * calm->each_us)
        launcher_note_abandoned(launcher, bucket);
    else
        calm->backoff = 0;
}
