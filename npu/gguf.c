/* Opens GGUF files and answers from the index that gguf_parse made. All numbers in a file are little-endian and unaligned. */
#include "npu/gguf_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tensor data is used in place: the host must be little-endian");

/* -- values ------------------------------------------------------------------------------------------------------- */

size_t gguf_value_bytes(uint32_t type)
{
    switch (type) {
    case VALUE_U8:
    case VALUE_I8:
    case VALUE_BOOL:
        return 1;
    case VALUE_U16:
    case VALUE_I16:
        return 2;
    case VALUE_U32:
    case VALUE_I32:
    case VALUE_F32:
        return 4;
    case VALUE_U64:
    case VALUE_I64:
    case VALUE_F64:
        return 8;
    default:
        return 0;
    }
}

static uint64_t load_bits(const uint8_t *from, size_t bytes)
{
    uint64_t bits = 0;
    memcpy(&bits, from, bytes);
    return bits;
}

static bool load_int(uint32_t type, const uint8_t *from, int64_t *value)
{
    uint64_t bits = load_bits(from, gguf_value_bytes(type));
    switch (type) {
    case VALUE_U8:
    case VALUE_U16:
    case VALUE_U32:
    case VALUE_BOOL:
        break;
    case VALUE_I8:
        *value = (int8_t)bits;
        return true;
    case VALUE_I16:
        *value = (int16_t)bits;
        return true;
    case VALUE_I32:
        *value = (int32_t)bits;
        return true;
    case VALUE_I64:
        *value = (int64_t)bits;
        return true;
    case VALUE_U64:
        if (bits > INT64_MAX)
            return false;
        break;
    default:
        return false;
    }
    *value = (int64_t)bits;
    return true;
}

static bool load_float(uint32_t type, const uint8_t *from, double *value)
{
    int64_t integer;
    if (type == VALUE_F32) {
        float number;
        memcpy(&number, from, sizeof number);
        *value = (double)number;
        return true;
    }
    if (type == VALUE_F64) {
        memcpy(value, from, sizeof *value);
        return true;
    }
    if (type == VALUE_BOOL || !load_int(type, from, &integer))
        return false;
    *value = (double)integer;
    return true;
}

/* -- names -------------------------------------------------------------------------------------------------------- */

static uint32_t hash_name(const char *name, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)name[i]) * 0x100000001b3u;
    return (uint32_t)(hash ^ (hash >> 32));
}

bool name_index_init(struct name_index *index, int n)
{
    uint32_t slots = 8;
    while (slots < (uint32_t)n * 2)
        slots *= 2;
    index->slots = calloc(slots, sizeof *index->slots);
    index->mask = slots - 1;
    return index->slots != NULL;
}

int gguf_find_pair_index(const struct gguf_file *file, const char *key, size_t length)
{
    const struct name_index *index = &file->pair_index;
    for (uint32_t at = hash_name(key, length) & index->mask; index->slots[at] != 0; at = (at + 1) & index->mask) {
        int found = (int)index->slots[at] - 1;
        const struct pair *pair = &file->pairs[found];
        if (pair->key_length == length && memcmp(pair->key, key, length) == 0)
            return found;
    }
    return -1;
}

int gguf_find_tensor_index(const struct gguf_file *file, const char *name)
{
    const struct name_index *index = &file->tensor_index;
    for (uint32_t at = hash_name(name, strlen(name)) & index->mask; index->slots[at] != 0;
         at = (at + 1) & index->mask) {
        int found = (int)index->slots[at] - 1;
        if (strcmp(file->tensors[found].name, name) == 0)
            return found;
    }
    return -1;
}

void name_index_add(struct name_index *index, const char *name, size_t length, int value)
{
    uint32_t at = hash_name(name, length) & index->mask;
    while (index->slots[at] != 0)
        at = (at + 1) & index->mask;
    index->slots[at] = (uint32_t)value + 1;
}

