/* Grammars to constraints, for one model. What that needs of the tokenizer takes time and memory, and is made when the
 * first grammar comes. Thread: any, several at once; made for the worker pool, as compiling may take long. */
#ifndef DAEMON_GRAMMAR_COMPILER_H
#define DAEMON_GRAMMAR_COMPILER_H

#include <stddef.h>

#include "proto/text_library.h"

struct constraint;
struct grammar_compiler;
struct tokenizer;

struct grammar_compiler *grammar_compiler_create(void); /* NULL: no memory */
/* After the constraints that it made. NULL is fine. */
void grammar_compiler_destroy(struct grammar_compiler *compiler);

/* See text_constraint_create. tokenizer: the same at each call. NULL: error is set. */
struct constraint *grammar_compiler_compile(struct grammar_compiler *compiler, const struct tokenizer *tokenizer,
                                            enum text_grammar_kind kind, const char *text, size_t length,
                                            struct text_error *error);

#endif
