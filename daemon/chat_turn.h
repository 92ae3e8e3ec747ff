/* The assistant's turn in a chat, as it is generated: text is taken apart into thinking, content and tool calls,
 * whatever the endpoint makes of them. Thread: the loop's, once begun. */
#ifndef DAEMON_CHAT_TURN_H
#define DAEMON_CHAT_TURN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/chat_parser.h"

struct chat_format;
struct chat_prompt;
struct choice;

/* Text that grows. */
struct turn_text {
    char *text; /* owned; NUL-terminated, NULL while it is empty */
    size_t length, capacity;
};

struct chat_call {
    char id[32]; /* "call_..." */
    char *name; /* owned */
    struct turn_text arguments; /* JSON; empty unless the turn keeps its text */
};

struct chat_turn_options {
    const struct chat_format *format;
    const struct chat_prompt *prompt;
    bool with_tools; /* what looks like a call is one */
    bool parallel; /* calls after the first count */
    bool keeps_text; /* content, reasoning and arguments are collected */
    bool is_raw; /* a grammar says what all of the text is: it is content */
    bool is_constrained; /* by a grammar, in which every call has its marks */
};

struct chat_turn {
    struct choice *choice; /* borrowed: whose text it reads */
    struct chat_turn_options options;
    struct chat_parser *parser; /* owned */
    size_t n_read; /* bytes of the choice's text */
    struct turn_text content, reasoning;
    struct chat_call *calls; /* owned */
    int n_calls, calls_capacity;
    bool skips; /* a call that does not count is being read */
};

/* What has come. Text and arguments are UTF-8 without half characters, never empty; CHAT_PIECE_TOOL begins
 * calls[n_calls - 1], CHAT_PIECE_ARGUMENTS goes on with it. False: give up (memory is out). */
typedef bool chat_turn_consumer(void *context, enum chat_piece_kind kind, const char *text, size_t length);

/* The choice's generation must not have begun: its control tokens that mean something here will have their text. False:
 * memory is out; the turn is to be cleared all the same. Thread: any. */
bool chat_turn_init(struct chat_turn *turn, struct choice *choice, const struct chat_turn_options *options);
void chat_turn_clear(struct chat_turn *turn);

/* Reads what the choice has got since; all of it when the choice has finished. consumer may be NULL. False: the
 * consumer gave up, or memory is out. */
bool chat_turn_read(struct chat_turn *turn, chat_turn_consumer *consumer, void *context);

/* Of the choice's tokens, those that were thinking. Once all is read. */
int32_t chat_turn_reasoning_tokens(const struct chat_turn *turn);

/* "stop", "length" or "tool_calls"; NULL while it goes on. */
const char *chat_turn_finish_reason(const struct chat_turn *turn);

#endif
