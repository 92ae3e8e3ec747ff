/* A chat's request from JSON: every field, and each limit at its edge and past it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/chat_messages.h"
#include "proto/chat_request.h"

static const struct request_limits limits = {.n_vocab = 1000};

static bool decode(struct chat_request *request, const char *body, struct api_error *error)
{
    return chat_request_decode(request, body, strlen(body), &limits, error);
}

static void takes(struct chat_request *request, const char *body)
{
    struct api_error error;
    if (!decode(request, body, &error))
        fail_msg("%s", error.message);
}

static void refuses(const char *body, enum api_error_kind kind, const char *param)
{
    struct chat_request request;
    struct api_error error;
    if (decode(&request, body, &error))
        fail_msg("taken: %.200s", body);
    assert_int_equal(error.kind, kind);
    assert_string_equal(error.param, param);
}

/* fields beside a message; FMT with an int at an edge. */
static void edge(const char *format, int last, int beyond, const char *param)
{
    char body[512];
    struct chat_request request;
    int n = snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],");
    snprintf(body + n, sizeof body - (size_t)n, format, last);
    strcat(body, "}");
    takes(&request, body);
    chat_request_clear(&request);
    snprintf(body + n, sizeof body - (size_t)n, format, beyond);
    strcat(body, "}");
    refuses(body, API_ERROR_INVALID_VALUE, param);
}

static void equals(const json_t *value, const char *expected)
{
    char *text = json_dumps(value, JSON_COMPACT);
    assert_string_equal(text, expected);
    free(text);
}

#define X "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"

static void defaults_are_openais(void **state)
{
    (void)state;
    struct chat_request request;
    takes(&request, "{" X "}");
    assert_int_equal(request.max_tokens, -1);
    assert_int_equal(request.n, 1);
    assert_int_equal(request.logprobs, -1);
    assert_null(request.tools.tools);
    assert_int_equal(request.tools.choice, TOOL_CHOICE_NONE);
    assert_true(request.tools.parallel);
    assert_false(request.stream.stream);
    assert_true(request.sampling.temperature == 1 && request.sampling.top_p == 1);
    chat_request_clear(&request);
}

static void every_field_is_read(void **state)
{
    (void)state;
    struct chat_request request;
    takes(
        &request,
        "{" X ",\"model\":\"m\",\"max_completion_tokens\":3,\"n\":2,\"logprobs\":true,\"top_logprobs\":5,"
        "\"temperature\":0.5,\"stream\":true,\"stream_options\":{\"include_usage\":true},"
        "\"prompt_cache_key\":\"k\",\"reasoning_effort\":\"low\",\"chat_template_kwargs\":{\"a\":1},"
        "\"parallel_tool_calls\":false,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true,"
        "\"description\":\"d\",\"parameters\":{\"type\":\"object\",\"properties\":{\"p\":{}}}}},{\"type\":"
        "\"function\",\"function\":{\"name\":\"g\"}}],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":"
        "\"g\"}},\"response_format\":{\"type\":\"json_object\"},\"priority\":9,\"seed\":-4}");
    assert_int_equal(request.max_tokens, 3);
    assert_int_equal(request.n, 2);
    assert_int_equal(request.logprobs, 5);
    assert_true(request.stream.stream && request.stream.include_usage);
    assert_string_equal(request.prompt_cache_key, "k");
    assert_string_equal(request.template.reasoning_effort, "low");
    equals(request.template.variables, "{\"a\":1}");
    assert_false(request.tools.parallel);
    assert_int_equal(request.tools.choice, TOOL_CHOICE_NAMED);
    assert_string_equal(request.tools.name, "g");
    equals(request.tools.tools,
           "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":{\"type\":"
           "\"object\",\"properties\":{\"p\":{}}}},\"strict\":true},{\"type\":\"function\",\"function\":{\"name\":"
           "\"g\",\"parameters\":{\"type\":\"object\",\"properties\":{}}},\"strict\":false}]");
    assert_true(request.grammar.is_given && request.grammar.kind == TEXT_GRAMMAR_JSON_OBJECT);
    assert_int_equal(request.queue.priority, 9);
    chat_request_clear(&request);
}

static void messages_become_what_templates_take(void **state)
{
    (void)state;
    struct chat_request request;
    takes(&request,
          "{\"messages\":[{\"role\":\"system\",\"content\":\"s\",\"extra\":1},"
          "{\"role\":\"user\",\"name\":\"u\",\"content\":[{\"type\":\"text\",\"text\":\"a\",\"x\":1},{\"type\":"
          "\"input_text\",\"text\":\"b\"}]},"
          "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{"
          "\"name\":\"f\",\"arguments\":\"{\\\"b\\\":1,\\\"a\\\":[]}\"}},{\"function\":{\"name\":\"g\",\"arguments\":"
          "\"\"}},{\"function\":{\"name\":\"h\",\"arguments\":\"nonsense\"}}]},"
          "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"t\"},"
          "{\"role\":\"assistant\",\"content\":\"c\",\"reasoning\":\"r\",\"tool_calls\":[]},"
          "{\"role\":\"assistant\",\"refusal\":\"no\"},{\"role\":\"developer\",\"content\":\"d\"}]}");
    equals(request.messages,
           "[{\"role\":\"system\",\"content\":\"s\"},"
           "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}],"
           "\"name\":\"u\"},"
           "{\"role\":\"assistant\",\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{"
           "\"b\":1,\"a\":[]}},\"id\":\"1\"},{\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":{}}},{"
           "\"type\":\"function\",\"function\":{\"name\":\"h\",\"arguments\":\"nonsense\"}}]},"
           "{\"role\":\"tool\",\"content\":\"t\",\"tool_call_id\":\"1\"},"
           "{\"role\":\"assistant\",\"content\":\"c\",\"reasoning_content\":\"r\"},"
           "{\"role\":\"assistant\",\"content\":\"no\"},{\"role\":\"developer\",\"content\":\"d\"}]");
    chat_request_clear(&request);
}

