/* The keys that clients show to be served, from a file: one a line, blank lines and lines that begin with # aside.
 * Immutable once read; any thread. */
#ifndef PROTO_API_KEYS_H
#define PROTO_API_KEYS_H

#include <stdbool.h>
#include <stddef.h>

enum {
    API_KEYS_MAX = 1024,
    API_KEY_MAX_BYTES = 255, /* of one key: printable ASCII without spaces */
};

struct api_keys;

/* Keys out of a text of length bytes. NULL: message is one line that says which line of `name` is wrong and what would be
 * right; a text without any key is wrong, too. */
struct api_keys *api_keys_parse(const char *text, size_t length, const char *name, char *message, size_t message_bytes);

/* The same out of a regular file of at most 1 MiB. *ret_open_to_all: every user of the machine may read it. */
struct api_keys *api_keys_read(const char *path, bool *ret_open_to_all, char *message, size_t message_bytes);

void api_keys_destroy(struct api_keys *keys); /* NULL is fine */
int api_keys_count(const struct api_keys *keys);

/* Whether key is one of them. Takes the same time whether it is the first, the last or none of them, and wherever it
 * differs. */
bool api_keys_have(const struct api_keys *keys, const char *key);

/* The key of an Authorization field's value, "Bearer KEY" (RFC 6750, 2.1; the scheme in any case). NULL: another form. */
const char *api_keys_bearer(const char *authorization);

#endif
