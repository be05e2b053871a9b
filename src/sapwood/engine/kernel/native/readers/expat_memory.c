#include "expat_memory.h"

#include <stdint.h>
#include <string.h>

#ifdef _MSC_VER
#define THREAD_LOCAL __declspec(thread)
#else
#define THREAD_LOCAL _Thread_local
#endif

static THREAD_LOCAL struct arena *current;

struct arena *expat_memory_use(struct arena *arena) {
    struct arena *before = current;
    current = arena;
    return before;
}

static void *allocate(size_t size) {
    if (size > SIZE_MAX - sizeof(uint64_t)) return NULL;
    uint64_t *piece = arena_allocate(current, sizeof(uint64_t) + size);
    if (!piece) return NULL;
    *piece = size;
    return piece + 1;
}

static void *reallocate(void *piece, size_t size) {
    if (!piece) return allocate(size);
    size_t before = (size_t)((uint64_t *)piece)[-1];
    if (size <= before) return piece;
    void *moved = allocate(size);
    if (moved) memcpy(moved, piece, before);
    return moved;
}

static void free_nothing(void *piece) { (void)piece; }

const struct expat_memory_suite expat_memory_suite = {allocate, reallocate, free_nothing};
