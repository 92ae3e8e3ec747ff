/* What a model writes, taken apart as it comes: thinking, content, tool calls. Text that may be the start of a mark is
 * held back until it is known. Thread: any; a parser belongs to one. */
#ifndef PROTO_CHAT_PARSER_H
#define PROTO_CHAT_PARSER_H

#include <stdbool.h>
#include <stddef.h>

/* How a model thinks aloud, if it does. */
enum chat_reasoning {
    CHAT_REASONING_NONE,
    CHAT_REASONING_THINK, /* <think> ... </think> */
    CHAT_REASONING_CHANNEL, /* <|channel>thought ... <channel|> (Gemma 4) */
};

/* How a model calls tools. Where calls are JSON, several may also come as a list, or one behind the other. */
enum chat_tool_style {
    CHAT_TOOL_STYLE_NONE, /* nothing is taken for a call */
    CHAT_TOOL_STYLE_HERMES, /* <tool_call>{"name": ..., "arguments": {...}}</tool_call> (Qwen, Hermes, many others) */
    CHAT_TOOL_STYLE_LLAMA, /* {"name": ..., "parameters": {...}} instead of content, or <|python_tag|> before it */
    CHAT_TOOL_STYLE_GEMMA, /* <|tool_call>call:name{...}<tool_call|> (Gemma 4) */
    /* As Hermes, or without marks instead of content, perhaps in a ``` block (Gemma 3, and whatever model knows no tools
     * but is told of them). */
    CHAT_TOOL_STYLE_JSON,
};

/* The texts around thinking; both empty for NONE. */
void chat_reasoning_marks(enum chat_reasoning reasoning, const char **ret_open, const char **ret_close);

struct chat_parser_options {
    enum chat_reasoning reasoning;
    enum chat_tool_style tools;
    bool begins_in_reasoning; /* the prompt has opened it */
};

enum chat_piece_kind {
    CHAT_PIECE_REASONING,
    CHAT_PIECE_CONTENT,
    CHAT_PIECE_TOOL, /* another call: the text is the function's name */
    CHAT_PIECE_ARGUMENTS, /* of that call: more JSON */
};

/* False: give up (memory is out). */
typedef bool chat_piece_consumer(void *context, enum chat_piece_kind kind, const char *text, size_t length);

struct chat_parser;

/* NULL when memory is out. */
struct chat_parser *chat_parser_create(const struct chat_parser_options *options);
void chat_parser_destroy(struct chat_parser *parser); /* NULL is fine */

/* Takes text of any length (UTF-8; pieces are cut anywhere between characters that text had). False: the consumer gave
 * up, or memory is out. */
bool chat_parser_push(struct chat_parser *parser, const char *text, size_t length, chat_piece_consumer *consumer,
                      void *context);
/* The text has ended: what was held back comes. */
bool chat_parser_finish(struct chat_parser *parser, chat_piece_consumer *consumer, void *context);

/* How many bytes of the text so far, from its start, are thinking with its marks. */
size_t chat_parser_thought_bytes(const struct chat_parser *parser);

#endif
