/* Byte-level BPE: every byte is a symbol, neighbouring symbols merge by the ranks of the model's list of merges.
 *
 * In the file each byte is written as a printable character (GPT-2's byte map); here everything is done on the bytes
 * themselves. A byte that is no token is left out, as Hugging Face's BPE does where there is no unknown token.
 * Source: openai/gpt-2 src/encoder.py (byte map), Hugging Face tokenizers (models/bpe). */
#include "daemon/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/utf8.h"
#include "npu/gguf.h"

struct byte_bpe {
    struct text_encoder encoder;
    const struct vocabulary *vocabulary;
    struct pretokenizer *pretokenizer;
    int32_t byte_tokens[256]; /* -1: the vocabulary has no token for this byte */
    struct merge_table merges;
};

/* -- the byte map ------------------------------------------------------------------------------------------------- */

/* Printable Latin-1 characters stand for themselves; the other 68 bytes, in order, are U+0100 and on. */
static bool stands_for_itself(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* The byte that a code point below U+0800 is written for, or -1. */
static int byte_of_character(unsigned character)
{
    if (character < 256)
        return stands_for_itself(character) ? (int)character : -1;
    if (character < 256 + 33)
        return (int)(character - 256); /* 0x00 to 0x20 */
    if (character < 256 + 33 + 34)
        return (int)(character - 256 - 33 + 0x7f); /* 0x7f to 0xa0 */
    return character == 256 + 33 + 34 ? 0xad : -1;
}

/* Written form to bytes; false when a character is not of the byte map. Never longer than the written form. */
static bool decode_written(const char *written, size_t length, char *out, size_t *ret_length)
{
    size_t n = 0;
    for (size_t at = 0, bytes; at < length; at += bytes) {
        const unsigned char *from = (const unsigned char *)written + at;
        if (utf8_look(written + at, length - at, &bytes) != UTF8_CHARACTER || bytes > 2)
            return false;
        int byte = byte_of_character(bytes == 1 ? from[0] : (from[0] & 0x1fu) << 6 | (from[1] & 0x3fu));
        if (byte < 0)
            return false;
        out[n++] = (char)byte;
    }
    *ret_length = n;
    return true;
}

size_t byte_bpe_decode_token(const char *written, size_t length, enum token_type type, char *out)
{
    size_t n;
    if ((type == TOKEN_NORMAL || type == TOKEN_UNUSED) && decode_written(written, length, out, &n))
        return n;
    memcpy(out, written, length);
    return length;
}

/* -- encoding ----------------------------------------------------------------------------------------------------- */

struct encoding {
    const struct byte_bpe *bpe;
    struct merge_work work;
    struct token_list *tokens;
};

static enum npu_status encode_word(void *context, const char *word, size_t length, struct npu_error *error)
{
    struct encoding *encoding = context;
    const struct byte_bpe *bpe = encoding->bpe;
    struct merge_work *work = &encoding->work;
    enum npu_status status = NPU_OK;
    if (pretokenizer_ignores_merges(bpe->pretokenizer)) {
        int32_t whole = vocabulary_find_ordinary(bpe->vocabulary, word, length);
        if (whole >= 0)
            return token_list_add(encoding->tokens, whole, error);
    }
    work->n_symbols = 0;
    for (size_t i = 0; status == NPU_OK && i < length; i++) {
        int32_t token = bpe->byte_tokens[(unsigned char)word[i]];
        if (token >= 0)
            status = merge_work_add_symbol(work, (uint32_t)i, token, error);
    }
    if (status == NPU_OK)
        status = merge_work_run(work, merge_table_find, &bpe->merges, error);
    for (size_t i = 0; status == NPU_OK && i < work->n_symbols; i++) {
        if (work->symbols[i].token >= 0)
            status = token_list_add(encoding->tokens, work->symbols[i].token, error);
    }
    return status;
}

static enum npu_status byte_bpe_encode(const struct text_encoder *encoder, const char *text, size_t length,
                                       struct token_list *tokens, struct npu_error *error)
{
    const struct byte_bpe *bpe = (const struct byte_bpe *)encoder;
    struct encoding encoding = {.bpe = bpe, .tokens = tokens};
    char *composed = NULL;
    enum npu_status status = NPU_OK;
    if (pretokenizer_wants_composed(bpe->pretokenizer))
        status = text_compose(text, length, &composed, &length, error);
    if (status == NPU_OK)
        status = pretokenizer_split(bpe->pretokenizer, composed != NULL ? composed : text, length, encode_word,
                                    &encoding, error);
    merge_work_free(&encoding.work);
    free(composed);
    return status;
}

static void byte_bpe_destroy(struct text_encoder *encoder)
{
    struct byte_bpe *bpe = (struct byte_bpe *)encoder;
    pretokenizer_destroy(bpe->pretokenizer);
    merge_table_free(&bpe->merges);
    free(bpe);
}

static const struct text_encoder_interface byte_bpe_interface = {
    .encode = byte_bpe_encode,
    .destroy = byte_bpe_destroy,
};

enum npu_status byte_bpe_create(struct text_encoder **ret_encoder, const struct gguf_file *file,
                                const struct vocabulary *vocabulary, struct npu_error *error)
{
    const char *pre;
    size_t pre_length;
    if (!gguf_get_string(file, "tokenizer.ggml.pre", &pre, &pre_length))
        return npu_error_set(error, NPU_ERROR_INPUT,
                             "%s: tokenizer.ggml.pre is missing: it must name the pre-tokenizer (an old file; convert "
                             "the model again)",
                             gguf_path(file));
    struct byte_bpe *bpe = calloc(1, sizeof *bpe);
    if (bpe == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "out of memory for a tokenizer");
    bpe->encoder.interface = &byte_bpe_interface;
    bpe->vocabulary = vocabulary;
    for (int byte = 0; byte < 256; byte++) {
        char piece = (char)byte;
        bpe->byte_tokens[byte] = vocabulary_find_ordinary(vocabulary, &piece, 1);
    }
    enum npu_status status = pretokenizer_create(&bpe->pretokenizer, pre, pre_length, error);
    if (status != NPU_OK)
        npu_error_prefix(error, "%s: tokenizer.ggml.pre", gguf_path(file));
    else
        status = merge_table_load(&bpe->merges, file, vocabulary, decode_written, error);
    if (status != NPU_OK) {
        byte_bpe_destroy(&bpe->encoder);
        return status;
    }
    bpe->encoder.adds_bos = pretokenizer_adds_bos(bpe->pretokenizer);
    *ret_encoder = &bpe->encoder;
    return NPU_OK;
}
