#include "proto/tool_explain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Text from a stream that is closed here; NULL when memory is out. */
static json_t *close_text(FILE *stream, char **text, const size_t *length)
{
    json_t *value = fclose(stream) == 0 ? json_stringn(*text, *length) : NULL;
    free(*text);
    return value;
}

static void write_json(FILE *stream, const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    fputs(text != NULL ? text : "", stream);
    free(text);
}

/* A string, or the parts of a message, a line each. */
static void write_content(FILE *stream, const json_t *content)
{
    if (json_is_string(content))
        fwrite(json_string_value(content), 1, json_string_length(content), stream);
    for (size_t i = 0; json_is_array(content) && i < json_array_size(content); i++) {
        if (i > 0)
            fputc('\n', stream);
        write_content(stream, json_object_get(json_array_get(content, i), "text"));
    }
}

static void write_explanation(FILE *stream, const json_t *tools)
{
    fputs("You can call functions. These are their signatures, one a line:\n<tools>\n", stream);
    for (size_t i = 0; i < json_array_size(tools); i++) {
        write_json(stream, json_object_get(json_array_get(tools, i), "function"));
        fputc('\n', stream);
    }
    fputs("</tools>\nTo call one, write its name and its arguments as JSON, for each call like this:\n<tool_call>\n"
          "{\"name\": \"NAME\", \"arguments\": {\"ARGUMENT\": VALUE}}\n</tool_call>\n"
          "Then wait for the result. Do not call functions that you do not need.",
          stream);
}

/* The explanation, then what the message said. */
static json_t *explained_content(const json_t *tools, const json_t *content)
{
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    if (stream == NULL)
        return NULL;
    write_explanation(stream, tools);
    if (content != NULL) {
        fputs("\n\n", stream);
        write_content(stream, content);
    }
    return close_text(stream, &text, &length);
}

static json_t *calls_as_text(const json_t *message)
{
    const json_t *content = json_object_get(message, "content"), *calls = json_object_get(message, "tool_calls");
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    if (stream == NULL)
        return NULL;
    bool began = json_string_length(content) > 0 || json_array_size(content) > 0;
    write_content(stream, content);
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *function = json_object_get(json_array_get(calls, i), "function");
        fprintf(stream, "%s<tool_call>\n{\"name\": ", began ? "\n" : "");
        write_json(stream, json_object_get(function, "name"));
        fputs(", \"arguments\": ", stream);
        write_json(stream, json_object_get(function, "arguments"));
        fputs("}\n</tool_call>", stream);
        began = true;
    }
    return close_text(stream, &text, &length);
}

static bool has_role(const json_t *messages, size_t at, const char *role)
{
    return strcmp(json_string_value(json_object_get(json_array_get(messages, at), "role")), role) == 0;
}

/* Results of the messages from *at on, and what the user says behind them: templates may want roles to alternate. *at
 * is left behind the last of them. */
static json_t *results_as_text(const json_t *messages, size_t *at)
{
    char *text = NULL;
    size_t length = 0, first = *at, n = json_array_size(messages);
    FILE *stream = open_memstream(&text, &length);
    if (stream == NULL)
        return NULL;
    for (; *at < n && has_role(messages, *at, "tool"); (*at)++) {
        fprintf(stream, "%s<tool_response>\n", *at > first ? "\n" : "");
        write_content(stream, json_object_get(json_array_get(messages, *at), "content"));
        fputs("\n</tool_response>", stream);
    }
    if (*at < n && has_role(messages, *at, "user")) {
        fputc('\n', stream);
        write_content(stream, json_object_get(json_array_get(messages, (*at)++), "content"));
    }
    return close_text(stream, &text, &length);
}

static bool append_explained(json_t *out, const json_t *messages, const json_t *tools, bool takes_system,
                             size_t *ret_next)
{
    json_t *first = json_array_get(messages, 0);
    bool is_system = has_role(messages, 0, "system"), is_user = has_role(messages, 0, "user");
    *ret_next = 0;
    if (!is_system && (takes_system || !is_user))
        return json_array_append_new(out, json_pack("{s:s, s:o}", "role", takes_system ? "system" : "user", "content",
                                                    explained_content(tools, NULL))) == 0;
    json_t *copy = json_copy(first);
    *ret_next = 1;
    if (copy != NULL &&
        json_object_set_new(copy, "content", explained_content(tools, json_object_get(first, "content"))) == 0)
        return json_array_append_new(out, copy) == 0;
    json_decref(copy);
    return false;
}

static bool append_message(json_t *out, const json_t *messages, size_t *at)
{
    json_t *message = json_array_get(messages, *at);
    if (has_role(messages, *at, "tool"))
        return json_array_append_new(
                   out, json_pack("{s:s, s:o}", "role", "user", "content", results_as_text(messages, at))) == 0;
    (*at)++;
    if (json_object_get(message, "tool_calls") == NULL)
        return json_array_append(out, message) == 0;
    json_t *copy = json_copy(message);
    if (copy != NULL && json_object_set_new(copy, "content", calls_as_text(message)) == 0 &&
        json_object_del(copy, "tool_calls") == 0)
        return json_array_append_new(out, copy) == 0;
    json_decref(copy);
    return false;
}

json_t *tool_explain(const json_t *messages, const json_t *tools, bool takes_system)
{
    json_t *out = json_array();
    size_t at = 0;
    bool ok = out != NULL && (tools == NULL || append_explained(out, messages, tools, takes_system, &at));
    while (ok && at < json_array_size(messages))
        ok = append_message(out, messages, &at);
    if (ok)
        return out;
    json_decref(out);
    return NULL;
}
