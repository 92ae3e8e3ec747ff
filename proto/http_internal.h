/* What the files of the HTTP server share. Not for others. */
#ifndef PROTO_HTTP_INTERNAL_H
#define PROTO_HTTP_INTERNAL_H

#include "proto/http_parser.h"
#include "proto/http_router.h"
#include "proto/http_server.h"

enum {
    HTTP_MAX_LISTENERS = 8,
    HTTP_READ_BYTES = 64 * 1024,
    HTTP_PENDING_BYTES = 64 * 1024, /* of pipelined requests; reading stops there */
    HTTP_OUTPUT_BYTES = 256 * 1024, /* queued; a pipelined request waits for less */
    HTTP_PROBE_MS = 5000, /* between questions whether a half-closed client is still there */
    HTTP_LINGER_STOPPING_MS = 200, /* instead of linger_timeout_ms once the server stops */
};

enum connection_state {
    CONNECTION_READING, /* between requests or inside one */
    CONNECTION_HANDLING, /* a handler has the request */
    CONNECTION_FLUSHING, /* the last answer is being written, then the sending side is shut */
    CONNECTION_LINGERING, /* shut; what the client still sends is dropped, so that no reset overtakes the answer */
};

struct http_connection {
    struct http_server *server;
    struct http_connection *next, *previous;
    union {
        uv_handle_t any;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } handle;
    bool is_unix;
    uv_timer_t timer;
    uv_shutdown_t shutdown;
    struct peer_watch *watch; /* NULL: none */
    int open_handles;
    enum connection_state state;
    bool reading, eof, closing;
    bool resume; /* pending bytes are to be looked at from the timer, not from inside a handler's call */
    bool processing; /* inside connection_receive */
    bool at_once; /* when all is written it closes, without a look at what the client still sends */
    bool peer_done; /* the client has closed its sending side */

    struct http_parser parser;
    struct http_match match;
    struct http_request *request; /* owned; HANDLING */
    char *pending; /* pipelined bytes */
    size_t pending_length, pending_capacity;

    uint64_t phase_ms; /* when this state, or this part of a request, began */
    uint64_t active_ms; /* the last byte from the client */
    uint64_t probe_ms;
    uint64_t written_bytes; /* given to libuv in all */
    uint64_t stall_bytes; /* of these, taken by the kernel when last looked at */
    uint64_t stall_ms; /* and when that was; 0: nothing is queued */
};

struct http_request {
    struct http_connection *connection;
    struct http_match match;
    bool head_only, begun, streamed, chunked, close;
    char *extra; /* header lines */
    size_t extra_length;
    size_t body_charge; /* of the budget, for a body that the handler has taken */
    struct http_budget *body_budget;
    const char *probe;
    void (*on_gone)(void *context);
    void *gone_context;
    void (*on_drained)(void *context);
    void *drained_context;
    size_t drained_bytes;
    uint64_t drain_began_ms;
    bool unread; /* closed because the client did not read */
};

struct http_listener {
    struct http_server *server;
    union {
        uv_handle_t any;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } handle;
    bool is_unix, open, accept_waits;
    char *address;
};

struct http_server {
    uv_loop_t *loop;
    struct http_server_options options;
    struct http_parser_limits limits;
    struct http_budget budget, large_budget;
    size_t large_body_bytes;
    struct http_router router;
    const struct api_keys *keys; /* or NULL */
    const char *open_path; /* that needs none */
    const char *const *origins; /* whose pages may read answers */
    int n_origins;
    bool any_origin;
    struct http_listener *listeners[HTTP_MAX_LISTENERS];
    int n_listeners, n_open_listeners;
    struct http_connection *connections;
    int n_connections;
    bool stopping, stop_timer_open;
    uv_timer_t stop_timer;
    void (*on_stopped)(void *context);
    void *stopped_context;
    char read_buffer[HTTP_READ_BYTES];
};

/* http_connection.c */
void connection_accept(struct http_listener *listener);
/* Closes at once; on_gone of a running request follows from the loop. */
void connection_close(struct http_connection *connection);
/* Copies what the kernel does not take at once. */
void connection_write(struct http_connection *connection, const uv_buf_t *buffers, int n_buffers);
size_t connection_queued(const struct http_connection *connection);
/* The request's on_drained has been set: its time begins. */
void connection_await_drain(struct http_connection *connection);
/* The request's answer is complete: frees the request and goes on with the connection. */
void connection_request_end(struct http_connection *connection);
bool connection_is_idle(const struct http_connection *connection);
/* For a connection without a request: writes what is queued, then closes. */
void connection_finish(struct http_connection *connection);
/* The server stops: ends the connection if it is idle, and lets those that have had their answers not wait for long. */
void connection_stop(struct http_connection *connection);

/* http_peer.c: a second look at the client's socket while the stream itself is not being read. */
struct peer_watch;
/* Calls on_change when the client's socket is closed or reset, or (until_shutdown) when it has shut its sending side.
 * NULL when the system has no descriptor left. */
struct peer_watch *peer_watch_create(uv_loop_t *loop, const uv_handle_t *stream, bool until_shutdown,
                                     void (*on_change)(void *context), void *context);
void peer_watch_close(struct peer_watch *watch, void (*on_closed)(void *context), void *context);
/* The socket is closed or reset: nobody will read an answer. */
bool peer_is_gone(const uv_handle_t *stream);

/* http_response.c */
void response_send_probe(struct http_request *request);
void request_destroy(struct http_request *request);

/* http_cors.c */
void cors_add_fields(struct http_request *request); /* to every answer */
void cors_add_preflight_fields(struct http_request *request); /* to the answer of OPTIONS, besides */

/* http_server.c */
void server_connection_closed(struct http_server *server, struct http_connection *connection);

/* http_address.c */
struct http_address {
    bool is_unix;
    char path[108];
    struct sockaddr_storage socket;
};
bool http_address_parse(struct http_address *address, const char *text, char *message, size_t message_bytes);
/* Whether the folder of a unix socket exists. */
bool http_address_has_folder(const struct http_address *address);
/* Removes a unix socket that nobody listens on any more; false when somebody does or it is something else. */
bool http_address_clear_stale(const struct http_address *address, char *message, size_t message_bytes);
/* "ADDRESS:PORT" of a bound handle, malloc'ed; NULL when memory is out. */
char *http_address_of(const uv_tcp_t *handle);

#endif
