/* A request of /v1/responses from JSON, and its items as messages of a chat. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/responses_items.h"
#include "proto/responses_request.h"

static const struct request_limits limits = {.n_vocab = 1000};

static bool decode(struct responses_request *request, const char *body, struct api_error *error)
{
    return responses_request_decode(request, body, strlen(body), &limits, error);
}

static void takes(struct responses_request *request, const char *body)
{
    struct api_error error;
    if (!decode(request, body, &error))
        fail_msg("%s", error.message);
}

/* fields beside an input */
static void takes_with(struct responses_request *request, const char *fields)
{
    char body[1024];
    snprintf(body, sizeof body, "{\"input\":\"x\",%s}", fields);
    takes(request, body);
}

static void refuses_with(const char *fields, enum api_error_kind kind, const char *param)
{
    char body[1024];
    struct responses_request request;
    struct api_error error;
    snprintf(body, sizeof body, "{\"input\":\"x\",%s}", fields);
    if (decode(&request, body, &error))
        fail_msg("taken: %s", body);
    assert_string_equal(error.param, param);
    assert_int_equal(error.kind, kind);
}

static void equals(const json_t *value, const char *expected)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    assert_string_equal(text, expected);
    free(text);
}

/* ---- requests ---- */

static void defaults_are_openais(void **state)
{
    (void)state;
    struct responses_request request;
    takes(&request, "{\"input\":\"Hi\"}");
    equals(request.input, "[{\"type\":\"message\",\"role\":\"user\",\"content\":\"Hi\"}]");
    assert_null(request.instructions);
    assert_true(request.store && !request.stream);
    assert_int_equal(request.max_tokens, -1);
    assert_true(request.sampling.temperature == 1 && request.sampling.top_p == 1);
    assert_true(request.tools.choice == TOOL_CHOICE_NONE && request.tools.parallel);
    assert_false(request.grammar.is_given);
    assert_null(request.previous_response_id);
    equals(request.echo, "{\"user\":null,\"safety_identifier\":null,\"prompt_cache_key\":null,"
                         "\"previous_response_id\":null,\"instructions\":null,\"metadata\":{},\"tools\":[],"
                         "\"parallel_tool_calls\":true,\"tool_choice\":\"auto\",\"reasoning\":{\"effort\":null,"
                         "\"summary\":null},\"text\":{\"format\":{\"type\":\"text\"},\"verbosity\":\"medium\"},"
                         "\"max_output_tokens\":null,\"max_tool_calls\":null,\"temperature\":1.0,\"top_p\":1.0,"
                         "\"top_logprobs\":0,\"store\":true,\"background\":false,\"service_tier\":\"default\","
                         "\"truncation\":\"disabled\"}");
    responses_request_clear(&request);
}

static void every_field_is_read_and_repeated(void **state)
{
    (void)state;
    struct responses_request request;
    takes_with(&request,
               "\"instructions\":\"Be brief.\",\"previous_response_id\":\"resp_1\",\"store\":false,\"stream\":true,"
               "\"max_output_tokens\":5,\"temperature\":0.5,\"top_p\":0.25,\"metadata\":{\"a\":\"b\"},\"user\":\"me\","
               "\"prompt_cache_key\":\"k\",\"reasoning\":{\"effort\":\"low\",\"summary\":\"auto\"},\"seed\":7,"
               "\"stream_options\":{\"include_obfuscation\":false},\"priority\":9");
    equals(request.instructions, "\"Be brief.\"");
    assert_string_equal(request.previous_response_id, "resp_1");
    assert_string_equal(request.prompt_cache_key, "k");
    assert_string_equal(request.template.reasoning_effort, "low");
    assert_true(!request.store && request.stream);
    assert_int_equal(request.max_tokens, 5);
    assert_int_equal(request.queue.priority, 9);
    assert_int_equal(request.sampling.seed, 7);
    equals(json_object_get(request.echo, "metadata"), "{\"a\":\"b\"}");
    equals(json_object_get(request.echo, "temperature"), "0.5");
    equals(json_object_get(request.echo, "top_p"), "0.25");
    equals(json_object_get(request.echo, "instructions"), "\"Be brief.\"");
    equals(json_object_get(request.echo, "max_output_tokens"), "5");
    equals(json_object_get(request.echo, "user"), "\"me\"");
    equals(json_object_get(request.echo, "reasoning"), "{\"effort\":\"low\",\"summary\":null}");
    responses_request_clear(&request);
}

