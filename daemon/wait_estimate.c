#include "daemon/wait_estimate.h"

#include <math.h>

double wait_estimate_place_ms(const struct running_place *place, double service_ms)
{
    double by_tokens = place->n_left * place->token_ms;
    if (place->takes_all && place->token_ms > 0)
        return by_tokens;
    /* One that has outlived the average says nothing about when it ends. */
    double by_age = place->age_ms < service_ms ? service_ms - place->age_ms : service_ms;
    return place->token_ms > 0 ? fmin(by_age, by_tokens) : by_age;
}

static double starts_within(const double *places_ms, int n, double service_ms, double ms)
{
    double starts = 0;
    for (int i = 0; i < n; i++) {
        if (places_ms[i] > ms)
            continue;
        if (service_ms <= 0)
            return INFINITY;
        starts += 1 + floor((ms - places_ms[i]) / service_ms);
    }
    return starts;
}

double wait_estimate_ms(const double *places_ms, int n, int n_before, double service_ms)
{
    double early = 0, late = places_ms[0] + n_before * service_ms; /* this place alone would do it by then */
    if (starts_within(places_ms, n, service_ms, 0) > n_before)
        return 0;
    for (int i = 0; i < 50; i++) {
        double middle = (early + late) / 2;
        if (starts_within(places_ms, n, service_ms, middle) > n_before)
            late = middle;
        else
            early = middle;
    }
    return late;
}
