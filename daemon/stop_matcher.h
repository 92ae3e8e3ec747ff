/* Finds stop strings in a text that comes in pieces, and holds back exactly the text that may still turn out to be the
 * beginning of one. The stop that starts earliest in the text wins. The result depends on the text alone, not on how it
 * was cut. Knuth-Morris-Pratt per stop: time linear in text and stops. One thread at a time. */
#ifndef DAEMON_STOP_MATCHER_H
#define DAEMON_STOP_MATCHER_H

#include <stdbool.h>
#include <stddef.h>

#include "npu/error.h"

enum {
    STOP_MATCHER_MAX_STOPS = 16,
};

struct stop_matcher;

/* Copies the stops: n of them, 0 to STOP_MATCHER_MAX_STOPS, none empty (NPU_ERROR_INPUT names the one that is). */
enum npu_status stop_matcher_create(struct stop_matcher **ret_matcher, char *const *stops, const size_t *lengths, int n,
                                    struct npu_error *error);
void stop_matcher_destroy(struct stop_matcher *matcher); /* NULL is fine */

/* Takes the next piece of text. *ret_text and *ret_length: text that is now certain to stand before any stop, a view that
 * is valid until the next call. *ret_stopped: a stop was found; the text returned is then the last before it, and the
 * matcher takes no more. Fails only when memory is out. */
enum npu_status stop_matcher_push(struct stop_matcher *matcher, const char *text, size_t length, const char **ret_text,
                                  size_t *ret_length, bool *ret_stopped, struct npu_error *error);

/* The text has ended: what was held back is returned, up to a stop if one was found in it (a later one, while an earlier
 * one was being awaited). */
void stop_matcher_flush(struct stop_matcher *matcher, const char **ret_text, size_t *ret_length, bool *ret_stopped);

#endif
