/* Chats over HTTP, from a request to its answer. */
#include "tests/unit/service_fixture.h"
#include "tests/unit/chat_format_fixture.h"

/* A chat is its messages' texts with a mark before each; tools are not shown, but the template knows them. */
static const char template[] =
    "{# <tool_call> #}{% if tools and tools[0].function.name == 'npud_probe' %}npud_probe{% endif %}"
    "{% for m in messages %}{{ m.role[0] }}>{{ m.content }};{% endfor %}a>";

static struct chat_format *chat_format;

static int setup_chat(void **state)
{
    setup(state);
    chat_format = create_format(template);
    make_ready_with(*state, chat_format);
    return 0;
}

static int teardown_chat(void **state)
{
    teardown(state);
    chat_format_destroy(chat_format);
    return 0;
}

static int post_chat(struct fixture *f, const char *fields)
{
    char body[2048];
    snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],%s}", fields);
    return post_to(f, "/v1/chat/completions", body);
}

static const char tools[] = "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]";

/* The n-th event of a stream, from its delta on. */
static void expect_frames(const char *const *expected, size_t n)
{
    const char *at = strstr(received, "\r\n\r\n");
    assert_non_null(at);
    for (size_t i = 0; i < n; i++) {
        at = strstr(at, "\"choices\":[");
        if (at == NULL)
            fail_msg("no frame %zu in %s", i, received);
        at += strlen("\"choices\":[");
        if (strncmp(at, expected[i], strlen(expected[i])) != 0)
            fail_msg("frame %zu is not %s but %.300s", i, expected[i], at);
    }
    assert_null(strstr(at, "\"choices\":[")); /* nothing behind the last */
    assert_non_null(strstr(at, "data: [DONE]\n\n"));
}

/* ---- tests ---- */

static void messages_become_a_prompt(void **state)
{
    struct fixture *f = *state;
    int client = post_to(f, "/v1/chat/completions",
                         "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":[{"
                         "\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]}],\"max_tokens\":7,"
                         "\"logprobs\":true,\"top_logprobs\":2,\"stop\":\"x\",\"prompt_cache_key\":\"k\"}");
    wait_submitted(f, 1);
    const struct generation *generation = f->engine.submitted[0];
    char prompt[64] = "";
    for (int i = 0; i < generation->n_prompt; i++)
        prompt[i] = (char)generation->prompt[i];
    assert_string_equal(prompt, "s>S;u>a\nb;a>");
    assert_int_equal(generation->max_tokens, 7);
    assert_int_equal(generation->n_logprobs, 2);
    assert_string_equal(generation->stops[0], "x");
    assert_string_equal(generation->session_key, "k");
    say(f, 0, "Yes", 0);
    finish(f, 0, FINISH_STOP, "");
    receive(f, client, "}}");
    assert_memory_equal(received, "HTTP/1.1 200 OK\r\n", 17);
    assert_non_null(strstr(received, "\"message\":{\"role\":\"assistant\",\"content\":\"Yes\",\"refusal\":null,"
                                     "\"annotations\":[]},\"logprobs\":{\"content\":[{\"token\":\"Y\","));
    assert_non_null(strstr(received, "\"finish_reason\":\"stop\""));
    close(client);
}

static void without_a_limit_an_answer_may_fill_the_context(void **state)
{
    struct fixture *f = *state;
    int client = post_chat(f, "\"n\":1");
    wait_submitted(f, 1);
    assert_int_equal(f->engine.submitted[0]->max_tokens, -1);
    finish(f, 0, FINISH_LENGTH, "");
    receive(f, client, "\"finish_reason\":\"length\"");
    assert_non_null(strstr(received, "\"content\":\"\""));
    close(client);
}

static void a_call_is_streamed_as_it_comes(void **state)
{
    struct fixture *f = *state;
    char fields[256];
    snprintf(fields, sizeof fields, "\"stream\":true,%s", tools);
    int client = post_chat(f, fields);
    wait_submitted(f, 1);
    static const char *const pieces[] = {"I look. <to",
                                         "ol_call>\n{\"name\": \"f\", \"argu",
                                         "ments\": {\"a\": \"\xf0\x9f\x8c\xa7",
                                         "\xef\xb8\x8f\"",
                                         "}}\n</tool_",
                                         "call>\n"};
    uint32_t at = 0;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        say(f, 0, pieces[i], at);
        at += (uint32_t)strlen(pieces[i]);
    }
    finish(f, 0, FINISH_STOP, "");
    receive(f, client, "[DONE]");
    static const char *const frames[] = {
        "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},\"logprobs\":null,"
        "\"finish_reason\":null}]",
        "{\"index\":0,\"delta\":{\"content\":\"I look.\"},",
        "{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"call_",
        "{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"a\\\": "
        "\\\"\xf0\x9f\x8c\xa7\"}}]},",
        "{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"\xef\xb8\x8f\\\"\"}}]},",
        "{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"}\"}}]},",
        "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"tool_calls\"}]",
    };
    expect_frames(frames, sizeof frames / sizeof *frames);
    assert_non_null(strstr(received, "\"type\":\"function\",\"function\":{\"arguments\":\"\",\"name\":\"f\"}}]}"));
    close(client);
}

