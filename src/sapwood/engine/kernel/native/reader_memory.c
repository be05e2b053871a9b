#include "reader_memory.h"

#include <stdlib.h>

int array_reserve(struct growing_array *array, size_t count, size_t size) {
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

void array_trim(struct growing_array *array, size_t size) {
    if (array->capacity <= KEPT_BYTES / size) return;
    free(array->items);
    *array = (struct growing_array){0};
}

struct reader *reader_new(void) { return calloc(1, sizeof(struct reader)); }

void reader_clear(struct reader *reader) {
    name_table_clear(&reader->names);
    array_trim(&reader->attributes, sizeof(struct attribute));
}

void reader_free(struct reader *reader) {
    if (!reader) return;
    name_table_free(&reader->names);
    free(reader->attributes.items);
    free(reader);
}
