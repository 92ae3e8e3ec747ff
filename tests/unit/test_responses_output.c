/* Output items and the events of a stream, in OpenAI's order and shape. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/responses_output.h"

#define ID "resp_000000000000000a000000000000000b"
#define TAIL "000000000000000a000000000000000b"

enum {
    MAX_EVENTS = 64,
};

struct stream {
    json_t *events[MAX_EVENTS];
    int n;
    int gives_up_at; /* the number of the event; 0: never */
};

/* Each is a name and data, which agree on the type, and are numbered. */
static bool take(void *context, char *frame, size_t length)
{
    struct stream *stream = context;
    assert_non_null(frame);
    assert_int_equal(strlen(frame), length);
    char name[64];
    int at = 0;
    assert_int_equal(sscanf(frame, "event: %63s\ndata: %n", name, &at), 1);
    assert_string_equal(frame + length - 2, "\n\n");
    assert_int_not_equal(stream->n, MAX_EVENTS);
    json_t *event = json_loadb(frame + at, length - (size_t)at, JSON_DISABLE_EOF_CHECK, NULL);
    assert_non_null(event);
    assert_string_equal(json_string_value(json_object_get(event, "type")), name);
    assert_int_equal(json_integer_value(json_object_get(event, "sequence_number")), stream->n);
    stream->events[stream->n++] = event;
    free(frame);
    return stream->n != stream->gives_up_at;
}

static void clear(struct stream *stream)
{
    for (int i = 0; i < stream->n; i++)
        json_decref(stream->events[i]);
    stream->n = 0;
}

static struct responses_output *create(struct stream *stream)
{
    struct response_head head = {.id = ID, .created = 7, .model = "m", .fingerprint = "f"};
    json_t *echo = json_pack("{s:s, s:n}", "tool_choice", "auto", "user");
    struct responses_output_options options = {
        .head = &head, .echo = echo, .consumer = stream != NULL ? take : NULL, .context = stream};
    struct responses_output *output = responses_output_create(&options);
    assert_non_null(output);
    json_decref(echo);
    return output;
}

static bool add(struct responses_output *output, enum chat_piece_kind kind, const char *text)
{
    return responses_output_add(output, kind, text, strlen(text), kind == CHAT_PIECE_TOOL ? "call_1" : NULL);
}

static const struct response_usage usage = {.prompt_tokens = 10, .cached_tokens = 4, .completion_tokens = 6};
static const struct response_timings timings = {.prompt_n = 6};

static bool end(struct responses_output *output, bool incomplete)
{
    struct responses_end how = {
        .incomplete = incomplete, .usage = &usage, .reasoning_tokens = 2, .timings = &timings, .completed_at = 9};
    return responses_output_end(output, &how);
}

static void expect_types(const struct stream *stream, const char *const *types, int n)
{
    for (int i = 0; i < n && i < stream->n; i++)
        assert_string_equal(json_string_value(json_object_get(stream->events[i], "type")), types[i]);
    assert_int_equal(stream->n, n);
}

static void equals(const json_t *value, const char *expected)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    assert_string_equal(text, expected);
    free(text);
}

static json_t *whole(const struct responses_output *output)
{
    size_t length;
    char *text = responses_output_json(output, &length);
    json_t *value = json_loadb(text, length, 0, NULL);
    assert_non_null(value);
    free(text);
    return value;
}

#define MESSAGE(n, status, text)                                                                                       \
    "{\"id\":\"msg_" TAIL n "\",\"type\":\"message\",\"status\":\"" status "\",\"role\":\"assistant\",\"content\":["   \
    "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":\"" text "\"}]}"

static void a_whole_response_has_every_field(void **state)
{
    (void)state;
    struct responses_output *output = create(NULL);
    assert_true(responses_output_begin(output) && add(output, CHAT_PIECE_CONTENT, "a\"b") &&
                add(output, CHAT_PIECE_CONTENT, "c") && end(output, false));
    json_t *response = whole(output);
    json_object_del(response, "timings");
    equals(response,
           "{\"id\":\"" ID "\",\"object\":\"response\",\"created_at\":7,\"status\":\"completed\","
           "\"completed_at\":9,\"error\":null,\"incomplete_details\":null,\"model\":\"m\",\"output\":[" MESSAGE(
               "0", "completed",
               "a\\\"bc") "],\"usage\":{\"input_tokens\":10,\"input_tokens_details\":{\"cached_tokens\":4,"
                          "\"cache_write_tokens\":6},\"output_tokens\":6,\"output_tokens_details\":{"
                          "\"reasoning_tokens\":2},\"total_tokens\":16},\"conversation\":null,"
                          "\"tool_choice\":\"auto\",\"user\":null}");
    json_decref(response);
    responses_output_destroy(output);
}

