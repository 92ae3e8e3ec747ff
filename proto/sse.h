/* Server-sent events (WHATWG HTML, section "Server-sent events"). Thread: any. */
#ifndef PROTO_SSE_H
#define PROTO_SSE_H

#include <stddef.h>

#define SSE_CONTENT_TYPE "text/event-stream; charset=utf-8"
#define SSE_DONE "data: [DONE]\n\n" /* the end of an OpenAI stream */
#define SSE_COMMENT ":\n\n" /* ignored by every reader */

/* One event; name may be NULL. data may hold line ends (CR, LF, CR LF): each line becomes a data line of its own, so
 * that nothing in it can end the event. malloc'ed, NUL-terminated; NULL when memory is out. */
char *sse_event(const char *name, const char *data, size_t length, size_t *ret_length);

#endif
