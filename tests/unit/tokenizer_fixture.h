/* What the tokenizer tests share: the corpus of tests/data/tokenizer and comparing with what it expects, and tokenizers
 * built from a GGUF in memory. */
#ifndef TESTS_UNIT_TOKENIZER_FIXTURE_H
#define TESTS_UNIT_TOKENIZER_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "daemon/tokenizer.h"
#include "npu/gguf.h"
#include "tests/unit/gguf_builder.h"

static inline json_t *load_json(const char *name)
{
    char path[512];
    json_error_t error;
    snprintf(path, sizeof path, "%s/tokenizer/%s", TEST_DATA_DIR, name);
    json_t *value = json_load_file(path, JSON_ALLOW_NUL, &error);
    if (value == NULL)
        fail_msg("%s: %s", path, error.text);
    return value;
}

/* The bytes of a case; the caller frees them. */
static inline char *case_bytes(const json_t *entry, size_t *ret_length)
{
    const json_t *text = json_object_get(entry, "text");
    const char *hex = json_string_value(json_object_get(entry, "hex"));
    size_t length = text != NULL ? json_string_length(text) : strlen(hex) / 2;
    char *bytes = malloc(length + 1);
    if (text != NULL)
        memcpy(bytes, json_string_value(text), length);
    for (size_t i = 0; text == NULL && i < length; i++)
        bytes[i] = (char)strtol((const char[]){hex[2 * i], hex[2 * i + 1], 0}, NULL, 16);
    *ret_length = length;
    return bytes;
}

static inline struct tokenizer *create(const struct gguf_file *file)
{
    struct tokenizer *tokenizer;
    struct npu_error error;
    if (tokenizer_create(&tokenizer, file, &error) != NPU_OK)
        fail_msg("%s", error.message);
    return tokenizer;
}

static inline struct tokenizer *create_from_builder(struct gguf_builder *builder)
{
    struct gguf_file *file;
    size_t size;
    unsigned char *data = gguf_builder_finish(builder, &size);
    assert_int_equal(gguf_open_memory(&file, data, size, "built.gguf", NULL), NPU_OK);
    struct tokenizer *tokenizer = create(file);
    gguf_close(file); /* the tokenizer keeps nothing of the file */
    memset(data, 0xee, size);
    free(data);
    gguf_builder_free(builder);
    return tokenizer;
}

static inline void copy_strings(struct gguf_builder *builder, const struct gguf_file *file, const char *key)
{
    int64_t n;
    const struct gguf_array *array = gguf_find_array(file, key, &n);
    gguf_add_array(builder, key, GGUF_STRING, (uint64_t)n);
    for (int64_t i = 0; i < n; i++) {
        const char *text;
        size_t length;
        assert_true(gguf_array_string_at(array, i, &text, &length));
        gguf_put_string(&builder->pairs, text, length);
    }
}

static inline void copy_types(struct gguf_builder *builder, const struct gguf_file *file)
{
    int64_t n, type;
    const struct gguf_array *types = gguf_find_array(file, "tokenizer.ggml.token_type", &n);
    gguf_add_array(builder, "tokenizer.ggml.token_type", GGUF_I32, (uint64_t)n);
    for (int64_t i = 0; i < n; i++) {
        assert_true(gguf_array_int_at(types, i, &type));
        gguf_put_u32(&builder->pairs, (uint32_t)type);
    }
}

static inline bool case_agrees(const struct tokenizer *tokenizer, const char *what, size_t index, const json_t *entry,
                               const json_t *wanted)
{
    size_t length;
    int32_t *tokens, n;
    if (json_is_null(wanted)) /* no reference for this case */
        return true;
    const json_t *parse_special = json_object_get(entry, "parse_special");
    char *bytes = case_bytes(entry, &length);
    if (tokenizer_encode(tokenizer, bytes, length, false, parse_special == NULL, &tokens, &n, NULL) != NPU_OK)
        return false;
    bool same = (size_t)n == json_array_size(wanted);
    for (int32_t i = 0; same && i < n; i++)
        same = tokens[i] == json_integer_value(json_array_get(wanted, (size_t)i));
    if (!same) {
        char *text = json_dumps(entry, 0), *ids = json_dumps(wanted, JSON_COMPACT);
        printf("%s: case %zu %s: wanted %s, got", what, index, text, ids);
        for (int32_t i = 0; i < n; i++)
            printf(" %d", tokens[i]);
        printf("\n");
        free(text);
        free(ids);
    }
    free(tokens);
    free(bytes);
    return same;
}

static inline bool corpus_agrees(const struct tokenizer *tokenizer, const char *ids_name)
{
    json_t *corpus = load_json("corpus.json"), *ids = load_json(ids_name);
    size_t n = json_array_size(corpus);
    bool agrees = n > 600 && n == json_array_size(ids);
    for (size_t i = 0; agrees && i < n; i++)
        agrees = case_agrees(tokenizer, ids_name, i, json_array_get(corpus, i), json_array_get(ids, i));
    json_decref(corpus);
    json_decref(ids);
    return agrees;
}

static inline void check_round_trip(const struct tokenizer *tokenizer, const char *text, size_t length)
{
    int32_t *tokens, n;
    size_t at = 0;
    assert_int_equal(tokenizer_encode(tokenizer, text, length, false, true, &tokens, &n, NULL), NPU_OK);
    for (int32_t i = 0; i < n; i++) {
        size_t bytes;
        const char *piece = tokenizer_piece(tokenizer, tokens[i], &bytes);
        assert_true(bytes <= length - at);
        assert_memory_equal(piece, text + at, bytes);
        at += bytes;
    }
    assert_int_equal(at, length);
    free(tokens);
}

static inline void expect_tokens(const struct tokenizer *tokenizer, const char *text, bool add_special,
                                 bool parse_special, const int32_t *wanted, int32_t n_wanted)
{
    int32_t *tokens, n;
    assert_int_equal(tokenizer_encode(tokenizer, text, strlen(text), add_special, parse_special, &tokens, &n, NULL),
                     NPU_OK);
    assert_non_null(tokens);
    assert_int_equal(n, n_wanted);
    if (n > 0)
        assert_memory_equal(tokens, wanted, (size_t)n * sizeof *tokens);
    free(tokens);
}

#define EXPECT(tokenizer, text, add_special, parse_special, ...)                                                       \
    expect_tokens(tokenizer, text, add_special, parse_special, (const int32_t[]){__VA_ARGS__},                         \
                  (int32_t)(sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)))

static inline void expect_refused(struct gguf_builder *builder, enum npu_status wanted_status, const char *wanted)
{
    struct gguf_file *file;
    struct tokenizer *tokenizer = NULL;
    struct npu_error error;
    size_t size;
    unsigned char *data = gguf_builder_finish(builder, &size);
    assert_int_equal(gguf_open_memory(&file, data, size, "bad.gguf", &error), NPU_OK);
    assert_int_equal(tokenizer_create(&tokenizer, file, &error), wanted_status);
    assert_null(tokenizer);
    assert_memory_equal(error.message, "bad.gguf: ", 10);
    if (strstr(error.message, wanted) == NULL)
        fail_msg("'%s' does not contain '%s'", error.message, wanted);
    gguf_close(file);
    free(data);
    gguf_builder_free(builder);
}

#endif
