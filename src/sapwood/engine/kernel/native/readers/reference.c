#include "reference.h"

#include <string.h>

#include "utf8.h"

/* The value of a digit, or 16 for what is none. */
static uint32_t digit_value(unsigned char byte) {
    if (byte >= '0' && byte <= '9') return byte - '0';
    if (byte >= 'a' && byte <= 'f') return byte - 'a' + 10;
    if (byte >= 'A' && byte <= 'F') return byte - 'A' + 10;
    return 16;
}

static int is_allowed(uint32_t code) {
    if (code < 0x20) return code == '\t' || code == '\n' || code == '\r';
    return !(code >= 0xD800 && code <= 0xDFFF) && code != 0xFFFE && code != 0xFFFF;
}

/* `at` is after `&#`. */
static const unsigned char *resolve_character(const unsigned char *at, const unsigned char *end,
                                              char bytes[4], size_t *length) {
    uint32_t base = 10, code = 0;
    if (at < end && *at == 'x') {
        base = 16;
        at++;
    }
    const unsigned char *digits = at;
    for (; at < end && digit_value(*at) < base; at++) {
        code = code * base + digit_value(*at);
        if (code > 0x10FFFF) return NULL;
    }
    if (at == digits || at == end || *at != ';' || !is_allowed(code)) return NULL;
    *length = utf8_encode(code, bytes);
    return at + 1;
}

const unsigned char *resolve_reference(const unsigned char *at, const unsigned char *end, char bytes[4],
                                       size_t *length) {
    static const struct {
        char name[6];
        char character;
    } entities[] = {{"amp;", '&'}, {"lt;", '<'}, {"gt;", '>'}, {"quot;", '"'}, {"apos;", '\''}};
    at++;
    if (at < end && *at == '#') return resolve_character(at + 1, end, bytes, length);
    for (size_t i = 0; i < sizeof entities / sizeof *entities; i++) {
        size_t name_length = strlen(entities[i].name);
        if ((size_t)(end - at) < name_length || memcmp(at, entities[i].name, name_length) != 0) continue;
        bytes[0] = entities[i].character;
        *length = 1;
        return at + name_length;
    }
    return NULL;
}

ptrdiff_t normalize_value(struct span value, char *normalized) {
    const unsigned char *at = (const unsigned char *)value.bytes, *end = at + value.length;
    char *to = normalized;
    while (at < end) {
        unsigned char byte = *at;
        if (byte == '&') {
            size_t length;
            at = resolve_reference(at, end, to, &length); /* four bytes have room: no reference is shorter */
            if (!at) return -1;
            to += length;
            continue;
        }
        at++;
        if (byte == '\r' && at < end && *at == '\n') at++;
        *to++ = byte == '\t' || byte == '\n' || byte == '\r' ? ' ' : (char)byte;
    }
    return to - normalized;
}
