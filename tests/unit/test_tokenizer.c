/* The tokenizer against Hugging Face's (tests/reference/make_tokenizer_fixture.py made what is expected), its special
 * tokens, and vocabularies that are wrong. */
#include <pthread.h>
#include <unistd.h>

#include "daemon/tokenizer_internal.h"
#include "tests/unit/tokenizer_fixture.h"

/* The small vocabulary with another pre-tokenizer. */
static struct tokenizer *create_small(const char *pre)
{
    struct gguf_builder builder;
    struct gguf_file *file;
    assert_int_equal(gguf_open(&file, TEST_DATA_DIR "/tokenizer/small.gguf", NULL), NPU_OK);
    gguf_builder_init(&builder, 3);
    gguf_add_string(&builder, "tokenizer.ggml.model", "gpt2");
    gguf_add_string(&builder, "tokenizer.ggml.pre", pre);
    copy_strings(&builder, file, "tokenizer.ggml.tokens");
    copy_strings(&builder, file, "tokenizer.ggml.merges");
    copy_types(&builder, file);
    gguf_add_u32(&builder, "tokenizer.ggml.bos_token_id", 1);
    gguf_add_u32(&builder, "tokenizer.ggml.eos_token_id", 2);
    gguf_close(file);
    return create_from_builder(&builder);
}

/* -- against Hugging Face ----------------------------------------------------------------------------------------- */

static void compare_small(const char *pre)
{
    char ids_name[64];
    snprintf(ids_name, sizeof ids_name, "ids-%s.json", pre);
    struct tokenizer *tokenizer = create_small(pre);
    assert_true(corpus_agrees(tokenizer, ids_name));
    tokenizer_destroy(tokenizer);
}

static void gpt_2_gives_the_tokens_of_hugging_face(void **state)
{
    (void)state;
    compare_small("gpt-2");
}

static void smollm_gives_the_tokens_of_hugging_face(void **state)
{
    (void)state;
    compare_small("smollm");
}

static void llama_bpe_gives_the_tokens_of_hugging_face(void **state)
{
    (void)state;
    compare_small("llama-bpe");
}

static void qwen2_gives_the_tokens_of_hugging_face(void **state)
{
    (void)state;
    compare_small("qwen2");
}

static void default_gives_the_tokens_of_its_patterns(void **state)
{
    (void)state;
    compare_small("default");
}

static void the_whole_smollm2_vocabulary_gives_the_tokens_of_hugging_face(void **state)
{
    (void)state;
    const char *path = getenv("NPUD_TEST_MODEL");
    struct gguf_file *file;
    struct npu_error error;
    if (path == NULL || access(path, R_OK) != 0) {
        printf("skipped: NPUD_TEST_MODEL does not name the SmolLM2 model\n");
        skip();
    }
    if (gguf_open(&file, path, &error) != NPU_OK)
        fail_msg("%s", error.message);
    struct tokenizer *tokenizer = create(file);
    assert_int_equal(tokenizer_n_vocab(tokenizer), 49152);
    assert_true(corpus_agrees(tokenizer, "ids-smollm2-model.json"));
    tokenizer_destroy(tokenizer);
    gguf_close(file);
}

/* Cut from the tokenizer of the real model (tests/reference/make_real_tokenizer_fixture.py). */
static void compare_real(const char *name)
{
    char path[512], ids_name[64];
    struct gguf_file *file;
    snprintf(path, sizeof path, "%s/tokenizer/real-%s.gguf", TEST_DATA_DIR, name);
    snprintf(ids_name, sizeof ids_name, "ids-real-%s.json", name);
    assert_int_equal(gguf_open(&file, path, NULL), NPU_OK);
    struct tokenizer *tokenizer = create(file);
    assert_true(corpus_agrees(tokenizer, ids_name));
    tokenizer_destroy(tokenizer);
    gguf_close(file);
}

static void the_real_qwen3_vocabulary_gives_the_tokens_of_its_tokenizer_json(void **state)
{
    (void)state;
    compare_real("qwen3");
}

