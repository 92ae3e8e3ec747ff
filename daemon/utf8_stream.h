/* The bytes of a model's tokens in, valid UTF-8 out: a character split over tokens waits until it is whole, and bytes
 * that cannot become one come out as U+FFFD, one per maximal subpart. The output depends on the bytes alone, not on how
 * they were cut. No allocation; the caller owns the struct and may copy it. */
#ifndef DAEMON_UTF8_STREAM_H
#define DAEMON_UTF8_STREAM_H

#include <stddef.h>

struct utf8_stream {
    char pending[3]; /* the start of a character */
    size_t n_pending;
};

/* What a push of length bytes can give at most. */
#define UTF8_STREAM_OUTPUT_BYTES(length) (3 * (length) + 3)

void utf8_stream_init(struct utf8_stream *stream);

/* Writes to out, which has room for UTF8_STREAM_OUTPUT_BYTES(length); returns how many bytes. */
size_t utf8_stream_push(struct utf8_stream *stream, const char *bytes, size_t length, char *out);

/* The end: what still waits becomes one U+FFFD. Writes at most 3 bytes; returns how many. */
size_t utf8_stream_flush(struct utf8_stream *stream, char *out);

#endif
