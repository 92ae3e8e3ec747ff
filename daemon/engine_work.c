/* Generations in the engine thread: from submission to events. */
#include "daemon/engine_internal.h"

#include <stdio.h>

#include "daemon/constraint.h"
#include "daemon/mask_worker.h"
#include "daemon/sampler.h"
#include "daemon/tokenizer.h"

uint64_t engine_now_us(void *context)
{
    (void)context;
    return uv_hrtime() / 1000 + ENGINE_CLOCK_BASE_US;
}

/* --- what the scheduler calls ------------------------------------------------------------------------------------- */

static void on_start(void *context, struct sequence *sequence)
{
    struct engine *engine = context;
    engine->metrics.prompt_tokens += (uint64_t)sequence->n_prompt;
    engine->metrics.cached_tokens += (uint64_t)sequence->cache.n_cached;
    histogram_add(&engine->metrics.queue, (double)(sequence->started_us - sequence->submitted_us) / 1e6);
    const struct generation *generation = ((struct generation_state *)sequence->owner)->generation;
    if (generation->constraint != NULL && generation->max_tokens != 0) /* while the prompt is read */
        mask_worker_begin(engine->masks, generation->constraint);
}

static void note_token(struct engine *engine, struct generation_state *state)
{
    uint64_t now_us = engine_now_us(engine);
    if (state->first_token_us == 0) {
        state->first_token_us = now_us;
        histogram_add(&engine->metrics.first_token, (double)(now_us - state->sequence.submitted_us) / 1e6);
    } else {
        histogram_add(&engine->metrics.token_gap, (double)(now_us - state->last_token_us) / 1e6);
    }
    state->last_token_us = now_us;
}

/* --- constraints -------------------------------------------------------------------------------------------------- */

static void fail_constraint(struct generation_state *state)
{
    const struct text_error *error = &state->generation->constraint->error;
    enum generation_failure failure = error->status == TEXT_MEMORY ? FAILURE_MEMORY : FAILURE_CONSTRAINT;
    generation_state_fail(state, failure, error->message);
}

/* False: the generation has ended; the grammar has come to its end, or failed. */
static bool await_mask(struct engine *engine, struct generation_state *state)
{
    struct constraint *constraint = state->generation->constraint;
    mask_worker_await(engine->masks, constraint);
    if (constraint->failed)
        fail_constraint(state);
    else if (constraint->is_complete)
        generation_state_finish(state, FINISH_STOP);
    return !state->finished;
}