static void the_real_llama3_vocabulary_gives_the_tokens_of_its_tokenizer_json(void **state)
{
    (void)state;
    compare_real("llama3");
}

static void the_real_gemma3_vocabulary_gives_the_tokens_of_its_tokenizer_json(void **state)
{
    (void)state;
    compare_real("gemma3");
}

static void the_real_gemma4_vocabulary_gives_the_tokens_of_its_tokenizer(void **state)
{
    (void)state;
    compare_real("gemma4");
}

static void the_pieces_of_the_tokens_are_the_text_again(void **state)
{
    (void)state;
    static const char *const pres[] = {"gpt-2", "smollm", "llama-bpe", "qwen2", "default"};
    json_t *corpus = load_json("corpus.json");
    for (size_t p = 0; p < sizeof pres / sizeof pres[0]; p++) {
        struct tokenizer *tokenizer = create_small(pres[p]);
        for (size_t i = 0; i < json_array_size(corpus); i++) {
            size_t length;
            char *bytes = case_bytes(json_array_get(corpus, i), &length), *composed = NULL;
            if (strcmp(pres[p], "qwen2") == 0)
                assert_int_equal(text_compose(bytes, length, &composed, &length, NULL), NPU_OK);
            check_round_trip(tokenizer, composed != NULL ? composed : bytes, length);
            free(composed);
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
    static const char *const patterns[] = {"a",        " ",          "\n", "1", "!", "ab", "\xff", "\xf0\x9f\x98\x80",
                                           "<|im_end", " \xc3\xa9\n"};
    struct tokenizer *tokenizer = create_small("llama-bpe");
    char *text = malloc(SIZE);
    for (size_t p = 0; p < sizeof patterns / sizeof patterns[0]; p++) {
        for (size_t i = 0; i < SIZE; i++)
            text[i] = patterns[p][i % strlen(patterns[p])];
        check_round_trip(tokenizer, text, SIZE);
    }
    uint32_t random = 1;
    for (size_t i = 0; i < SIZE; i++) {
        random = random * 1664525u + 1013904223u;
        text[i] = (char)(random >> 24);
    }
    check_round_trip(tokenizer, text, SIZE);
    free(text);
    tokenizer_destroy(tokenizer);
}

static void *encode_in_thread(void *tokenizer)
{
    return corpus_agrees(tokenizer, "ids-smollm.json") ? tokenizer : NULL;
}

static void threads_may_share_a_tokenizer(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = create_small("smollm");
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, encode_in_thread, tokenizer), 0);
    for (int i = 0; i < 4; i++) {
        void *agrees;
        pthread_join(threads[i], &agrees);
        assert_non_null(agrees);
    }
    tokenizer_destroy(tokenizer);
}

/* -- a tiny vocabulary -------------------------------------------------------------------------------------------- */

enum tiny {
    A,
    B,
    C,
    AB,
    SPACE,
    BOS,
    END,
    LONG_END,
    USER,
    USER_LONG,
    UNKNOWN,
    N_TINY,
};

static const char *const tiny_tokens[N_TINY] = {
    [A] = "a",
    [B] = "b",
    [C] = "c",
    [AB] = "ab",
    [SPACE] = "\xc4\xa0",
    [BOS] = "<s>",
    [END] = "<|end|>",
    [LONG_END] = "<|end|>!",
    [USER] = "<u>",
    [USER_LONG] = "<u>a",
    [UNKNOWN] = "<unk>",
};
static const int32_t tiny_types[N_TINY] = {1, 1, 1, 1, 1, 3, 3, 3, 4, 4, 2};
static const char *const tiny_merges[] = {"a b"};

/* All but what stands in without, a list of key endings. */
static void fill_tiny(struct gguf_builder *builder, const char *without)
{
    gguf_builder_init(builder, 3);
    if (strstr(without, "model") == NULL)
        gguf_add_string(builder, "tokenizer.ggml.model", "gpt2");
    if (strstr(without, "pre") == NULL)
        gguf_add_string(builder, "tokenizer.ggml.pre", "gpt-2");
    if (strstr(without, "tokens") == NULL)
        gguf_add_string_array(builder, "tokenizer.ggml.tokens", tiny_tokens, N_TINY);
    if (strstr(without, "token_type") == NULL)
        gguf_add_i32_array(builder, "tokenizer.ggml.token_type", tiny_types, N_TINY);
    if (strstr(without, "merges") == NULL)
        gguf_add_string_array(builder, "tokenizer.ggml.merges", tiny_merges, 1);
}

