/* Responses over HTTP, from a request to its answer and what is stored of it. */
#include "tests/unit/service_fixture.h"
#include "tests/unit/chat_format_fixture.h"

#include <sys/socket.h>

#include "daemon/response_record.h"

/* A chat is its messages' texts with a mark before each. */
static const char template[] =
    "{# <tool_call> </think> #}{% if tools and tools[0].function.name == 'npud_probe' %}npud_probe{% endif %}"
    "{% for m in messages %}{{ m.role[0] }}>{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}"
    "{{ m.content }};{% endfor %}a>";

static struct chat_format *chat_format;

static int setup_responses(void **state)
{
    setup(state);
    chat_format = create_format(template);
    make_ready_with(*state, chat_format);
    return 0;
}

static int setup_with_folder(void **state)
{
    setup(state);
    ((struct fixture *)*state)->has_state_dir = true;
    chat_format = create_format(template);
    make_ready_with(*state, chat_format);
    return 0;
}

static int teardown_responses(void **state)
{
    teardown(state);
    chat_format_destroy(chat_format);
    return 0;
}

static int post_input(struct fixture *f, const char *input, const char *fields)
{
    char body[2048];
    snprintf(body, sizeof body, "{\"input\":%s%s}", input, fields);
    return post_to(f, "/v1/responses", body);
}

static void expect_prompt(const struct fixture *f, int index, const char *expected)
{
    const struct generation *generation = f->engine.submitted[index];
    char prompt[CONTEXT + 1] = "";
    for (int i = 0; i < generation->n_prompt; i++)
        prompt[i] = (char)generation->prompt[i];
    assert_string_equal(prompt, expected);
}

static void expect(const char *text)
{
    if (strstr(received, text) == NULL)
        fail_msg("expected %s\nin %s", text, received);
}

/* The id of the response in what was received. */
static void read_response_id(char id[RESPONSE_ID_BYTES])
{
    const char *at = strstr(received, "\"id\":\"resp_");
    assert_non_null(at);
    snprintf(id, RESPONSE_ID_BYTES, "%.37s", at + 6);
}

/* A whole answer of these words to input; index: of the generation. */
static void answer(struct fixture *f, int index, const char *input, const char *fields, const char *words, char *ret_id)
{
    int client = post_input(f, input, fields);
    wait_submitted(f, index + 1);
    say(f, index, words, 0);
    finish(f, index, FINISH_STOP, "");
    receive(f, client, "\"timings\"");
    assert_memory_equal(received, "HTTP/1.1 200 OK\r\n", 17);
    read_response_id(ret_id);
    close(client);
}

static void ask_for(struct fixture *f, const char *method, const char *id, const char *until)
{
    char path[128];
    snprintf(path, sizeof path, "/v1/responses/%s", id);
    int client = send_request(f, method, path);
    receive(f, client, until);
    close(client);
}

/* ---- in memory ---- */

static void a_chain_is_one_conversation_with_the_last_instructions(void **state)
{
    struct fixture *f = *state;
    char first[RESPONSE_ID_BYTES], second[RESPONSE_ID_BYTES], fields[256];
    int client = post_input(f, "\"Hi\"", ",\"instructions\":\"I\",\"prompt_cache_key\":\"k\",\"max_output_tokens\":9");
    wait_submitted(f, 1);
    expect_prompt(f, 0, "s>I;u>Hi;a>");
    assert_string_equal(f->engine.submitted[0]->session_key, "k");
    assert_int_equal(f->engine.submitted[0]->max_tokens, 9);
    assert_true(f->engine.submitted[0]->keeps_session);
    say(f, 0, "Yes", 0);
    finish(f, 0, FINISH_STOP, "");
    receive(f, client, "\"timings\"");
    read_response_id(first);
    expect("\"instructions\":\"I\"");
    expect("\"text\":\"Yes\"");
    close(client);
    snprintf(fields, sizeof fields, ",\"previous_response_id\":\"%s\"", first);
    answer(f, 1, "\"Why\"", fields, "So", second);
    snprintf(fields, sizeof fields, ",\"previous_response_id\":\"%s\",\"instructions\":\"J\",\"store\":false", second);
    client = post_input(f, "[{\"role\":\"user\",\"content\":\"Oh\"}]", fields);
    wait_submitted(f, 3);
    expect_prompt(f, 2, "s>J;u>Hi;a>Yes;u>Why;a>So;u>Oh;a>");
    assert_false(f->engine.submitted[2]->keeps_session);
    finish(f, 2, FINISH_STOP, "");
    receive(f, client, "\"timings\"");
    read_response_id(second);
    close(client);
    ask_for(f, "GET", second, "\"not_found\"");
    ask_for(f, "GET", first, "\"timings\"");
    expect("\"text\":\"Yes\"");
    assert_int_equal(f->engine.n_asked, 0); /* there is no folder */
}

