/* What a request found in the KV cache, and why it did not find more. */
#ifndef DAEMON_CACHE_REPORT_H
#define DAEMON_CACHE_REPORT_H

#include <stdint.h>

enum cache_source {
    CACHE_SOURCE_NONE, /* nothing was cached */
    CACHE_SOURCE_RESIDENT, /* the session itself went on */
    CACHE_SOURCE_SHARED, /* blocks of others were shared or copied */
    CACHE_SOURCE_DISK, /* at least n_restored of it were read from the state folder */
};

/* Why less than the whole known history was cached. */
enum cache_miss {
    CACHE_MISS_NONE, /* it was cached, but for the last block of a busy session */
    CACHE_MISS_FIRST_USE, /* no history that the request may use begins like this */
    CACHE_MISS_DIFFERS, /* the prompt parts from the history at differs_at */
    CACHE_MISS_EVICTED, /* the history was known but its blocks had been given up */
    CACHE_MISS_DAMAGED, /* it was in the state folder, but could not be read */
};

struct cache_report {
    int32_t n_cached; /* positions that need not be computed */
    enum cache_source source;
    uint64_t session_id; /* the session that the request works in; 0: none */
    uint64_t source_id; /* the session that the prefix came from, as far as it is known; 0: none */
    enum cache_miss miss;
    uint64_t known_id; /* the known history that the prompt is most like, resident or not; 0: none */
    int32_t n_known; /* positions that they have in common */
    int32_t differs_at; /* the first position that differs from that history; -1: none does */
    int32_t n_restored; /* positions that were read from the state folder */
    double restore_ms; /* what that took */
    double recompute_ms; /* what computing them would have taken, by the measured rate; 0: nothing measured yet */
};

/* Why not more than n_cached of the n_known positions, of which at most max_cached may be: EVICTED, DIFFERS or NONE. */
enum cache_miss cache_report_miss(const struct cache_report *report, int32_t max_cached);

/* Words for logs and answers: "none", "resident", "shared", "disk"; "none", "first_use", "differs", "evicted",
 * "damaged". */
const char *cache_source_name(enum cache_source source);
const char *cache_miss_name(enum cache_miss miss);

#endif
