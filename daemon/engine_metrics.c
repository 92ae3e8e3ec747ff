#include "daemon/engine_metrics.h"

const double histogram_bounds_s[HISTOGRAM_BOUNDS] = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1,
                                                     0.2,   0.5,   1,     2,    5,    10,   30};

void histogram_add(struct histogram *histogram, double seconds)
{
    int i = 0;
    while (i < HISTOGRAM_BOUNDS && seconds > histogram_bounds_s[i])
        i++;
    histogram->counts[i]++;
    histogram->n++;
    histogram->sum_s += seconds;
}
