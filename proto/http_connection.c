/* One client's connection: reading, pipelining, timeouts, closing. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "proto/api_keys.h"
#include "proto/http_internal.h"

static void arm(struct http_connection *connection);
static void look_at_peer(struct http_connection *connection);

static uint64_t now_ms(const struct http_connection *connection)
{
    return uv_now(connection->server->loop);
}

static bool fatal_memory(struct http_connection *connection)
{
    connection_close(connection);
    return false;
}

/* ---- closing ---- */

static void release_handle(struct http_connection *connection)
{
    if (--connection->open_handles > 0)
        return;
    struct http_request *request = connection->request;
    if (request != NULL) {
        if (request->on_gone != NULL)
            request->on_gone(request->gone_context);
        /* The callback may have ended the request, as a handler that has just computed its answer would. */
        if (connection->request != NULL)
            request_destroy(connection->request);
        connection->request = NULL;
    }
    http_parser_clear(&connection->parser);
    free(connection->pending);
    server_connection_closed(connection->server, connection);
    free(connection);
}

static void on_handle_closed(uv_handle_t *handle)
{
    release_handle(handle->data);
}

static void on_watch_closed(void *context)
{
    release_handle(context);
}

static void stop_watch(struct http_connection *connection)
{
    if (connection->watch == NULL)
        return;
    peer_watch_close(connection->watch, on_watch_closed, connection);
    connection->watch = NULL;
}

void connection_close(struct http_connection *connection)
{
    if (connection->closing)
        return;
    connection->closing = true;
    stop_watch(connection);
    uv_close(&connection->handle.any, on_handle_closed);
    uv_close((uv_handle_t *)&connection->timer, on_handle_closed);
}

/* ---- reading on and off ---- */

static void on_read(uv_stream_t *stream, ssize_t n_read, const uv_buf_t *buffer);

/* One buffer serves all connections: on_read is through with it before the next read. */
static void on_allocate(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buffer)
{
    struct http_connection *connection = handle->data;
    (void)suggested;
    *ret_buffer = uv_buf_init(connection->server->read_buffer, HTTP_READ_BYTES);
}

static void start_reading(struct http_connection *connection)
{
    if (connection->reading || connection->eof || connection->closing)
        return;
    stop_watch(connection);
    if (uv_read_start(&connection->handle.stream, on_allocate, on_read) == 0)
        connection->reading = true;
    else
        connection_close(connection);
}

static void stop_reading(struct http_connection *connection)
{
    if (connection->reading)
        uv_read_stop(&connection->handle.stream);
    connection->reading = false;
}

/* ---- writing ---- */

struct write {
    uv_write_t request;
    struct http_connection *connection;
    char data[];
};

size_t connection_queued(const struct http_connection *connection)
{
    return connection->closing ? 0 : uv_stream_get_write_queue_size(&connection->handle.stream);
}

static void on_written(uv_write_t *write_request, int status)
{
    struct write *write = (struct write *)write_request;
    struct http_connection *connection = write->connection;
    free(write);
    if (connection->closing)
        return;
    if (status < 0) {
        connection_close(connection);
        return;
    }
    struct http_request *request = connection->request;
    if (request != NULL) {
        if (request->on_drained != NULL && connection_queued(connection) <= request->drained_bytes) {
            void (*on_drained)(void *context) = request->on_drained;
            request->on_drained = NULL;
            on_drained(request->drained_context);
        }
    } else if (connection->state == CONNECTION_READING && connection->pending_length > 0 &&
               connection_queued(connection) <= HTTP_OUTPUT_BYTES) {
        connection->resume = true;
    }
    arm(connection);
}

