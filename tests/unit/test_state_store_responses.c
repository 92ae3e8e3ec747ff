/* Stored responses in the state folder, on a file system in memory: found again after a restart, in the order of
 * their age, or not at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/state_store.h"
#include "tests/unit/fake_fs.h"

static struct state_store *open_store(struct fake_fs *fs, uint64_t max_bytes)
{
    struct state_identity identity = {
        .model = 1, .numerics = 2, .block_bytes = 96, .block_tokens = KV_BLOCK_TOKENS, .n_vocab = 1000};
    struct state_store_options options = {.dir = "/state", .max_bytes = max_bytes, .identity = identity, .fs = &fs->fs};
    struct state_store *store;
    struct npu_error error;
    assert_int_equal(state_store_open(&store, &options, &error), NPU_OK);
    return store;
}

static void run(struct state_store *store)
{
    struct state_event event;
    do {
        while (state_store_take_event(store, &event))
            free(event.bytes);
    } while (state_store_run(store, 1) > 0);
    assert_true(state_store_is_consistent(store, 0));
}

static void close_store(struct state_store *store)
{
    run(store);
    state_store_close(store);
}

static struct response_id id_of(int64_t number)
{
    return (struct response_id){number, (uint64_t)number * 4096}; /* all in one bucket */
}

/* 1000 bytes. */
static void *make_record(int64_t number, size_t *ret_n)
{
    static char text[928];
    struct response_record record = {.id = id_of(number), .response = {text, sizeof text}};
    snprintf(text, sizeof text, "response %d", (int)number);
    return response_record_encode(&record, ret_n);
}

static bool put(struct state_store *store, int64_t number)
{
    size_t n;
    void *bytes = make_record(number, &n);
    struct response_id id = id_of(number);
    return state_store_put_response(store, &id, bytes, n);
}

static bool has(const struct state_store *store, int64_t number)
{
    struct response_id id = id_of(number);
    return state_store_has_response(store, &id);
}

static bool forget(struct state_store *store, int64_t number)
{
    struct response_id id = id_of(number);
    return state_store_forget_response(store, &id);
}

/* What comes of reading it; it is asked for before anything else of the worker is done. */
static bool reads(struct state_store *store, int64_t number)
{
    struct response_id id = id_of(number);
    struct state_event event;
    int context;
    bool came = false, good = false;
    assert_true(state_store_read_response(store, &id, &context));
    while (!came) {
        while (!state_store_take_event(store, &event))
            assert_int_equal(state_store_run(store, 1), 1);
        came = event.kind == STATE_EVENT_RESPONSE_READ;
        if (came && event.bytes != NULL) {
            size_t n;
            void *expected = make_record(number, &n);
            assert_ptr_equal(event.context, &context);
            assert_int_equal(event.n_bytes, n);
            assert_memory_equal(event.bytes, expected, n);
            free(expected);
            good = true;
        }
        free(event.bytes);
    }
    run(store);
    return good;
}

/* ---- tests ---- */

static void they_are_found_again(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create();
    struct state_store *store = open_store(fs, 1 << 20);
    for (int i = 1; i <= 5; i++)
        assert_true(put(store, i));
    assert_false(put(store, 3)); /* it is there */
    run(store);
    assert_true(forget(store, 2));
    assert_false(forget(store, 2));
    close_store(store);
    assert_int_equal(fake_fs_count(fs, ".response"), 4);
    store = open_store(fs, 1 << 20);
    assert_int_equal(state_store_count(store).responses, 4);
    for (int i = 1; i <= 5; i++)
        assert_true(i == 2 ? !has(store, i) : reads(store, i));
    close_store(store);
    fake_fs_destroy(fs);
}

static void one_is_read_while_it_is_written(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create();
    struct state_store *store = open_store(fs, 1 << 20);
    assert_true(put(store, 1));
    assert_true(reads(store, 1)); /* reads go before writes */
    run(store);
    assert_true(reads(store, 1));
    close_store(store);
    fake_fs_destroy(fs);
}

