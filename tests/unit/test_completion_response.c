#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/completion_response.h"
#include "proto/sse.h"

static const struct response_head head = {.id = "cmpl-1", .created = 1700000000, .model = "m", .fingerprint = "npud-0"};
static const struct response_usage usage = {.prompt_tokens = 10, .cached_tokens = 4, .completion_tokens = 5};
static const struct response_timings timings = {
    .prompt_n = 6, .prompt_ms = 3, .predicted_n = 5, .predicted_ms = 8, .cached_n = 4};

#define HEAD                                                                                                           \
    "{\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":1700000000,\"model\":\"m\","                        \
    "\"system_fingerprint\":\"npud-0\",\"choices\":"
#define TIMINGS                                                                                                        \
    "\"timings\":{\"prompt_n\":6,\"prompt_ms\":3.0,\"prompt_per_second\":2000.0,\"predicted_n\":5,"                    \
    "\"predicted_ms\":8.0,\"predicted_per_second\":500.0,\"cached_n\":4}"
#define USAGE                                                                                                          \
    "\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":5,\"total_tokens\":15,"                                     \
    "\"prompt_tokens_details\":{\"cached_tokens\":4}}"

static void expect_text(char *text, size_t length, const char *expected)
{
    assert_non_null(text);
    assert_string_equal(text, expected);
    assert_int_equal(length, strlen(expected));
    free(text);
}

static void a_whole_answer_has_openais_fields(void **state)
{
    (void)state;
    struct response_choice choices[2] = {
        {.index = 0, .text = "a\n\"\xc3\xa4", .text_length = 5, .finish_reason = "stop"},
        {.index = 1, .text = "", .text_length = 0, .finish_reason = "length"}};
    size_t length;
    char *text = completion_response_json(&head, choices, 2, &usage, &timings, &length);
    expect_text(text, length,
                HEAD "[{\"text\":\"a\\n\\\"\xc3\xa4\",\"index\":0,\"logprobs\":null,\"finish_reason\":\"stop\"},"
                     "{\"text\":\"\",\"index\":1,\"logprobs\":null,\"finish_reason\":\"length\"}]," USAGE "," TIMINGS
                     "}");
}

static void logprobs_are_parallel_arrays(void **state)
{
    (void)state;
    struct response_alternative top[] = {{"b", 1, -0.25}, {"\xf0\x9f", 2, -2}, {"b", 1, -3}};
    struct response_token tokens[] = {
        {.text = "a", .length = 1, .has_logprob = false, .text_offset = 0},
        {.text = "c", .length = 1, .has_logprob = true, .logprob = -INFINITY, .top = top, .n_top = 3, .text_offset = 1},
        {.text = "\xf0\x9f", .length = 2, .has_logprob = true, .logprob = -2, .top = top, .n_top = 2, .text_offset = 2},
    };
    struct response_choice choice = {
        .text = "x", .text_length = 1, .has_logprobs = true, .tokens = tokens, .n_tokens = 3};
    size_t length;
    char *text = completion_chunk_frame(&head, &choice, false, NULL, NULL, &length);
    expect_text(text, length,
                "data: " HEAD
                "[{\"text\":\"x\",\"index\":0,\"logprobs\":{\"tokens\":[\"a\",\"c\",\"bytes:\\\\xf0\\\\x9f\"],"
                "\"token_logprobs\":[null,-9999.0,-2.0],\"top_logprobs\":[null,{\"b\":-0.25,"
                "\"bytes:\\\\xf0\\\\x9f\":-2.0,\"c\":-9999.0},{\"b\":-0.25,\"bytes:\\\\xf0\\\\x9f\":-2.0}],"
                "\"text_offset\":[0,1,2]},\"finish_reason\":null}]}\n\n");
}

static void usage_is_null_in_all_chunks_but_the_last(void **state)
{
    (void)state;
    struct response_choice choice = {.text = "x", .text_length = 1};
    size_t length;
    char *text = completion_chunk_frame(&head, &choice, true, NULL, NULL, &length);
    expect_text(text, length,
                "data: " HEAD
                "[{\"text\":\"x\",\"index\":0,\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n");
    text = completion_chunk_frame(&head, NULL, true, &usage, &timings, &length);
    expect_text(text, length, "data: " HEAD "[]," USAGE "," TIMINGS "}\n\n");
}

static void rates_of_nothing_are_null(void **state)
{
    (void)state;
    struct response_timings none = {.cached_n = 10, .predicted_n = 1};
    size_t length;
    char *text = completion_chunk_frame(&head, NULL, false, NULL, &none, &length);
    assert_non_null(strstr(text, "\"prompt_per_second\":null"));
    assert_non_null(strstr(text, "\"predicted_per_second\":null"));
    free(text);
}

static void an_error_in_a_stream_is_a_frame(void **state)
{
    (void)state;
    struct api_error error;
    api_error_set(&error, API_ERROR_DEVICE_FAILED, NULL, "the device %s", "failed");
    size_t length;
    char *text = completion_error_frame(&error, &length);
    expect_text(text, length,
                "data: {\"error\":{\"message\":\"the device failed\",\"type\":\"server_error\",\"param\":null,"
                "\"code\":\"device_failed\"}}\n\n");
}

static void errors_survive_any_bytes(void **state)
{
    (void)state;
    struct api_error error;
    api_error_set(&error, API_ERROR_NOT_FOUND, "\xff", "\xc3 \x01");
    size_t length;
    char *text = api_error_json(&error, &length);
    expect_text(text, length,
                "{\"error\":{\"message\":\"? \\u0001\",\"type\":\"invalid_request_error\",\"param\":\"?\","
                "\"code\":\"not_found\"}}");
    assert_int_equal(api_error_status(API_ERROR_NOT_FOUND), 404);
    assert_int_equal(api_error_status((enum api_error_kind)9999), 500);
}

static void nothing_in_an_event_can_end_it(void **state)
{
    (void)state;
    static const struct {
        const char *name, *data, *event;
    } cases[] = {
        {NULL, "a", "data: a\n\n"},
        {NULL, "", "data: \n\n"},
        {"delta", "a\nb", "event: delta\ndata: a\ndata: b\n\n"},
        {NULL, "a\r\nb\rc\n\nd", "data: a\ndata: b\ndata: c\ndata: \ndata: d\n\n"},
        {NULL, "\n", "data: \ndata: \n\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t length;
        char *event = sse_event(cases[i].name, cases[i].data, strlen(cases[i].data), &length);
        expect_text(event, length, cases[i].event);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_answer_has_openais_fields),        cmocka_unit_test(logprobs_are_parallel_arrays),
        cmocka_unit_test(usage_is_null_in_all_chunks_but_the_last), cmocka_unit_test(rates_of_nothing_are_null),
        cmocka_unit_test(an_error_in_a_stream_is_a_frame),          cmocka_unit_test(errors_survive_any_bytes),
        cmocka_unit_test(nothing_in_an_event_can_end_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
