/* The bitwise promise: a row's logits have the same bits in any step, beside any other rows, in both launch modes, and after
 * its K/V was moved. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device_fixture.h"
#include "random_model.h"

enum {
    N_SESSIONS = 8, /* the one that is looked at, and seven others */
    SESSION_BLOCKS = 12,
    N_BLOCKS = (N_SESSIONS + 1) * SESSION_BLOCKS,
    CONTEXT = SESSION_BLOCKS * KV_BLOCK_TOKENS,
    MOST_TOKENS = 300, /* past the end of a split of attention at 256 */
    WATCHED = 3 /* the session that is looked at: others come before and after it */
};

struct bench {
    struct opencl_executor *executor;
    int n_tokens;
    int32_t tokens[N_SESSIONS][CONTEXT];
    int32_t blocks[N_SESSIONS][SESSION_BLOCKS];
    float *expected, *got; /* n_tokens * n_vocab */
    const char *what;
};

static void open_bench(struct bench *bench, const struct model *model, const struct device_variant *variant,
                       int n_tokens, const char *what)
{
    uint32_t state = 5;
    size_t floats = (size_t)n_tokens * (size_t)model->n_vocab;
    *bench = (struct bench){.n_tokens = n_tokens, .what = what};
    bench->executor = device_executor(model, variant, N_BLOCKS, CONTEXT);
    bench->expected = malloc(floats * sizeof(float));
    bench->got = malloc(floats * sizeof(float));
    assert_true(bench->expected != NULL && bench->got != NULL);
    for (int s = 0; s < N_SESSIONS; s++) {
        for (int i = 0; i < CONTEXT; i++)
            bench->tokens[s][i] = (int32_t)(random_bits(&state) % (uint32_t)model->n_vocab);
        for (int i = 0; i < SESSION_BLOCKS; i++)
            bench->blocks[s][i] = (i * 7 + s) % SESSION_BLOCKS * N_SESSIONS + s;
    }
}

static void close_bench(struct bench *bench)
{
    free(bench->expected);
    free(bench->got);
    executor_destroy(&bench->executor->base);
}

/* ---- ways to feed the watched session's tokens ---- */

struct filling {
    struct step_row rows[EXECUTOR_MAX_ROWS];
    struct block_table tables[N_SESSIONS];
    int n_rows, n_tables;
};

static void add_run(struct filling *filling, const struct bench *bench, int session, int first, int n,
                    enum row_return returns)
{
    filling->tables[filling->n_tables] = (struct block_table){bench->blocks[session], SESSION_BLOCKS};
    for (int i = 0; i < n; i++)
        filling->rows[filling->n_rows++] = (struct step_row){.token = bench->tokens[session][first + i],
                                                             .position = first + i,
                                                             .visible_end = first + i + 1,
                                                             .table = (uint16_t)filling->n_tables,
                                                             .returns = (uint8_t)returns};
    filling->n_tables++;
}

/* Runs the step; the rows from `from` on are the watched session's, positions first ... */
static void run(struct bench *bench, const struct filling *filling, int from, int first, int n)
{
    memset(bench->executor->launcher.calm, 0, sizeof bench->executor->launcher.calm); /* keep to the mode */
    struct row_result results[EXECUTOR_MAX_ROWS];
    size_t n_vocab = (size_t)bench->executor->base.n_vocab;
    struct step step = {filling->rows, filling->n_rows, filling->tables, filling->n_tables};
    struct npu_error error = {0};
    if (executor_step(&bench->executor->base, &step, results, &error) != NPU_OK)
        fail_msg("%s", error.message);
    for (int i = 0; i < n; i++)
        memcpy(bench->got + (size_t)(first + i) * n_vocab, results[from + i].logits, n_vocab * sizeof(float));
}

static void feed_in_chunks(struct bench *bench, int chunk)
{
    for (int at = 0; at < bench->n_tokens; at += chunk) {
        int n = bench->n_tokens - at < chunk ? bench->n_tokens - at : chunk;
        struct filling filling = {.n_rows = 0};
        add_run(&filling, bench, WATCHED, at, n, ROW_RETURN_LOGITS);
        run(bench, &filling, 0, at, n);
    }
}

/* All sessions go on in every step: some by a token, some by several, each step otherwise. */
static void feed_among_others(struct bench *bench)
{
    static const int watched_runs[] = {1, 3, 16, 1, 9, 2, 33}, other_runs[] = {1, 1, 4, 1, 7, 1, 17, 2};
    int positions[N_SESSIONS] = {0};
    for (int k = 0; positions[WATCHED] < bench->n_tokens; k++) {
        struct filling filling = {.n_rows = 0};
        int from = 0, watched_n = 0;
        for (int s = 0; s < N_SESSIONS; s++) {
            int end = s == WATCHED ? bench->n_tokens : CONTEXT, first = positions[s];
            int n = s == WATCHED ? watched_runs[k % 7] : other_runs[(k + s) % 8];
            n = n < end - first ? n : end - first;
            if (n == 0 || (s != WATCHED && (k + s) % 5 == 0)) /* now and then one rests */
                continue;
            if (s == WATCHED) {
                from = filling.n_rows;
                watched_n = n;
            }
            add_run(&filling, bench, s, first, n, s == WATCHED ? ROW_RETURN_LOGITS : ROW_RETURN_BEST);
            positions[s] += n;
        }
        run(bench, &filling, from, positions[WATCHED] - watched_n, watched_n);
    }
}

