/* The engine's life, and the messages between the threads. */
#include "daemon/engine_internal.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/mask_worker.h"
#include "daemon/sampler.h"
#include "daemon/tokenizer.h"
#include "npu/executor.h"

enum {
    MAX_SESSIONS = 1024, /* remembered, in all states */
    HEARTBEAT_NS = 500000000, /* while there is nothing to do */
};

/* --- the engine thread -------------------------------------------------------------------------------------------- */

void engine_beat(struct engine *engine)
{
    atomic_store(&engine->heartbeat_us, engine_now_us(engine) - ENGINE_CLOCK_BASE_US);
}

static void share_metrics(struct engine *engine)
{
    struct engine_metrics *metrics = &engine->metrics;
    const struct scheduler_counters *counters = scheduler_count(engine->scheduler);
    struct session_table *sessions = scheduler_sessions(engine->scheduler);
    metrics->steps = counters->steps;
    metrics->failed_steps = counters->failed_steps;
    metrics->decode_rows = counters->decode_rows;
    metrics->prompt_rows = counters->prompt_rows;
    metrics->moved_out = counters->moved_out;
    metrics->kv = scheduler_kv_counters(engine->scheduler);
    metrics->running = scheduler_running(engine->scheduler);
    metrics->waiting = scheduler_waiting(engine->scheduler);
    metrics->waiting_requests = scheduler_queue(engine->scheduler).requests;
    metrics->paused = 0;
    for (const struct generation_state *s = engine->first_active; s != NULL; s = s->next)
        metrics->paused += s->sequence.paused;
    metrics->sessions_busy = session_count(sessions, SESSION_BUSY);
    metrics->sessions_idle = session_count(sessions, SESSION_IDLE);
    metrics->sessions_evicted = session_count(sessions, SESSION_EVICTED);
    metrics->evictions = session_evictions(sessions);
    engine_share_state_metrics(engine);
    uv_mutex_lock(&engine->metrics_mutex);
    engine->shared_metrics = *metrics;
    uv_mutex_unlock(&engine->metrics_mutex);
}

static void post_events(struct engine *engine)
{
    if (engine_post_events(engine))
        uv_async_send(&engine->async);
}

static void run(void *argument)
{
    struct engine *engine = argument;
    while (!atomic_load(&engine->stop_wanted)) {
        engine_beat(engine);
        engine_take_submissions(engine);
        engine_answer_requests(engine, false);
        engine_checkpoint(engine);
        engine_heed_wishes(engine);
        post_events(engine); /* those that ended without a step; their memory is free for this one */
        bool stepped = scheduler_step(engine->scheduler);
        if (stepped) {
            const struct scheduler_counters *counters = scheduler_count(engine->scheduler);
            histogram_add(&engine->metrics.step[step_cost_bucket(counters->last_rows)],
                          (double)counters->last_step_us / 1e6);
        }
        post_events(engine);
        bool more = engine_work_on_transfers(engine);
        share_metrics(engine);
        if (!stepped && !more)
            mailbox_wait(&engine->submissions, HEARTBEAT_NS);
    }
    engine_take_submissions(engine);
    engine_cancel_all(engine);
    engine_post_events(engine); /* engine_close delivers what is posted from here on */
    engine_answer_requests(engine, true);
    engine_abort_transfers(engine);
    engine_save_all(engine);
    share_metrics(engine);
}

/* --- the loop thread ---------------------------------------------------------------------------------------------- */

static void deliver(struct engine *engine)
{
    struct generation_event *next_event, *event = mailbox_take(&engine->events);
    for (; event != NULL; event = next_event) {
        next_event = event->next;
        event->next = NULL;
        event->generation->on_event(event, event->generation->context);
    }
    struct engine_request *next_request, *request = mailbox_take(&engine->answers);
    for (; request != NULL; request = next_request) {
        next_request = request->next;
        request->next = NULL;
        if (request->transfer != NULL && request->transfer->piece != NULL) {
            request->transfer->at_reader = true;
            request->on_piece(request, request->transfer->piece, request->transfer->piece_bytes, request->context);
            continue;
        }
        session_transfer_destroy(request->transfer);
        request->transfer = NULL;
        request->on_done(request, request->context);
    }
}

static void on_async(uv_async_t *async)
{
    deliver(async->data);
}

