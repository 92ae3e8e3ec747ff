/* Gemma 4's tokenizer: listed merges as in BPE, over characters written like SentencePiece's (a space is U+2581, a
 * character without a token becomes the tokens of its bytes). The text is cut only where runs of newlines begin and end; a
 * run that is a token is that token. Every text begins with bos, whatever the file says.
 * Source: Hugging Face's tokenizer.json of the model, llama.cpp's vocab code. */
#include "daemon/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/utf8.h"

struct gemma4 {
    struct text_encoder encoder;
    const struct vocabulary *vocabulary;
    struct merge_table merges;
    int32_t byte_tokens[256];
};

static bool decode_half(const char *written, size_t length, char *out, size_t *ret_length)
{
    *ret_length = sentencepiece_plain_spaces(written, length, out);
    return true;
}

/* A symbol for each character that is a token, else for each of its bytes. */
static enum npu_status add_symbols(const struct gemma4 *gemma4, struct merge_work *work, const char *text,
                                   size_t length, struct npu_error *error)
{
    enum npu_status status = NPU_OK;
    work->n_symbols = 0;
    for (size_t at = 0, bytes; status == NPU_OK && at < length; at += bytes) {
        if (utf8_look(text + at, length - at, &bytes) != UTF8_CHARACTER)
            bytes = 1;
        int32_t token = vocabulary_find_ordinary(gemma4->vocabulary, text + at, bytes);
        if (token >= 0) {
            status = merge_work_add_symbol(work, (uint32_t)at, token, error);
            continue;
        }
        for (size_t i = at; status == NPU_OK && i < at + bytes; i++) {
            token = gemma4->byte_tokens[(unsigned char)text[i]];
            if (token >= 0)
                status = merge_work_add_symbol(work, (uint32_t)i, token, error);
        }
    }
    return status;
}

static enum npu_status encode_part(const struct gemma4 *gemma4, struct merge_work *work, const char *text,
                                   size_t length, struct token_list *tokens, struct npu_error *error)
{
    if (text[0] == '\n') {
        int32_t whole = vocabulary_find_ordinary(gemma4->vocabulary, text, length);
        if (whole >= 0)
            return token_list_add(tokens, whole, error);
    }
    enum npu_status status = add_symbols(gemma4, work, text, length, error);
    if (status == NPU_OK)
        status = merge_work_run(work, merge_table_find, &gemma4->merges, error);
    for (size_t i = 0; status == NPU_OK && i < work->n_symbols; i++) {
        if (work->symbols[i].token >= 0)
            status = token_list_add(tokens, work->symbols[i].token, error);
    }
    return status;
}

static enum npu_status gemma4_encode(const struct text_encoder *encoder, const char *text, size_t length,
                                     struct token_list *tokens, struct npu_error *error)
{
    const struct gemma4 *gemma4 = (const struct gemma4 *)encoder;
    struct merge_work work = {0};
    enum npu_status status = NPU_OK;
    char *plain = malloc(length + 1);
    if (plain == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "out of memory for a text of %zu bytes", length);
    size_t n = sentencepiece_plain_spaces(text, length, plain);
    for (size_t start = 0, end; status == NPU_OK && start < n; start = end) {
        for (end = start + 1; end < n && (plain[end] == '\n') == (plain[start] == '\n');)
            end++;
        status = encode_part(gemma4, &work, plain + start, end - start, tokens, error);
    }
    merge_work_free(&work);
    free(plain);
    return status;
}

static void gemma4_destroy(struct text_encoder *encoder)
{
    struct gemma4 *gemma4 = (struct gemma4 *)encoder;
    merge_table_free(&gemma4->merges);
    free(gemma4);
}

static const struct text_encoder_interface gemma4_interface = {
    .encode = gemma4_encode,
    .destroy = gemma4_destroy,
};

enum npu_status gemma4_create(struct text_encoder **ret_encoder, const struct gguf_file *file,
                              const struct vocabulary *vocabulary, struct npu_error *error)
{
    struct gemma4 *gemma4 = calloc(1, sizeof *gemma4);
    if (gemma4 == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "out of memory for a tokenizer");
    gemma4->encoder.interface = &gemma4_interface;
    gemma4->encoder.adds_bos = gemma4->encoder.always_adds_bos = true;
    gemma4->vocabulary = vocabulary;
    sentencepiece_find_byte_tokens(vocabulary, gemma4->byte_tokens);
    enum npu_status status = merge_table_load(&gemma4->merges, file, vocabulary, decode_half, error);
    if (status != NPU_OK) {
        gemma4_destroy(&gemma4->encoder);
        return status;
    }
    *ret_encoder = &gemma4->encoder;
    return NPU_OK;
}
