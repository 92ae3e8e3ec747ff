/* Rows that give their hidden state back: near those of the reference executor in every architecture, with the same bits in
 * any step, and nothing of other rows changes for them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_fixture.h"
#include "npu/reference/reference_executor.h"
#include "random_model.h"

enum {
    N_TOKENS = 37,
    N_BLOCKS = 4,
    N_EMBD = 96,
    MAX_VOCAB = 512,
    STEP_ROWS = 16, /* that all return */
};

struct run {
    float hidden[N_TOKENS][N_EMBD];
    float logits[MAX_VOCAB]; /* of the last token, from a step of its own */
};

static struct random_model_config make_config(const char *architecture, uint32_t type)
{
    struct random_model_config config = random_model_default;
    config.architecture = architecture;
    config.n_embd = N_EMBD;
    config.n_heads = 4;
    config.n_kv_heads = 2;
    config.head_size = 32;
    config.n_ff = 160;
    config.n_vocab = 301;
    config.matrix_type = config.table_type = type;
    config.seed = 7;
    if (strcmp(architecture, "gemma3") == 0)
        config.window = 9;
    if (strcmp(architecture, "gemma4") == 0) {
        config.n_layers = 4;
        config.window = 9;
        config.n_per_layer = 32;
        config.n_shared_kv = 2;
    }
    return config;
}

/* Feeds the tokens in chunks, all but the last row of which give back `among` where it is not the turn of the hidden state:
 * every row's hidden state comes from a step of hidden states alone or of several kinds. */
static void feed(struct executor *executor, int chunk, enum row_return others, struct run *run)
{
    static const int32_t blocks[2] = {2, 1};
    struct block_table table = {blocks, 2};
    struct npu_error error = {0};
    uint32_t state = 3;
    int32_t tokens[N_TOKENS];
    for (int i = 0; i < N_TOKENS; i++)
        tokens[i] = (int32_t)(random_bits(&state) % (uint32_t)executor->n_vocab);
    for (int kind = 0; kind < 2; kind++) { /* which of two neighbours returns its hidden state */
        for (int at = 0; at < N_TOKENS; at += chunk) {
            struct step_row rows[N_TOKENS];
            struct row_result results[N_TOKENS];
            int n = N_TOKENS - at < chunk ? N_TOKENS - at : chunk;
            for (int i = 0; i < n; i++)
                rows[i] = (struct step_row){.token = tokens[at + i],
                                            .position = at + i,
                                            .visible_end = at + i + 1,
                                            .returns = (uint8_t)((at + i) % 2 == kind ? ROW_RETURN_HIDDEN : others)};
            struct step step = {rows, n, &table, 1};
            if (executor_step(executor, &step, results, &error) != NPU_OK)
                fail_msg("%s", error.message);
            for (int i = 0; i < n; i++) {
                if (rows[i].returns == ROW_RETURN_HIDDEN)
                    memcpy(run->hidden[at + i], results[i].hidden, sizeof run->hidden[0]);
                else
                    assert_null(results[i].hidden);
            }
        }
    }
    struct step_row last = {
        .token = tokens[N_TOKENS - 1], .position = N_TOKENS - 1, .visible_end = N_TOKENS, .returns = ROW_RETURN_LOGITS};
    struct row_result result;
    struct step step = {&last, 1, &table, 1};
    if (executor_step(executor, &step, &result, &error) != NPU_OK)
        fail_msg("%s", error.message);
    memcpy(run->logits, result.logits, (size_t)executor->n_vocab * sizeof(float));
}

static void feed_reference(const struct model *model, struct run *run)
{
    struct reference_options options = {
        .n_blocks = N_BLOCKS, .max_tables = 1, .max_context = 2 * KV_BLOCK_TOKENS, .kv_f16 = false};
    struct executor *reference = NULL;
    struct npu_error error = {0};
    if (reference_executor_create(&reference, model, &options, &error) != NPU_OK)
        fail_msg("%s", error.message);
    feed(reference, N_TOKENS, ROW_RETURN_HIDDEN, run);
    executor_destroy(reference);
}

/* Of two vectors: the length of the difference over the length of the first. */
static double difference(const float *a, const float *b, int n)
{
    double squares = 0, differences = 0;
    for (int i = 0; i < n; i++) {
        squares += (double)a[i] * a[i];
        differences += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    }
    return sqrt(differences / squares);
}

static void expect_same_bits(const struct run *expected, const struct run *got, const char *how)
{
    for (int i = 0; i < N_TOKENS; i++)
        if (memcmp(expected->hidden[i], got->hidden[i], sizeof got->hidden[i]) != 0)
            fail_msg("%s: the hidden state at position %d has other bits", how, i);
    if (memcmp(expected->logits, got->logits, sizeof got->logits) != 0)
        fail_msg("%s: the last token's logits have other bits", how);
}

static void check(const char *architecture, uint32_t type, double limit)
{
    static struct run reference, expected, got;
    struct random_model_config config = make_config(architecture, type);
    struct random_model model;
    memset(&reference, 0, sizeof reference);
    memset(&expected, 0, sizeof expected);
    memset(&got, 0, sizeof got);
    random_model_open(&model, &config);
    feed_reference(model.model, &reference);
    struct opencl_executor *executor =
        device_executor(model.model, &(struct device_variant){.kv_f32 = true}, N_BLOCKS, 2 * KV_BLOCK_TOKENS);
    assert_true(executor->base.max_returning >= STEP_ROWS);
    bool one_launch = executor->profile.atomics && !executor->profile.spread;
    double worst = 0;
    for (int mode = 0; mode <= one_launch; mode++) {
        executor->launcher.one_launch = mode == 1;
        feed(&executor->base, STEP_ROWS, ROW_RETURN_HIDDEN, mode == 0 ? &expected : &got);
        if (mode == 1)
            expect_same_bits(&expected, &got, "in one launch");
        feed(&executor->base, 1, ROW_RETURN_HIDDEN, &got);
        expect_same_bits(&expected, &got, "one token at a time");
        feed(&executor->base, STEP_ROWS, ROW_RETURN_BEST, &got);
        expect_same_bits(&expected, &got, "beside rows that return tokens");
        feed(&executor->base, 5, ROW_RETURN_NOTHING, &got);
        expect_same_bits(&expected, &got, "beside rows that return nothing");
    }
    for (int i = 0; i < N_TOKENS; i++) {
        double here = difference(reference.hidden[i], expected.hidden[i], N_EMBD);
        worst = here > worst ? here : worst;
    }
    printf("%-6s %-4s hidden states differ by %.6f at most\n", architecture, tensor_type_name(type), worst);
    fflush(stdout);
    assert_true(worst < limit);
    executor_destroy(&executor->base);
    random_model_close(&model);
}

static void every_architecture_gives_the_references_hidden_states(void **state)
{
    static const char *const architectures[] = {"llama", "qwen2", "qwen3", "gemma3", "gemma4"};
    (void)state;
    for (int i = 0; i < 5; i++)
        check(architectures[i], TENSOR_F32, 1e-4);
}

/* Products with int8 activations have their noise. */
static void so_do_quantized_weights(void **state)
{
    (void)state;
    check("llama", TENSOR_Q4_0, 0.05);
    check("gemma3", TENSOR_Q8_0, 0.05);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_architecture_gives_the_references_hidden_states),
        cmocka_unit_test(so_do_quantized_weights),
    };
    if (!device_fixture_open())
        return TEST_SKIPPED;
    int failed = cmocka_run_group_tests_name("hidden", tests, NULL, NULL);
    device_fixture_close();
    return failed;
}
