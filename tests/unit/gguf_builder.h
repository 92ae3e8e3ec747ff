/* Builds GGUF files in memory for tests, good ones and, with the raw put functions, bad ones. Aborts when memory is out. */
#ifndef TESTS_UNIT_GGUF_BUILDER_H
#define TESTS_UNIT_GGUF_BUILDER_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum gguf_value {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
};

struct gguf_buffer {
    unsigned char *bytes;
    size_t n, capacity;
};

struct gguf_builder {
    uint32_t version;
    uint64_t alignment; /* of tensor data; the key general.alignment is the caller's to add */
    uint64_t n_pairs, n_tensors;
    struct gguf_buffer pairs, infos, data;
};

static inline void gguf_put(struct gguf_buffer *buffer, const void *bytes, size_t n)
{
    if (n > buffer->capacity - buffer->n) {
        buffer->capacity = 2 * (buffer->n + n);
        buffer->bytes = realloc(buffer->bytes, buffer->capacity);
        if (buffer->bytes == NULL)
            abort();
    }
    if (n > 0)
        memcpy(buffer->bytes + buffer->n, bytes, n);
    buffer->n += n;
}

static inline void gguf_put_u32(struct gguf_buffer *buffer, uint32_t value)
{
    gguf_put(buffer, &value, sizeof value);
}

static inline void gguf_put_u64(struct gguf_buffer *buffer, uint64_t value)
{
    gguf_put(buffer, &value, sizeof value);
}

static inline void gguf_put_string(struct gguf_buffer *buffer, const char *text, size_t length)
{
    gguf_put_u64(buffer, length);
    gguf_put(buffer, text, length);
}

static inline void gguf_builder_init(struct gguf_builder *builder, uint32_t version)
{
    *builder = (struct gguf_builder){.version = version, .alignment = 32};
}

static inline void gguf_builder_free(struct gguf_builder *builder)
{
    free(builder->pairs.bytes);
    free(builder->infos.bytes);
    free(builder->data.bytes);
}

/* A key and its type; the value follows with gguf_put. */
static inline void gguf_add_key(struct gguf_builder *builder, const char *key, enum gguf_value type)
{
    builder->n_pairs++;
    gguf_put_string(&builder->pairs, key, strlen(key));
    gguf_put_u32(&builder->pairs, type);
}

static inline void gguf_add_string(struct gguf_builder *builder, const char *key, const char *text)
{
    gguf_add_key(builder, key, GGUF_STRING);
    gguf_put_string(&builder->pairs, text, strlen(text));
}

static inline void gguf_add_u32(struct gguf_builder *builder, const char *key, uint32_t value)
{
    gguf_add_key(builder, key, GGUF_U32);
    gguf_put_u32(&builder->pairs, value);
}

static inline void gguf_add_f32(struct gguf_builder *builder, const char *key, float value)
{
    gguf_add_key(builder, key, GGUF_F32);
    gguf_put(&builder->pairs, &value, sizeof value);
}

static inline void gguf_add_bool(struct gguf_builder *builder, const char *key, int value)
{
    unsigned char byte = value != 0;
    gguf_add_key(builder, key, GGUF_BOOL);
    gguf_put(&builder->pairs, &byte, 1);
}

/* An array; its n elements follow with gguf_put or gguf_put_string. */
static inline void gguf_add_array(struct gguf_builder *builder, const char *key, enum gguf_value type, uint64_t n)
{
    gguf_add_key(builder, key, GGUF_ARRAY);
    gguf_put_u32(&builder->pairs, type);
    gguf_put_u64(&builder->pairs, n);
}

static inline void gguf_add_i32_array(struct gguf_builder *builder, const char *key, const int32_t *values, uint64_t n)
{
    gguf_add_array(builder, key, GGUF_I32, n);
    gguf_put(&builder->pairs, values, n * sizeof *values);
}

static inline void gguf_add_string_array(struct gguf_builder *builder, const char *key, const char *const *texts,
                                         uint64_t n)
{
    gguf_add_array(builder, key, GGUF_STRING, n);
    for (uint64_t i = 0; i < n; i++)
        gguf_put_string(&builder->pairs, texts[i], strlen(texts[i]));
}

static inline void gguf_put_tensor_info(struct gguf_builder *builder, const char *name, uint32_t n_dims,
                                        const uint64_t *dims, uint32_t type, uint64_t offset)
{
    builder->n_tensors++;
    gguf_put_string(&builder->infos, name, strlen(name));
    gguf_put_u32(&builder->infos, n_dims);
    for (uint32_t i = 0; i < n_dims; i++)
        gguf_put_u64(&builder->infos, dims[i]);
    gguf_put_u32(&builder->infos, type);
    gguf_put_u64(&builder->infos, offset);
}

static inline void gguf_pad(struct gguf_buffer *buffer, uint64_t alignment)
{
    static const unsigned char zero = 0;
    while (buffer->n % alignment != 0)
        gguf_put(buffer, &zero, 1);
}

static inline void gguf_add_tensor(struct gguf_builder *builder, const char *name, uint32_t n_dims,
                                   const uint64_t *dims, uint32_t type, const void *data, size_t bytes)
{
    gguf_pad(&builder->data, builder->alignment);
    gguf_put_tensor_info(builder, name, n_dims, dims, type, builder->data.n);
    gguf_put(&builder->data, data, bytes);
}

/* The whole file, malloc'ed; the builder can go on being used. */
static inline unsigned char *gguf_builder_finish(const struct gguf_builder *builder, size_t *ret_size)
{
    struct gguf_buffer file = {0};
    gguf_put(&file, "GGUF", 4);
    gguf_put_u32(&file, builder->version);
    gguf_put_u64(&file, builder->n_tensors);
    gguf_put_u64(&file, builder->n_pairs);
    gguf_put(&file, builder->pairs.bytes, builder->pairs.n);
    gguf_put(&file, builder->infos.bytes, builder->infos.n);
    if (builder->data.n > 0) {
        gguf_pad(&file, builder->alignment);
        gguf_put(&file, builder->data.bytes, builder->data.n);
    }
    /* Exactly as large as the file, so that a sanitizer sees the first byte read past its end. */
    unsigned char *exact = malloc(file.n);
    if (exact == NULL)
        abort();
    memcpy(exact, file.bytes, file.n);
    free(file.bytes);
    *ret_size = file.n;
    return exact;
}

#endif
