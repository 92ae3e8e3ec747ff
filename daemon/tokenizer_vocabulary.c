/* The list of tokens: what bytes each stands for, and which token stands for given bytes. */
#include "daemon/tokenizer_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "npu/gguf.h"

#define TOKENS_KEY "tokenizer.ggml.tokens"
#define TYPES_KEY "tokenizer.ggml.token_type"

enum {
    MAX_TOKENS = 1 << 24, /* far above any model; keeps ids and table sizes well inside 32 bits */
};

enum npu_status token_list_add(struct token_list *list, int32_t token, struct npu_error *error)
{
    if (list->n == list->capacity) {
        size_t capacity = list->capacity < 64 ? 64 : list->capacity * 2;
        int32_t *tokens = capacity <= INT32_MAX ? realloc(list->tokens, capacity * sizeof *tokens) : NULL;
        if (tokens == NULL)
            return npu_error_set(error, NPU_ERROR_MEMORY, "out of memory for %zu tokens", capacity);
        list->tokens = tokens;
        list->capacity = capacity;
    }
    list->tokens[list->n++] = token;
    return NPU_OK;
}

static uint32_t hash_piece(const char *piece, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)piece[i]) * 0x100000001b3u;
    return (uint32_t)(hash ^ (hash >> 32));
}

/* The slot that holds the piece, or the free one where it belongs. */
static uint32_t find_slot(const struct vocabulary *vocabulary, const char *piece, size_t length)
{
    uint32_t at = hash_piece(piece, length) & vocabulary->mask;
    for (; vocabulary->slots[at] != 0; at = (at + 1) & vocabulary->mask) {
        size_t found_length;
        const char *found = vocabulary_piece(vocabulary, vocabulary->slots[at] - 1, &found_length);
        if (found_length == length && memcmp(found, piece, length) == 0)
            break;
    }
    return at;
}

const char *vocabulary_piece(const struct vocabulary *vocabulary, int32_t token, size_t *length)
{
    *length = vocabulary->starts[token + 1] - vocabulary->starts[token];
    return vocabulary->bytes + vocabulary->starts[token];
}

int32_t vocabulary_find(const struct vocabulary *vocabulary, const char *piece, size_t length)
{
    if (length == 0 || length > vocabulary->longest_bytes)
        return -1;
    return vocabulary->slots[find_slot(vocabulary, piece, length)] - 1;
}

int32_t vocabulary_find_ordinary(const struct vocabulary *vocabulary, const char *piece, size_t length)
{
    int32_t token = vocabulary_find(vocabulary, piece, length);
    bool control =
        token >= 0 && (vocabulary->types[token] == TOKEN_CONTROL || vocabulary->types[token] == TOKEN_UNKNOWN);
    return control ? -1 : token;
}

static enum npu_status allocate(struct vocabulary *vocabulary, size_t n, size_t bytes, struct npu_error *error)
{
    size_t slots = 16;
    while (slots < n + n / 2)
        slots *= 2;
    vocabulary->bytes = malloc(bytes + 1);
    vocabulary->starts = malloc((n + 1) * sizeof *vocabulary->starts);
    vocabulary->types = malloc(n);
    vocabulary->slots = calloc(slots, sizeof *vocabulary->slots);
    vocabulary->mask = (uint32_t)(slots - 1);
    if (vocabulary->bytes == NULL || vocabulary->starts == NULL || vocabulary->types == NULL ||
        vocabulary->slots == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "out of memory for a vocabulary of %zu tokens", n);
    vocabulary->n = (int32_t)n;
    return NPU_OK;
}

static void index_pieces(struct vocabulary *vocabulary, bool ordinary)
{
    for (int32_t i = 0; i < vocabulary->n; i++) {
        size_t length;
        const char *piece = vocabulary_piece(vocabulary, i, &length);
        if ((vocabulary->types[i] == TOKEN_NORMAL) != ordinary || vocabulary->types[i] == TOKEN_BYTE || length == 0)
            continue;
        uint32_t slot = find_slot(vocabulary, piece, length);
        if (vocabulary->slots[slot] == 0)
            vocabulary->slots[slot] = i + 1;
    }
}

/* Tokens without a listed type are ordinary ones. */
static enum npu_status read_types(struct vocabulary *vocabulary, const struct gguf_file *file, struct npu_error *error)
{
    int64_t n = 0;
    const struct gguf_array *types = gguf_find_array(file, TYPES_KEY, &n);
    if (types == NULL) {
        memset(vocabulary->types, TOKEN_NORMAL, (size_t)vocabulary->n);
        return NPU_OK;
    }
    if (n != vocabulary->n)
        return npu_error_set(error, NPU_ERROR_INPUT,
                             "%s: " TYPES_KEY " has %" PRId64 " entries, but there are %" PRId32 " tokens",
                             gguf_path(file), n, vocabulary->n);
    for (int32_t i = 0; i < vocabulary->n; i++) {
        int64_t type;
        if (!gguf_array_int_at(types, i, &type) || type < TOKEN_NORMAL || type > TOKEN_BYTE)
            return npu_error_set(error, NPU_ERROR_INPUT,
                                 "%s: " TYPES_KEY " of token %" PRId32 " is not a number from "
                                 "1 to 6",
                                 gguf_path(file), i);
        vocabulary->types[i] = (uint8_t)type;
    }
    return NPU_OK;
}

enum npu_status vocabulary_load(struct vocabulary *vocabulary, const struct gguf_file *file, token_decoder *decode,
                                struct npu_error *error)
{
    int64_t n;
    const struct gguf_array *tokens = gguf_find_array(file, TOKENS_KEY, &n);
    const char *written;
    size_t length;
    if (tokens == NULL || n < 1 || n > MAX_TOKENS || !gguf_array_string_at(tokens, 0, &written, &length))
        return npu_error_set(error, NPU_ERROR_INPUT,
                             "%s: " TOKENS_KEY " is missing, or not an array of 1 to %d strings", gguf_path(file),
                             MAX_TOKENS);
    uint64_t bytes = 0;
    for (int64_t i = 0; i < n; i++) {
        gguf_array_string_at(tokens, i, &written, &length);
        bytes += length;
    }
    if (bytes >= UINT32_MAX)
        return npu_error_set(error, NPU_ERROR_INPUT,
                             "%s: " TOKENS_KEY " holds %" PRIu64 " bytes of text, 4 GiB is the "
                             "limit",
                             gguf_path(file), bytes);
    enum npu_status status = allocate(vocabulary, (size_t)n, (size_t)bytes, error);
    if (status == NPU_OK)
        status = read_types(vocabulary, file, error);
    if (status != NPU_OK)
        return status;

    uint32_t end = 0;
    for (int32_t i = 0; i < vocabulary->n; i++) {
        gguf_array_string_at(tokens, i, &written, &length);
        vocabulary->starts[i] = end;
        size_t piece_bytes = decode(written, length, vocabulary->types[i], vocabulary->bytes + end);
        if (piece_bytes > vocabulary->longest_bytes)
            vocabulary->longest_bytes = piece_bytes;
        end += (uint32_t)piece_bytes;
    }
    vocabulary->starts[vocabulary->n] = end;
    index_pieces(vocabulary, true);
    index_pieces(vocabulary, false);
    return NPU_OK;
}

void vocabulary_free(struct vocabulary *vocabulary)
{
    free(vocabulary->bytes);
    free(vocabulary->starts);
    free(vocabulary->types);
    free(vocabulary->slots);
}
