/* Filling a step with rows. */
#include "daemon/scheduler_state.h"

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static int32_t remaining(const struct sequence *sequence)
{
    return sequence->session->n_tokens - sequence->session->n_resident;
}

/* Running, unpaused sequences that decode (one token to compute) or that read a prompt (more), those first that have
 * waited longest for rows. Returns how many. */
static int collect(struct scheduler *scheduler, bool decoding)
{
    int n = 0;
    for (int i = 0; i < scheduler->n_running; i++) {
        struct sequence *sequence = scheduler->running[i];
        if (sequence->paused || sequence->restore != NULL || (remaining(sequence) == 1) != decoding)
            continue;
        int at = n++;
        for (; at > 0 && scheduler->candidates[at - 1]->served_step > sequence->served_step; at--)
            scheduler->candidates[at] = scheduler->candidates[at - 1];
        scheduler->candidates[at] = sequence; /* running is by age, so equals stay by age */
    }
    return n;
}

/* The pool is exhausted: the youngest sequence goes. The plan has to be made anew. */
static void make_room(struct scheduler *scheduler, struct sequence *sequence)
{
    if (scheduler->n_running > 1) {
        scheduler_move_out(scheduler, scheduler->running[scheduler->n_running - 1]);
        return;
    }
    struct kv_pool_counters kv = kv_pool_count(scheduler->pool);
    struct npu_error error;
    npu_error_set(
        &error, NPU_ERROR_MEMORY,
        "the generation has grown to %d tokens and needs more than its %d KV blocks; the pool has %d, of which "
        "pinned sessions hold %d",
        sequence->session->n_tokens, sequence->session->n_blocks, kv.total, kv.pinned);
    scheduler_fail(scheduler, sequence, &error);
}

static enum row_return row_returns(const struct sequence *sequence, int32_t position)
{
    if (position == sequence->session->n_tokens - 1)
        return sequence->returns;
    if (position >= sequence->n_delivered && position < sequence->n_prompt - 1)
        return sequence->prompt_returns;
    return ROW_RETURN_NOTHING;
}

/* Up to n rows of a sequence, fewer where blocks or returning rows run out. Returns how many. */
static int add_run(struct scheduler *scheduler, struct sequence *sequence, int n)
{
    struct session *session = sequence->session;
    int32_t first = session->n_resident;
    int32_t end = session_reserve(scheduler->sessions, session, first + n);
    int first_row = scheduler->n_rows;
    for (int32_t position = first; position < end; position++) {
        enum row_return returns = row_returns(sequence, position);
        if (returns != ROW_RETURN_NOTHING && scheduler->n_returning == scheduler->executor->max_returning)
            break;
        scheduler->n_returning += returns != ROW_RETURN_NOTHING;
        scheduler->rows[scheduler->n_rows++] = (struct step_row){
            .token = session->tokens[position],
            .position = position,
            .visible_end = position + 1,
            .table = (uint16_t)scheduler->n_runs,
            .returns = (uint8_t)returns,
            .top_k = returns == ROW_RETURN_TOP_K ? sequence->top_k : 0,
        };
    }
    int added = scheduler->n_rows - first_row;
    if (added > 0) {
        scheduler->tables[scheduler->n_runs] = (struct block_table){session->blocks, session->n_blocks};
        scheduler->runs[scheduler->n_runs++] = (struct planned_run){sequence, first_row, added};
    }
    return added;
}

static bool has_block(const struct sequence *sequence)
{
    return sequence->session->n_blocks * KV_BLOCK_TOKENS > sequence->session->n_resident;
}

/* False: the plan has to be made anew. */
static bool plan_decoding(struct scheduler *scheduler, bool prompts_wait)
{
    const struct executor *executor = scheduler->executor;
    int limit = smaller(executor->max_rows, smaller(executor->max_tables, executor->max_returning));
    if (prompts_wait) /* whatever the limits: prompts must move */
        limit = smaller(executor->max_rows - smaller(SCHEDULER_MIN_PROMPT_ROWS, executor->max_rows / 2),
                        smaller(executor->max_tables, executor->max_returning) - 1);
    int n = smaller(collect(scheduler, true), limit);
    for (int i = 0; i < n; i++) {
        struct sequence *sequence = scheduler->candidates[i];
        if (add_run(scheduler, sequence, 1) == 0) {
            make_room(scheduler, sequence);
            return false;
        }
    }
    scheduler->n_decode_rows = scheduler->n_rows;
    return true;
}

