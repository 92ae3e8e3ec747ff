#include "daemon/generation_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sampler.h"
#include "daemon/stop_matcher.h"
#include "daemon/tokenizer.h"

enum {
    LARGEST_PIECE = 512, /* what is repaired at once */
};

struct generation_state *generation_state_create(struct generation *generation)
{
    struct generation_state *state = calloc(1, sizeof *state);
    if (state == NULL)
        return NULL;
    state->last_event = calloc(1, sizeof *state->last_event);
    if (state->last_event == NULL) {
        free(state);
        return NULL;
    }
    state->generation = generation;
    atomic_init(&state->cancel_wanted, false);
    atomic_init(&state->pause_wanted, false);
    utf8_stream_init(&state->utf8);
    return state;
}

static void free_tokens(struct generation_token *tokens, int n)
{
    for (int i = 0; i < n; i++)
        free(tokens[i].top);
    free(tokens);
}

void generation_state_destroy(struct generation_state *state)
{
    if (state == NULL)
        return;
    sampler_destroy(state->sampler);
    stop_matcher_destroy(state->stops);
    free_tokens(state->held, state->n_held);
    free_tokens(state->tokens, state->n_tokens);
    free(state->text);
    free(state->pooled);
    generation_event_destroy(state->last_event);
    free(state);
}

enum npu_status generation_state_prepare(struct generation_state *state, const struct tokenizer *tokenizer,
                                         int32_t n_vocab, const int32_t *banned, int n_banned, struct npu_error *error)
{
    const struct generation *generation = state->generation;
    struct sampler_options options = {
        .n_vocab = n_vocab,
        .banned = banned,
        .n_banned = generation->ignore_eos ? n_banned : 0,
        .needs_logits = generation->n_logprobs >= 0 || generation->constraint != NULL,
    };
    state->tokenizer = tokenizer;
    enum npu_status status = sampler_create(&state->sampler, &generation->sampling, &options, error);
    if (status == NPU_OK && generation->n_stops > 0)
        status =
            stop_matcher_create(&state->stops, generation->stops, generation->stop_lengths, generation->n_stops, error);
    if (status == NPU_OK && !sampler_see_prompt(state->sampler, generation->prompt, generation->n_prompt))
        status = npu_error_set(error, NPU_ERROR_MEMORY, "no memory to count the prompt's tokens");
    if (status != NPU_OK)
        return status;
    struct sequence *sequence = &state->sequence;
    sequence->prompt = generation->prompt;
    sequence->n_prompt = generation->n_prompt;
    sequence->key = generation->session_key;
    sequence->keeps_session = generation->keeps_session;
    sequence->priority = generation->priority;
    sequence->owner = state;
    sampler_row_return(state->sampler, &sequence->returns, &sequence->top_k);
    if (generation->max_tokens == 0) {
        sequence->returns = ROW_RETURN_BEST; /* only to be told that the prompt is done */
        sequence->top_k = 0;
    }
    if (generation->echo && generation->n_logprobs >= 0)
        sequence->prompt_returns = ROW_RETURN_LOGITS;
    return NPU_OK;
}

/* --- text --------------------------------------------------------------------------------------------------------- */

static void finish(struct generation_state *state, enum finish_reason reason)
{
    if (state->finished)
        return;
    state->finished = true;
    state->reason = reason;
}

static void out_of_memory(struct generation_state *state)
{
    if (state->finished)
        return;
    finish(state, FINISH_ERROR);
    state->failure = FAILURE_MEMORY;
    snprintf(state->message, sizeof state->message, "no memory for the text of the generation");
}

/* Text that nothing can take back any more. */
static bool append_final(struct generation_state *state, const char *text, size_t length)
{
    if (state->text_length + length + 1 > state->text_capacity) {
        size_t capacity = 2 * (state->text_length + length) + 64;
        char *grown = realloc(state->text, capacity);
        if (grown == NULL) {
            out_of_memory(state);
            return false;
        }
        state->text = grown;
        state->text_capacity = capacity;
    }
    if (length > 0)
        memcpy(state->text + state->text_length, text, length);
    state->text_length += length;
    state->text[state->text_length] = '\0';
    state->n_final += (uint32_t)length;
    return true;
}

