#include "proto/chat_parser.h"

#include <stdlib.h>
#include <string.h>

#include "proto/tool_body.h"

enum {
    MAX_OPENING_BYTES = 64,
};

enum section {
    SECTION_LEAD, /* nothing but space has come since the start or since the thinking */
    SECTION_REASONING,
    SECTION_CONTENT,
    SECTION_CALL, /* inside a call */
    SECTION_AFTER_CALL, /* between a call and its closing mark, or the next one */
};

struct marks {
    const char *open, *close;
};

static const struct marks reasoning_marks[] = {
    [CHAT_REASONING_NONE] = {"", ""},
    [CHAT_REASONING_THINK] = {"<think>", "</think>"},
    [CHAT_REASONING_CHANNEL] = {"<|channel>thought", "<channel|>"},
};

struct style {
    struct marks marks;
    enum tool_body_syntax syntax;
    bool unmarked; /* a call may stand instead of content without marks */
    bool fenced; /* and then in a ``` block */
};

static const struct style styles[] = {
    [CHAT_TOOL_STYLE_NONE] = {{"", ""}, TOOL_BODY_JSON, false, false},
    [CHAT_TOOL_STYLE_HERMES] = {{"<tool_call>", "</tool_call>"}, TOOL_BODY_JSON, false, false},
    [CHAT_TOOL_STYLE_LLAMA] = {{"<|python_tag|>", ""}, TOOL_BODY_JSON, true, false},
    [CHAT_TOOL_STYLE_GEMMA] = {{"<|tool_call>", "<tool_call|>"}, TOOL_BODY_GEMMA, false, false},
    [CHAT_TOOL_STYLE_JSON] = {{"<tool_call>", "</tool_call>"}, TOOL_BODY_JSON, true, true},
};

static const char fence[] = "```";

struct chat_parser {
    enum chat_reasoning reasoning;
    const struct style *style;
    enum section section;
    size_t n_pushed, n_thought; /* bytes in all; up to the end of the thinking */
    char *held; /* text that is not decided */
    size_t n_held, capacity;
    struct tool_body body;
    char opening[MAX_OPENING_BYTES]; /* of the call, as it was written, in case it is none */
    size_t n_opening;
    bool call_told, call_is_marked;
    bool thought, called; /* some has come */
    bool began; /* something of this piece of content or reasoning has been told */
    /* Of the call that is running. */
    chat_piece_consumer *consumer;
    void *context;
};

void chat_reasoning_marks(enum chat_reasoning reasoning, const char **ret_open, const char **ret_close)
{
    *ret_open = reasoning_marks[reasoning].open;
    *ret_close = reasoning_marks[reasoning].close;
}

struct chat_parser *chat_parser_create(const struct chat_parser_options *options)
{
    struct chat_parser *parser = calloc(1, sizeof *parser);
    if (parser == NULL)
        return NULL;
    parser->reasoning = options->reasoning;
    parser->style = &styles[options->tools];
    if (options->reasoning == CHAT_REASONING_NONE && options->tools == CHAT_TOOL_STYLE_NONE)
        parser->section = SECTION_CONTENT;
    else if (options->begins_in_reasoning && options->reasoning != CHAT_REASONING_NONE)
        parser->section = SECTION_REASONING;
    return parser;
}

void chat_parser_destroy(struct chat_parser *parser)
{
    if (parser == NULL)
        return;
    free(parser->held);
    free(parser);
}

/* ---- text ---- */

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static size_t leading_space(const char *text, size_t length)
{
    size_t n = 0;
    while (n < length && is_space(text[n]))
        n++;
    return n;
}

static size_t trailing_space(const char *text, size_t length)
{
    size_t n = 0;
    while (n < length && is_space(text[length - 1 - n]))
        n++;
    return n;
}