static void a_deleted_one_is_unknown(void **state)
{
    struct fixture *f = *state;
    char id[RESPONSE_ID_BYTES], fields[256], expected[128];
    answer(f, 0, "\"Hi\"", "", "Yes", id);
    snprintf(expected, sizeof expected, "{\"id\":\"%s\",\"object\":\"response\",\"deleted\":true}", id);
    ask_for(f, "DELETE", id, expected);
    ask_for(f, "DELETE", id, "\"not_found\"");
    ask_for(f, "GET", id, "\"not_found\"");
    snprintf(fields, sizeof fields, ",\"previous_response_id\":\"%s\"", id);
    int client = post_input(f, "\"x\"", fields);
    receive(f, client, "\"previous_response_not_found\"");
    assert_memory_equal(received, "HTTP/1.1 400 ", 13);
    close(client);
    ask_for(f, "GET", "resp_1", "\"not_found\"");
    ask_for(f, "GET", "msg_00000000000000000000000000000000", "\"not_found\"");
}

static void thinking_and_calls_are_items_and_go_back(void **state)
{
    struct fixture *f = *state;
    char id[RESPONSE_ID_BYTES], fields[256];
    answer(f, 0, "\"Hi\"", ",\"tools\":[{\"type\":\"function\",\"name\":\"f\"}]",
           "<think>T</think>A<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}}</tool_call>", id);
    expect("\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\",\"text\":\"T\"}]");
    expect("\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":\"A\"");
    expect("\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"");
    expect("\"output_tokens_details\":{\"reasoning_tokens\":16}"); /* a token a byte */
    char call_id[64];
    assert_int_equal(sscanf(strstr(received, "\"call_id\":\"") + 11, "%40[^\"]", call_id), 1);
    char output[256];
    snprintf(output, sizeof output, "[{\"type\":\"function_call_output\",\"call_id\":\"%s\",\"output\":\"O\"}]",
             call_id);
    snprintf(fields, sizeof fields, ",\"previous_response_id\":\"%s\"", id);
    int client = post_input(f, output, fields);
    wait_submitted(f, 2);
    expect_prompt(f, 1, "u>Hi;a>(T)A;t>O;a>");
    finish(f, 1, FINISH_STOP, "");
    receive(f, client, "\"timings\"");
    close(client);
}

static void a_stream_that_fails_says_so(void **state)
{
    struct fixture *f = *state;
    char id[RESPONSE_ID_BYTES];
    int client = post_input(f, "\"Hi\"", ",\"stream\":true");
    wait_submitted(f, 1);
    say(f, 0, "Ye", 0);
    receive(f, client, "\"delta\":\"Ye\"");
    read_response_id(id);
    finish(f, 0, FINISH_ERROR, "the device burns");
    receive(f, client, "the device burns");
    expect("event: response.failed\n");
    expect("\"status\":\"failed\"");
    expect("\"error\":{\"code\":\"server_error\",\"message\":\"the device burns\"}");
    close(client);
    ask_for(f, "GET", id, "\"not_found\"");
}

static void an_error_before_the_stream_is_an_http_error(void **state)
{
    struct fixture *f = *state;
    int client = post_input(f, "\"Hi\"", ",\"stream\":true");
    wait_submitted(f, 1);
    finish(f, 0, FINISH_ERROR, "the device burns");
    receive(f, client, "the device burns");
    assert_memory_equal(received, "HTTP/1.1 500 ", 13);
    close(client);
}

static void what_is_too_long_is_refused(void **state)
{
    struct fixture *f = *state;
    char id[RESPONSE_ID_BYTES], fields[256];
    answer(f, 0, "\"0123456789012345678901234567890123456789\"", "", "Yes", id);
    snprintf(fields, sizeof fields, ",\"previous_response_id\":\"%s\"", id);
    int client = post_input(f, "\"0123456789012345678901234567890123456789\"", fields);
    receive(f, client, "\"param\":\"input\",\"code\":\"context_length_exceeded\"");
    close(client);
}

static void references_stand_for_items_of_stored_responses(void **state)
{
    struct fixture *f = *state;
    char id[RESPONSE_ID_BYTES], input[256];
    answer(f, 0, "\"Hi\"", "", "<think>T</think>A", id);
    snprintf(input, sizeof input,
             "[{\"role\":\"user\",\"content\":\"U\"},{\"id\":\"rs_%s0\"},{\"type\":\"item_reference\",\"id\":"
             "\"msg_%s1\"}]",
             id + 5, id + 5);
    int client = post_input(f, input, "");
    wait_submitted(f, 2);
    expect_prompt(f, 1, "u>U;a>(T)A;a>");
    finish(f, 1, FINISH_STOP, "");
    receive(f, client, "\"timings\"");
    close(client);
    static const char *const wrong[] = {"msg_%s0", "msg_%s2", "rs_%s1", "msg_%sfffffffffffffffff", "fc_%s", "msg_1%s1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char item[64];
        snprintf(item, sizeof item, wrong[i], id + 5);
        snprintf(input, sizeof input, "[{\"role\":\"user\",\"content\":\"U\"},{\"id\":\"%s\"}]", item);
        client = post_input(f, input, "");
        receive(f, client, "\"param\":\"input[1].id\",\"code\":\"invalid_value\"");
        close(client);
    }
}

/* ---- with a folder ---- */

static struct engine_request *expect_asked(struct fixture *f, int n, enum engine_verb verb, const char *id)
{
    struct engine_request *request = wait_asked(f, n);
    char text[RESPONSE_ID_BYTES];
    response_id_format(text, &request->response);
    assert_int_equal(request->verb, verb);
    assert_string_equal(text, id);
    return request;
}

static void what_is_stored_goes_to_the_folder_and_comes_from_it(void **state)
{
    struct fixture *f = *state;
    char id[RESPONSE_ID_BYTES], other[RESPONSE_ID_BYTES], fields[256];
    answer(f, 0, "\"Hi\"", "", "Yes", id);
    struct engine_request *request = expect_asked(f, 1, ENGINE_PUT_RESPONSE, id);
    size_t length = request->data_length;
    void *record = malloc(length);
    memcpy(record, request->data, length);
    reply(f, ENGINE_ANSWER_OK, "");

    /* As after a restart: under an id that memory does not know. */
    struct response_record read;
    struct npu_error error;
    assert_int_equal(response_record_decode(&read, record, length, &error), NPU_OK);
    assert_int_equal(read.n_tokens, strlen("u>Hi;a>Yes"));
    read.id.random++;
    response_id_format(other, &read.id);
    void *moved = response_record_encode(&read, &length);
    snprintf(fields, sizeof fields, ",\"previous_response_id\":\"%s\",\"store\":false", other);
    int client = post_input(f, "\"Why\"", fields);
    request = expect_asked(f, 2, ENGINE_READ_RESPONSE, other);
    request->data = moved;
    request->data_length = length;
    reply(f, ENGINE_ANSWER_OK, "");
    wait_submitted(f, 2);
    expect_prompt(f, 1, "u>Hi;a>Yes;u>Why;a>");
    finish(f, 1, FINISH_STOP, "");
    receive(f, client, "\"timings\"");
    close(client);
    free(record);
}

static void what_the_folder_does_not_have_is_unknown(void **state)
{
    struct fixture *f = *state;
    static const char id[] = "resp_00000000000000010000000000000002";
    static const char *const methods[] = {"GET", "DELETE"};
    static const enum engine_verb verbs[] = {ENGINE_READ_RESPONSE, ENGINE_DELETE_RESPONSE};
    for (int i = 0; i < 2; i++) {
        char path[128];
        snprintf(path, sizeof path, "/v1/responses/%s", id);
        int client = send_request(f, methods[i], path);
        expect_asked(f, 2 * i + 1, verbs[i], id);
        reply(f, ENGINE_ANSWER_UNKNOWN, "no");
        receive(f, client, "\"not_found\"");
        close(client);
        client = send_request(f, methods[i], path); /* who leaves is not waited for */
        expect_asked(f, 2 * i + 2, verbs[i], id);
        close(client);
        for (int turns = 0; turns < 50; turns++)
            turn(f);
        reply(f, ENGINE_ANSWER_UNKNOWN, "no");
    }
    int client = post_input(f, "\"x\"", ",\"previous_response_id\":\"resp_00000000000000010000000000000002\"");
    expect_asked(f, 5, ENGINE_READ_RESPONSE, id);
    reply(f, ENGINE_ANSWER_UNKNOWN, "no");
    receive(f, client, "\"previous_response_not_found\"");
    close(client);
}

static void a_client_that_leaves_while_the_past_is_read_costs_nothing(void **state)
{
    struct fixture *f = *state;
    int client = post_input(f, "\"x\"", ",\"previous_response_id\":\"resp_00000000000000010000000000000002\"");
    wait_asked(f, 1);
    struct linger reset = {.l_onoff = 1};
    setsockopt(client, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(client);
    for (int turns = 0; turns < 50; turns++)
        turn(f);
    reply(f, ENGINE_ANSWER_UNKNOWN, "no");
    for (int turns = 0; turns < 50; turns++)
        turn(f);
    assert_int_equal(f->engine.n_submitted, 0);
}

static void a_deleted_one_goes_from_both_places(void **state)
{
    struct fixture *f = *state;
    char id[RESPONSE_ID_BYTES], path[128];
    answer(f, 0, "\"Hi\"", "", "Yes", id);
    expect_asked(f, 1, ENGINE_PUT_RESPONSE, id);
    reply(f, ENGINE_ANSWER_NOT_STORED, "there is no room");
    snprintf(path, sizeof path, "/v1/responses/%s", id);
    int client = send_request(f, "DELETE", path);
    expect_asked(f, 2, ENGINE_DELETE_RESPONSE, id);
    reply(f, ENGINE_ANSWER_UNKNOWN, "no");
    receive(f, client, "\"deleted\":true"); /* memory had it */
    close(client);
    client = send_request(f, "GET", path);
    expect_asked(f, 3, ENGINE_READ_RESPONSE, id);
    reply(f, ENGINE_ANSWER_UNKNOWN, "no");
    receive(f, client, "\"not_found\"");
    close(client);
}

#define IN_MEMORY(test) cmocka_unit_test_setup_teardown(test, setup_responses, teardown_responses)
#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, setup_with_folder, teardown_responses)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_MEMORY(a_chain_is_one_conversation_with_the_last_instructions),
        IN_MEMORY(a_deleted_one_is_unknown),
        IN_MEMORY(thinking_and_calls_are_items_and_go_back),
        IN_MEMORY(references_stand_for_items_of_stored_responses),
        IN_MEMORY(a_stream_that_fails_says_so),
        IN_MEMORY(an_error_before_the_stream_is_an_http_error),
        IN_MEMORY(what_is_too_long_is_refused),
        WITH_FOLDER(what_is_stored_goes_to_the_folder_and_comes_from_it),
        WITH_FOLDER(what_the_folder_does_not_have_is_unknown),
        WITH_FOLDER(a_client_that_leaves_while_the_past_is_read_costs_nothing),
        WITH_FOLDER(a_deleted_one_goes_from_both_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
