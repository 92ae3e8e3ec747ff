/* Reads a GGUF file in one pass from front to back: header, key/value pairs, tensor infos, tensor data. A cursor that
 * never leaves the mapping does all reading; what it has passed is indexed and never looked at with suspicion again. */
#include "npu/gguf_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_ENTRIES = 1 << 16, /* keys, and tensors: far above any real model, and it bounds the work of colliding hashes */
    MAX_KEY_LENGTH = 65535, /* docs/gguf.md */
    DEFAULT_ALIGNMENT = 32,
    MIN_ALIGNMENT = 8,
    MIN_PAIR_BYTES = 8 + 1 + 4 + 1, /* key length, a key, type, value */
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8, /* name length, a name, n_dims, a dimension, type, offset */
};

/* What is being read, for messages: "key 'x'", "tensor 'y'", "the header". */
struct cursor {
    struct gguf_file *file;
    size_t at;
    char where[128];
    struct npu_error *error;
};

/* A name from the file as it may stand in a message: cut to a sane length, no control characters. */
static const char *printable(char out[72], const char *text, size_t length)
{
    size_t n = length < 64 ? length : 64;
    for (size_t i = 0; i < n; i++)
        out[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i];
    memcpy(out + n, length > n ? "..." : "", length > n ? 4 : 1);
    return out;
}

/* -- the cursor --------------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static enum npu_status fail(const struct cursor *cursor, const char *format, ...)
{
    char what[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return npu_error_set(cursor->error, NPU_ERROR_INPUT, "%s: %s: %s", cursor->file->path, cursor->where, what);
}

static enum npu_status out_of_memory(const struct cursor *cursor)
{
    return npu_error_set(cursor->error, NPU_ERROR_MEMORY, "%s: out of memory while reading %s", cursor->file->path,
                         cursor->where);
}

static size_t cursor_left(const struct cursor *cursor)
{
    return cursor->file->size - cursor->at;
}

static enum npu_status cursor_take(struct cursor *cursor, const char *what, size_t bytes, const uint8_t **taken)
{
    if (bytes > cursor_left(cursor))
        return fail(cursor, "%s at byte %zu needs %zu bytes, but the file ends at byte %zu: it is truncated or damaged",
                    what, cursor->at, bytes, cursor->file->size);
    *taken = cursor->file->data + cursor->at;
    cursor->at += bytes;
    return NPU_OK;
}

static enum npu_status cursor_copy(struct cursor *cursor, const char *what, void *value, size_t bytes)
{
    const uint8_t *from = NULL;
    enum npu_status status = cursor_take(cursor, what, bytes, &from);
    if (status == NPU_OK)
        memcpy(value, from, bytes);
    return status;
}

static enum npu_status cursor_u32(struct cursor *cursor, const char *what, uint32_t *value)
{
    return cursor_copy(cursor, what, value, sizeof *value);
}

static enum npu_status cursor_u64(struct cursor *cursor, const char *what, uint64_t *value)
{
    return cursor_copy(cursor, what, value, sizeof *value);
}

static enum npu_status cursor_string(struct cursor *cursor, const char *what, const char **text, size_t *length)
{
    uint64_t bytes;
    size_t start = cursor->at;
    enum npu_status status = cursor_u64(cursor, what, &bytes);
    if (status != NPU_OK)
        return status;
    if (bytes > cursor_left(cursor))
        return fail(cursor, "%s at byte %zu says it is %" PRIu64 " bytes long, but only %zu follow", what, start, bytes,
                    cursor_left(cursor));
    *text = (const char *)cursor->file->data + cursor->at;
    *length = (size_t)bytes;
    cursor->at += (size_t)bytes;
    return NPU_OK;
}

/* A string that names something: 1 to limit bytes, no NUL. */
static enum npu_status cursor_name(struct cursor *cursor, const char *what, size_t limit, const char **text,
                                   size_t *length)
{
    size_t start = cursor->at;
    enum npu_status status = cursor_string(cursor, what, text, length);
    if (status != NPU_OK)
        return status;
    if (*length == 0 || *length > limit)
        return fail(cursor, "%s at byte %zu is %zu bytes long, it must be 1 to %zu", what, start, *length, limit);
    if (memchr(*text, 0, *length) != NULL)
        return fail(cursor, "%s at byte %zu contains a NUL byte", what, start);
    return NPU_OK;
}

/* -- header and pairs --------------------------------------------------------------------------------------------- */