/* Where mark, or the start of it at the end of text, begins; length: nowhere. */
static size_t find_mark(const char *text, size_t length, const char *mark, bool *ret_whole)
{
    size_t mark_length = strlen(mark);
    *ret_whole = false;
    for (size_t at = 0; mark_length > 0 && at < length; at++) {
        const char *first = memchr(text + at, mark[0], length - at);
        if (first == NULL)
            break;
        at = (size_t)(first - text);
        size_t n = length - at < mark_length ? length - at : mark_length;
        if (memcmp(text + at, mark, n) != 0)
            continue;
        *ret_whole = n == mark_length;
        return at;
    }
    return length;
}

/* *ret_perhaps: more text is needed to know. */
static bool starts_with(const char *text, size_t length, const char *mark, bool *ret_perhaps)
{
    size_t mark_length = strlen(mark), n = length < mark_length ? length : mark_length;
    bool same = mark_length > 0 && memcmp(text, mark, n) == 0;
    *ret_perhaps = same && n < mark_length;
    return same && n == mark_length;
}

static void drop(struct chat_parser *parser, size_t n)
{
    parser->n_held -= n;
    memmove(parser->held, parser->held + n, parser->n_held);
}

static bool tell(struct chat_parser *parser, enum chat_piece_kind kind, const char *text, size_t length)
{
    return length == 0 || parser->consumer(parser->context, kind, text, length);
}

static void enter(struct chat_parser *parser, enum section section, bool begins)
{
    parser->section = section;
    parser->began = !begins;
}

/* Tells the first n held bytes. Space at their end is kept until it is known what follows; at the end of the section it
 * is dropped, as it is at the start of one. */
static bool tell_trimmed(struct chat_parser *parser, enum chat_piece_kind kind, size_t n, bool ends)
{
    size_t start = parser->began ? 0 : leading_space(parser->held, n);
    size_t end = n - trailing_space(parser->held, n);
    if (start < end) {
        parser->began = true;
        if (!tell(parser, kind, parser->held + start, end - start))
            return false;
    } else {
        end = parser->began ? 0 : n;
    }
    drop(parser, ends ? n : end);
    return true;
}

/* ---- calls ---- */

/* The first n held bytes open a call. */
static void enter_call(struct chat_parser *parser, size_t n, bool marked)
{
    parser->section = SECTION_CALL;
    parser->call_told = false;
    parser->call_is_marked = marked;
    parser->n_opening = n;
    memcpy(parser->opening, parser->held, n);
    drop(parser, n);
    tool_body_init(&parser->body, parser->style->syntax, !marked);
}

/* It only looked like a call: it is content, as it was written. */
static bool give_call_back(struct chat_parser *parser)
{
    enter(parser, SECTION_CONTENT, false);
    return tell(parser, CHAT_PIECE_CONTENT, parser->opening, parser->n_opening);
}

static bool on_body(void *context, enum tool_body_event event, const char *text, size_t length)
{
    struct chat_parser *parser = context;
    if (event == TOOL_BODY_ARGUMENTS)
        return tell(parser, CHAT_PIECE_ARGUMENTS, text, length);
    parser->call_told = parser->called = true;
    return parser->consumer(parser->context, CHAT_PIECE_TOOL, text, length);
}

/* How many bytes at the start of text open a call without marks: the block's first line, and the bracket of a list; the
 * call's own brace is not counted. */
static bool opens_unmarked(const struct style *style, const char *text, size_t length, size_t *ret_n, bool *ret_perhaps)
{
    static const char *const labels[] = {"", "json", "tool_call", "tool_code"};
    size_t n = 0;
    bool is_fenced = style->fenced && starts_with(text, length, fence, ret_perhaps);
    if (*ret_perhaps)
        return false;
    if (is_fenced) {
        size_t label = sizeof fence - 1;
        const char *end = memchr(text + label, '\n', length - label);
        n = end != NULL ? (size_t)(end - text) : length;
        *ret_perhaps = end == NULL && n - label <= strlen("tool_call");
        bool known = false;
        for (size_t i = 0; i < sizeof labels / sizeof *labels; i++)
            known |= n - label == strlen(labels[i]) && memcmp(text + label, labels[i], n - label) == 0;
        if (end == NULL || !known)
            return false;
        n += leading_space(text + n, length - n);
        if (n == length || n >= MAX_OPENING_BYTES) {
            *ret_perhaps = n < MAX_OPENING_BYTES;
            return false;
        }
    }
    if (!style->unmarked || (text[n] != '{' && text[n] != '['))
        return false;
    *ret_n = n + (text[n] == '[');
    return true;
}

