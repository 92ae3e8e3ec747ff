/* How long something in the queue has to wait, from what is known of the places. Pure functions. */
#ifndef DAEMON_WAIT_ESTIMATE_H
#define DAEMON_WAIT_ESTIMATE_H

#include <stdbool.h>
#include <stdint.h>

/* A generation that runs. */
struct running_place {
    double age_ms; /* since it began to run */
    int32_t n_left; /* tokens that it may still give */
    double token_ms; /* what one takes; 0: not known */
    bool takes_all; /* nothing ends it before its last token */
};

/* When its place becomes free. service_ms: how long generations run on average; 0: not known. What is not known counts as
 * soon. */
double wait_estimate_place_ms(const struct running_place *place, double service_ms);

/* When the n_before + 1st start is, if the places (n of them, at least 1; free ones with 0) become free after so many
 * milliseconds, and then again every service_ms. */
double wait_estimate_ms(const double *places_ms, int n, int n_before, double service_ms);

#endif
