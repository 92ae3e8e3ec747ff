/* One choice of an answer: collects a generation's events into text and tokens that may be shown.
 *
 * Tokens arrive before it is known whether their text stays (it may begin a stop string), so they are held back until
 * some of their text has come; those of a stop string are dropped. Thread: the loop's. */
#ifndef DAEMON_CHOICE_H
#define DAEMON_CHOICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/generation.h"
#include "proto/completion_response.h"

struct tokenizer;

/* A token of the output, in order, and where its text ends in the choice's text (as the tokens have it: invalid bytes are
 * longer there). */
struct choice_output {
    int32_t token;
    uint32_t end;
};

struct choice {
    void *owner;
    struct generation *generation; /* owned until finished */
    int index;
    char *text; /* owned: all of it, valid UTF-8 */
    size_t text_length, text_capacity;
    struct generation_token *tokens; /* owned: those not taken yet */
    int n_tokens, token_capacity;
    bool keeps_output; /* set by the owner before the first event */
    struct choice_output *output; /* owned: those whose text has come, if they are kept */
    int n_output, output_capacity;
    size_t counted_bytes; /* characters before this byte are counted_characters */
    int64_t counted_characters;
    bool finished;
    enum finish_reason reason;
    struct generation_usage usage; /* once finished */
    float *embedding; /* owned; of a generation that makes one, once finished */
};

/* Takes over the event's text and (with_tokens) its tokens. False when memory is out. */
bool choice_add(struct choice *choice, struct generation_event *event, bool with_tokens);

/* The tokens that may be shown now: one malloc'ed block (alternatives included) or NULL when there are none; the texts
 * are the tokenizer's. They are no longer held afterwards. False when memory is out. */
bool choice_take_tokens(struct choice *choice, const struct tokenizer *tokenizer, struct response_token **ret_tokens,
                        int *ret_n);

/* "stop" or "length"; NULL while it goes on. */
const char *choice_finish_reason(const struct choice *choice);

void choice_clear(struct choice *choice);

#endif
