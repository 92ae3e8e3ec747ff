/* The index: blocks by hash and as a tree, sessions, and the limit on their size. */
#include "daemon/state_store_internal.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"

enum {
    FIRST_BUCKETS = 256,
};

/* --- opening and closing ------------------------------------------------------------------------------------------ */

static enum npu_status take_folder(struct state_store *store, struct npu_error *error)
{
    const struct state_fs *fs = store->options.fs;
    char path[STATE_PATH_BYTES];
    /* Room for the longest name behind it. */
    if (strlen(store->dir) + STATE_NAME_BYTES + 8 > sizeof path)
        return npu_error_set(error, NPU_ERROR_INPUT, "the path of the state folder has more than %d bytes",
                             STATE_PATH_BYTES - STATE_NAME_BYTES - 8);
    for (size_t i = 1; i <= strlen(store->dir); i++) {
        if (store->dir[i] != '/' && store->dir[i] != '\0')
            continue;
        snprintf(path, i + 1, "%s", store->dir);
        int code = fs->make_dir(fs->context, path);
        if (code < 0 && store->dir[i] == '\0') /* those above it may be there and closed to us */
            return npu_error_set(error, NPU_ERROR_SYSTEM, "cannot make the state folder %s: %s", path, strerror(-code));
    }
    state_path(path, store->dir, "npud.lock");
    store->lock = fs->lock(fs->context, path);
    if (store->lock >= 0)
        return NPU_OK;
    return npu_error_set(error, NPU_ERROR_SYSTEM, "cannot take the state folder %s: %s", store->dir,
                         store->lock == -EWOULDBLOCK ? "another npud uses it" : strerror(-store->lock));
}

static void on_progress(void *context)
{
    struct state_store *store = context;
    if (store->on_progress != NULL)
        store->on_progress(store->progress_context);
}

