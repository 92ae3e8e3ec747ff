#include "proto/completion_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json_reader.h"

const struct prompt_form completion_prompt_form = {"prompt", COMPLETION_MAX_CHOICES};

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
           prompt_fields_read(&request->prompts, &request->n_prompts, &request->prompt_is_list, object,
                              &completion_prompt_form, limits, error) &&
           read_counts(request, object, error) && sampling_fields_read(&request->sampling, object, limits, error) &&
           stop_fields_read(&request->stop, object, error) && stream_fields_read(&request->stream, object, error) &&
           queue_fields_read(&request->queue, object, error) && grammar_fields_read(&request->grammar, object, error) &&
           grammar_fields_refuse_stop(&request->grammar, request->stop.n_stops, error);
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
    if (!prompt_fields_read(&request->prompts, &request->n_prompts, &request->prompt_is_list, object,
                            &completion_prompt_form, limits, error))
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
    prompt_fields_clear(request->prompts, request->n_prompts);
    free(request->prompt_cache_key);
    sampling_fields_clear(&request->sampling);
    stop_fields_clear(&request->stop);
    grammar_fields_clear(&request->grammar);
    memset(request, 0, sizeof *request);
}
