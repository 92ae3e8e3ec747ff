/* /v1/sessions over HTTP: what the engine is asked, and how its answers come out. */
#include "tests/unit/service_fixture.h"

static const struct session_description example = {.id = "00000000000000a1",
                                                   .resident = true,
                                                   .pinned = true,
                                                   .on_disk = true,
                                                   .n_tokens = 70,
                                                   .n_resident = 64,
                                                   .blocks_own = 1,
                                                   .blocks_shared = 2,
                                                   .bytes = 12288,
                                                   .turns = 3,
                                                   .created_s = 1000,
                                                   .used_s = 2000};

static void expect(const char *status, const char *part)
{
    assert_memory_equal(received, status, strlen(status));
    if (strstr(received, part) == NULL)
        fail_msg("expected %s\ngot %.2000s", part, received);
}

static void until_the_model_is_there_sessions_are_503(void **state)
{
    struct fixture *f = *state;
    static const char *const requests[][2] = {{"GET", "/v1/sessions"},
                                              {"GET", "/v1/sessions/a1"},
                                              {"DELETE", "/v1/sessions/a1"},
                                              {"POST", "/v1/sessions/a1/fork"},
                                              {"POST", "/v1/sessions/a1/pin"},
                                              {"GET", "/v1/sessions/a1/export"},
                                              {"GET", "/metrics"}};
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        int client = send_request(f, requests[i][0], requests[i][1]);
        receive(f, client, "model_loading");
        expect("HTTP/1.1 503 ", "Retry-After: 1\r\n");
        close(client);
    }
}

static void the_list_shows_every_session(void **state)
{
    struct fixture *f = *state;
    make_ready(f);
    int client = send_request(f, "GET", "/v1/sessions");
    struct engine_request *request = wait_asked(f, 1);
    assert_int_equal(request->verb, ENGINE_LIST_SESSIONS);
    assert_string_equal(request->session, "");
    request->sessions = calloc(4, sizeof *request->sessions);
    request->n_sessions = 4;
    for (int i = 0; i < 4; i++) {
        request->sessions[i] = example;
        request->sessions[i].id[0] = (char)('1' + i);
    }
    request->sessions[0].key = strdup("a \"key\"");
    request->sessions[1].busy = true;
    request->sessions[2].resident = false;
    request->sessions[3].resident = request->sessions[3].on_disk = false;
    request->sessions[3].key = strdup("\xff not UTF-8"); /* as it may come with an import */
    reply(f, ENGINE_ANSWER_OK, "");
    receive(f, client, "]}");
    expect("HTTP/1.1 200 ", "{\"object\":\"list\",\"data\":[{\"id\":\"10000000000000a1\",\"object\":\"session\",");
    assert_non_null(strstr(received,
                           "\"key\":\"a \\\"key\\\"\",\"state\":\"resident\",\"tokens\":70,\"resident_tokens\":64,"
                           "\"blocks\":{\"own\":1,\"shared\":2},\"bytes\":12288,\"on_disk\":true,\"pinned\":true,"
                           "\"imported\":false,"
                           "\"turns\":3,\"created\":1000,\"last_used\":2000}"));
    assert_non_null(strstr(received, "\"key\":null,\"state\":\"busy\""));
    assert_non_null(strstr(received, "\"state\":\"on_disk\""));
    assert_non_null(strstr(received, "\"key\":\"? not UTF-8\",\"state\":\"evicted\""));
    close(client);
}

static void an_empty_list_is_a_list(void **state)
{
    struct fixture *f = *state;
    make_ready(f);
    int client = send_request(f, "GET", "/v1/sessions");
    wait_asked(f, 1);
    reply(f, ENGINE_ANSWER_OK, "");
    receive(f, client, "{\"object\":\"list\",\"data\":[]}");
    close(client);
}

