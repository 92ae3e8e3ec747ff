/* Looking sessions up, and what users ask of them. */
#include "daemon/session_table.h"

#include <inttypes.h>
#include <string.h>

static struct session *next_listed(const struct session_table *table, const struct session *session)
{
    int list = 0;
    if (session != NULL) {
        if (session->next != NULL)
            return session->next;
        while (table->lists[list].last != session)
            list++;
        list++;
    }
    while (list < LIST_COUNT && table->lists[list].first == NULL)
        list++;
    return list < LIST_COUNT ? table->lists[list].first : NULL;
}

struct session *session_next(const struct session_table *table, const struct session *session)
{
    struct session *next = next_listed(table, session);
    while (next != NULL && next->transient)
        next = next_listed(table, next);
    return next;
}

struct session *session_by_id(const struct session_table *table, uint64_t id)
{
    struct session *session = session_next(table, NULL);
    while (session != NULL && session->id != id)
        session = session_next(table, session);
    return session;
}

struct session *session_by_key(const struct session_table *table, const char *key)
{
    uint64_t hash = session_key_hash(key);
    struct session *newest = NULL;
    for (struct session *s = session_next(table, NULL); s != NULL; s = session_next(table, s))
        if (s->key_hash == hash && s->key != NULL && strcmp(s->key, key) == 0 &&
            (newest == NULL || s->used_us >= newest->used_us))
            newest = s;
    return newest;
}

bool session_key_is_of_here(const struct session_table *table, const char *key)
{
    uint64_t hash = session_key_hash(key);
    const struct session *s = session_next(table, NULL);
    while (s != NULL &&
           (s->key_hash != hash || s->origin != KV_ORIGIN_HERE || s->key == NULL || strcmp(s->key, key) != 0))
        s = session_next(table, s);
    return s != NULL;
}

int32_t session_count(const struct session_table *table, enum session_state state)
{
    switch (state) {
    case SESSION_BUSY:
        return table->lists[LIST_BUSY].count;
    case SESSION_IDLE:
        return table->lists[LIST_IDLE].count + table->lists[LIST_PINNED].count;
    case SESSION_EVICTED:
        break;
    }
    return table->lists[LIST_EVICTED].count;
}

int32_t session_shared_blocks(const struct session_table *table, const struct session *session)
{
    int32_t n = 0;
    for (int32_t i = 0; i < session->n_blocks; i++)
        n += kv_pool_is_shared(table->pool, session->blocks[i]);
    return n;
}

uint64_t session_evictions(const struct session_table *table)
{
    return table->n_evicted;
}

static enum npu_status refuse_busy(const struct session *session, const char *what, struct npu_error *error)
{
    return npu_error_set(error, NPU_ERROR_INPUT,
                         "session %016" PRIx64 " is busy with a generation and cannot be %s now", session->id, what);
}

static enum npu_status refuse_position(const struct session *session, int32_t n_tokens, struct npu_error *error)
{
    return npu_error_set(error, NPU_ERROR_INPUT, "session %016" PRIx64 " has %d tokens; %d must lie in 1..%d",
                         session->id, session->n_tokens, n_tokens, session->n_tokens);
}

