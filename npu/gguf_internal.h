/* What the two halves of the GGUF reader share: gguf_parse.c fills the file's index, gguf.c opens files and answers from the
 * index. */
#ifndef NPU_GGUF_INTERNAL_H
#define NPU_GGUF_INTERNAL_H

#include "npu/gguf.h"

/* Types of values, as they stand in files. */
enum {
    VALUE_U8 = 0,
    VALUE_I8 = 1,
    VALUE_U16 = 2,
    VALUE_I16 = 3,
    VALUE_U32 = 4,
    VALUE_I32 = 5,
    VALUE_F32 = 6,
    VALUE_BOOL = 7,
    VALUE_STRING = 8,
    VALUE_ARRAY = 9,
    VALUE_U64 = 10,
    VALUE_I64 = 11,
    VALUE_F64 = 12,
};

enum {
    GGUF_MAX_TENSOR_NAME = 64, /* docs/gguf.md */
};

struct gguf_array {
    uint32_t type;
    int64_t n;
    const uint8_t *elements;
    uint64_t *string_offsets; /* strings: where each one's length stands, from elements; owned */
};

struct pair {
    const char *key; /* in the mapping, not NUL-terminated */
    size_t key_length;
    uint32_t type;
    const uint8_t *value; /* scalars and strings */
    struct gguf_array array;
};

struct named_tensor {
    struct gguf_tensor tensor;
    uint64_t offset; /* from the start of the data section */
    char name[GGUF_MAX_TENSOR_NAME + 1];
};

/* Open addressing; slots hold index + 1, 0 is free. */
struct name_index {
    uint32_t *slots;
    uint32_t mask;
};

struct gguf_file {
    char *path;
    const uint8_t *data;
    size_t size;
    bool mapped;
    struct pair *pairs;
    int n_pairs;
    struct name_index pair_index;
    struct named_tensor *tensors;
    int n_tensors;
    struct name_index tensor_index;
    uint64_t alignment;
};

/* Bytes of a scalar value type; 0 for strings, arrays and numbers that are no type. */
size_t gguf_value_bytes(uint32_t type);

bool name_index_init(struct name_index *index, int n);
void name_index_add(struct name_index *index, const char *name, size_t length, int value);
int gguf_find_pair_index(const struct gguf_file *file, const char *key, size_t length); /* -1: none */
int gguf_find_tensor_index(const struct gguf_file *file, const char *name); /* -1: none */

/* Checks and indexes file->data[0..size). On failure what was allocated stays in file, for gguf_close to free. */
enum npu_status gguf_parse(struct gguf_file *file, struct npu_error *error);

#endif
