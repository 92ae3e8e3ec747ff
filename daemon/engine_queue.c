/* Which generations may wait, and for how long they would. */
#include "daemon/engine_internal.h"

#include <stdio.h>

#include "daemon/wait_estimate.h"

static double measured_token_ms(const struct engine *engine, const struct generation_state *state)
{
    if (state->n_output > 1 && state->last_token_us > state->first_token_us)
        return (double)(state->last_token_us - state->first_token_us) / 1000 / (state->n_output - 1);
    const struct histogram *gaps = &engine->metrics.token_gap;
    return gaps->n > 0 ? gaps->sum_s * 1000 / (double)gaps->n : 0;
}

static double place_ms(const struct engine *engine, const struct generation_state *state, uint64_t now_us)
{
    const struct generation *generation = state->generation;
    struct running_place place = {.age_ms = (double)(now_us - state->sequence.started_us) / 1000};
    if (generation->pooling == POOLING_NONE && generation->max_tokens != 0) {
        int32_t most = engine->options.context + 1 - generation->n_prompt;
        if (generation->max_tokens > 0 && generation->max_tokens < most)
            most = generation->max_tokens;
        place.n_left = most - state->n_output;
        place.token_ms = measured_token_ms(engine, state);
        place.takes_all = generation->ignore_eos && generation->constraint == NULL && generation->n_stops == 0;
    }
    return wait_estimate_place_ms(&place, engine->service_ms);
}

/* How long one that is not in the queue would wait there. */
static double expected_wait_ms(const struct engine *engine, const struct sequence *newcomer)
{
    int n_before = scheduler_before(engine->scheduler, newcomer);
    int n = scheduler_free_places(engine->scheduler, newcomer);
    if (n > n_before)
        return 0;
    for (int i = 0; i < n; i++)
        engine->places_ms[i] = 0;
    uint64_t now_us = engine_now_us(NULL);
    for (const struct generation_state *s = engine->first_active; s != NULL; s = s->next)
        if (s->sequence.state == SEQUENCE_RUNNING)
            engine->places_ms[n++] = place_ms(engine, s, now_us);
    return wait_estimate_ms(engine->places_ms, n, n_before, engine->service_ms);
}

uint32_t engine_retry_after_ms(const struct engine *engine, const struct generation_state *state)
{
    struct sequence another = {.priority = state->sequence.priority, .request_size = state->sequence.request_size};
    double wait_ms = expected_wait_ms(engine, &another);
    return wait_ms < 1000 ? 1000 : wait_ms > 600000 ? 600000 : (uint32_t)wait_ms;
}

/* For a request: it counts in the queue while any of its generations waits there. */
static bool is_full(const struct engine *engine, int request_size)
{
    struct scheduler_queue queue = scheduler_queue(engine->scheduler);
    bool runs_at_once = (request_size > 1 ? request_size : 1) <= queue.spare_places;
    return engine->options.queue > 0 && !runs_at_once && queue.staying >= engine->options.queue;
}

bool engine_may_queue(struct engine *engine, struct generation_state *state)
{
    const struct generation *generation = state->generation;
    char message[200];
    if (!generation->joins_previous) {
        engine->last_was_refused = is_full(engine, generation->request_size);
        engine->last_retry_after_ms = engine->last_was_refused ? engine_retry_after_ms(engine, state) : 0;
    }
    if (engine->last_was_refused) {
        snprintf(message, sizeof message, "%d generations are running and %d requests wait, as many as may",
                 scheduler_running(engine->scheduler), engine->options.queue);
        state->retry_after_ms = engine->last_retry_after_ms;
        generation_state_fail(state, FAILURE_QUEUE_FULL, message);
        return false;
    }
    if (generation->max_wait_ms == 0)
        return true;
    double wait_ms = expected_wait_ms(engine, &state->sequence);
    if (wait_ms > generation->max_wait_ms) {
        snprintf(message, sizeof message, "it would wait about %.0f ms; max_wait_ms is %u", wait_ms,
                 generation->max_wait_ms);
        state->retry_after_ms = engine_retry_after_ms(engine, state);
        generation_state_fail(state, FAILURE_WAIT, message);
        return false;
    }
    return true;
}
