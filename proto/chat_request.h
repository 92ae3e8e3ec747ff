/* POST /v1/chat/completions: the request. Source: OpenAI's API reference, plus grammar, top_k, min_p, repeat_penalty,
 * ignore_eos, chat_template_kwargs, priority, max_wait_ms and timeout_ms. Unknown fields are ignored, null means the
 * default. Thread: any. */
#ifndef PROTO_CHAT_REQUEST_H
#define PROTO_CHAT_REQUEST_H

#include <jansson.h>

#include "proto/grammar_fields.h"
#include "proto/request_fields.h"
#include "proto/template_fields.h"
#include "proto/tool_fields.h"

struct chat_request {
    json_t *messages; /* owned: as chat_messages_read gives them */
    struct tool_fields tools;
    struct template_fields template;
    int32_t max_tokens; /* -1: to the end of the context */
    int n;
    int logprobs; /* -1: none; else alternatives per token */
    struct sampling_fields sampling;
    struct stop_fields stop;
    struct stream_fields stream;
    struct queue_fields queue;
    struct grammar_fields grammar; /* of the content; stop is empty beside it */
    char *prompt_cache_key; /* owned, or NULL */
};

/* On failure nothing is left to clear. */
bool chat_request_decode(struct chat_request *request, const char *body, size_t length,
                         const struct request_limits *limits, struct api_error *error);
void chat_request_clear(struct chat_request *request);

#endif
