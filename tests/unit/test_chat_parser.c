/* What a model writes is taken apart in the same way however it comes: every case is pushed whole, byte by byte and in
 * two parts cut at every place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/chat_parser.h"

/* What came, written out: R[...] C[...] and T[name](arguments). */
struct record {
    char text[8192];
    size_t n;
    int last; /* the kind of the last piece; -1: none */
};

static void put(struct record *record, const char *text, size_t length)
{
    assert_true(record->n + length < sizeof record->text);
    memcpy(record->text + record->n, text, length);
    record->n += length;
    record->text[record->n] = '\0';
}

static bool on_piece(void *context, enum chat_piece_kind kind, const char *text, size_t length)
{
    struct record *record = context;
    static const char *const opens[] = {"R[", "C[", "T[", "("};
    if (kind != CHAT_PIECE_TOOL)
        assert_true(length > 0);
    if (record->last != (int)kind || kind == CHAT_PIECE_TOOL) {
        if (record->last >= 0)
            put(record, record->last == CHAT_PIECE_ARGUMENTS ? ")" : "]", 1);
        put(record, opens[kind], strlen(opens[kind]));
    }
    record->last = (int)kind;
    put(record, text, length);
    return true;
}

static void parse(struct record *record, const struct chat_parser_options *options, const char *text, size_t first,
                  size_t step)
{
    struct chat_parser *parser = chat_parser_create(options);
    size_t length = strlen(text), at = first;
    *record = (struct record){.last = -1};
    assert_true(chat_parser_push(parser, text, first, on_piece, record));
    while (at < length) {
        size_t n = step < length - at ? step : length - at;
        assert_true(chat_parser_push(parser, text + at, n, on_piece, record));
        at += n;
    }
    assert_true(chat_parser_finish(parser, on_piece, record));
    if (record->last >= 0)
        put(record, record->last == CHAT_PIECE_ARGUMENTS ? ")" : "]", 1);
    chat_parser_destroy(parser);
}

static void gives(const struct chat_parser_options *options, const char *text, const char *expected)
{
    struct record record;
    size_t length = strlen(text);
    parse(&record, options, text, 0, length + 1);
    assert_string_equal(record.text, expected);
    parse(&record, options, text, 0, 1);
    assert_string_equal(record.text, expected);
    for (size_t cut = 1; cut < length; cut++) {
        parse(&record, options, text, cut, length);
        assert_string_equal(record.text, expected);
    }
}

static void plain_text_is_content_as_it_is(void **state)
{
    (void)state;
    const struct chat_parser_options options = {0};
    gives(&options, "", "");
    gives(&options, " \n<think>x</think>\n<tool_call>{\"name\": \"f\"} ",
          "C[ \n<think>x</think>\n<tool_call>{\"name\": \"f\"} ]");
}

static void thinking_comes_apart(void **state)
{
    (void)state;
    const struct chat_parser_options options = {.reasoning = CHAT_REASONING_THINK};
    gives(&options, "<think>\nLet me see.\n</think>\n\nFour.", "R[Let me see.]C[Four.]");
    gives(&options, "\n<think>a</think>b", "R[a]C[b]");
    gives(&options, "<think>\n\n</think>\n\nFour.\n", "C[Four.\n]");
    gives(&options, "Four. <think>not at the start</think>", "C[Four. <think>not at the start</think>]");
    gives(&options, "<think>never ends  ", "R[never ends]");
    gives(&options, "<think>a < b </thin x", "R[a < b </thin x]");
    gives(&options, "<thi", "C[<thi]");
    gives(&options, "<thinking>", "C[<thinking>]");
    gives(&options, "a\n\n b \n", "C[a\n\n b \n]");
    const struct chat_parser_options open = {.reasoning = CHAT_REASONING_THINK, .begins_in_reasoning = true};
    gives(&open, "I see.\n</think>\nFour.", "R[I see.]C[Four.]");
    const struct chat_parser_options channel = {.reasoning = CHAT_REASONING_CHANNEL};
    gives(&channel, "<|channel>thought\nHm.\n<channel|>Four.", "R[Hm.]C[Four.]");
    gives(&channel, "<|channel>thought<channel|>Four.", "C[Four.]");
}

