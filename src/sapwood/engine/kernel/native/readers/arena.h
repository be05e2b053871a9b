/* An arena: memory that is given out piece by piece and taken back all at once.

       first block            next block
       ┌────────────────────┐   ┌────────────────────────────┐
       │ used │ free        │ → │ free                       │ → …
       └────────────────────┘   └────────────────────────────┘

   Pieces never move, so they may be pointed at. The invariant: blocks after `current` are empty, and `given`
   is the sum of all pieces. Clearing keeps the first blocks, up to ARENA_KEPT bytes, and frees the others.
   malloc for every piece was rejected: a message has hundreds of names, and freeing them one by one would
   cost more than reading them. */
#ifndef SAPWOOD_ARENA_H
#define SAPWOOD_ARENA_H

#include <stddef.h>

enum { ARENA_KEPT = 256 * 1024 };

struct arena_block;

struct arena {
    struct arena_block *first;
    struct arena_block *current;
    size_t used;  /* of the current block */
    size_t given; /* of all blocks */
};

/* Memory for `size` bytes, aligned for pointers and 64-bit integers, or NULL without memory. */
void *arena_allocate(struct arena *arena, size_t size);

/* Take all pieces back. */
void arena_clear(struct arena *arena);

void arena_free(struct arena *arena);

#endif