void connection_write(struct http_connection *connection, const uv_buf_t *buffers, int n_buffers)
{
    if (connection->closing)
        return;
    size_t total = 0, taken = 0;
    for (int i = 0; i < n_buffers; i++)
        total += buffers[i].len;
    connection->written_bytes += total;
    if (connection_queued(connection) == 0) {
        int result = uv_try_write(&connection->handle.stream, buffers, (unsigned)n_buffers);
        if (result >= 0) {
            taken = (size_t)result;
        } else if (result != UV_EAGAIN) {
            connection_close(connection);
            return;
        }
    }
    if (taken == total)
        return;
    struct write *write = malloc(sizeof *write + total - taken);
    if (write == NULL) {
        connection_close(connection);
        return;
    }
    write->connection = connection;
    size_t length = 0, skip = taken;
    for (int i = 0; i < n_buffers; i++) {
        size_t here = skip < buffers[i].len ? skip : buffers[i].len;
        skip -= here;
        if (here == buffers[i].len)
            continue;
        memcpy(write->data + length, buffers[i].base + here, buffers[i].len - here);
        length += buffers[i].len - here;
    }
    uv_buf_t rest = uv_buf_init(write->data, (unsigned)length);
    if (uv_write(&write->request, &connection->handle.stream, &rest, 1, on_written) != 0) {
        free(write);
        connection_close(connection);
        return;
    }
    arm(connection);
}

void connection_await_drain(struct http_connection *connection)
{
    connection->request->drain_began_ms = now_ms(connection);
    arm(connection);
}

/* ---- ending requests and connections ---- */

static void on_shut(uv_shutdown_t *shutdown, int status)
{
    struct http_connection *connection = shutdown->handle->data;
    if (connection->closing)
        return;
    if (status < 0 || connection->eof || connection->at_once) {
        connection_close(connection);
        return;
    }
    connection->state = CONNECTION_LINGERING;
    connection->phase_ms = connection->active_ms = now_ms(connection);
    start_reading(connection);
    arm(connection);
}

void connection_finish(struct http_connection *connection)
{
    if (connection->closing)
        return;
    connection->state = CONNECTION_FLUSHING;
    free(connection->pending);
    connection->pending = NULL;
    connection->pending_length = connection->pending_capacity = 0;
    if (uv_shutdown(&connection->shutdown, &connection->handle.stream, on_shut) != 0) {
        connection_close(connection);
        return;
    }
    start_reading(connection); /* and drop */
    arm(connection);
}

void connection_stop(struct http_connection *connection)
{
    if (connection_is_idle(connection)) {
        connection->at_once = true; /* nothing of the client's is under way that could make it miss the last answer */
        connection_finish(connection);
    }
    arm(connection); /* those that linger have less time now */
}

void connection_request_end(struct http_connection *connection)
{
    struct http_request *request = connection->request;
    bool keep = !request->close && !connection->server->stopping;
    connection->request = NULL;
    request_destroy(request);
    if (connection->closing)
        return;
    if (!keep) {
        connection_finish(connection);
        return;
    }
    connection->state = CONNECTION_READING;
    connection->phase_ms = now_ms(connection);
    http_parser_next(&connection->parser);
    if (!connection->processing)
        connection->resume = true;
    arm(connection);
}

bool connection_is_idle(const struct http_connection *connection)
{
    return !connection->closing && connection->state == CONNECTION_READING && connection->pending_length == 0 &&
           http_parser_is_idle(&connection->parser);
}

/* ---- requests ---- */

static struct http_request *begin_request(struct http_connection *connection)
{
    struct http_request *request = calloc(1, sizeof *request);
    if (request == NULL) {
        connection_close(connection);
        return NULL;
    }
    const struct http_head *head = &connection->parser.head;
    request->connection = connection;
    request->match = connection->match;
    request->head_only = head->method != NULL && strcmp(head->method, "HEAD") == 0;
    request->chunked = head->minor == 1;
    request->close = !head->keep_alive || !connection->parser.reusable;
    connection->request = request;
    connection->state = CONNECTION_HANDLING;
    connection->probe_ms = 0;
    return request;
}

