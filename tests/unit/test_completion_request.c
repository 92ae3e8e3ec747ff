#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/completion_request.h"
#include "proto/json_reader.h"

static const struct request_limits limits = {.n_vocab = 1000};

static void decode(struct completion_request *request, const char *body)
{
    struct api_error error;
    if (!completion_request_decode(request, body, strlen(body), &limits, &error))
        fail_msg("%s\nrefused: %s", body, error.message);
}

/* The body must be refused with this parameter ("" for none) and a message that holds each of the parts. */
static void refused(const char *body, enum api_error_kind kind, const char *param, const char *part)
{
    struct completion_request request;
    struct api_error error;
    if (completion_request_decode(&request, body, strlen(body), &limits, &error)) {
        completion_request_clear(&request);
        fail_msg("%s\nwas taken", body);
    }
    if (error.kind != kind || strcmp(error.param, param) != 0 || strstr(error.message, part) == NULL)
        fail_msg("%s\nexpected kind %d, %s: %s\ngot kind %d, %s: %s", body, kind, param, part, error.kind, error.param,
                 error.message);
    size_t length;
    char *json = api_error_json(&error, &length);
    assert_non_null(json);
    free(json);
}

static void defaults_are_openais(void **state)
{
    (void)state;
    struct completion_request r;
    decode(&r, "{\"prompt\": \"hi\"}");
    assert_int_equal(r.n_prompts, 1);
    assert_false(r.prompt_is_list);
    assert_string_equal(r.prompts[0].text, "hi");
    assert_int_equal(r.max_tokens, 16);
    assert_int_equal(r.n, 1);
    assert_int_equal(r.logprobs, -1);
    assert_false(r.echo || r.stream.stream || r.stream.include_usage || r.sampling.has_seed || r.sampling.ignore_eos);
    assert_true(r.queue.priority == 5 && r.queue.max_wait_ms == 0 && r.queue.timeout_ms == 0);
    assert_true(r.sampling.temperature == 1 && r.sampling.top_p == 1 && r.sampling.min_p == 0);
    assert_true(r.sampling.repeat_penalty == 1 && r.sampling.presence_penalty == 0 && r.sampling.top_k == 0);
    assert_int_equal(r.stop.n_stops, 0);
    assert_null(r.prompt_cache_key);
    completion_request_clear(&r);
}

static void null_means_the_default_and_unknown_names_are_ignored(void **state)
{
    (void)state;
    struct completion_request r;
    decode(&r, "{\"prompt\":\"hi\",\"max_tokens\":null,\"temperature\":null,\"top_p\":null,\"n\":null,\"stop\":null,"
               "\"logprobs\":null,\"echo\":null,\"stream\":null,\"stream_options\":null,\"seed\":null,"
               "\"logit_bias\":null,\"best_of\":null,\"suffix\":null,\"model\":null,\"user\":null,\"top_k\":null,"
               "\"prompt_cache_key\":null,\"something_new\":{\"a\":[1]}}");
    assert_int_equal(r.max_tokens, 16);
    assert_true(r.sampling.temperature == 1);
    completion_request_clear(&r);
}

static void every_field_is_read(void **state)
{
    (void)state;
    struct completion_request r;
    decode(&r, "{\"model\":\"any\",\"prompt\":\"a\\u0000b\",\"max_tokens\":7,\"temperature\":0,\"top_p\":0.25,"
               "\"min_p\":0.5,\"top_k\":40,\"repeat_penalty\":1.25,\"presence_penalty\":-2,\"frequency_penalty\":2,"
               "\"seed\":-9223372036854775808,\"ignore_eos\":true,\"logit_bias\":{\"0\":-100,\"999\":1.5},\"n\":128,"
               "\"logprobs\":20,\"echo\":true,\"stop\":[\"\\n\",\"END\"],\"stream\":true,"
               "\"stream_options\":{\"include_usage\":true,\"other\":1},\"prompt_cache_key\":\"chat-1\"}");
    assert_int_equal(r.prompts[0].length, 3);
    assert_memory_equal(r.prompts[0].text, "a\0b", 4);
    assert_int_equal(r.max_tokens, 7);
    assert_true(r.sampling.temperature == 0 && r.sampling.top_p == 0.25 && r.sampling.min_p == 0.5);
    assert_int_equal(r.sampling.top_k, 40);
    assert_true(r.sampling.repeat_penalty == 1.25);
    assert_true(r.sampling.presence_penalty == -2 && r.sampling.frequency_penalty == 2);
    assert_true(r.sampling.has_seed && r.sampling.seed == INT64_MIN && r.sampling.ignore_eos);
    assert_int_equal(r.sampling.n_biases, 2);
    for (int i = 0; i < 2; i++)
        assert_true(r.sampling.biases[i].token == 0
                        ? r.sampling.biases[i].bias == -100
                        : r.sampling.biases[i].token == 999 && r.sampling.biases[i].bias == 1.5);
    assert_int_equal(r.n, 128);
    assert_int_equal(r.logprobs, 20);
    assert_true(r.echo && r.stream.stream && r.stream.include_usage);
    assert_int_equal(r.stop.n_stops, 2);
    assert_string_equal(r.stop.texts[1], "END");
    assert_int_equal(r.stop.lengths[0], 1);
    assert_string_equal(r.prompt_cache_key, "chat-1");
    completion_request_clear(&r);

    decode(&r, "{\"prompt\":\"x\",\"max_tokens\":24.0,\"stop\":\"END\",\"top_k\":-1}");
    assert_int_equal(r.max_tokens, 24);
    assert_int_equal(r.sampling.top_k, 0);
    assert_int_equal(r.stop.n_stops, 1);
    completion_request_clear(&r);
}

