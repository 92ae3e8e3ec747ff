/* SentencePiece BPE (tokenizer.ggml.model = llama): the text's characters merge into whatever pieces the vocabulary has,
 * the best score first; characters without a piece fall back to one token a byte. There are no words: a merge may span
 * spaces, so the whole text between special tokens is merged at once.
 *
 * In the file a space is written as U+2581; here pieces hold plain spaces, and a U+2581 in the text counts as a space, as
 * it does in SentencePiece. Source: google/sentencepiece (bpe_model), llama.cpp's vocab code. */
#include "daemon/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/utf8.h"
#include "npu/gguf.h"

static const char written_space[3] = {(char)0xe2, (char)0x96, (char)0x81}; /* U+2581 */

struct sentencepiece {
    struct text_encoder encoder;
    const struct vocabulary *vocabulary;
    uint32_t *priorities; /* by token: smaller for a better score */
    int32_t byte_tokens[256];
    int32_t unknown; /* -1: none */
    bool space_first;
};

/* U+2581 to spaces; returns how many bytes it wrote, at most length. */
size_t sentencepiece_plain_spaces(const char *text, size_t length, char *out)
{
    size_t n = 0;
    for (size_t at = 0; at < length;) {
        if (length - at >= sizeof written_space && memcmp(text + at, written_space, sizeof written_space) == 0) {
            out[n++] = ' ';
            at += sizeof written_space;
        } else {
            out[n++] = text[at++];
        }
    }
    return n;
}

static int hex_digit(char character)
{
    if (character >= '0' && character <= '9')
        return character - '0';
    if (character >= 'A' && character <= 'F')
        return character - 'A' + 10;
    return -1;
}

size_t sentencepiece_decode_token(const char *written, size_t length, enum token_type type, char *out)
{
    if (type == TOKEN_BYTE && length == 6 && memcmp(written, "<0x", 3) == 0 && hex_digit(written[3]) >= 0 &&
        hex_digit(written[4]) >= 0) {
        out[0] = (char)(hex_digit(written[3]) * 16 + hex_digit(written[4]));
        return 1;
    }
    if (type != TOKEN_CONTROL && type != TOKEN_UNKNOWN)
        return sentencepiece_plain_spaces(written, length, out);
    memcpy(out, written, length);
    return length;
}

void sentencepiece_find_byte_tokens(const struct vocabulary *vocabulary, int32_t byte_tokens[256])
{
    for (int byte = 0; byte < 256; byte++)
        byte_tokens[byte] = -1;
    for (int32_t i = vocabulary->n - 1; i >= 0; i--) {
        size_t length;
        const char *piece = vocabulary_piece(vocabulary, i, &length);
        if (vocabulary->types[i] == TOKEN_BYTE && length == 1)
            byte_tokens[(unsigned char)piece[0]] = i;
    }
}

/* -- merging ------------------------------------------------------------------------------------------------------ */

struct merging {
    const struct sentencepiece *sentencepiece;
    const char *text;
    size_t length;
};

static bool find_merge(const void *context, const struct merge_work *work, int32_t left, int32_t right,
                       struct merge_candidate *candidate)
{
    const struct merging *merging = context;
    const struct vocabulary *vocabulary = merging->sentencepiece->vocabulary;
    size_t start = work->symbols[left].start;
    int32_t next = work->symbols[right].next;
    size_t end = next >= 0 ? work->symbols[next].start : merging->length;
    int32_t token = vocabulary_find_ordinary(vocabulary, merging->text + start, end - start);
    if (token < 0)
        return false;
    candidate->priority = merging->sentencepiece->priorities[token];
    candidate->merged = token;
    return true;
}

/* A symbol for each character, and for each byte that belongs to none. */
static enum npu_status add_symbols(const struct merging *merging, struct merge_work *work, struct npu_error *error)
{
    const struct vocabulary *vocabulary = merging->sentencepiece->vocabulary;
    enum npu_status status = NPU_OK;
    for (size_t at = 0, bytes; status == NPU_OK && at < merging->length; at += bytes) {
        if (utf8_look(merging->text + at, merging->length - at, &bytes) != UTF8_CHARACTER)
            bytes = 1;
        int32_t token = vocabulary_find_ordinary(vocabulary, merging->text + at, bytes);
        status = merge_work_add_symbol(work, (uint32_t)at, token, error);
    }
    return status;
}

static enum npu_status add_bytes(const struct sentencepiece *sentencepiece, const char *text, size_t length,
                                 struct token_list *tokens, struct npu_error *error)
{
    enum npu_status status = NPU_OK;
    for (size_t i = 0; status == NPU_OK && i < length; i++) {
        int32_t token = sentencepiece->byte_tokens[(unsigned char)text[i]];
        if (token < 0)
            token = sentencepiece->unknown;
        if (token >= 0)
            status = token_list_add(tokens, token, error);
    }
    return status;
}