#define TOOL "{\"type\":\"function\",\"name\":\"f\",\"parameters\":{\"type\":\"object\"},\"strict\":true}"

static void tools_are_flat(void **state)
{
    (void)state;
    struct responses_request request;
    takes_with(&request, "\"tools\":[" TOOL "],\"parallel_tool_calls\":false");
    assert_true(request.tools.choice == TOOL_CHOICE_AUTO && !request.tools.parallel);
    equals(json_object_get(request.echo, "tools"), "[{\"type\":\"function\",\"strict\":true,\"name\":\"f\","
                                                   "\"description\":null,\"parameters\":{\"type\":\"object\"}}]");
    const json_t *tool = json_array_get(request.tools.tools, 0);
    equals(json_object_get(json_object_get(tool, "function"), "name"), "\"f\"");
    responses_request_clear(&request);
    takes_with(&request, "\"tools\":[" TOOL "],\"tool_choice\":{\"type\":\"function\",\"name\":\"f\"}");
    assert_int_equal(request.tools.choice, TOOL_CHOICE_NAMED);
    assert_string_equal(request.tools.name, "f");
    responses_request_clear(&request);
    refuses_with("\"tools\":[{\"type\":\"file_search\"}]", API_ERROR_UNSUPPORTED_PARAMETER, "tools[0].type");
    refuses_with("\"tools\":[{\"name\":\"f\"}]", API_ERROR_MISSING_PARAMETER, "tools[0].type");
    refuses_with("\"tools\":[" TOOL "," TOOL "]", API_ERROR_INVALID_VALUE, "tools[1].name");
    refuses_with("\"tools\":[" TOOL "],\"tool_choice\":{\"type\":\"mcp\"}", API_ERROR_UNSUPPORTED_PARAMETER,
                 "tool_choice.type");
    refuses_with("\"tools\":[" TOOL "],\"tool_choice\":\"always\"", API_ERROR_INVALID_VALUE, "tool_choice");
}

static void a_form_of_text_is_a_grammar(void **state)
{
    (void)state;
    struct responses_request request;
    takes_with(&request, "\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\",\"schema\":{}}}");
    assert_true(request.grammar.is_given);
    assert_string_equal(request.grammar.path, "text.format.schema");
    responses_request_clear(&request);
    takes_with(&request, "\"grammar\":{\"type\":\"regex\",\"value\":\"a\"},\"text\":{}");
    assert_true(request.grammar.is_given && request.grammar.is_own);
    responses_request_clear(&request);
    refuses_with("\"grammar\":{\"type\":\"regex\",\"value\":\"a\"},\"text\":{\"format\":{\"type\":\"text\"}}",
                 API_ERROR_INVALID_VALUE, "grammar");
    refuses_with("\"text\":{\"format\":{\"type\":\"json_object\"}},\"stop\":\"x\"", API_ERROR_INVALID_VALUE, "stop");
    refuses_with("\"text\":\"json\"", API_ERROR_INVALID_TYPE, "text");
}

static void limits_hold_at_their_edges(void **state)
{
    (void)state;
    struct responses_request request;
    char fields[900], name[70], value[560];
    takes_with(&request, "\"max_output_tokens\":2147483647");
    responses_request_clear(&request);
    refuses_with("\"max_output_tokens\":2147483648", API_ERROR_INVALID_VALUE, "max_output_tokens");
    refuses_with("\"max_output_tokens\":0", API_ERROR_INVALID_VALUE, "max_output_tokens");
    for (int beyond = 0; beyond < 2; beyond++) {
        memset(name, 'n', sizeof name);
        name[64 + beyond] = '\0';
        snprintf(fields, sizeof fields, "\"metadata\":{\"%s\":\"\"}", name);
        if (beyond) {
            refuses_with(fields, API_ERROR_INVALID_VALUE, "metadata");
        } else {
            takes_with(&request, fields);
            responses_request_clear(&request);
        }
        memset(value, 'v', sizeof value);
        value[512 + beyond] = '\0';
        snprintf(fields, sizeof fields, "\"metadata\":{\"a\":\"%s\"}", value);
        if (beyond) {
            refuses_with(fields, API_ERROR_INVALID_VALUE, "metadata.a");
        } else {
            takes_with(&request, fields);
            responses_request_clear(&request);
        }
        int n = snprintf(fields, sizeof fields, "\"metadata\":{\"x\":\"\"");
        for (int i = 1; i < 16 + beyond; i++)
            n += snprintf(fields + n, sizeof fields - (size_t)n, ",\"%d\":\"\"", i);
        snprintf(fields + n, sizeof fields - (size_t)n, "}");
        if (beyond) {
            refuses_with(fields, API_ERROR_INVALID_VALUE, "metadata");
        } else {
            takes_with(&request, fields);
            responses_request_clear(&request);
        }
    }
}

