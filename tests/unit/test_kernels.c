/* Every kernel of every variant against the reference, op by op with the device's own inputs, on odd sizes: tiny random
 * models of each tensor type, head geometry and window, steps of each form. */
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
#include "npu/compare.h"
#include "npu/opencl/pack.h"
#include "npu/reference/reference_executor.h"
#include "npu/verify_ops.h"
#include "random_model.h"

enum {
    N_TABLES = 16,
    TABLE_BLOCKS = 32,
    CONTEXT = TABLE_BLOCKS * KV_BLOCK_TOKENS,
    MAX_RUNS = 16
};

/* ---- steps ---- */

/* Rows of one table at consecutive positions; run i of a step uses table i. */
struct run_of_rows {
    int n, first;
};

struct step_form {
    const char *name;
    struct run_of_rows runs[MAX_RUNS]; /* up to the first with n 0 */
};

/* The ends of blocks lie at multiples of 32, those of attention's splits at multiples of 256. */
static const struct step_form forms[] = {
    {"one row", {{1, 31}}},
    {"two rows", {{2, 31}}},
    {"three rows", {{3, 255}}},
    {"four rows", {{4, 254}}},
    {"five rows", {{5, 29}}},
    {"seven rows", {{7, 252}}},
    {"seventeen rows", {{17, 250}}},
    {"forty rows", {{40, 490}}},
    {"one row of each of 14 tables",
     {{1, 0},
      {1, 1},
      {1, 30},
      {1, 31},
      {1, 32},
      {1, 33},
      {1, 254},
      {1, 255},
      {1, 256},
      {1, 257},
      {1, 511},
      {1, 512},
      {1, 513},
      {1, 1000}}},
    {"runs and single rows", {{3, 255}, {1, 0}, {5, 30}, {17, 500}, {1, 700}}},
    {"the start of two prompts", {{33, 0}, {2, 0}}},
};

struct built_step {
    struct step_row rows[EXECUTOR_MAX_ROWS];
    struct block_table tables[N_TABLES];
    int32_t blocks[N_TABLES][TABLE_BLOCKS];
    float embedding[4096];
    struct step step;
};

/* All kinds of returns in turn; the last row of a run returns in any case. Every ninth row brings an embedding. */
static void build_step(struct built_step *built, const struct step_form *form, const struct executor *executor)
{
    static const enum row_return returns[] = {ROW_RETURN_NOTHING, ROW_RETURN_BEST,  ROW_RETURN_LOGITS,
                                              ROW_RETURN_NOTHING, ROW_RETURN_TOP_K, ROW_RETURN_HIDDEN,
                                              ROW_RETURN_NOTHING};
    static const uint8_t top_k[] = {1, 20, EXECUTOR_MAX_TOP_K};
    uint32_t state = 99;
    int n = 0, n_tables = 0;
    memset(built, 0, sizeof *built);
    for (size_t i = 0; i < sizeof built->embedding / sizeof built->embedding[0]; i++)
        built->embedding[i] = random_float(&state);
    for (; n_tables < MAX_RUNS && form->runs[n_tables].n > 0; n_tables++) {
        const struct run_of_rows *run = &form->runs[n_tables];
        for (int i = 0; i < run->n; i++, n++) {
            struct step_row *row = &built->rows[n];
            *row = (struct step_row){.token = (int32_t)(random_bits(&state) % (uint32_t)executor->n_vocab),
                                     .position = run->first + i,
                                     .visible_end = run->first + i + 1,
                                     .table = (uint16_t)n_tables,
                                     .returns = (uint8_t)returns[n % 7]};
            if (i + 1 == run->n && row->returns == ROW_RETURN_NOTHING)
                row->returns = ROW_RETURN_TOP_K;
            if (row->returns == ROW_RETURN_TOP_K)
                row->top_k = top_k[n % 3] < executor->n_vocab ? top_k[n % 3] : (uint8_t)executor->n_vocab;
            if (n % 9 == 8)
                row->embedding = built->embedding;
        }
        for (int i = 0; i < TABLE_BLOCKS; i++) /* out of order */
            built->blocks[n_tables][i] = n_tables * TABLE_BLOCKS + (i * 5 + n_tables) % TABLE_BLOCKS;
        built->tables[n_tables] = (struct block_table){built->blocks[n_tables], TABLE_BLOCKS};
    }
    built->step = (struct step){built->rows, n, built->tables, n_tables};
}

/* ---- checking ---- */

static void check_step(struct opencl_executor *executor, const struct step *step, const char *what)
{
    static const struct verify_ops_options all = {.limit = VERIFY_OPS_LIMIT};
    struct op_checks checks = {0};
    struct npu_error error = {0};
    if (verify_ops_run(&checks, &executor->base, step, &all, &error) != NPU_OK)
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
    assert_int_equal(n_failed, 0);
}

