/* The part of an answer that may take long: tokenizing, copying. Runs on the worker pool. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/answer.h"
#include "daemon/constraint.h"
#include "daemon/grammar_compiler.h"
#include "daemon/service_internal.h"
#include "daemon/tokenizer.h"
#include "proto/grammar_fields.h"

enum {
    /* Of all choices of an answer that is not streamed: they are collected, at about 2 KiB each. */
    MAX_COLLECTED_LOGPROBS = 65536,
    LONG_TEXT_BYTES = 1024 * 1024, /* above, a prompt that cannot fit is not tokenized to tell by how much */
};

bool answer_out_of_memory(struct answer *answer)
{
    return api_error_set(&answer->error, API_ERROR_OUT_OF_MEMORY, NULL, "not enough memory for the request");
}

static bool too_long(const struct service *service, const char *path, const char *qualifier, size_t n_tokens,
                     struct api_error *error)
{
    return api_error_set(error, API_ERROR_CONTEXT_LENGTH, path,
                         "%s is too long: it has %s%zu tokens, but the maximum context length is %d tokens", path,
                         qualifier, n_tokens, service->model.max_prompt_tokens);
}

bool answer_prompt_too_long(struct answer *answer, const char *path, size_t n_tokens)
{
    return too_long(answer->service, path, "", n_tokens, &answer->error);
}

bool service_check_prompt_bytes(const struct service *service, const char *path, size_t length, struct api_error *error)
{
    size_t least_tokens = length / service->max_piece_bytes;
    return length <= LONG_TEXT_BYTES || least_tokens <= (size_t)service->model.max_prompt_tokens ||
           too_long(service, path, "at least ", least_tokens, error);
}

bool answer_tokenize(struct answer *answer, const char *path, const char *text, size_t length, bool add_special,
                     int32_t **ret_tokens, int32_t *ret_n)
{
    struct npu_error error;
    if (!service_check_prompt_bytes(answer->service, path, length, &answer->error))
        return false;
    if (tokenizer_encode(answer->service->model.tokenizer, text, length, add_special, true, ret_tokens, ret_n,
                         &error) == NPU_OK)
        return true;
    return error.status == NPU_ERROR_MEMORY
               ? answer_out_of_memory(answer)
               : api_error_set(&answer->error, API_ERROR_INVALID_VALUE, path, "%s: %s", path, error.message);
}

bool answer_check_logprobs(struct answer *answer, const struct answer_plan *plan, const struct answer_prompt *prompts,
                           int n_prompts)
{
    if (plan->n_logprobs < 0 || answer->is_stream)
        return true;
    int64_t total = 0;
    int32_t context = answer->service->model.context;
    for (int i = 0; i < n_prompts; i++) {
        int32_t room = context - prompts[i].n_tokens + 1;
        total += plan->max_tokens >= 0 && plan->max_tokens < room ? plan->max_tokens : room;
        total += plan->echo ? prompts[i].n_tokens : 0;
    }
    if (total * plan->n <= MAX_COLLECTED_LOGPROBS)
        return true;
    return api_error_set(
        &answer->error, API_ERROR_INVALID_VALUE, "logprobs",
        "logprobs for up to %lld tokens in one answer are too many; %d are allowed without stream: true",
        (long long)(total * plan->n), MAX_COLLECTED_LOGPROBS);
}

static void *copy_bytes(const void *bytes, size_t length)
{
    void *copy = malloc(length > 0 ? length : 1);
    if (copy != NULL && length > 0)
        memcpy(copy, bytes, length);
    return copy;
}

static bool fill_stops(struct generation *generation, const struct stop_fields *stop)
{
    if (stop->n_stops == 0)
        return true;
    generation->stops = calloc((size_t)stop->n_stops, sizeof *generation->stops);
    generation->stop_lengths = calloc((size_t)stop->n_stops, sizeof *generation->stop_lengths);
    if (generation->stops == NULL || generation->stop_lengths == NULL)
        return false;
    for (int i = 0; i < stop->n_stops; i++) {
        generation->stops[i] = copy_bytes(stop->texts[i], stop->lengths[i] + 1); /* with its NUL */
        if (generation->stops[i] == NULL)
            return false;
        generation->stop_lengths[i] = stop->lengths[i];
        generation->n_stops++;
    }
    return true;
}

