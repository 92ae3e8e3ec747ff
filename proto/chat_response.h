/* POST /v1/chat/completions: whole answers and the chunks of a stream, as OpenAI has them, plus "reasoning_content" and
 * "timings". Everything is borrowed for the call; results are malloc'ed and NUL-terminated, NULL when memory is out.
 * Thread: any. */
#ifndef PROTO_CHAT_RESPONSE_H
#define PROTO_CHAT_RESPONSE_H

#include "proto/completion_response.h"

struct chat_response_call {
    const char *id, *name;
    const char *arguments; /* JSON */
    size_t arguments_length;
};

struct chat_response_choice {
    int index;
    const char *content; /* UTF-8; NULL: null */
    size_t content_length;
    const char *reasoning; /* NULL: none */
    size_t reasoning_length;
    const struct chat_response_call *calls;
    int n_calls;
    bool has_logprobs;
    const struct response_token *tokens;
    int n_tokens;
    const char *finish_reason;
};

char *chat_response_json(const struct response_head *head, const struct chat_response_choice *choices, int n_choices,
                         const struct response_usage *usage, const struct response_timings *timings,
                         size_t *ret_length);

/* What one chunk adds to a choice. */
struct chat_delta {
    int index;
    bool begins; /* with the role; and content "" unless a call comes first */
    const char *content, *reasoning; /* NULL: none */
    size_t length; /* of the one that is there */
    int call; /* its index; -1: none */
    const char *call_id, *call_name; /* a call begins; NULL: it goes on */
    const char *arguments; /* with call */
    size_t arguments_length;
    const struct response_token *tokens; /* with logprobs */
    int n_tokens; /* 0: logprobs is null */
    const char *finish_reason; /* NULL: not finished */
};

/* The frame ("data: ...\n\n") of one chunk. delta NULL: the chunk with the usage, whose choices are empty.
 * with_usage: the client asked for usage, so that other chunks say null. timings may be NULL. */
char *chat_chunk_frame(const struct response_head *head, const struct chat_delta *delta, bool with_usage,
                       const struct response_usage *usage, const struct response_timings *timings, size_t *ret_length);

#endif