static void prompts_have_four_forms(void **state)
{
    (void)state;
    struct completion_request r;
    decode(&r, "{\"prompt\":[1,2,999]}");
    assert_int_equal(r.n_prompts, 1);
    assert_null(r.prompts[0].text);
    assert_int_equal(r.prompts[0].n_tokens, 3);
    assert_int_equal(r.prompts[0].tokens[2], 999);
    completion_request_clear(&r);
    decode(&r, "{\"prompt\":[\"a\",\"\"]}");
    assert_int_equal(r.n_prompts, 2);
    assert_true(r.prompt_is_list);
    assert_string_equal(r.prompts[1].text, "");
    completion_request_clear(&r);
    decode(&r, "{\"prompt\":[[1],[2,3]]}");
    assert_int_equal(r.n_prompts, 2);
    assert_int_equal(r.prompts[1].n_tokens, 2);
    completion_request_clear(&r);
    decode(&r, "{\"prompt\":\"\"}");
    completion_request_clear(&r);
}

static void wrong_prompts_are_named(void **state)
{
    (void)state;
    refused("{}", API_ERROR_MISSING_PARAMETER, "prompt", "prompt is required");
    refused("{\"prompt\":null}", API_ERROR_MISSING_PARAMETER, "prompt", "a string");
    refused("{\"prompt\":5}", API_ERROR_INVALID_TYPE, "prompt", "not 5");
    refused("{\"prompt\":{}}", API_ERROR_INVALID_TYPE, "prompt", "not an object");
    refused("{\"prompt\":[]}", API_ERROR_INVALID_VALUE, "prompt", "at least one token");
    refused("{\"prompt\":[[]]}", API_ERROR_INVALID_VALUE, "prompt[0]", "at least one token");
    refused("{\"prompt\":[null]}", API_ERROR_INVALID_TYPE, "prompt[0]", "not null");
    refused("{\"prompt\":[1,\"a\"]}", API_ERROR_INVALID_TYPE, "prompt[1]", "token id from 0 to 999");
    refused("{\"prompt\":[\"a\",1]}", API_ERROR_INVALID_TYPE, "prompt[1]", "a string");
    refused("{\"prompt\":[\"a\",[1]]}", API_ERROR_INVALID_TYPE, "prompt[1]", "a string");
    refused("{\"prompt\":[[1],2]}", API_ERROR_INVALID_TYPE, "prompt[1]", "array");
    refused("{\"prompt\":[[1],[1,1000]]}", API_ERROR_INVALID_VALUE, "prompt[1][1]", "not 1000");
    refused("{\"prompt\":[-1]}", API_ERROR_INVALID_VALUE, "prompt[0]", "not -1");
    refused("{\"prompt\":[1.5]}", API_ERROR_INVALID_TYPE, "prompt[0]", "not 1.5");
    refused("{\"prompt\":[true]}", API_ERROR_INVALID_TYPE, "prompt[0]", "not true");
}

