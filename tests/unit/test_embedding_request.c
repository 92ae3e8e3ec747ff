/* POST /v1/embeddings as JSON: the request's fields, and what the answer looks like. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "proto/embedding_request.h"
#include "proto/embedding_response.h"

static const struct embedding_limits limits = {.tokens = {.n_vocab = 1000}, .dimensions = 64};

static void decode(struct embedding_request *request, const char *body)
{
    struct api_error error;
    if (!embedding_request_decode(request, body, strlen(body), &limits, &error))
        fail_msg("%s\nrefused: %s", body, error.message);
}

static void refused(const char *body, enum api_error_kind kind, const char *param, const char *message)
{
    struct embedding_request request;
    struct api_error error;
    if (embedding_request_decode(&request, body, strlen(body), &limits, &error))
        fail_msg("%s\nwas taken", body);
    if (error.kind != kind || strcmp(error.param, param) != 0 || strcmp(error.message, message) != 0)
        fail_msg("%s\nexpected %s: %s\ngot %s: %s", body, param, message, error.param, error.message);
}

static void every_form_of_input_is_read(void **state)
{
    (void)state;
    struct embedding_request r;
    decode(&r, "{\"input\": \"hi\"}");
    assert_true(r.n_inputs == 1 && !r.input_is_list && !r.base64 && r.pooling == POOLING_FIELD_MODEL);
    assert_string_equal(r.inputs[0].text, "hi");
    assert_true(r.queue.priority == 5 && r.queue.max_wait_ms == 0 && r.queue.timeout_ms == 0);
    embedding_request_clear(&r);
    decode(&r, "{\"input\": [\"a\", \"bc\"], \"encoding_format\": \"base64\", \"pooling\": \"last\", \"priority\": 9,"
               "\"model\": \"any\", \"user\": \"me\", \"dimensions\": 64, \"unknown\": 1}");
    assert_true(r.n_inputs == 2 && r.input_is_list && r.base64 && r.pooling == POOLING_FIELD_LAST);
    assert_string_equal(r.inputs[1].text, "bc");
    assert_int_equal(r.queue.priority, 9);
    embedding_request_clear(&r);
    decode(&r, "{\"input\": [1, 999], \"encoding_format\": \"float\", \"pooling\": \"mean\", \"dimensions\": null}");
    assert_true(r.n_inputs == 1 && !r.input_is_list && r.pooling == POOLING_FIELD_MEAN);
    assert_true(r.inputs[0].text == NULL && r.inputs[0].n_tokens == 2 && r.inputs[0].tokens[1] == 999);
    embedding_request_clear(&r);
    decode(&r, "{\"input\": [[1], [2, 3]], \"encoding_format\": null, \"pooling\": null}");
    assert_true(r.n_inputs == 2 && r.input_is_list && r.inputs[1].n_tokens == 2);
    embedding_request_clear(&r);
}

static void wrong_fields_are_named(void **state)
{
    (void)state;
    refused("{}", API_ERROR_MISSING_PARAMETER, "input",
            "input is required: a string, an array of strings, an array of token ids or an array of such arrays");
    refused("{\"input\": \"\"}", API_ERROR_INVALID_VALUE, "input", "input must not be an empty string");
    refused("{\"input\": [\"a\", \"\"]}", API_ERROR_INVALID_VALUE, "input[1]", "input[1] must not be an empty string");
    refused("{\"input\": [\"a\", 1]}", API_ERROR_INVALID_TYPE, "input[1]",
            "input[1] must be a string like the others, not 1");
    refused("{\"input\": [[1], [1000]]}", API_ERROR_INVALID_VALUE, "input[1][0]",
            "input[1][0] must be a token id from 0 to 999, not 1000");
    refused("{\"input\": [{}]}", API_ERROR_INVALID_TYPE, "input[0]",
            "input[0] must be a string, a token id or an array of token ids, not an object");
    refused("{\"input\": \"a\", \"dimensions\": 32}", API_ERROR_INVALID_VALUE, "dimensions",
            "this model's embeddings have 64 dimensions and cannot be shortened to 32: leave dimensions out");
    refused("{\"input\": \"a\", \"encoding_format\": \"hex\"}", API_ERROR_INVALID_VALUE, "encoding_format",
            "encoding_format must be \"float\" or \"base64\", not \"hex\"");
    refused("{\"input\": \"a\", \"pooling\": 1}", API_ERROR_INVALID_TYPE, "pooling",
            "pooling must be \"mean\" or \"last\", not 1");
}

static void as_many_inputs_as_openai_takes(void **state)
{
    (void)state;
    struct embedding_request r;
    struct api_error error;
    char *body = malloc(4 * (EMBEDDING_MAX_INPUTS + 1) + 32);
    for (int n = EMBEDDING_MAX_INPUTS; n <= EMBEDDING_MAX_INPUTS + 1; n++) {
        char *end = stpcpy(body, "{\"input\": [\"a\"");
        for (int i = 1; i < n; i++)
            end = stpcpy(end, ",\"a\"");
        strcpy(end, "]}");
        bool taken = embedding_request_decode(&r, body, strlen(body), &limits, &error);
        if (taken)
            assert_int_equal(r.n_inputs, n);
        else
            assert_string_equal(error.message, "input may have at most 2048 entries, not 2049");
        assert_int_equal(taken, n == EMBEDDING_MAX_INPUTS);
        if (taken)
            embedding_request_clear(&r);
    }
    free(body);
}

static void numbers_read_back_as_the_same_floats(void **state)
{
    (void)state;
    static const float first[] = {0.1f, -1.0f / 3, FLT_MIN, 1, 0, -0.0f, FLT_TRUE_MIN},
                       second[] = {1, 2, 3, 4, 5, 6, 7};
    static const float *const vectors[] = {first, second};
    struct embedding_response response = {
        .model = "a \"model\"", .embeddings = vectors, .n = 2, .dimensions = 7, .prompt_tokens = 12};
    size_t length;
    char *text = embedding_response_json(&response, &length);
    assert_int_equal(length, strlen(text));
    json_t *root = json_loads(text, 0, NULL), *data = json_object_get(root, "data");
    assert_string_equal(json_string_value(json_object_get(root, "object")), "list");
    assert_string_equal(json_string_value(json_object_get(root, "model")), "a \"model\"");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(root, "usage"), "total_tokens")), 12);
    assert_int_equal(json_array_size(data), 2);
    for (int i = 0; i < 2; i++) {
        const json_t *item = json_array_get(data, (size_t)i), *numbers = json_object_get(item, "embedding");
        assert_int_equal(json_integer_value(json_object_get(item, "index")), i);
        assert_int_equal(json_array_size(numbers), 7);
        for (int j = 0; j < 7; j++)
            assert_true((float)json_number_value(json_array_get(numbers, (size_t)j)) == vectors[i][j]);
    }
    json_decref(root);
    free(text);
}

/* All three ends of a base64 text. */
static void base64_has_the_bytes_little_endian(void **state)
{
    (void)state;
    static const float values[] = {1, -2, 0.5f};
    static const float *const vectors[] = {values};
    static const char *const expected[] = {"\"AACAPw==\"", "\"AACAPwAAAMA=\"", "\"AACAPwAAAMAAAAA/\""};
    for (int n = 1; n <= 3; n++) {
        struct embedding_response response = {
            .model = "m", .embeddings = vectors, .n = 1, .dimensions = n, .base64 = true, .prompt_tokens = 1};
        size_t length;
        char *text = embedding_response_json(&response, &length);
        if (strstr(text, expected[n - 1]) == NULL)
            fail_msg("no %s in %s", expected[n - 1], text);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_of_input_is_read),        cmocka_unit_test(wrong_fields_are_named),
        cmocka_unit_test(as_many_inputs_as_openai_takes),     cmocka_unit_test(numbers_read_back_as_the_same_floats),
        cmocka_unit_test(base64_has_the_bytes_little_endian),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
