#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/session.h"

enum {
    MAX_BLOCKS = 64,
    MAX_TOKENS = 512
};

/* Stands for the device's memory: what was written into each position of each block is a hash of the whole prefix. */
struct world {
    struct kv_pool *pool;
    struct session_table *table;
    uint64_t slots[MAX_BLOCKS][KV_BLOCK_TOKENS];
    uint64_t now_us;
    int copies, evictions;
    bool copies_fail;
};

static enum npu_status copy_block(void *context, int32_t from, int32_t to)
{
    struct world *world = context;
    if (world->copies_fail)
        return NPU_ERROR_DEVICE;
    memcpy(world->slots[to], world->slots[from], sizeof world->slots[to]);
    world->copies++;
    return NPU_OK;
}

static void on_evict(void *context, struct session *session)
{
    struct world *world = context;
    assert_int_equal(session->state, SESSION_IDLE);
    assert_false(session->pinned);
    world->evictions++;
}

static struct world *new_world(int32_t n_blocks, int32_t max_sessions)
{
    struct world *world = calloc(1, sizeof *world);
    struct npu_error error;
    assert_int_equal(kv_pool_create(&world->pool, n_blocks, &error), NPU_OK);
    struct session_table_options options = {
        .max_sessions = max_sessions, .id_seed = 1, .context = world, .copy_block = copy_block, .on_evict = on_evict};
    assert_int_equal(session_table_create(&world->table, &options, world->pool, &error), NPU_OK);
    return world;
}

static void end_world(struct world *world)
{
    assert_true(session_table_is_consistent(world->table));
    session_table_destroy(world->table);
    assert_int_equal(kv_pool_count(world->pool).used, 0);
    kv_pool_destroy(world->pool);
    free(world);
}

static uint64_t next_slot(uint64_t before, int32_t token)
{
    return (before + (uint64_t)token + 1) * 0x9e3779b97f4a7c15u;
}

/* Every resident position holds the K/V of exactly this history. */
static void check_content(const struct world *world, const struct session *session)
{
    uint64_t slot = 0;
    for (int32_t p = 0; p < session->n_resident; p++) {
        slot = next_slot(slot, session->tokens[p]);
        assert_int_equal(world->slots[session->blocks[p / KV_BLOCK_TOKENS]][p % KV_BLOCK_TOKENS], slot);
    }
}

/* Computes up to n more positions of a busy session, as far as there are blocks. */
static void compute(struct world *world, struct session *session, int32_t n)
{
    int32_t end = session->n_resident + n;
    if (end > session->n_tokens)
        end = session->n_tokens;
    end = session_reserve(world->table, session, end);
    uint64_t slot = 0;
    for (int32_t p = 0; p < end; p++) {
        slot = next_slot(slot, session->tokens[p]);
        if (p >= session->n_resident)
            world->slots[session->blocks[p / KV_BLOCK_TOKENS]][p % KV_BLOCK_TOKENS] = slot;
    }
    if (end > session->n_resident)
        session_commit(world->table, session, end - session->n_resident);
}

static struct session *open_session(struct world *world, const int32_t *tokens, int32_t n, const char *key,
                                    struct cache_report *start)
{
    struct session_request request = {.tokens = tokens, .n_tokens = n, .max_cached = n - 1, .key = key};
    struct session *session = session_open(world->table, &request, ++world->now_us, start);
    assert_non_null(session);
    check_content(world, session);
    assert_int_equal(session->n_resident, start->n_cached);
    return session;
}

/* A whole request: opens, computes everything, closes. Returns how much was cached. */
static struct cache_report run(struct world *world, const int32_t *tokens, int32_t n, const char *key, uint64_t *ret_id)
{
    struct cache_report start;
    struct session *session = open_session(world, tokens, n, key, &start);
    compute(world, session, n);
    assert_int_equal(session->n_resident, n);
    if (ret_id != NULL)
        *ret_id = session->id;
    session_close(world->table, session, ++world->now_us);
    assert_true(session_table_is_consistent(world->table));
    return start;
}

static void count_up(int32_t *tokens, int32_t n, int32_t first)
{
    for (int32_t i = 0; i < n; i++)
        tokens[i] = first + i;
}

