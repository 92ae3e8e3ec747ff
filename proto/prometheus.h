/* Metrics as Prometheus reads them: text exposition format 0.0.4. One family after the other, each with its samples.
 * Thread: any; a writer belongs to one. */
#ifndef PROTO_PROMETHEUS_H
#define PROTO_PROMETHEUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define PROMETHEUS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

enum prometheus_type {
    PROMETHEUS_COUNTER, /* names end in _total */
    PROMETHEUS_GAUGE,
    PROMETHEUS_HISTOGRAM,
};

struct prometheus_label {
    const char *name;
    const char *value; /* any text; bytes outside ASCII become '?' where they are not UTF-8 */
};

struct prometheus {
    FILE *stream;
    char *text;
    size_t length;
    const char *family;
};

/* False when memory is out. */
bool prometheus_begin(struct prometheus *writer);

/* The following samples are of this metric. Names and help are constants of the program and must stay valid. */
void prometheus_family(struct prometheus *writer, const char *name, enum prometheus_type type, const char *help);

void prometheus_sample(struct prometheus *writer, double value, const struct prometheus_label *labels, int n_labels);

/* bounds ascend; counts has n_bounds + 1 entries, each the number of values up to its bound and above the one before, the
 * last those above all. */
void prometheus_histogram(struct prometheus *writer, const double *bounds, const uint64_t *counts, int n_bounds,
                          double sum, const struct prometheus_label *labels, int n_labels);

/* A family with one sample. */
void prometheus_counter(struct prometheus *writer, const char *name, const char *help, double value);
void prometheus_gauge(struct prometheus *writer, const char *name, const char *help, double value);

/* The text, malloc'ed and NUL-terminated; NULL when memory was out somewhere. Ends the writer. */
char *prometheus_end(struct prometheus *writer, size_t *ret_length);

#endif
