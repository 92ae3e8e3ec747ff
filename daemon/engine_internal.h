/* What engine.c (life and messages), engine_work.c (generations in the engine thread), engine_queue.c (which may wait) and engine_sessions.c (requests about
 * sessions) share. Private to them. */
#ifndef DAEMON_ENGINE_INTERNAL_H
#define DAEMON_ENGINE_INTERNAL_H

#include <stdatomic.h>

#include "daemon/engine.h"
#include "daemon/engine_metrics.h"
#include "daemon/generation_state.h"
#include "daemon/mailbox.h"
#include "daemon/scheduler.h"
#include "daemon/snapshot_transfer.h"

struct mask_worker;
struct sampler_scratch;

/* An export or import, or a save that is waited for. */
struct session_transfer {
    struct engine *engine;
    struct engine_request *request;
    struct session_export *out;
    struct session_import *in;
    bool waits; /* an export: for the disk */
    const void *piece; /* an export: not yet taken by the reader; NULL: the request is done when it is delivered */
    size_t piece_bytes;
    bool at_reader; /* on_piece was called, and engine_export_next was not; the loop thread's */
    bool go_on; /* what engine_export_next said */
    struct session_transfer *previous, *next; /* in the engine's list */
};

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
    struct mask_worker *masks; /* made for the first generation that has a constraint */
    int32_t *end_tokens; /* those that end a generation */
    int n_end_tokens;
    struct generation_state *first_active, **last_active; /* submitted and not finished */
    uint64_t n_requests; /* submitted so far: the last one's number */
    bool last_was_refused; /* the request of the last submission found the queue full */
    uint32_t last_retry_after_ms; /* what it was told */
    double service_ms; /* moving average: how long a generation runs; 0: none has yet */
    double *places_ms; /* options.parallel entries, for the estimate of a wait */
    struct engine_metrics metrics;
    struct state_store *store; /* or NULL */
    struct state_identity identity;
    int64_t unix_offset_us; /* microseconds since 1970 less engine_now_us, as both were at start */
    uint64_t checkpoint_us; /* when the last one began */
    struct session_transfer *first_transfer;
};

/* A clock that has run for ages when the machine starts: sessions from before have a time on it. */
#define ENGINE_CLOCK_BASE_US (UINT64_C(1) << 52)

uint64_t engine_now_us(void *context);

/* Opens the state folder, if there is one. */
enum npu_status engine_open_state(struct engine *engine, struct npu_error *error);

/* Engine thread. */
void engine_beat(struct engine *engine); /* the watchdog's sign of life */
struct scheduler_callbacks engine_callbacks(struct engine *engine);
void engine_take_submissions(struct engine *engine);
/* Fails the generation if it may not even wait. It is not submitted yet. */
bool engine_may_queue(struct engine *engine, struct generation_state *state);
/* When one like it would start if it came now, within what Retry-After may say. */
uint32_t engine_retry_after_ms(const struct engine *engine, const struct generation_state *state);
void engine_heed_wishes(struct engine *engine); /* cancel, pause, deadlines */
bool engine_post_events(struct engine *engine); /* false: nothing to post */
void engine_cancel_all(struct engine *engine);
void engine_answer_requests(struct engine *engine, bool stopping);
bool engine_describe(struct engine *engine, struct engine_request *request, const struct session *session);
void engine_answer(struct engine_request *request, enum engine_answer kind, const char *message);
void engine_post_answer(struct engine *engine, struct engine_request *request);

/* Saves what has changed, when it is time. */
void engine_checkpoint(struct engine *engine);
/* The end: saves what has changed, gives up what takes too long, and lets the disk come to rest. */
void engine_save_all(struct engine *engine);
void engine_on_restored(void *context, struct sequence *sequence);
void engine_share_state_metrics(struct engine *engine);

/* A request about stored responses, answered now or later. */
void engine_answer_about_response(struct engine *engine, struct engine_request *request);

/* Takes a request to save, export or import (session: what it is about, or NULL). It is answered now or later. */
void engine_begin_transfer(struct engine *engine, struct engine_request *request, struct session *session);
/* A reader has answered. */
void engine_go_on_with_export(struct engine_request *request, bool stopping);
/* True: there is more to do at once. */
bool engine_work_on_transfers(struct engine *engine);
void engine_abort_transfers(struct engine *engine); /* the end */
/* Loop thread, after the end of the engine's: exports that readers have a piece of. */
void engine_abandon_exports(struct engine *engine);
void session_transfer_destroy(struct session_transfer *transfer); /* NULL is fine */

#endif
