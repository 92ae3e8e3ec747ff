/* GGUF files: good ones give what is in them, bad ones of every kind are refused with a message that says where. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "npu/gguf.h"
#include "tests/unit/gguf_builder.h"
#include "tests/unit/gguf_walk.h"

static const char *const sample_keys[] = {"general.architecture",
                                          "u8",
                                          "i8",
                                          "u16",
                                          "i16",
                                          "u32",
                                          "i32",
                                          "f32",
                                          "bool",
                                          "u64",
                                          "i64",
                                          "f64",
                                          "huge",
                                          "text",
                                          "ints",
                                          "strings",
                                          "numbers",
                                          "flags",
                                          "general.alignment",
                                          NULL};

/* A file with every value type, every array kind and two tensors. */
static void fill_sample(struct gguf_builder *builder, uint32_t version)
{
    gguf_builder_init(builder, version);
    gguf_add_string(builder, "general.architecture", "llama");
    gguf_add_key(builder, "u8", GGUF_U8);
    gguf_put(&builder->pairs, "\xfe", 1);
    gguf_add_key(builder, "i8", GGUF_I8);
    gguf_put(&builder->pairs, "\xfe", 1);
    gguf_add_key(builder, "u16", GGUF_U16);
    gguf_put(&builder->pairs, "\xfe\xff", 2);
    gguf_add_key(builder, "i16", GGUF_I16);
    gguf_put(&builder->pairs, "\xfe\xff", 2);
    gguf_add_u32(builder, "u32", 4000000000u);
    gguf_add_key(builder, "i32", GGUF_I32);
    gguf_put_u32(&builder->pairs, (uint32_t)-5);
    gguf_add_f32(builder, "f32", 1.5f);
    gguf_add_bool(builder, "bool", 1);
    gguf_add_key(builder, "u64", GGUF_U64);
    gguf_put_u64(&builder->pairs, 1ull << 40);
    gguf_add_key(builder, "i64", GGUF_I64);
    gguf_put_u64(&builder->pairs, (uint64_t) - (1ll << 40));
    gguf_add_key(builder, "f64", GGUF_F64);
    gguf_put(&builder->pairs, &(double){-2.25}, 8);
    gguf_add_key(builder, "huge", GGUF_U64);
    gguf_put_u64(&builder->pairs, UINT64_MAX);
    gguf_add_string(builder, "text", "");
    gguf_add_i32_array(builder, "ints", (const int32_t[]){3, -1, 7}, 3);
    gguf_add_string_array(builder, "strings", (const char *const[]){"first", "", "third"}, 3);
    gguf_add_array(builder, "numbers", GGUF_F32, 2);
    gguf_put(&builder->pairs, (const float[]){0.5f, -0.5f}, 8);
    gguf_add_array(builder, "flags", GGUF_BOOL, 2);
    gguf_put(&builder->pairs, "\x01\x00", 2);
    gguf_add_tensor(builder, "weights", 2, (const uint64_t[]){4, 2}, TENSOR_F32,
                    (const float[]){0, 1, 2, 3, 4, 5, 6, 7}, 32);
    gguf_add_tensor(builder, "blocks", 1, (const uint64_t[]){64}, TENSOR_Q4_0, "0123456789abcdefghijklmnopqrstuvwxyz",
                    36);
}

static struct gguf_file *open_good(const unsigned char *data, size_t size)
{
    struct gguf_file *file;
    struct npu_error error;
    if (gguf_open_memory(&file, data, size, "sample.gguf", &error) != NPU_OK)
        fail_msg("%s", error.message);
    return file;
}

/* The builder's file is refused, with this text in the message. Frees the builder. */
static void expect_refused(struct gguf_builder *builder, const char *wanted)
{
    struct gguf_file *file = NULL;
    struct npu_error error;
    size_t size;
    unsigned char *data = gguf_builder_finish(builder, &size);
    assert_int_equal(gguf_open_memory(&file, data, size, "bad.gguf", &error), NPU_ERROR_INPUT);
    assert_null(file);
    assert_non_null(strstr(error.message, "bad.gguf: "));
    if (strstr(error.message, wanted) == NULL)
        fail_msg("'%s' does not contain '%s'", error.message, wanted);
    free(data);
    gguf_builder_free(builder);
}

