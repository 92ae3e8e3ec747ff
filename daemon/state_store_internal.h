/* What state_store.c (the index), state_store_jobs.c (files and events), state_store_open.c (what a folder holds) and
 * state_store_responses.c share. Private to them. */
#ifndef DAEMON_STATE_STORE_INTERNAL_H
#define DAEMON_STATE_STORE_INTERNAL_H

#include "daemon/state_store.h"
#include "daemon/state_store_worker.h"

/* A manifest on disk, or one that is being written. */
struct stored_session {
    uint64_t id;
    int64_t used_us;
    bool pinned;
    bool foreign; /* another model or other numerics: its blocks are only names */
    bool listed; /* it counts; false: being written, or another one has taken its place meanwhile */
    int32_t n_tokens, n_blocks;
    struct stored_block **blocks; /* referenced */
    uint64_t file_bytes;
    struct stored_session *previous, *next; /* in the list, no order */
};

/* A response on disk, or one that is being written. */
struct stored_response {
    struct response_id id;
    uint64_t file_bytes; /* what it counts for */
    const void *writing; /* its record while it has no file; n_writing bytes */
    size_t n_writing;
    bool listed; /* false: it went while it was being written */
    struct stored_response *older, *newer; /* in the list */
    struct stored_response *next_in_bucket;
};

enum {
    RESPONSE_BUCKETS = 4096,
};

struct state_store {
    struct state_store_options options;
    char *dir;
    int lock; /* descriptor, or -1 */
    struct state_worker *worker;
    void (*on_progress)(void *context);
    void *progress_context;
    void (*on_dropped)(void *context, uint64_t id);
    void *dropped_context;

    struct stored_block **buckets; /* by hash */
    uint32_t bucket_mask;
    uint32_t n_blocks;
    struct stored_block *first_root;
    struct stored_session *first_session;
    struct stored_response *oldest_response, *newest_response;
    struct stored_response *response_buckets[RESPONSE_BUCKETS]; /* by id */

    struct state_manifest *found; /* n_found, taken up to next_found */
    int n_found, next_found;

    int n_jobs; /* handed in and not taken back, but for removals */
    uint32_t job_references; /* to blocks */
    struct state_job *done; /* taken back from the worker, not yet told */
    struct state_job *told; /* the job of the last event */
    bool failing; /* the last write failed: not every one is logged */
    struct state_store_counters counters;
};

struct stored_block *stored_block_by_hash(const struct state_store *store, struct state_hash hash);
/* A block that is only a name, without references. NULL: no memory. */
struct stored_block *stored_block_create(struct state_store *store, struct state_hash hash);
/* Gives it its place in the tree. */
void stored_block_place(struct state_store *store, struct stored_block *block, uint64_t origin,
                        struct stored_block *parent, const int32_t *tokens, int32_t n_tokens);
/* One that nobody references goes, with its file. */
void stored_block_sweep(struct state_store *store, struct stored_block *block);
/* It has no file that can be used. */
void stored_block_set_absent(struct state_store *store, struct stored_block *block);

struct stored_session *stored_session_create(int32_t n_blocks); /* NULL: no memory */
void stored_session_list(struct state_store *store, struct stored_session *session);
/* Gives its blocks back and frees it; its file stays. */
void stored_session_destroy(struct state_store *store, struct stored_session *session);
/* Off the list, with its file. */
void stored_session_remove(struct state_store *store, struct stored_session *session);
struct stored_session *stored_session_by_id(const struct state_store *store, uint64_t id);

/* One with a file of so many bytes, or 0 while it is written. NULL: no memory. */
struct stored_response *stored_response_create(struct state_store *store, const struct response_id *id,
                                               uint64_t file_bytes);
/* Off the list, with its file. */
void stored_response_remove(struct state_store *store, struct stored_response *response);
void stored_response_name(char name[STATE_NAME_BYTES], const struct response_id *id);
/* What the worker has done with one. */
void stored_response_written(struct state_store *store, struct state_job *job);
void stored_response_was_read(struct state_store *store, struct state_job *job);
void stored_responses_free(struct state_store *store); /* the end */

/* A job whose event is to come. */
void state_store_post(struct state_store *store, struct state_job *job);
void state_store_remove_file(struct state_store *store, const char *name, enum state_job_kind kind);
/* Counts what has been written, and says what was not. */
void state_store_note_write(struct state_store *store, const struct state_job *job);

/* Oldest sessions and responses go until there is room for so many bytes. */
bool state_store_make_room(struct state_store *store, uint64_t bytes, const struct state_priority *priority);
/* The file goes; without memory to say so, when the folder is opened next. */
void state_store_remove_block(struct state_store *store, struct state_hash hash);
void state_store_remove_manifest(struct state_store *store, uint64_t id);

void stored_block_name(char name[STATE_NAME_BYTES], struct state_hash hash);
void stored_session_name(char name[STATE_NAME_BYTES], uint64_t id);
uint64_t state_store_block_file_bytes(const struct state_store *store);

/* Fills the index from the folder. */
enum npu_status state_store_load(struct state_store *store, struct npu_error *error);

#endif
