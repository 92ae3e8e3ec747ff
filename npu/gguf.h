/* GGUF v2/v3 files, mapped read-only. Every count, length, offset, alignment and type from the file is checked before
 * use; errors say the file, what is wrong and where (key, tensor or byte offset).
 * Source: ggml's docs/gguf.md. Thread: immutable after gguf_open, any thread may read. */
#ifndef NPU_GGUF_H
#define NPU_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "npu/error.h"

/* Values are ggml's own numbers, as they stand in files. */
enum tensor_type {
    TENSOR_F32 = 0,
    TENSOR_F16 = 1,
    TENSOR_Q4_0 = 2,
    TENSOR_Q4_1 = 3,
    TENSOR_Q5_0 = 6,
    TENSOR_Q5_1 = 7,
    TENSOR_Q8_0 = 8,
    TENSOR_Q2_K = 10,
    TENSOR_Q3_K = 11,
    TENSOR_Q4_K = 12,
    TENSOR_Q5_K = 13,
    TENSOR_Q6_K = 14,
    TENSOR_IQ4_NL = 20,
    TENSOR_IQ4_XS = 23,
    TENSOR_BF16 = 30,
};

/* NULL for a number that is not in ggml's list; types that npud cannot compute with still have a name and a block size. */
const char *tensor_type_name(uint32_t type);
int tensor_type_block_elements(uint32_t type); /* 0: unknown */
int tensor_type_block_bytes(uint32_t type);

struct gguf_tensor {
    const char *name; /* NUL-terminated */
    uint32_t type;    /* enum tensor_type, or another known ggml number */
    int n_dims;
    int64_t dims[4]; /* dims[0] runs fastest (ggml's ne); unused ones are 1 */
    const void *data;
    size_t bytes;
};

struct gguf_file;

/* Maps and checks the whole file. */
enum npu_status gguf_open(struct gguf_file **ret_file, const char *path, struct npu_error *error);
/* The same over memory that the caller keeps (tests, fuzzing); name stands for the path in messages. */
enum npu_status gguf_open_memory(struct gguf_file **ret_file, const void *data, size_t size, const char *name,
                                 struct npu_error *error);
void gguf_close(struct gguf_file *file); /* NULL is fine */

const char *gguf_path(const struct gguf_file *file);
/* Names the file by what it says: a hash of its metadata, its tensor table and the first bytes of every tensor. */
uint64_t gguf_identity(const struct gguf_file *file);
int gguf_n_tensors(const struct gguf_file *file);
const struct gguf_tensor *gguf_tensor_at(const struct gguf_file *file, int index);
const struct gguf_tensor *gguf_find_tensor(const struct gguf_file *file, const char *name); /* NULL: none; hashed */
/* Tells the kernel that the mapped pages of this tensor are not needed again soon (after repacking). */
void gguf_drop_pages(const struct gguf_file *file, const struct gguf_tensor *tensor);
/* Rows of this tensor will be read here and there: the kernel should not read what is around them. */
void gguf_expect_scattered(const struct gguf_file *file, const struct gguf_tensor *tensor);
/* Asks the kernel for these bytes of a tensor's data at once, before they are read. */
void gguf_fetch_pages(const struct gguf_file *file, const void *data, size_t bytes);

/* Metadata. Each returns false when the key is absent or has another type; any integer type converts if it fits. */
bool gguf_has(const struct gguf_file *file, const char *key);
bool gguf_get_int(const struct gguf_file *file, const char *key, int64_t *value);
bool gguf_get_float(const struct gguf_file *file, const char *key, double *value); /* floats and integers */
bool gguf_get_bool(const struct gguf_file *file, const char *key, bool *value);
/* Not NUL-terminated; valid while the file is open. */
bool gguf_get_string(const struct gguf_file *file, const char *key, const char **text, size_t *length);

/* Arrays. n elements; false when absent or not an array. Element access is O(1) (strings are indexed at open). */
bool gguf_get_array_length(const struct gguf_file *file, const char *key, int64_t *n);
bool gguf_array_string(const struct gguf_file *file, const char *key, int64_t i, const char **text, size_t *length);
bool gguf_array_int(const struct gguf_file *file, const char *key, int64_t i, int64_t *value); /* integers and bools */
bool gguf_array_float(const struct gguf_file *file, const char *key, int64_t i, double *value);

/* For loops over a big array: looks the key up once. NULL when absent or not an array. */
struct gguf_array;
const struct gguf_array *gguf_find_array(const struct gguf_file *file, const char *key, int64_t *n);
bool gguf_array_string_at(const struct gguf_array *array, int64_t i, const char **text, size_t *length);
bool gguf_array_int_at(const struct gguf_array *array, int64_t i, int64_t *value);
bool gguf_array_float_at(const struct gguf_array *array, int64_t i, double *value);

#endif
