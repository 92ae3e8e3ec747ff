/* The static-shape contract: nothing depends on how long a conversation is, or whose it is, but the contents of the step's
 * input buffer. Every OpenCL call of two steps of one bucket is the same, and what the kernels read besides inputs, weights,
 * K/V and activations never changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "device_fixture.h"
#include "opencl_recorder.h"
#include "random_model.h"
#include "reference_fixture.h"

enum {
    TABLE_BLOCKS = 20,
    CONTEXT = TABLE_BLOCKS * KV_BLOCK_TOKENS,
    N_TABLES = 3,
    CHUNK = 40,
    LATER = 500
};

/* Rows of one table at consecutive positions; run i of a step uses table i. */
struct run_of_rows {
    int n, first;
};

struct bench {
    struct opencl_executor *executor;
    const char *model;
    int32_t blocks[N_TABLES][TABLE_BLOCKS];
    struct recording recording;
};

static void open_bench(struct bench *bench, const struct model *model, const char *name)
{
    bench->model = name;
    bench->executor = device_executor(model, &(struct device_variant){0}, N_TABLES * TABLE_BLOCKS, CONTEXT);
    device_fill_history(bench->executor);
    for (int t = 0; t < N_TABLES; t++)
        for (int i = 0; i < TABLE_BLOCKS; i++)
            bench->blocks[t][i] = t + N_TABLES * (i * 7 % TABLE_BLOCKS);
}

/* Runs a step and records its calls. returns: of every row, or of none. One launch that was given up on a busy machine is
 * tried again. */
static void record(struct bench *bench, const struct run_of_rows *runs, int n_runs, enum row_return returns)
{
    struct step_row rows[EXECUTOR_MAX_ROWS];
    struct row_result results[EXECUTOR_MAX_ROWS];
    struct block_table tables[N_TABLES];
    uint32_t state = 3;
    int n = 0;
    for (int t = 0; t < n_runs; t++) {
        tables[t] = (struct block_table){bench->blocks[t], TABLE_BLOCKS};
        for (int i = 0; i < runs[t].n; i++)
            rows[n++] =
                (struct step_row){.token = (int32_t)(random_bits(&state) % (uint32_t)bench->executor->base.n_vocab),
                                  .position = runs[t].first + i,
                                  .visible_end = runs[t].first + i + 1,
                                  .table = (uint16_t)t,
                                  .returns = (uint8_t)returns};
    }
    struct step step = {rows, n, tables, n_runs};
    struct npu_error error = {0};
    uint64_t switches;
    do {
        memset(bench->executor->launcher.calm, 0, sizeof bench->executor->launcher.calm);
        switches = executor_launch_switches(&bench->executor->base);
        opencl_record(&bench->recording);
        if (executor_step(&bench->executor->base, &step, results, &error) != NPU_OK)
            fail_msg("%s", error.message);
        opencl_record(NULL);
    } while (executor_launch_switches(&bench->executor->base) != switches);
    assert_true(bench->recording.n > 0);
}

static bool same_call(const struct recorded_call *a, const struct recorded_call *b)
{
    return a->kind == b->kind && a->object == b->object && a->first == b->first && a->second == b->second &&
           a->n_arguments == b->n_arguments && memcmp(a->arguments, b->arguments, sizeof a->arguments) == 0;
}

static bool kept(const struct recorded_call *call, bool launches_only)
{
    return !launches_only || call->kind == RECORDED_LAUNCH;
}

/* Compares two recordings call by call, or only their launches. */
static void expect_same(const struct bench *bench, const struct recording *a, const struct recording *b,
                        bool launches_only, const char *what)
{
    int i = 0, k = 0, n_compared = 0;
    for (;; i++, k++, n_compared++) {
        while (i < a->n && !kept(&a->calls[i], launches_only))
            i++;
        while (k < b->n && !kept(&b->calls[k], launches_only))
            k++;
        if (i >= a->n || k >= b->n)
            break;
        if (!same_call(&a->calls[i], &b->calls[k]))
            fail_msg("%s, %s: call %d differs (kinds %d and %d, sizes %zu,%zu and %zu,%zu)", bench->model, what,
                     n_compared, (int)a->calls[i].kind, (int)b->calls[k].kind, a->calls[i].first, a->calls[i].second,
                     b->calls[k].first, b->calls[k].second);
    }
    if (i < a->n || k < b->n)
        fail_msg("%s, %s: %d calls against %d", bench->model, what, a->n, b->n);
    assert_true(n_compared >= 1);
}

static bool is_among(const void *object, const struct device_buffer *buffers, int n)
{
    for (int i = 0; i < n; i++)
        if (buffers[i].memory == object)
            return true;
    return false;
}

/* Steps make and compile nothing, and write inputs and activations only. */
static void expect_fixed(const struct bench *bench)
{
    const struct opencl_executor *executor = bench->executor;
    for (int i = 0; i < bench->recording.n; i++) {
        const struct recorded_call *call = &bench->recording.calls[i];
        assert_int_not_equal(call->kind, RECORDED_MAKE);
        if (call->kind == RECORDED_WRITE)
            assert_true(call->object == executor->input.memory || call->object == executor->arena.memory);
    }
}

static uint64_t hash_buffer(struct opencl_executor *executor, const struct device_buffer *buffer)
{
    void *bytes = malloc(buffer->bytes);
    assert_non_null(bytes);
    assert_int_equal(device_buffer_read(buffer, executor->queue, 0, bytes, buffer->bytes, NULL), NPU_OK);
    uint64_t hash = XXH3_64bits(bytes, buffer->bytes);
    free(bytes);
    return hash;
}