static enum npu_status merge_text(const struct merging *merging, struct merge_work *work, struct token_list *tokens,
                                  struct npu_error *error)
{
    enum npu_status status = add_symbols(merging, work, error);
    if (status == NPU_OK)
        status = merge_work_run(work, find_merge, merging, error);
    int32_t next;
    for (int32_t i = work->n_symbols > 0 ? 0 : -1; status == NPU_OK && i >= 0; i = next) {
        const struct merge_symbol *symbol = &work->symbols[i];
        next = symbol->next;
        size_t end = next >= 0 ? work->symbols[next].start : merging->length;
        status = symbol->token >= 0 ? token_list_add(tokens, symbol->token, error)
                                    : add_bytes(merging->sentencepiece, merging->text + symbol->start,
                                                end - symbol->start, tokens, error);
    }
    return status;
}

static enum npu_status sentencepiece_encode(const struct text_encoder *encoder, const char *text, size_t length,
                                            struct token_list *tokens, struct npu_error *error)
{
    const struct sentencepiece *sentencepiece = (const struct sentencepiece *)encoder;
    char *plain = malloc(length + 1);
    if (plain == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "out of memory for a text of %zu bytes", length);
    size_t n = 0;
    if (sentencepiece->space_first)
        plain[n++] = ' ';
    n += sentencepiece_plain_spaces(text, length, plain + n);
    struct merging merging = {.sentencepiece = sentencepiece, .text = plain, .length = n};
    struct merge_work work = {0};
    enum npu_status status = merge_text(&merging, &work, tokens, error);
    merge_work_free(&work);
    free(plain);
    return status;
}

/* -- creation ----------------------------------------------------------------------------------------------------- */

/* Orders floats from large to small as unsigned integers: the bits of a float are a sign and a magnitude. */
static uint32_t priority_of_score(double score)
{
    float number = (float)score;
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits & 0x80000000u ? bits : ~bits & 0x7fffffffu;
}

static enum npu_status load_scores(struct sentencepiece *sentencepiece, const struct gguf_file *file,
                                   struct npu_error *error)
{
    int32_t n = sentencepiece->vocabulary->n;
    int64_t n_scores = 0;
    const struct gguf_array *scores = gguf_find_array(file, "tokenizer.ggml.scores", &n_scores);
    if (scores == NULL || n_scores != n)
        return npu_error_set(
            error, NPU_ERROR_INPUT,
            "%s: tokenizer.ggml.scores is missing, or does not have one number for each of the %d tokens",
            gguf_path(file), n);
    sentencepiece->priorities = malloc((size_t)n * sizeof *sentencepiece->priorities);
    if (sentencepiece->priorities == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "out of memory for a tokenizer");
    for (int32_t i = 0; i < n; i++) {
        double score;
        if (!gguf_array_float_at(scores, i, &score) || score != score)
            return npu_error_set(error, NPU_ERROR_INPUT, "%s: tokenizer.ggml.scores of token %d is not a number",
                                 gguf_path(file), i);
        sentencepiece->priorities[i] = priority_of_score(score);
    }
    return NPU_OK;
}

static void sentencepiece_destroy(struct text_encoder *encoder)
{
    struct sentencepiece *sentencepiece = (struct sentencepiece *)encoder;
    free(sentencepiece->priorities);
    free(sentencepiece);
}

static const struct text_encoder_interface sentencepiece_interface = {
    .encode = sentencepiece_encode,
    .destroy = sentencepiece_destroy,
};

enum npu_status sentencepiece_create(struct text_encoder **ret_encoder, const struct gguf_file *file,
                                     const struct vocabulary *vocabulary, struct npu_error *error)
{
    struct sentencepiece *sentencepiece = calloc(1, sizeof *sentencepiece);
    if (sentencepiece == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "out of memory for a tokenizer");
    sentencepiece->encoder.interface = &sentencepiece_interface;
    sentencepiece->encoder.adds_bos = true;
    sentencepiece->vocabulary = vocabulary;
    sentencepiece->space_first = true;
    gguf_get_bool(file, "tokenizer.ggml.add_space_prefix", &sentencepiece->space_first);
    sentencepiece_find_byte_tokens(vocabulary, sentencepiece->byte_tokens);
    int64_t unknown;
    sentencepiece->unknown = -1;
    if (gguf_get_int(file, "tokenizer.ggml.unknown_token_id", &unknown) && unknown >= 0 && unknown < vocabulary->n)
        sentencepiece->unknown = (int32_t)unknown;
    enum npu_status status = load_scores(sentencepiece, file, error);
    if (status != NPU_OK) {
        sentencepiece_destroy(&sentencepiece->encoder);
        return status;
    }
    *ret_encoder = &sentencepiece->encoder;
    return NPU_OK;
}
