/* Admission, and running a step. */
#include "daemon/scheduler_state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/snapshot.h"

enum {
    MEASURED_PROMPT_ROWS = 16, /* a step of prompts alone with so many rows says what a token of a prompt costs */
};

static enum npu_status copy_block(void *context, int32_t from, int32_t to)
{
    struct scheduler *scheduler = context;
    return executor_copy_block(scheduler->executor, from, to, NULL);
}

static void on_evict(void *context, struct session *session)
{
    struct scheduler *scheduler = context;
    if (scheduler->snapshots != NULL)
        snapshots_on_evict(scheduler->snapshots, session);
}

static void on_forget(void *context, struct session *session)
{
    struct scheduler *scheduler = context;
    if (scheduler->snapshots != NULL)
        snapshots_on_forget(scheduler->snapshots, session);
}

static enum npu_status create_snapshots(struct scheduler *scheduler, struct npu_error *error)
{
    struct snapshots_options options = {
        .executor = scheduler->executor,
        .pool = scheduler->pool,
        .sessions = scheduler->sessions,
        .store = scheduler->options.store,
        .unix_offset_us = scheduler->options.unix_offset_us,
    };
    enum npu_status status = snapshots_create(&scheduler->snapshots, &options, error);
    if (status == NPU_OK)
        snapshots_load(scheduler->snapshots);
    return status;
}