static void values_of_every_type_are_read(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        struct gguf_builder builder;
        size_t size, length;
        int64_t integer, n;
        double number;
        bool flag;
        const char *text;
        fill_sample(&builder, version);
        unsigned char *data = gguf_builder_finish(&builder, &size);
        struct gguf_file *file = open_good(data, size);
        assert_string_equal(gguf_path(file), "sample.gguf");

        static const struct {
            const char *key;
            int64_t value;
        } integers[] = {{"u8", 254},         {"i8", -2},  {"u16", 65534},     {"i16", -2},
                        {"u32", 4000000000}, {"i32", -5}, {"u64", 1ll << 40}, {"i64", -(1ll << 40)}};
        for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++) {
            assert_true(gguf_get_int(file, integers[i].key, &integer));
            assert_int_equal(integer, integers[i].value);
            assert_true(gguf_get_float(file, integers[i].key, &number));
            assert_true(number == (double)integers[i].value);
        }
        assert_true(gguf_get_float(file, "f32", &number) && number == 1.5);
        assert_true(gguf_get_float(file, "f64", &number) && number == -2.25);
        assert_true(gguf_get_bool(file, "bool", &flag) && flag);
        assert_true(gguf_get_string(file, "general.architecture", &text, &length));
        assert_int_equal(length, 5);
        assert_memory_equal(text, "llama", 5);
        assert_true(gguf_get_string(file, "text", &text, &length) && length == 0);

        assert_true(gguf_get_array_length(file, "ints", &n) && n == 3);
        assert_true(gguf_array_int(file, "ints", 1, &integer) && integer == -1);
        assert_true(gguf_array_float(file, "ints", 2, &number) && number == 7);
        assert_true(gguf_array_float(file, "numbers", 1, &number) && number == -0.5);
        assert_true(gguf_array_int(file, "flags", 0, &integer) && integer == 1);
        assert_true(gguf_array_string(file, "strings", 2, &text, &length) && length == 5);
        assert_memory_equal(text, "third", 5);
        gguf_close(file);
        free(data);
        gguf_builder_free(&builder);
    }
}

static void a_value_of_another_type_is_not_returned(void **state)
{
    (void)state;
    struct gguf_builder builder;
    size_t size, length;
    int64_t integer = 42, n;
    double number;
    bool flag;
    const char *text;
    fill_sample(&builder, 3);
    unsigned char *data = gguf_builder_finish(&builder, &size);
    struct gguf_file *file = open_good(data, size);
    assert_false(gguf_get_int(file, "absent", &integer));
    assert_false(gguf_get_int(file, "huge", &integer));
    assert_false(gguf_get_int(file, "f32", &integer));
    assert_false(gguf_get_int(file, "bool", &integer));
    assert_false(gguf_get_int(file, "text", &integer));
    assert_false(gguf_get_int(file, "ints", &integer));
    assert_false(gguf_get_float(file, "bool", &number));
    assert_false(gguf_get_float(file, "strings", &number));
    assert_false(gguf_get_bool(file, "u8", &flag));
    assert_false(gguf_get_string(file, "u8", &text, &length));
    assert_false(gguf_get_string(file, "strings", &text, &length));
    assert_false(gguf_get_array_length(file, "text", &n));
    assert_false(gguf_array_int(file, "ints", 3, &integer));
    assert_false(gguf_array_int(file, "ints", -1, &integer));
    assert_false(gguf_array_int(file, "strings", 0, &integer));
    assert_false(gguf_array_int(file, "numbers", 0, &integer));
    assert_false(gguf_array_string(file, "ints", 0, &text, &length));
    assert_false(gguf_array_float(file, "flags", 0, &number));
    assert_null(gguf_find_array(file, "u8", &n));
    assert_int_equal(integer, 42);
    gguf_close(file);
    free(data);
    gguf_builder_free(&builder);
}

