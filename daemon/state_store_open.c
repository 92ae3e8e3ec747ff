/* What a folder holds when it is opened. Nothing in it is believed: names, sizes and contents of files are checked, and what
 * is of no use is removed. Files with other names than ours are not looked at. */
#include "daemon/state_store_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"

enum {
    MAX_MANIFEST_BYTES = 1 << 27,
};

struct found_response {
    struct response_id id;
    uint64_t size;
};

struct listing {
    struct state_store *store;
    uint64_t *ids; /* of manifests */
    size_t n_ids, capacity;
    char (*leftovers)[STATE_NAME_BYTES]; /* temporary files */
    size_t n_leftovers, leftovers_capacity;
    struct found_response *responses;
    size_t n_responses, responses_capacity;
};

/* Lower-case hexadecimal digits. */
static bool parse_hex(const char *text, int n, uint64_t *ret_value)
{
    uint64_t value = 0;
    for (int i = 0; i < n; i++) {
        char c = text[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0)
            return false;
        value = value << 4 | (uint64_t)digit;
    }
    *ret_value = value;
    return true;
}

static bool parse_session_name(const char *name, const char *suffix, uint64_t *ret_id)
{
    return strlen(name) == 16 + strlen(suffix) && parse_hex(name, 16, ret_id) && strcmp(name + 16, suffix) == 0;
}

static bool parse_block_name(const char *name, const char *suffix, struct state_hash *ret_hash)
{
    return strlen(name) == 32 + strlen(suffix) && parse_hex(name, 16, &ret_hash->high) &&
           parse_hex(name + 16, 16, &ret_hash->low) && strcmp(name + 32, suffix) == 0;
}

/* Room for one more element of so many bytes. */
static bool grow(void **elements, size_t n, size_t *capacity, size_t element_bytes)
{
    if (n < *capacity)
        return true;
    size_t more = *capacity == 0 ? 64 : *capacity * 2;
    void *larger = realloc(*elements, more * element_bytes);
    if (larger == NULL)
        return false;
    *elements = larger;
    *capacity = more;
    return true;
}

static int on_file(void *argument, const char *name, uint64_t size)
{
    struct listing *listing = argument;
    struct state_store *store = listing->store;
    struct state_hash hash;
    uint64_t id;
    if (parse_session_name(name, ".session", &id)) {
        if (!grow((void **)&listing->ids, listing->n_ids, &listing->capacity, sizeof *listing->ids))
            return -ENOMEM;
        listing->ids[listing->n_ids++] = id;
    } else if (parse_block_name(name, ".block", &hash)) {
        struct stored_block *block = stored_block_by_hash(store, hash);
        if (block == NULL)
            block = stored_block_create(store, hash);
        if (block == NULL)
            return -ENOMEM;
        if (block->state == STORED_BLOCK_ABSENT && size > 0) {
            block->state = STORED_BLOCK_PRESENT;
            block->file_bytes = size;
            store->counters.bytes += size;
        }
    } else if (parse_block_name(name, ".response", &hash)) {
        if (!grow((void **)&listing->responses, listing->n_responses, &listing->responses_capacity,
                  sizeof *listing->responses))
            return -ENOMEM;
        listing->responses[listing->n_responses++] = (struct found_response){{(int64_t)hash.high, hash.low}, size};
    } else if (parse_session_name(name, ".session.tmp", &id) || parse_block_name(name, ".block.tmp", &hash) ||
               parse_block_name(name, ".response.tmp", &hash)) {
        if (!grow((void **)&listing->leftovers, listing->n_leftovers, &listing->leftovers_capacity,
                  sizeof *listing->leftovers))
            return -ENOMEM;
        strcpy(listing->leftovers[listing->n_leftovers++], name);
    }
    return 0;
}

/* --- manifests ---------------------------------------------------------------------------------------------------- */

