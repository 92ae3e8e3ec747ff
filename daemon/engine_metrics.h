/* Numbers that the engine keeps about its work, for /metrics and logs. Plain data, copied out by engine_metrics_get. */
#ifndef DAEMON_ENGINE_METRICS_H
#define DAEMON_ENGINE_METRICS_H

#include <stdint.h>

#include "daemon/generation.h"
#include "daemon/kv_pool.h"
#include "daemon/step_cost.h"

enum {
    HISTOGRAM_BOUNDS = 14,
};

/* Upper bounds in seconds, the same for all: 1 ms to 30 s. */
extern const double histogram_bounds_s[HISTOGRAM_BOUNDS];

struct histogram {
    uint64_t counts[HISTOGRAM_BOUNDS + 1]; /* values up to each bound and above the one before; the last: above all */
    uint64_t n;
    double sum_s;
};

void histogram_add(struct histogram *histogram, double seconds);

struct engine_metrics {
    uint64_t submitted;
    uint64_t finished[FINISH_ERROR + 1]; /* by enum finish_reason */
    uint64_t failed[FAILURE_CONSTRAINT + 1]; /* by enum generation_failure, of those that ended in FINISH_ERROR */
    uint64_t prompt_tokens, cached_tokens; /* of generations that began to run */
    uint64_t output_tokens;
    int running, waiting, paused; /* generations */
    int waiting_requests; /* with generations that have not begun to run; what the queue bounds */
    struct histogram queue, first_token, token_gap;
    struct histogram step[STEP_COST_BUCKETS]; /* by bucket of rows: 1, 2, 4, ... */
    uint64_t steps, failed_steps, decode_rows, prompt_rows, moved_out;
    struct kv_pool_counters kv;
    int32_t sessions_busy, sessions_idle, sessions_evicted;
    uint64_t evictions;
    /* The state folder. */
    int32_t sessions_on_disk; /* whether resident or not */
    int32_t responses_on_disk;
    uint64_t state_bytes, state_max_bytes;
    uint64_t saves, failed_saves; /* of sessions, ever */
    uint64_t restores, restored_tokens; /* requests that got tokens from disk, and those tokens */
    uint64_t damaged_files; /* found since the start */
    uint64_t written_bytes, read_bytes;
};

#endif
