#include "daemon/utf8_stream.h"

#include <string.h>

#include "daemon/utf8.h"

static const char replacement[3] = {(char)0xef, (char)0xbf, (char)0xbd}; /* U+FFFD */

void utf8_stream_init(struct utf8_stream *stream)
{
    stream->n_pending = 0;
}

static size_t put(char *out, size_t at, const char *bytes, size_t length)
{
    memcpy(out + at, bytes, length);
    return at + length;
}

/* Completes or gives up the pending start with the first of bytes; returns how many of them it took. */
static size_t resume(struct utf8_stream *stream, const char *bytes, size_t length, char *out, size_t *written)
{
    size_t taken = 0;
    while (stream->n_pending > 0 && taken < length) {
        char character[4];
        size_t n_character;
        memcpy(character, stream->pending, stream->n_pending);
        character[stream->n_pending] = bytes[taken];
        switch (utf8_look(character, stream->n_pending + 1, &n_character)) {
        case UTF8_CHARACTER:
            *written = put(out, *written, character, n_character);
            stream->n_pending = 0;
            taken++;
            break;
        case UTF8_INCOMPLETE:
            stream->pending[stream->n_pending++] = bytes[taken++];
            break;
        case UTF8_INVALID: /* the pending bytes are the maximal subpart; this byte starts something new */
            *written = put(out, *written, replacement, sizeof replacement);
            stream->n_pending = 0;
            break;
        }
    }
    return taken;
}

size_t utf8_stream_push(struct utf8_stream *stream, const char *bytes, size_t length, char *out)
{
    size_t written = 0;
    size_t at = resume(stream, bytes, length, out, &written);
    while (at < length) {
        size_t n;
        switch (utf8_look(bytes + at, length - at, &n)) {
        case UTF8_CHARACTER:
            written = put(out, written, bytes + at, n);
            break;
        case UTF8_INVALID:
            written = put(out, written, replacement, sizeof replacement);
            break;
        case UTF8_INCOMPLETE:
            memcpy(stream->pending, bytes + at, n);
            stream->n_pending = n;
            break;
        }
        at += n;
    }
    return written;
}

size_t utf8_stream_flush(struct utf8_stream *stream, char *out)
{
    if (stream->n_pending == 0)
        return 0;
    stream->n_pending = 0;
    return put(out, 0, replacement, sizeof replacement);
}
