/* Who computes when. The scheduler queues sequences, admits them into sessions while there is memory, and fills each
 * step. A place that becomes free goes to the highest priority; there to the request that runs the fewest sequences, so
 * that one of many does not keep others out; there to the one that has not had a turn for longest. A step has one row
 * for every sequence that decodes, then rows of waiting prompts, round robin, as many as keep it under a time target.
 * When the KV pool runs out the youngest sequence is moved out: its blocks are given back, its tokens are kept, and
 * later it goes on with the same results.
 *
 * Pure C: the world is an executor, a clock and callbacks. Owns the block pool and the sessions. Thread: one (the
 * engine's). */
#ifndef DAEMON_SCHEDULER_H
#define DAEMON_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/session.h"
#include "npu/error.h"
#include "npu/executor.h"

struct restore;
struct scheduler;
struct snapshots;
struct state_store;

enum sequence_state {
    SEQUENCE_NEW,
    SEQUENCE_WAITING, /* in the queue, nothing done yet */
    SEQUENCE_MOVED_OUT, /* in the queue again, its tokens known */
    SEQUENCE_RUNNING,
    SEQUENCE_ENDED, /* the scheduler has let go of it */
};

enum {
    SEQUENCE_END = -1, /* what on_row answers instead of a next token */
};

/* One generation as the scheduler sees it. The owner allocates it, zeroed, and keeps it until it has ended. */
struct sequence {
    /* Set by the owner before scheduler_submit. */
    const int32_t *prompt; /* n_prompt tokens, at least 1 */
    int32_t n_prompt;
    const char *key; /* the session's, or NULL */
    bool keeps_session; /* its session is worth saving */
    int priority; /* larger ones leave the queue first */
    uint64_t
        request; /* those of one request have the same number and priority and are submitted in a row; 0: it is alone */
    int request_size; /* sequences of its request; 0 counts as 1 */
    uint8_t returns; /* enum row_return: how the row of the last known token comes back; may change in on_row */
    uint8_t top_k; /* for ROW_RETURN_TOP_K */
    uint8_t prompt_returns; /* the same for the prompt's rows before the last; unless ROW_RETURN_NOTHING, nothing of the
                               prompt comes from the cache */
    bool transient; /* it leaves no session behind and nothing of it comes from the cache */
    void *owner;

    /* Read-only for the owner. */
    enum sequence_state state;
    bool paused;
    struct session *session; /* once started */
    struct cache_report cache; /* what was cached; once started, and complete when nothing is restored any more */
    struct restore *restore; /* while K/V is read from disk; it gets no rows then */
    uint64_t submitted_us, started_us;
    uint32_t times_moved_out;

    /* The scheduler's. */
    uint64_t order; /* by submission; once started, by start */
    uint64_t turn; /* of the first of a request in the queue: when the request came, or last got or lost a place */
    uint64_t served_step; /* the last step that had prompt rows of it */
    int32_t n_delivered; /* prompt positions whose results the owner has */
    struct scheduler *scheduler;
    uint64_t restore_began_us;
    struct sequence *next; /* in the queue */
};

/* Callbacks run inside scheduler_step. They may not call the scheduler. */
struct scheduler_callbacks {
    void *context;
    uint64_t (*now_us)(void *context);
    /* The sequence leaves the queue for the first time. */
    void (*on_start)(void *context, struct sequence *sequence);
    /* The result of a row. For the last known token the answer is the token that follows, or SEQUENCE_END; the answer for
     * earlier positions (prompt_returns) is ignored. */
    int32_t (*on_row)(void *context, struct sequence *sequence, int32_t position, const struct row_result *result);
    /* The sequence has ended because the device, the memory or the pool failed it. */
    void (*on_failed)(void *context, struct sequence *sequence, const struct npu_error *error);
    /* Reading from disk has ended, the sequence's cache report is complete. May be NULL. */
    void (*on_restored)(void *context, struct sequence *sequence);
};

struct scheduler_options {
    int parallel; /* sequences that run at once */
    int step_target_ms; /* while anybody decodes */
    int32_t max_sessions; /* remembered in all states */
    uint64_t session_id_seed;
    struct state_store *store; /* where sessions are kept over evictions and restarts; borrowed; NULL: nowhere */
    int64_t unix_offset_us; /* microseconds since 1970 less now_us */
};

enum {
    SCHEDULER_IDLE_TARGET_MS = 250, /* step target while nobody decodes */
    SCHEDULER_MIN_PROMPT_ROWS = 8, /* in every step while a prompt waits */
    /* With so many places, requests of more sequences than places leave one to others: they take turns anyway, and whoever
     * comes while their sequences are long would wait for one to end. */
    SCHEDULER_SHARED_PLACES = 4,
};

/* Borrows the executor, which must allow two rows, tables and returning rows a step. */
enum npu_status scheduler_create(struct scheduler **ret_scheduler, const struct scheduler_options *options,
                                 struct executor *executor, const struct scheduler_callbacks *callbacks,
                                 struct npu_error *error);
/* No sequence may be left. NULL is fine. */
void scheduler_destroy(struct scheduler *scheduler);

/* NPU_ERROR_INPUT: the prompt can never fit the pool; the message has both numbers. */
enum npu_status scheduler_submit(struct scheduler *scheduler, struct sequence *sequence, struct npu_error *error);

/* Ends a sequence in any state between two steps, without a callback. What was computed stays as a session. */
void scheduler_cancel(struct scheduler *scheduler, struct sequence *sequence);

/* A paused sequence keeps its place and gets no rows. */
void scheduler_set_paused(struct scheduler *scheduler, struct sequence *sequence, bool paused);

/* Moves what is being saved and restored on, admits what can be admitted and runs one step. False: there was nothing to run,
 * and there will not be before a submission, a cancellation, a resumption, or progress of the store. */
bool scheduler_step(struct scheduler *scheduler);

int scheduler_running(const struct scheduler *scheduler);
int scheduler_waiting(const struct scheduler *scheduler);

/* The queue, by request. */
struct scheduler_queue {
    int requests; /* that have sequences in it; moved-out ones do not count */
    int staying; /* of these, that still will when the free places are taken, if there is memory */
    int spare_places; /* that nobody in the queue will take */
};
struct scheduler_queue scheduler_queue(const struct scheduler *scheduler);
/* Sequences in the queue that would start before this one, which is not in it, if it came now; its request and priority
 * count. */
int scheduler_before(const struct scheduler *scheduler, const struct sequence *newcomer);
/* Free places that it might take. */
int scheduler_free_places(const struct scheduler *scheduler, const struct sequence *newcomer);
struct session_table *scheduler_sessions(struct scheduler *scheduler);
struct snapshots *scheduler_snapshots(struct scheduler *scheduler); /* NULL: there is no store */
struct kv_pool *scheduler_pool(struct scheduler *scheduler);
/* Blocks that a newcomer may take without pushing a running sequence out. */
int32_t scheduler_spare_blocks(const struct scheduler *scheduler);
struct kv_pool_counters scheduler_kv_counters(const struct scheduler *scheduler);

/* The last step, and sums over all of them. */
struct scheduler_counters {
    int last_rows, last_decode_rows, last_prompt_rows;
    uint64_t last_step_us;
    uint64_t steps, failed_steps; /* a step that worked when run again counts in both */
    uint64_t decode_rows, prompt_rows;
    uint64_t moved_out; /* sequences */
};
const struct scheduler_counters *scheduler_count(const struct scheduler *scheduler);

/* For tests: lists, sessions and pool agree. */
bool scheduler_is_consistent(const struct scheduler *scheduler);

#endif
