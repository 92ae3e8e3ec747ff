#include "daemon/chat_format_internal.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/tokenizer.h"
#include "npu/gguf.h"
#include "proto/template_fields.h"
#include "proto/text_library.h"
#include "proto/tool_explain.h"

enum {
    MAX_TEMPLATE_BYTES = 4 << 20,
};

static enum npu_status out_of_memory(struct npu_error *error)
{
    return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the chat template");
}

/* ---- special tokens ---- */

static bool add_special_token(struct chat_format *format, const char *name, int32_t token)
{
    size_t length = 0;
    const char *piece = token >= 0 ? tokenizer_piece(format->tokenizer, token, &length) : "";
    json_t *text = length > 0 ? json_stringn(piece, length) : NULL;
    return text == NULL || json_object_set_new(format->special_tokens, name, text) == 0;
}

static int32_t token_of(const struct gguf_file *file, const char *key)
{
    int64_t token;
    return gguf_get_int(file, key, &token) && token >= 0 && token <= INT32_MAX ? (int32_t)token : -1;
}

/* What the tokenizer puts before an empty text is what it puts before every text. */
static enum npu_status find_first_token(struct chat_format *format, struct npu_error *error)
{
    int32_t *tokens, n;
    enum npu_status status = tokenizer_encode(format->tokenizer, "", 0, true, true, &tokens, &n, error);
    if (status != NPU_OK)
        return status;
    format->bos = n > 0 && tokens[0] == tokenizer_bos(format->tokenizer) ? tokens[0] : -1;
    free(tokens);
    return NPU_OK;
}

static enum npu_status read_special_tokens(struct chat_format *format, const struct gguf_file *file,
                                           struct npu_error *error)
{
    format->special_tokens = json_object();
    if (format->special_tokens == NULL || !add_special_token(format, "bos_token", tokenizer_bos(format->tokenizer)) ||
        !add_special_token(format, "eos_token", tokenizer_eos(format->tokenizer)) ||
        !add_special_token(format, "unk_token", token_of(file, "tokenizer.ggml.unknown_token_id")) ||
        !add_special_token(format, "pad_token", token_of(file, "tokenizer.ggml.padding_token_id")))
        return out_of_memory(error);
    return find_first_token(format, error);
}

/* ---- creation ---- */

static enum npu_status read_file(char **ret_source, size_t *ret_length, const char *path, struct npu_error *error)
{
    FILE *stream = fopen(path, "rbe");
    if (stream == NULL)
        return npu_error_set(error, NPU_ERROR_INPUT, "%s: %s", path, strerror(errno));
    char *source = malloc(MAX_TEMPLATE_BYTES + 1);
    size_t length = source != NULL ? fread(source, 1, MAX_TEMPLATE_BYTES, stream) : 0;
    bool failed = ferror(stream), more = source != NULL && !failed && fgetc(stream) != EOF;
    fclose(stream);
    if (source != NULL && !failed && !more && length > 0) {
        source[length] = '\0';
        *ret_source = source;
        *ret_length = length;
        return NPU_OK;
    }
    free(source);
    if (source == NULL)
        return out_of_memory(error);
    return npu_error_set(error, NPU_ERROR_INPUT, "%s: %s", path,
                         failed ? "cannot be read"
                         : more ? "longer than 4 MiB, which no chat template is"
                                : "empty");
}

static enum npu_status copy_from_model(char **ret_source, size_t *ret_length, const struct gguf_file *file,
                                       struct npu_error *error)
{
    const char *text;
    *ret_source = NULL;
    if (!gguf_get_string(file, "tokenizer.chat_template", &text, ret_length))
        return NPU_OK;
    *ret_source = malloc(*ret_length + 1);
    if (*ret_source == NULL)
        return out_of_memory(error);
    memcpy(*ret_source, text, *ret_length);
    (*ret_source)[*ret_length] = '\0';
    return NPU_OK;
}

static enum npu_status compile(struct chat_format *format, const char *source, size_t length, const char *template_path,
                               struct npu_error *error)
{
    struct text_error problem;
    if (source == NULL) {
        snprintf(format->problem, sizeof format->problem,
                 "the model has no chat template: start npud with --chat-template FILE, or use /v1/completions");
        return NPU_OK;
    }
    switch (text_template_create(&format->template, source, length, &problem)) {
    case TEXT_OK:
        chat_format_explore(format, source);
        return NPU_OK;
    case TEXT_MEMORY:
        return out_of_memory(error);
    default:
        if (template_path != NULL)
            return npu_error_set(error, NPU_ERROR_INPUT, "%s: %s", template_path, problem.message);
        snprintf(format->problem, sizeof format->problem,
                 "the model's chat template does not work (%s): start npud with --chat-template FILE, or use "
                 "/v1/completions",
                 problem.message);
        return NPU_OK;
    }
}

