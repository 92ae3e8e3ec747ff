/* What a template can do is found out by rendering small chats with it. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/chat_format_internal.h"
#include "daemon/tokenizer.h"
#include "proto/text_library.h"

#define PROBE "npud probes the template"
#define TOOL "npud_probe"

bool chat_format_add_thinking(json_t *variables, const char *effort)
{
    bool thinks = strcmp(effort, "none") != 0 && strcmp(effort, "minimal") != 0;
    return json_object_set_new(variables, "reasoning_effort", json_string(effort)) == 0 &&
           json_object_set_new(variables, "enable_thinking", json_boolean(thinks)) == 0 &&
           json_object_set_new(variables, "thinking", json_boolean(thinks)) == 0;
}

/* messages and tools are taken; both may be NULL. The text, malloc'ed; NULL: the template refuses it. */
static char *try(const struct chat_format *format, json_t *messages, json_t *tools, const char *effort)
{
    json_t *variables = json_pack("{s:o, s:o, s:n, s:b}", "messages", messages, "tools",
                                  tools != NULL ? tools : json_null(), "documents", "add_generation_prompt", 1);
    char *text = NULL, *json = NULL;
    size_t length;
    struct text_error error;
    if (variables != NULL && json_object_update(variables, format->special_tokens) == 0 &&
        (effort == NULL || chat_format_add_thinking(variables, effort)))
        json = json_dumps(variables, JSON_COMPACT);
    json_decref(variables);
    if (json == NULL ||
        text_template_render(format->template, json, strlen(json), 0, &text, &length, &error) != TEXT_OK)
        text = NULL;
    free(json);
    return text;
}

static bool try_content(const struct chat_format *format, json_t *content)
{
    char *text = try(format, json_pack("[{s:s, s:o}]", "role", "user", "content", content), NULL, NULL);
    bool ok = text != NULL && strstr(text, PROBE) != NULL && strstr(text, "'type'") == NULL &&
              strstr(text, "\"type\"") == NULL;
    free(text);
    return ok;
}

static json_t *probe_tools(void)
{
    json_t *parameters = json_pack("{s:s, s:{s:{s:s, s:s}}, s:[s]}", "type", "object", "properties", "x", "type",
                                   "string", "description", "x", "required", "x");
    return json_pack("[{s:s, s:{s:s, s:s, s:o}}]", "type", "function", "function", "name", TOOL, "description", PROBE,
                     "parameters", parameters);
}

static bool try_tools(const struct chat_format *format)
{
    char *text = try(format, json_pack("[{s:s, s:s}]", "role", "user", "content", "x"), probe_tools(), NULL);
    bool ok = text != NULL && strstr(text, TOOL) != NULL;
    free(text);
    return ok;
}

/* A call and its result; content NULL: the call has none. malloc'ed; NULL: the template refuses it. */
static char *render_call(const struct chat_format *format, const char *content)
{
    json_t *call = json_pack("{s:s, s:s, s:{s:s, s:{s:s}}}", "id", "call00001", "type", "function", "function", "name",
                             TOOL, "arguments", "x", "y");
    json_t *asks = json_pack("{s:s, s:[o]}", "role", "assistant", "tool_calls", call);
    if (content != NULL)
        json_object_set_new(asks, "content", json_string(content));
    return try(format,
               json_pack("[{s:s, s:s}, o, {s:s, s:s, s:s}]", "role", "user", "content", "x", asks, "role", "tool",
                         "tool_call_id", "call00001", "content", "z"),
               probe_tools(), NULL);
}

static bool try_call(const struct chat_format *format, const char *content)
{
    char *text = render_call(format, content);
    free(text);
    return text != NULL;
}

static int count(const char *text, const char *word)
{
    int n = 0;
    for (; (text = strstr(text, word)) != NULL; text += strlen(word))
        n++;
    return n;
}

