/* Launch modes: the same bits with one group, with two, with more groups than can ever meet, and when barriers are given
 * up in the middle of a step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "npu/gguf.h"
#include "npu/model.h"
#include "npu/opencl/opencl_executor.h"

enum {
    STEPS = 60,
    CONTEXT = 128
};

struct fixture {
    struct gguf_file *file;
    struct model *model;
    struct device_profile profile;
};

static int set_up(void **state)
{
    static struct fixture fixture;
    struct npu_error error;
    if (gguf_open(&fixture.file, TEST_DATA_DIR "/reference/llama.gguf", &error) != NPU_OK ||
        model_create(&fixture.model, fixture.file, &error) != NPU_OK ||
        device_select(&fixture.profile, NULL, &error) != NPU_OK) {
        print_error("%s\n", error.message);
        return -1;
    }
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    model_destroy(fixture->model);
    gguf_close(fixture->file);
    return 0;
}

static struct opencl_executor *create(const struct fixture *fixture, int workers)
{
    struct device_profile profile = fixture->profile;
    profile.workers = workers;
    struct opencl_options options = {.n_blocks = CONTEXT / KV_BLOCK_TOKENS,
                                     .max_tables = 8,
                                     .max_returning = 16,
                                     .max_context = CONTEXT,
                                     .kv_half = true};
    struct opencl_executor *executor;
    struct npu_error error;
    if (opencl_executor_create(&executor, fixture->model, &profile, &options, &error) != NPU_OK)
        fail_msg("%s", error.message);
    return executor;
}

/* Feeds tokens one at a time and returns a hash of the bits of all logits. every: in each such step workers may
 * wait for hardly anything, so that a barrier is given up sooner or later; 0: never. */
static uint64_t run(struct opencl_executor *executor, int every)
{
    int32_t blocks[CONTEXT / KV_BLOCK_TOKENS];
    for (int i = 0; i < CONTEXT / KV_BLOCK_TOKENS; i++)
        blocks[i] = i;
    struct block_table table = {blocks, CONTEXT / KV_BLOCK_TOKENS};
    uint64_t hash = 0;
    double spins_per_us = executor->launcher.spins_per_us;
    for (int i = 0; i < STEPS; i++) {
        struct step_row row = {
            .token = i * 37 % 90 + 3, .position = i, .visible_end = i + 1, .returns = ROW_RETURN_LOGITS};
        struct step step = {&row, 1, &table, 1};
        struct row_result result;
        struct npu_error error;
        executor->launcher.spins_per_us = every > 0 && i % every == 0 ? 0 : spins_per_us;
        if (every > 0)
            executor->launcher.calm[0].each_left = 0;
        if (executor_step(&executor->base, &step, &result, &error) != NPU_OK)
            fail_msg("%s", error.message);
        for (int k = 0; k < executor->base.n_vocab; k++) {
            uint32_t bits;
            memcpy(&bits, &result.logits[k], sizeof bits);
            hash = hash * 1000003 + bits;
        }
    }
    return hash;
}

static void any_number_of_groups_gives_the_same_bits(void **state)
{
    struct opencl_executor *one = create(*state, 1);
    uint64_t expected = run(one, 0);
    executor_destroy(&one->base);
    for (int workers = 2; workers <= 5; workers++) {
        struct opencl_executor *executor = create(*state, workers);
        assert_true(run(executor, 0) == expected);
        executor_destroy(&executor->base);
    }
}

static void a_step_whose_barrier_is_given_up_gives_the_same_bits(void **state)
{
    struct opencl_executor *one = create(*state, 1);
    uint64_t expected = run(one, 0);
    executor_destroy(&one->base);
    struct opencl_executor *two = create(*state, 2);
    uint64_t switches = two->launcher.switches;
    assert_true(run(two, 3) == expected);
    if (two->launcher.one_launch)
        assert_true(two->launcher.switches > switches);
    else
        print_message("one launch a step is not possible here: %s\n", two->launch_reason);
    executor_destroy(&two->base);
}

static void a_disturbed_bucket_runs_one_op_a_launch_for_a_while(void **state)
{
    (void)state;
    struct device_profile profile = {.workers = 2};
    struct launcher launcher = {.profile = &profile, .one_launch = true};
    for (int i = 0; i < 20; i++) {
        assert_int_equal(launcher_mode(&launcher, 0), LAUNCH_ONE);
        launcher_note(&launcher, 0, LAUNCH_ONE, 4000);
    }
    assert_true(launcher_wait_us(&launcher, 0) < 20000);
    launcher_note(&launcher, 0, LAUNCH_ONE, 40000); /* a longer conversation, not a disturbance */
    assert_int_equal(launcher_mode(&launcher, 0), LAUNCH_ONE);
    launcher_note_abandoned(&launcher, 0);
    assert_int_equal(launcher.switches, 1);
    int each = 0;
    while (launcher_mode(&launcher, 0) == LAUNCH_EACH)
        each++;
    assert_int_equal(each, 4);
    launcher_note_abandoned(&launcher, 0);
    int longer = 0;
    while (launcher_mode(&launcher, 0) == LAUNCH_EACH)
        longer++;
    assert_int_equal(longer, 8);
    assert_int_equal(launcher_mode(&launcher, 1), LAUNCH_ONE); /* other buckets go on */
    launcher_note(&launcher, 1, LAUNCH_EACH, 1000);
    launcher_note(&launcher, 1, LAUNCH_ONE, 2000); /* barriers that cost more than launches */
    assert_int_equal(launcher_mode(&launcher, 1), LAUNCH_EACH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_groups_gives_the_same_bits),
        cmocka_unit_test(a_step_whose_barrier_is_given_up_gives_the_same_bits),
        cmocka_unit_test(a_disturbed_bucket_runs_one_op_a_launch_for_a_while),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
