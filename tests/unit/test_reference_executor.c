#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "npu/half.h"
#include "npu/reference/reference_executor.h"
#include "npu/reference/reference_op.h"
#include "tiny_llama.h"

enum {
    N_TOKENS = 70,
    N_BLOCKS = 12,
    CONTEXT = 96
};

struct fixture {
    struct tiny_llama llama;
    struct executor *executor;
};

static void open_fixture(struct fixture *fixture, const struct tiny_llama_config *config, bool kv_f16)
{
    struct npu_error error = {0};
    assert_int_equal(tiny_llama_open(&fixture->llama, config, &error), NPU_OK);
    struct reference_options options = {
        .n_blocks = N_BLOCKS, .max_tables = 4, .max_context = CONTEXT, .kv_f16 = kv_f16};
    assert_int_equal(reference_executor_create(&fixture->executor, fixture->llama.model, &options, &error), NPU_OK);
}

static void close_fixture(struct fixture *fixture)
{
    executor_destroy(fixture->executor);
    tiny_llama_close(&fixture->llama);
}

static int32_t token_at(int sequence, int position)
{
    return (position * 7 + sequence * 13 + position * position % 11) % 61;
}

/* Three blocks of each of four sequences, out of order. */
static const int32_t block_lists[4][3] = {{5, 0, 9}, {1, 11, 2}, {8, 3, 4}, {10, 7, 6}};

static struct block_table table_of(int sequence)
{
    return (struct block_table){block_lists[sequence], 3};
}

static struct step_row row_of(int sequence, int position, uint16_t table, enum row_return returns)
{
    return (struct step_row){.token = token_at(sequence, position),
                             .position = position,
                             .visible_end = position + 1,
                             .table = table,
                             .returns = (uint8_t)returns};
}

/* Runs positions [begin, end) of a sequence in one step and copies the logits of each to logits[position]. */
static void run_chunk(struct executor *executor, int sequence, int begin, int end, float (*logits)[61])
{
    struct step_row rows[EXECUTOR_MAX_ROWS];
    struct row_result results[EXECUTOR_MAX_ROWS];
    struct block_table table = table_of(sequence);
    for (int p = begin; p < end; p++)
        rows[p - begin] = row_of(sequence, p, 0, ROW_RETURN_LOGITS);
    struct step step = {rows, end - begin, &table, 1};
    struct npu_error error = {0};
    if (executor_step(executor, &step, results, &error) != NPU_OK)
        fail_msg("%s", error.message);
    for (int p = begin; p < end; p++)
        memcpy(logits[p], results[p - begin].logits, sizeof logits[p]);
}

static void chunks_give_the_bits_of_one_token_at_a_time(void **state)
{
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, &tiny_llama_default, true);
    static float alone[N_TOKENS][61], chunked[N_TOKENS][61];
    for (int p = 0; p < N_TOKENS; p++)
        run_chunk(fixture.executor, 0, p, p + 1, alone);
    static const int chunks[] = {7, 32, 64, N_TOKENS};
    for (size_t c = 0; c < sizeof chunks / sizeof chunks[0]; c++) {
        memset(chunked, 0, sizeof chunked);
        for (int p = 0; p < N_TOKENS; p += chunks[c])
            run_chunk(fixture.executor, 0, p, p + chunks[c] < N_TOKENS ? p + chunks[c] : N_TOKENS, chunked);
        assert_memory_equal(alone, chunked, sizeof alone);
    }
    close_fixture(&fixture);
}

static void a_row_is_the_same_beside_rows_of_other_tables(void **state)
{
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, &tiny_llama_default, true);
    static float alone[4][N_TOKENS][61];
    for (int s = 0; s < 4; s++)
        run_chunk(fixture.executor, s, 0, 40, alone[s]);
    struct fixture mixed;
    open_fixture(&mixed, &tiny_llama_default, true);
    struct block_table tables[4];
    for (int s = 0; s < 4; s++)
        tables[s] = table_of(s);
    for (int p = 0; p < 40; p += 10) {
        struct step_row rows[40];
        struct row_result results[40];
        for (int i = 0; i < 40; i++)
            rows[i] = row_of(i / 10, p + i % 10, (uint16_t)(i / 10), ROW_RETURN_LOGITS);
        struct step step = {rows, 40, tables, 4};
        assert_int_equal(executor_step(mixed.executor, &step, results, NULL), NPU_OK);
        for (int i = 0; i < 40; i++)
            assert_memory_equal(results[i].logits, alone[i / 10][p + i % 10], sizeof alone[0][0]);
    }
    close_fixture(&mixed);
    close_fixture(&fixture);
}