/* close: the request's end is not known or not waited for, so nothing more can be read from this connection. */
static void answer_error(struct http_connection *connection, const struct api_error *error, bool close)
{
    struct http_request *request = begin_request(connection);
    if (request == NULL)
        return;
    request->close |= close;
    if (error->kind == API_ERROR_METHOD_NOT_ALLOWED)
        http_response_add_header(request, "Allow", request->match.allow);
    if (error->kind == API_ERROR_UNAUTHORIZED) /* RFC 6750, 3 */
        http_response_add_header(request, "WWW-Authenticate", "Bearer realm=\"npud\"");
    if (error->kind == API_ERROR_OVERLOADED || error->kind == API_ERROR_STOPPING)
        http_response_add_header(request, "Retry-After", "1");
    http_response_send_error(request, error);
}

static bool is_type(const char *content_type, const char *wanted)
{
    size_t length = strcspn(content_type, "; \t");
    return length == strlen(wanted) && strncasecmp(content_type, wanted, length) == 0;
}

static bool check_body(const struct http_head *head, enum http_body body, struct api_error *error)
{
    if (body == HTTP_BODY_NONE || (body == HTTP_BODY_OPTIONAL_JSON && !head->chunked && head->content_length == 0))
        return true;
    if (!head->has_length)
        return api_error_set(error, API_ERROR_LENGTH_REQUIRED, NULL,
                             "a body is required: send Content-Length or Transfer-Encoding: chunked");
    const char *type = http_head_find(head, "content-type"), *coding = http_head_find(head, "content-encoding");
    const char *wanted = body == HTTP_BODY_FILE ? "application/octet-stream" : "application/json";
    if (type != NULL && type[0] != '\0' && !is_type(type, wanted))
        return api_error_set(error, API_ERROR_UNSUPPORTED_MEDIA_TYPE, NULL, "Content-Type must be %s, not %.100s",
                             wanted, type);
    if (coding != NULL && strcasecmp(coding, "identity") != 0)
        return api_error_set(error, API_ERROR_UNSUPPORTED_MEDIA_TYPE, NULL,
                             "Content-Encoding %.100s is not supported; send the body as it is", coding);
    return true;
}

static bool check_key(const struct http_server *server, const struct http_head *head, struct api_error *error)
{
    if (server->keys == NULL || strcmp(head->method, "OPTIONS") == 0 || strcmp(head->path, server->open_path) == 0)
        return true;
    const char *authorization = http_head_find(head, "authorization");
    if (authorization == NULL)
        return api_error_set(error, API_ERROR_UNAUTHORIZED, NULL,
                             "an API key is required: send it as Authorization: Bearer KEY");
    const char *key = api_keys_bearer(authorization);
    if (key == NULL)
        return api_error_set(error, API_ERROR_UNAUTHORIZED, NULL, "Authorization must have the form Bearer KEY");
    return api_keys_have(server->keys, key) ||
           api_error_set(error, API_ERROR_UNAUTHORIZED, NULL, "the API key is not one that this server accepts");
}

/* What can be said of a request by its head alone. */
static bool check_route(struct http_connection *connection, struct api_error *error)
{
    const struct http_head *head = &connection->parser.head;
    struct http_match *match = &connection->match;
    http_router_find(&connection->server->router, head->method, head->path, match);
    if (connection->server->stopping)
        return api_error_set(error, API_ERROR_STOPPING, NULL, "the server is stopping");
    if (!check_key(connection->server, head, error))
        return false;
    if (strcmp(head->method, "OPTIONS") == 0 && match->path_known)
        return true;
    if (!match->path_known)
        return api_error_set(error, API_ERROR_NOT_FOUND, NULL, "there is nothing at %.200s", head->path);
    if (match->route == NULL)
        return api_error_set(error, API_ERROR_METHOD_NOT_ALLOWED, NULL, "%s is not served at %.200s; use %s",
                             head->method, head->path, match->allow);
    return check_body(head, match->route->body, error);
}

