/* Grammars of every kind, made of pieces that the input chooses, as random bytes would hardly be any. What compiles is
 * walked through for a few tokens, which the input chooses as well. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/text_library.h"

enum {
    N_TOKENS = 259,
    MAX_STEPS = 40,
    MAX_TEXT = 6000,
    MAX_DEPTH = 6,
};

static struct text_vocabulary *vocabulary;

/* ---- from input to text ---- */

struct maker {
    const uint8_t *data;
    size_t size, length;
    char text[MAX_TEXT + 1];
};

static unsigned take(struct maker *maker, unsigned below)
{
    if (maker->size == 0)
        return 0;
    maker->size--;
    return *maker->data++ % below;
}

static void put(struct maker *maker, const char *piece)
{
    size_t length = strlen(piece);
    if (maker->length + length > MAX_TEXT)
        return;
    memcpy(maker->text + maker->length, piece, length + 1);
    maker->length += length;
}

static void put_some(struct maker *maker, const char *const *pieces, unsigned n)
{
    while (maker->size > 0)
        put(maker, pieces[take(maker, n)]);
}

static void put_regex(struct maker *maker)
{
    static const char *const pieces[] = {"a",      "b",
                                         "(",      ")",
                                         "|",      "*",
                                         "+",      "?",
                                         "{2}",    "{1,900}",
                                         "[a-z]",  "[^x]",
                                         ".",      "\\d",
                                         "\\p{L}", "(?i)",
                                         "(?:",    "(a|ab)",
                                         "\\/",    "é",
                                         "{0,30}", "\\\\",
                                         "\\b",    "(?=a)",
                                         "\\1",    "[[:alpha:]&&[^b]]",
                                         "^",      "$",
                                         "{3,}",   "(a*)*"};
    put_some(maker, pieces, sizeof pieces / sizeof *pieces);
}

static void put_lark(struct maker *maker)
{
    static const char *const pieces[] = {"\nstart: ",
                                         "\na: ",
                                         "\nb: ",
                                         "\nA: ",
                                         "\nB: ",
                                         " a",
                                         " b",
                                         " A",
                                         " B",
                                         " | ",
                                         " \"x\"",
                                         " \"\"",
                                         " /[a-z]+/",
                                         " /.*x/",
                                         "*",
                                         "+",
                                         "?",
                                         "{2,700}",
                                         " (",
                                         ")",
                                         " [",
                                         "]",
                                         " & ",
                                         " ~",
                                         " //\n",
                                         " <|c|>",
                                         " <[1-40]>",
                                         " %json {\"type\": \"integer\"}",
                                         " %regex {\"substring_chars\": \"abcabd\"}",
                                         "\n%ignore /[ ]+/",
                                         "\na[lazy]: ",
                                         "\nb[suffix=\"y\"]: ",
                                         " \"a\"..\"f\"",
                                         " %lark {",
                                         " }",
                                         "~2..5",
                                         " -> c",
                                         "\n%import common.INT",
                                         " INT"};
    put(maker, take(maker, 4) > 0 ? "start: a b A\na: \"x\" | B b\nb: A? \"y\"\nA: /[ab]*/\nB: A \"z\"" : "start:");
    put_some(maker, pieces, sizeof pieces / sizeof *pieces);
}

static void put_schema(struct maker *maker, int depth)
{
    static const char *const plain[] = {"true",
                                        "false",
                                        "{}",
                                        "{\"type\": \"string\"}",
                                        "{\"type\": \"integer\", \"minimum\": -3, \"maximum\": 1000}",
                                        "{\"enum\": [1, \"a\", null, [], {\"b\": 2}]}",
                                        "{\"$ref\": \"#\"}",
                                        "{\"$ref\": \"#/$defs/d\"}",
                                        "{\"type\": \"string\", \"pattern\": \"^a.*b$\", \"minLength\": 3}",
                                        "{\"pattern\": \"x.{9}y\", \"maxLength\": 40}",
                                        "{\"type\": \"number\", \"multipleOf\": 0.25}",
                                        "{\"format\": \"date-time\"}",
                                        "{\"const\": \"\\u00e9\"}",
                                        "{\"not\": {}}",
                                        "{\"minProperties\": 1}",
                                        "{\"required\": [\"a\", \"z\"]}",
                                        "{\"uniqueItems\": true}",
                                        "{\"maxItems\": 4000}",
                                        "{\"multipleOf\": 7}",
                                        "{\"minLength\": 9000}",
                                        "{\"type\": [\"object\", \"null\"]}"};
    static const char *const shapes[][2] = {
        {"{\"type\": \"object\", \"properties\": {\"a\": ", "}}"},
        {"{\"properties\": {\"b\": ", "}, \"required\": [\"b\"], \"additionalProperties\": false}"},
        {"{\"type\": \"array\", \"items\": ", "}"},
        {"{\"additionalProperties\": ", ", \"maxProperties\": 3}"},
        {"{\"patternProperties\": {\"^x\": ", "}, \"minProperties\": 1}"},
        {"{\"prefixItems\": [", "], \"items\": false}"},
        {"{\"$defs\": {\"d\": ", "}, \"$ref\": \"#/$defs/d\"}"},
    };
    static const char *const lists[] = {"{\"allOf\": [", "{\"anyOf\": [", "{\"oneOf\": [",
                                        "{\"type\": \"object\", \"anyOf\": ["};
    enum {
        N_PLAIN = sizeof plain / sizeof *plain,
        N_SHAPES = sizeof shapes / sizeof *shapes,
        N_LISTS = sizeof lists / sizeof *lists,
    };
    unsigned kind = take(maker, N_PLAIN + 2 * N_SHAPES + 2 * N_LISTS);
    if (kind < N_PLAIN || depth == 0 || maker->size == 0) {
        put(maker, plain[kind % N_PLAIN]);
    } else if (kind < N_PLAIN + 2 * N_SHAPES) {
        const char *const *shape = shapes[(kind - N_PLAIN) % N_SHAPES];
        put(maker, shape[0]);
        put_schema(maker, depth - 1);
        put(maker, shape[1]);
    } else {
        put(maker, lists[(kind - N_PLAIN) % N_LISTS]);
        for (unsigned i = 0, n = 1 + take(maker, 4); i < n; i++) {
            put(maker, i > 0 ? ", " : "");
            put_schema(maker, depth - 1);
        }
        put(maker, "]}");
    }
}

