#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/kv_pool.h"

static uint64_t random_state;

static uint32_t random_below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % n);
}

static void fill(int32_t *tokens, int32_t value)
{
    for (int i = 0; i < KV_BLOCK_TOKENS; i++)
        tokens[i] = value;
}

static struct kv_pool *new_pool(int32_t n_blocks)
{
    struct kv_pool *pool;
    struct npu_error error;
    assert_int_equal(kv_pool_create(&pool, n_blocks, &error), NPU_OK);
    return pool;
}

static int32_t new_full(struct kv_pool *pool, int32_t parent, int32_t value)
{
    int32_t tokens[KV_BLOCK_TOKENS];
    fill(tokens, value);
    int32_t block = kv_pool_acquire(pool);
    assert_int_not_equal(block, KV_NO_BLOCK);
    return kv_pool_seal(pool, block, KV_ORIGIN_HERE, parent, tokens);
}

static int32_t look_up(struct kv_pool *pool, int32_t parent, int32_t value)
{
    int32_t tokens[KV_BLOCK_TOKENS];
    fill(tokens, value);
    return kv_pool_lookup(pool, KV_ORIGIN_HERE, parent, tokens);
}

static void test_a_pool_without_blocks_is_refused(void **state)
{
    (void)state;
    struct kv_pool *pool = NULL;
    struct npu_error error;
    assert_int_equal(kv_pool_create(&pool, 0, &error), NPU_ERROR_INPUT);
    assert_null(pool);
    kv_pool_destroy(NULL);
}

static void test_private_blocks_are_free_after_release(void **state)
{
    (void)state;
    struct kv_pool *pool = new_pool(2);
    int32_t a = kv_pool_acquire(pool), b = kv_pool_acquire(pool);
    assert_int_not_equal(a, b);
    assert_int_equal(kv_pool_acquire(pool), KV_NO_BLOCK);
    kv_pool_release(pool, a);
    assert_int_equal(kv_pool_count(pool).free, 1);
    assert_int_equal(kv_pool_acquire(pool), a);
    kv_pool_release(pool, a);
    kv_pool_release(pool, b);
    assert_int_equal(kv_pool_count(pool).free, 2);
    assert_true(kv_pool_is_consistent(pool));
    kv_pool_destroy(pool);
}

static void test_full_blocks_are_found_by_their_whole_prefix(void **state)
{
    (void)state;
    struct kv_pool *pool = new_pool(8);
    int32_t a = new_full(pool, KV_NO_BLOCK, 1), b = new_full(pool, a, 2), c = new_full(pool, KV_NO_BLOCK, 2);
    assert_int_not_equal(b, c);
    assert_int_equal(look_up(pool, KV_NO_BLOCK, 1), a);
    assert_int_equal(look_up(pool, a, 2), b);
    assert_int_equal(look_up(pool, KV_NO_BLOCK, 2), c);
    assert_int_equal(look_up(pool, c, 2), KV_NO_BLOCK);
    assert_int_equal(look_up(pool, a, 3), KV_NO_BLOCK);
    assert_int_equal(kv_pool_first_child(pool, KV_ORIGIN_HERE, KV_NO_BLOCK), c);
    assert_int_equal(kv_pool_next_sibling(pool, c), a);
    assert_int_equal(kv_pool_tokens(pool, b)[31], 2);
    kv_pool_destroy(pool);
}

static void test_the_same_block_twice_is_stored_once(void **state)
{
    (void)state;
    struct kv_pool *pool = new_pool(4);
    int32_t a = new_full(pool, KV_NO_BLOCK, 7);
    assert_int_equal(new_full(pool, KV_NO_BLOCK, 7), a);
    struct kv_pool_counters counters = kv_pool_count(pool);
    assert_int_equal(counters.used, 1);
    assert_int_equal(counters.shared, 1);
    assert_int_equal(counters.free, 3);
    assert_int_equal(counters.duplicates, 1);
    kv_pool_release(pool, a);
    assert_int_equal(kv_pool_count(pool).shared, 0);
    kv_pool_release(pool, a);
    assert_int_equal(kv_pool_count(pool).cached, 1);
    assert_true(kv_pool_is_consistent(pool));
    kv_pool_destroy(pool);
}