static void rows_that_return_nothing_do_not_change_the_others(void **state)
{
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, &tiny_llama_default, false);
    static float all[N_TOKENS][61];
    run_chunk(fixture.executor, 0, 0, 33, all);
    struct step_row rows[33];
    struct row_result results[33];
    for (int p = 0; p < 33; p++)
        rows[p] = row_of(0, p, 0, p % 8 == 0 ? ROW_RETURN_LOGITS : ROW_RETURN_NOTHING);
    struct block_table table = table_of(0);
    struct step step = {rows, 33, &table, 1};
    assert_int_equal(executor_step(fixture.executor, &step, results, NULL), NPU_OK);
    for (int p = 0; p < 33; p++) {
        if (p % 8 == 0) {
            assert_memory_equal(results[p].logits, all[p], sizeof all[p]);
        } else {
            static const struct row_result nothing;
            assert_memory_equal(&results[p], &nothing, sizeof nothing);
        }
    }
    close_fixture(&fixture);
}

static void each_kind_of_return_agrees_with_the_logits(void **state)
{
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, &tiny_llama_default, false);
    static float logits[N_TOKENS][61];
    run_chunk(fixture.executor, 0, 0, 3, logits);
    struct step_row rows[3] = {row_of(0, 0, 0, ROW_RETURN_BEST), row_of(0, 1, 0, ROW_RETURN_TOP_K),
                               row_of(0, 2, 0, ROW_RETURN_HIDDEN)};
    rows[1].top_k = 61;
    struct row_result results[3];
    struct block_table table = table_of(0);
    struct step step = {rows, 3, &table, 1};
    assert_int_equal(executor_step(fixture.executor, &step, results, NULL), NPU_OK);
    for (int token = 0; token < 61; token++)
        assert_true(logits[0][token] <= results[0].best.logit);
    assert_true(logits[0][results[0].best.token] == results[0].best.logit);
    assert_int_equal(results[1].n_top, 61);
    assert_int_equal(results[1].best.token, results[1].top[0].token);
    for (int i = 0; i < 61; i++) {
        assert_true(results[1].top[i].logit == logits[1][results[1].top[i].token]);
        assert_true(i == 0 || results[1].top[i].logit <= results[1].top[i - 1].logit);
    }
    const struct weight *head = &fixture.llama.model->weights[0];
    assert_string_equal(head->name, "token_embd.weight");
    float out[61];
    assert_int_equal(reference_matmul(head, NULL, results[2].hidden, 0, 61, out, NULL), NPU_OK);
    assert_memory_equal(out, logits[2], sizeof out);
    close_fixture(&fixture);
}

static void equal_logits_come_by_ascending_token(void **state)
{
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, &tiny_llama_default, false);
    /* Every row of the embedding the same: all logits are equal. */
    float *table = (float *)(uintptr_t)fixture.llama.model->weights[0].data;
    for (int i = 1; i < 61; i++)
        memcpy(table + i * 32, table, 32 * sizeof *table);
    struct step_row rows[2] = {row_of(0, 0, 0, ROW_RETURN_BEST), row_of(0, 1, 0, ROW_RETURN_TOP_K)};
    rows[1].top_k = 5;
    struct row_result results[2];
    struct block_table blocks = table_of(0);
    struct step step = {rows, 2, &blocks, 1};
    assert_int_equal(executor_step(fixture.executor, &step, results, NULL), NPU_OK);
    assert_int_equal(results[0].best.token, 0);
    for (int i = 0; i < 5; i++)
        assert_int_equal(results[1].top[i].token, i);
    close_fixture(&fixture);
}

