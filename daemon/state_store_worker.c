#include "daemon/state_store_worker.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/mailbox.h"

#define TEMPORARY_SUFFIX ".tmp"

struct job_list {
    struct state_job *first, **last;
};

struct state_worker {
    struct state_worker_options options;
    char dir[STATE_PATH_BYTES];
    struct mailbox jobs, done;
    struct job_list reads, others; /* the worker's thread */
    atomic_bool stop_wanted;
    bool has_thread;
    uv_thread_t thread;
};

void state_job_destroy(struct state_job *job)
{
    if (job == NULL)
        return;
    free(job->bytes);
    free(job);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

bool state_path(char path[STATE_PATH_BYTES], const char *dir, const char *name)
{
    return snprintf(path, STATE_PATH_BYTES, "%s/%s", dir, name) < STATE_PATH_BYTES;
}

static enum npu_status failure(struct npu_error *error, const char *what, const char *path, int code)
{
    return npu_error_set(error, NPU_ERROR_SYSTEM, "cannot %s %s: %s", what, path, strerror(code));
}

/* Exactly n bytes: 0, or an error number. */
static int read_all(const struct state_fs *fs, int file, char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t done = fs->read(fs->context, file, bytes, n);
        if (done == -EINTR)
            continue;
        if (done <= 0)
            return done == 0 ? EIO : (int)-done;
        bytes += done;
        n -= (size_t)done;
    }
    return 0;
}

static int write_all(const struct state_fs *fs, int file, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t done = fs->write(fs->context, file, bytes, n);
        if (done == -EINTR)
            continue;
        if (done <= 0)
            return done == 0 ? EIO : (int)-done;
        bytes += done;
        n -= (size_t)done;
    }
    return 0;
}

