/* What scheduler.c (admission, running a step), scheduler_queue.c (the queue and its order) and scheduler_plan.c (filling a
 * step) share. Private to them. */
#ifndef DAEMON_SCHEDULER_STATE_H
#define DAEMON_SCHEDULER_STATE_H

#include "daemon/scheduler.h"
#include "daemon/step_cost.h"

/* The rows of one sequence in the step. */
struct planned_run {
    struct sequence *sequence;
    int first_row, n_rows;
};

struct scheduler {
    struct scheduler_options options;
    struct scheduler_callbacks callbacks;
    struct executor *executor;
    struct kv_pool *pool;
    struct session_table *sessions;
    struct snapshots *snapshots; /* or NULL */
    struct step_cost cost;
    struct scheduler_counters counters;
    uint64_t clock; /* counts submissions, starts and ends */

    struct sequence *first_waiting; /* moved-out ones by age, then by priority and age: those of a request in a row */
    int n_waiting;
    struct sequence **running; /* options.parallel entries */
    int n_running;

    /* The step being planned; sized by the executor's limits. */
    struct step_row *rows;
    struct row_result *results;
    struct block_table *tables;
    struct planned_run *runs; /* one per table */
    int n_rows, n_runs, n_returning, n_decode_rows;
    struct sequence **candidates; /* options.parallel entries */
    int *shares; /* options.parallel entries */
};

void scheduler_enqueue(struct scheduler *scheduler, struct sequence *sequence);
void scheduler_dequeue(struct scheduler *scheduler, struct sequence *sequence);
/* The request of this one, which is not in the queue, has got or lost a place: its next one goes behind others. */
void scheduler_end_turn(struct scheduler *scheduler, const struct sequence *sequence);
/* Whose turn it is when a place is free; stays in the queue. NULL: nobody's. */
struct sequence *scheduler_choose(const struct scheduler *scheduler);
bool scheduler_queue_is_consistent(const struct scheduler *scheduler, int *ret_moved_out);

/* Fills rows, tables and runs for the next step; may move sequences out or fail one. False: no rows. */
bool scheduler_plan(struct scheduler *scheduler);

/* Positions that this sequence may take from the cache. */
int32_t scheduler_max_cached(const struct sequence *sequence);

/* Back into the queue without its blocks. */
void scheduler_move_out(struct scheduler *scheduler, struct sequence *sequence);
/* Ends a running sequence and tells its owner. */
void scheduler_fail(struct scheduler *scheduler, struct sequence *sequence, const struct npu_error *error);

#endif