static void special_tokens_are_taken_leftmost_and_longest(void **state)
{
    (void)state;
    struct gguf_builder builder;
    fill_tiny(&builder, "");
    struct tokenizer *tokenizer = create_from_builder(&builder);
    EXPECT(tokenizer, "ab<|end|>ab", false, true, AB, END, AB);
    EXPECT(tokenizer, "<|end|><|end|>!<s>", false, true, END, LONG_END, BOS);
    EXPECT(tokenizer, "a<u>b<u>ab", false, true, A, USER, B, USER_LONG, B);
    EXPECT(tokenizer, "<unk>", false, true, UNKNOWN);
    tokenizer_destroy(tokenizer);
}

static void control_tokens_in_text_stay_text_unless_asked_for(void **state)
{
    (void)state;
    struct gguf_builder builder;
    fill_tiny(&builder, "");
    struct tokenizer *tokenizer = create_from_builder(&builder);
    EXPECT(tokenizer, "<s>a<u><|end|>b<unk>c", false, false, A, USER, B, C); /* the tiny vocabulary has no '<' */
    EXPECT(tokenizer, "<s>a<u><|end|>b<unk>c", false, true, BOS, A, USER, END, B, UNKNOWN, C);
    tokenizer_destroy(tokenizer);
}

static void begin_and_end_tokens_are_added_as_the_file_says(void **state)
{
    (void)state;
    for (int bits = 0; bits < 4; bits++) {
        struct gguf_builder builder;
        fill_tiny(&builder, "");
        gguf_add_u32(&builder, "tokenizer.ggml.bos_token_id", BOS);
        gguf_add_u32(&builder, "tokenizer.ggml.eos_token_id", END);
        gguf_add_bool(&builder, "tokenizer.ggml.add_bos_token", bits & 1);
        gguf_add_bool(&builder, "tokenizer.ggml.add_eos_token", bits & 2);
        struct tokenizer *tokenizer = create_from_builder(&builder);
        assert_int_equal(tokenizer_bos(tokenizer), BOS);
        assert_int_equal(tokenizer_eos(tokenizer), END);
        int32_t wanted[3], n = 0;
        if (bits & 1)
            wanted[n++] = BOS;
        wanted[n++] = AB;
        if (bits & 2)
            wanted[n++] = END;
        expect_tokens(tokenizer, "ab", true, true, wanted, n);
        EXPECT(tokenizer, "ab", false, true, AB);
        tokenizer_destroy(tokenizer);
    }
}

static void llama_bpe_begins_with_bos_and_the_others_do_not_unless_the_file_says_so(void **state)
{
    (void)state;
    struct tokenizer *llama = create_small("llama-bpe"), *qwen = create_small("qwen2");
    expect_tokens(llama, "", true, true, (const int32_t[]){1}, 1);
    expect_tokens(qwen, "", true, true, NULL, 0);
    tokenizer_destroy(llama);
    tokenizer_destroy(qwen);
}

static void bytes_without_a_token_are_left_out(void **state)
{
    (void)state;
    struct gguf_builder builder;
    fill_tiny(&builder, "");
    struct tokenizer *tokenizer = create_from_builder(&builder);
    EXPECT(tokenizer, "axb", false, true, AB); /* their neighbours meet, as in Hugging Face's BPE */
    expect_tokens(tokenizer, "x\xff", false, true, NULL, 0);
    tokenizer_destroy(tokenizer);
}

