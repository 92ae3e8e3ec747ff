/* What the loop thread asks of the engine thread, and what comes back.
 *
 * The loop thread fills a generation (generation_create), submits it (engine_submit) and from then on only cancels it.
 * The engine thread answers with generation_events; they are delivered on the loop thread, in order, and every generation
 * ends in exactly one event with finished set. After that the loop thread frees it (generation_destroy). */
#ifndef DAEMON_GENERATION_H
#define DAEMON_GENERATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/cache_report.h"
#include "npu/pooling.h"

struct logit_bias {
    int32_t token;
    float bias;
};

/* How tokens are chosen. Defaults in generation_create: the OpenAI ones (temperature 1, top_p 1, no penalties). */
struct sampling {
    float temperature; /* 0: greedy */
    float top_p; /* (0, 1] */
    float min_p; /* [0, 1]; 0: off */
    int32_t top_k; /* 0: off */
    float repeat_penalty; /* 1: off; over prompt and output */
    float presence_penalty; /* over the output */
    float frequency_penalty; /* over the output */
    uint64_t seed;
    struct logit_bias *bias; /* owned */
    int n_bias;
};

enum finish_reason {
    FINISH_STOP, /* an end-of-generation token, a stop string, or nothing may follow by the constraint */
    FINISH_LENGTH, /* max_tokens or the end of the context */
    FINISH_CANCELLED, /* engine_cancel, or the daemon stops */
    FINISH_ERROR, /* it could not go on: failure and message say why */
};

/* What stands behind FINISH_ERROR. */
enum generation_failure {
    FAILURE_NONE,
    FAILURE_DEVICE, /* the executor failed twice */
    FAILURE_MEMORY, /* host memory or KV blocks */
    FAILURE_TOO_LONG, /* the prompt can never fit the KV memory */
    FAILURE_QUEUE_FULL, /* as many wait as may; retry_after_ms */
    FAILURE_WAIT, /* it would wait, or has waited, longer than max_wait_ms; retry_after_ms */
    FAILURE_TIMEOUT, /* timeout_ms is over */
    FAILURE_CONSTRAINT, /* the grammar cannot go on: no token fits, or it takes too much work */
};

struct constraint;
struct generation;

struct token_probability {
    int32_t token;
    float logprob;
};

/* One token with its probabilities. Logprobs are of the model's distribution (before temperature and penalties). */
struct generation_token {
    int32_t token;
    bool has_logprob; /* false: the first token of an echoed prompt, or no logprobs asked for */
    float logprob;
    struct token_probability *top; /* n_top entries, descending; owned by the event */
    int n_top;
    uint32_t text_start; /* byte offset of this token's text in the whole text of the generation
                                      (echoed prompt first); */
    uint32_t text_length; /* bytes of this token's own text before UTF-8 repair */
};

struct generation_usage {
    int32_t prompt_tokens, cached_tokens, completion_tokens;
    double queue_ms, prompt_ms, predicted_ms; /* waiting; first step to first token; first to last token */
    double first_token_ms; /* submit to first token */
    struct cache_report cache;
};

/* An event: text that is final (valid UTF-8, no part of a stop string), the tokens it came with, or the end. */
struct generation_event {
    struct generation *generation;
    char *text; /* owned by the event; may be empty while a stop string or a character is being awaited */
    size_t text_length;
    struct generation_token *tokens;
    int n_tokens;
    bool finished;
    enum finish_reason reason;
    enum generation_failure failure; /* FINISH_ERROR */
    char message[512]; /* FINISH_ERROR */
    uint32_t retry_after_ms; /* when trying again makes sense */
    struct generation_usage usage; /* valid when finished */
    float *
        embedding; /* owned; n_embd floats, a vector of length 1, when one was asked for and the reason is FINISH_STOP */
    struct generation_event *next;
};

void generation_event_destroy(struct generation_event *event);

struct generation {
    /* Set by the loop thread before submit; constant after. Owned by the generation. */
    char id[48];
    int32_t *prompt; /* tokens */
    int32_t n_prompt;
    int32_t max_tokens; /* 0: the prompt is only read (and echoed); -1: to the end of the context */
    struct sampling sampling;
    int n_logprobs; /* -1: none; 0..20: the chosen token's and that many alternatives */
    bool echo; /* the prompt's tokens (and logprobs, if asked for) come first, as events */
    bool ignore_eos;
    enum pooling pooling; /* not POOLING_NONE: nothing is generated, the end brings the prompt's embedding */
    char **stops; /* UTF-8 strings */
    size_t *stop_lengths;
    int n_stops;
    struct constraint
        *constraint; /* owned; what the output must match, or NULL. End-of-generation tokens come only where
                                      it may end; with ignore_eos it goes on as long as it may */
    char *session_key; /* prompt_cache_key, or NULL */
    bool keeps_session; /* its session is worth saving to the state folder, even if nobody comes back to it */
    const int32_t *shown_controls; /* control tokens that have their text in the output; borrowed until the end */
    int n_shown_controls;
    int priority; /* 0..9, larger ones leave the queue first; 5 if not set */
    uint32_t max_wait_ms; /* in the queue; 0: any time */
    uint32_t timeout_ms; /* from submission to the end; 0: any time */
    bool joins_previous; /* of the same request as the one submitted before: the queue counts them as one */
    int request_size; /* generations of that request; 0 counts as 1 */
    /* Called on the loop thread for each event; takes ownership of it. */
    void (*on_event)(struct generation_event *event, void *context);
    void *context;
    /* Everything else belongs to the engine. */
    void *engine_state;
};

/* NULL when memory is out. */
struct generation *generation_create(void);
void generation_destroy(struct generation *generation);

#endif