static void limits_hold_at_their_edges(void **state)
{
    (void)state;
    edge("\"n\":%d", REQUEST_MAX_N, REQUEST_MAX_N + 1, "n");
    edge("\"n\":%d", 1, 0, "n");
    edge("\"max_tokens\":%d", 1, 0, "max_tokens");
    edge("\"max_completion_tokens\":%d", 1, -1, "max_completion_tokens");
    edge("\"logprobs\":true,\"top_logprobs\":%d", 20, 21, "top_logprobs");
    edge("\"logprobs\":true,\"top_logprobs\":%d", 0, -1, "top_logprobs");
    edge("\"max_tokens\":7,\"max_completion_tokens\":%d", 7, 8, "max_tokens");
    edge("\"temperature\":%d", 2, 3, "temperature");
    edge("\"temperature\":%d", 0, -1, "temperature");
    edge("\"top_p\":%d", 1, 2, "top_p");
    edge("\"presence_penalty\":%d", -2, -3, "presence_penalty");
    edge("\"priority\":%d", 9, 10, "priority");
}

static char *repeat(const char *before, const char *part, size_t n, const char *after)
{
    char *text = malloc(strlen(before) + n * strlen(part) + strlen(after) + 1), *at = stpcpy(text, before);
    for (size_t i = 0; i < n; i++)
        at = stpcpy(at, part);
    strcpy(at, after);
    return text;
}

static void names_have_a_length(void **state)
{
    (void)state;
    struct chat_request request;
    char *fits = repeat("{" X ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"", "n", TOOL_MAX_NAME_BYTES,
                        "\"}}]}");
    char *longer = repeat("{" X ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"", "n",
                          TOOL_MAX_NAME_BYTES + 1, "\"}}]}");
    takes(&request, fits);
    chat_request_clear(&request);
    refuses(longer, API_ERROR_INVALID_VALUE, "tools[0].function.name");
    free(fits);
    free(longer);
    fits = repeat("{" X ",\"prompt_cache_key\":\"", "k", REQUEST_MAX_NAME_BYTES, "\"}");
    longer = repeat("{" X ",\"prompt_cache_key\":\"", "k", REQUEST_MAX_NAME_BYTES + 1, "\"}");
    takes(&request, fits);
    chat_request_clear(&request);
    refuses(longer, API_ERROR_INVALID_VALUE, "prompt_cache_key");
    free(fits);
    free(longer);
}