static void check_variant(const struct model *model, const struct device_variant *variant, const char *what)
{
    struct opencl_executor *executor = device_executor(model, variant, N_TABLES * TABLE_BLOCKS, CONTEXT);
    device_fill_history(executor);
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct built_step built;
        char name[256];
        snprintf(name, sizeof name, "%s, %s kernels, K/V %s: %s", what, device_kernels_name(executor),
                 variant->kv_f32 ? "f32" : "f16", forms[i].name);
        build_step(&built, &forms[i], &executor->base);
        check_step(executor, &built.step, name);
    }
    executor_destroy(&executor->base);
}

static void check_model(const struct random_model_config *config, const struct device_variant *variant,
                        const char *what)
{
    struct random_model model;
    random_model_open(&model, config);
    check_variant(model.model, variant, what);
    random_model_close(&model);
}

static void check_variants(const struct random_model_config *config, bool kv_f32, const char *what)
{
    enum opencl_kernels kinds[3];
    int n = device_kernel_kinds(kinds);
    for (int i = 0; i < n; i++)
        if (kinds[i] != OPENCL_KERNELS_WITHOUT_VNNI) /* test_bitwise compares it with the others */
            check_model(config, &(struct device_variant){.kernels = kinds[i], .kv_f32 = kv_f32}, what);
}

/* ---- tests: what a program is compiled for (types, head sizes, type of K/V) is shared out, as compiling takes longest ---- */

struct geometry {
    uint32_t head_size, n_heads, n_kv_heads;
};

static void set_geometry(struct random_model_config *config, const struct geometry *geometry)
{
    config->head_size = geometry->head_size;
    config->n_heads = geometry->n_heads;
    config->n_kv_heads = geometry->n_kv_heads;
}

/* Three types of one block size at a time: each is the type of most matrices once, of ffn_down once, of the table once. */
static void check_three_types(const uint32_t types[3], int n_types, int block, int group)
{
    static const struct geometry shapes[] = {{64, 3, 1}, {32, 4, 2}, {96, 6, 1}, {128, 8, 1}, {64, 8, 2}};
    for (int turn = 0; turn < n_types; turn++) {
        char what[96];
        struct random_model_config config = random_model_default;
        set_geometry(&config, block == 256 && group < 3 ? &shapes[3] : &shapes[group % 5]);
        config.architecture = turn % 2 ? "qwen3" : "qwen2";
        config.n_layers = 1;
        config.n_embd = block == 256 ? 256 : block == 32 ? 96 : 44;
        config.n_ff = block == 256 ? 512 : block == 32 ? 160 : 45;
        config.matrix_type = types[turn];
        config.down_type = types[(turn + 1) % n_types];
        config.table_type = types[(turn + 2) % n_types];
        config.mixed_types = true;
        config.biases = turn != 1;
        config.untied = turn == 1;
        config.seed = types[turn] + 1;
        snprintf(what, sizeof what, "%s with %s, %s and %s", config.architecture, tensor_type_name(config.matrix_type),
                 tensor_type_name(config.down_type), tensor_type_name(config.table_type));
        check_variants(&config, group % 2, what);
    }
}

static void every_tensor_type_is_right(void **state)
{
    (void)state;
    static const int blocks[] = {1, 32, 256};
    int total = 0, group = 0;
    for (int b = 0; b < 3; b++) {
        uint32_t types[3];
        int n = 0;
        for (uint32_t type = 0; type <= 64; type++) {
            int layout;
            bool packed = type < 64 && tensor_type_block_elements(type) == blocks[b] && pack_layout(type, &layout);
            if (packed)
                types[n++] = type;
            if (n == 3 || (type == 64 && n > 0)) {
                check_three_types(types, n, blocks[b], group++);
                total += n;
                n = 0;
            }
        }
    }
    assert_true(total >= 7);
}

static void heads_of_other_sizes_are_right(void **state)
{
    (void)state;
    static const struct geometry shapes[] = {{128, 7, 1}, {256, 9, 1}, {40, 6, 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        char what[96];
        struct random_model_config config = random_model_default;
        set_geometry(&config, &shapes[i]);
        config.n_embd = 40;
        config.n_layers = 1;
        snprintf(what, sizeof what, "%u heads of %u over %u", config.n_heads, config.head_size, config.n_kv_heads);
        check_model(&config, &(struct device_variant){.kv_f32 = i == 0}, what);
    }
}

static void every_window_is_right(void **state)
{
    (void)state;
    static const uint32_t windows[] = {1, 5, 32, 33, 100, 256, 300};
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
        char what[64];
        struct random_model_config config = random_model_default;
        config.architecture = "gemma3";
        config.window = windows[i];
        config.matrix_type = i % 2 ? TENSOR_Q8_0 : TENSOR_F32;
        config.down_type = TENSOR_Q8_0;
        config.mixed_types = true;
        snprintf(what, sizeof what, "gemma3 with a window of %u", windows[i]);
        check_variants(&config, false, what);
    }
}

static void the_choice_of_tokens_is_right_among_equal_logits(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {2047, 2048, 2049, 5003};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char what[64];
        struct random_model_config config = random_model_default;
        config.n_layers = 1;
        config.n_vocab = sizes[i];
        config.table_period = i % 2 ? 1000 : 7;
        snprintf(what, sizeof what, "a vocabulary of %u with equal rows", config.n_vocab);
        check_model(&config, &(struct device_variant){.kernels = OPENCL_KERNELS_PORTABLE}, what);
    }
}