static void test_the_next_turn_costs_its_new_tokens_only(void **state)
{
    (void)state;
    struct world *world = new_world(16, 100);
    int32_t tokens[150];
    uint64_t first, second;
    count_up(tokens, 150, 0);
    struct cache_report start = run(world, tokens, 100, NULL, &first);
    assert_int_equal(start.n_cached, 0);
    assert_int_equal(start.miss, CACHE_MISS_FIRST_USE);
    assert_int_equal(start.source, CACHE_SOURCE_NONE);
    start = run(world, tokens, 150, NULL, &second);
    assert_int_equal(start.n_cached, 100);
    assert_int_equal(start.source, CACHE_SOURCE_RESIDENT);
    assert_int_equal(start.miss, CACHE_MISS_NONE);
    assert_int_equal(second, first);
    assert_int_equal(session_by_id(world->table, first)->turns, 2);
    assert_int_equal(world->copies, 0);
    end_world(world);
}

static void test_the_last_token_is_always_computed(void **state)
{
    (void)state;
    int32_t tokens[96];
    count_up(tokens, 96, 0);
    for (int32_t n = 1; n <= 96; n++) {
        struct world *world = new_world(16, 100);
        run(world, tokens, n, NULL, NULL);
        struct cache_report start;
        struct session *session = open_session(world, tokens, n, NULL, &start);
        assert_int_equal(start.n_cached, n - 1);
        compute(world, session, 1);
        check_content(world, session);
        session_close(world->table, session, ++world->now_us);
        assert_true(session_table_is_consistent(world->table));
        end_world(world);
    }
}

static void test_a_request_that_parts_near_the_end_goes_on_with_the_session(void **state)
{
    (void)state;
    struct world *world = new_world(16, 100);
    int32_t tokens[100];
    uint64_t first, second;
    count_up(tokens, 100, 0);
    run(world, tokens, 100, NULL, &first);
    tokens[80] = 1000;
    struct cache_report start = run(world, tokens, 100, NULL, &second);
    assert_int_equal(second, first);
    assert_int_equal(start.n_cached, 80);
    assert_int_equal(start.differs_at, 80);
    assert_int_equal(start.miss, CACHE_MISS_DIFFERS);
    assert_int_equal(session_count(world->table, SESSION_IDLE), 1);
    end_world(world);
}

static void test_a_request_that_parts_early_forks(void **state)
{
    (void)state;
    struct world *world = new_world(32, 100);
    int32_t tokens[200];
    uint64_t first, second;
    count_up(tokens, 200, 0);
    run(world, tokens, 200, "chat", &first);
    int32_t other[200];
    memcpy(other, tokens, sizeof other);
    other[70] = 1000;
    struct cache_report start = run(world, other, 200, "chat", &second);
    assert_int_not_equal(second, first);
    assert_int_equal(start.n_cached, 70);
    assert_int_equal(start.source, CACHE_SOURCE_SHARED);
    assert_int_equal(start.source_id, first);
    assert_int_equal(session_by_key(world->table, "chat")->id, second);
    assert_int_equal(kv_pool_count(world->pool).shared, 2);
    /* Neither branch lost anything. */
    assert_int_equal(run(world, tokens, 200, "chat", &second).n_cached, 199);
    assert_int_equal(second, first);
    assert_int_equal(run(world, other, 200, "chat", NULL).n_cached, 199);
    end_world(world);
}

static void test_a_name_is_not_taken_over_by_another(void **state)
{
    (void)state;
    struct world *world = new_world(32, 100);
    int32_t tokens[120];
    uint64_t mine, other, unnamed;
    count_up(tokens, 120, 0);
    run(world, tokens, 100, "mine", &mine);
    assert_int_equal(run(world, tokens, 110, "other", &other).n_cached, 100);
    assert_int_not_equal(mine, other);
    assert_int_equal(run(world, tokens, 120, NULL, &unnamed).n_cached, 110);
    assert_int_not_equal(unnamed, other);
    assert_int_equal(session_by_key(world->table, "mine")->n_tokens, 100);
    assert_int_equal(session_by_key(world->table, "other")->n_tokens, 110);
    /* A name may be given to an unnamed one. */
    uint64_t named;
    tokens[119] = 7;
    run(world, tokens, 120, "new", &named);
    assert_int_equal(named, unnamed);
    end_world(world);
}

