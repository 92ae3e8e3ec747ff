/* Reads everything that an opened GGUF file offers, for tests that want a fault if any of it lies outside the file. */
#ifndef TESTS_UNIT_GGUF_WALK_H
#define TESTS_UNIT_GGUF_WALK_H

#include "npu/gguf.h"

static inline uint64_t gguf_walk_bytes(const void *bytes, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum = sum * 31 + ((const unsigned char *)bytes)[i];
    return sum;
}

/* keys: those to look at, NULL-terminated. Returns a sum over all that was read. */
static inline uint64_t gguf_walk(const struct gguf_file *file, const char *const *keys)
{
    uint64_t sum = 0;
    for (; *keys != NULL; keys++) {
        const char *text;
        size_t length;
        int64_t n, integer;
        double number;
        bool flag;
        sum += gguf_has(file, *keys);
        if (gguf_get_int(file, *keys, &integer))
            sum += (uint64_t)integer;
        if (gguf_get_float(file, *keys, &number))
            sum += number > 0;
        if (gguf_get_bool(file, *keys, &flag))
            sum += flag;
        if (gguf_get_string(file, *keys, &text, &length))
            sum += gguf_walk_bytes(text, length);
        const struct gguf_array *array = gguf_find_array(file, *keys, &n);
        for (int64_t i = 0; array != NULL && i < n; i++) {
            if (gguf_array_string_at(array, i, &text, &length))
                sum += gguf_walk_bytes(text, length);
            if (gguf_array_int_at(array, i, &integer))
                sum += (uint64_t)integer;
            if (gguf_array_float_at(array, i, &number))
                sum += number > 0;
        }
    }
    for (int i = 0; i < gguf_n_tensors(file); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(file, i);
        sum += gguf_walk_bytes(tensor->data, tensor->bytes);
        sum += gguf_find_tensor(file, tensor->name) == tensor;
    }
    return sum;
}

#endif
