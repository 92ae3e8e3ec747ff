/* Random operations on the scheduler with its pool and sessions, millions of steps: no token is ever wrong, no block is lost
 * or counted wrongly, nobody starves. Once without a state folder, and once with one whose disk fails, fills up, is damaged,
 * and from which the daemon is killed. */
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

static uint64_t random_state;

static uint32_t random_below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % n);
}

/* Some alone, others of requests that may have more sequences than there are places. */
static void choose_request(struct sequence *sequence)
{
    static uint64_t n_requests;
    static int n_left, size, priority;
    if (n_left == 0) {
        size = n_left = 1 + (int)random_below(random_below(2) == 0 ? 1 : 16);
        priority = (int)random_below(3);
        n_requests++;
    }
    n_left--;
    sequence->request = size > 1 ? n_requests : 0;
    sequence->request_size = size;
    sequence->priority = priority;
}

static struct job *random_job(void)
{
    static const char *const keys[] = {NULL, NULL, NULL, "a", "b", "guest"};
    int32_t prompt[200];
    int32_t n = 1 + (int32_t)random_below(random_below(4) == 0 ? 180 : 50);
    world_make_prompt(prompt, n, (int32_t)random_below(3));
    if (random_below(2) == 0)
        for (int32_t i = (int32_t)random_below((uint32_t)n); i < n; i++)
            prompt[i] = (int32_t)random_below(WORLD_N_VOCAB);
    struct job *job = world_new_job(prompt, n, 1 + (int32_t)random_below(200));
    job->sequence.key = keys[random_below(6)];
    choose_request(&job->sequence);
    if (random_below(4) == 0)
        job->sequence.returns = ROW_RETURN_LOGITS;
    if (random_below(10) == 0)
        job->sequence.prompt_returns = ROW_RETURN_LOGITS;
    job->sequence.transient = random_below(12) == 0;
    return job;
}

static struct session *random_session(struct world *world)
{
    struct session_table *table = scheduler_sessions(world->scheduler);
    struct session *session = session_next(table, NULL);
    for (uint32_t i = random_below(20); session != NULL && i > 0; i--)
        session = session_next(table, session);
    return session;
}

/* The id of a session that was deleted, or 0. */
static uint64_t random_session_verb(struct world *world)
{
    struct session_table *table = scheduler_sessions(world->scheduler);
    struct npu_error error;
    struct session *session = random_session(world), *fork;
    if (session == NULL)
        return 0;
    uint64_t id = session->id;
    int32_t position = 1 + (int32_t)random_below((uint32_t)session->n_tokens);
    switch (random_below(6)) {
    case 0:
        (void)session_fork(table, session, position, NULL, world->now_us, &fork, &error);
        return 0;
    case 1:
        (void)session_truncate(table, session, position, &error);
        return 0;
    case 2:
        if (random_below(4) == 0)
            (void)session_pin(table, session, &error);
        return 0;
    case 3:
        session_unpin(table, session);
        return 0;
    case 4:
        session_touch(table, session, world->now_us);
        return 0;
    default:
        return session_delete(table, session, &error) == NPU_OK ? id : 0;
    }
}

/* What nobody may read any more becomes garbage. */
static void poison_free_blocks(struct world *world)
{
    for (int32_t block = 0; block < world->fake->base.n_blocks; block++)
        if (kv_pool_is_free(world->scheduler->pool, block))
            fake_poison(world->fake, block);
}

enum {
    MAX_JOBS = 24
};

/* No running, unpaused sequence goes without rows for long: at most one that is paused may be computing what it awaits. */
static void watch_for_starvation(struct world *world, struct job *const *jobs, bool stepped)
{
    for (int i = 0; i < MAX_JOBS && stepped; i++) {
        struct job *job = jobs[i];
        if (job == NULL || job->ended)
            continue;
        bool runs = job->sequence.state == SEQUENCE_RUNNING && !job->sequence.paused && job->sequence.restore == NULL;
        uint64_t steps = scheduler_count(world->scheduler)->steps;
        bool served = runs && job->sequence.served_step == steps;
        job->waited_steps = runs && !served ? job->waited_steps + 1 : 0;
        assert_true(job->waited_steps < 100);
    }
}

