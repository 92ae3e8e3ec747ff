#include "daemon/generation.h"

#include <stdlib.h>

#include "daemon/constraint.h"
#include "daemon/generation_state.h"

struct generation *generation_create(void)
{
    struct generation *generation = calloc(1, sizeof *generation);
    if (generation == NULL)
        return NULL;
    generation->max_tokens = -1;
    generation->n_logprobs = -1;
    generation->priority = 5;
    generation->sampling.temperature = 1;
    generation->sampling.top_p = 1;
    generation->sampling.repeat_penalty = 1;
    generation->engine_state = generation_state_create(generation);
    if (generation->engine_state == NULL) {
        free(generation);
        return NULL;
    }
    return generation;
}

void generation_destroy(struct generation *generation)
{
    if (generation == NULL)
        return;
    generation_state_destroy(generation->engine_state);
    free(generation->prompt);
    free(generation->sampling.bias);
    for (int i = 0; i < generation->n_stops; i++)
        free(generation->stops[i]);
    free(generation->stops);
    free(generation->stop_lengths);
    constraint_destroy(generation->constraint);
    free(generation->session_key);
    free(generation);
}

void generation_event_destroy(struct generation_event *event)
{
    if (event == NULL)
        return;
    for (int i = 0; i < event->n_tokens; i++)
        free(event->tokens[i].top);
    free(event->tokens);
    free(event->text);
    free(event->embedding);
    free(event);
}
