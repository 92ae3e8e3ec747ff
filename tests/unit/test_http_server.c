/* The HTTP server over real sockets on the loopback interface, one thread: the test is the client and turns the loop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/http_server.h"
#include "tests/unit/http_client.h"

struct fixture {
    uv_loop_t loop;
    struct http_server *server;
    struct http_request *held; /* of /hold and /stream */
    int n_gone, n_handled, n_drained;
    bool stopped;
    int last_status;
};

/* ---- the application ---- */

static void on_gone(void *context)
{
    struct fixture *f = context;
    f->n_gone++;
    f->held = NULL;
}

static void on_drained(void *context)
{
    struct fixture *f = context;
    f->n_drained++;
}

static void handle_hello(struct http_request *request, void *context)
{
    struct fixture *f = context;
    f->n_handled++;
    http_response_send(request, 200, "text/plain", "hello", 5);
}

static void handle_echo(struct http_request *request, void *context)
{
    struct fixture *f = context;
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
    struct fixture *f = context;
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
    struct fixture *f = context;
    assert_non_null(method);
    assert_non_null(path);
    f->last_status = status;
}

/* ---- the client ---- */

static void default_options(struct http_server_options *options)
{
    http_server_options_init(options);
    options->body_bytes = 100 * 1000;
}

static void start(struct fixture *f, const struct http_server_options *options, const char *address)
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
    char message[256];
    if (!http_server_listen(f->server, address, message, sizeof message))
        fail_msg("%s", message);
}

static void turn(struct fixture *f)
{
    uv_run(&f->loop, UV_RUN_NOWAIT);
}

static void on_stopped(void *context)
{
    struct fixture *f = context;
    f->stopped = true;
}

/* Stops with no grace and checks that nothing is left over. */
static void finish(struct fixture *f)
{
    http_server_stop(f->server, 0, on_stopped, f);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_true(f->stopped);
    http_server_destroy(f->server);
    assert_int_equal(uv_loop_close(&f->loop), 0);
}

static int connect_client(struct fixture *f)
{
    return http_client_connect(&f->loop, http_server_address(f->server, 0));
}

static void send_bytes(struct fixture *f, int client, const char *bytes, size_t length)
{
    http_client_send(&f->loop, client, bytes, length);
}

static void send_text(struct fixture *f, int client, const char *text)
{
    http_client_send(&f->loop, client, text, strlen(text));
}

/* As http_client_receive, without the Date fields. */
static char received[HTTP_CLIENT_BYTES];

static const char *receive(struct fixture *f, int client, const char *until)
{
    http_client_receive(&f->loop, client, until, received);
    char *date;
    while ((date = strstr(received, "Date: ")) != NULL && strstr(date, "\r\n") != NULL) {
        char *end = strstr(date, "\r\n") + 2;
        memmove(date, end, strlen(end) + 1);
    }
    return received;
}

static void wait_for(struct fixture *f, const int *value, int wanted)
{
    uint64_t deadline = uv_hrtime() + 10ull * 1000 * 1000 * 1000;
    while (*value != wanted) {
        if (uv_hrtime() > deadline)
            fail_msg("waited too long for %d, have %d", wanted, *value);
        turn(f);
    }
}

static void wait_connections(struct fixture *f, int wanted)
{
    uint64_t deadline = uv_hrtime() + 10ull * 1000 * 1000 * 1000;
    while (http_server_connections(f->server) != wanted) {
        if (uv_hrtime() > deadline)
            fail_msg("waited too long for %d connections", wanted);
        turn(f);
    }
}

static int setup(void **state)
{
    struct fixture *f = malloc(sizeof *f);
    struct http_server_options options;
    default_options(&options);
    start(f, &options, "127.0.0.1:0");
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    finish(f);
    free(f);
    return 0;
}

#define HELLO "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"

/* Sends one request on a fresh connection and returns everything up to the end of the connection. */
static const char *ask(struct fixture *f, const char *request)
{
    int client = connect_client(f);
    send_text(f, client, request);
    shutdown(client, SHUT_WR);
    receive(f, client, NULL);
    close(client);
    return received;
}

static void assert_begins(const char *text, const char *start)
{
    if (strncmp(text, start, strlen(start)) != 0)
        fail_msg("expected %s\ngot %.300s", start, text);
}

static void assert_status(struct fixture *f, const char *request, const char *status)
{
    char start_line[64];
    snprintf(start_line, sizeof start_line, "HTTP/1.1 %s", status);
    ask(f, request);
    if (strncmp(received, start_line, strlen(start_line)) != 0)
        fail_msg("%.200s\nexpected %s\ngot %.300s", request, status, received);
}

