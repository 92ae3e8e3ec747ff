/* POST /v1/embeddings: the request. Source: OpenAI's API reference, plus pooling, priority, max_wait_ms and timeout_ms.
 * Unknown fields are ignored, null means the default. Thread: any. */
#ifndef PROTO_EMBEDDING_REQUEST_H
#define PROTO_EMBEDDING_REQUEST_H

#include "proto/prompt_fields.h"
#include "proto/request_fields.h"

enum {
    EMBEDDING_MAX_INPUTS = 2048,
};

enum pooling_field {
    POOLING_FIELD_MODEL, /* absent: as the model was made for */
    POOLING_FIELD_MEAN,
    POOLING_FIELD_LAST,
};

struct embedding_limits {
    struct request_limits tokens;
    int32_t dimensions; /* of the model's embeddings */
};

struct embedding_request {
    struct prompt_field *inputs; /* owned; texts are not empty */
    int n_inputs;
    bool input_is_list;
    bool base64; /* else arrays of numbers */
    enum pooling_field pooling;
    struct queue_fields queue;
};

extern const struct prompt_form embedding_input_form;

/* On failure nothing is left to clear. */
bool embedding_request_decode(struct embedding_request *request, const char *body, size_t length,
                              const struct embedding_limits *limits, struct api_error *error);
void embedding_request_clear(struct embedding_request *request);

#endif
