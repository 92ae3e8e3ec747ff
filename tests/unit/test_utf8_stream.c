/* UTF-8 streaming: the output is valid, depends on the bytes alone, and is what Unicode recommends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/utf8.h"
#include "daemon/utf8_stream.h"

#define FFFD "\xef\xbf\xbd"

/* All of input in pieces of piece bytes, then a flush. */
static size_t stream_all(const char *input, size_t length, size_t piece, char *out)
{
    struct utf8_stream stream;
    size_t written = 0;
    utf8_stream_init(&stream);
    for (size_t at = 0; at < length; at += piece) {
        size_t n = length - at < piece ? length - at : piece;
        size_t now = utf8_stream_push(&stream, input + at, n, out + written);
        assert_true(now <= UTF8_STREAM_OUTPUT_BYTES(n));
        assert_true(utf8_is_valid(out + written, now));
        written += now;
    }
    return written + utf8_stream_flush(&stream, out + written);
}

static void expect(const char *input, const char *wanted)
{
    char out[512];
    for (size_t piece = 1; piece <= strlen(input) + 1; piece++) {
        size_t n = stream_all(input, strlen(input), piece, out);
        assert_int_equal(n, strlen(wanted));
        assert_memory_equal(out, wanted, n);
    }
}

static void valid_text_passes_unchanged_however_it_is_cut(void **state)
{
    (void)state;
    expect("plain", "plain");
    expect("\xc3\xa9 \xe6\xbc\xa2 \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x94\xac", /* é 漢 woman-zwj-microscope */
           "\xc3\xa9 \xe6\xbc\xa2 \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x94\xac");
    expect("\xf4\x8f\xbf\xbf\xed\x9f\xbf\xee\x80\x80\xf0\x90\x80\x80",
           "\xf4\x8f\xbf\xbf\xed\x9f\xbf\xee\x80\x80\xf0\x90\x80\x80");
}

static void a_character_waits_until_it_is_whole(void **state)
{
    (void)state;
    static const char smile[] = "\xf0\x9f\x98\x80";
    struct utf8_stream stream;
    char out[16];
    utf8_stream_init(&stream);
    for (int i = 0; i < 3; i++)
        assert_int_equal(utf8_stream_push(&stream, smile + i, 1, out), 0);
    assert_int_equal(utf8_stream_push(&stream, smile + 3, 1, out), 4);
    assert_memory_equal(out, smile, 4);
    assert_int_equal(utf8_stream_flush(&stream, out), 0);
}

static void each_maximal_subpart_becomes_one_replacement(void **state)
{
    (void)state;
    expect("\x80", FFFD);
    expect("\xc0\xaf", FFFD FFFD);
    expect("\xe0\x80\xaf", FFFD FFFD FFFD); /* overlong */
    expect("\xed\xa0\x80", FFFD FFFD FFFD); /* a surrogate */
    expect("\xf4\x91\x92\x93\xff\x41\x80\x42", FFFD FFFD FFFD FFFD FFFD "A" FFFD "B"); /* above U+10FFFF */
    expect("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", FFFD FFFD FFFD FFFD "A"); /* Unicode's table 3-11 */
    expect("\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64", "a" FFFD FFFD FFFD "b" FFFD "c" FFFD FFFD "d");
}

static void an_unfinished_character_at_the_end_becomes_one_replacement(void **state)
{
    (void)state;
    expect("a\xc3", "a" FFFD);
    expect("a\xf0\x9f\x98", "a" FFFD);
}

static void pushing_nothing_changes_nothing(void **state)
{
    (void)state;
    struct utf8_stream stream;
    char out[8];
    utf8_stream_init(&stream);
    assert_int_equal(utf8_stream_push(&stream, "\xc3", 1, out), 0);
    assert_int_equal(utf8_stream_push(&stream, "", 0, out), 0);
    assert_int_equal(utf8_stream_push(&stream, "\xa9", 1, out), 2);
}

static void random_bytes_give_the_same_valid_text_in_all_cuts(void **state)
{
    (void)state;
    static const unsigned char alphabet[] = {'a',  0x80, 0xbf, 0xc2, 0xe0, 0xa0, 0xed,
                                             0x9f, 0xf0, 0x90, 0xf4, 0x8f, 0xff};
    uint32_t random = 1;
    for (int round = 0; round < 2000; round++) {
        char input[24], whole[128], cut[128];
        for (size_t i = 0; i < sizeof input; i++) {
            random = random * 1664525u + 1013904223u;
            input[i] = (char)alphabet[(random >> 16) % sizeof alphabet];
        }
        size_t n = stream_all(input, sizeof input, sizeof input, whole);
        assert_true(utf8_is_valid(whole, n));
        for (size_t piece = 1; piece < 8; piece++) {
            assert_int_equal(stream_all(input, sizeof input, piece, cut), n);
            assert_memory_equal(cut, whole, n);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_text_passes_unchanged_however_it_is_cut),
        cmocka_unit_test(a_character_waits_until_it_is_whole),
        cmocka_unit_test(each_maximal_subpart_becomes_one_replacement),
        cmocka_unit_test(an_unfinished_character_at_the_end_becomes_one_replacement),
        cmocka_unit_test(pushing_nothing_changes_nothing),
        cmocka_unit_test(random_bytes_give_the_same_valid_text_in_all_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
