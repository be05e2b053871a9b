/* Growing arrays, and hash tables of numbers.

   All structures of the kernel are flat arrays of numbers that refer to each other by index: half a million
   states of a trie are five arrays, not half a million allocations, and an index stays valid when an array
   moves. Rejected: a node per allocation, as a textbook has it; it costs 16 bytes of the allocator's each, and
   a cache miss where neighbours could share a line.

   What allocates returns 0, or -1 when memory is out. */
#ifndef SAPWOOD_ARRAYS_H
#define SAPWOOD_ARRAYS_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Stands for no item: no index, no state, no node. */
#define NONE UINT32_MAX

/* Grow by half, so that what is left over is at most a third. */
static inline int grow_items(void **items, uint32_t *room, uint32_t needed, size_t size) {
    uint64_t wanted = (uint64_t)*room + *room / 2 + 4;
    if (wanted < needed) wanted = needed;
    if (wanted >= NONE || wanted > SIZE_MAX / size) return -1;
    void *grown = realloc(*items, (size_t)wanted * size);
    if (grown == NULL) return -1;
    *items = grown;
    *room = (uint32_t)wanted;
    return 0;
}

/* An array of some type: `items`, of which `count` are used and `room` allocated. All zero is empty. */
#define ARRAY_OF(type) \
    { type *items; uint32_t count, room; }

/* Make room for so many items. */
#define RESERVE(array, needed) \
    ((array)->room >= (needed) \
         ? 0 \
         : grow_items((void **)&(array)->items, &(array)->room, (needed), sizeof *(array)->items))

/* Add an item at the end. */
#define PUSH(array, item) \
    ((array)->count == UINT32_MAX - 1 || RESERVE(array, (array)->count + 1) \
         ? -1 \
         : ((array)->items[(array)->count++] = (item), 0))

#define POP(array) ((array)->items[--(array)->count])

#define FREE_ARRAY(array) (free((array)->items), (array)->items = NULL, (array)->count = (array)->room = 0)

struct numbers ARRAY_OF(uint32_t);

/* Return the place of the lowest bit that is set. */
static inline uint32_t lowest_bit(uint64_t bits) {
#if defined(__GNUC__) || defined(__clang__)
    return (uint32_t)__builtin_ctzll(bits);
#else
    uint32_t place = 0;
    for (; !(bits & 1); bits >>= 1) place++;
    return place;
#endif
}

/* Return how many bits are set; by arithmetic, since not every processor that this may run on counts them. */
static inline uint32_t count_bits(uint64_t bits) {
    bits -= bits >> 1 & 0x5555555555555555u;
    bits = (bits & 0x3333333333333333u) + (bits >> 2 & 0x3333333333333333u);
    bits = (bits + (bits >> 4)) & 0x0F0F0F0F0F0F0F0Fu;
    return (uint32_t)((bits * 0x0101010101010101u) >> 56);
}

/* Remove one occurrence of a number, by the last one in its place. */
static inline void remove_number(struct numbers *numbers, uint32_t number) {
    for (uint32_t i = 0; i < numbers->count; i++) {
        if (numbers->items[i] == number) {
            numbers->items[i] = numbers->items[--numbers->count];
            return;
        }
    }
}

/* -- hash tables ----------------------------------------------------------------------------------------

   A table holds numbers of things whose keys are kept elsewhere (the parent and symbol of a trie state, say),
   and asks its owner for the hash and for equality: four bytes an entry, where a table of keys and values
   takes twelve or more. Collisions go to the next cell. A removal moves later entries of the run back, so
   there are no tombstones, and tables under churn stay as they are. */
struct table {
    uint32_t *cells; /* NONE: empty */
    uint32_t mask;   /* number of cells - 1, a power of two; 0 before the first insertion */
    uint32_t count;
};

static inline uint32_t mix(uint64_t key) {
    key ^= key >> 32;
    key *= 0x9E3779B97F4A7C15u;
    return (uint32_t)(key >> 32);
}

static inline uint32_t mix_pair(uint32_t one, uint32_t other) {
    uint64_t key = ((uint64_t)one << 32 | other) * 0xD6E8FEB86659FD93u;
    key ^= key >> 32;
    return (uint32_t)((key * 0x9E3779B97F4A7C15u) >> 32);
}

static inline void free_table(struct table *table) {
    free(table->cells);
    memset(table, 0, sizeof *table);
}

static inline void clear_table(struct table *table) {
    if (table->cells) memset(table->cells, 0xff, ((size_t)table->mask + 1) * 4);
    table->count = 0;
}

/* Make the functions of a table: `name_find(owner, …)` is written by hand with FIND_IN; these are `name_insert`
   and `name_remove`, given `hash_of(owner, item)`. */
#define TABLE_FUNCTIONS(name, owner_type, hash_of) \
    static int name##_resize(owner_type *owner, struct table *table, uint32_t cells) { \
        uint32_t *old = table->cells, old_mask = table->mask; \
        uint32_t *made = malloc((size_t)cells * 4); \
        if (made == NULL) return -1; \
        memset(made, 0xff, (size_t)cells * 4); \
        for (uint32_t i = 0; old != NULL && i <= old_mask; i++) { \
            if (old[i] == NONE) continue; \
            uint32_t at = hash_of(owner, old[i]) & (cells - 1); \
            while (made[at] != NONE) at = (at + 1) & (cells - 1); \
            made[at] = old[i]; \
        } \
        free(old); \
        table->cells = made; \
        table->mask = cells - 1; \
        return 0; \
    } \
    static int name##_insert(owner_type *owner, struct table *table, uint32_t item) { \
        if (table->cells == NULL || (uint64_t)(table->count + 1) * 4 > ((uint64_t)table->mask + 1) * 3) { \
            uint64_t cells = table->cells == NULL ? 16 : ((uint64_t)table->mask + 1) * 2; \
            if (cells > UINT32_MAX / 2 || name##_resize(owner, table, (uint32_t)cells)) return -1; \
        } \
        uint32_t at = hash_of(owner, item) & table->mask; \
        while (table->cells[at] != NONE) at = (at + 1) & table->mask; \
        table->cells[at] = item; \
        table->count++; \
        return 0; \
    } \
    static inline void name##_remove(owner_type *owner, struct table *table, uint32_t item) { \
        uint32_t mask = table->mask, at = hash_of(owner, item) & mask; \
        while (table->cells[at] != item) at = (at + 1) & mask; \
        table->count--; \
        for (uint32_t next = at;;) { \
            next = (next + 1) & mask; \
            uint32_t moved = table->cells[next]; \
            if (moved == NONE) break; \
            uint32_t home = hash_of(owner, moved) & mask; \
            if (((next - home) & mask) >= ((next - at) & mask)) { \
                table->cells[at] = moved; \
                at = next; \
            } \
        } \
        table->cells[at] = NONE; \
    }

/* Look for an item: `is_equal` is an expression on `item`; the result is NONE if there is no such item. */
#define FIND_IN(table, hash, item, is_equal, result) \
    do { \
        (result) = NONE; \
        if ((table)->cells == NULL) break; \
        for (uint32_t at_ = (hash) & (table)->mask;; at_ = (at_ + 1) & (table)->mask) { \
            uint32_t item = (table)->cells[at_]; \
            if (item == NONE) break; \
            if (is_equal) { \
                (result) = item; \
                break; \
            } \
        } \
    } while (0)

#endif
