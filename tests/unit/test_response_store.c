/* Stored responses: their bytes, which are not believed, and those in memory, which are bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "daemon/response_record.h"
#include "daemon/response_store.h"

static const int32_t tokens[] = {5, 6, 7};

static struct response_record example(void)
{
    return (struct response_record){.id = {1234567, 0xfedcba9876543210},
                                    .response = {"{\"a\":1}", 7},
                                    .input = {"[]", 2},
                                    .messages = {"", 0},
                                    .history = {"abc\0d", 5},
                                    .tokens = tokens,
                                    .n_tokens = 3,
                                    .model = 99};
}

/* ---- ids ---- */

static void ids_are_text_and_back(void **state)
{
    (void)state;
    struct response_id id = {0x0102030405060708, 0xf0e0d0c0b0a09080}, read;
    char text[RESPONSE_ID_BYTES];
    response_id_format(text, &id);
    assert_string_equal(text, "resp_0102030405060708f0e0d0c0b0a09080");
    assert_true(response_id_parse(&read, text) && response_id_equal(&id, &read));
    assert_true(response_id_parse(&read, "msg_0102030405060708f0e0d0c0b0a0908012") && response_id_equal(&id, &read));
    assert_true(response_id_parse(&read, "fc_0102030405060708f0e0d0c0b0a090800") && response_id_equal(&id, &read));
    static const char *const wrong[] = {"",
                                        "resp_",
                                        "resp_0102030405060708f0e0d0c0b0a0908",
                                        "resp_0102030405060708f0e0d0c0b0a090801",
                                        "resp_0102030405060708F0E0D0C0B0A09080",
                                        "msg_0102030405060708f0e0d0c0b0a0908",
                                        "msg_0102030405060708f0e0d0c0b0a09080-",
                                        "cmpl-0102030405060708f0e0d0c0b0a09080",
                                        "0102030405060708f0e0d0c0b0a09080"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(response_id_parse(&read, wrong[i]));
}

static void ids_follow_time(void **state)
{
    (void)state;
    struct response_id first = response_id_create(), second = response_id_create();
    assert_false(response_id_equal(&first, &second));
    assert_true(first.created_us <= second.created_us);
}

/* ---- records ---- */

static void assert_text(const struct response_text *a, const struct response_text *b)
{
    assert_int_equal(a->length, b->length);
    assert_memory_equal(a->text, b->text, a->length);
}

static void records_are_bytes_and_back(void **state)
{
    (void)state;
    struct response_record record = example(), read;
    struct npu_error error;
    size_t n;
    void *bytes = response_record_encode(&record, &n);
    assert_int_equal(response_record_decode(&read, bytes, n, &error), NPU_OK);
    assert_true(response_id_equal(&record.id, &read.id) && read.model == 99);
    assert_text(&record.response, &read.response);
    assert_text(&record.input, &read.input);
    assert_text(&record.messages, &read.messages);
    assert_text(&record.history, &read.history);
    assert_int_equal(read.n_tokens, 3);
    assert_memory_equal(read.tokens, tokens, sizeof tokens);
    free(bytes);
}

/* With the bytes at the end of their block, so that a sanitizer sees what is read behind them. */
static enum npu_status decode_copy(const unsigned char *bytes, size_t n)
{
    struct response_record read;
    struct npu_error error;
    unsigned char *copy = malloc(n + 1);
    memcpy(copy, bytes, n);
    copy = realloc(copy, n > 0 ? n : 1);
    enum npu_status status = response_record_decode(&read, copy, n, &error);
    free(copy);
    return status;
}

static void every_damage_is_noticed(void **state)
{
    (void)state;
    struct response_record record = example();
    size_t n;
    unsigned char *bytes = response_record_encode(&record, &n);
    assert_int_equal(decode_copy(bytes, n), NPU_OK);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(decode_copy(bytes, i), NPU_ERROR_INPUT);
        for (int bit = 0; bit < 8; bit++) {
            bytes[i] ^= (unsigned char)(1 << bit);
            assert_int_equal(decode_copy(bytes, n), NPU_ERROR_INPUT);
            bytes[i] ^= (unsigned char)(1 << bit);
        }
    }
    unsigned char *longer = calloc(1, n + 1);
    memcpy(longer, bytes, n);
    assert_int_equal(decode_copy(longer, n + 1), NPU_ERROR_INPUT);
    free(longer);
    free(bytes);
}

/* ---- in memory ---- */

static void put(struct response_store *store, int64_t number, size_t length)
{
    struct response_id id = {number, (uint64_t)number};
    struct response_bytes *bytes = response_bytes_create(calloc(1, length), length);
    response_store_put(store, &id, bytes);
    response_bytes_release(bytes);
}

static bool has(struct response_store *store, int64_t number)
{
    struct response_id id = {number, (uint64_t)number};
    struct response_bytes *bytes = response_store_get(store, &id);
    response_bytes_release(bytes);
    return bytes != NULL;
}

static void the_oldest_are_forgotten_first(void **state)
{
    (void)state;
    struct response_store *store = response_store_create(10000);
    for (int i = 0; i < 30; i++)
        put(store, i, 900);
    int n = 0;
    for (int i = 0; i < 30; i++) {
        n += has(store, i);
        assert_true(i == 0 || has(store, i) >= has(store, i - 1));
    }
    assert_in_range(n, 9, 10);
    put(store, 100, 20000); /* has no room alone, either */
    assert_false(has(store, 100));
    assert_false(has(store, 29));
    put(store, 101, 100);
    assert_true(has(store, 101));
    response_store_destroy(store);
}

static void what_is_held_outlives_its_place(void **state)
{
    (void)state;
    struct response_store *store = response_store_create(10000);
    struct response_id id = {3, 3}, same_bucket = {4, 3 + 1024};
    put(store, 3, 50);
    struct response_bytes *held = response_store_get(store, &id);
    struct response_bytes *other = response_bytes_create(calloc(1, 10), 10);
    response_store_put(store, &same_bucket, other);
    response_bytes_release(other);
    assert_true(response_store_remove(store, &id));
    assert_false(response_store_remove(store, &id));
    assert_null(response_store_get(store, &id));
    assert_int_equal(held->length, 50);
    assert_int_equal(((char *)held->bytes)[49], 0);
    response_bytes_release(held);
    assert_true(response_store_remove(store, &same_bucket));
    put(store, 3, 50);
    put(store, 3, 60); /* takes the place of the other */
    held = response_store_get(store, &id);
    assert_int_equal(held->length, 60);
    response_bytes_release(held);
    assert_true(response_store_remove(store, &id));
    assert_false(has(store, 3));
    response_store_destroy(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_text_and_back),          cmocka_unit_test(ids_follow_time),
        cmocka_unit_test(records_are_bytes_and_back),     cmocka_unit_test(every_damage_is_noticed),
        cmocka_unit_test(the_oldest_are_forgotten_first), cmocka_unit_test(what_is_held_outlives_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