/* ---- sections: each takes of the held text what it can, and says whether another one goes on ---- */

static bool take_lead(struct chat_parser *parser, bool *ret_go_on)
{
    size_t space = leading_space(parser->held, parser->n_held), left = parser->n_held - space, n = 0;
    if (left == 0)
        return true;
    const char *text = parser->held + space, *mark = reasoning_marks[parser->reasoning].open;
    bool perhaps = false;
    if (!parser->thought && starts_with(text, left, mark, &perhaps)) {
        drop(parser, space + strlen(mark));
        enter(parser, SECTION_REASONING, true);
    } else if (!perhaps && opens_unmarked(parser->style, text, left, &n, &perhaps)) {
        drop(parser, space);
        enter_call(parser, n, false);
    } else if (perhaps) {
        return true;
    } else {
        enter(parser, SECTION_CONTENT, parser->thought);
    }
    *ret_go_on = true;
    return true;
}

static bool take_reasoning(struct chat_parser *parser, bool *ret_go_on)
{
    const char *mark = reasoning_marks[parser->reasoning].close;
    bool whole;
    size_t at = find_mark(parser->held, parser->n_held, mark, &whole);
    if (!tell_trimmed(parser, CHAT_PIECE_REASONING, at, whole))
        return false;
    if (!whole)
        return true;
    drop(parser, strlen(mark));
    parser->n_thought = parser->n_pushed - parser->n_held;
    parser->thought = true;
    enter(parser, SECTION_LEAD, true);
    *ret_go_on = true;
    return true;
}

static bool take_content(struct chat_parser *parser, bool *ret_go_on)
{
    const char *mark = parser->style->marks.open;
    bool whole;
    size_t at = find_mark(parser->held, parser->n_held, mark, &whole);
    if (mark[0] == '\0' && parser->reasoning == CHAT_REASONING_NONE) { /* nothing but content: as it is */
        bool ok = tell(parser, CHAT_PIECE_CONTENT, parser->held, at);
        parser->n_held = 0;
        return ok;
    }
    if (!tell_trimmed(parser, CHAT_PIECE_CONTENT, at, whole))
        return false;
    if (!whole)
        return true;
    enter_call(parser, strlen(mark), true);
    *ret_go_on = true;
    return true;
}

/* A bracket between a mark and the first call opens a list. */
static bool may_open_list(const struct chat_parser *parser)
{
    return parser->call_is_marked && parser->n_opening == strlen(parser->style->marks.open) &&
           parser->style->syntax == TOOL_BODY_JSON && !parser->call_told;
}

static bool take_call(struct chat_parser *parser, bool *ret_go_on)
{
    size_t space = leading_space(parser->held, parser->n_held), used;
    if (space == parser->n_held && !parser->call_told)
        return true;
    if (may_open_list(parser) && parser->held[space] == '[' && parser->n_opening + space < MAX_OPENING_BYTES) {
        memcpy(parser->opening + parser->n_opening, parser->held, space + 1);
        parser->n_opening += space + 1;
        drop(parser, space + 1);
        *ret_go_on = true;
        return true;
    }
    enum tool_body_result result;
    if (!tool_body_push(&parser->body, parser->held, parser->n_held, on_body, parser, &used, &result))
        return false;
    drop(parser, used);
    *ret_go_on = result != TOOL_BODY_MORE;
    if (result == TOOL_BODY_WRONG)
        return give_call_back(parser);
    if (result != TOOL_BODY_MORE)
        parser->section = SECTION_AFTER_CALL;
    return true;
}

