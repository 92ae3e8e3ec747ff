/* Every allocation of the scheduler, the sessions, the state folder and the engine fails once, one a run: nothing crashes,
 * nothing leaks, no block is lost, and what is answered is right. The same for reading a model's file. Linked with --wrap
 * for the allocation functions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "daemon/engine.h"
#include "daemon/scheduler.h"
#include "daemon/snapshot.h"
#include "daemon/snapshot_transfer.h"
#include "daemon/tokenizer.h"
#include "npu/gguf.h"
#include "npu/model.h"
#include "tests/unit/fake_executor.h"
#include "tests/unit/fake_fs.h"

/* --- the allocation that fails ------------------------------------------------------------------------------------ */

static atomic_int countdown; /* the allocation that takes it from 1 to 0 fails */

static bool fails(void)
{
    return atomic_load(&countdown) > 0 && atomic_fetch_sub(&countdown, 1) == 1;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails() ? NULL : __real_realloc(old, size);
}

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : __real_strdup(text);
}

/* Runs the scenario with its first, second, ... allocation failing, until it has no more. */
static void fail_each_allocation(void (*scenario)(void))
{
    bool failed = true;
    for (int n = 1; failed; n++) {
        assert_true(n < 5000);
        atomic_store(&countdown, n);
        scenario();
        failed = atomic_load(&countdown) == 0;
        atomic_store(&countdown, 0);
    }
}

/* --- a tokenizer: one byte a token -------------------------------------------------------------------------------- */

enum {
    N_VOCAB = 48,
};

enum npu_status tokenizer_create(struct tokenizer **ret_tokenizer, const struct gguf_file *file,
                                 struct npu_error *error)
{
    (void)ret_tokenizer;
    (void)file;
    return npu_error_set(error, NPU_ERROR_UNSUPPORTED, "a fake needs no file");
}

void tokenizer_destroy(struct tokenizer *tokenizer)
{
    (void)tokenizer;
}

enum npu_status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length, bool add_special,
                                 bool parse_special, int32_t **ret_tokens, int32_t *ret_n, struct npu_error *error)
{
    (void)tokenizer, (void)text, (void)length, (void)add_special, (void)parse_special, (void)ret_tokens, (void)ret_n;
    return npu_error_set(error, NPU_ERROR_UNSUPPORTED, "a fake does not encode");
}

const char *tokenizer_piece(const struct tokenizer *tokenizer, int32_t token, size_t *length)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQ";
    (void)tokenizer;
    *length = 1;
    return &letters[token];
}

bool tokenizer_is_control(const struct tokenizer *tokenizer, int32_t token)
{
    (void)tokenizer;
    return token == 1;
}

bool tokenizer_is_end_of_generation(const struct tokenizer *tokenizer, int32_t token)
{
    (void)tokenizer;
    return token == 1;
}

int32_t tokenizer_n_vocab(const struct tokenizer *tokenizer)
{
    (void)tokenizer;
    return N_VOCAB;
}

int32_t tokenizer_bos(const struct tokenizer *tokenizer)
{
    (void)tokenizer;
    return -1;
}

int32_t tokenizer_eos(const struct tokenizer *tokenizer)
{
    (void)tokenizer;
    return 1;
}

/* --- the scheduler ------------------------------------------------------------------------------------------------ */

struct job {
    struct sequence sequence; /* first */
    int32_t tokens[200];
    int32_t n_tokens, n_end;
    bool ended;
};

static uint64_t now_us(void *context)
{
    return ++*(uint64_t *)context;
}

static void on_start(void *context, struct sequence *sequence)
{
    (void)context;
    (void)sequence;
}

static int32_t on_row(void *context, struct sequence *sequence, int32_t position, const struct row_result *result)
{
    (void)context;
    struct job *job = (struct job *)sequence;
    assert_int_equal(position, job->n_tokens - 1);
    assert_int_equal(result->best.token, fake_best(job->tokens, job->n_tokens, N_VOCAB));
    job->tokens[job->n_tokens++] = result->best.token;
    job->ended = job->n_tokens == job->n_end;
    return job->ended ? SEQUENCE_END : result->best.token;
}

