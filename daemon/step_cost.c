#include "daemon/step_cost.h"

enum {
    FIRST_ROWS = 32, /* while nothing has been measured */
};

int step_cost_bucket(int n_rows)
{
    int bucket = 0;
    while ((1 << bucket) < n_rows && bucket < STEP_COST_BUCKETS - 1)
        bucket++;
    return bucket;
}

int step_cost_bucket_rows(int bucket)
{
    return 1 << bucket;
}

void step_cost_learn(struct step_cost *cost, int n_rows, double ms)
{
    double *measured = &cost->measured_ms[step_cost_bucket(n_rows)];
    /* Slow to follow a single hiccup, quick to follow a context that grows. */
    double weight = ms > 4 * *measured ? 0.1 : 0.3;
    *measured = *measured > 0 ? *measured + weight * (ms - *measured) : ms;
    if (*measured < 1e-6)
        *measured = 1e-6;
}

/* The first measurement from a bucket on; 0: none. */
static double next_measured(const struct step_cost *cost, int bucket)
{
    double ms = 0;
    for (int i = bucket; i < STEP_COST_BUCKETS && ms <= 0; i++)
        ms = cost->measured_ms[i];
    return ms;
}

double step_cost_estimate(const struct step_cost *cost, int bucket)
{
    double below = 0;
    for (int i = 0; i <= bucket; i++) {
        double ms = below > 0 ? next_measured(cost, i) : cost->measured_ms[i];
        if (below > 0) {
            if (ms <= 0 || ms > 2 * below)
                ms = 2 * below;
            else if (ms < below)
                ms = below;
        }
        below = ms;
    }
    return below > 0 ? below : next_measured(cost, bucket);
}

int step_cost_rows_within(const struct step_cost *cost, double target_ms, int max_rows)
{
    int best = 1, largest_tried = -1;
    for (int i = 0; i < STEP_COST_BUCKETS; i++)
        if (cost->measured_ms[i] > 0)
            largest_tried = i;
    if (largest_tried < 0)
        return FIRST_ROWS < max_rows ? FIRST_ROWS : max_rows;
    for (int i = 0; i < STEP_COST_BUCKETS && (i <= largest_tried + 1 || step_cost_bucket_rows(i) <= FIRST_ROWS); i++) {
        if (step_cost_estimate(cost, i) > target_ms)
            break;
        best = step_cost_bucket_rows(i);
    }
    return best < max_rows ? best : max_rows;
}
