/* What the text of an answer must match, from a request: "grammar" (npud's own), "response_format" (OpenAI's
 * completions and chat) or "text.format" (OpenAI's responses). Sources: OpenAI's API reference; the shape of "grammar"
 * is that of Hugging Face's text-generation-inference. Thread: any. */
#ifndef PROTO_GRAMMAR_FIELDS_H
#define PROTO_GRAMMAR_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "proto/api_error.h"
#include "proto/text_library.h"

struct grammar_fields {
    bool is_given; /* else any text will do */
    bool is_own; /* it comes from "grammar" */
    enum text_grammar_kind kind;
    char *text; /* owned; NULL for TEXT_GRAMMAR_JSON_OBJECT */
    size_t length;
    char path[64]; /* of the field that an error about the grammar names */
};

/* Sets defaults, then reads the object's grammar and response_format. After false there is still to be cleared. */
bool grammar_fields_read(struct grammar_fields *fields, const json_t *object, struct api_error *error);

/* Sets defaults, then reads the text.format of a /v1/responses request: {"type": "text"}, {"type": "json_object"} or
 * {"type": "json_schema", "name", "schema"}. format: NULL or JSON null is text. path: the format's, for errors. */
bool grammar_fields_read_format(struct grammar_fields *fields, const json_t *format, const char *path,
                                struct api_error *error);

void grammar_fields_clear(struct grammar_fields *fields);

/* Sets defaults, then makes the answer a turn of a chat, see TEXT_GRAMMAR_TURN; NULL: there was no memory for it. path:
 * the field that errors name. */
bool grammar_fields_set_turn(struct grammar_fields *fields, const json_t *turn, const char *path,
                             struct api_error *error);

/* A text that is cut at a stop string would not match: refuses "stop" beside a grammar. */
bool grammar_fields_refuse_stop(const struct grammar_fields *fields, int n_stops, struct api_error *error);

#endif
