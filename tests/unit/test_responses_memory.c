/* Every allocation of JSON in the answer of a response fails once, one a run: nothing crashes, and the failure is
 * noticed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "proto/responses_output.h"

static int countdown; /* the allocation that takes it from 1 to 0 fails */

static void *allocate(size_t size)
{
    return countdown > 0 && --countdown == 0 ? NULL : malloc(size);
}

static bool take(void *context, char *frame, size_t length)
{
    *(size_t *)context += length;
    bool there = frame != NULL;
    free(frame);
    return there;
}

static bool write_response(responses_consumer *consumer)
{
    static const struct response_usage usage = {.prompt_tokens = 1};
    static const struct response_timings timings = {.prompt_n = 1};
    struct responses_end end = {.usage = &usage, .timings = &timings};
    struct response_head head = {.id = "resp_1", .model = "m"};
    json_t *echo = json_pack("{s:n}", "user");
    size_t total = 0, length;
    struct responses_output_options options = {.head = &head, .echo = echo, .consumer = consumer, .context = &total};
    struct responses_output *output = echo != NULL ? responses_output_create(&options) : NULL;
    bool ok = output != NULL && responses_output_begin(output) &&
              responses_output_add(output, CHAT_PIECE_REASONING, "T", 1, NULL) &&
              responses_output_add(output, CHAT_PIECE_CONTENT, "A", 1, NULL) &&
              responses_output_add(output, CHAT_PIECE_TOOL, "f", 1, "call_1") &&
              responses_output_add(output, CHAT_PIECE_ARGUMENTS, "{}", 2, NULL) && responses_output_end(output, &end);
    char *json = ok ? responses_output_json(output, &length) : NULL;
    ok = json != NULL;
    free(json);
    struct api_error error;
    api_error_set(&error, API_ERROR_INTERNAL, NULL, "x");
    char *failed = output != NULL ? responses_output_fail(output, &error, &length) : NULL;
    ok = ok && failed != NULL;
    free(failed);
    responses_output_destroy(output);
    json_decref(echo);
    return ok;
}

static bool write_whole(void)
{
    return write_response(NULL);
}

static bool write_stream(void)
{
    return write_response(take);
}

static void fail_each_allocation(bool (*scenario)(void))
{
    int n = 0;
    bool failed = true;
    assert_true(scenario());
    while (failed) {
        countdown = ++n;
        bool ok = scenario();
        failed = countdown == 0;
        countdown = 0;
        assert_true(failed || ok);
    }
    assert_true(n > 20);
}

static void answers_survive_every_failed_allocation(void **state)
{
    (void)state;
    fail_each_allocation(write_whole);
    fail_each_allocation(write_stream);
}

int main(void)
{
    json_set_alloc_funcs(allocate, free);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_survive_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
