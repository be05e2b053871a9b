/* The memory of a reader, which is used again from message to message.

   Both readers share the name table and the attributes of the current start tag. What a message makes larger
   than KEPT_BYTES is freed when that message has been read. */
#ifndef SAPWOOD_READER_MEMORY_H
#define SAPWOOD_READER_MEMORY_H

#include "name_table.h"
#include "reader.h"

enum { KEPT_BYTES = 64 * 1024 };

/* An array that grows by doubling: `items` has room for `capacity` of them. */
struct growing_array {
    void *items;
    size_t capacity;
};

/* Make room for `count` items of `size` bytes. Return 0, or -1 without memory; the items stay. */
int array_reserve(struct growing_array *array, size_t count, size_t size);

/* Free an array that has grown beyond KEPT_BYTES. */
void array_trim(struct growing_array *array, size_t size);

struct reader {
    struct name_table names;
    struct growing_array attributes; /* struct attribute, of the current start tag */
};

/* Forget a message. */
void reader_clear(struct reader *reader);

#endif
