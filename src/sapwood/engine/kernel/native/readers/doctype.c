#include "doctype.h"

/* A message as a sequence of ASCII characters, of one or two bytes each. */
struct characters {
    const unsigned char *bytes; /* the ASCII byte of the first one */
    size_t count;
    size_t width;
    ptrdiff_t other; /* where the other byte of two is, which is zero */
};

static struct characters characters_of(struct span message) {
    const unsigned char *bytes = (const unsigned char *)message.bytes;
    size_t length = message.length;
    if (length >= 3 && bytes[0] == 0xEF && bytes[1] == 0xBB && bytes[2] == 0xBF)
        return (struct characters){bytes + 3, length - 3, 1, 0};
    if (length >= 2) {
        int big = bytes[0] == 0xFE && bytes[1] == 0xFF, little = bytes[0] == 0xFF && bytes[1] == 0xFE;
        size_t mark = big || little ? 2 : 0;
        if (big || bytes[0] == 0)
            return (struct characters){bytes + mark + 1, (length - mark) / 2, 2, -1};
        if (little || bytes[1] == 0) return (struct characters){bytes + mark, (length - mark) / 2, 2, 1};
    }
    return (struct characters){bytes, length, 1, 0};
}

/* The character at an index, or 0 if there is none or it is none of ASCII. */
static char at(const struct characters *text, size_t index) {
    if (index >= text->count) return 0;
    const unsigned char *byte = text->bytes + index * text->width;
    if (*byte >= 0x80 || (text->other && byte[text->other])) return 0;
    return (char)*byte;
}

/* The index after the next occurrence of a string, or the end. */
static size_t after(const struct characters *text, size_t index, const char *string) {
    for (; index < text->count; index++) {
        size_t i = 0;
        while (string[i] && at(text, index + i) == string[i]) i++;
        if (!string[i]) return index + i;
    }
    return text->count;
}

int begins_with_doctype(struct span message) {
    struct characters text = characters_of(message);
    size_t index = 0;
    for (;;) {
        char c = at(&text, index);
        if (c == ' ' || c == '\t' || c == '\r' || c == '\n') index++;
        else if (c != '<') return 0;
        else if (at(&text, index + 1) == '?') index = after(&text, index + 2, "?>");
        else if (at(&text, index + 1) != '!') return 0;
        else if (at(&text, index + 2) != '-') return at(&text, index + 2) == 'D';
        else index = after(&text, index + 4, "-->");
    }
}
