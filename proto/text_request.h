/* POST /tokenize and /detokenize. Unknown fields are ignored. Thread: any. */
#ifndef PROTO_TEXT_REQUEST_H
#define PROTO_TEXT_REQUEST_H

#include "proto/request_fields.h"

struct tokenize_request {
    char *content; /* owned; may hold NUL bytes */
    size_t length;
    bool add_special; /* false */
    bool parse_special; /* true: control tokens written in the text are those tokens */
};

struct detokenize_request {
    int32_t *tokens; /* owned */
    size_t n_tokens;
};

/* On failure nothing is left to clear. */
bool tokenize_request_decode(struct tokenize_request *request, const char *body, size_t length,
                             struct api_error *error);
bool detokenize_request_decode(struct detokenize_request *request, const char *body, size_t length,
                               const struct request_limits *limits, struct api_error *error);

/* The answers, malloc'ed and NUL-terminated; NULL when memory is out. Texts must be UTF-8. */
char *tokenize_response_json(const int32_t *tokens, size_t n_tokens, size_t *ret_length);
char *detokenize_response_json(const char *content, size_t length, size_t *ret_length);
/* Of POST /v1/chat/completions/render. */
char *render_response_json(const char *prompt, size_t length, const int32_t *tokens, size_t n_tokens,
                           size_t *ret_length);

#endif
