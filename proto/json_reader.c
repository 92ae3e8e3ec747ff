#include "proto/json_reader.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Before jansson builds a tree: how deep and how many. Wrong JSON may pass, jansson finds that. */
static bool check_size(const char *text, size_t length, struct api_error *error)
{
    int depth = 0;
    size_t n_values = 1;
    bool in_string = false;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            n_values++;
            if (++depth > JSON_MAX_DEPTH)
                return api_error_set(error, API_ERROR_INVALID_JSON, NULL, "the body is nested deeper than %d levels",
                                     JSON_MAX_DEPTH);
        } else if (c == ']' || c == '}') {
            depth--;
        } else if (c == ',') {
            n_values++;
        }
    }
    if (n_values > JSON_MAX_VALUES)
        return api_error_set(error, API_ERROR_INVALID_JSON, NULL, "the body holds more than %d values",
                             JSON_MAX_VALUES);
    return true;
}

bool json_read_body(json_t **ret_object, const char *text, size_t length, struct api_error *error)
{
    if (length == 0)
        return api_error_set(error, API_ERROR_INVALID_JSON, NULL, "the body is empty; it must be a JSON object");
    if (!check_size(text, length, error))
        return false;
    json_error_t where;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &where);
    if (root == NULL && json_error_code(&where) == json_error_out_of_memory)
        return api_error_set(error, API_ERROR_OUT_OF_MEMORY, NULL, "not enough memory for the request");
    if (root == NULL)
        return api_error_set(error, API_ERROR_INVALID_JSON, NULL, "the body is not valid JSON: %s (line %d, column %d)",
                             where.text, where.line, where.column);
    if (!json_is_object(root)) {
        json_decref(root);
        return api_error_set(error, API_ERROR_INVALID_JSON, NULL, "the body must be a JSON object");
    }
    *ret_object = root;
    return true;
}

json_t *json_field(const json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);
    return json_is_null(value) ? NULL : value;
}

bool json_is_text(const json_t *value, const char *text)
{
    size_t length = strlen(text);
    return json_is_string(value) && json_string_length(value) == length &&
           memcmp(json_string_value(value), text, length) == 0;
}

/* What a client wrote, short. */
static void quote(const json_t *value, char *text, size_t capacity)
{
    enum {
        SHOWN = 40
    };
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        snprintf(text, capacity, "an object");
        break;
    case JSON_ARRAY:
        snprintf(text, capacity, json_array_size(value) == 0 ? "an empty array" : "an array");
        break;
    case JSON_INTEGER:
        snprintf(text, capacity, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case JSON_REAL:
        snprintf(text, capacity, "%.9g", json_real_value(value));
        break;
    case JSON_STRING: {
        const char *string = json_string_value(value);
        size_t length = strlen(string), shown = length < SHOWN ? length : SHOWN;
        while (shown > 0 && shown < length && ((unsigned char)string[shown] & 0xc0) == 0x80)
            shown--;
        snprintf(text, capacity, "\"%.*s\"%s", (int)shown, string, shown < length ? "..." : "");
        break;
    }
    case JSON_NULL:
        snprintf(text, capacity, "null");
        break;
    default:
        snprintf(text, capacity, json_is_true(value) ? "true" : "false");
        break;
    }
}

bool json_refuse(struct api_error *error, const char *path, const json_t *value, bool same_type, const char *expected)
{
    char shown[64];
    quote(value, shown, sizeof shown);
    return api_error_set(error, same_type ? API_ERROR_INVALID_VALUE : API_ERROR_INVALID_TYPE, path,
                         "%s must be %s, not %s", path, expected, shown);
}

bool json_read_number(const json_t *object, const char *name, double minimum, double maximum, double *value,
                      struct api_error *error)
{
    const json_t *field = json_field(object, name);
    if (field == NULL)
        return true;
    double number = json_number_value(field);
    if (!json_is_number(field) || !isfinite(number) || number < minimum || number > maximum) {
        char expected[96];
        snprintf(expected, sizeof expected, "a number from %g to %g", minimum, maximum);
        return json_refuse(error, name, field, json_is_number(field), expected);
    }
    *value = number;
    return true;
}

/* The integer that a JSON number stands for. */
static bool whole_number(const json_t *value, int64_t *ret_integer)
{
    if (json_is_integer(value)) {
        *ret_integer = json_integer_value(value);
        return true;
    }
    double real = json_real_value(value);
    if (!json_is_real(value) || real != floor(real) || fabs(real) > 9007199254740992.0)
        return false;
    *ret_integer = (int64_t)real;
    return true;
}

bool json_read_integer(const json_t *object, const char *name, int64_t minimum, int64_t maximum, int64_t *value,
                       struct api_error *error)
{
    const json_t *field = json_field(object, name);
    if (field == NULL)
        return true;
    int64_t integer = 0;
    if (!whole_number(field, &integer) || integer < minimum || integer > maximum) {
        char expected[96];
        if (minimum == INT64_MIN && maximum == INT64_MAX)
            snprintf(expected, sizeof expected, "an integer of 64 bits");
        else
            snprintf(expected, sizeof expected, "an integer from %" PRId64 " to %" PRId64, minimum, maximum);
        return json_refuse(error, name, field, json_is_number(field), expected);
    }
    *value = integer;
    return true;
}

bool json_read_bool(const json_t *object, const char *name, bool *value, struct api_error *error)
{
    const json_t *field = json_field(object, name);
    if (field == NULL)
        return true;
    if (!json_is_boolean(field))
        return json_refuse(error, name, field, false, "true or false");
    *value = json_is_true(field);
    return true;
}

char *json_copy_string(const json_t *string, size_t *ret_length)
{
    size_t length = json_string_length(string);
    char *copy = malloc(length + 1);
    if (copy == NULL)
        return NULL;
    memcpy(copy, json_string_value(string), length);
    copy[length] = '\0';
    *ret_length = length;
    return copy;
}

bool json_read_string(const json_t *object, const char *name, size_t max_bytes, char **value, struct api_error *error)
{
    const json_t *field = json_field(object, name);
    if (field == NULL)
        return true;
    size_t length = json_is_string(field) ? json_string_length(field) : 0;
    if (!json_is_string(field) || length > max_bytes || strlen(json_string_value(field)) != length) {
        char expected[96];
        snprintf(expected, sizeof expected, "a string of at most %zu bytes without NUL", max_bytes);
        return json_refuse(error, name, field, json_is_string(field), expected);
    }
    char *copy = json_copy_string(field, &length);
    if (copy == NULL)
        return api_error_set(error, API_ERROR_OUT_OF_MEMORY, NULL, "not enough memory for the request");
    free(*value);
    *value = copy;
    return true;
}