static void on_head(struct http_connection *connection, size_t bytes_left)
{
    const struct http_head *head = &connection->parser.head;
    bool has_body = head->chunked || head->content_length > 0;
    struct api_error error;
    connection->phase_ms = now_ms(connection);
    if (!has_body)
        return;
    if (!check_route(connection, &error)) {
        answer_error(connection, &error, true);
        return;
    }
    struct http_server *server = connection->server;
    const struct http_route *route = connection->match.route;
    if (route != NULL && route->body == HTTP_BODY_FILE)
        http_parser_set_body_limit(&connection->parser, server->large_body_bytes, &server->large_budget);
    if (head->expects_continue && bytes_left == 0 && head->content_length <= connection->parser.body_limit) {
        uv_buf_t interim = uv_buf_init((char *)"HTTP/1.1 100 Continue\r\n\r\n", 25);
        connection_write(connection, &interim, 1);
    }
}

static void on_request(struct http_connection *connection)
{
    struct api_error error;
    if (!check_route(connection, &error)) {
        answer_error(connection, &error, false);
        return;
    }
    struct http_request *request = begin_request(connection);
    if (request == NULL)
        return;
    if (request->match.route == NULL || strcmp(connection->parser.head.method, "OPTIONS") == 0) {
        http_response_add_header(request, "Allow", request->match.allow);
        cors_add_preflight_fields(request);
        http_response_send(request, 204, NULL, NULL, 0);
        return;
    }
    request->match.route->handler(request, request->match.route->context);
    if (connection->request != NULL && connection->peer_done)
        look_at_peer(connection);
}

/* ---- received bytes ---- */

static bool keep_pending(struct http_connection *connection, const char *data, size_t length)
{
    if (length == 0)
        return true;
    size_t needed = connection->pending_length + length;
    if (needed > connection->pending_capacity) {
        char *grown = realloc(connection->pending, needed);
        if (grown == NULL)
            return fatal_memory(connection);
        connection->pending = grown;
        connection->pending_capacity = needed;
    }
    memcpy(connection->pending + connection->pending_length, data, length);
    connection->pending_length = needed;
    if (connection->pending_length >= HTTP_PENDING_BYTES) {
        stop_reading(connection);
        look_at_peer(connection);
    }
    return true;
}

/* Takes requests out of the bytes as long as each is answered at once; the rest becomes pending. */
static void connection_receive(struct http_connection *connection, const char *data, size_t length)
{
    connection->processing = true;
    bool at_head_end = false;
    while (!connection->closing && connection->state == CONNECTION_READING && (length > 0 || at_head_end)) {
        bool was_idle = http_parser_is_idle(&connection->parser);
        if (was_idle && connection_queued(connection) > HTTP_OUTPUT_BYTES)
            break;
        size_t consumed;
        at_head_end = false;
        switch (http_parser_feed(&connection->parser, data, length, &consumed)) {
        case HTTP_PARSER_MORE:
            break;
        case HTTP_PARSER_HEAD:
            at_head_end = true;
            on_head(connection, length - consumed);
            break;
        case HTTP_PARSER_DONE:
            on_request(connection);
            break;
        case HTTP_PARSER_ERROR:
            answer_error(connection, &connection->parser.error, true);
            break;
        }
        if (was_idle && connection->state == CONNECTION_READING && http_parser_in_head(&connection->parser))
            connection->phase_ms = now_ms(connection);
        data += consumed;
        length -= consumed;
    }
    connection->processing = false;
    if (!connection->closing && connection->state <= CONNECTION_HANDLING)
        keep_pending(connection, data, length);
}

/* The client's stream has ended and no request is being handled. */
static void on_quiet_end(struct http_connection *connection)
{
    if (http_parser_is_idle(&connection->parser)) {
        connection_finish(connection);
        return;
    }
    struct api_error error;
    api_error_set(&error, API_ERROR_MALFORMED, NULL, "the connection ended inside the request");
    answer_error(connection, &error, true);
}

static void resume(struct http_connection *connection)
{
    char *bytes = connection->pending;
    size_t length = connection->pending_length;
    connection->pending = NULL;
    connection->pending_length = connection->pending_capacity = 0;
    connection_receive(connection, bytes, length);
    free(bytes);
    if (connection->closing)
        return;
    if (connection->pending_length < HTTP_PENDING_BYTES)
        start_reading(connection);
    if (connection->eof && connection->state == CONNECTION_READING && connection->pending_length == 0)
        on_quiet_end(connection);
}

