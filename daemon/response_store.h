/* Stored responses in memory: the newest ones, up to a number of bytes. Thread: the loop's. */
#ifndef DAEMON_RESPONSE_STORE_H
#define DAEMON_RESPONSE_STORE_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/response_record.h"

/* Immutable, counted: whoever holds one may read it on any thread, and gives it back on the loop's. */
struct response_bytes {
    int n_holders;
    size_t length;
    void *bytes; /* owned: a record */
};

/* Takes bytes, also when memory is out (NULL). One holder: the caller. */
struct response_bytes *response_bytes_create(void *bytes, size_t length);
struct response_bytes *response_bytes_hold(struct response_bytes *bytes);
void response_bytes_release(struct response_bytes *bytes); /* NULL is fine */

struct response_store;

struct response_store *response_store_create(size_t max_bytes); /* NULL when memory is out */
void response_store_destroy(struct response_store *store); /* NULL is fine */

/* Holds bytes and forgets the oldest until there is room; without memory, or when there is too much of it alone, it is
 * forgotten at once. */
void response_store_put(struct response_store *store, const struct response_id *id, struct response_bytes *bytes);
/* Held for the caller; NULL: there is none. */
struct response_bytes *response_store_get(struct response_store *store, const struct response_id *id);
/* False: there was none. */
bool response_store_remove(struct response_store *store, const struct response_id *id);

#endif
