/* Makes GGUF files in memory for tests: keys and tensors in the order given, then gguf_writer_finish. */
#ifndef TESTS_GGUF_WRITER_H
#define TESTS_GGUF_WRITER_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct byte_list {
    uint8_t *bytes;
    size_t size, capacity;
};

struct gguf_writer {
    struct byte_list pairs, infos, data;
    uint64_t n_pairs, n_tensors;
};

static inline void bytes_append(struct byte_list *list, const void *bytes, size_t size)
{
    if (list->size + size > list->capacity) {
        list->capacity = (list->size + size) * 2;
        list->bytes = realloc(list->bytes, list->capacity);
        if (list->bytes == NULL)
            abort();
    }
    if (size > 0)
        memcpy(list->bytes + list->size, bytes, size);
    list->size += size;
}

static inline void bytes_u32(struct byte_list *list, uint32_t value)
{
    bytes_append(list, &value, sizeof value);
}

static inline void bytes_u64(struct byte_list *list, uint64_t value)
{
    bytes_append(list, &value, sizeof value);
}

static inline void bytes_string(struct byte_list *list, const char *text)
{
    bytes_u64(list, strlen(text));
    bytes_append(list, text, strlen(text));
}

static inline void bytes_pad(struct byte_list *list, size_t alignment)
{
    static const uint8_t zeros[64];
    bytes_append(list, zeros, (alignment - list->size % alignment) % alignment);
}

static inline void write_key(struct gguf_writer *writer, const char *key, uint32_t type)
{
    bytes_string(&writer->pairs, key);
    bytes_u32(&writer->pairs, type);
    writer->n_pairs++;
}

static inline void write_u32(struct gguf_writer *writer, const char *key, uint32_t value)
{
    write_key(writer, key, 4);
    bytes_u32(&writer->pairs, value);
}

static inline void write_f32(struct gguf_writer *writer, const char *key, float value)
{
    write_key(writer, key, 6);
    bytes_append(&writer->pairs, &value, sizeof value);
}

static inline void write_string(struct gguf_writer *writer, const char *key, const char *text)
{
    write_key(writer, key, 8);
    bytes_string(&writer->pairs, text);
}

static inline void write_u32_array(struct gguf_writer *writer, const char *key, const uint32_t *values, uint64_t n)
{
    write_key(writer, key, 9);
    bytes_u32(&writer->pairs, 4);
    bytes_u64(&writer->pairs, n);
    bytes_append(&writer->pairs, values, n * sizeof *values);
}

/* dims[0] runs fastest. */
static inline void write_tensor(struct gguf_writer *writer, const char *name, uint32_t type, int n_dims,
                                const int64_t *dims, const void *data, size_t size)
{
    bytes_string(&writer->infos, name);
    bytes_u32(&writer->infos, (uint32_t)n_dims);
    for (int i = 0; i < n_dims; i++)
        bytes_u64(&writer->infos, (uint64_t)dims[i]);
    bytes_u32(&writer->infos, type);
    bytes_u64(&writer->infos, writer->data.size);
    bytes_append(&writer->data, data, size);
    bytes_pad(&writer->data, 32);
    writer->n_tensors++;
}

/* The whole file, which the caller frees; the writer is empty afterwards. */
static inline uint8_t *gguf_writer_finish(struct gguf_writer *writer, size_t *ret_size)
{
    struct byte_list file = {0};
    bytes_append(&file, "GGUF", 4);
    bytes_u32(&file, 3);
    bytes_u64(&file, writer->n_tensors);
    bytes_u64(&file, writer->n_pairs);
    bytes_append(&file, writer->pairs.bytes, writer->pairs.size);
    bytes_append(&file, writer->infos.bytes, writer->infos.size);
    bytes_pad(&file, 32);
    bytes_append(&file, writer->data.bytes, writer->data.size);
    free(writer->pairs.bytes);
    free(writer->infos.bytes);
    free(writer->data.bytes);
    *writer = (struct gguf_writer){0};
    *ret_size = file.size;
    return file.bytes;
}

#endif
