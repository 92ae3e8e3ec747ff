/* The state folder on a file system in memory: what is written is found again, or not at all; every damage and every failing
 * call costs computation only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "daemon/state_store.h"
#include "tests/unit/fake_fs.h"

enum {
    BLOCK_BYTES = 96,
    N_VOCAB = 1000,
    BLOCK_FILE_BYTES = BLOCK_BYTES + STATE_BLOCK_HEADER_BYTES,
};

static const struct state_identity own = {
    .model = 11, .numerics = 22, .block_bytes = BLOCK_BYTES, .block_tokens = KV_BLOCK_TOKENS, .n_vocab = N_VOCAB};

static struct state_store *try_open(struct fake_fs *fs, struct state_identity identity, uint64_t max_bytes,
                                    struct npu_error *error)
{
    struct state_store_options options = {.dir = "/state", .max_bytes = max_bytes, .identity = identity, .fs = &fs->fs};
    struct state_store *store = NULL;
    enum npu_status status = state_store_open(&store, &options, error);
    assert_true((status == NPU_OK) == (store != NULL));
    return store;
}

static struct state_store *open_store(struct fake_fs *fs)
{
    struct npu_error error;
    struct state_store *store = try_open(fs, own, 1 << 20, &error);
    assert_non_null(store);
    return store;
}

/* Histories that begin with the same `shared` tokens. */
static void make_tokens(int32_t *tokens, int32_t n, int32_t shared, int32_t seed)
{
    for (int32_t i = 0; i < n; i++)
        tokens[i] = (i * 7 + (i < shared ? 0 : seed * 31)) % N_VOCAB;
}

/* The K/V that a block has, made from all that is before it. */
static void make_kv(const int32_t *tokens, int32_t n, unsigned char *kv)
{
    uint64_t x = 88172645463325252u;
    for (int32_t i = 0; i < n; i++)
        x = (x ^ (uint64_t)tokens[i]) * 0x9e3779b97f4a7c15u + (uint64_t)i;
    for (int i = 0; i < BLOCK_BYTES; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        kv[i] = (unsigned char)x;
    }
}

