/* What a chat template can do is found out by trying it, and requests are fitted to that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    FAKE_VOCABULARY = 256,
};

static const char *fake_piece(int32_t token, size_t *length)
{
    static const char *const names[] = {"", "<s>", "</s>"};
    static char bytes[FAKE_VOCABULARY][2];
    bytes[token][0] = (char)token;
    *length = token < 3 ? strlen(names[token]) : 1;
    return token < 3 ? names[token] : bytes[token];
}

#include "tests/unit/fake_tokenizer.h"

#include "daemon/chat_format.h"
#include "npu/gguf.h"
#include "proto/chat_messages.h"
#include "proto/json_reader.h"
#include "proto/template_fields.h"
#include "proto/tool_fields.h"
#include "tests/unit/gguf_builder.h"

static struct chat_format *create(const char *template)
{
    struct gguf_builder builder;
    gguf_builder_init(&builder, 3);
    gguf_add_u32(&builder, "tokenizer.ggml.padding_token_id", 'p');
    if (template != NULL)
        gguf_add_string(&builder, "tokenizer.chat_template", template);
    struct gguf_file *file;
    struct chat_format *format;
    struct npu_error error;
    size_t size;
    unsigned char *data = gguf_builder_finish(&builder, &size);
    assert_int_equal(gguf_open_memory(&file, data, size, "built.gguf", &error), NPU_OK);
    assert_int_equal(chat_format_create(&format, file, NULL, NULL, &error), NPU_OK);
    gguf_close(file);
    free(data);
    gguf_builder_free(&builder);
    return format;
}

/* What the template makes of a request; an error's message if it is refused. */
static char *render(const struct chat_format *format, const char *request)
{
    json_t *object, *messages;
    struct tool_fields tools;
    struct template_fields fields;
    struct api_error error;
    char *text;
    size_t length;
    assert_true(json_read_body(&object, request, strlen(request), &error));
    assert_true(chat_messages_read(&messages, object, "messages", &error));
    assert_true(tool_fields_read(&tools, object, &error));
    assert_true(template_fields_read(&fields, object, &error));
    assert_true(
        template_fields_set_effort(&fields, json_field(object, "reasoning_effort"), "reasoning_effort", &error));
    struct chat_content content = {.messages = messages,
                                   .tools = tool_fields_offered(&tools),
                                   .fields = &fields,
                                   .messages_field = "messages",
                                   .effort_field = "reasoning_effort"};
    if (!chat_format_render(format, &content, &text, &length, &error))
        text = strdup(error.message);
    json_decref(messages);
    json_decref(object);
    tool_fields_clear(&tools);
    template_fields_clear(&fields);
    return text;
}

static void gives(const char *template, const char *request, const char *expected)
{
    struct chat_format *format = create(template);
    char *text = render(format, request);
    assert_string_equal(text, expected);
    free(text);
    chat_format_destroy(format);
}

#define EACH "{% for m in messages %}"
#define END "{% endfor %}"
#define HI "{\"role\":\"user\",\"content\":\"Hi\"}"
#define PARTS "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]}"
#define TOOLS ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"
#define CALL                                                                                                           \
    "{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\","        \
    "\"arguments\":\"{\\\"x\\\": [1]}\"}}]}"

static void content_has_the_form_that_the_template_takes(void **state)
{
    (void)state;
    static const char strings[] = EACH "{{ m.content }};" END, parts[] = EACH "{% for p in m.content %}{{ p.text }},"
                                                                              "{% endfor %};" END;
    static const char both[] = EACH "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
                                    "{{ p.text }},{% endfor %}{% endif %};" END;
    static const char request[] = "{\"messages\":[" HI "," PARTS "]}";
    gives(strings, request, "Hi;a\nb;");
    gives(parts, request, "Hi,;a,b,;");
    gives(both, request, "Hi;a,b,;");
}

static void a_developer_is_a_system_where_it_is_not_known(void **state)
{
    (void)state;
    static const char request[] = "{\"messages\":[{\"role\":\"developer\",\"content\":\"x\"}]}";
    gives(EACH "{{ m.role }}" END, request, "system");
    gives(EACH "{% if m.role == 'developer' %}{{ m.role }}!{% endif %}" END, request, "developer!");
}

static void special_tokens_are_variables(void **state)
{
    (void)state;
    gives("{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ unk_token }}" EACH "{{ m.content }}" END,
          "{\"messages\":[" HI "]}", "<s></s>pHi");
}

static void a_message_without_content_has_an_empty_one_where_one_is_needed(void **state)
{
    (void)state;
    static const char request[] = "{\"messages\":[" HI "," CALL "," HI "]" TOOLS "}";
    static const char needs[] =
        "{# <tool_call> #}{% if tools %}{{ tools[0].function.name }}{% endif %}" EACH "{{ ':' + m.content }}" END;
    static const char shows[] =
        "{# <tool_call> #}{% if tools %}{{ tools[0].function.name }}{% endif %}" EACH "{{ m.content is defined }};" END;
    gives(needs, request, "f:Hi::Hi");
    gives(shows, request, "fTrue;False;True;");
    gives(shows, "{\"messages\":[{\"role\":\"assistant\",\"reasoning_content\":\"x\"}]}", "True;");
}

