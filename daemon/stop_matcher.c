#include "daemon/stop_matcher.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct stop {
    char *text;
    size_t length;
    size_t *border; /* border[i]: length of the longest proper prefix of text that also ends text[0..i] */
    size_t n_prefix; /* how much of text the input ends with */
};

struct stop_matcher {
    struct stop stops[STOP_MATCHER_MAX_STOPS];
    int n_stops;
    char *held; /* input that is not yet given out, after n_given bytes that are */
    size_t n_held, n_given, capacity;
    size_t match; /* where in held the earliest complete match starts; SIZE_MAX: none */
};

static enum npu_status stop_init(struct stop *stop, const char *text, size_t length, struct npu_error *error)
{
    stop->text = malloc(length);
    stop->border = length <= SIZE_MAX / sizeof *stop->border ? malloc(length * sizeof *stop->border) : NULL;
    if (stop->text == NULL || stop->border == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "out of memory for a stop string of %zu bytes", length);
    memcpy(stop->text, text, length);
    stop->length = length;
    stop->border[0] = 0;
    for (size_t i = 1, n = 0; i < length; i++) {
        while (n > 0 && text[i] != text[n])
            n = stop->border[n - 1];
        n += text[i] == text[n];
        stop->border[i] = n;
    }
    return NPU_OK;
}

enum npu_status stop_matcher_create(struct stop_matcher **ret_matcher, char *const *stops, const size_t *lengths, int n,
                                    struct npu_error *error)
{
    if (n < 0 || n > STOP_MATCHER_MAX_STOPS)
        return npu_error_set(error, NPU_ERROR_INPUT, "%d stop strings, at most %d are possible", n,
                             STOP_MATCHER_MAX_STOPS);
    struct stop_matcher *matcher = calloc(1, sizeof *matcher);
    if (matcher == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "out of memory for stop strings");
    matcher->match = SIZE_MAX;
    for (int i = 0; i < n; i++) {
        enum npu_status status = lengths[i] > 0
                                     ? stop_init(&matcher->stops[matcher->n_stops++], stops[i], lengths[i], error)
                                     : npu_error_set(error, NPU_ERROR_INPUT, "stop string %d is empty", i + 1);
        if (status != NPU_OK) {
            stop_matcher_destroy(matcher);
            return status;
        }
    }
    *ret_matcher = matcher;
    return NPU_OK;
}

void stop_matcher_destroy(struct stop_matcher *matcher)
{
    if (matcher == NULL)
        return;
    for (int i = 0; i < matcher->n_stops; i++) {
        free(matcher->stops[i].text);
        free(matcher->stops[i].border);
    }
    free(matcher->held);
    free(matcher);
}

/* Moves one byte on; true: the input now ends with the whole stop. */
static bool stop_advance(struct stop *stop, char byte)
{
    if (stop->n_prefix == stop->length)
        stop->n_prefix = stop->border[stop->length - 1];
    while (stop->n_prefix > 0 && byte != stop->text[stop->n_prefix])
        stop->n_prefix = stop->border[stop->n_prefix - 1];
    stop->n_prefix += byte == stop->text[stop->n_prefix];
    return stop->n_prefix == stop->length;
}

static enum npu_status append(struct stop_matcher *matcher, const char *text, size_t length, struct npu_error *error)
{
    if (matcher->n_given > 0) {
        matcher->n_held -= matcher->n_given;
        memmove(matcher->held, matcher->held + matcher->n_given, matcher->n_held);
        if (matcher->match != SIZE_MAX)
            matcher->match -= matcher->n_given;
        matcher->n_given = 0;
    }
    if (length > matcher->capacity - matcher->n_held) {
        if (length > SIZE_MAX / 4 - matcher->n_held)
            return npu_error_set(error, NPU_ERROR_MEMORY, "out of memory for text that may be a stop string");
        size_t capacity = 2 * (matcher->n_held + length);
        char *held = realloc(matcher->held, capacity);
        if (held == NULL)
            return npu_error_set(error, NPU_ERROR_MEMORY, "out of memory for text that may be a stop string");
        matcher->held = held;
        matcher->capacity = capacity;
    }
    if (length > 0)
        memcpy(matcher->held + matcher->n_held, text, length);
    return NPU_OK;
}

/* Takes the byte at held[n_held]; returns where in held the earliest stop that may still complete starts. */
static size_t advance(struct stop_matcher *matcher)
{
    char byte = matcher->held[matcher->n_held++];
    size_t earliest = matcher->n_held;
    for (int i = 0; i < matcher->n_stops; i++) {
        struct stop *stop = &matcher->stops[i];
        bool complete = stop_advance(stop, byte);
        size_t start = matcher->n_held - stop->n_prefix;
        if (complete && start < matcher->match)
            matcher->match = start;
        if (!complete && start < earliest)
            earliest = start;
    }
    return earliest;
}

enum npu_status stop_matcher_push(struct stop_matcher *matcher, const char *text, size_t length, const char **ret_text,
                                  size_t *ret_length, bool *ret_stopped, struct npu_error *error)
{
    enum npu_status status = append(matcher, text, length, error);
    if (status != NPU_OK)
        return status;
    size_t certain = matcher->n_held;
    for (int i = 0; i < matcher->n_stops; i++) {
        size_t start = matcher->n_held - matcher->stops[i].n_prefix;
        certain = start < certain ? start : certain;
    }
    *ret_stopped = false;
    for (size_t i = 0; i < length && !*ret_stopped; i++) {
        certain = advance(matcher);
        /* A complete match is the answer unless a stop that started before it may still complete. */
        *ret_stopped = matcher->match <= certain && matcher->match != SIZE_MAX;
    }
    if (*ret_stopped)
        certain = matcher->match;
    *ret_text = certain > 0 ? matcher->held : "";
    *ret_length = matcher->n_given = certain;
    return NPU_OK;
}

void stop_matcher_flush(struct stop_matcher *matcher, const char **ret_text, size_t *ret_length, bool *ret_stopped)
{
    *ret_stopped = matcher->match != SIZE_MAX;
    size_t end = *ret_stopped ? matcher->match : matcher->n_held;
    *ret_text = end > matcher->n_given ? matcher->held + matcher->n_given : "";
    *ret_length = end - matcher->n_given;
    matcher->n_given = end;
}
