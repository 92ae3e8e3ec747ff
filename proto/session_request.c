#include "proto/session_request.h"

#include <stdlib.h>
#include <string.h>

#include "proto/json_reader.h"
#include "proto/request_fields.h"

static bool read_fields(struct session_request_fields *fields, const json_t *object, struct api_error *error)
{
    int64_t tokens = 0;
    if (!json_read_integer(object, "tokens", 1, INT32_MAX, &tokens, error))
        return false;
    fields->tokens = (int32_t)tokens;
    if (!json_read_string(object, "key", REQUEST_MAX_NAME_BYTES, &fields->key, error))
        return false;
    return fields->key == NULL || fields->key[0] != '\0' ||
           api_error_set(error, API_ERROR_INVALID_VALUE, "key", "key must not be empty: leave it out for no name");
}

bool session_request_decode(struct session_request_fields *fields, const char *body, size_t length,
                            struct api_error *error)
{
    memset(fields, 0, sizeof *fields);
    if (length == 0)
        return true;
    if (length > SESSION_REQUEST_MAX_BYTES)
        return api_error_set(error, API_ERROR_BODY_TOO_LARGE, NULL, "the request body may have at most %d bytes here",
                             SESSION_REQUEST_MAX_BYTES);
    json_t *object;
    if (!json_read_body(&object, body, length, error))
        return false;
    bool ok = read_fields(fields, object, error);
    json_decref(object);
    if (!ok)
        session_request_clear(fields);
    return ok;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* In place; false: a broken escape, or a byte 0. */
static bool decode_form(char *text)
{
    char *out = text;
    for (const char *in = text; *in != '\0'; in++) {
        char c = *in == '+' ? ' ' : *in;
        if (c == '%') {
            int high = hex_digit(in[1]), low = high >= 0 ? hex_digit(in[2]) : -1;
            if (low < 0 || high * 16 + low == 0)
                return false;
            c = (char)(high * 16 + low);
            in += 2;
        }
        *out++ = c;
    }
    *out = '\0';
    return true;
}

bool session_request_decode_key(char **ret_key, const char *query, struct api_error *error)
{
    *ret_key = NULL;
    if (query == NULL || query[0] == '\0')
        return true;
    if (strncmp(query, "key=", 4) != 0 || strchr(query, '&') != NULL)
        return api_error_set(error, API_ERROR_INVALID_VALUE, NULL, "the query may only be key=NAME");
    char *key = strdup(query + 4);
    if (key == NULL)
        return api_error_set(error, API_ERROR_OUT_OF_MEMORY, NULL, "not enough memory for the request");
    bool ok = decode_form(key) && key[0] != '\0' && strlen(key) <= REQUEST_MAX_NAME_BYTES;
    json_t *text = ok ? json_string(key) : NULL; /* NULL: not UTF-8 */
    if (text == NULL) {
        free(key);
        return api_error_set(error, API_ERROR_INVALID_VALUE, "key", "key must be a name of 1 to %d bytes of UTF-8",
                             REQUEST_MAX_NAME_BYTES);
    }
    json_decref(text);
    *ret_key = key;
    return true;
}

void session_request_clear(struct session_request_fields *fields)
{
    free(fields->key);
    memset(fields, 0, sizeof *fields);
}
