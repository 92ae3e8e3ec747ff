/* Any bytes as the body of a response: a request whose every field is in range and whose items become messages that
 * templates can take, or an error that can be sent. And as the query of a response that is asked for. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/responses_items.h"
#include "proto/responses_request.h"
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

/* As the service does it: references stay out. */
static void check_input(const struct responses_request *request)
{
    json_t *messages = json_array(), *items = json_array();
    struct api_error error;
    for (size_t i = 0; i < json_array_size(request->input); i++)
        if (responses_item_reference(json_array_get(request->input, i)) == NULL)
            json_array_append(items, json_array_get(request->input, i));
    if (!responses_items_add(messages, items, "input", &error))
        check_error(&error);
    else if (json_array_size(messages) > 0)
        json_decref(tool_explain(messages, request->tools.tools, true));
    check_messages(messages);
    json_decref(messages);
    json_decref(items);
}

static void check_request(const struct responses_request *request)
{
    require(json_array_size(request->input) > 0);
    require(request->instructions == NULL || json_is_string(request->instructions));
    require(request->max_tokens == -1 || request->max_tokens >= 1);
    require(request->tools.choice == TOOL_CHOICE_NONE || request->tools.tools != NULL);
    require((request->tools.choice == TOOL_CHOICE_NAMED) == (request->tools.name != NULL));
    require(json_object_size(json_object_get(request->echo, "metadata")) <= RESPONSES_MAX_METADATA);
    require(json_array_size(json_object_get(request->echo, "tools")) == json_array_size(request->tools.tools));
    check_input(request);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct responses_request request;
    struct api_error error;
    if (responses_request_decode(&request, (const char *)data, size, &limits, &error)) {
        check_request(&request);
        responses_request_clear(&request);
    } else {
        check_error(&error);
    }
    char *query = malloc(size + 1);
    require(query != NULL);
    memcpy(query, data, size);
    query[size] = '\0';
    if (!responses_query_check(query, &error))
        check_error(&error);
    free(query);
    return 0;
}