static enum npu_status read_header(struct cursor *cursor)
{
    struct gguf_file *file = cursor->file;
    static const char lfs_pointer[] = "version https://git-lfs";
    if (file->size >= sizeof lfs_pointer && memcmp(file->data, lfs_pointer, sizeof lfs_pointer - 1) == 0)
        return fail(cursor, "this is a Git LFS pointer, not the model itself: fetch it with 'git lfs pull'");
    if (file->size >= 4 && memcmp(file->data, "GGUF", 4) != 0)
        return fail(cursor, "not a GGUF file: it starts with the bytes %02x %02x %02x %02x, not with 'GGUF'",
                    file->data[0], file->data[1], file->data[2], file->data[3]);

    const uint8_t *magic;
    uint32_t version;
    uint64_t n_tensors, n_pairs;
    enum npu_status status;
    if ((status = cursor_take(cursor, "the magic 'GGUF'", 4, &magic)) != NPU_OK ||
        (status = cursor_u32(cursor, "the version", &version)) != NPU_OK)
        return status;
    if (version != 0 && (version & 0xffff) == 0)
        return fail(cursor, "a big-endian GGUF file; only little-endian files can be read");
    if (version != 2 && version != 3)
        return fail(cursor, "GGUF version %" PRIu32 " at byte 4; versions 2 and 3 can be read", version);
    if ((status = cursor_u64(cursor, "the number of tensors", &n_tensors)) != NPU_OK ||
        (status = cursor_u64(cursor, "the number of keys", &n_pairs)) != NPU_OK)
        return status;
    if (n_tensors > MAX_ENTRIES || n_pairs > MAX_ENTRIES)
        return fail(cursor, "it announces %" PRIu64 " tensors and %" PRIu64 " keys; at most %d of each can be read",
                    n_tensors, n_pairs, MAX_ENTRIES);
    if (n_pairs * MIN_PAIR_BYTES + n_tensors * MIN_TENSOR_BYTES > cursor_left(cursor))
        return fail(cursor,
                    "it announces %" PRIu64 " tensors and %" PRIu64 " keys, too many for a file of %zu bytes: "
                    "it is truncated or damaged",
                    n_tensors, n_pairs, file->size);

    file->pairs = calloc((size_t)n_pairs + 1, sizeof *file->pairs);
    file->tensors = calloc((size_t)n_tensors + 1, sizeof *file->tensors);
    if (file->pairs == NULL || file->tensors == NULL || !name_index_init(&file->pair_index, (int)n_pairs) ||
        !name_index_init(&file->tensor_index, (int)n_tensors))
        return out_of_memory(cursor);
    file->n_pairs = (int)n_pairs;
    file->n_tensors = (int)n_tensors;
    return NPU_OK;
}

static enum npu_status check_bools(struct cursor *cursor, const uint8_t *bytes, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (bytes[i] > 1)
            return fail(cursor, "a bool is %d at byte %zu, it must be 0 or 1", bytes[i],
                        (size_t)(bytes + i - cursor->file->data));
    }
    return NPU_OK;
}

static enum npu_status read_string_array(struct cursor *cursor, struct gguf_array *array)
{
    if ((uint64_t)array->n > cursor_left(cursor) / sizeof(uint64_t))
        return fail(cursor, "an array of %" PRId64 " strings at byte %zu does not fit in the %zu bytes that follow",
                    array->n, cursor->at, cursor_left(cursor));
    array->string_offsets = malloc(((size_t)array->n + 1) * sizeof *array->string_offsets);
    if (array->string_offsets == NULL)
        return out_of_memory(cursor);
    size_t start = cursor->at;
    for (int64_t i = 0; i < array->n; i++) {
        const char *text;
        size_t length;
        array->string_offsets[i] = cursor->at - start;
        enum npu_status status = cursor_string(cursor, "a string of the array", &text, &length);
        if (status != NPU_OK)
            return status;
    }
    return NPU_OK;
}

