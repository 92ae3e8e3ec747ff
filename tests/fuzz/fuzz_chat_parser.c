/* Any text as what a model writes, in every style: taken apart in the same way whether it comes whole or in pieces,
 * names come before arguments, and nothing of what is neither thinking nor a call is lost. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/chat_parser.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

/* What came: each kind's text behind a byte that says which, unless it goes on. */
struct record {
    char *text;
    size_t n, capacity;
    int last;
    int n_calls;
};

static void put(struct record *record, const char *text, size_t length)
{
    if (record->n + length > record->capacity) {
        record->capacity = 2 * (record->n + length);
        record->text = realloc(record->text, record->capacity);
        require(record->text != NULL);
    }
    memcpy(record->text + record->n, text, length);
    record->n += length;
}

static bool on_piece(void *context, enum chat_piece_kind kind, const char *text, size_t length)
{
    struct record *record = context;
    require(length > 0 || kind == CHAT_PIECE_TOOL);
    record->n_calls += kind == CHAT_PIECE_TOOL;
    require(kind != CHAT_PIECE_ARGUMENTS ||
            (record->n_calls > 0 && (record->last == CHAT_PIECE_TOOL || record->last == CHAT_PIECE_ARGUMENTS)));
    char byte = (char)kind;
    if (record->last != (int)kind || kind == CHAT_PIECE_TOOL)
        put(record, &byte, 1);
    record->last = (int)kind;
    put(record, text, length);
    return true;
}

static void parse(struct record *record, const struct chat_parser_options *options, const char *text, size_t length,
                  size_t step)
{
    struct chat_parser *parser = chat_parser_create(options);
    require(parser != NULL);
    *record = (struct record){.last = -1};
    for (size_t at = 0; at < length; at += step)
        require(chat_parser_push(parser, text + at, step < length - at ? step : length - at, on_piece, record));
    require(chat_parser_finish(parser, on_piece, record));
    require(chat_parser_finish(parser, on_piece, record));
    chat_parser_destroy(parser);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    struct chat_parser_options options = {
        .reasoning = data[0] % 3, .tools = data[0] / 3 % 5, .begins_in_reasoning = data[0] / 15 % 2};
    /* Half of the inputs begin where the interesting part does. */
    static const char *const leads[] = {
        "", "<tool_call>{\"name\":\"f\",\"arguments\":", "{\"name\":\"f\",\"parameters\":", "<|tool_call>call:f{",
        "```json\n[{\"name\":\"f\","};
    const char *lead = data[1] & 8 ? leads[options.tools] : "";
    size_t length = strlen(lead) + size - 2;
    char *text = malloc(length + 1);
    require(text != NULL);
    memcpy(text, lead, strlen(lead));
    memcpy(text + strlen(lead), data + 2, size - 2);
    struct record whole, pieces;
    parse(&whole, &options, text, length, length + 1);
    parse(&pieces, &options, text, length, 1 + data[1] % 8);
    require(whole.n == pieces.n && (whole.n == 0 || memcmp(whole.text, pieces.text, whole.n) == 0));
    if (options.tools == CHAT_TOOL_STYLE_NONE && options.reasoning == CHAT_REASONING_NONE)
        require(whole.n == length + (length > 0) && (length == 0 || memcmp(whole.text + 1, text, length) == 0));
    free(whole.text);
    free(pieces.text);
    free(text);
    return 0;
}
