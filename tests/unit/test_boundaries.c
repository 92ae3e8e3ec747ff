/* Where steps, windows, blocks and buckets begin and end: however tokens come in, and whatever stood there before, logits
 * have the bits that one prefill of the whole gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_fixture.h"
#include "random_model.h"
#include "reference_fixture.h"

enum {
    N_BLOCKS = 9,
    CONTEXT = N_BLOCKS * KV_BLOCK_TOKENS, /* more than one split of attention and more than the largest bucket */
};

struct bench {
    struct opencl_executor *executor;
    const char *model;
    int window;
    size_t n_vocab;
    int32_t blocks[N_BLOCKS];
    int32_t tokens[CONTEXT], others[CONTEXT];
    float *whole; /* the logits of all positions, from a prefill of the whole */
};

/* Runs tokens of positions first .. end in chunks; the logits go to logits (from position first on), or nowhere. */
static void feed(const struct bench *bench, const int32_t *tokens, int first, int end, int chunk, float *logits)
{
    struct step_row rows[EXECUTOR_MAX_ROWS];
    struct row_result results[EXECUTOR_MAX_ROWS];
    struct block_table table = {bench->blocks, N_BLOCKS};
    for (int at = first; at < end; at += chunk) {
        int n = end - at < chunk ? end - at : chunk;
        for (int i = 0; i < n; i++)
            rows[i] = (struct step_row){.token = tokens[at + i],
                                        .position = at + i,
                                        .visible_end = at + i + 1,
                                        .returns = logits != NULL ? ROW_RETURN_LOGITS : ROW_RETURN_NOTHING};
        struct step step = {rows, n, &table, 1};
        struct npu_error error = {0};
        if (executor_step(&bench->executor->base, &step, results, &error) != NPU_OK)
            fail_msg("%s", error.message);
        for (int i = 0; i < n && logits != NULL; i++)
            memcpy(logits + (size_t)(at - first + i) * bench->n_vocab, results[i].logits,
                   bench->n_vocab * sizeof *logits);
    }
}

/* Feeds positions first .. end and compares each with the whole's. */
static void expect_whole(const struct bench *bench, int first, int end, int chunk, const char *what)
{
    float *logits = malloc((size_t)(end - first) * bench->n_vocab * sizeof *logits);
    assert_non_null(logits);
    feed(bench, bench->tokens, first, end, chunk, logits);
    for (int i = first; i < end; i++) {
        const float *expected = bench->whole + (size_t)i * bench->n_vocab,
                    *got = logits + (size_t)(i - first) * bench->n_vocab;
        if (memcmp(expected, got, bench->n_vocab * sizeof *got) != 0)
            fail_msg("%s, %s: the logits of position %d are not those of a prefill of the whole (%.9g and %.9g ...)",
                     bench->model, what, i, (double)got[0], (double)expected[0]);
    }
    free(logits);
}

/* NaN in all blocks: what was never written must not be read. */
static void forget(const struct bench *bench)
{
    void *bytes = malloc(bench->executor->base.block_bytes);
    assert_non_null(bytes);
    memset(bytes, 0xff, bench->executor->base.block_bytes);
    for (int32_t block = 0; block < bench->executor->base.n_blocks; block++)
        assert_int_equal(executor_write_block(&bench->executor->base, block, bytes, NULL), NPU_OK);
    free(bytes);
}

static void open_bench(struct bench *bench, const struct model *model, const struct device_variant *variant,
                       const char *name)
{
    uint32_t state = 11;
    *bench = (struct bench){.model = name, .window = model->window, .n_vocab = (size_t)model->n_vocab};
    bench->executor = device_executor(model, variant, N_BLOCKS, CONTEXT);
    bench->whole = malloc(CONTEXT * bench->n_vocab * sizeof *bench->whole);
    assert_non_null(bench->whole);
    for (int i = 0; i < N_BLOCKS; i++)
        bench->blocks[i] = (i * 5 + 2) % N_BLOCKS;
    for (int i = 0; i < CONTEXT; i++) {
        bench->tokens[i] = (int32_t)(random_bits(&state) % (uint32_t)model->n_vocab);
        bench->others[i] = (int32_t)(random_bits(&state) % (uint32_t)model->n_vocab);
    }
    forget(bench);
    feed(bench, bench->tokens, 0, CONTEXT, EXECUTOR_MAX_ROWS, bench->whole);
}

static void close_bench(struct bench *bench)
{
    free(bench->whole);
    executor_destroy(&bench->executor->base);
}

/* ---- what must hold ---- */

/* A prompt of n tokens alone, then one token after the other past it. */
static void check_prompt(const struct bench *bench, int n)
{
    char what[64];
    forget(bench);
    snprintf(what, sizeof what, "a prompt of %d tokens", n);
    expect_whole(bench, 0, n, EXECUTOR_MAX_ROWS, what);
    snprintf(what, sizeof what, "decode after a prompt of %d tokens", n);
    expect_whole(bench, n, n + 3 < CONTEXT ? n + 3 : CONTEXT, 1, what);
}

static void check_first_position(const struct bench *bench)
{
    check_prompt(bench, 1);
}

static void check_window(const struct bench *bench)
{
    for (int n = bench->window - 1; bench->window > 0 && n <= bench->window + 2; n++) {
        char what[64];
        if (n < 1)
            continue;
        check_prompt(bench, n);
        forget(bench);
        snprintf(what, sizeof what, "a chunk that ends at position %d", n - 1);
        expect_whole(bench, 0, n, 3, what);
        snprintf(what, sizeof what, "a chunk that begins at position %d", n);
        expect_whole(bench, n, n + 11, 5, what);
    }
}