static int32_t n_blocks_of(int32_t n_tokens)
{
    return (n_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
}

/* Tells of each event; READ events leave their bytes. */
static void run(struct state_store *store, struct state_event *ret_last)
{
    struct state_event event;
    while (state_store_is_busy(store)) {
        state_store_run(store, 1);
        while (state_store_take_event(store, &event)) {
            if (ret_last != NULL) {
                if (ret_last->kind == STATE_EVENT_READ)
                    free(ret_last->bytes);
                *ret_last = event;
            } else {
                free(event.bytes);
            }
        }
    }
    while (state_store_run(store, 1) > 0) {
    }
    while (state_store_take_event(store, &event)) {
    }
}

/* As the engine does it; how many tokens are safe. */
static int32_t save(struct state_store *store, uint64_t id, const char *key, const int32_t *tokens, int32_t n_tokens,
                    int64_t used_us)
{
    struct stored_block *blocks[64], *parent = NULL;
    struct state_hash hashes[64];
    struct state_priority priority = {.id = id, .used_us = used_us};
    int32_t n = 0, n_safe = 0, n_present = 0;
    for (; n < n_blocks_of(n_tokens); n++) {
        int32_t begin = n * KV_BLOCK_TOKENS, length = n_tokens - begin < 32 ? n_tokens - begin : 32;
        struct stored_block *block = state_store_acquire(store, 0, parent, tokens + begin, length);
        if (block == NULL)
            break;
        blocks[n] = parent = block;
        if (block->state != STORED_BLOCK_ABSENT)
            continue;
        unsigned char *buffer = state_store_buffer(store);
        make_kv(tokens, begin + length, buffer + STATE_BLOCK_HEADER_BYTES);
        state_store_write(store, block, buffer, &priority);
    }
    run(store, NULL);
    while (n_present < n && blocks[n_present]->state == STORED_BLOCK_PRESENT) {
        hashes[n_present] = blocks[n_present]->hash;
        n_safe += blocks[n_present++]->n_tokens;
    }
    while (n > n_present)
        state_store_release(store, blocks[--n]);
    struct state_manifest manifest = {.identity = own,
                                      .id = id,
                                      .key = (char *)key,
                                      .turns = 3,
                                      .created_us = 5,
                                      .used_us = used_us,
                                      .tokens = (int32_t *)tokens,
                                      .n_tokens = n_tokens,
                                      .hashes = hashes,
                                      .n_blocks = n};
    struct state_event event = {.kind = STATE_EVENT_WRITTEN};
    if (n == 0 || !state_store_commit(store, &manifest, blocks, NULL)) {
        while (n > 0)
            state_store_release(store, blocks[--n]);
        return 0;
    }
    run(store, &event);
    assert_int_equal(event.kind, STATE_EVENT_COMMITTED);
    assert_int_equal(event.id, id);
    return event.status == NPU_OK ? n_safe : 0;
}

/* Reads the prefix of these tokens as far as it is there, and holds every byte against what it must be. */
static int32_t restore(struct state_store *store, const int32_t *tokens, int32_t n_tokens)
{
    struct stored_block *parent = NULL;
    int32_t n = 0;
    while (n < n_tokens) {
        int32_t length = n_tokens - n < 32 ? n_tokens - n : 32;
        struct stored_block *block = state_store_find(store, 0, parent, tokens + n, length);
        if (block == NULL || block->state != STORED_BLOCK_PRESENT)
            break;
        struct state_event event = {.kind = STATE_EVENT_WRITTEN};
        assert_true(state_store_read(store, block, NULL));
        run(store, &event);
        assert_int_equal(event.kind, STATE_EVENT_READ);
        assert_true((event.status == NPU_OK) == (event.bytes != NULL));
        if (event.bytes == NULL)
            break;
        unsigned char expected[BLOCK_BYTES];
        make_kv(tokens, n + length, expected);
        assert_memory_equal((char *)event.bytes + STATE_BLOCK_HEADER_BYTES, expected, BLOCK_BYTES);
        free(event.bytes);
        parent = block;
        n += length;
    }
    return n;
}

/* Takes the sessions that opening found. How many. */
static int take_found(struct state_store *store, struct state_manifest *manifests, int max)
{
    int n = 0;
    struct state_manifest manifest;
    while (state_store_next_found(store, &manifest)) {
        if (n < max)
            manifests[n] = manifest;
        else
            state_manifest_clear(&manifest);
        n++;
    }
    return n;
}

static void close_store(struct state_store *store)
{
    assert_true(state_store_is_consistent(store, 0));
    state_store_close(store);
}

/* --- what is written is found again ------------------------------------------------------------------------------- */

static void test_a_saved_session_is_found_by_its_tokens_after_reopening(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create();
    struct state_store *store = open_store(fs);
    int32_t tokens[200];
    make_tokens(tokens, 200, 0, 1);
    assert_int_equal(save(store, 77, "chat", tokens, 100, 1000), 100);
    assert_int_equal(restore(store, tokens, 100), 100);
    assert_int_equal(restore(store, tokens, 130), 96); /* another end */
    close_store(store);

    store = open_store(fs);
    struct state_manifest found;
    assert_int_equal(take_found(store, &found, 1), 1);
    assert_int_equal(found.id, 77);
    assert_string_equal(found.key, "chat");
    assert_int_equal(found.n_tokens, 100);
    assert_int_equal(found.turns, 3);
    assert_int_equal(found.created_us, 5);
    assert_int_equal(found.used_us, 1000);
    assert_memory_equal(found.tokens, tokens, 100 * sizeof *tokens);
    state_manifest_clear(&found);
    assert_int_equal(state_store_covered(store, 77), 100);
    assert_int_equal(restore(store, tokens, 100), 100);
    tokens[40]++;
    assert_int_equal(restore(store, tokens, 100), 32);
    close_store(store);
    fake_fs_destroy(fs);
}

static void test_a_turn_writes_its_new_blocks_only_and_a_shared_prefix_is_there_once(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create();
    struct state_store *store = open_store(fs);
    int32_t tokens[400], other[400];
    make_tokens(tokens, 400, 320, 1);
    make_tokens(other, 400, 320, 2);
    assert_int_equal(save(store, 1, NULL, tokens, 330, 1), 330);
    assert_int_equal(fs->n_created, 11 + 1);
    assert_int_equal(save(store, 1, NULL, tokens, 360, 2), 360); /* a whole block, a new end, the manifest */
    assert_int_equal(fs->n_created, 12 + 3);
    assert_int_equal(fake_fs_count(fs, ".block"), 12); /* the old end is gone */
    assert_int_equal(save(store, 2, NULL, other, 340, 3), 340); /* an end and the manifest */
    assert_int_equal(fs->n_created, 15 + 2);
    assert_int_equal(fake_fs_count(fs, ".block"), 13);
    assert_int_equal(fake_fs_count(fs, ".session"), 2);
    state_store_forget(store, 1);
    run(store, NULL);
    assert_int_equal(fake_fs_count(fs, ".block"), 11);
    assert_int_equal(restore(store, other, 340), 340);
    state_store_forget(store, 2);
    run(store, NULL);
    assert_int_equal(fake_fs_count(fs, ""), 0);
    assert_int_equal(state_store_count(store).bytes, 0);
    close_store(store);
    fake_fs_destroy(fs);
}

static void test_what_no_session_needs_is_removed_at_opening(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create();
    struct state_store *store = open_store(fs);
    int32_t tokens[100];
    make_tokens(tokens, 100, 0, 1);
    save(store, 1, NULL, tokens, 100, 1);
    close_store(store);
    fake_fs_put(fs, "0123456789abcdef0123456789abcdef.block", "x", 1);
    fake_fs_put(fs, "0123456789abcdef0123456789abcdef.block.tmp", "x", 1);
    fake_fs_put(fs, "0123456789abcdef.session.tmp", "x", 1);
    fake_fs_put(fs, "0123456789abcdeF.session", "not ours", 8);
    fake_fs_put(fs, "model.gguf", "not ours", 8);
    store = open_store(fs);
    assert_int_equal(fake_fs_count(fs, ".block"), 4);
    assert_int_equal(fake_fs_count(fs, ".tmp"), 0);
    assert_int_equal(fake_fs_count(fs, "F.session"), 1);
    assert_int_equal(fake_fs_count(fs, ".gguf"), 1);
    assert_int_equal(restore(store, tokens, 100), 100);
    close_store(store);
    fake_fs_destroy(fs);
}

static void test_the_oldest_sessions_go_when_the_limit_is_passed(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create();
    struct npu_error error;
    /* Three sessions of two blocks, and not a fourth. */
    struct state_store *store = try_open(fs, own, 3 * (2 * BLOCK_FILE_BYTES + 112 + 64 * 4 + 32) + 100, &error);
    int32_t tokens[64];
    for (int32_t i = 0; i < 4; i++) {
        make_tokens(tokens, 64, 0, i + 1);
        assert_int_equal(save(store, (uint64_t)i + 1, NULL, tokens, 64, i == 0 ? 500 : 100 + i), 64);
        assert_true(state_store_count(store).bytes <= state_store_count(store).max_bytes);
    }
    assert_true(state_store_has(store, 1)); /* the first one was used last */
    assert_false(state_store_has(store, 2));
    assert_true(state_store_has(store, 3) && state_store_has(store, 4));
    /* One that is older than all others makes nobody go. */
    make_tokens(tokens, 64, 0, 9);
    assert_int_equal(save(store, 9, NULL, tokens, 64, 1), 0);
    assert_true(state_store_has(store, 1) && state_store_has(store, 3) && state_store_has(store, 4));
    close_store(store);
    /* A smaller limit. */
    store = try_open(fs, own, 800, &error);
    assert_int_equal(take_found(store, NULL, 0), 1);
    assert_true(state_store_has(store, 1));
    assert_true(state_store_count(store).bytes <= 800);
    close_store(store);
    fake_fs_destroy(fs);
}

static void test_two_cannot_use_one_folder(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create();
    struct state_store *store = open_store(fs);
    struct npu_error error;
    assert_null(try_open(fs, own, 1 << 20, &error));
    assert_non_null(strstr(error.message, "another npud"));
    close_store(store);
    close_store(open_store(fs));
    fake_fs_destroy(fs);
}

/* --- other models and numerics ------------------------------------------------------------------------------------ */

static void test_other_numerics_leave_the_tokens_and_another_model_nothing(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create();
    struct state_store *store = open_store(fs);
    struct npu_error error;
    int32_t tokens[100];
    make_tokens(tokens, 100, 0, 1);
    save(store, 1, "a", tokens, 100, 1);
    close_store(store);

    struct state_identity identity = own;
    identity.numerics++;
    store = try_open(fs, identity, 1 << 20, &error);
    struct state_manifest found;
    assert_int_equal(take_found(store, &found, 1), 1);
    assert_memory_equal(found.tokens, tokens, sizeof tokens);
    state_manifest_clear(&found);
    assert_int_equal(state_store_covered(store, 1), 0);
    assert_int_equal(restore(store, tokens, 100), 0);
    close_store(store);

    identity = own;
    identity.model++;
    store = try_open(fs, identity, 1 << 20, &error);
    assert_int_equal(take_found(store, NULL, 0), 0);
    assert_int_equal(restore(store, tokens, 100), 0);
    assert_int_equal(state_store_count(store).damaged, 0);
    close_store(store);
    assert_int_equal(fake_fs_count(fs, ".block"), 4); /* left alone */

    /* Until the space is needed. */
    store = try_open(fs, identity, 1500, &error);
    int32_t other[100];
    make_tokens(other, 100, 0, 2);
    assert_int_equal(save(store, 2, NULL, other, 100, 2), 100);
    assert_int_equal(fake_fs_count(fs, ".block"), 4);
    assert_int_equal(fake_fs_count(fs, ".session"), 1);
    close_store(store);
    fake_fs_destroy(fs);
}

/* --- damage ------------------------------------------------------------------------------------------------------- */

struct folder {
    struct fake_fs *fs;
    int32_t tokens[2][200];
};

static const int32_t lengths[2] = {100, 150};

/* Two sessions that share two blocks. */
static struct folder make_folder(void)
{
    struct folder folder = {.fs = fake_fs_create()};
    struct state_store *store = open_store(folder.fs);
    for (int i = 0; i < 2; i++) {
        make_tokens(folder.tokens[i], 200, 70, i + 1);
        assert_int_equal(save(store, (uint64_t)i + 1, "k", folder.tokens[i], lengths[i], i), lengths[i]);
    }
    close_store(store);
    return folder;
}

/* Whatever is in the folder: it opens, it never gives wrong bytes, and afterwards both sessions can be saved again and are
 * whole. Returns how many tokens of both were there. */
static int32_t check_folder(struct folder *folder, int *ret_damaged)
{
    int32_t n = 0;
    struct state_store *store = open_store(folder->fs);
    take_found(store, NULL, 0);
    for (int i = 0; i < 2; i++)
        n += restore(store, folder->tokens[i], lengths[i]);
    *ret_damaged = (int)state_store_count(store).damaged;
    for (int i = 0; i < 2; i++)
        assert_int_equal(save(store, (uint64_t)i + 1, "k", folder->tokens[i], lengths[i], 9), lengths[i]);
    for (int i = 0; i < 2; i++)
        assert_int_equal(restore(store, folder->tokens[i], lengths[i]), lengths[i]);
    close_store(store);
    store = open_store(folder->fs);
    assert_int_equal(take_found(store, NULL, 0), 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(restore(store, folder->tokens[i], lengths[i]), lengths[i]);
    assert_int_equal(state_store_count(store).damaged, 0);
    close_store(store);
    return n;
}

enum damage {
    DAMAGE_TRUNCATE,
    DAMAGE_FLIP,
    DAMAGE_GROW,
    DAMAGE_REMOVE,
};

static void damage_file(struct fake_fs *fs, const char *name, enum damage damage, size_t at)
{
    char copy[64];
    size_t n;
    unsigned char *bytes = fake_fs_bytes(fs, name, &n);
    strcpy(copy, name);
    switch (damage) {
    case DAMAGE_TRUNCATE:
        fake_fs_truncate(fs, copy, at);
        break;
    case DAMAGE_FLIP:
        bytes[at / 8] ^= (unsigned char)(1 << (at % 8));
        break;
    case DAMAGE_GROW:
        bytes = malloc(n + at);
        memcpy(bytes, fake_fs_bytes(fs, copy, &n), n);
        memset(bytes + n, 0, at);
        fake_fs_put(fs, copy, bytes, n + at);
        free(bytes);
        break;
    case DAMAGE_REMOVE:
        fake_fs_remove(fs, copy);
        break;
    }
}

/* Every file in turn, at every `step`-th place. */
static void damage_everything(enum damage damage, size_t step)
{
    bool more = true;
    for (int file = 0; more; file++) {
        size_t places = 1;
        for (size_t at = 0; at < places; at += step) {
            struct folder folder = make_folder();
            const char *name = fake_fs_name(folder.fs, "", file);
            more = name != NULL;
            if (more) {
                size_t n;
                fake_fs_bytes(folder.fs, name, &n);
                places = damage == DAMAGE_TRUNCATE ? n : damage == DAMAGE_FLIP ? n * 8 : 1;
                damage_file(folder.fs, name, damage, damage == DAMAGE_GROW ? 7 : at);
                int damaged;
                assert_true(check_folder(&folder, &damaged) < lengths[0] + lengths[1]);
                /* A manifest that is gone leaves no trace. */
                assert_true(damaged > 0 || damage == DAMAGE_REMOVE);
            }
            fake_fs_destroy(folder.fs);
            if (!more)
                break;
        }
    }
}

static void test_truncated_files_cost_computation_only(void **state)
{
    (void)state;
    damage_everything(DAMAGE_TRUNCATE, 13);
}

static void test_flipped_bits_cost_computation_only(void **state)
{
    (void)state;
    damage_everything(DAMAGE_FLIP, 37);
}

static void test_files_that_grew_cost_computation_only(void **state)
{
    (void)state;
    damage_everything(DAMAGE_GROW, 1);
}

static void test_missing_files_cost_computation_only(void **state)
{
    (void)state;
    damage_everything(DAMAGE_REMOVE, 1);
}

static void test_a_files_content_under_another_name_is_not_taken_for_it(void **state)
{
    (void)state;
    for (int suffix = 0; suffix < 2; suffix++) {
        const char *kind = suffix == 0 ? ".block" : ".session";
        struct folder folder = make_folder();
        size_t n;
        int damaged;
        char to[64];
        strcpy(to, fake_fs_name(folder.fs, kind, 1));
        unsigned char *bytes = fake_fs_bytes(folder.fs, fake_fs_name(folder.fs, kind, 0), &n);
        fake_fs_put(folder.fs, to, bytes, n);
        assert_true(check_folder(&folder, &damaged) < lengths[0] + lengths[1]);
        assert_int_equal(damaged, 1);
        fake_fs_destroy(folder.fs);
    }
}

/* A file of the right shape with a right checksum of its own, but numbers from hell: nothing may be believed. */
static void test_manifests_of_random_bytes_are_refused(void **state)
{
    (void)state;
    struct folder folder = make_folder();
    size_t n;
    uint64_t random = 1;
    unsigned char *original = fake_fs_bytes(folder.fs, fake_fs_name(folder.fs, ".session", 0), &n), bytes[2048];
    assert_true(n <= sizeof bytes);
    for (int round = 0; round < 20000; round++) {
        memcpy(bytes, original, n);
        for (int i = 0; i < 1 + round % 5; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            bytes[(random >> 33) % n] = (unsigned char)(random >> 25);
        }
        struct state_manifest manifest;
        struct npu_error error;
        size_t used;
        if (state_manifest_decode(&manifest, bytes, n, &used, &error) != NPU_OK)
            continue;
        assert_memory_equal(bytes, original, n); /* it was not changed after all */
        state_manifest_clear(&manifest);
    }
    fake_fs_destroy(folder.fs);
}

/* --- calls that fail ---------------------------------------------------------------------------------------------- */

/* Saves both sessions in two turns each, reads them back, forgets one. What fails may fail, but what a commit has said is
 * safe must be there. */
static void use_folder(struct folder *folder, int32_t *ret_safe)
{
    struct npu_error error;
    struct state_store *store = try_open(folder->fs, own, 1 << 20, &error);
    if (store == NULL)
        return;
    take_found(store, NULL, 0);
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < 2; i++) {
            int32_t n = lengths[i] - (turn == 0 ? 50 : 0);
            int32_t safe = save(store, (uint64_t)i + 1, "k", folder->tokens[i], n, turn);
            ret_safe[i] = safe > ret_safe[i] ? safe : ret_safe[i];
            (void)restore(store, folder->tokens[i], n);
        }
    }
    assert_true(state_store_is_consistent(store, 0));
    state_store_close(store);
}