static void a_stream_of_a_call_alone_begins_with_it(void **state)
{
    struct fixture *f = *state;
    char fields[256];
    snprintf(fields, sizeof fields, "\"stream\":true,\"stream_options\":{\"include_usage\":true},%s", tools);
    int client = post_chat(f, fields);
    wait_submitted(f, 1);
    static const char call[] = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
    say(f, 0, call, 0);
    finish(f, 0, FINISH_STOP, "");
    receive(f, client, "[DONE]");
    static const char *const frames[] = {
        "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null,\"refusal\":null,\"tool_calls\":[{\"index\":"
        "0,",
        "{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{}\"}}]},",
        "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"tool_calls\"}],\"usage\":null",
        "],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":5,\"total_tokens\":8,",
    };
    expect_frames(frames, sizeof frames / sizeof *frames);
    close(client);
}

static void a_choice_that_ends_early_says_so_at_once(void **state)
{
    struct fixture *f = *state;
    int client = post_chat(f, "\"stream\":true,\"n\":3");
    wait_submitted(f, 3);
    say(f, 1, "one", 0);
    finish(f, 1, FINISH_STOP, "");
    receive(f, client, "\"finish_reason\":\"stop\"");
    assert_null(strstr(received, "[DONE]"));
    say(f, 2, "two", 0);
    finish(f, 0, FINISH_LENGTH, "");
    finish(f, 2, FINISH_LENGTH, "");
    receive(f, client, "[DONE]");
    static const char *const ends[] = {
        "\"index\":2,\"delta\":{\"content\":\"two\"}",
        "\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"length\"",
        "\"index\":2,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"length\"",
    };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        assert_non_null(strstr(received, ends[i]));
    close(client);
}

static void tokens_go_with_the_next_frame(void **state)
{
    struct fixture *f = *state;
    char fields[256];
    snprintf(fields, sizeof fields, "\"stream\":true,\"logprobs\":true,%s", tools);
    int client = post_chat(f, fields);
    wait_submitted(f, 1);
    say(f, 0, "a<", 0);
    say(f, 0, "t", 2);
    finish(f, 0, FINISH_STOP, "");
    receive(f, client, "[DONE]");
    static const char *const frames[] = {
        "{\"index\":0,\"delta\":{\"role\":\"assistant\",",
        "{\"index\":0,\"delta\":{\"content\":\"a\"},\"logprobs\":{\"content\":[{\"token\":\"a\",\"logprob\":-0.5,"
        "\"bytes\":[97],\"top_logprobs\":[]},{\"token\":\"<\",",
        "{\"index\":0,\"delta\":{\"content\":\"<t\"},\"logprobs\":{\"content\":[{\"token\":\"t\",",
        "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}]",
    };
    expect_frames(frames, sizeof frames / sizeof *frames);
    close(client);
}

static void one_call_is_left_when_they_may_not_be_parallel(void **state)
{
    struct fixture *f = *state;
    char fields[256];
    snprintf(fields, sizeof fields, "\"parallel_tool_calls\":false,%s", tools);
    int client = post_chat(f, fields);
    wait_submitted(f, 1);
    static const char calls[] = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>"
                                "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call> End.";
    say(f, 0, calls, 0);
    finish(f, 0, FINISH_STOP, "");
    receive(f, client, "\"timings\"");
    assert_non_null(strstr(received, "\"name\":\"f\""));
    assert_null(strstr(received, "\"name\":\"g\""));
    assert_non_null(strstr(received, "\"content\":\"End.\""));
    assert_non_null(strstr(received, "\"finish_reason\":\"tool_calls\""));
    close(client);
}

