/* Sessions: token histories whose K/V stays in the pool between requests.
 *
 * A session is busy (one generation works in it), idle, or evicted (its blocks were given up, its tokens are remembered
 * for a while). A request opens a session: it goes on with an idle one that it extends or parts from at most a block
 * before its end, else it forks: full blocks are shared, the rest of the common prefix is copied. The prefix is the
 * longest over all full blocks of the pool and the last, partly filled blocks of idle sessions.
 * A session has an origin (see kv_pool.h): K/V that came with an import may be wrong, and what is computed behind it then is
 * too. Requests work with what was computed here, but for those whose key names an import or its forks.
 * Idle sessions keep their blocks until the memory is needed: the least recently used goes first, pinned ones never.
 *
 * Pure C. Thread: one (the engine's). Sessions belong to the table; a pointer is valid while the session is busy, or
 * until the next call that may acquire blocks. */
#ifndef DAEMON_SESSION_H
#define DAEMON_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/cache_report.h"
#include "daemon/kv_pool.h"
#include "npu/error.h"

struct session_table;
struct session;

/* A place in the list of idle sessions that a prompt may go on with behind a given block. */
struct session_anchor {
    struct session *session;
    struct session_anchor *previous, *next;
    int32_t block; /* a full block of the session or KV_NO_BLOCK: the list's */
    bool linked;
};

enum session_state {
    SESSION_BUSY,
    SESSION_IDLE,
    SESSION_EVICTED,
};

/* Read-only for others, but for what the saving of sessions keeps here. */
struct session {
    uint64_t id; /* never 0, never used twice */
    char *key; /* prompt_cache_key, or NULL */
    uint64_t origin; /* of its K/V: KV_ORIGIN_HERE, or the id of the session that was imported */
    enum session_state state;
    bool pinned;
    bool transient; /* see session_request */
    int32_t *tokens; /* the history: n_tokens of them, the K/V of the first n_resident is in blocks */
    int32_t n_tokens;
    int32_t n_resident;
    int32_t *blocks; /* n_blocks, of which the first n_full are full blocks of the pool, the others private */
    int32_t n_blocks;
    int32_t n_full;
    uint32_t turns; /* requests so far */
    uint64_t created_us, used_us;
    /* Saving: */
    bool dirty; /* it changed since it was last saved */
    bool kept; /* it is saved whatever its history, because somebody asked for it */
    uint32_t checkpoint; /* the last one that looked at it */
    int32_t n_lasting; /* so many tokens stay in the history when a request ends though their K/V is not resident */
    /* The table's. */
    uint64_t key_hash;
    int32_t tokens_capacity, blocks_capacity;
    struct session *previous, *next; /* in the list of its state, least recently used first */
    struct session_anchor anchors[2];
};

struct session_table_options {
    int32_t max_sessions; /* in all states; the least recently used unpinned are forgotten past it */
    uint64_t id_seed; /* where ids start: another for each run of the daemon */
    void *context;
    /* Copies the K/V of one block to another. On failure less of the prefix is reused. */
    enum npu_status (*copy_block)(void *context, int32_t from, int32_t to);
    /* May be NULL. Told before the blocks of an idle session are given up for others. */
    void (*on_evict)(void *context, struct session *session);
    /* May be NULL. Told before a session is forgotten, but for the end of the table. */
    void (*on_forget)(void *context, struct session *session);
};

/* Borrows the pool. */
enum npu_status session_table_create(struct session_table **ret_table, const struct session_table_options *options,
                                     struct kv_pool *pool, struct npu_error *error);
void session_table_destroy(struct session_table *table); /* gives all blocks back; NULL is fine */

struct session_request {
    const int32_t *tokens;
    int32_t n_tokens; /* at least 1 */
    int32_t max_cached; /* at most this many positions may come from the cache (n_tokens - 1: all but the last) */
    const char *key; /* or NULL */
    bool keeps; /* the session is worth saving */
    bool
        transient; /* a session apart: it takes nothing from others and gives them nothing, is shown to nobody, and is gone
                       when its work ends; max_cached must be 0 */
};

/* How many blocks that are not spoken for (neither held nor pinned) the request's tokens will take. */
int32_t session_blocks_needed(const struct session_table *table, const struct session_request *request);

/* A busy session that holds the request's tokens. NULL: no memory. */
struct session *session_open(struct session_table *table, const struct session_request *request, uint64_t now_us,
                             struct cache_report *ret_report);

