/* Answers: heads, whole and streamed bodies, and the request's own accessors. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/http_internal.h"

static const char *reason_of(int status)
{
    switch (status) {
    case 200:
        return "OK";
    case 201:
        return "Created";
    case 202:
        return "Accepted";
    case 204:
        return "No Content";
    case 400:
        return "Bad Request";
    case 401:
        return "Unauthorized";
    case 403:
        return "Forbidden";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 408:
        return "Request Timeout";
    case 409:
        return "Conflict";
    case 411:
        return "Length Required";
    case 413:
        return "Content Too Large";
    case 414:
        return "URI Too Long";
    case 415:
        return "Unsupported Media Type";
    case 417:
        return "Expectation Failed";
    case 429:
        return "Too Many Requests";
    case 431:
        return "Request Header Fields Too Large";
    case 500:
        return "Internal Server Error";
    case 501:
        return "Not Implemented";
    case 503:
        return "Service Unavailable";
    case 504:
        return "Gateway Timeout";
    case 505:
        return "HTTP Version Not Supported";
    case 507:
        return "Insufficient Storage";
    default:
        return "Status"; /* clients read the number only */
    }
}

/* ---- requests ---- */

void request_destroy(struct http_request *request)
{
    if (request == NULL)
        return;
    if (request->body_budget != NULL)
        request->body_budget->used -= request->body_charge;
    free(request->extra);
    free(request);
}

static const struct http_head *head_of(const struct http_request *request)
{
    return &request->connection->parser.head;
}

const char *http_request_method(const struct http_request *request)
{
    return request->head_only ? "GET" : head_of(request)->method;
}

const char *http_request_path(const struct http_request *request)
{
    return head_of(request)->path;
}

const char *http_request_query(const struct http_request *request)
{
    return head_of(request)->query;
}

const char *http_request_header(const struct http_request *request, const char *name)
{
    return http_head_find(head_of(request), name);
}

const char *http_request_parameter(const struct http_request *request, const char *name)
{
    for (int i = 0; i < request->match.n_parameters; i++) {
        if (strcmp(request->match.parameters[i].name, name) == 0)
            return request->match.parameters[i].value;
    }
    return NULL;
}

char *http_request_take_body(struct http_request *request, size_t *ret_length)
{
    size_t charge = 0;
    char *body = http_parser_take_body(&request->connection->parser, ret_length, &charge);
    request->body_budget = request->connection->parser.body_budget;
    request->body_charge += charge;
    return body;
}

void http_request_set_on_gone(struct http_request *request, void (*on_gone)(void *context), void *context)
{
    request->on_gone = on_gone;
    request->gone_context = context;
}

/* ---- heads ---- */

void http_response_add_header(struct http_request *request, const char *name, const char *value)
{
    assert(!request->begun);
    for (const char *c = value; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 && *c != '\t')
            return;
    }
    size_t length = strlen(name) + 2 + strlen(value) + 2;
    char *grown = realloc(request->extra, request->extra_length + length + 1);
    if (grown == NULL) {
        connection_close(request->connection);
        return;
    }
    request->extra = grown;
    snprintf(grown + request->extra_length, length + 1, "%s: %s\r\n", name, value);
    request->extra_length += length;
}

