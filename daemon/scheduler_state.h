/* What scheduler.c (queue, admission, running a step) and scheduler_plan.c (filling a step) share. Private to them. */
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
    uint64_t n_submitted;

    struct sequence *first_waiting; /* moved-out ones by age, then by priority and age */
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

/* Fills rows, tables and runs for the next step; may move sequences out or fail one. False: no rows. */
bool scheduler_plan(struct scheduler *scheduler);

/* Positions that this sequence may take from the cache. */
int32_t scheduler_max_cached(const struct sequence *sequence);

/* Back into the queue without its blocks. */
void scheduler_move_out(struct scheduler *scheduler, struct sequence *sequence);
/* Ends a running sequence and tells its owner. */
void scheduler_fail(struct scheduler *scheduler, struct sequence *sequence, const struct npu_error *error);

#endif