static void arguments_are_objects_where_they_can(void **state)
{
    (void)state;
    static const char template[] = "{# <tool_call> #}{% if tools %}{{ tools[0].function.name }}{% endif %}" EACH
                                   "{% if m.tool_calls %}{{ m.tool_calls[0].function.arguments is mapping }}"
                                   "{{ m.tool_calls[0].function.arguments }}{% endif %}" END;
    gives(template, "{\"messages\":[" CALL "]" TOOLS "}", "fTrue{'x': [1]}");
    static const char broken[] = "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
                                 "\"arguments\":\"{x\"}}]}]" TOOLS "}";
    gives(template, broken, "fFalse{x");
}

static void tool_styles_are_told_by_the_template(void **state)
{
    (void)state;
    static const char shows[] = "{% if tools %}{{ tools | tojson }}{% endif %}" EACH "{{ m.content }}" END;
    static const struct {
        const char *mentioned;
        enum chat_tool_style style;
    } cases[] = {
        {"<tool_call>", CHAT_TOOL_STYLE_HERMES},
        {"<|python_tag|>", CHAT_TOOL_STYLE_LLAMA},
        {"Environment: ipython", CHAT_TOOL_STYLE_LLAMA},
        {"<|tool_call>call:", CHAT_TOOL_STYLE_GEMMA},
        {"nothing", CHAT_TOOL_STYLE_JSON},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char template[512];
        snprintf(template, sizeof template, "{# %s #}%s", cases[i].mentioned, shows);
        struct chat_format *format = create(template);
        assert_int_equal(chat_format_tools(format), cases[i].style);
        char *text = render(format, "{\"messages\":[" HI "]" TOOLS "}");
        bool explained = strstr(text, "<tools>") != NULL;
        assert_int_equal(explained, cases[i].style == CHAT_TOOL_STYLE_JSON);
        free(text);
        chat_format_destroy(format);
    }
    struct chat_format *format = create("{# <tool_call> #}" EACH "{{ m.content }}" END); /* and shows no tools */
    assert_int_equal(chat_format_tools(format), CHAT_TOOL_STYLE_JSON);
    chat_format_destroy(format);
}

static void a_template_must_write_calls_in_its_style(void **state)
{
    (void)state;
#define NAME "{{ m.tool_calls[0].function.name }}"
#define ARGUMENTS "{{ m.tool_calls[0].function.arguments | tojson }}"
    static const struct {
        const char *mentioned, *call;
        enum chat_tool_style style;
    } cases[] = {
        {"<tool_call>", "<tool_call>\n{\"name\": \"" NAME "\", \"arguments\": " ARGUMENTS "}\n</tool_call>",
         CHAT_TOOL_STYLE_HERMES},
        {"<tool_call>", "<tool_call>\n<function=" NAME ">", CHAT_TOOL_STYLE_JSON},
        {"<tool_call>", "<tool_call>{}</tool_call>\"" NAME "\"", CHAT_TOOL_STYLE_JSON},
        {"<|python_tag|>", "{\"name\": \"" NAME "\", \"parameters\": " ARGUMENTS "}", CHAT_TOOL_STYLE_LLAMA},
        {"<|python_tag|>", "<function=" NAME ">" ARGUMENTS "</function>", CHAT_TOOL_STYLE_JSON},
        {"<|tool_call>call:", "<|tool_call>call:" NAME "{x:1}<tool_call|>", CHAT_TOOL_STYLE_GEMMA},
        {"<|tool_call>call:", "<|tool_call>" NAME, CHAT_TOOL_STYLE_JSON},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char template[1024];
        snprintf(template, sizeof template, "{# %s #}%s%s%s", cases[i].mentioned,
                 "{% if tools %}{{ tools | tojson }}{% endif %}" EACH "{% if m.tool_calls %}", cases[i].call,
                 "{% else %}{{ m.content }}{% endif %}" END);
        struct chat_format *format = create(template);
        if (chat_format_tools(format) != cases[i].style)
            fail_msg("%s", cases[i].call);
        chat_format_destroy(format);
    }
}

static void thinking_is_asked_for_in_every_way(void **state)
{
    (void)state;
    static const char low[] = "{\"messages\":[" HI "],\"reasoning_effort\":\"low\"}",
                      none[] = "{\"messages\":[" HI "],\"reasoning_effort\":\"none\"}",
                      unsaid[] = "{\"messages\":[" HI "]}";
    static const char onoff[] = "{{ enable_thinking is defined }} {{ enable_thinking | default('-') }}" EACH END,
                      effort[] = "{{ reasoning_effort | default('medium') }}" EACH END, plain[] = "x" EACH END;
    gives(onoff, low, "True True");
    gives(onoff, none, "True False");
    gives(onoff, unsaid, "False -");
    gives(effort, low, "low");
    gives(effort, unsaid, "medium");
    gives(plain, none, "x");
    gives(plain, low, "reasoning_effort may only be none: the model's chat template knows no thinking");
    gives(onoff, "{\"messages\":[" HI "],\"chat_template_kwargs\":{\"enable_thinking\":7}}", "True 7");
}

