/* Sorting of small numbers, as slots and rows are.

   Many of them are marked in a bitmap, from which they come in order: a pass over one bit for each number that
   could be there is faster than sorting unless very few are. */
#ifndef SAPWOOD_ORDERED_NUMBERS_H
#define SAPWOOD_ORDERED_NUMBERS_H

#include "arrays.h"

static int compare_numbers(const void *one, const void *other) {
    uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return (a > b) - (a < b);
}

/* How many bits are written at once. Most words have less, and what is written for bits that are not there is
   overwritten next: this is faster than a loop that ends at a place which cannot be predicted. */
enum { AT_ONCE = 4 };

/* Write the numbers of the bits of a word, and perhaps AT_ONCE more, and return where to go on. */
static inline uint32_t *write_bits(uint32_t *next, uint64_t word, uint32_t first) {
    uint32_t count = count_bits(word);
    for (uint32_t i = 0; i < AT_ONCE; i++) {
        next[i] = first + lowest_bit(word | (uint64_t)1 << 63);
        word &= word - 1;
    }
    if (count > AT_ONCE) {
        uint32_t i = AT_ONCE;
        for (; word; word &= word - 1) next[i++] = first + lowest_bit(word);
    }
    return next + count;
}

/* Return a bitmap for numbers below a limit; NULL: memory is out. */
static inline uint64_t *new_bitmap(uint32_t limit) { return calloc(limit / 64 + 1, sizeof(uint64_t)); }

/* List what is marked in a bitmap; the caller has reserved AT_ONCE more than that. */
static inline void read_bitmap(const uint64_t *bits, uint32_t limit, struct numbers *numbers) {
    uint32_t *next = numbers->items;
    for (uint32_t word = 0; word <= limit / 64; word++) next = write_bits(next, bits[word], word * 64);
    numbers->count = (uint32_t)(next - numbers->items);
}

/* Return whether sorting so many numbers is faster than a bitmap. */
static inline int are_few(uint32_t count, uint32_t limit) { return limit / 64 / 16 > count; }

/* Sort numbers below a limit, and keep each once. */
static inline int order_numbers(struct numbers *numbers, uint32_t limit) {
    if (are_few(numbers->count, limit)) {
        if (numbers->count < 2) return 0;
        qsort(numbers->items, numbers->count, sizeof *numbers->items, compare_numbers);
        uint32_t kept = 1;
        for (uint32_t i = 1; i < numbers->count; i++) {
            if (numbers->items[i] != numbers->items[kept - 1]) numbers->items[kept++] = numbers->items[i];
        }
        numbers->count = kept;
        return 0;
    }
    uint64_t *bits = new_bitmap(limit);
    if (bits == NULL || RESERVE(numbers, numbers->count + AT_ONCE)) return free(bits), -1;
    for (uint32_t i = 0; i < numbers->count; i++) bits[numbers->items[i] / 64] |= (uint64_t)1 << numbers->items[i] % 64;
    read_bitmap(bits, limit, numbers);
    free(bits);
    return 0;
}

#endif