static void on_failed(void *context, struct sequence *sequence, const struct npu_error *error)
{
    (void)context;
    struct job *job = (struct job *)sequence;
    assert_false(job->ended);
    assert_int_equal(error->status, NPU_ERROR_MEMORY);
    job->ended = true;
}

static void fill(int32_t *tokens, int32_t n, int32_t seed)
{
    for (int32_t i = 0; i < n; i++)
        tokens[i] = 2 + (i * 5 + seed * (i > 40)) % (N_VOCAB - 2); /* a common beginning */
}

/* One turn of the scheduler and of the disk, if there is one. False: all is done. */
static bool turn(struct scheduler *scheduler, struct state_store *store)
{
    bool wrote = store != NULL && state_store_run(store, 1) > 0;
    return scheduler_step(scheduler) || wrote || (store != NULL && state_store_is_busy(store));
}

static void run_scheduler(struct scheduler *scheduler, struct state_store *store)
{
    static const char *const keys[] = {"a", NULL, "a", "b", "c"};
    struct job jobs[5];
    struct npu_error error;
    for (int i = 0; i < 5; i++) {
        memset(&jobs[i], 0, sizeof jobs[i]);
        fill(jobs[i].tokens, 70, i);
        jobs[i].n_tokens = 70;
        jobs[i].n_end = 70 + 40;
        jobs[i].sequence.prompt = jobs[i].tokens;
        jobs[i].sequence.n_prompt = 70;
        jobs[i].sequence.key = keys[i];
        jobs[i].sequence.returns = ROW_RETURN_BEST;
        assert_int_equal(scheduler_submit(scheduler, &jobs[i].sequence, &error), NPU_OK);
    }
    while (turn(scheduler, store))
        assert_true(scheduler_is_consistent(scheduler));
    for (int i = 0; i < 5; i++)
        assert_true(jobs[i].ended);
}

static void delete_sessions(struct scheduler *scheduler, struct state_store *store)
{
    struct npu_error error;
    struct session_table *table = scheduler_sessions(scheduler);
    struct session *session = session_next(table, NULL), *fork;
    if (session != NULL)
        (void)session_fork(table, session, session->n_tokens - 1, "fork", 1000000, &fork, &error);
    while ((session = session_next(table, NULL)) != NULL)
        assert_int_equal(session_delete(table, session, &error), NPU_OK);
    while (turn(scheduler, store)) {
    }
    assert_true(scheduler_is_consistent(scheduler));
    assert_int_equal(scheduler_kv_counters(scheduler).used, 0);
}

static struct fake_executor *new_fake(void)
{
    int armed = atomic_exchange(&countdown, 0);
    struct fake_executor *fake = fake_create((struct fake_options){
        .n_blocks = 9, .n_vocab = N_VOCAB, .max_context = 200, .max_rows = 16, .max_tables = 4, .max_returning = 4});
    atomic_store(&countdown, armed);
    return fake;
}

static void scheduler_scenario(void)
{
    struct fake_executor *fake = new_fake();
    uint64_t clock_us = 0;
    struct scheduler_options options = {.parallel = 3, .step_target_ms = 50, .max_sessions = 4};
    struct scheduler_callbacks callbacks = {&clock_us, now_us, on_start, on_row, on_failed, NULL};
    struct scheduler *scheduler;
    struct npu_error error;
    enum npu_status status = scheduler_create(&scheduler, &options, &fake->base, &callbacks, &error);
    if (status == NPU_OK) {
        run_scheduler(scheduler, NULL);
        delete_sessions(scheduler, NULL);
        scheduler_destroy(scheduler);
    } else {
        assert_int_equal(status, NPU_ERROR_MEMORY);
    }
    executor_destroy(&fake->base);
}

static void the_scheduler_survives_every_failed_allocation(void **state)
{
    (void)state;
    fail_each_allocation(scheduler_scenario);
}

/* --- the state folder --------------------------------------------------------------------------------------------- */

/* The file system's own allocations never fail: what it returns stands for the kernel. */
struct sheltered_fs {
    struct state_fs fs;
    struct fake_fs *fake;
};

