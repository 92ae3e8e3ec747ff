#include "proto/completion_response.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/response_json.h"

/* Text to logprob. Tokens with the same text share one entry, the likelier one's. The chosen token is always there. */
static json_t *top_value(const struct response_token *token)
{
    json_t *top = json_object();
    for (int i = 0; i <= token->n_top; i++) {
        bool chosen = i == token->n_top;
        json_t *key = chosen ? response_token_text(token->text, token->length)
                             : response_token_text(token->top[i].text, token->top[i].length);
        const char *text = json_string_value(key);
        size_t length = json_string_length(key);
        if (text != NULL && json_object_getn(top, text, length) == NULL)
            json_object_setn_new(top, text, length,
                                 response_logprob_value(chosen ? token->logprob : token->top[i].logprob));
        json_decref(key);
    }
    return top;
}

static json_t *logprobs_value(const struct response_choice *choice)
{
    if (!choice->has_logprobs)
        return json_null();
    json_t *tokens = json_array(), *logprobs = json_array(), *tops = json_array(), *offsets = json_array();
    for (int i = 0; i < choice->n_tokens; i++) {
        const struct response_token *token = &choice->tokens[i];
        json_array_append_new(tokens, response_token_text(token->text, token->length));
        json_array_append_new(logprobs, token->has_logprob ? response_logprob_value(token->logprob) : json_null());
        json_array_append_new(tops, token->has_logprob ? top_value(token) : json_null());
        json_array_append_new(offsets, json_integer(token->text_offset));
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", logprobs, "top_logprobs", tops,
                     "text_offset", offsets);
}

static json_t *choice_value(const struct response_choice *choice)
{
    return json_pack("{s:o, s:i, s:o, s:o}", "text", response_token_text(choice->text, choice->text_length), "index",
                     choice->index, "logprobs", logprobs_value(choice), "finish_reason",
                     choice->finish_reason != NULL ? json_string(choice->finish_reason) : json_null());
}

/* choices is taken. */
static json_t *completion_value(const struct response_head *head, json_t *choices)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", head->id, "object", "text_completion", "created",
                     (json_int_t)head->created, "model", head->model, "system_fingerprint", head->fingerprint,
                     "choices", choices);
}

char *completion_response_json(const struct response_head *head, const struct response_choice *choices, int n_choices,
                               const struct response_usage *usage, const struct response_timings *timings,
                               size_t *ret_length)
{
    json_t *list = json_array();
    for (int i = 0; i < n_choices; i++) {
        if (json_array_append_new(list, choice_value(&choices[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    json_t *root = completion_value(head, list);
    if (root == NULL || json_object_set_new(root, "usage", response_usage_value(usage)) != 0 ||
        json_object_set_new(root, "timings", response_timings_value(timings)) != 0) {
        json_decref(root);
        return NULL;
    }
    return response_dump(root, ret_length);
}

char *prefill_response_json(const struct response_head *head, const char *session, const char *key,
                            const struct response_usage *usage, const struct response_timings *timings,
                            size_t *ret_length)
{
    return response_dump(json_pack("{s:s, s:s, s:I, s:s, s:s, s:s, s:s, s:o, s:o}", "id", head->id, "object", "prefill",
                                   "created", (json_int_t)head->created, "model", head->model, "system_fingerprint",
                                   head->fingerprint, "session", session, "prompt_cache_key", key, "usage",
                                   response_usage_value(usage), "timings", response_timings_value(timings)),
                         ret_length);
}

char *completion_chunk_frame(const struct response_head *head, const struct response_choice *choice, bool with_usage,
                             const struct response_usage *usage, const struct response_timings *timings,
                             size_t *ret_length)
{
    json_t *list = json_array();
    if (choice != NULL && json_array_append_new(list, choice_value(choice)) != 0) {
        json_decref(list);
        return NULL;
    }
    json_t *root = completion_value(head, list);
    return response_chunk_frame(root, with_usage, choice == NULL ? usage : NULL, timings, ret_length);
}

char *completion_error_frame(const struct api_error *error, size_t *ret_length)
{
    size_t length;
    char *json = api_error_json(error, &length);
    return response_frame(json, length, ret_length);
}