static void pieces_and_kinds_of_tokens_are_known(void **state)
{
    (void)state;
    struct gguf_builder builder;
    size_t length;
    fill_tiny(&builder, "");
    struct tokenizer *tokenizer = create_from_builder(&builder);
    assert_int_equal(tokenizer_n_vocab(tokenizer), N_TINY);
    assert_memory_equal(tokenizer_piece(tokenizer, SPACE, &length), " ", 1);
    assert_int_equal(length, 1);
    assert_memory_equal(tokenizer_piece(tokenizer, END, &length), "<|end|>", 7);
    assert_int_equal(length, 7);
    assert_true(tokenizer_is_control(tokenizer, END));
    assert_true(tokenizer_is_control(tokenizer, UNKNOWN));
    assert_false(tokenizer_is_control(tokenizer, USER));
    assert_false(tokenizer_is_control(tokenizer, A));
    assert_int_equal(tokenizer_bos(tokenizer), -1);
    /* a model may have more output rows than tokens */
    static const int32_t outside[] = {-1, N_TINY, INT32_MAX, INT32_MIN};
    for (int i = 0; i < 4; i++) {
        tokenizer_piece(tokenizer, outside[i], &length);
        assert_int_equal(length, 0);
        assert_false(tokenizer_is_control(tokenizer, outside[i]));
        assert_false(tokenizer_is_end_of_generation(tokenizer, outside[i]));
    }
    tokenizer_destroy(tokenizer);
}

static void generations_end_at_the_ids_of_the_file_and_at_well_known_tokens(void **state)
{
    (void)state;
    struct gguf_builder builder;
    fill_tiny(&builder, "");
    gguf_add_u32(&builder, "tokenizer.ggml.eos_token_id", A);
    gguf_add_u32(&builder, "tokenizer.ggml.eot_token_id", B);
    gguf_add_u32(&builder, "tokenizer.ggml.eom_token_id", C);
    struct tokenizer *tokenizer = create_from_builder(&builder);
    for (int32_t token = 0; token < N_TINY; token++)
        assert_int_equal(tokenizer_is_end_of_generation(tokenizer, token), token <= C || token == END);
    tokenizer_destroy(tokenizer);
}

/* -- wrong vocabularies ------------------------------------------------------------------------------------------- */

static void unknown_tokenizers_are_named(void **state)
{
    (void)state;
    struct gguf_builder builder;
    fill_tiny(&builder, "model");
    expect_refused(&builder, NPU_ERROR_INPUT, "tokenizer.ggml.model is missing");
    fill_tiny(&builder, "model");
    gguf_add_string(&builder, "tokenizer.ggml.model", "bert");
    expect_refused(&builder, NPU_ERROR_UNSUPPORTED, "tokenizer model 'bert' is not supported");
    fill_tiny(&builder, "pre");
    expect_refused(&builder, NPU_ERROR_INPUT, "tokenizer.ggml.pre is missing");
    fill_tiny(&builder, "pre");
    gguf_add_string(&builder, "tokenizer.ggml.pre", "gpt-20");
    expect_refused(&builder, NPU_ERROR_UNSUPPORTED, "pre-tokenizer 'gpt-20' is not supported");
}

static void wrong_vocabularies_are_refused(void **state)
{
    (void)state;
    struct gguf_builder builder;
    fill_tiny(&builder, "tokens");
    expect_refused(&builder, NPU_ERROR_INPUT, "tokenizer.ggml.tokens is missing");
    fill_tiny(&builder, "tokens");
    gguf_add_i32_array(&builder, "tokenizer.ggml.tokens", tiny_types, N_TINY);
    expect_refused(&builder, NPU_ERROR_INPUT, "not an array of 1 to");
    fill_tiny(&builder, "tokens");
    gguf_add_string_array(&builder, "tokenizer.ggml.tokens", NULL, 0);
    expect_refused(&builder, NPU_ERROR_INPUT, "not an array of 1 to");
    fill_tiny(&builder, "token_type");
    gguf_add_i32_array(&builder, "tokenizer.ggml.token_type", tiny_types, N_TINY - 1);
    expect_refused(&builder, NPU_ERROR_INPUT, "tokenizer.ggml.token_type has 10 entries, but there are 11 tokens");
    int32_t types[N_TINY];
    memcpy(types, tiny_types, sizeof types);
    types[4] = 7;
    fill_tiny(&builder, "token_type");
    gguf_add_i32_array(&builder, "tokenizer.ggml.token_type", types, N_TINY);
    expect_refused(&builder, NPU_ERROR_INPUT, "tokenizer.ggml.token_type of token 4 is not a number from 1 to 6");
}