enum after {
    AFTER_EXIT,
    AFTER_KILL,
    AFTER_POWER_LOSS,
};

static void fail_every_call(bool fail_on, int code, bool writes_only, enum after after)
{
    bool failed = true;
    for (int n = 1; failed; n++) {
        struct folder folder = {.fs = fake_fs_create()};
        int32_t safe[2] = {0, 0};
        for (int i = 0; i < 2; i++)
            make_tokens(folder.tokens[i], 200, 70, i + 1);
        folder.fs->fail_at = n;
        folder.fs->fail_on = fail_on;
        folder.fs->fail_code = code;
        folder.fs->fail_writes_only = writes_only;
        folder.fs->short_reads = folder.fs->short_writes = n % 2 == 0;
        use_folder(&folder, safe);
        failed = folder.fs->n_calls >= n;
        folder.fs->fail_at = 0;
        if (after == AFTER_KILL)
            fake_fs_kill(folder.fs);
        else if (after == AFTER_POWER_LOSS)
            fake_fs_lose_power(folder.fs);

        struct state_store *store = open_store(folder.fs);
        take_found(store, NULL, 0);
        for (int i = 0; i < 2; i++) {
            /* After a save that was whole a failing one may have removed nothing but the end of it. */
            int32_t n_whole = lengths[i];
            int32_t there = restore(store, folder.tokens[i], n_whole);
            if (safe[i] == n_whole)
                assert_true(writes_only ? there == n_whole : there <= n_whole);
        }
        close_store(store);
        int damaged;
        (void)check_folder(&folder, &damaged);
        assert_int_equal(fake_fs_count(folder.fs, ".tmp"), 0);
        fake_fs_destroy(folder.fs);
        assert_true(n < 5000);
    }
}