static void a_call_that_is_cut_short_ends_by_length(void **state)
{
    struct fixture *f = *state;
    int client = post_chat(f, tools);
    wait_submitted(f, 1);
    say(f, 0, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1", 0);
    finish(f, 0, FINISH_LENGTH, "");
    receive(f, client, "\"timings\"");
    assert_non_null(strstr(received, "\"arguments\":\"{\\\"a\\\": 1\""));
    assert_non_null(strstr(received, "\"finish_reason\":\"length\""));
    close(client);
}

static void a_call_that_is_demanded_is_a_grammar(void **state)
{
    struct fixture *f = *state;
    char fields[256];
    snprintf(fields, sizeof fields, "\"tool_choice\":\"required\",%s", tools);
    int client = post_chat(f, fields);
    wait_submitted(f, 1);
    assert_non_null(f->engine.submitted[0]->constraint);
    finish(f, 0, FINISH_ERROR, "the device is gone");
    receive(f, client, "device_failed");
    close(client);
    client = post_chat(f, tools);
    wait_submitted(f, 2);
    assert_null(f->engine.submitted[1]->constraint);
    finish(f, 1, FINISH_STOP, "");
    receive(f, client, "\"timings\"");
    close(client);
}

static int setup_thinking(void **state)
{
    setup(state);
    chat_format = create_format("{# </think> #}{{ messages[0].content }}{% if enable_thinking %}<think>\n{% endif %}");
    make_ready_with(*state, chat_format);
    return 0;
}

static void thinking_is_streamed_apart(void **state)
{
    struct fixture *f = *state;
    static const char *const efforts[] = {"\"stream\":true", "\"stream\":true,\"reasoning_effort\":\"low\""};
    static const char *const texts[] = {"<think>\nHm", "Hm"}; /* the template has opened it */
    for (int i = 0; i < 2; i++) {
        int client = post_chat(f, efforts[i]);
        wait_submitted(f, i + 1);
        say(f, i, texts[i], 0);
        say(f, i, ".\n</think>\n\nYes", (uint32_t)strlen(texts[i]));
        finish(f, i, FINISH_STOP, "");
        receive(f, client, "[DONE]");
        static const char *const frames[] = {
            "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},",
            "{\"index\":0,\"delta\":{\"reasoning_content\":\"Hm\"},",
            "{\"index\":0,\"delta\":{\"reasoning_content\":\".\"},",
            "{\"index\":0,\"delta\":{\"content\":\"Yes\"},",
            "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}]",
        };
        expect_frames(frames, sizeof frames / sizeof *frames);
        close(client);
    }
}

static void the_next_turn_is_given_what_was_said(void **state)
{
    struct fixture *f = *state;
    int client = post_chat(f, "\"max_tokens\":5");
    wait_submitted(f, 1);
    say(f, 0, "Yo", 0);
    finish(f, 0, FINISH_STOP, "");
    receive(f, client, "\"timings\"");
    close(client);
    client =
        post_to(f, "/v1/chat/completions/render",
                "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":\"Yo\"},{"
                "\"role\":\"user\",\"content\":\"?\"}]}");
    receive(f, client, "\"tokens\":[117,62,72,105,59,97,62,89,111,59,117,62,63,59,97,62]}");
    assert_non_null(strstr(received, "{\"prompt\":\"u>Hi;a>Yo;u>?;a>\""));
    close(client);
}

static void an_error_in_a_stream_is_its_last_event(void **state)
{
    struct fixture *f = *state;
    int client = post_chat(f, "\"stream\":true");
    wait_submitted(f, 1);
    say(f, 0, "He", 0);
    finish(f, 0, FINISH_ERROR, "the device is gone");
    receive(f, client, "\"message\":\"the device is gone\"");
    assert_non_null(strstr(received, "\"content\":\"He\""));
    assert_null(strstr(received, "[DONE]"));
    close(client);
}

static void a_client_that_leaves_cancels_its_choices(void **state)
{
    struct fixture *f = *state;
    int client = post_chat(f, "\"n\":2");
    wait_submitted(f, 2);
    close(client);
    wait_cancelled(f, 2);
    finish(f, 0, FINISH_CANCELLED, "");
    finish(f, 1, FINISH_CANCELLED, "");
}

static void what_fits_not_is_refused(void **state)
{
    struct fixture *f = *state;
    char content[CONTEXT + 8];
    memset(content, 'x', sizeof content);
    content[CONTEXT - (int)strlen("u>;a>")] = '\0';
    char body[512];
    snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}", content);
    int client = post_to(f, "/v1/chat/completions", body);
    wait_submitted(f, 1); /* the last length that fits */
    finish(f, 0, FINISH_LENGTH, "");
    receive(f, client, "\"timings\"");
    close(client);
    snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"%sx\"}]}", content);
    client = post_to(f, "/v1/chat/completions", body);
    receive(f, client, "\"code\":\"context_length_exceeded\"");
    assert_non_null(strstr(received, "messages is too long: it has 65 tokens, but the maximum context length is 64"));
    close(client);
}

#define CHAT_TEST(name) cmocka_unit_test_setup_teardown(name, setup_chat, teardown_chat)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHAT_TEST(messages_become_a_prompt),
        CHAT_TEST(without_a_limit_an_answer_may_fill_the_context),
        CHAT_TEST(a_call_is_streamed_as_it_comes),
        CHAT_TEST(a_stream_of_a_call_alone_begins_with_it),
        CHAT_TEST(a_choice_that_ends_early_says_so_at_once),
        CHAT_TEST(tokens_go_with_the_next_frame),
        CHAT_TEST(one_call_is_left_when_they_may_not_be_parallel),
        CHAT_TEST(a_call_that_is_cut_short_ends_by_length),
        CHAT_TEST(a_call_that_is_demanded_is_a_grammar),
        cmocka_unit_test_setup_teardown(thinking_is_streamed_apart, setup_thinking, teardown_chat),
        CHAT_TEST(the_next_turn_is_given_what_was_said),
        CHAT_TEST(an_error_in_a_stream_is_its_last_event),
        CHAT_TEST(a_client_that_leaves_cancels_its_choices),
        CHAT_TEST(what_fits_not_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
