#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "daemon/constraint.h"
#include "daemon/mask_worker.h"

enum {
    N_TOKENS = 257,
    END = 256,
    N_CONSTRAINTS = 12,
};

static struct text_vocabulary *vocabulary;
static struct mask_worker *worker;

static int set_up(void **state)
{
    (void)state;
    static char bytes[256];
    static struct text_token tokens[N_TOKENS];
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        tokens[i] = (struct text_token){.bytes = &bytes[i], .length = 1};
    }
    tokens[END] = (struct text_token){.bytes = "<end>", .length = 5, .is_control = true, .ends_generation = true};
    struct text_error text_error;
    struct npu_error error;
    assert_int_equal(text_vocabulary_create(&vocabulary, tokens, N_TOKENS, &text_error), TEXT_OK);
    assert_int_equal(mask_worker_create(&worker, &error), NPU_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    mask_worker_destroy(worker);
    text_vocabulary_destroy(vocabulary);
    return 0;
}

static struct constraint *regex(const char *text)
{
    struct text_error error;
    struct constraint *constraint =
        constraint_create(vocabulary, N_TOKENS, TEXT_GRAMMAR_REGEX, text, strlen(text), &error);
    if (constraint == NULL)
        fail_msg("%s: %s", text, error.message);
    return constraint;
}

static bool allows(const struct constraint *constraint, int token)
{
    return constraint->mask.bits[token / 32] >> (token % 32) & 1;
}

/* The next character of text must be allowed, and others not. */
static void expect(const struct constraint *constraint, char wanted)
{
    assert_false(constraint->failed);
    for (int token = 0; token < N_TOKENS; token++)
        assert_int_equal(allows(constraint, token), token == (unsigned char)wanted);
}

static void masks_are_those_of_the_point(void **state)
{
    (void)state;
    const char text[] = "abcde";
    struct constraint *constraint = regex(text);
    for (size_t i = 0; i < strlen(text); i++) {
        mask_worker_begin(worker, constraint);
        mask_worker_await(worker, constraint);
        expect(constraint, text[i]);
        assert_true(constraint_commit(constraint, text[i]));
        assert_int_equal(constraint->is_complete, i + 1 == strlen(text));
    }
    mask_worker_await(worker, constraint); /* without having begun */
    assert_true(constraint->is_complete);
    assert_true(allows(constraint, END));
    constraint_destroy(constraint);
}

static void many_are_computed_side_by_side(void **state)
{
    (void)state;
    struct constraint *constraints[N_CONSTRAINTS];
    for (int i = 0; i < N_CONSTRAINTS; i++) {
        char text[8];
        snprintf(text, sizeof text, "%c%c%c", 'a' + i, 'b' + i, 'c' + i);
        constraints[i] = regex(text);
    }
    for (int at = 0; at < 3; at++) {
        for (int i = 0; i < N_CONSTRAINTS; i++)
            mask_worker_begin(worker, constraints[i]);
        for (int i = 0; i < N_CONSTRAINTS; i++) {
            int which = at % 2 ? i : N_CONSTRAINTS - 1 - i; /* from either end */
            mask_worker_await(worker, constraints[which]);
            expect(constraints[which], (char)('a' + which + at));
            assert_true(constraint_commit(constraints[which], 'a' + which + at));
        }
    }
    for (int i = 0; i < N_CONSTRAINTS; i++)
        constraint_destroy(constraints[i]);
}

static void what_is_cancelled_may_go_at_once(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        struct constraint *constraints[N_CONSTRAINTS];
        for (int i = 0; i < N_CONSTRAINTS; i++) {
            constraints[i] = regex("[a-z]{1,50}x");
            mask_worker_begin(worker, constraints[i]);
        }
        for (int i = 0; i < N_CONSTRAINTS; i++) {
            int which = (i * 5 + round) % N_CONSTRAINTS;
            mask_worker_cancel(worker, constraints[which]);
            constraint_destroy(constraints[which]);
        }
    }
}

static void another_of_the_same_grammar_is_at_its_beginning_and_apart(void **state)
{
    (void)state;
    struct text_error error;
    struct constraint *first = regex("a(b|c)"), *second, *third;
    assert_true(constraint_commit(first, 'a'));
    second = constraint_repeat(first, &error);
    assert_non_null(second);
    assert_true(constraint_commit(first, 'b'));
    assert_true(first->is_complete);
    constraint_destroy(first);
    third = constraint_repeat(second, &error);
    assert_non_null(third);
    mask_worker_begin(worker, third);
    mask_worker_await(worker, second);
    expect(second, 'a');
    assert_true(constraint_commit(second, 'a'));
    mask_worker_await(worker, second);
    assert_true(allows(second, 'b') && allows(second, 'c') && !allows(second, END));
    constraint_destroy(second);
    mask_worker_await(worker, third);
    expect(third, 'a');
    constraint_destroy(third);
}

static void a_token_that_may_not_come_fails_for_ever(void **state)
{
    (void)state;
    struct constraint *constraint = regex("ab");
    assert_false(constraint_commit(constraint, 'x'));
    assert_true(constraint->failed && constraint->error.message[0] != '\0');
    assert_false(constraint_commit(constraint, 'a'));
    mask_worker_begin(worker, constraint);
    mask_worker_await(worker, constraint);
    assert_true(constraint->failed);
    constraint_destroy(constraint);
}

static void wrong_grammars_are_errors(void **state)
{
    (void)state;
    static const struct {
        enum text_grammar_kind kind;
        const char *text;
        enum text_status status;
    } wrong[] = {
        {TEXT_GRAMMAR_REGEX, "(", TEXT_INVALID},
        {TEXT_GRAMMAR_LARK, "start: x", TEXT_INVALID},
        {TEXT_GRAMMAR_JSON_SCHEMA, "{\"not\": {}}", TEXT_INVALID},
        {TEXT_GRAMMAR_JSON_SCHEMA, "{\"maxItems\": 100000}", TEXT_LIMIT},
        {TEXT_GRAMMAR_JSON_SCHEMA, "\xff", TEXT_INVALID},
        {TEXT_GRAMMAR_TURN, "{}", TEXT_INVALID},
        {(enum text_grammar_kind)99, "", TEXT_INVALID},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct text_error error = {0};
        assert_null(
            constraint_create(vocabulary, N_TOKENS, wrong[i].kind, wrong[i].text, strlen(wrong[i].text), &error));
        assert_int_equal(error.status, wrong[i].status);
        assert_true(error.message[0] != '\0');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_are_those_of_the_point),
        cmocka_unit_test(many_are_computed_side_by_side),
        cmocka_unit_test(what_is_cancelled_may_go_at_once),
        cmocka_unit_test(another_of_the_same_grammar_is_at_its_beginning_and_apart),
        cmocka_unit_test(a_token_that_may_not_come_fails_for_ever),
        cmocka_unit_test(wrong_grammars_are_errors),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
