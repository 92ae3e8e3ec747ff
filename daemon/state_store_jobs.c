/* Files and events: what the worker is given to do, and what comes of it. */
#include "daemon/state_store_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"

void state_store_remove_file(struct state_store *store, const char *name, enum state_job_kind kind)
{
    const struct state_fs *fs = store->options.fs;
    if (store->worker == NULL) {
        char path[STATE_PATH_BYTES];
        if (state_path(path, store->dir, name))
            fs->unlink(fs->context, path);
        return;
    }
    struct state_job *job = calloc(1, sizeof *job);
    if (job == NULL)
        return;
    job->kind = kind;
    snprintf(job->name, sizeof job->name, "%s", name);
    state_worker_post(store->worker, job);
}

void state_store_remove_block(struct state_store *store, struct state_hash hash)
{
    char name[STATE_NAME_BYTES];
    stored_block_name(name, hash);
    state_store_remove_file(store, name, STATE_JOB_REMOVE_BLOCK);
}

void state_store_remove_manifest(struct state_store *store, uint64_t id)
{
    char name[STATE_NAME_BYTES];
    stored_session_name(name, id);
    state_store_remove_file(store, name, STATE_JOB_REMOVE_MANIFEST);
}

void *state_store_buffer(const struct state_store *store)
{
    return malloc(state_store_block_file_bytes(store));
}

static struct state_job *new_block_job(const struct state_store *store, enum state_job_kind kind,
                                       struct stored_block *block)
{
    struct state_job *job = calloc(1, sizeof *job);
    if (job == NULL)
        return NULL;
    job->kind = kind;
    job->n_bytes = state_store_block_file_bytes(store);
    job->hash = block->hash;
    job->n_tokens = block->n_tokens;
    job->block = block;
    stored_block_name(job->name, block->hash);
    return job;
}

void state_store_post(struct state_store *store, struct state_job *job)
{
    if (job->block != NULL)
        job->block->references++, store->job_references++; /* until its event has been told */
    store->n_jobs++;
    state_worker_post(store->worker, job);
}

bool state_store_write(struct state_store *store, struct stored_block *block, void *buffer,
                       const struct state_priority *priority)
{
    assert(block->state == STORED_BLOCK_ABSENT);
    uint64_t bytes = state_store_block_file_bytes(store);
    struct state_job *job = NULL;
    if (state_store_make_room(store, bytes, priority))
        job = new_block_job(store, STATE_JOB_WRITE_BLOCK, block);
    if (job == NULL) {
        free(buffer);
        return false;
    }
    job->bytes = buffer;
    block->state = STORED_BLOCK_WRITING;
    block->writing = (const char *)buffer + STATE_BLOCK_HEADER_BYTES;
    block->file_bytes = bytes;
    store->counters.bytes += bytes;
    state_store_post(store, job);
    return true;
}

bool state_store_read(struct state_store *store, struct stored_block *block, void *context)
{
    assert(block->state == STORED_BLOCK_PRESENT);
    struct state_job *job = new_block_job(store, STATE_JOB_READ_BLOCK, block);
    if (job == NULL)
        return false;
    job->context = context;
    job->bytes = state_store_buffer(store);
    if (job->bytes == NULL) {
        state_job_destroy(job);
        return false;
    }
    state_store_post(store, job);
    return true;
}

bool state_store_commit(struct state_store *store, const struct state_manifest *manifest,
                        struct stored_block *const *blocks, void *context)
{
    struct state_priority priority = {manifest->id, manifest->used_us, manifest->pinned};
    struct state_job *job = calloc(1, sizeof *job);
    struct stored_session *session = stored_session_create(manifest->n_blocks);
    if (job != NULL)
        job->bytes = state_manifest_encode(manifest, &job->n_bytes);
    if (job == NULL || session == NULL || job->bytes == NULL ||
        !state_store_make_room(store, job->n_bytes, &priority)) {
        state_job_destroy(job);
        if (session != NULL)
            free(session->blocks);
        free(session);
        return false;
    }
    session->id = manifest->id;
    session->used_us = manifest->used_us;
    session->pinned = manifest->pinned;
    session->n_tokens = manifest->n_tokens;
    session->n_blocks = manifest->n_blocks;
    if (manifest->n_blocks > 0)
        memcpy(session->blocks, blocks, (size_t)manifest->n_blocks * sizeof *blocks);
    session->file_bytes = job->n_bytes;
    store->counters.bytes += session->file_bytes;
    stored_session_list(store, session);
    job->kind = STATE_JOB_WRITE_MANIFEST;
    job->session = session;
    job->context = context;
    stored_session_name(job->name, manifest->id);
    state_store_post(store, job);
    return true;
}