static void each_verb_asks_its_question(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *method, *path;
        enum engine_verb verb;
    } cases[] = {
        {"GET", "/v1/sessions/00000000000000a1", ENGINE_LIST_SESSIONS},
        {"POST", "/v1/sessions/00000000000000a1/fork", ENGINE_FORK_SESSION},
        {"POST", "/v1/sessions/00000000000000a1/pin", ENGINE_PIN_SESSION},
        {"POST", "/v1/sessions/00000000000000a1/unpin", ENGINE_UNPIN_SESSION},
        {"POST", "/v1/sessions/00000000000000a1/save", ENGINE_SAVE_SESSION},
    };
    make_ready(f);
    for (int i = 0; i < 5; i++) {
        int client = send_request(f, cases[i].method, cases[i].path);
        struct engine_request *request = wait_asked(f, i + 1);
        assert_int_equal(request->verb, cases[i].verb);
        assert_string_equal(request->session, "00000000000000a1");
        assert_int_equal(request->n_tokens, 0);
        reply_with_session(f, &example);
        receive(f, client, "\"last_used\":2000}");
        expect("HTTP/1.1 200 ", "{\"id\":\"00000000000000a1\",\"object\":\"session\",\"key\":null,");
        close(client);
    }
    int client = send_request(f, "DELETE", "/v1/sessions/00000000000000a1");
    assert_int_equal(wait_asked(f, 6)->verb, ENGINE_DELETE_SESSION);
    reply(f, ENGINE_ANSWER_OK, "");
    receive(f, client, "{\"id\":\"00000000000000a1\",\"object\":\"session.deleted\",\"deleted\":true}");
    close(client);
}

static void forks_and_cuts_take_a_position(void **state)
{
    struct fixture *f = *state;
    make_ready(f);
    int client = post_to(f, "/v1/sessions/a1/fork", "{\"tokens\":40,\"key\":\"other\",\"unknown\":1}");
    struct engine_request *request = wait_asked(f, 1);
    assert_int_equal(request->n_tokens, 40);
    assert_string_equal(request->key, "other");
    reply_with_session(f, &example);
    receive(f, client, "last_used");
    close(client);

    client = post_to(f, "/v1/sessions/a1/truncate", "{\"tokens\":5}");
    request = wait_asked(f, 2);
    assert_int_equal(request->verb, ENGINE_TRUNCATE_SESSION);
    assert_int_equal(request->n_tokens, 5);
    reply_with_session(f, &example);
    receive(f, client, "last_used");
    close(client);
}

static void wrong_bodies_are_refused(void **state)
{
    struct fixture *f = *state;
    static const char *const cases[][4] = {
        {"fork", "{\"tokens\":0}", "400", "tokens must be an integer from 1 to 2147483647, not 0"},
        {"fork", "{\"tokens\":\"5\"}", "400", "tokens must be an integer"},
        {"fork", "{\"key\":5}", "400", "key must be a string"},
        {"fork", "{\"key\":\"\"}", "400", "key must not be empty"},
        {"fork", "[]", "400", "the body must be a JSON object"},
        {"fork", "{", "400", "the body is not valid JSON"},
        {"truncate", "{}", "400", "tokens is required"},
        {"truncate", "{\"tokens\":null}", "400", "tokens is required"},
    };
    make_ready(f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[64], status[16];
        snprintf(path, sizeof path, "/v1/sessions/a1/%s", cases[i][0]);
        snprintf(status, sizeof status, "HTTP/1.1 %s ", cases[i][2]);
        int client = post_to(f, path, cases[i][1]);
        receive(f, client, "\"code\":\"");
        expect(status, cases[i][3]);
        close(client);
    }
    char *large = calloc(1, 20 * 1000);
    memset(large, ' ', 20 * 1000 - 1);
    int client = post_to(f, "/v1/sessions/a1/fork", large);
    receive(f, client, "body_too_large");
    expect("HTTP/1.1 413 ", "16384");
    close(client);
    free(large);
    client = send_request(f, "POST", "/v1/sessions/a1/truncate");
    receive(f, client, "length_required");
    expect("HTTP/1.1 411 ", "");
    close(client);
    assert_int_equal(f->engine.n_asked, 0);
}

