/* A tokenizer in place of the real one, for one test program: included by its only source, which defines fake_piece and
 * FAKE_VOCABULARY before. Every byte of a text is a token. The whole interface is here, so that the linker has no
 * reason to take the real one. */
#ifndef TESTS_UNIT_FAKE_TOKENIZER_H
#define TESTS_UNIT_FAKE_TOKENIZER_H

#include <stdlib.h>

#include "daemon/tokenizer.h"

enum {
    FAKE_BOS = 1,
    FAKE_EOS = 2,
};

enum npu_status tokenizer_create(struct tokenizer **ret_tokenizer, const struct gguf_file *file,
                                 struct npu_error *error)
{
    (void)file;
    (void)error;
    *ret_tokenizer = NULL;
    return NPU_OK;
}

void tokenizer_destroy(struct tokenizer *tokenizer)
{
    (void)tokenizer;
}

enum npu_status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length, bool add_special,
                                 bool parse_special, int32_t **ret_tokens, int32_t *ret_n, struct npu_error *error)
{
    (void)tokenizer;
    (void)add_special;
    (void)parse_special;
    int32_t *tokens = malloc((length + 1) * sizeof *tokens);
    if (tokens == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "out of memory");
    for (size_t i = 0; i < length; i++)
        tokens[i] = (unsigned char)text[i];
    *ret_tokens = tokens;
    *ret_n = (int32_t)length;
    return NPU_OK;
}

const char *tokenizer_piece(const struct tokenizer *tokenizer, int32_t token, size_t *length)
{
    (void)tokenizer;
    return fake_piece(token, length);
}

#ifndef FAKE_IS_CONTROL
#define FAKE_IS_CONTROL(token) false
#endif

bool tokenizer_is_control(const struct tokenizer *tokenizer, int32_t token)
{
    (void)tokenizer;
    (void)token;
    return FAKE_IS_CONTROL(token);
}

bool tokenizer_is_end_of_generation(const struct tokenizer *tokenizer, int32_t token)
{
    (void)tokenizer;
    (void)token;
    return false;
}

int32_t tokenizer_n_vocab(const struct tokenizer *tokenizer)
{
    (void)tokenizer;
    return FAKE_VOCABULARY;
}

int32_t tokenizer_bos(const struct tokenizer *tokenizer)
{
    (void)tokenizer;
    return FAKE_BOS;
}

int32_t tokenizer_eos(const struct tokenizer *tokenizer)
{
    (void)tokenizer;
    return FAKE_EOS;
}

#endif
