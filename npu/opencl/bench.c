#include "npu/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "npu/opencl/pack.h"
#include "npu/opencl/random_history.h"
#include "npu/step.h"

enum {
    EACH_RUNS = 5,
    ONE_RUNS = 7,
    ONE_ATTEMPTS = 20
};

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* ---- work ---- */

static int visible_begin(const struct plan *plan, const struct op_entry *entry, const struct step_row *row)
{
    int begin = entry->flags & FLAG_SLIDING ? row->position + 1 - plan->model->window : 0;
    return begin > 0 ? begin : 0;
}

static bool counts(const struct op_entry *entry, const struct step_row *row)
{
    return entry->row_set == 0 || row->returns != ROW_RETURN_NOTHING;
}

/* Rows that share a table are neighbours and ascend, so that the first one sees the earliest position. */
static struct bench_work attention_work(const struct opencl_executor *executor, const struct op_entry *entry,
                                        const struct step *step)
{
    struct bench_work work = {0};
    double position_bytes = 2.0 * entry->kv_heads * entry->head_size * (double)executor->kv_element_bytes;
    int table = -1, seen = 0;
    for (int i = 0; i < step->n_rows; i++) {
        const struct step_row *row = &step->rows[i];
        if (!counts(entry, row))
            continue;
        int begin = visible_begin(executor->plan, entry, row);
        if (row->table != table) {
            table = row->table;
            seen = begin;
        }
        work.macs += 2.0 * entry->n_heads * entry->head_size * (row->visible_end - begin);
        if (row->visible_end > seen) {
            work.kv_bytes += position_bytes * (row->visible_end - seen);
            seen = row->visible_end;
        }
    }
    return work;
}

static struct bench_work entry_work(const struct opencl_executor *executor, const struct op_entry *entry,
                                    const struct step *step)
{
    struct bench_work work = {0};
    if (entry->kind == ENTRY_ATTENTION)
        return attention_work(executor, entry, step);
    if (entry->kind != ENTRY_MATMUL)
        return work;
    int rows = 0;
    for (int i = 0; i < step->n_rows; i++)
        rows += counts(entry, &step->rows[i]);
    work.weight_bytes = (double)pack_bytes(entry->layout, entry->n_in, entry->n_out);
    work.macs = (double)entry->n_in * entry->n_out * rows;
    return work;
}

/* Entries behind the gather have nothing to do when no row returns anything. */
static int end_of_step(const struct plan *plan, const struct step *step)
{
    for (int i = 0; i < step->n_rows; i++) {
        if (step->rows[i].returns != ROW_RETURN_NOTHING)
            return plan->n_entries;
    }
    return plan->gather_entry;
}

struct bench_work bench_step_work(const struct executor *executor, const struct step *step)
{
    const struct opencl_executor *opencl = (const struct opencl_executor *)executor;
    struct bench_work total = {0};
    int end = end_of_step(opencl->plan, step);
    for (int i = 0; i < end; i++) {
        struct bench_work work = entry_work(opencl, &opencl->plan->entries[i], step);
        total.weight_bytes += work.weight_bytes;
        total.kv_bytes += work.kv_bytes;
        total.macs += work.macs;
    }
    return total;
}

enum npu_status bench_fill_kv(struct executor *executor, int32_t n, struct npu_error *error)
{
    return random_history_write((struct opencl_executor *)executor, n, error);
}

/* ---- profile ---- */

struct profiling {
    struct opencl_executor *executor;
    const struct plan *plan;
    const struct step *step;
    struct bench_profile *profile;
    int *line_of; /* per entry; -1: there was no room */
    int end;
    struct npu_error *error;
};

static void describe(const struct op_entry *entry, char *text, size_t bytes)
{
    static const char *const layouts[] = {
        [LAYOUT_F32] = "F32", [LAYOUT_F16] = "F16", [LAYOUT_BF16] = "BF16", [LAYOUT_Q4] = "Q4",
        [LAYOUT_Q8] = "Q8",   [LAYOUT_Q6] = "Q6",   [LAYOUT_Q5] = "Q5",     [LAYOUT_Q4K] = "Q4K",
        [LAYOUT_Q5K] = "Q5K", [LAYOUT_Q8S] = "Q8S", [LAYOUT_Q2] = "Q2"};
    const char *name = plan_entry_name(entry);
    bool known = entry->layout >= 0 && (size_t)entry->layout < sizeof layouts / sizeof layouts[0];
    if (entry->kind == ENTRY_MATMUL)
        snprintf(text, bytes, "%s %s %d x %d", name, known ? layouts[entry->layout] : "?", entry->n_in, entry->n_out);
    else if (entry->kind == ENTRY_HEADS)
        snprintf(text, bytes, "%s %d x %d%s", name, entry->n_heads, entry->head_size,
                 entry->layout == DESTINATION_KEYS     ? " to keys"
                 : entry->layout == DESTINATION_VALUES ? " to values"
                                                       : "");
    else if (entry->kind == ENTRY_ATTENTION)
        snprintf(text, bytes, "%s %d x %d%s", name, entry->n_heads, entry->head_size,
                 entry->flags & FLAG_SLIDING ? " sliding" : "");
    else
        snprintf(text, bytes, "%s", name);
}

