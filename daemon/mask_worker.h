/* A thread that computes the masks of constraints while the device runs a step.
 *
 * From mask_worker_begin until mask_worker_await or mask_worker_cancel the constraint belongs to the worker. Thread:
 * all functions from one (the engine's). */
#ifndef DAEMON_MASK_WORKER_H
#define DAEMON_MASK_WORKER_H

#include "npu/error.h"

struct constraint;
struct mask_worker;

/* NPU_ERROR_MEMORY, or _SYSTEM when there is no thread. */
enum npu_status mask_worker_create(struct mask_worker **ret_worker, struct npu_error *error);
/* Nothing may be left to it. NULL is fine. */
void mask_worker_destroy(struct mask_worker *worker);

/* Asks for the mask at the point where the constraint is. */
void mask_worker_begin(struct mask_worker *worker, struct constraint *constraint);

/* Returns when the mask is there: after waiting for it, or computing it when the worker has not come to it yet. */
void mask_worker_await(struct mask_worker *worker, struct constraint *constraint);

/* The worker forgets the constraint, whatever its state; if it is at it, after it has finished. */
void mask_worker_cancel(struct mask_worker *worker, struct constraint *constraint);

#endif