static int shelter(void)
{
    return atomic_exchange(&countdown, 0);
}

static void leave_shelter(int armed)
{
    atomic_store(&countdown, armed);
}

#define SHELTERED(type, name, parameters, ...)                                                                         \
    static type sheltered_##name parameters                                                                            \
    {                                                                                                                  \
        struct sheltered_fs *shelter_of = context;                                                                     \
        const struct state_fs *fs = &shelter_of->fake->fs;                                                             \
        int armed = shelter();                                                                                         \
        type answer = fs->name(fs->context, __VA_ARGS__);                                                              \
        leave_shelter(armed);                                                                                          \
        return answer;                                                                                                 \
    }

SHELTERED(int, make_dir, (void *context, const char *path), path)
SHELTERED(int, lock, (void *context, const char *path), path)
SHELTERED(int, open, (void *context, const char *path, uint64_t *ret_size), path, ret_size)
SHELTERED(int, create, (void *context, const char *path), path)
SHELTERED(ssize_t, read, (void *context, int file, void *bytes, size_t n), file, bytes, n)
SHELTERED(ssize_t, write, (void *context, int file, const void *bytes, size_t n), file, bytes, n)
SHELTERED(int, sync, (void *context, int file), file)
SHELTERED(int, close, (void *context, int file), file)
SHELTERED(int, rename, (void *context, const char *from, const char *to), from, to)
SHELTERED(int, unlink, (void *context, const char *path), path)
SHELTERED(int, sync_dir, (void *context, const char *path), path)

/* What is called for each file is the store's, and allocates. */
static int sheltered_list(void *context, const char *path, int (*on_file)(void *argument, const char *name, uint64_t n),
                          void *argument)
{
    const struct state_fs *fs = &((struct sheltered_fs *)context)->fake->fs;
    return fs->list(fs->context, path, on_file, argument);
}

static struct sheltered_fs new_sheltered_fs(struct sheltered_fs *self)
{
    int armed = shelter();
    struct sheltered_fs fs = {.fs = {.context = self,
                                     .make_dir = sheltered_make_dir,
                                     .lock = sheltered_lock,
                                     .open = sheltered_open,
                                     .create = sheltered_create,
                                     .read = sheltered_read,
                                     .write = sheltered_write,
                                     .sync = sheltered_sync,
                                     .close = sheltered_close,
                                     .rename = sheltered_rename,
                                     .unlink = sheltered_unlink,
                                     .sync_dir = sheltered_sync_dir,
                                     .list = sheltered_list},
                              .fake = fake_fs_create()};
    leave_shelter(armed);
    return fs;
}

static void carry_over(struct scheduler *scheduler, struct fake_executor *fake, struct state_store *store)
{
    struct session *session = session_next(scheduler_sessions(scheduler), NULL);
    struct transfer_options options = {.executor = &fake->base,
                                       .pool = scheduler_pool(scheduler),
                                       .sessions = scheduler_sessions(scheduler),
                                       .store = store,
                                       .identity = *state_store_identity(store)};
    struct session_export *out;
    struct session_import *in;
    struct npu_error error;
    static char file[1 << 16];
    size_t length = 0;
    if (session == NULL || session_export_create(&out, &options, session, &error) != NPU_OK)
        return;
    enum export_state state;
    const void *piece;
    size_t n;
    while ((state = session_export_next(out, &piece, &n)) == EXPORT_PIECE || state == EXPORT_WAITS) {
        if (state == EXPORT_WAITS) {
            (void)turn(scheduler, store);
            continue;
        }
        assert_true(length + n <= sizeof file);
        memcpy(file + length, piece, n);
        length += n;
    }
    session_export_destroy(out);
    if (state != EXPORT_DONE)
        return;
    enum npu_status status = session_import_create(&in, &options, file, length, "imported", 200, 1000000, &error);
    assert_true(status == NPU_OK || status == NPU_ERROR_MEMORY);
    if (status != NPU_OK)
        return;
    for (bool done = false; !done;)
        assert_int_equal(session_import_work(in, 1, scheduler_spare_blocks(scheduler), &done, &error), NPU_OK);
    assert_non_null(session_import_end(in, true, 1000000));
}

