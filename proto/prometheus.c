#include "proto/prometheus.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

bool prometheus_begin(struct prometheus *writer)
{
    *writer = (struct prometheus){0};
    writer->stream = open_memstream(&writer->text, &writer->length);
    return writer->stream != NULL;
}

void prometheus_family(struct prometheus *writer, const char *name, enum prometheus_type type, const char *help)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};
    writer->family = name;
    fprintf(writer->stream, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, types[type]);
}

static void put_value(FILE *stream, double value)
{
    if (isnan(value))
        fputs("NaN", stream);
    else if (isinf(value))
        fputs(value > 0 ? "+Inf" : "-Inf", stream);
    else if (value == floor(value) && fabs(value) < 9007199254740992.0)
        fprintf(stream, "%.0f", value);
    else
        fprintf(stream, "%.9g", value);
}

static void put_label(FILE *stream, const struct prometheus_label *label)
{
    json_t *probe = json_string(label->value); /* NULL: not UTF-8 */
    fprintf(stream, "%s=\"", label->name);
    for (const char *c = label->value; *c != '\0'; c++) {
        if (*c == '\\' || *c == '"')
            fprintf(stream, "\\%c", *c);
        else if (*c == '\n')
            fputs("\\n", stream);
        else
            fputc((unsigned char)*c >= 0x80 && probe == NULL ? '?' : *c, stream);
    }
    fputc('"', stream);
    json_decref(probe);
}

/* bound: of a histogram's bucket, or NULL. */
static void put_sample(struct prometheus *writer, const char *suffix, double value,
                       const struct prometheus_label *labels, int n_labels, const double *bound)
{
    FILE *stream = writer->stream;
    fprintf(stream, "%s%s", writer->family, suffix);
    if (n_labels > 0 || bound != NULL)
        fputc('{', stream);
    for (int i = 0; i < n_labels; i++) {
        put_label(stream, &labels[i]);
        if (i + 1 < n_labels || bound != NULL)
            fputc(',', stream);
    }
    if (bound != NULL) {
        fputs("le=\"", stream);
        put_value(stream, *bound);
        fputc('"', stream);
    }
    if (n_labels > 0 || bound != NULL)
        fputc('}', stream);
    fputc(' ', stream);
    put_value(stream, value);
    fputc('\n', stream);
}

void prometheus_sample(struct prometheus *writer, double value, const struct prometheus_label *labels, int n_labels)
{
    put_sample(writer, "", value, labels, n_labels, NULL);
}

void prometheus_histogram(struct prometheus *writer, const double *bounds, const uint64_t *counts, int n_bounds,
                          double sum, const struct prometheus_label *labels, int n_labels)
{
    const double above_all = INFINITY;
    uint64_t n = 0;
    for (int i = 0; i <= n_bounds; i++) {
        n += counts[i];
        put_sample(writer, "_bucket", (double)n, labels, n_labels, i < n_bounds ? &bounds[i] : &above_all);
    }
    put_sample(writer, "_sum", sum, labels, n_labels, NULL);
    put_sample(writer, "_count", (double)n, labels, n_labels, NULL);
}

void prometheus_counter(struct prometheus *writer, const char *name, const char *help, double value)
{
    prometheus_family(writer, name, PROMETHEUS_COUNTER, help);
    prometheus_sample(writer, value, NULL, 0);
}

void prometheus_gauge(struct prometheus *writer, const char *name, const char *help, double value)
{
    prometheus_family(writer, name, PROMETHEUS_GAUGE, help);
    prometheus_sample(writer, value, NULL, 0);
}

char *prometheus_end(struct prometheus *writer, size_t *ret_length)
{
    bool failed = ferror(writer->stream) != 0;
    if (fclose(writer->stream) != 0 || failed) {
        free(writer->text);
        return NULL;
    }
    *ret_length = writer->length;
    return writer->text;
}
