/* Would the check of ops, and the self-check at start, see a driver that computes garbage? Each mutation changes one entry
 * of the op table on the device, or what it reads, behind the plan's back, and must be found at that entry. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_fixture.h"
#include "npu/opencl/self_check.h"
#include "npu/verify_ops.h"
#include "random_model.h"

enum {
    CONTEXT = 320,
    N_BLOCKS = 24,
    N_ROWS = 6
};

struct fixture {
    struct random_model model;
    struct opencl_executor *executor;
};

static void open_fixture(struct fixture *fixture, const char *architecture)
{
    struct random_model_config config = random_model_default;
    config.architecture = architecture;
    config.window = 100;
    config.biases = true;
    config.matrix_type = TENSOR_Q8_0;
    config.n_per_layer = strcmp(architecture, "gemma4") == 0 ? 32 : 0;
    random_model_open(&fixture->model, &config);
    fixture->executor = device_executor(fixture->model.model, &(struct device_variant){0}, N_BLOCKS, CONTEXT);
    device_fill_history(fixture->executor);
}

static void close_fixture(struct fixture *fixture)
{
    executor_destroy(&fixture->executor->base);
    random_model_close(&fixture->model);
}

static void write_entry(struct opencl_executor *executor, int index, const struct op_entry *entry)
{
    assert_int_equal(device_buffer_write(&executor->table, executor->queue, (size_t)index * sizeof *entry, entry,
                                         sizeof *entry, NULL),
                     NPU_OK);
}

/* Changes what an entry computes; false: this kind has nothing of the sort. turn numbers the ways. */
static bool spoil(struct op_entry *entry, int turn, bool has_window)
{
    switch (entry->kind) {
    case ENTRY_EMBED:
        entry->scale *= 1.001f;
        return turn == 0;
    case ENTRY_NORM:
        entry->epsilon += turn == 0 ? 0.1f : 0.0f;
        entry->flags ^= turn == 1 ? FLAG_QUANTIZE : turn == 2 ? FLAG_ACCUMULATE : 0;
        return turn == 0 || turn == 2 || (turn == 1 && entry->quantized >= 0);
    case ENTRY_MATMUL:
        entry->n_out -= turn == 0 ? 8 : 0;
        entry->n_in -= turn == 1 ? 32 : 0;
        entry->flags ^= turn == 2 ? FLAG_ACCUMULATE : 0;
        return turn == 0 || turn == 2 || (turn == 1 && entry->n_in > 0);
    case ENTRY_HEADS:
        entry->kv_offset += turn == 0 ? 32 : 0;
        entry->flags ^= turn == 1 ? FLAG_INTERLEAVED : 0;
        entry->epsilon += turn == 2 && entry->epsilon > 0 ? 0.1f : 0.0f;
        return (turn == 0 && entry->layout != DESTINATION_PLACE) || (turn == 1 && entry->rope >= 0) ||
               (turn == 2 && entry->epsilon > 0);
    case ENTRY_ATTENTION:
        entry->scale *= turn == 0 ? 1.01f : 1.0f;
        entry->flags ^= turn == 1 ? FLAG_SLIDING : 0;
        entry->kv_offset += turn == 2 ? 8 : 0;
        return turn != 1 || has_window;
    case ENTRY_ATTENTION_MERGE:
        entry->flags ^= FLAG_QUANTIZE;
        return turn == 0 && entry->quantized >= 0;
    case ENTRY_GATED:
        entry->flags ^= turn == 0 ? FLAG_GELU : FLAG_QUANTIZE;
        return turn == 0 || (turn == 1 && entry->quantized >= 0);
    case ENTRY_SCALE:
        entry->scale *= 1.001f;
        return turn == 0;
    case ENTRY_SOFTCAP:
        entry->scale *= 0.1f;
        return turn == 0;
    case ENTRY_ADD:
        entry->n_in -= 1;
        return turn == 0;
    case ENTRY_QUANTIZE:
        entry->n_in -= 32;
        return turn == 0;
    case ENTRY_GATHER:
        entry->in += 1;
        return turn == 0;
    case ENTRY_SELECT: /* the best logit of a few may still be among the rest */
        entry->n_in /= 2;
        return turn == 0;
    case ENTRY_SELECT_MERGE:
        entry->out += 1;
        return turn == 0;
    default:
        return false;
    }
}

