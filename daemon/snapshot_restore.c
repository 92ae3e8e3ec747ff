/* Blocks from disk into sessions. */
#include "daemon/snapshot_internal.h"

#include <assert.h>
#include <stdlib.h>

enum {
    MAX_SCANNED = 64, /* blocks behind one that are compared */
};

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* --- what there is to read ---------------------------------------------------------------------------------------- */

/* What the folder has of a prefix. */
struct stored_prefix {
    int32_t n_full; /* whole blocks, of which those from the first wanted one on can be read */
    struct stored_block *last; /* the last of them, or NULL */
    struct stored_block *partial; /* behind it, for n_partial positions, or NULL */
    int32_t n_partial;
};

static struct stored_prefix find_prefix(const struct state_store *store, uint64_t origin, const int32_t *tokens,
                                        int32_t n_tokens, int32_t first)
{
    struct stored_prefix prefix = {.last = NULL};
    while ((prefix.n_full + 1) * KV_BLOCK_TOKENS <= n_tokens) {
        const int32_t *own = tokens + (size_t)prefix.n_full * KV_BLOCK_TOKENS;
        struct stored_block *block = state_store_find(store, origin, prefix.last, own, KV_BLOCK_TOKENS);
        if (block == NULL || (prefix.n_full >= first && block->state == STORED_BLOCK_ABSENT))
            break;
        prefix.last = block;
        prefix.n_full++;
    }
    int32_t base = prefix.n_full * KV_BLOCK_TOKENS;
    struct stored_block *child = prefix.n_full >= first ? state_store_first_child(store, prefix.last) : NULL;
    for (int i = 0; child != NULL && i < MAX_SCANNED; child = child->next_sibling) {
        if (child->origin != origin)
            continue;
        i++;
        int32_t limit = smaller(child->n_tokens, n_tokens - base), common = 0;
        while (common < limit && child->tokens[common] == tokens[base + common])
            common++;
        if (common <= prefix.n_partial || child->state == STORED_BLOCK_ABSENT)
            continue;
        prefix.n_partial = common;
        prefix.partial = child;
    }
    return prefix;
}

/* --- lifetime ----------------------------------------------------------------------------------------------------- */

static void drop_buffer(struct restore *restore, void *bytes)
{
    struct snapshots *snapshots = restore->snapshots;
    if (bytes != NULL)
        snapshots->read_bytes -= snapshots->options.executor->block_bytes;
    free(bytes);
}

void snapshot_restore_destroy(struct snapshots *snapshots, struct restore *restore)
{
    struct restore **link = &snapshots->first_restore;
    while (*link != NULL && *link != restore)
        link = &(*link)->next;
    if (*link != NULL)
        *link = restore->next;
    for (int32_t i = restore->n_blocks - 1; i >= 0; i--) {
        state_store_release(snapshots->options.store, restore->blocks[i]);
        drop_buffer(restore, restore->ready[i]);
    }
    free(restore->blocks);
    free(restore->ready);
    free(restore);
}

static void on_read(struct block_reader *reader, struct stored_block *block, void *bytes)
{
    struct restore *restore = (struct restore *)reader;
    struct snapshots *snapshots = restore->snapshots;
    restore->n_reading--;
    if (bytes == NULL)
        snapshots->read_bytes -= snapshots->options.executor->block_bytes;
    for (int32_t i = restore->n_loaded; i < restore->n_asked; i++) {
        if (restore->blocks[i] != block || restore->ready[i] != NULL)
            continue;
        restore->ready[i] = bytes;
        if (bytes == NULL) {
            restore->damaged = true;
            restore->n_usable = smaller(restore->n_usable, i);
        }
        return;
    }
    drop_buffer(restore, bytes); /* the session has it from elsewhere by now, or is gone */
}

struct restore *snapshots_restore(struct snapshots *snapshots, struct session *session, int32_t max_cached,
                                  void (*on_end)(void *context, const struct restore_result *result), void *context)
{
    assert(session->state == SESSION_BUSY);
    struct state_store *store = snapshots->options.store;
    struct stored_prefix prefix = find_prefix(store, session->origin, session->tokens, max_cached, session->n_full);
    int32_t n_stored = prefix.n_full * KV_BLOCK_TOKENS + prefix.n_partial;
    if (n_stored <= session->n_resident || prefix.n_full < session->n_full)
        return NULL;
    int32_t n_blocks = prefix.n_full - session->n_full + (prefix.partial != NULL);
    struct restore *restore = calloc(1, sizeof *restore);
    if (restore == NULL)
        return NULL;
    restore->blocks = calloc((size_t)n_blocks, sizeof(struct stored_block *));
    restore->ready = calloc((size_t)n_blocks, sizeof(void *));
    if (restore->blocks == NULL || restore->ready == NULL) {
        free(restore->blocks);
        free(restore->ready);
        free(restore);
        return NULL;
    }
    restore->reader.on_read = on_read;
    restore->snapshots = snapshots;
    restore->session = session;
    restore->max_cached = max_cached;
    restore->n_before = session->n_resident;
    restore->first = session->n_full;
    restore->n_blocks = restore->n_usable = n_blocks;
    restore->on_end = on_end;
    restore->context = context;
    int32_t i = n_blocks;
    if (prefix.partial != NULL)
        restore->blocks[--i] = prefix.partial;
    for (struct stored_block *block = prefix.last; i > 0; block = block->parent)
        restore->blocks[--i] = block;
    for (i = 0; i < n_blocks; i++)
        state_store_retain(restore->blocks[i]);
    session_rewind(snapshots->options.sessions, session);
    struct restore **last = &snapshots->first_restore;
    while (*last != NULL)
        last = &(*last)->next;
    *last = restore;
    return restore;
}

