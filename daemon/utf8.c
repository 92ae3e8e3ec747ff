#include "daemon/utf8.h"

enum utf8_form utf8_look(const char *text, size_t length, size_t *ret_bytes)
{
    const unsigned char *bytes = (const unsigned char *)text;
    unsigned char lead = bytes[0];
    size_t needed;
    /* Only the second byte's range depends on the lead: it excludes overlong forms, surrogates and above U+10FFFF. */
    unsigned char low = 0x80, high = 0xbf;
    *ret_bytes = 1;
    if (lead < 0x80)
        return UTF8_CHARACTER;
    if (lead < 0xc2 || lead > 0xf4)
        return UTF8_INVALID;
    if (lead < 0xe0) {
        needed = 2;
    } else if (lead < 0xf0) {
        needed = 3;
        low = lead == 0xe0 ? 0xa0 : low;
        high = lead == 0xed ? 0x9f : high;
    } else {
        needed = 4;
        low = lead == 0xf0 ? 0x90 : low;
        high = lead == 0xf4 ? 0x8f : high;
    }
    for (size_t i = 1; i < needed; i++) {
        *ret_bytes = i;
        if (i == length)
            return UTF8_INCOMPLETE;
        if (bytes[i] < low || bytes[i] > high)
            return UTF8_INVALID;
        low = 0x80;
        high = 0xbf;
    }
    *ret_bytes = needed;
    return UTF8_CHARACTER;
}

bool utf8_is_valid(const char *text, size_t length)
{
    size_t bytes;
    for (size_t at = 0; at < length; at += bytes) {
        if (utf8_look(text + at, length - at, &bytes) != UTF8_CHARACTER)
            return false;
    }
    return true;
}