static void an_embedding_replaces_the_tokens_own(void **state)
{
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, &tiny_llama_default, false);
    static float expected[N_TOKENS][61];
    run_chunk(fixture.executor, 0, 0, 2, expected);
    const float *table = fixture.llama.model->weights[0].data;
    struct step_row rows[2] = {row_of(0, 0, 0, ROW_RETURN_NOTHING), row_of(0, 1, 0, ROW_RETURN_LOGITS)};
    rows[0].embedding = table + rows[0].token * 32;
    rows[0].token = 60;
    struct row_result results[2];
    struct block_table blocks = table_of(0);
    struct step step = {rows, 2, &blocks, 1};
    assert_int_equal(executor_step(fixture.executor, &step, results, NULL), NPU_OK);
    assert_memory_equal(results[1].logits, expected[1], sizeof expected[1]);
    close_fixture(&fixture);
}

static void blocks_can_be_copied_and_restored(void **state)
{
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, &tiny_llama_default, true);
    static float expected[N_TOKENS][61], again[N_TOKENS][61];
    run_chunk(fixture.executor, 0, 0, 65, expected);
    /* Sequence 0 keeps its middle block only through host memory, the others in the pool. */
    void *saved = malloc(fixture.executor->block_bytes);
    assert_non_null(saved);
    assert_int_equal(executor_read_block(fixture.executor, 0, saved, NULL), NPU_OK);
    run_chunk(fixture.executor, 1, 0, 40, again);
    assert_int_equal(executor_write_block(fixture.executor, 11, saved, NULL), NPU_OK);
    assert_int_equal(executor_copy_block(fixture.executor, 5, 1, NULL), NPU_OK);
    const int32_t blocks[3] = {1, 11, 2};
    struct block_table table = {blocks, 3};
    struct step_row row = row_of(0, 64, 0, ROW_RETURN_LOGITS);
    struct row_result result;
    struct step step = {&row, 1, &table, 1};
    assert_int_equal(executor_step(fixture.executor, &step, &result, NULL), NPU_OK);
    assert_memory_equal(result.logits, expected[64], sizeof expected[64]);
    struct npu_error error = {0};
    assert_int_equal(executor_read_block(fixture.executor, N_BLOCKS, saved, &error), NPU_ERROR_INPUT);
    assert_int_equal(executor_write_block(fixture.executor, -1, saved, &error), NPU_ERROR_INPUT);
    assert_int_equal(executor_copy_block(fixture.executor, 0, N_BLOCKS, &error), NPU_ERROR_INPUT);
    free(saved);
    close_fixture(&fixture);
}

static void half_precision_kv_holds_halves(void **state)
{
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, &tiny_llama_default, true);
    static float logits[N_TOKENS][61];
    run_chunk(fixture.executor, 0, 0, 32, logits);
    float *block = malloc(fixture.executor->block_bytes);
    assert_non_null(block);
    assert_int_equal(executor_read_block(fixture.executor, 5, block, NULL), NPU_OK);
    int nonzero = 0;
    for (size_t i = 0; i < fixture.executor->block_bytes / sizeof *block; i++) {
        assert_true(block[i] == half_to_float(float_to_half(block[i])));
        nonzero += block[i] != 0.0f;
    }
    assert_true(nonzero > 1000);
    free(block);
    close_fixture(&fixture);
}

static void slide(struct model *model, int window)
{
    model->window = window;
    for (int i = 0; i < model->graph.n_ops; i++) {
        if (model->graph.ops[i].kind == OP_ATTENTION)
            model->graph.ops[i].window = WINDOW_SLIDING;
    }
}

/* With one layer, the logits at a position depend on exactly the tokens that its window shows. */
static void a_sliding_window_shows_its_positions_and_no_more(void **state)
{
    (void)state;
    struct tiny_llama_config config = tiny_llama_default;
    config.n_layers = 1;
    enum {
        WINDOW = 5,
        LAST = 12
    };
    struct fixture fixture;
    open_fixture(&fixture, &config, false);
    slide(fixture.llama.model, WINDOW);
    static float expected[N_TOKENS][61];
    run_chunk(fixture.executor, 0, 0, LAST + 1, expected);
    for (int changed = 0; changed <= LAST; changed++) {
        struct step_row rows[LAST + 1];
        struct row_result results[LAST + 1];
        for (int p = 0; p <= LAST; p++)
            rows[p] = row_of(0, p, 0, p == LAST ? ROW_RETURN_LOGITS : ROW_RETURN_NOTHING);
        rows[changed].token = (rows[changed].token + 30) % 61;
        struct block_table table = table_of(0);
        struct step step = {rows, LAST + 1, &table, 1};
        assert_int_equal(executor_step(fixture.executor, &step, results, NULL), NPU_OK);
        bool same = memcmp(results[LAST].logits, expected[LAST], sizeof expected[LAST]) == 0;
        assert_int_equal(same, changed <= LAST - WINDOW);
    }
    close_fixture(&fixture);
}