/* -- opening and closing ------------------------------------------------------------------------------------------ */

static enum npu_status open_bytes(struct gguf_file **ret_file, const void *data, size_t size, bool mapped,
                                  const char *name, struct npu_error *error)
{
    struct gguf_file *file = calloc(1, sizeof *file);
    if (file == NULL || (file->path = strdup(name)) == NULL) {
        free(file);
        return npu_error_set(error, NPU_ERROR_MEMORY, "%s: out of memory", name);
    }
    file->data = data;
    file->size = size;
    enum npu_status status = gguf_parse(file, error);
    if (status != NPU_OK) {
        gguf_close(file);
        return status;
    }
    file->mapped = mapped;
    *ret_file = file;
    return NPU_OK;
}

enum npu_status gguf_open_memory(struct gguf_file **ret_file, const void *data, size_t size, const char *name,
                                 struct npu_error *error)
{
    return open_bytes(ret_file, data, size, false, name, error);
}

enum npu_status gguf_open(struct gguf_file **ret_file, const char *path, struct npu_error *error)
{
    enum npu_status status = NPU_OK;
    struct stat info;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return npu_error_set(error, errno == ENOENT ? NPU_ERROR_INPUT : NPU_ERROR_SYSTEM, "%s: cannot open: %s", path,
                             strerror(errno));
    if (fstat(descriptor, &info) != 0)
        status = npu_error_set(error, NPU_ERROR_SYSTEM, "%s: cannot stat: %s", path, strerror(errno));
    else if (!S_ISREG(info.st_mode))
        status = npu_error_set(error, NPU_ERROR_INPUT, "%s: %s, not a GGUF file", path,
                               S_ISDIR(info.st_mode) ? "a directory" : "not a regular file");
    else if (info.st_size == 0)
        status = npu_error_set(error, NPU_ERROR_INPUT, "%s: the file is empty, not a GGUF file", path);
    if (status != NPU_OK) {
        close(descriptor);
        return status;
    }
    size_t size = (size_t)info.st_size;
    void *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    int mmap_error = errno;
    close(descriptor);
    if (data == MAP_FAILED)
        return npu_error_set(error, NPU_ERROR_SYSTEM, "%s: cannot map %zu bytes: %s", path, size, strerror(mmap_error));
    status = open_bytes(ret_file, data, size, true, path, error);
    if (status != NPU_OK)
        munmap(data, size);
    return status;
}

void gguf_close(struct gguf_file *file)
{
    if (file == NULL)
        return;
    if (file->mapped)
        munmap((void *)file->data, file->size);
    for (int i = 0; i < file->n_pairs; i++)
        free(file->pairs[i].array.string_offsets);
    free(file->pairs);
    free(file->tensors);
    free(file->pair_index.slots);
    free(file->tensor_index.slots);
    free(file->path);
    free(file);
}

/* -- access ------------------------------------------------------------------------------------------------------- */

const char *gguf_path(const struct gguf_file *file)
{
    return file->path;
}

int gguf_n_tensors(const struct gguf_file *file)
{
    return file->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf_file *file, int index)
{
    return index >= 0 && index < file->n_tensors ? &file->tensors[index].tensor : NULL;
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf_file *file, const char *name)
{
    return gguf_tensor_at(file, gguf_find_tensor_index(file, name));
}

/* Advice on whole pages; a refusal changes nothing but memory use and time. Only for a mapped file: dropping anonymous
 * memory would zero it. */
static void advise(const struct gguf_file *file, const void *data, size_t bytes, int advice)
{
    if (!file->mapped)
        return;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = (uintptr_t)data / page * page;
    uintptr_t end = ((uintptr_t)data + bytes + page - 1) / page * page;
    madvise((void *)start, end - start, advice);
}

void gguf_drop_pages(const struct gguf_file *file, const struct gguf_tensor *tensor)
{
    advise(file, tensor->data, tensor->bytes, MADV_DONTNEED);
}

