/* Stop strings: found wherever the text is cut, never leaked, and nothing is held back that need not be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/stop_matcher.h"

static struct stop_matcher *make(const char *const *stops, int n)
{
    struct stop_matcher *matcher;
    size_t lengths[STOP_MATCHER_MAX_STOPS] = {0};
    for (int i = 0; i < n; i++)
        lengths[i] = strlen(stops[i]);
    assert_int_equal(stop_matcher_create(&matcher, (char *const *)stops, lengths, n, NULL), NPU_OK);
    return matcher;
}

/* Pushes text in pieces of piece bytes and flushes; out gets all that was given out. */
static bool match_all(const char *const *stops, int n, const char *text, size_t piece, char *out)
{
    struct stop_matcher *matcher = make(stops, n);
    size_t length = strlen(text), given = 0, now;
    const char *view;
    bool stopped = false;
    for (size_t at = 0; at < length && !stopped; at += piece) {
        size_t bytes = length - at < piece ? length - at : piece;
        assert_int_equal(stop_matcher_push(matcher, text + at, bytes, &view, &now, &stopped, NULL), NPU_OK);
        memcpy(out + given, view, now);
        given += now;
    }
    if (!stopped) {
        stop_matcher_flush(matcher, &view, &now, &stopped);
        memcpy(out + given, view, now);
        given += now;
    }
    out[given] = 0;
    stop_matcher_destroy(matcher);
    return stopped;
}

static void expect(const char *const *stops, int n, const char *text, const char *wanted, bool wanted_stop)
{
    char out[256];
    for (size_t piece = 1; piece <= strlen(text) + 1; piece++) {
        bool stopped = match_all(stops, n, text, piece, out);
        assert_string_equal(out, wanted);
        assert_int_equal(stopped, wanted_stop);
    }
}

