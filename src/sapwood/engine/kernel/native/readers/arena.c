#include "arena.h"

#include <stdint.h>
#include <stdlib.h>

enum { BLOCK = 16 * 1024, ALIGNMENT = 8 };

struct arena_block {
    struct arena_block *next;
    size_t size;
    uint64_t bytes[]; /* of this type for the alignment */
};

static struct arena_block *new_block(size_t size) {
    if (size > SIZE_MAX - sizeof(struct arena_block)) return NULL;
    struct arena_block *block = malloc(sizeof *block + size);
    if (!block) return NULL;
    block->next = NULL;
    block->size = size;
    return block;
}

/* Make a block current that has room for `size` bytes: the next one that is kept, or a new one. */
static int next_block(struct arena *arena, size_t size) {
    struct arena_block *current = arena->current;
    struct arena_block *next = current ? current->next : arena->first;
    if (!next || next->size < size) {
        struct arena_block *block = new_block(size > BLOCK ? size : BLOCK);
        if (!block) return -1;
        block->next = next;
        if (current) current->next = block;
        else arena->first = block;
        next = block;
    }
    arena->current = next;
    arena->used = 0;
    return 0;
}

void *arena_allocate(struct arena *arena, size_t size) {
    if (size > SIZE_MAX - ALIGNMENT) return NULL;
    size = (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    if (!arena->current || size > arena->current->size - arena->used) {
        if (next_block(arena, size) < 0) return NULL;
    }
    void *piece = (char *)arena->current->bytes + arena->used;
    arena->used += size;
    arena->given += size;
    return piece;
}

static void free_blocks(struct arena_block *block) {
    while (block) {
        struct arena_block *next = block->next;
        free(block);
        block = next;
    }
}

void arena_clear(struct arena *arena) {
    size_t kept = 0;
    struct arena_block **link = &arena->first;
    while (*link && (*link)->size <= ARENA_KEPT - kept) {
        kept += (*link)->size;
        link = &(*link)->next;
    }
    free_blocks(*link);
    *link = NULL;
    arena->current = NULL;
    arena->used = arena->given = 0;
}

void arena_free(struct arena *arena) {
    free_blocks(arena->first);
    *arena = (struct arena){0};
}