static bool fill_sampling(struct sampling *sampling, const struct sampling_fields *fields, uint64_t seed)
{
    sampling->temperature = (float)fields->temperature;
    /* 0 keeps the likeliest token only, as any top_p below its probability does. */
    sampling->top_p = fields->top_p > 1e-9 ? (float)fields->top_p : 1e-9f;
    sampling->min_p = (float)fields->min_p;
    sampling->top_k = fields->top_k;
    sampling->repeat_penalty = (float)fields->repeat_penalty;
    sampling->presence_penalty = (float)fields->presence_penalty;
    sampling->frequency_penalty = (float)fields->frequency_penalty;
    sampling->seed = seed;
    if (fields->n_biases == 0)
        return true;
    sampling->bias = calloc((size_t)fields->n_biases, sizeof *sampling->bias);
    if (sampling->bias == NULL)
        return false;
    for (int i = 0; i < fields->n_biases; i++) {
        sampling->bias[i].token = fields->biases[i].token;
        sampling->bias[i].bias = (float)fields->biases[i].bias;
    }
    sampling->n_bias = fields->n_biases;
    return true;
}

static bool fill_generation(const struct answer *answer, struct generation *generation, const struct answer_plan *plan,
                            const struct answer_prompt *prompt, int index, uint64_t seed)
{
    if (answer->n_choices == 1)
        snprintf(generation->id, sizeof generation->id, "%.47s", answer->id);
    else
        snprintf(generation->id, sizeof generation->id, "%.40s/%d", answer->id, index);
    generation->prompt = copy_bytes(prompt->tokens, (size_t)prompt->n_tokens * sizeof *prompt->tokens);
    generation->n_prompt = prompt->n_tokens;
    generation->max_tokens = plan->max_tokens;
    generation->n_logprobs = plan->n_logprobs;
    generation->echo = plan->echo;
    generation->pooling = plan->pooling;
    generation->ignore_eos = plan->sampling->ignore_eos;
    generation->priority = plan->queue->priority;
    generation->max_wait_ms = plan->queue->max_wait_ms;
    generation->timeout_ms = plan->queue->timeout_ms;
    generation->joins_previous = index > 0;
    generation->request_size = answer->n_choices;
    generation->keeps_session = plan->keeps_session;
    generation->session_key = plan->session_key != NULL ? strdup(plan->session_key) : NULL;
    return generation->prompt != NULL && (plan->session_key == NULL || generation->session_key != NULL) &&
           fill_stops(generation, plan->stop) &&
           fill_sampling(&generation->sampling, plan->sampling, seed + (uint64_t)(index % plan->n));
}

/* Every choice has a grammar of its own; it is compiled once. */
static bool create_constraints(struct answer *answer, const struct grammar_fields *grammar)
{
    struct text_error error;
    struct constraint *constraint =
        grammar_compiler_compile(answer->service->grammars, answer->service->model.tokenizer, grammar->kind,
                                 grammar->text, grammar->length, &error);
    for (int i = 0; i < answer->n_choices && constraint != NULL; i++) {
        answer->choices[i].generation->constraint = constraint;
        if (i + 1 < answer->n_choices)
            constraint = constraint_repeat(constraint, &error);
    }
    snprintf(answer->grammar_field, sizeof answer->grammar_field, "%s", grammar->path);
    if (constraint != NULL)
        return true;
    if (error.status == TEXT_MEMORY)
        return answer_out_of_memory(answer);
    enum api_error_kind kind = error.status == TEXT_INTERNAL ? API_ERROR_INTERNAL : API_ERROR_INVALID_VALUE;
    return api_error_set(&answer->error, kind, grammar->path, "%s: %s", grammar->path, error.message);
}

bool answer_create_choices(struct answer *answer, const struct answer_plan *plan, const struct answer_prompt *prompts,
                           int n_prompts)
{
    uint64_t seed = (uint64_t)plan->sampling->seed;
    if (!plan->sampling->has_seed && getrandom(&seed, sizeof seed, 0) != sizeof seed)
        return api_error_set(&answer->error, API_ERROR_INTERNAL, NULL, "the system gives no random numbers");
    int n = n_prompts * plan->n;
    answer->choices = calloc((size_t)n, sizeof *answer->choices);
    answer->caches = calloc((size_t)n, sizeof *answer->caches);
    if (answer->choices == NULL || answer->caches == NULL)
        return answer_out_of_memory(answer);
    answer->n_choices = n;
    answer->n_per_prompt = plan->n;
    for (int i = 0; i < n; i++) {
        struct choice *choice = &answer->choices[i];
        choice->owner = answer;
        choice->index = i;
        choice->generation = generation_create();
        if (choice->generation == NULL ||
            !fill_generation(answer, choice->generation, plan, &prompts[i / plan->n], i, seed))
            return answer_out_of_memory(answer);
    }
    return plan->grammar == NULL || !plan->grammar->is_given || create_constraints(answer, plan->grammar);
}