static enum npu_status find_end_tokens(struct engine *engine, struct npu_error *error)
{
    int32_t n_vocab = tokenizer_n_vocab(engine->tokenizer);
    if (n_vocab > engine->executor->n_vocab)
        n_vocab = engine->executor->n_vocab;
    int capacity = 0;
    for (int32_t token = 0; token < n_vocab; token++)
        capacity += tokenizer_is_end_of_generation(engine->tokenizer, token);
    engine->end_tokens = calloc((size_t)capacity + 1, sizeof *engine->end_tokens);
    if (engine->end_tokens == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the engine");
    for (int32_t token = 0; token < n_vocab; token++)
        if (tokenizer_is_end_of_generation(engine->tokenizer, token))
            engine->end_tokens[engine->n_end_tokens++] = token;
    return NPU_OK;
}

static void free_state(struct engine *engine)
{
    scheduler_destroy(engine->scheduler);
    state_store_close(engine->store);
    engine->scheduler = NULL;
    engine->store = NULL;
}

static void free_engine(struct engine *engine)
{
    free_state(engine);
    sampler_scratch_destroy(engine->scratch);
    mask_worker_destroy(engine->masks);
    free(engine->end_tokens);
    free(engine->places_ms);
    free(engine);
}

static const struct {
    size_t mailbox, link;
} mailboxes[] = {
    {offsetof(struct engine, submissions), offsetof(struct generation_state, next)},
    {offsetof(struct engine, requests), offsetof(struct engine_request, next)},
    {offsetof(struct engine, events), offsetof(struct generation_event, next)},
    {offsetof(struct engine, answers), offsetof(struct engine_request, next)},
};

enum {
    N_MAILBOXES = sizeof mailboxes / sizeof *mailboxes,
};

static void clear_locks(struct engine *engine, int n_mailboxes)
{
    for (int i = 0; i < n_mailboxes; i++)
        mailbox_clear((struct mailbox *)((char *)engine + mailboxes[i].mailbox));
    uv_mutex_destroy(&engine->metrics_mutex);
}

static bool init_locks(struct engine *engine)
{
    if (uv_mutex_init(&engine->metrics_mutex) != 0)
        return false;
    for (int i = 0; i < N_MAILBOXES; i++) {
        if (mailbox_init((struct mailbox *)((char *)engine + mailboxes[i].mailbox), mailboxes[i].link) != 0) {
            clear_locks(engine, i);
            return false;
        }
    }
    return true;
}

static void free_after_close(uv_handle_t *handle)
{
    struct engine *engine = handle->data;
    free_state(engine); /* its worker pokes a mailbox */
    clear_locks(engine, N_MAILBOXES);
    free_engine(engine);
}

static enum npu_status start_thread(struct engine *engine, uv_loop_t *loop, struct npu_error *error)
{
    if (!init_locks(engine)) {
        free_engine(engine);
        return npu_error_set(error, NPU_ERROR_SYSTEM, "the system gives no locks to the engine");
    }
    int status = uv_async_init(loop, &engine->async, on_async);
    if (status != 0) {
        clear_locks(engine, N_MAILBOXES);
        free_engine(engine);
        return npu_error_set(error, NPU_ERROR_SYSTEM, "no wakeup for the engine: %s", uv_strerror(status));
    }
    engine->async.data = engine;
    engine_beat(engine);
    share_metrics(engine);
    status = uv_thread_create(&engine->thread, run, engine);
    if (status == 0)
        return NPU_OK;
    uv_close((uv_handle_t *)&engine->async, free_after_close);
    return npu_error_set(error, NPU_ERROR_SYSTEM, "no thread for the engine: %s", uv_strerror(status));
}

enum npu_status engine_create(struct engine **ret_engine, const struct engine_options *options,
                              struct executor *executor, const struct tokenizer *tokenizer, uv_loop_t *loop,
                              struct npu_error *error)
{
    struct engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the engine");
    engine->options = *options;
    engine->executor = executor;
    engine->tokenizer = tokenizer;
    engine->last_active = &engine->first_active;
    atomic_init(&engine->stop_wanted, false);
    atomic_init(&engine->heartbeat_us, 0);
    int64_t kv_positions = (int64_t)executor->n_blocks * KV_BLOCK_TOKENS;
    if (engine->options.context > executor->max_context)
        engine->options.context = executor->max_context;
    if (engine->options.context > kv_positions)
        engine->options.context = (int32_t)kv_positions;

