/* Items of POST /v1/responses: what a client gives as input, as messages of a chat. Source: OpenAI's API reference.
 * Every error has the path of what is wrong. Thread: any. */
#ifndef PROTO_RESPONSES_ITEMS_H
#define PROTO_RESPONSES_ITEMS_H

#include <jansson.h>
#include <stdbool.h>

#include "proto/api_error.h"

/* The id of the item that this one stands for; NULL: it stands for itself. */
const char *responses_item_reference(const json_t *item);

/* Adds to messages, an array as chat_messages_read gives them, what the items (an array; no references) say. What an
 * assistant thought, said and called goes into one message; a call's output must answer a call that is in messages.
 * Null fields and unknown ones are left out. field: "input". After false some may have been added. */
bool responses_items_add(json_t *messages, const json_t *items, const char *field, struct api_error *error);

#endif