static void tensors_are_found_by_name_with_their_data(void **state)
{
    (void)state;
    struct gguf_builder builder;
    size_t size;
    fill_sample(&builder, 3);
    unsigned char *data = gguf_builder_finish(&builder, &size);
    struct gguf_file *file = open_good(data, size);
    assert_int_equal(gguf_n_tensors(file), 2);
    const struct gguf_tensor *weights = gguf_find_tensor(file, "weights");
    assert_ptr_equal(weights, gguf_tensor_at(file, 0));
    assert_int_equal(weights->n_dims, 2);
    assert_int_equal(weights->dims[0], 4);
    assert_int_equal(weights->dims[1], 2);
    assert_int_equal(weights->dims[2], 1);
    assert_int_equal(weights->bytes, 32);
    assert_true(memcmp(weights->data, (const float[]){0, 1, 2, 3, 4, 5, 6, 7}, 32) == 0);
    const struct gguf_tensor *blocks = gguf_find_tensor(file, "blocks");
    assert_int_equal(blocks->type, TENSOR_Q4_0);
    assert_int_equal(blocks->bytes, 36);
    assert_memory_equal(blocks->data, "0123456789abcdefghijklmnopqrstuvwxyz", 36);
    assert_null(gguf_find_tensor(file, "weight"));
    assert_null(gguf_tensor_at(file, 2));
    gguf_drop_pages(file, weights); /* memory that is not a mapped file must keep its contents */
    assert_memory_equal(blocks->data, "0123", 4);
    gguf_close(file);
    free(data);
    gguf_builder_free(&builder);
}

static void a_mapped_file_is_read_and_its_pages_come_back_after_dropping(void **state)
{
    (void)state;
    struct gguf_builder builder;
    struct gguf_file *file;
    struct npu_error error;
    size_t size;
    char path[] = "/tmp/test_gguf_XXXXXX";
    fill_sample(&builder, 3);
    unsigned char *data = gguf_builder_finish(&builder, &size);
    int descriptor = mkstemp(path);
    assert_int_equal(write(descriptor, data, size), size);
    close(descriptor);
    assert_int_equal(gguf_open(&file, path, &error), NPU_OK);
    assert_string_equal(gguf_path(file), path);
    const struct gguf_tensor *blocks = gguf_find_tensor(file, "blocks");
    assert_memory_equal(blocks->data, "0123", 4);
    gguf_drop_pages(file, blocks);
    assert_memory_equal(blocks->data, "0123", 4);
    gguf_close(file);
    unlink(path);
    free(data);
    gguf_builder_free(&builder);
}

static void many_names_are_all_found(void **state)
{
    (void)state;
    enum {
        N = 3000
    };
    struct gguf_builder builder;
    size_t size;
    char name[32];
    gguf_builder_init(&builder, 3);
    for (uint32_t i = 0; i < N; i++) {
        snprintf(name, sizeof name, "key.%u", i);
        gguf_add_u32(&builder, name, i);
        snprintf(name, sizeof name, "blk.%u.weight", i);
        gguf_add_tensor(&builder, name, 1, (const uint64_t[]){1}, TENSOR_F32, &i, 4);
    }
    unsigned char *data = gguf_builder_finish(&builder, &size);
    struct gguf_file *file = open_good(data, size);
    for (uint32_t i = 0; i < N; i++) {
        int64_t value;
        snprintf(name, sizeof name, "key.%u", i);
        assert_true(gguf_get_int(file, name, &value));
        assert_int_equal(value, i);
        snprintf(name, sizeof name, "blk.%u.weight", i);
        assert_memory_equal(gguf_find_tensor(file, name)->data, &i, 4);
    }
    gguf_close(file);
    free(data);
    gguf_builder_free(&builder);
}

static void the_alignment_key_moves_the_tensor_data(void **state)
{
    (void)state;
    struct gguf_builder builder;
    size_t size;
    gguf_builder_init(&builder, 3);
    builder.alignment = 256;
    gguf_add_u32(&builder, "general.alignment", 256);
    gguf_add_tensor(&builder, "a", 1, (const uint64_t[]){1}, TENSOR_F32, "aaaa", 4);
    gguf_add_tensor(&builder, "b", 1, (const uint64_t[]){1}, TENSOR_F32, "bbbb", 4);
    unsigned char *data = gguf_builder_finish(&builder, &size);
    struct gguf_file *file = open_good(data, size);
    assert_int_equal(((const unsigned char *)gguf_find_tensor(file, "b")->data - data) % 256, 0);
    assert_memory_equal(gguf_find_tensor(file, "b")->data, "bbbb", 4);
    gguf_close(file);
    free(data);
    gguf_builder_free(&builder);
}

