/* Errors as the OpenAI API shapes them: {"error": {"message", "type", "param", "code"}} with an HTTP status.
 * Every error that a client can get is one line of the table. */
#ifndef PROTO_API_ERROR_H
#define PROTO_API_ERROR_H

#include <stdbool.h>
#include <stddef.h>

/* name, HTTP status, error.type, error.code */
#define API_ERRORS(X)                                                                                                  \
    X(INVALID_VALUE, 400, "invalid_request_error", "invalid_value")                                                    \
    X(INVALID_TYPE, 400, "invalid_request_error", "invalid_type")                                                      \
    X(MISSING_PARAMETER, 400, "invalid_request_error", "missing_required_parameter")                                   \
    X(UNSUPPORTED_PARAMETER, 400, "invalid_request_error", "unsupported_parameter")                                    \
    X(INVALID_JSON, 400, "invalid_request_error", "invalid_json")                                                      \
    X(CONTEXT_LENGTH, 400, "invalid_request_error", "context_length_exceeded")                                         \
    X(PREVIOUS_RESPONSE_NOT_FOUND, 400, "invalid_request_error", "previous_response_not_found")                        \
    X(MALFORMED, 400, "invalid_request_error", "malformed_request")                                                    \
    X(UNAUTHORIZED, 401, "invalid_request_error", "invalid_api_key")                                                   \
    X(NOT_FOUND, 404, "invalid_request_error", "not_found")                                                            \
    X(MODEL_NOT_FOUND, 404, "invalid_request_error", "model_not_found")                                                \
    X(METHOD_NOT_ALLOWED, 405, "invalid_request_error", "method_not_allowed")                                          \
    X(TIMEOUT, 408, "invalid_request_error", "request_timeout")                                                        \
    X(CONFLICT, 409, "invalid_request_error", "conflict")                                                              \
    X(LENGTH_REQUIRED, 411, "invalid_request_error", "length_required")                                                \
    X(BODY_TOO_LARGE, 413, "invalid_request_error", "body_too_large")                                                  \
    X(TARGET_TOO_LONG, 414, "invalid_request_error", "target_too_long")                                                \
    X(UNSUPPORTED_MEDIA_TYPE, 415, "invalid_request_error", "unsupported_media_type")                                  \
    X(EXPECTATION_FAILED, 417, "invalid_request_error", "expectation_failed")                                          \
    X(QUEUE_FULL, 429, "rate_limit_error", "queue_full")                                                               \
    X(HEADER_TOO_LARGE, 431, "invalid_request_error", "header_too_large")                                              \
    X(INTERNAL, 500, "server_error", "internal_error")                                                                 \
    X(OUT_OF_MEMORY, 500, "server_error", "out_of_memory")                                                             \
    X(DEVICE_FAILED, 500, "server_error", "device_failed")                                                             \
    X(NOT_IMPLEMENTED, 501, "invalid_request_error", "not_implemented")                                                \
    X(OVERLOADED, 503, "server_error", "overloaded")                                                                   \
    X(LOADING, 503, "server_error", "model_loading")                                                                   \
    X(STOPPING, 503, "server_error", "server_stopping")                                                                \
    X(WAIT_TOO_LONG, 503, "server_error", "wait_too_long")                                                             \
    X(TIMED_OUT, 504, "server_error", "timed_out")                                                                     \
    X(VERSION_NOT_SUPPORTED, 505, "invalid_request_error", "http_version_not_supported")                               \
    X(NOT_STORED, 507, "server_error", "not_stored")

enum api_error_kind {
    API_ERROR_NONE = 0,
#define API_ERROR_ENUM(name, status, type, code) API_ERROR_##name,
    API_ERRORS(API_ERROR_ENUM)
#undef API_ERROR_ENUM
};

struct api_error {
    enum api_error_kind kind;
    char param[96]; /* the path of the field that is wrong, e.g. "stop[2]"; empty: none */
    char message[512];
};

/* Fills error and returns false, so that decoders write `return api_error_set(error, ...)`. param may be NULL. */
bool api_error_set(struct api_error *error, enum api_error_kind kind, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

int api_error_status(enum api_error_kind kind); /* 500 for what is not in the table */

/* The JSON body, malloc'ed and NUL-terminated; NULL when memory is out. Bytes that are not UTF-8 become '?'. */
char *api_error_json(const struct api_error *error, size_t *ret_length);

#endif
