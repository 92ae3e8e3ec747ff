/* POST /v1/completions and /v1/prefill. */
#include <stdlib.h>
#include <string.h>

#include "daemon/answer.h"
#include "daemon/service_internal.h"
#include "daemon/tokenizer.h"
#include "proto/completion_request.h"
#include "proto/sse.h"

struct completion {
    struct answer answer; /* first */
    struct completion_request request;
};

/* ---- preparing, on a worker thread ---- */

static const char *prompt_path(const struct completion *completion, int prompt, char *path, size_t capacity)
{
    return prompt_fields_path(&completion_prompt_form, completion->request.prompt_is_list, prompt, path, capacity);
}

/* Text to tokens. An empty text starts from where the model's texts start. */
static bool tokenize(struct completion *completion, int index)
{
    const struct tokenizer *tokenizer = completion->answer.service->model.tokenizer;
    struct prompt_field *prompt = &completion->request.prompts[index];
    char path[32];
    prompt_path(completion, index, path, sizeof path);
    if (!answer_tokenize(&completion->answer, path, prompt->text, prompt->length, true, &prompt->tokens,
                         &prompt->n_tokens))
        return false;
    free(prompt->text);
    prompt->text = NULL;
    if (prompt->n_tokens > 0)
        return true;
    int32_t first = tokenizer_bos(tokenizer) >= 0 ? tokenizer_bos(tokenizer) : tokenizer_eos(tokenizer);
    if (first < 0)
        return api_error_set(&completion->answer.error, API_ERROR_INVALID_VALUE, path,
                             "%s must not be empty: the model has no token to begin with", path);
    free(prompt->tokens);
    prompt->tokens = malloc(sizeof *prompt->tokens);
    if (prompt->tokens == NULL)
        return answer_out_of_memory(&completion->answer);
    prompt->tokens[0] = first;
    prompt->n_tokens = 1;
    return true;
}

static bool create_choices(struct completion *completion)
{
    const struct completion_request *request = &completion->request;
    struct answer_plan plan = {.sampling = &request->sampling,
                               .stop = &request->stop,
                               .queue = &request->queue,
                               .grammar = &request->grammar,
                               .session_key = request->prompt_cache_key,
                               .max_tokens = request->max_tokens,
                               .n_logprobs = request->logprobs,
                               .n = request->n,
                               .echo = request->echo};
    struct answer_prompt *prompts = calloc((size_t)request->n_prompts, sizeof *prompts);
    if (prompts == NULL)
        return answer_out_of_memory(&completion->answer);
    for (int i = 0; i < request->n_prompts; i++)
        prompts[i] = (struct answer_prompt){request->prompts[i].tokens, request->prompts[i].n_tokens};
    completion->answer.is_stream = request->stream.stream;
    completion->answer.with_tokens = request->logprobs >= 0;
    bool ok = answer_check_logprobs(&completion->answer, &plan, prompts, request->n_prompts) &&
              answer_create_choices(&completion->answer, &plan, prompts, request->n_prompts);
    free(prompts);
    return ok;
}

static bool prepare_prompts(struct completion *completion)
{
    const struct service_model *model = &completion->answer.service->model;
    for (int i = 0; i < completion->request.n_prompts; i++) {
        const struct prompt_field *prompt = &completion->request.prompts[i];
        if (prompt->text != NULL && !tokenize(completion, i))
            return false;
        char path[32];
        if (prompt->n_tokens > model->max_prompt_tokens)
            return answer_prompt_too_long(&completion->answer, prompt_path(completion, i, path, sizeof path),
                                          (size_t)prompt->n_tokens);
    }
    return create_choices(completion);
}

static bool prepare_completion(struct answer *answer)
{
    struct completion *completion = (struct completion *)answer;
    struct request_limits limits = {.n_vocab = tokenizer_n_vocab(answer->service->model.tokenizer)};
    return completion_request_decode(&completion->request, answer->body, answer->body_length, &limits,
                                     &answer->error) &&
           prepare_prompts(completion);
}

static bool prepare_prefill(struct answer *answer)
{
    struct completion *completion = (struct completion *)answer;
    struct request_limits limits = {.n_vocab = tokenizer_n_vocab(answer->service->model.tokenizer)};
    return prefill_request_decode(&completion->request, answer->body, answer->body_length, &limits, &answer->error) &&
           prepare_prompts(completion);
}

static void clear(struct answer *answer)
{
    completion_request_clear(&((struct completion *)answer)->request);
}

/* ---- answering ---- */

static bool fill_choice(const struct answer *answer, struct choice *choice, size_t text_from,
                        struct response_choice *response)
{
    response->has_logprobs = ((const struct completion *)answer)->request.logprobs >= 0;
    return answer_fill_choice(answer, choice, text_from, response);
}

static char *whole_prefill(struct answer *answer, size_t *ret_length)
{
    struct response_head head = answer_head(answer);
    struct response_usage usage;
    struct response_timings timings;
    answer_sum_up(answer, &usage, &timings);
    return prefill_response_json(&head, answer->caches[0].session,
                                 ((struct completion *)answer)->request.prompt_cache_key, &usage, &timings, ret_length);
}

static char *whole_completion(struct answer *answer, size_t *ret_length)
{
    struct response_choice *choices = calloc((size_t)answer->n_choices, sizeof *choices);
    char *body = NULL;
    bool ok = choices != NULL;
    for (int i = 0; ok && i < answer->n_choices; i++)
        ok = fill_choice(answer, &answer->choices[i], 0, &choices[i]);
    if (ok) {
        struct response_head head = answer_head(answer);
        struct response_usage usage;
        struct response_timings timings;
        answer_sum_up(answer, &usage, &timings);
        body = completion_response_json(&head, choices, answer->n_choices, &usage, &timings, ret_length);
    }
    for (int i = 0; choices != NULL && i < answer->n_choices; i++)
        free((void *)choices[i].tokens);
    free(choices);
    return body;
}

static bool stream_completion(struct answer *answer, struct choice *choice, size_t text_from, bool last)
{
    struct response_head head = answer_head(answer);
    struct response_choice response;
    struct response_usage usage;
    struct response_timings timings;
    bool with_usage = ((struct completion *)answer)->request.stream.include_usage;
    if (!fill_choice(answer, choice, text_from, &response))
        return false;
    if (last)
        answer_sum_up(answer, &usage, &timings);
    size_t length;
    bool ok = true;
    if (response.text_length > 0 || response.n_tokens > 0 || choice->finished) {
        char *frame =
            completion_chunk_frame(&head, &response, with_usage, NULL, last && !with_usage ? &timings : NULL, &length);
        ok = answer_write_frame(answer, frame, length);
    }
    free((void *)response.tokens);
    if (!ok || !last || !with_usage)
        return ok;
    char *frame = completion_chunk_frame(&head, NULL, true, &usage, &timings, &length);
    return answer_write_frame(answer, frame, length);
}

const struct answer_form completion_form = {
    .endpoint = ENDPOINT_COMPLETIONS,
    .id_prefix = "cmpl-",
    .too_long_field = "prompt",
    .bytes = sizeof(struct completion),
    .prepare = prepare_completion,
    .whole = whole_completion,
    .stream = stream_completion,
    .stream_end = SSE_DONE,
    .clear = clear,
};

const struct answer_form prefill_form = {
    .endpoint = ENDPOINT_PREFILL,
    .id_prefix = "prefill-",
    .too_long_field = "prompt",
    .bytes = sizeof(struct completion),
    .reads_only = true,
    .read_outcome = OUTCOME_PREFILLED,
    .prepare = prepare_prefill,
    .whole = whole_prefill,
    .clear = clear,
};
