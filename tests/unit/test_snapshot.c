/* Sessions to disk and back, with a fake executor and a fake file system: what is written and when, who makes room for whom,
 * and what becomes of a save whose session goes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/snapshot_transfer.h"
#include "tests/unit/scheduler_world.h"

enum {
    LARGE = 1 << 20, /* a limit of the folder that is not met */
};

static struct world *small_world(struct fake_fs *fs, int32_t n_blocks, uint64_t max_bytes, uint64_t now_us)
{
    struct fake_options fake = world_fake;
    fake.n_blocks = n_blocks;
    return world_create_on(fake, world_options, fs, max_bytes, now_us);
}

/* One request to its end, alone, without waiting for the disk afterwards; how its cache was and which session it has. */
static struct cache_report ask(struct world *world, int32_t seed, int32_t n_prompt, int32_t n_output, const char *key,
                               uint64_t *ret_id)
{
    int32_t prompt[WORLD_MAX_CONTEXT];
    world_make_prompt(prompt, n_prompt, seed);
    struct job *job = world_new_job(prompt, n_prompt, n_output);
    job->sequence.key = key;
    world_submit(world, job);
    while (!job->ended) {
        state_store_run(world->store, 1);
        scheduler_step(world->scheduler);
    }
    assert_false(job->failed);
    struct cache_report report = job->sequence.cache;
    if (ret_id != NULL)
        *ret_id = report.session_id;
    free(job);
    return report;
}

static struct session *find(struct world *world, uint64_t id)
{
    return session_by_id(scheduler_sessions(world->scheduler), id);
}

struct told {
    int times;
    int32_t n_tokens;
    bool has_reason;
};

static void on_saved(void *context, uint64_t id, int32_t n_tokens, const char *reason)
{
    struct told *told = context;
    assert_true(id != 0);
    told->times++;
    told->n_tokens = n_tokens;
    told->has_reason = reason != NULL;
}

static enum npu_status save(struct world *world, uint64_t id, struct told *told)
{
    struct npu_error error;
    *told = (struct told){0};
    return snapshots_save(scheduler_snapshots(world->scheduler), find(world, id), on_saved, told, &error);
}

static void delete (struct world *world, uint64_t id)
{
    struct npu_error error;
    assert_int_equal(session_delete(scheduler_sessions(world->scheduler), find(world, id), &error), NPU_OK);
}

static struct world *restart(struct world *world, struct fake_fs *fs, int32_t n_blocks, uint64_t max_bytes)
{
    uint64_t now_us = world->now_us + 1;
    world_destroy(world);
    return small_world(fs, n_blocks, max_bytes, now_us);
}

static void test_an_evicted_session_with_a_name_comes_back_from_disk(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create();
    struct world *world = small_world(fs, 6, LARGE, 1);
    uint64_t first;
    ask(world, 1, 100, 30, "a", &first);
    ask(world, 2, 100, 30, "b", NULL);
    assert_int_equal(find(world, first)->state, SESSION_EVICTED);
    world_run_to_end(world);
    assert_true(state_store_has(world->store, first));
    uint64_t n_rows = world->fake->n_rows, again;
    struct cache_report report = ask(world, 1, 100, 5, "a", &again);
    assert_int_equal(again, first);
    assert_int_equal(report.source, CACHE_SOURCE_DISK);
    assert_int_equal(report.n_cached, 99);
    assert_int_equal(world->fake->n_rows - n_rows, 1 + 4);
    world_destroy(world);
    fake_fs_destroy(fs);
}

static void test_only_named_sessions_and_second_turns_are_written(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create();
    struct world *world = small_world(fs, 6, LARGE, 1);
    uint64_t once, twice;
    ask(world, 1, 60, 10, NULL, &once);
    ask(world, 2, 50, 10, NULL, &twice);
    ask(world, 2, 58, 10, NULL, &twice);
    assert_int_equal(find(world, twice)->turns, 2);
    snapshots_checkpoint(scheduler_snapshots(world->scheduler));
    world_run_to_end(world);
    assert_true(state_store_has(world->store, twice));
    assert_false(state_store_has(world->store, once));
    ask(world, 3, 150, 10, "large", NULL); /* eviction writes them no more than a checkpoint does */
    world_run_to_end(world);
    assert_false(state_store_has(world->store, once));
    world_destroy(world);
    fake_fs_destroy(fs);
}