/* The mask after this token is computed while the next step runs. */
static void follow(struct engine *engine, struct generation_state *state, int32_t token)
{
    struct constraint *constraint = state->generation->constraint;
    if (!constraint_commit(constraint, token))
        fail_constraint(state);
    else if (constraint->is_complete)
        generation_state_finish(state, FINISH_STOP);
    else
        mask_worker_begin(engine->masks, constraint);
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

static int32_t next_token(struct engine *engine, struct generation_state *state, const struct row_result *result)
{
    const struct generation *generation = state->generation;
    if (state->prompt_done_us == 0)
        state->prompt_done_us = engine_now_us(engine);
    if (generation->max_tokens == 0) {
        generation_state_finish(state, FINISH_LENGTH);
        return SEQUENCE_END;
    }
    struct constraint *constraint = generation->constraint;
    if (constraint != NULL && !await_mask(engine, state))
        return SEQUENCE_END;
    const struct token_mask *mask = constraint != NULL ? &constraint->mask : NULL;
    int32_t token = sampler_choose(state->sampler, engine->scratch, result, mask);
    if (token < 0) {
        generation_state_fail(state, FAILURE_MEMORY, "no memory to count tokens for the penalties");
        return SEQUENCE_END;
    }
    note_token(engine, state);
    if (!generation->ignore_eos && tokenizer_is_end_of_generation(engine->tokenizer, token)) {
        generation_state_finish(state, FINISH_STOP);
        return SEQUENCE_END;
    }
    state->n_output++;
    engine->metrics.output_tokens++;
    if (!generation_state_add(state, token, result->logits, engine->executor->n_vocab, false))
        return SEQUENCE_END;
    if (constraint != NULL)
        follow(engine, state, token);
    if (state->finished)
        return SEQUENCE_END;
    /* The token's own row would stand at position n_prompt + n_output - 1. */
    if (state->n_output == generation->max_tokens || generation->n_prompt + state->n_output > engine->options.context) {
        generation_state_finish(state, FINISH_LENGTH);
        return SEQUENCE_END;
    }
    return token;
}

static int32_t on_row(void *context, struct sequence *sequence, int32_t position, const struct row_result *result)
{
    struct engine *engine = context;
    struct generation_state *state = sequence->owner;
    const struct generation *generation = state->generation;
    if (generation->pooling != POOLING_NONE) {
        bool last = position == generation->n_prompt - 1;
        if (last)
            state->prompt_done_us = engine_now_us(engine);
        if (!state->finished)
            generation_state_pool(state, result->hidden, last);
        return last ? SEQUENCE_END : 0;
    }
    if (position >= generation->n_prompt - 1)
        return state->finished ? SEQUENCE_END : next_token(engine, state, result);
    generation_state_add(state, generation->prompt[position + 1], result->logits, engine->executor->n_vocab, true);
    return 0;
}

static void on_failed(void *context, struct sequence *sequence, const struct npu_error *error)
{
    (void)context;
    enum generation_failure failure = error->status == NPU_ERROR_MEMORY ? FAILURE_MEMORY : FAILURE_DEVICE;
    generation_state_fail(sequence->owner, failure, error->message);
}

struct scheduler_callbacks engine_callbacks(struct engine *engine)
{
    return (struct scheduler_callbacks){engine, engine_now_us, on_start, on_row, on_failed, engine_on_restored};
}

/* --- submission --------------------------------------------------------------------------------------------------- */

static void begin(struct engine *engine, struct generation_state *state)
{
    const struct generation *generation = state->generation;
    struct npu_error error;
    enum npu_status status = generation->pooling != POOLING_NONE
                                 ? generation_state_prepare_embedding(state, engine->executor->n_embd, &error)
                                 : generation_state_prepare(state, engine->tokenizer, engine->executor->n_vocab,
                                                            engine->end_tokens, engine->n_end_tokens, &error);
    if (status == NPU_OK && generation->constraint != NULL && engine->masks == NULL)
        status = mask_worker_create(&engine->masks, &error);
    if (status != NPU_OK) {
        generation_state_fail(state, FAILURE_MEMORY, error.message);
        return;
    }
    if (!generation->joins_previous)
        engine->n_requests++;
    state->sequence.request = engine->n_requests;
    state->sequence.request_size = generation->request_size;
    if (!engine_may_queue(engine, state))
        return;
    if (generation->n_prompt > engine->options.context) {
        snprintf(error.message, sizeof error.message, "the prompt has %d tokens; the context has %d",
                 generation->n_prompt, engine->options.context);
        generation_state_fail(state, FAILURE_TOO_LONG, error.message);
        return;
    }
    bool with_logits = state->sequence.prompt_returns != ROW_RETURN_NOTHING;
    int32_t n_echoed = !generation->echo ? 0 : with_logits ? 1 : generation->n_prompt;
    for (int32_t i = 0; i < n_echoed; i++)
        generation_state_add(state, generation->prompt[i], NULL, 0, true);
    if (generation->echo && !with_logits && generation->max_tokens == 0)
        generation_state_finish(state, FINISH_LENGTH); /* nothing to compute */
    if (state->finished)
        return;
    if (scheduler_submit(engine->scheduler, &state->sequence, &error) != NPU_OK)
        generation_state_fail(state, FAILURE_TOO_LONG, error.message);
}

void engine_take_submissions(struct engine *engine)
{
    struct generation_state *next, *state = mailbox_take(&engine->submissions);
    for (; state != NULL; state = next) {
        next = state->next;
        state->next = NULL;
        engine->metrics.submitted++;
        begin(engine, state);
        *engine->last_active = state;
        engine->last_active = &state->next;
    }
}

/* --- wishes and deadlines ----------------------------------------------------------------------------------------- */

static void heed(struct engine *engine, struct generation_state *state, uint64_t now_us)
{
    const struct generation *generation = state->generation;
    struct sequence *sequence = &state->sequence;
    char message[200];
    if (state->finished)
        return;
    if (atomic_load_explicit(&state->cancel_wanted, memory_order_relaxed)) {
        generation_state_finish(state, FINISH_CANCELLED);
        return;
    }
    uint64_t age_ms = (now_us - sequence->submitted_us) / 1000;
    if (generation->timeout_ms > 0 && age_ms >= generation->timeout_ms) {
        snprintf(message, sizeof message, "timeout_ms of %u is over", generation->timeout_ms);
        generation_state_fail(state, FAILURE_TIMEOUT, message);
    } else if (generation->max_wait_ms > 0 && sequence->state == SEQUENCE_WAITING &&
               age_ms >= generation->max_wait_ms) {
        snprintf(message, sizeof message, "it has waited for %u ms, its max_wait_ms", generation->max_wait_ms);
        state->retry_after_ms = engine_retry_after_ms(engine, state);
        generation_state_fail(state, FAILURE_WAIT, message);
    }
    bool pause = atomic_load_explicit(&state->pause_wanted, memory_order_relaxed);
    if (pause != sequence->paused)
        scheduler_set_paused(engine->scheduler, sequence, pause);
}

void engine_heed_wishes(struct engine *engine)
{
    uint64_t now_us = engine_now_us(engine);
    for (struct generation_state *state = engine->first_active; state != NULL; state = state->next)
        heed(engine, state, now_us);
}

void engine_cancel_all(struct engine *engine)
{
    for (struct generation_state *state = engine->first_active; state != NULL; state = state->next)
        if (!state->finished)
            generation_state_finish(state, FINISH_CANCELLED);
}

/* --- events ------------------------------------------------------------------------------------------------------- */

static void note_end(struct engine *engine, const struct generation_state *state)
{
    engine->metrics.finished[state->reason]++;
    if (state->reason == FINISH_ERROR)
        engine->metrics.failed[state->failure]++;
    if (state->sequence.started_us == 0)
        return;
    double ms = (double)(engine_now_us(engine) - state->sequence.started_us) / 1000;
    engine->service_ms = engine->service_ms > 0 ? engine->service_ms + 0.1 * (ms - engine->service_ms) : ms;
}

bool engine_post_events(struct engine *engine)
{
    bool posted = false;
    struct generation_state **link = &engine->first_active;
    while (*link != NULL) {
        struct generation_state *state = *link;
        bool finished = state->finished;
        if (finished) {
            scheduler_cancel(engine->scheduler, &state->sequence); /* those that did not end in a step */
            if (engine->masks != NULL && state->generation->constraint != NULL)
                mask_worker_cancel(engine->masks, state->generation->constraint);
            note_end(engine, state);
            *link = state->next;
            if (*link == NULL)
                engine->last_active = link;
        } else {
            link = &state->next;
        }
        struct generation_event *event = generation_state_take_event(state);
        if (event == NULL)
            continue;
        mailbox_post(&engine->events, event);
        posted = true;
    }
    return posted;
}