enum npu_status state_read_file(const struct state_fs *fs, const char *path, uint64_t max_bytes, void **ret_bytes,
                                size_t *ret_n, struct npu_error *error)
{
    uint64_t size;
    int file = fs->open(fs->context, path, &size);
    if (file < 0)
        return failure(error, "open", path, -file);
    size_t n = (size_t)(size < max_bytes ? size : max_bytes);
    char *bytes = malloc(n + 1);
    int code = bytes != NULL ? read_all(fs, file, bytes, n) : 0;
    fs->close(fs->context, file);
    if (bytes == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory to read %s", path);
    if (code != 0) {
        free(bytes);
        return failure(error, "read", path, code);
    }
    *ret_bytes = bytes;
    *ret_n = n;
    return NPU_OK;
}

static enum npu_status sync_dir(const struct state_worker *worker, struct npu_error *error)
{
    const struct state_fs *fs = worker->options.fs;
    int code = fs->sync_dir(fs->context, worker->dir);
    return code < 0 ? failure(error, "sync", worker->dir, -code) : NPU_OK;
}

static enum npu_status write_file(const struct state_worker *worker, const struct state_job *job,
                                  struct npu_error *error)
{
    const struct state_fs *fs = worker->options.fs;
    char path[STATE_PATH_BYTES], temporary[STATE_PATH_BYTES];
    char name[STATE_NAME_BYTES + sizeof TEMPORARY_SUFFIX];
    snprintf(name, sizeof name, "%s" TEMPORARY_SUFFIX, job->name);
    if (!state_path(path, worker->dir, job->name) || !state_path(temporary, worker->dir, name))
        return failure(error, "write", job->name, ENAMETOOLONG);
    int file = fs->create(fs->context, temporary);
    if (file < 0)
        return failure(error, "write", temporary, -file);
    int code = write_all(fs, file, job->bytes, job->n_bytes);
    if (code == 0)
        code = -fs->sync(fs->context, file);
    int closed = -fs->close(fs->context, file);
    if (code == 0)
        code = closed;
    if (code == 0)
        code = -fs->rename(fs->context, temporary, path);
    if (code == 0)
        return NPU_OK;
    fs->unlink(fs->context, temporary);
    return failure(error, "write", path, code);
}

static enum npu_status write_manifest(const struct state_worker *worker, const struct state_job *job,
                                      struct npu_error *error)
{
    enum npu_status status = sync_dir(worker, error);
    if (status == NPU_OK)
        status = write_file(worker, job, error);
    if (status == NPU_OK)
        status = sync_dir(worker, error);
    return status;
}

static enum npu_status read_block(const struct state_worker *worker, struct state_job *job, struct npu_error *error)
{
    const struct state_fs *fs = worker->options.fs;
    char path[STATE_PATH_BYTES];
    uint64_t size;
    if (!state_path(path, worker->dir, job->name))
        return failure(error, "read", job->name, ENAMETOOLONG);
    int file = fs->open(fs->context, path, &size);
    if (file < 0)
        return failure(error, "open", path, -file);
    size_t n = size < job->n_bytes ? (size_t)size : job->n_bytes;
    int code = read_all(fs, file, job->bytes, n);
    fs->close(fs->context, file);
    if (code != 0)
        return failure(error, "read", path, code);
    enum npu_status status = NPU_OK;
    if (size > job->n_bytes)
        status =
            npu_error_set(error, NPU_ERROR_INPUT, "it has %llu bytes, not %zu", (unsigned long long)size, job->n_bytes);
    if (status == NPU_OK)
        status = state_block_check(job->bytes, n, &worker->options.identity, job->hash, job->n_tokens, error);
    return status == NPU_OK ? NPU_OK : npu_error_prefix(error, "%s", path);
}

static enum npu_status write_response(const struct state_worker *worker, const struct state_job *job,
                                      struct npu_error *error)
{
    enum npu_status status = write_file(worker, job, error);
    return status == NPU_OK ? sync_dir(worker, error) : status;
}

static enum npu_status read_response(const struct state_worker *worker, struct state_job *job, struct npu_error *error)
{
    char path[STATE_PATH_BYTES];
    struct response_record record;
    if (job->bytes != NULL) /* given along: its file is still to be written */
        return NPU_OK;
    if (!state_path(path, worker->dir, job->name))
        return failure(error, "read", job->name, ENAMETOOLONG);
    enum npu_status status =
        state_read_file(worker->options.fs, path, STATE_MAX_RESPONSE_BYTES, &job->bytes, &job->n_bytes, error);
    if (status != NPU_OK)
        return status;
    status = response_record_decode(&record, job->bytes, job->n_bytes, error);
    if (status == NPU_OK && !response_id_equal(&record.id, &job->response_id))
        status = npu_error_set(error, NPU_ERROR_INPUT, "it is another response");
    return status == NPU_OK ? NPU_OK : npu_error_prefix(error, "%s", path);
}

static enum npu_status remove_file(const struct state_worker *worker, const struct state_job *job,
                                   struct npu_error *error)
{
    const struct state_fs *fs = worker->options.fs;
    char path[STATE_PATH_BYTES];
    int code = state_path(path, worker->dir, job->name) ? -fs->unlink(fs->context, path) : ENAMETOOLONG;
    if (code != 0 && code != ENOENT)
        return failure(error, "remove", job->name, code);
    return job->kind == STATE_JOB_REMOVE_BLOCK ? NPU_OK : sync_dir(worker, error);
}

static void execute(const struct state_worker *worker, struct state_job *job)
{
    switch (job->kind) {
    case STATE_JOB_WRITE_BLOCK:
        state_block_encode(job->bytes, &worker->options.identity, job->hash, job->n_tokens);
        job->status = write_file(worker, job, &job->error);
        break;
    case STATE_JOB_WRITE_MANIFEST:
        job->status = write_manifest(worker, job, &job->error);
        break;
    case STATE_JOB_READ_BLOCK:
        job->status = read_block(worker, job, &job->error);
        break;
    case STATE_JOB_WRITE_RESPONSE:
        job->status = write_response(worker, job, &job->error);
        break;
    case STATE_JOB_READ_RESPONSE:
        job->status = read_response(worker, job, &job->error);
        break;
    case STATE_JOB_REMOVE_BLOCK:
    case STATE_JOB_REMOVE_MANIFEST:
    case STATE_JOB_REMOVE_RESPONSE:
        job->status = remove_file(worker, job, &job->error);
        break;
    }
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

static void append(struct job_list *list, struct state_job *job)
{
    job->next = NULL;
    *list->last = job;
    list->last = &job->next;
}

static struct state_job *pop(struct job_list *list)
{
    struct state_job *job = list->first;
    if (job != NULL && (list->first = job->next) == NULL)
        list->last = &list->first;
    return job;
}

/* False: there was no job. */
static bool run_one(struct state_worker *worker)
{
    struct state_job *next, *job = mailbox_take(&worker->jobs);
    for (; job != NULL; job = next) {
        next = job->next;
        bool is_read = job->kind == STATE_JOB_READ_BLOCK || job->kind == STATE_JOB_READ_RESPONSE;
        append(is_read ? &worker->reads : &worker->others, job);
    }
    job = pop(&worker->reads);
    if (job == NULL)
        job = pop(&worker->others);
    if (job == NULL)
        return false;
    execute(worker, job);
    mailbox_post(&worker->done, job);
    if (worker->options.on_done != NULL)
        worker->options.on_done(worker->options.context);
    return true;
}

static void run(void *argument)
{
    struct state_worker *worker = argument;
    for (;;) {
        bool stop = atomic_load(&worker->stop_wanted); /* before looking: what was posted before it is done */
        if (run_one(worker))
            continue;
        if (stop)
            return;
        mailbox_wait(&worker->jobs, UINT64_C(60000000000));
    }
}

enum npu_status state_worker_create(struct state_worker **ret_worker, const struct state_worker_options *options,
                                    struct npu_error *error)
{
    struct state_worker *worker = calloc(1, sizeof *worker);
    if (worker == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the state folder's worker");
    worker->options = *options;
    snprintf(worker->dir, sizeof worker->dir, "%s", options->dir);
    worker->reads.last = &worker->reads.first;
    worker->others.last = &worker->others.first;
    atomic_init(&worker->stop_wanted, false);
    int jobs = mailbox_init(&worker->jobs, offsetof(struct state_job, next));
    int done = jobs == 0 ? mailbox_init(&worker->done, offsetof(struct state_job, next)) : jobs;
    int thread = done == 0 && options->threaded ? uv_thread_create(&worker->thread, run, worker) : done;
    if (thread != 0) {
        if (done == 0)
            mailbox_clear(&worker->done);
        if (jobs == 0)
            mailbox_clear(&worker->jobs);
        free(worker);
        return npu_error_set(error, NPU_ERROR_SYSTEM, "no thread for the state folder: %s", uv_strerror(thread));
    }
    worker->has_thread = options->threaded;
    *ret_worker = worker;
    return NPU_OK;
}

void state_worker_destroy(struct state_worker *worker)
{
    if (worker == NULL)
        return;
    atomic_store(&worker->stop_wanted, true);
    if (worker->has_thread) {
        mailbox_poke(&worker->jobs);
        uv_thread_join(&worker->thread);
    } else {
        while (run_one(worker)) {
        }
    }
    struct state_job *next, *job = mailbox_take(&worker->done);
    for (; job != NULL; job = next) {
        next = job->next;
        state_job_destroy(job);
    }
    mailbox_clear(&worker->done);
    mailbox_clear(&worker->jobs);
    free(worker);
}

void state_worker_post(struct state_worker *worker, struct state_job *job)
{
    mailbox_post(&worker->jobs, job);
}

struct state_job *state_worker_take(struct state_worker *worker)
{
    return mailbox_take(&worker->done);
}

int state_worker_run(struct state_worker *worker, int n)
{
    assert(!worker->has_thread);
    int done = 0;
    while (done < n && run_one(worker))
        done++;
    return done;
}