/* Valid text, which may contain a stop string unless it is the prompt's. */
static bool append_text(struct generation_state *state, const char *text, size_t length, bool of_prompt)
{
    state->n_text += (uint32_t)length;
    if (of_prompt || state->stops == NULL)
        return append_final(state, text, length);
    const char *ready;
    size_t ready_length;
    bool stopped;
    if (stop_matcher_push(state->stops, text, length, &ready, &ready_length, &stopped, NULL) != NPU_OK) {
        out_of_memory(state);
        return false;
    }
    if (!append_final(state, ready, ready_length))
        return false;
    if (stopped)
        finish(state, FINISH_STOP);
    return !stopped;
}

static bool append_bytes(struct generation_state *state, const char *bytes, size_t length, bool of_prompt)
{
    char repaired[UTF8_STREAM_OUTPUT_BYTES(LARGEST_PIECE)];
    while (length > 0) {
        size_t part = length < LARGEST_PIECE ? length : LARGEST_PIECE;
        size_t n = utf8_stream_push(&state->utf8, bytes, part, repaired);
        if (!append_text(state, repaired, n, of_prompt))
            return false;
        bytes += part;
        length -= part;
    }
    return true;
}

/* --- tokens ------------------------------------------------------------------------------------------------------- */

static bool hold_token(struct generation_state *state, const struct generation_token *token)
{
    if (state->n_held == state->held_capacity) {
        int capacity = state->held_capacity * 2 + 8;
        struct generation_token *grown = realloc(state->held, (size_t)capacity * sizeof *grown);
        if (grown == NULL)
            return false;
        state->held = grown;
        state->held_capacity = capacity;
    }
    state->held[state->n_held++] = *token;
    return true;
}

static bool give_token(struct generation_state *state, const struct generation_token *token)
{
    if (state->n_tokens == state->tokens_capacity) {
        int capacity = state->tokens_capacity * 2 + 8;
        struct generation_token *grown = realloc(state->tokens, (size_t)capacity * sizeof *grown);
        if (grown == NULL)
            return false;
        state->tokens = grown;
        state->tokens_capacity = capacity;
    }
    state->tokens[state->n_tokens++] = *token;
    return true;
}

/* Tokens go with their text: when all of it is final; at the end of a stopped text also the one that it cuts. */
static void release_tokens(struct generation_state *state)
{
    bool stopped = state->finished && state->reason == FINISH_STOP;
    int n = 0;
    for (; n < state->n_held; n++) {
        const struct generation_token *token = &state->held[n];
        bool whole = token->text_start + token->text_length <= state->n_final;
        bool cut = stopped && token->text_start < state->n_final;
        if (!whole && !cut)
            break;
        if (!give_token(state, token)) {
            out_of_memory(state);
            break;
        }
    }
    if (n == 0)
        return;
    memmove(state->held, state->held + n, (size_t)(state->n_held - n) * sizeof *state->held);
    state->n_held -= n;
}

static bool is_shown_control(const struct generation *generation, int32_t token)
{
    for (int i = 0; i < generation->n_shown_controls; i++)
        if (generation->shown_controls[i] == token)
            return true;
    return false;
}

/* Control tokens have no text in an answer unless they were asked for; in an echo they have the form they were written in,
 * but for the one that begins every sequence. */
static const char *shown_piece(const struct generation_state *state, int32_t token, bool of_prompt, size_t *length)
{
    bool begins = token == tokenizer_bos(state->tokenizer) && state->n_text == 0;
    if (tokenizer_is_control(state->tokenizer, token) &&
        (of_prompt ? begins : !is_shown_control(state->generation, token))) {
        *length = 0;
        return "";
    }
    return tokenizer_piece(state->tokenizer, token, length);
}