#define STOPS(...)                                                                                                     \
    ((const char *const[]){__VA_ARGS__}), (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void without_stops_the_text_passes_at_once(void **state)
{
    (void)state;
    struct stop_matcher *matcher = make(NULL, 0);
    const char *view;
    size_t n;
    bool stopped;
    assert_int_equal(stop_matcher_push(matcher, "hello", 5, &view, &n, &stopped, NULL), NPU_OK);
    assert_int_equal(n, 5);
    assert_memory_equal(view, "hello", 5);
    assert_false(stopped);
    stop_matcher_flush(matcher, &view, &n, &stopped);
    assert_int_equal(n, 0);
    assert_false(stopped);
    stop_matcher_destroy(matcher);
}

static void a_stop_across_piece_edges_is_found_and_not_leaked(void **state)
{
    (void)state;
    expect(STOPS("END"), "text END more", "text ", true);
    expect(STOPS("END"), "text EN", "text EN", false);
    expect(STOPS("END"), "EENEND", "EEN", true);
    expect(STOPS("\n\n"), "a\nb\n\nc", "a\nb", true);
    expect(STOPS("x"), "x", "", true);
}

static void a_repetitive_stop_restarts_at_its_border(void **state)
{
    (void)state;
    expect(STOPS("aab"), "aaaab!", "aa", true);
    expect(STOPS("abab!"), "ababab!", "ab", true);
    expect(STOPS("aaaa"), "aaa", "aaa", false);
}

static void the_earliest_stop_wins(void **state)
{
    (void)state;
    expect(STOPS("bc", "abcd"), "xabcd", "x", true); /* the later one is complete first, but starts later */
    expect(STOPS("bc", "abcd"), "xabce", "xa", true); /* the earlier one fails */
    expect(STOPS("bc", "abcd"), "xabc", "xa", true); /* and here the text ends */
    expect(STOPS("abc", "ab"), "xabc", "x", true); /* one is the other's beginning */
    expect(STOPS("c", "bcd", "abcde"), "abcdx", "a", true);
}

static void only_what_may_be_a_stop_is_held_back(void **state)
{
    (void)state;
    struct stop_matcher *matcher = make(STOPS("stop!", "top"));
    const char *view;
    size_t n;
    bool stopped;
    assert_int_equal(stop_matcher_push(matcher, "go sto", 6, &view, &n, &stopped, NULL), NPU_OK);
    assert_int_equal(n, 3);
    assert_int_equal(stop_matcher_push(matcher, "n t", 3, &view, &n, &stopped, NULL), NPU_OK);
    assert_int_equal(n, 5);
    assert_memory_equal(view, "ston ", 5);
    assert_int_equal(stop_matcher_push(matcher, "", 0, &view, &n, &stopped, NULL), NPU_OK);
    assert_int_equal(n, 0);
    stop_matcher_flush(matcher, &view, &n, &stopped);
    assert_int_equal(n, 1);
    assert_memory_equal(view, "t", 1);
    assert_false(stopped);
    stop_matcher_destroy(matcher);
}

static void an_empty_stop_or_too_many_are_refused(void **state)
{
    (void)state;
    struct stop_matcher *matcher;
    struct npu_error error;
    char *stops[STOP_MATCHER_MAX_STOPS + 1];
    size_t lengths[STOP_MATCHER_MAX_STOPS + 1];
    for (int i = 0; i <= STOP_MATCHER_MAX_STOPS; i++) {
        stops[i] = "s";
        lengths[i] = 1;
    }
    assert_int_equal(stop_matcher_create(&matcher, stops, lengths, 17, &error), NPU_ERROR_INPUT);
    assert_string_equal(error.message, "17 stop strings, at most 16 are possible");
    lengths[2] = 0;
    assert_int_equal(stop_matcher_create(&matcher, stops, lengths, 16, &error), NPU_ERROR_INPUT);
    assert_string_equal(error.message, "stop string 3 is empty");
}

/* Small alphabets make many near matches; the reference searches the whole text for each stop. */
static void random_texts_agree_with_a_plain_search(void **state)
{
    (void)state;
    uint32_t random = 7;
    for (int round = 0; round < 20000; round++) {
        char stop_text[3][6], text[24], out[64], wanted[64];
        const char *stops[3];
        int n_stops = 1 + round % 3;
        for (int s = 0; s < n_stops; s++) {
            size_t length = 1 + (random >> 20) % 5;
            for (size_t i = 0; i < length; i++) {
                random = random * 1664525u + 1013904223u;
                stop_text[s][i] = (char)('a' + (random >> 16) % 2);
            }
            stop_text[s][length] = 0;
            stops[s] = stop_text[s];
        }
        for (size_t i = 0; i < sizeof text - 1; i++) {
            random = random * 1664525u + 1013904223u;
            text[i] = (char)('a' + (random >> 16) % 3);
        }
        text[sizeof text - 1] = 0;
        snprintf(wanted, sizeof wanted, "%s", text);
        bool wanted_stop = false;
        for (int s = 0; s < n_stops; s++) {
            const char *found = strstr(text, stops[s]);
            if (found != NULL && (size_t)(found - text) < strlen(wanted))
                wanted[found - text] = 0;
            wanted_stop |= found != NULL;
        }
        for (size_t piece = 1; piece < 6; piece++) {
            assert_int_equal(match_all(stops, n_stops, text, piece, out), wanted_stop);
            assert_string_equal(out, wanted);
        }
    }
}

static void a_long_self_similar_stop_is_matched_in_linear_time(void **state)
{
    (void)state;
    enum {
        STOP = 100000,
        TEXT = 2000000
    };
    char *stop = malloc(STOP + 1), *text = malloc(TEXT);
    memset(stop, 'a', STOP);
    stop[STOP - 1] = 'b';
    stop[STOP] = 0;
    memset(text, 'a', TEXT);
    struct stop_matcher *matcher = make((const char *const[]){stop}, 1);
    const char *view;
    size_t n, given = 0;
    bool stopped;
    for (size_t at = 0; at < TEXT; at += 1000) {
        assert_int_equal(stop_matcher_push(matcher, text + at, 1000, &view, &n, &stopped, NULL), NPU_OK);
        given += n;
        assert_false(stopped);
    }
    assert_int_equal(given, TEXT - (STOP - 1));
    stop_matcher_destroy(matcher);
    free(stop);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_stops_the_text_passes_at_once),
        cmocka_unit_test(a_stop_across_piece_edges_is_found_and_not_leaked),
        cmocka_unit_test(a_repetitive_stop_restarts_at_its_border),
        cmocka_unit_test(the_earliest_stop_wins),
        cmocka_unit_test(only_what_may_be_a_stop_is_held_back),
        cmocka_unit_test(an_empty_stop_or_too_many_are_refused),
        cmocka_unit_test(random_texts_agree_with_a_plain_search),
        cmocka_unit_test(a_long_self_similar_stop_is_matched_in_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