static void a_file_without_anything_is_good(void **state)
{
    (void)state;
    struct gguf_builder builder;
    size_t size;
    gguf_builder_init(&builder, 3);
    unsigned char *data = gguf_builder_finish(&builder, &size);
    struct gguf_file *file = open_good(data, size);
    assert_int_equal(gguf_n_tensors(file), 0);
    assert_false(gguf_has(file, "x"));
    assert_null(gguf_find_tensor(file, "x"));
    gguf_close(file);
    free(data);
}

static void tensor_types_have_names_and_block_sizes(void **state)
{
    (void)state;
    assert_string_equal(tensor_type_name(TENSOR_Q6_K), "Q6_K");
    assert_int_equal(tensor_type_block_elements(TENSOR_Q6_K), 256);
    assert_int_equal(tensor_type_block_bytes(TENSOR_Q6_K), 210);
    assert_int_equal(tensor_type_block_bytes(TENSOR_BF16), 2);
    assert_string_equal(tensor_type_name(39), "MXFP4");
    assert_null(tensor_type_name(4)); /* removed from ggml */
    assert_null(tensor_type_name(UINT32_MAX));
    assert_int_equal(tensor_type_block_elements(1000), 0);
}

static void a_file_cut_at_any_byte_is_refused(void **state)
{
    (void)state;
    struct gguf_builder builder;
    size_t size;
    fill_sample(&builder, 3);
    unsigned char *data = gguf_builder_finish(&builder, &size);
    for (size_t cut = 0; cut < size; cut++) {
        struct gguf_file *file = NULL;
        struct npu_error error;
        unsigned char *part = malloc(cut + (cut == 0));
        memcpy(part, data, cut);
        assert_int_equal(gguf_open_memory(&file, part, cut, "cut.gguf", &error), NPU_ERROR_INPUT);
        assert_null(file);
        assert_memory_equal(error.message, "cut.gguf: ", 10);
        free(part);
    }
    free(data);
    gguf_builder_free(&builder);
}

static void a_file_with_any_byte_changed_is_refused_or_safe_to_read(void **state)
{
    (void)state;
    static const unsigned char changes[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    struct gguf_builder builder;
    size_t size;
    fill_sample(&builder, 3);
    unsigned char *data = gguf_builder_finish(&builder, &size);
    for (size_t at = 0; at < size; at++) {
        unsigned char original = data[at];
        for (size_t i = 0; i < sizeof changes; i++) {
            struct gguf_file *file;
            struct npu_error error = {0};
            data[at] = changes[i];
            if (gguf_open_memory(&file, data, size, "changed.gguf", &error) == NPU_OK) {
                gguf_walk(file, sample_keys);
                gguf_close(file);
            } else {
                assert_memory_equal(error.message, "changed.gguf: ", 14);
            }
        }
        data[at] = original;
    }
    free(data);
    gguf_builder_free(&builder);
}

static void what_is_not_gguf_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        const char *wanted;
    } files[] = {
        {"PK\x03\x04zip", 7, "not a GGUF file: it starts with the bytes 50 4b 03 04"},
        {"GG", 2, "the magic 'GGUF' at byte 0 needs 4 bytes, but the file ends at byte 2"},
        {"GGUF\x00\x00\x00\x03xxxxxxxxxxxxxxxx", 24, "big-endian"},
        {"GGUF\x01\x00\x00\x00xxxxxxxxxxxxxxxx", 24, "GGUF version 1 at byte 4; versions 2 and 3"},
        {"GGUF\x04\x00\x00\x00xxxxxxxxxxxxxxxx", 24, "GGUF version 4"},
        {"GGUF\x00\x00\x00\x00xxxxxxxxxxxxxxxx", 24, "GGUF version 0"},
        {"version https://git-lfs.github.com/spec/v1\n", 43, "Git LFS pointer"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct gguf_file *file;
        struct npu_error error;
        assert_int_equal(gguf_open_memory(&file, files[i].bytes, files[i].size, "x", &error), NPU_ERROR_INPUT);
        if (strstr(error.message, files[i].wanted) == NULL)
            fail_msg("'%s' does not contain '%s'", error.message, files[i].wanted);
    }
}