enum npu_status scheduler_create(struct scheduler **ret_scheduler, const struct scheduler_options *options,
                                 struct executor *executor, const struct scheduler_callbacks *callbacks,
                                 struct npu_error *error)
{
    if (executor->max_rows < 2 || executor->max_rows > EXECUTOR_MAX_ROWS || executor->max_tables < 2 ||
        executor->max_returning < 2)
        return npu_error_set(
            error, NPU_ERROR_INPUT,
            "the executor allows %d rows, %d tables and %d returning rows a step; the scheduler needs 2..%d "
            "rows and at least 2 of the others",
            executor->max_rows, executor->max_tables, executor->max_returning, EXECUTOR_MAX_ROWS);
    if (options->parallel < 1)
        return npu_error_set(error, NPU_ERROR_INPUT, "parallel must be at least 1, got %d", options->parallel);
    struct scheduler *scheduler = calloc(1, sizeof *scheduler);
    if (scheduler == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the scheduler");
    scheduler->options = *options;
    scheduler->callbacks = *callbacks;
    scheduler->executor = executor;
    size_t parallel = (size_t)options->parallel, max_rows = (size_t)executor->max_rows;
    scheduler->running = calloc(parallel, sizeof *scheduler->running);
    scheduler->candidates = calloc(parallel, sizeof *scheduler->candidates);
    scheduler->shares = calloc(parallel, sizeof *scheduler->shares);
    scheduler->rows = calloc(max_rows, sizeof *scheduler->rows);
    scheduler->results = calloc(max_rows, sizeof *scheduler->results);
    scheduler->tables = calloc((size_t)executor->max_tables, sizeof *scheduler->tables);
    scheduler->runs = calloc((size_t)executor->max_tables, sizeof *scheduler->runs);
    enum npu_status status = NPU_OK;
    if (scheduler->running == NULL || scheduler->candidates == NULL || scheduler->shares == NULL ||
        scheduler->rows == NULL || scheduler->results == NULL || scheduler->tables == NULL || scheduler->runs == NULL)
        status = npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the scheduler");
    if (status == NPU_OK)
        status = kv_pool_create(&scheduler->pool, executor->n_blocks, error);
    struct session_table_options sessions = {
        .max_sessions = options->max_sessions,
        .id_seed = options->session_id_seed,
        .context = scheduler,
        .copy_block = copy_block,
        .on_evict = on_evict,
        .on_forget = on_forget,
    };
    if (status == NPU_OK)
        status = session_table_create(&scheduler->sessions, &sessions, scheduler->pool, error);
    if (status == NPU_OK && options->store != NULL)
        status = create_snapshots(scheduler, error);
    if (status != NPU_OK) {
        scheduler_destroy(scheduler);
        return status;
    }
    *ret_scheduler = scheduler;
    return NPU_OK;
}

void scheduler_destroy(struct scheduler *scheduler)
{
    if (scheduler == NULL)
        return;
    assert(scheduler->n_running == 0 && scheduler->n_waiting == 0);
    snapshots_destroy(scheduler->snapshots);
    session_table_destroy(scheduler->sessions);
    kv_pool_destroy(scheduler->pool);
    free(scheduler->running);
    free(scheduler->candidates);
    free(scheduler->shares);
    free(scheduler->rows);
    free(scheduler->results);
    free(scheduler->tables);
    free(scheduler->runs);
    free(scheduler);
}

/* --- from the queue and back ---------------------------------------------------------------------------------------- */

static void start_running(struct scheduler *scheduler, struct sequence *sequence)
{
    int at = scheduler->n_running++;
    for (; at > 0 && scheduler->running[at - 1]->order > sequence->order; at--)
        scheduler->running[at] = scheduler->running[at - 1];
    scheduler->running[at] = sequence; /* oldest first */
    sequence->state = SEQUENCE_RUNNING;
}

static void stop_running(struct scheduler *scheduler, const struct sequence *sequence)
{
    int at = 0;
    while (scheduler->running[at] != sequence)
        at++;
    scheduler->n_running--;
    memmove(&scheduler->running[at], &scheduler->running[at + 1],
            (size_t)(scheduler->n_running - at) * sizeof *scheduler->running);
}

enum npu_status scheduler_submit(struct scheduler *scheduler, struct sequence *sequence, struct npu_error *error)
{
    int32_t n_blocks = (sequence->n_prompt + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    int32_t total = kv_pool_count(scheduler->pool).total;
    if (n_blocks > total)
        return npu_error_set(error, NPU_ERROR_INPUT, "the prompt has %d tokens; the KV memory holds at most %d",
                             sequence->n_prompt, total * KV_BLOCK_TOKENS);
    sequence->order = sequence->turn = scheduler->clock++;
    sequence->submitted_us = scheduler->callbacks.now_us(scheduler->callbacks.context);
    sequence->state = SEQUENCE_WAITING;
    sequence->scheduler = scheduler;
    scheduler_enqueue(scheduler, sequence);
    return NPU_OK;
}

static void close_session(struct scheduler *scheduler, struct sequence *sequence)
{
    uint64_t now_us = scheduler->callbacks.now_us(scheduler->callbacks.context);
    session_close(scheduler->sessions, sequence->session, now_us);
    sequence->session = NULL;
}

static void stop_restoring(struct scheduler *scheduler, struct sequence *sequence)
{
    if (sequence->restore != NULL)
        snapshots_restore_cancel(scheduler->snapshots, sequence->restore);
    sequence->restore = NULL;
}

void scheduler_cancel(struct scheduler *scheduler, struct sequence *sequence)
{
    stop_restoring(scheduler, sequence);
    switch (sequence->state) {
    case SEQUENCE_NEW:
    case SEQUENCE_ENDED:
        return;
    case SEQUENCE_WAITING:
        scheduler_dequeue(scheduler, sequence);
        break;
    case SEQUENCE_MOVED_OUT:
        scheduler_dequeue(scheduler, sequence);
        close_session(scheduler, sequence);
        break;
    case SEQUENCE_RUNNING:
        stop_running(scheduler, sequence);
        scheduler_end_turn(scheduler, sequence);
        close_session(scheduler, sequence);
        break;
    }
    sequence->state = SEQUENCE_ENDED;
}

void scheduler_set_paused(struct scheduler *scheduler, struct sequence *sequence, bool paused)
{
    (void)scheduler;
    sequence->paused = paused;
}

void scheduler_move_out(struct scheduler *scheduler, struct sequence *sequence)
{
    stop_restoring(scheduler, sequence);
    stop_running(scheduler, sequence);
    session_move_out(scheduler->sessions, sequence->session);
    sequence->state = SEQUENCE_MOVED_OUT;
    sequence->times_moved_out++;
    scheduler_enqueue(scheduler, sequence);
    scheduler->counters.moved_out++;
}

void scheduler_fail(struct scheduler *scheduler, struct sequence *sequence, const struct npu_error *error)
{
    scheduler_cancel(scheduler, sequence);
    scheduler->callbacks.on_failed(scheduler->callbacks.context, sequence, error);
}

/* Tells the executor what the next step of a session may hold: tokens from position first on. */
static void prefetch(struct scheduler *scheduler, const struct session *session, int32_t first)
{
    int32_t n = session->n_tokens - first, most = scheduler->executor->max_rows;
    if (n > 0)
        executor_prefetch_tokens(scheduler->executor, session->tokens + first, n < most ? n : most);
}

/* --- admission ---------------------------------------------------------------------------------------------------- */

int32_t scheduler_max_cached(const struct sequence *sequence)
{
    if (sequence->transient)
        return 0;
    int32_t known = sequence->session != NULL ? sequence->session->n_tokens : sequence->n_prompt;
    bool wants_prompt =
        sequence->prompt_returns != ROW_RETURN_NOTHING && sequence->n_delivered < sequence->n_prompt - 1;
    return wants_prompt ? sequence->n_delivered : known - 1;
}

/* Blocks that are neither held nor promised to prompts that are being read. */
static int32_t available_blocks(const struct scheduler *scheduler)
{
    struct kv_pool_counters kv = kv_pool_count(scheduler->pool);
    int32_t available = kv.total - kv.held;
    for (int i = 0; i < scheduler->n_running; i++) {
        const struct session *session = scheduler->running[i]->session;
        int32_t n_blocks = (session->n_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
        if (n_blocks > session->n_blocks)
            available -= n_blocks - session->n_blocks;
    }
    return available;
}

int32_t scheduler_spare_blocks(const struct scheduler *scheduler)
{
    return available_blocks(scheduler) - scheduler->n_running;
}

static struct session_request request_of(const struct sequence *sequence)
{
    struct session_request request = {
        .tokens = sequence->prompt,
        .n_tokens = sequence->n_prompt,
        .max_cached = scheduler_max_cached(sequence),
        .key = sequence->key,
        .keeps = sequence->keeps_session,
        .transient = sequence->transient,
    };
    if (sequence->session != NULL) {
        request.tokens = sequence->session->tokens;
        request.n_tokens = sequence->session->n_tokens;
    }
    return request;
}

static void on_restore_end(void *context, const struct restore_result *result)
{
    struct sequence *sequence = context;
    struct scheduler *scheduler = sequence->scheduler;
    const struct scheduler_callbacks *callbacks = &scheduler->callbacks;
    struct cache_report *report = &sequence->cache;
    sequence->restore = NULL;
    if (sequence->times_moved_out > 0) /* the report is about the beginning */
        return;
    report->n_cached = sequence->session->n_resident;
    report->n_restored = result->n_restored;
    report->restore_ms = (double)(callbacks->now_us(callbacks->context) - sequence->restore_began_us) / 1000;
    report->recompute_ms = result->n_restored * (double)snapshots_prompt_ns(scheduler->snapshots) / 1e6;
    if (result->n_restored > 0) {
        report->source = CACHE_SOURCE_DISK;
        report->source_id = report->known_id;
    }
    report->miss = cache_report_miss(report, scheduler_max_cached(sequence));
    if (result->damaged && report->miss == CACHE_MISS_EVICTED)
        report->miss = CACHE_MISS_DAMAGED;
    if (callbacks->on_restored != NULL)
        callbacks->on_restored(callbacks->context, sequence);
}

static void begin_restoring(struct scheduler *scheduler, struct sequence *sequence)
{
    if (scheduler->snapshots == NULL || sequence->transient)
        return;
    sequence->restore_began_us = scheduler->callbacks.now_us(scheduler->callbacks.context);
    sequence->restore = snapshots_restore(scheduler->snapshots, sequence->session, scheduler_max_cached(sequence),
                                          on_restore_end, sequence);
}

/* False: nobody may leave the queue, or the one whose turn it is waits for memory. */
static bool admit_next(struct scheduler *scheduler)
{
    struct sequence *sequence = scheduler_choose(scheduler);
    if (sequence == NULL)
        return false;
    struct session_request request = request_of(sequence);
    int32_t needed = session_blocks_needed(scheduler->sessions, &request);
    int32_t available = available_blocks(scheduler);
    /* One block for each that runs, so that an arrival does not push another one out at once. */
    if (scheduler->n_running > 0 && needed + scheduler->n_running > available)
        return false;

    struct npu_error error;
    error.status = NPU_OK;
    if (needed > available)
        npu_error_set(&error, NPU_ERROR_MEMORY, "%d tokens need %d KV blocks; pinned sessions leave %d of %d",
                      request.n_tokens, needed, available, kv_pool_count(scheduler->pool).total);
    uint64_t now_us = scheduler->callbacks.now_us(scheduler->callbacks.context);
    bool first_time = sequence->session == NULL;
    if (error.status == NPU_OK && first_time) {
        sequence->session = session_open(scheduler->sessions, &request, now_us, &sequence->cache);
        if (sequence->session == NULL)
            npu_error_set(&error, NPU_ERROR_MEMORY, "no memory for a session of %d tokens", request.n_tokens);
    } else if (error.status == NPU_OK) {
        session_move_in(scheduler->sessions, sequence->session, request.max_cached);
    }
    if (error.status != NPU_OK) {
        scheduler_fail(scheduler, sequence, &error);
        return true;
    }
    scheduler_dequeue(scheduler, sequence);
    if (first_time)
        sequence->order = scheduler->clock++;
    start_running(scheduler, sequence);
    scheduler_end_turn(scheduler, sequence);
    prefetch(scheduler, sequence->session, sequence->session->n_resident);
    if (first_time) {
        sequence->started_us = now_us;
        scheduler->callbacks.on_start(scheduler->callbacks.context, sequence);
    }
    begin_restoring(scheduler, sequence);
    return true;
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

/* Hands the results of one run over. The K/V of all its rows is there. */
static void deliver(struct scheduler *scheduler, const struct planned_run *run)
{
    struct sequence *sequence = run->sequence;
    struct session *session = sequence->session;
    const struct scheduler_callbacks *callbacks = &scheduler->callbacks;
    int32_t last_known = session->n_tokens - 1;
    session_commit(scheduler->sessions, session, run->n_rows);
    for (int i = run->first_row; i < run->first_row + run->n_rows; i++) {
        const struct step_row *row = &scheduler->rows[i];
        if (row->returns == ROW_RETURN_NOTHING)
            continue;
        int32_t next = callbacks->on_row(callbacks->context, sequence, row->position, &scheduler->results[i]);
        if (row->position < last_known) {
            sequence->n_delivered = row->position + 1;
        } else if (next == SEQUENCE_END) {
            scheduler_cancel(scheduler, sequence);
        } else if (!session_append(session, next)) {
            struct npu_error error;
            npu_error_set(&error, NPU_ERROR_MEMORY, "no memory for a session of %d tokens", session->n_tokens + 1);
            scheduler_fail(scheduler, sequence, &error);
        } else {
            prefetch(scheduler, session, session->n_tokens - 1);
        }
    }
}

static void measure_prompts(struct scheduler *scheduler)
{
    const struct scheduler_counters *counters = &scheduler->counters;
    if (scheduler->snapshots == NULL || counters->last_decode_rows > 0 || counters->last_rows < MEASURED_PROMPT_ROWS)
        return;
    uint64_t ns = counters->last_step_us * 1000 / (uint64_t)counters->last_rows;
    uint64_t before = snapshots_prompt_ns(scheduler->snapshots);
    snapshots_set_prompt_ns(scheduler->snapshots, before > 0 ? (before * 4 + ns) / 5 : ns);
}

static void work_on_snapshots(struct scheduler *scheduler)
{
    bool gentle = false; /* only if a step will follow, and with it another turn of this */
    for (int i = 0; i < scheduler->n_running && !gentle; i++) {
        const struct sequence *sequence = scheduler->running[i];
        gentle = !sequence->paused && sequence->restore == NULL &&
                 sequence->session->n_tokens == sequence->session->n_resident + 1;
    }
    if (scheduler->snapshots != NULL)
        snapshots_work(scheduler->snapshots, gentle);
}

bool scheduler_step(struct scheduler *scheduler)
{
    work_on_snapshots(scheduler);
    for (;;) {
        int n_waiting = scheduler->n_waiting;
        while (scheduler->first_waiting != NULL && scheduler->n_running < scheduler->options.parallel)
            if (!admit_next(scheduler))
                break;
        if (scheduler->n_waiting < n_waiting) /* what they need is asked for now, not after the step */
            work_on_snapshots(scheduler);
        int n_running = scheduler->n_running;
        if (scheduler_plan(scheduler))
            break;
        if (scheduler->n_running == n_running)
            return false;
    }

    for (int i = 0; i < scheduler->n_runs; i++) { /* while the step runs, what follows it can be read */
        const struct planned_run *run = &scheduler->runs[i];
        prefetch(scheduler, run->sequence->session, scheduler->rows[run->first_row + run->n_rows - 1].position + 1);
    }
    struct step step = {scheduler->rows, scheduler->n_rows, scheduler->tables, scheduler->n_runs};
    struct scheduler_counters *counters = &scheduler->counters;
    const struct scheduler_callbacks *callbacks = &scheduler->callbacks;
    struct npu_error error;
    uint64_t begin_us = callbacks->now_us(callbacks->context);
    enum npu_status status = executor_step(scheduler->executor, &step, scheduler->results, &error);
    if (status != NPU_OK) {
        counters->failed_steps++;
        begin_us = callbacks->now_us(callbacks->context);
        status = executor_step(scheduler->executor, &step, scheduler->results, &error);
    }
    counters->steps++;
    counters->last_rows = scheduler->n_rows;
    counters->last_decode_rows = scheduler->n_decode_rows;
    counters->last_prompt_rows = scheduler->n_rows - scheduler->n_decode_rows;
    counters->last_step_us = callbacks->now_us(callbacks->context) - begin_us;
    for (int i = 0; i < scheduler->n_runs; i++)
        scheduler->runs[i].sequence->served_step = counters->steps;
    if (status != NPU_OK) {
        counters->failed_steps++;
        for (int i = 0; i < scheduler->n_runs; i++)
            scheduler_fail(scheduler, scheduler->runs[i].sequence, &error);
        return true;
    }
    counters->decode_rows += (uint64_t)counters->last_decode_rows;
    counters->prompt_rows += (uint64_t)counters->last_prompt_rows;
    step_cost_learn(&scheduler->cost, scheduler->n_rows, (double)counters->last_step_us / 1000);
    measure_prompts(scheduler);
    for (int i = 0; i < scheduler->n_runs; i++)
        deliver(scheduler, &scheduler->runs[i]);
    return true;
}

/* --- looking in --------------------------------------------------------------------------------------------------- */

int scheduler_running(const struct scheduler *scheduler)
{
    return scheduler->n_running;
}

int scheduler_waiting(const struct scheduler *scheduler)
{
    return scheduler->n_waiting;
}

struct session_table *scheduler_sessions(struct scheduler *scheduler)
{
    return scheduler->sessions;
}

struct snapshots *scheduler_snapshots(struct scheduler *scheduler)
{
    return scheduler->snapshots;
}

struct kv_pool *scheduler_pool(struct scheduler *scheduler)
{
    return scheduler->pool;
}

struct kv_pool_counters scheduler_kv_counters(const struct scheduler *scheduler)
{
    return kv_pool_count(scheduler->pool);
}

const struct scheduler_counters *scheduler_count(const struct scheduler *scheduler)
{
    return &scheduler->counters;
}

bool scheduler_is_consistent(const struct scheduler *scheduler)
{
    int n_moved_out = 0;
    if (!scheduler_queue_is_consistent(scheduler, &n_moved_out))
        return false;
    for (int i = 0; i < scheduler->n_running; i++) {
        const struct sequence *s = scheduler->running[i];
        if (s->state != SEQUENCE_RUNNING || s->session->state != SESSION_BUSY ||
            (i > 0 && scheduler->running[i - 1]->order >= s->order))
            return false;
    }
    if (scheduler->snapshots != NULL && !snapshots_is_consistent(scheduler->snapshots, 0))
        return false;
    return scheduler->n_running <= scheduler->options.parallel &&
           session_count(scheduler->sessions, SESSION_BUSY) == scheduler->n_running + n_moved_out &&
           session_table_is_consistent(scheduler->sessions);
}