static void test_unreferenced_blocks_go_least_recently_used_first(void **state)
{
    (void)state;
    struct kv_pool *pool = new_pool(3);
    int32_t a = new_full(pool, KV_NO_BLOCK, 1), b = new_full(pool, KV_NO_BLOCK, 2), c = new_full(pool, KV_NO_BLOCK, 3);
    kv_pool_release(pool, a);
    kv_pool_release(pool, b);
    kv_pool_release(pool, c);
    kv_pool_retain(pool, a);
    kv_pool_release(pool, a); /* a is the most recent now */
    assert_int_equal(kv_pool_acquire(pool), b);
    assert_int_equal(look_up(pool, KV_NO_BLOCK, 2), KV_NO_BLOCK);
    assert_int_equal(kv_pool_acquire(pool), c);
    assert_int_equal(look_up(pool, KV_NO_BLOCK, 1), a);
    assert_int_equal(kv_pool_count(pool).reclaimed, 2);
    kv_pool_destroy(pool);
}

static void test_a_chain_gives_up_its_end_first(void **state)
{
    (void)state;
    struct kv_pool *pool = new_pool(3);
    int32_t a = new_full(pool, KV_NO_BLOCK, 1), b = new_full(pool, a, 2), c = new_full(pool, b, 3);
    kv_pool_release(pool, c);
    kv_pool_release(pool, b);
    kv_pool_release(pool, a);
    assert_int_equal(kv_pool_acquire(pool), c);
    assert_int_equal(kv_pool_acquire(pool), b);
    assert_int_equal(look_up(pool, KV_NO_BLOCK, 1), a);
    assert_true(kv_pool_is_consistent(pool));
    kv_pool_destroy(pool);
}

static void test_forgotten_blocks_are_not_found_again(void **state)
{
    (void)state;
    struct kv_pool *pool = new_pool(8);
    int32_t a = new_full(pool, KV_NO_BLOCK, 1), b = new_full(pool, a, 2), c = new_full(pool, a, 3),
            d = new_full(pool, c, 4);
    kv_pool_release(pool, d); /* a branch that was cut off earlier */
    kv_pool_release(pool, c);
    kv_pool_forget(pool, b);
    assert_int_equal(look_up(pool, a, 2), KV_NO_BLOCK);
    assert_int_equal(look_up(pool, a, 3), c);
    kv_pool_retain(pool, a);
    kv_pool_forget(pool, a); /* another session still has it */
    assert_int_equal(look_up(pool, KV_NO_BLOCK, 1), a);
    kv_pool_forget(pool, a);
    assert_int_equal(look_up(pool, KV_NO_BLOCK, 1), KV_NO_BLOCK);
    assert_int_equal(kv_pool_count(pool).free, 8);
    assert_true(kv_pool_is_consistent(pool));
    kv_pool_destroy(pool);
}

static void test_held_and_pinned_blocks_are_counted_once(void **state)
{
    (void)state;
    struct kv_pool *pool = new_pool(4);
    int32_t a = new_full(pool, KV_NO_BLOCK, 1);
    kv_pool_hold(pool, a);
    kv_pool_hold(pool, a);
    kv_pool_pin(pool, a);
    assert_int_equal(kv_pool_count(pool).held, 1);
    kv_pool_unhold(pool, a);
    kv_pool_unhold(pool, a);
    assert_int_equal(kv_pool_count(pool).held, 1);
    assert_true(kv_pool_is_pinned(pool, a));
    kv_pool_unpin(pool, a);
    assert_int_equal(kv_pool_count(pool).held, 0);
    assert_false(kv_pool_is_held(pool, a));
    kv_pool_destroy(pool);
}

