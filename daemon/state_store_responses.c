/* Stored responses in the state folder: a list from the oldest to the newest, and a file for each. */
#include "daemon/state_store_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"

void stored_response_name(char name[STATE_NAME_BYTES], const struct response_id *id)
{
    snprintf(name, STATE_NAME_BYTES, "%016" PRIx64 "%016" PRIx64 ".response", (uint64_t)id->created_us, id->random);
}

/* What points to the one with this id, or would. */
static struct stored_response **find(struct state_store *store, const struct response_id *id)
{
    struct stored_response **link = &store->response_buckets[id->random % RESPONSE_BUCKETS];
    while (*link != NULL && !response_id_equal(&(*link)->id, id))
        link = &(*link)->next_in_bucket;
    return link;
}

struct stored_response *stored_response_create(struct state_store *store, const struct response_id *id,
                                               uint64_t file_bytes)
{
    struct stored_response *response = calloc(1, sizeof *response);
    if (response == NULL)
        return NULL;
    struct stored_response **bucket = &store->response_buckets[id->random % RESPONSE_BUCKETS];
    *response =
        (struct stored_response){.id = *id, .file_bytes = file_bytes, .listed = true, .next_in_bucket = *bucket};
    *bucket = response;
    struct stored_response *older = store->newest_response; /* nearly always: they come in the order of time */
    while (older != NULL && older->id.created_us > id->created_us)
        older = older->older;
    response->older = older;
    response->newer = older != NULL ? older->newer : store->oldest_response;
    *(older != NULL ? &older->newer : &store->oldest_response) = response;
    *(response->newer != NULL ? &response->newer->older : &store->newest_response) = response;
    store->counters.responses++;
    store->counters.bytes += file_bytes;
    return response;
}

/* Off the list; lives on while it is being written. */
static void unlist(struct state_store *store, struct stored_response *response)
{
    struct stored_response **link = find(store, &response->id);
    *link = response->next_in_bucket;
    *(response->older != NULL ? &response->older->newer : &store->oldest_response) = response->newer;
    *(response->newer != NULL ? &response->newer->older : &store->newest_response) = response->older;
    store->counters.responses--;
    store->counters.bytes -= response->file_bytes;
    response->listed = false;
    if (response->writing == NULL)
        free(response);
}

void stored_response_remove(struct state_store *store, struct stored_response *response)
{
    char name[STATE_NAME_BYTES];
    stored_response_name(name, &response->id);
    unlist(store, response);
    state_store_remove_file(store, name, STATE_JOB_REMOVE_RESPONSE); /* behind the writing of it */
}

void stored_responses_free(struct state_store *store)
{
    for (struct stored_response *newer, *response = store->oldest_response; response != NULL; response = newer) {
        newer = response->newer;
        free(response);
    }
}

bool state_store_has_response(const struct state_store *store, const struct response_id *id)
{
    return *find((struct state_store *)store, id) != NULL;
}

bool state_store_forget_response(struct state_store *store, const struct response_id *id)
{
    struct stored_response *response = *find(store, id);
    if (response == NULL)
        return false;
    stored_response_remove(store, response);
    return true;
}

static struct state_job *new_job(enum state_job_kind kind, const struct response_id *id)
{
    struct state_job *job = calloc(1, sizeof *job);
    if (job == NULL)
        return NULL;
    job->kind = kind;
    job->response_id = *id;
    stored_response_name(job->name, id);
    return job;
}

bool state_store_put_response(struct state_store *store, const struct response_id *id, void *bytes, size_t n)
{
    struct state_priority priority = {.used_us = id->created_us};
    struct state_job *job = NULL;
    struct stored_response *response = NULL;
    if (n <= STATE_MAX_RESPONSE_BYTES && *find(store, id) == NULL && state_store_make_room(store, n, &priority))
        job = new_job(STATE_JOB_WRITE_RESPONSE, id);
    if (job != NULL)
        response = stored_response_create(store, id, n);
    if (response == NULL) {
        state_job_destroy(job);
        free(bytes);
        return false;
    }
    response->writing = job->bytes = bytes;
    response->n_writing = job->n_bytes = n;
    job->response = response;
    state_store_post(store, job);
    return true;
}

void stored_response_written(struct state_store *store, struct state_job *job)
{
    struct stored_response *response = job->response;
    state_store_note_write(store, job);
    response->writing = NULL;
    if (!response->listed)
        free(response);
    else if (job->status != NPU_OK)
        unlist(store, response);
}

bool state_store_read_response(struct state_store *store, const struct response_id *id, void *context)
{
    const struct stored_response *response = *find(store, id);
    struct state_job *job = new_job(STATE_JOB_READ_RESPONSE, id);
    if (job == NULL)
        return false;
    job->context = context;
    if (response->writing == NULL) {
        state_store_post(store, job);
        return true;
    }
    job->bytes = malloc(response->n_writing); /* reads come before writes: the file is not there yet */
    if (job->bytes == NULL) {
        state_job_destroy(job);
        return false;
    }
    memcpy(job->bytes, response->writing, response->n_writing);
    job->n_bytes = response->n_writing;
    state_store_post(store, job);
    return true;
}

void stored_response_was_read(struct state_store *store, struct state_job *job)
{
    struct stored_response *response = *find(store, &job->response_id);
    if (job->status == NPU_OK) {
        store->counters.read_bytes += job->n_bytes;
        return;
    }
    free(job->bytes);
    job->bytes = NULL;
    if (response == NULL) /* it went meanwhile, or another reader has found it out */
        return;
    store->counters.damaged++;
    log_warning(store->options.log, "a stored response is forgotten: %s", job->error.message);
    if (job->status != NPU_ERROR_MEMORY)
        stored_response_remove(store, response);
}