static void test_a_turn_writes_its_new_blocks_only(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create();
    struct world *world = small_world(fs, 20, LARGE, 1);
    ask(world, 1, 96, 1, "a", NULL);
    snapshots_checkpoint(scheduler_snapshots(world->scheduler));
    world_run_to_end(world);
    assert_int_equal(fake_fs_count(fs, ".block"), 3);
    int created = fs->n_created;
    ask(world, 1, 160, 1, "a", NULL);
    ask(world, 1, 160, 1, "b", NULL); /* all of it is there already */
    snapshots_checkpoint(scheduler_snapshots(world->scheduler));
    world_run_to_end(world);
    assert_int_equal(fake_fs_count(fs, ".block"), 5);
    assert_int_equal(fs->n_created - created, 2 + 2);
    created = fs->n_created;
    snapshots_checkpoint(scheduler_snapshots(world->scheduler)); /* nothing has changed */
    world_run_to_end(world);
    assert_int_equal(fs->n_created, created);
    world_destroy(world);
    fake_fs_destroy(fs);
}

static void test_sessions_are_there_after_a_restart(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create();
    struct world *world = small_world(fs, 20, LARGE, 1);
    uint64_t id, again;
    ask(world, 1, 100, 30, "a", &id);
    snapshots_checkpoint(scheduler_snapshots(world->scheduler));
    world_run_to_end(world);
    world = restart(world, fs, 20, LARGE);
    struct session *session = find(world, id);
    assert_non_null(session);
    assert_int_equal(session->state, SESSION_EVICTED);
    assert_int_equal(session->n_tokens, 129);
    assert_string_equal(session->key, "a");
    struct cache_report report = ask(world, 1, 100, 30, "a", &again);
    assert_int_equal(again, id);
    assert_int_equal(report.n_cached, 99);
    assert_int_equal(report.n_restored, 99);
    world_destroy(world);
    fake_fs_destroy(fs);
}

static void test_deleting_while_saving_leaves_no_file_and_tells_the_waiter(void **state)
{
    (void)state;
    for (int n_jobs = 0; n_jobs < 8; n_jobs++) { /* so far is the save when the session goes */
        struct fake_fs *fs = fake_fs_create();
        struct world *world = small_world(fs, 20, LARGE, 1);
        struct told told;
        uint64_t id;
        ask(world, 1, 100, 30, "a", &id);
        assert_int_equal(save(world, id, &told), NPU_OK);
        for (int i = 0; i < n_jobs; i++) {
            snapshots_work(scheduler_snapshots(world->scheduler), true);
            state_store_run(world->store, 1);
        }
        if (told.times == 0) {
            delete (world, id);
            assert_int_equal(told.times, 1);
            assert_int_equal(told.n_tokens, 0);
            assert_false(told.has_reason);
        } else {
            delete (world, id);
        }
        world_run_to_end(world);
        assert_int_equal(told.times, 1);
        assert_int_equal(fake_fs_count(fs, ".session"), 0);
        assert_int_equal(fake_fs_count(fs, ".block"), 0);
        world = restart(world, fs, 20, LARGE);
        assert_null(session_next(scheduler_sessions(world->scheduler), NULL));
        world_destroy(world);
        fake_fs_destroy(fs);
    }
}

static void test_an_evicted_session_without_a_copy_cannot_be_saved(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create();
    struct world *world = small_world(fs, 6, LARGE, 1);
    struct told told;
    uint64_t id;
    ask(world, 1, 100, 30, NULL, &id);
    ask(world, 2, 150, 30, NULL, NULL);
    assert_int_equal(find(world, id)->state, SESSION_EVICTED);
    assert_int_equal(save(world, id, &told), NPU_ERROR_INPUT);
    world_run_to_end(world);
    assert_int_equal(told.times, 0);
    assert_false(find(world, id)->kept);
    world_destroy(world);
    fake_fs_destroy(fs);
}

static void test_a_full_disk_is_told_and_the_session_is_saved_later(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create();
    struct world *world = small_world(fs, 20, LARGE, 1);
    struct told told;
    uint64_t id;
    ask(world, 1, 100, 30, "a", &id);
    fs->fail_on = fs->fail_writes_only = true;
    fs->fail_code = ENOSPC;
    fs->fail_at = 1;
    assert_int_equal(save(world, id, &told), NPU_OK);
    world_run_to_end(world);
    assert_int_equal(told.times, 1);
    assert_int_equal(told.n_tokens, 0);
    assert_true(told.has_reason);
    assert_false(state_store_has(world->store, id));
    fs->fail_at = 0;
    snapshots_checkpoint(scheduler_snapshots(world->scheduler));
    world_run_to_end(world);
    assert_int_equal(state_store_covered(world->store, id), 129);
    world_destroy(world);
    fake_fs_destroy(fs);
}