static void wrong_methods_and_paths_are_told(void **state)
{
    struct fixture *f = *state;
    static const char *const cases[][4] = {
        {"POST", "/v1/sessions", "405", "Allow: GET, HEAD, OPTIONS\r\n"},
        {"PUT", "/v1/sessions/a1", "405", "Allow: GET, HEAD, DELETE, OPTIONS\r\n"},
        {"GET", "/v1/sessions/a1/fork", "405", "Allow: POST, OPTIONS\r\n"},
        {"DELETE", "/metrics", "405", "Allow: GET, HEAD, OPTIONS\r\n"},
        {"GET", "/v1/prefill", "405", "Allow: POST, OPTIONS\r\n"},
        {"POST", "/v1/sessions/a1/freeze", "404", "\"code\":\"not_found\""},
        {"GET", "/v1/sessions/00000000000000a12", "404", "there is no session 00000000000000a12"},
    };
    make_ready(f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char status[16];
        snprintf(status, sizeof status, "HTTP/1.1 %s ", cases[i][2]);
        int client = send_request(f, cases[i][0], cases[i][1]);
        receive(f, client, "\"code\":\"");
        expect(status, cases[i][3]);
        close(client);
    }
    assert_int_equal(f->engine.n_asked, 0);
}

static void refusals_of_the_engine_have_their_status(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *path;
        enum engine_answer answer;
        const char *status, *code;
    } cases[] = {
        {"/v1/sessions/a1/pin", ENGINE_ANSWER_UNKNOWN, "HTTP/1.1 404 ", "\"code\":\"not_found\""},
        {"/v1/sessions/a1/fork", ENGINE_ANSWER_BUSY, "HTTP/1.1 409 ", "\"code\":\"conflict\""},
        {"/v1/sessions/a1/pin", ENGINE_ANSWER_REFUSED, "HTTP/1.1 409 ", "\"code\":\"conflict\""},
        {"/v1/sessions/a1/save", ENGINE_ANSWER_REFUSED, "HTTP/1.1 400 ", "\"code\":\"invalid_value\""},
        {"/v1/sessions/a1/save", ENGINE_ANSWER_NOT_STORED, "HTTP/1.1 507 ", "\"code\":\"not_stored\""},
        {"/v1/sessions/a1/save", ENGINE_ANSWER_FAILED, "HTTP/1.1 500 ", "\"code\":\"internal_error\""},
    };
    make_ready(f);
    for (int i = 0; i < 6; i++) {
        int client = send_request(f, "POST", cases[i].path);
        wait_asked(f, i + 1);
        reply(f, cases[i].answer, "that is why");
        receive(f, client, cases[i].code);
        expect(cases[i].status, "\"message\":\"that is why\"");
        close(client);
    }
}

static void a_client_that_leaves_disturbs_no_answer(void **state)
{
    struct fixture *f = *state;
    make_ready(f);
    close(send_request(f, "GET", "/v1/sessions"));
    wait_asked(f, 1);
    uint64_t deadline = uv_hrtime() + 10ull * 1000 * 1000 * 1000;
    while (http_server_connections(f->server) > 0) {
        assert_true(uv_hrtime() < deadline);
        turn(f);
    }
    service_close(f->service, on_idle, f);
    assert_false(f->idle);
    reply(f, ENGINE_ANSWER_OK, "");
    assert_true(f->idle);
}

/* ---- export and import ---- */

static void give_piece(struct fixture *f, const char *bytes, size_t length)
{
    struct engine_request *request = f->engine.asked[f->engine.n_asked - 1];
    request->on_piece(request, bytes, length, request->context);
}