static void arguments_have_a_length_together(void **state)
{
    (void)state;
    static const char before[] = "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
                                 "\"arguments\":\"y\"}},{\"function\":{\"name\":\"f\",\"arguments\":\"",
                      after[] = "\"}}]}]}";
    struct chat_request request;
    char *fits = repeat(before, "x", CHAT_MAX_ARGUMENTS_BYTES - 1, after);
    char *longer = repeat(before, "x", CHAT_MAX_ARGUMENTS_BYTES, after);
    takes(&request, fits);
    chat_request_clear(&request);
    refuses(longer, API_ERROR_INVALID_VALUE, "messages[0].tool_calls[1].function.arguments");
    free(fits);
    free(longer);
}

static void depth_has_a_limit(void **state)
{
    (void)state;
    struct chat_request request;
    char *open = repeat("{" X ",\"x\":", "[", 63, ""), *body = repeat(open, "]", 63, "}");
    takes(&request, body);
    chat_request_clear(&request);
    free(open);
    free(body);
    open = repeat("{" X ",\"x\":", "[", 64, "");
    body = repeat(open, "]", 64, "}");
    refuses(body, API_ERROR_INVALID_JSON, "");
    free(open);
    free(body);
}

static void choices_need_tools(void **state)
{
    (void)state;
    struct chat_request request;
    takes(&request, "{" X ",\"tool_choice\":\"auto\"}");
    assert_int_equal(request.tools.choice, TOOL_CHOICE_NONE);
    assert_null(tool_fields_offered(&request.tools));
    chat_request_clear(&request);
    refuses("{" X ",\"tool_choice\":\"required\"}", API_ERROR_INVALID_VALUE, "tool_choice");
    refuses("{" X ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}}", API_ERROR_INVALID_VALUE,
            "tool_choice.function.name");
    refuses("{" X ",\"tool_choice\":{\"type\":\"function\"}}", API_ERROR_INVALID_VALUE, "tool_choice");
    refuses("{" X ",\"tool_choice\":3}", API_ERROR_INVALID_TYPE, "tool_choice");
#define F "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"
    takes(&request, "{" X "," F ",\"tool_choice\":\"none\"}");
    assert_non_null(request.tools.tools);
    assert_null(tool_fields_offered(&request.tools));
    chat_request_clear(&request);
    refuses("{" X "," F ",\"tool_choice\":\"required\",\"stop\":\"x\"}", API_ERROR_INVALID_VALUE, "stop");
    refuses("{" X ",\"response_format\":{\"type\":\"json_object\"},\"stop\":\"x\"}", API_ERROR_INVALID_VALUE, "stop");
    takes(&request, "{" X "," F ",\"stop\":[\"x\",\"y\"]}");
    assert_int_equal(request.stop.n_stops, 2);
    chat_request_clear(&request);
    takes(&request, "{" X "," F ",\"tool_choice\":\"required\"}");
    assert_int_equal(request.tools.choice, TOOL_CHOICE_REQUIRED);
    chat_request_clear(&request);
}

static void paths_are_cut_rather_than_overrun(void **state)
{
    (void)state;
    refuses("{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":7}]}]}", API_ERROR_INVALID_TYPE,
            "messages[0].content[0].text");
    char *body = repeat("{" X ",\"logit_bias\":{\"", "k", 300, "\":1}}");
    struct chat_request request;
    struct api_error error;
    assert_false(decode(&request, body, &error));
    assert_true(strlen(error.param) < sizeof error.param);
    free(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_openais),
        cmocka_unit_test(every_field_is_read),
        cmocka_unit_test(messages_become_what_templates_take),
        cmocka_unit_test(limits_hold_at_their_edges),
        cmocka_unit_test(names_have_a_length),
        cmocka_unit_test(arguments_have_a_length_together),
        cmocka_unit_test(depth_has_a_limit),
        cmocka_unit_test(choices_need_tools),
        cmocka_unit_test(paths_are_cut_rather_than_overrun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
