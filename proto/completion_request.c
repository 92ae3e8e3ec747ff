#include "proto/completion_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json_reader.h"

static const char prompt_forms[] = "a string, an array of strings, an array of token ids or an array of such arrays";

static bool out_of_memory(struct api_error *error)
{
    return api_error_set(error, API_ERROR_OUT_OF_MEMORY, NULL, "not enough memory for the request");
}

static bool read_text(struct prompt_field *prompt, const json_t *value, struct api_error *error)
{
    prompt->text = json_copy_string(value, &prompt->length);
    return prompt->text != NULL || out_of_memory(error);
}

static bool read_tokens(struct prompt_field *prompt, const json_t *array, const char *path,
                        const struct request_limits *limits, struct api_error *error)
{
    size_t n = json_array_size(array);
    if (n == 0)
        return json_refuse(error, path, array, true, "an array of at least one token id");
    prompt->tokens = malloc(n * sizeof *prompt->tokens);
    if (prompt->tokens == NULL)
        return out_of_memory(error);
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(array, i);
        json_int_t token = json_integer_value(value);
        if (!json_is_integer(value) || token < 0 || token >= limits->n_vocab) {
            char where[64], expected[64];
            snprintf(where, sizeof where, "%s[%zu]", path, i);
            snprintf(expected, sizeof expected, "a token id from 0 to %d", limits->n_vocab - 1);
            return json_refuse(error, where, value, json_is_integer(value), expected);
        }
        prompt->tokens[i] = (int32_t)token;
    }
    prompt->n_tokens = (int32_t)n; /* JSON_MAX_VALUES bounds it */
    return true;
}

static bool read_prompt_list(struct completion_request *request, const json_t *array,
                             const struct request_limits *limits, struct api_error *error)
{
    size_t n = json_array_size(array);
    bool strings = json_is_string(json_array_get(array, 0));
    if (n > COMPLETION_MAX_CHOICES)
        return api_error_set(error, API_ERROR_INVALID_VALUE, "prompt", "prompt may have at most %d entries, not %zu",
                             COMPLETION_MAX_CHOICES, n);
    request->prompts = calloc(n, sizeof *request->prompts);
    if (request->prompts == NULL)
        return out_of_memory(error);
    request->prompt_is_list = true;
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(array, i);
        char path[32];
        snprintf(path, sizeof path, "prompt[%zu]", i);
        request->n_prompts++;
        if (strings ? !json_is_string(value) : !json_is_array(value))
            return json_refuse(error, path, value, false,
                               strings ? "a string like the others" : "an array of token ids like the others");
        if (strings ? !read_text(&request->prompts[i], value, error)
                    : !read_tokens(&request->prompts[i], value, path, limits, error))
            return false;
    }
    return true;
}

static bool read_prompt(struct completion_request *request, const json_t *object, const struct request_limits *limits,
                        struct api_error *error)
{
    const json_t *prompt = json_field(object, "prompt");
    if (prompt == NULL)
        return api_error_set(error, API_ERROR_MISSING_PARAMETER, "prompt", "prompt is required: %s", prompt_forms);
    if (json_is_array(prompt) && json_array_size(prompt) > 0 && !json_is_number(json_array_get(prompt, 0))) {
        const json_t *first = json_array_get(prompt, 0);
        if (!json_is_string(first) && !json_is_array(first))
            return json_refuse(error, "prompt[0]", first, false, "a string, a token id or an array of token ids");
        return read_prompt_list(request, prompt, limits, error);
    }
    if (!json_is_string(prompt) && !json_is_array(prompt))
        return json_refuse(error, "prompt", prompt, false, prompt_forms);
    request->prompts = calloc(1, sizeof *request->prompts);
    if (request->prompts == NULL)
        return out_of_memory(error);
    request->n_prompts = 1;
    return json_is_string(prompt) ? read_text(request->prompts, prompt, error)
                                  : read_tokens(request->prompts, prompt, "prompt", limits, error);
}