enum npu_status state_store_open(struct state_store **ret_store, const struct state_store_options *options,
                                 struct npu_error *error)
{
    struct state_store *store = calloc(1, sizeof *store);
    if (store == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the state folder's index");
    store->options = *options;
    if (options->fs == NULL)
        store->options.fs = &state_fs_real;
    store->lock = -1;
    store->dir = strdup(options->dir);
    store->buckets = calloc(FIRST_BUCKETS, sizeof(struct stored_block *));
    store->bucket_mask = FIRST_BUCKETS - 1;
    store->counters.max_bytes = options->max_bytes;
    enum npu_status status = NPU_OK;
    if (store->dir == NULL || store->buckets == NULL)
        status = npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the state folder's index");
    if (status == NPU_OK)
        status = take_folder(store, error);
    if (status == NPU_OK)
        status = state_store_load(store, error);
    struct state_worker_options worker = {
        .dir = store->dir,
        .fs = store->options.fs,
        .identity = options->identity,
        .threaded = options->threaded,
        .on_done = on_progress,
        .context = store,
    };
    if (status == NPU_OK)
        status = state_worker_create(&store->worker, &worker, error);
    if (status != NPU_OK) {
        state_store_close(store);
        return status;
    }
    *ret_store = store;
    return NPU_OK;
}

void state_store_close(struct state_store *store)
{
    if (store == NULL)
        return;
    state_worker_destroy(store->worker);
    for (struct state_job *next, *job = store->done; job != NULL; job = next) {
        next = job->next;
        state_job_destroy(job);
    }
    state_job_destroy(store->told);
    for (struct stored_session *next, *session = store->first_session; session != NULL; session = next) {
        next = session->next;
        free(session->blocks);
        free(session);
    }
    stored_responses_free(store);
    for (uint32_t i = 0; store->buckets != NULL && i <= store->bucket_mask; i++) {
        for (struct stored_block *next, *block = store->buckets[i]; block != NULL; block = next) {
            next = block->next_in_bucket;
            free(block);
        }
    }
    for (int i = store->next_found; i < store->n_found; i++)
        state_manifest_clear(&store->found[i]);
    free(store->found);
    if (store->lock >= 0)
        store->options.fs->close(store->options.fs->context, store->lock);
    free(store->buckets);
    free(store->dir);
    free(store);
}

void state_store_set_on_progress(struct state_store *store, void (*progress)(void *context), void *context)
{
    store->on_progress = progress;
    store->progress_context = context;
}

void state_store_set_on_dropped(struct state_store *store, void (*on_dropped)(void *context, uint64_t id),
                                void *context)
{
    store->on_dropped = on_dropped;
    store->dropped_context = context;
}

/* --- blocks ------------------------------------------------------------------------------------------------------- */

void stored_block_name(char name[STATE_NAME_BYTES], struct state_hash hash)
{
    snprintf(name, STATE_NAME_BYTES, "%016" PRIx64 "%016" PRIx64 ".block", hash.high, hash.low);
}

uint64_t state_store_block_file_bytes(const struct state_store *store)
{
    return STATE_BLOCK_HEADER_BYTES + store->options.identity.block_bytes;
}

struct stored_block *stored_block_by_hash(const struct state_store *store, struct state_hash hash)
{
    struct stored_block *block = store->buckets[hash.low & store->bucket_mask];
    while (block != NULL && !state_hash_equal(block->hash, hash))
        block = block->next_in_bucket;
    return block;
}

/* Twice as many; without memory the chains grow. */
static void grow_buckets(struct state_store *store)
{
    uint32_t n = (store->bucket_mask + 1) * 2;
    struct stored_block **buckets = calloc(n, sizeof(struct stored_block *));
    if (buckets == NULL)
        return;
    for (uint32_t i = 0; i <= store->bucket_mask; i++) {
        for (struct stored_block *next, *block = store->buckets[i]; block != NULL; block = next) {
            next = block->next_in_bucket;
            struct stored_block **bucket = &buckets[block->hash.low & (n - 1)];
            block->next_in_bucket = *bucket;
            *bucket = block;
        }
    }
    free(store->buckets);
    store->buckets = buckets;
    store->bucket_mask = n - 1;
}

struct stored_block *stored_block_create(struct state_store *store, struct state_hash hash)
{
    if (store->n_blocks > store->bucket_mask && store->bucket_mask < UINT32_C(1) << 24)
        grow_buckets(store);
    struct stored_block *block = calloc(1, sizeof *block);
    if (block == NULL)
        return NULL;
    block->hash = hash;
    block->wanted = -1;
    block->next_in_bucket = store->buckets[hash.low & store->bucket_mask];
    store->buckets[hash.low & store->bucket_mask] = block;
    store->n_blocks++;
    return block;
}

static struct stored_block **children_of(struct state_store *store, struct stored_block *parent)
{
    return parent == NULL ? &store->first_root : &parent->first_child;
}

void stored_block_place(struct state_store *store, struct stored_block *block, uint64_t origin,
                        struct stored_block *parent, const int32_t *tokens, int32_t n_tokens)
{
    struct stored_block **children = children_of(store, parent);
    block->known = true;
    block->origin = origin;
    block->parent = parent;
    block->n_tokens = n_tokens;
    memcpy(block->tokens, tokens, (size_t)n_tokens * sizeof *tokens);
    block->next_sibling = *children;
    if (*children != NULL)
        (*children)->previous_sibling = block;
    *children = block;
    if (parent != NULL)
        parent->references++; /* so that a prefix is always there */
}

void stored_block_set_absent(struct state_store *store, struct stored_block *block)
{
    store->counters.bytes -= block->file_bytes;
    block->file_bytes = 0;
    block->state = STORED_BLOCK_ABSENT;
}

/* Out of the index, without its parent. */
static void unlink_block(struct state_store *store, struct stored_block *block)
{
    struct stored_block **link = &store->buckets[block->hash.low & store->bucket_mask];
    while (*link != block)
        link = &(*link)->next_in_bucket;
    *link = block->next_in_bucket;
    store->n_blocks--;
    if (!block->known)
        return;
    *(block->previous_sibling == NULL ? children_of(store, block->parent) : &block->previous_sibling->next_sibling) =
        block->next_sibling;
    if (block->next_sibling != NULL)
        block->next_sibling->previous_sibling = block->previous_sibling;
}

void stored_block_sweep(struct state_store *store, struct stored_block *block)
{
    while (block != NULL && block->references == 0) {
        struct stored_block *parent = block->parent;
        if (block->state != STORED_BLOCK_ABSENT) {
            stored_block_set_absent(store, block);
            state_store_remove_block(store, block->hash);
        }
        unlink_block(store, block);
        free(block);
        if (parent != NULL)
            parent->references--;
        block = parent;
    }
}

static bool is_this(const struct stored_block *block, uint64_t origin, const struct stored_block *parent,
                    const int32_t *tokens, int32_t n_tokens)
{
    return block->known && block->origin == origin && block->parent == parent && block->n_tokens == n_tokens &&
           memcmp(block->tokens, tokens, (size_t)n_tokens * sizeof *tokens) == 0;
}

static struct state_hash hash_behind(const struct state_store *store, uint64_t origin,
                                     const struct stored_block *parent, const int32_t *tokens, int32_t n_tokens)
{
    return state_hash_block(parent != NULL ? parent->hash : state_hash_root(&store->options.identity, origin), tokens,
                            n_tokens);
}

struct stored_block *state_store_find(const struct state_store *store, uint64_t origin,
                                      const struct stored_block *parent, const int32_t *tokens, int32_t n_tokens)
{
    struct stored_block *block = stored_block_by_hash(store, hash_behind(store, origin, parent, tokens, n_tokens));
    return block != NULL && is_this(block, origin, parent, tokens, n_tokens) ? block : NULL;
}

struct stored_block *state_store_first_child(const struct state_store *store, const struct stored_block *parent)
{
    return parent == NULL ? store->first_root : parent->first_child;
}

struct stored_block *state_store_acquire(struct state_store *store, uint64_t origin, struct stored_block *parent,
                                         const int32_t *tokens, int32_t n_tokens)
{
    assert(n_tokens >= 1 && n_tokens <= KV_BLOCK_TOKENS);
    assert(parent == NULL || parent->origin == origin);
    struct state_hash hash = hash_behind(store, origin, parent, tokens, n_tokens);
    struct stored_block *block = stored_block_by_hash(store, hash);
    if (block != NULL && !is_this(block, origin, parent, tokens, n_tokens))
        return NULL;
    if (block == NULL) {
        block = stored_block_create(store, hash);
        if (block == NULL)
            return NULL;
        stored_block_place(store, block, origin, parent, tokens, n_tokens);
    }
    block->references++;
    return block;
}

void state_store_retain(struct stored_block *block)
{
    block->references++;
}

void state_store_release(struct state_store *store, struct stored_block *block)
{
    assert(block->references > 0);
    block->references--;
    stored_block_sweep(store, block);
}

/* --- sessions ----------------------------------------------------------------------------------------------------- */

void stored_session_name(char name[STATE_NAME_BYTES], uint64_t id)
{
    snprintf(name, STATE_NAME_BYTES, "%016" PRIx64 ".session", id);
}

struct stored_session *stored_session_create(int32_t n_blocks)
{
    struct stored_session *session = calloc(1, sizeof *session);
    if (session == NULL)
        return NULL;
    session->blocks = calloc((size_t)n_blocks + 1, sizeof(struct stored_block *));
    if (session->blocks == NULL) {
        free(session);
        return NULL;
    }
    return session;
}

void stored_session_list(struct state_store *store, struct stored_session *session)
{
    session->previous = NULL;
    session->next = store->first_session;
    if (session->next != NULL)
        session->next->previous = session;
    store->first_session = session;
}

void stored_session_destroy(struct state_store *store, struct stored_session *session)
{
    *(session->previous == NULL ? &store->first_session : &session->previous->next) = session->next;
    if (session->next != NULL)
        session->next->previous = session->previous;
    if (session->listed && !session->foreign)
        store->counters.sessions--;
    store->counters.bytes -= session->file_bytes;
    for (int32_t i = session->n_blocks - 1; i >= 0; i--)
        state_store_release(store, session->blocks[i]);
    free(session->blocks);
    free(session);
}

void stored_session_remove(struct state_store *store, struct stored_session *session)
{
    state_store_remove_manifest(store, session->id); /* before its blocks: what is left after a crash is whole */
    stored_session_destroy(store, session);
}

struct stored_session *stored_session_by_id(const struct state_store *store, uint64_t id)
{
    struct stored_session *session = store->first_session;
    while (session != NULL && (session->id != id || !session->listed))
        session = session->next;
    return session;
}

bool state_store_has(const struct state_store *store, uint64_t id)
{
    return stored_session_by_id(store, id) != NULL;
}

int32_t state_store_covered(const struct state_store *store, uint64_t id)
{
    const struct stored_session *session = stored_session_by_id(store, id);
    int32_t n = 0;
    if (session == NULL || session->foreign)
        return 0;
    for (int32_t i = 0; i < session->n_blocks && session->blocks[i]->state != STORED_BLOCK_ABSENT; i++)
        n += session->blocks[i]->n_tokens;
    return n;
}

bool state_store_is_up_to_date(const struct state_store *store, const struct state_manifest *manifest)
{
    const struct stored_session *session = stored_session_by_id(store, manifest->id);
    return session != NULL && !session->foreign && session->used_us == manifest->used_us &&
           session->pinned == manifest->pinned && session->n_tokens == manifest->n_tokens &&
           session->n_blocks == manifest->n_blocks &&
           state_hash_equal(session->blocks[session->n_blocks - 1]->hash, manifest->hashes[manifest->n_blocks - 1]);
}

void state_store_forget(struct state_store *store, uint64_t id)
{
    bool known = false;
    for (struct stored_session *session = store->first_session; session != NULL; session = session->next) {
        if (session->id != id)
            continue;
        known = true;
        if (!session->listed)
            session->id = 0; /* being written: goes when it is there, and its name now */
    }
    struct stored_session *session = stored_session_by_id(store, id);
    if (session != NULL)
        stored_session_remove(store, session);
    else if (known)
        state_store_remove_manifest(store, id);
}

static bool ranks_before(const struct stored_session *session, bool pinned, int64_t used_us)
{
    return session->pinned != pinned ? pinned : session->used_us < used_us;
}

static void drop_session(struct state_store *store, struct stored_session *session)
{
    uint64_t id = session->id;
    log_info(store->options.log,
             "session %016" PRIx64 " leaves the state folder %s: it is the oldest, and %" PRIu64 " bytes may be there",
             id, store->dir, store->options.max_bytes);
    stored_session_remove(store, session);
    if (store->on_dropped != NULL)
        store->on_dropped(store->dropped_context, id);
}

bool state_store_make_room(struct state_store *store, uint64_t bytes, const struct state_priority *priority)
{
    while (store->counters.bytes + bytes > store->options.max_bytes) {
        struct stored_session *oldest = NULL;
        for (struct stored_session *session = store->first_session; session != NULL; session = session->next)
            if (session->listed && session->id != priority->id &&
                ranks_before(session, priority->pinned, priority->used_us) &&
                (oldest == NULL || ranks_before(session, oldest->pinned, oldest->used_us)))
                oldest = session;
        struct stored_response *response = store->oldest_response;
        if (response != NULL && (priority->pinned || response->id.created_us < priority->used_us) &&
            (oldest == NULL || !ranks_before(oldest, false, response->id.created_us)))
            stored_response_remove(store, response);
        else if (oldest != NULL)
            drop_session(store, oldest);
        else
            return false;
    }
    return true;
}

/* --- looking in --------------------------------------------------------------------------------------------------- */

struct state_store_counters state_store_count(const struct state_store *store)
{
    return store->counters;
}

const struct state_identity *state_store_identity(const struct state_store *store)
{
    return &store->options.identity;
}

static bool block_is_consistent(const struct state_store *store, const struct stored_block *block)
{
    if (block->references == 0 || (block->state == STORED_BLOCK_WRITING) != (block->writing != NULL) ||
        (block->state == STORED_BLOCK_ABSENT) != (block->file_bytes == 0))
        return false;
    if (!block->known)
        return block->parent == NULL;
    const struct stored_block *first = state_store_first_child(store, block->parent);
    if (state_store_find(store, block->origin, block->parent, block->tokens, block->n_tokens) != block)
        return false;
    return block->previous_sibling == NULL ? first == block : block->previous_sibling->next_sibling == block;
}

bool state_store_is_consistent(const struct state_store *store, uint32_t other_references)
{
    uint64_t bytes = 0;
    uint32_t n_blocks = 0, references = 0, expected = other_references + store->job_references;
    int32_t sessions = 0, responses = 0;
    for (const struct stored_response *response = store->oldest_response; response != NULL;
         response = response->newer) {
        bytes += response->file_bytes;
        responses++;
    }
    for (uint32_t i = 0; i <= store->bucket_mask; i++) {
        for (const struct stored_block *block = store->buckets[i]; block != NULL; block = block->next_in_bucket) {
            if (!block_is_consistent(store, block))
                return false;
            bytes += block->file_bytes;
            n_blocks++;
            references += block->references;
            expected += block->parent != NULL;
        }
    }
    for (const struct stored_session *session = store->first_session; session != NULL; session = session->next) {
        bytes += session->file_bytes;
        expected += (uint32_t)session->n_blocks;
        sessions += session->listed && !session->foreign;
    }
    return bytes == store->counters.bytes && n_blocks == store->n_blocks && references == expected &&
           sessions == store->counters.sessions && responses == store->counters.responses;
}
