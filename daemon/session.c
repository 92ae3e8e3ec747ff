/* Lifetimes of sessions and the blocks they hold. */
#include "daemon/session_table.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum npu_status session_table_create(struct session_table **ret_table, const struct session_table_options *options,
                                     struct kv_pool *pool, struct npu_error *error)
{
    struct session_table *table = calloc(1, sizeof *table);
    if (table != NULL) {
        table->n_blocks = kv_pool_count(pool).total;
        table->anchors = calloc((size_t)table->n_blocks + 1, sizeof *table->anchors);
    }
    if (table == NULL || table->anchors == NULL) {
        free(table);
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the session table");
    }
    table->options = *options;
    table->pool = pool;
    *ret_table = table;
    return NPU_OK;
}

void session_table_destroy(struct session_table *table)
{
    if (table == NULL)
        return;
    for (int list = 0; list < LIST_COUNT; list++) {
        while (table->lists[list].first != NULL) {
            struct session *session = table->lists[list].first;
            session_list_remove(table, session);
            session_anchor_clear(table, session);
            session_drop_blocks(table, session, 0);
            session_free(session);
        }
    }
    free(table->anchors);
    free(table);
}

uint64_t session_key_hash(const char *key)
{
    if (key == NULL)
        return 0;
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *key != '\0'; key++)
        hash = (hash ^ (unsigned char)*key) * 0x100000001b3u;
    return hash == 0 ? 1 : hash;
}