static bool takes_block(struct state_store *store, const struct state_manifest *manifest, int32_t i,
                        struct stored_session *session)
{
    int32_t n_tokens = state_block_tokens(&manifest->identity, manifest->n_tokens, i);
    const int32_t *tokens = manifest->tokens + (size_t)i * KV_BLOCK_TOKENS;
    struct stored_block *parent = i > 0 ? session->blocks[i - 1] : NULL;
    struct stored_block *block = stored_block_by_hash(store, manifest->hashes[i]);
    if (block == NULL)
        block = stored_block_create(store, manifest->hashes[i]);
    if (block == NULL)
        return false;
    if (!block->known)
        stored_block_place(store, block, manifest->origin, parent, tokens, n_tokens);
    else if (state_store_find(store, manifest->origin, parent, tokens, n_tokens) != block)
        return false; /* two prefixes with one hash: the first has it */
    if (block->state == STORED_BLOCK_PRESENT && block->file_bytes != state_store_block_file_bytes(store)) {
        char name[STATE_NAME_BYTES];
        stored_block_name(name, block->hash);
        log_warning(store->options.log, "a saved KV block is computed again: %s/%s has %" PRIu64 " bytes, not %" PRIu64,
                    store->dir, name, block->file_bytes, state_store_block_file_bytes(store));
        store->counters.damaged++;
        stored_block_set_absent(store, block);
        state_store_remove_block(store, block->hash);
    }
    block->references++;
    session->blocks[session->n_blocks++] = block;
    return true;
}

static void take_own_blocks(struct state_store *store, const struct state_manifest *manifest,
                            struct stored_session *session)
{
    int32_t n_missing = 0;
    for (int32_t i = 0; i < manifest->n_blocks && takes_block(store, manifest, i, session); i++)
        n_missing += session->blocks[i]->state == STORED_BLOCK_ABSENT;
    n_missing += manifest->n_blocks - session->n_blocks;
    if (n_missing == 0)
        return;
    store->counters.damaged++;
    log_warning(store->options.log, "%d of the %d KV blocks of session %016" PRIx64 " are missing in %s", n_missing,
                manifest->n_blocks, manifest->id, store->dir);
}

/* Of another model or other numerics: only so that its files are not lost. */
static void take_foreign_blocks(struct state_store *store, const struct state_manifest *manifest,
                                struct stored_session *session)
{
    for (int32_t i = 0; i < manifest->n_blocks; i++) {
        struct stored_block *block = stored_block_by_hash(store, manifest->hashes[i]);
        if (block == NULL || block->known)
            continue;
        block->references++;
        session->blocks[session->n_blocks++] = block;
    }
}

static bool take_manifest(struct state_store *store, const struct state_manifest *manifest, size_t bytes)
{
    struct stored_session *session = stored_session_create(manifest->n_blocks);
    if (session == NULL)
        return false;
    session->id = manifest->id;
    session->used_us = manifest->used_us;
    session->pinned = manifest->pinned;
    session->n_tokens = manifest->n_tokens;
    session->file_bytes = bytes;
    session->listed = true;
    session->foreign = memcmp(&manifest->identity, &store->options.identity, sizeof manifest->identity) != 0;
    store->counters.bytes += bytes;
    store->counters.sessions += !session->foreign;
    stored_session_list(store, session);
    if (session->foreign)
        take_foreign_blocks(store, manifest, session);
    else
        take_own_blocks(store, manifest, session);
    return true;
}

static void read_manifest(struct state_store *store, uint64_t id)
{
    char name[STATE_NAME_BYTES], path[STATE_PATH_BYTES];
    struct state_manifest manifest;
    struct npu_error error;
    void *bytes;
    size_t n, used = 0;
    stored_session_name(name, id);
    state_path(path, store->dir, name);
    enum npu_status status = state_read_file(store->options.fs, path, MAX_MANIFEST_BYTES, &bytes, &n, &error);
    if (status != NPU_OK) { /* it may be readable another time */
        log_warning(store->options.log, "a saved session is not used: %s", error.message);
        store->counters.damaged++;
        return;
    }
    status = state_manifest_decode(&manifest, bytes, n, &used, &error);
    free(bytes);
    if (status == NPU_OK && (used != n || manifest.id != id)) {
        status = npu_error_set(&error, NPU_ERROR_INPUT,
                               used != n ? "it goes on behind its end" : "it is of another session");
        state_manifest_clear(&manifest);
    }
    if (status != NPU_OK) {
        log_warning(store->options.log, "a saved session is not used: %s: %s", path, error.message);
        if (status == NPU_ERROR_INPUT) {
            store->counters.damaged++;
            state_store_remove_manifest(store, id);
        }
        return;
    }
    bool same_model = manifest.identity.model == store->options.identity.model &&
                      manifest.identity.n_vocab == store->options.identity.n_vocab;
    if (take_manifest(store, &manifest, n) && same_model)
        store->found[store->n_found++] = manifest;
    else
        state_manifest_clear(&manifest);
}

