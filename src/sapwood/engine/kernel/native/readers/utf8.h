/* Characters that are not ASCII, as expat takes them in UTF-8. */
#ifndef SAPWOOD_UTF8_H
#define SAPWOOD_UTF8_H

#include <stddef.h>
#include <stdint.h>

static inline int is_continuation(unsigned char byte) { return (byte & 0xC0) == 0x80; }

/* The position after the character at `at`, whose first byte is not ASCII, or NULL if it is none that XML
   allows: not the shortest form, cut off, a surrogate, U+FFFE, U+FFFF or beyond U+10FFFF. */
static inline const unsigned char *utf8_next(const unsigned char *at, const unsigned char *end) {
    unsigned char first = at[0];
    ptrdiff_t left = end - at;
    if (first < 0xC2) return NULL;
    if (first < 0xE0) return left >= 2 && is_continuation(at[1]) ? at + 2 : NULL;
    if (first < 0xF0) {
        if (left < 3 || !is_continuation(at[1]) || !is_continuation(at[2])) return NULL;
        if (first == 0xE0 && at[1] < 0xA0) return NULL;
        if (first == 0xED && at[1] > 0x9F) return NULL;
        if (first == 0xEF && at[1] == 0xBF && at[2] > 0xBD) return NULL;
        return at + 3;
    }
    if (first > 0xF4 || left < 4) return NULL;
    if (!is_continuation(at[1]) || !is_continuation(at[2]) || !is_continuation(at[3])) return NULL;
    if (first == 0xF0 && at[1] < 0x90) return NULL;
    if (first == 0xF4 && at[1] > 0x8F) return NULL;
    return at + 4;
}

/* Write a code point, at most U+10FFFF, as UTF-8. Return the number of bytes. */
static inline size_t utf8_encode(uint32_t code, char bytes[4]) {
    if (code < 0x80) {
        bytes[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        bytes[0] = (char)(0xC0 | code >> 6);
        bytes[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        bytes[0] = (char)(0xE0 | code >> 12);
        bytes[1] = (char)(0x80 | (code >> 6 & 0x3F));
        bytes[2] = (char)(0x80 | (code & 0x3F));
        return 3;
    }
    bytes[0] = (char)(0xF0 | code >> 18);
    bytes[1] = (char)(0x80 | (code >> 12 & 0x3F));
    bytes[2] = (char)(0x80 | (code >> 6 & 0x3F));
    bytes[3] = (char)(0x80 | (code & 0x3F));
    return 4;
}

#endif