static bool take_after_call(struct chat_parser *parser, bool *ret_go_on)
{
    const struct style *style = parser->style;
    bool is_json = style->syntax == TOOL_BODY_JSON, perhaps = false, perhaps_fence = false;
    size_t between = 0;
    while (between < parser->n_held &&
           (is_space(parser->held[between]) || (is_json && memchr(",;]", parser->held[between], 3) != NULL)))
        between++;
    drop(parser, between);
    if (parser->n_held == 0)
        return true;
    *ret_go_on = true;
    if (is_json && parser->held[0] == '{') {
        enter_call(parser, 0, parser->call_is_marked);
        return true;
    }
    if (starts_with(parser->held, parser->n_held, style->marks.close, &perhaps))
        drop(parser, strlen(style->marks.close));
    else if (style->fenced && starts_with(parser->held, parser->n_held, fence, &perhaps_fence))
        drop(parser, strlen(fence));
    if (perhaps || perhaps_fence)
        *ret_go_on = false;
    else
        enter(parser, SECTION_CONTENT, true);
    return true;
}

static bool advance(struct chat_parser *parser)
{
    static bool (*const takers[])(struct chat_parser *, bool *) = {[SECTION_LEAD] = take_lead,
                                                                   [SECTION_REASONING] = take_reasoning,
                                                                   [SECTION_CONTENT] = take_content,
                                                                   [SECTION_CALL] = take_call,
                                                                   [SECTION_AFTER_CALL] = take_after_call};
    bool go_on = true;
    while (go_on) {
        go_on = false;
        if (!takers[parser->section](parser, &go_on))
            return false;
    }
    return true;
}

/* ---- the interface ---- */

static bool hold(struct chat_parser *parser, const char *text, size_t length)
{
    size_t needed = parser->n_held + length;
    if (needed > parser->capacity) {
        size_t capacity = parser->capacity * 2 > needed ? parser->capacity * 2 : needed + 64;
        char *grown = realloc(parser->held, capacity);
        if (grown == NULL)
            return false;
        parser->held = grown;
        parser->capacity = capacity;
    }
    memcpy(parser->held + parser->n_held, text, length);
    parser->n_held = needed;
    return true;
}

bool chat_parser_push(struct chat_parser *parser, const char *text, size_t length, chat_piece_consumer *consumer,
                      void *context)
{
    parser->consumer = consumer;
    parser->context = context;
    parser->n_pushed += length;
    return length == 0 || (hold(parser, text, length) && advance(parser));
}

bool chat_parser_finish(struct chat_parser *parser, chat_piece_consumer *consumer, void *context)
{
    parser->consumer = consumer;
    parser->context = context;
    if (parser->n_held == 0 && (parser->section != SECTION_CALL || parser->call_told))
        return true;
    if (parser->section == SECTION_REASONING)
        return tell_trimmed(parser, CHAT_PIECE_REASONING, parser->n_held, true);
    if (parser->section == SECTION_CALL && !parser->call_told && !give_call_back(parser))
        return false;
    bool is_text = parser->section == SECTION_CONTENT || parser->section == SECTION_LEAD;
    /* Space at the very end is the model's own; behind thinking or a call it only kept that apart. */
    bool is_between = !parser->began && (parser->thought || parser->called);
    size_t end = is_text ? parser->n_held : 0, start = is_between ? leading_space(parser->held, end) : 0;
    parser->n_held = 0;
    return tell(parser, CHAT_PIECE_CONTENT, parser->held + start, end - start);
}

size_t chat_parser_thought_bytes(const struct chat_parser *parser)
{
    return parser->section == SECTION_REASONING ? parser->n_pushed : parser->n_thought;
}