static void paths_that_cannot_be_read_are_named(void **state)
{
    (void)state;
    struct gguf_file *file;
    struct npu_error error;
    assert_int_equal(gguf_open(&file, "/nonexistent/model.gguf", &error), NPU_ERROR_INPUT);
    assert_string_equal(error.message, "/nonexistent/model.gguf: cannot open: No such file or directory");
    assert_int_equal(gguf_open(&file, "/", &error), NPU_ERROR_INPUT);
    assert_string_equal(error.message, "/: a directory, not a GGUF file");
    assert_int_equal(gguf_open(&file, "/dev/null", &error), NPU_ERROR_INPUT);
    assert_string_equal(error.message, "/dev/null: not a regular file, not a GGUF file");
    char path[] = "/tmp/test_gguf_XXXXXX";
    close(mkstemp(path));
    assert_int_equal(gguf_open(&file, path, &error), NPU_ERROR_INPUT);
    assert_non_null(strstr(error.message, "the file is empty"));
    unlink(path);
}

/* Linked with --wrap for mmap. */
static bool mapping_fails;

void *__real_mmap(void *address, size_t length, int protection, int flags, int file, off_t offset);
void *__wrap_mmap(void *address, size_t length, int protection, int flags, int file, off_t offset);

void *__wrap_mmap(void *address, size_t length, int protection, int flags, int file, off_t offset)
{
    if (!mapping_fails)
        return __real_mmap(address, length, protection, flags, file, offset);
    errno = ENOMEM;
    return MAP_FAILED;
}

static void a_file_that_cannot_be_mapped_is_named(void **state)
{
    (void)state;
    struct gguf_file *file;
    struct npu_error error;
    const char *path = TEST_DATA_DIR "/reference/llama.gguf";
    mapping_fails = true;
    enum npu_status status = gguf_open(&file, path, &error);
    mapping_fails = false;
    assert_int_equal(status, NPU_ERROR_SYSTEM);
    assert_non_null(strstr(error.message, path));
    assert_non_null(strstr(error.message, "cannot map"));
    assert_int_equal(gguf_open(&file, path, &error), NPU_OK);
    gguf_close(file);
}

static void counts_beyond_the_file_are_refused(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1, 1000, 1ull << 20, 1ull << 60, UINT64_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct gguf_builder builder;
        gguf_builder_init(&builder, 3);
        builder.n_pairs = counts[i];
        expect_refused(&builder, counts[i] > 65536 ? "at most 65536" : "truncated or damaged");
        gguf_builder_init(&builder, 3);
        builder.n_tensors = counts[i];
        expect_refused(&builder, counts[i] > 65536 ? "at most 65536" : "truncated or damaged");
    }
}

static void bad_keys_are_refused(void **state)
{
    (void)state;
    struct gguf_builder builder;
    gguf_builder_init(&builder, 3);
    gguf_add_u32(&builder, "twice", 1);
    gguf_add_u32(&builder, "twice", 1);
    expect_refused(&builder, "key 'twice': it stands in the file twice");

    gguf_builder_init(&builder, 3);
    builder.n_pairs = 1;
    gguf_put_string(&builder.pairs, "nul\0inside", 10);
    gguf_put_u32(&builder.pairs, GGUF_U32);
    gguf_put_u32(&builder.pairs, 1);
    expect_refused(&builder, "key 1 of 1: the key at byte 24 contains a NUL byte");

    gguf_builder_init(&builder, 3);
    gguf_add_string(&builder, "", "text that fills the file up");
    expect_refused(&builder, "key 1 of 1: the key at byte 24 is 0 bytes long, it must be 1 to 65535");

    gguf_builder_init(&builder, 3);
    builder.n_pairs = 1;
    gguf_put_u64(&builder.pairs, UINT64_MAX - 3);
    gguf_put(&builder.pairs, "0123456789", 10);
    expect_refused(&builder, "the key at byte 24 says it is 18446744073709551612 bytes long, but only 10 follow");

    char long_key[70000];
    memset(long_key, 'k', sizeof long_key - 1);
    long_key[sizeof long_key - 1] = 0;
    gguf_builder_init(&builder, 3);
    gguf_add_u32(&builder, long_key, 1);
    expect_refused(&builder, "is 69999 bytes long");
}

