/* POST /v1/embeddings. */
#include <stdlib.h>

#include "daemon/answer.h"
#include "daemon/service_internal.h"
#include "daemon/tokenizer.h"
#include "npu/executor.h"
#include "proto/embedding_request.h"
#include "proto/embedding_response.h"

struct embeddings {
    struct answer answer; /* first */
    struct embedding_request request;
};

/* ---- preparing, on a worker thread ---- */

static bool prepare_input(struct embeddings *embeddings, int index)
{
    struct answer *answer = &embeddings->answer;
    struct prompt_field *input = &embeddings->request.inputs[index];
    char path[64];
    prompt_fields_path(&embedding_input_form, embeddings->request.input_is_list, index, path, sizeof path);
    if (input->text != NULL &&
        !answer_tokenize(answer, path, input->text, input->length, true, &input->tokens, &input->n_tokens))
        return false;
    if (input->n_tokens == 0)
        return api_error_set(&answer->error, API_ERROR_INVALID_VALUE, path, "%s has no token", path);
    return input->n_tokens <= answer->service->model.max_prompt_tokens ||
           answer_prompt_too_long(answer, path, (size_t)input->n_tokens);
}

static enum pooling pooling_of(const struct embeddings *embeddings)
{
    enum pooling trained = embeddings->answer.service->model.pooling;
    switch (embeddings->request.pooling) {
    case POOLING_FIELD_MEAN:
        return POOLING_MEAN;
    case POOLING_FIELD_LAST:
        return POOLING_LAST;
    case POOLING_FIELD_MODEL:
        break;
    }
    return trained != POOLING_NONE ? trained : POOLING_MEAN;
}

static bool create_choices(struct embeddings *embeddings)
{
    static const struct sampling_fields no_sampling = {.top_p = 1, .repeat_penalty = 1, .has_seed = true};
    static const struct stop_fields no_stops;
    const struct embedding_request *request = &embeddings->request;
    struct answer_plan plan = {.sampling = &no_sampling,
                               .stop = &no_stops,
                               .queue = &request->queue,
                               .n_logprobs = -1,
                               .n = 1,
                               .pooling = pooling_of(embeddings)};
    struct answer_prompt *prompts = calloc((size_t)request->n_inputs, sizeof *prompts);
    if (prompts == NULL)
        return answer_out_of_memory(&embeddings->answer);
    for (int i = 0; i < request->n_inputs; i++)
        prompts[i] = (struct answer_prompt){request->inputs[i].tokens, request->inputs[i].n_tokens};
    bool ok = answer_create_choices(&embeddings->answer, &plan, prompts, request->n_inputs);
    free(prompts);
    return ok;
}

static bool prepare(struct answer *answer)
{
    struct embeddings *embeddings = (struct embeddings *)answer;
    const struct service_model *model = &answer->service->model;
    struct embedding_limits limits = {.tokens = {.n_vocab = tokenizer_n_vocab(model->tokenizer)},
                                      .dimensions = model->executor->n_embd};
    if (!embedding_request_decode(&embeddings->request, answer->body, answer->body_length, &limits, &answer->error))
        return false;
    for (int i = 0; i < embeddings->request.n_inputs; i++)
        if (!prepare_input(embeddings, i))
            return false;
    return create_choices(embeddings);
}

/* ---- answering ---- */

static char *whole(struct answer *answer, size_t *ret_length)
{
    struct response_usage usage;
    struct response_timings timings;
    answer_sum_up(answer, &usage, &timings);
    const float **vectors = calloc((size_t)answer->n_choices, sizeof *vectors);
    if (vectors == NULL)
        return NULL;
    for (int i = 0; i < answer->n_choices; i++)
        vectors[i] = answer->choices[i].embedding;
    struct embedding_response response = {.model = answer->service->model_name,
                                          .embeddings = vectors,
                                          .n = answer->n_choices,
                                          .dimensions = answer->service->model.executor->n_embd,
                                          .base64 = ((struct embeddings *)answer)->request.base64,
                                          .prompt_tokens = usage.prompt_tokens};
    char *body = embedding_response_json(&response, ret_length);
    free(vectors);
    return body;
}

static void clear(struct answer *answer)
{
    embedding_request_clear(&((struct embeddings *)answer)->request);
}

const struct answer_form embedding_form = {
    .endpoint = ENDPOINT_EMBEDDINGS,
    .id_prefix = "embd-",
    .too_long_field = "input",
    .bytes = sizeof(struct embeddings),
    .reads_only = true,
    .read_outcome = OUTCOME_EMBEDDED,
    .prepare = prepare,
    .whole = whole,
    .clear = clear,
};
