/* Text to tokens and back, as the model file says. Immutable after creation: any thread may use one at once.
 * Sources: Hugging Face tokenizers, llama.cpp's vocab code. */
#ifndef DAEMON_TOKENIZER_H
#define DAEMON_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "npu/error.h"

struct gguf_file;
struct tokenizer;

/* An unknown tokenizer model or pre-tokenizer is NPU_ERROR_UNSUPPORTED and is named. Copies what it needs from the file. */
enum npu_status tokenizer_create(struct tokenizer **ret_tokenizer, const struct gguf_file *file,
                                 struct npu_error *error);
void tokenizer_destroy(struct tokenizer *tokenizer); /* NULL is fine */

/* Tokens of text (any bytes; invalid UTF-8 is taken byte by byte). parse_special: control tokens written in the text
 * become those tokens. add_special: begin-of-sequence (and end) tokens as the model wants. *ret_tokens is malloc'ed. */
enum npu_status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length, bool add_special,
                                 bool parse_special, int32_t **ret_tokens, int32_t *ret_n, struct npu_error *error);

/* The bytes of one token (a view, valid as long as the tokenizer); control tokens give their written form. */
const char *tokenizer_piece(const struct tokenizer *tokenizer, int32_t token, size_t *length);
bool tokenizer_is_control(const struct tokenizer *tokenizer, int32_t token);
/* Ends a generation: the file's eos, eot, eom ids and the well-known control tokens by name. */
bool tokenizer_is_end_of_generation(const struct tokenizer *tokenizer, int32_t token);

int32_t tokenizer_n_vocab(const struct tokenizer *tokenizer);
int32_t tokenizer_bos(const struct tokenizer *tokenizer); /* -1: none */
int32_t tokenizer_eos(const struct tokenizer *tokenizer); /* -1: none */

#endif