static bool read_counts(struct completion_request *request, const json_t *object, struct api_error *error)
{
    int64_t max_tokens = 16, n = 1, logprobs = -1;
    if (!json_read_integer(object, "max_tokens", 0, INT32_MAX, &max_tokens, error) ||
        !json_read_integer(object, "n", 1, REQUEST_MAX_N, &n, error) ||
        !json_read_integer(object, "logprobs", 0, REQUEST_MAX_LOGPROBS, &logprobs, error) ||
        !json_read_bool(object, "echo", &request->echo, error))
        return false;
    request->max_tokens = (int32_t)max_tokens;
    request->n = (int)n;
    request->logprobs = (int)logprobs;
    if (max_tokens == 0 && !request->echo)
        return api_error_set(error, API_ERROR_INVALID_VALUE, "max_tokens",
                             "max_tokens must be at least 1; 0 is only of use with echo: true");
    if (request->n_prompts * request->n > COMPLETION_MAX_CHOICES)
        return api_error_set(error, API_ERROR_INVALID_VALUE, "n",
                             "n times the number of prompts may be at most %d, not %d", COMPLETION_MAX_CHOICES,
                             request->n_prompts * request->n);
    return true;
}

static bool read_names(struct completion_request *request, const json_t *object, struct api_error *error)
{
    char *ignored = NULL; /* any model name is served by the loaded model, but it must be a name */
    bool ok = json_read_string(object, "model", REQUEST_MAX_NAME_BYTES, &ignored, error) &&
              json_read_string(object, "user", REQUEST_MAX_NAME_BYTES, &ignored, error);
    free(ignored);
    return ok &&
           json_read_string(object, "prompt_cache_key", REQUEST_MAX_NAME_BYTES, &request->prompt_cache_key, error);
}

static bool read_completion(struct completion_request *request, const json_t *object,
                            const struct request_limits *limits, struct api_error *error)
{
    return read_names(request, object, error) &&
           request_refuse_field(object, "best_of", "every choice is returned; use n", error) &&
           request_refuse_field(object, "suffix", "text is only continued, not inserted", error) &&
           read_prompt(request, object, limits, error) && read_counts(request, object, error) &&
           sampling_fields_read(&request->sampling, object, limits, error) &&
           stop_fields_read(&request->stop, object, error) && stream_fields_read(&request->stream, object, error) &&
           queue_fields_read(&request->queue, object, error);
}

static bool read_prefill(struct completion_request *request, const json_t *object, const struct request_limits *limits,
                         struct api_error *error)
{
    request->n = 1;
    request->logprobs = -1;
    request->sampling = (struct sampling_fields){.top_p = 1, .repeat_penalty = 1};
    if (!read_names(request, object, error))
        return false;
    if (request->prompt_cache_key == NULL || request->prompt_cache_key[0] == '\0')
        return api_error_set(error, API_ERROR_MISSING_PARAMETER, "prompt_cache_key",
                             "prompt_cache_key is required: the name of the session that keeps the prompt");
    struct stream_fields stream;
    if (!stream_fields_read(&stream, object, error))
        return false;
    if (stream.stream)
        return api_error_set(error, API_ERROR_UNSUPPORTED_PARAMETER, "stream",
                             "stream is not supported: there is no text to stream");
    if (!read_prompt(request, object, limits, error))
        return false;
    if (request->n_prompts != 1)
        return api_error_set(error, API_ERROR_INVALID_VALUE, "prompt", "prompt must be one prompt, not %d",
                             request->n_prompts);
    return queue_fields_read(&request->queue, object, error);
}

typedef bool (*object_reader)(struct completion_request *request, const json_t *object,
                              const struct request_limits *limits, struct api_error *error);

static bool decode(struct completion_request *request, object_reader read, const char *body, size_t length,
                   const struct request_limits *limits, struct api_error *error)
{
    memset(request, 0, sizeof *request);
    json_t *object;
    if (!json_read_body(&object, body, length, error))
        return false;
    bool ok = read(request, object, limits, error);
    json_decref(object);
    if (!ok)
        completion_request_clear(request);
    return ok;
}

bool completion_request_decode(struct completion_request *request, const char *body, size_t length,
                               const struct request_limits *limits, struct api_error *error)
{
    return decode(request, read_completion, body, length, limits, error);
}

bool prefill_request_decode(struct completion_request *request, const char *body, size_t length,
                            const struct request_limits *limits, struct api_error *error)
{
    return decode(request, read_prefill, body, length, limits, error);
}

void completion_request_clear(struct completion_request *request)
{
    for (int i = 0; i < request->n_prompts; i++) {
        free(request->prompts[i].text);
        free(request->prompts[i].tokens);
    }
    free(request->prompts);
    free(request->prompt_cache_key);
    sampling_fields_clear(&request->sampling);
    stop_fields_clear(&request->stop);
    memset(request, 0, sizeof *request);
}
