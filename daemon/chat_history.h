/* What was said in chats, as text and as the tokens that were said: a model's own text, written into the next prompt, is not
 * always tokenized into the tokens that it generated, whose K/V is there. So a prompt takes over the tokens of the longest
 * conversation that its text begins with.
 *
 * Bounded: the conversations that were used least recently are forgotten. Thread: any. */
#ifndef DAEMON_CHAT_HISTORY_H
#define DAEMON_CHAT_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chat_history;
struct tokenizer;

/* Borrows the tokenizer. max_bytes: of all texts and tokens. NULL when memory is out. */
struct chat_history *chat_history_create(const struct tokenizer *tokenizer, size_t max_bytes);
void chat_history_destroy(struct chat_history *history); /* NULL is fine */

/* The tokens of a conversation as they were read and generated; together they stand for text. A conversation that this one
 * begins with is replaced by it. When memory is out nothing is remembered. */
void chat_history_add(struct chat_history *history, const char *text, size_t length, const int32_t *tokens,
                      int32_t n_tokens);

/* tokens, malloc'ed, are those of text as the tokenizer gives them. Puts in place of the first of them what was said, up to
 * a control token (or the end of a conversation) behind which both agree in the text. Returns how many tokens come from the
 * history. *ret_tokens may be another block; when memory is out nothing changes. */
int32_t chat_history_apply(struct chat_history *history, const char *text, size_t length, int32_t **tokens,
                           int32_t *n_tokens);

#endif
