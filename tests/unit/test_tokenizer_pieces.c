/* The tokenizer models whose vocabulary is written like SentencePiece's (llama, gemma4), against Hugging Face's
 * (tests/reference/make_tokenizer_fixture.py made what is expected). */
#include "tests/unit/tokenizer_fixture.h"

/* The vocabulary of pieces as another tokenizer model. */
static struct tokenizer *create_pieces(const char *model, bool space_first)
{
    struct gguf_builder builder;
    struct gguf_file *file;
    int64_t n;
    assert_int_equal(gguf_open(&file, TEST_DATA_DIR "/tokenizer/pieces.gguf", NULL), NPU_OK);
    gguf_builder_init(&builder, 3);
    gguf_add_string(&builder, "tokenizer.ggml.model", model);
    copy_strings(&builder, file, "tokenizer.ggml.tokens");
    copy_strings(&builder, file, "tokenizer.ggml.merges");
    copy_types(&builder, file);
    const struct gguf_array *scores = gguf_find_array(file, "tokenizer.ggml.scores", &n);
    gguf_add_array(&builder, "tokenizer.ggml.scores", GGUF_F32, (uint64_t)n);
    for (int64_t i = 0; i < n; i++) {
        double score;
        assert_true(gguf_array_float_at(scores, i, &score));
        gguf_put(&builder.pairs, &(float){(float)score}, sizeof(float));
    }
    gguf_add_u32(&builder, "tokenizer.ggml.bos_token_id", 1);
    gguf_add_bool(&builder, "tokenizer.ggml.add_bos_token", 0);
    gguf_add_bool(&builder, "tokenizer.ggml.add_space_prefix", space_first);
    gguf_close(file);
    return create_from_builder(&builder);
}

static void compare_pieces(const char *model, bool space_first, const char *ids_name)
{
    struct tokenizer *tokenizer = create_pieces(model, space_first);
    assert_true(corpus_agrees(tokenizer, ids_name));
    tokenizer_destroy(tokenizer);
}

static void llama_gives_the_tokens_of_hugging_face(void **state)
{
    (void)state;
    compare_pieces("llama", false, "ids-llama.json");
}

static void llama_with_a_space_first_gives_the_tokens_of_hugging_face(void **state)
{
    (void)state;
    compare_pieces("llama", true, "ids-llama-prefix.json");
}

static void gemma4_gives_the_tokens_of_hugging_face(void **state)
{
    (void)state;
    compare_pieces("gemma4", false, "ids-gemma4.json");
}

static void gemma4_begins_with_bos_whatever_the_file_says(void **state)
{
    (void)state;
    struct tokenizer *gemma4 = create_pieces("gemma4", false), *llama = create_pieces("llama", false);
    EXPECT(gemma4, "", true, true, 1);
    expect_tokens(llama, "", true, true, NULL, 0);
    tokenizer_destroy(gemma4);
    tokenizer_destroy(llama);
}

static void the_pieces_of_the_tokens_are_the_text_again(void **state)
{
    (void)state;
    static const char *const models[] = {"llama", "gemma4"};
    json_t *corpus = load_json("corpus.json");
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        struct tokenizer *tokenizer = create_pieces(models[m], false);
        for (size_t i = 0; i < json_array_size(corpus); i++) {
            size_t length;
            char *bytes = case_bytes(json_array_get(corpus, i), &length);
            check_round_trip(tokenizer, bytes, length);
            free(bytes);
        }
        tokenizer_destroy(tokenizer);
    }
    json_decref(corpus);
}

static void megabytes_of_anything_are_encoded(void **state)
{
    (void)state;
    enum {
        SIZE = 1 << 20
    };
    static const char *const models[] = {"llama", "gemma4"};
    static const char *const patterns[] = {"a", " ", "\n", "the ", "\xff", "\xf0\x9f\x98\x80"};
    char *text = malloc(SIZE);
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        struct tokenizer *tokenizer = create_pieces(models[m], false);
        for (size_t p = 0; p < sizeof patterns / sizeof patterns[0]; p++) {
            for (size_t i = 0; i < SIZE; i++)
                text[i] = patterns[p][i % strlen(patterns[p])];
            check_round_trip(tokenizer, text, SIZE);
        }
        tokenizer_destroy(tokenizer);
    }
    free(text);
}

/* -- a tiny vocabulary -------------------------------------------------------------------------------------------- */

enum tiny {
    UNKNOWN,
    BOS,
    BYTE_41,
    A,
    B,
    SPACE,
    AB,
    BA,
    SPACE_A,
    LESS,
    N_TINY,
};

/* \342\226\201 is U+2581, the written form of a space */
static const char *const tiny_tokens[N_TINY] = {"<unk>", "<",  "<0x41>",        "a", "b", "\342\226\201",
                                                "ab",    "ba", "\342\226\201a", "a<"};