static void on_read(uv_stream_t *stream, ssize_t n_read, const uv_buf_t *buffer)
{
    struct http_connection *connection = stream->data;
    if (n_read == 0 || connection->closing)
        return;
    if (n_read < 0 && n_read != UV_EOF) {
        connection_close(connection);
        return;
    }
    connection->active_ms = now_ms(connection);
    if (n_read == UV_EOF) {
        stop_reading(connection);
        connection->eof = connection->peer_done = true;
        if (connection->state == CONNECTION_LINGERING)
            connection_close(connection);
        else if (connection->state == CONNECTION_HANDLING)
            look_at_peer(connection);
        else if (connection->state == CONNECTION_READING && connection->pending_length == 0)
            on_quiet_end(connection);
    } else if (connection->state == CONNECTION_HANDLING || connection->pending_length > 0 || connection->resume) {
        keep_pending(connection, buffer->base, (size_t)n_read);
    } else if (connection->state == CONNECTION_READING) {
        connection_receive(connection, buffer->base, (size_t)n_read);
    }
    arm(connection);
}

/* ---- the client's other end ---- */

static void on_peer_change(void *context)
{
    struct http_connection *connection = context;
    if (connection->closing)
        return;
    if (peer_is_gone(&connection->handle.any)) {
        connection_close(connection);
        return;
    }
    /* It has shut its sending side behind bytes that are not read yet. */
    connection->peer_done = true;
    stop_watch(connection);
    look_at_peer(connection);
    arm(connection);
}

/* While a request is handled and reading has ended or stopped: finds out whether anybody waits for the answer. */
static void look_at_peer(struct http_connection *connection)
{
    if (connection->closing || connection->request == NULL || connection->reading)
        return;
    if (peer_is_gone(&connection->handle.any)) {
        connection_close(connection);
        return;
    }
    if (connection->watch == NULL) {
        connection->watch = peer_watch_create(connection->server->loop, &connection->handle.any, !connection->peer_done,
                                              on_peer_change, connection);
        if (connection->watch == NULL) {
            connection_close(connection);
            return;
        }
        connection->open_handles++;
    }
    uint64_t now = now_ms(connection);
    /* A client that closed behind a full receive window cannot even send its end of stream, so it is asked as well. */
    if (!connection->is_unix && (connection->probe_ms == 0 || now >= connection->probe_ms + HTTP_PROBE_MS)) {
        connection->probe_ms = now;
        response_send_probe(connection->request);
    }
}

/* ---- time ---- */

static uint64_t reading_deadline(const struct http_connection *connection)
{
    const struct http_server_options *options = &connection->server->options;
    if (http_parser_is_idle(&connection->parser))
        return connection->phase_ms + options->idle_timeout_ms;
    if (http_parser_in_head(&connection->parser))
        return connection->phase_ms + options->head_timeout_ms;
    return connection->phase_ms + options->body_timeout_ms +
           connection->parser.body_length * 1000 / options->body_bytes_per_s;
}

static uint64_t lingering_deadline(const struct http_connection *connection)
{
    const struct http_server_options *options = &connection->server->options;
    uint64_t total = connection->phase_ms + options->linger_total_ms;
    uint64_t silence = connection->active_ms + options->linger_timeout_ms;
    if (connection->server->stopping && options->linger_timeout_ms > HTTP_LINGER_STOPPING_MS)
        silence = connection->active_ms + HTTP_LINGER_STOPPING_MS;
    return total < silence ? total : silence;
}

