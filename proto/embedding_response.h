/* POST /v1/embeddings: the answer, as OpenAI's. Thread: any. */
#ifndef PROTO_EMBEDDING_RESPONSE_H
#define PROTO_EMBEDDING_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct embedding_response {
    const char *model;
    const float *const *embeddings; /* n vectors of `dimensions` finite floats, in the order of the inputs */
    int n, dimensions;
    bool base64; /* of the floats' bytes, little-endian; else arrays of numbers that read back as the same floats */
    int64_t prompt_tokens;
};

/* malloc'ed and NUL-terminated; NULL when memory is out. */
char *embedding_response_json(const struct embedding_response *response, size_t *ret_length);

#endif
