#include "proto/text_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json_reader.h"
#include "proto/response_json.h"

/* Longer than any context; the time that a text without a space takes grows faster than its length. */
#define MAX_CONTENT_BYTES ((size_t)1 << 20)

static bool out_of_memory(struct api_error *error)
{
    return api_error_set(error, API_ERROR_OUT_OF_MEMORY, NULL, "not enough memory for the request");
}

static bool read_content(struct tokenize_request *request, const json_t *object, struct api_error *error)
{
    const json_t *content = json_field(object, "content");
    if (content == NULL)
        return api_error_set(error, API_ERROR_MISSING_PARAMETER, "content", "content is required: a string");
    if (!json_is_string(content))
        return json_refuse(error, "content", content, false, "a string");
    if (json_string_length(content) > MAX_CONTENT_BYTES)
        return api_error_set(error, API_ERROR_BODY_TOO_LARGE, "content",
                             "content: %zu bytes, at most %zu are tokenized", json_string_length(content),
                             MAX_CONTENT_BYTES);
    request->content = json_copy_string(content, &request->length);
    return request->content != NULL || out_of_memory(error);
}

bool tokenize_request_decode(struct tokenize_request *request, const char *body, size_t length, struct api_error *error)
{
    *request = (struct tokenize_request){.parse_special = true};
    json_t *object;
    if (!json_read_body(&object, body, length, error))
        return false;
    bool ok = json_read_bool(object, "add_special", &request->add_special, error) &&
              json_read_bool(object, "parse_special", &request->parse_special, error) &&
              read_content(request, object, error);
    json_decref(object);
    return ok;
}

static bool read_tokens(struct detokenize_request *request, const json_t *object, const struct request_limits *limits,
                        struct api_error *error)
{
    const json_t *array = json_field(object, "tokens");
    if (array == NULL)
        return api_error_set(error, API_ERROR_MISSING_PARAMETER, "tokens", "tokens is required: an array of token ids");
    if (!json_is_array(array))
        return json_refuse(error, "tokens", array, false, "an array of token ids");
    request->tokens = malloc((json_array_size(array) + 1) * sizeof *request->tokens);
    if (request->tokens == NULL)
        return out_of_memory(error);
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *value = json_array_get(array, i);
        json_int_t token = json_integer_value(value);
        if (!json_is_integer(value) || token < 0 || token >= limits->n_vocab) {
            char where[64], expected[64];
            snprintf(where, sizeof where, "tokens[%zu]", i);
            snprintf(expected, sizeof expected, "a token id from 0 to %d", limits->n_vocab - 1);
            return json_refuse(error, where, value, json_is_integer(value), expected);
        }
        request->tokens[request->n_tokens++] = (int32_t)token;
    }
    return true;
}

bool detokenize_request_decode(struct detokenize_request *request, const char *body, size_t length,
                               const struct request_limits *limits, struct api_error *error)
{
    memset(request, 0, sizeof *request);
    json_t *object;
    if (!json_read_body(&object, body, length, error))
        return false;
    bool ok = read_tokens(request, object, limits, error);
    json_decref(object);
    if (!ok)
        free(request->tokens);
    return ok;
}

static json_t *tokens_value(const int32_t *tokens, size_t n_tokens)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n_tokens; i++)
        json_array_append_new(list, json_integer(tokens[i]));
    if (json_array_size(list) == n_tokens)
        return list;
    json_decref(list);
    return NULL;
}

char *tokenize_response_json(const int32_t *tokens, size_t n_tokens, size_t *ret_length)
{
    return response_dump(json_pack("{s:o}", "tokens", tokens_value(tokens, n_tokens)), ret_length);
}

char *detokenize_response_json(const char *content, size_t length, size_t *ret_length)
{
    return response_dump(json_pack("{s:o}", "content", json_stringn(content, length)), ret_length);
}

char *render_response_json(const char *prompt, size_t length, const int32_t *tokens, size_t n_tokens,
                           size_t *ret_length)
{
    return response_dump(
        json_pack("{s:o, s:o}", "prompt", json_stringn(prompt, length), "tokens", tokens_value(tokens, n_tokens)),
        ret_length);
}
