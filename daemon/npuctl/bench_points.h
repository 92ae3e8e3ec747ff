/* npuctl bench's measurements: steps of prompts and of generations at several depths. */
#ifndef DAEMON_NPUCTL_BENCH_POINTS_H
#define DAEMON_NPUCTL_BENCH_POINTS_H

#include <stdbool.h>

#include "npu/bench.h"
#include "npu/executor.h"

/* One step's time. A prompt's rows are one session's; a generation's are one of each of so many sessions. */
struct bench_point {
    bool generation;
    int n_rows, position; /* of the first row */
    double median_ms, best_ms;
    struct bench_work work;
};

enum {
    BENCH_MAX_LIST = 16,
    BENCH_MAX_POINTS = 2 * BENCH_MAX_LIST * BENCH_MAX_LIST,
    BENCH_MAX_PROFILES = 4
};

struct bench_list {
    int values[BENCH_MAX_LIST];
    int n;
};

struct bench_points {
    struct bench_point points[BENCH_MAX_POINTS];
    int n;
};

/* Measures rows x positions as prompts, sessions x positions as generations; what the context or the KV cache cannot hold
 * is left out. */
enum npu_status bench_points_measure(struct bench_points *points, struct executor *executor,
                                     const struct bench_list *rows, const struct bench_list *sessions,
                                     const struct bench_list *positions, struct npu_error *error);

/* Profiles such a step; false in *ret_fits when it does not fit. */
enum npu_status bench_points_profile(struct bench_profile *profile, struct executor *executor, bool generation,
                                     int n_rows, int position, bool *ret_fits, struct npu_error *error);

#endif
