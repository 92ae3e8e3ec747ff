#include "daemon/chat_constraint.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "daemon/chat_format.h"
#include "daemon/chat_prompt.h"
#include "proto/chat_parser.h"
#include "proto/grammar_fields.h"
#include "proto/tool_fields.h"

/* How calls are written. */
struct writing {
    const char *before_name, *behind_name, *end; /* around the arguments, which are JSON */
    const char *separator; /* of several calls; NULL: the template writes one */
    const char *free_key, *free; /* how text is told from calls: "mark" or "not" of text_constraint_create */
};

static const struct writing hermes = {
    "<tool_call>\n{\"name\": \"", "\", \"arguments\": ", "}\n</tool_call>", "\n", "mark", "<tool_call>"};
static const struct writing llama = {"{\"name\": \"", "\", \"parameters\": ", "}", NULL, "not", "\\s*[\\{\\[].*"};
/* Gemma 4 writes keys and strings in its own way, but reads JSON as well. */
static const struct writing gemma = {"<|tool_call>call:", "", "<tool_call|>", "", "mark", "<|tool_call>"};

static const struct writing *writing_of(enum chat_tool_style style)
{
    switch (style) {
    case CHAT_TOOL_STYLE_LLAMA:
        return &llama;
    case CHAT_TOOL_STYLE_GEMMA:
        return &gemma;
    default:
        return &hermes;
    }
}

/* ---- parts of the description, as text_constraint_create takes it; NULL: memory is out ---- */

/* Of arguments: an object, also where the schema does not say so. Where a call is not demanded, only strict tools
 * promise to keep to theirs. */
static json_t *arguments_schema(const json_t *tool, bool demanded)
{
    json_t *parameters = json_object_get(json_object_get(tool, "function"), "parameters");
    if (!demanded && !json_is_true(json_object_get(tool, "strict")))
        return json_pack("{s:s}", "type", "object");
    if (json_object_get(parameters, "type") != NULL)
        return json_incref(parameters);
    json_t *schema = json_copy(parameters);
    if (schema != NULL && json_object_set_new(schema, "type", json_string("object")) == 0)
        return schema;
    json_decref(schema);
    return NULL;
}

static json_t *calls_value(const struct writing *writing, const struct tool_fields *tools)
{
    json_t *calls = json_array();
    for (size_t i = 0; calls != NULL && i < json_array_size(tools->tools); i++) {
        const json_t *tool = json_array_get(tools->tools, i);
        const char *name = json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
        if (tools->choice == TOOL_CHOICE_NAMED && strcmp(name, tools->name) != 0)
            continue;
        json_t *begin = json_sprintf("%s%s%s", writing->before_name, name, writing->behind_name);
        json_t *call = json_pack("{s:s, s:o, s:o, s:s}", "name", name, "begin", begin, "schema",
                                 arguments_schema(tool, tool_fields_demand_call(tools)), "end", writing->end);
        if (json_array_append_new(calls, call) == 0)
            continue;
        json_decref(calls);
        return NULL;
    }
    return calls;
}

static json_t *content_value(const struct grammar_fields *grammar)
{
    return grammar->kind == TEXT_GRAMMAR_JSON_OBJECT
               ? json_pack("{s:s}", "type", "object")
               : json_loadb(grammar->text, grammar->length, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
}

static json_t *thinking_value(const struct chat_format *format, const struct chat_prompt *prompt)
{
    const char *open, *close;
    chat_reasoning_marks(chat_format_reasoning(format), &open, &close);
    bool is_open = chat_format_begins_in_reasoning(format, prompt->text, prompt->length);
    return json_pack("{s:s?, s:s}", "open", is_open ? NULL : open, "close", close);
}

static bool set(json_t *object, const char *name, json_t *value)
{
    return json_object_set_new(object, name, value) == 0;
}

static json_t *describe(const struct grammar_fields *grammar, const struct chat_format *format,
                        const struct chat_prompt *prompt, const struct tool_fields *tools)
{
    const struct writing *writing = writing_of(chat_format_tools(format));
    bool demanded = tool_fields_demand_call(tools), has_form = grammar->is_given && !demanded;
    bool is_single = tools->choice == TOOL_CHOICE_NAMED || !tools->parallel || writing->separator == NULL;
    json_t *turn = json_object();
    bool ok = turn != NULL;
    if (has_form)
        ok = ok && set(turn, "content", content_value(grammar));
    if (tool_fields_offered(tools) != NULL) {
        ok = ok && set(turn, "calls", calls_value(writing, tools)) &&
             (is_single || set(turn, "separator", json_string(writing->separator)));
        if (!demanded && !has_form)
            ok = ok && set(turn, "free", json_pack("{s:s}", writing->free_key, writing->free));
    }
    if (chat_format_may_reason(format, prompt->text, prompt->length))
        ok = ok && set(turn, "thinking", thinking_value(format, prompt));
    if (ok)
        return turn;
    json_decref(turn);
    return NULL;
}

/* ---- all ---- */

static bool has_strict_tool(const struct tool_fields *tools)
{
    const json_t *offered = tool_fields_offered(tools);
    for (size_t i = 0; i < json_array_size(offered); i++)
        if (json_is_true(json_object_get(json_array_get(offered, i), "strict")))
            return true;
    return false;
}

bool chat_constraint_is_raw(const struct grammar_fields *grammar)
{
    return grammar->is_given && grammar->kind != TEXT_GRAMMAR_TURN;
}

bool chat_constraint_set(struct grammar_fields *grammar, const struct chat_format *format,
                         const struct chat_prompt *prompt, const struct tool_fields *tools, const char *tools_path,
                         struct api_error *error)
{
    bool demanded = tool_fields_demand_call(tools), is_own = grammar->is_given && grammar->is_own;
    if (is_own && demanded)
        return api_error_set(error, API_ERROR_INVALID_VALUE, "grammar",
                             "grammar may not be given where a tool must be called");
    if (is_own || (!grammar->is_given && !demanded && !has_strict_tool(tools)))
        return true;
    json_t *turn = describe(grammar, format, prompt, tools);
    char path[sizeof grammar->path];
    snprintf(path, sizeof path, "%s", grammar->is_given && !demanded ? grammar->path : tools_path);
    grammar_fields_clear(grammar);
    bool ok = grammar_fields_set_turn(grammar, turn, path, error);
    json_decref(turn);
    return ok;
}