void gguf_expect_scattered(const struct gguf_file *file, const struct gguf_tensor *tensor)
{
    advise(file, tensor->data, tensor->bytes, MADV_RANDOM);
}

void gguf_fetch_pages(const struct gguf_file *file, const void *data, size_t bytes)
{
    advise(file, data, bytes, MADV_WILLNEED);
}

static const struct pair *find_pair(const struct gguf_file *file, const char *key)
{
    int index = gguf_find_pair_index(file, key, strlen(key));
    return index >= 0 ? &file->pairs[index] : NULL;
}

bool gguf_has(const struct gguf_file *file, const char *key)
{
    return find_pair(file, key) != NULL;
}

bool gguf_get_int(const struct gguf_file *file, const char *key, int64_t *value)
{
    const struct pair *pair = find_pair(file, key);
    return pair != NULL && pair->type != VALUE_BOOL && load_int(pair->type, pair->value, value);
}

bool gguf_get_float(const struct gguf_file *file, const char *key, double *value)
{
    const struct pair *pair = find_pair(file, key);
    return pair != NULL && load_float(pair->type, pair->value, value);
}

bool gguf_get_bool(const struct gguf_file *file, const char *key, bool *value)
{
    const struct pair *pair = find_pair(file, key);
    if (pair == NULL || pair->type != VALUE_BOOL)
        return false;
    *value = *pair->value != 0;
    return true;
}

static void load_string(const uint8_t *from, const char **text, size_t *length)
{
    *length = (size_t)load_bits(from, sizeof(uint64_t));
    *text = (const char *)from + sizeof(uint64_t);
}

bool gguf_get_string(const struct gguf_file *file, const char *key, const char **text, size_t *length)
{
    const struct pair *pair = find_pair(file, key);
    if (pair == NULL || pair->type != VALUE_STRING)
        return false;
    load_string(pair->value, text, length);
    return true;
}

const struct gguf_array *gguf_find_array(const struct gguf_file *file, const char *key, int64_t *n)
{
    const struct pair *pair = find_pair(file, key);
    if (pair == NULL || pair->type != VALUE_ARRAY)
        return NULL;
    if (n != NULL)
        *n = pair->array.n;
    return &pair->array;
}

bool gguf_array_string_at(const struct gguf_array *array, int64_t i, const char **text, size_t *length)
{
    if (array == NULL || array->type != VALUE_STRING || i < 0 || i >= array->n)
        return false;
    load_string(array->elements + array->string_offsets[i], text, length);
    return true;
}

static const uint8_t *scalar_at(const struct gguf_array *array, int64_t i)
{
    if (array == NULL || array->type == VALUE_STRING || i < 0 || i >= array->n)
        return NULL;
    return array->elements + (size_t)i * gguf_value_bytes(array->type);
}

bool gguf_array_int_at(const struct gguf_array *array, int64_t i, int64_t *value)
{
    const uint8_t *element = scalar_at(array, i);
    return element != NULL && load_int(array->type, element, value);
}

bool gguf_array_float_at(const struct gguf_array *array, int64_t i, double *value)
{
    const uint8_t *element = scalar_at(array, i);
    return element != NULL && load_float(array->type, element, value);
}

bool gguf_get_array_length(const struct gguf_file *file, const char *key, int64_t *n)
{
    return gguf_find_array(file, key, n) != NULL;
}

bool gguf_array_string(const struct gguf_file *file, const char *key, int64_t i, const char **text, size_t *length)
{
    return gguf_array_string_at(gguf_find_array(file, key, NULL), i, text, length);
}

bool gguf_array_int(const struct gguf_file *file, const char *key, int64_t i, int64_t *value)
{
    return gguf_array_int_at(gguf_find_array(file, key, NULL), i, value);
}

bool gguf_array_float(const struct gguf_file *file, const char *key, int64_t i, double *value)
{
    return gguf_array_float_at(gguf_find_array(file, key, NULL), i, value);
}
