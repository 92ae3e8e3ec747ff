#include "daemon/mask_worker.h"

#include <stdlib.h>
#include <uv.h>

#include "daemon/constraint.h"

struct mask_worker {
    uv_thread_t thread;
    uv_mutex_t mutex; /* of everything below and of the work fields of constraints */
    uv_cond_t queued, finished;
    struct constraint *first, **last;
    bool stop_wanted;
};

static void run(void *argument)
{
    struct mask_worker *worker = argument;
    uv_mutex_lock(&worker->mutex);
    for (;;) {
        while (worker->first == NULL && !worker->stop_wanted)
            uv_cond_wait(&worker->queued, &worker->mutex);
        struct constraint *constraint = worker->first;
        if (constraint == NULL)
            break;
        worker->first = constraint->next;
        if (worker->first == NULL)
            worker->last = &worker->first;
        constraint->work = CONSTRAINT_RUNNING;
        uv_mutex_unlock(&worker->mutex);
        constraint_compute_mask(constraint);
        uv_mutex_lock(&worker->mutex);
        constraint->work = CONSTRAINT_READY;
        uv_cond_signal(&worker->finished);
    }
    uv_mutex_unlock(&worker->mutex);
}

enum npu_status mask_worker_create(struct mask_worker **ret_worker, struct npu_error *error)
{
    struct mask_worker *worker = calloc(1, sizeof *worker);
    if (worker == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the thread that computes masks");
    worker->last = &worker->first;
    int n_made = 0;
    if (uv_mutex_init(&worker->mutex) == 0)
        n_made = 1;
    if (n_made == 1 && uv_cond_init(&worker->queued) == 0)
        n_made = 2;
    if (n_made == 2 && uv_cond_init(&worker->finished) == 0)
        n_made = 3;
    if (n_made == 3 && uv_thread_create(&worker->thread, run, worker) == 0) {
        *ret_worker = worker;
        return NPU_OK;
    }
    if (n_made >= 3)
        uv_cond_destroy(&worker->finished);
    if (n_made >= 2)
        uv_cond_destroy(&worker->queued);
    if (n_made >= 1)
        uv_mutex_destroy(&worker->mutex);
    free(worker);
    return npu_error_set(error, NPU_ERROR_SYSTEM, "the system gives no thread to compute masks");
}

void mask_worker_destroy(struct mask_worker *worker)
{
    if (worker == NULL)
        return;
    uv_mutex_lock(&worker->mutex);
    worker->stop_wanted = true;
    uv_cond_signal(&worker->queued);
    uv_mutex_unlock(&worker->mutex);
    uv_thread_join(&worker->thread);
    uv_cond_destroy(&worker->finished);
    uv_cond_destroy(&worker->queued);
    uv_mutex_destroy(&worker->mutex);
    free(worker);
}

void mask_worker_begin(struct mask_worker *worker, struct constraint *constraint)
{
    uv_mutex_lock(&worker->mutex);
    constraint->work = CONSTRAINT_QUEUED;
    constraint->next = NULL;
    *worker->last = constraint;
    worker->last = &constraint->next;
    uv_cond_signal(&worker->queued);
    uv_mutex_unlock(&worker->mutex);
}

/* Under the mutex. */
static void unlink_queued(struct mask_worker *worker, struct constraint *constraint)
{
    struct constraint **link = &worker->first;
    while (*link != constraint)
        link = &(*link)->next;
    *link = constraint->next;
    if (*link == NULL)
        worker->last = link;
    constraint->work = CONSTRAINT_STALE;
}

/* Afterwards it is STALE or READY. */
static void take_back(struct mask_worker *worker, struct constraint *constraint)
{
    uv_mutex_lock(&worker->mutex);
    if (constraint->work == CONSTRAINT_QUEUED)
        unlink_queued(worker, constraint);
    while (constraint->work == CONSTRAINT_RUNNING)
        uv_cond_wait(&worker->finished, &worker->mutex);
    uv_mutex_unlock(&worker->mutex);
}

void mask_worker_await(struct mask_worker *worker, struct constraint *constraint)
{
    take_back(worker, constraint);
    if (constraint->work == CONSTRAINT_STALE)
        constraint_compute_mask(constraint);
    constraint->work = CONSTRAINT_READY;
}

void mask_worker_cancel(struct mask_worker *worker, struct constraint *constraint)
{
    take_back(worker, constraint);
}
