/* What a request tells the chat template besides messages and tools, whatever its endpoint. Thread: any. */
#ifndef PROTO_TEMPLATE_FIELDS_H
#define PROTO_TEMPLATE_FIELDS_H

#include <jansson.h>
#include <stdbool.h>

#include "proto/api_error.h"

struct template_fields {
    json_t *variables; /* owned: chat_template_kwargs, or NULL */
    char *reasoning_effort; /* owned: none, minimal, low, medium, high or xhigh; or NULL */
};

/* Reads chat_template_kwargs. After false, too, fields are to be cleared. */
bool template_fields_read(struct template_fields *fields, const json_t *object, struct api_error *error);
/* effort may be NULL or null; path: where it stands. */
bool template_fields_set_effort(struct template_fields *fields, const json_t *effort, const char *path,
                                struct api_error *error);
void template_fields_clear(struct template_fields *fields);

#endif