static void check_buckets(const struct bench *bench)
{
    for (int bucket = 1; bucket <= EXECUTOR_MAX_ROWS; bucket *= 2)
        for (int n = bucket - 1; n <= bucket + 1; n++)
            if (n > 0)
                check_prompt(bench, n);
}

static void check_last_position(const struct bench *bench)
{
    forget(bench);
    feed(bench, bench->tokens, 0, CONTEXT - 3, EXECUTOR_MAX_ROWS, NULL);
    expect_whole(bench, CONTEXT - 3, CONTEXT, 1, "decode up to the last position");
    forget(bench);
    feed(bench, bench->tokens, 0, CONTEXT - 5, EXECUTOR_MAX_ROWS, NULL);
    expect_whole(bench, CONTEXT - 5, CONTEXT, 5, "a chunk up to the last position");
}

/* Turns of a chat: a prompt, a few decoded tokens, the next prompt in chunks, and so on to the end. */
static void check_turns(const struct bench *bench)
{
    static const int prompts[] = {13, 40, 1, 71, 32, 9}, answers[] = {5, 1, 12, 3, 30, 2}, chunks[] = {256, 7, 1, 33};
    forget(bench);
    for (int at = 0, turn = 0; at < CONTEXT; turn++) {
        int prompt_end = at + prompts[turn % 6], answer_end = prompt_end + answers[turn % 6];
        prompt_end = prompt_end < CONTEXT ? prompt_end : CONTEXT;
        answer_end = answer_end < CONTEXT ? answer_end : CONTEXT;
        char what[64];
        snprintf(what, sizeof what, "turn %d", turn + 1);
        expect_whole(bench, at, prompt_end, chunks[turn % 4], what);
        if (answer_end > prompt_end)
            expect_whole(bench, prompt_end, answer_end, 1, what);
        at = answer_end;
    }
}

/* Cut back to position cut after other tokens have been computed from there to `end`, then continued. */
static void check_cut(const struct bench *bench, int cut, int end)
{
    char what[64];
    snprintf(what, sizeof what, "cut back from %d to %d tokens", end, cut);
    feed(bench, bench->others, cut, end, EXECUTOR_MAX_ROWS, NULL);
    expect_whole(bench, cut, end, cut % 3 == 0 ? 1 : 17, what);
}

static void check_cuts(const struct bench *bench)
{
    enum {
        SHORT = 2 * KV_BLOCK_TOKENS + 5
    };
    forget(bench);
    feed(bench, bench->tokens, 0, SHORT, EXECUTOR_MAX_ROWS, NULL);
    for (int cut = SHORT - 1; cut >= 0; cut--)
        check_cut(bench, cut, SHORT);
    for (int cut = 0; cut < CONTEXT; cut += 37) /* a longer conversation: past a split of attention */
        check_cut(bench, cut, CONTEXT);
}

static void check_bench(struct bench *bench)
{
    check_first_position(bench);
    check_window(bench);
    check_buckets(bench);
    check_last_position(bench);
    check_turns(bench);
    check_cuts(bench);
}

static void check_model(const struct model *model, const char *name)
{
    struct bench *bench = malloc(sizeof *bench);
    assert_non_null(bench);
    open_bench(bench, model, &(struct device_variant){0}, name);
    check_bench(bench);
    close_bench(bench);
    free(bench);
}

static void check_fixture(const char *name)
{
    struct reference_fixture fixture;
    struct npu_error error = {0};
    if (reference_fixture_open(&fixture, name, &error) != NPU_OK)
        fail_msg("%s", error.message);
    check_model(fixture.model, name);
    reference_fixture_close(&fixture);
}

static void llama_keeps_its_bits_at_every_boundary(void **state)
{
    (void)state;
    check_fixture("llama");
}

static void gemma3_keeps_its_bits_at_every_boundary(void **state)
{
    (void)state;
    check_fixture("gemma3");
    check_fixture("gemma3-odd-layers");
}

static void gemma4_keeps_its_bits_at_every_boundary(void **state)
{
    (void)state;
    check_fixture("gemma4");
    check_fixture("gemma4-odd-sharing");
}

/* Windows longer than a block, and as long as one; int8 products. */
static void quantized_gemmas_keep_their_bits_at_every_boundary(void **state)
{
    (void)state;
    static const uint32_t windows[] = {KV_BLOCK_TOKENS, 70};
    for (size_t i = 0; i < 2; i++) {
        struct random_model model;
        struct random_model_config config = random_model_default;
        char name[64];
        config.architecture = i == 0 ? "gemma3" : "gemma4";
        config.matrix_type = config.table_type = TENSOR_Q4_0;
        config.n_layers = 4;
        config.window = windows[i];
        config.n_per_layer = i == 0 ? 0 : 32;
        config.n_shared_kv = i == 0 ? 0 : 2;
        snprintf(name, sizeof name, "a %s of Q4_0 with a window of %u", config.architecture, config.window);
        random_model_open(&model, &config);
        check_model(model.model, name);
        random_model_close(&model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_keeps_its_bits_at_every_boundary),
        cmocka_unit_test(gemma3_keeps_its_bits_at_every_boundary),
        cmocka_unit_test(gemma4_keeps_its_bits_at_every_boundary),
        cmocka_unit_test(quantized_gemmas_keep_their_bits_at_every_boundary),
    };
    if (!device_fixture_open())
        return TEST_SKIPPED;
    int failed = cmocka_run_group_tests_name("boundaries", tests, NULL, NULL);
    device_fixture_close();
    return failed;
}
