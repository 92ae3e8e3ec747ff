#include "proto/api_keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SLOT_BYTES = API_KEY_MAX_BYTES + 1, /* padded with NULs, which no key has */
    FILE_MAX_BYTES = 1024 * 1024,
};

struct api_keys {
    int n;
    char slots[][SLOT_BYTES];
};

static void wipe(void *bytes, size_t length)
{
    if (bytes != NULL)
        explicit_bzero(bytes, length);
    free(bytes);
}

/* ---- from text ---- */

/* The line from *at on, without white space around it; *at moves to the next one. */
static const char *next_line(const char *text, size_t length, size_t *at, size_t *ret_length)
{
    size_t first = *at, end = first;
    while (end < length && text[end] != '\n')
        end++;
    *at = end + 1;
    while (first < end && strchr(" \t\r", text[first]) != NULL && text[first] != '\0')
        first++;
    while (end > first && strchr(" \t\r", text[end - 1]) != NULL && text[end - 1] != '\0')
        end--;
    *ret_length = end - first;
    return text + first;
}

static bool check_key(const char *key, size_t length, const char *name, int line, char *message, size_t message_bytes)
{
    if (length > API_KEY_MAX_BYTES) {
        snprintf(message, message_bytes, "%.200s, line %d: a key of %zu bytes; a key has at most %d", name, line,
                 length, API_KEY_MAX_BYTES);
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        if (key[i] <= ' ' || key[i] > '~') {
            snprintf(message, message_bytes,
                     "%.200s, line %d: one key a line, of printable ASCII characters without spaces", name, line);
            return false;
        }
    }
    return true;
}

/* Counts the keys, and copies them when there is where to. -1: one is wrong. */
static int walk(const char *text, size_t length, const char *name, struct api_keys *keys, char *message,
                size_t message_bytes)
{
    int n = 0, line = 0;
    for (size_t at = 0; at < length;) {
        size_t key_length;
        const char *key = next_line(text, length, &at, &key_length);
        line++;
        if (key_length == 0 || key[0] == '#')
            continue;
        if (!check_key(key, key_length, name, line, message, message_bytes))
            return -1;
        if (keys != NULL)
            memcpy(keys->slots[n], key, key_length);
        n++;
    }
    return n;
}

struct api_keys *api_keys_parse(const char *text, size_t length, const char *name, char *message, size_t message_bytes)
{
    int n = walk(text, length, name, NULL, message, message_bytes);
    if (n < 0)
        return NULL;
    if (n == 0 || n > API_KEYS_MAX) {
        snprintf(message, message_bytes, "%.200s has %d API keys; it must have 1 to %d, one a line", name, n,
                 API_KEYS_MAX);
        return NULL;
    }
    struct api_keys *keys = calloc(1, sizeof *keys + (size_t)n * SLOT_BYTES);
    if (keys == NULL) {
        snprintf(message, message_bytes, "not enough memory for API keys");
        return NULL;
    }
    keys->n = walk(text, length, name, keys, message, message_bytes);
    return keys;
}

/* ---- from a file ---- */

static char *read_all(int file, size_t size)
{
    char *text = malloc(size + 1);
    size_t length = 0;
    while (text != NULL && length < size) {
        ssize_t n = read(file, text + length, size - length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            if (n == 0)
                errno = EIO; /* it has become shorter */
            wipe(text, size);
            return NULL;
        }
        length += (size_t)n;
    }
    return text;
}

struct api_keys *api_keys_read(const char *path, bool *ret_open_to_all, char *message, size_t message_bytes)
{
    struct stat about;
    struct api_keys *keys = NULL;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe that nobody writes to must not be waited for */
    if (file < 0 || fstat(file, &about) != 0) {
        snprintf(message, message_bytes, "cannot read the API keys in %.200s: %s", path, strerror(errno));
    } else if (!S_ISREG(about.st_mode)) {
        snprintf(message, message_bytes, "cannot read the API keys in %.200s: it is not a regular file", path);
    } else if (about.st_size > FILE_MAX_BYTES) {
        snprintf(message, message_bytes, "%.200s has %lld bytes, too many for a file of API keys (one a line)", path,
                 (long long)about.st_size);
    } else {
        size_t size = (size_t)about.st_size;
        char *text = read_all(file, size);
        if (text == NULL)
            snprintf(message, message_bytes, "cannot read the API keys in %.200s: %s", path, strerror(errno));
        else
            keys = api_keys_parse(text, size, path, message, message_bytes);
        wipe(text, size);
        *ret_open_to_all = (about.st_mode & S_IROTH) != 0;
    }
    if (file >= 0)
        close(file);
    return keys;
}

/* ---- use ---- */

void api_keys_destroy(struct api_keys *keys)
{
    if (keys != NULL)
        wipe(keys, sizeof *keys + (size_t)keys->n * SLOT_BYTES);
}

int api_keys_count(const struct api_keys *keys)
{
    return keys->n;
}

bool api_keys_have(const struct api_keys *keys, const char *key)
{
    char slot[SLOT_BYTES] = {0};
    size_t length = strlen(key);
    if (length == 0 || length > API_KEY_MAX_BYTES)
        return false;
    memcpy(slot, key, length);
    unsigned found = 0;
    for (int i = 0; i < keys->n; i++) {
        volatile unsigned char difference = 0; /* so that no comparison is cut short */
        for (int byte = 0; byte < SLOT_BYTES; byte++)
            difference = (unsigned char)(difference | (slot[byte] ^ keys->slots[i][byte]));
        found |= difference == 0;
    }
    explicit_bzero(slot, sizeof slot);
    return found != 0;
}

const char *api_keys_bearer(const char *authorization)
{
    static const char scheme[] = "bearer";
    size_t length = sizeof scheme - 1;
    if (strncasecmp(authorization, scheme, length) != 0 || authorization[length] != ' ')
        return NULL;
    return authorization + length + strspn(authorization + length, " ");
}
