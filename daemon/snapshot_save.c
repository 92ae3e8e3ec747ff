/* Sessions to disk. */
#include "daemon/snapshot_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

bool snapshot_is_worth_saving(const struct session *session)
{
    return session->key != NULL || session->turns >= 2 || session->pinned || session->kept;
}

static struct state_priority priority_of(const struct save *save)
{
    return (struct state_priority){save->manifest.id, save->manifest.used_us, save->manifest.pinned};
}

static bool holds(const struct save *save, const struct stored_block *block)
{
    for (int32_t i = save->n_settled; i < save->n_blocks; i++)
        if (save->blocks[i] == block)
            return true;
    return false;
}

/* On whose behalf a block is written: of the saves that hold it, the one that most has to make room for. */
static const struct save *first_in_rank(const struct snapshots *snapshots, const struct stored_block *block)
{
    const struct save *best = NULL;
    for (const struct save *save = snapshots->first_save; save != NULL; save = save->next) {
        struct state_priority own = priority_of(save), other = best != NULL ? priority_of(best) : own;
        bool better = own.pinned != other.pinned ? own.pinned : own.used_us > other.used_us;
        if ((best == NULL || better) && holds(save, block))
            best = save;
    }
    return best;
}

static size_t block_bytes(const struct snapshots *snapshots)
{
    return snapshots->options.executor->block_bytes;
}

/* --- one block ---------------------------------------------------------------------------------------------------- */

/* It will not be written from the pool (any more). */
static void unwant(struct snapshots *snapshots, struct stored_block *block)
{
    if (block->wanted < 0)
        return;
    snapshots->wanted[block->wanted] = NULL;
    block->wanted = -1;
}

/* After a save has let go of it. */
static void release(struct snapshots *snapshots, struct stored_block *block)
{
    if (block->wanted >= 0 && first_in_rank(snapshots, block) == NULL)
        unwant(snapshots, block);
    state_store_release(snapshots->options.store, block);
}

/* Reads a block out of the pool and hands it to the worker. False: it is lost to the save. */
static bool write_from_pool(struct snapshots *snapshots, struct stored_block *block, int32_t from,
                            const struct state_priority *priority)
{
    if (snapshots->rescued_bytes + block_bytes(snapshots) > SNAPSHOT_RESCUED_BYTES && snapshots->rescued_bytes > 0)
        return false;
    struct state_store *store = snapshots->options.store;
    char *buffer = state_store_buffer(store);
    if (buffer == NULL)
        return false;
    if (executor_read_block(snapshots->options.executor, from, buffer + STATE_BLOCK_HEADER_BYTES, NULL) != NPU_OK) {
        free(buffer);
        return false;
    }
    if (!state_store_write(store, block, buffer, priority))
        return false;
    snapshots->rescued_bytes += block_bytes(snapshots);
    return true;
}

static void write_wanted(struct snapshots *snapshots, struct stored_block *block)
{
    int32_t from = block->wanted;
    const struct save *save = first_in_rank(snapshots, block);
    unwant(snapshots, block);
    if (save == NULL)
        return;
    struct state_priority priority = priority_of(save);
    write_from_pool(snapshots, block, from, &priority);
}

void snapshot_save_on_loss(void *context, int32_t pool_block)
{
    struct snapshots *snapshots = context;
    struct stored_block *block = snapshots->wanted[pool_block];
    if (block != NULL)
        write_wanted(snapshots, block);
}

/* --- one session -------------------------------------------------------------------------------------------------- */

static void tell(struct save *save, int32_t n_tokens, const char *reason)
{
    while (save->waiters != NULL) {
        struct save_waiter *waiter = save->waiters;
        save->waiters = waiter->next;
        waiter->on_saved(waiter->context, save->manifest.id, n_tokens, reason);
        free(waiter);
    }
}

void snapshot_save_destroy(struct snapshots *snapshots, struct save *save)
{
    struct save **link = &snapshots->first_save;
    while (*link != NULL && *link != save)
        link = &(*link)->next;
    if (*link != NULL)
        *link = save->next;
    while (save->n_blocks > 0)
        release(snapshots, save->blocks[--save->n_blocks]);
    tell(save, 0, "it was given up");
    free(save->blocks);
    state_manifest_clear(&save->manifest);
    free(save);
}

