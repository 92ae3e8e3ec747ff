#include "proto/request_fields.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json_reader.h"

static bool out_of_memory(struct api_error *error)
{
    return api_error_set(error, API_ERROR_OUT_OF_MEMORY, NULL, "not enough memory for the request");
}

/* Token ids as object keys: decimal, without sign or leading zeros, so that no id has two spellings. */
static bool parse_token(const char *text, int32_t n_vocab, int32_t *ret_token)
{
    size_t length = strlen(text);
    if (length == 0 || length > 9 || strspn(text, "0123456789") != length || (text[0] == '0' && length > 1))
        return false;
    *ret_token = (int32_t)strtol(text, NULL, 10);
    return *ret_token < n_vocab;
}

static bool read_biases(struct sampling_fields *fields, const json_t *object, const struct request_limits *limits,
                        struct api_error *error)
{
    json_t *biases = json_field(object, "logit_bias");
    if (biases == NULL)
        return true;
    if (!json_is_object(biases))
        return json_refuse(error, "logit_bias", biases, false, "an object of token ids and numbers from -100 to 100");
    size_t n = json_object_size(biases);
    if (n > REQUEST_MAX_BIASES)
        return api_error_set(error, API_ERROR_INVALID_VALUE, "logit_bias", "logit_bias may have at most %d entries",
                             REQUEST_MAX_BIASES);
    if (n == 0)
        return true;
    fields->biases = calloc(n, sizeof *fields->biases);
    if (fields->biases == NULL)
        return out_of_memory(error);
    const char *key;
    json_t *value;
    json_object_foreach(biases, key, value)
    {
        struct bias_field *bias = &fields->biases[fields->n_biases];
        char path[64];
        snprintf(path, sizeof path, "logit_bias.%.40s", key);
        if (!parse_token(key, limits->n_vocab, &bias->token))
            return api_error_set(error, API_ERROR_INVALID_VALUE, path,
                                 "logit_bias: the keys must be token ids from 0 to %d, not \"%.40s\"",
                                 limits->n_vocab - 1, key);
        bias->bias = json_number_value(value);
        if (!json_is_number(value) || !(bias->bias >= -100 && bias->bias <= 100))
            return json_refuse(error, path, value, json_is_number(value), "a number from -100 to 100");
        fields->n_biases++;
    }
    return true;
}

bool sampling_fields_read(struct sampling_fields *fields, const json_t *object, const struct request_limits *limits,
                          struct api_error *error)
{
    *fields = (struct sampling_fields){.temperature = 1, .top_p = 1, .repeat_penalty = 1};
    int64_t top_k = 0;
    if (!json_read_number(object, "temperature", 0, 2, &fields->temperature, error) ||
        !json_read_number(object, "top_p", 0, 1, &fields->top_p, error) ||
        !json_read_number(object, "min_p", 0, 1, &fields->min_p, error) ||
        !json_read_integer(object, "top_k", -1, INT32_MAX, &top_k, error) ||
        !json_read_number(object, "repeat_penalty", 0.01, 10, &fields->repeat_penalty, error) ||
        !json_read_number(object, "presence_penalty", -2, 2, &fields->presence_penalty, error) ||
        !json_read_number(object, "frequency_penalty", -2, 2, &fields->frequency_penalty, error) ||
        !json_read_integer(object, "seed", INT64_MIN, INT64_MAX, &fields->seed, error) ||
        !json_read_bool(object, "ignore_eos", &fields->ignore_eos, error))
        return false;
    fields->top_k = top_k > 0 ? (int32_t)top_k : 0;
    fields->has_seed = json_field(object, "seed") != NULL;
    return read_biases(fields, object, limits, error);
}

void sampling_fields_clear(struct sampling_fields *fields)
{
    free(fields->biases);
    fields->biases = NULL;
    fields->n_biases = 0;
}