static void random_round(struct world *world, struct job **jobs)
{
    struct job **slot = &jobs[random_below(MAX_JOBS)];
    uint32_t what = random_below(100);
    if (*slot == NULL) {
        if (what < 60) {
            *slot = random_job();
            world_submit(world, *slot);
        }
    } else if ((*slot)->ended) {
        free(*slot);
        *slot = NULL;
    } else if (what < 1) {
        scheduler_cancel(world->scheduler, &(*slot)->sequence);
        free(*slot);
        *slot = NULL;
    } else if (what < 10) {
        scheduler_set_paused(world->scheduler, &(*slot)->sequence, !(*slot)->sequence.paused);
    } else if (what < 14) {
        (void)random_session_verb(world);
    } else if (what < 15) {
        world->fake->fail_steps = (int)random_below(3);
    } else if (what < 16) {
        world->fake->fail_copies = !world->fake->fail_copies;
    } else if (what < 17) {
        world->fake->row_us = 100 + random_below(8000);
    } else if (what < 20) {
        poison_free_blocks(world);
    }
}

static void run_random(uint64_t seed, struct fake_options fake, struct scheduler_options options, int rounds)
{
    struct world *world = world_create(fake, options);
    struct job *jobs[MAX_JOBS] = {NULL};
    random_state = seed;
    for (int round = 0; round < rounds; round++) {
        random_round(world, jobs);
        bool stepped = random_below(2) == 0 && scheduler_step(world->scheduler);
        if (round % 64 == 0)
            assert_true(scheduler_is_consistent(world->scheduler));
        watch_for_starvation(world, jobs, stepped);
    }
    for (int i = 0; i < MAX_JOBS; i++)
        if (jobs[i] != NULL)
            scheduler_set_paused(world->scheduler, &jobs[i]->sequence, false);
    world_run_to_end(world);
    for (int i = 0; i < MAX_JOBS; i++) {
        assert_true(jobs[i] == NULL || jobs[i]->ended);
        free(jobs[i]);
    }
    struct session_table *table = scheduler_sessions(world->scheduler);
    struct npu_error error;
    for (struct session *session; (session = session_next(table, NULL)) != NULL;)
        assert_int_equal(session_delete(table, session, &error), NPU_OK);
    assert_int_equal(scheduler_kv_counters(world->scheduler).used, 0);
    world_destroy(world);
}

static void test_random_operations_never_give_a_wrong_token_nor_lose_a_block(void **state)
{
    (void)state;
    run_random(1, world_fake, world_options, 400000);
    /* A pool that is far too small, tight limits. */
    struct fake_options fake = world_fake;
    fake.n_blocks = 9;
    fake.max_rows = 16;
    fake.max_tables = 3;
    fake.max_returning = 2;
    struct scheduler_options options = world_options;
    options.parallel = 6;
    options.max_sessions = 8;
    run_random(2, fake, options, 800000);
    fake.n_blocks = 20;
    fake.max_rows = 256;
    fake.max_tables = 16;
    fake.max_returning = 16;
    options.parallel = 12;
    run_random(3, fake, options, 800000);
}

/* --- with a disk -------------------------------------------------------------------------------------------------- */

enum {
    MAX_WAITERS = 16,
    MAX_KNOWN = 256,
};

struct disk {
    struct fake_options fake;
    struct scheduler_options options;
    uint64_t max_bytes;
    struct fake_fs *fs;
    struct world *world;
    struct job *jobs[MAX_JOBS];
    bool trouble; /* since the start of this world a call has failed or a file was changed */
    uint64_t deleted[MAX_KNOWN]; /* in this world */
    int n_deleted;
    bool waits[MAX_WAITERS]; /* for a save */
    char *file; /* the last export, or NULL */
    bool forged; /* its K/V is wrong: nobody may get to see it */
    size_t file_bytes;
    int n_restored, n_restarts, n_imports, n_forged; /* so that the test knows that it tests something */
};

static void on_saved(void *context, uint64_t id, int32_t n_tokens, const char *reason)
{
    (void)id, (void)n_tokens, (void)reason;
    bool *waits = context;
    assert_true(*waits); /* told once */
    *waits = false;
}

static void random_save(struct disk *disk)
{
    struct session *session = random_session(disk->world);
    bool *waits = &disk->waits[random_below(MAX_WAITERS)];
    struct npu_error error;
    if (session == NULL || *waits)
        return;
    *waits = true;
    if (snapshots_save(scheduler_snapshots(disk->world->scheduler), session, on_saved, waits, &error) != NPU_OK)
        *waits = false;
}

