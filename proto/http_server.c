/* Listening, the list of connections, stopping. */
#include "proto/http_server.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/http_internal.h"

void http_server_options_init(struct http_server_options *options)
{
    *options = (struct http_server_options){
        .head_bytes = 64 * 1024,
        .body_bytes = 16 * 1024 * 1024,
        .total_body_bytes = 256 * 1024 * 1024,
        .connections = 512,
        .head_timeout_ms = 20000,
        .body_timeout_ms = 30000,
        .body_bytes_per_s = 8192,
        .idle_timeout_ms = 75000,
        .write_timeout_ms = 30000,
        .linger_timeout_ms = 3000,
        .linger_total_ms = 30000,
    };
}

struct http_server *http_server_create(uv_loop_t *loop, const struct http_server_options *options)
{
    struct http_server *server = calloc(1, sizeof *server);
    if (server == NULL)
        return NULL;
    server->loop = loop;
    server->options = *options;
    server->limits.head_bytes = options->head_bytes;
    server->limits.body_bytes = options->body_bytes;
    server->budget.limit = options->total_body_bytes;
    http_server_limit_files(server, options->body_bytes);
    return server;
}

void http_server_limit_files(struct http_server *server, size_t bytes)
{
    server->large_body_bytes = bytes;
    server->large_budget.limit = bytes + 1; /* with the NUL behind it */
}

void http_server_require_keys(struct http_server *server, const struct api_keys *keys, const char *open_path)
{
    server->keys = keys;
    server->open_path = open_path;
}

void http_server_destroy(struct http_server *server)
{
    if (server == NULL)
        return;
    assert(server->n_connections == 0 && server->n_open_listeners == 0);
    for (int i = 0; i < server->n_listeners; i++) {
        free(server->listeners[i]->address);
        free(server->listeners[i]);
    }
    http_router_clear(&server->router);
    free(server);
}

bool http_server_route(struct http_server *server, const char *method, const char *pattern, enum http_body body,
                       http_handler handler, void *context)
{
    struct http_route route = {method, pattern, body, handler, context};
    return http_router_add(&server->router, &route);
}

/* ---- connections ---- */

/* When all places are taken, a connection makes room: the one that has been idle longest, else the one whose request
 * head has been coming for longest (they come in milliseconds, but for those who hold places on purpose). */
static void evict_one(struct http_server *server)
{
    struct http_connection *idle = NULL, *slow = NULL;
    for (struct http_connection *connection = server->connections; connection != NULL; connection = connection->next) {
        if (connection->closing)
            return; /* a place is becoming free already */
        if (connection->state != CONNECTION_READING || connection->pending_length > 0 ||
            connection_queued(connection) > 0 || !http_parser_in_head(&connection->parser))
            continue;
        struct http_connection **oldest = http_parser_is_idle(&connection->parser) ? &idle : &slow;
        if (*oldest == NULL || connection->phase_ms <= (*oldest)->phase_ms)
            *oldest = connection;
    }
    if (idle != NULL)
        connection_close(idle);
    else if (slow != NULL)
        connection_close(slow);
}

static void on_connection(uv_stream_t *stream, int status)
{
    struct http_listener *listener = stream->data;
    struct http_server *server = listener->server;
    if (status < 0 || server->stopping)
        return;
    if (server->n_connections < server->options.connections) {
        connection_accept(listener);
        return;
    }
    /* libuv stops polling the listener until uv_accept, so further clients wait in the kernel's queue. */
    listener->accept_waits = true;
    evict_one(server);
}

static void finish_stop(uv_handle_t *handle)
{
    struct http_server *server = handle->data;
    server->on_stopped(server->stopped_context);
}

static void check_stopped(struct http_server *server)
{
    if (!server->stopping || server->n_connections > 0 || server->n_open_listeners > 0 || !server->stop_timer_open)
        return;
    server->stop_timer_open = false;
    uv_close((uv_handle_t *)&server->stop_timer, finish_stop);
}

void server_connection_closed(struct http_server *server, struct http_connection *connection)
{
    if (connection->previous != NULL)
        connection->previous->next = connection->next;
    else
        server->connections = connection->next;
    if (connection->next != NULL)
        connection->next->previous = connection->previous;
    server->n_connections--;
    for (int i = 0; i < server->n_listeners && !server->stopping; i++) {
        if (server->listeners[i]->accept_waits && server->n_connections < server->options.connections)
            connection_accept(server->listeners[i]);
    }
    check_stopped(server);
}