/* ---- tests: answers ---- */

static void a_request_is_answered_and_the_connection_stays(void **state)
{
    struct fixture *f = *state;
    int client = connect_client(f);
    for (int i = 0; i < 3; i++) {
        send_text(f, client, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_string_equal(receive(f, client, "hello"), HELLO);
    }
    assert_int_equal(http_server_connections(f->server), 1);
    close(client);
    wait_connections(f, 0);
}

static void http_1_0_closes_unless_asked_to_keep_alive(void **state)
{
    struct fixture *f = *state;
    int client = connect_client(f);
    send_text(f, client, "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_string_equal(receive(f, client, "hello"), "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: "
                                                     "5\r\nConnection: keep-alive\r\n\r\nhello");
    send_text(f, client, "GET /hello HTTP/1.0\r\n\r\n");
    assert_string_equal(
        receive(f, client, NULL),
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
    close(client);
}

static void connection_close_is_honoured(void **state)
{
    struct fixture *f = *state;
    int client = connect_client(f);
    send_text(f, client, "GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\nGET /hello HTTP/1.1\r\n");
    assert_string_equal(
        receive(f, client, NULL),
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
    close(client);
}

static void head_and_options_are_answered_by_the_routes(void **state)
{
    struct fixture *f = *state;
    assert_string_equal(ask(f, "HEAD /hello HTTP/1.1\r\nHost: x\r\n\r\n"),
                        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\n");
    assert_string_equal(ask(f, "HEAD /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") + strlen(received) - 4,
                        "\r\n\r\n");
    assert_string_equal(ask(f, "OPTIONS /items/7 HTTP/1.1\r\nHost: x\r\n\r\n"),
                        "HTTP/1.1 204 No Content\r\nAllow: GET, HEAD, DELETE, OPTIONS\r\n\r\n");
    assert_begins(ask(f, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"), "HTTP/1.1 204 No Content\r\nAllow: ");
}

static void path_parameters_are_decoded(void **state)
{
    struct fixture *f = *state;
    assert_non_null(strstr(ask(f, "GET /items/a%20b%2Fc?x=1 HTTP/1.1\r\nHost: x\r\n\r\n"), "\r\n\r\na b/c"));
    assert_non_null(strstr(ask(f, "GET http://x:8080/items/q HTTP/1.1\r\nHost: x\r\n\r\n"), "\r\n\r\nq"));
    assert_status(f, "GET /items/%00 HTTP/1.1\r\nHost: x\r\n\r\n", "404");
    assert_status(f, "GET /items/%2 HTTP/1.1\r\nHost: x\r\n\r\n", "404");
    assert_status(f, "GET /items/ HTTP/1.1\r\nHost: x\r\n\r\n", "404");
    assert_status(f, "GET /items/a/b HTTP/1.1\r\nHost: x\r\n\r\n", "404");
}

static void bodies_come_by_length_and_in_chunks(void **state)
{
    struct fixture *f = *state;
    assert_non_null(
        strstr(ask(f, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\n\r\n{\"a\":1}"), "\r\n\r\n{\"a\":1}"));
    assert_non_null(strstr(ask(f, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
                                  "Content-Type: application/json; charset=utf-8\r\n\r\n"
                                  "3\r\n{\"a\r\n4\r\n\":1}\r\n0\r\n\r\n"),
                           "\r\n\r\n{\"a\":1}"));
    assert_non_null(
        strstr(ask(f, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"), "Content-Length: 0\r\n\r\n"));
}

static void expect_100_continue_is_answered_before_the_body(void **state)
{
    struct fixture *f = *state;
    int client = connect_client(f);
    send_text(f, client, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    assert_string_equal(receive(f, client, "\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    send_text(f, client, "{}");
    assert_begins(receive(f, client, "{}"), "HTTP/1.1 200 OK\r\n");
    /* Refused by its head: the client is spared the body. */
    send_text(f, client, "POST /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    assert_begins(receive(f, client, NULL), "HTTP/1.1 405 ");
    close(client);
}

static void errors_have_their_status(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *request, *status;
    } cases[] = {
        {"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", "404"},
        {"POST /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "405"},
        {"GET /echo HTTP/1.1\r\nHost: x\r\n\r\n", "405"},
        {"BREW /hello HTTP/1.1\r\nHost: x\r\n\r\n", "501"},
        {"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n", "501"},
        {"POST /echo HTTP/1.1\r\nHost: x\r\n\r\n", "411"},
        {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100001\r\n\r\n", "413"},
        {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}", "415"},
        {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", "415"},
        {"POST /echo HTTP/1.1\r\nHost: x\r\nExpect: tea\r\nContent-Length: 2\r\n\r\n{}", "417"},
        {"GET /hello HTTP/2.0\r\nHost: x\r\n\r\n", "505"},
        {"GET /hello HTTP/3.1\r\nHost: x\r\n\r\n", "505"},
        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505"},
        {"GET /hello HTTP/1.1\r\n\r\n", "400"},
        {"GET /hello HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", "400"},
        {"GET /hello HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", "400"},
        {"GET /hello HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n", "400"},
        {"GET hello HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
        {"GET /hello\r\n\r\n", "505"},
        {"\x16\x03\x01\x02", "400"},
        {"GET /hello HTTP/1.1\r\nHost: x\r\n", "400"},
        {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n{}", "400"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_status(f, cases[i].request, cases[i].status);
        assert_non_null(strstr(received, "{\"error\":{\"message\":"));
        assert_int_equal(f->last_status, atoi(cases[i].status));
    }
    ask(f, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_non_null(strstr(received, "\r\nAllow: POST, OPTIONS\r\n"));
}

static void what_parsers_read_differently_is_refused(void **state)
{
    struct fixture *f = *state;
    static const char *const requests[] = {
        /* two lengths */
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2, 2\r\n\r\n{}",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: +2\r\n\r\n{}",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 0x2\r\n\r\n{}",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -2\r\n\r\n{}",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2 2\r\n\r\n{}",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n{}",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length : 2\r\n\r\n{}",
        /* codings */
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /echo HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        /* line ends */
        "GET /hello HTTP/1.1\nHost: x\n\n",
        "GET /hello HTTP/1.1\r\nHost: x\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: x\r\rA: b\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: x\r\nA: b\rTransfer-Encoding: chunked\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
        "GET /hello HTTP/1.1\r\n Host: x\r\n\r\n",
        "GET  /hello HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /hel\tlo HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /hello HTTP/1.1 \r\nHost: x\r\n\r\n",
        " GET /hello HTTP/1.1\r\nHost: x\r\n\r\n",
        "\r\n\r\n\r\n\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n",
        /* chunks */
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\n{}\n0\n\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n-1\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}\r\n0\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        int n_handled = f->n_handled;
        ask(f, requests[i]);
        if (strncmp(received, "HTTP/1.1 400 ", 13) != 0 && strncmp(received, "HTTP/1.1 501 ", 13) != 0 &&
            strncmp(received, "HTTP/1.1 413 ", 13) != 0)
            fail_msg("case %zu: %s\ngot: %.200s", i, requests[i], received);
        assert_non_null(strstr(received, "\r\nConnection: close\r\n"));
        assert_int_equal(f->n_handled, n_handled);
    }
}

static void nothing_is_read_after_trailers_or_chunk_extensions(void **state)
{
    struct fixture *f = *state;
    static const char *const bodies[] = {"2;a=b\r\n{}\r\n0\r\n\r\n", "2\r\n{}\r\n0\r\nA: b\r\n\r\n"};
    for (int i = 0; i < 2; i++) {
        char request[512];
        snprintf(request, sizeof request,
                 "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%sGET /hello HTTP/1.1\r\nHost: "
                 "x\r\n\r\n",
                 bodies[i]);
        assert_begins(ask(f, request), "HTTP/1.1 200 OK\r\n");
        assert_non_null(strstr(received, "Connection: close\r\n\r\n{}"));
        assert_null(strstr(received, "hello"));
    }
}

/* ---- tests: pieces ---- */

#define CHUNKED                                                                                                        \
    "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{\"b\r\n4\r\n\":2}\r\n0\r\n\r\n"
#define PIPELINE                                                                                                       \
    "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n" CHUNKED                                                                   \
    "\r\nPOST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}HEAD /hello HTTP/1.1\r\nHost: x\r\n\r\n"         \
    "GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

static void pipelined_requests_split_anywhere_get_the_same_answers(void **state)
{
    struct fixture *f = *state;
    const char *text = PIPELINE;
    size_t length = strlen(text);
    char *whole = strdup(ask(f, text));
    assert_int_equal(f->n_handled, 4);
    assert_non_null(strstr(whole, "HTTP/1.1 404 Not Found"));
    for (size_t split = 1; split < length; split++) {
        int client = connect_client(f);
        send_bytes(f, client, text, split);
        turn(f);
        send_bytes(f, client, text + split, length - split);
        assert_string_equal(receive(f, client, NULL), whole);
        close(client);
    }
    /* And byte by byte. */
    int client = connect_client(f);
    for (size_t i = 0; i < length; i++)
        send_bytes(f, client, text + i, 1);
    assert_string_equal(receive(f, client, NULL), whole);
    close(client);
    free(whole);
}

static void pipelined_requests_wait_for_the_one_before(void **state)
{
    struct fixture *f = *state;
    int client = connect_client(f);
    send_text(f, client, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\nGET /hello HT");
    wait_for(f, &f->n_handled, 1);
    for (int i = 0; i < 10; i++)
        turn(f);
    assert_int_equal(f->n_handled, 1);
    http_response_send(f->held, 200, "text/plain", "held!", 5);
    receive(f, client, "hello");
    assert_begins(received,
                  "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nheld!HTTP/1.1 200");
    send_text(f, client, "TP/1.1\r\nHost: x\r\n\r\n");
    assert_string_equal(receive(f, client, "hello"), HELLO);
    close(client);
}

static void many_pipelined_requests_are_all_answered(void **state)
{
    struct fixture *f = *state;
    int client = connect_client(f);
    enum {
        N = 3000
    };
    char *text = malloc(N * 64);
    size_t length = 0;
    for (int i = 0; i < N; i++)
        length += (size_t)sprintf(text + length, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    send_text(f, client, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_for(f, &f->n_handled, 1);
    /* More than the server keeps: the rest waits in the kernel. */
    size_t sent = 0;
    while (sent < length) {
        ssize_t n = send(client, text + sent, length - sent, MSG_NOSIGNAL);
        if (n < 0)
            break;
        sent += (size_t)n;
        turn(f);
    }
    http_response_send(f->held, 204, NULL, NULL, 0);
    f->held = NULL;
    /* Sends what is left while reading the answers. */
    size_t got = 0;
    uint64_t deadline = uv_hrtime() + 20ull * 1000 * 1000 * 1000;
    while (f->n_handled < N + 1 || got < strlen(HELLO) * N) {
        assert_true(uv_hrtime() < deadline);
        turn(f);
        if (sent < length) {
            ssize_t n = send(client, text + sent, length - sent, MSG_NOSIGNAL);
            sent += n > 0 ? (size_t)n : 0;
        }
        ssize_t n = recv(client, received, sizeof received, 0);
        got += n > 0 ? (size_t)n : 0;
    }
    assert_int_equal(f->n_handled, N + 1);
    free(text);
    close(client);
}

/* ---- tests: limits ---- */

static void a_long_head_is_431_and_a_long_target_414(void **state)
{
    struct fixture *f = *state;
    char *text = malloc(200 * 1024);
    size_t length = (size_t)sprintf(text, "GET /hello HTTP/1.1\r\nHost: x\r\nA: ");
    size_t fill = 64 * 1024 - length - 4;
    memset(text + length, 'a', fill);
    strcpy(text + length + fill, "\r\n\r\n");
    assert_status(f, text, "200"); /* exactly the limit */
    memset(text + length, 'a', fill + 1);
    strcpy(text + length + fill + 1, "\r\n\r\n");
    assert_status(f, text, "431");
    memset(text, 'a', 100 * 1024);
    text[100 * 1024] = '\0';
    memcpy(text, "GET /", 5);
    assert_status(f, text, "414");
    length = (size_t)sprintf(text, "GET /hello HTTP/1.1\r\nHost: x\r\n");
    for (int i = 0; i < 255; i++)
        length += (size_t)sprintf(text + length, "A:\r\n");
    strcpy(text + length, "\r\n");
    assert_status(f, text, "200");
    strcpy(text + length, "A:\r\n\r\n");
    assert_status(f, text, "431");
    free(text);
}

static void a_body_may_have_exactly_the_limit(void **state)
{
    struct fixture *f = *state;
    size_t limit = 100 * 1000;
    char *text = malloc(2 * limit);
    size_t length =
        (size_t)sprintf(text, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%zx\r\n", limit);
    memset(text + length, '1', limit);
    strcpy(text + length + limit, "\r\n0\r\n\r\n");
    assert_status(f, text, "200");
    strcpy(text + length + limit, "\r\n1\r\n1\r\n0\r\n\r\n");
    assert_status(f, text, "413");
    free(text);
}

static void an_error_reaches_a_client_that_is_still_sending(void **state)
{
    struct fixture *f = *state;
    int client = connect_client(f);
    send_text(f, client, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n");
    /* The client does not look at the answer before it has sent a few megabytes. */
    char block[16 * 1024];
    memset(block, 'x', sizeof block);
    for (int i = 0; i < 300; i++)
        send_bytes(f, client, block, sizeof block);
    assert_begins(receive(f, client, "body_too_large"), "HTTP/1.1 413 ");
    shutdown(client, SHUT_WR);
    wait_connections(f, 0);
    close(client);
}

static void bodies_of_many_clients_have_a_budget(void **state)
{
    (void)state;
    struct fixture f;
    struct http_server_options options;
    default_options(&options);
    options.total_body_bytes = 70 * 1000;
    start(&f, &options, "127.0.0.1:0");
    char *block = malloc(60 * 1000);
    memset(block, 'x', 60 * 1000);
    int first = connect_client(&f), second = connect_client(&f);
    send_text(&f, first, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n");
    send_bytes(&f, first, block, 59 * 1000);
    while (http_server_connections(f.server) != 2)
        turn(&f);
    for (int i = 0; i < 20; i++)
        turn(&f);
    send_text(&f, second, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n");
    send_bytes(&f, second, block, 60 * 1000);
    assert_begins(receive(&f, second, "overloaded"), "HTTP/1.1 503 ");
    send_bytes(&f, first, block, 1000);
    assert_begins(receive(&f, first, "\r\n\r\nxx"), "HTTP/1.1 200 ");
    close(second);
    close(first);
    wait_connections(&f, 0);
    /* All given back; now a handler keeps one. */
    second = connect_client(&f);
    send_text(&f, second, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n");
    send_bytes(&f, second, block, 60 * 1000);
    assert_begins(receive(&f, second, "\r\n\r\nxx"), "HTTP/1.1 200 ");
    f.n_handled = 0;
    send_text(&f, second, "POST /keep HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n");
    send_bytes(&f, second, block, 60 * 1000);
    wait_for(&f, &f.n_handled, 1);
    first = connect_client(&f);
    send_text(&f, first, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n");
    send_bytes(&f, first, block, 60 * 1000);
    assert_begins(receive(&f, first, "overloaded"), "HTTP/1.1 503 ");
    close(first);
    http_response_send(f.held, 204, NULL, NULL, 0);
    assert_begins(receive(&f, second, "\r\n\r\n"), "HTTP/1.1 204 ");
    send_text(&f, second, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n");
    send_bytes(&f, second, block, 60 * 1000);
    assert_begins(receive(&f, second, "\r\n\r\nxx"), "HTTP/1.1 200 ");
    close(second);
    free(block);
    finish(&f);
}

static void clients_past_the_limit_wait_and_idle_ones_make_room(void **state)
{
    (void)state;
    struct fixture f;
    struct http_server_options options;
    default_options(&options);
    options.connections = 2;
    start(&f, &options, "127.0.0.1:0");
    int busy = connect_client(&f);
    send_text(&f, busy, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_for(&f, &f.n_handled, 1);
    int idle = connect_client(&f);
    wait_connections(&f, 2);
    int third = connect_client(&f);
    send_text(&f, third, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_string_equal(receive(&f, third, "hello"), HELLO);
    assert_string_equal(receive(&f, idle, NULL), "");
    /* So does one that is long in sending its request's head, but not one whose answer is awaited. */
    send_text(&f, third, "GET /hel");
    int fourth = connect_client(&f);
    send_text(&f, fourth, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_string_equal(receive(&f, fourth, "hello"), HELLO);
    receive(&f, third, NULL);
    assert_non_null(f.held);
    assert_int_equal(f.n_gone, 0);
    http_response_send(f.held, 204, NULL, NULL, 0);
    assert_begins(receive(&f, busy, "\r\n\r\n"), "HTTP/1.1 204");
    close(busy);
    close(idle);
    close(third);
    close(fourth);
    finish(&f);
}

/* ---- tests: time ---- */

static void slow_senders_get_408(void **state)
{
    (void)state;
    struct fixture f;
    struct http_server_options options;
    default_options(&options);
    options.head_timeout_ms = options.body_timeout_ms = options.idle_timeout_ms = 20;
    options.linger_timeout_ms = 20;
    start(&f, &options, "127.0.0.1:0");
    int client = connect_client(&f);
    send_text(&f, client, "GET /hello HTTP/1.1\r\nHos");
    assert_begins(receive(&f, client, NULL), "HTTP/1.1 408 ");
    close(client);
    client = connect_client(&f);
    send_text(&f, client, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n123");
    assert_begins(receive(&f, client, NULL), "HTTP/1.1 408 ");
    close(client);
    /* A connection that never asked anything, and one between requests, are closed without a word. */
    client = connect_client(&f);
    assert_string_equal(receive(&f, client, NULL), "");
    close(client);
    client = connect_client(&f);
    send_text(&f, client, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_string_equal(receive(&f, client, NULL), HELLO);
    close(client);
    /* A handler may take its time. */
    client = connect_client(&f);
    send_text(&f, client, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_for(&f, &f.n_handled, 2);
    uint64_t later = uv_hrtime() + 100 * 1000 * 1000;
    while (uv_hrtime() < later)
        turn(&f);
    assert_non_null(f.held);
    http_response_send(f.held, 204, NULL, NULL, 0);
    assert_begins(receive(&f, client, "\r\n\r\n"), "HTTP/1.1 204");
    close(client);
    finish(&f);
}

static void a_client_that_reads_nothing_is_given_up(void **state)
{
    (void)state;
    struct fixture f;
    struct http_server_options options;
    default_options(&options);
    options.write_timeout_ms = 50;
    start(&f, &options, "127.0.0.1:0");
    int client = connect_client(&f);
    send_text(&f, client, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_for(&f, &f.n_handled, 1);
    char block[64 * 1024];
    memset(block, 'x', sizeof block);
    while (f.held != NULL && http_response_queued(f.held) < 1024 * 1024) {
        http_response_write(f.held, block, sizeof block);
        turn(&f);
    }
    wait_for(&f, &f.n_gone, 1);
    close(client);
    finish(&f);
}

/* ---- tests: streams ---- */

static void a_stream_is_chunked_and_ends(void **state)
{
    struct fixture *f = *state;
    int client = connect_client(f);
    send_text(f, client, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_string_equal(receive(f, client, "\r\n\r\n"),
                        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
    http_response_write(f->held, "data: 1\n\n", 9);
    assert_string_equal(receive(f, client, "1\n\n\r\n"), "9\r\ndata: 1\n\n\r\n");
    http_response_write(f->held, "", 0);
    http_response_end(f->held);
    assert_string_equal(receive(f, client, "0\r\n\r\n"), "0\r\n\r\n");
    send_text(f, client, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_string_equal(receive(f, client, "hello"), HELLO);
    close(client);
}

static void an_http_1_0_stream_ends_with_the_connection(void **state)
{
    struct fixture *f = *state;
    int client = connect_client(f);
    send_text(f, client, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    wait_for(f, &f->n_handled, 1);
    http_response_write(f->held, "abc", 3);
    http_response_end(f->held);
    assert_string_equal(receive(f, client, NULL),
                        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\nabc");
    close(client);
}

static void a_handler_hears_when_its_bytes_are_taken(void **state)
{
    struct fixture *f = *state;
    int client = connect_client(f);
    send_text(f, client, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_for(f, &f->n_handled, 1);
    assert_false(http_response_on_drained(f->held, 0, on_drained, f));
    char block[64 * 1024];
    memset(block, 'x', sizeof block);
    size_t written = 0;
    while (http_response_queued(f->held) < 256 * 1024) {
        http_response_write(f->held, block, sizeof block);
        written += sizeof block;
    }
    assert_true(http_response_on_drained(f->held, 1024, on_drained, f));
    size_t got = 0;
    while (got < written) {
        turn(f);
        ssize_t n = recv(client, received, sizeof received, 0);
        got += n > 0 ? (size_t)n : 0;
    }
    wait_for(f, &f->n_drained, 1);
    assert_true(http_response_queued(f->held) <= 1024);
    http_response_end(f->held);
    close(client);
}

static void an_aborted_stream_has_no_proper_end(void **state)
{
    struct fixture *f = *state;
    int client = connect_client(f);
    send_text(f, client, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_for(f, &f->n_handled, 1);
    http_response_write(f->held, "abc", 3);
    http_response_abort(f->held);
    receive(f, client, NULL);
    assert_null(strstr(received, "0\r\n\r\n"));
    assert_int_equal(f->n_gone, 0);
    close(client);
}

/* ---- tests: clients that leave ---- */

static void leave(struct fixture *f, const char *request)
{
    int client = connect_client(f);
    int n_gone = f->n_gone;
    send_text(f, client, request);
    while (f->held == NULL)
        turn(f);
    close(client);
    wait_for(f, &f->n_gone, n_gone + 1);
    wait_connections(f, 0);
}

static void a_client_that_leaves_is_noticed_though_nothing_is_written(void **state)
{
    struct fixture *f = *state;
    leave(f, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    leave(f, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    /* Pipelined bytes in between must not hide it. */
    leave(f, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\nGET /he");
}

static void a_client_that_leaves_behind_much_unread_data_is_noticed(void **state)
{
    struct fixture *f = *state;
    int client = connect_client(f);
    send_text(f, client, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_for(f, &f->n_handled, 1);
    char block[16 * 1024];
    memset(block, 'x', sizeof block);
    for (int i = 0; i < 20; i++) {
        ssize_t n = send(client, block, sizeof block, MSG_NOSIGNAL);
        (void)n;
        turn(f);
    }
    close(client);
    wait_for(f, &f->n_gone, 1);
}

static void a_reset_is_noticed(void **state)
{
    struct fixture *f = *state;
    int client = connect_client(f);
    send_text(f, client, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_for(f, &f->n_handled, 1);
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    setsockopt(client, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    close(client);
    wait_for(f, &f->n_gone, 1);
}

static void a_half_closed_client_gets_its_answer(void **state)
{
    struct fixture *f = *state;
    int client = connect_client(f);
    send_text(f, client, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    shutdown(client, SHUT_WR);
    for (int i = 0; i < 50; i++)
        turn(f);
    assert_int_equal(f->n_gone, 0);
    http_response_send(f->held, 200, "text/plain", "held!", 5);
    receive(f, client, NULL);
    assert_non_null(strstr(received, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n"));
    assert_string_equal(received + strlen(received) - 5, "held!");
    close(client);
    /* The same with a request that waits behind another, and with a stream. */
    client = connect_client(f);
    send_text(f, client, "GET /hold HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    shutdown(client, SHUT_WR);
    wait_for(f, &f->n_handled, 2);
    http_response_send(f->held, 204, NULL, NULL, 0);
    assert_non_null(strstr(receive(f, client, NULL), HELLO));
    close(client);
    client = connect_client(f);
    send_text(f, client, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    shutdown(client, SHUT_WR);
    receive(f, client, ":\n\n\r\n");
    http_response_write(f->held, "abc", 3);
    http_response_end(f->held);
    assert_string_equal(receive(f, client, NULL), "3\r\nabc\r\n0\r\n\r\n");
    close(client);
}

static void a_half_closed_client_that_leaves_later_is_noticed(void **state)
{
    struct fixture *f = *state;
    int client = connect_client(f);
    send_text(f, client, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    shutdown(client, SHUT_WR);
    receive(f, client, ":\n\n\r\n");
    close(client);
    while (f->held != NULL) {
        http_response_write(f->held, "abc", 3);
        turn(f);
    }
    assert_int_equal(f->n_gone, 1);
}

/* ---- tests: addresses and stopping ---- */

static void unix_sockets_are_served_and_removed(void **state)
{
    (void)state;
    struct fixture f;
    struct http_server_options options;
    default_options(&options);
    char directory[] = "/tmp/test_http_XXXXXX", address[64];
    assert_non_null(mkdtemp(directory));
    snprintf(address, sizeof address, "unix:%s/socket", directory);
    start(&f, &options, address);
    assert_string_equal(http_server_address(f.server, 0), address);
    int client = connect_client(&f);
    send_text(&f, client, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_string_equal(receive(&f, client, "hello"), HELLO);
    close(client);
    leave(&f, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    client = connect_client(&f);
    send_text(&f, client, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    shutdown(client, SHUT_WR);
    while (f.held == NULL)
        turn(&f);
    for (int i = 0; i < 50; i++)
        turn(&f);
    http_response_send(f.held, 204, NULL, NULL, 0);
    assert_begins(receive(&f, client, NULL), "HTTP/1.1 204"); /* no interim answer is needed here */
    close(client);

    /* A second server finds the first; a stale socket is replaced; another file is left alone. */
    char message[256];
    struct http_server *second = http_server_create(&f.loop, &options);
    assert_false(http_server_listen(second, address, message, sizeof message));
    assert_non_null(strstr(message, "another process listens there"));
    http_server_destroy(second);
    finish(&f);
    assert_int_not_equal(access(address + 5, F_OK), 0);
    int stale = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    strcpy(name.sun_path, address + 5);
    assert_int_equal(bind(stale, (struct sockaddr *)&name, sizeof name), 0);
    close(stale);
    start(&f, &options, address);
    finish(&f);
    int file = open(address + 5, O_CREAT | O_WRONLY, 0600);
    close(file);
    uv_loop_init(&f.loop);
    second = http_server_create(&f.loop, &options);
    assert_false(http_server_listen(second, address, message, sizeof message));
    assert_non_null(strstr(message, "not a socket"));
    http_server_destroy(second);
    uv_loop_close(&f.loop);
    unlink(address + 5);
    rmdir(directory);
}

static void wrong_addresses_are_named(void **state)
{
    struct fixture *f = *state;
    static const char *const addresses[] = {
        "",        "8080",          "127.0.0.1", "127.0.0.1:",      "127.0.0.1:x",  "1.2.3:80",    "::1:80",
        "[::1:80", "[127.0.0.1]:8", "unix:",     "127.0.0.1:65536", "localhost:80", "127.0.0.1:-1"};
    char message[256];
    for (size_t i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
        assert_false(http_server_listen(f->server, addresses[i], message, sizeof message));
        assert_begins(message, addresses[i]);
    }
    /* An address in use. */
    assert_false(http_server_listen(f->server, http_server_address(f->server, 0), message, sizeof message));
    assert_begins(message, "cannot listen on 127.0.0.1:");
}

static void stopping_lets_running_requests_finish(void **state)
{
    (void)state;
    struct fixture f;
    struct http_server_options options;
    default_options(&options);
    start(&f, &options, "127.0.0.1:0");
    int running = connect_client(&f), idle = connect_client(&f);
    send_text(&f, running, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_for(&f, &f.n_handled, 1);
    wait_connections(&f, 2);
    http_server_stop(f.server, 60 * 1000, on_stopped, &f);
    assert_string_equal(receive(&f, idle, NULL), "");
    close(idle);
    assert_false(f.stopped);
    http_response_write(f.held, "abc", 3);
    http_response_end(f.held);
    receive(&f, running, NULL);
    assert_string_equal(received + strlen(received) - 13, "3\r\nabc\r\n0\r\n\r\n");
    close(running);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    assert_true(f.stopped);
    assert_int_equal(f.n_gone, 0);
    http_server_destroy(f.server);
    assert_int_equal(uv_loop_close(&f.loop), 0);
}

static void stopping_ends_what_does_not_finish_in_time(void **state)
{
    (void)state;
    struct fixture f;
    struct http_server_options options;
    default_options(&options);
    start(&f, &options, "127.0.0.1:0");
    int running = connect_client(&f);
    send_text(&f, running, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_for(&f, &f.n_handled, 1);
    http_server_stop(f.server, 60 * 1000, on_stopped, &f);
    turn(&f);
    assert_int_equal(f.n_gone, 0);
    http_server_stop(f.server, 10, NULL, NULL); /* less patience */
    uv_run(&f.loop, UV_RUN_DEFAULT);
    assert_true(f.stopped);
    assert_int_equal(f.n_gone, 1);
    http_server_destroy(f.server);
    assert_int_equal(uv_loop_close(&f.loop), 0);
    close(running);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_request_is_answered_and_the_connection_stays),
        TEST(http_1_0_closes_unless_asked_to_keep_alive),
        TEST(connection_close_is_honoured),
        TEST(head_and_options_are_answered_by_the_routes),
        TEST(path_parameters_are_decoded),
        TEST(bodies_come_by_length_and_in_chunks),
        TEST(expect_100_continue_is_answered_before_the_body),
        TEST(errors_have_their_status),
        TEST(what_parsers_read_differently_is_refused),
        TEST(nothing_is_read_after_trailers_or_chunk_extensions),
        TEST(pipelined_requests_split_anywhere_get_the_same_answers),
        TEST(pipelined_requests_wait_for_the_one_before),
        TEST(many_pipelined_requests_are_all_answered),
        TEST(a_long_head_is_431_and_a_long_target_414),
        TEST(a_body_may_have_exactly_the_limit),
        TEST(an_error_reaches_a_client_that_is_still_sending),
        cmocka_unit_test(bodies_of_many_clients_have_a_budget),
        cmocka_unit_test(clients_past_the_limit_wait_and_idle_ones_make_room),
        cmocka_unit_test(slow_senders_get_408),
        cmocka_unit_test(a_client_that_reads_nothing_is_given_up),
        TEST(a_stream_is_chunked_and_ends),
        TEST(an_http_1_0_stream_ends_with_the_connection),
        TEST(a_handler_hears_when_its_bytes_are_taken),
        TEST(an_aborted_stream_has_no_proper_end),
        TEST(a_client_that_leaves_is_noticed_though_nothing_is_written),
        TEST(a_client_that_leaves_behind_much_unread_data_is_noticed),
        TEST(a_reset_is_noticed),
        TEST(a_half_closed_client_gets_its_answer),
        TEST(a_half_closed_client_that_leaves_later_is_noticed),
        cmocka_unit_test(unix_sockets_are_served_and_removed),
        TEST(wrong_addresses_are_named),
        cmocka_unit_test(stopping_lets_running_requests_finish),
        cmocka_unit_test(stopping_ends_what_does_not_finish_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
