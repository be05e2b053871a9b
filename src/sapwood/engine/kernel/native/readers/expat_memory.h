/* The memory of expat's parsers: an arena, which is taken back as a whole when a message has been read.

   Expat makes a hundred small allocations for a message, most of them for names, and frees them one by one at
   the end. From an arena they cost a tenth of the parsing less than from malloc. What expat frees or moves
   while it parses stays allocated until the end: that is little, since it keeps its buffers and doubles them.

       ┌──────┬──────────────────────┬──────┬──────────────┐
       │ size │ piece                │ size │ piece        │ …
       └──────┴──────────────────────┴──────┴──────────────┘

   Expat's functions for memory are not told for which parser they are called, so the arena of the parser that
   runs is kept in a variable of the thread: the only one in the kernel that is written after loading. */
#ifndef SAPWOOD_EXPAT_MEMORY_H
#define SAPWOOD_EXPAT_MEMORY_H

#include "arena.h"

/* Expat's declaration of a memory suite. */
struct expat_memory_suite {
    void *(*allocate)(size_t size);
    void *(*reallocate)(void *piece, size_t size);
    void (*free)(void *piece);
};

extern const struct expat_memory_suite expat_memory_suite;

/* Let the suite give out memory of an arena, in this thread. Return the arena before, which has to be set
   again when the parser is not used any more. */
struct arena *expat_memory_use(struct arena *arena);

#endif
