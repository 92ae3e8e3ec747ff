#include "proto/embedding_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json_reader.h"

const struct prompt_form embedding_input_form = {"input", EMBEDDING_MAX_INPUTS};

/* One of n words, or absent: *ret_index stays. quoted: how the error lists them. */
static bool read_word(const json_t *object, const char *name, const char *const *words, int n, const char *quoted,
                      int *ret_index, struct api_error *error)
{
    const json_t *value = json_field(object, name);
    if (value == NULL)
        return true;
    for (int i = 0; i < n && json_is_string(value); i++) {
        if (strcmp(json_string_value(value), words[i]) == 0) {
            *ret_index = i;
            return true;
        }
    }
    return json_refuse(error, name, value, json_is_string(value), quoted);
}

static bool read_names(const json_t *object, struct api_error *error)
{
    char *ignored = NULL; /* any model name is served by the loaded model, but it must be a name */
    bool ok = json_read_string(object, "model", REQUEST_MAX_NAME_BYTES, &ignored, error) &&
              json_read_string(object, "user", REQUEST_MAX_NAME_BYTES, &ignored, error);
    free(ignored);
    return ok;
}

static bool read_form(struct embedding_request *request, const json_t *object, const struct embedding_limits *limits,
                      struct api_error *error)
{
    static const char *const encodings[] = {"float", "base64"}, *const poolings[] = {"mean", "last"};
    int encoding = 0, pooling = -1;
    int64_t dimensions = limits->dimensions;
    if (!read_word(object, "encoding_format", encodings, 2, "\"float\" or \"base64\"", &encoding, error) ||
        !read_word(object, "pooling", poolings, 2, "\"mean\" or \"last\"", &pooling, error) ||
        !json_read_integer(object, "dimensions", 1, INT32_MAX, &dimensions, error))
        return false;
    if (dimensions != limits->dimensions)
        return api_error_set(error, API_ERROR_INVALID_VALUE, "dimensions",
                             "this model's embeddings have %d dimensions and cannot be shortened to %lld: leave "
                             "dimensions out",
                             limits->dimensions, (long long)dimensions);
    request->base64 = encoding == 1;
    request->pooling = pooling == 0 ? POOLING_FIELD_MEAN : pooling == 1 ? POOLING_FIELD_LAST : POOLING_FIELD_MODEL;
    return true;
}

static bool refuse_empty_texts(const struct embedding_request *request, struct api_error *error)
{
    for (int i = 0; i < request->n_inputs; i++) {
        char path[64];
        if (request->inputs[i].text == NULL || request->inputs[i].length > 0)
            continue;
        prompt_fields_path(&embedding_input_form, request->input_is_list, i, path, sizeof path);
        return api_error_set(error, API_ERROR_INVALID_VALUE, path, "%s must not be an empty string", path);
    }
    return true;
}

bool embedding_request_decode(struct embedding_request *request, const char *body, size_t length,
                              const struct embedding_limits *limits, struct api_error *error)
{
    memset(request, 0, sizeof *request);
    json_t *object;
    if (!json_read_body(&object, body, length, error))
        return false;
    bool ok = read_names(object, error) && read_form(request, object, limits, error) &&
              prompt_fields_read(&request->inputs, &request->n_inputs, &request->input_is_list, object,
                                 &embedding_input_form, &limits->tokens, error) &&
              refuse_empty_texts(request, error) && queue_fields_read(&request->queue, object, error);
    json_decref(object);
    if (!ok)
        embedding_request_clear(request);
    return ok;
}

void embedding_request_clear(struct embedding_request *request)
{
    prompt_fields_clear(request->inputs, request->n_inputs);
    memset(request, 0, sizeof *request);
}