void snapshots_restore_cancel(struct snapshots *snapshots, struct restore *restore)
{
    if (restore == NULL)
        return;
    restore->session = NULL;
    if (restore->n_reading == 0)
        snapshot_restore_destroy(snapshots, restore);
}

/* --- progress ----------------------------------------------------------------------------------------------------- */

/* Positions of the session that block i of the restore ends at. */
static int32_t end_of(const struct restore *restore, int32_t i)
{
    int32_t begin = (restore->first + i) * KV_BLOCK_TOKENS;
    return smaller(begin + restore->blocks[i]->n_tokens, restore->max_cached);
}

/* Gives block i to the session. False: that cannot be; the restore ends here. */
static bool load(struct snapshots *snapshots, struct restore *restore, int32_t i, const void *kv)
{
    struct session *session = restore->session;
    struct session_table *sessions = snapshots->options.sessions;
    int32_t index = restore->first + i, end = end_of(restore, i);
    /* What stands before the end of a history is not always what this prompt goes on with. */
    int32_t begin = index * KV_BLOCK_TOKENS;
    int32_t common = 0;
    while (begin + common < end && restore->blocks[i]->tokens[common] == session->tokens[begin + common])
        common++;
    if (session->n_resident != begin || session_reserve(sessions, session, begin + common) < begin + common)
        return false;
    if (executor_write_block(snapshots->options.executor, session->blocks[index], kv, NULL) != NPU_OK)
        return false;
    session_commit(sessions, session, common);
    return true;
}

/* Asks for what comes next, up to what cannot be read. */
static void read_ahead(struct snapshots *snapshots, struct restore *restore)
{
    size_t block_bytes = snapshots->options.executor->block_bytes;
    while (restore->n_asked < restore->n_usable &&
           (restore->n_asked == restore->n_loaded || snapshots->read_bytes + block_bytes <= SNAPSHOT_READ_BYTES)) {
        struct stored_block *block = restore->blocks[restore->n_asked];
        if (block->state == STORED_BLOCK_WRITING) /* its K/V is in memory; when its turn comes, there or in the file */
            return;
        if (block->state == STORED_BLOCK_ABSENT) /* another reader has found it damaged */
            restore->damaged = true;
        if (block->state == STORED_BLOCK_ABSENT ||
            !state_store_read(snapshots->options.store, block, &restore->reader)) {
            restore->n_usable = restore->n_asked;
            return;
        }
        restore->n_asked++;
        restore->n_reading++;
        snapshots->read_bytes += block_bytes;
    }
}

/* Blocks that the pool has meanwhile got from others need not be read. */
static void skip_ahead(struct snapshots *snapshots, struct restore *restore)
{
    session_skip_ahead(snapshots->options.sessions, restore->session, restore->max_cached);
    while (restore->n_loaded < restore->n_blocks &&
           end_of(restore, restore->n_loaded) <= restore->session->n_resident) {
        drop_buffer(restore, restore->ready[restore->n_loaded]);
        restore->ready[restore->n_loaded++] = NULL;
    }
    if (restore->n_asked < restore->n_loaded)
        restore->n_asked = restore->n_loaded;
}

/* True: it has ended. */
static bool advance(struct snapshots *snapshots, struct restore *restore, size_t max_bytes, size_t *bytes)
{
    while (*bytes < max_bytes) {
        skip_ahead(snapshots, restore);
        read_ahead(snapshots, restore);
        int32_t i = restore->n_loaded;
        if (i >= restore->n_usable)
            return true;
        const char *buffer = restore->ready[i];
        const void *kv = buffer;
        if (buffer != NULL)
            kv = buffer + STATE_BLOCK_HEADER_BYTES;
        else if (i == restore->n_asked)
            kv = restore->blocks[i]->writing;
        if (kv == NULL)
            return false;
        bool loaded = load(snapshots, restore, i, kv);
        drop_buffer(restore, restore->ready[i]);
        restore->ready[i] = NULL;
        if (!loaded)
            return true;
        restore->n_loaded++;
        *bytes += snapshots->options.executor->block_bytes;
    }
    return false;
}

static void end(struct snapshots *snapshots, struct restore *restore)
{
    int32_t n = restore->session->n_resident - restore->n_before;
    struct restore_result result = {.n_restored = n > 0 ? n : 0, .damaged = restore->damaged};
    snapshots->counters.restores += n > 0;
    snapshots->counters.restored_tokens += (uint64_t)result.n_restored;
    restore->on_end(restore->context, &result);
    snapshots_restore_cancel(snapshots, restore);
}

void snapshot_restore_work(struct snapshots *snapshots, size_t max_bytes)
{
    size_t bytes = 0;
    struct restore *next, *restore = snapshots->first_restore;
    for (; restore != NULL; restore = next) {
        next = restore->next;
        if (restore->session != NULL && advance(snapshots, restore, max_bytes, &bytes))
            end(snapshots, restore);
        else if (restore->session == NULL && restore->n_reading == 0)
            snapshot_restore_destroy(snapshots, restore);
    }
}