static void what_is_not_supported_says_so(void **state)
{
    (void)state;
    static const struct {
        const char *fields, *param;
    } cases[] = {
        {"\"background\":true", "background"},
        {"\"conversation\":\"c\"", "conversation"},
        {"\"truncation\":\"auto\"", "truncation"},
        {"\"prompt\":{}", "prompt"},
        {"\"context_management\":[]", "context_management"},
        {"\"max_tool_calls\":1", "max_tool_calls"},
        {"\"top_logprobs\":1", "top_logprobs"},
        {"\"include\":[\"reasoning.encrypted_content\"]", "include[0]"},
        {"\"include\":[\"file_search_call.results\",\"message.output_text.logprobs\"]", "include[1]"},
        {"\"text\":{\"verbosity\":\"high\"}", "text.verbosity"},
        {"\"reasoning\":{\"summary\":\"concise\"}", "reasoning.summary"},
        {"\"service_tier\":\"priority\"", "service_tier"},
        {"\"messages\":[]", "messages"},
        {"\"max_tokens\":1", "max_tokens"},
        {"\"response_format\":{}", "response_format"},
        {"\"stream\":true,\"stream_options\":{\"include_obfuscation\":true}", "stream_options.include_obfuscation"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuses_with(cases[i].fields, API_ERROR_UNSUPPORTED_PARAMETER, cases[i].param);
}

static void queries_are_checked(void **state)
{
    (void)state;
    static const char *const good[] = {NULL, "", "include[]=file_search_call.results", "stream=false&x=y",
                                       "include_obfuscation=true"};
    static const char *const bad[] = {"stream=true", "a=b&starting_after=1", "include=message.output_text.logprobs",
                                      "include[]=x&include[]=y"};
    struct api_error error;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(responses_query_check(good[i], &error));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(responses_query_check(bad[i], &error));
}

/* ---- items ---- */

static void become(const char *items, const char *before, const char *expected)
{
    json_t *messages = json_loads(before, 0, NULL), *list = json_loads(items, 0, NULL);
    struct api_error error;
    assert_true(messages != NULL && list != NULL);
    if (!responses_items_add(messages, list, "input", &error))
        fail_msg("%s", error.message);
    equals(messages, expected);
    json_decref(messages);
    json_decref(list);
}

static void are_refused(const char *items, enum api_error_kind kind, const char *param)
{
    json_t *messages = json_array(), *list = json_loads(items, 0, NULL);
    struct api_error error;
    if (responses_items_add(messages, list, "input", &error))
        fail_msg("taken: %s", items);
    assert_string_equal(error.param, param);
    assert_int_equal(error.kind, kind);
    json_decref(messages);
    json_decref(list);
}

#define CALL "{\"type\":\"function_call\",\"call_id\":\"1\",\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}"
#define AS_CALL "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1}},\"id\":\"1\"}"
#define THOUGHT "{\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\",\"text\":\"T\"}]}"

static void what_an_assistant_does_in_one_turn_is_one_message(void **state)
{
    (void)state;
    become(
        "[{\"role\":\"developer\",\"content\":\"D\"},{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":"
        "\"input_text\",\"text\":\"U\"}]}," THOUGHT
        ",{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"A\"}]}," CALL
        ",{\"type\":\"function_call_output\",\"call_id\":\"1\",\"output\":\"O\"}]",
        "[]",
        "[{\"role\":\"developer\",\"content\":\"D\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"U\"}"
        "]},"
        "{\"role\":\"assistant\",\"reasoning_content\":\"T\",\"content\":[{\"type\":\"text\",\"text\":\"A\"}],"
        "\"tool_calls\":[" AS_CALL "]},{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"O\"}]");
    become("[{\"role\":\"assistant\",\"content\":\"A\"},{\"role\":\"assistant\",\"content\":\"B\"}," THOUGHT "," THOUGHT
           "]",
           "[]",
           "[{\"role\":\"assistant\",\"content\":\"A\"},{\"role\":\"assistant\",\"content\":\"B\"},{\"role\":"
           "\"assistant\","
           "\"reasoning_content\":\"T\\nT\"}]");
    become("[{\"type\":\"reasoning\",\"summary\":[]},{\"role\":\"user\",\"content\":\"U\"}]", "[]",
           "[{\"role\":\"user\",\"content\":\"U\"}]");
}

static void outputs_answer_calls_of_earlier_turns(void **state)
{
    (void)state;
    static const char output[] =
        "[{\"type\":\"function_call_output\",\"call_id\":\"1\",\"output\":\"O\",\"name\":\"f\"}]";
    become(output, "[{\"role\":\"assistant\",\"tool_calls\":[" AS_CALL "]}]",
           "[{\"role\":\"assistant\",\"tool_calls\":[" AS_CALL
           "]},{\"role\":\"tool\",\"tool_call_id\":\"1\",\"name\":\"f\","
           "\"content\":\"O\"}]");
    are_refused(output, API_ERROR_INVALID_VALUE, "input[0].call_id");
}

static void wrong_items_are_refused_with_their_path(void **state)
{
    (void)state;
    are_refused("[3]", API_ERROR_INVALID_TYPE, "input[0]");
    are_refused("[" CALL ",{\"role\":\"user\"}]", API_ERROR_MISSING_PARAMETER, "input[1].content");
    are_refused("[{\"role\":\"tool\",\"content\":\"x\"}]", API_ERROR_INVALID_VALUE, "input[0].role");
    are_refused("[{\"role\":\"user\",\"content\":[{\"type\":\"input_file\"}]}]", API_ERROR_UNSUPPORTED_PARAMETER,
                "input[0].content[0].type");
    are_refused("[{\"type\":\"function_call\",\"call_id\":\"1\",\"name\":\"f\"}]", API_ERROR_MISSING_PARAMETER,
                "input[0].arguments");
    are_refused("[{\"type\":\"function_call\",\"call_id\":1,\"name\":\"f\"}]", API_ERROR_INVALID_TYPE,
                "input[0].call_id");
    are_refused("[" CALL ",{\"type\":\"function_call_output\",\"call_id\":\"1\"}]", API_ERROR_MISSING_PARAMETER,
                "input[1].output");
    are_refused("[{\"type\":\"reasoning\",\"encrypted_content\":\"x\"}]", API_ERROR_UNSUPPORTED_PARAMETER,
                "input[0].encrypted_content");
    are_refused("[{\"type\":\"reasoning\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}]}]", API_ERROR_INVALID_VALUE,
                "input[0].content[0]");
    are_refused("[{\"type\":\"mcp_call\"}]", API_ERROR_UNSUPPORTED_PARAMETER, "input[0].type");
    are_refused("[{\"type\":\"item_reference\"}]", API_ERROR_MISSING_PARAMETER, "input[0].id");
}

static void references_have_an_id_and_nothing_else_to_say(void **state)
{
    (void)state;
    static const struct {
        const char *item, *id;
    } cases[] = {
        {"{\"type\":\"item_reference\",\"id\":\"msg_1\"}", "msg_1"},
        {"{\"id\":\"msg_1\"}", "msg_1"},
        {"{\"id\":\"msg_1\",\"role\":\"user\",\"content\":\"x\"}", NULL},
        {"{\"id\":\"msg_1\",\"type\":\"message\"}", NULL},
        {"{\"type\":\"item_reference\"}", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *item = json_loads(cases[i].item, 0, NULL);
        const char *id = responses_item_reference(item);
        assert_true((id == NULL) == (cases[i].id == NULL));
        if (id != NULL)
            assert_string_equal(id, cases[i].id);
        json_decref(item);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_openais),
        cmocka_unit_test(every_field_is_read_and_repeated),
        cmocka_unit_test(tools_are_flat),
        cmocka_unit_test(a_form_of_text_is_a_grammar),
        cmocka_unit_test(limits_hold_at_their_edges),
        cmocka_unit_test(what_is_not_supported_says_so),
        cmocka_unit_test(queries_are_checked),
        cmocka_unit_test(what_an_assistant_does_in_one_turn_is_one_message),
        cmocka_unit_test(outputs_answer_calls_of_earlier_turns),
        cmocka_unit_test(wrong_items_are_refused_with_their_path),
        cmocka_unit_test(references_have_an_id_and_nothing_else_to_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