static void test_two_requests_at_once_for_one_session_never_mix(void **state)
{
    (void)state;
    struct world *world = new_world(32, 100);
    int32_t tokens[120];
    count_up(tokens, 120, 0);
    run(world, tokens, 100, "chat", NULL);
    struct cache_report a_start, b_start;
    struct session *a = open_session(world, tokens, 120, "chat", &a_start);
    int32_t other[120];
    memcpy(other, tokens, sizeof other);
    other[110] = 9999;
    struct session *b = open_session(world, other, 120, "chat", &b_start);
    assert_ptr_not_equal(a, b);
    assert_int_equal(a_start.n_cached, 100);
    assert_int_equal(b_start.n_cached, 96); /* the busy one's last block is its own */
    compute(world, b, 10);
    compute(world, a, 120);
    compute(world, b, 120);
    check_content(world, a);
    check_content(world, b);
    assert_true(session_table_is_consistent(world->table));
    session_close(world->table, a, ++world->now_us);
    session_close(world->table, b, ++world->now_us);
    end_world(world);
}

static void test_a_shared_prefix_is_stored_once(void **state)
{
    (void)state;
    struct world *world = new_world(64, 100);
    int32_t tokens[370];
    count_up(tokens, 370, 0);
    for (int i = 0; i < 10; i++) {
        for (int j = 320; j < 370; j++)
            tokens[j] = 1000 * (i + 1) + j;
        struct cache_report start = run(world, tokens, 370, NULL, NULL);
        assert_int_equal(start.n_cached, i == 0 ? 0 : 320);
    }
    assert_int_equal(session_count(world->table, SESSION_IDLE), 10);
    assert_int_equal(kv_pool_count(world->pool).used, 10 + 20);
    assert_int_equal(kv_pool_count(world->pool).shared, 10);
    end_world(world);
}

static void test_sessions_that_compute_the_same_prefix_share_it_while_they_run(void **state)
{
    (void)state;
    struct world *world = new_world(64, 100);
    int32_t tokens[100];
    count_up(tokens, 100, 0);
    struct cache_report start;
    struct session *a = open_session(world, tokens, 100, NULL, &start);
    struct session *b = open_session(world, tokens, 100, NULL, &start);
    assert_ptr_not_equal(a, b);
    assert_true(session_awaits(b, a, 99));
    compute(world, a, 40);
    assert_false(session_awaits(b, a, 99));
    assert_int_equal(session_skip_ahead(world->table, b, 99), 32);
    assert_int_equal(session_skip_ahead(world->table, b, 99), 0);
    assert_true(session_awaits(b, a, 99));
    compute(world, b, 100);
    compute(world, a, 100);
    assert_int_equal(kv_pool_count(world->pool).shared, 3);
    check_content(world, a);
    check_content(world, b);
    session_close(world->table, a, ++world->now_us);
    session_close(world->table, b, ++world->now_us);
    end_world(world);
}

static void test_the_least_recently_used_idle_session_is_evicted_first(void **state)
{
    (void)state;
    struct world *world = new_world(10, 100);
    int32_t tokens[320];
    uint64_t a, b, c;
    count_up(tokens, 320, 0);
    run(world, tokens, 96, "a", &a);
    count_up(tokens, 320, 1000);
    run(world, tokens, 96, "b", &b);
    count_up(tokens, 320, 0);
    run(world, tokens, 96, "a", NULL); /* used again */
    count_up(tokens, 320, 2000);
    run(world, tokens, 180, "c", &c); /* six blocks of the ten */
    assert_int_equal(world->evictions, 1);
    assert_int_equal(session_by_id(world->table, b)->state, SESSION_EVICTED);
    assert_int_equal(session_by_id(world->table, a)->state, SESSION_IDLE);
    /* Back again: the same session, computed anew as far as its blocks are gone. */
    count_up(tokens, 320, 1000);
    uint64_t again;
    struct cache_report start = run(world, tokens, 97, "b", &again);
    assert_int_equal(again, b);
    assert_int_equal(start.miss, CACHE_MISS_EVICTED);
    assert_int_equal(start.differs_at, -1);
    end_world(world);
}

