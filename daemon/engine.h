/* The engine thread: takes generations from the loop thread, runs steps through the executor, sends events back.
 * The two threads share nothing but two queues (a mutexed list and one uv_async each way wakes the other side). */
#ifndef DAEMON_ENGINE_H
#define DAEMON_ENGINE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/generation.h"
#include "npu/error.h"

struct executor;
struct tokenizer;
struct engine;

struct engine_options {
    int32_t context;    /* positions per session */
    int parallel;       /* generations that run at once; more wait */
    int step_target_ms; /* while anybody decodes */
};

/* Borrows executor and tokenizer (used only by the engine thread from now on; the tokenizer is immutable and shared).
 * Events are delivered on loop. Starts the thread. */
enum npu_status engine_create(struct engine **ret_engine, const struct engine_options *options, struct executor *executor,
                              const struct tokenizer *tokenizer, uv_loop_t *loop, struct npu_error *error);

/* Loop thread. The generation stays the caller's, but may not be touched until its finished event.
 * A prompt of more than context tokens must have been refused before; an engine that is stopping finishes it as cancelled. */
void engine_submit(struct engine *engine, struct generation *generation);

/* Loop thread. Idempotent; the finished event still comes (FINISH_CANCELLED unless it was ending anyway). */
void engine_cancel(struct engine *engine, struct generation *generation);

/* Any thread: microseconds (uv_hrtime / 1000) at which the engine thread last made progress or found nothing to do;
 * the watchdog is fed only while it advances. */
uint64_t engine_heartbeat_us(const struct engine *engine);

struct engine_stats {
    int running, waiting;
    int32_t kv_blocks, kv_blocks_used;
};
void engine_stats_get(struct engine *engine, struct engine_stats *stats);

/* Loop thread. Cancels what is left, joins the thread, and calls on_closed once the uv handle is closed; the engine is
 * freed after that. */
void engine_close(struct engine *engine, void (*on_closed)(void *context), void *context);

#endif
