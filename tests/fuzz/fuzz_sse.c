/* Any bytes as data of an event and as texts of a chat's answer: one event that a reader takes apart into what was put
 * in. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/chat_response.h"
#include "proto/sse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

/* Reads one event as the standard has it (section 9.2.6); its data, malloc'ed, with lines joined by LF. */
static char *read_event(const char *event, size_t length, size_t *ret_length)
{
    char *data = malloc(length + 1);
    require(data != NULL);
    size_t n = 0, at = 0;
    bool first = true;
    while (event[at] != '\n') {
        require(length - at > 6 && memcmp(event + at, "data: ", 6) == 0);
        at += 6;
        if (!first)
            data[n++] = '\n';
        first = false;
        for (; event[at] != '\n'; at++) {
            require(event[at] != '\r');
            data[n++] = event[at];
        }
        at++;
    }
    require(at + 1 == length);
    *ret_length = n;
    return data;
}

static size_t unify_line_ends(char *text, size_t length)
{
    size_t n = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\r' && i + 1 < length && text[i + 1] == '\n')
            continue;
        text[n++] = text[i] == '\r' ? '\n' : text[i];
    }
    return n;
}

static void check_event(const char *bytes, size_t size)
{
    size_t length, n;
    char *event = sse_event(NULL, bytes, size, &length), *copy = malloc(size + 1);
    require(event != NULL && copy != NULL && event[length] == '\0');
    if (size > 0)
        memcpy(copy, bytes, size);
    size_t copied = unify_line_ends(copy, size);
    char *data = read_event(event, length, &n);
    require(n == copied && memcmp(data, copy, n) == 0);
    free(data);
    free(copy);
    free(event);
}

/* The text in a frame's JSON is the one that was put in, if it was text. */
static void check_frame(const struct chat_delta *delta, const char *bytes, size_t size)
{
    struct response_head head = {.id = "chatcmpl-1", .model = "m", .fingerprint = "f"};
    size_t length, n;
    char *frame = chat_chunk_frame(&head, delta, true, NULL, NULL, &length);
    require(frame != NULL);
    char *json = read_event(frame, length, &n);
    json_t *value = json_loadb(json, n, JSON_ALLOW_NUL, NULL);
    require(value != NULL);
    const json_t *got = json_object_get(json_array_get(json_object_get(value, "choices"), 0), "delta");
    const json_t *text = json_object_get(got, "content");
    if (delta->call >= 0)
        text = json_object_get(json_object_get(json_array_get(json_object_get(got, "tool_calls"), 0), "function"),
                               "arguments");
    json_t *expected = json_stringn(bytes, size);
    require(json_is_string(text) && (expected == NULL || json_equal(text, expected)));
    json_decref(expected);
    json_decref(value);
    free(json);
    free(frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bytes = (const char *)data;
    struct response_token token = {.text = bytes, .length = size, .has_logprob = true, .logprob = -1};
    struct chat_delta content = {.call = -1, .content = bytes, .length = size, .tokens = &token, .n_tokens = 1};
    struct chat_delta call = {.call = 1, .arguments = bytes, .arguments_length = size, .finish_reason = "stop"};
    check_event(bytes, size);
    check_frame(&content, bytes, size);
    check_frame(&call, bytes, size);
    return 0;
}