static void one_that_goes_while_it_is_written_leaves_no_file(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create();
    struct state_store *store = open_store(fs, 1 << 20);
    assert_true(put(store, 1));
    assert_true(forget(store, 1));
    assert_false(has(store, 1));
    assert_true(put(store, 2));
    close_store(store);
    assert_int_equal(fake_fs_count(fs, ".response"), 1);
    store = open_store(fs, 1 << 20);
    assert_true(!has(store, 1) && reads(store, 2));
    assert_true(put(store, 3));
    state_store_close(store); /* at once: what was handed in is written */
    assert_int_equal(fake_fs_count(fs, ".response"), 2);
    fake_fs_destroy(fs);
}

static void the_oldest_make_room(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create();
    struct state_store *store = open_store(fs, 4500);
    static const int order[] = {30, 10, 20, 40}; /* the clock may go back */
    for (int i = 0; i < 4; i++)
        assert_true(put(store, order[i]));
    run(store);
    assert_true(put(store, 50));
    run(store);
    assert_false(has(store, 10));
    assert_true(has(store, 20) && has(store, 30) && has(store, 40) && has(store, 50));
    assert_true(put(store, 60) && put(store, 70));
    assert_true(!has(store, 20) && !has(store, 30) && has(store, 40));
    assert_false(put(store, 5)); /* older than what is there: it makes no room for it */
    close_store(store);
    assert_int_equal(fake_fs_count(fs, ".response"), 4);
    store = open_store(fs, 2500); /* the bound has become tighter */
    run(store);
    assert_true(!has(store, 40) && !has(store, 50) && has(store, 60) && has(store, 70));
    close_store(store);
    assert_int_equal(fake_fs_count(fs, ".response"), 2);
    fake_fs_destroy(fs);
}

/* A session of one block, used at that time. */
static bool save_session(struct state_store *store, uint64_t id, int64_t used_us)
{
    int32_t tokens[KV_BLOCK_TOKENS] = {(int32_t)id};
    struct state_priority priority = {.id = id, .used_us = used_us};
    struct stored_block *block = state_store_acquire(store, 0, NULL, tokens, KV_BLOCK_TOKENS);
    void *buffer = state_store_buffer(store);
    memset(buffer, 0, STATE_BLOCK_HEADER_BYTES + 96);
    bool saved = state_store_write(store, block, buffer, &priority);
    while (state_store_run(store, 1) > 0) {
    }
    struct state_event event;
    while (state_store_take_event(store, &event)) {
    }
    struct state_manifest manifest = {.identity = *state_store_identity(store),
                                      .id = id,
                                      .created_us = used_us,
                                      .used_us = used_us,
                                      .tokens = tokens,
                                      .n_tokens = KV_BLOCK_TOKENS,
                                      .hashes = &block->hash,
                                      .n_blocks = 1};
    saved = saved && state_store_commit(store, &manifest, &block, NULL);
    if (!saved)
        state_store_release(store, block);
    run(store);
    return saved;
}

static void sessions_and_responses_go_by_their_age(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create();
    struct state_store *store = open_store(fs, 2700);
    assert_true(save_session(store, 1, 100) && put(store, 200) && save_session(store, 3, 300));
    run(store);
    assert_true(put(store, 400)); /* the session of 100 goes, and then the response of 200 */
    run(store);
    assert_false(state_store_has(store, 1));
    assert_true(state_store_has(store, 3) && has(store, 400));
    assert_true(put(store, 500));
    run(store);
    assert_true(!has(store, 200) && has(store, 500));
    assert_false(put(store, 250));
    assert_true(has(store, 400) || has(store, 500));
    close_store(store);
    fake_fs_destroy(fs);
}

