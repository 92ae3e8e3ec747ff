/* An HTTP/1.1 server on libuv. It routes whole requests to handlers, which answer at once or later, whole or streamed.
 *
 * Thread: every function here, and every callback, on the loop's thread.
 *
 * A handler gets a request. The request is valid until the handler ends it (http_response_send, http_response_end,
 * http_response_abort) or until its on_gone callback returns, whichever comes first; exactly one of the two happens.
 * No callback is ever called from inside a function of this header.
 *
 * Noticing that a client went away while nothing is written to it: a reset is seen at once. The end of the client's
 * stream alone may also be a client that closed only its sending side and waits for the answer, so the server asks the
 * peer's kernel: it sends bytes that a living client ignores (an interim "100 Continue" before the answer, the probe of
 * http_response_set_probe inside a streamed one); a closed socket answers them with a reset. HTTP/1.0 knows no interim
 * answer: such clients are noticed at the first write. On unix sockets the kernel tells the two apart.
 *
 * Bounds: head, body, connections, bytes of all bodies together, pipelined bytes, and time for every phase. Only the
 * answer of a handler is not bounded here: it watches http_response_queued. */
#ifndef PROTO_HTTP_SERVER_H
#define PROTO_HTTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "proto/api_error.h"

struct api_keys;
struct http_server;
struct http_request;

struct http_server_options {
    size_t head_bytes; /* of one request; more is 431 */
    size_t body_bytes; /* of one request; more is 413 */
    size_t total_body_bytes; /* of all requests until they end; more is 503 */
    int connections; /* open at once; more wait in the listen queue */
    uint64_t head_timeout_ms; /* from a request's first byte to the end of its head */
    uint64_t body_timeout_ms; /* for the body, plus its length over body_bytes_per_s */
    uint64_t body_bytes_per_s; /* the slowest sender that is still waited for */
    uint64_t idle_timeout_ms; /* between requests of a connection */
    uint64_t write_timeout_ms; /* without a byte taken by the client while some wait; also the most that
                                  http_response_on_drained waits */
    uint64_t linger_timeout_ms; /* silence for which a closing connection is still listened to */
    uint64_t linger_total_ms; /* at most, however much the client still sends */
    /* Called once an answer was begun, also for those the server gives itself; may be NULL. method and path are "-"
     * when the request could not be read. */
    void (*on_response)(const char *method, const char *path, int status, void *context);
    void *context;
};

void http_server_options_init(struct http_server_options *options); /* the defaults */

/* NULL when memory is out. */
struct http_server *http_server_create(uv_loop_t *loop, const struct http_server_options *options);

/* After http_server_stop has called on_stopped, or when nothing was listened on. NULL is fine. */
void http_server_destroy(struct http_server *server);

typedef void (*http_handler)(struct http_request *request, void *context);

enum http_body {
    HTTP_BODY_NONE, /* a body is read and ignored */
    HTTP_BODY_JSON, /* a body must be declared (else 411) and be JSON by its Content-Type, if it has one (else 415) */
    HTTP_BODY_OPTIONAL_JSON, /* the same, but there need be none */
    HTTP_BODY_FILE, /* as HTTP_BODY_JSON, for application/octet-stream and with limits of its own */
};

/* Adds a route. pattern is a path whose segments in braces match anything, e.g. "/v1/sessions/{id}/fork"; method and
 * pattern must outlive the server. HEAD is served by the GET route, OPTIONS and 405 by the list of routes.
 * False when memory is out. */
bool http_server_route(struct http_server *server, const char *method, const char *pattern, enum http_body body,
                       http_handler handler, void *context);

/* From now on every request but OPTIONS and those to open_path needs one of the keys ("Authorization: Bearer KEY"), else it
 * is answered with 401 before its body is read. Borrowed; NULL: no key is needed. */
void http_server_require_keys(struct http_server *server, const struct api_keys *keys, const char *open_path);

/* The limit for bodies of HTTP_BODY_FILE routes, each and all together; as those of other bodies until this is called. */
void http_server_limit_files(struct http_server *server, size_t bytes);

/* Whether text is an address that can be asked for; if not, message says what one is. */
bool http_server_check_address(const char *text, char *message, size_t message_bytes);

/* Starts listening on "ADDRESS:PORT" (numeric; IPv6 in brackets; port 0 lets the system choose) or "unix:PATH" (a stale
 * socket is replaced). On failure message says what is wrong. May be called several times. */
bool http_server_listen(struct http_server *server, const char *address, char *message, size_t message_bytes);

/* The n-th address that is listened on, in the same form with the real port; NULL past the last. */
const char *http_server_address(const struct http_server *server, int n);

int http_server_connections(const struct http_server *server);

/* Stops accepting, closes idle connections, lets requests that handlers have finish for grace_ms, then closes the rest
 * (their on_gone is called). on_stopped is called once every handle is closed. May be called again to shorten the
 * grace; on_stopped of the first call counts. */
void http_server_stop(struct http_server *server, uint64_t grace_ms, void (*on_stopped)(void *context), void *context);

/* ---- requests ---- */

const char *http_request_method(const struct http_request *request); /* "GET" also for HEAD */
const char *http_request_path(const struct http_request *request); /* as sent, without the query */
const char *http_request_query(const struct http_request *request); /* as sent, or NULL */
const char *http_request_header(const struct http_request *request, const char *name); /* NULL: absent */
const char *http_request_parameter(const struct http_request *request, const char *name); /* decoded; NULL: none */

/* The body becomes the caller's (malloc'ed, NUL-terminated); NULL when memory is out. Once per request. */
char *http_request_take_body(struct http_request *request, size_t *ret_length);

/* What the handler wants back in its callbacks. */
void http_request_set_on_gone(struct http_request *request, void (*on_gone)(void *context), void *context);

/* ---- responses ---- */

/* Adds a field to the response; before it begins. Values with control characters are not sent. */
void http_response_add_header(struct http_request *request, const char *name, const char *value);

/* Whole answer; copies body; ends the request. */
void http_response_send(struct http_request *request, int status, const char *content_type, const void *body,
                        size_t length);
void http_response_send_error(struct http_request *request, const struct api_error *error);

/* Streamed answer: begin, any number of writes (copied), end. */
void http_response_begin(struct http_request *request, int status, const char *content_type);
void http_response_write(struct http_request *request, const void *data, size_t length);
void http_response_end(struct http_request *request);

/* Ends the request and breaks the connection, so that the client sees that the answer is not whole. */
void http_response_abort(struct http_request *request);

/* Bytes that the client's side has not taken yet. */
size_t http_response_queued(const struct http_request *request);

/* Calls on_drained once, when at most low_bytes are queued. False when that is so already (no call follows). A client
 * that has not read so much within write_timeout_ms loses its connection, so that on_gone is called instead. */
bool http_response_on_drained(struct http_request *request, size_t low_bytes, void (*on_drained)(void *context),
                              void *context);

/* Inside on_gone: the connection was closed because the client did not read in time. */
bool http_request_was_unread(const struct http_request *request);

/* Content that a client ignores (a comment of server-sent events), to find out whether it is still there. The bytes
 * must outlive the request. */
void http_response_set_probe(struct http_request *request, const char *probe);

#endif
