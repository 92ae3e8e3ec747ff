/* JSON from a client to C values: bounded in depth and number of values, every error with the field's path.
 *
 * Absent and null fields leave *value as it is, so callers set defaults first. Duplicate keys are refused: two readers
 * of one body must not see different requests. Thread: any. */
#ifndef PROTO_JSON_READER_H
#define PROTO_JSON_READER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/api_error.h"

enum {
    JSON_MAX_DEPTH = 64,
    JSON_MAX_VALUES = 1 << 20, /* jansson needs about 40 bytes for each */
};

/* A body that must be an object. *ret_object is the caller's (json_decref). */
bool json_read_body(json_t **ret_object, const char *text, size_t length, struct api_error *error);

bool json_read_number(const json_t *object, const char *name, double minimum, double maximum, double *value,
                      struct api_error *error);
/* Also takes 16.0 for 16. */
bool json_read_integer(const json_t *object, const char *name, int64_t minimum, int64_t maximum, int64_t *value,
                       struct api_error *error);
bool json_read_bool(const json_t *object, const char *name, bool *value, struct api_error *error);
/* Without NUL bytes; *value is freed and replaced by a malloc'ed copy. */
bool json_read_string(const json_t *object, const char *name, size_t max_bytes, char **value, struct api_error *error);

/* The field, or NULL when it is absent or null. */
json_t *json_field(const json_t *object, const char *name);

/* value is the string text. NULL is none. */
bool json_is_text(const json_t *value, const char *text);

/* "NAME must be EXPECTED, not VALUE", as INVALID_TYPE, or INVALID_VALUE when same_type. Returns false. */
bool json_refuse(struct api_error *error, const char *path, const json_t *value, bool same_type, const char *expected);

/* A malloc'ed copy of a JSON string, NUL-terminated (it may hold NUL bytes too); NULL when memory is out. */
char *json_copy_string(const json_t *string, size_t *ret_length);

#endif
