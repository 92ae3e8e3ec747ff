/* The text library: what of npud is written in Rust, for the libraries it has there (proto/text). Chat templates with
 * MiniJinja, rendered as Hugging Face's transformers renders them; grammars with llguidance.
 *
 * Nothing here keeps state of its own, reads an environment variable or ends the process: a panic inside is TEXT_INTERNAL.
 * Templates and vocabularies are immutable once made: any thread may use one at any time, beside others. */
#ifndef PROTO_TEXT_LIBRARY_H
#define PROTO_TEXT_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum text_status {
    TEXT_OK,
    TEXT_INVALID, /* the template or grammar, or what it was given, is wrong */
    TEXT_REFUSED, /* the template said so by raise_exception: the message is its own */
    TEXT_LIMIT, /* too long, or too much work */
    TEXT_MEMORY,
    TEXT_INTERNAL,
};

struct text_error {
    enum text_status status;
    char message[480]; /* UTF-8 */
};

/* ---- chat templates ---- */

struct text_template;

/* Compiles a Jinja template of at most 4 MiB; a message about it names the line. */
enum text_status text_template_create(struct text_template **ret_template, const char *source, size_t length,
                                      struct text_error *error);
void text_template_destroy(struct text_template *template); /* NULL is fine */

/* Renders with the variables of a JSON object: messages, tools, add_generation_prompt, bos_token and whatever else. now_s is
 * the time that strftime_now tells, in seconds since 1970. *ret_text is malloc'ed and NUL-terminated. TEXT_LIMIT: it took
 * too many steps, too much memory or gave too much text, each in proportion to the length of the variables. */
enum text_status text_template_render(const struct text_template *template, const char *variables, size_t length,
                                      int64_t now_s, char **ret_text, size_t *ret_length, struct text_error *error);

/* ---- grammars ---- */

struct text_vocabulary;
struct text_constraint;

struct text_token {
    const char *bytes; /* its text; of a control token its written form */
    size_t length;
    bool is_control; /* comes in a text only where a grammar names it */
    bool ends_generation;
};

/* From the tokens of a model by their ids, which are copied. Takes a tenth of a second to seconds, and tens of bytes for
 * each token. */
enum text_status text_vocabulary_create(struct text_vocabulary **ret_vocabulary, const struct text_token *tokens,
                                        size_t n_tokens, struct text_error *error);
void text_vocabulary_destroy(struct text_vocabulary *vocabulary); /* after its constraints; NULL is fine */

enum text_grammar_kind {
    TEXT_GRAMMAR_JSON_SCHEMA, /* its JSON: an object or true */
    TEXT_GRAMMAR_JSON_OBJECT, /* any object; without a text */
    TEXT_GRAMMAR_REGEX, /* of the whole text, in the syntax of Rust's regex crate, without look-around */
    TEXT_GRAMMAR_LARK, /* rule "start", in llguidance's dialect of Lark */
    /* What an assistant may say: {"thinking": {"open": text or null, "close": text}, "content": JSON Schema, "free": {"mark":
     * text} or {"not": regular expression}, "calls": [{"name": text, "begin": text, "schema": JSON Schema, "end": text},
     * ...], "separator": text or null}. Thinking may come first, or does for certain when it is open already (null). Then
     * content, or one of the calls, or with a separator one or more of them. Free makes content any text: up to a mark, which
     * begins a call, or any that the expression does not match. Control tokens written in the texts stand for themselves;
     * names are for messages. */
    TEXT_GRAMMAR_TURN,
};

/* A grammar, at the beginning of a sequence. JSON is made on one line, with a blank after each comma and colon. Work and
 * memory are bounded, for a grammar that is hostile, too: at most 256 KiB of JSON or 64 KiB of another text, and TEXT_LIMIT
 * when it takes too much. A message about the grammar says where in it the fault is. */
enum text_status text_constraint_create(struct text_constraint **ret_constraint,
                                        const struct text_vocabulary *vocabulary, enum text_grammar_kind kind,
                                        const char *text, size_t length, struct text_error *error);
/* Another one at the same place, which shares nothing with it that changes. Several threads may fork one at a time. */
enum text_status text_constraint_fork(struct text_constraint **ret_constraint, const struct text_constraint *constraint,
                                      struct text_error *error);
void text_constraint_destroy(struct text_constraint *constraint); /* NULL is fine */

/* The tokens that may come next: bit t % 32 of mask[t / 32], (n_tokens + 31) / 32 words in all. Those that end a generation
 * are among them exactly when the grammar accepts what has come. *ret_is_complete: no others are. Tens of microseconds, a
 * few milliseconds at worst. Failures (no token of the model fits, too much work) are for ever. One thread at a time, as all
 * that takes a constraint. */
enum text_status text_constraint_allowed(struct text_constraint *constraint, uint32_t *mask, bool *ret_is_complete,
                                         struct text_error *error);
/* The token that has come: one that may, and does not end the generation. *ret_is_complete: only the end may follow (found
 * here or only by text_constraint_allowed). */
enum text_status text_constraint_commit(struct text_constraint *constraint, int32_t token, bool *ret_is_complete,
                                        struct text_error *error);

#endif