enum npu_status chat_format_create(struct chat_format **ret_format, const struct gguf_file *file,
                                   const char *template_path, const struct tokenizer *tokenizer,
                                   struct npu_error *error)
{
    struct chat_format *format = calloc(1, sizeof *format);
    if (format == NULL)
        return out_of_memory(error);
    format->tokenizer = tokenizer;
    char *source = NULL;
    size_t length = 0;
    enum npu_status status = template_path != NULL ? read_file(&source, &length, template_path, error)
                                                   : copy_from_model(&source, &length, file, error);
    if (status == NPU_OK)
        status = read_special_tokens(format, file, error);
    if (status == NPU_OK)
        status = compile(format, source, length, template_path, error);
    free(source);
    if (status != NPU_OK) {
        chat_format_destroy(format);
        return status;
    }
    *ret_format = format;
    return NPU_OK;
}

void chat_format_destroy(struct chat_format *format)
{
    if (format == NULL)
        return;
    text_template_destroy(format->template);
    json_decref(format->special_tokens);
    free(format);
}

const char *chat_format_problem(const struct chat_format *format)
{
    return format->template == NULL ? format->problem : NULL;
}

enum chat_reasoning chat_format_reasoning(const struct chat_format *format)
{
    return format->reasoning;
}

enum chat_tool_style chat_format_tools(const struct chat_format *format)
{
    return format->tools;
}

const int32_t *chat_format_marks(const struct chat_format *format, int *ret_n)
{
    *ret_n = format->n_marks;
    return format->marks;
}

/* But for space behind it. */
static bool ends_with(const char *text, size_t length, const char *mark)
{
    size_t mark_length = strlen(mark);
    while (length > 0 && strchr(" \n\r\t", text[length - 1]) != NULL)
        length--;
    return mark_length > 0 && length >= mark_length && memcmp(text + length - mark_length, mark, mark_length) == 0;
}

bool chat_format_begins_in_reasoning(const struct chat_format *format, const char *text, size_t length)
{
    const char *open, *close;
    chat_reasoning_marks(format->reasoning, &open, &close);
    return ends_with(text, length, open);
}

bool chat_format_may_reason(const struct chat_format *format, const char *text, size_t length)
{
    const char *open, *close;
    chat_reasoning_marks(format->reasoning, &open, &close);
    return format->reasoning != CHAT_REASONING_NONE && !ends_with(text, length, close);
}

/* ---- rendering ---- */

/* The parts' texts, a line each. */
static json_t *join_parts(const json_t *parts)
{
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    if (stream == NULL)
        return NULL;
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_object_get(json_array_get(parts, i), "text");
        if (i > 0)
            fputc('\n', stream);
        fwrite(json_string_value(part), 1, json_string_length(part), stream);
    }
    json_t *joined = fclose(stream) == 0 ? json_stringn(text, length) : NULL;
    free(text);
    return joined;
}

/* Content in the form that the template takes. */
static json_t *adapt_content(const struct chat_format *format, json_t *content)
{
    if (json_is_array(content) && !format->takes_parts)
        return join_parts(content);
    if (json_is_string(content) && !format->takes_strings && format->takes_parts)
        return json_pack("[{s:s, s:O}]", "type", "text", "text", content);
    return json_incref(content);
}

/* A copy of a message as the template wants it: a developer is a system where the template knows no other, and thinking
 * goes by both of its names. */
static json_t *adapt_message(const struct chat_format *format, json_t *given)
{
    json_t *message = json_object(), *thinking = json_object_get(given, "reasoning_content"), *value;
    const char *name;
    bool ok = message != NULL;
    if (ok && thinking != NULL)
        ok = json_object_set(message, "thinking", thinking) == 0;
    json_object_foreach(given, name, value)
    {
        bool is_developer = strcmp(name, "role") == 0 && strcmp(json_string_value(value), "developer") == 0;
        json_t *adapted = strcmp(name, "content") == 0               ? adapt_content(format, value)
                          : is_developer && !format->knows_developer ? json_string("system")
                                                                     : json_incref(value);
        ok = ok && json_object_set_new(message, name, adapted) == 0;
    }
    bool lacks_content = format->needs_content || json_object_get(message, "tool_calls") == NULL;
    if (ok && lacks_content && json_object_get(message, "content") == NULL)
        ok = json_object_set_new(message, "content", json_string("")) == 0;
    if (ok)
        return message;
    json_decref(message);
    return NULL;
}

