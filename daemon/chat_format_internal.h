/* What the files of chat formats share. Not for others. */
#ifndef DAEMON_CHAT_FORMAT_INTERNAL_H
#define DAEMON_CHAT_FORMAT_INTERNAL_H

#include "daemon/chat_format.h"

struct text_template;

struct chat_format {
    const struct tokenizer *tokenizer;
    struct text_template *template; /* NULL: problem says why */
    char problem[700];
    json_t *special_tokens; /* bos_token and so on */
    int32_t bos; /* put first unless it is there; -1: none */
    bool takes_strings, takes_parts, takes_system, knows_developer, knows_thinking;
    bool needs_content; /* also where there are tool calls */
    bool explains_tools; /* npud writes them into the messages itself */
    enum chat_reasoning reasoning;
    enum chat_tool_style tools;
    int32_t marks[16];
    int n_marks;
};

/* chat_format_explore.c: tries what the compiled template, whose source this is, can do; the special tokens must be
 * there. */
void chat_format_explore(struct chat_format *format, const char *source);

/* Variables that tell a template whether to think and how much, in each of the ways that there are. False: memory is
 * out. */
bool chat_format_add_thinking(json_t *variables, const char *effort);

#endif