/* What a session of four blocks takes in the folder. */
static uint64_t size_of_one(void)
{
    struct fake_fs *fs = fake_fs_create();
    struct world *world = small_world(fs, 20, LARGE, 1);
    ask(world, 1, 128, 1, "middle", NULL);
    snapshots_checkpoint(scheduler_snapshots(world->scheduler));
    world_run_to_end(world);
    uint64_t bytes = state_store_count(world->store).bytes;
    assert_true(bytes > 0);
    world_destroy(world);
    fake_fs_destroy(fs);
    return bytes;
}

static void test_older_sessions_make_room_and_newer_ones_do_not(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create();
    struct world *world = small_world(fs, 20, size_of_one() * 5 / 2, 1);
    struct told told;
    uint64_t ids[3];
    for (int i = 0; i < 3; i++)
        ask(world, i + 1, 128, 1, "key", &ids[i]);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(save(world, ids[i], &told), NPU_OK);
        world_run_to_end(world);
        assert_int_equal(told.n_tokens, 128);
    }
    assert_int_equal(save(world, ids[0], &told), NPU_OK);
    world_run_to_end(world);
    assert_true(told.n_tokens < 128);
    for (int i = 1; i < 3; i++)
        assert_int_equal(state_store_covered(world->store, ids[i]), 128);
    session_touch(scheduler_sessions(world->scheduler), find(world, ids[0]), ++world->now_us);
    assert_int_equal(save(world, ids[0], &told), NPU_OK);
    world_run_to_end(world);
    assert_int_equal(told.n_tokens, 128);
    assert_false(state_store_has(world->store, ids[1]));
    assert_int_equal(state_store_covered(world->store, ids[2]), 128);
    world_destroy(world);
    fake_fs_destroy(fs);
}

static void test_checkpoints_do_not_write_again_what_they_can_make_no_better(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create();
    struct world *world = small_world(fs, 9, size_of_one() * 3 / 2, 1);
    struct snapshots *snapshots = scheduler_snapshots(world->scheduler);
    uint64_t lost;
    ask(world, 1, 128, 1, "lost", &lost);
    fs->fail_on = fs->fail_writes_only = true;
    fs->fail_code = EIO;
    fs->fail_at = 1;
    ask(world, 3, 200, 40, NULL, NULL); /* evicts it */
    world_run_to_end(world);
    fs->fail_at = 0;
    assert_int_equal(find(world, lost)->state, SESSION_EVICTED);
    assert_false(state_store_has(world->store, lost));
    ask(world, 2, 250, 1, "long", NULL); /* there is room for a part of it */
    for (int i = 0; i < 2; i++) {
        snapshots_checkpoint(snapshots);
        world_run_to_end(world);
    }
    uint64_t failed = snapshots_count(snapshots).failed_saves;
    int created = fs->n_created;
    assert_int_equal(state_store_count(world->store).sessions, 1);
    for (int i = 0; i < 5; i++) {
        snapshots_checkpoint(snapshots);
        world_run_to_end(world);
    }
    assert_int_equal(snapshots_count(snapshots).failed_saves, failed);
    assert_int_equal(fs->n_created, created);
    world_destroy(world);
    fake_fs_destroy(fs);
}

static void test_a_block_of_two_saves_gets_the_room_of_the_newer(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create();
    struct world *world = small_world(fs, 30, size_of_one() * 3 / 2, 1);
    struct told told_old, told_new;
    uint64_t old, middle, new;
    ask(world, 1, 128, 1, "old", &old);
    ask(world, 2, 128, 1, "middle", &middle);
    ask(world, 1, 128, 1, "new", &new);
    assert_int_equal(save(world, middle, &told_new), NPU_OK);
    world_run_to_end(world);
    /* Both at once, the one that has no right to room first. */
    assert_int_equal(save(world, old, &told_old), NPU_OK);
    assert_int_equal(save(world, new, &told_new), NPU_OK);
    world_run_to_end(world);
    assert_int_equal(told_new.n_tokens, 128);
    assert_false(state_store_has(world->store, middle));
    world_destroy(world);
    fake_fs_destroy(fs);
}