static struct save *new_save(const struct snapshots *snapshots, const struct session *session)
{
    struct save *save = calloc(1, sizeof *save);
    if (save == NULL)
        return NULL;
    int32_t max_blocks = (session->n_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    save->blocks = calloc((size_t)max_blocks, sizeof(struct stored_block *));
    save->manifest = (struct state_manifest){
        .identity = *state_store_identity(snapshots->options.store),
        .id = session->id,
        .origin = session->origin,
        .key = session->key != NULL ? strdup(session->key) : NULL,
        .pinned = session->pinned,
        .kept = session->kept,
        .turns = session->turns,
        .created_us = (int64_t)session->created_us + snapshots->options.unix_offset_us,
        .used_us = (int64_t)session->used_us + snapshots->options.unix_offset_us,
        .prompt_ns = snapshots->prompt_ns,
        .tokens = malloc((size_t)session->n_tokens * sizeof *session->tokens),
        .n_tokens = session->n_tokens,
        .hashes = malloc((size_t)max_blocks * sizeof *save->manifest.hashes),
    };
    if (save->blocks == NULL || save->manifest.tokens == NULL || save->manifest.hashes == NULL ||
        (session->key != NULL && save->manifest.key == NULL)) {
        free(save->blocks);
        state_manifest_clear(&save->manifest);
        free(save);
        return NULL;
    }
    memcpy(save->manifest.tokens, session->tokens, (size_t)session->n_tokens * sizeof *session->tokens);
    return save;
}

/* Where the pool has block index of the session, or KV_NO_BLOCK. parent: where it has the one before. */
static int32_t pool_block_of(const struct snapshots *snapshots, const struct session *session, int32_t index,
                             int32_t parent)
{
    if (index < session->n_full)
        return session->blocks[index];
    if (index > 0 && parent == KV_NO_BLOCK)
        return KV_NO_BLOCK;
    return kv_pool_lookup(snapshots->options.pool, session->origin, parent,
                          session->tokens + (size_t)index * KV_BLOCK_TOKENS);
}

/* The end of the history is the session's own and will change: it is read out at once. */
static bool save_end(struct snapshots *snapshots, const struct session *session, int32_t index,
                     struct stored_block *block, const struct state_priority *priority)
{
    if (block->state != STORED_BLOCK_ABSENT)
        return true;
    return index < session->n_blocks && session->n_resident == session->n_tokens &&
           write_from_pool(snapshots, block, session->blocks[index], priority);
}

/* Notes the blocks of the session, as far as they are on disk or in the pool. */
static void note_blocks(struct snapshots *snapshots, const struct session *session, struct save *save)
{
    const struct state_identity *identity = &save->manifest.identity;
    struct state_priority priority = priority_of(save);
    struct stored_block *parent = NULL;
    int32_t pool_parent = KV_NO_BLOCK;
    for (int32_t i = 0; i * KV_BLOCK_TOKENS < session->n_tokens; i++) {
        int32_t n_tokens = state_block_tokens(identity, session->n_tokens, i);
        struct stored_block *block = state_store_acquire(snapshots->options.store, session->origin, parent,
                                                         save->manifest.tokens + (size_t)i * KV_BLOCK_TOKENS, n_tokens);
        if (block == NULL)
            return;
        bool noted = true;
        if (n_tokens < KV_BLOCK_TOKENS) {
            noted = save_end(snapshots, session, i, block, &priority);
        } else {
            pool_parent = pool_block_of(snapshots, session, i, pool_parent);
            if (block->state == STORED_BLOCK_ABSENT && block->wanted < 0) {
                noted = pool_parent != KV_NO_BLOCK;
                if (noted) {
                    block->wanted = pool_parent;
                    snapshots->wanted[pool_parent] = block;
                }
            }
        }
        if (!noted) {
            release(snapshots, block);
            return;
        }
        save->blocks[save->n_blocks++] = block;
        parent = block;
    }
}

struct save *snapshot_save_begin(struct snapshots *snapshots, struct session *session)
{
    assert(session->state != SESSION_BUSY);
    struct save *save = new_save(snapshots, session);
    if (save == NULL)
        return NULL;
    session->dirty = false;
    note_blocks(snapshots, session, save);
    struct save **link = &snapshots->first_save;
    while (*link != NULL)
        link = &(*link)->next;
    *link = save;
    return save;
}

/* False: nothing of its K/V is on disk or in the pool. */
static bool has_something(const struct save *save, const struct session *session)
{
    return save->n_blocks > 0 || session->state != SESSION_EVICTED;
}

void snapshot_save_cancel(struct snapshots *snapshots, uint64_t id)
{
    struct save *next, *save = snapshots->first_save;
    for (; save != NULL; save = next) {
        next = save->next;
        if (save->manifest.id != id)
            continue;
        tell(save, 0, NULL);
        if (!save->committing) /* else it goes when the store is done with it */
            snapshot_save_destroy(snapshots, save);
    }
}

enum npu_status snapshots_save(struct snapshots *snapshots, struct session *session,
                               void (*on_saved)(void *context, uint64_t id, int32_t n_tokens, const char *reason),
                               void *context, struct npu_error *error)
{
    if (session->state == SESSION_BUSY)
        return npu_error_set(error, NPU_ERROR_INPUT,
                             "session %016llx is busy with a generation and cannot be saved now",
                             (unsigned long long)session->id);
    struct save_waiter *waiter = calloc(1, sizeof *waiter);
    if (waiter == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory to save session %016llx",
                             (unsigned long long)session->id);
    waiter->on_saved = on_saved;
    waiter->context = context;
    bool was_kept = session->kept;
    session->kept = true;
    struct save *save = snapshot_save_begin(snapshots, session);
    if (save != NULL && has_something(save, session)) {
        save->waiters = waiter;
        return NPU_OK;
    }
    free(waiter);
    session->kept = was_kept;
    if (save != NULL) {
        session->dirty = true;
        snapshot_save_destroy(snapshots, save);
        return npu_error_set(
            error, NPU_ERROR_INPUT,
            "session %016llx has no K/V at hand to save; a request that goes on with it computes it again",
            (unsigned long long)session->id);
    }
    return npu_error_set(error, NPU_ERROR_MEMORY, "no memory to save session %016llx", (unsigned long long)session->id);
}

/* --- progress ----------------------------------------------------------------------------------------------------- */

void snapshot_save_on_written(struct snapshots *snapshots)
{
    snapshots->rescued_bytes -= block_bytes(snapshots);
}

static void trim(struct snapshots *snapshots, struct save *save, int32_t n_blocks)
{
    while (save->n_blocks > n_blocks)
        release(snapshots, save->blocks[--save->n_blocks]);
}

/* The next block of the saves that is to be read out of the pool. Behind a block that was lost no other is of use. */
static struct stored_block *next_wanted(struct snapshots *snapshots)
{
    for (struct save *save = snapshots->first_save; save != NULL; save = save->next) {
        for (int32_t i = save->n_settled; i < save->n_blocks; i++) {
            const struct stored_block *block = save->blocks[i];
            if (block->wanted >= 0)
                return save->blocks[i];
            if (block->state == STORED_BLOCK_ABSENT)
                trim(snapshots, save, i);
        }
    }
    return NULL;
}

/* The session as it is now, for what is to be noted about it; NULL: it is gone. */
static struct session *session_of(const struct snapshots *snapshots, const struct save *save)
{
    return session_by_id(snapshots->options.sessions, save->manifest.id);
}

static void fail(struct snapshots *snapshots, struct save *save, const char *reason)
{
    struct session *session = session_of(snapshots, save);
    if (session != NULL)
        session->dirty = true;
    snapshots->counters.failed_saves++;
    tell(save, 0, reason);
    snapshot_save_destroy(snapshots, save);
}

static void note_saved(struct snapshots *snapshots, struct save *save, struct session *session)
{
    const struct state_manifest *manifest = &save->manifest;
    int64_t covered = (int64_t)manifest->n_blocks * KV_BLOCK_TOKENS;
    int32_t n_tokens = covered < manifest->n_tokens ? (int32_t)covered : manifest->n_tokens;
    if (session != NULL) {
        int32_t common = 0;
        while (common < n_tokens && common < session->n_tokens && session->tokens[common] == manifest->tokens[common])
            common++;
        session->n_lasting = common;
        if (n_tokens < manifest->n_tokens && session->state != SESSION_EVICTED)
            session->dirty = true; /* another time there may be room for the rest */
    }
    tell(save, n_tokens, NULL);
    snapshot_save_destroy(snapshots, save);
}

/* All its blocks are written or lost. */
static void commit(struct snapshots *snapshots, struct save *save)
{
    int32_t n_present = 0;
    while (n_present < save->n_blocks && save->blocks[n_present]->state == STORED_BLOCK_PRESENT)
        n_present++;
    trim(snapshots, save, n_present);
    for (int32_t i = 0; i < n_present; i++)
        save->manifest.hashes[i] = save->blocks[i]->hash;
    save->manifest.n_blocks = n_present;
    if (n_present > 0 && state_store_is_up_to_date(snapshots->options.store, &save->manifest)) {
        note_saved(snapshots, save, session_of(snapshots, save));
        return;
    }
    for (; n_present > 0 && !save->committing; n_present--) { /* its blocks may have left no room for the manifest */
        trim(snapshots, save, n_present);
        save->manifest.n_blocks = n_present;
        save->committing = state_store_commit(snapshots->options.store, &save->manifest, save->blocks, save);
    }
    if (save->committing)
        save->n_blocks = 0; /* the store's now */
    else
        fail(snapshots, save, "the state folder has no room for it, or the disk has failed");
}

void snapshot_save_on_committed(struct snapshots *snapshots, struct save *save, const struct state_event *event)
{
    if (event->status != NPU_OK) {
        fail(snapshots, save, event->message);
        return;
    }
    snapshots->counters.saves += event->id != 0;
    note_saved(snapshots, save, event->id != 0 ? session_of(snapshots, save) : NULL);
}

/* The next session that a checkpoint has to look at begins to be saved. False: there is none. */
static bool begin_next(struct snapshots *snapshots)
{
    struct session_table *sessions = snapshots->options.sessions;
    for (struct session *s = session_next(sessions, NULL); s != NULL; s = session_next(sessions, s)) {
        if (!s->dirty || s->state == SESSION_BUSY || s->checkpoint == snapshots->checkpoint ||
            !snapshot_is_worth_saving(s))
            continue;
        s->checkpoint = snapshots->checkpoint;
        struct save *save = snapshot_save_begin(snapshots, s);
        if (save != NULL && has_something(save, s))
            return true;
        if (save != NULL) /* nothing can be done for it before its next turn */
            snapshot_save_destroy(snapshots, save);
    }
    return false;
}

void snapshot_save_work(struct snapshots *snapshots, size_t max_bytes)
{
    size_t bytes = 0;
    struct stored_block *block;
    do {
        if (snapshots->checkpointing && snapshots->first_save == NULL)
            snapshots->checkpointing = begin_next(snapshots);
        while (bytes < max_bytes && (snapshots->rescued_bytes < SNAPSHOT_WRITES_AHEAD * block_bytes(snapshots)) &&
               (block = next_wanted(snapshots)) != NULL) {
            write_wanted(snapshots, block);
            bytes += block_bytes(snapshots);
        }
        struct save *next, *save = snapshots->first_save;
        for (; save != NULL; save = next) {
            next = save->next;
            if (save->committing)
                continue;
            while (save->n_settled < save->n_blocks && save->blocks[save->n_settled]->wanted < 0 &&
                   save->blocks[save->n_settled]->state != STORED_BLOCK_WRITING)
                save->n_settled++;
            if (save->n_settled == save->n_blocks)
                commit(snapshots, save);
        }
    } while (snapshots->checkpointing && snapshots->first_save == NULL); /* it failed at once */
}

void snapshots_give_up(struct snapshots *snapshots)
{
    struct save *next, *save = snapshots->first_save;
    snapshots->checkpointing = false;
    for (; save != NULL; save = next) {
        next = save->next;
        tell(save, 0, "there was no time to write it");
        if (!save->committing)
            snapshot_save_destroy(snapshots, save);
    }
}

void snapshots_checkpoint(struct snapshots *snapshots)
{
    snapshots->checkpoint++;
    snapshots->checkpointing = true;
}

bool snapshots_is_settled(const struct snapshots *snapshots)
{
    return !snapshots->checkpointing && snapshots->first_save == NULL && !state_store_is_busy(snapshots->options.store);
}