static void wrong_merges_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "ab", "a", "", " ", "a ", " b", "a x", "b a", "a b c", "\xff \xff", "\xe2\x96\x81 a"};
    struct gguf_builder builder;
    fill_tiny(&builder, "merges");
    expect_refused(&builder, NPU_ERROR_INPUT, "tokenizer.ggml.merges is missing");
    fill_tiny(&builder, "merges");
    gguf_add_i32_array(&builder, "tokenizer.ggml.merges", tiny_types, 2);
    expect_refused(&builder, NPU_ERROR_INPUT, "tokenizer.ggml.merges is not an array of strings");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fill_tiny(&builder, "merges");
        gguf_add_string_array(&builder, "tokenizer.ggml.merges", (const char *const[]){"a b", bad[i]}, 2);
        expect_refused(&builder, NPU_ERROR_INPUT, "tokenizer.ggml.merges: merge 1 '");
    }
}

static void wrong_special_ids_are_refused(void **state)
{
    (void)state;
    static const char *const keys[] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                                       "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
    struct gguf_builder builder;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        fill_tiny(&builder, "");
        gguf_add_u32(&builder, keys[i], N_TINY);
        expect_refused(&builder, NPU_ERROR_INPUT, "is not a token id from 0 to 10");
    }
    fill_tiny(&builder, "");
    gguf_add_bool(&builder, "tokenizer.ggml.add_bos_token", 1);
    expect_refused(&builder, NPU_ERROR_INPUT,
                   "the model wants a bos token, but tokenizer.ggml.bos_token_id is missing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt_2_gives_the_tokens_of_hugging_face),
        cmocka_unit_test(smollm_gives_the_tokens_of_hugging_face),
        cmocka_unit_test(llama_bpe_gives_the_tokens_of_hugging_face),
        cmocka_unit_test(qwen2_gives_the_tokens_of_hugging_face),
        cmocka_unit_test(default_gives_the_tokens_of_its_patterns),
        cmocka_unit_test(the_whole_smollm2_vocabulary_gives_the_tokens_of_hugging_face),
        cmocka_unit_test(the_real_qwen3_vocabulary_gives_the_tokens_of_its_tokenizer_json),
        cmocka_unit_test(the_real_llama3_vocabulary_gives_the_tokens_of_its_tokenizer_json),
        cmocka_unit_test(the_real_gemma3_vocabulary_gives_the_tokens_of_its_tokenizer_json),
        cmocka_unit_test(the_real_gemma4_vocabulary_gives_the_tokens_of_its_tokenizer),
        cmocka_unit_test(the_pieces_of_the_tokens_are_the_text_again),
        cmocka_unit_test(megabytes_of_anything_are_encoded),
        cmocka_unit_test(threads_may_share_a_tokenizer),
        cmocka_unit_test(special_tokens_are_taken_leftmost_and_longest),
        cmocka_unit_test(control_tokens_in_text_stay_text_unless_asked_for),
        cmocka_unit_test(begin_and_end_tokens_are_added_as_the_file_says),
        cmocka_unit_test(llama_bpe_begins_with_bos_and_the_others_do_not_unless_the_file_says_so),
        cmocka_unit_test(bytes_without_a_token_are_left_out),
        cmocka_unit_test(pieces_and_kinds_of_tokens_are_known),
        cmocka_unit_test(generations_end_at_the_ids_of_the_file_and_at_well_known_tokens),
        cmocka_unit_test(unknown_tokenizers_are_named),
        cmocka_unit_test(wrong_vocabularies_are_refused),
        cmocka_unit_test(wrong_merges_are_refused),
        cmocka_unit_test(wrong_special_ids_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
