#include "proto/sse.h"

#include <stdlib.h>
#include <string.h>

static const char prefix[] = "data: ";

static size_t put(char *out, const char *text, size_t length)
{
    memcpy(out, text, length);
    return length;
}

char *sse_event(const char *name, const char *data, size_t length, size_t *ret_length)
{
    size_t n_lines = 1, name_length = name != NULL ? strlen(name) : 0;
    for (size_t i = 0; i < length; i++)
        n_lines += data[i] == '\n' || data[i] == '\r';
    char *event = malloc(strlen("event: ") + name_length + 1 + n_lines * (sizeof prefix - 1 + 1) + length + 2);
    if (event == NULL)
        return NULL;
    size_t n = 0;
    if (name != NULL) {
        n += put(event + n, "event: ", 7);
        n += put(event + n, name, name_length);
        event[n++] = '\n';
    }
    n += put(event + n, prefix, sizeof prefix - 1);
    for (size_t i = 0; i < length; i++) {
        if (data[i] != '\n' && data[i] != '\r') {
            event[n++] = data[i];
            continue;
        }
        if (data[i] == '\r' && i + 1 < length && data[i + 1] == '\n')
            i++;
        event[n++] = '\n';
        n += put(event + n, prefix, sizeof prefix - 1);
    }
    event[n++] = '\n';
    event[n++] = '\n';
    event[n] = '\0';
    *ret_length = n;
    return event;
}
