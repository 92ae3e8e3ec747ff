#include "tests/unit/http_client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

static const uint64_t patience_ns = 10ull * 1000 * 1000 * 1000;

int http_client_connect(uv_loop_t *loop, const char *address)
{
    int client;
    if (strncmp(address, "unix:", 5) == 0) {
        struct sockaddr_un name = {.sun_family = AF_UNIX};
        snprintf(name.sun_path, sizeof name.sun_path, "%s", address + 5);
        client = socket(AF_UNIX, SOCK_STREAM, 0);
        assert_int_equal(connect(client, (struct sockaddr *)&name, sizeof name), 0);
    } else {
        struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        name.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
        client = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(connect(client, (struct sockaddr *)&name, sizeof name), 0);
    }
    assert_int_equal(fcntl(client, F_SETFL, O_NONBLOCK), 0);
    uv_run(loop, UV_RUN_NOWAIT);
    return client;
}

void http_client_send(uv_loop_t *loop, int client, const char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t n = send(client, bytes, length, MSG_NOSIGNAL);
        if (n < 0) {
            assert_true(errno == EAGAIN || errno == EPIPE || errno == ECONNRESET);
            if (errno != EAGAIN)
                return;
            uv_run(loop, UV_RUN_NOWAIT);
            continue;
        }
        bytes += n;
        length -= (size_t)n;
    }
    uv_run(loop, UV_RUN_NOWAIT);
}

void http_client_receive(uv_loop_t *loop, int client, const char *until, char *received)
{
    size_t length = 0;
    received[0] = '\0';
    uint64_t deadline = uv_hrtime() + patience_ns;
    while (until == NULL || strstr(received, until) == NULL) {
        if (uv_hrtime() > deadline)
            fail_msg("waited too long for %s; got: %.1000s", until != NULL ? until : "the end", received);
        uv_run(loop, UV_RUN_NOWAIT);
        struct pollfd query = {.fd = client, .events = POLLIN};
        poll(&query, 1, 1);
        ssize_t n = recv(client, received + length, HTTP_CLIENT_BYTES - 16 - length, 0);
        if (n == 0)
            break;
        if (n < 0 && errno == EAGAIN)
            continue;
        if (n < 0) {
            strcpy(received + length, "<reset>");
            break;
        }
        length += (size_t)n;
        received[length] = '\0';
    }
}
