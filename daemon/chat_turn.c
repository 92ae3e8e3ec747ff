#include "daemon/chat_turn.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/chat_format.h"
#include "daemon/chat_prompt.h"
#include "daemon/choice.h"
#include "daemon/service_internal.h"

bool chat_turn_init(struct chat_turn *turn, struct choice *choice, const struct chat_turn_options *options)
{
    const struct chat_format *format = options->format;
    struct chat_parser_options parser = {.reasoning = CHAT_REASONING_NONE, .tools = CHAT_TOOL_STYLE_NONE};
    if (!options->is_raw) {
        parser.reasoning = chat_format_reasoning(format);
        parser.begins_in_reasoning =
            chat_format_begins_in_reasoning(format, options->prompt->text, options->prompt->length);
    }
    if (!options->is_raw && options->with_tools)
        parser.tools = chat_format_tools(format);
    if (options->is_constrained && parser.tools == CHAT_TOOL_STYLE_JSON)
        parser.tools = CHAT_TOOL_STYLE_HERMES;
    *turn = (struct chat_turn){.choice = choice, .options = *options};
    choice->keeps_output = true;
    choice->generation->shown_controls = chat_format_marks(format, &choice->generation->n_shown_controls);
    turn->parser = chat_parser_create(&parser);
    return turn->parser != NULL;
}

void chat_turn_clear(struct chat_turn *turn)
{
    for (int i = 0; i < turn->n_calls; i++) {
        free(turn->calls[i].name);
        free(turn->calls[i].arguments.text);
    }
    free(turn->calls);
    free(turn->content.text);
    free(turn->reasoning.text);
    chat_parser_destroy(turn->parser);
    *turn = (struct chat_turn){0};
}

static bool append(struct turn_text *text, const char *more, size_t length)
{
    size_t needed = text->length + length + 1;
    if (needed > text->capacity) {
        size_t capacity = text->capacity * 2 > needed ? text->capacity * 2 : needed + 64;
        char *grown = realloc(text->text, capacity);
        if (grown == NULL)
            return false;
        text->text = grown;
        text->capacity = capacity;
    }
    memcpy(text->text + text->length, more, length);
    text->length += length;
    text->text[text->length] = '\0';
    return true;
}

static bool add_call(struct chat_turn *turn, const char *name, size_t length)
{
    if (turn->n_calls == turn->calls_capacity) {
        int capacity = turn->calls_capacity * 2 + 4;
        struct chat_call *grown = realloc(turn->calls, (size_t)capacity * sizeof *grown);
        if (grown == NULL)
            return false;
        turn->calls = grown;
        turn->calls_capacity = capacity;
    }
    struct chat_call *call = &turn->calls[turn->n_calls];
    *call = (struct chat_call){.name = strndup(name, length)};
    service_set_id(call->id, sizeof call->id, "call_");
    if (call->name == NULL)
        return false;
    turn->n_calls++;
    return true;
}

struct reader {
    struct chat_turn *turn;
    chat_turn_consumer *consumer;
    void *context;
};

static bool keep(struct chat_turn *turn, enum chat_piece_kind kind, const char *text, size_t length)
{
    switch (kind) {
    case CHAT_PIECE_REASONING:
        return append(&turn->reasoning, text, length);
    case CHAT_PIECE_CONTENT:
        return append(&turn->content, text, length);
    default:
        return append(&turn->calls[turn->n_calls - 1].arguments, text, length);
    }
}

static bool on_piece(void *context, enum chat_piece_kind kind, const char *text, size_t length)
{
    const struct reader *reader = context;
    struct chat_turn *turn = reader->turn;
    if (kind == CHAT_PIECE_TOOL) {
        turn->skips = turn->n_calls > 0 && !turn->options.parallel;
        if (!turn->skips && !add_call(turn, text, length))
            return false;
    }
    if (turn->skips && (kind == CHAT_PIECE_TOOL || kind == CHAT_PIECE_ARGUMENTS))
        return true;
    if (turn->options.keeps_text && kind != CHAT_PIECE_TOOL && !keep(turn, kind, text, length))
        return false;
    return reader->consumer == NULL || reader->consumer(reader->context, kind, text, length);
}

bool chat_turn_read(struct chat_turn *turn, chat_turn_consumer *consumer, void *context)
{
    const struct choice *choice = turn->choice;
    struct reader reader = {turn, consumer, context};
    size_t from = turn->n_read;
    turn->n_read = choice->text_length;
    if (from < choice->text_length &&
        !chat_parser_push(turn->parser, choice->text + from, choice->text_length - from, on_piece, &reader))
        return false;
    return !choice->finished || chat_parser_finish(turn->parser, on_piece, &reader);
}

int32_t chat_turn_reasoning_tokens(const struct chat_turn *turn)
{
    size_t thought = chat_parser_thought_bytes(turn->parser);
    int32_t n = 0;
    while (n < turn->choice->n_output && turn->choice->output[n].end <= thought)
        n++;
    return thought > 0 ? n : 0;
}

const char *chat_turn_finish_reason(const struct chat_turn *turn)
{
    const char *reason = choice_finish_reason(turn->choice);
    return reason != NULL && turn->choice->reason == FINISH_STOP && turn->n_calls > 0 ? "tool_calls" : reason;
}
