#include "daemon/grammar_compiler.h"

#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

#include "daemon/constraint.h"
#include "daemon/tokenizer.h"

struct grammar_compiler {
    uv_mutex_t mutex;
    struct text_vocabulary *vocabulary; /* under the mutex while it is NULL */
};

struct grammar_compiler *grammar_compiler_create(void)
{
    struct grammar_compiler *compiler = calloc(1, sizeof *compiler);
    if (compiler == NULL)
        return NULL;
    if (uv_mutex_init(&compiler->mutex) == 0)
        return compiler;
    free(compiler);
    return NULL;
}

void grammar_compiler_destroy(struct grammar_compiler *compiler)
{
    if (compiler == NULL)
        return;
    text_vocabulary_destroy(compiler->vocabulary);
    uv_mutex_destroy(&compiler->mutex);
    free(compiler);
}

static struct text_vocabulary *make_vocabulary(const struct tokenizer *tokenizer, struct text_error *error)
{
    int32_t n_tokens = tokenizer_n_vocab(tokenizer);
    struct text_token *tokens = calloc((size_t)n_tokens + 1, sizeof *tokens);
    if (tokens == NULL) {
        error->status = TEXT_MEMORY;
        snprintf(error->message, sizeof error->message, "no memory for the vocabulary");
        return NULL;
    }
    for (int32_t i = 0; i < n_tokens; i++) {
        tokens[i].bytes = tokenizer_piece(tokenizer, i, &tokens[i].length);
        tokens[i].is_control = tokenizer_is_control(tokenizer, i);
        tokens[i].ends_generation = tokenizer_is_end_of_generation(tokenizer, i);
    }
    struct text_vocabulary *vocabulary = NULL;
    text_vocabulary_create(&vocabulary, tokens, (size_t)n_tokens, error);
    free(tokens);
    return vocabulary;
}

struct constraint *grammar_compiler_compile(struct grammar_compiler *compiler, const struct tokenizer *tokenizer,
                                            enum text_grammar_kind kind, const char *text, size_t length,
                                            struct text_error *error)
{
    uv_mutex_lock(&compiler->mutex);
    if (compiler->vocabulary == NULL)
        compiler->vocabulary = make_vocabulary(tokenizer, error);
    const struct text_vocabulary *vocabulary = compiler->vocabulary;
    uv_mutex_unlock(&compiler->mutex);
    if (vocabulary == NULL)
        return NULL;
    return constraint_create(vocabulary, tokenizer_n_vocab(tokenizer), kind, text, length, error);
}