static void random_failure(struct disk *disk)
{
    struct fake_fs *fs = disk->fs;
    fs->fail_at = random_below(2) == 0 ? fs->n_calls + 1 + (int)random_below(6) : 0;
    fs->fail_on = random_below(4) == 0;
    fs->fail_code = random_below(2) == 0 ? ENOSPC : EIO;
    fs->fail_writes_only = random_below(2) == 0;
    fs->short_reads = fs->short_writes = random_below(2) == 0;
    disk->trouble = disk->trouble || fs->fail_at > 0;
}

static void random_damage(struct disk *disk)
{
    const char *suffix = random_below(4) == 0 ? ".session" : ".block";
    int n = fake_fs_count(disk->fs, suffix);
    if (n == 0)
        return;
    const char *name = fake_fs_name(disk->fs, suffix, (int)random_below((uint32_t)n));
    size_t n_bytes;
    unsigned char *bytes = fake_fs_bytes(disk->fs, name, &n_bytes);
    disk->trouble = true;
    switch (random_below(3)) {
    case 0:
        if (n_bytes > 0)
            bytes[random_below((uint32_t)n_bytes)] ^= (unsigned char)(1 << random_below(8));
        break;
    case 1:
        fake_fs_truncate(disk->fs, name, random_below((uint32_t)n_bytes + 1));
        break;
    default:
        fake_fs_remove(disk->fs, name);
        break;
    }
}

static struct transfer_options transfer_of(const struct disk *disk)
{
    return (struct transfer_options){.executor = &disk->world->fake->base,
                                     .pool = scheduler_pool(disk->world->scheduler),
                                     .sessions = scheduler_sessions(disk->world->scheduler),
                                     .store = disk->world->store,
                                     .identity = world_identity()};
}

static void drop_file(struct disk *disk)
{
    free(disk->file);
    disk->file = NULL;
    disk->file_bytes = 0;
    disk->forged = false;
}

/* While the export is read the world moves on. */
static void random_export(struct disk *disk)
{
    struct transfer_options options = transfer_of(disk);
    const struct session *session = random_session(disk->world);
    struct session_export *transfer;
    struct npu_error error;
    if (session == NULL)
        return;
    assert_int_equal(session_export_create(&transfer, &options, session, &error), NPU_OK);
    drop_file(disk);
    disk->forged = session->origin != KV_ORIGIN_HERE; /* it may be: nothing says what that import was */
    const void *piece;
    size_t n;
    enum export_state at;
    while ((at = session_export_next(transfer, &piece, &n)) == EXPORT_PIECE || at == EXPORT_WAITS) {
        if (at == EXPORT_PIECE) {
            disk->file = realloc(disk->file, disk->file_bytes + n);
            memcpy(disk->file + disk->file_bytes, piece, n);
            disk->file_bytes += n;
        }
        if (at == EXPORT_WAITS || random_below(2) == 0) {
            state_store_run(disk->world->store, 1);
            scheduler_step(disk->world->scheduler);
        }
    }
    assert_true(at == EXPORT_DONE || disk->world->fake->fail_transfers);
    if (at == EXPORT_FAILED)
        drop_file(disk);
    session_export_destroy(transfer);
}

static void random_import(struct disk *disk)
{
    struct transfer_options options = transfer_of(disk);
    struct world *world = disk->world;
    struct session_import *transfer;
    struct npu_error error;
    if (disk->file == NULL)
        return;
    bool foreign = random_below(8) == 0, damaged = random_below(8) == 0;
    if (foreign)
        options.identity.numerics++;
    if (!disk->forged && random_below(2) == 0) {
        world_forge(disk->file, disk->file_bytes);
        disk->forged = true;
    }
    static const char *const keys[] = {NULL, "b", "guest"};
    const char *key = disk->forged ? "forged" : keys[random_below(3)]; /* no request says "forged" */
    if (damaged)
        disk->file[random_below((uint32_t)disk->file_bytes)] ^= 16;
    enum npu_status status = session_import_create(&transfer, &options, disk->file, disk->file_bytes, key,
                                                   WORLD_MAX_CONTEXT, world->now_us, &error);
    if (status == NPU_OK) {
        for (bool done = false; status == NPU_OK && !done;) {
            status = session_import_work(transfer, 1, scheduler_spare_blocks(world->scheduler), &done, &error);
            state_store_run(world->store, 1);
            scheduler_step(world->scheduler);
        }
        bool keep = status == NPU_OK && random_below(8) > 0;
        assert_true((session_import_end(transfer, keep, world->now_us) != NULL) == keep);
        disk->n_imports += keep;
        disk->n_forged += keep && disk->forged;
    }
    bool taken = status != NPU_OK && strstr(error.message, "another key") != NULL;
    assert_true(status == NPU_OK || ((damaged || taken) && status == NPU_ERROR_INPUT));
    if (damaged)
        drop_file(disk);
}