static bool has_call(const char *text, enum chat_tool_style style)
{
    static const char mark[] = "<tool_call>";
    if (style == CHAT_TOOL_STYLE_GEMMA)
        return strstr(text, "<|tool_call>call:" TOOL "{") != NULL;
    if (style == CHAT_TOOL_STYLE_LLAMA)
        return strstr(text, "{\"name\": \"" TOOL "\", \"parameters\":") != NULL;
    for (; (text = strstr(text, mark)) != NULL; text += strlen(mark)) {
        const char *call = text + strlen(mark), *name = strstr(call, "\"" TOOL "\""),
                   *end = strstr(call, "</tool_call>");
        if (call[strspn(call, " \n")] == '{' && name != NULL && (end == NULL || name < end))
            return true;
    }
    return false;
}

/* What the template writes for a call is a call in that style, as far as it writes any. */
static bool writes_calls_in(const struct chat_format *format, enum chat_tool_style style)
{
    char *with = render_call(format, "");
    char *without = try(format, json_pack("[{s:s, s:s}]", "role", "user", "content", "x"), probe_tools(), NULL);
    bool writes_none = with == NULL || without == NULL || count(with, TOOL) <= count(without, TOOL);
    bool in_style = writes_none || has_call(with, style);
    free(with);
    free(without);
    return in_style;
}

/* The template asks whether to think, in one of the ways that there are. */
static bool try_thinking(const struct chat_format *format)
{
    char *with = try(format, json_pack("[{s:s, s:s}]", "role", "user", "content", "x"), NULL, "high");
    char *without = try(format, json_pack("[{s:s, s:s}]", "role", "user", "content", "x"), NULL, "none");
    bool differ = with != NULL && without != NULL && strcmp(with, without) != 0;
    free(with);
    free(without);
    return differ;
}

static bool try_system(const struct chat_format *format)
{
    char *text =
        try(format,
            json_pack("[{s:s, s:s}, {s:s, s:s}]", "role", "system", "content", PROBE, "role", "user", "content", "x"),
            NULL, NULL);
    bool ok = text != NULL && strstr(text, PROBE) != NULL;
    free(text);
    return ok;
}

/* Those that the template writes itself, if npud can read them. */
static void choose_tool_style(struct chat_format *format, const char *source)
{
    format->tools = strstr(source, "<|tool_call>call:") != NULL ? CHAT_TOOL_STYLE_GEMMA
                    : strstr(source, "<|python_tag|>") != NULL || strstr(source, "Environment: ipython") != NULL
                        ? CHAT_TOOL_STYLE_LLAMA
                    : strstr(source, "<tool_call>") != NULL ? CHAT_TOOL_STYLE_HERMES
                                                            : CHAT_TOOL_STYLE_NONE;
    format->explains_tools =
        format->tools == CHAT_TOOL_STYLE_NONE || !try_tools(format) || !writes_calls_in(format, format->tools);
    if (format->explains_tools)
        format->tools = CHAT_TOOL_STYLE_JSON;
}

static void find_marks(struct chat_format *format)
{
    static const char *const marks[] = {"<think>",      "</think>",     "<|channel>",   "<channel|>", "<tool_call>",
                                        "</tool_call>", "<|tool_call>", "<tool_call|>", "<|\"|>",     "<|python_tag|>"};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        int32_t *tokens, n;
        struct npu_error ignored;
        if (tokenizer_encode(format->tokenizer, marks[i], strlen(marks[i]), false, true, &tokens, &n, &ignored) !=
            NPU_OK)
            continue;
        if (n == 1 && tokenizer_is_control(format->tokenizer, tokens[0]))
            format->marks[format->n_marks++] = tokens[0];
        free(tokens);
    }
}

void chat_format_explore(struct chat_format *format, const char *source)
{
    format->takes_strings = try_content(format, json_string(PROBE));
    format->takes_parts = try_content(format, json_pack("[{s:s, s:s}]", "type", "text", "text", PROBE));
    format->takes_system = try_system(format);
    choose_tool_style(format, source);
    find_marks(format);
    format->needs_content = !try_call(format, NULL) && try_call(format, "");
    format->knows_developer = strstr(source, "'developer'") != NULL || strstr(source, "\"developer\"") != NULL;
    format->knows_thinking = try_thinking(format);
    format->reasoning = strstr(source, "<|channel>") != NULL && strstr(source, "<channel|>") != NULL
                            ? CHAT_REASONING_CHANNEL
                        : strstr(source, "</think>") != NULL ? CHAT_REASONING_THINK
                                                             : CHAT_REASONING_NONE;
}