static void test_a_device_that_gives_no_block_out_costs_the_save_only(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create();
    struct world *world = small_world(fs, 20, LARGE, 1);
    struct told told;
    uint64_t id;
    ask(world, 1, 100, 30, "a", &id);
    world->fake->fail_transfers = true;
    assert_int_equal(save(world, id, &told), NPU_OK);
    world_run_to_end(world);
    assert_int_equal(told.n_tokens, 0);
    world->fake->fail_transfers = false;
    assert_int_equal(save(world, id, &told), NPU_OK);
    world_run_to_end(world);
    assert_int_equal(told.n_tokens, 129);
    world = restart(world, fs, 20, LARGE);
    world->fake->fail_transfers = true;
    assert_int_equal(ask(world, 1, 100, 30, "a", NULL).n_cached, 0);
    world_destroy(world);
    fake_fs_destroy(fs);
}

/* --- export and import -------------------------------------------------------------------------------------------- */

static struct transfer_options transfer_of(struct world *world)
{
    return (struct transfer_options){.executor = &world->fake->base,
                                     .pool = scheduler_pool(world->scheduler),
                                     .sessions = scheduler_sessions(world->scheduler),
                                     .store = world->store,
                                     .identity = world_identity()};
}

static char *export_session(struct world *world, uint64_t id, size_t *ret_n)
{
    struct transfer_options options = transfer_of(world);
    struct session_export *transfer;
    struct npu_error error;
    assert_int_equal(session_export_create(&transfer, &options, find(world, id), &error), NPU_OK);
    char *file = NULL;
    *ret_n = 0;
    for (enum export_state at = EXPORT_WAITS; at != EXPORT_DONE;) {
        const void *piece;
        size_t n;
        at = session_export_next(transfer, &piece, &n);
        assert_int_not_equal(at, EXPORT_FAILED);
        if (at == EXPORT_WAITS) {
            state_store_run(world->store, 1);
            snapshots_work(scheduler_snapshots(world->scheduler), false);
        } else if (at == EXPORT_PIECE) {
            file = realloc(file, *ret_n + n);
            memcpy(file + *ret_n, piece, n);
            *ret_n += n;
        }
    }
    session_export_destroy(transfer);
    return file;
}

static enum npu_status import_session(struct world *world, const char *file, size_t n, struct session **ret_session)
{
    struct transfer_options options = transfer_of(world);
    struct session_import *transfer;
    struct npu_error error;
    *ret_session = NULL;
    enum npu_status status =
        session_import_create(&transfer, &options, file, n, NULL, WORLD_MAX_CONTEXT, world->now_us, &error);
    if (status != NPU_OK)
        return status;
    for (bool done = false; status == NPU_OK && !done;)
        status = session_import_work(transfer, 1, scheduler_spare_blocks(world->scheduler), &done, &error);
    *ret_session = session_import_end(transfer, status == NPU_OK, world->now_us);
    return status;
}

static void test_an_exported_session_goes_on_elsewhere_from_memory_and_from_disk(void **state)
{
    (void)state;
    for (int evicted = 0; evicted < 2; evicted++) {
        struct fake_fs *fs = fake_fs_create(), *other_fs = fake_fs_create();
        struct world *world = small_world(fs, 6, LARGE, 1), *other = small_world(other_fs, 20, LARGE, 1000);
        uint64_t id;
        ask(world, 1, 100, 30, "a", &id);
        if (evicted) {
            ask(world, 2, 150, 30, "b", NULL);
            world_run_to_end(world);
            assert_int_equal(find(world, id)->state, SESSION_EVICTED);
        }
        size_t n;
        char *file = export_session(world, id, &n);
        struct session *session;
        assert_int_equal(import_session(other, file, n, &session), NPU_OK);
        assert_int_equal(session->n_tokens, 129);
        assert_int_equal(session->n_resident, 129);
        assert_int_equal(ask(other, 1, 100, 30, "a", NULL).n_cached, 99);
        free(file);
        world_destroy(world);
        world_destroy(other);
        fake_fs_destroy(fs);
        fake_fs_destroy(other_fs);
    }
}