static void test_any_call_may_fail_once(void **state)
{
    (void)state;
    fail_every_call(false, EIO, false, AFTER_EXIT);
}

static void test_a_full_disk_loses_no_session_that_was_safe(void **state)
{
    (void)state;
    fail_every_call(true, ENOSPC, true, AFTER_EXIT);
}

static void test_a_kill_at_any_call_loses_no_session_that_was_safe(void **state)
{
    (void)state;
    fail_every_call(true, EIO, true, AFTER_KILL);
}

static void test_a_power_failure_at_any_call_loses_no_session_that_was_safe(void **state)
{
    (void)state;
    fail_every_call(true, EIO, true, AFTER_POWER_LOSS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_saved_session_is_found_by_its_tokens_after_reopening),
        cmocka_unit_test(test_a_turn_writes_its_new_blocks_only_and_a_shared_prefix_is_there_once),
        cmocka_unit_test(test_what_no_session_needs_is_removed_at_opening),
        cmocka_unit_test(test_the_oldest_sessions_go_when_the_limit_is_passed),
        cmocka_unit_test(test_two_cannot_use_one_folder),
        cmocka_unit_test(test_other_numerics_leave_the_tokens_and_another_model_nothing),
        cmocka_unit_test(test_truncated_files_cost_computation_only),
        cmocka_unit_test(test_flipped_bits_cost_computation_only),
        cmocka_unit_test(test_files_that_grew_cost_computation_only),
        cmocka_unit_test(test_missing_files_cost_computation_only),
        cmocka_unit_test(test_a_files_content_under_another_name_is_not_taken_for_it),
        cmocka_unit_test(test_manifests_of_random_bytes_are_refused),
        cmocka_unit_test(test_any_call_may_fail_once),
        cmocka_unit_test(test_a_full_disk_loses_no_session_that_was_safe),
        cmocka_unit_test(test_a_kill_at_any_call_loses_no_session_that_was_safe),
        cmocka_unit_test(test_a_power_failure_at_any_call_loses_no_session_that_was_safe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