static void rows_of_an_image_see_each_other(void **state)
{
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, &tiny_llama_default, false);
    static float causal[N_TOKENS][61];
    run_chunk(fixture.executor, 0, 0, 4, causal);
    struct step_row rows[4];
    struct row_result results[4];
    for (int p = 0; p < 4; p++) {
        rows[p] = row_of(0, p, 0, ROW_RETURN_LOGITS);
        rows[p].visible_end = 4;
    }
    struct block_table table = table_of(0);
    struct step step = {rows, 4, &table, 1};
    assert_int_equal(executor_step(fixture.executor, &step, results, NULL), NPU_OK);
    assert_memory_not_equal(results[0].logits, causal[0], sizeof causal[0]);
    close_fixture(&fixture);
}

static void expect_refusal(struct executor *executor, const struct step *step, const char *says)
{
    struct row_result results[EXECUTOR_MAX_ROWS];
    struct npu_error error = {0};
    assert_int_equal(executor_step(executor, step, results, &error), NPU_ERROR_INPUT);
    if (strstr(error.message, says) == NULL)
        fail_msg("the message is \"%s\"; it must say \"%s\"", error.message, says);
}

static void a_bad_step_is_refused_with_the_reason(void **state)
{
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, &tiny_llama_default, false);
    const int32_t bad_blocks[3] = {0, N_BLOCKS, 1};
    const int32_t shared_blocks[1] = {5};
    struct block_table tables[3] = {table_of(0), {bad_blocks, 3}, {shared_blocks, 1}};
    const struct {
        struct step_row a, b;
        const char *says;
    } cases[] = {
        {{.token = 61, .visible_end = 1}, {.position = 1, .visible_end = 2}, "row 0: token 61; tokens are 0 to 60"},
        {{.token = -1, .visible_end = 1}, {.position = 1, .visible_end = 2}, "row 0: token -1"},
        {{.visible_end = 1}, {.position = 96, .visible_end = 97}, "row 1: position 96; positions are 0 to 95"},
        {{.visible_end = 1}, {.position = 1, .visible_end = 1}, "visible_end 1; it must be 2 to 96"},
        {{.visible_end = 1}, {.position = 1, .visible_end = 97}, "visible_end 97"},
        {{.visible_end = 1}, {.visible_end = 1, .table = 3}, "row 1: table 3; the step has 3 tables"},
        {{.visible_end = 1}, {.position = 40, .visible_end = 41, .table = 1}, "entry 1 of its table is block 12"},
        {{.visible_end = 1}, {.position = 40, .visible_end = 41, .table = 2}, "its table has 1 blocks of 32"},
        {{.visible_end = 1}, {.visible_end = 1}, "rows 0 and 1 write the same place"},
        {{.visible_end = 1}, {.visible_end = 1, .table = 2}, "rows 0 and 1 write the same place"},
        {{.position = 3, .visible_end = 4}, {.position = 2, .visible_end = 3}, "positions 3 and 2 do not ascend"},
        {{.visible_end = 1, .returns = ROW_RETURN_TOP_K},
         {.position = 1, .visible_end = 2},
         "top_k 0; it must be 1 to 61"},
        {{.visible_end = 1, .returns = 9}, {.position = 1, .visible_end = 2}, "unknown kind of return 9"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct step_row rows[2] = {cases[i].a, cases[i].b};
        struct step step = {rows, 2, tables, 3};
        expect_refusal(fixture.executor, &step, cases[i].says);
    }
    struct step_row apart[3] = {
        {.visible_end = 1}, {.position = 1, .visible_end = 2, .table = 1}, {.position = 2, .visible_end = 3}};
    tables[1] = table_of(1);
    expect_refusal(fixture.executor, &(struct step){apart, 3, tables, 3},
                   "rows 0 and 2 share a table but are not neighbours");
    expect_refusal(fixture.executor, &(struct step){apart, 0, tables, 3}, "a step of 0 rows");
    expect_refusal(fixture.executor, &(struct step){apart, 1, tables, 5}, "a step of 5 block tables");
    close_fixture(&fixture);
}

