/* A session as one file, out of one npud and into another: its manifest, its blocks, an end record. Both go in pieces of a
 * block, so that steps run in between; neither needs a state folder.
 * Thread: one (the engine's). */
#ifndef DAEMON_SNAPSHOT_TRANSFER_H
#define DAEMON_SNAPSHOT_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/kv_pool.h"
#include "daemon/session.h"
#include "daemon/state_store.h"
#include "npu/executor.h"

struct transfer_options {
    struct executor *executor;
    struct kv_pool *pool;
    struct session_table *sessions;
    struct state_store *store; /* blocks may come from here; or NULL */
    struct state_identity identity;
    int64_t unix_offset_us; /* microseconds since 1970 less the clock of sessions */
};

struct session_export;

/* The session as it is now, in any state. It may change or go meanwhile: blocks that cannot be had any more are left out, with
 * all behind them. Borrows what is in options. */
enum npu_status session_export_create(struct session_export **ret_export, const struct transfer_options *options,
                                      const struct session *session, struct npu_error *error);
void session_export_destroy(struct session_export *transfer); /* NULL is fine */

enum export_state {
    EXPORT_PIECE, /* the next bytes, valid until the next call */
    EXPORT_WAITS, /* for the disk: ask again */
    EXPORT_DONE,
    EXPORT_FAILED, /* no memory, or the device */
};
enum export_state session_export_next(struct session_export *transfer, const void **ret_bytes, size_t *ret_n);

struct session_import;

/* Begins a session from the bytes of an export, which stay until the end. key: its name, or NULL: as in the file.
 * NPU_ERROR_INPUT: damaged, another model, longer than max_tokens; NPU_ERROR_MEMORY. */
enum npu_status session_import_create(struct session_import **ret_import, const struct transfer_options *options,
                                      const void *bytes, size_t n, const char *key, int32_t max_tokens, uint64_t now_us,
                                      struct npu_error *error);

/* Takes blocks, up to max_bytes, but at least one, and up to spare_blocks of the pool. *ret_done: there is nothing left to
 * take. NPU_ERROR_INPUT: a block is damaged. */
enum npu_status session_import_work(struct session_import *transfer, size_t max_bytes, int32_t spare_blocks,
                                    bool *ret_done, struct npu_error *error);

/* The end. keep: the session, which is not busy any more; else nothing stays and NULL comes back. */
struct session *session_import_end(struct session_import *transfer, bool keep, uint64_t now_us);

#endif
