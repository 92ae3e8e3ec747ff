/* Events to text and tokens of one choice. The tokenizer is a fake: token n is written as the n-th of these pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/choice.h"

static const char *const pieces[] = {"a", "\xc3\xa4", "\xf0\x9f", "\x99\x82", "EN", "D", "<end>"};

enum {
    FAKE_VOCABULARY = sizeof pieces / sizeof pieces[0]
};

static const char *fake_piece(int32_t token, size_t *length)
{
    *length = strlen(pieces[token]);
    return pieces[token];
}

#include "tests/unit/fake_tokenizer.h"

/* An event with text and up to one token (-1: none). */
static void add(struct choice *choice, const char *text, int32_t token, uint32_t text_start, bool has_top)
{
    struct generation_event event = {.text = (char *)text, .text_length = strlen(text)};
    struct generation_token own = {.token = token, .has_logprob = true, .logprob = -1, .text_start = text_start};
    if (token >= 0) {
        own.text_length = token == 6 ? 0 : (uint32_t)strlen(pieces[token]);
        if (has_top) {
            own.top = calloc(2, sizeof *own.top);
            own.top[0] = (struct token_probability){0, -0.5f};
            own.top[1] = (struct token_probability){1, -1.5f};
            own.n_top = 2;
        }
        event.tokens = &own;
        event.n_tokens = 1;
    }
    assert_true(choice_add(choice, &event, true));
    assert_null(own.top);
}

static void finish(struct choice *choice, const char *text, enum finish_reason reason)
{
    struct generation_event event = {
        .text = (char *)text, .text_length = strlen(text), .finished = true, .reason = reason};
    assert_true(choice_add(choice, &event, true));
}

/* Takes what may be shown and compares token texts and offsets with "text@offset text@offset ...". */
static void expect_tokens(struct choice *choice, const char *expected)
{
    struct response_token *tokens;
    int n;
    assert_true(choice_take_tokens(choice, NULL, &tokens, &n));
    char text[256] = "";
    for (int i = 0; i < n; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%.*s@%d", i > 0 ? " " : "", (int)tokens[i].length, tokens[i].text,
                 (int)tokens[i].text_offset);
    }
    assert_string_equal(text, expected);
    free(tokens);
}

static void offsets_count_characters(void **state)
{
    (void)state;
    struct choice choice = {0};
    add(&choice, "\xc3\xa4", 1, 0, false);
    add(&choice, "a", 0, 2, false);
    expect_tokens(&choice, "\xc3\xa4@0 a@1");
    add(&choice, "\xc3\xa4", 1, 3, false);
    add(&choice, "a", 0, 5, false);
    expect_tokens(&choice, "\xc3\xa4@2 a@3");
    assert_null(choice_finish_reason(&choice));
    choice_clear(&choice);
}

static void tokens_wait_for_their_text(void **state)
{
    (void)state;
    struct choice choice = {0};
    add(&choice, "", 2, 0, true); /* half of a character */
    expect_tokens(&choice, "");
    add(&choice, "\xf0\x9f\x99\x82", 3, 2, true);
    expect_tokens(&choice, "\xf0\x9f@0 \x99\x82@0"); /* both belong to the one character */
    add(&choice, "", 4, 4, false);
    expect_tokens(&choice, "");
    add(&choice, "ENa", 0, 6, false); /* it was no stop string after all */
    expect_tokens(&choice, "EN@1 a@3");
    choice_clear(&choice);
}

static void tokens_of_a_stop_string_are_never_shown(void **state)
{
    (void)state;
    struct choice choice = {0};
    add(&choice, "a", 0, 0, false);
    add(&choice, "", 4, 1, true);
    add(&choice, "", 5, 3, true);
    expect_tokens(&choice, "a@0");
    finish(&choice, "", FINISH_STOP);
    expect_tokens(&choice, "");
    assert_int_equal(choice.n_tokens, 0);
    assert_string_equal(choice_finish_reason(&choice), "stop");
    assert_int_equal(choice.text_length, 1);
    choice_clear(&choice);
}

static void text_that_waited_comes_with_the_end(void **state)
{
    (void)state;
    struct choice choice = {0};
    add(&choice, "", 4, 0, false);
    finish(&choice, "EN", FINISH_LENGTH);
    expect_tokens(&choice, "EN@0");
    assert_string_equal(choice_finish_reason(&choice), "length");
    assert_memory_equal(choice.text, "EN", 2);
    choice_clear(&choice);
}

static void a_token_without_text_is_shown_when_its_place_is_reached(void **state)
{
    (void)state;
    struct choice choice = {0};
    add(&choice, "", 6, 0, false);
    expect_tokens(&choice, "<end>@0");
    add(&choice, "", 6, 1, false);
    expect_tokens(&choice, "");
    add(&choice, "a", 0, 0, false);
    expect_tokens(&choice, "<end>@1 a@0");
    choice_clear(&choice);
}

static void what_was_not_taken_is_freed(void **state)
{
    (void)state;
    struct choice choice = {0};
    for (int i = 0; i < 100; i++)
        add(&choice, "a", 0, (uint32_t)i, true);
    choice_clear(&choice);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offsets_count_characters),
        cmocka_unit_test(tokens_wait_for_their_text),
        cmocka_unit_test(tokens_of_a_stop_string_are_never_shown),
        cmocka_unit_test(text_that_waited_comes_with_the_end),
        cmocka_unit_test(a_token_without_text_is_shown_when_its_place_is_reached),
        cmocka_unit_test(what_was_not_taken_is_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
