/* Any bytes as the body of POST /v1/completions, /v1/prefill, /v1/embeddings and /v1/sessions/{id}/fork, and as the query of an import: a
 * request whose every field is in range, or an error that can be sent. The same bytes as text of an answer: one event of
 * valid JSON. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/completion_request.h"
#include "proto/completion_response.h"
#include "proto/embedding_request.h"
#include "proto/session_request.h"
#include "proto/sse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void check_request(const struct completion_request *request, const struct request_limits *limits)
{
    require(request->n_prompts >= 1 && request->n >= 1 && request->n_prompts * request->n <= COMPLETION_MAX_CHOICES);
    for (int i = 0; i < request->n_prompts; i++) {
        const struct prompt_field *prompt = &request->prompts[i];
        require((prompt->text != NULL) != (prompt->tokens != NULL));
        for (int32_t j = 0; j < prompt->n_tokens; j++)
            require(prompt->tokens[j] >= 0 && prompt->tokens[j] < limits->n_vocab);
    }
    require(request->max_tokens > 0 || (request->max_tokens == 0 && request->echo));
    require(request->logprobs >= -1 && request->logprobs <= REQUEST_MAX_LOGPROBS);
    require(request->sampling.temperature >= 0 && request->sampling.temperature <= 2);
    require(request->sampling.top_p >= 0 && request->sampling.top_p <= 1 && request->sampling.top_k >= 0);
    for (int i = 0; i < request->stop.n_stops; i++)
        require(request->stop.lengths[i] > 0);
}

static void check_answer(const char *bytes, size_t size)
{
    struct response_head head = {.id = "cmpl-1", .model = "m", .fingerprint = "f"};
    struct response_token token = {.text = bytes, .length = size, .has_logprob = true};
    struct response_choice choice = {
        .text = bytes, .text_length = size, .has_logprobs = true, .tokens = &token, .n_tokens = 1};
    size_t length;
    char *frame = completion_chunk_frame(&head, &choice, true, NULL, NULL, &length);
    require(frame != NULL && length == strlen(frame) && strncmp(frame, "data: ", 6) == 0);
    require(strstr(frame, "\n\n") == frame + length - 2);
    json_t *value = json_loadb(frame + 6, length - 8, JSON_ALLOW_NUL, NULL);
    require(value != NULL || memchr(bytes, '\0', size) != NULL); /* jansson writes NUL in keys, but does not read it */
    json_decref(value);
    free(frame);
    char *event = sse_event(NULL, bytes, size, &length);
    require(event != NULL && memmem(event, length, "\n\n", 2) == event + length - 2);
    free(event);
}

static void check_error(const struct api_error *error)
{
    size_t length;
    char *json = api_error_json(error, &length);
    require(json != NULL && error->message[0] != '\0');
    free(json);
}

static void check_embedding_request(const char *bytes, size_t size, const struct request_limits *tokens)
{
    struct embedding_limits limits = {.tokens = *tokens, .dimensions = 64};
    struct embedding_request request;
    struct api_error error;
    if (!embedding_request_decode(&request, bytes, size, &limits, &error)) {
        check_error(&error);
        return;
    }
    require(request.n_inputs >= 1 && request.n_inputs <= EMBEDDING_MAX_INPUTS);
    for (int i = 0; i < request.n_inputs; i++)
        require(request.inputs[i].text != NULL ? request.inputs[i].length > 0 : request.inputs[i].n_tokens > 0);
    embedding_request_clear(&request);
}

static void check_session_request(const char *bytes, size_t size)
{
    struct session_request_fields fields;
    struct api_error error;
    if (session_request_decode(&fields, bytes, size, &error)) {
        require(fields.tokens >= 0 && (fields.key == NULL || strlen(fields.key) <= REQUEST_MAX_NAME_BYTES));
        session_request_clear(&fields);
    } else {
        check_error(&error);
    }
    char *query = strndup(bytes, size), *key;
    require(query != NULL);
    if (session_request_decode_key(&key, query, &error)) {
        json_t *value = key != NULL ? json_string(key) : json_null();
        require(value != NULL && (key == NULL || (key[0] != '\0' && strlen(key) <= REQUEST_MAX_NAME_BYTES)));
        json_decref(value);
        free(key);
    } else {
        check_error(&error);
    }
    free(query);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct request_limits limits = {.n_vocab = 1000};
    struct completion_request request;
    struct api_error error;
    if (completion_request_decode(&request, (const char *)data, size, &limits, &error)) {
        check_request(&request, &limits);
        completion_request_clear(&request);
    } else {
        check_error(&error);
    }
    if (prefill_request_decode(&request, (const char *)data, size, &limits, &error)) {
        require(request.n_prompts == 1 && request.n == 1 && request.max_tokens == 0 &&
                request.prompt_cache_key != NULL);
        completion_request_clear(&request);
    } else {
        check_error(&error);
    }
    check_embedding_request((const char *)data, size, &limits);
    check_session_request((const char *)data, size);
    check_answer((const char *)data, size);
    return 0;
}
