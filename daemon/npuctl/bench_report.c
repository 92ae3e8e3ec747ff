#include "daemon/npuctl/bench_report.h"

#include <jansson.h>

/* Billions a second. */
static double rate(double amount, double ms)
{
    return ms > 0 ? amount / ms * 1e-6 : 0.0;
}

static double point_bytes(const struct bench_point *point)
{
    return point->work.weight_bytes + point->work.kv_bytes;
}

static double tokens_per_second(const struct bench_point *point)
{
    return point->median_ms > 0 ? point->n_rows / point->median_ms * 1e3 : 0.0;
}

static void print_points(const struct bench_points *points, FILE *out)
{
    int kind = -1;
    for (int i = 0; i < points->n; i++) {
        const struct bench_point *point = &points->points[i];
        if (point->generation != kind)
            fprintf(out, "\n%-11s %9s %9s %9s %10s %8s %8s\n", point->generation ? "generation" : "prompt",
                    point->generation ? "sessions" : "rows", "position", "ms", "tokens/s", "GB/s", "GMAC/s");
        kind = point->generation;
        fprintf(out, "%-11s %9d %9d %9.2f %10.1f %8.1f %8.1f\n", "", point->n_rows, point->position, point->median_ms,
                tokens_per_second(point), rate(point_bytes(point), point->median_ms),
                rate(point->work.macs, point->median_ms));
    }
}

static void print_profile(const struct bench_profiled *profiled, FILE *out)
{
    const struct bench_profile *profile = &profiled->profile;
    fprintf(out, "\nprofile of %d %s at position %d: %.0f us one op a launch", profiled->n_rows,
            profiled->generation ? "sessions" : "rows", profiled->position, profile->each_us);
    if (profile->one_us > 0)
        fprintf(out, ", %.0f us in one launch", profile->one_us);
    fprintf(out, "\n%-34s %5s %12s %12s %8s %8s\n", "kernel", "ops", "each us", "one us", "GB/s", "GMAC/s");
    for (int i = 0; i < profile->n_lines; i++) {
        const struct bench_line *line = &profile->lines[i];
        double us = line->one_us > 0 ? line->one_us : line->each_us;
        fprintf(out, "%-34s %5d %12.1f %12.1f %8.1f %8.1f\n", line->what, line->n, line->each_us, line->one_us,
                rate(line->bytes, us * 1e-3), rate(line->macs, us * 1e-3));
    }
}

void bench_report_print(const struct bench_report *report, FILE *out)
{
    if (report->tested != NULL)
        fprintf(out, "tested: %s\n", report->tested);
    if (report->roof != NULL)
        fprintf(out,
                "limits of %s, %s kernels: reads %.1f GB/s from memory, %.1f GB/s from caches; %.1f GMAC/s in int8, "
                "%.1f GMAC/s in float\n",
                report->roof->device, report->roof->x86_kernels ? "x86" : "portable", report->roof->memory_bytes,
                report->roof->cache_bytes, report->roof->int8_macs, report->roof->float_macs);
    if (report->points != NULL)
        print_points(report->points, out);
    for (int i = 0; i < report->n_profiles; i++)
        print_profile(&report->profiles[i], out);
}

static json_t *point_json(const struct bench_point *point)
{
    return json_pack("{s:s, s:i, s:i, s:f, s:f, s:f, s:f, s:f}", "kind", point->generation ? "generation" : "prompt",
                     point->generation ? "sessions" : "rows", point->n_rows, "position", point->position, "ms",
                     point->median_ms, "best_ms", point->best_ms, "tokens_per_second", tokens_per_second(point),
                     "gb_per_second", rate(point_bytes(point), point->median_ms), "gmac_per_second",
                     rate(point->work.macs, point->median_ms));
}

static json_t *roof_json(const struct bench_roof *roof)
{
    return json_pack("{s:s, s:b, s:f, s:f, s:f, s:f}", "device", roof->device, "x86_kernels", roof->x86_kernels,
                     "memory_gb_per_second", roof->memory_bytes, "cache_gb_per_second", roof->cache_bytes,
                     "int8_gmac_per_second", roof->int8_macs, "float_gmac_per_second", roof->float_macs);
}

static json_t *profile_json(const struct bench_profiled *profiled)
{
    json_t *lines = json_array();
    for (int i = 0; i < profiled->profile.n_lines; i++) {
        const struct bench_line *line = &profiled->profile.lines[i];
        json_array_append_new(lines, json_pack("{s:s, s:i, s:f, s:f, s:f, s:f}", "kernel", line->what, "ops", line->n,
                                               "each_us", line->each_us, "one_us", line->one_us, "bytes", line->bytes,
                                               "macs", line->macs));
    }
    return json_pack("{s:s, s:i, s:i, s:f, s:f, s:o}", "kind", profiled->generation ? "generation" : "prompt",
                     profiled->generation ? "sessions" : "rows", profiled->n_rows, "position", profiled->position,
                     "each_us", profiled->profile.each_us, "one_us", profiled->profile.one_us, "kernels", lines);
}

bool bench_report_print_json(const struct bench_report *report, FILE *out)
{
    json_t *root = json_object(), *points = json_array(), *profiles = json_array();
    int failures = root == NULL || points == NULL || profiles == NULL;
    for (int i = 0; report->points != NULL && i < report->points->n; i++)
        failures |= json_array_append_new(points, point_json(&report->points->points[i]));
    for (int i = 0; i < report->n_profiles; i++)
        failures |= json_array_append_new(profiles, profile_json(&report->profiles[i]));
    if (report->tested != NULL)
        failures |= json_object_set_new(root, "tested", json_string(report->tested));
    if (report->roof != NULL)
        failures |= json_object_set_new(root, "roof", roof_json(report->roof));
    if (report->points != NULL)
        failures |= json_object_set(root, "points", points);
    if (report->n_profiles > 0)
        failures |= json_object_set(root, "profiles", profiles);
    bool written =
        failures == 0 && json_dumpf(root, out, JSON_COMPACT | JSON_REAL_PRECISION(6)) == 0 && fputc('\n', out) != EOF;
    json_decref(root);
    json_decref(points);
    json_decref(profiles);
    return written;
}