static void ranges_are_checked_at_their_edges(void **state)
{
    (void)state;
    static const struct {
        const char *name, *low, *high, *below, *above;
    } fields[] = {
        {"temperature", "0", "2", "-0.001", "2.001"},
        {"top_p", "0", "1.0", "-1", "1.0001"},
        {"min_p", "0", "1", "-0.1", "1.1"},
        {"top_k", "-1", "2147483647", "-2", "2147483648"},
        {"repeat_penalty", "0.01", "10", "0", "10.1"},
        {"presence_penalty", "-2", "2", "-2.1", "2.1"},
        {"frequency_penalty", "-2.0", "2", "-3", "3"},
        {"max_tokens", "1", "2147483647", "-1", "2147483648"},
        {"n", "1", "128", "0", "129"},
        {"logprobs", "0", "20", "-1", "21"},
        {"priority", "0", "9", "-1", "10"},
        {"max_wait_ms", "0", "86400000", "-1", "86400001"},
        {"timeout_ms", "0", "86400000", "-1", "86400001"},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        char body[128];
        const char *good[] = {fields[i].low, fields[i].high}, *bad[] = {fields[i].below, fields[i].above};
        for (int j = 0; j < 2; j++) {
            struct completion_request r;
            snprintf(body, sizeof body, "{\"prompt\":\"x\",\"%s\":%s}", fields[i].name, good[j]);
            decode(&r, body);
            completion_request_clear(&r);
            snprintf(body, sizeof body, "{\"prompt\":\"x\",\"%s\":%s}", fields[i].name, bad[j]);
            refused(body, API_ERROR_INVALID_VALUE, fields[i].name, "must be a");
        }
        snprintf(body, sizeof body, "{\"prompt\":\"x\",\"%s\":\"1\"}", fields[i].name);
        refused(body, API_ERROR_INVALID_TYPE, fields[i].name, "not \"1\"");
        snprintf(body, sizeof body, "{\"prompt\":\"x\",\"%s\":true}", fields[i].name);
        refused(body, API_ERROR_INVALID_TYPE, fields[i].name, "not true");
    }
    refused("{\"prompt\":\"x\",\"max_tokens\":1.5}", API_ERROR_INVALID_VALUE, "max_tokens", "not 1.5");
    refused("{\"prompt\":\"x\",\"max_tokens\":1e300}", API_ERROR_INVALID_VALUE, "max_tokens", "not 1e+300");
    refused("{\"prompt\":\"x\",\"max_tokens\":0}", API_ERROR_INVALID_VALUE, "max_tokens", "echo");
    struct completion_request r;
    decode(&r, "{\"prompt\":\"x\",\"max_tokens\":0,\"echo\":true}");
    assert_int_equal(r.max_tokens, 0);
    completion_request_clear(&r);
}

static void other_wrong_fields_are_named(void **state)
{
    (void)state;
#define WITH(field) "{\"prompt\":\"x\"," field "}"
    refused(WITH("\"best_of\":1"), API_ERROR_UNSUPPORTED_PARAMETER, "best_of", "not supported");
    refused(WITH("\"suffix\":\"\""), API_ERROR_UNSUPPORTED_PARAMETER, "suffix", "not supported");
    refused(WITH("\"echo\":1"), API_ERROR_INVALID_TYPE, "echo", "true or false");
    refused(WITH("\"stream\":\"yes\""), API_ERROR_INVALID_TYPE, "stream", "not \"yes\"");
    refused(WITH("\"stream_options\":{}"), API_ERROR_INVALID_VALUE, "stream_options", "stream: true");
    refused(WITH("\"stream\":true,\"stream_options\":[]"), API_ERROR_INVALID_TYPE, "stream_options", "an object");
    refused(WITH("\"stream\":true,\"stream_options\":{\"include_usage\":1}"), API_ERROR_INVALID_TYPE,
            "stream_options.include_usage", "true or false");
    refused(WITH("\"stop\":5"), API_ERROR_INVALID_TYPE, "stop", "not 5");
    refused(WITH("\"stop\":\"\""), API_ERROR_INVALID_VALUE, "stop", "1 to 4096");
    refused(WITH("\"stop\":[\"a\",\"\"]"), API_ERROR_INVALID_VALUE, "stop[1]", "1 to 4096");
    refused(WITH("\"stop\":[\"a\",null]"), API_ERROR_INVALID_TYPE, "stop[1]", "not null");
    refused(WITH("\"stop\":[\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\","
                 "\"1\",\"1\",\"1\"]"),
            API_ERROR_INVALID_VALUE, "stop", "at most 16 strings, not 17");
    refused(WITH("\"logit_bias\":[]"), API_ERROR_INVALID_TYPE, "logit_bias", "object");
    refused(WITH("\"logit_bias\":{\"1000\":1}"), API_ERROR_INVALID_VALUE, "logit_bias.1000", "0 to 999");
    refused(WITH("\"logit_bias\":{\"-1\":1}"), API_ERROR_INVALID_VALUE, "logit_bias.-1", "0 to 999");
    refused(WITH("\"logit_bias\":{\"01\":1}"), API_ERROR_INVALID_VALUE, "logit_bias.01", "0 to 999");
    refused(WITH("\"logit_bias\":{\"\":1}"), API_ERROR_INVALID_VALUE, "logit_bias.", "0 to 999");
    refused(WITH("\"logit_bias\":{\"1\":101}"), API_ERROR_INVALID_VALUE, "logit_bias.1", "-100 to 100");
    refused(WITH("\"logit_bias\":{\"1\":\"x\"}"), API_ERROR_INVALID_TYPE, "logit_bias.1", "not \"x\"");
    refused(WITH("\"seed\":1.5"), API_ERROR_INVALID_VALUE, "seed", "64 bits");
    refused(WITH("\"model\":7"), API_ERROR_INVALID_TYPE, "model", "a string");
    refused(WITH("\"model\":\"a\\u0000b\""), API_ERROR_INVALID_VALUE, "model", "without NUL");
    refused(WITH("\"prompt_cache_key\":[]"), API_ERROR_INVALID_TYPE, "prompt_cache_key", "a string");
    refused("{\"prompt\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\",\"i\"],\"n\":128}", API_ERROR_INVALID_VALUE,
            "n", "at most 1024, not 1152");
    refused(WITH("\"stream\":\"\\u00e4\\u00e4\\u00e4\\u00e4\\u00e4\\u00e4\\u00e4\\u00e4\\u00e4\\u00e4\\u00e4\\u00e4x"
                 "\\u00e4\\u00e4\\u00e4\\u00e4\\u00e4\\u00e4\\u00e4\\u00e4\\u00e4\\u00e4\\u00e4\\u00e4\""),
            API_ERROR_INVALID_TYPE, "stream", "...");
}