static struct step make_step(struct step_row rows[N_ROWS], const struct block_table *table, int32_t n_vocab,
                             uint32_t seed)
{
    uint32_t state = seed;
    for (int i = 0; i < N_ROWS; i++)
        rows[i] = (struct step_row){
            .token = (int32_t)(random_bits(&state) % (uint32_t)n_vocab), .position = 254 + i, .visible_end = 255 + i};
    rows[2].returns = ROW_RETURN_LOGITS;
    rows[N_ROWS - 1].returns = ROW_RETURN_TOP_K;
    rows[N_ROWS - 1].top_k = 40;
    return (struct step){rows, N_ROWS, table, 1};
}

/* The entries that are checked as one with this one. */
static bool is_checked_with(const struct plan *plan, int entry, int checked)
{
    int kind = plan->entries[entry].kind;
    return checked == entry || ((kind == ENTRY_ATTENTION_MERGE || kind == ENTRY_SELECT_MERGE) && checked == entry - 1);
}

static void expect_found(struct opencl_executor *executor, const struct step *step, int entry, int turn)
{
    static const struct verify_ops_options all = {.limit = VERIFY_OPS_LIMIT};
    struct op_checks checks = {0};
    assert_int_equal(verify_ops_run(&checks, &executor->base, step, &all, NULL), NPU_OK);
    if (entry < 0) {
        assert_int_equal(checks.n_failed, 0);
        op_checks_destroy(&checks);
        return;
    }
    int first = 0;
    while (first < checks.n && checks.checks[first].passed)
        first++;
    if (first == checks.n || !is_checked_with(executor->plan, entry, checks.checks[first].entry))
        fail_msg("entry %d (%s) changed in way %d: the check found %s", entry,
                 plan_entry_name(&executor->plan->entries[entry]), turn,
                 first == checks.n ? "nothing" : checks.checks[first].name);
    assert_int_equal(checks.n_failed > 0, 1);
    op_checks_destroy(&checks);
}

static void check_mutations(const char *architecture)
{
    struct fixture fixture;
    struct step_row rows[N_ROWS];
    int32_t blocks[10];
    open_fixture(&fixture, architecture);
    for (int i = 0; i < 10; i++)
        blocks[i] = 2 * i + 1;
    struct block_table table = {blocks, 10};
    struct step step = make_step(rows, &table, fixture.model.model->n_vocab, 3);
    struct step_row other_rows[N_ROWS];
    struct step other = make_step(other_rows, &table, fixture.model.model->n_vocab, 4);
    expect_found(fixture.executor, &step, -1, 0);
    int n = 0;
    for (int i = 0; i < fixture.executor->plan->n_entries; i++) {
        for (int turn = 0; turn < 3; turn++) {
            struct op_entry entry = fixture.executor->plan->entries[i];
            if (!spoil(&entry, turn, fixture.model.model->window > 0))
                continue;
            /* So that what the step left behind cannot help a spoiled entry to look right. */
            expect_found(fixture.executor, &other, -1, 0);
            write_entry(fixture.executor, i, &entry);
            expect_found(fixture.executor, &step, i, turn);
            write_entry(fixture.executor, i, &fixture.executor->plan->entries[i]);
            n++;
        }
    }
    assert_true(n > 30);
    close_fixture(&fixture);
}

static void every_changed_entry_is_found_at_its_place(void **state)
{
    (void)state;
    check_mutations("qwen2");
    check_mutations("gemma4");
}

static void flip(const struct device_buffer *buffer, struct opencl_executor *executor, size_t offset, uint8_t mask)
{
    uint8_t byte;
    assert_int_equal(device_buffer_read(buffer, executor->queue, offset, &byte, 1, NULL), NPU_OK);
    byte ^= mask;
    assert_int_equal(device_buffer_write(buffer, executor->queue, offset, &byte, 1, NULL), NPU_OK);
}

static void expect_self_check(struct opencl_executor *executor, enum self_check mode, const char *part)
{
    struct npu_error error = {0};
    enum npu_status status = self_check_run(executor, mode, &error);
    if (part == NULL && status != NPU_OK)
        fail_msg("%s", error.message);
    if (part != NULL && (status != NPU_ERROR_DEVICE || strstr(error.message, part) == NULL))
        fail_msg("\"%s\" does not name %s", status == NPU_OK ? "passed" : error.message, part);
    assert_null(strchr(error.message, '\n'));
}

