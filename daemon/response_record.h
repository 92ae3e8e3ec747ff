/* A stored response as bytes: what GET gives, and what a response that continues it needs. The same in memory and in
 * the state folder, where nothing is believed: checksums, lengths and tokens are checked when it is read.
 *
 * Numbers are in the byte order of the machine; a record of the other order does not have the magic number. Pure; any
 * thread. */
#ifndef DAEMON_RESPONSE_RECORD_H
#define DAEMON_RESPONSE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "npu/error.h"

enum {
    RESPONSE_ID_DIGITS = 32, /* hexadecimal ones, behind "resp_" */
    RESPONSE_ID_BYTES = 40, /* with NUL and room */
};

/* When it was made (microseconds since 1970) and a random number: the order of ids is that of time. */
struct response_id {
    int64_t created_us;
    uint64_t random;
};

struct response_id response_id_create(void);
void response_id_format(char text[RESPONSE_ID_BYTES], const struct response_id *id);
/* Also takes the id of one of its output items ("msg_", "rs_" or "fc_"). False: it is none. */
bool response_id_parse(struct response_id *id, const char *text);
bool response_id_equal(const struct response_id *a, const struct response_id *b);

struct response_text {
    const char *text; /* not NUL-terminated */
    size_t length;
};

struct response_record {
    struct response_id id;
    struct response_text response; /* JSON: the response as GET gives it */
    struct response_text input; /* JSON: the array of items that was its input */
    struct response_text
        messages; /* JSON: the whole conversation with the answer, as chat_messages_read has them; without
                                      instructions */
    /* The conversation as the model has read and written it: what chat_history takes. */
    struct response_text history;
    const int32_t *tokens;
    uint32_t n_tokens;
    uint64_t model; /* of the model file whose tokens these are */
};

/* malloc'ed; NULL: no memory, or more than a record may have. */
void *response_record_encode(const struct response_record *record, size_t *ret_bytes);

/* The record points into bytes, which must be aligned as malloc'ed ones are. NPU_ERROR_INPUT says what is wrong. */
enum npu_status response_record_decode(struct response_record *record, const void *bytes, size_t n,
                                       struct npu_error *error);

#endif