/* --- events ------------------------------------------------------------------------------------------------------- */

void state_store_note_write(struct state_store *store, const struct state_job *job)
{
    if (job->status == NPU_OK) {
        store->counters.written_bytes += job->n_bytes;
        store->failing = false;
        return;
    }
    store->counters.failures++;
    if (!store->failing)
        log_warning(store->options.log, "sessions are not saved: %s", job->error.message);
    store->failing = true;
}

static void finish_write(struct state_store *store, struct state_job *job)
{
    struct stored_block *block = job->block;
    state_store_note_write(store, job);
    block->writing = NULL;
    if (job->status == NPU_OK)
        block->state = STORED_BLOCK_PRESENT;
    else
        stored_block_set_absent(store, block);
}

static void finish_read(struct state_store *store, struct state_job *job)
{
    struct stored_block *block = job->block;
    if (job->status == NPU_OK) {
        store->counters.read_bytes += job->n_bytes;
        return;
    }
    free(job->bytes);
    job->bytes = NULL;
    if (block->state != STORED_BLOCK_PRESENT) /* another reader has found it out */
        return;
    store->counters.damaged++;
    log_warning(store->options.log, "a saved KV block is computed again: %s", job->error.message);
    stored_block_set_absent(store, block);
    state_store_remove_block(store, block->hash);
}

static void finish_manifest(struct state_store *store, struct state_job *job)
{
    struct stored_session *session = job->session;
    state_store_note_write(store, job);
    if (job->status != NPU_OK || session->id == 0) { /* 0: it was forgotten meanwhile */
        stored_session_destroy(store, session);
        return;
    }
    store->counters.commits++;
    struct stored_session *before = stored_session_by_id(store, session->id);
    session->listed = true;
    store->counters.sessions++;
    if (before != NULL)
        stored_session_destroy(store, before);
}

/* The job of the last event has been looked at. */
static void forget_told(struct state_store *store)
{
    struct state_job *job = store->told;
    store->told = NULL;
    if (job != NULL && job->block != NULL) {
        store->job_references--;
        state_store_release(store, job->block);
    }
    state_job_destroy(job);
}

static struct state_job *next_done(struct state_store *store)
{
    if (store->done == NULL)
        store->done = state_worker_take(store->worker);
    struct state_job *job = store->done;
    if (job != NULL)
        store->done = job->next;
    return job;
}

static bool is_removal(const struct state_job *job)
{
    return job->kind == STATE_JOB_REMOVE_BLOCK || job->kind == STATE_JOB_REMOVE_MANIFEST ||
           job->kind == STATE_JOB_REMOVE_RESPONSE;
}

bool state_store_take_event(struct state_store *store, struct state_event *ret_event)
{
    forget_told(store);
    struct state_job *job = next_done(store);
    while (job != NULL && is_removal(job)) {
        if (job->status != NPU_OK)
            log_warning(store->options.log, "%s", job->error.message);
        state_job_destroy(job);
        job = next_done(store);
    }
    if (job == NULL)
        return false;
    store->told = job;
    store->n_jobs--;
    *ret_event = (struct state_event){
        .status = job->status,
        .block = job->block,
        .context = job->context,
        .message = job->status != NPU_OK ? job->error.message : NULL,
    };
    switch (job->kind) {
    case STATE_JOB_WRITE_BLOCK:
        ret_event->kind = STATE_EVENT_WRITTEN;
        finish_write(store, job);
        break;
    case STATE_JOB_READ_BLOCK:
        ret_event->kind = STATE_EVENT_READ;
        finish_read(store, job);
        ret_event->bytes = job->bytes;
        job->bytes = NULL;
        break;
    case STATE_JOB_WRITE_MANIFEST:
        ret_event->kind = STATE_EVENT_COMMITTED;
        ret_event->id = job->session->id;
        finish_manifest(store, job);
        break;
    case STATE_JOB_WRITE_RESPONSE:
        ret_event->kind = STATE_EVENT_RESPONSE_WRITTEN;
        stored_response_written(store, job);
        break;
    case STATE_JOB_READ_RESPONSE:
        ret_event->kind = STATE_EVENT_RESPONSE_READ;
        stored_response_was_read(store, job);
        ret_event->bytes = job->bytes;
        ret_event->n_bytes = job->n_bytes;
        job->bytes = NULL;
        break;
    case STATE_JOB_REMOVE_BLOCK:
    case STATE_JOB_REMOVE_MANIFEST:
    case STATE_JOB_REMOVE_RESPONSE:
        break;
    }
    return true;
}

bool state_store_is_busy(const struct state_store *store)
{
    return store->n_jobs > 0;
}

int state_store_run(struct state_store *store, int n)
{
    return state_worker_run(store->worker, n);
}
