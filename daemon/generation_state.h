/* What the engine keeps of a generation: its sequence, its sampler, and the way from tokens to text: pieces, UTF-8 repair,
 * stop strings, events. Private to the engine and generation.c.
 *
 * Created with the generation on the loop thread; from engine_submit to the finished event only the engine thread touches
 * it, but for the two atomic wishes. */
#ifndef DAEMON_GENERATION_STATE_H
#define DAEMON_GENERATION_STATE_H

#include <stdatomic.h>

#include "daemon/generation.h"
#include "daemon/scheduler.h"
#include "daemon/utf8_stream.h"

struct sampler;
struct stop_matcher;
struct tokenizer;

struct generation_state {
    struct generation_state *next; /* in the mailbox to the engine, then in the engine's list */
    struct generation *generation;
    atomic_bool cancel_wanted, pause_wanted; /* set by the loop thread at any time */

    struct sequence sequence;
    struct sampler *sampler;
    const struct tokenizer *tokenizer;

    struct utf8_stream utf8;
    struct stop_matcher *stops; /* NULL: no stop strings */
    uint32_t n_text, n_final; /* bytes of text so far (the echoed prompt, too); those that are certain to stay */
    struct generation_token *held; /* n_held tokens whose text is not yet final */
    int n_held, held_capacity;

    /* The event that is being filled. */
    char *text;
    size_t text_length, text_capacity;
    struct generation_token *tokens;
    int n_tokens, tokens_capacity;
    double *pooled; /* of an embedding: the sum of its rows' hidden states */
    int32_t n_embd;
    struct generation_event *last_event; /* allocated from the beginning, so that the end always arrives */

    bool finished;
    enum finish_reason reason;
    enum generation_failure failure;
    uint32_t retry_after_ms;
    char message[512];

    int32_t n_output; /* tokens, without the one that ends the generation */
    uint64_t prompt_done_us, first_token_us, last_token_us;
};

/* Loop thread. NULL: no memory. */
struct generation_state *generation_state_create(struct generation *generation);
void generation_state_destroy(struct generation_state *state); /* NULL is fine */

/* Engine thread, all below. */

/* Sampler, stops and sequence. banned: tokens that may not come, for ignore_eos. */
enum npu_status generation_state_prepare(struct generation_state *state, const struct tokenizer *tokenizer,
                                         int32_t n_vocab, const int32_t *banned, int n_banned, struct npu_error *error);

/* The same for an embedding (generation_embedding.c). */
enum npu_status generation_state_prepare_embedding(struct generation_state *state, int32_t n_embd,
                                                   struct npu_error *error);
/* Takes the hidden state of the prompt's next row that counts, in order; last: the embedding is complete and the generation
 * finished. */
void generation_state_pool(struct generation_state *state, const float *hidden, bool last);

/* Takes a prompt's token (echo) or an output token into text and tokens. logits: of the row before it, or NULL. False: the
 * generation has ended here (a stop string, or memory is out). */
bool generation_state_add(struct generation_state *state, int32_t token, const float *logits, int32_t n_vocab,
                          bool of_prompt);

/* The end; the first reason counts. Text that was held back comes out, unless a stop string was found. */
void generation_state_finish(struct generation_state *state, enum finish_reason reason);
void generation_state_fail(struct generation_state *state, enum generation_failure failure, const char *message);

/* What has gathered since the last call, with the usage if it has finished; NULL: nothing to tell. After the finished event
 * the state belongs to the loop thread as soon as that event is posted. */
struct generation_event *generation_state_take_event(struct generation_state *state);

#endif