static void a_prompt_may_end_in_thinking_or_behind_it(void **state)
{
    (void)state;
    static const struct {
        const char *mentioned, *prompt;
        enum chat_reasoning reasoning;
        bool begins, may;
    } cases[] = {
        {"<think></think>", "a>\n<think>\n", CHAT_REASONING_THINK, true, true},
        {"<think></think>", "<think>", CHAT_REASONING_THINK, true, true},
        {"<think></think>", "<think>\n\n</think>\n\n", CHAT_REASONING_THINK, false, false},
        {"<think></think>", "</think>a>", CHAT_REASONING_THINK, false, true},
        {"<think></think>", "", CHAT_REASONING_THINK, false, true},
        {"<|channel><channel|>", "<|channel>thought\n", CHAT_REASONING_CHANNEL, true, true},
        {"<|channel><channel|>", "<|channel>thought\n<channel|>", CHAT_REASONING_CHANNEL, false, false},
        {"", "<think>\n", CHAT_REASONING_NONE, false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char template[128];
        const char *prompt = cases[i].prompt;
        snprintf(template, sizeof template, "{# %s #}", cases[i].mentioned);
        struct chat_format *format = create(template);
        assert_int_equal(chat_format_reasoning(format), cases[i].reasoning);
        assert_int_equal(chat_format_begins_in_reasoning(format, prompt, strlen(prompt)), cases[i].begins);
        assert_int_equal(chat_format_may_reason(format, prompt, strlen(prompt)), cases[i].may);
        chat_format_destroy(format);
    }
}

static void a_model_without_a_template_says_what_to_do(void **state)
{
    (void)state;
    static const char *const templates[] = {NULL, "{% if %}"};
    for (size_t i = 0; i < 2; i++) {
        struct chat_format *format = create(templates[i]);
        assert_non_null(strstr(chat_format_problem(format), "--chat-template FILE"));
        char *text = render(format, "{\"messages\":[" HI "]}");
        assert_string_equal(text, chat_format_problem(format));
        free(text);
        chat_format_destroy(format);
    }
    struct chat_format *format = create("x");
    assert_null(chat_format_problem(format));
    chat_format_destroy(format);
}

static void what_the_template_says_is_passed_on(void **state)
{
    (void)state;
    gives("{% if messages[0].content == 'Hi' %}{{ raise_exception('No, thanks.') }}{% endif %}",
          "{\"messages\":[" HI "]}", "the model's chat template refuses the messages: No, thanks.");
}

static void a_template_file_is_used_or_named(void **state)
{
    (void)state;
    struct gguf_builder builder;
    struct gguf_file *file;
    struct npu_error error;
    size_t size;
    gguf_builder_init(&builder, 3);
    gguf_add_string(&builder, "tokenizer.chat_template", "the model's");
    unsigned char *data = gguf_builder_finish(&builder, &size);
    assert_int_equal(gguf_open_memory(&file, data, size, "built.gguf", &error), NPU_OK);
    static const struct {
        const char *text, *problem;
    } cases[] = {{"the file's", NULL}, {"", "empty"}, {"{% if %}", "line 1"}, {NULL, "No such file"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[] = "/tmp/npud-template-XXXXXX";
        int descriptor = mkstemp(path);
        assert_true(descriptor >= 0);
        if (cases[i].text != NULL)
            assert_int_equal(write(descriptor, cases[i].text, strlen(cases[i].text)), strlen(cases[i].text));
        else
            unlink(path);
        close(descriptor);
        struct chat_format *format = NULL;
        enum npu_status status = chat_format_create(&format, file, path, NULL, &error);
        if (cases[i].problem == NULL) {
            assert_int_equal(status, NPU_OK);
            char *text = render(format, "{\"messages\":[" HI "]}");
            assert_string_equal(text, cases[i].text);
            free(text);
            chat_format_destroy(format);
        } else {
            assert_int_equal(status, NPU_ERROR_INPUT);
            assert_non_null(strstr(error.message, path));
            assert_non_null(strstr(error.message, cases[i].problem));
        }
        unlink(path);
    }
    gguf_close(file);
    free(data);
    gguf_builder_free(&builder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(content_has_the_form_that_the_template_takes),
        cmocka_unit_test(a_developer_is_a_system_where_it_is_not_known),
        cmocka_unit_test(special_tokens_are_variables),
        cmocka_unit_test(a_message_without_content_has_an_empty_one_where_one_is_needed),
        cmocka_unit_test(arguments_are_objects_where_they_can),
        cmocka_unit_test(tool_styles_are_told_by_the_template),
        cmocka_unit_test(a_template_must_write_calls_in_its_style),
        cmocka_unit_test(thinking_is_asked_for_in_every_way),
        cmocka_unit_test(a_prompt_may_end_in_thinking_or_behind_it),
        cmocka_unit_test(a_model_without_a_template_says_what_to_do),
        cmocka_unit_test(what_the_template_says_is_passed_on),
        cmocka_unit_test(a_template_file_is_used_or_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
