/* Finding what is already computed of a prompt, and saying why not more of it. */
#include "daemon/session_table.h"

#include <string.h>

enum {
    MAX_SCANNED = 64, /* candidates behind one block that are compared; the most recent ones come first */
    MAX_EXPLAINED = 1024, /* histories of one state that an explanation looks at */
};

int32_t session_common_prefix(const int32_t *a, const int32_t *b, int32_t limit)
{
    int32_t n = 0;
    while (n + 16 <= limit && memcmp(a + n, b + n, 16 * sizeof *a) == 0)
        n += 16;
    while (n < limit && a[n] == b[n])
        n++;
    return n;
}

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static bool same_key(const struct session *session, const char *key)
{
    return key != NULL && session->key != NULL && strcmp(session->key, key) == 0;
}

/* A request never takes over a conversation that another name belongs to, nor cuts into a pinned one that is not its
 * own. One that parts from a session early is another conversation. length: of the session's history. */
static bool may_continue(const struct session *session, int32_t length, const char *key, int32_t common)
{
    int32_t lost = length - common;
    if (common == 0 || lost > KV_BLOCK_TOKENS || (lost > 0 && common < length / 2))
        return false;
    if (session->pinned && lost > 0 && !same_key(session, key))
        return false;
    return session->key == NULL || same_key(session, key);
}

uint64_t session_origin_of(const struct session_table *table, const struct session_request *request)
{
    const struct session *named = request->key != NULL ? session_by_key(table, request->key) : NULL;
    if (named == NULL || session_key_is_of_here(table, request->key))
        return KV_ORIGIN_HERE;
    return named->origin;
}

/* Idle sessions whose last or last but one full block is match->last. */
static void match_idle_sessions(const struct session_table *table, const struct session_request *request,
                                uint64_t origin, bool may_go_on, struct session_match *match)
{
    int32_t base = match->n_full * KV_BLOCK_TOKENS;
    bool named = false;
    const struct session_anchor *anchor = table->anchors[match->last + 1];
    for (int i = 0; anchor != NULL && i < MAX_SCANNED; anchor = anchor->next) {
        struct session *session = anchor->session;
        if (session->origin != origin)
            continue;
        i++;
        if (session == table->unevictable)
            continue;
        int32_t limit = smaller(smaller(session->n_resident, request->max_cached) - base, KV_BLOCK_TOKENS - 1);
        int32_t common = session_common_prefix(session->tokens + base, request->tokens + base, limit);
        bool go_on = may_go_on && may_continue(session, session->n_resident, request->key, base + common);
        bool better =
            common > match->n_partial || (common == match->n_partial && go_on &&
                                          (match->go_on == NULL || (!named && same_key(session, request->key))));
        if (!better || (!go_on && common == 0))
            continue;
        named = go_on && same_key(session, request->key);
        match->n_partial = common;
        match->go_on = go_on ? session : NULL;
        match->partial = common > 0 ? session->blocks[match->n_full] : KV_NO_BLOCK;
        match->owner = common > 0 && match->n_full >= session->n_full ? session : NULL;
    }
}

static void match_full_children(const struct session_table *table, const struct session_request *request,
                                uint64_t origin, struct session_match *match)
{
    int32_t base = match->n_full * KV_BLOCK_TOKENS;
    int32_t limit = smaller(request->max_cached - base, KV_BLOCK_TOKENS - 1);
    int32_t child = kv_pool_first_child(table->pool, origin, match->last);
    for (int i = 0; child != KV_NO_BLOCK && i < MAX_SCANNED; child = kv_pool_next_sibling(table->pool, child), i++) {
        const int32_t *tokens = kv_pool_tokens(table->pool, child);
        int32_t common = session_common_prefix(tokens, request->tokens + base, limit);
        if (common <= match->n_partial)
            continue;
        match->n_partial = common;
        match->partial = child;
        match->owner = NULL;
        match->go_on = NULL;
    }
}

struct session_match session_find_match(const struct session_table *table, const struct session_request *request,
                                        uint64_t origin, bool may_go_on, int32_t *full_blocks)
{
    struct session_match match = {.last = KV_NO_BLOCK, .partial = KV_NO_BLOCK};
    while ((match.n_full + 1) * KV_BLOCK_TOKENS <= request->max_cached) {
        const int32_t *tokens = request->tokens + (size_t)match.n_full * KV_BLOCK_TOKENS;
        int32_t block = kv_pool_lookup(table->pool, origin, match.last, tokens);
        if (block == KV_NO_BLOCK)
            break;
        if (full_blocks != NULL)
            full_blocks[match.n_full] = block;
        match.last = block;
        match.n_full++;
    }
    match_idle_sessions(table, request, origin, may_go_on, &match);
    match_full_children(table, request, origin, &match);
    return match;
}