static void bad_values_are_refused(void **state)
{
    (void)state;
    struct gguf_builder builder;
    gguf_builder_init(&builder, 3);
    gguf_add_key(&builder, "x", (enum gguf_value)13);
    gguf_put_u64(&builder.pairs, 0);
    expect_refused(&builder, "key 'x': value type 13 at byte 33 is not a GGUF type");

    gguf_builder_init(&builder, 3);
    gguf_add_key(&builder, "x", GGUF_BOOL);
    gguf_put(&builder.pairs, "\x02", 1);
    expect_refused(&builder, "key 'x': a bool is 2 at byte 37, it must be 0 or 1");

    gguf_builder_init(&builder, 3);
    gguf_add_key(&builder, "x", GGUF_STRING);
    gguf_put_u64(&builder.pairs, 1ull << 63);
    expect_refused(&builder,
                   "key 'x': the string at byte 37 says it is 9223372036854775808 bytes long, but only 0 follow");

    gguf_builder_init(&builder, 3);
    gguf_add_key(&builder, "x", GGUF_U64);
    gguf_put_u32(&builder.pairs, 1);
    expect_refused(&builder, "key 'x': the value at byte 37 needs 8 bytes");
}

static void bad_arrays_are_refused(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {5, 1ull << 32, 1ull << 61, 1ull << 62, UINT64_MAX};
    struct gguf_builder builder;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        gguf_builder_init(&builder, 3);
        gguf_add_array(&builder, "x", GGUF_U32, lengths[i]);
        gguf_put(&builder.pairs, "0123456789abcdef", 16);
        expect_refused(&builder, "does not fit in the 16 bytes that follow");
        gguf_builder_init(&builder, 3);
        gguf_add_array(&builder, "x", GGUF_STRING, lengths[i]);
        gguf_put(&builder.pairs, "0123456789abcdef", 16);
        expect_refused(&builder, "does not fit in the 16 bytes that follow");
    }
    gguf_builder_init(&builder, 3);
    gguf_add_array(&builder, "x", GGUF_ARRAY, 1);
    gguf_put_u32(&builder.pairs, GGUF_U8);
    gguf_put_u64(&builder.pairs, 0);
    expect_refused(&builder, "key 'x': an array of arrays at byte 37");

    gguf_builder_init(&builder, 3);
    gguf_add_array(&builder, "x", (enum gguf_value)99, 1);
    gguf_put_u64(&builder.pairs, 0);
    expect_refused(&builder, "key 'x': element type 99 at byte 37 is not a GGUF type");

    gguf_builder_init(&builder, 3);
    gguf_add_array(&builder, "x", GGUF_STRING, 2);
    gguf_put_string(&builder.pairs, "ok", 2);
    gguf_put_u64(&builder.pairs, 100);
    expect_refused(&builder, "key 'x': a string of the array at byte 59 says it is 100 bytes long, but only 0 follow");

    gguf_builder_init(&builder, 3);
    gguf_add_array(&builder, "x", GGUF_BOOL, 3);
    gguf_put(&builder.pairs, "\x01\x00\x09", 3);
    expect_refused(&builder, "a bool is 9");
}

static void a_bad_alignment_is_refused(void **state)
{
    (void)state;
    static const uint32_t alignments[] = {0, 1, 4, 24, 33, 0x80000000u, UINT32_MAX};
    struct gguf_builder builder;
    for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++) {
        gguf_builder_init(&builder, 3);
        gguf_add_u32(&builder, "general.alignment", alignments[i]);
        expect_refused(&builder, "it must be a power of two of at least 8");
    }
    gguf_builder_init(&builder, 3);
    gguf_add_string(&builder, "general.alignment", "32");
    expect_refused(&builder, "key 'general.alignment': it must be an integer");
}

