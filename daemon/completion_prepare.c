/* The part of a completion that may take long: decoding, tokenizing, copying. Runs on the worker pool. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/service_internal.h"
#include "daemon/tokenizer.h"

enum {
    /* Of all choices of an answer that is not streamed: they are collected, at about 2 KiB each. */
    MAX_COLLECTED_LOGPROBS = 65536,
    LONG_TEXT_BYTES = 1024 * 1024, /* above, a prompt that cannot fit is not tokenized to tell by how much */
};

static bool out_of_memory(struct completion *completion)
{
    return api_error_set(&completion->error, API_ERROR_OUT_OF_MEMORY, NULL, "not enough memory for the request");
}

static const char *prompt_path(const struct completion *completion, int prompt, char *path, size_t capacity)
{
    if (completion->request.prompt_is_list)
        snprintf(path, capacity, "prompt[%d]", prompt);
    else
        snprintf(path, capacity, "prompt");
    return path;
}

static bool too_long(struct completion *completion, int prompt, const char *qualifier, size_t n_tokens)
{
    char path[32];
    prompt_path(completion, prompt, path, sizeof path);
    return api_error_set(&completion->error, API_ERROR_CONTEXT_LENGTH, path,
                         "%s is too long: it has %s%zu tokens, but the maximum context length is %d tokens", path,
                         qualifier, n_tokens, completion->service->model.max_prompt_tokens);
}

/* Text to tokens. An empty text starts from where the model's texts start. */
static bool tokenize(struct completion *completion, int index)
{
    const struct service *service = completion->service;
    const struct tokenizer *tokenizer = service->model.tokenizer;
    struct prompt_field *prompt = &completion->request.prompts[index];
    size_t least_tokens = prompt->length / service->max_piece_bytes;
    if (prompt->length > LONG_TEXT_BYTES && least_tokens > (size_t)service->model.max_prompt_tokens)
        return too_long(completion, index, "at least ", least_tokens);
    struct npu_error error;
    if (tokenizer_encode(tokenizer, prompt->text, prompt->length, true, true, &prompt->tokens, &prompt->n_tokens,
                         &error) != NPU_OK)
        return error.status == NPU_ERROR_MEMORY
                   ? out_of_memory(completion)
                   : api_error_set(&completion->error, API_ERROR_INVALID_VALUE, "prompt", "prompt: %s", error.message);
    free(prompt->text);
    prompt->text = NULL;
    if (prompt->n_tokens > 0)
        return true;
    int32_t first = tokenizer_bos(tokenizer) >= 0 ? tokenizer_bos(tokenizer) : tokenizer_eos(tokenizer);
    char path[32];
    prompt_path(completion, index, path, sizeof path);
    if (first < 0)
        return api_error_set(&completion->error, API_ERROR_INVALID_VALUE, path,
                             "%s must not be empty: the model has no token to begin with", path);
    free(prompt->tokens);
    prompt->tokens = malloc(sizeof *prompt->tokens);
    if (prompt->tokens == NULL)
        return out_of_memory(completion);
    prompt->tokens[0] = first;
    prompt->n_tokens = 1;
    return true;
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

static bool fill_generation(struct completion *completion, struct generation *generation, int index, uint64_t seed)
{
    const struct completion_request *request = &completion->request;
    const struct prompt_field *prompt = &request->prompts[index / request->n];
    if (completion->n_choices == 1)
        snprintf(generation->id, sizeof generation->id, "%s", completion->id);
    else
        snprintf(generation->id, sizeof generation->id, "%s/%d", completion->id, index);
    generation->prompt = copy_bytes(prompt->tokens, (size_t)prompt->n_tokens * sizeof *prompt->tokens);
    generation->n_prompt = prompt->n_tokens;
    generation->max_tokens = request->max_tokens;
    generation->n_logprobs = request->logprobs;
    generation->echo = request->echo;
    generation->ignore_eos = request->sampling.ignore_eos;
    generation->priority = request->queue.priority;
    generation->max_wait_ms = request->queue.max_wait_ms;
    generation->timeout_ms = request->queue.timeout_ms;
    generation->joins_previous = index > 0;
    generation->session_key = request->prompt_cache_key != NULL ? strdup(request->prompt_cache_key) : NULL;
    return generation->prompt != NULL && (request->prompt_cache_key == NULL || generation->session_key != NULL) &&
           fill_stops(generation, &request->stop) &&
           fill_sampling(&generation->sampling, &request->sampling, seed + (uint64_t)(index % request->n));
}

static bool check_collected(struct completion *completion)
{
    const struct completion_request *request = &completion->request;
    if (request->logprobs < 0 || request->stream.stream)
        return true;
    int64_t total = 0;
    int32_t context = completion->service->model.context;
    for (int i = 0; i < request->n_prompts; i++) {
        int32_t room = context - request->prompts[i].n_tokens + 1;
        total += request->max_tokens < room ? request->max_tokens : room;
        total += request->echo ? request->prompts[i].n_tokens : 0;
    }
    if (total * request->n <= MAX_COLLECTED_LOGPROBS)
        return true;
    return api_error_set(
        &completion->error, API_ERROR_INVALID_VALUE, "logprobs",
        "logprobs for up to %lld tokens in one answer are too many; %d are allowed without stream: true",
        (long long)(total * request->n), MAX_COLLECTED_LOGPROBS);
}

static bool create_generations(struct completion *completion)
{
    const struct completion_request *request = &completion->request;
    uint64_t seed = (uint64_t)request->sampling.seed;
    if (!request->sampling.has_seed && getrandom(&seed, sizeof seed, 0) != sizeof seed)
        return api_error_set(&completion->error, API_ERROR_INTERNAL, NULL, "the system gives no random numbers");
    int n = request->n_prompts * request->n;
    completion->choices = calloc((size_t)n, sizeof *completion->choices);
    completion->caches = calloc((size_t)n, sizeof *completion->caches);
    if (completion->choices == NULL || completion->caches == NULL)
        return out_of_memory(completion);
    completion->n_choices = n;
    for (int i = 0; i < n; i++) {
        struct choice *choice = &completion->choices[i];
        choice->owner = completion;
        choice->index = i;
        choice->generation = generation_create();
        if (choice->generation == NULL || !fill_generation(completion, choice->generation, i, seed))
            return out_of_memory(completion);
    }
    return true;
}

bool completion_prepare(struct completion *completion)
{
    const struct service_model *model = &completion->service->model;
    struct request_limits limits = {.n_vocab = tokenizer_n_vocab(model->tokenizer)};
    struct completion_request *request = &completion->request;
    if (!(completion->endpoint == ENDPOINT_PREFILL ? prefill_request_decode : completion_request_decode)(
            request, completion->body, completion->body_length, &limits, &completion->error))
        return false;
    for (int i = 0; i < request->n_prompts; i++) {
        if (request->prompts[i].text != NULL && !tokenize(completion, i))
            return false;
        if (request->prompts[i].n_tokens > model->max_prompt_tokens)
            return too_long(completion, i, "", (size_t)request->prompts[i].n_tokens);
    }
    return check_collected(completion) && create_generations(completion);
}

void completion_clear(struct completion *completion)
{
    for (int i = 0; i < completion->n_choices; i++)
        choice_clear(&completion->choices[i]);
    free(completion->choices);
    free(completion->caches);
    free(completion->body);
    completion_request_clear(&completion->request);
}