static void put_turn(struct maker *maker)
{
    put(maker, "{\"separator\": ");
    put(maker, take(maker, 2) ? "null" : "\"\\n\"");
    put(maker, ", \"calls\": [");
    for (unsigned i = 0, n = take(maker, 4); i < n; i++) {
        put(maker, i > 0 ? ", " : "");
        put(maker, take(maker, 2) ? "{\"begin\": \"<|c|>f(\", \"schema\": " : "{\"begin\": \"\", \"schema\": ");
        put_schema(maker, MAX_DEPTH / 2);
        put(maker, take(maker, 2) ? ", \"end\": \")<|c|>\"}" : ", \"end\": \"\"}");
    }
    put(maker, "]}");
}

/* ---- the target ---- */

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    static char bytes[256];
    static struct text_token tokens[N_TOKENS];
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        tokens[i] = (struct text_token){.bytes = &bytes[i], .length = 1};
    }
    tokens[256] = (struct text_token){.bytes = "\": ", .length = 3};
    tokens[257] = (struct text_token){.bytes = "<|c|>", .length = 5, .is_control = true};
    tokens[258] = (struct text_token){.bytes = "<|e|>", .length = 5, .is_control = true, .ends_generation = true};
    struct text_error error;
    return text_vocabulary_create(&vocabulary, tokens, N_TOKENS, &error) == TEXT_OK ? 0 : -1;
}

static void walk(struct text_constraint *constraint, const uint8_t *data, size_t size)
{
    uint32_t mask[(N_TOKENS + 31) / 32];
    struct text_error error;
    bool complete = false;
    for (size_t i = 0; i < MAX_STEPS && i < size && !complete; i++) {
        if (text_constraint_allowed(constraint, mask, &complete, &error) != TEXT_OK || complete)
            return;
        int token = data[size - 1 - i];
        while ((mask[token / 32] >> (token % 32) & 1) == 0)
            token = (token + 1) % N_TOKENS;
        if (token == N_TOKENS - 1)
            return;
        if (text_constraint_commit(constraint, token, &complete, &error) != TEXT_OK && error.status == TEXT_INTERNAL)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    static struct maker maker;
    maker = (struct maker){.data = data + 1, .size = size - 1};
    enum text_grammar_kind kind = (enum text_grammar_kind)(data[0] % (TEXT_GRAMMAR_TURN + 1));
    switch (kind) {
    case TEXT_GRAMMAR_JSON_SCHEMA:
        put_schema(&maker, MAX_DEPTH);
        break;
    case TEXT_GRAMMAR_REGEX:
        put_regex(&maker);
        break;
    case TEXT_GRAMMAR_LARK:
        put_lark(&maker);
        break;
    case TEXT_GRAMMAR_TURN:
        put_turn(&maker);
        break;
    case TEXT_GRAMMAR_JSON_OBJECT:
        break;
    }
    struct text_constraint *constraint;
    struct text_error error;
    enum text_status status = text_constraint_create(&constraint, vocabulary, kind, maker.text, maker.length, &error);
    if (status == TEXT_INTERNAL) {
        fprintf(stderr, "%s\n%s\n", maker.text, error.message);
        abort();
    }
    if (status != TEXT_OK)
        return 0;
    walk(constraint, data, size);
    text_constraint_destroy(constraint);
    return 0;
}