static void what_is_not_json_says_where(void **state)
{
    (void)state;
    static const struct {
        const char *body, *part;
    } cases[] = {
        {"", "empty"},
        {"{", "not valid JSON"},
        {"[1]", "must be a JSON object"},
        {"\"x\"", "must be a JSON object"},
        {"5", "must be a JSON object"},
        {"{\"prompt\":\"x\"} x", "line 1, column 16"},
        {"{\"prompt\":\"x\",\"prompt\":\"y\"}", "duplicate"},
        {"{\"prompt\":\"x\",\"temperature\":NaN}", "not valid JSON"},
        {"{\"prompt\":\"x\",\"temperature\":Infinity}", "not valid JSON"},
        {"{\"prompt\":\"x\",\"temperature\":1e999}", "overflow"},
        {"{\"prompt\":\"x\",\"seed\":99999999999999999999}", "too big"},
        {"{\"prompt\":\"\xff\"}", "0xff"},
        {"{\"prompt\":\"\\ud800\"}", "not valid JSON"},
        {"{'prompt':'x'}", "not valid JSON"},
        {"{\"prompt\":\"x\",}", "not valid JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refused(cases[i].body, API_ERROR_INVALID_JSON, "", cases[i].part);
}

static void depth_and_size_are_bounded(void **state)
{
    (void)state;
    enum {
        N = 3 * 1000 * 1000
    };
    char *body = malloc(N);
    for (int depth = 1; depth < 100000; depth *= 7) {
        size_t n = (size_t)sprintf(body, "{\"prompt\":\"x\",\"a\":");
        memset(body + n, '[', (size_t)depth);
        memset(body + n + depth, ']', (size_t)depth);
        strcpy(body + n + 2 * (size_t)depth, "}");
        if (depth < JSON_MAX_DEPTH) {
            struct completion_request r;
            decode(&r, body);
            completion_request_clear(&r);
        } else {
            refused(body, API_ERROR_INVALID_JSON, "", "deeper than 64");
        }
    }
    /* Brackets and commas in strings do not count. */
    size_t n = (size_t)sprintf(body, "{\"prompt\":\"\\\"");
    memset(body + n, '[', 1000);
    memset(body + n + 1000, ',', N - 1000 - n - 3);
    strcpy(body + N - 3, "\"}");
    struct completion_request r;
    decode(&r, body);
    completion_request_clear(&r);
    n = (size_t)sprintf(body, "{\"prompt\":[1");
    while (n < N - 8)
        n += (size_t)sprintf(body + n, ",1");
    strcpy(body + n, "]}");
    refused(body, API_ERROR_INVALID_JSON, "", "more than 1048576 values");
    free(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_openais),
        cmocka_unit_test(null_means_the_default_and_unknown_names_are_ignored),
        cmocka_unit_test(every_field_is_read),
        cmocka_unit_test(prompts_have_four_forms),
        cmocka_unit_test(wrong_prompts_are_named),
        cmocka_unit_test(ranges_are_checked_at_their_edges),
        cmocka_unit_test(other_wrong_fields_are_named),
        cmocka_unit_test(what_is_not_json_says_where),
        cmocka_unit_test(depth_and_size_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
