/* What the HTTP server answers: requests as text, in any pieces, up to every limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/http_fixture.h"

/* Sends one request on a fresh connection and returns everything up to the end of the connection. */
static const char *ask(struct http_fixture *f, const char *request)
{
    int client = http_fixture_connect(f);
    http_fixture_send(f, client, request);
    shutdown(client, SHUT_WR);
    http_fixture_receive(f, client, NULL);
    close(client);
    return http_fixture_received;
}

static void assert_status(struct http_fixture *f, const char *request, const char *status)
{
    char start_line[64];
    snprintf(start_line, sizeof start_line, "HTTP/1.1 %s", status);
    ask(f, request);
    if (strncmp(http_fixture_received, start_line, strlen(start_line)) != 0)
        fail_msg("%.200s\nexpected %s\ngot %.300s", request, status, http_fixture_received);
}

/* ---- tests: answers ---- */

static void a_request_is_answered_and_the_connection_stays(void **state)
{
    struct http_fixture *f = *state;
    int client = http_fixture_connect(f);
    for (int i = 0; i < 3; i++) {
        http_fixture_send(f, client, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_string_equal(http_fixture_receive(f, client, "hello"), HELLO);
    }
    assert_int_equal(http_server_connections(f->server), 1);
    close(client);
    http_fixture_wait_connections(f, 0);
}

static void http_1_0_closes_unless_asked_to_keep_alive(void **state)
{
    struct http_fixture *f = *state;
    int client = http_fixture_connect(f);
    http_fixture_send(f, client, "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_string_equal(http_fixture_receive(f, client, "hello"),
                        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: "
                        "5\r\nConnection: keep-alive\r\n\r\nhello");
    http_fixture_send(f, client, "GET /hello HTTP/1.0\r\n\r\n");
    assert_string_equal(
        http_fixture_receive(f, client, NULL),
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
    close(client);
}

static void connection_close_is_honoured(void **state)
{
    struct http_fixture *f = *state;
    int client = http_fixture_connect(f);
    http_fixture_send(f, client, "GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\nGET /hello HTTP/1.1\r\n");
    assert_string_equal(
        http_fixture_receive(f, client, NULL),
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
    close(client);
}

static void head_and_options_are_answered_by_the_routes(void **state)
{
    struct http_fixture *f = *state;
    assert_string_equal(ask(f, "HEAD /hello HTTP/1.1\r\nHost: x\r\n\r\n"),
                        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\n");
    assert_string_equal(ask(f, "HEAD /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") +
                            strlen(http_fixture_received) - 4,
                        "\r\n\r\n");
    assert_string_equal(ask(f, "OPTIONS /items/7 HTTP/1.1\r\nHost: x\r\n\r\n"),
                        "HTTP/1.1 204 No Content\r\nAllow: GET, HEAD, DELETE, OPTIONS\r\n\r\n");
    http_fixture_begins(ask(f, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"), "HTTP/1.1 204 No Content\r\nAllow: ");
}

static void path_parameters_are_decoded(void **state)
{
    struct http_fixture *f = *state;
    assert_non_null(strstr(ask(f, "GET /items/a%20b%2Fc?x=1 HTTP/1.1\r\nHost: x\r\n\r\n"), "\r\n\r\na b/c"));
    assert_non_null(strstr(ask(f, "GET http://x:8080/items/q HTTP/1.1\r\nHost: x\r\n\r\n"), "\r\n\r\nq"));
    assert_status(f, "GET /items/%00 HTTP/1.1\r\nHost: x\r\n\r\n", "404");
    assert_status(f, "GET /items/%2 HTTP/1.1\r\nHost: x\r\n\r\n", "404");
    assert_status(f, "GET /items/ HTTP/1.1\r\nHost: x\r\n\r\n", "404");
    assert_status(f, "GET /items/a/b HTTP/1.1\r\nHost: x\r\n\r\n", "404");
}

static void a_path_without_parameters_is_not_taken_for_a_parameter(void **state)
{
    struct http_fixture *f = *state;
    assert_status(f, "POST /items/new HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", "200");
    assert_status(f, "GET /items/new HTTP/1.1\r\nHost: x\r\n\r\n", "405");
    assert_non_null(strstr(http_fixture_received, "\r\nAllow: POST, OPTIONS\r\n"));
    assert_status(f, "GET /items/ne%77 HTTP/1.1\r\nHost: x\r\n\r\n", "405");
    assert_status(f, "GET /items/news HTTP/1.1\r\nHost: x\r\n\r\n", "200");
}

static void bodies_come_by_length_and_in_chunks(void **state)
{
    struct http_fixture *f = *state;
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
    struct http_fixture *f = *state;
    int client = http_fixture_connect(f);
    http_fixture_send(f, client, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    assert_string_equal(http_fixture_receive(f, client, "\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    http_fixture_send(f, client, "{}");
    http_fixture_begins(http_fixture_receive(f, client, "{}"), "HTTP/1.1 200 OK\r\n");
    /* Refused by its head: the client is spared the body. */
    http_fixture_send(f, client,
                      "POST /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    http_fixture_begins(http_fixture_receive(f, client, NULL), "HTTP/1.1 405 ");
    close(client);
}

static void errors_have_their_status(void **state)
{
    struct http_fixture *f = *state;
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
        {"GET /hello HTTP/1.1\r\nHost: x\r\n: no name\r\n\r\n", "400"},
        {"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n186a1\r\n", "413"},
        {"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", "413"},
        {"GET /hello HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n", "400"},
        {"GET hello HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
        {"GET /hello\r\n\r\n", "505"},
        {"\x16\x03\x01\x02", "400"},
        {"GET /hello HTTP/1.1\r\nHost: x\r\n", "400"},
        {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n{}", "400"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_status(f, cases[i].request, cases[i].status);
        assert_non_null(strstr(http_fixture_received, "{\"error\":{\"message\":"));
        assert_int_equal(f->last_status, atoi(cases[i].status));
    }
    ask(f, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_non_null(strstr(http_fixture_received, "\r\nAllow: POST, OPTIONS\r\n"));
}

static void what_parsers_read_differently_is_refused(void **state)
{
    struct http_fixture *f = *state;
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
        if (strncmp(http_fixture_received, "HTTP/1.1 400 ", 13) != 0 &&
            strncmp(http_fixture_received, "HTTP/1.1 501 ", 13) != 0 &&
            strncmp(http_fixture_received, "HTTP/1.1 413 ", 13) != 0)
            fail_msg("case %zu: %s\ngot: %.200s", i, requests[i], http_fixture_received);
        assert_non_null(strstr(http_fixture_received, "\r\nConnection: close\r\n"));
        assert_int_equal(f->n_handled, n_handled);
    }
}

static void nothing_is_read_after_trailers_or_chunk_extensions(void **state)
{
    struct http_fixture *f = *state;
    static const char *const bodies[] = {"2;a=b\r\n{}\r\n0\r\n\r\n", "2\r\n{}\r\n0\r\nA: b\r\n\r\n"};
    for (int i = 0; i < 2; i++) {
        char request[512];
        snprintf(request, sizeof request,
                 "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%sGET /hello HTTP/1.1\r\nHost: "
                 "x\r\n\r\n",
                 bodies[i]);
        http_fixture_begins(ask(f, request), "HTTP/1.1 200 OK\r\n");
        assert_non_null(strstr(http_fixture_received, "Connection: close\r\n\r\n{}"));
        assert_null(strstr(http_fixture_received, "hello"));
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
    struct http_fixture *f = *state;
    const char *text = PIPELINE;
    size_t length = strlen(text);
    char *whole = strdup(ask(f, text));
    assert_int_equal(f->n_handled, 4);
    assert_non_null(strstr(whole, "HTTP/1.1 404 Not Found"));
    for (size_t split = 1; split < length; split++) {
        int client = http_fixture_connect(f);
        http_fixture_send_bytes(f, client, text, split);
        http_fixture_turn(f);
        http_fixture_send_bytes(f, client, text + split, length - split);
        assert_string_equal(http_fixture_receive(f, client, NULL), whole);
        close(client);
    }
    /* And byte by byte. */
    int client = http_fixture_connect(f);
    for (size_t i = 0; i < length; i++)
        http_fixture_send_bytes(f, client, text + i, 1);
    assert_string_equal(http_fixture_receive(f, client, NULL), whole);
    close(client);
    free(whole);
}

static void pipelined_requests_wait_for_the_one_before(void **state)
{
    struct http_fixture *f = *state;
    int client = http_fixture_connect(f);
    http_fixture_send(f, client,
                      "GET /hold HTTP/1.1\r\nHost: x\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\nGET /hello HT");
    http_fixture_wait(f, &f->n_handled, 1);
    for (int i = 0; i < 10; i++)
        http_fixture_turn(f);
    assert_int_equal(f->n_handled, 1);
    http_response_send(f->held, 200, "text/plain", "held!", 5);
    http_fixture_receive(f, client, "hello");
    http_fixture_begins(http_fixture_received,
                        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nheld!HTTP/1.1 200");
    http_fixture_send(f, client, "TP/1.1\r\nHost: x\r\n\r\n");
    assert_string_equal(http_fixture_receive(f, client, "hello"), HELLO);
    close(client);
}

static void many_pipelined_requests_are_all_answered(void **state)
{
    struct http_fixture *f = *state;
    int client = http_fixture_connect(f);
    enum {
        N = 3000
    };
    char *text = malloc(N * 64);
    size_t length = 0;
    for (int i = 0; i < N; i++)
        length += (size_t)sprintf(text + length, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    http_fixture_send(f, client, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    http_fixture_wait(f, &f->n_handled, 1);
    /* More than the server keeps: the rest waits in the kernel. */
    size_t sent = 0;
    while (sent < length) {
        ssize_t n = send(client, text + sent, length - sent, MSG_NOSIGNAL);
        if (n < 0)
            break;
        sent += (size_t)n;
        http_fixture_turn(f);
    }
    http_response_send(f->held, 204, NULL, NULL, 0);
    f->held = NULL;
    /* Sends what is left while reading the answers. */
    size_t got = 0;
    uint64_t deadline = uv_hrtime() + 20ull * 1000 * 1000 * 1000;
    while (f->n_handled < N + 1 || got < strlen(HELLO) * N) {
        assert_true(uv_hrtime() < deadline);
        http_fixture_turn(f);
        if (sent < length) {
            ssize_t n = send(client, text + sent, length - sent, MSG_NOSIGNAL);
            sent += n > 0 ? (size_t)n : 0;
        }
        ssize_t n = recv(client, http_fixture_received, sizeof http_fixture_received, 0);
        got += n > 0 ? (size_t)n : 0;
    }
    assert_int_equal(f->n_handled, N + 1);
    free(text);
    close(client);
}

/* ---- tests: limits ---- */

static void a_long_head_is_431_and_a_long_target_414(void **state)
{
    struct http_fixture *f = *state;
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
    struct http_fixture *f = *state;
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
    struct http_fixture *f = *state;
    int client = http_fixture_connect(f);
    http_fixture_send(f, client, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n");
    /* The client does not look at the answer before it has sent a few megabytes. */
    char block[16 * 1024];
    memset(block, 'x', sizeof block);
    for (int i = 0; i < 300; i++)
        http_fixture_send_bytes(f, client, block, sizeof block);
    http_fixture_begins(http_fixture_receive(f, client, "body_too_large"), "HTTP/1.1 413 ");
    shutdown(client, SHUT_WR);
    http_fixture_wait_connections(f, 0);
    close(client);
}

static void bodies_of_many_clients_have_a_budget(void **state)
{
    (void)state;
    struct http_fixture f;
    struct http_server_options options;
    http_fixture_options(&options);
    options.total_body_bytes = 70 * 1000;
    http_fixture_start(&f, &options, "127.0.0.1:0");
    char *block = malloc(60 * 1000);
    memset(block, 'x', 60 * 1000);
    int first = http_fixture_connect(&f), second = http_fixture_connect(&f);
    http_fixture_send(&f, first, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n");
    http_fixture_send_bytes(&f, first, block, 59 * 1000);
    while (http_server_connections(f.server) != 2)
        http_fixture_turn(&f);
    for (int i = 0; i < 20; i++)
        http_fixture_turn(&f);
    http_fixture_send(&f, second, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n");
    http_fixture_send_bytes(&f, second, block, 60 * 1000);
    http_fixture_begins(http_fixture_receive(&f, second, "overloaded"), "HTTP/1.1 503 ");
    http_fixture_send_bytes(&f, first, block, 1000);
    http_fixture_begins(http_fixture_receive(&f, first, "\r\n\r\nxx"), "HTTP/1.1 200 ");
    close(second);
    close(first);
    http_fixture_wait_connections(&f, 0);
    /* All given back; now a handler keeps one. */
    second = http_fixture_connect(&f);
    http_fixture_send(&f, second, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n");
    http_fixture_send_bytes(&f, second, block, 60 * 1000);
    http_fixture_begins(http_fixture_receive(&f, second, "\r\n\r\nxx"), "HTTP/1.1 200 ");
    f.n_handled = 0;
    http_fixture_send(&f, second, "POST /keep HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n");
    http_fixture_send_bytes(&f, second, block, 60 * 1000);
    http_fixture_wait(&f, &f.n_handled, 1);
    first = http_fixture_connect(&f);
    http_fixture_send(&f, first, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n");
    http_fixture_send_bytes(&f, first, block, 60 * 1000);
    http_fixture_begins(http_fixture_receive(&f, first, "overloaded"), "HTTP/1.1 503 ");
    close(first);
    http_response_send(f.held, 204, NULL, NULL, 0);
    http_fixture_begins(http_fixture_receive(&f, second, "\r\n\r\n"), "HTTP/1.1 204 ");
    http_fixture_send(&f, second, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n");
    http_fixture_send_bytes(&f, second, block, 60 * 1000);
    http_fixture_begins(http_fixture_receive(&f, second, "\r\n\r\nxx"), "HTTP/1.1 200 ");
    close(second);
    free(block);
    http_fixture_finish(&f);
}

static void clients_past_the_limit_wait_and_idle_ones_make_room(void **state)
{
    (void)state;
    struct http_fixture f;
    struct http_server_options options;
    http_fixture_options(&options);
    options.connections = 2;
    http_fixture_start(&f, &options, "127.0.0.1:0");
    int busy = http_fixture_connect(&f);
    http_fixture_send(&f, busy, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    http_fixture_wait(&f, &f.n_handled, 1);
    int idle = http_fixture_connect(&f);
    http_fixture_wait_connections(&f, 2);
    int third = http_fixture_connect(&f);
    http_fixture_send(&f, third, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_string_equal(http_fixture_receive(&f, third, "hello"), HELLO);
    assert_string_equal(http_fixture_receive(&f, idle, NULL), "");
    /* So does one that is long in sending its request's head, but not one whose answer is awaited. */
    http_fixture_send(&f, third, "GET /hel");
    int fourth = http_fixture_connect(&f);
    http_fixture_send(&f, fourth, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_string_equal(http_fixture_receive(&f, fourth, "hello"), HELLO);
    http_fixture_receive(&f, third, NULL);
    assert_non_null(f.held);
    assert_int_equal(f.n_gone, 0);
    http_response_send(f.held, 204, NULL, NULL, 0);
    http_fixture_begins(http_fixture_receive(&f, busy, "\r\n\r\n"), "HTTP/1.1 204");
    close(busy);
    close(idle);
    close(third);
    close(fourth);
    http_fixture_finish(&f);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, http_fixture_setup, http_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_request_is_answered_and_the_connection_stays),
        TEST(http_1_0_closes_unless_asked_to_keep_alive),
        TEST(connection_close_is_honoured),
        TEST(head_and_options_are_answered_by_the_routes),
        TEST(path_parameters_are_decoded),
        TEST(a_path_without_parameters_is_not_taken_for_a_parameter),
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
