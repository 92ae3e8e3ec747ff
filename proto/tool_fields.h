/* Tools in a request, whatever its endpoint: what functions there are, and whether the model must call one. Every error
 * has the path of what is wrong. Thread: any. */
#ifndef PROTO_TOOL_FIELDS_H
#define PROTO_TOOL_FIELDS_H

#include <jansson.h>
#include <stdbool.h>

#include "proto/api_error.h"

enum {
    TOOLS_MAX = 128,
    TOOL_MAX_NAME_BYTES = 64,
};

enum tool_choice {
    TOOL_CHOICE_AUTO,
    TOOL_CHOICE_NONE,
    TOOL_CHOICE_REQUIRED, /* one of them, or several */
    TOOL_CHOICE_NAMED, /* that of this name */
};

struct tool_fields {
    json_t *tools; /* owned: an array as tools_add makes it; NULL: none */
    enum tool_choice choice; /* NONE when there are no tools */
    char *name; /* owned: of TOOL_CHOICE_NAMED, one of the tools */
    bool parallel; /* several calls in one answer; true */
};

/* Reads tools, tool_choice and parallel_tool_calls as chat completions have them. After false, too, fields are to be
 * cleared. */
bool tool_fields_read(struct tool_fields *fields, const json_t *object, struct api_error *error);
void tool_fields_clear(struct tool_fields *fields);

/* The tools that the model is told of; NULL: none. */
json_t *tool_fields_offered(const struct tool_fields *fields);
/* The answer must be a call. */
bool tool_fields_demand_call(const struct tool_fields *fields);

/* Calls that are demanded must not be cut: refuses "stop" beside them. */
bool tool_fields_refuse_stop(const struct tool_fields *fields, int n_stops, struct api_error *error);

/* For endpoints that write tools in another way. */

/* Adds {"type": "function", "function": {name, description, parameters}, "strict": bool} to tools (an array) from an
 * object with these members, which stands at path. Names must be new. */
bool tools_add(json_t *tools, const json_t *function, const char *path, struct api_error *error);
/* Sets fields->choice and name; path: of name. */
bool tool_choice_set_name(struct tool_fields *fields, const json_t *name, const char *path, struct api_error *error);
/* A word: auto, none or required. path: of choice. */
bool tool_choice_set_word(struct tool_fields *fields, const json_t *choice, const char *path, struct api_error *error);

#endif