enum npu_status session_fork(struct session_table *table, struct session *session, int32_t n_tokens, const char *key,
                             uint64_t now_us, struct session **ret_session, struct npu_error *error)
{
    if (n_tokens < 1 || n_tokens > session->n_tokens)
        return refuse_position(session, n_tokens, error);
    if (session->origin != KV_ORIGIN_HERE && key != NULL && session_key_is_of_here(table, key))
        return npu_error_set(error, NPU_ERROR_INPUT,
                             "session %016" PRIx64
                             " was imported, and the key is that of a session that was computed here: take another key",
                             session->id);
    struct session_match match = {.last = KV_NO_BLOCK, .partial = KV_NO_BLOCK};
    int32_t resident = n_tokens < session->n_resident ? n_tokens : session->n_resident;
    match.n_full = resident / KV_BLOCK_TOKENS;
    if (match.n_full > session->n_full)
        match.n_full = session->n_full;
    match.n_partial = resident - match.n_full * KV_BLOCK_TOKENS;
    if (match.n_partial > 0)
        match.partial = session->blocks[match.n_full];
    if (match.n_full >= session->n_full)
        match.owner = session;

    /* The source may not be forgotten or evicted meanwhile: out of its list, back in afterwards. */
    session_list_remove(table, session);
    struct session *fork = session_new(table, n_tokens, key, now_us);
    if (fork != NULL) {
        memcpy(fork->tokens, session->tokens, (size_t)n_tokens * sizeof *fork->tokens);
        fork->n_tokens = n_tokens;
        fork->origin = session->origin;
        fork->dirty = true;
        session_adopt(table, fork, &match, session->blocks);
        for (int32_t i = 0; i < fork->n_blocks; i++)
            kv_pool_unhold(table->pool, fork->blocks[i]);
        fork->state = fork->n_resident > 0 ? SESSION_IDLE : SESSION_EVICTED;
        session_list_insert(table, fork);
        if (fork->state == SESSION_IDLE)
            session_anchor_set(table, fork);
    }
    session_list_insert(table, session);
    if (fork == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory to fork session %016" PRIx64, session->id);
    *ret_session = fork;
    return NPU_OK;
}

enum npu_status session_truncate(struct session_table *table, struct session *session, int32_t n_tokens,
                                 struct npu_error *error)
{
    if (session->state == SESSION_BUSY)
        return refuse_busy(session, "truncated", error);
    if (n_tokens < 1 || n_tokens > session->n_tokens)
        return refuse_position(session, n_tokens, error);
    session_anchor_clear(table, session);
    table->unevictable = session; /* a cut inside a full block takes another block */
    session_cut(table, session, n_tokens);
    table->unevictable = NULL;
    session->n_tokens = n_tokens;
    if (session->n_lasting > n_tokens)
        session->n_lasting = n_tokens;
    session->dirty = true;
    if (session->n_resident > 0) {
        session_anchor_set(table, session);
    } else {
        session_list_remove(table, session);
        session->state = SESSION_EVICTED;
        session_list_insert(table, session);
    }
    return NPU_OK;
}

enum npu_status session_pin(struct session_table *table, struct session *session, struct npu_error *error)
{
    if (session->pinned)
        return NPU_OK;
    int32_t pinned = kv_pool_count(table->pool).pinned, more = 0;
    for (int32_t i = 0; i < session->n_blocks; i++)
        more += !kv_pool_is_pinned(table->pool, session->blocks[i]);
    if (pinned + more > table->n_blocks / 2)
        return npu_error_set(error, NPU_ERROR_INPUT,
                             "pinning session %016" PRIx64
                             " takes %d more KV blocks; %d are pinned and at most %d may be, "
                             "half the pool",
                             session->id, more, pinned, table->n_blocks / 2);
    session_list_remove(table, session);
    session->pinned = session->dirty = true;
    session_list_insert(table, session);
    for (int32_t i = 0; i < session->n_blocks; i++)
        kv_pool_pin(table->pool, session->blocks[i]);
    return NPU_OK;
}

void session_unpin(struct session_table *table, struct session *session)
{
    if (!session->pinned)
        return;
    for (int32_t i = 0; i < session->n_blocks; i++)
        kv_pool_unpin(table->pool, session->blocks[i]);
    session_list_remove(table, session);
    session->pinned = false;
    session->dirty = true;
    session_list_insert(table, session);
}

void session_touch(struct session_table *table, struct session *session, uint64_t now_us)
{
    session_list_remove(table, session);
    session->used_us = now_us;
    session_list_insert(table, session);
}

enum npu_status session_delete(struct session_table *table, struct session *session, struct npu_error *error)
{
    if (session->state == SESSION_BUSY)
        return refuse_busy(session, "deleted", error);
    session_unpin(table, session);
    session_list_remove(table, session);
    session_anchor_clear(table, session);
    if (table->options.on_forget != NULL)
        table->options.on_forget(table->options.context, session);
    while (session->n_blocks > 0)
        kv_pool_forget(table->pool, session->blocks[--session->n_blocks]);
    session_free(session);
    return NPU_OK;
}

static bool session_is_consistent(const struct session_table *table, const struct session *session,
                                  enum session_state state)
{
    if (session->state != state || session->n_resident > session->n_tokens || session->n_full > session->n_blocks)
        return false;
    int32_t needed = (session->n_resident + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    if (session->n_blocks < needed || (state != SESSION_BUSY && session->n_blocks != needed))
        return false;
    int32_t n_full = session->transient ? 0 : session->n_resident / KV_BLOCK_TOKENS;
    if (session->n_full != n_full || (session->transient && state != SESSION_BUSY) ||
        (state == SESSION_EVICTED && session->n_blocks > 0))
        return false;
    int32_t parent = KV_NO_BLOCK;
    for (int32_t i = 0; i < session->n_full; i++) {
        int32_t found =
            kv_pool_lookup(table->pool, session->origin, parent, session->tokens + (size_t)i * KV_BLOCK_TOKENS);
        if (found != session->blocks[i])
            return false;
        parent = found;
    }
    for (int32_t i = 0; i < session->n_blocks; i++) {
        if (i >= session->n_full && kv_pool_is_shared(table->pool, session->blocks[i]))
            return false;
        if ((state == SESSION_BUSY || session->pinned) && !kv_pool_is_held(table->pool, session->blocks[i]))
            return false;
        if (session->pinned && !kv_pool_is_pinned(table->pool, session->blocks[i]))
            return false;
    }
    return session->anchors[0].linked == (state == SESSION_IDLE);
}

bool session_table_is_consistent(const struct session_table *table)
{
    static const enum session_state states[LIST_COUNT] = {SESSION_BUSY, SESSION_IDLE, SESSION_IDLE, SESSION_EVICTED};
    for (int list = 0; list < LIST_COUNT; list++) {
        int32_t count = 0;
        uint64_t used_us = 0;
        for (const struct session *s = table->lists[list].first; s != NULL; s = s->next, count++) {
            if (!session_is_consistent(table, s, states[list]) || s->used_us < used_us)
                return false;
            if (s->state == SESSION_IDLE && s->pinned != (list == LIST_PINNED))
                return false;
            used_us = s->used_us;
        }
        if (count != table->lists[list].count)
            return false;
    }
    return kv_pool_count(table->pool).pinned <= table->n_blocks / 2 && kv_pool_is_consistent(table->pool);
}