static enum npu_status read_array(struct cursor *cursor, struct gguf_array *array)
{
    uint64_t n;
    enum npu_status status;
    if ((status = cursor_u32(cursor, "the array's element type", &array->type)) != NPU_OK ||
        (status = cursor_u64(cursor, "the array's length", &n)) != NPU_OK)
        return status;
    if (array->type == VALUE_ARRAY)
        return fail(cursor, "an array of arrays at byte %zu; arrays hold scalars or strings", cursor->at - 12);
    size_t element = gguf_value_bytes(array->type);
    if (element == 0 && array->type != VALUE_STRING)
        return fail(cursor, "element type %" PRIu32 " at byte %zu is not a GGUF type", array->type, cursor->at - 12);
    if (n > cursor_left(cursor) / (element != 0 ? element : sizeof(uint64_t)))
        return fail(cursor, "an array of %" PRIu64 " elements at byte %zu does not fit in the %zu bytes that follow", n,
                    cursor->at, cursor_left(cursor));
    array->n = (int64_t)n;
    array->elements = cursor->file->data + cursor->at;
    if (array->type == VALUE_STRING)
        return read_string_array(cursor, array);
    cursor->at += (size_t)n * element;
    return array->type == VALUE_BOOL ? check_bools(cursor, array->elements, array->n) : NPU_OK;
}

static enum npu_status read_value(struct cursor *cursor, struct pair *pair)
{
    const char *text;
    size_t length;
    enum npu_status status = cursor_u32(cursor, "the value's type", &pair->type);
    if (status != NPU_OK)
        return status;
    pair->value = cursor->file->data + cursor->at;
    if (pair->type == VALUE_STRING)
        return cursor_string(cursor, "the string", &text, &length);
    if (pair->type == VALUE_ARRAY)
        return read_array(cursor, &pair->array);
    size_t bytes = gguf_value_bytes(pair->type);
    if (bytes == 0)
        return fail(cursor, "value type %" PRIu32 " at byte %zu is not a GGUF type", pair->type, cursor->at - 4);
    if ((status = cursor_take(cursor, "the value", bytes, &pair->value)) != NPU_OK)
        return status;
    return pair->type == VALUE_BOOL ? check_bools(cursor, pair->value, 1) : NPU_OK;
}

static enum npu_status read_pairs(struct cursor *cursor)
{
    struct gguf_file *file = cursor->file;
    for (int i = 0; i < file->n_pairs; i++) {
        struct pair *pair = &file->pairs[i];
        char name[72];
        snprintf(cursor->where, sizeof cursor->where, "key %d of %d", i + 1, file->n_pairs);
        enum npu_status status = cursor_name(cursor, "the key", MAX_KEY_LENGTH, &pair->key, &pair->key_length);
        if (status != NPU_OK)
            return status;
        snprintf(cursor->where, sizeof cursor->where, "key '%s'", printable(name, pair->key, pair->key_length));
        if (gguf_find_pair_index(file, pair->key, pair->key_length) >= 0)
            return fail(cursor, "it stands in the file twice");
        if ((status = read_value(cursor, pair)) != NPU_OK)
            return status;
        name_index_add(&file->pair_index, pair->key, pair->key_length, i);
    }
    return NPU_OK;
}

static enum npu_status read_alignment(struct cursor *cursor)
{
    struct gguf_file *file = cursor->file;
    int64_t alignment = DEFAULT_ALIGNMENT;
    snprintf(cursor->where, sizeof cursor->where, "key 'general.alignment'");
    if (gguf_has(file, "general.alignment") && !gguf_get_int(file, "general.alignment", &alignment))
        return fail(cursor, "it must be an integer");
    if (alignment < MIN_ALIGNMENT || alignment > (int64_t)1 << 30 || (alignment & (alignment - 1)) != 0)
        return fail(cursor, "it is %" PRId64 ", it must be a power of two of at least %d", alignment, MIN_ALIGNMENT);
    file->alignment = (uint64_t)alignment;
    return NPU_OK;
}

/* -- tensors ------------------------------------------------------------------------------------------------------ */

static enum npu_status read_tensor_shape(struct cursor *cursor, struct gguf_tensor *tensor)
{
    uint32_t n_dims;
    enum npu_status status = cursor_u32(cursor, "the number of dimensions", &n_dims);
    if (status != NPU_OK)
        return status;
    if (n_dims < 1 || n_dims > 4)
        return fail(cursor, "%" PRIu32 " dimensions, it must be 1 to 4", n_dims);
    tensor->n_dims = (int)n_dims;
    for (int i = 0; i < 4; i++) {
        uint64_t dim = 1;
        if (i < tensor->n_dims && (status = cursor_u64(cursor, "a dimension", &dim)) != NPU_OK)
            return status;
        if (dim < 1 || dim > INT32_MAX)
            return fail(cursor, "dimension %d is %" PRIu64 ", it must be 1 to %d", i, dim, INT32_MAX);
        tensor->dims[i] = (int64_t)dim;
    }
    return NPU_OK;
}

