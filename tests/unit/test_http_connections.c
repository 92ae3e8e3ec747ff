/* The life of connections: slow clients, streams, clients that leave, addresses, stopping. */
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

#include "tests/unit/http_fixture.h"

/* ---- tests: time ---- */

static void slow_senders_get_408(void **state)
{
    (void)state;
    struct http_fixture f;
    struct http_server_options options;
    http_fixture_options(&options);
    options.head_timeout_ms = options.body_timeout_ms = options.idle_timeout_ms = 20;
    options.linger_timeout_ms = 20;
    http_fixture_start(&f, &options, "127.0.0.1:0");
    int client = http_fixture_connect(&f);
    http_fixture_send(&f, client, "GET /hello HTTP/1.1\r\nHos");
    http_fixture_begins(http_fixture_receive(&f, client, NULL), "HTTP/1.1 408 ");
    close(client);
    client = http_fixture_connect(&f);
    http_fixture_send(&f, client, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n123");
    http_fixture_begins(http_fixture_receive(&f, client, NULL), "HTTP/1.1 408 ");
    close(client);
    /* A connection that never asked anything, and one between requests, are closed without a word. */
    client = http_fixture_connect(&f);
    assert_string_equal(http_fixture_receive(&f, client, NULL), "");
    close(client);
    client = http_fixture_connect(&f);
    http_fixture_send(&f, client, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_string_equal(http_fixture_receive(&f, client, NULL), HELLO);
    close(client);
    /* A handler may take its time. */
    client = http_fixture_connect(&f);
    http_fixture_send(&f, client, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    http_fixture_wait(&f, &f.n_handled, 2);
    uint64_t later = uv_hrtime() + 100 * 1000 * 1000;
    while (uv_hrtime() < later)
        http_fixture_turn(&f);
    assert_non_null(f.held);
    http_response_send(f.held, 204, NULL, NULL, 0);
    http_fixture_begins(http_fixture_receive(&f, client, "\r\n\r\n"), "HTTP/1.1 204");
    close(client);
    http_fixture_finish(&f);
}

static void a_client_that_reads_nothing_is_given_up(void **state)
{
    (void)state;
    struct http_fixture f;
    struct http_server_options options;
    http_fixture_options(&options);
    options.write_timeout_ms = 50;
    http_fixture_start(&f, &options, "127.0.0.1:0");
    int client = http_fixture_connect(&f);
    http_fixture_send(&f, client, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    http_fixture_wait(&f, &f.n_handled, 1);
    char block[64 * 1024];
    memset(block, 'x', sizeof block);
    while (f.held != NULL && http_response_queued(f.held) < 1024 * 1024) {
        http_response_write(f.held, block, sizeof block);
        http_fixture_turn(&f);
    }
    http_fixture_wait(&f, &f.n_gone, 1);
    close(client);
    http_fixture_finish(&f);
}

/* ---- tests: streams ---- */

static void a_stream_is_chunked_and_ends(void **state)
{
    struct http_fixture *f = *state;
    int client = http_fixture_connect(f);
    http_fixture_send(f, client, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_string_equal(http_fixture_receive(f, client, "\r\n\r\n"),
                        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
    http_response_write(f->held, "data: 1\n\n", 9);
    assert_string_equal(http_fixture_receive(f, client, "1\n\n\r\n"), "9\r\ndata: 1\n\n\r\n");
    http_response_write(f->held, "", 0);
    http_response_end(f->held);
    assert_string_equal(http_fixture_receive(f, client, "0\r\n\r\n"), "0\r\n\r\n");
    http_fixture_send(f, client, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_string_equal(http_fixture_receive(f, client, "hello"), HELLO);
    close(client);
}

static void an_http_1_0_stream_ends_with_the_connection(void **state)
{
    struct http_fixture *f = *state;
    int client = http_fixture_connect(f);
    http_fixture_send(f, client, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    http_fixture_wait(f, &f->n_handled, 1);
    http_response_write(f->held, "abc", 3);
    http_response_end(f->held);
    assert_string_equal(http_fixture_receive(f, client, NULL),
                        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\nabc");
    close(client);
}

static void a_handler_hears_when_its_bytes_are_taken(void **state)
{
    struct http_fixture *f = *state;
    int client = http_fixture_connect(f);
    http_fixture_send(f, client, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    http_fixture_wait(f, &f->n_handled, 1);
    assert_false(http_response_on_drained(f->held, 0, http_fixture_on_drained, f));
    char block[64 * 1024];
    memset(block, 'x', sizeof block);
    size_t written = 0;
    while (http_response_queued(f->held) < 256 * 1024) {
        http_response_write(f->held, block, sizeof block);
        written += sizeof block;
    }
    assert_true(http_response_on_drained(f->held, 1024, http_fixture_on_drained, f));
    size_t got = 0;
    while (got < written) {
        http_fixture_turn(f);
        ssize_t n = recv(client, http_fixture_received, sizeof http_fixture_received, 0);
        got += n > 0 ? (size_t)n : 0;
    }
    http_fixture_wait(f, &f->n_drained, 1);
    assert_true(http_response_queued(f->held) <= 1024);
    http_response_end(f->held);
    close(client);
}

static void an_aborted_stream_has_no_proper_end(void **state)
{
    struct http_fixture *f = *state;
    int client = http_fixture_connect(f);
    http_fixture_send(f, client, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    http_fixture_wait(f, &f->n_handled, 1);
    http_response_write(f->held, "abc", 3);
    http_response_abort(f->held);
    http_fixture_receive(f, client, NULL);
    assert_null(strstr(http_fixture_received, "0\r\n\r\n"));
    assert_int_equal(f->n_gone, 0);
    close(client);
}

/* ---- tests: clients that leave ---- */

static void leave(struct http_fixture *f, const char *request)
{
    int client = http_fixture_connect(f);
    int n_gone = f->n_gone;
    http_fixture_send(f, client, request);
    while (f->held == NULL)
        http_fixture_turn(f);
    close(client);
    http_fixture_wait(f, &f->n_gone, n_gone + 1);
    http_fixture_wait_connections(f, 0);
}

static void a_client_that_leaves_is_noticed_though_nothing_is_written(void **state)
{
    struct http_fixture *f = *state;
    leave(f, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    leave(f, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    /* Pipelined bytes in between must not hide it. */
    leave(f, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\nGET /he");
}

static void a_client_that_leaves_behind_much_unread_data_is_noticed(void **state)
{
    struct http_fixture *f = *state;
    int client = http_fixture_connect(f);
    http_fixture_send(f, client, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    http_fixture_wait(f, &f->n_handled, 1);
    char block[16 * 1024];
    memset(block, 'x', sizeof block);
    for (int i = 0; i < 20; i++) {
        ssize_t n = send(client, block, sizeof block, MSG_NOSIGNAL);
        (void)n;
        http_fixture_turn(f);
    }
    close(client);
    http_fixture_wait(f, &f->n_gone, 1);
}

static void a_reset_is_noticed(void **state)
{
    struct http_fixture *f = *state;
    int client = http_fixture_connect(f);
    http_fixture_send(f, client, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    http_fixture_wait(f, &f->n_handled, 1);
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    setsockopt(client, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    close(client);
    http_fixture_wait(f, &f->n_gone, 1);
}

static void a_half_closed_client_gets_its_answer(void **state)
{
    struct http_fixture *f = *state;
    int client = http_fixture_connect(f);
    http_fixture_send(f, client, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    shutdown(client, SHUT_WR);
    for (int i = 0; i < 50; i++)
        http_fixture_turn(f);
    assert_int_equal(f->n_gone, 0);
    http_response_send(f->held, 200, "text/plain", "held!", 5);
    http_fixture_receive(f, client, NULL);
    assert_non_null(
        strstr(http_fixture_received, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n"));
    assert_string_equal(http_fixture_received + strlen(http_fixture_received) - 5, "held!");
    close(client);
    /* The same with a request that waits behind another, and with a stream. */
    client = http_fixture_connect(f);
    http_fixture_send(f, client,
                      "GET /hold HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    shutdown(client, SHUT_WR);
    http_fixture_wait(f, &f->n_handled, 2);
    http_response_send(f->held, 204, NULL, NULL, 0);
    assert_non_null(strstr(http_fixture_receive(f, client, NULL), HELLO));
    close(client);
    client = http_fixture_connect(f);
    http_fixture_send(f, client, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    shutdown(client, SHUT_WR);
    http_fixture_receive(f, client, ":\n\n\r\n");
    http_response_write(f->held, "abc", 3);
    http_response_end(f->held);
    assert_string_equal(http_fixture_receive(f, client, NULL), "3\r\nabc\r\n0\r\n\r\n");
    close(client);
}

static void a_half_closed_client_that_leaves_later_is_noticed(void **state)
{
    struct http_fixture *f = *state;
    int client = http_fixture_connect(f);
    http_fixture_send(f, client, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    shutdown(client, SHUT_WR);
    http_fixture_receive(f, client, ":\n\n\r\n");
    close(client);
    while (f->held != NULL) {
        http_response_write(f->held, "abc", 3);
        http_fixture_turn(f);
    }
    assert_int_equal(f->n_gone, 1);
}

/* ---- tests: addresses and stopping ---- */

static void unix_sockets_are_served_and_removed(void **state)
{
    (void)state;
    struct http_fixture f;
    struct http_server_options options;
    http_fixture_options(&options);
    char directory[] = "/tmp/test_http_XXXXXX", address[64];
    assert_non_null(mkdtemp(directory));
    snprintf(address, sizeof address, "unix:%s/socket", directory);
    http_fixture_start(&f, &options, address);
    assert_string_equal(http_server_address(f.server, 0), address);
    int client = http_fixture_connect(&f);
    http_fixture_send(&f, client, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_string_equal(http_fixture_receive(&f, client, "hello"), HELLO);
    close(client);
    leave(&f, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    client = http_fixture_connect(&f);
    http_fixture_send(&f, client, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    shutdown(client, SHUT_WR);
    while (f.held == NULL)
        http_fixture_turn(&f);
    for (int i = 0; i < 50; i++)
        http_fixture_turn(&f);
    http_response_send(f.held, 204, NULL, NULL, 0);
    http_fixture_begins(http_fixture_receive(&f, client, NULL), "HTTP/1.1 204"); /* no interim answer is needed here */
    close(client);

    /* A second server finds the first; a stale socket is replaced; another file is left alone. */
    char message[256];
    struct http_server *second = http_server_create(&f.loop, &options);
    assert_false(http_server_listen(second, address, message, sizeof message));
    assert_non_null(strstr(message, "another process listens there"));
    http_server_destroy(second);
    http_fixture_finish(&f);
    assert_int_not_equal(access(address + 5, F_OK), 0);
    int stale = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    strcpy(name.sun_path, address + 5);
    assert_int_equal(bind(stale, (struct sockaddr *)&name, sizeof name), 0);
    close(stale);
    http_fixture_start(&f, &options, address);
    http_fixture_finish(&f);
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
    struct http_fixture *f = *state;
    static const char *const addresses[] = {
        "",        "8080",          "127.0.0.1", "127.0.0.1:",      "127.0.0.1:x",  "1.2.3:80",    "::1:80",
        "[::1:80", "[127.0.0.1]:8", "unix:",     "127.0.0.1:65536", "localhost:80", "127.0.0.1:-1"};
    char message[256];
    for (size_t i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
        assert_false(http_server_listen(f->server, addresses[i], message, sizeof message));
        http_fixture_begins(message, addresses[i]);
    }
    /* An address in use. */
    assert_false(http_server_listen(f->server, http_server_address(f->server, 0), message, sizeof message));
    http_fixture_begins(message, "cannot listen on 127.0.0.1:");
}

static void stopping_lets_running_requests_finish(void **state)
{
    (void)state;
    struct http_fixture f;
    struct http_server_options options;
    http_fixture_options(&options);
    http_fixture_start(&f, &options, "127.0.0.1:0");
    int running = http_fixture_connect(&f), idle = http_fixture_connect(&f);
    http_fixture_send(&f, running, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    http_fixture_wait(&f, &f.n_handled, 1);
    http_fixture_wait_connections(&f, 2);
    http_server_stop(f.server, 60 * 1000, http_fixture_on_stopped, &f);
    assert_string_equal(http_fixture_receive(&f, idle, NULL), "");
    close(idle);
    assert_false(f.stopped);
    http_response_write(f.held, "abc", 3);
    http_response_end(f.held);
    http_fixture_receive(&f, running, NULL);
    assert_string_equal(http_fixture_received + strlen(http_fixture_received) - 13, "3\r\nabc\r\n0\r\n\r\n");
    close(running);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    assert_true(f.stopped);
    assert_int_equal(f.n_gone, 0);
    http_server_destroy(f.server);
    assert_int_equal(uv_loop_close(&f.loop), 0);
}

static void stopping_waits_for_no_client_that_keeps_its_connection(void **state)
{
    (void)state;
    struct http_fixture f;
    struct http_server_options options;
    http_fixture_options(&options);
    options.linger_timeout_ms = options.linger_total_ms = options.idle_timeout_ms = 3600 * 1000;
    http_fixture_start(&f, &options, "127.0.0.1:0");
    int fresh = http_fixture_connect(&f), used = http_fixture_connect(&f), running = http_fixture_connect(&f);
    http_fixture_send(&f, used, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    http_fixture_receive(&f, used, "hello");
    http_fixture_send(&f, running, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    http_fixture_wait(&f, &f.n_handled, 2);
    http_fixture_wait_connections(&f, 3);
    http_server_stop(f.server, 3600 * 1000, http_fixture_on_stopped, &f);
    http_response_end(f.held);
    uv_run(&f.loop, UV_RUN_DEFAULT); /* an hour, if anybody were waited for */
    assert_true(f.stopped);
    http_server_destroy(f.server);
    assert_int_equal(uv_loop_close(&f.loop), 0);
    close(fresh);
    close(used);
    close(running);
}

static void stopping_ends_what_does_not_finish_in_time(void **state)
{
    (void)state;
    struct http_fixture f;
    struct http_server_options options;
    http_fixture_options(&options);
    http_fixture_start(&f, &options, "127.0.0.1:0");
    int running = http_fixture_connect(&f);
    http_fixture_send(&f, running, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    http_fixture_wait(&f, &f.n_handled, 1);
    http_server_stop(f.server, 60 * 1000, http_fixture_on_stopped, &f);
    http_fixture_turn(&f);
    assert_int_equal(f.n_gone, 0);
    http_server_stop(f.server, 10, NULL, NULL); /* less patience */
    uv_run(&f.loop, UV_RUN_DEFAULT);
    assert_true(f.stopped);
    assert_int_equal(f.n_gone, 1);
    http_server_destroy(f.server);
    assert_int_equal(uv_loop_close(&f.loop), 0);
    close(running);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, http_fixture_setup, http_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
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
        cmocka_unit_test(stopping_waits_for_no_client_that_keeps_its_connection),
        cmocka_unit_test(stopping_ends_what_does_not_finish_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