/* Ops by hand. */

static struct model bare_model(struct rope rope)
{
    return (struct model){.n_embd = 4, .ropes = {rope}, .n_ropes = 1};
}

static void run_op(const struct model *model, const struct op *op, struct reference_row *row)
{
    assert_int_equal(reference_op_run(model, op, row, 1, NULL), NPU_OK);
}

static void rms_norm_divides_by_the_root_mean_square_of_each_group(void **state)
{
    (void)state;
    float in[4] = {3, 4, 0, 5}, out[4], weights[2] = {2, 10};
    struct weight weight = {NULL, "w", TENSOR_F32, 2, 1, weights};
    struct op op = {
        .kind = OP_RMS_NORM, .in = 0, .out = 1, .weight = &weight, .n_heads = 2, .head_size = 2, .epsilon = 0};
    struct reference_row row = {.activations = {in, out}};
    struct model model = bare_model((struct rope){0});
    run_op(&model, &op, &row);
    double first = sqrt(12.5), second = sqrt(12.5);
    assert_float_equal(out[0], 3 * 2 / first, 1e-6);
    assert_float_equal(out[1], 4 * 10 / first, 1e-6);
    assert_float_equal(out[2], 0, 0);
    assert_float_equal(out[3], 5 * 10 / second, 1e-6);
    op.weight = NULL;
    op.epsilon = 12.5f;
    op.out = 0; /* in place */
    run_op(&model, &op, &row);
    assert_float_equal(in[1], 4 / 5.0, 1e-6);
}

static void matmul_adds_its_bias(void **state)
{
    (void)state;
    float in[3] = {1, 2, 3}, out[2], weights[6] = {1, 0, -1, 0.5f, 2, 4}, biases[2] = {10, 20};
    struct weight weight = {NULL, "w", TENSOR_F32, 3, 2, weights}, bias = {NULL, "b", TENSOR_F32, 2, 1, biases};
    struct op op = {.kind = OP_MATMUL, .in = 0, .out = 1, .weight = &weight, .bias = &bias};
    struct reference_row row = {.activations = {in, out}};
    struct model model = bare_model((struct rope){0});
    run_op(&model, &op, &row);
    assert_float_equal(out[0], 8, 0);
    assert_float_equal(out[1], 36.5, 0);
}

static void rope_turns_pairs_by_the_position(void **state)
{
    (void)state;
    struct op op = {.kind = OP_ROPE, .out = 0, .n_heads = 1, .head_size = 6};
    double small = 3 * pow(10000, -0.5);
    float interleaved[6] = {1, 0, 0, 1, 7, 8};
    struct reference_row row = {.activations = {interleaved}, .position = 3};
    struct model model = bare_model((struct rope){.dims = 4, .base = 10000, .position_scale = 1, .interleaved = true});
    run_op(&model, &op, &row);
    const double expected[6] = {cos(3), sin(3), -sin(small), cos(small), 7, 8};
    for (int i = 0; i < 6; i++)
        assert_float_equal(interleaved[i], expected[i], 1e-6);
    float halves[6] = {1, 0, 0, 1, 7, 8};
    row.activations[0] = halves;
    model.ropes[0].interleaved = false;
    run_op(&model, &op, &row);
    const double expected_halves[6] = {cos(3), -sin(small), sin(3), cos(small), 7, 8};
    for (int i = 0; i < 6; i++)
        assert_float_equal(halves[i], expected_halves[i], 1e-6);
}