static void test_blocks_of_one_origin_are_not_found_in_the_name_of_another(void **state)
{
    (void)state;
    struct kv_pool *pool = new_pool(8);
    int32_t tokens[KV_BLOCK_TOKENS], blocks[3], behind[3];
    fill(tokens, 1);
    for (uint64_t origin = 0; origin < 3; origin++) {
        assert_int_equal(kv_pool_lookup(pool, origin, KV_NO_BLOCK, tokens), KV_NO_BLOCK);
        assert_int_equal(kv_pool_first_child(pool, origin, KV_NO_BLOCK), KV_NO_BLOCK);
        blocks[origin] = kv_pool_seal(pool, kv_pool_acquire(pool), origin, KV_NO_BLOCK, tokens);
        behind[origin] = kv_pool_seal(pool, kv_pool_acquire(pool), origin, blocks[origin], tokens);
    }
    assert_int_equal(kv_pool_count(pool).duplicates, 0);
    for (uint64_t origin = 0; origin < 3; origin++) {
        assert_int_equal(kv_pool_lookup(pool, origin, KV_NO_BLOCK, tokens), blocks[origin]);
        assert_int_equal(kv_pool_lookup(pool, origin, blocks[origin], tokens), behind[origin]);
        assert_int_equal(kv_pool_first_child(pool, origin, KV_NO_BLOCK), blocks[origin]);
        assert_int_equal(kv_pool_next_sibling(pool, blocks[origin]), KV_NO_BLOCK);
        assert_int_equal(kv_pool_first_child(pool, origin, blocks[origin]), behind[origin]);
    }
    assert_true(kv_pool_is_consistent(pool));
    kv_pool_destroy(pool);
}

/* Random chains over a small alphabet, against a model that keeps each holder's token list. */
static void test_random_chains_keep_the_pool_consistent(void **state)
{
    (void)state;
    enum {
        HOLDERS = 12,
        LENGTH = 6,
        BLOCKS = 40,
        ROUNDS = 200000
    };
    static int32_t chains[HOLDERS][LENGTH], values[HOLDERS][LENGTH];
    static int lengths[HOLDERS];
    struct kv_pool *pool = new_pool(BLOCKS);
    random_state = 42;
    memset(lengths, 0, sizeof lengths);
    for (int round = 0; round < ROUNDS; round++) {
        int h = (int)random_below(HOLDERS);
        int n = lengths[h];
        int32_t parent = n > 0 ? chains[h][n - 1] : KV_NO_BLOCK;
        if (random_below(3) > 0 && n < LENGTH) {
            int32_t value = (int32_t)random_below(3);
            int32_t block = look_up(pool, parent, value);
            if (block != KV_NO_BLOCK && random_below(4) > 0) {
                kv_pool_retain(pool, block);
            } else {
                int32_t tokens[KV_BLOCK_TOKENS];
                fill(tokens, value);
                int32_t fresh = kv_pool_acquire(pool);
                if (fresh == KV_NO_BLOCK)
                    continue;
                int32_t sealed = kv_pool_seal(pool, fresh, KV_ORIGIN_HERE, parent, tokens);
                /* Finding room may have taken the unreferenced block that was found before. */
                assert_true(sealed == block || sealed == fresh);
                block = sealed;
            }
            chains[h][n] = block;
            values[h][n] = value;
            lengths[h]++;
        } else {
            int keep = (int)random_below((uint32_t)n + 1);
            bool forget = random_below(8) == 0;
            while (lengths[h] > keep) {
                int32_t block = chains[h][--lengths[h]];
                if (forget)
                    kv_pool_forget(pool, block);
                else
                    kv_pool_release(pool, block);
            }
        }
        for (int i = 0, p = KV_NO_BLOCK; i < lengths[h]; i++) {
            assert_int_equal(look_up(pool, p, values[h][i]), chains[h][i]);
            p = chains[h][i];
        }
        if (round % 64 == 0)
            assert_true(kv_pool_is_consistent(pool));
    }
    for (int h = 0; h < HOLDERS; h++)
        while (lengths[h] > 0)
            kv_pool_forget(pool, chains[h][--lengths[h]]);
    struct kv_pool_counters counters = kv_pool_count(pool);
    assert_int_equal(counters.used, 0);
    assert_int_equal(counters.free + counters.cached, BLOCKS);
    assert_true(kv_pool_is_consistent(pool));
    kv_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pool_without_blocks_is_refused),
        cmocka_unit_test(test_private_blocks_are_free_after_release),
        cmocka_unit_test(test_full_blocks_are_found_by_their_whole_prefix),
        cmocka_unit_test(test_the_same_block_twice_is_stored_once),
        cmocka_unit_test(test_unreferenced_blocks_go_least_recently_used_first),
        cmocka_unit_test(test_a_chain_gives_up_its_end_first),
        cmocka_unit_test(test_forgotten_blocks_are_not_found_again),
        cmocka_unit_test(test_held_and_pinned_blocks_are_counted_once),
        cmocka_unit_test(test_blocks_of_one_origin_are_not_found_in_the_name_of_another),
        cmocka_unit_test(test_random_chains_keep_the_pool_consistent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
