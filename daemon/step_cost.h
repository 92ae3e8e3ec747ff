/* What a step costs, learnt while running: milliseconds per bucket of rows (powers of two, as executors plan them).
 * Pure; the caller owns the struct. */
#ifndef DAEMON_STEP_COST_H
#define DAEMON_STEP_COST_H

enum {
    STEP_COST_BUCKETS = 9, /* 1, 2, 4, ... 256 rows */
};

struct step_cost {
    double measured_ms[STEP_COST_BUCKETS]; /* moving averages; 0: never measured */
};

int step_cost_bucket(int n_rows); /* the index of the bucket that holds n_rows, 1 or more */
int step_cost_bucket_rows(int bucket); /* 1 << bucket */

void step_cost_learn(struct step_cost *cost, int n_rows, double ms);

/* An estimate for a step of a bucket; 0: nothing is known. A bucket twice as large costs at least as much and at most
 * twice as much, which carries fresh measurements over to buckets that are not used just now. */
double step_cost_estimate(const struct step_cost *cost, int bucket);

/* The rows of the largest bucket that stays under target_ms, at most max_rows; at least 1. Buckets that were never tried
 * are reached one doubling at a time. */
int step_cost_rows_within(const struct step_cost *cost, double target_ms, int max_rows);

#endif
