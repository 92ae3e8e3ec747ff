/* The text library: what of npud is written in Rust, for the libraries it has there (proto/text). Chat templates with
 * MiniJinja, rendered as Hugging Face's transformers renders them.
 *
 * Nothing here keeps state of its own, reads an environment variable or ends the process: a panic inside is TEXT_INTERNAL.
 * Objects are immutable once made: any thread may use one at any time, beside others. */
#ifndef PROTO_TEXT_LIBRARY_H
#define PROTO_TEXT_LIBRARY_H

#include <stddef.h>
#include <stdint.h>

enum text_status {
    TEXT_OK,
    TEXT_INVALID, /* the template, or what it was given, is wrong */
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

#endif
