/* A client for tests of servers that run on the test's own thread: every call turns the server's loop. Failures end the
 * cmocka test. */
#ifndef TESTS_UNIT_HTTP_CLIENT_H
#define TESTS_UNIT_HTTP_CLIENT_H

#include <stddef.h>
#include <uv.h>

enum {
    HTTP_CLIENT_BYTES = 8 * 1024 * 1024, /* of the buffer that http_client_receive fills */
};

/* address as http_server_address gives it. The socket does not block. */
int http_client_connect(uv_loop_t *loop, const char *address);

/* Stops early when the server has closed. */
void http_client_send(uv_loop_t *loop, int client, const char *bytes, size_t length);

/* Reads until the text holds `until`, or to the end of the connection; fails after 10 s. The result is NUL-terminated;
 * "<reset>" at its end: the connection was reset. */
void http_client_receive(uv_loop_t *loop, int client, const char *until, char *received);

#endif