/* Half of the prompt, then the session's blocks go through host memory to other places, then the rest. */
static void feed_and_move(struct bench *bench)
{
    struct executor *executor = &bench->executor->base;
    int half = bench->n_tokens / 2;
    void *bytes = malloc(executor->block_bytes);
    assert_non_null(bytes);
    for (int at = 0; at < bench->n_tokens; at += half) {
        int n = bench->n_tokens - at < half ? bench->n_tokens - at : half;
        struct filling filling = {.n_rows = 0};
        add_run(&filling, bench, WATCHED, at, n, ROW_RETURN_LOGITS);
        run(bench, &filling, 0, at, n);
        for (int i = 0; i < SESSION_BLOCKS && at == 0; i++) {
            int32_t *block = &bench->blocks[WATCHED][i], to = N_SESSIONS * SESSION_BLOCKS + i;
            if (i % 2)
                assert_int_equal(executor_copy_block(executor, *block, to, NULL), NPU_OK);
            else {
                assert_int_equal(executor_read_block(executor, *block, bytes, NULL), NPU_OK);
                assert_int_equal(executor_write_block(executor, to, bytes, NULL), NPU_OK);
            }
            memset(bytes, 0xff, executor->block_bytes); /* NaN: what is left behind must not be read */
            assert_int_equal(executor_write_block(executor, *block, bytes, NULL), NPU_OK);
            *block = to;
        }
    }
    free(bytes);
    for (int i = 0; i < SESSION_BLOCKS; i++)
        bench->blocks[WATCHED][i] = (i * 7 + WATCHED) % SESSION_BLOCKS * N_SESSIONS + WATCHED;
}

/* ---- comparing ---- */

static void expect_same(const struct bench *bench, const char *how)
{
    size_t n_vocab = (size_t)bench->executor->base.n_vocab;
    for (int i = 0; i < bench->n_tokens; i++) {
        const float *expected = bench->expected + (size_t)i * n_vocab, *got = bench->got + (size_t)i * n_vocab;
        if (memcmp(expected, got, n_vocab * sizeof(float)) == 0)
            continue;
        size_t at = 0;
        while (memcmp(&expected[at], &got[at], sizeof(float)) == 0)
            at++;
        fail_msg("%s, %s kernels, %s, %s: logit %zu at position %d is %.9g, not %.9g", bench->what,
                 device_kernels_name(bench->executor),
                 bench->executor->launcher.one_launch ? "one launch" : "one op a launch", how, at, i, (double)got[at],
                 (double)expected[at]);
    }
}

/* Every way of feeding in both launch modes gives what one token at a time, one op a launch gives. */
static void check_bench(struct bench *bench)
{
    static const int chunks[] = {7, 32, 128};
    size_t bytes = (size_t)bench->n_tokens * (size_t)bench->executor->base.n_vocab * sizeof(float);
    /* The probe refuses one launch on a machine that is too busy, too; a step then gives up waiting and is run again. */
    bool one_launch = bench->executor->profile.atomics && !bench->executor->profile.spread;
    if (!one_launch)
        printf("%s: no driver for one launch a step (%s)\n", bench->what, bench->executor->launch_reason);
    bench->executor->launcher.one_launch = false;
    feed_in_chunks(bench, 1);
    memcpy(bench->expected, bench->got, bytes);
    for (int mode = 0; mode <= one_launch; mode++) {
        bench->executor->launcher.one_launch = mode == 1;
        if (mode == 1) {
            feed_in_chunks(bench, 1);
            expect_same(bench, "one token at a time");
        }
        for (int i = 0; i < 3; i++) {
            char how[32];
            snprintf(how, sizeof how, "chunks of %d", chunks[i]);
            feed_in_chunks(bench, chunks[i]);
            expect_same(bench, how);
        }
        feed_among_others(bench);
        expect_same(bench, "beside seven other sessions");
        feed_and_move(bench);
        expect_same(bench, "with its blocks moved halfway");
    }
}

static void check_model(const struct model *model, enum opencl_kernels kernels, int n_tokens, const char *what)
{
    struct bench bench;
    open_bench(&bench, model, &(struct device_variant){.kernels = kernels}, n_tokens, what);
    check_bench(&bench);
    close_bench(&bench);
}

/* On a CPU that plays a GPU steps are slow: there one model alone goes past the end of a split. */
static int some_tokens(void)
{
    return device_is_spread() ? 100 : MOST_TOKENS;
}

static void check_random_model(const struct random_model_config *config, int n_tokens, const char *what)
{
    struct random_model model;
    random_model_open(&model, config);
    enum opencl_kernels kinds[3];
    int n = device_kernel_kinds(kinds);
    for (int i = 0; i < n; i++)
        if (kinds[i] != OPENCL_KERNELS_WITHOUT_VNNI) /* has its own test */
            check_model(model.model, kinds[i], n_tokens, what);
    random_model_close(&model);
}

