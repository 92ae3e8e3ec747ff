/* One request for generation, from its HTTP body to its last event, whatever its endpoint: work on the pool, choices with
 * their generations, whole answers and streams, failures, the log line. What an endpoint makes of it is its form.
 * Thread: the loop's, but for answer_form.prepare and what it calls. */
#ifndef DAEMON_ANSWER_H
#define DAEMON_ANSWER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/choice.h"
#include "daemon/request_outcome.h"
#include "proto/completion_response.h"
#include "proto/request_fields.h"

struct answer;
struct grammar_fields;
struct http_request;
struct service;

/* For /metrics: name, label */
#define SERVICE_ENDPOINTS(X)                                                                                           \
    X(COMPLETIONS, "completions")                                                                                      \
    X(PREFILL, "prefill")                                                                                              \
    X(CHAT, "chat")                                                                                                    \
    X(RESPONSES, "responses")                                                                                          \
    X(EMBEDDINGS, "embeddings")

enum service_endpoint {
#define SERVICE_ENDPOINT_ENUM(name, label) ENDPOINT_##name,
    SERVICE_ENDPOINTS(SERVICE_ENDPOINT_ENUM)
#undef SERVICE_ENDPOINT_ENUM
    N_SERVICE_ENDPOINTS,
};

const char *service_endpoint_label(enum service_endpoint endpoint);

struct answer_form {
    enum service_endpoint endpoint;
    const char *id_prefix; /* "cmpl-" */
    const char *too_long_field; /* the field to name when the engine finds the prompt too long */
    size_t bytes; /* of the endpoint's own struct, which begins with a struct answer */
    bool reads_only; /* the prompt is read, nothing is generated */
    enum request_outcome read_outcome; /* then: what it is called when it has ended well */

    /* Worker thread: from answer->body to choices that are ready to submit, see answer_create_choices. False:
     * answer->error is set. True with answer->awaits: fetch is to be called, then prepare again. */
    bool (*prepare)(struct answer *answer);
    /* Loop thread: prepare has set answer->awaits, what it needs is to be brought from elsewhere. Then answer_go_on, now or
     * later, also when the client has gone. NULL: never. */
    void (*fetch)(struct answer *answer);
    /* Choices have finished: the JSON of a whole answer, malloc'ed; NULL when memory is out. */
    char *(*whole)(struct answer *answer, size_t *ret_length);
    /* Of a stream: an event has come to choice, whose text before text_from was there already; last: all choices have
     * finished. Writes frames with answer_write_frame; false as soon as that says so or memory is out. NULL: never
     * streamed. */
    bool (*stream)(struct answer *answer, struct choice *choice, size_t text_from, bool last);
    /* What follows the last frame of a stream, or NULL. */
    const char *stream_end;
    /* Instead of {"error": ...} as a frame of its own, or NULL. */
    char *(*error_frame)(struct answer *answer, const struct api_error *error, size_t *ret_length);
    /* A choice has finished by itself, before whole or stream is told; or NULL. */
    void (*finished)(struct answer *answer, struct choice *choice);
    void (*clear)(struct answer *answer); /* frees what the endpoint added */
};

struct answer {
    const struct answer_form *form;
    struct service *service;
    struct http_request *http; /* NULL once answered or the client is gone */
    char id[48];
    int64_t created_s;
    uint64_t started_ns;

    /* The worker's while working. */
    uv_work_t work;
    bool working;
    bool awaits; /* set by prepare */
    char *body; /* owned; NULL once it was prepared for the first time */
    size_t body_length;
    struct api_error error; /* kind is API_ERROR_NONE when it was well prepared */
    bool is_stream; /* set by prepare */
    bool with_tokens; /* set by prepare: choices keep their tokens */

    struct choice *choices; /* owned; n of prompt 0, n of prompt 1, ... */
    struct response_cache *caches; /* owned; what each choice found */
    char grammar_field[64]; /* the field to name when the engine finds that the grammar cannot go on */
    int n_choices, n_per_prompt, n_running;
    bool stream_begun, paused;
    bool has_outcome; /* else it is the finish reason */
    enum request_outcome outcome;
};

/* Takes a request of HTTP_BODY_JSON. */
void answer_begin(struct http_request *http, struct service *service, const struct answer_form *form);

/* ---- for forms: preparing, on a worker thread ---- */

/* What all choices of an answer have in common; everything is borrowed and copied. */
struct answer_plan {
    const struct sampling_fields *sampling;
    const struct stop_fields *stop;
    const struct queue_fields *queue;
    const struct grammar_fields *grammar; /* or NULL: what every choice must match */
    const char *session_key; /* or NULL */
    bool keeps_session; /* as in struct generation */
    int32_t max_tokens; /* as in struct generation */
    int n_logprobs;
    int n; /* choices of each prompt */
    bool echo;
    enum pooling pooling; /* POOLING_NONE: text is generated */
};

struct answer_prompt {
    const int32_t *tokens;
    int32_t n_tokens;
};

/* Sets answer->error and returns false, as prepare does. */
bool answer_out_of_memory(struct answer *answer);
/* The prompt that the field path names has n_tokens tokens. */
bool answer_prompt_too_long(struct answer *answer, const char *path, size_t n_tokens);

/* The tokens of text that is written by the client, not more than fit the context. */
bool answer_tokenize(struct answer *answer, const char *path, const char *text, size_t length, bool add_special,
                     int32_t **ret_tokens, int32_t *ret_n);
/* Refuses logprobs for more tokens than a whole answer may collect. */
bool answer_check_logprobs(struct answer *answer, const struct answer_plan *plan, const struct answer_prompt *prompts,
                           int n_prompts);
bool answer_create_choices(struct answer *answer, const struct answer_plan *plan, const struct answer_prompt *prompts,
                           int n_prompts);

/* Loop thread: fetch has brought what it could. */
void answer_go_on(struct answer *answer);

/* ---- for forms: answering ---- */

struct response_head answer_head(const struct answer *answer);
/* Of what has finished so far. A prompt is counted once, however many choices it has. */
void answer_sum_up(const struct answer *answer, struct response_usage *usage, struct response_timings *timings);
/* Text from text_from on, tokens, finish reason; free response->tokens. False: memory is out. */
bool answer_fill_choice(const struct answer *answer, struct choice *choice, size_t text_from,
                        struct response_choice *response);
/* Takes the frame; NULL: there was no memory for it. False: the stream has ended with an error. */
bool answer_write_frame(struct answer *answer, char *frame, size_t length);

#endif