/* One life of the daemon; last: everything is deleted at its end. */
static void live_on_disk(struct sheltered_fs *fs, bool last)
{
    struct fake_executor *fake = new_fake();
    struct state_store_options on_disk = {.dir = "/state",
                                          .max_bytes = 1 << 20,
                                          .identity = {.model = 1,
                                                       .numerics = 1,
                                                       .block_bytes = fake->base.block_bytes,
                                                       .block_tokens = KV_BLOCK_TOKENS,
                                                       .n_vocab = N_VOCAB},
                                          .fs = &fs->fs};
    uint64_t clock_us = last ? 1000000 : 0;
    struct scheduler_options options = {
        .parallel = 3, .step_target_ms = 50, .max_sessions = 4, .session_id_seed = clock_us};
    struct scheduler_callbacks callbacks = {&clock_us, now_us, on_start, on_row, on_failed, NULL};
    struct scheduler *scheduler;
    struct npu_error error;
    enum npu_status status = state_store_open(&options.store, &on_disk, &error);
    if (status == NPU_OK) {
        status = scheduler_create(&scheduler, &options, &fake->base, &callbacks, &error);
        if (status == NPU_OK) {
            run_scheduler(scheduler, options.store);
            carry_over(scheduler, fake, options.store);
            snapshots_checkpoint(scheduler_snapshots(scheduler));
            while (turn(scheduler, options.store)) {
            }
            if (last)
                delete_sessions(scheduler, options.store);
            scheduler_destroy(scheduler);
        }
        state_store_close(options.store);
    }
    assert_true(status == NPU_OK || status == NPU_ERROR_MEMORY);
    executor_destroy(&fake->base);
}

static void disk_scenario(void)
{
    struct sheltered_fs fs = new_sheltered_fs(&fs);
    live_on_disk(&fs, false);
    live_on_disk(&fs, true);
    fake_fs_destroy(fs.fake);
}

static void the_state_folder_survives_every_failed_allocation(void **state)
{
    (void)state;
    fail_each_allocation(disk_scenario);
}

/* --- the engine --------------------------------------------------------------------------------------------------- */

struct answer {
    struct generation *generation;
    size_t text_length;
    int n_tokens;
    bool finished;
    enum finish_reason reason;
};

static void on_event(struct generation_event *event, void *context)
{
    struct answer *answer = context;
    assert_false(answer->finished);
    answer->text_length += event->text_length;
    answer->n_tokens += event->n_tokens;
    answer->finished = event->finished;
    answer->reason = event->reason;
    if (event->finished && event->reason == FINISH_ERROR)
        assert_int_equal(event->failure, FAILURE_MEMORY);
    generation_event_destroy(event);
}

static bool fill_generation(struct generation *generation, int i)
{
    generation->prompt = malloc(70 * sizeof(int32_t));
    generation->stops = calloc(1, sizeof *generation->stops);
    generation->stop_lengths = calloc(1, sizeof *generation->stop_lengths);
    if (generation->prompt == NULL || generation->stops == NULL || generation->stop_lengths == NULL)
        return false;
    fill(generation->prompt, 70, i);
    generation->n_prompt = 70;
    generation->max_tokens = 30;
    generation->ignore_eos = true;
    generation->sampling.temperature = i == 1 ? 0 : 1;
    generation->sampling.repeat_penalty = i == 2 ? 1.1f : 1;
    generation->n_logprobs = i == 0 ? 2 : -1;
    generation->echo = i == 0;
    if (i == 1)
        generation->stops[0] = strdup("~~");
    generation->n_stops = generation->stops[0] != NULL;
    generation->stop_lengths[0] = 2;
    generation->session_key = strdup("key");
    generation->on_event = on_event;
    return true;
}

static void set_true(void *context)
{
    *(bool *)context = true;
}

static void on_done(struct engine_request *request, void *context)
{
    assert_true(request->answer == ENGINE_ANSWER_OK || request->answer == ENGINE_ANSWER_FAILED);
    engine_request_destroy(request);
    set_true(context);
}

