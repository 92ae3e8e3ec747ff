/* The small bodies of POST /v1/sessions/{id}/...: what to do with a session. Unknown fields are ignored, null means absent.
 * Thread: any. */
#ifndef PROTO_SESSION_REQUEST_H
#define PROTO_SESSION_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/api_error.h"

enum {
    SESSION_REQUEST_MAX_BYTES = 16 * 1024,
};

struct session_request_fields {
    int32_t tokens; /* 0: not given */
    char *key; /* owned, or NULL */
};

/* An empty body is an empty object. On failure nothing is left to clear. */
bool session_request_decode(struct session_request_fields *fields, const char *body, size_t length,
                            struct api_error *error);
/* The query of an import: nothing, or key=NAME, form-encoded. *ret_key is malloc'ed, or NULL when there is none. */
bool session_request_decode_key(char **ret_key, const char *query, struct api_error *error);
void session_request_clear(struct session_request_fields *fields);

#endif