static void hermes_calls_are_read(void **state)
{
    (void)state;
    const struct chat_parser_options options = {.tools = CHAT_TOOL_STYLE_HERMES};
    gives(&options, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, {\"b\": \"}\\\"{\"}]}}\n</tool_call>",
          "T[f]({\"a\": [1, {\"b\": \"}\\\"{\"}]})");
    gives(&options,
          "I look.\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>\n{\"name\": \"g\", "
          "\"arguments\": {\"x\": 1}}\n</tool_call>\n",
          "C[I look.]T[f]({})T[g]({\"x\": 1})");
    gives(&options, "<tool_call>{\"arguments\": {\"x\": 1}, \"name\": \"f\"}</tool_call>", "T[f]({\"x\": 1})");
    gives(
        &options,
        "<tool_call>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {\"x\": 1}, \"id\": [\"}\"]}</tool_call>",
        "T[f]({\"x\": 1})");
    gives(&options, "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"x\\\": 1}\"}</tool_call>", "T[f]({\"x\": 1})");
    gives(&options, "<tool_call>{\"name\": \"f\"}</tool_call>", "T[f]({})");
    gives(&options, "<tool_call>{\"name\": \"n\\u00e4me\", \"arguments\": {}}", "T[n\xc3\xa4me]({})");
    gives(&options, "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": \"cut", "T[f]({\"x\": \"cut)");
    gives(&options, "a <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call> b", "C[a]T[f]({})C[b]");
}

static void what_is_no_call_is_content(void **state)
{
    (void)state;
    const struct chat_parser_options options = {.tools = CHAT_TOOL_STYLE_HERMES};
    gives(&options, "<tool_call>no", "C[<tool_call>no]");
    gives(&options, "<tool_call>{x}</tool_call>", "C[<tool_call>{x}</tool_call>]");
    gives(&options, "<tool_call>{\"name\": 5, \"arguments\": {}}", "C[<tool_call>{\"name\": 5, \"arguments\": {}}]");
    gives(&options, "<tool_call>{\"a\": 1}</tool_call>", "C[<tool_call>{\"a\": 1}</tool_call>]");
    gives(&options, "<tool_call>[1]", "C[<tool_call>[1]]");
    gives(&options, "<tool_call>", "C[<tool_call>]");
    gives(&options, "1 < 2 <tool", "C[1 < 2 <tool]");
    gives(&options, "<tool_call>{\"name\" \"f\"}", "C[<tool_call>{\"name\" \"f\"}]");
}

static void llama_calls_are_read(void **state)
{
    (void)state;
    const struct chat_parser_options options = {.tools = CHAT_TOOL_STYLE_LLAMA};
    gives(&options, "{\"name\": \"f\", \"parameters\": {\"x\": 1}}", "T[f]({\"x\": 1})");
    gives(&options, "\n<|python_tag|>{\"name\": \"f\", \"parameters\": {\"x\": 1}}", "T[f]({\"x\": 1})");
    gives(&options, "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}", "T[f]({})T[g]({})");
    gives(&options, "{\"name\": \"Bob\", \"age\": 5}", "C[{\"name\": \"Bob\", \"age\": 5}]");
    gives(&options, "{\"a\": {\"name\": \"f\"}}\nx", "C[{\"a\": {\"name\": \"f\"}}\nx]");
    gives(&options, "Hello {\"name\": \"f\", \"parameters\": {}}", "C[Hello {\"name\": \"f\", \"parameters\": {}}]");
    gives(&options, "{not json", "C[{not json]");
}

static void gemma_calls_are_read(void **state)
{
    (void)state;
    const struct chat_parser_options options = {.tools = CHAT_TOOL_STYLE_GEMMA, .reasoning = CHAT_REASONING_CHANNEL};
    gives(&options, "<|tool_call>call:f{}<tool_call|>", "T[f]({})");
    gives(&options,
          "<|tool_call>call:get_weather{city:<|\"|>Z\xc3\xbcrich "
          "\"a\\b\"\n<|\"|>,days:2,deep:{ok:true,no:null,list:[1,-2.5,<|\"|>x<|\"|>]}}"
          "<tool_call|>",
          "T[get_weather]({\"city\": \"Z\xc3\xbcrich \\\"a\\\\b\\\"\\n\", \"days\": 2, \"deep\": {\"ok\": true, "
          "\"no\": null, \"list\": [1, "
          "-2.5, \"x\"]}})");
    gives(&options, "Hm.<|tool_call>call:f{a:1}<tool_call|><|tool_call>call:g{<|\"|>b c<|\"|>:[]}<tool_call|>",
          "C[Hm.]T[f]({\"a\": 1})T[g]({\"b c\": []})");
    gives(&options, "<|channel>thought\nI call.\n<channel|><|tool_call>call:f{a:<|\"|>1 < 2 <| x<|\"|>}<tool_call|>",
          "R[I call.]T[f]({\"a\": \"1 < 2 <| x\"})");
    gives(&options, "<|tool_call>cal x", "C[<|tool_call>cal x]");
    gives(&options, "<|tool_call>call: {}", "C[<|tool_call>call: {}]");
}

static void calls_without_marks_are_read_where_the_model_knows_none(void **state)
{
    (void)state;
    const struct chat_parser_options options = {.tools = CHAT_TOOL_STYLE_JSON};
    gives(&options, "{\"name\": \"f\", \"parameters\": {\"x\": 1}}", "T[f]({\"x\": 1})");
    gives(&options, " \n{\"name\": \"f\", \"arguments\": {}}\nDone.", "T[f]({})C[Done.]");
    gives(&options, "[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]", "T[f]({})T[g]({})");
    gives(&options, "```json\n{\"name\": \"f\", \"parameters\": {\"x\": 1}}\n```\n", "T[f]({\"x\": 1})");
    gives(&options, "```\n[{\"name\": \"f\", \"parameters\": {}}]\n```\nSo.", "T[f]({})C[So.]");
    gives(&options, "```tool_call\n{\"name\": \"f\", \"arguments\": {}}```", "T[f]({})");
    gives(&options, "<tool_call>[{\"name\": \"f\", \"arguments\": {}}]</tool_call>", "T[f]({})");
    gives(&options,
          "See <tool_call>\n [\n{\"name\": \"f\", \"arguments\": {}},\n{\"name\": \"g\", \"arguments\": "
          "{\"a\": \"]\"}}]\n</tool_call>.",
          "C[See]T[f]({})T[g]({\"a\": \"]\"})C[.]");
    gives(&options, "<tool_call>{\"name\": \"f\", \"arguments\": {}}\n{\"name\": \"g\", \"arguments\": {}}</tool_call>",
          "T[f]({})T[g]({})");
}

static void json_that_is_no_call_is_content(void **state)
{
    (void)state;
    const struct chat_parser_options options = {.tools = CHAT_TOOL_STYLE_JSON};
    static const char *const texts[] = {
        "{\"city\": \"Bern\", \"name\": \"f\"}",
        "{\"name\": \"Bob\"}",
        "{\"name\": \"Bob\", \"age\": {}}",
        "[1, 2]",
        "[link](to)",
        "[]",
        "```json\n{\"a\": 1}\n```\n",
        "```json\n\"name\"\n```",
        "```python\nprint()\n```",
        "```\n\n\ntext\n```",
        "```",
        "``",
        "```json\n",
        "<tool_call> [1]</tool_call>",
        "<tool_call>  [",
        "{",
        "{\"name\": \"f\", \"arguments\": ",
        "{\"name\"",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char expected[256];
        snprintf(expected, sizeof expected, "C[%s]", texts[i]);
        gives(&options, texts[i], expected);
    }
}

static void bare_words_of_gemma_are_strings_unless_they_are_json(void **state)
{
    (void)state;
    const struct chat_parser_options options = {.tools = CHAT_TOOL_STYLE_GEMMA};
    gives(&options,
          "<|tool_call>call:f{a:Bern,b: New York ,c:-1.5e3,d:true,e:null,f:None,g:0x1,h:http://x?a=1,i:\"q, \\\"}\"}"
          "<tool_call|>",
          "T[f]({\"a\": \"Bern\", \"b\": \"New York\", \"c\": -1.5e3, \"d\": true, \"e\": null, \"f\": \"None\", "
          "\"g\": \"0x1\", \"h\": \"http://x?a=1\", \"i\": \"q, \\\"}\"})");
    gives(&options, "<|tool_call>call:f{\xc3\xbc b:[\xf0\x9f\x8c\xa7,x y]}",
          "T[f]({\"\xc3\xbc b\": [\"\xf0\x9f\x8c\xa7\", \"x y\"]})");
    char number[256] = "<|tool_call>call:f{k:", as_string[256] = "T[f]({\"k\": \"";
    for (int i = 0; i < 100; i++) {
        strcat(number, "1");
        strcat(as_string, "1");
    }
    gives(&options, strcat(number, "}<tool_call|>"), strcat(as_string, "\"})"));
}

static void arguments_of_gemma_may_be_json(void **state)
{
    (void)state;
    const struct chat_parser_options options = {.tools = CHAT_TOOL_STYLE_GEMMA};
    gives(&options,
          "<|tool_call>call:f{\"a\": \"x, {\\\"<|\", \"b\": [1, {\"c\": null}, []], \"\": "
          "{}}<tool_call|><|tool_call>call:g{}"
          "<tool_call|>",
          "T[f]({\"a\": \"x, {\\\"<|\", \"b\": [1, {\"c\": null}, []], \"\": {}})T[g]({})");
}

static void brackets_of_gemma_must_match(void **state)
{
    (void)state;
    const struct chat_parser_options options = {.tools = CHAT_TOOL_STYLE_GEMMA};
    gives(&options, "<|tool_call>call:f{a:[1}<tool_call|>x", "T[f]({\"a\": [1)C[x]");
    gives(&options, "<|tool_call>call:f{{a", "T[f]({)C[a]");
    gives(&options, "<|tool_call>call:f{a:b{c", "T[f]({\"a\": \"b\")C[c]");
    gives(&options, "<|tool_call>call:f{a:1", "T[f]({\"a\": )");
}

static void characters_over_several_tokens_are_whole_in_what_comes(void **state)
{
    (void)state;
    const struct chat_parser_options options = {.tools = CHAT_TOOL_STYLE_HERMES, .reasoning = CHAT_REASONING_THINK};
    gives(
        &options,
        "<think>\xf0\x9f\xa4\x94</think>\xe5\xa4\xa9<tool_call>{\"name\": \"f\", \"arguments\": {\"\xf0\x9f\x91\xa9\": "
        "\"\xf0\x9f\x8c\xa7\xef\xb8\x8f\"}}</tool_call>",
        "R[\xf0\x9f\xa4\x94]C[\xe5\xa4\xa9]T[f]({\"\xf0\x9f\x91\xa9\": \"\xf0\x9f\x8c\xa7\xef\xb8\x8f\"})");
}

static void thinking_and_calls_follow_each_other(void **state)
{
    (void)state;
    const struct chat_parser_options hermes = {.tools = CHAT_TOOL_STYLE_HERMES, .reasoning = CHAT_REASONING_THINK};
    gives(&hermes, "<think>\nI call.\n</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
          "R[I call.]T[f]({})");
    gives(&hermes, "<think><tool_call>{\"name\": \"f\"}</think>No.", "R[<tool_call>{\"name\": \"f\"}]C[No.]");
    const struct chat_parser_options llama = {.tools = CHAT_TOOL_STYLE_LLAMA, .reasoning = CHAT_REASONING_THINK};
    gives(&llama, "<think>a</think>\n{\"name\": \"f\", \"parameters\": {}}", "R[a]T[f]({})");
    gives(&llama, "<think>a</think>\n  ", "R[a]");
    gives(&llama, "  ", "C[  ]");
    gives(&llama, "<|python_tag|>brave_search.call(query=\"x\")", "C[<|python_tag|>brave_search.call(query=\"x\")]");
    gives(&llama, "<|python_tag|>", "C[<|python_tag|>]");
}

static void arguments_are_json(void **state)
{
    (void)state;
    const struct chat_parser_options options = {.tools = CHAT_TOOL_STYLE_GEMMA};
    struct record record;
    parse(&record, &options, "<|tool_call>call:f{a:<|\"|>\x01\t\"\\<|\"|>,b:{c:[{},{d:1}]}}<tool_call|>", 0, 3);
    char *json = strchr(record.text, '(') + 1;
    json[strlen(json) - 1] = '\0';
    json_t *value = json_loads(json, 0, NULL);
    assert_non_null(value);
    assert_string_equal(json_string_value(json_object_get(value, "a")), "\x01\t\"\\");
    json_decref(value);
}

static bool give_up(void *context, enum chat_piece_kind kind, const char *text, size_t length)
{
    (void)context, (void)kind, (void)text, (void)length;
    return false;
}

static void a_consumer_may_give_up(void **state)
{
    (void)state;
    const struct chat_parser_options options = {.tools = CHAT_TOOL_STYLE_HERMES, .reasoning = CHAT_REASONING_THINK};
    static const char *const texts[] = {"hello", "<think>x", "<tool_call>{\"name\": \"f\", \"arguments\": {}}",
                                        "<tool_call>x"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct chat_parser *parser = chat_parser_create(&options);
        assert_false(chat_parser_push(parser, texts[i], strlen(texts[i]), give_up, NULL));
        chat_parser_destroy(parser);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_text_is_content_as_it_is),
        cmocka_unit_test(thinking_comes_apart),
        cmocka_unit_test(hermes_calls_are_read),
        cmocka_unit_test(what_is_no_call_is_content),
        cmocka_unit_test(llama_calls_are_read),
        cmocka_unit_test(gemma_calls_are_read),
        cmocka_unit_test(calls_without_marks_are_read_where_the_model_knows_none),
        cmocka_unit_test(json_that_is_no_call_is_content),
        cmocka_unit_test(bare_words_of_gemma_are_strings_unless_they_are_json),
        cmocka_unit_test(arguments_of_gemma_may_be_json),
        cmocka_unit_test(brackets_of_gemma_must_match),
        cmocka_unit_test(characters_over_several_tokens_are_whole_in_what_comes),
        cmocka_unit_test(thinking_and_calls_follow_each_other),
        cmocka_unit_test(arguments_are_json),
        cmocka_unit_test(a_consumer_may_give_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