static void damaged_files_are_as_if_unknown(void **state)
{
    (void)state;
    for (int damage = 0; damage < 6; damage++) {
        struct fake_fs *fs = fake_fs_create();
        struct state_store *store = open_store(fs, 1 << 20);
        assert_true(put(store, 1) && put(store, 2));
        close_store(store);
        char name[64];
        size_t n;
        snprintf(name, sizeof name, "%s", fake_fs_name(fs, ".response", 0));
        unsigned char *bytes = fake_fs_bytes(fs, name, &n);
        switch (damage) {
        case 0:
            bytes[n / 2] ^= 4;
            break;
        case 1:
            bytes[8]++; /* its version */
            break;
        case 2:
            fake_fs_truncate(fs, name, n - 1);
            break;
        case 3:
            fake_fs_truncate(fs, name, 0);
            break;
        case 4: /* another response, whole */
            bytes = fake_fs_bytes(fs, fake_fs_name(fs, ".response", 1), &n);
            fake_fs_put(fs, name, bytes, n);
            break;
        default:
            fake_fs_remove(fs, name);
            break;
        }
        store = open_store(fs, 1 << 20);
        if (damage < 5)
            assert_false(reads(store, 1));
        assert_false(has(store, 1));
        assert_true(reads(store, 2));
        assert_int_equal(state_store_count(store).damaged, damage < 5);
        close_store(store);
        assert_int_equal(fake_fs_count(fs, ".response"), 1);
        fake_fs_destroy(fs);
    }
}

static void what_could_not_be_written_is_unknown(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create();
    struct state_store *store = open_store(fs, 1 << 20);
    fs->fail_code = ENOSPC;
    fs->fail_writes_only = true;
    fs->fail_on = true;
    fs->fail_at = fs->n_calls + 1;
    assert_true(put(store, 1));
    run(store);
    assert_false(has(store, 1));
    assert_int_equal(state_store_count(store).bytes, 0);
    fs->fail_at = 0;
    assert_true(put(store, 2));
    run(store);
    assert_true(reads(store, 2));
    close_store(store);
    fake_fs_destroy(fs);
}

static void leftovers_go_and_strange_names_stay(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create();
    static const char *const names[] = {"0000000000000001000000000000000g.response", "1.response",
                                        "00000000000000010000000000000001.responses"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        fake_fs_put(fs, names[i], "x", 1);
    fake_fs_put(fs, "00000000000000010000000000000001.response.tmp", "x", 1);
    struct state_store *store = open_store(fs, 1 << 20);
    assert_int_equal(state_store_count(store).responses, 0);
    assert_int_equal(fake_fs_count(fs, ".tmp"), 0);
    close_store(store);
    assert_int_equal(fake_fs_count(fs, ".response") + fake_fs_count(fs, ".responses"), 3);
    fake_fs_destroy(fs);
}

static void what_was_written_or_removed_stays_so_when_the_power_goes(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create();
    struct state_store *store = open_store(fs, 1 << 20);
    assert_true(put(store, 1) && put(store, 2));
    close_store(store);
    fake_fs_lose_power(fs);
    store = open_store(fs, 1 << 20);
    assert_true(reads(store, 1) && reads(store, 2));
    assert_true(forget(store, 1));
    close_store(store);
    fake_fs_lose_power(fs);
    store = open_store(fs, 1 << 20);
    assert_true(!has(store, 1) && reads(store, 2));
    close_store(store);
    fake_fs_destroy(fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_are_found_again),
        cmocka_unit_test(one_is_read_while_it_is_written),
        cmocka_unit_test(one_that_goes_while_it_is_written_leaves_no_file),
        cmocka_unit_test(the_oldest_make_room),
        cmocka_unit_test(sessions_and_responses_go_by_their_age),
        cmocka_unit_test(damaged_files_are_as_if_unknown),
        cmocka_unit_test(what_could_not_be_written_is_unknown),
        cmocka_unit_test(leftovers_go_and_strange_names_stay),
        cmocka_unit_test(what_was_written_or_removed_stays_so_when_the_power_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
