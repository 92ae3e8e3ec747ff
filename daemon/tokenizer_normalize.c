/* Unicode's normalization form C, as Hugging Face's tokenizers of some models apply it before they cut words: characters
 * that are written with combining marks become the composed ones. Source: UAX #15, through libutf8proc. */
#include "daemon/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "daemon/utf8.h"

enum {
    /* Marks that follow each other are sorted in quadratic time. No script has runs like this; one that is longer is
     * normalized in parts. */
    MAX_MARKS = 1024,
};

/* A stretch at the start of text that is normalized as one: well-formed characters up to MAX_MARKS marks in a row.
 * Zero: text starts with a byte that is not UTF-8. *ret_plain: it is ASCII. */
static size_t find_stretch(const char *text, size_t length, bool *ret_plain)
{
    size_t at = 0;
    int marks = 0;
    *ret_plain = true;
    while (at < length) {
        size_t bytes;
        if (utf8_look(text + at, length - at, &bytes) != UTF8_CHARACTER)
            break;
        if (bytes > 1) {
            utf8proc_int32_t character;
            *ret_plain = false;
            utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)bytes, &character);
            marks = utf8proc_get_property(character)->combining_class != 0 ? marks + 1 : 0;
            if (marks > MAX_MARKS)
                break;
        } else {
            marks = 0;
        }
        at += bytes;
    }
    return at;
}

struct text_copy {
    char *bytes;
    size_t length, capacity;
};

static bool append(struct text_copy *copy, const void *bytes, size_t length)
{
    if (length > copy->capacity - copy->length) {
        size_t capacity = 2 * copy->capacity + length;
        char *grown = realloc(copy->bytes, capacity);
        if (grown == NULL)
            return false;
        copy->bytes = grown;
        copy->capacity = capacity;
    }
    memcpy(copy->bytes + copy->length, bytes, length);
    copy->length += length;
    return true;
}

static bool append_composed(struct text_copy *copy, const char *text, size_t length)
{
    utf8proc_uint8_t *composed = NULL;
    utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)length, &composed,
                                      UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    bool appended = n >= 0 && append(copy, composed, (size_t)n);
    free(composed);
    return appended;
}

static bool is_ascii(const char *text, size_t length)
{
    unsigned char all = 0;
    for (size_t i = 0; i < length; i++)
        all |= (unsigned char)text[i];
    return all < 0x80;
}

enum npu_status text_compose(const char *text, size_t length, char **ret_copy, size_t *ret_length,
                             struct npu_error *error)
{
    struct text_copy copy = {0};
    *ret_copy = NULL;
    *ret_length = length;
    if (is_ascii(text, length))
        return NPU_OK;
    for (size_t at = 0, bytes; at < length; at += bytes) {
        bool plain, done;
        bytes = find_stretch(text + at, length - at, &plain);
        if (bytes == 0) {
            utf8_look(text + at, length - at, &bytes);
            plain = true;
        }
        done = plain ? append(&copy, text + at, bytes) : append_composed(&copy, text + at, bytes);
        if (!done) {
            free(copy.bytes);
            return npu_error_set(error, NPU_ERROR_MEMORY, "out of memory for normalizing a text of %zu bytes", length);
        }
    }
    *ret_copy = copy.bytes;
    *ret_length = copy.length;
    return NPU_OK;
}
