/* Whole models on a device against the reference executor on the same weights: every architecture in every tensor type.
 * Prints a line for each, from which docs/verification.md takes its table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/npuctl/verify_report.h"
#include "device_fixture.h"
#include "npu/opencl/pack.h"
#include "npu/reference/reference_executor.h"
#include "npu/verify_ops.h"
#include "random_model.h"

/* Of the mean, for quantized weights, whose products take int8 activations; and for types that are computed in float32,
 * whose difference is that of sums and of K/V in half precision. */
static const double quantized_mean_peir = 0.03, float_max_peir = 0.02;

enum {
    N_PROMPT = 21,
    N_STEPS = 8,
    N_BLOCKS = 2
};

static const uint32_t types[] = {TENSOR_F32,  TENSOR_F16,  TENSOR_BF16, TENSOR_Q4_0,   TENSOR_Q4_1,
                                 TENSOR_Q5_0, TENSOR_Q5_1, TENSOR_Q8_0, TENSOR_Q2_K,   TENSOR_Q3_K,
                                 TENSOR_Q4_K, TENSOR_Q5_K, TENSOR_Q6_K, TENSOR_IQ4_NL, TENSOR_IQ4_XS};

/* Sizes that every type's blocks divide, and windows that the prompt outgrows. One size of the largest head for all, so
 * that the kernels of a type are compiled once. */
static struct random_model_config make_config(const char *architecture, uint32_t type)
{
    struct random_model_config config = random_model_default;
    config.architecture = architecture;
    config.n_embd = 256;
    config.n_heads = 4;
    config.n_kv_heads = 2;
    config.head_size = 64;
    config.n_ff = 512;
    config.n_vocab = 301;
    config.matrix_type = config.table_type = type;
    config.seed = type + 1;
    if (strcmp(architecture, "gemma3") == 0)
        config.window = 9;
    if (strcmp(architecture, "gemma4") == 0) {
        config.n_layers = 4;
        config.n_heads = 8;
        config.head_size = 32;
        config.window = 9;
        config.n_per_layer = 256;
        config.n_shared_kv = 2;
    }
    config.biases = strcmp(architecture, "qwen2") == 0;
    config.untied = strcmp(architecture, "qwen3") == 0;
    return config;
}

static void compute_reference(struct verify_cases *cases, const struct model *model)
{
    struct executor *reference = NULL;
    struct npu_error error = {0};
    struct reference_options options = {
        .n_blocks = N_BLOCKS, .max_tables = 1, .max_context = N_BLOCKS * KV_BLOCK_TOKENS, .kv_f16 = false};
    int32_t prompt[N_PROMPT];
    uint32_t state = 17;
    for (int i = 0; i < N_PROMPT; i++)
        prompt[i] = (int32_t)(random_bits(&state) % (uint32_t)model->n_vocab);
    if (reference_executor_create(&reference, model, &options, &error) != NPU_OK ||
        verify_cases_compute(cases, reference, prompt, N_PROMPT, N_STEPS, &error) != NPU_OK)
        fail_msg("%s", error.message);
    executor_destroy(reference);
}

/* The ops of a step of several rows that follows the prompt, with the device's own inputs. */
static int count_failed_ops(struct opencl_executor *executor, const char *what)
{
    static const struct verify_ops_options all = {.limit = VERIFY_OPS_LIMIT};
    static const int32_t blocks[N_BLOCKS] = {0, 1};
    struct block_table table = {blocks, N_BLOCKS};
    struct step_row rows[5];
    struct op_checks checks = {0};
    struct npu_error error = {0};
    for (int i = 0; i < 5; i++)
        rows[i] = (struct step_row){.token = 7 * i,
                                    .position = N_PROMPT + i,
                                    .visible_end = N_PROMPT + i + 1,
                                    .returns = i == 2 ? ROW_RETURN_NOTHING : ROW_RETURN_BEST};
    struct step step = {rows, 5, &table, 1};
    if (verify_ops_run(&checks, &executor->base, &step, &all, &error) != NPU_OK)
        fail_msg("%s: %s", what, error.message);
    assert_true(checks.n > 10);
    for (int i = 0; i < checks.n; i++) {
        char text[400];
        op_check_describe(&checks.checks[i], text, sizeof text);
        if (!checks.checks[i].passed)
            print_error("%s: error %g: %s\n", what, checks.checks[i].error, text);
    }
    int n_failed = checks.n_failed;
    op_checks_destroy(&checks);
    return n_failed;
}

/* Returns whether the model's logits and ops are within the limits. */
static bool check_model(const char *architecture, uint32_t type)
{
    struct random_model_config config = make_config(architecture, type);
    struct random_model model;
    struct verify_cases cases;
    struct verify_report report;
    struct npu_error error = {0};
    char what[64];
    snprintf(what, sizeof what, "%s %s", architecture, tensor_type_name(type));
    random_model_open(&model, &config);
    compute_reference(&cases, model.model);
    struct opencl_executor *executor =
        device_executor(model.model, &(struct device_variant){0}, N_BLOCKS, N_BLOCKS * KV_BLOCK_TOKENS);
    if (verify_run(&report, &executor->base, &cases, true, &error) != NPU_OK)
        fail_msg("%s: %s", what, error.message);
    int n_failed_ops = count_failed_ops(executor, what);
    int layout;
    assert_true(pack_layout(type, &layout));
    bool quantized = pack_layout_is_quantized(layout);
    bool passed = report.n_agree + report.n_near_ties == report.n_compared && n_failed_ops == 0 &&
                  (quantized ? report.mean_peir <= quantized_mean_peir : report.max_peir <= float_max_peir);
    printf("%-6s %-6s mean PEIR %.5f, worst %.5f, same choice %d of %d, near ties %d%s\n", architecture,
           tensor_type_name(type), report.mean_peir, report.max_peir, report.n_agree, report.n_compared,
           report.n_near_ties, passed ? "" : " FAILED");
    fflush(stdout);
    assert_int_equal(report.n_compared, N_PROMPT + N_STEPS - 1);
    verify_report_destroy(&report);
    verify_cases_destroy(&cases);
    executor_destroy(&executor->base);
    random_model_close(&model);
    return passed;
}

static void check_architecture(const char *architecture)
{
    int n_failed = 0;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        n_failed += !check_model(architecture, types[i]);
    assert_int_equal(n_failed, 0);
}

static void llama_is_right_in_every_type(void **state)
{
    (void)state;
    check_architecture("llama");
}

static void qwen2_is_right_in_every_type(void **state)
{
    (void)state;
    check_architecture("qwen2");
}

static void qwen3_is_right_in_every_type(void **state)
{
    (void)state;
    check_architecture("qwen3");
}

static void gemma3_is_right_in_every_type(void **state)
{
    (void)state;
    check_architecture("gemma3");
}

static void gemma4_is_right_in_every_type(void **state)
{
    (void)state;
    check_architecture("gemma4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_is_right_in_every_type),  cmocka_unit_test(qwen2_is_right_in_every_type),
        cmocka_unit_test(qwen3_is_right_in_every_type),  cmocka_unit_test(gemma3_is_right_in_every_type),
        cmocka_unit_test(gemma4_is_right_in_every_type),
    };
    if (!device_fixture_open())
        return TEST_SKIPPED;
    int failed = cmocka_run_group_tests_name("device models", tests, NULL, NULL);
    device_fixture_close();
    return failed;
}
