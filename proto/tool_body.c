#include "proto/tool_body_internal.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_HEAD_BYTES = 64 * 1024, /* of a body whose name has not come yet */
};

void tool_body_tell(struct tool_body_output *output, const char *text, size_t length)
{
    size_t needed = output->length + length;
    if (output->ok && needed > output->capacity) {
        size_t capacity = 2 * needed + 64;
        char *grown = realloc(output->text, capacity);
        output->ok = grown != NULL;
        if (grown != NULL) {
            output->text = grown;
            output->capacity = capacity;
        }
    }
    if (!output->ok || length == 0)
        return;
    memcpy(output->text + output->length, text, length);
    output->length = needed;
}

void tool_body_tell_name(struct tool_body_output *output, const char *name, size_t length)
{
    output->ok = output->ok && output->consumer(output->context, TOOL_BODY_NAME, name, length);
}

void tool_body_init(struct tool_body *body, enum tool_body_syntax syntax, bool needs_arguments)
{
    memset(body, 0, sizeof *body);
    body->syntax = syntax;
    body->needs_arguments = needs_arguments;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static size_t skip_spaces(const char *bytes, size_t length, size_t at)
{
    while (at < length && is_space(bytes[at]))
        at++;
    return at;
}

/* ---- JSON: finding ends without building values ---- */

/* Behind the value that starts at at; 0: it does not end here. What is no JSON ends somewhere, too. */
static size_t value_end(const char *bytes, size_t length, size_t at)
{
    int depth = 0;
    bool in_string = false;
    for (; at < length; at++) {
        char c = bytes[at];
        if (in_string) {
            if (c == '\\')
                at++;
            else if (c == '"')
                in_string = false;
            if (!in_string && depth == 0)
                return at + 1;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            if (depth == 0)
                return at; /* of a number or word: what encloses it */
            if (--depth == 0)
                return at + 1;
        } else if (c == ',' && depth == 0) {
            return at;
        }
    }
    return 0;
}

static json_t *load(const char *bytes, size_t length)
{
    return json_loadb(bytes, length, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
}

/* The JSON string in bytes[start, end) is word. */
static bool is_word(const char *bytes, size_t start, size_t end, const char *word)
{
    size_t length = strlen(word);
    return end - start == length + 2 && memcmp(bytes + start + 1, word, length) == 0;
}

/* What a call may have; so other objects are told from calls before they end. */
static bool is_member(const char *bytes, size_t start, size_t end)
{
    static const char *const names[] = {"name", "arguments", "parameters", "type", "id"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is_word(bytes, start, end, names[i]))
            return true;
    return false;
}

static void tell_name(struct tool_body_output *output, const json_t *name)
{
    tool_body_tell_name(output, json_string_value(name), json_string_length(name));
}

/* A body that is all there but has its members in another order. */
static enum tool_body_result read_whole(const struct tool_body *body, const char *bytes, size_t length,
                                        struct tool_body_output *output)
{
    json_t *root = load(bytes, length);
    const json_t *name = json_object_get(root, "name");
    json_t *arguments = json_object_get(root, "arguments");
    if (arguments == NULL)
        arguments = json_object_get(root, "parameters");
    enum tool_body_result result = TOOL_BODY_WRONG;
    if (json_is_string(name) && json_string_length(name) > 0 && (arguments != NULL || !body->needs_arguments)) {
        char *text = arguments != NULL && !json_is_string(arguments) ? json_dumps(arguments, JSON_ENCODE_ANY) : NULL;
        tell_name(output, name);
        if (json_is_string(arguments))
            tool_body_tell(output, json_string_value(arguments), json_string_length(arguments));
        else
            tool_body_tell(output, text != NULL ? text : "{}", text != NULL ? strlen(text) : 2);
        free(text);
        result = TOOL_BODY_DONE;
    }
    json_decref(root);
    return result;
}

/* Members up to the start of the arguments. Nothing is used before the name and the arguments' start are there, or the
 * whole object is. */
static enum tool_body_result read_json_head(struct tool_body *body, const char *bytes, size_t length,
                                            struct tool_body_output *output, size_t *ret_used)
{
    size_t start = skip_spaces(bytes, length, 0);
    if (start == length)
        return TOOL_BODY_MORE;
    if (bytes[start] != '{')
        return TOOL_BODY_WRONG;
    json_t *name = NULL;
    enum tool_body_result result = TOOL_BODY_MORE;
    for (size_t at = start + 1;;) {
        at = skip_spaces(bytes, length, at);
        if (at < length && bytes[at] == ',')
            at = skip_spaces(bytes, length, at + 1);
        if (at == length)
            break;
        if (bytes[at] == '}') {
            result = read_whole(body, bytes + start, at + 1 - start, output);
            *ret_used = result == TOOL_BODY_DONE ? at + 1 : 0;
            break;
        }
        size_t key = at, key_end = bytes[at] == '"' ? value_end(bytes, length, at) : 0;
        if (bytes[at] != '"') {
            result = TOOL_BODY_WRONG;
            break;
        }
        if (key_end > 0 && body->needs_arguments && !is_member(bytes, key, key_end)) {
            result = TOOL_BODY_WRONG;
            break;
        }
        at = key_end > 0 ? skip_spaces(bytes, length, key_end) : length;
        if (at < length && bytes[at] != ':') {
            result = TOOL_BODY_WRONG;
            break;
        }
        at = at < length ? skip_spaces(bytes, length, at + 1) : length;
        if (at == length)
            break;
        bool is_arguments = is_word(bytes, key, key_end, "arguments") || is_word(bytes, key, key_end, "parameters");
        if (is_arguments && name != NULL && bytes[at] == '{') {
            tell_name(output, name);
            body->state = TOOL_BODY_IN_ARGUMENTS;
            *ret_used = at;
            break;
        }
        size_t end = value_end(bytes, length, at);
        if (end == 0)
            break;
        if (end == at || (end == length && bytes[at] != '"' && bytes[at] != '{' && bytes[at] != '[')) {
            result = end == at ? TOOL_BODY_WRONG : TOOL_BODY_MORE;
            break;
        }
        if (is_word(bytes, key, key_end, "name")) {
            json_decref(name);
            name = load(bytes + at, end - at);
            if (!json_is_string(name) || json_string_length(name) == 0) {
                result = TOOL_BODY_WRONG;
                break;
            }
        }
        at = end;
    }
    json_decref(name);
    if (result == TOOL_BODY_MORE && body->state == TOOL_BODY_HEAD && length > MAX_HEAD_BYTES)
        result = TOOL_BODY_WRONG;
    return result;
}

/* The arguments' object, as it is written. */
static size_t read_json_arguments(struct tool_body *body, const char *bytes, size_t length,
                                  struct tool_body_output *output)
{
    size_t at = 0;
    while (at < length && body->state == TOOL_BODY_IN_ARGUMENTS) {
        char c = bytes[at++];
        if (body->escaped)
            body->escaped = false;
        else if (body->in_string && c == '\\')
            body->escaped = true;
        else if (c == '"')
            body->in_string = !body->in_string;
        else if (!body->in_string && (c == '{' || c == '['))
            body->depth++;
        else if (!body->in_string && (c == '}' || c == ']') && --body->depth == 0)
            body->state = TOOL_BODY_REST;
    }
    tool_body_tell(output, bytes, at);
    return at;
}

/* Up to the end of the object. */
static size_t read_json_rest(struct tool_body *body, const char *bytes, size_t length, enum tool_body_result *result)
{
    size_t at = 0;
    while (at < length) {
        char c = bytes[at++];
        if (body->escaped)
            body->escaped = false;
        else if (body->in_string && c == '\\')
            body->escaped = true;
        else if (c == '"')
            body->in_string = !body->in_string;
        else if (!body->in_string && (c == '{' || c == '['))
            body->depth++;
        else if (!body->in_string && (c == '}' || c == ']') && body->depth-- == 0) {
            *result = TOOL_BODY_DONE;
            return at;
        }
    }
    return at;
}

static size_t push_json(struct tool_body *body, const char *bytes, size_t length, struct tool_body_output *output,
                        enum tool_body_result *result)
{
    size_t used = 0;
    if (body->state == TOOL_BODY_HEAD)
        *result = read_json_head(body, bytes, length, output, &used);
    if (body->state == TOOL_BODY_IN_ARGUMENTS)
        used += read_json_arguments(body, bytes + used, length - used, output);
    if (body->state == TOOL_BODY_REST)
        used += read_json_rest(body, bytes + used, length - used, result);
    return used;
}

bool tool_body_push(struct tool_body *body, const char *bytes, size_t length, tool_body_consumer *consumer,
                    void *context, size_t *ret_used, enum tool_body_result *ret_result)
{
    struct tool_body_output output = {.consumer = consumer, .context = context, .ok = true};
    *ret_result = TOOL_BODY_MORE;
    *ret_used = body->syntax == TOOL_BODY_JSON ? push_json(body, bytes, length, &output, ret_result)
                                               : tool_body_push_gemma(body, bytes, length, &output, ret_result);
    if (output.ok && output.length > 0)
        output.ok = consumer(context, TOOL_BODY_ARGUMENTS, output.text, output.length);
    free(output.text);
    return output.ok;
}