/* A prompt whose next block another one is computing waits for it: see session_awaits. Of two at the same place the one
 * that comes first computes. Those left out are waited for by nobody, so there is no circle. */
static int leave_out_awaiting(struct scheduler *scheduler, int n)
{
    struct sequence **candidates = scheduler->candidates;
    int kept = 0;
    for (int i = 0; i < n; i++) {
        const struct session *session = candidates[i]->session;
        int32_t max_cached = scheduler_max_cached(candidates[i]);
        bool awaits = false;
        for (int j = 0; j < kept && !awaits; j++)
            awaits = session_awaits(session, candidates[j]->session, max_cached);
        /* One inside the block is ahead, whatever its place in the order. */
        for (int j = i + 1; j < n && !awaits; j++)
            awaits = candidates[j]->session->n_resident > session->n_resident &&
                     session_awaits(session, candidates[j]->session, max_cached);
        if (!awaits)
            candidates[kept++] = candidates[i];
    }
    return kept;
}

/* Prompt rows that fit beside the decoding ones. */
static int prompt_rows(const struct scheduler *scheduler)
{
    int decoding = scheduler->n_decode_rows;
    int max_rows = scheduler->executor->max_rows;
    double target = decoding > 0 ? scheduler->options.step_target_ms : SCHEDULER_IDLE_TARGET_MS;
    /* Where a step without prompts already takes that long (a large model, a machine that is taken), few rows would cost
     * nearly as much as many: up to two and a half times such a step then, so that the next bucket, which is taken to cost
     * twice as much until it was tried, is tried. */
    double least = scheduler->cost.measured_ms[step_cost_bucket(decoding > 0 ? decoding : 1)];
    if (target < 2.5 * least)
        target = 2.5 * least;
    int total = step_cost_rows_within(&scheduler->cost, target, max_rows);
    if (total < decoding + SCHEDULER_MIN_PROMPT_ROWS) {
        /* A bucket costs the same full or not. */
        total = step_cost_bucket_rows(step_cost_bucket(decoding + SCHEDULER_MIN_PROMPT_ROWS));
    }
    return smaller(total, max_rows) - decoding;
}

/* Equal shares of at least SCHEDULER_MIN_PROMPT_ROWS; what short prompts leave goes to the others in order. */
static void share_rows(struct scheduler *scheduler, int n, int rows)
{
    for (int i = 0; i < n; i++) {
        int fair = (rows + n - i - 1) / (n - i);
        int share = fair > SCHEDULER_MIN_PROMPT_ROWS ? fair : SCHEDULER_MIN_PROMPT_ROWS;
        share = smaller(smaller(share, rows), remaining(scheduler->candidates[i]));
        scheduler->shares[i] = share;
        rows -= share;
    }
    for (int i = 0; i < n && rows > 0; i++) {
        int more = smaller(rows, remaining(scheduler->candidates[i]) - scheduler->shares[i]);
        scheduler->shares[i] += more;
        rows -= more;
    }
}

static bool plan_prompts(struct scheduler *scheduler)
{
    int n = collect(scheduler, false);
    for (int i = 0; i < n; i++) {
        struct sequence *sequence = scheduler->candidates[i];
        session_skip_ahead(scheduler->sessions, sequence->session, scheduler_max_cached(sequence));
    }
    n = smaller(leave_out_awaiting(scheduler, n), scheduler->executor->max_tables - scheduler->n_runs);
    if (n == 0)
        return true;
    share_rows(scheduler, n, prompt_rows(scheduler));
    for (int i = 0; i < n; i++) {
        struct sequence *sequence = scheduler->candidates[i];
        if (scheduler->shares[i] == 0 || add_run(scheduler, sequence, scheduler->shares[i]) > 0)
            continue;
        if (!has_block(sequence)) {
            make_room(scheduler, sequence);
            return false;
        }
    }
    return true;
}

bool scheduler_plan(struct scheduler *scheduler)
{
    do {
        scheduler->n_rows = scheduler->n_runs = scheduler->n_returning = scheduler->n_decode_rows = 0;
    } while (!plan_decoding(scheduler, collect(scheduler, false) > 0) || !plan_prompts(scheduler));
    return scheduler->n_rows > 0;
}