/* ---- tests ---- */

static struct random_model_config larger(void)
{
    struct random_model_config config = random_model_default;
    config.n_embd = 256;
    config.n_heads = 9;
    config.n_kv_heads = 3;
    config.head_size = 64;
    config.n_ff = 544;
    config.n_vocab = 301;
    return config;
}

static void float_weights_keep_the_promise(void **state)
{
    (void)state;
    struct random_model_config config = larger();
    config.mixed_types = true;
    config.down_type = TENSOR_F16;
    config.table_type = TENSOR_BF16;
    check_random_model(&config, some_tokens(), "a llama of F32, F16 and BF16");
}

static void quantized_weights_keep_the_promise(void **state)
{
    (void)state;
    struct random_model_config config = larger();
    config.matrix_type = TENSOR_Q4_1;
    config.mixed_types = true;
    config.down_type = TENSOR_Q8_0;
    config.table_type = TENSOR_Q6_K;
    check_random_model(&config, MOST_TOKENS, "a llama of Q4_1, Q8_0 and Q6_K");
}

static void k_types_keep_the_promise(void **state)
{
    (void)state;
    struct random_model_config config = larger();
    config.n_heads = 4;
    config.n_kv_heads = 2;
    config.n_ff = 512;
    config.mixed_types = true;
    config.matrix_type = TENSOR_Q2_K;
    config.down_type = TENSOR_IQ4_XS;
    config.table_type = TENSOR_Q5_K;
    check_random_model(&config, some_tokens(), "a llama of Q2_K, IQ4_XS and Q5_K");
    if (device_is_spread()) /* a software renderer that compiles for half a minute */
        return;
    config.matrix_type = TENSOR_Q4_K;
    config.down_type = TENSOR_Q5_1;
    config.table_type = TENSOR_Q3_K;
    check_random_model(&config, some_tokens(), "a llama of Q4_K, Q5_1 and Q3_K");
}

static void sliding_windows_keep_the_promise(void **state)
{
    (void)state;
    struct random_model_config config = larger();
    config.architecture = "gemma3";
    config.matrix_type = TENSOR_Q8_0;
    config.window = 70;
    check_random_model(&config, some_tokens(), "a gemma3 with a window of 70");
}

/* Portable and x86, with VNNI and without. */
static void every_kind_of_kernels_gives_the_same_bits(void **state)
{
    (void)state;
    static const enum tensor_type types[][3] = {{TENSOR_Q4_0, TENSOR_Q5_0, TENSOR_Q8_0},
                                                {TENSOR_Q4_K, TENSOR_Q5_K, TENSOR_Q6_K},
                                                {TENSOR_IQ4_XS, TENSOR_Q2_K, TENSOR_Q8_0}};
    enum opencl_kernels kinds[3];
    int n = device_kernel_kinds(kinds);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct random_model_config config = larger();
        config.n_heads = 4; /* super-blocks of 256 */
        config.n_kv_heads = 2;
        config.n_ff = 512;
        config.matrix_type = types[i][0];
        config.down_type = types[i][1];
        config.table_type = types[i][2];
        config.mixed_types = true;
        struct random_model model;
        random_model_open(&model, &config);
        float *expected = NULL;
        for (int k = 0; k < n; k++) {
            struct bench bench;
            open_bench(&bench, model.model, &(struct device_variant){.kernels = kinds[k]}, 45,
                       "beside portable kernels");
            feed_in_chunks(&bench, 15);
            if (expected == NULL) {
                expected = bench.got;
                bench.got = bench.expected;
                bench.expected = NULL;
            } else {
                memcpy(bench.expected, expected, 45 * (size_t)model.model->n_vocab * sizeof(float));
                expect_same(&bench, tensor_type_name(types[i][0]));
            }
            close_bench(&bench);
        }
        free(expected);
        random_model_close(&model);
    }
}

/* The model of the end-to-end tests, where it is there. */
static void a_real_model_keeps_the_promise(void **state)
{
    (void)state;
    const char *path = getenv("NPUD_TEST_MODEL");
    struct gguf_file *file;
    struct model *model;
    struct npu_error error = {0};
    if (path == NULL || access(path, R_OK) != 0)
        skip();
    if (gguf_open(&file, path, &error) != NPU_OK || model_create(&model, file, &error) != NPU_OK)
        fail_msg("%s", error.message);
    check_model(model, OPENCL_KERNELS_BEST, device_is_spread() ? 10 : 70, "the real model");
    model_destroy(model);
    gguf_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float_weights_keep_the_promise),
        cmocka_unit_test(quantized_weights_keep_the_promise),
        cmocka_unit_test(k_types_keep_the_promise),
        cmocka_unit_test(sliding_windows_keep_the_promise),
        cmocka_unit_test(every_kind_of_kernels_gives_the_same_bits),
        cmocka_unit_test(a_real_model_keeps_the_promise),
    };
    if (!device_fixture_open())
        return TEST_SKIPPED;
    int failed = cmocka_run_group_tests_name("bitwise", tests, NULL, NULL);
    device_fixture_close();
    return failed;
}
