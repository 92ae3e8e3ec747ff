/* Tools for models whose templates know none: they are explained in the system message, calls and their results become
 * text. Thread: any. */
#ifndef PROTO_TOOL_EXPLAIN_H
#define PROTO_TOOL_EXPLAIN_H

#include <jansson.h>
#include <stdbool.h>

/* A new array of messages without tool_calls and without the role tool. tools may be NULL. takes_system: the template
 * knows the role; else the first message gets the explanation. NULL when memory is out. */
json_t *tool_explain(const json_t *messages, const json_t *tools, bool takes_system);

#endif
