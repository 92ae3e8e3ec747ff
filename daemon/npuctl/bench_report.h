/* What npuctl bench prints. */
#ifndef DAEMON_NPUCTL_BENCH_REPORT_H
#define DAEMON_NPUCTL_BENCH_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "daemon/npuctl/bench_points.h"

struct bench_profiled {
    bool generation;
    int n_rows, position;
    struct bench_profile profile;
};

/* Parts that were not asked for are absent: NULL or 0. */
struct bench_report {
    const char *tested; /* the device and its use */
    const struct bench_points *points;
    const struct bench_roof *roof;
    const struct bench_profiled *profiles;
    int n_profiles;
};

void bench_report_print(const struct bench_report *report, FILE *out);
/* One JSON object and a newline; false: no memory or the file failed. */
bool bench_report_print_json(const struct bench_report *report, FILE *out);

#endif