int http_server_connections(const struct http_server *server)
{
    return server->n_connections;
}

/* ---- listening ---- */

static void on_listener_closed(uv_handle_t *handle)
{
    struct http_listener *listener = handle->data;
    listener->open = false;
    listener->server->n_open_listeners--;
    check_stopped(listener->server);
}

static int bind_listener(struct http_listener *listener, const struct http_address *address)
{
    int result;
    if (address->is_unix) {
        result = uv_pipe_bind(&listener->handle.pipe, address->path);
        if (result == UV_EACCES && !http_address_has_folder(address)) /* libuv says so of both */
            result = UV_ENOENT;
    } else {
        result = uv_tcp_bind(&listener->handle.tcp, (const struct sockaddr *)&address->socket, 0);
    }
    return result != 0 ? result : uv_listen(&listener->handle.stream, 511, on_connection);
}

bool http_server_check_address(const char *text, char *message, size_t message_bytes)
{
    struct http_address address;
    return http_address_parse(&address, text, message, message_bytes);
}

bool http_server_listen(struct http_server *server, const char *text, char *message, size_t message_bytes)
{
    struct http_address address;
    if (!http_address_parse(&address, text, message, message_bytes))
        return false;
    if (server->n_listeners == HTTP_MAX_LISTENERS) {
        snprintf(message, message_bytes, "%s: more than %d addresses", text, HTTP_MAX_LISTENERS);
        return false;
    }
    if (address.is_unix && !http_address_clear_stale(&address, message, message_bytes))
        return false;
    struct http_listener *listener = calloc(1, sizeof *listener);
    if (listener == NULL) {
        snprintf(message, message_bytes, "%s: out of memory", text);
        return false;
    }
    listener->server = server;
    listener->is_unix = address.is_unix;
    int result = address.is_unix ? uv_pipe_init(server->loop, &listener->handle.pipe, 0)
                                 : uv_tcp_init(server->loop, &listener->handle.tcp);
    if (result != 0) {
        snprintf(message, message_bytes, "%s: %s", text, uv_strerror(result));
        free(listener);
        return false;
    }
    listener->handle.any.data = listener;
    listener->open = true;
    server->listeners[server->n_listeners++] = listener;
    server->n_open_listeners++;
    result = bind_listener(listener, &address);
    if (result == 0) {
        listener->address = address.is_unix ? strdup(text) : http_address_of(&listener->handle.tcp);
        if (listener->address == NULL)
            result = UV_ENOMEM;
    }
    if (result != 0) {
        snprintf(message, message_bytes, "cannot listen on %s: %s", text, uv_strerror(result));
        uv_close(&listener->handle.any, on_listener_closed);
        return false;
    }
    return true;
}

const char *http_server_address(const struct http_server *server, int n)
{
    return n >= 0 && n < server->n_listeners ? server->listeners[n]->address : NULL;
}

/* ---- stopping ---- */

static void on_stop_timer(uv_timer_t *timer)
{
    struct http_server *server = timer->data;
    for (struct http_connection *connection = server->connections; connection != NULL; connection = connection->next)
        connection_close(connection);
}

void http_server_stop(struct http_server *server, uint64_t grace_ms, void (*on_stopped)(void *context), void *context)
{
    if (!server->stopping) {
        server->stopping = true;
        server->on_stopped = on_stopped;
        server->stopped_context = context;
        uv_timer_init(server->loop, &server->stop_timer);
        server->stop_timer.data = server;
        server->stop_timer_open = true;
        for (int i = 0; i < server->n_listeners; i++) {
            if (server->listeners[i]->open && !uv_is_closing(&server->listeners[i]->handle.any))
                uv_close(&server->listeners[i]->handle.any, on_listener_closed);
        }
        for (struct http_connection *connection = server->connections; connection != NULL;
             connection = connection->next)
            connection_stop(connection);
    }
    if (!server->stop_timer_open)
        return;
    uv_timer_start(&server->stop_timer, on_stop_timer, grace_ms, 0);
    check_stopped(server);
}
