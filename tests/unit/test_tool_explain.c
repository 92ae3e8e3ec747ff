/* Tools for a template that knows none: explained, and calls and results as text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "proto/tool_explain.h"

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}}]";

static json_t *explain(const char *messages_text, bool with_tools, bool takes_system)
{
    json_t *messages = json_loads(messages_text, 0, NULL), *tools = json_loads(tools_text, 0, NULL);
    assert_non_null(messages);
    json_t *copy = json_deep_copy(messages);
    json_t *explained = tool_explain(messages, with_tools ? tools : NULL, takes_system);
    assert_non_null(explained);
    assert_true(json_equal(messages, copy)); /* what was given stays as it is */
    json_decref(messages);
    json_decref(copy);
    json_decref(tools);
    return explained;
}

static const char *text_of(const json_t *messages, size_t index, const char *role)
{
    const json_t *message = json_array_get(messages, index);
    assert_string_equal(json_string_value(json_object_get(message, "role")), role);
    assert_null(json_object_get(message, "tool_calls"));
    return json_string_value(json_object_get(message, "content"));
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

static void the_system_message_explains_them(void **state)
{
    (void)state;
    json_t *explained =
        explain("[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"U\"}]", true, true);
    assert_int_equal(json_array_size(explained), 2);
    const char *system = text_of(explained, 0, "system");
    assert_non_null(strstr(system, "{\"name\": \"f\", \"parameters\": {\"type\": \"object\"}}"));
    assert_true(ends_with(system, "\n\nS"));
    assert_string_equal(text_of(explained, 1, "user"), "U");
    json_decref(explained);
}

static void without_a_system_message_there_is_one(void **state)
{
    (void)state;
    json_t *explained = explain("[{\"role\":\"user\",\"content\":\"U\"}]", true, true);
    assert_int_equal(json_array_size(explained), 2);
    assert_non_null(strstr(text_of(explained, 0, "system"), "<tools>"));
    assert_string_equal(text_of(explained, 1, "user"), "U");
    json_decref(explained);
}

static void a_template_without_systems_has_it_in_the_first_message(void **state)
{
    (void)state;
    json_t *explained = explain(
        "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]}]",
        true, false);
    assert_int_equal(json_array_size(explained), 1);
    assert_true(ends_with(text_of(explained, 0, "user"), "\n\na\nb"));
    json_decref(explained);
    explained = explain("[{\"role\":\"assistant\",\"content\":\"A\"}]", true, false);
    assert_int_equal(json_array_size(explained), 2);
    assert_non_null(strstr(text_of(explained, 0, "user"), "<tools>"));
    json_decref(explained);
}

static void calls_and_results_become_text(void **state)
{
    (void)state;
    static const char *const calls =
        "[{\"role\":\"user\",\"content\":\"U\"},"
        "{\"role\":\"assistant\",\"content\":\"A\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"x\":"
        "\"\xc3\xbc\"}}},"
        "{\"function\":{\"name\":\"g\",\"arguments\":\"raw\"}}]},"
        "{\"role\":\"tool\",\"content\":\"1\"},{\"role\":\"tool\",\"content\":[{\"type\":\"text\",\"text\":\"2\"}]},"
        "{\"role\":\"user\",\"content\":\"And?\"},{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":"
        "\"f\","
        "\"arguments\":{}}}]},{\"role\":\"tool\",\"content\":\"3\"}]";
    json_t *explained = explain(calls, false, true);
    assert_int_equal(json_array_size(explained), 5);
    assert_string_equal(text_of(explained, 1, "assistant"),
                        "A\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"\xc3\xbc\"}}\n</tool_call>\n"
                        "<tool_call>\n{\"name\": \"g\", \"arguments\": \"raw\"}\n</tool_call>");
    assert_string_equal(text_of(explained, 2, "user"),
                        "<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>\nAnd?");
    assert_string_equal(text_of(explained, 3, "assistant"),
                        "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>");
    assert_string_equal(text_of(explained, 4, "user"), "<tool_response>\n3\n</tool_response>");
    json_decref(explained);
}

static void without_any_of_it_messages_stay_as_they_are(void **state)
{
    (void)state;
    static const char text[] = "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]},"
                               "{\"role\":\"assistant\",\"content\":\"A\"}]";
    json_t *explained = explain(text, false, false), *given = json_loads(text, 0, NULL);
    assert_true(json_equal(explained, given));
    json_decref(explained);
    json_decref(given);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_system_message_explains_them),
        cmocka_unit_test(without_a_system_message_there_is_one),
        cmocka_unit_test(a_template_without_systems_has_it_in_the_first_message),
        cmocka_unit_test(calls_and_results_become_text),
        cmocka_unit_test(without_any_of_it_messages_stay_as_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
