/* POST /v1/responses: the request. Source: OpenAI's API reference, plus stop, grammar, chat_template_kwargs
 * and what else /v1/chat/completions has beyond it. Unknown fields are ignored, null means the default. Thread: any. */
#ifndef PROTO_RESPONSES_REQUEST_H
#define PROTO_RESPONSES_REQUEST_H

#include <jansson.h>

#include "proto/grammar_fields.h"
#include "proto/request_fields.h"
#include "proto/template_fields.h"
#include "proto/tool_fields.h"

enum {
    RESPONSES_MAX_METADATA = 16,
    RESPONSES_MAX_METADATA_NAME = 64, /* characters */
    RESPONSES_MAX_METADATA_VALUE = 512,
};

struct responses_request {
    json_t *input; /* owned: an array of items, not looked into: see responses_items_add */
    json_t *instructions; /* owned: a string, or NULL */
    struct tool_fields tools;
    struct template_fields template;
    struct grammar_fields grammar;
    int32_t max_tokens; /* -1: to the end of the context */
    struct sampling_fields sampling;
    struct stop_fields stop;
    struct queue_fields queue;
    bool stream, store;
    char *previous_response_id; /* owned, or NULL */
    char *prompt_cache_key; /* owned, or NULL */
    json_t *echo; /* owned: the fields of a response that say what was asked for */
};

/* On failure nothing is left to clear. */
bool responses_request_decode(struct responses_request *request, const char *body, size_t length,
                              const struct request_limits *limits, struct api_error *error);
void responses_request_clear(struct responses_request *request);

/* The query of GET /v1/responses/{id}: refuses what is not supported. query: as sent, or NULL. */
bool responses_query_check(const char *query, struct api_error *error);

#endif
