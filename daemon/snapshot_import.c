#include "daemon/snapshot_transfer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct session_import {
    struct transfer_options options;
    struct session *session; /* busy */
    struct state_manifest manifest;
    const char *blocks; /* the file's, one after the other */
    int32_t n_blocks; /* so many of them; 0 with other numerics */
    int32_t next;
};

/* Where the blocks stand and how many there are. */
static enum npu_status find_blocks(struct session_import *transfer, const char *bytes, size_t n,
                                   struct npu_error *error)
{
    const struct state_manifest *manifest = &transfer->manifest;
    uint64_t one = manifest->identity.block_bytes + STATE_BLOCK_HEADER_BYTES;
    uint64_t n_blocks = n < STATE_END_BYTES || one == 0 ? 0 : (n - STATE_END_BYTES) / one;
    if (one <= STATE_BLOCK_HEADER_BYTES || n < STATE_END_BYTES || n_blocks > (uint64_t)manifest->n_blocks ||
        n_blocks * one + STATE_END_BYTES != n ||
        !state_end_check(bytes + n_blocks * one, STATE_END_BYTES, (int32_t)n_blocks))
        return npu_error_set(error, NPU_ERROR_INPUT,
                             "the session has %d KV blocks of %" PRIu64 " bytes and an end, and %zu bytes come after "
                             "its head: it is cut short or damaged",
                             manifest->n_blocks, one, n);
    transfer->blocks = bytes;
    transfer->n_blocks = (int32_t)n_blocks;
    return NPU_OK;
}

static enum npu_status check(struct session_import *transfer, int32_t max_tokens, struct npu_error *error)
{
    const struct state_manifest *manifest = &transfer->manifest;
    const struct state_identity *own = &transfer->options.identity;
    if (manifest->identity.model != own->model || manifest->identity.n_vocab != own->n_vocab)
        return npu_error_set(error, NPU_ERROR_INPUT,
                             "the session is of another model (%016" PRIx64 ", this one is %016" PRIx64 ")",
                             manifest->identity.model, own->model);
    if (manifest->n_tokens > max_tokens)
        return npu_error_set(error, NPU_ERROR_INPUT, "the session has %d tokens; the context has %d",
                             manifest->n_tokens, max_tokens);
    return NPU_OK;
}

enum npu_status session_import_create(struct session_import **ret_import, const struct transfer_options *options,
                                      const void *bytes, size_t n, const char *key, int32_t max_tokens, uint64_t now_us,
                                      struct npu_error *error)
{
    struct session_import *transfer = calloc(1, sizeof *transfer);
    if (transfer == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory to import a session");
    transfer->options = *options;
    size_t head = 0;
    enum npu_status status = state_manifest_decode(&transfer->manifest, bytes, n, &head, error);
    if (status == NPU_OK)
        status = check(transfer, max_tokens, error);
    if (status == NPU_OK)
        status = find_blocks(transfer, (const char *)bytes + head, n - head, error);
    const struct state_manifest *manifest = &transfer->manifest;
    if (status == NPU_OK && memcmp(&manifest->identity, &options->identity, sizeof manifest->identity) != 0)
        transfer->n_blocks = 0;
    if (status == NPU_OK) {
        int64_t created_us = 0; /* by the clock of sessions */
        if (__builtin_sub_overflow(manifest->created_us, options->unix_offset_us, &created_us))
            created_us = 0;
        struct session_record record = {
            .key = key != NULL ? key : manifest->key,
            .tokens = manifest->tokens,
            .n_tokens = manifest->n_tokens,
            .turns = manifest->turns,
            .kept = true,
            .imported = true,
            .created_us = created_us > 0 && (uint64_t)created_us < now_us ? (uint64_t)created_us : now_us,
            .used_us = now_us,
        };
        if (record.key != NULL && session_key_is_of_here(options->sessions, record.key))
            status =
                npu_error_set(error, NPU_ERROR_INPUT,
                              "a session that was computed here has the key of the imported one: delete it, or give "
                              "the import another key (?key=)");
        else
            transfer->session = session_bring_in(options->sessions, &record);
        if (status == NPU_OK && transfer->session == NULL)
            status = npu_error_set(error, NPU_ERROR_MEMORY, "no memory for a session of %d tokens", record.n_tokens);
    }
    if (status != NPU_OK) {
        state_manifest_clear(&transfer->manifest);
        free(transfer);
        return status;
    }
    *ret_import = transfer;
    return NPU_OK;
}

enum npu_status session_import_work(struct session_import *transfer, size_t max_bytes, int32_t spare_blocks,
                                    bool *ret_done, struct npu_error *error)
{
    const struct state_manifest *manifest = &transfer->manifest;
    struct session *session = transfer->session;
    size_t one = STATE_BLOCK_HEADER_BYTES + transfer->options.executor->block_bytes;
    bool full = false;
    for (size_t bytes = 0; transfer->next < transfer->n_blocks && !full && bytes < max_bytes; bytes += one) {
        int32_t index = transfer->next;
        int32_t n_tokens = state_block_tokens(&manifest->identity, manifest->n_tokens, index);
        int32_t begin = index * KV_BLOCK_TOKENS, end = begin + n_tokens;
        const char *file = transfer->blocks + (size_t)index * one;
        enum npu_status status =
            state_block_check(file, one, &manifest->identity, manifest->hashes[index], n_tokens, error);
        if (status != NPU_OK)
            return npu_error_prefix(error, "KV block %d of the session", index);
        transfer->next++;
        session_skip_ahead(transfer->options.sessions, session, manifest->n_tokens);
        if (session->n_resident >= end)
            continue;
        full = spare_blocks-- <= 0 || session->n_resident != begin ||
               session_reserve(transfer->options.sessions, session, end) < end ||
               executor_write_block(transfer->options.executor, session->blocks[index], file + STATE_BLOCK_HEADER_BYTES,
                                    NULL) != NPU_OK;
        if (!full)
            session_commit(transfer->options.sessions, session, n_tokens);
    }
    if (full)
        transfer->n_blocks = transfer->next;
    *ret_done = transfer->next == transfer->n_blocks;
    return NPU_OK;
}

struct session *session_import_end(struct session_import *transfer, bool keep, uint64_t now_us)
{
    struct session *session = transfer->session;
    struct session_table *sessions = transfer->options.sessions;
    session_close(sessions, session, now_us); /* its tokens last: it is there afterwards */
    if (!keep) {
        session_delete(sessions, session, NULL);
        session = NULL;
    }
    state_manifest_clear(&transfer->manifest);
    free(transfer);
    return session;
}
