#include "proto/chat_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/chat_messages.h"
#include "proto/json_reader.h"

static bool read_counts(struct chat_request *request, const json_t *object, struct api_error *error)
{
    int64_t max_tokens = -1, max_completion_tokens = -1, n = 1, top_logprobs = 0;
    bool logprobs = false;
    if (!json_read_integer(object, "max_tokens", 1, INT32_MAX, &max_tokens, error) ||
        !json_read_integer(object, "max_completion_tokens", 1, INT32_MAX, &max_completion_tokens, error) ||
        !json_read_integer(object, "n", 1, REQUEST_MAX_N, &n, error) ||
        !json_read_bool(object, "logprobs", &logprobs, error) ||
        !json_read_integer(object, "top_logprobs", 0, REQUEST_MAX_LOGPROBS, &top_logprobs, error))
        return false;
    if (max_tokens >= 0 && max_completion_tokens >= 0 && max_tokens != max_completion_tokens)
        return api_error_set(error, API_ERROR_INVALID_VALUE, "max_tokens",
                             "max_tokens is another name of max_completion_tokens: only one may be given");
    if (json_field(object, "top_logprobs") != NULL && !logprobs)
        return api_error_set(error, API_ERROR_INVALID_VALUE, "top_logprobs",
                             "top_logprobs may only be given with logprobs: true");
    request->max_tokens = (int32_t)(max_completion_tokens >= 0 ? max_completion_tokens : max_tokens);
    request->n = (int)n;
    request->logprobs = logprobs ? (int)top_logprobs : -1;
    return true;
}

static bool read_names(struct chat_request *request, const json_t *object, struct api_error *error)
{
    static const char *const ignored_names[] = {"model", "user", "safety_identifier"};
    char *ignored = NULL; /* any model name is served by the loaded model, but it must be a name */
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof ignored_names / sizeof *ignored_names; i++)
        ok = json_read_string(object, ignored_names[i], REQUEST_MAX_NAME_BYTES, &ignored, error);
    free(ignored);
    return ok &&
           json_read_string(object, "prompt_cache_key", REQUEST_MAX_NAME_BYTES, &request->prompt_cache_key, error);
}

/* What OpenAI has and npud has not, unless it asks for nothing special. */
static bool refuse_unsupported(const json_t *object, struct api_error *error)
{
    static const struct {
        const char *name, *why;
    } fields[] = {
        {"audio", "the model writes text only"},
        {"prediction", "use the same prompt again: what is known of it is cached"},
        {"web_search_options", "nothing is looked up"},
        {"functions", "use tools"},
        {"function_call", "use tool_choice"},
        {"moderation", "nothing is moderated"},
    };
    static const struct usual_field choices[] = {
        {"service_tier", {"auto", "default"}, "there is one; see priority"},
        {"verbosity", {"medium"}, "say in a message how long the answer is to be"},
        {"prompt_cache_retention", {"in-memory", "in_memory"}, "sessions stay until their memory is needed"},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!request_refuse_field(object, fields[i].name, fields[i].why, error))
            return false;
    }
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        if (!request_refuse_unusual(object, &choices[i], error))
            return false;
    }
    const json_t *modalities = json_field(object, "modalities");
    if (modalities != NULL &&
        !(json_array_size(modalities) == 1 && json_is_text(json_array_get(modalities, 0), "text")))
        return api_error_set(error, API_ERROR_UNSUPPORTED_PARAMETER, "modalities",
                             "modalities may only be [\"text\"]: the model writes text only");
    const json_t *metadata = json_field(object, "metadata");
    if (metadata != NULL && !json_is_object(metadata))
        return json_refuse(error, "metadata", metadata, false, "an object");
    bool store = false;
    if (!json_read_bool(object, "store", &store, error))
        return false;
    if (store)
        return api_error_set(error, API_ERROR_UNSUPPORTED_PARAMETER, "store",
                             "store: true is not supported: chats are not kept to be asked for");
    return true;
}

static bool read_request(struct chat_request *request, const json_t *object, const struct request_limits *limits,
                         struct api_error *error)
{
    return read_names(request, object, error) && refuse_unsupported(object, error) &&
           chat_messages_read(&request->messages, object, "messages", error) &&
           tool_fields_read(&request->tools, object, error) &&
           template_fields_read(&request->template, object, error) &&
           template_fields_set_effort(&request->template, json_field(object, "reasoning_effort"), "reasoning_effort",
                                      error) &&
           read_counts(request, object, error) && sampling_fields_read(&request->sampling, object, limits, error) &&
           stop_fields_read(&request->stop, object, error) && stream_fields_read(&request->stream, object, error) &&
           queue_fields_read(&request->queue, object, error) && grammar_fields_read(&request->grammar, object, error) &&
           grammar_fields_refuse_stop(&request->grammar, request->stop.n_stops, error) &&
           tool_fields_refuse_stop(&request->tools, request->stop.n_stops, error);
}

bool chat_request_decode(struct chat_request *request, const char *body, size_t length,
                         const struct request_limits *limits, struct api_error *error)
{
    memset(request, 0, sizeof *request);
    json_t *object;
    if (!json_read_body(&object, body, length, error))
        return false;
    bool ok = read_request(request, object, limits, error);
    json_decref(object);
    if (!ok)
        chat_request_clear(request);
    return ok;
}

void chat_request_clear(struct chat_request *request)
{
    json_decref(request->messages);
    tool_fields_clear(&request->tools);
    template_fields_clear(&request->template);
    free(request->prompt_cache_key);
    sampling_fields_clear(&request->sampling);
    stop_fields_clear(&request->stop);
    grammar_fields_clear(&request->grammar);
    memset(request, 0, sizeof *request);
}
