/* Which web pages may read answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/api_keys.h"
#include "proto/http_cors.h"
#include "tests/unit/http_fixture.h"

static const char *const two[] = {"https://example.org", "http://localhost:3000"};
static const char *const all[] = {"https://example.org", "*"};

#define EXPOSED "Access-Control-Expose-Headers: Allow, Content-Disposition, Retry-After, WWW-Authenticate\r\n"

static const char *ask(struct http_fixture *f, const char *request)
{
    int client = http_fixture_connect(f);
    http_fixture_send(f, client, request);
    shutdown(client, SHUT_WR);
    http_fixture_receive(f, client, NULL);
    close(client);
    return http_fixture_received;
}

static void has(const char *part)
{
    if (strstr(http_fixture_received, part) == NULL)
        fail_msg("no %s in\n%s", part, http_fixture_received);
}

static void has_not(const char *part)
{
    if (strstr(http_fixture_received, part) != NULL)
        fail_msg("%s in\n%s", part, http_fixture_received);
}

static void an_origin_is_scheme_host_and_port(void **state)
{
    (void)state;
    static const char *const right[] = {"*",
                                        "https://example.org",
                                        "http://localhost:3000",
                                        "http://127.0.0.1:65535",
                                        "http://[::1]:80",
                                        "http://[::1]",
                                        "chrome-extension://abcdefghijklmnop",
                                        "app://obsidian.md",
                                        "capacitor://localhost"};
    static const char *const wrong[] = {"",
                                        "null",
                                        "example.org",
                                        "https://",
                                        "://example.org",
                                        "https://example.org/",
                                        "https://Example.org",
                                        "https://example.org:",
                                        "https://example.org:x",
                                        "https://example.org:123456",
                                        "https://*.example.org",
                                        "https://a b",
                                        "http://[::1",
                                        "http://[]",
                                        "http://[::1]x",
                                        "http://a,http://b",
                                        "http://a\r\nX: y"};
    for (size_t i = 0; i < sizeof right / sizeof *right; i++)
        if (!http_cors_is_origin(right[i]))
            fail_msg("%s", right[i]);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (http_cors_is_origin(wrong[i]))
            fail_msg("%s", wrong[i]);
}

static void nothing_is_allowed_unless_asked_for(void **state)
{
    struct http_fixture *f = *state;
    assert_string_equal(ask(f, "GET /hello HTTP/1.1\r\nHost: x\r\nOrigin: https://example.org\r\n\r\n"), HELLO);
    assert_string_equal(ask(f, "OPTIONS /hello HTTP/1.1\r\nHost: x\r\nOrigin: https://example.org\r\n"
                               "Access-Control-Request-Method: GET\r\n\r\n"),
                        "HTTP/1.1 204 No Content\r\nAllow: GET, HEAD, OPTIONS\r\n\r\n");
}

static void listed_origins_are_answered_by_name(void **state)
{
    struct http_fixture *f = *state;
    http_server_allow_origins(f->server, two, 2);
    assert_string_equal(ask(f, "GET /hello HTTP/1.1\r\nHost: x\r\nOrigin: http://localhost:3000\r\n\r\n"),
                        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nVary: Origin\r\n"
                        "Access-Control-Allow-Origin: http://localhost:3000\r\n" EXPOSED "\r\nhello");
    static const char *const others[] = {
        "https://example.com", "https://example.org:443", "http://example.org", "https://example.org.evil", "null",
        "HTTPS://EXAMPLE.ORG"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char request[200];
        snprintf(request, sizeof request, "GET /hello HTTP/1.1\r\nHost: x\r\nOrigin: %s\r\n\r\n", others[i]);
        http_fixture_begins(ask(f, request), "HTTP/1.1 200 ");
        has("\r\nVary: Origin\r\n");
        has_not("Access-Control-");
    }
    ask(f, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    has("\r\nVary: Origin\r\n");
    has_not("Access-Control-");
    has_not("Credentials");
}

static void a_star_allows_every_origin(void **state)
{
    struct http_fixture *f = *state;
    http_server_allow_origins(f->server, all, 2);
    ask(f, "GET /hello HTTP/1.1\r\nHost: x\r\nOrigin: https://example.org\r\n\r\n");
    has("\r\nAccess-Control-Allow-Origin: *\r\n" EXPOSED);
    has_not("Vary");
    has_not("Credentials");
    assert_string_equal(ask(f, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"), HELLO);
}

static void preflights_are_answered_for_the_path(void **state)
{
    struct http_fixture *f = *state;
    http_server_allow_origins(f->server, two, 2);
    assert_string_equal(ask(f, "OPTIONS /items/7 HTTP/1.1\r\nHost: x\r\nOrigin: https://example.org\r\n"
                               "Access-Control-Request-Method: DELETE\r\n"
                               "Access-Control-Request-Headers: authorization,x-stainless-os\r\n\r\n"),
                        "HTTP/1.1 204 No Content\r\nAllow: GET, HEAD, DELETE, OPTIONS\r\n"
                        "Vary: Access-Control-Request-Method, Access-Control-Request-Headers\r\n"
                        "Access-Control-Allow-Methods: GET, HEAD, DELETE, OPTIONS\r\n"
                        "Access-Control-Allow-Headers: authorization,x-stainless-os\r\n"
                        "Access-Control-Max-Age: 7200\r\nVary: Origin\r\n"
                        "Access-Control-Allow-Origin: https://example.org\r\n" EXPOSED "\r\n");
    ask(f, "OPTIONS /echo HTTP/1.1\r\nHost: x\r\nOrigin: https://example.org\r\n"
           "Access-Control-Request-Method: POST\r\n\r\n");
    has("Access-Control-Allow-Methods: POST, OPTIONS\r\n");
    has_not("Access-Control-Allow-Headers");
    ask(f, "OPTIONS /echo HTTP/1.1\r\nHost: x\r\nOrigin: https://example.com\r\n"
           "Access-Control-Request-Method: POST\r\n\r\n");
    has_not("Access-Control-Allow");
    ask(f, "OPTIONS /nothing HTTP/1.1\r\nHost: x\r\nOrigin: https://example.org\r\n"
           "Access-Control-Request-Method: POST\r\n\r\n");
    http_fixture_begins(http_fixture_received, "HTTP/1.1 404 ");
}

/* Browsers send no key with a preflight, and pages want to know why they were refused. */
static void errors_and_preflights_without_a_key_are_readable(void **state)
{
    struct http_fixture *f = *state;
    char message[200];
    struct api_keys *keys = api_keys_parse("k", 1, "keys", message, sizeof message);
    http_server_require_keys(f->server, keys, "/hello");
    http_server_allow_origins(f->server, two, 2);
    ask(f, "OPTIONS /items/7 HTTP/1.1\r\nHost: x\r\nOrigin: https://example.org\r\n"
           "Access-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: authorization\r\n\r\n");
    http_fixture_begins(http_fixture_received, "HTTP/1.1 204 ");
    has("Access-Control-Allow-Headers: authorization\r\n");
    ask(f, "GET /items/7 HTTP/1.1\r\nHost: x\r\nOrigin: https://example.org\r\n\r\n");
    http_fixture_begins(http_fixture_received, "HTTP/1.1 401 ");
    has("Access-Control-Allow-Origin: https://example.org\r\n");
    ask(f, "GET /items/7 HTTP/1.1\r\nHost: x\r\nOrigin: https://example.org\r\nAuthorization: Bearer k\r\n\r\n");
    http_fixture_begins(http_fixture_received, "HTTP/1.1 200 ");
    api_keys_destroy(keys);
}

