/* Text in Unicode's form C, before words are cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/tokenizer_internal.h"

static void expect_composed(const char *text, size_t length, const char *expected, size_t expected_length)
{
    char *copy;
    size_t got_length;
    assert_int_equal(text_compose(text, length, &copy, &got_length, NULL), NPU_OK);
    assert_int_equal(got_length, expected_length);
    assert_memory_equal(copy != NULL ? copy : text, expected, expected_length);
    free(copy);
}

#define EXPECT_COMPOSED(text, expected) expect_composed(text, sizeof(text) - 1, expected, sizeof(expected) - 1)

static void letters_and_marks_become_one_character(void **state)
{
    (void)state;
    EXPECT_COMPOSED("e\u0301", "\u00e9");
    EXPECT_COMPOSED("cafe\u0301 au lait", "caf\u00e9 au lait");
    EXPECT_COMPOSED("A\u0323\u030a", "\u1ea0\u030a"); /* the mark below comes first, in either order */
    EXPECT_COMPOSED("A\u030a\u0323", "\u1ea0\u030a");
    EXPECT_COMPOSED("\u1112\u1161\u11ab", "\ud55c");
}

static void what_has_another_form_takes_it(void **state)
{
    (void)state;
    EXPECT_COMPOSED("\u212b", "\u00c5");
    EXPECT_COMPOSED("\u2126", "\u03a9");
    EXPECT_COMPOSED("\u0958", "\u0915\u093c"); /* excluded from composition */
    EXPECT_COMPOSED("\ufb01", "\ufb01"); /* compatibility forms stay */
}

static void composed_text_stays(void **state)
{
    (void)state;
    EXPECT_COMPOSED("", "");
    EXPECT_COMPOSED("plain\n\ttext\0with a zero", "plain\n\ttext\0with a zero");
    EXPECT_COMPOSED("\u00e9t\u00e9 \u6f22\u5b57 \ud55c\uae00 \U0001f600",
                    "\u00e9t\u00e9 \u6f22\u5b57 \ud55c\uae00 \U0001f600");
}

static void bytes_that_are_not_utf_8_stay_and_part_what_is_beside_them(void **state)
{
    (void)state;
    EXPECT_COMPOSED("\xff", "\xff");
    EXPECT_COMPOSED("\xff"
                    "e\u0301\xe2\x82"
                    "e\u0301\x80",
                    "\xff\u00e9\xe2\x82\u00e9\x80");
    EXPECT_COMPOSED("e\xff\u0301", "e\xff\u0301");
    EXPECT_COMPOSED("\xed\xa0\x80"
                    "e\u0301",
                    "\xed\xa0\x80\u00e9");
}

/* Half a million marks in the wrong order, then as many in the right one: nothing is lost, and it ends soon. */
static void endless_runs_of_marks_are_normalized(void **state)
{
    (void)state;
    enum {
        N = 1 << 19
    };
    char *text = malloc(4 * N), *copy;
    size_t length;
    assert_non_null(text);
    for (int i = 0; i < N; i++) {
        memcpy(text + 2 * i, "\u0302", 2); /* above, class 230 */
        memcpy(text + 2 * N + 2 * i, "\u0323", 2); /* below, class 220 */
    }
    assert_int_equal(text_compose(text, 4 * N, &copy, &length, NULL), NPU_OK);
    assert_int_equal(length, 4 * N);
    free(copy);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(letters_and_marks_become_one_character),
        cmocka_unit_test(what_has_another_form_takes_it),
        cmocka_unit_test(composed_text_stays),
        cmocka_unit_test(bytes_that_are_not_utf_8_stay_and_part_what_is_beside_them),
        cmocka_unit_test(endless_runs_of_marks_are_normalized),
    };
    return cmocka_run_group_tests_name("tokenizer normalize", tests, NULL, NULL);
}
