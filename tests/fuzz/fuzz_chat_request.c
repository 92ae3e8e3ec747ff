/* Any bytes as the body of a chat, of /tokenize and /detokenize: a request whose every field is in range, or an error
 * that can be sent. Messages and tools can be explained to a template that knows none. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/chat_request.h"
#include "proto/text_request.h"
#include "proto/tool_explain.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct request_limits limits = {.n_vocab = 1000};

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void check_error(const struct api_error *error)
{
    size_t length;
    char *json = api_error_json(error, &length);
    require(json != NULL && error->message[0] != '\0');
    free(json);
}

static void check_messages(const json_t *messages)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    require(json_array_size(messages) > 0);
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i), *content = json_object_get(message, "content");
        bool known = false;
        for (size_t j = 0; j < sizeof roles / sizeof *roles; j++)
            known |= strcmp(json_string_value(json_object_get(message, "role")), roles[j]) == 0;
        require(known && (content == NULL || json_is_string(content) || json_array_size(content) > 0));
        for (size_t j = 0; j < json_array_size(content); j++)
            require(json_is_string(json_object_get(json_array_get(content, j), "text")));
    }
}

static void check_explained(const struct chat_request *request)
{
    json_t *explained = tool_explain(request->messages, request->tools.tools, request->n % 2 == 0);
    require(explained != NULL);
    for (size_t i = 0; i < json_array_size(explained); i++) {
        const json_t *message = json_array_get(explained, i);
        require(json_object_get(message, "tool_calls") == NULL);
        require(strcmp(json_string_value(json_object_get(message, "role")), "tool") != 0);
    }
    json_decref(explained);
}

static void check_request(const struct chat_request *request)
{
    check_messages(request->messages);
    require(request->n >= 1 && request->n <= REQUEST_MAX_N);
    require(request->max_tokens == -1 || request->max_tokens >= 1);
    require(request->logprobs >= -1 && request->logprobs <= REQUEST_MAX_LOGPROBS);
    require(request->tools.choice == TOOL_CHOICE_NONE || request->tools.tools != NULL);
    require((request->tools.choice == TOOL_CHOICE_NAMED) == (request->tools.name != NULL));
    for (size_t i = 0; i < json_array_size(request->tools.tools); i++) {
        const json_t *function = json_object_get(json_array_get(request->tools.tools, i), "function");
        size_t length = json_string_length(json_object_get(function, "name"));
        require(length >= 1 && length <= TOOL_MAX_NAME_BYTES);
        require(json_is_object(json_object_get(function, "parameters")));
    }
    check_explained(request);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *body = (const char *)data;
    struct chat_request request;
    struct tokenize_request tokenize;
    struct detokenize_request detokenize;
    struct api_error error;
    if (chat_request_decode(&request, body, size, &limits, &error)) {
        check_request(&request);
        chat_request_clear(&request);
    } else {
        check_error(&error);
    }
    if (tokenize_request_decode(&tokenize, body, size, &error)) {
        require(tokenize.content != NULL);
        free(tokenize.content);
    } else {
        check_error(&error);
    }
    if (detokenize_request_decode(&detokenize, body, size, &limits, &error)) {
        for (size_t i = 0; i < detokenize.n_tokens; i++)
            require(detokenize.tokens[i] >= 0 && detokenize.tokens[i] < limits.n_vocab);
        free(detokenize.tokens);
    } else {
        check_error(&error);
    }
    return 0;
}