static void what_is_cut_is_incomplete(void **state)
{
    (void)state;
    struct responses_output *output = create(NULL);
    assert_true(add(output, CHAT_PIECE_CONTENT, "a") && end(output, true));
    json_t *response = whole(output);
    equals(json_object_get(response, "status"), "\"incomplete\"");
    equals(json_object_get(response, "incomplete_details"), "{\"reason\":\"max_output_tokens\"}");
    equals(json_object_get(response, "completed_at"), "null");
    equals(json_object_get(response, "output"), "[" MESSAGE("0", "incomplete", "a") "]");
    json_decref(response);
    responses_output_destroy(output);
}

static void an_answer_without_anything_is_an_empty_message(void **state)
{
    (void)state;
    struct stream stream = {0};
    struct responses_output *output = create(&stream);
    assert_true(responses_output_begin(output) && end(output, false));
    equals(responses_output_items(output), "[" MESSAGE("0", "completed", "") "]");
    static const char *const types[] = {"response.created",           "response.in_progress",
                                        "response.output_item.added", "response.content_part.added",
                                        "response.output_text.done",  "response.content_part.done",
                                        "response.output_item.done",  "response.completed"};
    expect_types(&stream, types, sizeof types / sizeof *types);
    responses_output_destroy(output);
    clear(&stream);
}

static void items_come_one_after_the_other(void **state)
{
    (void)state;
    struct stream stream = {0};
    struct responses_output *output = create(&stream);
    assert_true(responses_output_begin(output));
    assert_true(add(output, CHAT_PIECE_REASONING, "T") && add(output, CHAT_PIECE_CONTENT, "A") &&
                add(output, CHAT_PIECE_TOOL, "f") && add(output, CHAT_PIECE_ARGUMENTS, "{\"a\":") &&
                add(output, CHAT_PIECE_ARGUMENTS, "1}") && add(output, CHAT_PIECE_TOOL, "g") &&
                add(output, CHAT_PIECE_CONTENT, "B") && end(output, false));
    static const char *const types[] = {"response.created",
                                        "response.in_progress",
                                        "response.output_item.added", /* 2: thinking */
                                        "response.content_part.added",
                                        "response.reasoning_text.delta",
                                        "response.reasoning_text.done",
                                        "response.content_part.done",
                                        "response.output_item.done",
                                        "response.output_item.added", /* 8: a message */
                                        "response.content_part.added",
                                        "response.output_text.delta",
                                        "response.output_text.done",
                                        "response.content_part.done",
                                        "response.output_item.done",
                                        "response.output_item.added", /* 14: a call */
                                        "response.function_call_arguments.delta",
                                        "response.function_call_arguments.delta",
                                        "response.function_call_arguments.done",
                                        "response.output_item.done",
                                        "response.output_item.added", /* 19: a call without arguments */
                                        "response.function_call_arguments.done",
                                        "response.output_item.done",
                                        "response.output_item.added", /* 22: another message */
                                        "response.content_part.added",
                                        "response.output_text.delta",
                                        "response.output_text.done",
                                        "response.content_part.done",
                                        "response.output_item.done",
                                        "response.completed"};
    expect_types(&stream, types, sizeof types / sizeof *types);
    equals(stream.events[2],
           "{\"type\":\"response.output_item.added\",\"sequence_number\":2,\"output_index\":0,\"item\":{"
           "\"id\":\"rs_" TAIL "0\",\"type\":\"reasoning\",\"summary\":[],\"content\":[],"
           "\"encrypted_content\":null,\"status\":\"in_progress\"}}");
    equals(stream.events[3],
           "{\"type\":\"response.content_part.added\",\"sequence_number\":3,\"item_id\":\"rs_" TAIL "0\","
           "\"output_index\":0,\"part\":{\"type\":\"reasoning_text\",\"text\":\"\"},\"content_index\":0}");
    equals(stream.events[10],
           "{\"type\":\"response.output_text.delta\",\"sequence_number\":10,\"item_id\":\"msg_" TAIL "1\","
           "\"output_index\":1,\"delta\":\"A\",\"logprobs\":[],\"content_index\":0}");
    equals(stream.events[11],
           "{\"type\":\"response.output_text.done\",\"sequence_number\":11,\"item_id\":\"msg_" TAIL "1\","
           "\"output_index\":1,\"text\":\"A\",\"logprobs\":[],\"content_index\":0}");
    equals(stream.events[14],
           "{\"type\":\"response.output_item.added\",\"sequence_number\":14,\"output_index\":2,\"item\":{"
           "\"id\":\"fc_" TAIL "2\",\"type\":\"function_call\",\"status\":\"in_progress\","
           "\"call_id\":\"call_1\",\"name\":\"f\",\"arguments\":\"\"}}");
    equals(stream.events[15], "{\"type\":\"response.function_call_arguments.delta\",\"sequence_number\":15,\"item_id\":"
                              "\"fc_" TAIL "2\",\"output_index\":2,\"delta\":\"{\\\"a\\\":\"}");
    equals(stream.events[17], "{\"type\":\"response.function_call_arguments.done\",\"sequence_number\":17,\"item_id\":"
                              "\"fc_" TAIL "2\",\"output_index\":2,\"arguments\":\"{\\\"a\\\":1}\"}");
    json_t *response = whole(output);
    assert_true(json_equal(json_object_get(stream.events[28], "response"), response));
    assert_int_equal(json_array_size(json_object_get(response, "output")), 5);
    for (int i = 0; i < 5; i++) { /* those of the stream are those of the whole */
        static const int done[] = {7, 13, 18, 21, 27};
        assert_true(json_equal(json_object_get(stream.events[done[i]], "item"),
                               json_array_get(json_object_get(response, "output"), (size_t)i)));
    }
    json_decref(response);
    responses_output_destroy(output);
    clear(&stream);
}

