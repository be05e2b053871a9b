/* The name table: expanded names, each once.

       slots (2^k, open addressing)              arena
       ┌────────────┬───────────┬───────┐        ┌───────────────────────────────────────┐
       │ generation │ hash high │ entry │ ─────→ │ name: expanded, uri_length, symbol    │
       ├────────────┼───────────┼───────┤        │ hash, epoch of the symbol, tag        │
       │ …                              │        ├───────────────────────────────────────┤
       └────────────────────────────────┘        │ bytes of `uri}local`                  │
                                                 └───────────────────────────────────────┘

   Names stay from message to message, because messages of one stream have the same names: a message of 4 KB
   has eighty of them, and entering those anew would be a quarter of the time to read it. Only their symbols
   are forgotten: a symbol counts if its epoch is the table's. When a message leaves more than KEPT_NAMES
   names or ARENA_KEPT bytes behind, all are forgotten: names without end do not fill the memory.

   The invariant: a slot is occupied if its generation is the table's, and equal names are found at one entry.
   Forgetting all names raises the generation; slots are only freed if there are many.

   Names come from strangers, so they are hashed with a secret key: nobody can choose names that collide. One
   table for all threads was rejected: they would have to wait for each other at every new name. */
#ifndef SAPWOOD_NAME_TABLE_H
#define SAPWOOD_NAME_TABLE_H

#include "arena.h"
#include "hash_key.h"
#include "reader.h"
#include "recent_names.h"

struct name_entry {
    struct name name; /* first, see `recent_names.h` */
    uint64_t hash;
    uint64_t epoch;
    uint64_t tag; /* the number of the last start tag with this attribute: a second time is a duplicate */
};

struct name_slot {
    uint32_t generation;
    uint32_t hash; /* the half of the hash that does not choose the slot */
    struct name_entry *entry;
};

struct name_table {
    struct name_slot *slots;
    size_t capacity; /* a power of two, or 0 */
    size_t count;
    size_t name_length; /* the limit that all names keep */
    uint64_t epoch;
    uint32_t generation;
    struct arena arena;
    struct recent_name recent[RECENT_NAMES]; /* of `name_table_find` */
};

static inline uint64_t name_hash(struct span name) { return siphash(hash_key(), name.bytes, name.length); }

/* Forget the symbol of an entry if it is of an earlier epoch. */
static inline void refresh_symbol(const struct name_table *table, struct name_entry *entry) {
    if (entry->epoch == table->epoch) return;
    entry->epoch = table->epoch;
    entry->name.symbol = UNRESOLVED;
}

/* Find or add a name, `local` or `uri}local`, by its hash. Return READ, LIMIT_EXCEEDED or OUT_OF_MEMORY. */
int name_table_intern(struct name_table *table, struct span expanded, uint64_t hash,
                      struct name_entry **entry);

/* Find or add a name that is not empty; `end` is what may be read up to. */
static inline int name_table_find(struct name_table *table, struct span expanded, const char *end,
                                  struct name_entry **entry) {
    struct recent_name *place;
    *entry = (struct name_entry *)recent_entry(table->recent, table->generation, expanded, end, &place);
    if (*entry) {
        refresh_symbol(table, *entry);
        return READ;
    }
    int status = name_table_intern(table, expanded, name_hash(expanded), entry);
    if (status == READ) remember(place, table->generation, &(*entry)->name.expanded);
    return status;
}

/* Whether there are so many names that they should be forgotten. */
int name_table_is_large(const struct name_table *table);

/* Forget all names. */
void name_table_clear(struct name_table *table);

void name_table_free(struct name_table *table);

/* Whether a span of UTF-8 has more than `limit` characters. */
int is_longer(struct span text, size_t limit);

#endif
