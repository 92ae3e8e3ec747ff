/* A server with a small application, for the tests of the HTTP server: the test is the client and turns the loop.
 *
 * GET /hello answers at once; POST /echo and /items/new answer with the body; GET /items/{id} and DELETE with the id. GET /hold, POST
 * /keep (which takes the body) and GET /stream (which begins a streamed answer) leave the request in `held`. */
#ifndef TESTS_UNIT_HTTP_FIXTURE_H
#define TESTS_UNIT_HTTP_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "proto/http_server.h"
#include "tests/unit/http_client.h"

struct http_fixture {
    uv_loop_t loop;
    struct http_server *server;
    struct http_request *held; /* of /hold and /stream */
    int n_gone, n_handled, n_drained;
    bool stopped;
    int last_status;
};

#define HELLO "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello" /* without its date */

void http_fixture_options(struct http_server_options *options); /* bodies of up to 100,000 bytes */
void http_fixture_start(struct http_fixture *f, const struct http_server_options *options, const char *address);
/* Stops with no grace and checks that nothing is left over. */
void http_fixture_finish(struct http_fixture *f);
void http_fixture_turn(struct http_fixture *f);
/* For cmocka: *state is a fixture on 127.0.0.1. */
int http_fixture_setup(void **state);
int http_fixture_teardown(void **state);

/* Callbacks that count in the fixture. */
void http_fixture_on_drained(void *context);
void http_fixture_on_stopped(void *context);

int http_fixture_connect(struct http_fixture *f);
void http_fixture_send_bytes(struct http_fixture *f, int client, const char *bytes, size_t length);
void http_fixture_send(struct http_fixture *f, int client, const char *text);
/* As http_client_receive, without the Date fields; into http_fixture_received. */
const char *http_fixture_receive(struct http_fixture *f, int client, const char *until);
extern char http_fixture_received[HTTP_CLIENT_BYTES];

void http_fixture_wait(struct http_fixture *f, const int *value, int wanted);
void http_fixture_wait_connections(struct http_fixture *f, int wanted);
void http_fixture_begins(const char *text, const char *start); /* an assertion */

#endif