static bool read_stop(struct stop_fields *fields, const json_t *value, const char *path, struct api_error *error)
{
    size_t length = json_is_string(value) ? json_string_length(value) : 0;
    if (length == 0 || length > REQUEST_MAX_STOP_BYTES)
        return json_refuse(error, path, value, json_is_string(value), "a string of 1 to 4096 bytes");
    char *copy = json_copy_string(value, &length);
    if (copy == NULL)
        return out_of_memory(error);
    fields->texts[fields->n_stops] = copy;
    fields->lengths[fields->n_stops++] = length;
    return true;
}

bool stop_fields_read(struct stop_fields *fields, const json_t *object, struct api_error *error)
{
    memset(fields, 0, sizeof *fields);
    const json_t *stop = json_field(object, "stop");
    if (stop == NULL)
        return true;
    if (json_is_string(stop))
        return read_stop(fields, stop, "stop", error);
    if (!json_is_array(stop) || json_array_size(stop) > REQUEST_MAX_STOPS) {
        if (json_is_array(stop))
            return api_error_set(error, API_ERROR_INVALID_VALUE, "stop", "stop may have at most %d strings, not %zu",
                                 REQUEST_MAX_STOPS, json_array_size(stop));
        return json_refuse(error, "stop", stop, false, "a string or an array of up to 16 strings");
    }
    for (size_t i = 0; i < json_array_size(stop); i++) {
        char path[32];
        snprintf(path, sizeof path, "stop[%zu]", i);
        if (!read_stop(fields, json_array_get(stop, i), path, error))
            return false;
    }
    return true;
}

void stop_fields_clear(struct stop_fields *fields)
{
    for (int i = 0; i < fields->n_stops; i++)
        free(fields->texts[i]);
    memset(fields, 0, sizeof *fields);
}

bool stream_fields_read(struct stream_fields *fields, const json_t *object, struct api_error *error)
{
    memset(fields, 0, sizeof *fields);
    if (!json_read_bool(object, "stream", &fields->stream, error))
        return false;
    const json_t *options = json_field(object, "stream_options");
    if (options == NULL)
        return true;
    if (!fields->stream)
        return api_error_set(error, API_ERROR_INVALID_VALUE, "stream_options",
                             "stream_options may only be given with stream: true");
    if (!json_is_object(options))
        return json_refuse(error, "stream_options", options, false, "an object");
    const json_t *include_usage = json_field(options, "include_usage");
    if (include_usage != NULL && !json_is_boolean(include_usage))
        return json_refuse(error, "stream_options.include_usage", include_usage, false, "true or false");
    fields->include_usage = json_is_true(include_usage);
    return true;
}

bool queue_fields_read(struct queue_fields *fields, const json_t *object, struct api_error *error)
{
    enum {
        MAX_MS = 24 * 60 * 60 * 1000
    };
    int64_t priority = 5, max_wait_ms = 0, timeout_ms = 0;
    if (!json_read_integer(object, "priority", 0, 9, &priority, error) ||
        !json_read_integer(object, "max_wait_ms", 0, MAX_MS, &max_wait_ms, error) ||
        !json_read_integer(object, "timeout_ms", 0, MAX_MS, &timeout_ms, error))
        return false;
    fields->priority = (int)priority;
    fields->max_wait_ms = (uint32_t)max_wait_ms;
    fields->timeout_ms = (uint32_t)timeout_ms;
    return true;
}

bool request_refuse_field(const json_t *object, const char *name, const char *why, struct api_error *error)
{
    if (json_field(object, name) == NULL)
        return true;
    return api_error_set(error, API_ERROR_UNSUPPORTED_PARAMETER, name, "%s is not supported: %s", name, why);
}

bool request_refuse_unusual(const json_t *object, const struct usual_field *field, struct api_error *error)
{
    const json_t *value = json_field(object, field->name);
    if (value == NULL || json_is_text(value, field->values[0]) ||
        (field->values[1] != NULL && json_is_text(value, field->values[1])))
        return true;
    return api_error_set(error, API_ERROR_UNSUPPORTED_PARAMETER, field->name, "%s may only be %s: %s", field->name,
                         field->values[0], field->why);
}