static void make_lines(struct profiling *profiling)
{
    struct bench_profile *profile = profiling->profile;
    for (int i = 0; i < profiling->end; i++) {
        const struct op_entry *entry = &profiling->plan->entries[i];
        char what[sizeof profile->lines[0].what];
        describe(entry, what, sizeof what);
        int line = 0;
        while (line < profile->n_lines && strcmp(profile->lines[line].what, what) != 0)
            line++;
        profiling->line_of[i] = line < BENCH_MAX_LINES ? line : -1;
        if (line == BENCH_MAX_LINES)
            continue;
        if (line == profile->n_lines) {
            memset(&profile->lines[line], 0, sizeof profile->lines[line]);
            memcpy(profile->lines[line].what, what, sizeof what);
            profile->n_lines++;
        }
        struct bench_work work = entry_work(profiling->executor, entry, profiling->step);
        profile->lines[line].n++;
        profile->lines[line].bytes += work.weight_bytes + work.kv_bytes;
        profile->lines[line].macs += work.macs;
    }
}

/* *us becomes the smaller of itself (negative: nothing yet) and what the entries took. */
static enum npu_status time_each(struct profiling *profiling, int first, int last, double *us)
{
    double start = now_us();
    enum npu_status status = opencl_executor_run_entries(profiling->executor, first, last, false, profiling->error);
    double took = now_us() - start;
    if (*us < 0 || took < *us)
        *us = took;
    return status;
}

/* The best of several runs of the table's first n entries in one launch. Runs whose groups gave up waiting for each other,
 * as they do on a busy machine, leave no stamp and do not count; 0 when there are no others. */
static enum npu_status time_one(struct profiling *profiling, int n, double *us)
{
    struct opencl_executor *executor = profiling->executor;
    static const int32_t nothing = 0;
    enum npu_status status = NPU_OK;
    *us = 0;
    for (int attempt = 0, finished = 0; attempt < ONE_ATTEMPTS && finished < ONE_RUNS && status == NPU_OK; attempt++) {
        int32_t done = 0;
        status = opencl_executor_write_arena(executor, profiling->plan->done_offset, &nothing, 1, profiling->error);
        double start = now_us();
        if (status == NPU_OK)
            status = opencl_executor_run_entries(executor, 0, n, true, profiling->error);
        double took = now_us() - start;
        if (status == NPU_OK)
            status = opencl_executor_read_arena(executor, profiling->plan->done_offset, &done, 1, profiling->error);
        if (done != executor->stamp)
            continue;
        finished++;
        if (*us == 0 || took < *us)
            *us = took;
    }
    return status;
}

static enum npu_status profile_each(struct profiling *profiling)
{
    enum npu_status status = NPU_OK;
    double *best = malloc((size_t)profiling->end * sizeof *best);
    if (best == NULL)
        return npu_error_set(profiling->error, NPU_ERROR_MEMORY, "no memory for a profile");
    for (int i = 0; i < profiling->end; i++)
        best[i] = -1;
    profiling->profile->each_us = -1;
    for (int run = 0; run < EACH_RUNS && status == NPU_OK; run++) {
        for (int i = 0; i < profiling->end && status == NPU_OK; i++)
            status = time_each(profiling, i, i + 1, &best[i]);
        if (status == NPU_OK)
            status = time_each(profiling, 0, profiling->end, &profiling->profile->each_us);
    }
    for (int i = 0; i < profiling->end; i++) {
        if (profiling->line_of[i] >= 0)
            profiling->profile->lines[profiling->line_of[i]].each_us += best[i];
    }
    free(best);
    return status;
}

static enum npu_status write_table(struct profiling *profiling, const struct op_entry *entries, int n)
{
    return device_buffer_write(&profiling->executor->table, profiling->executor->queue, 0, entries,
                               (size_t)n * sizeof *entries, profiling->error);
}

/* A line's entries alone, as a table of their own that is run in one launch: what the ops read is old, but as long. */
static enum npu_status profile_one_line(struct profiling *profiling, int line, struct op_entry *entries)
{
    int n = 0;
    for (int i = 0; i < profiling->end; i++) {
        if (profiling->line_of[i] != line)
            continue;
        entries[n] = profiling->plan->entries[i];
        entries[n++].flags |= FLAG_BARRIER;
    }
    enum npu_status status = write_table(profiling, entries, n);
    return status != NPU_OK ? status : time_one(profiling, n, &profiling->profile->lines[line].one_us);
}

static enum npu_status profile_one(struct profiling *profiling)
{
    struct op_entry *entries = malloc((size_t)profiling->plan->n_entries * sizeof *entries);
    if (entries == NULL)
        return npu_error_set(profiling->error, NPU_ERROR_MEMORY, "no memory for a profile");
    enum npu_status status = time_one(profiling, profiling->end, &profiling->profile->one_us);
    for (int line = 0; line < profiling->profile->n_lines && status == NPU_OK; line++)
        status = profile_one_line(profiling, line, entries);
    free(entries);
    enum npu_status restored = write_table(profiling, profiling->plan->entries, profiling->plan->n_entries);
    return status != NPU_OK ? status : restored;
}

enum npu_status bench_profile_step(struct bench_profile *profile, struct executor *executor, const struct step *step,
                                   struct npu_error *error)
{
    enum npu_status status = step_validate(executor, step, error);
    if (status != NPU_OK)
        return status;
    struct opencl_executor *opencl = (struct opencl_executor *)executor;
    struct profiling profiling = {.executor = opencl,
                                  .plan = opencl->plan,
                                  .step = step,
                                  .profile = profile,
                                  .end = end_of_step(opencl->plan, step),
                                  .error = error};
    *profile = (struct bench_profile){0};
    profiling.line_of = malloc((size_t)profiling.end * sizeof *profiling.line_of);
    if (profiling.line_of == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for a profile");
    make_lines(&profiling);
    status = opencl_executor_upload(opencl, step, error);
    if (status == NPU_OK)
        status = profile_each(&profiling);
    if (status == NPU_OK && opencl->launcher.one_launch)
        status = profile_one(&profiling);
    free(profiling.line_of);
    return status;
}
