#include "proto/responses_items.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/chat_messages.h"
#include "proto/json_reader.h"

enum {
    PATH_BYTES = 96,
};

static const char kinds[] = "message, function_call, function_call_output, reasoning or item_reference";

struct reading {
    json_t *messages;
    json_t *called; /* owned: the ids of the calls in messages, as names */
    size_t arguments_bytes;
};

static bool out_of_memory(struct api_error *error)
{
    return api_error_set(error, API_ERROR_OUT_OF_MEMORY, NULL, "not enough memory for the request");
}

static bool missing(struct api_error *error, const char *path, const char *what)
{
    return api_error_set(error, API_ERROR_MISSING_PARAMETER, path, "%s is required: %s", path, what);
}

static bool is_assistant(const json_t *message)
{
    return json_is_text(json_object_get(message, "role"), "assistant");
}

static json_t *last_of(const json_t *messages)
{
    size_t n = json_array_size(messages);
    return n > 0 ? json_array_get(messages, n - 1) : NULL;
}

/* A new message, which messages owns; NULL: memory is out. */
static json_t *add_message(json_t *messages, const char *role)
{
    json_t *message = json_pack("{s:s}", "role", role);
    return json_array_append_new(messages, message) == 0 ? message : NULL;
}

/* That of the assistant's turn that is being told, or a new one. takes_answer: what comes goes on from an answer,
 * too. */
static json_t *assistant_message(json_t *messages, bool takes_answer)
{
    json_t *last = last_of(messages);
    bool answers = json_object_get(last, "content") != NULL || json_object_get(last, "tool_calls") != NULL;
    return is_assistant(last) && (takes_answer || !answers) ? last : add_message(messages, "assistant");
}

/* The field as a string; NULL: error is set. */
static json_t *string_of(const json_t *item, const char *name, const char *path, const char *what,
                         struct api_error *error)
{
    char where[PATH_BYTES];
    json_t *value = json_field(item, name);
    snprintf(where, sizeof where, "%s.%s", path, name);
    if (value == NULL)
        missing(error, where, what);
    else if (!json_is_string(value))
        json_refuse(error, where, value, false, "a string");
    return json_is_string(value) ? value : NULL;
}

/* ---- messages ---- */

static bool add_said(json_t *messages, const json_t *item, const char *path, struct api_error *error)
{
    static const char *const roles[] = {"user", "system", "developer", "assistant"};
    const char *role = NULL;
    char where[PATH_BYTES];
    const json_t *given = json_field(item, "role");
    snprintf(where, sizeof where, "%s.role", path);
    if (given == NULL)
        return missing(error, where, "user, system, developer or assistant");
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        role = json_is_text(given, roles[i]) ? roles[i] : role;
    if (role == NULL)
        return json_refuse(error, where, given, json_is_string(given), "user, system, developer or assistant");
    json_t *content = json_field(item, "content");
    snprintf(where, sizeof where, "%s.content", path);
    if (content == NULL)
        return missing(error, where, "a string or an array of parts");
    bool says = json_is_text(given, "assistant");
    json_t *message = says ? assistant_message(messages, false) : add_message(messages, role);
    return message != NULL ? chat_content_read(message, content, where, error) : out_of_memory(error);
}

/* ---- calls ---- */

static bool add_call(struct reading *reading, const json_t *item, const char *path, struct api_error *error)
{
    json_t *id = string_of(item, "call_id", path, "the id that the call's output names", error);
    if (id == NULL)
        return false;
    json_t *message = assistant_message(reading->messages, true);
    if (message == NULL || json_object_set_new(reading->called, json_string_value(id), json_true()) != 0)
        return out_of_memory(error);
    return chat_call_read(message, id, item, path, &reading->arguments_bytes, error);
}

/* The ids of the calls in messages; NULL: memory is out. */
static json_t *called_before(const json_t *messages)
{
    json_t *called = json_object();
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *calls = json_object_get(json_array_get(messages, i), "tool_calls");
        for (size_t j = 0; j < json_array_size(calls); j++) {
            const json_t *id = json_object_get(json_array_get(calls, j), "id");
            if (json_is_string(id))
                json_object_set_new(called, json_string_value(id), json_true());
        }
    }
    return called;
}