/* What a template may write out. */
static json_t *adapt_tools(const json_t *tools)
{
    json_t *adapted = json_array();
    for (size_t i = 0; i < json_array_size(tools); i++) {
        json_t *function = json_object_get(json_array_get(tools, i), "function");
        if (json_array_append_new(adapted, json_pack("{s:s, s:O}", "type", "function", "function", function)) == 0)
            continue;
        json_decref(adapted);
        return NULL;
    }
    return adapted;
}

static json_t *create_variables(const struct chat_format *format, const struct chat_content *content)
{
    json_t *messages = json_array(), *tools = content->tools;
    bool ok = messages != NULL;
    for (size_t i = 0; ok && i < json_array_size(content->messages); i++) {
        json_t *message = adapt_message(format, json_array_get(content->messages, i));
        ok = json_array_append_new(messages, message) == 0;
    }
    if (ok && format->explains_tools) {
        json_t *explained = tool_explain(messages, tools, format->takes_system);
        json_decref(messages);
        messages = explained;
        tools = NULL;
    }
    const struct template_fields *fields = content->fields;
    json_t *variables =
        json_pack("{s:o, s:o, s:n, s:b}", "messages", messages, "tools",
                  tools != NULL ? adapt_tools(tools) : json_null(), "documents", "add_generation_prompt", 1);
    ok = ok && variables != NULL && json_object_update(variables, format->special_tokens) == 0 &&
         (fields->reasoning_effort == NULL || chat_format_add_thinking(variables, fields->reasoning_effort)) &&
         (fields->variables == NULL || json_object_update(variables, fields->variables) == 0);
    if (ok)
        return variables;
    json_decref(variables);
    return NULL;
}

static bool refuse(const struct text_error *problem, const char *field, struct api_error *error)
{
    switch (problem->status) {
    case TEXT_REFUSED:
        return api_error_set(error, API_ERROR_INVALID_VALUE, field,
                             "the model's chat template refuses the messages: %s", problem->message);
    case TEXT_LIMIT:
    case TEXT_INVALID:
        return api_error_set(error, API_ERROR_INVALID_VALUE, field,
                             "the model's chat template fails on the messages: %s", problem->message);
    case TEXT_MEMORY:
        return api_error_set(error, API_ERROR_OUT_OF_MEMORY, NULL, "not enough memory for the request");
    default:
        return api_error_set(error, API_ERROR_INTERNAL, NULL, "%s", problem->message);
    }
}

bool chat_format_render(const struct chat_format *format, const struct chat_content *content, char **ret_text,
                        size_t *ret_length, struct api_error *error)
{
    const char *effort = content->fields->reasoning_effort;
    if (format->template == NULL)
        return api_error_set(error, API_ERROR_UNSUPPORTED_PARAMETER, content->messages_field, "%s", format->problem);
    if (effort != NULL && strcmp(effort, "none") != 0 && !format->knows_thinking)
        return api_error_set(error, API_ERROR_UNSUPPORTED_PARAMETER, content->effort_field,
                             "%s may only be none: the model's chat template knows no thinking", content->effort_field);
    json_t *variables = create_variables(format, content);
    char *json = variables != NULL ? json_dumps(variables, JSON_COMPACT) : NULL;
    json_decref(variables);
    if (json == NULL)
        return api_error_set(error, API_ERROR_OUT_OF_MEMORY, NULL, "not enough memory for the request");
    struct text_error problem;
    enum text_status status =
        text_template_render(format->template, json, strlen(json), content->now_s, ret_text, ret_length, &problem);
    free(json);
    return status == TEXT_OK || refuse(&problem, content->messages_field, error);
}

enum npu_status chat_format_tokenize(const struct chat_format *format, const char *text, size_t length,
                                     int32_t **ret_tokens, int32_t *ret_n, struct npu_error *error)
{
    int32_t *tokens, n;
    enum npu_status status = tokenizer_encode(format->tokenizer, text, length, false, true, &tokens, &n, error);
    if (status != NPU_OK)
        return status;
    if (format->bos >= 0 && (n == 0 || tokens[0] != format->bos)) {
        int32_t *grown = realloc(tokens, ((size_t)n + 1) * sizeof *tokens);
        if (grown == NULL) {
            free(tokens);
            return npu_error_set(error, NPU_ERROR_MEMORY, "out of memory for tokens");
        }
        tokens = grown;
        memmove(tokens + 1, tokens, (size_t)n * sizeof *tokens);
        tokens[0] = format->bos;
        n++;
    }
    *ret_tokens = tokens;
    *ret_n = n;
    return NPU_OK;
}