static void test_pinned_sessions_stay_and_hold_half_the_pool_at_most(void **state)
{
    (void)state;
    struct world *world = new_world(10, 100);
    struct npu_error error;
    int32_t tokens[320];
    uint64_t a, b;
    count_up(tokens, 320, 0);
    run(world, tokens, 96, "a", &a);
    count_up(tokens, 320, 1000);
    run(world, tokens, 96, "b", &b);
    assert_int_equal(session_pin(world->table, session_by_id(world->table, a), &error), NPU_OK);
    assert_int_equal(session_pin(world->table, session_by_id(world->table, a), &error), NPU_OK);
    assert_int_equal(session_pin(world->table, session_by_id(world->table, b), &error), NPU_ERROR_INPUT);
    count_up(tokens, 320, 2000);
    run(world, tokens, 32 * 7, NULL, NULL);
    assert_int_equal(session_by_id(world->table, a)->state, SESSION_IDLE);
    assert_int_equal(session_by_id(world->table, b)->state, SESSION_EVICTED);
    assert_int_equal(kv_pool_count(world->pool).pinned, 3);
    /* A pinned session that grows past half the pool loses its pin. */
    count_up(tokens, 320, 0);
    run(world, tokens, 32 * 5, "a", NULL);
    assert_true(session_by_id(world->table, a)->pinned);
    run(world, tokens, 32 * 6, "a", NULL);
    assert_false(session_by_id(world->table, a)->pinned);
    assert_int_equal(kv_pool_count(world->pool).pinned, 0);
    end_world(world);
}

static void test_cutting_back_never_destroys(void **state)
{
    (void)state;
    struct world *world = new_world(32, 100);
    struct npu_error error;
    int32_t tokens[200];
    uint64_t id;
    count_up(tokens, 200, 0);
    run(world, tokens, 200, "chat", &id);
    struct session *session = session_by_id(world->table, id);
    assert_int_equal(session_truncate(world->table, session, 50, &error), NPU_OK);
    assert_int_equal(session->n_tokens, 50);
    assert_int_equal(session->n_resident, 50);
    check_content(world, session);
    assert_true(session_table_is_consistent(world->table));
    assert_int_equal(session_truncate(world->table, session, 51, &error), NPU_ERROR_INPUT);
    assert_int_equal(session_truncate(world->table, session, 0, &error), NPU_ERROR_INPUT);
    assert_int_equal(run(world, tokens, 200, "chat", NULL).n_cached, 192);
    end_world(world);
}

static void test_a_fork_shares_full_blocks_and_copies_the_rest(void **state)
{
    (void)state;
    struct world *world = new_world(32, 100);
    struct npu_error error;
    int32_t tokens[200];
    uint64_t id;
    count_up(tokens, 200, 0);
    run(world, tokens, 200, "chat", &id);
    struct session *fork;
    assert_int_equal(session_fork(world->table, session_by_id(world->table, id), 150, "branch", 99, &fork, &error),
                     NPU_OK);
    assert_int_equal(fork->n_resident, 150);
    assert_string_equal(fork->key, "branch");
    check_content(world, fork);
    assert_int_equal(kv_pool_count(world->pool).shared, 4);
    assert_int_equal(world->copies, 1);
    assert_true(session_table_is_consistent(world->table));
    assert_int_equal(session_fork(world->table, fork, 151, NULL, 99, &fork, &error), NPU_ERROR_INPUT);
    end_world(world);
}

static void test_deleted_sessions_leave_nothing_to_be_found(void **state)
{
    (void)state;
    struct world *world = new_world(32, 100);
    struct npu_error error;
    int32_t tokens[200];
    uint64_t id;
    count_up(tokens, 200, 0);
    run(world, tokens, 200, "chat", &id);
    struct session *session = session_by_id(world->table, id);
    assert_int_equal(session_pin(world->table, session, &error), NPU_OK);
    assert_int_equal(session_truncate(world->table, session, 100, &error), NPU_OK);
    assert_int_equal(session_delete(world->table, session, &error), NPU_OK);
    assert_null(session_by_id(world->table, id));
    assert_int_equal(kv_pool_count(world->pool).free, 32);
    assert_int_equal(run(world, tokens, 200, "chat", NULL).n_cached, 0);
    end_world(world);
}

static void test_busy_sessions_are_neither_deleted_nor_truncated(void **state)
{
    (void)state;
    struct world *world = new_world(32, 100);
    struct npu_error error;
    int32_t tokens[50];
    count_up(tokens, 50, 0);
    struct cache_report start;
    struct session *session = open_session(world, tokens, 50, NULL, &start);
    assert_int_equal(session_delete(world->table, session, &error), NPU_ERROR_INPUT);
    assert_int_equal(session_truncate(world->table, session, 1, &error), NPU_ERROR_INPUT);
    session_close(world->table, session, 1);
    assert_int_equal(session_count(world->table, SESSION_IDLE), 0); /* nothing was computed */
    end_world(world);
}

