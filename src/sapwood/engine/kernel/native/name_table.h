/* The name table: the expanded names of one message, each once.

       slots (2^k, open addressing)              arena
       ┌────────────┬───────────┬───────┐        ┌───────────────────────────────────────┐
       │ generation │ hash high │ entry │ ─────→ │ name: expanded, uri_length, symbol    │
       ├────────────┼───────────┼───────┤        │ tag: the start tag that last has it   │
       │ …                              │        ├───────────────────────────────────────┤
       └────────────────────────────────┘        │ bytes of `uri}local`, where copied    │
                                                 └───────────────────────────────────────┘

   The invariant: a slot is occupied if its generation is the table's, and equal names are found at one
   entry. Clearing raises the generation, so it costs nothing however large the table is; a table or an arena
   that one message made large is freed when that message has been read.

   Names come from strangers, so they are hashed with a secret key: nobody can choose names that collide. A
   table that lives on from message to message was rejected: names without end would fill it, and threads
   would have to share it. */
#ifndef SAPWOOD_NAME_TABLE_H
#define SAPWOOD_NAME_TABLE_H

#include "arena.h"
#include "hash_key.h"
#include "reader.h"

struct name_entry {
    struct name name;
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
    uint32_t generation;
    struct arena arena;
};

enum name_lifetime {
    NAME_IN_MESSAGE, /* the bytes outlive the table's content: they are not copied */
    NAME_TEMPORARY,
};

/* Find or add a name, `local` or `uri}local`. Return READ, LIMIT_EXCEEDED or OUT_OF_MEMORY. */
int name_table_intern(struct name_table *table, struct span expanded, enum name_lifetime lifetime,
                      size_t name_length, struct name_entry **entry);

/* Forget all names. */
void name_table_clear(struct name_table *table);

void name_table_free(struct name_table *table);

/* Whether a span of UTF-8 has more than `limit` characters. */
int is_longer(struct span text, size_t limit);

#endif