/* Bijective, so that different inputs give different ids. */
static uint64_t mix_id(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* --- lists -------------------------------------------------------------------------------------------------------- */

static struct session_list *list_of(struct session_table *table, const struct session *session)
{
    switch (session->state) {
    case SESSION_BUSY:
        return &table->lists[LIST_BUSY];
    case SESSION_EVICTED:
        return &table->lists[LIST_EVICTED];
    case SESSION_IDLE:
        break;
    }
    return &table->lists[session->pinned ? LIST_PINNED : LIST_IDLE];
}

void session_list_insert(struct session_table *table, struct session *session)
{
    struct session_list *list = list_of(table, session);
    struct session *after = list->last;
    while (after != NULL && after->used_us > session->used_us)
        after = after->previous;
    session->previous = after;
    session->next = after == NULL ? list->first : after->next;
    *(session->previous == NULL ? &list->first : &session->previous->next) = session;
    *(session->next == NULL ? &list->last : &session->next->previous) = session;
    list->count++;
}

void session_list_remove(struct session_table *table, struct session *session)
{
    struct session_list *list = list_of(table, session);
    *(session->previous == NULL ? &list->first : &session->previous->next) = session->next;
    *(session->next == NULL ? &list->last : &session->next->previous) = session->previous;
    session->previous = session->next = NULL;
    list->count--;
}

static void anchor_link(struct session_table *table, struct session_anchor *anchor, int32_t block)
{
    anchor->block = block;
    anchor->previous = NULL;
    anchor->next = table->anchors[block + 1];
    if (anchor->next != NULL)
        anchor->next->previous = anchor;
    table->anchors[block + 1] = anchor;
    anchor->linked = true;
}

void session_anchor_set(struct session_table *table, struct session *session)
{
    int32_t n_full = session->n_full;
    anchor_link(table, &session->anchors[0], n_full > 0 ? session->blocks[n_full - 1] : KV_NO_BLOCK);
    if (n_full > 0)
        anchor_link(table, &session->anchors[1], n_full > 1 ? session->blocks[n_full - 2] : KV_NO_BLOCK);
}

void session_anchor_clear(struct session_table *table, struct session *session)
{
    for (int i = 0; i < 2; i++) {
        struct session_anchor *anchor = &session->anchors[i];
        if (!anchor->linked)
            continue;
        *(anchor->previous == NULL ? &table->anchors[anchor->block + 1] : &anchor->previous->next) = anchor->next;
        if (anchor->next != NULL)
            anchor->next->previous = anchor->previous;
        anchor->linked = false;
    }
}

/* --- creation ----------------------------------------------------------------------------------------------------- */

static bool room_for_tokens(struct session *session, int32_t n)
{
    if (n <= session->tokens_capacity)
        return true;
    int32_t capacity = session->tokens_capacity > INT32_MAX / 2 ? INT32_MAX : session->tokens_capacity * 2;
    if (capacity < n)
        capacity = n;
    int32_t *tokens = realloc(session->tokens, (size_t)capacity * sizeof *tokens);
    if (tokens == NULL)
        return false;
    session->tokens = tokens;
    session->tokens_capacity = capacity;
    return true;
}

bool session_room_for_blocks(struct session *session, int32_t n_blocks)
{
    if (n_blocks <= session->blocks_capacity)
        return true;
    int32_t capacity = session->blocks_capacity * 2;
    if (capacity < n_blocks)
        capacity = n_blocks;
    int32_t *blocks = realloc(session->blocks, (size_t)capacity * sizeof *blocks);
    if (blocks == NULL)
        return false;
    session->blocks = blocks;
    session->blocks_capacity = capacity;
    return true;
}

bool session_set_key(struct session *session, const char *key)
{
    if (key == NULL)
        return true;
    char *copy = strdup(key);
    if (copy == NULL)
        return false;
    free(session->key);
    session->key = copy;
    session->key_hash = session_key_hash(key);
    return true;
}

void session_forget(struct session_table *table, struct session *session)
{
    if (table->options.on_forget != NULL)
        table->options.on_forget(table->options.context, session);
    session_free(session);
}

/* Of those without blocks the least recently used goes first, and first of all those that are nowhere else. */
static void forget_one(struct session_table *table)
{
    struct session *session = table->lists[LIST_EVICTED].first;
    while (session != NULL && session->n_lasting > 0)
        session = session->next;
    if (session == NULL)
        session = table->lists[LIST_EVICTED].first;
    session_list_remove(table, session);
    session_forget(table, session);
}

/* Gives the blocks of an idle session up. Its history is remembered, to explain later misses. */
static void evict(struct session_table *table, struct session *session)
{
    if (table->options.on_evict != NULL)
        table->options.on_evict(table->options.context, session);
    table->n_evicted++;
    session_list_remove(table, session);
    session_anchor_clear(table, session);
    session_drop_blocks(table, session, 0);
    session->n_resident = 0;
    session->state = SESSION_EVICTED;
    session_list_insert(table, session);
}

static struct session *least_recently_used(const struct session_table *table)
{
    struct session *session = table->lists[LIST_IDLE].first;
    if (session != NULL && session == table->unevictable)
        session = session->next;
    return session;
}

static void bound_sessions(struct session_table *table)
{
    int32_t count = 0;
    for (int list = 0; list < LIST_COUNT; list++)
        count += table->lists[list].count;
    if (count < table->options.max_sessions)
        return;
    if (table->lists[LIST_EVICTED].first == NULL) {
        struct session *session = least_recently_used(table);
        if (session == NULL)
            return;
        evict(table, session);
    }
    forget_one(table);
}

struct session *session_new(struct session_table *table, int32_t n_tokens, const char *key, uint64_t now_us)
{
    bound_sessions(table);
    struct session *session = calloc(1, sizeof *session);
    if (session == NULL)
        return NULL;
    session->anchors[0].session = session->anchors[1].session = session;
    session->created_us = session->used_us = now_us;
    session->state = SESSION_BUSY;
    if (!room_for_tokens(session, n_tokens) || !session_room_for_blocks(session, n_tokens / KV_BLOCK_TOKENS + 1) ||
        !session_set_key(session, key)) {
        session_free(session);
        return NULL;
    }
    do {
        session->id = mix_id(table->options.id_seed + ++table->n_created);
    } while (session->id == 0);
    return session;
}

void session_free(struct session *session)
{
    if (session == NULL)
        return;
    free(session->key);
    free(session->tokens);
    free(session->blocks);
    free(session);
}

/* --- blocks ------------------------------------------------------------------------------------------------------- */

/* Held: the block may not be had by evicting. Pins may cover half the pool: a session that grows past it loses its own. */
static void mark_block(struct session_table *table, struct session *session, int32_t block)
{
    if (session->pinned && !kv_pool_is_pinned(table->pool, block) &&
        kv_pool_count(table->pool).pinned >= table->n_blocks / 2)
        session_unpin(table, session);
    if (session->state == SESSION_BUSY)
        kv_pool_hold(table->pool, block);
    if (session->pinned)
        kv_pool_pin(table->pool, block);
}

static void unmark_block(struct session_table *table, const struct session *session, int32_t block)
{
    if (session->state == SESSION_BUSY)
        kv_pool_unhold(table->pool, block);
    if (session->pinned)
        kv_pool_unpin(table->pool, block);
}

static void push_block(struct session_table *table, struct session *session, int32_t block)
{
    mark_block(table, session, block);
    session->blocks[session->n_blocks++] = block;
}

void session_drop_blocks(struct session_table *table, struct session *session, int32_t index)
{
    while (session->n_blocks > index) {
        int32_t block = session->blocks[--session->n_blocks];
        unmark_block(table, session, block);
        kv_pool_release(table->pool, block);
    }
    if (session->n_full > index)
        session->n_full = index;
}

static int32_t acquire_block(struct session_table *table)
{
    for (;;) {
        int32_t block = kv_pool_acquire(table->pool);
        if (block != KV_NO_BLOCK)
            return block;
        struct session *session = least_recently_used(table);
        if (session == NULL)
            return KV_NO_BLOCK;
        evict(table, session);
    }
}

/* A private block with the K/V of another one, or KV_NO_BLOCK. */
static int32_t copy_of_block(struct session_table *table, int32_t from)
{
    int32_t block = acquire_block(table);
    if (block == KV_NO_BLOCK)
        return KV_NO_BLOCK;
    if (table->options.copy_block(table->options.context, from, block) != NPU_OK) {
        kv_pool_release(table->pool, block);
        return KV_NO_BLOCK;
    }
    return block;
}

void session_cut(struct session_table *table, struct session *session, int32_t n)
{
    if (n >= session->n_resident)
        return;
    int32_t index = n / KV_BLOCK_TOKENS;
    int32_t copy = KV_NO_BLOCK;
    bool whole = n % KV_BLOCK_TOKENS == 0;
    if (!whole && index < session->n_full) {
        copy = copy_of_block(table, session->blocks[index]);
        whole = copy == KV_NO_BLOCK;
    }
    session_drop_blocks(table, session, index + (copy == KV_NO_BLOCK && !whole));
    if (copy != KV_NO_BLOCK)
        push_block(table, session, copy);
    session->n_resident = whole ? index * KV_BLOCK_TOKENS : n;
}

void session_adopt(struct session_table *table, struct session *session, const struct session_match *match,
                   const int32_t *full_blocks)
{
    for (int32_t i = 0; i < match->n_full; i++) {
        kv_pool_retain(table->pool, full_blocks[i]);
        push_block(table, session, full_blocks[i]);
    }
    session->n_full = match->n_full;
    session->n_resident = match->n_full * KV_BLOCK_TOKENS;
    if (match->partial == KV_NO_BLOCK)
        return;
    /* The source must survive the search for a block to copy it to. */
    table->unevictable = match->owner;
    if (match->owner == NULL)
        kv_pool_retain(table->pool, match->partial);
    int32_t copy = copy_of_block(table, match->partial);
    if (match->owner == NULL)
        kv_pool_release(table->pool, match->partial);
    table->unevictable = NULL;
    if (copy == KV_NO_BLOCK)
        return;
    push_block(table, session, copy);
    session->n_resident += match->n_partial;
}

/* --- a request's work in a session -------------------------------------------------------------------------------- */

static void set_busy(struct session_table *table, struct session *session)
{
    session_list_remove(table, session);
    session_anchor_clear(table, session);
    session->state = SESSION_BUSY;
    session_list_insert(table, session);
    for (int32_t i = 0; i < session->n_blocks; i++)
        kv_pool_hold(table->pool, session->blocks[i]);
}

/* The session that a request goes on with, ready to adopt or cut; NULL: no memory. */
static struct session *choose_session(struct session_table *table, const struct session_request *request,
                                      const struct session_match *match, struct session *evicted, uint64_t origin,
                                      uint64_t now_us)
{
    struct session *session = match->go_on != NULL ? match->go_on : evicted;
    assert(session == NULL || session->origin == origin);
    if (session != NULL) {
        if (!room_for_tokens(session, request->n_tokens) ||
            !session_room_for_blocks(session, request->n_tokens / KV_BLOCK_TOKENS + 1) ||
            !session_set_key(session, request->key))
            return NULL;
        set_busy(table, session);
        return session;
    }
    /* Creating a session may evict others; the full blocks of the match stay where they are then. */
    table->unevictable = match->owner;
    session = session_new(table, request->n_tokens, request->key, now_us);
    table->unevictable = NULL;
    if (session != NULL) {
        session->origin = origin;
        session_list_insert(table, session);
    }
    return session;
}

static struct session *open_transient(struct session_table *table, const struct session_request *request,
                                      uint64_t now_us, struct cache_report *ret_report)
{
    assert(request->max_cached == 0);
    struct session *session = session_new(table, request->n_tokens, request->key, now_us);
    if (session == NULL)
        return NULL;
    memcpy(session->tokens, request->tokens, (size_t)request->n_tokens * sizeof *session->tokens);
    session->n_tokens = request->n_tokens;
    session->transient = true;
    session->turns = 1;
    session_list_insert(table, session);
    *ret_report = (struct cache_report){.differs_at = -1, .session_id = session->id};
    return session;
}

struct session *session_open(struct session_table *table, const struct session_request *request, uint64_t now_us,
                             struct cache_report *ret_report)
{
    if (request->transient)
        return open_transient(table, request, now_us, ret_report);
    int32_t *full_blocks = malloc(((size_t)request->n_tokens / KV_BLOCK_TOKENS + 1) * sizeof *full_blocks);
    if (full_blocks == NULL)
        return NULL;
    struct cache_report report;
    uint64_t origin = session_origin_of(table, request);
    struct session_match match = session_find_match(table, request, origin, true, full_blocks);
    struct session *evicted = session_explain(table, request, origin, &match, &report);
    struct session *session = choose_session(table, request, &match, evicted, origin, now_us);
    if (session != NULL && match.go_on != NULL)
        session_cut(table, session, match.n_full * KV_BLOCK_TOKENS + match.n_partial);
    else if (session != NULL)
        session_adopt(table, session, &match, full_blocks);
    free(full_blocks);
    if (session == NULL)
        return NULL;
    int32_t common = request->n_tokens < session->n_tokens ? request->n_tokens : session->n_tokens;
    common = session_common_prefix(session->tokens, request->tokens, common);
    if (session->n_lasting > common)
        session->n_lasting = common;
    memcpy(session->tokens, request->tokens, (size_t)request->n_tokens * sizeof *session->tokens);
    session->n_tokens = request->n_tokens;
    session->turns++;
    session->kept = session->kept || request->keeps;
    session_list_remove(table, session);
    session->used_us = now_us;
    session_list_insert(table, session);
    report.n_cached = session->n_resident;
    if (report.n_cached == 0) {
        report.source = CACHE_SOURCE_NONE;
        report.source_id = 0;
    }
    report.session_id = session->id;
    *ret_report = report;
    return session;
}

void session_close(struct session_table *table, struct session *session, uint64_t now_us)
{
    assert(session->state == SESSION_BUSY);
    session_list_remove(table, session);
    /* Blocks for positions that were never computed. */
    session_drop_blocks(table, session, (session->n_resident + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS);
    if (session->transient) {
        session_drop_blocks(table, session, 0);
        session_free(session); /* nobody has been told of it */
        return;
    }
    session->used_us = now_us;
    session->dirty = true;
    if (session->n_resident < session->n_lasting) {
        /* Ended before its history was back: it is where it was. */
        session_drop_blocks(table, session, 0);
        session->n_tokens = session->n_lasting;
        session->n_resident = 0;
        session->state = SESSION_EVICTED;
        session_list_insert(table, session);
        return;
    }
    if (session->n_resident == 0) {
        session_forget(table, session);
        return;
    }
    for (int32_t i = 0; i < session->n_blocks; i++)
        kv_pool_unhold(table->pool, session->blocks[i]);
    session->n_tokens = session->n_resident;
    session->state = SESSION_IDLE;
    session_list_insert(table, session);
    session_anchor_set(table, session);
}

bool session_append(struct session *session, int32_t token)
{
    if (!room_for_tokens(session, session->n_tokens + 1))
        return false;
    session->tokens[session->n_tokens++] = token;
    return true;
}

int32_t session_reserve(struct session_table *table, struct session *session, int32_t n_positions)
{
    assert(session->state == SESSION_BUSY);
    int32_t n_blocks = (n_positions + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    if (session_room_for_blocks(session, n_blocks)) {
        while (session->n_blocks < n_blocks) {
            int32_t block = acquire_block(table);
            if (block == KV_NO_BLOCK)
                break;
            push_block(table, session, block);
        }
    }
    int32_t covered = session->n_blocks * KV_BLOCK_TOKENS;
    return covered < n_positions ? covered : n_positions;
}

void session_commit(struct session_table *table, struct session *session, int32_t n)
{
    session->n_resident += n;
    assert(session->n_resident <= session->n_tokens);
    while (!session->transient && (session->n_full + 1) * KV_BLOCK_TOKENS <= session->n_resident) {
        int32_t index = session->n_full;
        int32_t block = session->blocks[index];
        int32_t parent = index > 0 ? session->blocks[index - 1] : KV_NO_BLOCK;
        unmark_block(table, session, block);
        session->blocks[index] = kv_pool_seal(table->pool, block, session->origin, parent,
                                              session->tokens + (size_t)index * KV_BLOCK_TOKENS);
        kv_pool_hold(table->pool, session->blocks[index]);
        /* As many pins as before: the limit cannot be passed. */
        if (session->pinned)
            kv_pool_pin(table->pool, session->blocks[index]);
        session->n_full++;
    }
}

int32_t session_skip_ahead(struct session_table *table, struct session *session, int32_t max_cached)
{
    int32_t before = session->n_resident;
    for (;;) {
        int32_t index = session->n_full;
        if ((index + 1) * KV_BLOCK_TOKENS > max_cached)
            break;
        int32_t parent = index > 0 ? session->blocks[index - 1] : KV_NO_BLOCK;
        const int32_t *tokens = session->tokens + (size_t)index * KV_BLOCK_TOKENS;
        int32_t block = kv_pool_lookup(table->pool, session->origin, parent, tokens);
        if (block == KV_NO_BLOCK || !session_room_for_blocks(session, index + 1))
            break;
        session_drop_blocks(table, session, index);
        kv_pool_retain(table->pool, block);
        push_block(table, session, block);
        session->n_full++;
        session->n_resident = session->n_full * KV_BLOCK_TOKENS;
    }
    return session->n_resident - before;
}

void session_rewind(struct session_table *table, struct session *session)
{
    session_cut(table, session, session->n_full * KV_BLOCK_TOKENS);
}

/* Only a key leads to what was imported. False: no memory. */
static bool set_import_key(struct session *session)
{
    char key[32];
    snprintf(key, sizeof key, "import-%016" PRIx64, session->id);
    return (session->key != NULL && session->key[0] != '\0') || session_set_key(session, key);
}

/* Busy, listed, without blocks. */
static struct session *session_of_record(struct session_table *table, const struct session_record *record)
{
    if (record->id != 0 && session_by_id(table, record->id) != NULL)
        return NULL;
    struct session *session = session_new(table, record->n_tokens, record->key, record->created_us);
    if (session == NULL)
        return NULL;
    if (record->id != 0)
        session->id = record->id;
    session->origin = record->imported ? session->id : record->origin;
    if (record->imported && !set_import_key(session)) {
        session_free(session);
        return NULL;
    }
    memcpy(session->tokens, record->tokens, (size_t)record->n_tokens * sizeof *session->tokens);
    session->n_tokens = session->n_lasting = record->n_tokens;
    session->turns = record->turns;
    session->pinned = record->pinned;
    session->kept = record->kept;
    session->used_us = record->used_us;
    session_list_insert(table, session);
    return session;
}

struct session *session_remember(struct session_table *table, const struct session_record *record)
{
    struct session *session = session_of_record(table, record);
    if (session == NULL)
        return NULL;
    session_list_remove(table, session);
    session->state = SESSION_EVICTED;
    session_list_insert(table, session);
    return session;
}

struct session *session_bring_in(struct session_table *table, const struct session_record *record)
{
    struct session *session = session_of_record(table, record);
    if (session != NULL)
        session_skip_ahead(table, session, record->n_tokens);
    return session;
}

void session_move_out(struct session_table *table, struct session *session)
{
    session_drop_blocks(table, session, 0);
    session->n_resident = 0;
}

int32_t session_move_in(struct session_table *table, struct session *session, int32_t max_cached)
{
    assert(session->n_blocks == 0);
    struct session_request request = {
        .tokens = session->tokens, .n_tokens = session->n_tokens, .max_cached = max_cached, .key = session->key};
    int32_t *full_blocks = malloc(((size_t)session->n_tokens / KV_BLOCK_TOKENS + 1) * sizeof *full_blocks);
    if (full_blocks == NULL || !session_room_for_blocks(session, session->n_tokens / KV_BLOCK_TOKENS + 1)) {
        free(full_blocks);
        return 0;
    }
    struct session_match match = session_find_match(table, &request, session->origin, false, full_blocks);
    session_adopt(table, session, &match, full_blocks);
    free(full_blocks);
    return session->n_resident;
}
