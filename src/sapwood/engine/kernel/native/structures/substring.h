/* The search for a string in another. */
#ifndef SAPWOOD_SUBSTRING_H
#define SAPWOOD_SUBSTRING_H

#include <string.h>

#include "reader.h"

static inline int contains(struct span text, struct span wanted) {
    if (wanted.length == 0) return 1;
#ifdef _GNU_SOURCE
    return memmem(text.bytes, text.length, wanted.bytes, wanted.length) != NULL;
#else
    const char *from = text.bytes, *end = text.bytes + text.length;
    while ((size_t)(end - from) >= wanted.length) {
        const char *first = memchr(from, wanted.bytes[0], (size_t)(end - from) - wanted.length + 1);
        if (first == NULL) return 0;
        if (memcmp(first, wanted.bytes, wanted.length) == 0) return 1;
        from = first + 1;
    }
    return 0;
#endif
}

#endif