static void a_consumer_that_gives_up_is_not_asked_again(void **state)
{
    (void)state;
    for (int at = 1; at <= 13; at++) {
        struct stream stream = {.gives_up_at = at};
        struct responses_output *output = create(&stream);
        bool ok = responses_output_begin(output) && add(output, CHAT_PIECE_REASONING, "T") &&
                  add(output, CHAT_PIECE_CONTENT, "A") && end(output, false);
        assert_false(ok);
        assert_int_equal(stream.n, at);
        responses_output_destroy(output);
        clear(&stream);
    }
}

static void a_failure_ends_the_stream_with_what_has_come(void **state)
{
    (void)state;
    static const struct {
        enum api_error_kind kind;
        const char *code;
    } cases[] = {{API_ERROR_DEVICE_FAILED, "server_error"},
                 {API_ERROR_QUEUE_FULL, "rate_limit_exceeded"},
                 {API_ERROR_INVALID_VALUE, "invalid_prompt"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stream stream = {0};
        struct responses_output *output = create(&stream);
        struct api_error error;
        size_t length;
        assert_true(responses_output_begin(output) && add(output, CHAT_PIECE_TOOL, "f") &&
                    add(output, CHAT_PIECE_CONTENT, "A"));
        api_error_set(&error, cases[i].kind, NULL, "why");
        char *frame = responses_output_fail(output, &error, &length);
        take(&stream, frame, length);
        const json_t *event = stream.events[stream.n - 1], *response = json_object_get(event, "response");
        equals(json_object_get(event, "type"), "\"response.failed\"");
        equals(json_object_get(response, "status"), "\"failed\"");
        assert_string_equal(json_string_value(json_object_get(json_object_get(response, "error"), "code")),
                            cases[i].code);
        equals(json_object_get(json_object_get(response, "error"), "message"), "\"why\"");
        assert_int_equal(json_array_size(json_object_get(response, "output")), 1); /* the call, which is whole */
        responses_output_destroy(output);
        clear(&stream);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_response_has_every_field),
        cmocka_unit_test(what_is_cut_is_incomplete),
        cmocka_unit_test(an_answer_without_anything_is_an_empty_message),
        cmocka_unit_test(items_come_one_after_the_other),
        cmocka_unit_test(a_consumer_that_gives_up_is_not_asked_again),
        cmocka_unit_test(a_failure_ends_the_stream_with_what_has_come),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