struct known {
    uint64_t id;
    int32_t covered;
};

/* What the folder has of the sessions of this world. How many. */
static int note_known(struct disk *disk, struct known *known)
{
    struct session_table *table = scheduler_sessions(disk->world->scheduler);
    int n = 0;
    for (struct session *s = session_next(table, NULL); s != NULL && n < MAX_KNOWN; s = session_next(table, s))
        if (state_store_has(disk->world->store, s->id))
            known[n++] = (struct known){s->id, state_store_covered(disk->world->store, s->id)};
    return n;
}

static void end_world(struct disk *disk)
{
    for (int i = 0; i < MAX_JOBS; i++) {
        if (disk->jobs[i] != NULL && !disk->jobs[i]->ended)
            scheduler_cancel(disk->world->scheduler, &disk->jobs[i]->sequence);
        free(disk->jobs[i]);
        disk->jobs[i] = NULL;
    }
    disk->n_restored += (int)snapshots_count(scheduler_snapshots(disk->world->scheduler)).restores;
    world_destroy(disk->world);
    for (int i = 0; i < MAX_WAITERS; i++)
        assert_false(disk->waits[i]);
}

static void begin_world(struct disk *disk, uint64_t now_us)
{
    disk->world = world_create_on(disk->fake, disk->options, disk->fs, disk->max_bytes, now_us);
    disk->trouble = false;
    disk->n_deleted = 0;
}

/* The process is killed, or the power goes, at any moment; what was safe before is there afterwards. */
static void restart(struct disk *disk)
{
    struct known known[MAX_KNOWN];
    bool rests = random_below(2) == 0, power = random_below(2) == 0;
    uint64_t now_us = disk->world->now_us + 1;
    while (rests && state_store_run(disk->world->store, 1) > 0) {
    }
    int n_known = note_known(disk, known), n_deleted = disk->n_deleted;
    bool busy = state_store_is_busy(disk->world->store), trouble = disk->trouble;
    disk->fs->fail_at = 1;
    disk->fs->fail_on = true;
    disk->fs->fail_writes_only = false;
    end_world(disk);
    if (power)
        fake_fs_lose_power(disk->fs);
    else
        fake_fs_kill(disk->fs);
    disk->fs->fail_at = 0;
    disk->n_restarts++;
    begin_world(disk, now_us);
    assert_int_equal(fake_fs_count(disk->fs, ".tmp"), 0);
    for (int i = 0; i < n_known && !trouble; i++) {
        assert_true(state_store_has(disk->world->store, known[i].id));
        assert_non_null(session_by_id(scheduler_sessions(disk->world->scheduler), known[i].id));
        if (!busy)
            assert_int_equal(state_store_covered(disk->world->store, known[i].id), known[i].covered);
    }
    for (int i = 0; i < n_deleted && rests && !trouble; i++)
        assert_false(state_store_has(disk->world->store, disk->deleted[i]));
}

