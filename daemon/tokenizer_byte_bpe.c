/* Byte-level BPE: every byte is a symbol, neighbouring symbols merge by the ranks of the model's list of merges.
 *
 * In the file each byte is written as a printable character (GPT-2's byte map); here everything is done on the bytes
 * themselves. A byte that is no token is left out, as Hugging Face's BPE does where there is no unknown token.
 * Source: openai/gpt-2 src/encoder.py (byte map), Hugging Face tokenizers (models/bpe). */
#include "daemon/tokenizer_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/utf8.h"
#include "npu/gguf.h"

#define MERGES_KEY "tokenizer.ggml.merges"

struct merge_slot {
    int32_t left, right; /* left is -1 in a free slot */
    uint32_t rank;
    int32_t merged;
};

struct byte_bpe {
    struct text_encoder encoder;
    const struct vocabulary *vocabulary;
    struct pretokenizer *pretokenizer;
    int32_t byte_tokens[256]; /* -1: the vocabulary has no token for this byte */
    struct merge_slot *slots;
    uint32_t mask;
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

/* -- merges ------------------------------------------------------------------------------------------------------- */

static struct merge_slot *find_merge_slot(const struct byte_bpe *bpe, int32_t left, int32_t right)
{
    uint64_t hash = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
    uint32_t at = (uint32_t)(hash >> 32) & bpe->mask;
    while (bpe->slots[at].left >= 0 && (bpe->slots[at].left != left || bpe->slots[at].right != right))
        at = (at + 1) & bpe->mask;
    return &bpe->slots[at];
}

/* "left right", both in written form: the first space that is not the first character parts them. */
static bool parse_merge(const struct byte_bpe *bpe, const char *written, size_t length, char *scratch,
                        struct merge_slot *ret_merge)
{
    const char *space = length > 1 ? memchr(written + 1, ' ', length - 1) : NULL;
    size_t left_bytes, right_bytes;
    if (space == NULL)
        return false;
    size_t left_length = (size_t)(space - written);
    if (!decode_written(written, left_length, scratch, &left_bytes) ||
        !decode_written(space + 1, length - left_length - 1, scratch + left_bytes, &right_bytes))
        return false;
    ret_merge->left = vocabulary_find(bpe->vocabulary, scratch, left_bytes);
    ret_merge->right = vocabulary_find(bpe->vocabulary, scratch + left_bytes, right_bytes);
    ret_merge->merged = vocabulary_find(bpe->vocabulary, scratch, left_bytes + right_bytes);
    return ret_merge->left >= 0 && ret_merge->right >= 0 && ret_merge->merged >= 0;
}

static enum npu_status load_merges(struct byte_bpe *bpe, const struct gguf_file *file, struct npu_error *error)
{
    int64_t n;
    size_t longest = 0, n_slots = 16;
    const struct gguf_array *merges = gguf_find_array(file, MERGES_KEY, &n);
    if (merges == NULL || n > INT32_MAX / 2)
        return npu_error_set(error, NPU_ERROR_INPUT, "%s: " MERGES_KEY " is missing, or not an array of strings",
                             gguf_path(file));
    while (n_slots < (size_t)n + (size_t)n / 4)
        n_slots *= 2;
    bpe->mask = (uint32_t)(n_slots - 1);
    bpe->slots = malloc(n_slots * sizeof *bpe->slots);
    if (bpe->slots == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "out of memory for %" PRId64 " merges", n);
    for (size_t i = 0; i < n_slots; i++)
        bpe->slots[i].left = -1;

    const char *written;
    size_t length;
    for (int64_t i = 0; i < n; i++) {
        if (!gguf_array_string_at(merges, i, &written, &length))
            return npu_error_set(error, NPU_ERROR_INPUT, "%s: " MERGES_KEY " is not an array of strings",
                                 gguf_path(file));
        longest = length > longest ? length : longest;
    }
    char *scratch = malloc(longest + 1);
    if (scratch == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "out of memory for a merge of %zu bytes", longest);
    enum npu_status status = NPU_OK;
    for (int64_t i = 0; status == NPU_OK && i < n; i++) {
        struct merge_slot merge = {.rank = (uint32_t)i};
        gguf_array_string_at(merges, i, &written, &length);
        if (!parse_merge(bpe, written, length, scratch, &merge)) {
            status = npu_error_set(error, NPU_ERROR_INPUT,
                                   "%s: " MERGES_KEY ": merge %" PRId64 " '%.*s' is not two tokens of the vocabulary "
                                   "that make a third",
                                   gguf_path(file), i, length < 64 ? (int)length : 64, written);
            continue;
        }
        struct merge_slot *slot = find_merge_slot(bpe, merge.left, merge.right);
        if (slot->left < 0)
            *slot = merge;
    }
    free(scratch);
    return status;
}

/* -- encoding ----------------------------------------------------------------------------------------------------- */

static bool find_merge(const void *context, const struct merge_work *work, int32_t left, int32_t right,
                       struct merge_candidate *candidate)
{
    const struct merge_slot *slot = find_merge_slot(context, work->symbols[left].token, work->symbols[right].token);
    if (slot->left < 0)
        return false;
    candidate->priority = slot->rank;
    candidate->merged = slot->merged;
    return true;
}

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
        int32_t whole = vocabulary_find(bpe->vocabulary, word, length);
        if (whole >= 0 && bpe->vocabulary->types[whole] != TOKEN_CONTROL)
            return token_list_add(encoding->tokens, whole, error);
    }
    work->n_symbols = 0;
    for (size_t i = 0; status == NPU_OK && i < length; i++) {
        int32_t token = bpe->byte_tokens[(unsigned char)word[i]];
        if (token >= 0)
            status = merge_work_add_symbol(work, (uint32_t)i, token, error);
    }
    if (status == NPU_OK)
        status = merge_work_run(work, find_merge, bpe, error);
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
    enum npu_status status = pretokenizer_split(bpe->pretokenizer, text, length, encode_word, &encoding, error);
    merge_work_free(&encoding.work);
    return status;
}

static void byte_bpe_destroy(struct text_encoder *encoder)
{
    struct byte_bpe *bpe = (struct byte_bpe *)encoder;
    pretokenizer_destroy(bpe->pretokenizer);
    free(bpe->slots);
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
        bpe->byte_tokens[byte] = vocabulary_find(vocabulary, &piece, 1);
    }
    enum npu_status status = pretokenizer_create(&bpe->pretokenizer, pre, pre_length, error);
    if (status != NPU_OK)
        npu_error_prefix(error, "%s: tokenizer.ggml.pre", gguf_path(file));
    else
        status = load_merges(bpe, file, error);
    if (status != NPU_OK) {
        byte_bpe_destroy(&bpe->encoder);
        return status;
    }
    bpe->encoder.adds_bos = pretokenizer_adds_bos(bpe->pretokenizer);
    *ret_encoder = &bpe->encoder;
    return NPU_OK;
}
