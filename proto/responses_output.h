/* POST /v1/responses: what a model writes becomes output items, and the events of a stream, in OpenAI's order and
 * shape. Sources: OpenAI's API reference and the types of its Python package; thinking comes as "reasoning_text", and
 * "timings" is npud's own. Thread: any; an output belongs to one. */
#ifndef PROTO_RESPONSES_OUTPUT_H
#define PROTO_RESPONSES_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "proto/api_error.h"
#include "proto/chat_parser.h"
#include "proto/completion_response.h"

/* Takes the frame of an event, malloc'ed; NULL: there was no memory for it. False: give up. */
typedef bool responses_consumer(void *context, char *frame, size_t length);

struct responses_output_options {
    const struct response_head *head; /* borrowed for the call; id is "resp_..." */
    const json_t *echo; /* borrowed: as responses_request has it */
    responses_consumer *consumer; /* NULL: no events */
    void *context;
};

struct responses_output;

/* NULL when memory is out. */
struct responses_output *responses_output_create(const struct responses_output_options *options);
void responses_output_destroy(struct responses_output *output); /* NULL is fine */

/* The first events. These and the next: false when the consumer gave up or memory is out. */
bool responses_output_begin(struct responses_output *output);

/* A piece of what the model writes, as chat_turn tells it. call_id: of a call that begins. */
bool responses_output_add(struct responses_output *output, enum chat_piece_kind kind, const char *text, size_t length,
                          const char *call_id);

struct responses_end {
    bool incomplete; /* max_output_tokens, or the end of the context */
    const struct response_usage *usage;
    int64_t reasoning_tokens; /* of the completion's */
    const struct response_timings *timings;
    int64_t completed_at; /* seconds since 1970 */
};

/* All has come: the last events. */
bool responses_output_end(struct responses_output *output, const struct responses_end *end);

/* Once ended: the whole response as JSON, malloc'ed; NULL: memory is out. */
char *responses_output_json(const struct responses_output *output, size_t *ret_length);
/* Once ended: the items; borrowed. */
const json_t *responses_output_items(const struct responses_output *output);

/* Instead of an end: the frame of response.failed. */
char *responses_output_fail(struct responses_output *output, const struct api_error *error, size_t *ret_length);

/* {"id", "object": "response", "deleted": true} */
char *responses_deleted_json(const char *id, size_t *ret_length);

#endif
