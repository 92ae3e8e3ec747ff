#include "daemon/npuctl/bench_points.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MAX_REPEATS = 100,
    LEAST_REPEATS = 3
};
static const double enough_ms = 250.0;

/* A step over tables whose blocks are [0, n_tables * blocks_each) of the pool. */
struct built_step {
    struct step_row rows[EXECUTOR_MAX_ROWS];
    struct block_table tables[EXECUTOR_MAX_ROWS];
    int32_t *blocks;
    struct step step;
};

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static bool fits(const struct executor *executor, bool generation, int n_rows, int position)
{
    int n_tables = generation ? n_rows : 1, end = generation ? position + 1 : position + n_rows;
    int blocks_each = (end + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    return n_rows <= executor->max_rows && end <= executor->max_context && n_tables <= executor->max_tables &&
           (int64_t)n_tables * blocks_each <= executor->n_blocks && (!generation || n_rows <= executor->max_returning);
}

/* Also fills the tables' blocks. done_step frees. */
static enum npu_status build_step(struct built_step *built, struct executor *executor, bool generation, int n_rows,
                                  int position, struct npu_error *error)
{
    int n_tables = generation ? n_rows : 1, end = generation ? position + 1 : position + n_rows;
    int blocks_each = (end + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    memset(built, 0, sizeof *built);
    built->blocks = malloc((size_t)n_tables * (size_t)blocks_each * sizeof *built->blocks);
    if (built->blocks == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for block tables");
    for (int i = 0; i < n_tables * blocks_each; i++)
        built->blocks[i] = i;
    for (int t = 0; t < n_tables; t++)
        built->tables[t] = (struct block_table){built->blocks + (size_t)t * (size_t)blocks_each, blocks_each};
    for (int i = 0; i < n_rows; i++) {
        int at = generation ? position : position + i;
        built->rows[i] =
            (struct step_row){.token = (int32_t)((unsigned)(i * 7919 + 101) % (unsigned)executor->n_vocab),
                              .position = at,
                              .visible_end = at + 1,
                              .table = (uint16_t)(generation ? i : 0),
                              .returns = generation || i + 1 == n_rows ? ROW_RETURN_BEST : ROW_RETURN_NOTHING};
    }
    built->step = (struct step){built->rows, n_rows, built->tables, n_tables};
    enum npu_status status = bench_fill_kv(executor, n_tables * blocks_each, error);
    if (status != NPU_OK)
        free(built->blocks);
    return status;
}

static void done_step(struct built_step *built)
{
    free(built->blocks);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The first run is not counted. */
static enum npu_status time_step(struct bench_point *point, struct executor *executor, const struct step *step,
                                 struct npu_error *error)
{
    struct row_result results[EXECUTOR_MAX_ROWS];
    double times[MAX_REPEATS], total = 0;
    int n = 0;
    enum npu_status status = executor_step(executor, step, results, error);
    while (status == NPU_OK && n < MAX_REPEATS && (n < LEAST_REPEATS || total < enough_ms)) {
        double start = now_ms();
        status = executor_step(executor, step, results, error);
        times[n] = now_ms() - start;
        total += times[n++];
    }
    if (status != NPU_OK)
        return status;
    qsort(times, (size_t)n, sizeof times[0], ascending);
    point->best_ms = times[0];
    point->median_ms = times[n / 2];
    return NPU_OK;
}

static enum npu_status measure(struct bench_points *points, struct executor *executor, bool generation, int n_rows,
                               int position, struct npu_error *error)
{
    if (points->n == BENCH_MAX_POINTS || !fits(executor, generation, n_rows, position))
        return NPU_OK;
    struct built_step built;
    enum npu_status status = build_step(&built, executor, generation, n_rows, position, error);
    if (status != NPU_OK)
        return status;
    struct bench_point *point = &points->points[points->n++];
    *point = (struct bench_point){.generation = generation,
                                  .n_rows = n_rows,
                                  .position = position,
                                  .work = bench_step_work(executor, &built.step)};
    status = time_step(point, executor, &built.step, error);
    done_step(&built);
    return status;
}

enum npu_status bench_points_measure(struct bench_points *points, struct executor *executor,
                                     const struct bench_list *rows, const struct bench_list *sessions,
                                     const struct bench_list *positions, struct npu_error *error)
{
    enum npu_status status = NPU_OK;
    points->n = 0;
    for (int generation = 0; generation < 2; generation++) {
        const struct bench_list *counts = generation ? sessions : rows;
        for (int p = 0; p < positions->n; p++) {
            for (int i = 0; i < counts->n && status == NPU_OK; i++)
                status = measure(points, executor, generation, counts->values[i], positions->values[p], error);
        }
    }
    return status;
}

enum npu_status bench_points_profile(struct bench_profile *profile, struct executor *executor, bool generation,
                                     int n_rows, int position, bool *ret_fits, struct npu_error *error)
{
    *ret_fits = fits(executor, generation, n_rows, position);
    if (!*ret_fits)
        return NPU_OK;
    struct built_step built;
    enum npu_status status = build_step(&built, executor, generation, n_rows, position, error);
    if (status != NPU_OK)
        return status;
    status = bench_profile_step(profile, executor, &built.step, error);
    done_step(&built);
    return status;
}
