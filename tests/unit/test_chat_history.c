/* The tokens of what was said take the place of those that its text would give. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A byte is a token; 128 + n stands for n + 2 letters "a"; '<' and '>' are control tokens. */
enum {
    FAKE_VOCABULARY = 160,
};

static inline const char *fake_piece(int32_t token, size_t *length)
{
    static const char letters[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    static char bytes[128][2];
    if (token >= 128) {
        *length = (size_t)(token - 126);
        return letters;
    }
    bytes[token][0] = (char)token;
    *length = 1;
    return bytes[token];
}

#define FAKE_IS_CONTROL(token) ((token) == '<' || (token) == '>')
#include "tests/unit/fake_tokenizer.h"

#include "daemon/chat_history.h"

struct tokens {
    int32_t *tokens;
    int32_t n;
};

static struct tokens encode(const char *text)
{
    struct tokens t = {0};
    tokenizer_encode(NULL, text, strlen(text), false, true, &t.tokens, &t.n, NULL);
    return t;
}

/* What text becomes, with each token of several letters as its digit: 128 is 2. */
static char *apply(struct chat_history *history, const char *text, int32_t *ret_said)
{
    static char out[200];
    struct tokens t = encode(text);
    int32_t said = chat_history_apply(history, text, strlen(text), &t.tokens, &t.n);
    for (int32_t i = 0; i < t.n; i++)
        out[i] = t.tokens[i] >= 128 ? (char)('2' + t.tokens[i] - 128) : (char)t.tokens[i];
    out[t.n] = '\0';
    free(t.tokens);
    if (ret_said != NULL)
        *ret_said = said;
    return out;
}

/* As apply writes them. */
static void add(struct chat_history *history, const char *text, const char *written)
{
    int32_t tokens[200], n = 0;
    for (; written[n] != '\0'; n++)
        tokens[n] = written[n] >= '2' && written[n] <= '9' ? 128 + written[n] - '2' : written[n];
    chat_history_add(history, text, strlen(text), tokens, n);
}

static void what_was_said_is_taken_over(void **state)
{
    (void)state;
    struct chat_history *history = chat_history_create(NULL, 1 << 20);
    int32_t said;
    assert_string_equal(apply(history, "<u>aaaa<m>", &said), "<u>aaaa<m>");
    assert_int_equal(said, 0);
    add(history, "<u>aaaa<m>aaab", "<u>aaaa<m>3b");
    assert_string_equal(apply(history, "<u>aaaa<m>aaab<u>more<m>", &said), "<u>aaaa<m>3b<u>more<m>");
    assert_int_equal(said, 12);
    add(history, "<u>aaaa<m>aaab<u>more<m>aa", "<u>aaaa<m>3b<u>more<m>2");
    assert_string_equal(apply(history, "<u>aaaa<m>aaab<u>more<m>aa<u>x<m>", NULL), "<u>aaaa<m>3b<u>more<m>2<u>x<m>");
    chat_history_destroy(history);
}

static void another_answer_at_the_same_place_is_not_taken(void **state)
{
    (void)state;
    struct chat_history *history = chat_history_create(NULL, 1 << 20);
    add(history, "<u>q<m>aaaab", "<u>q<m>4b");
    assert_string_equal(apply(history, "<u>q<m>aaaac<u>", NULL), "<u>q<m>aaaac<u>"); /* not up to a control token */
    assert_string_equal(apply(history, "<u>q<m>aaaabaa<u>", NULL), "<u>q<m>aaaabaa<u>");
    assert_string_equal(apply(history, "<u>q<m>aaaa", NULL), "<u>q<m>aaaa");
    assert_string_equal(apply(history, "<u>p<m>aaaab<u>", NULL), "<u>p<m>aaaab<u>");
    chat_history_destroy(history);
}

static void an_answer_that_is_written_shorter_is_taken_up_to_there(void **state)
{
    (void)state;
    struct chat_history *history = chat_history_create(NULL, 1 << 20);
    add(history, "<u>q<m>aaaab \n", "<u>q<m>4b \n"); /* the template trims */
    assert_string_equal(apply(history, "<u>q<m>aaaab<u>", NULL), "<u>q<m>4b<u>");
    add(history, "<u>q<m>aaaaaa", "<u>q<m>33"); /* cut inside a token */
    assert_string_equal(apply(history, "<u>q<m>aaaaa<u>", NULL), "<u>q<m>aaaaa<u>");
    chat_history_destroy(history);
}

static void the_conversation_with_most_in_common_is_taken(void **state)
{
    (void)state;
    struct chat_history *history = chat_history_create(NULL, 1 << 20);
    add(history, "<u>q<m>aaaab", "<u>q<m>4b");
    add(history, "<u>q<m>aaaac", "<u>q<m>22c");
    assert_string_equal(apply(history, "<u>q<m>aaaab<u>", NULL), "<u>q<m>4b<u>");
    assert_string_equal(apply(history, "<u>q<m>aaaac<u>", NULL), "<u>q<m>22c<u>");
    add(history, "<u>q<m>aaaab<u>r<m>s", "<u>q<m>a3b<u>r<m>s");
    assert_string_equal(apply(history, "<u>q<m>aaaab<u>t", NULL), "<u>q<m>a3b<u>t"); /* edited later on */
    chat_history_destroy(history);
}

static void text_that_is_no_text_of_its_tokens_counts_at_its_end(void **state)
{
    (void)state;
    struct chat_history *history = chat_history_create(NULL, 1 << 20);
    add(history, "<u>q<m>!!", "<u>q<m>\x7f"); /* a repaired byte */
    assert_string_equal(apply(history, "<u>q<m>!!<u>", NULL), "<u>q<m>\x7f<u>");
    add(history, "<u>q<m>x", "<u>q<m><x"); /* a control token that is not shown */
    assert_string_equal(apply(history, "<u>q<m>x<u>", NULL), "<u>q<m><x<u>");
    chat_history_destroy(history);
}

static void memory_is_bounded_and_the_oldest_go(void **state)
{
    (void)state;
    struct chat_history *history = chat_history_create(NULL, 20000);
    char text[64], written[64];
    for (int i = 0; i < 1000; i++) {
        snprintf(text, sizeof text, "<u>:%c%c%c<m>aa", 'a' + i % 26, 'a' + i / 26 % 26, 'a' + i / 676);
        snprintf(written, sizeof written, "<u>:%c%c%c<m>2", 'a' + i % 26, 'a' + i / 26 % 26, 'a' + i / 676);
        add(history, text, written);
    }
    int32_t said;
    apply(history, "<u>:aaa<m>aa<", &said);
    assert_int_equal(said, 3);
    strcat(text, "<");
    strcat(written, "<");
    assert_string_equal(apply(history, text, NULL), written);
    char *long_text = calloc(1, 30001);
    memset(long_text, 'a', 30000);
    int32_t token = 'a';
    chat_history_add(history, long_text, 30000, &token, 1);
    assert_string_equal(apply(history, text, &said), text);
    assert_int_equal(said, 0);
    free(long_text);
    chat_history_destroy(history);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_said_is_taken_over),
        cmocka_unit_test(another_answer_at_the_same_place_is_not_taken),
        cmocka_unit_test(an_answer_that_is_written_shorter_is_taken_up_to_there),
        cmocka_unit_test(the_conversation_with_most_in_common_is_taken),
        cmocka_unit_test(text_that_is_no_text_of_its_tokens_counts_at_its_end),
        cmocka_unit_test(memory_is_bounded_and_the_oldest_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