static void an_export_streams_its_pieces(void **state)
{
    struct fixture *f = *state;
    make_ready(f);
    int client = send_request(f, "GET", "/v1/sessions/00000000000000a1/export");
    assert_int_equal(wait_asked(f, 1)->verb, ENGINE_EXPORT_SESSION);
    give_piece(f, "one", 3);
    give_piece(f, "two\0", 4);
    assert_int_equal(f->engine.n_pieces_taken, 2);
    reply(f, ENGINE_ANSWER_OK, "");
    receive(f, client, "two");
    expect("HTTP/1.1 200 ", "Content-Type: application/octet-stream\r\n");
    assert_non_null(
        strstr(received, "Content-Disposition: attachment; filename=\"session-00000000000000a1.npud\"\r\n"));
    assert_non_null(strstr(received, "\r\n\r\n3\r\none\r\n4\r\ntwo"));
    close(client);

    client = send_request(f, "GET", "/v1/sessions/a2/export");
    wait_asked(f, 2);
    reply(f, ENGINE_ANSWER_UNKNOWN, "there is no session a2");
    receive(f, client, "\"code\":\"not_found\"");
    expect("HTTP/1.1 404 ", "");
    close(client);
}

static void an_export_that_fails_half_way_breaks_off(void **state)
{
    struct fixture *f = *state;
    make_ready(f);
    int client = send_request(f, "GET", "/v1/sessions/a1/export");
    wait_asked(f, 1);
    give_piece(f, "one", 3);
    reply(f, ENGINE_ANSWER_FAILED, "the disk burns");
    receive(f, client, NULL);
    assert_non_null(strstr(received, "3\r\none\r\n"));
    assert_null(strstr(received, "0\r\n\r\n"));
    close(client);
}

static void an_export_waits_for_a_slow_reader(void **state)
{
    struct fixture *f = *state;
    make_ready(f);
    enum {
        PIECE = 100 * 1000
    };
    char *piece = calloc(1, PIECE);
    int client = send_request(f, "GET", "/v1/sessions/a1/export");
    wait_asked(f, 1);
    int n = 0;
    for (; n < 1000 && f->engine.n_pieces_taken == n; n++)
        give_piece(f, piece, PIECE);
    assert_int_equal(f->engine.n_pieces_taken, n - 1); /* the last one waits */
    uint64_t deadline = uv_hrtime() + 10ull * 1000 * 1000 * 1000;
    while (f->engine.n_pieces_taken < n) {
        ssize_t got = read(client, received, sizeof received);
        (void)got;
        turn(f);
        assert_true(uv_hrtime() < deadline);
    }
    /* And gives up when the reader leaves. */
    for (; n < 2000 && f->engine.n_pieces_taken == n; n++)
        give_piece(f, piece, PIECE);
    close(client);
    while (!f->engine.export_given_up) {
        turn(f);
        assert_true(uv_hrtime() < deadline);
    }
    reply(f, ENGINE_ANSWER_FAILED, "given up");
    free(piece);
}

