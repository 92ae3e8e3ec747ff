/* What engine.c (life and messages), engine_work.c (generations in the engine thread) and engine_sessions.c (requests about
 * sessions) share. Private to them. */
#ifndef DAEMON_ENGINE_INTERNAL_H
#define DAEMON_ENGINE_INTERNAL_H

#include <stdatomic.h>

#include "daemon/engine.h"
#include "daemon/engine_metrics.h"
#include "daemon/generation_state.h"
#include "daemon/mailbox.h"
#include "daemon/scheduler.h"

struct sampler_scratch;

struct engine {
    struct engine_options options;
    struct executor *executor;
    const struct tokenizer *tokenizer;
    uv_thread_t thread;
    uv_async_t async; /* wakes the loop */
    void (*on_closed)(void *context);
    void *closed_context;
    bool closing; /* loop thread */

    /* Between the threads. */
    struct mailbox submissions; /* generation_state; the engine sleeps on this one */
    struct mailbox requests; /* engine_request */
    struct mailbox events; /* generation_event, to the loop */
    struct mailbox answers; /* engine_request, to the loop */
    atomic_bool stop_wanted;
    atomic_uint_least64_t heartbeat_us;
    uv_mutex_t metrics_mutex;
    struct engine_metrics shared_metrics;

    /* The engine thread's. */
    struct scheduler *scheduler;
    struct sampler_scratch *scratch;
    int32_t *end_tokens; /* those that end a generation */
    int n_end_tokens;
    struct generation_state *first_active, **last_active; /* submitted and not finished */
    bool last_was_refused; /* the request of the last submission found the queue full */
    double service_ms; /* moving average: how long a generation runs; 0: none has yet */
    struct engine_metrics metrics;
};

uint64_t engine_now_us(void *context);

/* Engine thread. */
struct scheduler_callbacks engine_callbacks(struct engine *engine);
void engine_take_submissions(struct engine *engine);
void engine_heed_wishes(struct engine *engine); /* cancel, pause, deadlines */
bool engine_post_events(struct engine *engine); /* false: nothing to post */
void engine_cancel_all(struct engine *engine);
void engine_answer_requests(struct engine *engine, bool stopping);

#endif
