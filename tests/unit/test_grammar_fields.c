#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "proto/grammar_fields.h"

static struct grammar_fields fields;
static struct api_error error;

static bool read(const char *text)
{
    json_t *object = json_loads(text, 0, NULL);
    assert_non_null(object);
    bool ok = grammar_fields_read(&fields, object, &error);
    json_decref(object);
    return ok;
}

static void taken(const char *text, enum text_grammar_kind kind, const char *grammar, const char *path)
{
    if (!read(text))
        fail_msg("%s\nrefused: %s", text, error.message);
    assert_true(fields.is_given);
    assert_int_equal(fields.kind, kind);
    assert_string_equal(fields.path, path);
    if (grammar == NULL)
        assert_null(fields.text);
    else
        assert_string_equal(fields.text, grammar);
    assert_int_equal(fields.length, grammar != NULL ? strlen(grammar) : 0);
    grammar_fields_clear(&fields);
}

static void refused(const char *text, const char *param, const char *part)
{
    if (read(text))
        fail_msg("%s\nwas taken", text);
    if (strcmp(error.param, param) != 0 || strstr(error.message, part) == NULL)
        fail_msg("%s\nexpected %s: %s\ngot %s: %s", text, param, part, error.param, error.message);
    grammar_fields_clear(&fields);
}

static void grammars_are_read_in_every_form(void **state)
{
    (void)state;
    taken("{\"grammar\": {\"type\": \"json_schema\", \"value\": {\"z\": 1, \"a\": [1.5, null]}}}",
          TEXT_GRAMMAR_JSON_SCHEMA, "{\"z\":1,\"a\":[1.5,null]}", "grammar.value");
    taken("{\"grammar\": {\"type\": \"json_schema\", \"value\": true}}", TEXT_GRAMMAR_JSON_SCHEMA, "true",
          "grammar.value");
    taken("{\"grammar\": {\"type\": \"json_object\"}}", TEXT_GRAMMAR_JSON_OBJECT, NULL, "grammar.value");
    taken("{\"grammar\": {\"type\": \"regex\", \"value\": \"a+\"}}", TEXT_GRAMMAR_REGEX, "a+", "grammar.value");
    taken("{\"grammar\": {\"type\": \"lark\", \"value\": \"start: \\\"a\\\"\"}}", TEXT_GRAMMAR_LARK, "start: \"a\"",
          "grammar.value");
    taken("{\"response_format\": {\"type\": \"json_object\"}}", TEXT_GRAMMAR_JSON_OBJECT, NULL, "response_format");
    taken("{\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"n\", \"strict\": false, "
          "\"schema\": {}}}}",
          TEXT_GRAMMAR_JSON_SCHEMA, "{}", "response_format.json_schema.schema");
    taken("{\"response_format\": {\"type\": \"text\"}, \"grammar\": {\"type\": \"regex\", \"value\": \"a\"}}",
          TEXT_GRAMMAR_REGEX, "a", "grammar.value");
}

static void nothing_is_given_without_a_grammar(void **state)
{
    (void)state;
    const char *texts[] = {"{}", "{\"grammar\": null, \"response_format\": null}",
                           "{\"response_format\": {\"type\": \"text\"}}"};
    for (int i = 0; i < 3; i++) {
        assert_true(read(texts[i]));
        assert_false(fields.is_given);
    }
}

static void wrong_fields_are_named(void **state)
{
    (void)state;
    refused("{\"grammar\": []}", "grammar", "an object");
    refused("{\"grammar\": {}}", "grammar.type", "is required");
    refused("{\"grammar\": {\"type\": 1}}", "grammar.type", "a string");
    refused("{\"grammar\": {\"type\": \"ebnf\"}}", "grammar.type", "json_schema, json_object, regex or lark");
    refused("{\"grammar\": {\"type\": \"json_schema\"}}", "grammar.value", "is required");
    refused("{\"grammar\": {\"type\": \"json_schema\", \"value\": \"{}\"}}", "grammar.value", "a JSON Schema");
    refused("{\"grammar\": {\"type\": \"regex\", \"value\": \"\"}}", "grammar.value", "not empty");
    refused("{\"grammar\": {\"type\": \"lark\", \"value\": {}}}", "grammar.value", "a string");
    refused("{\"grammar\": {\"type\": \"json_object\", \"value\": {}}}", "grammar.value", "must not be given");
    refused("{\"response_format\": \"json\"}", "response_format", "an object");
    refused("{\"response_format\": {\"type\": \"regex\"}}", "response_format.type", "text, json_object or json_schema");
    refused("{\"response_format\": {\"type\": \"json_schema\", \"json_schema\": 1}}", "response_format.json_schema",
            "an object");
    refused("{\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"schema\": {}}}}",
            "response_format.json_schema.name", "is required");
    refused("{\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"n\", \"schema\": 3}}}",
            "response_format.json_schema.schema", "a JSON Schema");
    refused("{\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"n\", \"strict\": 1}}}",
            "response_format.json_schema.strict", "true or false");
    refused("{\"response_format\": {\"type\": \"json_object\"}, \"grammar\": {\"type\": \"json_object\"}}", "grammar",
            "together");
}

static void formats_of_responses_have_the_schema_beside_the_type(void **state)
{
    (void)state;
    json_t *format = json_loads("{\"type\": \"json_schema\", \"name\": \"n\", \"schema\": {\"a\": 1}}", 0, NULL);
    assert_true(grammar_fields_read_format(&fields, format, "text.format", &error));
    assert_string_equal(fields.text, "{\"a\":1}");
    assert_string_equal(fields.path, "text.format.schema");
    grammar_fields_clear(&fields);
    json_object_del(format, "name");
    assert_false(grammar_fields_read_format(&fields, format, "text.format", &error));
    assert_string_equal(error.param, "text.format.name");
    grammar_fields_clear(&fields);
    json_decref(format);
    assert_true(grammar_fields_read_format(&fields, NULL, "text.format", &error));
    assert_false(fields.is_given);
}

static void a_turn_is_kept_as_its_json(void **state)
{
    (void)state;
    json_t *turn = json_pack("{s:{s:b}}", "content", "x", 1);
    assert_true(grammar_fields_set_turn(&fields, turn, "tools", &error));
    json_decref(turn);
    assert_true(fields.is_given && !fields.is_own && fields.kind == TEXT_GRAMMAR_TURN);
    assert_string_equal(fields.text, "{\"content\":{\"x\":true}}");
    assert_string_equal(fields.path, "tools");
    grammar_fields_clear(&fields);
    assert_false(grammar_fields_set_turn(&fields, NULL, "tools", &error));
    assert_int_equal(error.kind, API_ERROR_OUT_OF_MEMORY);
    grammar_fields_clear(&fields);
}

static void stop_strings_are_refused_beside_a_grammar(void **state)
{
    (void)state;
    struct grammar_fields none = {0}, some = {.is_given = true};
    assert_true(grammar_fields_refuse_stop(&none, 3, &error));
    assert_true(grammar_fields_refuse_stop(&some, 0, &error));
    assert_false(grammar_fields_refuse_stop(&some, 1, &error));
    assert_string_equal(error.param, "stop");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grammars_are_read_in_every_form),
        cmocka_unit_test(nothing_is_given_without_a_grammar),
        cmocka_unit_test(wrong_fields_are_named),
        cmocka_unit_test(formats_of_responses_have_the_schema_beside_the_type),
        cmocka_unit_test(a_turn_is_kept_as_its_json),
        cmocka_unit_test(stop_strings_are_refused_beside_a_grammar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