/* A file of n_bytes; head: further header lines. */
static int send_file(struct fixture *f, const char *target, const char *head, size_t n_bytes)
{
    int client = http_client_connect(&f->loop, http_server_address(f->server, 0));
    char *text = malloc(n_bytes + 512);
    int n = sprintf(text, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n%s\r\n", target, n_bytes, head);
    for (size_t i = 0; i < n_bytes; i++)
        text[(size_t)n + i] = (char)i;
    http_client_send(&f->loop, client, text, (size_t)n + n_bytes);
    free(text);
    return client;
}

static void an_import_hands_over_the_file(void **state)
{
    struct fixture *f = *state;
    make_ready(f);
    int client =
        send_file(f, "/v1/sessions/import?key=my+key%C3%A4", "Content-Type: application/octet-stream\r\n", 3000);
    struct engine_request *request = wait_asked(f, 1);
    assert_int_equal(request->verb, ENGINE_IMPORT_SESSION);
    assert_string_equal(request->session, "");
    assert_string_equal(request->key, "my key\xc3\xa4");
    assert_int_equal(request->data_length, 3000);
    for (int i = 0; i < 3000; i++)
        assert_int_equal(((const char *)request->data)[i], (char)i);
    reply_with_session(f, &example);
    receive(f, client, "\"last_used\":2000}");
    expect("HTTP/1.1 200 ", "{\"id\":\"00000000000000a1\"");
    close(client);

    client = send_file(f, "/v1/sessions/import", "", 10);
    assert_null(wait_asked(f, 2)->key);
    reply(f, ENGINE_ANSWER_REFUSED, "this is no session");
    receive(f, client, "\"message\":\"this is no session\"");
    expect("HTTP/1.1 400 ", "");
    close(client);
}

static void a_wrong_import_is_refused(void **state)
{
    struct fixture *f = *state;
    static const char *const targets[] = {
        "/v1/sessions/import?name=a",     "/v1/sessions/import?key=",    "/v1/sessions/import?key=%00",
        "/v1/sessions/import?key=%zz",    "/v1/sessions/import?key=%ff", "/v1/sessions/import?key=%4",
        "/v1/sessions/import?key=a&key=b"};
    make_ready(f);
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        int client = send_file(f, targets[i], "", 1);
        receive(f, client, "\"code\":\"invalid_value\"");
        expect("HTTP/1.1 400 ", "key");
        close(client);
    }
    int client = send_file(f, "/v1/sessions/import", "Content-Type: application/json\r\n", 1);
    receive(f, client, "\"code\":\"unsupported_media_type\"");
    expect("HTTP/1.1 415 ", "application/octet-stream");
    close(client);
    assert_int_equal(f->engine.n_asked, 0);
}

static void files_are_bounded_by_the_kv_cache(void **state)
{
    struct fixture *f = *state;
    make_ready(f); /* four blocks of 4096 bytes, each a little more with its tokens, and 64 KiB for the rest */
    enum {
        LIMIT = 4 * (4096 + 128 + 256) + 64 * 1024
    };
    int client = send_file(f, "/v1/sessions/import", "", LIMIT);
    assert_int_equal(wait_asked(f, 1)->data_length, LIMIT);
    /* As long as that one is there, there is no room for another. */
    int other = send_file(f, "/v1/sessions/import", "", 20 * 1000);
    receive(f, other, "\"code\":\"overloaded\"");
    expect("HTTP/1.1 503 ", "Retry-After: 1\r\n");
    close(other);
    reply_with_session(f, &example);
    receive(f, client, "last_used");
    close(client);
    client = send_file(f, "/v1/sessions/import", "", LIMIT + 1);
    receive(f, client, "\"code\":\"body_too_large\"");
    expect("HTTP/1.1 413 ", "83456");
    close(client);
    /* Asked before, it is refused before. */
    client = http_client_connect(&f->loop, http_server_address(f->server, 0));
    static const char head[] = "POST /v1/sessions/import HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
                               "Content-Length: 83457\r\n\r\n";
    http_client_send(&f->loop, client, head, strlen(head));
    receive(f, client, "\"code\":\"body_too_large\"");
    expect("HTTP/1.1 413 ", "");
    close(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(until_the_model_is_there_sessions_are_503),
        TEST(the_list_shows_every_session),
        TEST(an_empty_list_is_a_list),
        TEST(each_verb_asks_its_question),
        TEST(forks_and_cuts_take_a_position),
        TEST(wrong_bodies_are_refused),
        TEST(wrong_methods_and_paths_are_told),
        TEST(refusals_of_the_engine_have_their_status),
        TEST(a_client_that_leaves_disturbs_no_answer),
        TEST(an_export_streams_its_pieces),
        TEST(an_export_that_fails_half_way_breaks_off),
        TEST(an_export_waits_for_a_slow_reader),
        TEST(an_import_hands_over_the_file),
        TEST(a_wrong_import_is_refused),
        TEST(files_are_bounded_by_the_kv_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
