/* Walks through grammars without a model: chance chooses among the tokens that may come. Each line of standard input is
 * an object {"kind": number, "text": text, "walks": number, "tokens": number}; each line of standard output {"walks":
 * [{"text", "stopped"}, ...]} or {"status", "message"}. The tokens are single bytes, some short words, a control token
 * and an end. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/text_library.h"

enum {
    N_BYTES = 256,
    MAX_WALK_BYTES = 1 << 16,
};

static const char *const words[] = {"\", \"", "\": ",  "{\"",  "\"}",         "\"]",    "[]", "{}",
                                    "true",   "false", "null", "00",          "e+",     ". ", " the",
                                    "ab",     "é",     "日本", "<|control|>", "<|end|>"};
enum {
    N_WORDS = sizeof words / sizeof *words,
    N_TOKENS = N_BYTES + N_WORDS,
    END = N_TOKENS - 1,
};

static struct text_token tokens[N_TOKENS];
static char bytes[N_BYTES];
static uint64_t random_state;

static void make_tokens(void)
{
    for (int i = 0; i < N_BYTES; i++) {
        bytes[i] = (char)i;
        tokens[i] = (struct text_token){.bytes = &bytes[i], .length = 1};
    }
    for (int i = 0; i < N_WORDS; i++)
        tokens[N_BYTES + i] = (struct text_token){.bytes = words[i],
                                                  .length = strlen(words[i]),
                                                  .is_control = i >= N_WORDS - 2,
                                                  .ends_generation = N_BYTES + i == END};
}

static uint32_t random_below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 32) * n >> 32);
}

/* Of two, the one that brings the end nearer, most of the time when the walk has become long. */
static bool leads_to_the_end(int token)
{
    return token == END || (token < N_BYTES && strchr("\"]}", token) != NULL && token != 0);
}

static int choose(const uint32_t *mask, bool hurries)
{
    int chosen = -1;
    uint32_t n = 0;
    bool found = false;
    for (int i = 0; i < N_TOKENS; i++) {
        if ((mask[i / 32] >> (i % 32) & 1) == 0)
            continue;
        bool leads = hurries && leads_to_the_end(i);
        if (leads && !found) {
            found = true;
            n = 0;
        }
        if (found && !leads)
            continue;
        if (random_below(++n) == 0)
            chosen = i;
    }
    return chosen;
}

static json_t *walk(const struct text_constraint *start, int n_tokens, struct text_error *error)
{
    static char text[MAX_WALK_BYTES];
    uint32_t mask[(N_TOKENS + 31) / 32];
    size_t length = 0;
    struct text_constraint *constraint;
    if (text_constraint_fork(&constraint, start, error) != TEXT_OK)
        return NULL;
    bool ok = true, complete = false;
    for (int i = 0; i < n_tokens && !complete; i++) {
        ok = text_constraint_allowed(constraint, mask, &complete, error) == TEXT_OK;
        if (!ok || complete)
            break;
        int token = choose(mask, i > n_tokens / 4 && random_below(8) != 0);
        complete = token == END;
        if (complete || length + tokens[token].length > sizeof text)
            break;
        memcpy(text + length, tokens[token].bytes, tokens[token].length);
        length += tokens[token].length;
        ok = text_constraint_commit(constraint, token, &complete, error) == TEXT_OK;
        if (!ok)
            break;
    }
    text_constraint_destroy(constraint);
    if (!ok)
        return NULL;
    /* A text that is cut may end inside a character. */
    json_t *string = complete ? json_stringn(text, length) : json_string("");
    return string != NULL ? json_pack("{s:o, s:b}", "text", string, "stopped", complete)
                          : json_pack("{s:s, s:b}", "text", "(not UTF-8)", "stopped", complete);
}

static json_t *answer_to(const json_t *question, const struct text_vocabulary *vocabulary)
{
    static const char *const names[] = {"ok", "invalid", "refused", "limit", "memory", "internal"};
    const json_t *text = json_object_get(question, "text");
    int n_walks = (int)json_integer_value(json_object_get(question, "walks"));
    struct text_error error;
    struct text_constraint *constraint = NULL;
    enum text_grammar_kind kind = (enum text_grammar_kind)json_integer_value(json_object_get(question, "kind"));
    bool ok = text_constraint_create(&constraint, vocabulary, kind, json_string_value(text), json_string_length(text),
                                     &error) == TEXT_OK;
    json_t *walks = json_array();
    random_state = 1;
    for (int i = 0; ok && i < n_walks; i++) {
        json_t *one = walk(constraint, (int)json_integer_value(json_object_get(question, "tokens")), &error);
        ok = one != NULL && json_array_append_new(walks, one) == 0;
    }
    text_constraint_destroy(constraint);
    if (ok)
        return json_pack("{s:o}", "walks", walks);
    json_decref(walks);
    return json_pack("{s:s, s:s}", "status", names[error.status], "message", error.message);
}

int main(void)
{
    struct text_vocabulary *vocabulary;
    struct text_error problem;
    make_tokens();
    if (text_vocabulary_create(&vocabulary, tokens, N_TOKENS, &problem) != TEXT_OK) {
        fprintf(stderr, "%s\n", problem.message);
        return EXIT_FAILURE;
    }
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    while ((length = getline(&line, &capacity, stdin)) > 0) {
        json_error_t error;
        json_t *question = json_loadb(line, (size_t)length, JSON_ALLOW_NUL, &error);
        json_t *answer = question != NULL ? answer_to(question, vocabulary) : NULL;
        if (answer == NULL) {
            fprintf(stderr, "not a question: %s\n", error.text);
            return EXIT_FAILURE;
        }
        json_dumpf(answer, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(answer);
        json_decref(question);
    }
    free(line);
    text_vocabulary_destroy(vocabulary);
    return EXIT_SUCCESS;
}
