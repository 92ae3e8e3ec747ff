/* Looking at UTF-8 one character at a time. Source: The Unicode Standard, section 3.9, table 3-7 (well-formed byte
 * sequences) and "U+FFFD substitution of maximal subparts". Pure functions. */
#ifndef DAEMON_UTF8_H
#define DAEMON_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum utf8_form {
    UTF8_CHARACTER, /* a well-formed character */
    UTF8_INVALID, /* a maximal subpart of an ill-formed sequence: one U+FFFD stands for it */
    UTF8_INCOMPLETE, /* the bytes end inside what may still become a character */
};

/* What text starts with (length at least 1); *ret_bytes is how many bytes that is, 1 to 4. */
enum utf8_form utf8_look(const char *text, size_t length, size_t *ret_bytes);

/* The whole of text is well-formed. */
bool utf8_is_valid(const char *text, size_t length);

#endif
