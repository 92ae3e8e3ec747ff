#include "daemon/response_store.h"

#include <stdlib.h>

enum {
    N_BUCKETS = 1024,
};

struct entry {
    struct response_id id;
    struct response_bytes *bytes;
    struct entry *next_in_bucket;
    struct entry *older, *newer;
};

struct response_store {
    struct entry *buckets[N_BUCKETS];
    struct entry *oldest, *newest;
    size_t bytes, max_bytes;
};

/* ---- bytes ---- */

struct response_bytes *response_bytes_create(void *bytes, size_t length)
{
    struct response_bytes *created = malloc(sizeof *created);
    if (created == NULL) {
        free(bytes);
        return NULL;
    }
    *created = (struct response_bytes){.n_holders = 1, .length = length, .bytes = bytes};
    return created;
}

struct response_bytes *response_bytes_hold(struct response_bytes *bytes)
{
    bytes->n_holders++;
    return bytes;
}

void response_bytes_release(struct response_bytes *bytes)
{
    if (bytes == NULL || --bytes->n_holders > 0)
        return;
    free(bytes->bytes);
    free(bytes);
}

/* ---- the store ---- */

struct response_store *response_store_create(size_t max_bytes)
{
    struct response_store *store = calloc(1, sizeof *store);
    if (store != NULL)
        store->max_bytes = max_bytes;
    return store;
}

static size_t bytes_of(const struct entry *entry)
{
    return sizeof *entry + sizeof *entry->bytes + entry->bytes->length;
}

/* What points to the entry with this id, or would. */
static struct entry **find(struct response_store *store, const struct response_id *id)
{
    struct entry **link = &store->buckets[id->random % N_BUCKETS];
    while (*link != NULL && !response_id_equal(&(*link)->id, id))
        link = &(*link)->next_in_bucket;
    return link;
}

static void forget(struct response_store *store, struct entry **link)
{
    struct entry *entry = *link;
    *link = entry->next_in_bucket;
    *(entry->older != NULL ? &entry->older->newer : &store->oldest) = entry->newer;
    *(entry->newer != NULL ? &entry->newer->older : &store->newest) = entry->older;
    store->bytes -= bytes_of(entry);
    response_bytes_release(entry->bytes);
    free(entry);
}

void response_store_destroy(struct response_store *store)
{
    if (store == NULL)
        return;
    while (store->oldest != NULL)
        forget(store, find(store, &store->oldest->id));
    free(store);
}

void response_store_put(struct response_store *store, const struct response_id *id, struct response_bytes *bytes)
{
    response_store_remove(store, id);
    struct entry *entry = calloc(1, sizeof *entry);
    if (entry == NULL)
        return;
    struct entry **bucket = &store->buckets[id->random % N_BUCKETS];
    *entry = (struct entry){.id = *id, .bytes = response_bytes_hold(bytes), .next_in_bucket = *bucket};
    *bucket = entry;
    entry->older = store->newest;
    *(store->newest != NULL ? &store->newest->newer : &store->oldest) = entry;
    store->newest = entry;
    store->bytes += bytes_of(entry);
    while (store->bytes > store->max_bytes)
        forget(store, find(store, &store->oldest->id));
}

struct response_bytes *response_store_get(struct response_store *store, const struct response_id *id)
{
    struct entry *entry = *find(store, id);
    return entry != NULL ? response_bytes_hold(entry->bytes) : NULL;
}

bool response_store_remove(struct response_store *store, const struct response_id *id)
{
    struct entry **link = find(store, id);
    if (*link == NULL)
        return false;
    forget(store, link);
    return true;
}