static void heads_that_cannot_be_read_have_no_origin(void **state)
{
    struct http_fixture *f = *state;
    http_server_allow_origins(f->server, all, 2);
    static const char *const broken[] = {
        "GET /hello HTTP/1.1\r\nHost: x\r\nOrigin: https://example.org\r\nContent-Length: x\r\n\r\n",
        "GET /hello HTTP/1.1\r\nOrigin: https://example.org\r\nbad field\r\n\r\n",
        "\x01\x02\r\nOrigin: https://example.org\r\n\r\n",
        "GET /hello HTTP/9.9\r\nHost: x\r\nOrigin: https://example.org\r\n\r\n"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        ask(f, broken[i]);
        has("HTTP/1.1 ");
        has_not("HTTP/1.1 200");
    }
}

#define SERVER_TEST(test) cmocka_unit_test_setup_teardown(test, http_fixture_setup, http_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_origin_is_scheme_host_and_port),
        SERVER_TEST(nothing_is_allowed_unless_asked_for),
        SERVER_TEST(listed_origins_are_answered_by_name),
        SERVER_TEST(a_star_allows_every_origin),
        SERVER_TEST(preflights_are_answered_for_the_path),
        SERVER_TEST(errors_and_preflights_without_a_key_are_readable),
        SERVER_TEST(heads_that_cannot_be_read_have_no_origin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