static void test_a_copy_that_fails_costs_computing_not_correctness(void **state)
{
    (void)state;
    struct world *world = new_world(32, 100);
    int32_t tokens[200];
    count_up(tokens, 200, 0);
    run(world, tokens, 200, NULL, NULL);
    world->copies_fail = true;
    tokens[70] = 5000;
    assert_int_equal(run(world, tokens, 200, NULL, NULL).n_cached, 64);
    end_world(world);
}

static void test_the_number_of_sessions_is_bounded(void **state)
{
    (void)state;
    struct world *world = new_world(64, 5);
    for (int32_t i = 0; i < 40; i++) {
        int32_t tokens[20];
        count_up(tokens, 20, i * 100);
        run(world, tokens, 20, NULL, NULL);
        int32_t count = session_count(world->table, SESSION_IDLE) + session_count(world->table, SESSION_EVICTED);
        assert_true(count <= 5);
    }
    end_world(world);
}

static void test_moving_out_and_in_keeps_the_history(void **state)
{
    (void)state;
    struct world *world = new_world(8, 100);
    int32_t tokens[100];
    count_up(tokens, 100, 0);
    struct cache_report start;
    struct session *session = open_session(world, tokens, 100, NULL, &start);
    compute(world, session, 100);
    session_append(session, 555);
    session_move_out(world->table, session);
    assert_int_equal(kv_pool_count(world->pool).held, 0);
    assert_int_equal(session_move_in(world->table, session, session->n_tokens - 1), 96);
    check_content(world, session);
    compute(world, session, 100);
    check_content(world, session);
    assert_int_equal(session->n_resident, 101);
    session_close(world->table, session, 5);
    end_world(world);
}

/* --- random operations -------------------------------------------------------------------------------------------- */

static uint64_t random_state;

static uint32_t random_below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % n);
}

/* Prompts that share long prefixes with each other and part at any place. */
static int32_t random_prompt(int32_t *tokens)
{
    int32_t n = 1 + (int32_t)random_below(200);
    int32_t base = (int32_t)random_below(3) * 1000;
    count_up(tokens, n, base);
    if (random_below(2) == 0)
        for (int32_t i = (int32_t)random_below((uint32_t)n); i < n; i++)
            tokens[i] += 10000 * (1 + (base > 0));
    return n;
}

static struct session *random_session(const struct world *world)
{
    int32_t count = session_count(world->table, SESSION_IDLE) + session_count(world->table, SESSION_EVICTED) +
                    session_count(world->table, SESSION_BUSY);
    if (count == 0)
        return NULL;
    struct session *session = session_next(world->table, NULL);
    for (uint32_t i = random_below((uint32_t)count); i > 0; i--)
        session = session_next(world->table, session);
    return session;
}

static void random_verb(struct world *world)
{
    struct npu_error error;
    struct session *session = random_session(world), *fork;
    if (session == NULL)
        return;
    bool busy = session->state == SESSION_BUSY;
    int32_t position = 1 + (int32_t)random_below((uint32_t)session->n_tokens);
    switch (random_below(6)) {
    case 0:
        if (session_fork(world->table, session, position, random_below(2) ? "b" : NULL, ++world->now_us, &fork,
                         &error) == NPU_OK)
            check_content(world, fork);
        break;
    case 1:
        assert_int_equal(session_truncate(world->table, session, position, &error) != NPU_OK, busy);
        break;
    case 2:
        (void)session_pin(world->table, session, &error);
        break;
    case 3:
        session_unpin(world->table, session);
        break;
    case 4:
        if (random_below(4) == 0)
            assert_int_equal(session_delete(world->table, session, &error) != NPU_OK, busy);
        break;
    default:
        world->copies_fail = random_below(4) == 0;
        break;
    }
}