bool generation_state_add(struct generation_state *state, int32_t token, const float *logits, int32_t n_vocab,
                          bool of_prompt)
{
    if (state->finished)
        return false;
    size_t length;
    const char *piece = shown_piece(state, token, of_prompt, &length);
    struct generation_token entry = {
        .token = token,
        .text_start = state->n_text + (uint32_t)state->utf8.n_pending,
        .text_length = (uint32_t)length,
    };
    int n_top = state->generation->n_logprobs < n_vocab ? state->generation->n_logprobs : n_vocab;
    if (logits != NULL && n_top >= 0) {
        entry.top = n_top > 0 ? calloc((size_t)n_top, sizeof *entry.top) : NULL;
        if (n_top > 0 && entry.top == NULL) {
            out_of_memory(state);
            return false;
        }
        entry.n_top = n_top;
        entry.has_logprob = true;
        entry.logprob = sampler_logprob(logits, n_vocab, token, entry.top, n_top);
    }
    if (!hold_token(state, &entry)) {
        free(entry.top);
        out_of_memory(state);
        return false;
    }
    bool goes_on = append_bytes(state, piece, length, of_prompt);
    release_tokens(state);
    return goes_on && !state->finished;
}

void generation_state_finish(struct generation_state *state, enum finish_reason reason)
{
    if (state->finished)
        return;
    char rest[4];
    size_t n = utf8_stream_flush(&state->utf8, rest);
    if (append_text(state, rest, n, false) && state->stops != NULL) {
        const char *ready;
        size_t ready_length;
        bool stopped;
        stop_matcher_flush(state->stops, &ready, &ready_length, &stopped);
        if (append_final(state, ready, ready_length) && stopped)
            finish(state, FINISH_STOP);
    }
    release_tokens(state);
    finish(state, reason);
}

void generation_state_fail(struct generation_state *state, enum generation_failure failure, const char *message)
{
    if (state->finished)
        return;
    finish(state, FINISH_ERROR);
    state->failure = failure;
    snprintf(state->message, sizeof state->message, "%s", message);
}

/* --- events ------------------------------------------------------------------------------------------------------- */

static double ms_between(uint64_t from_us, uint64_t to_us)
{
    return to_us > from_us ? (double)(to_us - from_us) / 1000 : 0;
}

static void fill_usage(const struct generation_state *state, struct generation_usage *usage)
{
    const struct sequence *sequence = &state->sequence;
    usage->prompt_tokens = state->generation->n_prompt;
    usage->cached_tokens = sequence->cache.n_cached;
    usage->completion_tokens = state->n_output;
    usage->cache = sequence->cache;
    if (sequence->started_us == 0)
        return;
    usage->queue_ms = ms_between(sequence->submitted_us, sequence->started_us);
    if (state->prompt_done_us != 0)
        usage->prompt_ms = ms_between(sequence->started_us, state->prompt_done_us);
    if (state->first_token_us == 0)
        return;
    usage->predicted_ms = ms_between(state->first_token_us, state->last_token_us);
    usage->first_token_ms = ms_between(sequence->submitted_us, state->first_token_us);
}

struct generation_event *generation_state_take_event(struct generation_state *state)
{
    if (state->last_event == NULL || (state->text_length == 0 && state->n_tokens == 0 && !state->finished))
        return NULL;
    struct generation_event *event;
    if (state->finished) {
        event = state->last_event;
        state->last_event = NULL;
        event->finished = true;
        event->reason = state->reason;
        event->failure = state->failure;
        event->retry_after_ms = state->retry_after_ms;
        memcpy(event->message, state->message, sizeof event->message);
        fill_usage(state, &event->usage);
    } else {
        event = calloc(1, sizeof *event);
        if (event == NULL)
            return NULL; /* what has gathered waits for the next event */
    }
    event->generation = state->generation;
    event->text = state->text;
    event->text_length = state->text_length;
    event->tokens = state->tokens;
    event->n_tokens = state->n_tokens;
    state->text = NULL;
    state->text_length = state->text_capacity = 0;
    state->tokens = NULL;
    state->n_tokens = state->tokens_capacity = 0;
    return event;
}
