/* From hidden states to an embedding: their mean, or the last one, made a vector of length 1. Sums are in double and in the
 * order of positions, so that a text's embedding has the same bits however its rows came. */
#include <math.h>
#include <stdlib.h>

#include "daemon/generation_state.h"

enum npu_status generation_state_prepare_embedding(struct generation_state *state, int32_t n_embd,
                                                   struct npu_error *error)
{
    const struct generation *generation = state->generation;
    state->n_embd = n_embd;
    state->pooled = calloc((size_t)n_embd, sizeof *state->pooled);
    state->last_event->embedding = calloc((size_t)n_embd, sizeof *state->last_event->embedding);
    if (state->pooled == NULL || state->last_event->embedding == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for an embedding of %d floats", n_embd);
    struct sequence *sequence = &state->sequence;
    sequence->prompt = generation->prompt;
    sequence->n_prompt = generation->n_prompt;
    sequence->priority = generation->priority;
    sequence->owner = state;
    sequence->transient = true;
    sequence->returns = ROW_RETURN_HIDDEN;
    sequence->prompt_returns = generation->pooling == POOLING_MEAN ? ROW_RETURN_HIDDEN : ROW_RETURN_NOTHING;
    return NPU_OK;
}

void generation_state_pool(struct generation_state *state, const float *hidden, bool last)
{
    for (int32_t i = 0; i < state->n_embd; i++)
        state->pooled[i] += (double)hidden[i];
    if (!last)
        return;
    double squares = 0;
    for (int32_t i = 0; i < state->n_embd; i++)
        squares += state->pooled[i] * state->pooled[i];
    /* The length is 1 in the end, so a sum is as good as a mean. */
    double length = sqrt(squares);
    if (!isfinite(length) || length == 0) {
        generation_state_fail(state, FAILURE_DEVICE, "the hidden states of the text have no direction");
        return;
    }
    for (int32_t i = 0; i < state->n_embd; i++)
        state->last_event->embedding[i] = (float)(state->pooled[i] / length);
    generation_state_finish(state, FINISH_STOP);
}