static const int32_t tiny_types[N_TINY] = {2, 3, 6, 1, 1, 1, 1, 1, 1, 1};
static const float tiny_scores[N_TINY] = {0, 0, 0, -9, -9, -9, -2.5f, -2, -3, -1};

static void fill_tiny(struct gguf_builder *builder, const float *scores, uint64_t n_scores)
{
    gguf_builder_init(builder, 3);
    gguf_add_string(builder, "tokenizer.ggml.model", "llama");
    gguf_add_string_array(builder, "tokenizer.ggml.tokens", tiny_tokens, N_TINY);
    gguf_add_i32_array(builder, "tokenizer.ggml.token_type", tiny_types, N_TINY);
    gguf_add_bool(builder, "tokenizer.ggml.add_bos_token", 0);
    gguf_add_bool(builder, "tokenizer.ggml.add_space_prefix", 0);
    gguf_add_u32(builder, "tokenizer.ggml.unknown_token_id", UNKNOWN);
    if (scores != NULL) {
        gguf_add_array(builder, "tokenizer.ggml.scores", GGUF_F32, n_scores);
        gguf_put(&builder->pairs, scores, n_scores * sizeof *scores);
    }
}

static void the_best_score_merges_first_and_equal_ones_from_the_left(void **state)
{
    (void)state;
    struct gguf_builder builder;
    fill_tiny(&builder, tiny_scores, N_TINY);
    struct tokenizer *tokenizer = create_from_builder(&builder);
    EXPECT(tokenizer, "ab", false, true, AB);
    EXPECT(tokenizer, "aba", false, true, A, BA);
    EXPECT(tokenizer, "baba", false, true, BA, BA);
    EXPECT(tokenizer, " a", false, true, SPACE_A);
    EXPECT(tokenizer, "\342\226\201a", false, true, SPACE_A); /* the written form of a space counts as one */
    tokenizer_destroy(tokenizer);
}

static void characters_without_a_piece_become_bytes_or_unknown(void **state)
{
    (void)state;
    struct gguf_builder builder;
    size_t length;
    fill_tiny(&builder, tiny_scores, N_TINY);
    struct tokenizer *tokenizer = create_from_builder(&builder);
    EXPECT(tokenizer, "aAb", false, true, A, BYTE_41, B);
    EXPECT(tokenizer, "a\xc3\xa9", false, true, A, UNKNOWN, UNKNOWN);
    assert_memory_equal(tokenizer_piece(tokenizer, BYTE_41, &length), "A", 1);
    assert_int_equal(length, 1);
    tokenizer_destroy(tokenizer);
}

static void ordinary_text_never_becomes_a_control_token(void **state)
{
    (void)state;
    struct gguf_builder builder;
    fill_tiny(&builder, tiny_scores, N_TINY);
    struct tokenizer *tokenizer = create_from_builder(&builder);
    EXPECT(tokenizer, "b<", false, true, B, BOS);
    EXPECT(tokenizer, "b<", false, false, B, UNKNOWN);
    EXPECT(tokenizer, "a<", false, false, LESS);
    tokenizer_destroy(tokenizer);
}

static void wrong_scores_are_refused(void **state)
{
    (void)state;
    struct gguf_builder builder;
    float scores[N_TINY];
    fill_tiny(&builder, NULL, 0);
    expect_refused(&builder, NPU_ERROR_INPUT, "tokenizer.ggml.scores is missing");
    fill_tiny(&builder, tiny_scores, N_TINY - 1);
    expect_refused(&builder, NPU_ERROR_INPUT, "one number for each of the 10 tokens");
    memcpy(scores, tiny_scores, sizeof scores);
    memcpy(&scores[4], &(uint32_t){0x7fc00000u}, 4);
    fill_tiny(&builder, scores, N_TINY);
    expect_refused(&builder, NPU_ERROR_INPUT, "tokenizer.ggml.scores of token 4 is not a number");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_gives_the_tokens_of_hugging_face),
        cmocka_unit_test(llama_with_a_space_first_gives_the_tokens_of_hugging_face),
        cmocka_unit_test(gemma4_gives_the_tokens_of_hugging_face),
        cmocka_unit_test(gemma4_begins_with_bos_whatever_the_file_says),
        cmocka_unit_test(the_pieces_of_the_tokens_are_the_text_again),
        cmocka_unit_test(megabytes_of_anything_are_encoded),
        cmocka_unit_test(the_best_score_merges_first_and_equal_ones_from_the_left),
        cmocka_unit_test(characters_without_a_piece_become_bytes_or_unknown),
        cmocka_unit_test(ordinary_text_never_becomes_a_control_token),
        cmocka_unit_test(wrong_scores_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