static void test_a_transient_session_takes_nothing_and_leaves_nothing(void **state)
{
    (void)state;
    struct world *world = new_world(24, 12);
    int32_t tokens[100];
    for (int32_t i = 0; i < 100; i++)
        tokens[i] = i;
    uint64_t id;
    run(world, tokens, 90, "key", &id);
    struct kv_pool_counters before = kv_pool_count(world->pool);
    struct session_request request = {.tokens = tokens, .n_tokens = 100, .transient = true};
    struct cache_report start;
    struct session *session = session_open(world->table, &request, ++world->now_us, &start);
    assert_non_null(session);
    assert_int_equal(start.n_cached, 0);
    compute(world, session, 70);
    check_content(world, session);
    /* Nobody sees it, and a request for the same tokens neither finds nor awaits what it computes. */
    assert_null(session_by_id(world->table, session->id));
    for (struct session *s = session_next(world->table, NULL); s != NULL; s = session_next(world->table, s))
        assert_ptr_not_equal(s, session);
    assert_int_equal(session_count(world->table, SESSION_IDLE), 1);
    struct cache_report other_start;
    struct session *other = open_session(world, tokens, 100, NULL, &other_start);
    assert_int_equal(other_start.n_cached, 90);
    assert_int_equal(other_start.known_id, id);
    assert_false(session_awaits(other, session, 99));
    session_close(world->table, other, ++world->now_us);
    struct npu_error error;
    assert_int_equal(session_delete(world->table, session_by_id(world->table, other_start.session_id), &error), NPU_OK);
    assert_true(session_table_is_consistent(world->table));
    session_move_out(world->table, session);
    assert_int_equal(session_move_in(world->table, session, 0), 0);
    compute(world, session, 100);
    check_content(world, session);
    session_close(world->table, session, ++world->now_us);
    struct kv_pool_counters after = kv_pool_count(world->pool);
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(session_count(world->table, SESSION_BUSY), 0);
    assert_int_equal(session_by_id(world->table, id)->n_resident, 90);
    end_world(world);
}

static void test_random_operations_keep_every_position_right(void **state)
{
    (void)state;
    enum {
        BUSY = 4,
        ROUNDS = 100000
    };
    static const char *const keys[] = {NULL, NULL, "a", "b"};
    struct world *world = new_world(24, 12);
    struct session *busy[BUSY] = {NULL};
    random_state = 7;
    for (int round = 0; round < ROUNDS; round++) {
        world->now_us++;
        struct session **slot = &busy[random_below(BUSY)];
        uint32_t what = random_below(10);
        if (*slot == NULL) {
            int32_t tokens[MAX_TOKENS];
            int32_t n = random_prompt(tokens);
            bool transient = random_below(5) == 0;
            struct session_request request = {.tokens = tokens, .n_tokens = n, .transient = transient};
            request.max_cached = random_below(8) && !transient ? n - 1 : 0;
            request.key = transient ? NULL : keys[random_below(4)];
            struct cache_report start;
            *slot = session_open(world->table, &request, world->now_us, &start);
            assert_non_null(*slot);
            assert_true(start.n_cached <= request.max_cached);
            assert_int_equal(start.n_cached, (*slot)->n_resident);
        } else if (what < 5) {
            compute(world, *slot, 1 + (int32_t)random_below(60));
            if ((*slot)->n_resident == (*slot)->n_tokens && (*slot)->n_tokens < MAX_TOKENS)
                session_append(*slot, (int32_t)random_below(2));
        } else if (what == 5) {
            session_close(world->table, *slot, world->now_us);
            *slot = NULL;
        } else if (what == 6) {
            session_move_out(world->table, *slot);
            session_move_in(world->table, *slot, (*slot)->transient ? 0 : (*slot)->n_tokens - 1);
        } else if (what == 7) {
            session_skip_ahead(world->table, *slot, (*slot)->transient ? 0 : (*slot)->n_tokens - 1);
        } else {
            random_verb(world);
        }
        if (round % 16 == 0) {
            assert_true(session_table_is_consistent(world->table));
            for (struct session *s = session_next(world->table, NULL); s != NULL; s = session_next(world->table, s))
                check_content(world, s);
            for (int i = 0; i < BUSY; i++)
                if (busy[i] != NULL)
                    check_content(world, busy[i]);
        }
    }
    for (int i = 0; i < BUSY; i++)
        if (busy[i] != NULL)
            session_close(world->table, busy[i], world->now_us);
    struct npu_error error;
    struct session *session;
    while ((session = session_next(world->table, NULL)) != NULL)
        assert_int_equal(session_delete(world->table, session, &error), NPU_OK);
    assert_int_equal(kv_pool_count(world->pool).used, 0);
    end_world(world);
}