static void random_disk_round(struct disk *disk)
{
    struct world *world = disk->world;
    struct job **slot = &disk->jobs[random_below(MAX_JOBS)];
    bool alive = *slot != NULL && !(*slot)->ended;
    uint32_t what = random_below(200);
    if (what < 10) {
        random_save(disk);
    } else if (what < 14) {
        snapshots_checkpoint(scheduler_snapshots(world->scheduler));
    } else if (what < 15) {
        if (random_below(4) == 0)
            random_failure(disk);
    } else if (what < 16) {
        if (random_below(20) == 0)
            random_damage(disk);
    } else if (what < 17) {
        world->fake->fail_transfers = random_below(4) == 0;
    } else if (what < 20) {
        random_export(disk);
    } else if (what < 23) {
        random_import(disk);
    } else if (what < 30) {
        uint64_t id = random_session_verb(world);
        if (id != 0 && disk->n_deleted < MAX_KNOWN)
            disk->deleted[disk->n_deleted++] = id;
    } else if (what < 31) {
        if (random_below(10) == 0)
            restart(disk);
    } else if (what < 32 && alive) {
        scheduler_cancel(world->scheduler, &(*slot)->sequence);
        free(*slot);
        *slot = NULL;
    } else if (what < 37 && alive) {
        scheduler_set_paused(world->scheduler, &(*slot)->sequence, !(*slot)->sequence.paused);
    } else if (what < 40) {
        poison_free_blocks(world);
    } else if (*slot == NULL && what < 120) {
        *slot = random_job();
        world_submit(world, *slot);
    } else if (*slot != NULL && !alive) {
        free(*slot);
        *slot = NULL;
    }
}

static void delete_all(struct disk *disk)
{
    struct session_table *table = scheduler_sessions(disk->world->scheduler);
    struct npu_error error;
    for (struct session *session; (session = session_next(table, NULL)) != NULL;)
        assert_int_equal(session_delete(table, session, &error), NPU_OK);
    world_run_to_end(disk->world);
    assert_int_equal(scheduler_kv_counters(disk->world->scheduler).used, 0);
}

static void finish(struct disk *disk)
{
    disk->fs->fail_at = 0;
    for (int i = 0; i < MAX_JOBS; i++)
        if (disk->jobs[i] != NULL)
            scheduler_set_paused(disk->world->scheduler, &disk->jobs[i]->sequence, false);
    world_run_to_end(disk->world);
    for (int i = 0; i < MAX_JOBS; i++)
        assert_true(disk->jobs[i] == NULL || disk->jobs[i]->ended);
    delete_all(disk);
    uint64_t now_us = disk->world->now_us;
    end_world(disk);
    begin_world(disk, now_us + 1); /* with those whose files could not be removed when they were deleted */
    delete_all(disk);
    assert_int_equal(fake_fs_count(disk->fs, ".block"), 0);
    assert_int_equal(fake_fs_count(disk->fs, ".tmp"), 0);
    end_world(disk);
    drop_file(disk);
    fake_fs_destroy(disk->fs);
}

static void run_random_on_disk(uint64_t seed, struct fake_options fake, struct scheduler_options options,
                               uint64_t max_bytes, int rounds)
{
    struct disk disk = {.fake = fake, .options = options, .max_bytes = max_bytes, .fs = fake_fs_create()};
    random_state = seed;
    begin_world(&disk, 1);
    for (int round = 0; round < rounds; round++) {
        random_disk_round(&disk);
        if (random_below(2) == 0)
            state_store_run(disk.world->store, 1 + (int)random_below(3));
        bool stepped = random_below(2) == 0 && scheduler_step(disk.world->scheduler);
        if (round % 64 == 0)
            assert_true(scheduler_is_consistent(disk.world->scheduler));
        watch_for_starvation(disk.world, disk.jobs, stepped);
    }
    print_message("%d restores, %d restarts, %d imports, %d of them forged\n", disk.n_restored, disk.n_restarts,
                  disk.n_imports, disk.n_forged);
    assert_true(disk.n_restored > rounds / 2000 && disk.n_restarts > rounds / 4000 && disk.n_imports > rounds / 500 &&
                disk.n_forged > rounds / 1000);
    finish(&disk);
}

static void test_random_operations_with_a_disk_lose_nothing_that_was_safe(void **state)
{
    (void)state;
    struct fake_options fake = world_fake;
    fake.n_blocks = 20;
    run_random_on_disk(1, fake, world_options, 1 << 20, 100000);
    fake.n_blocks = 9;
    fake.max_rows = 16;
    fake.max_tables = 3;
    fake.max_returning = 2;
    struct scheduler_options options = world_options;
    options.parallel = 6;
    options.max_sessions = 8;
    run_random_on_disk(2, fake, options, 8000, 100000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_operations_never_give_a_wrong_token_nor_lose_a_block),
        cmocka_unit_test(test_random_operations_with_a_disk_lose_nothing_that_was_safe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
