#include "proto/chat_messages.h"

#include <stdio.h>

#include "proto/json_reader.h"

enum {
    PATH_BYTES = 96,
};

enum role {
    ROLE_SYSTEM,
    ROLE_DEVELOPER,
    ROLE_USER,
    ROLE_ASSISTANT,
    ROLE_TOOL,
    N_ROLES,
};

static const char *const role_names[N_ROLES] = {"system", "developer", "user", "assistant", "tool"};

static bool out_of_memory(struct api_error *error)
{
    return api_error_set(error, API_ERROR_OUT_OF_MEMORY, NULL, "not enough memory for the request");
}

static bool missing(struct api_error *error, const char *path, const char *what)
{
    return api_error_set(error, API_ERROR_MISSING_PARAMETER, path, "%s is required: %s", path, what);
}

/* value is taken. */
static bool set(json_t *object, const char *name, json_t *value, struct api_error *error)
{
    return json_object_set_new(object, name, value) == 0 || out_of_memory(error);
}

static bool is_one_of(const json_t *value, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (json_is_text(value, words[i]))
            return true;
    return false;
}

/* A string field, copied under another name if it is there. */
static bool copy_string(json_t *to, const char *new_name, const json_t *from, const char *name, const char *path,
                        struct api_error *error)
{
    json_t *value = json_field(from, name);
    if (value == NULL)
        return true;
    if (json_is_string(value))
        return set(to, new_name, json_incref(value), error);
    char where[PATH_BYTES];
    snprintf(where, sizeof where, "%s.%s", path, name);
    return json_refuse(error, where, value, false, "a string");
}

/* ---- content ---- */

static bool read_part(json_t *parts, const json_t *part, const char *path, struct api_error *error)
{
    static const char *const texts[] = {"text", "input_text", "output_text"}, *const refusals[] = {"refusal"};
    static const char *const others[] = {"image_url", "input_audio", "file", "input_image", "input_file", "video_url"};
    char where[PATH_BYTES];
    if (!json_is_object(part))
        return json_refuse(error, path, part, false, "an object with type and text");
    const json_t *type = json_field(part, "type");
    snprintf(where, sizeof where, "%s.type", path);
    if (type == NULL)
        return missing(error, where, "\"text\"");
    if (is_one_of(type, others, sizeof others / sizeof *others))
        return api_error_set(error, API_ERROR_UNSUPPORTED_PARAMETER, where,
                             "%s: parts of the type %s are not supported; only text is", where,
                             json_string_value(type));
    bool is_refusal = is_one_of(type, refusals, 1);
    if (!is_refusal && !is_one_of(type, texts, sizeof texts / sizeof *texts))
        return json_refuse(error, where, type, json_is_string(type), "\"text\"");
    const char *field = is_refusal ? "refusal" : "text";
    json_t *text = json_field(part, field);
    snprintf(where, sizeof where, "%s.%s", path, field);
    if (text == NULL)
        return missing(error, where, "the text of the part");
    if (!json_is_string(text))
        return json_refuse(error, where, text, false, "a string");
    json_t *read = json_pack("{s:s, s:O}", "type", "text", "text", text);
    return json_array_append_new(parts, read) == 0 || out_of_memory(error);
}

bool chat_content_read(json_t *message, json_t *content, const char *path, struct api_error *error)
{
    if (json_is_string(content))
        return set(message, "content", json_incref(content), error);
    if (!json_is_array(content) || json_array_size(content) == 0)
        return json_refuse(error, path, content, json_is_array(content), "a string or an array of at least one part");
    json_t *parts = json_array();
    if (!set(message, "content", parts, error))
        return false;
    for (size_t i = 0; i < json_array_size(content); i++) {
        char where[PATH_BYTES];
        snprintf(where, sizeof where, "%s[%zu]", path, i);
        if (!read_part(parts, json_array_get(content, i), where, error))
            return false;
    }
    return true;
}

/* ---- tool calls ---- */

/* Templates want the object; what is no object stays as it is written. */
static json_t *arguments_value(json_t *text)
{
    json_t *value = NULL;
    struct api_error ignored;
    if (json_read_body(&value, json_string_value(text), json_string_length(text), &ignored))
        return value;
    return json_string_length(text) == 0 ? json_object() : json_incref(text);
}

static bool add_call(json_t *message, json_t *id, json_t *name, json_t *arguments, struct api_error *error)
{
    json_t *calls = json_object_get(message, "tool_calls");
    if (calls == NULL) {
        calls = json_array();
        if (!set(message, "tool_calls", calls, error))
            return false;
    }
    json_t *call = json_pack("{s:s, s:{s:O, s:o}}", "type", "function", "function", "name", name, "arguments",
                             arguments_value(arguments));
    if (id == NULL || json_object_set(call, "id", id) == 0)
        return json_array_append_new(calls, call) == 0 || out_of_memory(error);
    json_decref(call);
    return out_of_memory(error);
}

bool chat_call_read(json_t *message, json_t *id, const json_t *function, const char *path, size_t *arguments_bytes,
                    struct api_error *error)
{
    char where[PATH_BYTES];
    json_t *name = json_field(function, "name"), *arguments = json_field(function, "arguments");
    snprintf(where, sizeof where, "%s.name", path);
    if (name == NULL)
        return missing(error, where, "the name of the function that was called");
    if (!json_is_string(name))
        return json_refuse(error, where, name, false, "a string");
    snprintf(where, sizeof where, "%s.arguments", path);
    if (arguments == NULL)
        return missing(error, where, "a string of JSON");
    if (!json_is_string(arguments))
        return json_refuse(error, where, arguments, false, "a string of JSON");
    *arguments_bytes += json_string_length(arguments);
    if (*arguments_bytes > CHAT_MAX_ARGUMENTS_BYTES)
        return api_error_set(error, API_ERROR_INVALID_VALUE, where,
                             "%s: the arguments of all tool calls may have at most %d bytes together", where,
                             CHAT_MAX_ARGUMENTS_BYTES);
    return add_call(message, id, name, arguments, error);
}