static bool add_output(struct reading *reading, const json_t *item, const char *path, struct api_error *error)
{
    char where[PATH_BYTES];
    json_t *id = string_of(item, "call_id", path, "the id of the call that it answers", error);
    if (id == NULL)
        return false;
    if (json_object_get(reading->called, json_string_value(id)) == NULL) {
        snprintf(where, sizeof where, "%s.call_id", path);
        return api_error_set(error, API_ERROR_INVALID_VALUE, where,
                             "%s: there is no function_call %.100s before it, in the input or in what "
                             "previous_response_id continues",
                             where, json_string_value(id));
    }
    json_t *output = json_field(item, "output"), *name = json_field(item, "name");
    snprintf(where, sizeof where, "%s.output", path);
    if (output == NULL)
        return missing(error, where, "a string or an array of parts");
    json_t *message = add_message(reading->messages, "tool");
    if (message == NULL || json_object_set(message, "tool_call_id", id) != 0 ||
        (json_is_string(name) && json_object_set(message, "name", name) != 0))
        return out_of_memory(error);
    return chat_content_read(message, output, where, error);
}

/* ---- thinking ---- */

/* Behind what was thought before in the same turn. */
static bool think(json_t *message, const json_t *text, struct api_error *error)
{
    const json_t *before = json_object_get(message, "reasoning_content");
    size_t n = json_string_length(before), n_more = json_string_length(text);
    char *all = malloc(n + n_more + 1);
    if (all == NULL)
        return out_of_memory(error);
    if (before != NULL) {
        memcpy(all, json_string_value(before), n);
        all[n++] = '\n';
    }
    memcpy(all + n, json_string_value(text), n_more);
    bool ok = json_object_set_new(message, "reasoning_content", json_stringn(all, n + n_more)) == 0;
    free(all);
    return ok || out_of_memory(error);
}

static bool add_thinking(json_t *messages, const json_t *item, const char *path, struct api_error *error)
{
    char where[PATH_BYTES];
    const json_t *content = json_field(item, "content");
    snprintf(where, sizeof where, "%s.encrypted_content", path);
    if (json_field(item, "encrypted_content") != NULL)
        return api_error_set(error, API_ERROR_UNSUPPORTED_PARAMETER, where,
                             "%s is not supported: thinking that somebody else has encrypted cannot be read", where);
    snprintf(where, sizeof where, "%s.content", path);
    if (content != NULL && !json_is_array(content))
        return json_refuse(error, where, content, false, "an array of parts");
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i), *type = json_object_get(part, "type");
        snprintf(where, sizeof where, "%s.content[%zu]", path, i);
        if (!json_is_object(part) || !json_is_text(type, "reasoning_text"))
            return json_refuse(error, where, part, json_is_object(part), "a part of the type reasoning_text");
        const json_t *text = string_of(part, "text", where, "what was thought", error);
        if (text == NULL)
            return false;
        json_t *message = assistant_message(messages, false);
        if (message == NULL)
            return out_of_memory(error);
        if (!think(message, text, error))
            return false;
    }
    return true;
}

/* ---- items ---- */

const char *responses_item_reference(const json_t *item)
{
    const json_t *type = json_field(item, "type"), *id = json_field(item, "id");
    bool refers = json_is_text(type, "item_reference") || (type == NULL && json_field(item, "role") == NULL);
    return refers ? json_string_value(id) : NULL;
}

static bool add_item(struct reading *reading, const json_t *item, const char *path, struct api_error *error)
{
    char where[PATH_BYTES];
    if (!json_is_object(item))
        return json_refuse(error, path, item, false, "an object");
    const json_t *type = json_field(item, "type");
    if (type == NULL || json_is_text(type, "message"))
        return add_said(reading->messages, item, path, error);
    if (json_is_text(type, "function_call"))
        return add_call(reading, item, path, error);
    if (json_is_text(type, "function_call_output"))
        return add_output(reading, item, path, error);
    if (json_is_text(type, "reasoning"))
        return add_thinking(reading->messages, item, path, error);
    snprintf(where, sizeof where, "%s.%s", path, json_is_text(type, "item_reference") ? "id" : "type");
    if (json_is_text(type, "item_reference"))
        return missing(error, where, "the id of an item");
    if (!json_is_string(type))
        return json_refuse(error, where, type, false, kinds);
    return api_error_set(error, API_ERROR_UNSUPPORTED_PARAMETER, where,
                         "%s: items of the type %.60s are not supported; there may be %s", where,
                         json_string_value(type), kinds);
}

bool responses_items_add(json_t *messages, const json_t *items, const char *field, struct api_error *error)
{
    struct reading reading = {.messages = messages, .called = called_before(messages)};
    bool ok = reading.called != NULL || out_of_memory(error);
    for (size_t i = 0; ok && i < json_array_size(items); i++) {
        char path[PATH_BYTES];
        snprintf(path, sizeof path, "%s[%zu]", field, i);
        ok = add_item(&reading, json_array_get(items, i), path, error);
    }
    json_decref(reading.called);
    return ok;
}