static void bad_tensor_infos_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t n_dims;
        uint64_t dims[5];
        uint32_t type;
        uint64_t offset;
        const char *wanted;
    } cases[] = {
        {"", 1, {4}, TENSOR_F32, 0, "the name at byte 24 is 0 bytes long, it must be 1 to 64"},
        {"a_name_of_sixty_five_bytes_is_one_more_than_the_format_allows_it_to",
         1,
         {4},
         TENSOR_F32,
         0,
         "it must be 1 to 64"},
        {"t", 0, {0}, TENSOR_F32, 0, "tensor 't': 0 dimensions, it must be 1 to 4"},
        {"t", 5, {1, 1, 1, 1, 1}, TENSOR_F32, 0, "tensor 't': 5 dimensions"},
        {"t", 2, {4, 0}, TENSOR_F32, 0, "tensor 't': dimension 1 is 0"},
        {"t", 1, {UINT64_MAX}, TENSOR_F32, 0, "tensor 't': dimension 0 is 18446744073709551615"},
        {"t", 1, {1ull << 31}, TENSOR_F32, 0, "tensor 't': dimension 0 is 2147483648"},
        {"t", 4, {1u << 30, 1u << 30, 1u << 30, 1u << 30}, TENSOR_F32, 0, "are more than the file"},
        {"t", 2, {1u << 30, 1u << 30}, TENSOR_F32, 0, "are more than the file"},
        {"t", 1, {1u << 20}, TENSOR_F32, 0, "1048576 x 1 x 1 x 1 elements of F32 are more than the file"},
        {"t", 1, {48}, TENSOR_Q4_0, 0, "tensor 't': rows of 48 elements cannot be Q4_0: they must be multiples of 32"},
        {"t", 1, {128}, TENSOR_Q6_K, 0, "they must be multiples of 256"},
        {"t", 1, {4}, 4, 0, "tensor 't': type 4 is not a known ggml tensor type"},
        {"t", 1, {4}, UINT32_MAX, 0, "type 4294967295"},
        {"t", 1, {4}, TENSOR_F32, 8, "tensor 't': its offset 8 is not a multiple of the alignment 32"},
        {"t", 1, {4}, TENSOR_F32, 32, "tensor 't': its 16 bytes at 64 + 32 end past the file's 80 bytes"},
        {"t", 1, {4}, TENSOR_F32, UINT64_MAX - 31, "end past the file"},
        {"t", 1, {4}, TENSOR_F32, 1ull << 63, "end past the file"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gguf_builder builder;
        gguf_builder_init(&builder, 3);
        gguf_put_tensor_info(&builder, cases[i].name, cases[i].n_dims, cases[i].dims, cases[i].type, cases[i].offset);
        gguf_put(&builder.data, "0123456789abcdef", 16);
        expect_refused(&builder, cases[i].wanted);
    }
    struct gguf_builder builder;
    gguf_builder_init(&builder, 3);
    gguf_add_tensor(&builder, "t", 1, (const uint64_t[]){4}, TENSOR_F32, "0123456789abcdef", 16);
    gguf_add_tensor(&builder, "t", 1, (const uint64_t[]){4}, TENSOR_F32, "0123456789abcdef", 16);
    expect_refused(&builder, "tensor 't': it stands in the file twice");
}

static void control_characters_of_the_file_do_not_reach_messages(void **state)
{
    (void)state;
    struct gguf_builder builder;
    gguf_builder_init(&builder, 3);
    gguf_add_key(&builder, "evil\x1b[2J\nkey", (enum gguf_value)77);
    gguf_put_u64(&builder.pairs, 0);
    expect_refused(&builder, "key 'evil?[2J?key': value type 77");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_of_every_type_are_read),
        cmocka_unit_test(a_value_of_another_type_is_not_returned),
        cmocka_unit_test(tensors_are_found_by_name_with_their_data),
        cmocka_unit_test(a_mapped_file_is_read_and_its_pages_come_back_after_dropping),
        cmocka_unit_test(many_names_are_all_found),
        cmocka_unit_test(the_alignment_key_moves_the_tensor_data),
        cmocka_unit_test(a_file_without_anything_is_good),
        cmocka_unit_test(tensor_types_have_names_and_block_sizes),
        cmocka_unit_test(a_file_cut_at_any_byte_is_refused),
        cmocka_unit_test(a_file_with_any_byte_changed_is_refused_or_safe_to_read),
        cmocka_unit_test(what_is_not_gguf_is_named),
        cmocka_unit_test(paths_that_cannot_be_read_are_named),
        cmocka_unit_test(a_file_that_cannot_be_mapped_is_named),
        cmocka_unit_test(counts_beyond_the_file_are_refused),
        cmocka_unit_test(bad_keys_are_refused),
        cmocka_unit_test(bad_values_are_refused),
        cmocka_unit_test(bad_arrays_are_refused),
        cmocka_unit_test(a_bad_alignment_is_refused),
        cmocka_unit_test(bad_tensor_infos_are_refused),
        cmocka_unit_test(control_characters_of_the_file_do_not_reach_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
