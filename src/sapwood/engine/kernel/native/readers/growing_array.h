/* An array that grows by doubling and is used again from message to message: `items` has room for `capacity`
   of them. Whoever uses it knows their size and their number. */
#ifndef SAPWOOD_GROWING_ARRAY_H
#define SAPWOOD_GROWING_ARRAY_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum { KEPT_BYTES = 64 * 1024 };

struct growing_array {
    void *items;
    size_t capacity;
};

/* Make room for `count` items of `size` bytes. Return 0, or -1 without memory; the items stay. */
static inline int array_reserve(struct growing_array *array, size_t count, size_t size) {
    if (count <= array->capacity) return 0;
    size_t capacity = array->capacity ? array->capacity : 16;
    while (capacity < count) {
        if (capacity > SIZE_MAX / 2) return -1;
        capacity *= 2;
    }
    if (capacity > SIZE_MAX / size) return -1;
    void *items = realloc(array->items, capacity * size);
    if (!items) return -1;
    array->items = items;
    array->capacity = capacity;
    return 0;
}

/* Free an array that a message has made larger than KEPT_BYTES. */
static inline void array_trim(struct growing_array *array, size_t size) {
    if (array->capacity <= KEPT_BYTES / size) return;
    free(array->items);
    *array = (struct growing_array){0};
}

#endif