    struct scheduler_options scheduler = {
        .parallel = options->parallel,
        .step_target_ms = options->step_target_ms,
        .max_sessions = MAX_SESSIONS,
    };
    if (uv_random(NULL, NULL, &scheduler.session_id_seed, sizeof scheduler.session_id_seed, 0, NULL) != 0)
        scheduler.session_id_seed = uv_hrtime();
    struct scheduler_callbacks callbacks = engine_callbacks(engine);
    enum npu_status status = engine_open_state(engine, error);
    scheduler.store = engine->store;
    scheduler.unix_offset_us = engine->unix_offset_us;
    if (status == NPU_OK)
        status = find_end_tokens(engine, error);
    if (status == NPU_OK)
        status = sampler_scratch_create(&engine->scratch, executor->n_vocab, error);
    if (status == NPU_OK)
        status = scheduler_create(&engine->scheduler, &scheduler, executor, &callbacks, error);
    if (status == NPU_OK) {
        engine->places_ms = calloc((size_t)options->parallel, sizeof *engine->places_ms);
        if (engine->places_ms == NULL)
            status = npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the engine");
    }
    if (status != NPU_OK) {
        free_engine(engine);
        return status;
    }
    status = start_thread(engine, loop, error);
    if (status == NPU_OK)
        *ret_engine = engine;
    return status;
}

void engine_submit(struct engine *engine, struct generation *generation)
{
    struct generation_state *state = generation->engine_state;
    if (!engine->closing) {
        mailbox_post(&engine->submissions, state);
        return;
    }
    generation_state_finish(state, FINISH_CANCELLED);
    mailbox_post(&engine->events, generation_state_take_event(state));
}

void engine_cancel(struct engine *engine, struct generation *generation)
{
    struct generation_state *state = generation->engine_state;
    atomic_store_explicit(&state->cancel_wanted, true, memory_order_relaxed);
    mailbox_poke(&engine->submissions);
}

void engine_pause(struct engine *engine, struct generation *generation, bool paused)
{
    struct generation_state *state = generation->engine_state;
    atomic_store_explicit(&state->pause_wanted, paused, memory_order_relaxed);
    mailbox_poke(&engine->submissions);
}

void engine_ask(struct engine *engine, struct engine_request *request)
{
    if (!engine->closing) {
        mailbox_post(&engine->requests, request);
        mailbox_poke(&engine->submissions);
        return;
    }
    request->answer = ENGINE_ANSWER_FAILED;
    strcpy(request->message, "the engine is stopping");
    mailbox_post(&engine->answers, request);
}

void engine_export_next(struct engine *engine, struct engine_request *request, bool go_on)
{
    struct session_transfer *transfer = request->transfer;
    if (engine->closing) /* on_done is on its way */
        return;
    transfer->at_reader = false;
    transfer->go_on = go_on;
    mailbox_post(&engine->requests, request);
    mailbox_poke(&engine->submissions);
}

uint64_t engine_heartbeat_us(const struct engine *engine)
{
    return atomic_load(&engine->heartbeat_us);
}

void engine_stats_get(struct engine *engine, struct engine_stats *stats)
{
    struct engine_metrics metrics;
    engine_metrics_get(engine, &metrics);
    *stats = (struct engine_stats){metrics.running, metrics.waiting, metrics.kv.total, metrics.kv.used};
}

void engine_metrics_get(struct engine *engine, struct engine_metrics *metrics)
{
    uv_mutex_lock(&engine->metrics_mutex);
    *metrics = engine->shared_metrics;
    uv_mutex_unlock(&engine->metrics_mutex);
}

static void on_async_closed(uv_handle_t *handle)
{
    struct engine *engine = handle->data;
    deliver(engine);
    void (*on_closed)(void *) = engine->on_closed;
    void *context = engine->closed_context;
    free_after_close(handle);
    on_closed(context);
}

void engine_close(struct engine *engine, void (*on_closed)(void *context), void *context)
{
    engine->closing = true;
    engine->on_closed = on_closed;
    engine->closed_context = context;
    atomic_store(&engine->stop_wanted, true);
    mailbox_poke(&engine->submissions);
    uv_thread_join(&engine->thread);
    engine_abandon_exports(engine);
    uv_close((uv_handle_t *)&engine->async, on_async_closed);
}