/* As an import does it: n tokens whose K/V is not what they give. */
static struct session *import_forged(struct world *world, const int32_t *tokens, int32_t n, const char *key)
{
    struct session_record record = {
        .key = key, .tokens = tokens, .n_tokens = n, .imported = true, .created_us = 1, .used_us = ++world->now_us};
    struct session *session = session_bring_in(world->table, &record);
    assert_non_null(session);
    assert_int_equal(session->n_resident, 0);
    assert_int_equal(session_reserve(world->table, session, n), n);
    for (int32_t p = 0; p < n; p++)
        world->slots[session->blocks[p / KV_BLOCK_TOKENS]][p % KV_BLOCK_TOKENS] = 0xbad;
    session_commit(world->table, session, n);
    session_close(world->table, session, ++world->now_us);
    assert_true(session_table_is_consistent(world->table));
    return session;
}

/* A request that does not hold what it finds against the tokens. */
static struct session *open_named(struct world *world, const int32_t *tokens, int32_t n, const char *key,
                                  struct cache_report *report)
{
    struct session_request request = {.tokens = tokens, .n_tokens = n, .max_cached = n - 1, .key = key};
    struct session *session = session_open(world->table, &request, ++world->now_us, report);
    assert_non_null(session);
    return session;
}

static void test_an_import_is_found_by_its_key_only(void **state)
{
    (void)state;
    struct world *world = new_world(64, 100);
    int32_t tokens[200];
    count_up(tokens, 200, 0);
    const struct session *import = import_forged(world, tokens, 100, "guest");
    uint64_t id = import->id;
    struct session_request request = {.tokens = tokens, .n_tokens = 150, .max_cached = 149};
    assert_int_equal(session_blocks_needed(world->table, &request), 5);
    /* Not by its tokens, whole or cut, with or without a name; run holds all K/V against the tokens. */
    struct cache_report report = run(world, tokens, 20, NULL, NULL);
    assert_int_equal(report.n_cached, 0);
    assert_int_equal(report.miss, CACHE_MISS_FIRST_USE);
    assert_int_equal(report.source, CACHE_SOURCE_NONE);
    assert_int_equal(report.known_id, 0);
    assert_int_equal(run(world, tokens, 150, "other", NULL).n_cached, 20);
    assert_int_equal(run(world, tokens, 150, NULL, NULL).n_cached, 149);
    assert_int_equal(session_shared_blocks(world->table, session_by_id(world->table, id)), 0);
    /* By its key: it goes on, and what is computed behind it stays apart, too. */
    struct session *session = open_named(world, tokens, 160, "guest", &report);
    assert_int_equal(session->id, id);
    assert_int_equal(report.n_cached, 100);
    assert_int_equal(report.source, CACHE_SOURCE_RESIDENT);
    compute(world, session, 160);
    session_close(world->table, session, ++world->now_us);
    assert_int_equal(run(world, tokens, 200, NULL, NULL).n_cached, 150);
    end_world(world);
}

static void test_imports_take_nothing_from_others_nor_from_each_other(void **state)
{
    (void)state;
    struct world *world = new_world(64, 100);
    int32_t tokens[200];
    count_up(tokens, 200, 0);
    run(world, tokens, 96, "here", NULL);
    import_forged(world, tokens, 100, "one");
    const struct session *second = import_forged(world, tokens, 100, "two");
    assert_int_equal(session_shared_blocks(world->table, second), 0);
    /* A chat under its name that begins alike is told of that history only. */
    struct cache_report report;
    tokens[50] = 1000;
    struct session *session = open_named(world, tokens, 150, "two", &report);
    assert_int_equal(session->origin, second->id);
    assert_int_equal(report.n_cached, 50);
    assert_int_equal(report.source_id, second->id);
    assert_int_equal(report.differs_at, 50);
    session_close(world->table, session, ++world->now_us);
    /* Those that stand at the same place of different origins do not wait for each other. */
    struct session *a = open_named(world, tokens + 100, 64, NULL, &report),
                   *b = open_named(world, tokens + 100, 64, "one", &report);
    assert_int_equal(report.n_cached, 0);
    assert_false(session_awaits(a, b, 63));
    session_close(world->table, a, ++world->now_us);
    session_close(world->table, b, ++world->now_us);
    end_world(world);
}

