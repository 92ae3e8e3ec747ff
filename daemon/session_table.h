/* What session.c (lifetimes, blocks), session_match.c (finding a prefix) and session_verbs.c (what users ask for) share.
 * Private to them. */
#ifndef DAEMON_SESSION_TABLE_H
#define DAEMON_SESSION_TABLE_H

#include "daemon/session.h"

enum session_list_index {
    LIST_BUSY,
    LIST_IDLE,
    LIST_PINNED, /* idle and pinned */
    LIST_EVICTED,
    LIST_COUNT,
};

struct session_list {
    struct session *first, *last; /* least recently used first */
    int32_t count;
};

struct session_table {
    struct session_table_options options;
    struct kv_pool *pool;
    struct session_list lists[LIST_COUNT];
    struct session_anchor **anchors; /* idle sessions by the block they may go on behind: [0] position 0, [1 + block] */
    struct session *unevictable; /* an idle session whose private block is being read, or NULL */
    int32_t n_blocks; /* of the pool */
    uint64_t n_created, n_evicted;
};

/* The longest cached prefix of a request and the way to use it. */
struct session_match {
    int32_t n_full; /* full blocks of the prefix */
    int32_t last; /* the last of them, or KV_NO_BLOCK */
    int32_t n_partial; /* positions behind them that partial holds too; less than KV_BLOCK_TOKENS */
    int32_t partial; /* the block to copy those from, or KV_NO_BLOCK */
    struct session *owner; /* the idle session that partial is private to, or NULL: it is a full block */
    struct session *go_on; /* the idle session to go on with (it has the whole prefix), or NULL */
};

/* The origin whose K/V a request may use: that of the most recently used session of its key, if all of them were imported. */
uint64_t session_origin_of(const struct session_table *table, const struct session_request *request);

/* full_blocks: NULL, or room for n_tokens / KV_BLOCK_TOKENS. May an idle session be gone on with: may_go_on. */
struct session_match session_find_match(const struct session_table *table, const struct session_request *request,
                                        uint64_t origin, bool may_go_on, int32_t *full_blocks);

/* Fills the source, the miss and where it differs, for a request that match serves. Before the match is used. Returns the
 * evicted session that the request goes on with, or NULL. */
struct session *session_explain(const struct session_table *table, const struct session_request *request,
                                uint64_t origin, const struct session_match *match, struct cache_report *ret_report);

int32_t session_common_prefix(const int32_t *a, const int32_t *b, int32_t limit);
uint64_t session_key_hash(const char *key); /* 0 for NULL */

void session_anchor_set(struct session_table *table, struct session *session);
void session_anchor_clear(struct session_table *table, struct session *session);
/* Puts the session into the list that its state and pin say, by its last use. */
void session_list_insert(struct session_table *table, struct session *session);
void session_list_remove(struct session_table *table, struct session *session);

/* A session with room for n_tokens, linked nowhere. NULL: no memory. */
struct session *session_new(struct session_table *table, int32_t n_tokens, const char *key, uint64_t now_us);
void session_free(struct session *session);
void session_forget(struct session_table *table, struct session *session); /* on no list; tells, then frees */
bool session_set_key(struct session *session, const char *key); /* false: no memory */
/* Gives the blocks from index on back. */
void session_drop_blocks(struct session_table *table, struct session *session, int32_t index);
/* Resident positions and blocks of n; the tokens stay. A cut inside a full block takes a copy of it, or less is kept. */
void session_cut(struct session_table *table, struct session *session, int32_t n);
/* Takes the matched full blocks (ids in full_blocks) and a copy of the partial one. The session has no blocks. */
void session_adopt(struct session_table *table, struct session *session, const struct session_match *match,
                   const int32_t *full_blocks);
bool session_room_for_blocks(struct session *session, int32_t n_blocks); /* false: no memory */

#endif
