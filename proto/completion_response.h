/* POST /v1/completions: whole answers and the chunks of a stream, as OpenAI's legacy completions have them, plus
 * "timings". Everything is borrowed for the call; results are malloc'ed and NUL-terminated, NULL when memory is out.
 * Thread: any. */
#ifndef PROTO_COMPLETION_RESPONSE_H
#define PROTO_COMPLETION_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/api_error.h"

struct response_head {
    const char *id; /* "cmpl-..." */
    int64_t created; /* seconds since 1970 */
    const char *model;
    const char *fingerprint; /* system_fingerprint: what computed it */
};

/* Any bytes; those that are not UTF-8 are written as "bytes:\xf0\x9f". */
struct response_alternative {
    const char *text;
    size_t length;
    double logprob;
};

struct response_token {
    const char *text;
    size_t length;
    bool has_logprob; /* false: null, as for the first token of an echoed prompt */
    double logprob;
    const struct response_alternative *top;
    int n_top;
    int64_t text_offset; /* in characters of the choice's whole text */
};

struct response_choice {
    int index;
    const char *text; /* UTF-8 */
    size_t text_length;
    bool has_logprobs;
    const struct response_token *tokens;
    int n_tokens;
    const char *finish_reason; /* NULL: not finished */
};

struct response_usage {
    int64_t prompt_tokens, cached_tokens, completion_tokens;
    bool tells_reasoning; /* how many of the completion's are thinking */
    int64_t reasoning_tokens;
};

/* What one choice found in the KV cache. */
struct response_cache {
    char session[20]; /* the id of the session that it works in; empty: none */
    char from[20]; /* of the session that the prefix came from; empty: none, or not known */
    const char *source; /* "none", "resident", "shared" or "disk" */
    const char *miss; /* why not more: "none", "first_use", "differs", "evicted" or "damaged" */
    int64_t cached, restored; /* tokens; of these, read from disk */
    int64_t differs_at; /* the first position that differs from the history; -1: none does */
    double restore_ms, recompute_ms; /* what reading took, and what computing would have; meant when restored > 0 */
};

struct response_timings {
    int64_t prompt_n; /* computed, without the cached ones */
    double prompt_ms;
    int64_t predicted_n;
    double predicted_ms; /* from the first token to the last: predicted_n - 1 steps */
    int64_t cached_n;
    const struct response_cache *caches; /* one for each choice */
    int n_caches;
};

/* The answer of POST /v1/prefill: the prompt is resident in the session named key. */
char *prefill_response_json(const struct response_head *head, const char *session, const char *key,
                            const struct response_usage *usage, const struct response_timings *timings,
                            size_t *ret_length);

char *completion_response_json(const struct response_head *head, const struct response_choice *choices, int n_choices,
                               const struct response_usage *usage, const struct response_timings *timings,
                               size_t *ret_length);

/* The frame ("data: ...\n\n") of one chunk. choice NULL: the chunk with the usage, whose choices are empty.
 * with_usage: the client asked for usage, so that other chunks say null. timings may be NULL. */
char *completion_chunk_frame(const struct response_head *head, const struct response_choice *choice, bool with_usage,
                             const struct response_usage *usage, const struct response_timings *timings,
                             size_t *ret_length);

/* The frame of an error in the middle of a stream. */
char *completion_error_frame(const struct api_error *error, size_t *ret_length);

#endif