static void test_forks_of_an_import_stay_apart_and_get_no_name_of_here(void **state)
{
    (void)state;
    struct world *world = new_world(64, 100);
    int32_t tokens[200];
    count_up(tokens, 200, 0);
    struct npu_error error;
    struct cache_report report;
    run(world, tokens, 40, "here", NULL);
    struct session *import = import_forged(world, tokens, 100, NULL), *fork, *unnamed;
    assert_memory_equal(import->key, "import-", 7);
    uint64_t origin = import->id;
    assert_int_equal(session_fork(world->table, import, 90, "here", 5, &fork, &error), NPU_ERROR_INPUT);
    assert_non_null(strstr(error.message, "another key"));
    assert_int_equal(session_fork(world->table, import, 90, "fork", 5, &fork, &error), NPU_OK);
    assert_int_equal(session_fork(world->table, fork, 80, NULL, 5, &unnamed, &error), NPU_OK);
    assert_true(fork->origin == origin && unnamed->origin == origin);
    int32_t parted[120];
    memcpy(parted, tokens, sizeof parted);
    parted[90] = 1000;
    struct session *session = open_named(world, parted, 120, "fork", &report);
    assert_int_equal(session->id, fork->id);
    assert_int_equal(report.n_cached, 90);
    session_close(world->table, session, ++world->now_us);
    assert_int_equal(run(world, tokens, 200, NULL, NULL).n_cached, 40);
    /* Where both have a name, what was computed here is used. */
    struct session *here = session_by_key(world->table, "here");
    assert_int_equal(session_fork(world->table, here, 40, "fork", 5, &unnamed, &error), NPU_OK);
    assert_int_equal(run(world, tokens, 200, "fork", NULL).n_cached, 199);
    end_world(world);
}

static void test_an_import_that_was_evicted_or_moved_out_stays_apart(void **state)
{
    (void)state;
    struct world *world = new_world(8, 100);
    int32_t tokens[200], others[200];
    count_up(tokens, 200, 0);
    count_up(others, 200, 1000);
    struct session *import = import_forged(world, tokens, 100, "guest");
    uint64_t id = import->id;
    struct cache_report report;
    struct session *session = open_named(world, tokens, 100, "guest", &report);
    session_move_out(world->table, session);
    assert_int_equal(session_move_in(world->table, session, 99), 96);
    session_close(world->table, session, ++world->now_us);
    run(world, others, 200, NULL, NULL);
    import = session_by_id(world->table, id);
    assert_int_equal(import->state, SESSION_EVICTED);
    assert_int_equal(run(world, tokens, 100, NULL, NULL).miss, CACHE_MISS_FIRST_USE);
    session = open_named(world, tokens, 100, "guest", &report);
    assert_int_equal(session->id, id);
    assert_int_equal(session->origin, id);
    assert_int_equal(report.n_cached, 0);
    assert_int_equal(report.miss, CACHE_MISS_EVICTED);
    session_close(world->table, session, ++world->now_us);
    end_world(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_next_turn_costs_its_new_tokens_only),
        cmocka_unit_test(test_the_last_token_is_always_computed),
        cmocka_unit_test(test_a_request_that_parts_near_the_end_goes_on_with_the_session),
        cmocka_unit_test(test_a_request_that_parts_early_forks),
        cmocka_unit_test(test_a_name_is_not_taken_over_by_another),
        cmocka_unit_test(test_two_requests_at_once_for_one_session_never_mix),
        cmocka_unit_test(test_a_shared_prefix_is_stored_once),
        cmocka_unit_test(test_sessions_that_compute_the_same_prefix_share_it_while_they_run),
        cmocka_unit_test(test_the_least_recently_used_idle_session_is_evicted_first),
        cmocka_unit_test(test_pinned_sessions_stay_and_hold_half_the_pool_at_most),
        cmocka_unit_test(test_cutting_back_never_destroys),
        cmocka_unit_test(test_a_fork_shares_full_blocks_and_copies_the_rest),
        cmocka_unit_test(test_deleted_sessions_leave_nothing_to_be_found),
        cmocka_unit_test(test_busy_sessions_are_neither_deleted_nor_truncated),
        cmocka_unit_test(test_a_copy_that_fails_costs_computing_not_correctness),
        cmocka_unit_test(test_the_number_of_sessions_is_bounded),
        cmocka_unit_test(test_moving_out_and_in_keeps_the_history),
        cmocka_unit_test(test_a_transient_session_takes_nothing_and_leaves_nothing),
        cmocka_unit_test(test_random_operations_keep_every_position_right),
        cmocka_unit_test(test_an_import_is_found_by_its_key_only),
        cmocka_unit_test(test_imports_take_nothing_from_others_nor_from_each_other),
        cmocka_unit_test(test_forks_of_an_import_stay_apart_and_get_no_name_of_here),
        cmocka_unit_test(test_an_import_that_was_evicted_or_moved_out_stays_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
