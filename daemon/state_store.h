/* The state folder: saved sessions and their KV blocks, and stored responses, as an index in memory and as files.
 *
 * Blocks are shared by hash: a block file is written once and removed when no session has it any more. The index is a tree,
 * as the pool's is: a block is known by the block before it and its own tokens, the last block of a session by fewer of
 * them. Files are written and read by a worker; what it has done comes back as events.
 *
 * The folder is bound to nothing: files of another model or other numerics are left alone until the space is needed.
 * Whatever is wrong with a file costs one log line, and what it held is computed again.
 *
 * Thread: one (the engine's). */
#ifndef DAEMON_STATE_STORE_H
#define DAEMON_STATE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/response_record.h"
#include "daemon/state_store_format.h"
#include "daemon/state_store_fs.h"
#include "npu/error.h"
#include "npu/executor.h"

struct log;
struct state_store;

enum stored_block_state {
    STORED_BLOCK_ABSENT, /* no file, or none that can be read */
    STORED_BLOCK_WRITING,
    STORED_BLOCK_PRESENT,
};

/* Read-only for others but for wanted. Lives while it is referenced. */
struct stored_block {
    struct state_hash hash;
    uint64_t origin; /* of its K/V: see state_manifest */
    struct stored_block *parent; /* of the same origin; NULL: starts at position 0 */
    int32_t n_tokens; /* KV_BLOCK_TOKENS, or fewer: the end of a history */
    int32_t tokens[KV_BLOCK_TOKENS];
    enum stored_block_state state;
    const void *writing; /* STORED_BLOCK_WRITING: its K/V */
    int32_t wanted; /* the user's: the block of the pool to write it from, or -1 */
    struct stored_block *next_sibling; /* behind the same parent */
    /* The store's. */
    bool known; /* parent and tokens are: not only a file's name */
    uint32_t references;
    uint64_t file_bytes; /* what it counts for */
    struct stored_block *first_child, *previous_sibling;
    struct stored_block *next_in_bucket;
};

struct state_store_options {
    const char *dir; /* made if need be */
    uint64_t max_bytes; /* of all files together */
    struct state_identity identity; /* block_tokens: KV_BLOCK_TOKENS */
    const struct state_fs *fs; /* NULL: the real one */
    const struct log *log; /* NULL: silent */
    bool threaded; /* false: files are written and read in state_store_run */
};

/* Reads the manifests that are there. NPU_ERROR_SYSTEM: the folder cannot be used, or another process uses it. */
enum npu_status state_store_open(struct state_store **ret_store, const struct state_store_options *options,
                                 struct npu_error *error);
/* Waits for what is being written. NULL is fine. */
void state_store_close(struct state_store *store);

/* Called by the worker's thread when there is an event. To be set before the first job. */
void state_store_set_on_progress(struct state_store *store, void (*on_progress)(void *context), void *context);
/* Called when a session's manifest goes for the sake of the limit. */
void state_store_set_on_dropped(struct state_store *store, void (*on_dropped)(void *context, uint64_t id),
                                void *context);

/* The sessions that opening found, of this model, the least recently used first; each once. The manifest becomes the
 * caller's; its blocks stay the store's. False: no more. */
bool state_store_next_found(struct state_store *store, struct state_manifest *ret_manifest);

bool state_store_has(const struct state_store *store, uint64_t id); /* a session */
/* Tokens of the saved history that its blocks cover, as far as they can be read; 0: unknown session. */
int32_t state_store_covered(const struct state_store *store, uint64_t id);
/* The folder has just this state of the session, with so many blocks. */
bool state_store_is_up_to_date(const struct state_store *store, const struct state_manifest *manifest);
void state_store_forget(struct state_store *store, uint64_t id); /* a session and the files that only it has */

/* Blocks. parent, of the same origin, or NULL: at position 0. */
struct stored_block *state_store_find(const struct state_store *store, uint64_t origin,
                                      const struct stored_block *parent, const int32_t *tokens, int32_t n_tokens);
/* Siblings at position 0 may be of any origin. */
struct stored_block *state_store_first_child(const struct state_store *store, const struct stored_block *parent);
/* The block, made if need be, with one more reference. NULL: no memory, or its hash is another block's. */
struct stored_block *state_store_acquire(struct state_store *store, uint64_t origin, struct stored_block *parent,
                                         const int32_t *tokens, int32_t n_tokens);
void state_store_retain(struct stored_block *block);
void state_store_release(struct state_store *store, struct stored_block *block);

/* What a save is on behalf of: sessions used longer ago make room for it, others not. */
struct state_priority {
    uint64_t id;
    int64_t used_us;
    bool pinned;
};

/* A buffer to fill with the K/V of one block at + STATE_BLOCK_HEADER_BYTES; free ends it. NULL: no memory. */
void *state_store_buffer(const struct state_store *store);

/* An absent block gets its file; takes the buffer in any case. false: no room or no memory. Else an event comes. */
bool state_store_write(struct state_store *store, struct stored_block *block, void *buffer,
                       const struct state_priority *priority);
/* A present block is read; an event comes with context. false: no memory. */
bool state_store_read(struct state_store *store, struct stored_block *block, void *context);
/* The manifest of a session whose blocks are present takes the place of the one before. Takes the caller's references to
 * the blocks (manifest->n_blocks of them) when it succeeds. false: no room or no memory. Else an event comes. */
bool state_store_commit(struct state_store *store, const struct state_manifest *manifest,
                        struct stored_block *const *blocks, void *context);

/* Stored responses; used last when they were made. */

/* Takes bytes, a record, in any case. false: no room or no memory. Else an event comes. */
bool state_store_put_response(struct state_store *store, const struct response_id *id, void *bytes, size_t n);
bool state_store_has_response(const struct state_store *store, const struct response_id *id);
/* Of one that is there; an event comes with context. false: no memory. */
bool state_store_read_response(struct state_store *store, const struct response_id *id, void *context);
bool state_store_forget_response(struct state_store *store, const struct response_id *id); /* false: it is unknown */

enum state_event_kind {
    STATE_EVENT_WRITTEN, /* block */
    STATE_EVENT_READ, /* block, bytes */
    STATE_EVENT_COMMITTED, /* id */
    STATE_EVENT_RESPONSE_WRITTEN,
    STATE_EVENT_RESPONSE_READ, /* bytes: the record, checked; n_bytes of it */
};

struct state_event {
    enum state_event_kind kind;
    enum npu_status status; /* failures have been logged */
    struct stored_block *block;
    void *context;
    uint64_t id;
    void *bytes; /* a buffer with the K/V at + STATE_BLOCK_HEADER_BYTES; the caller's; NULL: it could not be read */
    size_t n_bytes;
    const char *message; /* of a failure; valid until the next call */
};

/* False: there is none now. The block of a WRITTEN or READ event is valid until the next call. */
bool state_store_take_event(struct state_store *store, struct state_event *ret_event);
bool state_store_is_busy(const struct state_store *store); /* events are to come */
int state_store_run(struct state_store *store, int n); /* not threaded: up to n jobs; how many */

struct state_store_counters {
    int32_t sessions; /* of this model and these numerics */
    int32_t responses;
    uint64_t bytes, max_bytes;
    uint64_t commits, failures, damaged;
    uint64_t written_bytes, read_bytes;
};
struct state_store_counters state_store_count(const struct state_store *store);
const struct state_identity *state_store_identity(const struct state_store *store);

/* For tests: references, tree and sizes agree, given so many references that are not the store's. */
bool state_store_is_consistent(const struct state_store *store, uint32_t other_references);

#endif
