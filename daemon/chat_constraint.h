/* What an answer of a chat must match, as one grammar in the words of the model's template: thinking, content of a
 * form, calls with arguments that match their schemas. Thread: any. */
#ifndef DAEMON_CHAT_CONSTRAINT_H
#define DAEMON_CHAT_CONSTRAINT_H

#include <stdbool.h>

#include "proto/api_error.h"

struct chat_format;
struct chat_prompt;
struct grammar_fields;
struct tool_fields;

/* Turns grammar, as the request gave it for the content, into one for the whole answer:
 * - where a call is demanded, calls alone;
 * - where content has a form (response_format), that, or calls of the tools that are offered;
 * - where neither but a tool is strict, any text, and calls.
 * Thinking may come first. npud's own field "grammar" stays as it is, for all of the text, and is refused where a call
 * is demanded. tools_path: the field that errors about tools name. */
bool chat_constraint_set(struct grammar_fields *grammar, const struct chat_format *format,
                         const struct chat_prompt *prompt, const struct tool_fields *tools, const char *tools_path,
                         struct api_error *error);

/* The grammar is for all of the text, which is not to be taken apart. */
bool chat_constraint_is_raw(const struct grammar_fields *grammar);

#endif