int32_t session_blocks_needed(const struct session_table *table, const struct session_request *request)
{
    int32_t needed = (request->n_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    int32_t last = KV_NO_BLOCK;
    uint64_t origin = session_origin_of(table, request);
    for (int32_t i = 0; (i + 1) * KV_BLOCK_TOKENS <= request->max_cached; i++) {
        last = kv_pool_lookup(table->pool, origin, last, request->tokens + (size_t)i * KV_BLOCK_TOKENS);
        if (last == KV_NO_BLOCK || !kv_pool_is_held(table->pool, last))
            break; /* a held block has only held ones before it */
        needed--;
    }
    return needed;
}

bool session_awaits(const struct session *session, const struct session *other, int32_t max_cached)
{
    int32_t index = session->n_resident / KV_BLOCK_TOKENS;
    int32_t end = (index + 1) * KV_BLOCK_TOKENS;
    if (other->transient || session->origin != other->origin || session->n_resident % KV_BLOCK_TOKENS != 0 ||
        end > max_cached || other->n_tokens < end || other->n_resident / KV_BLOCK_TOKENS != index)
        return false;
    if (index > 0 && session->blocks[index - 1] != other->blocks[index - 1])
        return false;
    return memcmp(session->tokens + end - KV_BLOCK_TOKENS, other->tokens + end - KV_BLOCK_TOKENS,
                  KV_BLOCK_TOKENS * sizeof *session->tokens) == 0;
}

/* The known history of this origin that the prompt has most in common with: among those of its key, if there are any. */
static struct session *nearest_history(const struct session_table *table, const struct session_request *request,
                                       uint64_t origin, int32_t *ret_common)
{
    struct session *nearest = NULL;
    bool nearest_named = false;
    int32_t most = 0;
    uint64_t key_hash = session_key_hash(request->key);
    for (int list = 0; list < LIST_COUNT; list++) {
        struct session *session = table->lists[list].last;
        for (int i = 0; session != NULL && i < MAX_EXPLAINED; session = session->previous, i++) {
            bool named = key_hash != 0 && session->key_hash == key_hash && same_key(session, request->key);
            if (session->transient || session->origin != origin || (nearest_named && !named))
                continue;
            int32_t limit = smaller(session->n_tokens, request->n_tokens);
            int32_t common = session_common_prefix(session->tokens, request->tokens, limit);
            if (common > most || (named && !nearest_named) ||
                (nearest != NULL && common == most && session->used_us > nearest->used_us)) {
                nearest = session;
                nearest_named = named;
                most = common;
            }
        }
    }
    *ret_common = most;
    return nearest;
}

struct session *session_explain(const struct session_table *table, const struct session_request *request,
                                uint64_t origin, const struct session_match *match, struct cache_report *ret_report)
{
    int32_t cached = match->n_full * KV_BLOCK_TOKENS + match->n_partial;
    int32_t common;
    struct session *history = match->go_on;
    if (history != NULL)
        common = session_common_prefix(history->tokens, request->tokens, smaller(history->n_tokens, request->n_tokens));
    else
        history = nearest_history(table, request, origin, &common);

    *ret_report = (struct cache_report){.n_cached = cached, .differs_at = -1};
    if (history != NULL) {
        ret_report->known_id = history->id;
        ret_report->n_known = common;
    }
    ret_report->source = cached == 0            ? CACHE_SOURCE_NONE
                         : match->go_on != NULL ? CACHE_SOURCE_RESIDENT
                                                : CACHE_SOURCE_SHARED;
    if (history == NULL) {
        ret_report->miss = cached > 0 ? CACHE_MISS_NONE : CACHE_MISS_FIRST_USE;
        return NULL;
    }
    if (cached > 0)
        ret_report->source_id = history->id;
    if (common < history->n_tokens && common < request->n_tokens)
        ret_report->differs_at = common;
    ret_report->miss = cache_report_miss(ret_report, request->max_cached);
    bool revive = history->state == SESSION_EVICTED && may_continue(history, history->n_tokens, request->key, common);
    return revive ? history : NULL;
}
