/* The engine thread: takes generations from the loop thread, runs steps through the executor, sends events back.
 * The two threads share nothing but queues (a mutexed list and one wakeup each way), two wishes per generation (cancel,
 * pause) and copies of counters. */
#ifndef DAEMON_ENGINE_H
#define DAEMON_ENGINE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/generation.h"
#include "daemon/response_record.h"
#include "npu/error.h"

struct executor;
struct tokenizer;
struct engine;
struct engine_metrics;
struct log;
struct session_transfer;

struct engine_options {
    int32_t context; /* positions per session */
    int parallel; /* generations that run at once; more wait */
    int step_target_ms; /* while anybody decodes */
    int queue; /* requests that may wait, of any number of generations; more end with FAILURE_QUEUE_FULL; 0: any number */
    /* Where sessions survive eviction and restart; made if it is not there, and used by one engine at a time. NULL: nothing
     * is written or read. Only read by engine_create. */
    const char *state_dir;
    uint64_t state_max_bytes; /* of its files; the oldest sessions go first */
    int checkpoint_interval_s; /* idle sessions that changed are written this often; 0: at eviction and at the end only */
    const struct log *log; /* for what happens to the state folder; borrowed; NULL: silent */
};

/* Borrows executor and tokenizer (used only by the engine thread from now on; the tokenizer is immutable and shared).
 * Events are delivered on loop. Starts the thread. NPU_ERROR_SYSTEM or _INPUT when the state folder cannot be used at all;
 * damaged files in it are no error: one log line each, and what they held is computed again. */
enum npu_status engine_create(struct engine **ret_engine, const struct engine_options *options,
                              struct executor *executor, const struct tokenizer *tokenizer, uv_loop_t *loop,
                              struct npu_error *error);

/* Loop thread. The generation stays the caller's, but may not be touched until its finished event.
 * A prompt of more than context tokens must have been refused before; an engine that is stopping finishes it as cancelled. */
void engine_submit(struct engine *engine, struct generation *generation);

/* Loop thread. Idempotent; the finished event still comes (FINISH_CANCELLED unless it was ending anyway). */
void engine_cancel(struct engine *engine, struct generation *generation);

/* Loop thread. A paused generation gets no rows, and so no events but its end; it keeps its place. */
void engine_pause(struct engine *engine, struct generation *generation, bool paused);

/* Any thread: microseconds (uv_hrtime / 1000) at which the engine thread last made progress or found nothing to do;
 * the watchdog is fed only while it advances. */
uint64_t engine_heartbeat_us(const struct engine *engine);

/* Any thread: copies, as of the last step. */
struct engine_stats {
    int running, waiting;
    int32_t kv_blocks, kv_blocks_used;
};
void engine_stats_get(struct engine *engine, struct engine_stats *stats);
void engine_metrics_get(struct engine *engine, struct engine_metrics *metrics);

/* Loop thread. Cancels what is left, saves the sessions that are kept in the state folder (which may take seconds), joins the thread, and calls on_closed once the uv handle is closed; the engine is
 * freed after that. Events that are still to come are delivered before on_closed. */
void engine_close(struct engine *engine, void (*on_closed)(void *context), void *context);

/* --- sessions, by request ----------------------------------------------------------------------------------------- */

enum engine_verb {
    ENGINE_LIST_SESSIONS, /* one, if session is given; else all */
    ENGINE_FORK_SESSION, /* the first n_tokens tokens (0: all) become another session, named key; the answer describes it */
    ENGINE_TRUNCATE_SESSION, /* to n_tokens */
    ENGINE_PIN_SESSION,
    ENGINE_UNPIN_SESSION,
    ENGINE_DELETE_SESSION, /* from memory and from the state folder */
    ENGINE_SAVE_SESSION, /* to the state folder, whatever its history; the answer comes when it is safe on disk */
    ENGINE_EXPORT_SESSION, /* its bytes come through on_piece, then the answer; works beside a generation, too */
    ENGINE_IMPORT_SESSION, /* data becomes a new session, named key or else as it was; the answer describes it: n_resident <
                              n_tokens says that the rest (other numerics, no room) is computed when it is needed */
    /* Stored responses in the state folder. */
    ENGINE_PUT_RESPONSE, /* data; the answer comes before it is safe on disk */
    ENGINE_READ_RESPONSE, /* data comes with the answer */
    ENGINE_DELETE_RESPONSE,
};

enum engine_answer {
    ENGINE_ANSWER_OK,
    ENGINE_ANSWER_UNKNOWN, /* no such session or response */
    ENGINE_ANSWER_BUSY, /* a generation is working in it */
    ENGINE_ANSWER_REFUSED, /* the message says what would be right */
    ENGINE_ANSWER_NOT_STORED, /* the disk has failed or is full, or the state folder has no room */
    ENGINE_ANSWER_FAILED, /* memory, the disk, an export that was given up, or the engine is stopping */
};

enum {
    SESSION_ID_BYTES = 17, /* 16 hexadecimal digits and NUL */
};

void session_id_format(char text[SESSION_ID_BYTES], uint64_t id);

struct session_description {
    char id[SESSION_ID_BYTES];
    char *key; /* or NULL; owned by the request */
    bool busy, resident, pinned; /* resident: holds KV blocks */
    bool imported; /* it works with K/V from an import */
    bool on_disk; /* the state folder has it, perhaps as it was some turns ago */
    int32_t n_tokens, n_resident;
    int32_t blocks_own, blocks_shared;
    uint64_t bytes; /* of its blocks; shared ones count whole */
    uint32_t turns;
    int64_t created_s, used_s; /* Unix time */
};

/* Allocated by the caller with engine_request_create; belongs to the engine from engine_ask to on_done, then to the caller
 * again, who ends it with engine_request_destroy. */
struct engine_request {
    enum engine_verb verb;
    char session[SESSION_ID_BYTES]; /* empty: see the verb */
    int32_t n_tokens;
    char *key; /* owned, or NULL */
    void (*on_done)(struct engine_request *request, void *context); /* loop thread */
    void *context;
    struct response_id response; /* of the verbs about responses */
    /* ENGINE_IMPORT_SESSION: the bytes of an export; of responses, a record; malloc'ed, owned. */
    void *data;
    size_t data_length;
    /* ENGINE_EXPORT_SESSION, loop thread: the next bytes, valid until engine_export_next or on_done. About a KV block each;
     * together they are the file. */
    void (*on_piece)(struct engine_request *request, const void *bytes, size_t length, void *context);

    /* The answer. Every verb about sessions but ENGINE_DELETE_SESSION describes the session as it is then. */
    enum engine_answer answer;
    char message[512];
    struct session_description *sessions; /* owned */
    int n_sessions;

    struct engine_request *next; /* the engine's */
    struct session_transfer *transfer; /* the engine's */
};

struct engine_request *engine_request_create(enum engine_verb verb); /* NULL: no memory */
void engine_request_destroy(struct engine_request *request); /* NULL is fine */

/* Loop thread. on_done is called exactly once, later. */
void engine_ask(struct engine *engine, struct engine_request *request);

/* Loop thread, once after each on_piece, now or later: the reader has taken it. go_on false: it wants no more; on_done still
 * comes, with ENGINE_ANSWER_FAILED. An engine that is closing does not wait for it: on_done comes in any case. */
void engine_export_next(struct engine *engine, struct engine_request *request, bool go_on);

#endif