/* Ends the work on a busy session: it is idle, with the tokens whose K/V is resident as its history. What
 * lasts of its history does so without K/V. It is gone when nothing is left. */
void session_close(struct session_table *table, struct session *session, uint64_t now_us);

/* Busy sessions: another known token at the end (false: no memory). */
bool session_append(struct session *session, int32_t token);

/* Busy sessions: blocks for positions below n_positions, evicting idle sessions if need be. Returns how many positions
 * have a block now (less than asked for: the pool is exhausted). */
int32_t session_reserve(struct session_table *table, struct session *session, int32_t n_positions);

/* Busy sessions: the K/V of the next n positions has been computed. Full blocks go to the pool's index. */
void session_commit(struct session_table *table, struct session *session, int32_t n);

/* Busy sessions: takes over full blocks that the pool has meanwhile got for the next positions, up to max_cached.
 * Returns how many positions that saved. */
int32_t session_skip_ahead(struct session_table *table, struct session *session, int32_t max_cached);

/* Both busy: session stands at the start of a block that other is computing or about to compute, after the same prefix;
 * waiting for other saves the work. */
bool session_awaits(const struct session *session, const struct session *other, int32_t max_cached);

/* Busy sessions: gives the blocks back (full ones stay findable) and keeps the tokens; later session_move_in takes what
 * is still there and returns how many positions are resident. */
void session_move_out(struct session_table *table, struct session *session);
int32_t session_move_in(struct session_table *table, struct session *session, int32_t max_cached);

/* Busy sessions: gives up the positions behind the last full block. */
void session_rewind(struct session_table *table, struct session *session);

/* A session that is known from elsewhere. */
struct session_record {
    uint64_t id; /* 0: a new one */
    const char *key; /* or NULL */
    uint64_t origin; /* of a session that was saved here */
    bool imported; /* its K/V comes from outside: it is its own origin, and has a key in any case */
    const int32_t *tokens;
    int32_t n_tokens; /* at least 1 */
    uint32_t turns;
    bool pinned, kept;
    uint64_t created_us, used_us;
};
/* As an evicted session, whose tokens last. NULL: no memory, or the id is there. */
struct session *session_remember(struct session_table *table, const struct session_record *record);
/* As a busy session that has of its blocks those that the pool has; its tokens last. NULL: no memory. */
struct session *session_bring_in(struct session_table *table, const struct session_record *record);

/* Transient sessions are not found by the following. By id, in any state; NULL: unknown. By key: the most recently used
 * one. */
struct session *session_by_id(const struct session_table *table, uint64_t id);
struct session *session_by_key(const struct session_table *table, const char *key);

/* Whether sessions of this key hold K/V that was computed here: an import may not have their name. */
bool session_key_is_of_here(const struct session_table *table, const char *key);

/* Every session, state by state, the least recently used first: start with NULL; NULL ends. */
struct session *session_next(const struct session_table *table, const struct session *session);
int32_t session_count(const struct session_table *table, enum session_state state);
int32_t session_shared_blocks(const struct session_table *table, const struct session *session); /* with others */
uint64_t session_evictions(const struct session_table *table); /* ever */

/* Operations on sessions by request of a user. A busy session is NPU_ERROR_INPUT. */

/* A new idle session with the first n_tokens tokens of any session (a busy one, too); full blocks are shared. NPU_ERROR_INPUT,
 * too: it comes from an import, and the key is that of sessions of here. */
enum npu_status session_fork(struct session_table *table, struct session *session, int32_t n_tokens, const char *key,
                             uint64_t now_us, struct session **ret_session, struct npu_error *error);
/* Cuts the history back to n_tokens. Full blocks behind the cut stay findable. */
enum npu_status session_truncate(struct session_table *table, struct session *session, int32_t n_tokens,
                                 struct npu_error *error);
/* Pinned sessions are never evicted; together they may hold at most half the pool (NPU_ERROR_INPUT past that). Allowed
 * while busy. A pinned session that grows past the limit loses its pin. Pinning twice is fine. */
enum npu_status session_pin(struct session_table *table, struct session *session, struct npu_error *error);
void session_unpin(struct session_table *table, struct session *session);
/* It counts as used now. */
void session_touch(struct session_table *table, struct session *session, uint64_t now_us);
/* Forgets the session; blocks that no other one references are freed and not found again. */
enum npu_status session_delete(struct session_table *table, struct session *session, struct npu_error *error);

/* For tests: the table, the sessions and the pool agree. */
bool session_table_is_consistent(const struct session_table *table);

#endif
