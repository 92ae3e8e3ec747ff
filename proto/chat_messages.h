/* Messages of a chat, from a client's JSON to the JSON that chat templates take. Every error has the path of what is
 * wrong. Thread: any. */
#ifndef PROTO_CHAT_MESSAGES_H
#define PROTO_CHAT_MESSAGES_H

#include <jansson.h>
#include <stdbool.h>

#include "proto/api_error.h"

enum {
    CHAT_MAX_ARGUMENTS_BYTES = 4 << 20, /* of all tool calls of a request: they are JSON inside JSON */
};

/* *ret_messages: a new array of objects with role, content (a string or an array of text parts), name, tool_calls (with
 * arguments as objects where they are some), tool_call_id and reasoning_content, as far as the client gave them. Null
 * fields and unknown ones are left out. field: "messages". */
bool chat_messages_read(json_t **ret_messages, const json_t *object, const char *field, struct api_error *error);

/* For endpoints that write messages in another way. */

/* Sets message's content from a string or an array of parts, which stands at path. */
bool chat_content_read(json_t *message, json_t *content, const char *path, struct api_error *error);
/* Adds to message's tool_calls from an object with name and arguments (a string), which stands at path. id may be NULL.
 * arguments_bytes: what the calls before have, 0 at first. */
bool chat_call_read(json_t *message, json_t *id, const json_t *function, const char *path, size_t *arguments_bytes,
                    struct api_error *error);

#endif