static int compare_use(const void *a, const void *b)
{
    const struct state_manifest *x = a, *y = b;
    if (x->used_us != y->used_us)
        return x->used_us < y->used_us ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static int compare_age(const void *a, const void *b)
{
    const struct found_response *x = a, *y = b;
    return x->id.created_us < y->id.created_us ? -1 : x->id.created_us > y->id.created_us;
}

/* Their contents are looked at when they are asked for. False: no memory. */
static bool take_responses(struct state_store *store, const struct listing *listing)
{
    if (listing->n_responses > 0)
        qsort(listing->responses, listing->n_responses, sizeof *listing->responses, compare_age);
    for (size_t i = 0; i < listing->n_responses; i++)
        if (stored_response_create(store, &listing->responses[i].id, listing->responses[i].size) == NULL)
            return false;
    return true;
}

/* Block files that no manifest names. */
static void sweep(struct state_store *store)
{
    for (uint32_t i = 0; i <= store->bucket_mask; i++) {
        struct stored_block *block = store->buckets[i];
        while (block != NULL) {
            struct stored_block *next = block->next_in_bucket;
            if (block->references == 0 && !block->known)
                stored_block_sweep(store, block);
            block = next;
        }
    }
}

static void say_what_is_there(const struct state_store *store)
{
    int n_foreign = 0;
    for (const struct stored_session *session = store->first_session; session != NULL; session = session->next)
        n_foreign += session->foreign;
    log_info(store->options.log, "the state folder %s has %d sessions, %" PRIu64 " bytes", store->dir,
             store->counters.sessions, store->counters.bytes);
    if (store->counters.responses > 0)
        log_info(store->options.log, "%d of its files are stored responses", store->counters.responses);
    if (n_foreign > 0)
        log_info(store->options.log,
                 "%d sessions in %s are of another model or other numerics: their K/V is not used, and kept until the "
                 "space is needed",
                 n_foreign, store->dir);
}

enum npu_status state_store_load(struct state_store *store, struct npu_error *error)
{
    const struct state_fs *fs = store->options.fs;
    struct listing listing = {.store = store};
    int code = fs->list(fs->context, store->dir, on_file, &listing);
    if (code == 0 && listing.n_ids > 0) {
        store->found = calloc(listing.n_ids, sizeof *store->found);
        code = store->found == NULL ? -ENOMEM : 0;
    }
    if (code == 0 && !take_responses(store, &listing))
        code = -ENOMEM;
    for (size_t i = 0; code == 0 && i < listing.n_leftovers; i++) {
        char path[STATE_PATH_BYTES];
        if (state_path(path, store->dir, listing.leftovers[i]))
            fs->unlink(fs->context, path);
    }
    for (size_t i = 0; code == 0 && i < listing.n_ids; i++)
        read_manifest(store, listing.ids[i]);
    free(listing.ids);
    free(listing.leftovers);
    free(listing.responses);
    if (code != 0)
        return npu_error_set(error, code == -ENOMEM ? NPU_ERROR_MEMORY : NPU_ERROR_SYSTEM,
                             "cannot list the state folder %s: %s", store->dir, strerror(-code));
    sweep(store);
    if (store->n_found > 0)
        qsort(store->found, (size_t)store->n_found, sizeof *store->found, compare_use);
    struct state_priority none = {0, INT64_MAX, true};
    state_store_make_room(store, 0, &none);
    say_what_is_there(store);
    return NPU_OK;
}

bool state_store_next_found(struct state_store *store, struct state_manifest *ret_manifest)
{
    while (store->next_found < store->n_found) {
        struct state_manifest *manifest = &store->found[store->next_found++];
        if (state_store_has(store, manifest->id)) {
            *ret_manifest = *manifest;
            memset(manifest, 0, sizeof *manifest);
            return true;
        }
        state_manifest_clear(manifest);
    }
    return false;
}
