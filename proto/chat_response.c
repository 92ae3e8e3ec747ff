#include "proto/chat_response.h"

#include <jansson.h>
#include <string.h>

#include "proto/response_json.h"

static json_t *bytes_value(const char *text, size_t length)
{
    json_t *bytes = json_array();
    for (size_t i = 0; i < length; i++)
        json_array_append_new(bytes, json_integer((unsigned char)text[i]));
    return bytes;
}

static json_t *token_value(const char *text, size_t length, double logprob)
{
    return json_pack("{s:o, s:o, s:o}", "token", response_token_text(text, length), "logprob",
                     response_logprob_value(logprob), "bytes", bytes_value(text, length));
}

static json_t *logprobs_value(bool has_logprobs, const struct response_token *tokens, int n_tokens)
{
    if (!has_logprobs)
        return json_null();
    json_t *list = json_array();
    for (int i = 0; i < n_tokens; i++) {
        const struct response_token *token = &tokens[i];
        json_t *value = token_value(token->text, token->length, token->logprob), *top = json_array();
        for (int j = 0; j < token->n_top; j++)
            json_array_append_new(top, token_value(token->top[j].text, token->top[j].length, token->top[j].logprob));
        json_object_set_new(value, "top_logprobs", top);
        json_array_append_new(list, value);
    }
    return json_pack("{s:o, s:n}", "content", list, "refusal");
}

static json_t *reason_value(const char *finish_reason)
{
    return finish_reason != NULL ? json_string(finish_reason) : json_null();
}

/* Text that is UTF-8 but for what a cut may have left of a character. */
static json_t *text_value(const char *text, size_t length)
{
    return text != NULL ? response_token_text(text, length) : json_null();
}

static json_t *calls_value(const struct chat_response_call *calls, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", calls[i].id, "type", "function",
                                              "function", "name", calls[i].name, "arguments",
                                              text_value(calls[i].arguments, calls[i].arguments_length)));
    return list;
}

static json_t *choice_value(const struct chat_response_choice *choice)
{
    json_t *message = json_pack("{s:s, s:o, s:n, s:[]}", "role", "assistant", "content",
                                text_value(choice->content, choice->content_length), "refusal", "annotations");
    bool ok =
        choice->reasoning == NULL ||
        json_object_set_new(message, "reasoning_content", text_value(choice->reasoning, choice->reasoning_length)) == 0;
    if (ok && choice->n_calls > 0)
        ok = json_object_set_new(message, "tool_calls", calls_value(choice->calls, choice->n_calls)) == 0;
    json_t *value = json_pack("{s:i, s:o, s:o, s:o}", "index", choice->index, "message", message, "logprobs",
                              logprobs_value(choice->has_logprobs, choice->tokens, choice->n_tokens), "finish_reason",
                              reason_value(choice->finish_reason));
    if (ok)
        return value;
    json_decref(value);
    return NULL;
}

/* choices is taken. */
static json_t *root_value(const struct response_head *head, const char *object, json_t *choices)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:s, s:o}", "id", head->id, "object", object, "created",
                     (json_int_t)head->created, "model", head->model, "service_tier", "default", "system_fingerprint",
                     head->fingerprint, "choices", choices);
}

char *chat_response_json(const struct response_head *head, const struct chat_response_choice *choices, int n_choices,
                         const struct response_usage *usage, const struct response_timings *timings, size_t *ret_length)
{
    json_t *list = json_array();
    for (int i = 0; i < n_choices; i++) {
        if (json_array_append_new(list, choice_value(&choices[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    json_t *root = root_value(head, "chat.completion", list);
    if (root == NULL || json_object_set_new(root, "usage", response_usage_value(usage)) != 0 ||
        json_object_set_new(root, "timings", response_timings_value(timings)) != 0) {
        json_decref(root);
        return NULL;
    }
    return response_dump(root, ret_length);
}

/* ---- streams ---- */

static json_t *call_delta_value(const struct chat_delta *delta)
{
    json_t *function = json_pack("{s:o}", "arguments", text_value(delta->arguments, delta->arguments_length));
    if (delta->call_id == NULL)
        return json_pack("{s:i, s:o}", "index", delta->call, "function", function);
    if (json_object_set_new(function, "name", json_string(delta->call_name)) != 0) {
        json_decref(function);
        return NULL;
    }
    return json_pack("{s:i, s:s, s:s, s:o}", "index", delta->call, "id", delta->call_id, "type", "function", "function",
                     function);
}

static json_t *delta_value(const struct chat_delta *delta)
{
    json_t *value = json_object();
    bool ok = value != NULL;
    if (delta->begins) {
        ok = ok && json_object_set_new(value, "role", json_string("assistant")) == 0 &&
             json_object_set_new(value, "content", delta->call >= 0 ? json_null() : json_string("")) == 0 &&
             json_object_set_new(value, "refusal", json_null()) == 0;
    }
    if (delta->content != NULL)
        ok = ok && json_object_set_new(value, "content", text_value(delta->content, delta->length)) == 0;
    if (delta->reasoning != NULL)
        ok = ok && json_object_set_new(value, "reasoning_content", text_value(delta->reasoning, delta->length)) == 0;
    if (delta->call >= 0)
        ok = ok && json_object_set_new(value, "tool_calls", json_pack("[o]", call_delta_value(delta))) == 0;
    if (ok)
        return value;
    json_decref(value);
    return NULL;
}

static json_t *chunk_choices(const struct chat_delta *delta)
{
    if (delta == NULL)
        return json_array();
    return json_pack("[{s:i, s:o, s:o, s:o}]", "index", delta->index, "delta", delta_value(delta), "logprobs",
                     logprobs_value(delta->n_tokens > 0, delta->tokens, delta->n_tokens), "finish_reason",
                     reason_value(delta->finish_reason));
}

char *chat_chunk_frame(const struct response_head *head, const struct chat_delta *delta, bool with_usage,
                       const struct response_usage *usage, const struct response_timings *timings, size_t *ret_length)
{
    json_t *root = root_value(head, "chat.completion.chunk", chunk_choices(delta));
    return response_chunk_frame(root, with_usage, delta == NULL ? usage : NULL, timings, ret_length);
}