/* RFC 9110, 5.6.7; independent of the locale. */
static void format_date(char *text, size_t capacity)
{
    static const char days[] = "SunMonTueWedThuFriSat", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    snprintf(text, capacity, "%.3s, %02d %.3s %d %02d:%02d:%02d GMT", days + utc.tm_wday * 3, utc.tm_mday,
             months + utc.tm_mon * 3, utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

/* length: of a whole body, or -1 when it is streamed. body may be NULL. */
static void begin(struct http_request *request, int status, const char *content_type, long long length,
                  const void *body)
{
    assert(!request->begun);
    struct http_connection *connection = request->connection;
    cors_add_fields(request);
    request->begun = true;
    request->streamed = length < 0;
    if (request->streamed && !request->chunked && !request->head_only)
        request->close = true; /* the end of the connection ends an HTTP/1.0 body */
    if (connection->server->stopping)
        request->close = true;
    char head[512], date[64];
    format_date(date, sizeof date);
    size_t n = (size_t)snprintf(head, sizeof head, "HTTP/1.1 %d %s\r\nDate: %s\r\n", status, reason_of(status), date);
    if (content_type != NULL)
        n += (size_t)snprintf(head + n, sizeof head - n, "Content-Type: %.100s\r\n", content_type);
    if (length >= 0 && status != 204)
        n += (size_t)snprintf(head + n, sizeof head - n, "Content-Length: %lld\r\n", length);
    else if (length < 0 && request->chunked)
        n += (size_t)snprintf(head + n, sizeof head - n, "Transfer-Encoding: chunked\r\n");
    if (request->close)
        n += (size_t)snprintf(head + n, sizeof head - n, "Connection: close\r\n");
    else if (head_of(request)->minor == 0)
        n += (size_t)snprintf(head + n, sizeof head - n, "Connection: keep-alive\r\n");
    uv_buf_t buffers[4] = {
        uv_buf_init(head, (unsigned)n),
        uv_buf_init(request->extra, (unsigned)request->extra_length),
        uv_buf_init((char *)"\r\n", 2),
        uv_buf_init((char *)body, request->head_only || length <= 0 ? 0 : (unsigned)length),
    };
    const struct http_server_options *options = &connection->server->options;
    if (options->on_response != NULL) {
        const struct http_head *request_head = head_of(request);
        options->on_response(request_head->method != NULL ? request_head->method : "-",
                             request_head->path != NULL ? request_head->path : "-", status, options->context);
    }
    connection_write(connection, buffers, 4);
}

/* ---- whole ---- */

void http_response_send(struct http_request *request, int status, const char *content_type, const void *body,
                        size_t length)
{
    begin(request, status, content_type, (long long)length, body);
    connection_request_end(request->connection);
}

void http_response_send_error(struct http_request *request, const struct api_error *error)
{
    size_t length;
    char *body = api_error_json(error, &length);
    if (body == NULL) {
        http_response_send(request, 500, NULL, NULL, 0);
        return;
    }
    http_response_send(request, api_error_status(error->kind), "application/json", body, length);
    free(body);
}

/* ---- streamed ---- */

void http_response_begin(struct http_request *request, int status, const char *content_type)
{
    begin(request, status, content_type, -1, NULL);
}

void http_response_write(struct http_request *request, const void *data, size_t length)
{
    assert(request->begun && request->streamed);
    if (request->head_only || length == 0)
        return;
    if (!request->chunked) {
        uv_buf_t plain = uv_buf_init((char *)data, (unsigned)length);
        connection_write(request->connection, &plain, 1);
        return;
    }
    char size[24];
    int size_length = snprintf(size, sizeof size, "%zx\r\n", length);
    uv_buf_t buffers[3] = {
        uv_buf_init(size, (unsigned)size_length),
        uv_buf_init((char *)data, (unsigned)length),
        uv_buf_init((char *)"\r\n", 2),
    };
    connection_write(request->connection, buffers, 3);
}

void http_response_end(struct http_request *request)
{
    assert(request->begun && request->streamed);
    if (request->chunked && !request->head_only) {
        uv_buf_t last = uv_buf_init((char *)"0\r\n\r\n", 5);
        connection_write(request->connection, &last, 1);
    }
    connection_request_end(request->connection);
}

void http_response_abort(struct http_request *request)
{
    struct http_connection *connection = request->connection;
    connection_close(connection);
    connection_request_end(connection);
}

size_t http_response_queued(const struct http_request *request)
{
    return connection_queued(request->connection);
}

bool http_response_on_drained(struct http_request *request, size_t low_bytes, void (*on_drained)(void *context),
                              void *context)
{
    if (http_response_queued(request) <= low_bytes)
        return false;
    request->on_drained = on_drained;
    request->drained_context = context;
    request->drained_bytes = low_bytes;
    connection_await_drain(request->connection);
    return true;
}

bool http_request_was_unread(const struct http_request *request)
{
    return request->unread;
}

void http_response_set_probe(struct http_request *request, const char *probe)
{
    request->probe = probe;
}

void response_send_probe(struct http_request *request)
{
    if (!request->begun && head_of(request)->minor == 1) {
        uv_buf_t interim = uv_buf_init((char *)"HTTP/1.1 100 Continue\r\n\r\n", 25);
        connection_write(request->connection, &interim, 1);
    } else if (request->begun && request->streamed && request->probe != NULL) {
        http_response_write(request, request->probe, strlen(request->probe));
    }
}