/* UINT64_MAX: nothing is waited for. */
static uint64_t next_deadline(struct http_connection *connection)
{
    uint64_t deadline = UINT64_MAX;
    if (connection->state == CONNECTION_READING)
        deadline = reading_deadline(connection);
    else if (connection->state == CONNECTION_LINGERING)
        deadline = lingering_deadline(connection);
    else if (connection->state == CONNECTION_HANDLING && !connection->reading && !connection->is_unix)
        deadline = connection->probe_ms + HTTP_PROBE_MS;

    const struct http_request *request = connection->request;
    uint64_t write_timeout_ms = connection->server->options.write_timeout_ms;
    if (request != NULL && request->on_drained != NULL && request->drain_began_ms + write_timeout_ms < deadline)
        deadline = request->drain_began_ms + write_timeout_ms;
    size_t queued = connection_queued(connection);
    uint64_t taken = connection->written_bytes - queued;
    if (queued == 0) {
        connection->stall_ms = 0;
        return deadline;
    }
    if (connection->stall_ms == 0 || taken > connection->stall_bytes) {
        connection->stall_ms = now_ms(connection);
        connection->stall_bytes = taken;
    }
    uint64_t stalled = connection->stall_ms + write_timeout_ms;
    return stalled < deadline ? stalled : deadline;
}

/* The client has taken nothing, or too little of what the handler waits for, for as long as may be. */
static bool is_unread(const struct http_connection *connection)
{
    const struct http_request *request = connection->request;
    uint64_t now = now_ms(connection), timeout_ms = connection->server->options.write_timeout_ms;
    return (connection->stall_ms != 0 && now >= connection->stall_ms + timeout_ms) ||
           (request != NULL && request->on_drained != NULL && now >= request->drain_began_ms + timeout_ms);
}

static void on_timer(uv_timer_t *timer)
{
    struct http_connection *connection = timer->data;
    if (connection->closing)
        return;
    if (connection->resume) {
        connection->resume = false;
        resume(connection);
        arm(connection);
        return;
    }
    if (next_deadline(connection) > now_ms(connection)) {
        arm(connection);
        return;
    }
    bool unread = is_unread(connection);
    if (unread || connection->state == CONNECTION_LINGERING) {
        if (connection->request != NULL)
            connection->request->unread = unread;
        connection_close(connection);
    } else if (connection->state == CONNECTION_HANDLING) {
        look_at_peer(connection);
    } else if (connection->state == CONNECTION_READING) {
        if (http_parser_is_idle(&connection->parser)) {
            connection_finish(connection);
        } else {
            struct api_error error;
            api_error_set(&error, API_ERROR_TIMEOUT, NULL, "the request did not arrive in time");
            answer_error(connection, &error, true);
        }
    }
    arm(connection);
}

static void arm(struct http_connection *connection)
{
    if (connection->closing)
        return;
    uint64_t deadline = connection->resume ? 0 : next_deadline(connection), now = now_ms(connection);
    if (deadline == UINT64_MAX)
        uv_timer_stop(&connection->timer);
    else
        uv_timer_start(&connection->timer, on_timer, deadline > now ? deadline - now : 0, 0);
}

/* ---- accepting ---- */

void connection_accept(struct http_listener *listener)
{
    struct http_server *server = listener->server;
    struct http_connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL) { /* the client stays in the listen queue until another connection closes */
        listener->accept_waits = true;
        return;
    }
    connection->server = server;
    connection->is_unix = listener->is_unix;
    http_parser_init(&connection->parser, &server->limits, &server->budget);
    uv_timer_init(server->loop, &connection->timer);
    if (listener->is_unix)
        uv_pipe_init(server->loop, &connection->handle.pipe, 0);
    else
        uv_tcp_init(server->loop, &connection->handle.tcp);
    connection->handle.any.data = connection;
    connection->timer.data = connection;
    connection->open_handles = 2;
    connection->next = server->connections;
    if (connection->next != NULL)
        connection->next->previous = connection;
    server->connections = connection;
    server->n_connections++;
    connection->phase_ms = connection->active_ms = now_ms(connection);
    listener->accept_waits = false;
    if (uv_accept(&listener->handle.stream, &connection->handle.stream) != 0) {
        connection_close(connection);
        return;
    }
    if (!listener->is_unix) {
        uv_tcp_nodelay(&connection->handle.tcp, 1);
        uv_tcp_keepalive(&connection->handle.tcp, 1, 30);
    }
    start_reading(connection);
    arm(connection);
}
