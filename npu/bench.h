/* Measuring: what a step has to move and to multiply, what a driver can do at best, and where a step's time goes. Works on
 * executors that npu_load made. Free of OpenCL types. Thread: the executor's. */
#ifndef NPU_BENCH_H
#define NPU_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "npu/error.h"
#include "npu/executor.h"

/* What a step cannot do without: each packed weight and each visible K/V position of a table read once. */
struct bench_work {
    double weight_bytes, kv_bytes;
    double macs; /* multiply-adds of matrix products and attention */
};

struct bench_work bench_step_work(const struct executor *executor, const struct step *step);

/* Fills KV blocks [0, n) with random values, as if conversations stood there. */
enum npu_status bench_fill_kv(struct executor *executor, int32_t n, struct npu_error *error);

/* The driver's limits, with all workers, in billions per second. */
struct bench_roof {
    char device[192];
    bool x86_kernels;
    double memory_bytes; /* read from a buffer far larger than caches */
    double cache_bytes; /* read again and again from one of a few MiB */
    double int8_macs; /* as the device's matrix products for quantized weights do them */
    double float_macs;
};

/* device: a selector as --device takes it, or NULL. A few seconds. */
enum npu_status bench_measure_roof(struct bench_roof *roof, const char *device, struct npu_error *error);

/* All ops of a step that are alike: one kernel, layout and size. */
struct bench_line {
    char what[64];
    int n;
    double each_us; /* all of them, each in a launch of its own that is waited for */
    double one_us; /* all of them in one launch, with a barrier after each; 0 where one launch is not used, or nothing
                       could be measured on a busy machine */
    double bytes, macs; /* as bench_work counts */
};

enum {
    BENCH_MAX_LINES = 64
};

struct bench_profile {
    struct bench_line lines[BENCH_MAX_LINES]; /* in the order of the step */
    int n_lines;
    double each_us, one_us; /* the whole step; one_us 0 as above */
};

/* The step is run a few dozen times. */
enum npu_status bench_profile_step(struct bench_profile *profile, struct executor *executor, const struct step *step,
                                   struct npu_error *error);

#endif
