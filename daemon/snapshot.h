/* Sessions to disk and back. Policy over the state store: which sessions are written and when, and how the K/V of a block
 * gets from the executor's pool into a file and back without holding up the steps.
 *
 * Saving a session notes which of its blocks have no file yet and lets it go: the blocks are read out a few at a time between
 * steps. Until then a block may be evicted, even given up by the pool: it is read out at the last moment, when its memory is
 * about to be used for something else.
 * Restoring fills a busy session with blocks that are read ahead by the store's worker; others decode meanwhile.
 *
 * Pure C but for the store's worker. Thread: one (the engine's). */
#ifndef DAEMON_SNAPSHOT_H
#define DAEMON_SNAPSHOT_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/kv_pool.h"
#include "daemon/session.h"
#include "daemon/state_store.h"
#include "npu/error.h"
#include "npu/executor.h"

struct snapshots;

struct snapshots_options {
    struct executor *executor;
    struct kv_pool *pool;
    struct session_table *sessions;
    struct state_store *store;
    int64_t unix_offset_us; /* microseconds since 1970 less the clock of sessions */
};

/* Borrows everything in options, and takes the pool's on_loss and the store's on_dropped. The table's on_evict and on_forget
 * must come here. */
enum npu_status snapshots_create(struct snapshots **ret_snapshots, const struct snapshots_options *options,
                                 struct npu_error *error);
/* Saves that are not done are given up; restores must have been cancelled. NULL is fine. */
void snapshots_destroy(struct snapshots *snapshots);

/* Puts the sessions that the folder had into the table, as evicted ones. */
void snapshots_load(struct snapshots *snapshots);

/* For the table. */
void snapshots_on_evict(struct snapshots *snapshots, struct session *session);
void snapshots_on_forget(struct snapshots *snapshots, struct session *session);

/* Takes what the worker has done and gives it more. gentle: others decode, so only a few blocks are moved. */
void snapshots_work(struct snapshots *snapshots, bool gentle);

/* --- saving ------------------------------------------------------------------------------------------------------- */

/* Sessions that are idle or evicted, changed, and worth it (named, pinned, in their second turn, of a stored response,
 * or saved by request) are saved one after the other in the following calls of snapshots_work. */
void snapshots_checkpoint(struct snapshots *snapshots);
/* Ends saves that are under way, as far as they are not with the worker; all who wait are told. */
void snapshots_give_up(struct snapshots *snapshots);
/* The checkpoint is over and nothing is being written or read. */
bool snapshots_is_settled(const struct snapshots *snapshots);

/* Saves an idle or evicted session now. on_saved comes once, later: how many tokens of session id are safe with
 * their K/V; 0: none, with the reason, or NULL when the session was deleted meanwhile. NPU_ERROR_INPUT: it is busy, or
 * nothing of its K/V is at hand; NPU_ERROR_MEMORY. */
enum npu_status snapshots_save(struct snapshots *snapshots, struct session *session,
                               void (*on_saved)(void *context, uint64_t id, int32_t n_tokens, const char *reason),
                               void *context, struct npu_error *error);

/* --- restoring ---------------------------------------------------------------------------------------------------- */

struct restore;

struct restore_result {
    int32_t n_restored; /* positions that are resident now and were not */
    bool damaged; /* it ended early because a file was of no use */
};

/* Fills a busy session with what the folder has of its first max_cached tokens, if that is more than it has. on_end comes
 * once, from snapshots_work, unless it is cancelled. NULL: there is nothing to read, or no memory. */
struct restore *snapshots_restore(struct snapshots *snapshots, struct session *session, int32_t max_cached,
                                  void (*on_end)(void *context, const struct restore_result *result), void *context);
/* NULL is fine. */
void snapshots_restore_cancel(struct snapshots *snapshots, struct restore *restore);

/* Time that a token of a prompt takes to compute: kept with the sessions, so that it is known after a restart. */
void snapshots_set_prompt_ns(struct snapshots *snapshots, uint64_t prompt_ns);
uint64_t snapshots_prompt_ns(const struct snapshots *snapshots); /* 0: unknown */

/* A read of one block on somebody's behalf: who calls state_store_read passes one as context. */
struct block_reader {
    /* bytes: a buffer of the store's with the K/V, the reader's now; NULL: it could not be read. */
    void (*on_read)(struct block_reader *reader, struct stored_block *block, void *bytes);
};

/* The same for a stored response: who calls state_store_read_response passes one as context. */
struct response_reader {
    /* bytes: the record, n_bytes of it, the reader's now; NULL: it could not be read. */
    void (*on_read)(struct response_reader *reader, void *bytes, size_t n_bytes);
};

struct snapshot_counters {
    uint64_t saves, failed_saves, restores, restored_tokens;
};
struct snapshot_counters snapshots_count(const struct snapshots *snapshots);

/* For tests: as state_store_is_consistent. */
bool snapshots_is_consistent(const struct snapshots *snapshots, uint32_t other_references);

#endif