static bool read_call(json_t *message, const json_t *call, const char *path, size_t *arguments_bytes,
                      struct api_error *error)
{
    static const char *const types[] = {"function"};
    char where[PATH_BYTES];
    if (!json_is_object(call))
        return json_refuse(error, path, call, false, "an object with id, type and function");
    const json_t *type = json_field(call, "type"), *function = json_field(call, "function");
    json_t *id = json_field(call, "id");
    snprintf(where, sizeof where, "%s.id", path);
    if (id != NULL && !json_is_string(id))
        return json_refuse(error, where, id, false, "a string");
    snprintf(where, sizeof where, "%s.type", path);
    if (type != NULL && !is_one_of(type, types, 1))
        return json_refuse(error, where, type, json_is_string(type), "\"function\"");
    snprintf(where, sizeof where, "%s.function", path);
    if (function == NULL)
        return missing(error, where, "an object with name and arguments");
    if (!json_is_object(function))
        return json_refuse(error, where, function, false, "an object with name and arguments");
    return chat_call_read(message, id, function, where, arguments_bytes, error);
}

static bool read_calls(json_t *message, const json_t *given, const char *path, size_t *arguments_bytes,
                       struct api_error *error)
{
    const json_t *list = json_field(given, "tool_calls");
    char where[PATH_BYTES];
    if (list == NULL)
        return true;
    snprintf(where, sizeof where, "%s.tool_calls", path);
    if (!json_is_array(list))
        return json_refuse(error, where, list, false, "an array of tool calls");
    for (size_t i = 0; i < json_array_size(list); i++) {
        snprintf(where, sizeof where, "%s.tool_calls[%zu]", path, i);
        if (!read_call(message, json_array_get(list, i), where, arguments_bytes, error))
            return false;
    }
    return true;
}

/* ---- messages ---- */

static bool read_role(enum role *ret_role, json_t *message, const json_t *given, const char *path,
                      struct api_error *error)
{
    char where[PATH_BYTES];
    snprintf(where, sizeof where, "%s.role", path);
    json_t *role = json_field(given, "role");
    if (role == NULL)
        return missing(error, where, "system, developer, user, assistant or tool");
    for (int i = 0; i < N_ROLES; i++) {
        if (!is_one_of(role, &role_names[i], 1))
            continue;
        *ret_role = (enum role)i;
        return set(message, "role", json_incref(role), error);
    }
    return json_refuse(error, where, role, json_is_string(role), "system, developer, user, assistant or tool");
}

/* What an assistant's message has besides its text. */
static bool read_assistant(json_t *message, const json_t *given, const char *path, size_t *arguments_bytes,
                           struct api_error *error)
{
    const char *name = json_field(given, "reasoning_content") != NULL ? "reasoning_content" : "reasoning";
    return read_calls(message, given, path, arguments_bytes, error) &&
           copy_string(message, "reasoning_content", given, name, path, error);
}

static bool read_message(json_t *message, const json_t *given, const char *path, size_t *arguments_bytes,
                         struct api_error *error)
{
    char where[PATH_BYTES];
    enum role role = ROLE_USER;
    if (!json_is_object(given))
        return json_refuse(error, path, given, false, "an object with role and content");
    if (!read_role(&role, message, given, path, error))
        return false;
    json_t *content = json_field(given, "content");
    if (content == NULL && role == ROLE_ASSISTANT)
        content = json_field(given, "refusal");
    snprintf(where, sizeof where, "%s.content", path);
    if (content != NULL && !chat_content_read(message, content, where, error))
        return false;
    if (!copy_string(message, "name", given, "name", path, error) ||
        (role == ROLE_ASSISTANT && !read_assistant(message, given, path, arguments_bytes, error)))
        return false;
    bool has_more =
        json_object_get(message, "tool_calls") != NULL || json_object_get(message, "reasoning_content") != NULL;
    if (content == NULL && !has_more)
        return missing(error, where,
                       role == ROLE_ASSISTANT ? "a string or an array of parts, unless there are tool_calls"
                                              : "a string or an array of parts");
    if (role != ROLE_TOOL)
        return true;
    snprintf(where, sizeof where, "%s.tool_call_id", path);
    if (json_field(given, "tool_call_id") == NULL)
        return missing(error, where, "the id of the tool call that the message answers");
    return copy_string(message, "tool_call_id", given, "tool_call_id", path, error);
}

static bool read_messages(json_t *messages, const json_t *list, const char *field, struct api_error *error)
{
    size_t arguments_bytes = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        char path[PATH_BYTES];
        snprintf(path, sizeof path, "%s[%zu]", field, i);
        json_t *message = json_object();
        if (json_array_append_new(messages, message) != 0)
            return out_of_memory(error);
        if (!read_message(message, json_array_get(list, i), path, &arguments_bytes, error))
            return false;
    }
    return true;
}

bool chat_messages_read(json_t **ret_messages, const json_t *object, const char *field, struct api_error *error)
{
    const json_t *list = json_field(object, field);
    if (list == NULL)
        return missing(error, field, "an array of messages");
    if (!json_is_array(list) || json_array_size(list) == 0)
        return json_refuse(error, field, list, json_is_array(list), "an array of at least one message");
    json_t *messages = json_array();
    if (messages == NULL)
        return out_of_memory(error);
    if (!read_messages(messages, list, field, error)) {
        json_decref(messages);
        return false;
    }
    *ret_messages = messages;
    return true;
}
