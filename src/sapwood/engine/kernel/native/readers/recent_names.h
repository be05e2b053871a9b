/* Recent names: the entries of names that occurred before, by a hash that costs two multiplications.

       first 8 bytes, last 8 bytes, length ──→ one of 2,048 places: { those, generation, entry }

   A place holds the last name that fell there. Names of up to sixteen bytes, which most are, are compared by
   two numbers. Whoever chooses names such that all fall to one place gains nothing: what is not found here is
   looked up in a seeded table. A seeded hash alone was rejected: it would be a third of the time for a tag.

   The invariant: a place is occupied if its generation is the owner's, which changes when its entries are
   freed. */
#ifndef SAPWOOD_RECENT_NAMES_H
#define SAPWOOD_RECENT_NAMES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "reader.h"

/* Enough that the few hundred names of a schema seldom fall to the same place. */
enum { RECENT_BITS = 11, RECENT_NAMES = 1 << RECENT_BITS };

struct recent_name {
    uint64_t head, tail;
    uint32_t length;
    uint32_t generation;
    const struct span *entry; /* an entry begins with the span of its name */
};

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__

/* The eight bytes at `at`, with zeros for those after the first `length`; `end` is what may be read up to. */
static inline uint64_t word_at(const char *at, size_t length, const char *end) {
    (void)end;
    uint64_t word = 0;
    memcpy(&word, at, length < 8 ? length : 8);
    return word;
}

#else

/* One to seven bytes, without a loop and without reading others. */
static inline uint64_t short_word(const char *at, size_t length) {
    if (length >= 4) {
        uint32_t first, last;
        memcpy(&first, at, 4);
        memcpy(&last, at + length - 4, 4);
        return first | (uint64_t)last << (8 * (length - 4));
    }
    uint64_t word = (unsigned char)at[0];
    if (length > 1) word |= (uint64_t)(unsigned char)at[1] << 8;
    if (length > 2) word |= (uint64_t)(unsigned char)at[2] << 16;
    return word;
}

/* The eight bytes at `at`, with zeros for those after the first `length`; `end` is what may be read up to. */
static inline uint64_t word_at(const char *at, size_t length, const char *end) {
    if (end - at < 8) return short_word(at, length);
    uint64_t word;
    memcpy(&word, at, 8);
    return word & UINT64_MAX >> (length < 8 ? 8 * (8 - length) : 0);
}

#endif

/* The place of a name that is not empty, filled but for its entry. Return the entry, or NULL if another name
   was there: then `remember` has to follow. */
static inline const struct span *recent_entry(struct recent_name *places, uint32_t generation,
                                              struct span name, const char *end,
                                              struct recent_name **place) {
    size_t length = name.length;
    uint64_t head = word_at(name.bytes, length, end);
    uint64_t tail = length > 8 ? word_at(name.bytes + length - 8, 8, end) : 0;
    uint64_t mixed = (head + length) * 0x9E3779B97F4A7C15u + tail * 0xC2B2AE3D27D4EB4Fu;
    struct recent_name *recent = *place = &places[mixed >> (64 - RECENT_BITS)];
    if (recent->head == head && recent->tail == tail && recent->length == length &&
        recent->generation == generation &&
        (length <= 16 || memcmp(recent->entry->bytes + 8, name.bytes + 8, length - 16) == 0))
        return recent->entry;
    recent->generation = 0;
    recent->head = head;
    recent->tail = tail;
    recent->length = (uint32_t)length;
    return NULL;
}

static inline void remember(struct recent_name *place, uint32_t generation, const struct span *entry) {
    place->generation = generation;
    place->entry = entry;
}

#endif