static void the_self_check_names_the_op_that_is_wrong(void **state)
{
    (void)state;
    static const enum self_check modes[] = {SELF_CHECK_QUICK, SELF_CHECK_FULL};
    struct fixture fixture;
    open_fixture(&fixture, "gemma3");
    struct opencl_executor *executor = fixture.executor;
    const struct plan *plan = executor->plan;
    for (int m = 0; m < 2; m++) {
        expect_self_check(executor, modes[m], NULL);
        for (int i = 0; i < plan->n_weights; i++) {
            const struct packed_weight *packed = &plan->weights[i];
            if (strncmp(packed->weight->name, "blk.0.", 6) != 0 || packed->bytes < 512)
                continue;
            /* A quick check looks at one matrix of each size: the first ones of their layer. */
            bool sampled = strstr(packed->weight->name, "_q") || strstr(packed->weight->name, "_gate");
            if (m == 0 && !sampled)
                continue;
            flip(&executor->weights[packed->segment], executor, packed->offset + 257, 0x10); /* a scale of row 0 */
            expect_self_check(executor, modes[m], packed->weight->name);
            flip(&executor->weights[packed->segment], executor, packed->offset + 257, 0x10);
        }
        flip(&executor->vectors, executor, 3, 0x01); /* the first weight of the first norm, halved or doubled */
        expect_self_check(executor, modes[m], "blk.0.attn_norm.weight (kernel norm)");
        flip(&executor->vectors, executor, 3, 0x01);
    }
    expect_self_check(executor, SELF_CHECK_OFF, NULL);
    close_fixture(&fixture);
}

static void the_self_check_fits_any_context_and_pool(void **state)
{
    (void)state;
    static const struct {
        int n_blocks, context;
    } sizes[] = {{1, 32}, {1, 20}, {2, 32}, {3, 64}, {8, 256}, {9, 288}, {30, 300}, {40, 1000}};
    struct random_model model;
    random_model_open(&model, &random_model_default);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct opencl_executor *executor =
            device_executor(model.model, &(struct device_variant){0}, sizes[i].n_blocks, sizes[i].context);
        expect_self_check(executor, SELF_CHECK_QUICK, NULL);
        expect_self_check(executor, SELF_CHECK_FULL, NULL);
        executor_destroy(&executor->base);
    }
    random_model_close(&model);
}

static void a_sample_of_rows_and_outputs_finds_what_is_wrong_everywhere(void **state)
{
    (void)state;
    static const struct verify_ops_options sample = {
        .limit = VERIFY_OPS_LIMIT, .max_rows = 2, .max_outputs = 16, .distinct_only = true};
    struct fixture fixture;
    struct step_row rows[N_ROWS];
    int32_t blocks[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    struct block_table table = {blocks, 10};
    open_fixture(&fixture, "gemma3");
    struct step step = make_step(rows, &table, fixture.model.model->n_vocab, 3);
    struct op_checks checks = {0};
    assert_int_equal(verify_ops_run(&checks, &fixture.executor->base, &step, &sample, NULL), NPU_OK);
    assert_int_equal(checks.n_failed, 0);
    int n_distinct = checks.n;
    op_checks_destroy(&checks);
    for (int i = 0; i < fixture.executor->plan->n_entries; i++) {
        struct op_entry entry = fixture.executor->plan->entries[i];
        if (entry.kind == ENTRY_ATTENTION)
            entry.scale *= 2.0f;
        write_entry(fixture.executor, i, &entry);
    }
    assert_int_equal(verify_ops_run(&checks, &fixture.executor->base, &step, &sample, NULL), NPU_OK);
    assert_int_equal(checks.n, n_distinct);
    for (int i = 0; i < checks.n; i++)
        assert_int_equal(checks.checks[i].passed, strcmp(checks.checks[i].kernel, "attention") != 0 ||
                                                      strcmp(checks.checks[i].output, "output") != 0);
    op_checks_destroy(&checks);
    close_fixture(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_changed_entry_is_found_at_its_place),
        cmocka_unit_test(the_self_check_names_the_op_that_is_wrong),
        cmocka_unit_test(the_self_check_fits_any_context_and_pool),
        cmocka_unit_test(a_sample_of_rows_and_outputs_finds_what_is_wrong_everywhere),
    };
    if (!device_fixture_open())
        return TEST_SKIPPED;
    int failed = cmocka_run_group_tests_name("verify_ops", tests, NULL, NULL);
    device_fixture_close();
    return failed;
}
