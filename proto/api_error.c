#include "proto/api_error.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    int status;
    const char *type, *code;
} errors[] = {[API_ERROR_NONE] = {500, "server_error", "internal_error"},
#define API_ERROR_ROW(name, status_code, type_name, code_name) [API_ERROR_##name] = {status_code, type_name, code_name},
              API_ERRORS(API_ERROR_ROW)
#undef API_ERROR_ROW
};

static size_t row_of(enum api_error_kind kind)
{
    return (size_t)kind < sizeof errors / sizeof errors[0] ? (size_t)kind : API_ERROR_NONE;
}

bool api_error_set(struct api_error *error, enum api_error_kind kind, const char *param, const char *format, ...)
{
    error->kind = kind;
    snprintf(error->param, sizeof error->param, "%s", param != NULL ? param : "");
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return false;
}

int api_error_status(enum api_error_kind kind)
{
    return errors[row_of(kind)].status;
}

/* Messages quote input, and a cut at the buffer's end may split a character. */
static json_t *text_value(const char *text)
{
    json_t *value = json_string(text);
    if (value != NULL)
        return value;
    char ascii[sizeof(struct api_error)];
    size_t length = 0;
    for (; text[length] != '\0' && length < sizeof ascii - 1; length++)
        ascii[length] = (unsigned char)text[length] < 0x80 ? text[length] : '?';
    ascii[length] = '\0';
    return json_string(ascii);
}

char *api_error_json(const struct api_error *error, size_t *ret_length)
{
    size_t row = row_of(error->kind);
    json_t *root =
        json_pack("{s:{s:o, s:s, s:o, s:s}}", "error", "message", text_value(error->message), "type", errors[row].type,
                  "param", error->param[0] != '\0' ? text_value(error->param) : json_null(), "code", errors[row].code);
    char *text = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    *ret_length = text != NULL ? strlen(text) : 0;
    return text;
}
