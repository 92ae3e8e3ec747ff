/* What the syntaxes of tool calls share. Not for others. */
#ifndef PROTO_TOOL_BODY_INTERNAL_H
#define PROTO_TOOL_BODY_INTERNAL_H

#include "proto/tool_body.h"

enum tool_body_state {
    TOOL_BODY_HEAD,
    TOOL_BODY_IN_ARGUMENTS,
    TOOL_BODY_REST, /* what comes behind the arguments */
};

/* Of one push: arguments are gathered, so that a push tells one piece of them. */
struct tool_body_output {
    tool_body_consumer *consumer;
    void *context;
    char *text; /* owned */
    size_t length, capacity;
    bool ok; /* false: the consumer gave up, or memory is out */
};

void tool_body_tell_name(struct tool_body_output *output, const char *name, size_t length);
void tool_body_tell(struct tool_body_output *output, const char *text, size_t length);

size_t tool_body_push_gemma(struct tool_body *body, const char *bytes, size_t length, struct tool_body_output *output,
                            enum tool_body_result *result);

#endif
