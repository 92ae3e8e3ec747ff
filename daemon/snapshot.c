#include "daemon/snapshot_internal.h"

#include <stdlib.h>

static void on_dropped(void *context, uint64_t id)
{
    struct snapshots *snapshots = context;
    struct session *session = session_by_id(snapshots->options.sessions, id);
    if (session != NULL)
        session->n_lasting = 0;
}

enum npu_status snapshots_create(struct snapshots **ret_snapshots, const struct snapshots_options *options,
                                 struct npu_error *error)
{
    struct snapshots *snapshots = calloc(1, sizeof *snapshots);
    if (snapshots != NULL)
        snapshots->wanted = calloc((size_t)options->executor->n_blocks, sizeof(struct stored_block *));
    if (snapshots == NULL || snapshots->wanted == NULL) {
        free(snapshots);
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory to save sessions");
    }
    snapshots->options = *options;
    kv_pool_set_on_loss(options->pool, snapshot_save_on_loss, snapshots);
    state_store_set_on_dropped(options->store, on_dropped, snapshots);
    *ret_snapshots = snapshots;
    return NPU_OK;
}

void snapshots_destroy(struct snapshots *snapshots)
{
    if (snapshots == NULL)
        return;
    kv_pool_set_on_loss(snapshots->options.pool, NULL, NULL);
    state_store_set_on_dropped(snapshots->options.store, NULL, NULL);
    while (snapshots->first_save != NULL)
        snapshot_save_destroy(snapshots, snapshots->first_save);
    while (snapshots->first_restore != NULL)
        snapshot_restore_destroy(snapshots, snapshots->first_restore);
    free(snapshots->wanted);
    free(snapshots);
}

static uint64_t clock_of(const struct snapshots *snapshots, int64_t unix_us)
{
    int64_t us = unix_us - snapshots->options.unix_offset_us;
    return us > 0 ? (uint64_t)us : 1;
}

void snapshots_load(struct snapshots *snapshots)
{
    const struct state_identity *identity = state_store_identity(snapshots->options.store);
    struct state_manifest manifest;
    while (state_store_next_found(snapshots->options.store, &manifest)) {
        struct session_record record = {
            .id = manifest.id,
            .key = manifest.key,
            .origin = manifest.origin,
            .tokens = manifest.tokens,
            .n_tokens = manifest.n_tokens,
            .turns = manifest.turns,
            .pinned = manifest.pinned,
            .kept = manifest.kept,
            .created_us = clock_of(snapshots, manifest.created_us),
            .used_us = clock_of(snapshots, manifest.used_us),
        };
        /* Without memory for it the files stay, for another time. */
        (void)session_remember(snapshots->options.sessions, &record);
        if (manifest.prompt_ns > 0 && manifest.identity.numerics == identity->numerics)
            snapshots->prompt_ns = manifest.prompt_ns; /* the last one used counts */
        state_manifest_clear(&manifest);
    }
}

void snapshots_on_evict(struct snapshots *snapshots, struct session *session)
{
    if (session->dirty && snapshot_is_worth_saving(session))
        snapshot_save_begin(snapshots, session);
}

void snapshots_on_forget(struct snapshots *snapshots, struct session *session)
{
    snapshot_save_cancel(snapshots, session->id);
    state_store_forget(snapshots->options.store, session->id);
}

static void take_events(struct snapshots *snapshots)
{
    struct state_event event;
    while (state_store_take_event(snapshots->options.store, &event)) {
        struct block_reader *reader;
        struct response_reader *response_reader;
        switch (event.kind) {
        case STATE_EVENT_WRITTEN:
            snapshot_save_on_written(snapshots);
            break;
        case STATE_EVENT_COMMITTED:
            snapshot_save_on_committed(snapshots, event.context, &event);
            break;
        case STATE_EVENT_READ:
            reader = event.context;
            reader->on_read(reader, event.block, event.bytes);
            break;
        case STATE_EVENT_RESPONSE_WRITTEN:
            break;
        case STATE_EVENT_RESPONSE_READ:
            response_reader = event.context;
            response_reader->on_read(response_reader, event.bytes, event.n_bytes);
            break;
        }
    }
}

void snapshots_work(struct snapshots *snapshots, bool gentle)
{
    size_t max_bytes = gentle ? SNAPSHOT_GENTLE_BYTES : SIZE_MAX;
    take_events(snapshots);
    snapshot_restore_work(snapshots, max_bytes);
    snapshot_save_work(snapshots, max_bytes);
}

void snapshots_set_prompt_ns(struct snapshots *snapshots, uint64_t prompt_ns)
{
    snapshots->prompt_ns = prompt_ns;
}

uint64_t snapshots_prompt_ns(const struct snapshots *snapshots)
{
    return snapshots->prompt_ns;
}

struct snapshot_counters snapshots_count(const struct snapshots *snapshots)
{
    return snapshots->counters;
}

bool snapshots_is_consistent(const struct snapshots *snapshots, uint32_t other_references)
{
    uint32_t references = other_references;
    int32_t n_wanted = 0;
    for (const struct save *save = snapshots->first_save; save != NULL; save = save->next)
        references += (uint32_t)save->n_blocks;
    for (const struct restore *restore = snapshots->first_restore; restore != NULL; restore = restore->next)
        references += (uint32_t)restore->n_blocks;
    for (int32_t i = 0; i < snapshots->options.executor->n_blocks; i++) {
        const struct stored_block *block = snapshots->wanted[i];
        if (block == NULL)
            continue;
        n_wanted++;
        if (block->wanted != i || block->references == 0 || block->state != STORED_BLOCK_ABSENT ||
            kv_pool_is_free(snapshots->options.pool, i))
            return false;
    }
    if (n_wanted > 0 && snapshots->first_save == NULL)
        return false;
    return state_store_is_consistent(snapshots->options.store, references);
}