static void test_every_wrong_byte_of_an_import_is_refused_and_leaves_nothing(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create(), *other_fs = fake_fs_create();
    struct world *world = small_world(fs, 20, LARGE, 1), *other = small_world(other_fs, 20, LARGE, 1000);
    uint64_t id;
    ask(world, 1, 60, 10, "a", &id);
    size_t n;
    char *file = export_session(world, id, &n);
    struct session *session;
    for (size_t i = 0; i < n; i++) {
        file[i] ^= (char)(1 << i % 8);
        assert_int_equal(import_session(other, file, n, &session), NPU_ERROR_INPUT);
        file[i] ^= (char)(1 << i % 8);
        char *cut = malloc(i + 1); /* so that a sanitizer sees who reads behind the end */
        memcpy(cut, file, i);
        assert_int_equal(import_session(other, cut, i, &session), NPU_ERROR_INPUT);
        free(cut);
    }
    assert_null(session_next(scheduler_sessions(other->scheduler), NULL));
    assert_int_equal(scheduler_kv_counters(other->scheduler).used, 0);
    assert_int_equal(import_session(other, file, n, &session), NPU_OK);
    free(file);
    world_destroy(world);
    world_destroy(other);
    fake_fs_destroy(fs);
    fake_fs_destroy(other_fs);
}

/* The fake executor's answers hang on every bit of K/V, and each request's are checked: see scheduler_world. */
static void test_forged_kv_reaches_nobody_who_does_not_name_it(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create(), *other_fs = fake_fs_create();
    struct world *world = small_world(fs, 20, LARGE, 1), *other = small_world(other_fs, 20, LARGE, 1000);
    uint64_t id;
    ask(world, 1, 100, 30, "a", &id);
    size_t n;
    char *file = export_session(world, id, &n);
    world_forge(file, n);
    struct session *session;
    assert_int_equal(import_session(other, file, n, &session), NPU_OK);
    id = session->id;
    assert_int_equal(session->n_resident, 129);
    struct cache_report report = ask(other, 1, 100, 30, NULL, NULL);
    assert_int_equal(report.n_cached, 0);
    assert_int_equal(report.miss, CACHE_MISS_FIRST_USE);
    /* Both are saved, with the same tokens, and found again each for itself. */
    snapshots_checkpoint(scheduler_snapshots(other->scheduler));
    world_run_to_end(other);
    assert_true(state_store_has(other->store, id));
    other = restart(other, other_fs, 20, LARGE);
    assert_true(find(other, id)->origin == id);
    report = ask(other, 1, 100, 30, NULL, NULL);
    assert_int_equal(report.n_cached, 0); /* it had no name */
    assert_int_equal(report.n_restored, 0);
    assert_int_equal(ask(other, 1, 100, 30, "b", NULL).n_cached, 99);
    snapshots_checkpoint(scheduler_snapshots(other->scheduler));
    world_run_to_end(other);
    other = restart(other, other_fs, 20, LARGE);
    assert_int_equal(ask(other, 1, 100, 30, "b", NULL).n_restored, 99);
    /* The export of it is one like others, and an import again where it goes. */
    free(file);
    file = export_session(other, id, &n);
    assert_int_equal(import_session(world, file, n, &session), NPU_ERROR_INPUT); /* "a" was computed there */
    delete (world, session_by_key(scheduler_sessions(world->scheduler), "a")->id);
    assert_int_equal(import_session(world, file, n, &session), NPU_OK);
    assert_true(session->origin == session->id && session->n_resident == 129);
    assert_int_equal(ask(world, 1, 100, 30, NULL, NULL).n_cached, 0);
    free(file);
    world_destroy(world);
    world_destroy(other);
    fake_fs_destroy(fs);
    fake_fs_destroy(other_fs);
}

static void test_an_import_with_its_key_comes_back_from_disk(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create(), *other_fs = fake_fs_create();
    struct world *world = small_world(fs, 20, LARGE, 1), *other = small_world(other_fs, 20, LARGE, 1000);
    uint64_t id, again;
    ask(world, 1, 100, 30, "a", &id);
    size_t n;
    char *file = export_session(world, id, &n);
    struct session *session;
    assert_int_equal(import_session(other, file, n, &session), NPU_OK);
    id = session->id;
    snapshots_checkpoint(scheduler_snapshots(other->scheduler));
    world_run_to_end(other);
    other = restart(other, other_fs, 20, LARGE);
    struct cache_report report = ask(other, 1, 100, 30, "a", &again);
    assert_int_equal(again, id);
    assert_int_equal(report.n_restored, 99);
    assert_int_equal(report.source, CACHE_SOURCE_DISK);
    free(file);
    world_destroy(world);
    world_destroy(other);
    fake_fs_destroy(fs);
    fake_fs_destroy(other_fs);
}