static void weights_and_kv_in_several_buffers_are_right(void **state)
{
    (void)state;
    struct random_model_config config = random_model_default;
    config.matrix_type = TENSOR_Q8_0;
    config.n_layers = 3;
    /* A block is 49,152 bytes of K/V, all 512 of them 24 MiB. */
    check_model(&config, &(struct device_variant){.kv_f32 = true, .max_allocation = 13 << 20}, "K/V in four buffers");
    config.n_ff = 4096;
    config.n_embd = 1024;
    config.n_layers = 1;
    check_model(&config, &(struct device_variant){.max_allocation = 8 << 20}, "weights and K/V in several buffers");
}

/* Runs n tokens at positions first ... of one table and gives the logits of the last. */
static void feed(struct executor *executor, const int32_t *tokens, int n, int first, float *logits)
{
    struct step_row rows[EXECUTOR_MAX_ROWS];
    struct row_result results[EXECUTOR_MAX_ROWS];
    int32_t blocks[TABLE_BLOCKS];
    memset(rows, 0, sizeof rows);
    for (int i = 0; i < TABLE_BLOCKS; i++)
        blocks[i] = TABLE_BLOCKS - 1 - i;
    for (int i = 0; i < n; i++)
        rows[i] = (struct step_row){.token = tokens[i], .position = first + i, .visible_end = first + i + 1};
    rows[n - 1].returns = ROW_RETURN_LOGITS;
    struct block_table table = {blocks, TABLE_BLOCKS};
    struct step step = {rows, n, &table, 1};
    struct npu_error error = {0};
    if (executor_step(executor, &step, results, &error) != NPU_OK)
        fail_msg("%s", error.message);
    memcpy(logits, results[n - 1].logits, (size_t)executor->n_vocab * sizeof *logits);
}

static void compare_whole_steps(const struct model *model, const struct device_variant *variant, double limit)
{
    struct opencl_executor *executor = device_executor(model, variant, TABLE_BLOCKS, CONTEXT);
    struct executor *reference = NULL;
    struct reference_options options = {
        .n_blocks = TABLE_BLOCKS, .max_tables = 1, .max_context = CONTEXT, .kv_f16 = !variant->kv_f32};
    assert_int_equal(reference_executor_create(&reference, model, &options, NULL), NPU_OK);
    static const int chunks[] = {1, 40, 1, 7, 211, 1, 3, 1};
    int32_t tokens[300];
    float *device_logits = malloc((size_t)model->n_vocab * sizeof(float)),
          *reference_logits = malloc((size_t)model->n_vocab * sizeof(float));
    uint32_t state = 7;
    for (int i = 0; i < 300; i++)
        tokens[i] = (int32_t)(random_bits(&state) % (uint32_t)model->n_vocab);
    int at = 0;
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        feed(&executor->base, tokens + at, chunks[i], at, device_logits);
        feed(reference, tokens + at, chunks[i], at, reference_logits);
        at += chunks[i];
        struct logit_comparison comparison = logit_compare(device_logits, reference_logits, model->n_vocab);
        if (!(comparison.peir <= limit))
            fail_msg("%s after %d tokens: PEIR %g, at most %g", model->architecture, at, comparison.peir, limit);
    }
    free(device_logits);
    free(reference_logits);
    executor_destroy(reference);
    executor_destroy(&executor->base);
}

static void whole_steps_give_the_logits_of_the_reference(void **state)
{
    (void)state;
    static const char *const architectures[] = {"llama", "qwen2", "qwen3", "gemma3"};
    for (size_t i = 0; i < sizeof architectures / sizeof architectures[0]; i++) {
        struct random_model model;
        struct random_model_config config = random_model_default;
        config.architecture = architectures[i];
        config.window = 50;
        random_model_open(&model, &config);
        compare_whole_steps(model.model, &(struct device_variant){.kv_f32 = true}, 1e-4);
        compare_whole_steps(model.model,
                            &(struct device_variant){.launch_each = true, .kernels = OPENCL_KERNELS_PORTABLE}, 5e-3);
        random_model_close(&model);
        config.matrix_type = TENSOR_Q8_0;
        random_model_open(&model, &config);
        compare_whole_steps(model.model, &(struct device_variant){.kv_f32 = false}, 0.1);
        random_model_close(&model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tensor_type_is_right),
        cmocka_unit_test(heads_of_other_sizes_are_right),
        cmocka_unit_test(every_window_is_right),
        cmocka_unit_test(the_choice_of_tokens_is_right_among_equal_logits),
        cmocka_unit_test(weights_and_kv_in_several_buffers_are_right),
        cmocka_unit_test(whole_steps_give_the_logits_of_the_reference),
    };
    if (!device_fixture_open())
        return TEST_SKIPPED;
    int failed = cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
    device_fixture_close();
    return failed;
}
