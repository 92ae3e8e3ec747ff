/* Fields that every generation request has, whatever its endpoint: how tokens are chosen, where to stop, how to stream.
 * Thread: any. */
#ifndef PROTO_REQUEST_FIELDS_H
#define PROTO_REQUEST_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/api_error.h"

enum {
    REQUEST_MAX_STOPS = 16,
    REQUEST_MAX_STOP_BYTES = 4096,
    REQUEST_MAX_BIASES = 4096,
    REQUEST_MAX_N = 128,
    REQUEST_MAX_LOGPROBS = 20,
    REQUEST_MAX_NAME_BYTES = 512, /* model, prompt_cache_key, user */
};

/* What the loaded model allows. */
struct request_limits {
    int32_t n_vocab;
};

struct bias_field {
    int32_t token;
    double bias; /* -100 to 100 */
};

struct sampling_fields {
    double temperature; /* 0 to 2; 1 */
    double top_p; /* 0 to 1; 1 */
    double min_p; /* 0 to 1; 0: off */
    int32_t top_k; /* 0 or -1: off */
    double repeat_penalty; /* over 0 to 10; 1: off */
    double presence_penalty, frequency_penalty; /* -2 to 2; 0 */
    bool has_seed;
    int64_t seed;
    bool ignore_eos;
    struct bias_field *biases; /* owned */
    int n_biases;
};

struct stop_fields {
    char *texts[REQUEST_MAX_STOPS]; /* owned; may hold NUL bytes */
    size_t lengths[REQUEST_MAX_STOPS];
    int n_stops;
};

struct stream_fields {
    bool stream, include_usage;
};

/* How urgent it is, and how long it may take. */
struct queue_fields {
    int priority; /* 0 to 9, larger ones leave the queue first; 5 */
    uint32_t max_wait_ms; /* in the queue; 0: any time */
    uint32_t timeout_ms; /* in all; 0: any time */
};

/* Each sets defaults, then reads the object's fields. After false what was read so far is still to be cleared. */
bool sampling_fields_read(struct sampling_fields *fields, const json_t *object, const struct request_limits *limits,
                          struct api_error *error);
void sampling_fields_clear(struct sampling_fields *fields);

bool stop_fields_read(struct stop_fields *fields, const json_t *object, struct api_error *error);
void stop_fields_clear(struct stop_fields *fields);

bool stream_fields_read(struct stream_fields *fields, const json_t *object, struct api_error *error);

bool queue_fields_read(struct queue_fields *fields, const json_t *object, struct api_error *error);

/* An UNSUPPORTED_PARAMETER error when the field is there and not null. */
bool request_refuse_field(const json_t *object, const char *name, const char *why, struct api_error *error);

/* The same, but the field may be one of these strings. */
struct usual_field {
    const char *name, *values[2]; /* the second may be NULL */
    const char *why;
};
bool request_refuse_unusual(const json_t *object, const struct usual_field *field, struct api_error *error);

#endif
