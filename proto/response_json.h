/* What answers of all generation endpoints have in common, as JSON. Values are NULL when memory is out. Thread: any. */
#ifndef PROTO_RESPONSE_JSON_H
#define PROTO_RESPONSE_JSON_H

#include <jansson.h>

#include "proto/completion_response.h"

/* A token's text; a part of a character is written byte by byte. */
json_t *response_token_text(const char *text, size_t length);
json_t *response_logprob_value(double logprob);
json_t *response_usage_value(const struct response_usage *usage);
json_t *response_timings_value(const struct response_timings *timings);

/* Takes the value. malloc'ed and NUL-terminated; NULL when memory is out or value is NULL. */
char *response_dump(json_t *value, size_t *ret_length);
/* Takes JSON of length bytes, or NULL: the frame of an event without a name. */
char *response_frame(char *json, size_t length, size_t *ret_length);

/* The SSE frame of a chunk of a streamed answer; takes root, which may be NULL. with_usage: it has a usage, null where usage
 * is NULL. timings may be NULL: none. NULL: no memory. */
char *response_chunk_frame(json_t *root, bool with_usage, const struct response_usage *usage,
                           const struct response_timings *timings, size_t *ret_length);

#endif