/* A hash of every buffer among the kernels' arguments that is neither inputs, weights, K/V nor activations. */
static uint64_t hash_constants(struct bench *bench)
{
    struct opencl_executor *executor = bench->executor;
    const struct device_buffer *constants[] = {&executor->table, &executor->vectors};
    uint64_t hash = 0;
    bool seen[2] = {false};
    for (int i = 0; i < bench->recording.n; i++) {
        const struct recorded_call *call = &bench->recording.calls[i];
        for (int k = 0; k < call->n_arguments; k++) {
            const void *object;
            if (call->arguments[k].size != sizeof object)
                continue;
            memcpy(&object, call->arguments[k].value, sizeof object);
            if (object == executor->input.memory || object == executor->arena.memory ||
                is_among(object, executor->weights, PLAN_MAX_SEGMENTS) ||
                is_among(object, executor->kv, PLAN_MAX_SEGMENTS))
                continue;
            int which = object == executor->table.memory ? 0 : 1;
            assert_ptr_equal(object, constants[which]->memory); /* a buffer that this test does not know */
            if (!seen[which])
                hash = hash * 31 + hash_buffer(executor, constants[which]);
            seen[which] = true;
        }
    }
    assert_true(seen[0] && seen[1]);
    return hash;
}

/* Two steps of one bucket and the same returns. */
static void compare_steps(struct bench *bench, const struct run_of_rows *a, int n_a, const struct run_of_rows *b,
                          int n_b, enum row_return returns, const char *what)
{
    struct recording *first = malloc(sizeof *first);
    assert_non_null(first);
    record(bench, a, n_a, returns);
    expect_fixed(bench);
    uint64_t constants = hash_constants(bench);
    *first = bench->recording;
    record(bench, b, n_b, returns);
    expect_fixed(bench);
    expect_same(bench, first, &bench->recording, n_a != n_b, what);
    if (hash_constants(bench) != constants)
        fail_msg("%s, %s: a buffer that must never change did", bench->model, what);
    free(first);
}

static void check_mode(struct bench *bench)
{
    compare_steps(bench, &(struct run_of_rows){1, 5}, 1, &(struct run_of_rows){1, LATER}, 1, ROW_RETURN_BEST,
                  "decode at positions 5 and 500");
    compare_steps(bench, &(struct run_of_rows){CHUNK, 0}, 1, &(struct run_of_rows){CHUNK, LATER}, 1, ROW_RETURN_NOTHING,
                  "a chunk of a prompt at its start and after 500 tokens");
    compare_steps(bench, (struct run_of_rows[]){{1, 5}, {1, 77}, {1, 300}}, 3,
                  (struct run_of_rows[]){{1, LATER}, {1, 0}, {1, CONTEXT - 1}}, 3, ROW_RETURN_BEST,
                  "decode of three sessions at short and long histories");
    /* Their block tables are more input; all else is the same. */
    compare_steps(bench, (struct run_of_rows[]){{3, 8}}, 1, (struct run_of_rows[]){{1, 5}, {1, 77}, {1, LATER}}, 3,
                  ROW_RETURN_BEST, "one session and three in one bucket");
    compare_steps(bench, (struct run_of_rows[]){{CHUNK, 8}}, 1,
                  (struct run_of_rows[]){{1, 5}, {CHUNK - 2, LATER}, {1, 77}}, 3, ROW_RETURN_NOTHING,
                  "a chunk alone and between two others");
}

static void check_model(const struct model *model, const char *name)
{
    struct bench *bench = calloc(1, sizeof *bench);
    assert_non_null(bench);
    open_bench(bench, model, name);
    bool one_launch = bench->executor->launcher.one_launch;
    bench->executor->launcher.one_launch = false;
    check_mode(bench);
    /* The recorder sees what there is to see: a launch for each entry. */
    record(bench, &(struct run_of_rows){1, 5}, 1, ROW_RETURN_BEST);
    int launches = 0;
    for (int i = 0; i < bench->recording.n; i++)
        launches += bench->recording.calls[i].kind == RECORDED_LAUNCH;
    assert_int_equal(launches, bench->executor->plan->n_entries);
    if (one_launch) {
        bench->executor->launcher.one_launch = true;
        check_mode(bench);
    }
    executor_destroy(&bench->executor->base);
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

static void llama_has_static_shapes(void **state)
{
    (void)state;
    check_fixture("llama");
}

static void gemma3_has_static_shapes(void **state)
{
    (void)state;
    check_fixture("gemma3");
}

static void gemma4_has_static_shapes(void **state)
{
    (void)state;
    check_fixture("gemma4");
}

static void quantized_weights_have_static_shapes(void **state)
{
    (void)state;
    struct random_model model;
    struct random_model_config config = random_model_default;
    config.matrix_type = config.table_type = TENSOR_Q4_0;
    random_model_open(&model, &config);
    check_model(model.model, "a llama of Q4_0");
    random_model_close(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_has_static_shapes),
        cmocka_unit_test(gemma3_has_static_shapes),
        cmocka_unit_test(gemma4_has_static_shapes),
        cmocka_unit_test(quantized_weights_have_static_shapes),
    };
    if (!device_fixture_open())
        return TEST_SKIPPED;
    int failed = cmocka_run_group_tests_name("static shapes", tests, NULL, NULL);
    device_fixture_close();
    return failed;
}
