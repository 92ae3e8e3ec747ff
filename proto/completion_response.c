#include "proto/completion_response.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/sse.h"

/* A token's text; a part of a character is written byte by byte, as OpenAI does. */
static json_t *token_text(const char *text, size_t length)
{
    json_t *value = json_stringn(text, length);
    if (value != NULL)
        return value;
    static const char hex[] = "0123456789abcdef";
    char *escaped = malloc(6 + 4 * length + 1);
    if (escaped == NULL)
        return NULL;
    memcpy(escaped, "bytes:", 6);
    size_t n = 6;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        escaped[n++] = '\\';
        escaped[n++] = 'x';
        escaped[n++] = hex[c >> 4];
        escaped[n++] = hex[c & 15];
    }
    value = json_stringn(escaped, n);
    free(escaped);
    return value;
}

/* JSON has no infinity: a token that cannot come is given what others give for it. */
static json_t *logprob_value(double logprob)
{
    return json_real(isfinite(logprob) ? logprob : -9999.0);
}

/* Text to logprob. Tokens with the same text share one entry, the likelier one's. The chosen token is always there. */
static json_t *top_value(const struct response_token *token)
{
    json_t *top = json_object();
    for (int i = 0; i <= token->n_top; i++) {
        bool chosen = i == token->n_top;
        json_t *key =
            chosen ? token_text(token->text, token->length) : token_text(token->top[i].text, token->top[i].length);
        const char *text = json_string_value(key);
        size_t length = json_string_length(key);
        if (text != NULL && json_object_getn(top, text, length) == NULL)
            json_object_setn_new(top, text, length, logprob_value(chosen ? token->logprob : token->top[i].logprob));
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
        json_array_append_new(tokens, token_text(token->text, token->length));
        json_array_append_new(logprobs, token->has_logprob ? logprob_value(token->logprob) : json_null());
        json_array_append_new(tops, token->has_logprob ? top_value(token) : json_null());
        json_array_append_new(offsets, json_integer(token->text_offset));
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", logprobs, "top_logprobs", tops,
                     "text_offset", offsets);
}

static json_t *choice_value(const struct response_choice *choice)
{
    return json_pack("{s:o, s:i, s:o, s:o}", "text", token_text(choice->text, choice->text_length), "index",
                     choice->index, "logprobs", logprobs_value(choice), "finish_reason",
                     choice->finish_reason != NULL ? json_string(choice->finish_reason) : json_null());
}

static json_t *usage_value(const struct response_usage *usage)
{
    return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)usage->prompt_tokens, "completion_tokens",
                     (json_int_t)usage->completion_tokens, "total_tokens",
                     (json_int_t)(usage->prompt_tokens + usage->completion_tokens), "prompt_tokens_details",
                     "cached_tokens", (json_int_t)usage->cached_tokens);
}

static json_t *rate_value(int64_t n, double ms)
{
    return n > 0 && ms > 0 ? json_real((double)n * 1000 / ms) : json_null();
}

static json_t *text_or_null(const char *text, const char *null)
{
    return strcmp(text, null) == 0 ? json_null() : json_string(text);
}

static json_t *cache_value(const struct response_cache *cache)
{
    bool restored = cache->restored > 0;
    return json_pack("{s:I, s:s, s:o, s:o, s:o, s:o, s:I, s:o, s:o}", "cached", (json_int_t)cache->cached, "source",
                     cache->source, "session", text_or_null(cache->session, ""), "from_session",
                     text_or_null(cache->from, ""), "miss", text_or_null(cache->miss, "none"), "differs_at",
                     cache->differs_at >= 0 ? json_integer(cache->differs_at) : json_null(), "restored",
                     (json_int_t)cache->restored, "restore_ms", restored ? json_real(cache->restore_ms) : json_null(),
                     "recompute_ms",
                     restored && cache->recompute_ms > 0 ? json_real(cache->recompute_ms) : json_null());
}

/* "cache" is the first choice's, "caches" has all of them when there are several. */
static json_t *timings_value(const struct response_timings *timings)
{
    json_t *value = json_pack(
        "{s:I, s:f, s:o, s:I, s:f, s:o, s:I}", "prompt_n", (json_int_t)timings->prompt_n, "prompt_ms",
        timings->prompt_ms, "prompt_per_second", rate_value(timings->prompt_n, timings->prompt_ms), "predicted_n",
        (json_int_t)timings->predicted_n, "predicted_ms", timings->predicted_ms, "predicted_per_second",
        rate_value(timings->predicted_n - 1, timings->predicted_ms), "cached_n", (json_int_t)timings->cached_n);
    bool ok = timings->n_caches == 0 || json_object_set_new(value, "cache", cache_value(&timings->caches[0])) == 0;
    json_t *list = timings->n_caches > 1 ? json_array() : NULL;
    for (int i = 0; list != NULL && i < timings->n_caches; i++)
        ok = json_array_append_new(list, cache_value(&timings->caches[i])) == 0 && ok;
    if (timings->n_caches > 1)
        ok = json_object_set_new(value, "caches", list) == 0 && ok;
    if (ok)
        return value;
    json_decref(value);
    return NULL;
}

/* choices is taken. */
static json_t *completion_value(const struct response_head *head, json_t *choices)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", head->id, "object", "text_completion", "created",
                     (json_int_t)head->created, "model", head->model, "system_fingerprint", head->fingerprint,
                     "choices", choices);
}

/* Takes the value. Nine digits tell any two floats apart. */
static char *dump(json_t *value, size_t *ret_length)
{
    char *text = value != NULL ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(value);
    *ret_length = text != NULL ? strlen(text) : 0;
    return text;
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
    if (root == NULL || json_object_set_new(root, "usage", usage_value(usage)) != 0 ||
        json_object_set_new(root, "timings", timings_value(timings)) != 0) {
        json_decref(root);
        return NULL;
    }
    return dump(root, ret_length);
}

char *prefill_response_json(const struct response_head *head, const char *session, const char *key,
                            const struct response_usage *usage, const struct response_timings *timings,
                            size_t *ret_length)
{
    return dump(json_pack("{s:s, s:s, s:I, s:s, s:s, s:s, s:s, s:o, s:o}", "id", head->id, "object", "prefill",
                          "created", (json_int_t)head->created, "model", head->model, "system_fingerprint",
                          head->fingerprint, "session", session, "prompt_cache_key", key, "usage", usage_value(usage),
                          "timings", timings_value(timings)),
                ret_length);
}

static char *frame(char *json, size_t length, size_t *ret_length)
{
    char *event = json != NULL ? sse_event(NULL, json, length, ret_length) : NULL;
    free(json);
    return event;
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
    bool ok = root != NULL;
    if (ok && with_usage)
        ok = json_object_set_new(root, "usage", choice == NULL ? usage_value(usage) : json_null()) == 0;
    if (ok && timings != NULL)
        ok = json_object_set_new(root, "timings", timings_value(timings)) == 0;
    if (!ok) {
        json_decref(root);
        return NULL;
    }
    size_t length;
    char *json = dump(root, &length);
    return frame(json, length, ret_length);
}

char *completion_error_frame(const struct api_error *error, size_t *ret_length)
{
    size_t length;
    char *json = api_error_json(error, &length);
    return frame(json, length, ret_length);
}
