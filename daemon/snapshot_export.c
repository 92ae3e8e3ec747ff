#include "daemon/snapshot_transfer.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/snapshot.h"

struct session_export {
    struct block_reader reader; /* first */
    struct transfer_options options;
    struct state_manifest manifest;
    uint64_t origin; /* of the session's K/V */
    size_t manifest_bytes;
    void *head; /* the manifest's bytes */
    bool head_given, end_given;
    int32_t next; /* block */
    void *buffer; /* of one block */
    void *tail; /* the last block, if it is only partly filled and was at hand; or NULL */
    struct stored_block *reading; /* referenced, while it is read */
    void *read; /* what was read of block next, or NULL */
    bool read_failed, destroyed;
    unsigned char end[STATE_END_BYTES];
};

static size_t file_bytes(const struct session_export *transfer)
{
    return STATE_BLOCK_HEADER_BYTES + transfer->options.executor->block_bytes;
}

/* The history that can be told: what is computed, or known from before. */
static int32_t history_length(const struct session *session)
{
    if (session->state != SESSION_BUSY)
        return session->n_tokens;
    int32_t n = session->n_resident > session->n_lasting ? session->n_resident : session->n_lasting;
    return n > 0 ? n : session->n_tokens;
}

/* The end of a history changes with the next request: it is read at once. False: no memory. */
static bool copy_tail(struct session_export *transfer, const struct session *session)
{
    int32_t n_tokens = transfer->manifest.n_tokens, index = n_tokens / KV_BLOCK_TOKENS;
    if (n_tokens % KV_BLOCK_TOKENS == 0 || session->n_resident < n_tokens)
        return true;
    transfer->tail = malloc(file_bytes(transfer));
    if (transfer->tail == NULL)
        return false;
    if (executor_read_block(transfer->options.executor, session->blocks[index],
                            (char *)transfer->tail + STATE_BLOCK_HEADER_BYTES, NULL) == NPU_OK)
        return true;
    free(transfer->tail);
    transfer->tail = NULL;
    return true;
}

static bool fill_manifest(struct session_export *transfer, const struct session *session)
{
    struct state_manifest *manifest = &transfer->manifest;
    int32_t n_tokens = history_length(session);
    int32_t n_blocks = (n_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    *manifest = (struct state_manifest){
        .identity = transfer->options.identity,
        .id = session->id,
        .key = session->key != NULL ? strdup(session->key) : NULL,
        .pinned = session->pinned,
        .kept = session->kept,
        .turns = session->turns,
        .created_us = (int64_t)session->created_us + transfer->options.unix_offset_us,
        .used_us = (int64_t)session->used_us + transfer->options.unix_offset_us,
        .tokens = malloc((size_t)n_tokens * sizeof *session->tokens),
        .n_tokens = n_tokens,
        .hashes = malloc((size_t)n_blocks * sizeof(struct state_hash)),
        .n_blocks = n_blocks,
    };
    if (manifest->tokens == NULL || manifest->hashes == NULL || (session->key != NULL && manifest->key == NULL))
        return false;
    memcpy(manifest->tokens, session->tokens, (size_t)n_tokens * sizeof *session->tokens);
    struct state_hash hash = state_hash_root(&manifest->identity, manifest->origin);
    for (int32_t i = 0; i < n_blocks; i++) {
        hash = state_hash_block(hash, manifest->tokens + (size_t)i * KV_BLOCK_TOKENS,
                                state_block_tokens(&manifest->identity, n_tokens, i));
        manifest->hashes[i] = hash;
    }
    transfer->head = state_manifest_encode(manifest, &transfer->manifest_bytes);
    return transfer->head != NULL;
}

static void on_read(struct block_reader *reader, struct stored_block *block, void *bytes)
{
    struct session_export *transfer = (struct session_export *)reader;
    transfer->read = bytes;
    transfer->read_failed = bytes == NULL;
    transfer->reading = NULL;
    state_store_release(transfer->options.store, block);
    if (transfer->destroyed)
        session_export_destroy(transfer);
}

enum npu_status session_export_create(struct session_export **ret_export, const struct transfer_options *options,
                                      const struct session *session, struct npu_error *error)
{
    struct session_export *transfer = calloc(1, sizeof *transfer);
    if (transfer != NULL) {
        transfer->reader.on_read = on_read;
        transfer->options = *options;
        transfer->origin = session->origin;
        transfer->buffer = malloc(file_bytes(transfer));
    }
    if (transfer == NULL || transfer->buffer == NULL || !fill_manifest(transfer, session) ||
        !copy_tail(transfer, session)) {
        session_export_destroy(transfer);
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory to export session %016llx",
                             (unsigned long long)session->id);
    }
    *ret_export = transfer;
    return NPU_OK;
}

