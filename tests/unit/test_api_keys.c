/* API keys: what a file of them may hold, and who is let in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/api_keys.h"
#include "tests/unit/http_fixture.h"

static struct api_keys *parse(const char *text)
{
    char message[512];
    struct api_keys *keys = api_keys_parse(text, strlen(text), "keys", message, sizeof message);
    if (keys == NULL)
        fail_msg("%s", message);
    return keys;
}

static void refused(const char *text, size_t length, const char *part)
{
    char message[512];
    assert_null(api_keys_parse(text, length, "keys", message, sizeof message));
    if (strstr(message, part) == NULL || strchr(message, '\n') != NULL)
        fail_msg("expected: %s\ngot: %s", part, message);
}

/* ---- files ---- */

static void blank_lines_and_comments_are_no_keys(void **state)
{
    (void)state;
    struct api_keys *keys = parse("# all of them\r\n\n  first-key\t\r\n\n#no\n\tsk-2!~\nlast");
    assert_int_equal(api_keys_count(keys), 3);
    assert_true(api_keys_have(keys, "first-key"));
    assert_true(api_keys_have(keys, "sk-2!~"));
    assert_true(api_keys_have(keys, "last"));
    static const char *const others[] = {"",    "firs-key", "first-ke", "first-key1",   "First-key",
                                         "#no", "las",      "last ",    "# all of them"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(api_keys_have(keys, others[i]));
    api_keys_destroy(keys);
}

static void what_is_no_key_is_refused_with_its_line(void **state)
{
    (void)state;
    refused("a\ntwo words\n", 12, "keys, line 2: one key a line");
    refused("a\n\nk\xc3\xa4se\n", 9, "keys, line 3: ");
    refused("a\0b\n", 4, "keys, line 1: ");
    refused("", 0, "keys has 0 API keys; it must have 1 to 1024");
    refused("# none\n\n", 8, "keys has 0 API keys");
}

static void a_key_has_at_most_255_bytes_and_a_file_1024_keys(void **state)
{
    (void)state;
    char text[API_KEYS_MAX * 2 + 3];
    memset(text, 'k', API_KEY_MAX_BYTES + 1);
    text[API_KEY_MAX_BYTES + 1] = '\0';
    refused(text, API_KEY_MAX_BYTES + 1, "a key of 256 bytes; a key has at most 255");
    text[API_KEY_MAX_BYTES] = '\0';
    struct api_keys *keys = parse(text);
    assert_true(api_keys_have(keys, text));
    text[API_KEY_MAX_BYTES] = 'k';
    assert_false(api_keys_have(keys, text));
    text[API_KEY_MAX_BYTES - 1] = '\0';
    assert_false(api_keys_have(keys, text));
    api_keys_destroy(keys);
    for (int i = 0; i <= API_KEYS_MAX; i++)
        memcpy(text + 2 * i, "k\n", 3);
    refused(text, 2 * (API_KEYS_MAX + 1), "keys has 1025 API keys; it must have 1 to 1024");
    text[2 * API_KEYS_MAX] = '\0';
    keys = parse(text);
    assert_int_equal(api_keys_count(keys), API_KEYS_MAX);
    api_keys_destroy(keys);
}

static void only_regular_files_are_read(void **state)
{
    (void)state;
    char path[] = "/tmp/npud-keys-XXXXXX", message[512];
    bool open_to_all = false;
    int file = mkstemp(path);
    assert_true(write(file, "one\ntwo\n", 8) == 8);
    struct api_keys *keys = api_keys_read(path, &open_to_all, message, sizeof message);
    assert_non_null(keys);
    assert_false(open_to_all);
    assert_true(api_keys_have(keys, "two"));
    api_keys_destroy(keys);
    assert_int_equal(fchmod(file, 0444), 0);
    keys = api_keys_read(path, &open_to_all, message, sizeof message);
    assert_true(open_to_all);
    api_keys_destroy(keys);
    assert_int_equal(ftruncate(file, 2 * 1024 * 1024), 0);
    assert_null(api_keys_read(path, &open_to_all, message, sizeof message));
    assert_non_null(strstr(message, "too many for a file of API keys"));
    assert_int_equal(ftruncate(file, 0), 0);
    assert_null(api_keys_read(path, &open_to_all, message, sizeof message));
    assert_non_null(strstr(message, "has 0 API keys"));
    close(file);
    unlink(path);
    assert_null(api_keys_read(path, &open_to_all, message, sizeof message));
    assert_non_null(strstr(message, "No such file"));
    assert_null(api_keys_read("/tmp", &open_to_all, message, sizeof message));
    assert_non_null(strstr(message, "not a regular file"));
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_null(api_keys_read(path, &open_to_all, message, sizeof message));
    assert_non_null(strstr(message, "not a regular file"));
    unlink(path);
}

static void the_scheme_is_bearer_in_any_case(void **state)
{
    (void)state;
    assert_string_equal(api_keys_bearer("Bearer k"), "k");
    assert_string_equal(api_keys_bearer("bEARER   k k"), "k k");
    assert_string_equal(api_keys_bearer("Bearer "), "");
    assert_null(api_keys_bearer("Bearer"));
    assert_null(api_keys_bearer("Bearerk"));
    assert_null(api_keys_bearer("Basic azpr"));
    assert_null(api_keys_bearer(""));
}

/* ---- the server ---- */

static const char *ask(struct http_fixture *f, const char *request)
{
    int client = http_fixture_connect(f);
    http_fixture_send(f, client, request);
    shutdown(client, SHUT_WR);
    http_fixture_receive(f, client, NULL);
    close(client);
    return http_fixture_received;
}

static void assert_unauthorized(struct http_fixture *f, const char *request)
{
    http_fixture_begins(ask(f, request), "HTTP/1.1 401 Unauthorized\r\n");
    if (strstr(http_fixture_received, "\r\nWWW-Authenticate: Bearer realm=\"npud\"\r\n") == NULL ||
        strstr(http_fixture_received,
               "\"type\":\"invalid_request_error\",\"param\":null,\"code\":\"invalid_api_key\"") == NULL)
        fail_msg("%s\ngot %s", request, http_fixture_received);
}

static void requests_without_a_key_are_refused_but_for_the_open_path(void **state)
{
    struct http_fixture *f = *state;
    struct api_keys *keys = parse("good\nother\n");
    http_server_require_keys(f->server, keys, "/hello");
    http_fixture_begins(ask(f, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"), "HTTP/1.1 200 ");
    http_fixture_begins(ask(f, "HEAD /hello HTTP/1.1\r\nHost: x\r\n\r\n"), "HTTP/1.1 200 ");
    http_fixture_begins(ask(f, "OPTIONS /items/7 HTTP/1.1\r\nHost: x\r\n\r\n"), "HTTP/1.1 204 ");
    assert_unauthorized(f, "GET /items/7 HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_unauthorized(f, "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_unauthorized(f, "GET /hello/ HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_unauthorized(f, "GET /items/7 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer bad\r\n\r\n");
    assert_unauthorized(f, "GET /items/7 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer\r\n\r\n");
    assert_unauthorized(f, "GET /items/7 HTTP/1.1\r\nHost: x\r\nAuthorization: Basic Z29vZA==\r\n\r\n");
    assert_unauthorized(f, "GET /items/7 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good other\r\n\r\n");
    http_fixture_begins(ask(f, "GET /items/7 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n\r\n"),
                        "HTTP/1.1 200 ");
    http_fixture_begins(ask(f, "GET /items/7 HTTP/1.1\r\nHost: x\r\nauthorization: bearer  other\r\n\r\n"),
                        "HTTP/1.1 200 ");
    http_fixture_begins(ask(f, "GET /nothing HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n\r\n"),
                        "HTTP/1.1 404 ");
    http_server_require_keys(f->server, NULL, NULL);
    http_fixture_begins(ask(f, "GET /items/7 HTTP/1.1\r\nHost: x\r\n\r\n"), "HTTP/1.1 200 ");
    api_keys_destroy(keys);
}

/* The answer is there although not one byte of the body was sent. */
static void no_body_is_taken_from_those_without_a_key(void **state)
{
    struct http_fixture *f = *state;
    struct api_keys *keys = parse("good\n");
    http_server_require_keys(f->server, keys, "/hello");
    int client = http_fixture_connect(f);
    http_fixture_send(f, client, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 90000\r\n\r\n");
    http_fixture_begins(http_fixture_receive(f, client, NULL), "HTTP/1.1 401 ");
    assert_non_null(strstr(http_fixture_received, "\r\nConnection: close\r\n"));
    assert_int_equal(f->n_handled, 0);
    close(client);
    http_fixture_begins(
        ask(f, "POST /echo HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\nContent-Length: 2\r\n\r\n{}"),
        "HTTP/1.1 200 ");
    http_fixture_wait_connections(f, 0);
    api_keys_destroy(keys);
}

#define SERVER_TEST(test) cmocka_unit_test_setup_teardown(test, http_fixture_setup, http_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blank_lines_and_comments_are_no_keys),
        cmocka_unit_test(what_is_no_key_is_refused_with_its_line),
        cmocka_unit_test(a_key_has_at_most_255_bytes_and_a_file_1024_keys),
        cmocka_unit_test(only_regular_files_are_read),
        cmocka_unit_test(the_scheme_is_bearer_in_any_case),
        SERVER_TEST(requests_without_a_key_are_refused_but_for_the_open_path),
        SERVER_TEST(no_body_is_taken_from_those_without_a_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
