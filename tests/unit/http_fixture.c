#include "tests/unit/http_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

/* ---- the application ---- */

static void on_gone(void *context)
{
    struct http_fixture *f = context;
    f->n_gone++;
    f->held = NULL;
}

void http_fixture_on_drained(void *context)
{
    struct http_fixture *f = context;
    f->n_drained++;
}

static void handle_hello(struct http_request *request, void *context)
{
    struct http_fixture *f = context;
    f->n_handled++;
    http_response_send(request, 200, "text/plain", "hello", 5);
}

static void handle_echo(struct http_request *request, void *context)
{
    struct http_fixture *f = context;
    f->n_handled++;
    size_t length;
    char *body = http_request_take_body(request, &length);
    http_response_send(request, 200, "application/json", body, length);
    free(body);
}

static void handle_item(struct http_request *request, void *context)
{
    (void)context;
    const char *id = http_request_parameter(request, "id");
    http_response_send(request, 200, "text/plain", id, strlen(id));
}

static void handle_hold(struct http_request *request, void *context)
{
    struct http_fixture *f = context;
    f->n_handled++;
    f->held = request;
    http_request_set_on_gone(request, on_gone, f);
}

static void handle_keep(struct http_request *request, void *context)
{
    size_t length;
    free(http_request_take_body(request, &length));
    handle_hold(request, context);
}

static void handle_stream(struct http_request *request, void *context)
{
    handle_hold(request, context);
    http_response_set_probe(request, ":\n\n");
    http_response_begin(request, 200, "text/event-stream");
}

static void on_response(const char *method, const char *path, int status, void *context)
{
    struct http_fixture *f = context;
    assert_non_null(method);
    assert_non_null(path);
    f->last_status = status;
}

/* ---- the client ---- */

void http_fixture_options(struct http_server_options *options)
{
    http_server_options_init(options);
    options->body_bytes = 100 * 1000;
}

void http_fixture_start(struct http_fixture *f, const struct http_server_options *options, const char *address)
{
    memset(f, 0, sizeof *f);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    struct http_server_options own = *options;
    own.on_response = on_response;
    own.context = f;
    f->server = http_server_create(&f->loop, &own);
    assert_non_null(f->server);
    assert_true(http_server_route(f->server, "GET", "/hello", HTTP_BODY_NONE, handle_hello, f));
    assert_true(http_server_route(f->server, "POST", "/echo", HTTP_BODY_JSON, handle_echo, f));
    assert_true(http_server_route(f->server, "GET", "/hold", HTTP_BODY_NONE, handle_hold, f));
    assert_true(http_server_route(f->server, "POST", "/keep", HTTP_BODY_JSON, handle_keep, f));
    assert_true(http_server_route(f->server, "GET", "/stream", HTTP_BODY_NONE, handle_stream, f));
    assert_true(http_server_route(f->server, "GET", "/items/{id}", HTTP_BODY_NONE, handle_item, f));
    assert_true(http_server_route(f->server, "DELETE", "/items/{id}", HTTP_BODY_NONE, handle_item, f));
    assert_true(http_server_route(f->server, "POST", "/items/new", HTTP_BODY_JSON, handle_echo, f));
    char message[256];
    if (!http_server_listen(f->server, address, message, sizeof message))
        fail_msg("%s", message);
}

void http_fixture_turn(struct http_fixture *f)
{
    uv_run(&f->loop, UV_RUN_NOWAIT);
}

void http_fixture_on_stopped(void *context)
{
    struct http_fixture *f = context;
    f->stopped = true;
}

void http_fixture_finish(struct http_fixture *f)
{
    http_server_stop(f->server, 0, http_fixture_on_stopped, f);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_true(f->stopped);
    http_server_destroy(f->server);
    assert_int_equal(uv_loop_close(&f->loop), 0);
}

int http_fixture_connect(struct http_fixture *f)
{
    return http_client_connect(&f->loop, http_server_address(f->server, 0));
}

void http_fixture_send_bytes(struct http_fixture *f, int client, const char *bytes, size_t length)
{
    http_client_send(&f->loop, client, bytes, length);
}

void http_fixture_send(struct http_fixture *f, int client, const char *text)
{
    http_client_send(&f->loop, client, text, strlen(text));
}

char http_fixture_received[HTTP_CLIENT_BYTES];

const char *http_fixture_receive(struct http_fixture *f, int client, const char *until)
{
    http_client_receive(&f->loop, client, until, http_fixture_received);
    char *date;
    while ((date = strstr(http_fixture_received, "Date: ")) != NULL && strstr(date, "\r\n") != NULL) {
        char *end = strstr(date, "\r\n") + 2;
        memmove(date, end, strlen(end) + 1);
    }
    return http_fixture_received;
}

void http_fixture_wait(struct http_fixture *f, const int *value, int wanted)
{
    uint64_t deadline = uv_hrtime() + 10ull * 1000 * 1000 * 1000;
    while (*value != wanted) {
        if (uv_hrtime() > deadline)
            fail_msg("waited too long for %d, have %d", wanted, *value);
        http_fixture_turn(f);
    }
}

void http_fixture_wait_connections(struct http_fixture *f, int wanted)
{
    uint64_t deadline = uv_hrtime() + 10ull * 1000 * 1000 * 1000;
    while (http_server_connections(f->server) != wanted) {
        if (uv_hrtime() > deadline)
            fail_msg("waited too long for %d connections", wanted);
        http_fixture_turn(f);
    }
}

int http_fixture_setup(void **state)
{
    struct http_fixture *f = malloc(sizeof *f);
    struct http_server_options options;
    http_fixture_options(&options);
    http_fixture_start(f, &options, "127.0.0.1:0");
    *state = f;
    return 0;
}

int http_fixture_teardown(void **state)
{
    struct http_fixture *f = *state;
    http_fixture_finish(f);
    free(f);
    return 0;
}

void http_fixture_begins(const char *text, const char *start)
{
    if (strncmp(text, start, strlen(start)) != 0)
        fail_msg("expected %s\ngot %.300s", start, text);
}