static void test_an_import_may_name_any_time_and_takes_no_name_from_others(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create();
    struct world *world = small_world(fs, 20, LARGE, 100);
    static const int64_t times[] = {INT64_MAX, INT64_MIN, -1, 0, 50};
    int32_t tokens[3] = {1, 2, 3};
    struct transfer_options options = transfer_of(world);
    for (size_t i = 0; i < 2 * sizeof times / sizeof *times; i++) {
        struct state_manifest manifest = {.identity = world_identity(),
                                          .id = 1,
                                          .key = (char *)"again",
                                          .created_us = times[i / 2],
                                          .used_us = times[i / 2],
                                          .tokens = tokens,
                                          .n_tokens = 3};
        options.unix_offset_us = i % 2 == 0 ? 1000 : -1000;
        size_t n;
        struct session_import *transfer;
        struct npu_error error;
        char *head = state_manifest_encode(&manifest, &n), *file = malloc(n + STATE_END_BYTES);
        memcpy(file, head, n);
        state_end_encode(file + n, 0);
        assert_int_equal(session_import_create(&transfer, &options, file, n + STATE_END_BYTES, NULL, WORLD_MAX_CONTEXT,
                                               world->now_us, &error),
                         NPU_OK);
        const struct session *session = session_import_end(transfer, true, world->now_us);
        assert_true(session->created_us > 0 && session->created_us <= world->now_us);
        assert_true(session->origin == session->id); /* though nothing but tokens came */
        free(head);
        free(file);
    }
    world_destroy(world);
    fake_fs_destroy(fs);
}

static void test_an_import_with_a_key_that_is_not_text_is_refused(void **state)
{
    (void)state;
    struct fake_fs *fs = fake_fs_create();
    struct world *world = small_world(fs, 20, LARGE, 1);
    static const char *const keys[] = {"\xff\xfe", "a\xc3", "\xed\xa0\x80", "\xc0\x80"};
    int32_t tokens[3] = {1, 2, 3};
    struct session *session;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct state_manifest manifest = {
            .identity = world_identity(), .id = 1, .key = (char *)keys[i], .tokens = tokens, .n_tokens = 3};
        size_t n;
        char *head = state_manifest_encode(&manifest, &n), *file = malloc(n + STATE_END_BYTES);
        memcpy(file, head, n);
        state_end_encode(file + n, 0);
        assert_int_equal(import_session(world, file, n + STATE_END_BYTES, &session), NPU_ERROR_INPUT);
        free(head);
        free(file);
    }
    world_destroy(world);
    fake_fs_destroy(fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_evicted_session_with_a_name_comes_back_from_disk),
        cmocka_unit_test(test_only_named_sessions_and_second_turns_are_written),
        cmocka_unit_test(test_a_turn_writes_its_new_blocks_only),
        cmocka_unit_test(test_sessions_are_there_after_a_restart),
        cmocka_unit_test(test_deleting_while_saving_leaves_no_file_and_tells_the_waiter),
        cmocka_unit_test(test_an_evicted_session_without_a_copy_cannot_be_saved),
        cmocka_unit_test(test_a_full_disk_is_told_and_the_session_is_saved_later),
        cmocka_unit_test(test_older_sessions_make_room_and_newer_ones_do_not),
        cmocka_unit_test(test_checkpoints_do_not_write_again_what_they_can_make_no_better),
        cmocka_unit_test(test_a_block_of_two_saves_gets_the_room_of_the_newer),
        cmocka_unit_test(test_a_device_that_gives_no_block_out_costs_the_save_only),
        cmocka_unit_test(test_an_exported_session_goes_on_elsewhere_from_memory_and_from_disk),
        cmocka_unit_test(test_every_wrong_byte_of_an_import_is_refused_and_leaves_nothing),
        cmocka_unit_test(test_forged_kv_reaches_nobody_who_does_not_name_it),
        cmocka_unit_test(test_an_import_with_its_key_comes_back_from_disk),
        cmocka_unit_test(test_an_import_may_name_any_time_and_takes_no_name_from_others),
        cmocka_unit_test(test_an_import_with_a_key_that_is_not_text_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
