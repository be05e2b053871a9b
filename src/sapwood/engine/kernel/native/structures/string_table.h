/* A table of distinct strings with numbers: the names and the constants that queries mention.

   Strings stand end to end in one block; a number refers to its offset and length. Numbers are counted: a
   string that no query uses any more is *retired*: it can no longer be found, but its number is not assigned
   again until `strings_recycle`, because the dataguide may still have links by that number. The automaton
   recycles when it drops the dataguide.

   The hash is keyed, since messages are looked up here, and they come from strangers. */
#ifndef SAPWOOD_STRING_TABLE_H
#define SAPWOOD_STRING_TABLE_H

#include "arrays.h"
#include "reader.h"
#include "siphash.h"

struct string_entry {
    uint32_t offset, length, hash, uses;
};

struct string_table {
    struct hash_key key;
    struct table table;
    struct ARRAY_OF(char) block;
    struct ARRAY_OF(struct string_entry) entries;
    struct numbers free, retired;
    size_t wasted; /* bytes of the block that belong to no string any more */
};

void strings_init(struct string_table *strings, struct hash_key key);
void strings_free(struct string_table *strings);

static inline uint32_t strings_hash(const struct string_table *strings, struct span text) {
    return (uint32_t)siphash(&strings->key, text.bytes, text.length);
}

static inline struct span strings_text(const struct string_table *strings, uint32_t number) {
    const struct string_entry *entry = &strings->entries.items[number];
    return (struct span){strings->block.items + entry->offset, entry->length};
}

/* Return the number of a string, or NONE. */
static inline uint32_t strings_find(const struct string_table *strings, struct span text) {
    uint32_t hash = strings_hash(strings, text), found;
    FIND_IN(&strings->table, hash, number,
            strings->entries.items[number].hash == hash && strings->entries.items[number].length == text.length &&
                (text.length == 0 || memcmp(strings->block.items + strings->entries.items[number].offset,
                                            text.bytes, text.length) == 0),
            found);
    return found;
}

/* Add one use of a string, and return its number; NONE if memory is out. */
uint32_t strings_use(struct string_table *strings, struct span text);

/* Take one use back. */
void strings_release(struct string_table *strings, uint32_t number);

/* Have the numbers of retired strings assigned again. */
void strings_recycle(struct string_table *strings);

#endif