void session_export_destroy(struct session_export *transfer)
{
    if (transfer == NULL)
        return;
    transfer->destroyed = true;
    if (transfer->reading != NULL)
        return; /* when it has been read */
    state_manifest_clear(&transfer->manifest);
    free(transfer->head);
    free(transfer->buffer);
    free(transfer->tail);
    free(transfer->read);
    free(transfer);
}

/* Where the pool has the block, or KV_NO_BLOCK. */
static int32_t find_in_pool(const struct session_export *transfer, int32_t index)
{
    int32_t block = KV_NO_BLOCK;
    if ((index + 1) * KV_BLOCK_TOKENS > transfer->manifest.n_tokens)
        return KV_NO_BLOCK;
    for (int32_t i = 0; i <= index && (i == 0 || block != KV_NO_BLOCK); i++)
        block = kv_pool_lookup(transfer->options.pool, transfer->origin, block,
                               transfer->manifest.tokens + (size_t)i * KV_BLOCK_TOKENS);
    return block;
}

static struct stored_block *find_in_store(const struct session_export *transfer, int32_t index)
{
    const struct state_manifest *manifest = &transfer->manifest;
    struct stored_block *block = NULL;
    for (int32_t i = 0; i <= index && (i == 0 || block != NULL); i++)
        block = state_store_find(transfer->options.store, transfer->origin, block,
                                 manifest->tokens + (size_t)i * KV_BLOCK_TOKENS,
                                 state_block_tokens(&manifest->identity, manifest->n_tokens, i));
    return block;
}

/* Brings block next to the buffer, from wherever it is. EXPORT_DONE: it cannot be had. */
static enum export_state fetch_block(struct session_export *transfer)
{
    char *kv = (char *)transfer->buffer + STATE_BLOCK_HEADER_BYTES;
    size_t n = transfer->options.executor->block_bytes;
    int32_t from = find_in_pool(transfer, transfer->next);
    if (transfer->tail != NULL && transfer->next == transfer->manifest.n_blocks - 1) {
        memcpy(kv, (char *)transfer->tail + STATE_BLOCK_HEADER_BYTES, n);
        return EXPORT_PIECE;
    }
    if (transfer->read != NULL) {
        memcpy(kv, (char *)transfer->read + STATE_BLOCK_HEADER_BYTES, n);
        free(transfer->read);
        transfer->read = NULL;
        return EXPORT_PIECE;
    }
    if (from != KV_NO_BLOCK)
        return executor_read_block(transfer->options.executor, from, kv, NULL) == NPU_OK ? EXPORT_PIECE : EXPORT_FAILED;
    struct stored_block *block = NULL;
    if (transfer->options.store != NULL && !transfer->read_failed)
        block = find_in_store(transfer, transfer->next);
    if (block == NULL || block->state == STORED_BLOCK_ABSENT)
        return EXPORT_DONE;
    if (block->state == STORED_BLOCK_WRITING) {
        memcpy(kv, block->writing, n);
        return EXPORT_PIECE;
    }
    if (!state_store_read(transfer->options.store, block, &transfer->reader))
        return EXPORT_FAILED;
    state_store_retain(block);
    transfer->reading = block;
    return EXPORT_WAITS;
}

enum export_state session_export_next(struct session_export *transfer, const void **ret_bytes, size_t *ret_n)
{
    const struct state_manifest *manifest = &transfer->manifest;
    if (transfer->reading != NULL)
        return EXPORT_WAITS;
    if (!transfer->head_given) {
        transfer->head_given = true;
        *ret_bytes = transfer->head;
        *ret_n = transfer->manifest_bytes;
        return EXPORT_PIECE;
    }
    if (transfer->end_given)
        return EXPORT_DONE;
    enum export_state state = transfer->next < manifest->n_blocks ? fetch_block(transfer) : EXPORT_DONE;
    if (state == EXPORT_PIECE) {
        state_block_encode(transfer->buffer, &manifest->identity, manifest->hashes[transfer->next],
                           state_block_tokens(&manifest->identity, manifest->n_tokens, transfer->next));
        transfer->next++;
        *ret_bytes = transfer->buffer;
        *ret_n = file_bytes(transfer);
    } else if (state == EXPORT_DONE) {
        transfer->end_given = true;
        state_end_encode(transfer->end, transfer->next);
        *ret_bytes = transfer->end;
        *ret_n = sizeof transfer->end;
        state = EXPORT_PIECE;
    }
    return state;
}
