#include "proto/response_json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/sse.h"

/* A token's text; a part of a character is written byte by byte, as OpenAI does. */
json_t *response_token_text(const char *text, size_t length)
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
json_t *response_logprob_value(double logprob)
{
    return json_real(isfinite(logprob) ? logprob : -9999.0);
}

json_t *response_usage_value(const struct response_usage *usage)
{
    json_t *value = json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)usage->prompt_tokens,
                              "completion_tokens", (json_int_t)usage->completion_tokens, "total_tokens",
                              (json_int_t)(usage->prompt_tokens + usage->completion_tokens), "prompt_tokens_details",
                              "cached_tokens", (json_int_t)usage->cached_tokens);
    if (!usage->tells_reasoning ||
        json_object_set_new(value, "completion_tokens_details",
                            json_pack("{s:I}", "reasoning_tokens", (json_int_t)usage->reasoning_tokens)) == 0)
        return value;
    json_decref(value);
    return NULL;
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
json_t *response_timings_value(const struct response_timings *timings)
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

/* Takes the value. Nine digits tell any two floats apart. */
char *response_dump(json_t *value, size_t *ret_length)
{
    char *text = value != NULL ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(value);
    *ret_length = text != NULL ? strlen(text) : 0;
    return text;
}

char *response_frame(char *json, size_t length, size_t *ret_length)
{
    char *event = json != NULL ? sse_event(NULL, json, length, ret_length) : NULL;
    free(json);
    return event;
}

char *response_chunk_frame(json_t *root, bool with_usage, const struct response_usage *usage,
                           const struct response_timings *timings, size_t *ret_length)
{
    bool ok = root != NULL;
    if (ok && with_usage)
        ok = json_object_set_new(root, "usage", usage != NULL ? response_usage_value(usage) : json_null()) == 0;
    if (ok && timings != NULL)
        ok = json_object_set_new(root, "timings", response_timings_value(timings)) == 0;
    if (!ok) {
        json_decref(root);
        return NULL;
    }
    size_t length;
    char *json = response_dump(root, &length);
    return response_frame(json, length, ret_length);
}
