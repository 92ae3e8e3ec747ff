/* Special tokens are found in the text before anything else, leftmost first and the longest of those that start at one
 * place, as Hugging Face tokenizers do. The sorted list serves as a trie: each further byte of the text narrows a range. */
#include "daemon/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

static int compare_pieces(const void *left, const void *right, void *context)
{
    const struct vocabulary *vocabulary = context;
    size_t left_length, right_length;
    const char *left_piece = vocabulary_piece(vocabulary, ((const struct special_token *)left)->token, &left_length);
    const char *right_piece = vocabulary_piece(vocabulary, ((const struct special_token *)right)->token, &right_length);
    int order = memcmp(left_piece, right_piece, left_length < right_length ? left_length : right_length);
    if (order != 0)
        return order;
    return (left_length > right_length) - (left_length < right_length);
}

static bool is_special(const struct vocabulary *vocabulary, int32_t token)
{
    uint8_t type = vocabulary->types[token];
    size_t length;
    vocabulary_piece(vocabulary, token, &length);
    return length > 0 && (type == TOKEN_CONTROL || type == TOKEN_UNKNOWN || type == TOKEN_USER_DEFINED);
}

enum npu_status special_tokens_init(struct special_tokens *specials, const struct vocabulary *vocabulary,
                                    struct npu_error *error)
{
    int32_t n = 0;
    for (int32_t i = 0; i < vocabulary->n; i++)
        n += is_special(vocabulary, i);
    specials->sorted = malloc(((size_t)n + 1) * sizeof *specials->sorted);
    if (specials->sorted == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "out of memory for %d special tokens", n);
    for (int32_t i = 0; i < vocabulary->n; i++) {
        if (is_special(vocabulary, i))
            specials->sorted[specials->n++] =
                (struct special_token){.token = i, .control = vocabulary->types[i] != TOKEN_USER_DEFINED};
    }
    qsort_r(specials->sorted, (size_t)n, sizeof *specials->sorted, compare_pieces, (void *)vocabulary);

    int32_t at = 0;
    for (int byte = 0; byte < 256; byte++) {
        size_t length;
        specials->first[byte] = at;
        while (at < n && (unsigned char)*vocabulary_piece(vocabulary, specials->sorted[at].token, &length) == byte)
            at++;
    }
    specials->first[256] = n;
    return NPU_OK;
}

void special_tokens_free(struct special_tokens *specials)
{
    free(specials->sorted);
}

/* Narrows [*low, *high), whose pieces agree in their first depth bytes, to those whose next byte is byte. */
static void narrow(const struct special_tokens *specials, const struct vocabulary *vocabulary, size_t depth, int byte,
                   int32_t *low, int32_t *high)
{
    int32_t bounds[2];
    for (int side = 0; side < 2; side++) {
        int32_t from = *low, to = *high;
        while (from < to) {
            int32_t middle = from + (to - from) / 2;
            size_t length;
            const char *piece = vocabulary_piece(vocabulary, specials->sorted[middle].token, &length);
            int found = length > depth ? (unsigned char)piece[depth] : -1;
            if (found < byte + side)
                from = middle + 1;
            else
                to = middle;
        }
        bounds[side] = from;
    }
    *low = bounds[0];
    *high = bounds[1];
}

/* The longest special token at the start of text, or -1. */
static int32_t longest_at(const struct special_tokens *specials, const struct vocabulary *vocabulary, const char *text,
                          size_t length, bool with_control, size_t *ret_length)
{
    int32_t low = specials->first[(unsigned char)text[0]], high = specials->first[(unsigned char)text[0] + 1];
    int32_t best = -1;
    for (size_t depth = 1; low < high; depth++) {
        /* A piece of exactly depth bytes sorts before its extensions; of equal ones the first id is taken. */
        for (int32_t i = low; i < high; i++) {
            size_t piece_length;
            vocabulary_piece(vocabulary, specials->sorted[i].token, &piece_length);
            if (piece_length > depth)
                break;
            if (with_control || !specials->sorted[i].control) {
                best = specials->sorted[i].token;
                *ret_length = depth;
                break;
            }
        }
        if (depth == length)
            break;
        narrow(specials, vocabulary, depth, (unsigned char)text[depth], &low, &high);
    }
    return best;
}

int32_t special_tokens_find(const struct special_tokens *specials, const struct vocabulary *vocabulary,
                            const char *text, size_t length, bool with_control, size_t *ret_start, size_t *ret_length)
{
    if (specials->n == 0)
        return -1;
    for (size_t at = 0; at < length; at++) {
        int32_t token = longest_at(specials, vocabulary, text + at, length - at, with_control, ret_length);
        if (token >= 0) {
            *ret_start = at;
            return token;
        }
    }
    return -1;
}
