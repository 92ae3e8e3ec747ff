/* The inside of a tool call as models write it, read as it comes: first the function's name, then its arguments as
 * JSON, a piece with each push. Thread: any; a body belongs to one. */
#ifndef PROTO_TOOL_BODY_H
#define PROTO_TOOL_BODY_H

#include <stdbool.h>
#include <stddef.h>

enum tool_body_syntax {
    TOOL_BODY_JSON, /* {"name": "f", "arguments": {...}}, or with "parameters"; other members are skipped */
    TOOL_BODY_GEMMA, /* call:f{key:<|"|>text<|"|>,other:1}; bare words that are no JSON are strings */
};

enum tool_body_event {
    TOOL_BODY_NAME, /* the text is the name */
    TOOL_BODY_ARGUMENTS, /* the text is more JSON */
};

enum tool_body_result {
    TOOL_BODY_MORE, /* goes on */
    TOOL_BODY_DONE,
    TOOL_BODY_WRONG, /* it is no such body, and nothing was told of it */
    TOOL_BODY_BROKEN, /* it turned wrong after its name was told */
};

/* False: give up (memory is out). */
typedef bool tool_body_consumer(void *context, enum tool_body_event event, const char *text, size_t length);

/* Opaque but for allocation. */
struct tool_body {
    enum tool_body_syntax syntax;
    bool needs_arguments; /* else a body may have a name only */
    int state;
    int depth; /* of brackets inside the arguments */
    bool in_string, escaped;
    /* Gemma's. */
    bool in_json_string, key_expected, is_long_word;
    char word[64]; /* what has come of a bare one */
    size_t n_word;
    unsigned char brackets[64];
};

void tool_body_init(struct tool_body *body, enum tool_body_syntax syntax, bool needs_arguments);

/* Takes what it can of the bytes that have come since what it took before, and says in *ret_used how much that was;
 * more bytes are to be added to the rest. At TOOL_BODY_DONE what is left comes after the body. False: the consumer gave
 * up. */
bool tool_body_push(struct tool_body *body, const char *bytes, size_t length, tool_body_consumer *consumer,
                    void *context, size_t *ret_used, enum tool_body_result *ret_result);

#endif