static void run_engine(struct engine *engine, uv_loop_t *loop)
{
    struct answer answers[3];
    memset(answers, 0, sizeof answers);
    for (int i = 0; i < 3; i++) {
        answers[i].generation = generation_create();
        if (answers[i].generation == NULL || !fill_generation(answers[i].generation, i)) {
            answers[i].finished = true;
            answers[i].reason = FINISH_ERROR;
            continue;
        }
        answers[i].generation->context = &answers[i];
        engine_submit(engine, answers[i].generation);
    }
    while (!answers[0].finished || !answers[1].finished || !answers[2].finished)
        uv_run(loop, UV_RUN_ONCE);
    for (int i = 0; i < 3; i++) {
        if (answers[i].reason == FINISH_LENGTH)
            assert_int_equal(answers[i].text_length, i == 0 ? 100 : 30);
        generation_destroy(answers[i].generation);
    }
    bool done = false;
    struct engine_request *request = engine_request_create(ENGINE_LIST_SESSIONS);
    if (request == NULL)
        return;
    request->on_done = on_done;
    request->context = &done;
    engine_ask(engine, request);
    while (!done)
        uv_run(loop, UV_RUN_ONCE);
}

/* state_dir: or NULL */
static void live_in_engine(const char *state_dir)
{
    struct fake_executor *fake = new_fake();
    uv_loop_t loop;
    assert_int_equal(uv_loop_init(&loop), 0);
    struct engine_options options = {
        .context = 200, .parallel = 2, .step_target_ms = 50, .state_dir = state_dir, .state_max_bytes = 1 << 20};
    struct engine *engine;
    struct npu_error error;
    enum npu_status status = engine_create(&engine, &options, &fake->base, NULL, &loop, &error);
    if (status == NPU_OK) {
        bool closed = false;
        run_engine(engine, &loop);
        engine_close(engine, set_true, &closed);
        while (!closed)
            uv_run(&loop, UV_RUN_ONCE);
    } else {
        assert_int_equal(status, NPU_ERROR_MEMORY);
    }
    assert_int_equal(uv_loop_close(&loop), 0);
    executor_destroy(&fake->base);
}

static void engine_scenario(void)
{
    live_in_engine(NULL);
}

static void remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char name[512];
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.')
            assert_int_equal(unlink(name), 0);
    }
    closedir(folder);
    assert_int_equal(rmdir(path), 0);
}

static void engine_on_disk_scenario(void)
{
    char path[64]; /* where syncing costs nothing, if there is such a place: it happens some thousand times */
    snprintf(path, sizeof path, "%s/test_out_of_memory_XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(path));
    live_in_engine(path);
    live_in_engine(path);
    int armed = shelter();
    remove_folder(path);
    leave_shelter(armed);
}

static void the_engine_with_a_state_folder_survives_every_failed_allocation(void **state)
{
    (void)state;
    fail_each_allocation(engine_on_disk_scenario);
}

/* --- a model's file ----------------------------------------------------------------------------------------------- */

static void model_scenario(void)
{
    struct gguf_file *file;
    struct model *model;
    struct npu_error error;
    enum npu_status status = gguf_open(&file, TEST_DATA_DIR "/reference/llama.gguf", &error);
    if (status == NPU_OK) {
        status = model_create(&model, file, &error);
        if (status == NPU_OK)
            model_destroy(model);
        gguf_close(file);
    }
    assert_true(status == NPU_OK || status == NPU_ERROR_MEMORY);
}

static void reading_a_model_survives_every_failed_allocation(void **state)
{
    (void)state;
    fail_each_allocation(model_scenario);
}

static void the_engine_survives_every_failed_allocation(void **state)
{
    (void)state;
    fail_each_allocation(engine_scenario);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_scheduler_survives_every_failed_allocation),
        cmocka_unit_test(the_state_folder_survives_every_failed_allocation),
        cmocka_unit_test(the_engine_survives_every_failed_allocation),
        cmocka_unit_test(the_engine_with_a_state_folder_survives_every_failed_allocation),
        cmocka_unit_test(reading_a_model_survives_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