/* Sets tensor->bytes from shape and type. */
static enum npu_status size_tensor(struct cursor *cursor, struct gguf_tensor *tensor)
{
    const char *type = tensor_type_name(tensor->type);
    if (type == NULL)
        return fail(cursor, "type %" PRIu32 " is not a known ggml tensor type", tensor->type);
    int elements = tensor_type_block_elements(tensor->type);
    if (tensor->dims[0] % elements != 0)
        return fail(cursor, "rows of %" PRId64 " elements cannot be %s: they must be multiples of %d", tensor->dims[0],
                    type, elements);
    uint64_t bytes = (uint64_t)(tensor->dims[0] / elements) * (uint64_t)tensor_type_block_bytes(tensor->type);
    for (int i = 1; i < 4; i++) {
        if (__builtin_mul_overflow(bytes, (uint64_t)tensor->dims[i], &bytes))
            bytes = UINT64_MAX;
    }
    if (bytes > cursor->file->size)
        return fail(cursor,
                    "%" PRId64 " x %" PRId64 " x %" PRId64 " x %" PRId64 " elements of %s are more than the file",
                    tensor->dims[0], tensor->dims[1], tensor->dims[2], tensor->dims[3], type);
    tensor->bytes = (size_t)bytes;
    return NPU_OK;
}

static enum npu_status read_tensor_infos(struct cursor *cursor)
{
    struct gguf_file *file = cursor->file;
    for (int i = 0; i < file->n_tensors; i++) {
        struct named_tensor *tensor = &file->tensors[i];
        const char *name = NULL;
        size_t length = 0;
        char shown[72];
        enum npu_status status;
        snprintf(cursor->where, sizeof cursor->where, "tensor %d of %d", i + 1, file->n_tensors);
        if ((status = cursor_name(cursor, "the name", GGUF_MAX_TENSOR_NAME, &name, &length)) != NPU_OK)
            return status;
        snprintf(cursor->where, sizeof cursor->where, "tensor '%s'", printable(shown, name, length));
        memcpy(tensor->name, name, length);
        tensor->tensor.name = tensor->name;
        if (gguf_find_tensor_index(file, tensor->name) >= 0)
            return fail(cursor, "it stands in the file twice");
        if ((status = read_tensor_shape(cursor, &tensor->tensor)) != NPU_OK ||
            (status = cursor_u32(cursor, "the type", &tensor->tensor.type)) != NPU_OK ||
            (status = cursor_u64(cursor, "the offset", &tensor->offset)) != NPU_OK ||
            (status = size_tensor(cursor, &tensor->tensor)) != NPU_OK)
            return status;
        if (tensor->offset % file->alignment != 0)
            return fail(cursor, "its offset %" PRIu64 " is not a multiple of the alignment %" PRIu64, tensor->offset,
                        file->alignment);
        name_index_add(&file->tensor_index, tensor->name, length, i);
    }
    return NPU_OK;
}

static enum npu_status place_tensors(struct cursor *cursor)
{
    struct gguf_file *file = cursor->file;
    uint64_t start = (cursor->at + file->alignment - 1) / file->alignment * file->alignment;
    for (int i = 0; i < file->n_tensors; i++) {
        struct named_tensor *tensor = &file->tensors[i];
        char shown[72];
        snprintf(cursor->where, sizeof cursor->where, "tensor '%s'",
                 printable(shown, tensor->name, strlen(tensor->name)));
        if (start > file->size || tensor->offset > file->size - start ||
            tensor->tensor.bytes > file->size - start - tensor->offset)
            return fail(cursor,
                        "its %zu bytes at %" PRIu64 " + %" PRIu64 " end past the file's %zu bytes: it is truncated or "
                        "damaged",
                        tensor->tensor.bytes, start, tensor->offset, file->size);
        tensor->tensor.data = file->data + start + tensor->offset;
    }
    return NPU_OK;
}

enum npu_status gguf_parse(struct gguf_file *file, struct npu_error *error)
{
    struct cursor cursor = {.file = file, .where = "header", .error = error};
    enum npu_status status;
    if ((status = read_header(&cursor)) != NPU_OK || (status = read_pairs(&cursor)) != NPU_OK ||
        (status = read_alignment(&cursor)) != NPU_OK || (status = read_tensor_infos(&cursor)) != NPU_OK)
        return status;
    return place_tensors(&cursor);
}