static void activations_are_silu_and_tanh_gelu(void **state)
{
    (void)state;
    float gate[2] = {1, -2}, up[2] = {3, 5}, out[2];
    struct op op = {.kind = OP_GATED, .in = 0, .in2 = 1, .out = 2, .width = 2, .function = ACTIVATION_SILU};
    struct reference_row row = {.activations = {gate, up, out}};
    struct model model = bare_model((struct rope){0});
    run_op(&model, &op, &row);
    assert_float_equal(out[0], 3 * 0.7310585786, 1e-6);
    assert_float_equal(out[1], 5 * -0.2384058440, 1e-6);
    op.function = ACTIVATION_GELU_TANH;
    run_op(&model, &op, &row);
    assert_float_equal(out[0], 3 * 0.8411919906, 1e-6);
    assert_float_equal(out[1], 5 * -0.0454023059, 1e-6);
}

/* Positions 0..3, two KV heads of two elements. */
static void read_four(void *context, int kv_layer, int32_t position, float *key, float *value)
{
    (void)kv_layer;
    const float(*rows)[8] = context;
    if (key)
        memcpy(key, rows[position], 4 * sizeof *key);
    if (value)
        memcpy(value, rows[position] + 4, 4 * sizeof *value);
}

static void attention_weighs_values_by_softmax(void **state)
{
    (void)state;
    static const float rows[4][8] = {{1, 0, 0, 0, 1, 2, 100, 200},
                                     {0, 1, 0, 0, 3, 4, 300, 400},
                                     {5, 5, 0, 0, 5, 6, 500, 600},
                                     {9, 9, 9, 9, 9, 9, 9, 9}};
    float query[8] = {2, 0, 0, 2, 1, 1, 1, 1}, out[8];
    struct kv_layer kv = {2, 2};
    struct model model = bare_model((struct rope){0});
    model.kv_layers = &kv;
    model.n_kv_layers = 1;
    model.window = 2;
    struct op op = {.kind = OP_ATTENTION, .in = 0, .out = 1, .n_heads = 4, .head_size = 2, .scale = 0.5f};
    struct reference_row row = {
        .activations = {query, out}, .position = 1, .visible_end = 2, .kv = {read_four, NULL, (void *)(uintptr_t)rows}};
    run_op(&model, &op, &row);
    double heavy = exp(1) / (exp(1) + 1), light = 1 - heavy;
    assert_float_equal(out[0], heavy * 1 + light * 3, 1e-6); /* head 0 looks at position 0 */
    assert_float_equal(out[3], light * 2 + heavy * 4, 1e-6); /* head 1 at position 1, same KV head */
    assert_float_equal(out[4], 200, 1e-4); /* heads 2 and 3: equal scores, the mean */
    assert_float_equal(out[7], 300, 1e-4);
    op.window = WINDOW_SLIDING;
    row.position = 2;
    row.visible_end = 3;
    query[0] = query[1] = 0;
    run_op(&model, &op, &row);
    assert_float_equal(out[0], (3 + 5) / 2.0, 1e-6); /* position 0 is out of sight */
    assert_int_equal(reference_visible_begin(&model, &op, 0), 0);
    assert_int_equal(reference_visible_begin(&model, &op, 1), 0);
    assert_int_equal(reference_visible_begin(&model, &op, 2), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_give_the_bits_of_one_token_at_a_time),
        cmocka_unit_test(a_row_is_the_same_beside_rows_of_other_tables),
        cmocka_unit_test(rows_that_return_nothing_do_not_change_the_others),
        cmocka_unit_test(each_kind_of_return_agrees_with_the_logits),
        cmocka_unit_test(equal_logits_come_by_ascending_token),
        cmocka_unit_test(an_embedding_replaces_the_tokens_own),
        cmocka_unit_test(blocks_can_be_copied_and_restored),
        cmocka_unit_test(half_precision_kv_holds_halves),
        cmocka_unit_test(a_sliding_window_shows_its_positions_and_no_more),
        cmocka_unit_test(rows_of_an_image_see_each_other),
        cmocka_unit_test(a_bad_step_is_refused_with_the_reason),
        cmocka_unit_test(rms_norm_divides_by_the_root_mean_square_of_each_group),
        cmocka_unit_test(matmul_adds_its_bias),
        cmocka_unit_test(rope_turns_pairs_by_the_position),
        cmocka_unit_test(activations_are_silu_and_tanh_gelu),
        cmocka_unit_test(attention_weighs_values_by_softmax),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
