/* Queries that are one plain path, read from their text: names and wildcards between slashes.

   Nearly all queries of a large workload are such paths, and what the parser in Python would do for them is to
   split them at slashes. Anything else, prefixes and names beyond ASCII included, is left to that parser. */
#ifndef SAPWOOD_PATH_TEXT_H
#define SAPWOOD_PATH_TEXT_H

#include "arrays.h"
#include "reader.h"

enum { MOST_SYMBOLS = 128 };

static inline int starts_name(unsigned char c) { return (unsigned)(c | 32) - 'a' < 26 || c == '_'; }

static inline int is_in_name(unsigned char c) {
    return starts_name(c) || (unsigned)c - '0' < 10 || c == '-' || c == '.';
}

/* Split a text into the symbols of a path, and return how many there are; 0 if it is no plain path. */
static inline uint32_t split_path(struct span text, struct span symbols[MOST_SYMBOLS]) {
    const char *at = text.bytes, *end = text.bytes + text.length;
    uint32_t count = 0;
    while (at < end) {
        if (*at++ != '/' || at == end || count + 2 > MOST_SYMBOLS) return 0;
        if (*at == '/') {
            symbols[count++] = (struct span){at - 1, 2};
            if (++at == end) return 0;
        }
        const char *start = at;
        if (*at == '*') {
            at++;
        } else {
            if (!starts_name((unsigned char)*at)) return 0;
            while (at < end && is_in_name((unsigned char)*at)) at++;
        }
        symbols[count++] = (struct span){start, (size_t)(at - start)};
    }
    return count;
}

#endif
