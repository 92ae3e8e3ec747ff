/* POST /v1/completions: the request. Source: OpenAI's API reference (legacy completions), plus response_format
 * as in chat and grammar, top_k, min_p, repeat_penalty, ignore_eos, priority, max_wait_ms and timeout_ms. Unknown fields are ignored, null means the default.
 * Thread: any. */
#ifndef PROTO_COMPLETION_REQUEST_H
#define PROTO_COMPLETION_REQUEST_H

#include "proto/grammar_fields.h"
#include "proto/prompt_fields.h"
#include "proto/request_fields.h"

enum {
    COMPLETION_MAX_CHOICES = 1024, /* prompts times n */
};

extern const struct prompt_form completion_prompt_form;

struct completion_request {
    struct prompt_field *prompts; /* owned */
    int n_prompts;
    bool prompt_is_list; /* several prompts were given, if only one of them */
    int32_t max_tokens; /* 0 only with echo; 16 */
    int n; /* choices of each prompt */
    int logprobs; /* -1: none; else alternatives per token */
    bool echo;
    struct sampling_fields sampling;
    struct stop_fields stop;
    struct stream_fields stream;
    struct queue_fields queue;
    struct grammar_fields grammar;
    char *prompt_cache_key; /* owned, or NULL */
};

/* On failure nothing is left to clear. */
bool completion_request_decode(struct completion_request *request, const char *body, size_t length,
                               const struct request_limits *limits, struct api_error *error);

/* POST /v1/prefill: one prompt, a prompt_cache_key, and how urgent it is; n and max_tokens come out as 1 and 0. */
bool prefill_request_decode(struct completion_request *request, const char *body, size_t length,
                            const struct request_limits *limits, struct api_error *error);

void completion_request_clear(struct completion_request *request);

#endif
