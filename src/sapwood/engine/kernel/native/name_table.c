#include "name_table.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 256, KEPT_CAPACITY = 4096 };

static size_t slot_of(const struct name_slot *slots, size_t capacity, uint32_t generation, uint64_t hash,
                      struct span expanded) {
    size_t mask = capacity - 1;
    size_t slot = (size_t)hash & mask;
    uint32_t high = (uint32_t)(hash >> 32);
    for (; slots[slot].generation == generation; slot = (slot + 1) & mask) {
        if (slots[slot].hash != high) continue;
        struct span other = slots[slot].entry->name.expanded;
        if (other.length != expanded.length) continue;
        if (memcmp(other.bytes, expanded.bytes, expanded.length) == 0) break;
    }
    return slot;
}

/* Make room for one more name, at most half of the slots being occupied. */
static int grow(struct name_table *table) {
    if (table->count < table->capacity / 2) return 0;
    size_t capacity = table->capacity ? 2 * table->capacity : FIRST_CAPACITY;
    if (capacity > SIZE_MAX / sizeof(struct name_slot)) return -1;
    struct name_slot *slots = calloc(capacity, sizeof *slots);
    if (!slots) return -1;
    for (size_t i = 0; i < table->capacity; i++) {
        if (table->slots[i].generation != table->generation) continue;
        struct span expanded = table->slots[i].entry->name.expanded;
        uint64_t hash = siphash(hash_key(), expanded.bytes, expanded.length);
        size_t slot = (size_t)hash & (capacity - 1);
        while (slots[slot].generation) slot = (slot + 1) & (capacity - 1);
        slots[slot] = (struct name_slot){1, (uint32_t)(hash >> 32), table->slots[i].entry};
    }
    free(table->slots);
    table->slots = slots;
    table->capacity = capacity;
    table->generation = 1;
    return 0;
}

static struct name_entry *new_entry(struct name_table *table, struct span expanded,
                                    enum name_lifetime lifetime) {
    size_t copied = lifetime == NAME_TEMPORARY ? expanded.length : 0;
    if (copied > SIZE_MAX - sizeof(struct name_entry)) return NULL;
    struct name_entry *entry = arena_allocate(&table->arena, sizeof *entry + copied);
    if (!entry) return NULL;
    if (lifetime == NAME_TEMPORARY) {
        memcpy(entry + 1, expanded.bytes, expanded.length);
        expanded.bytes = (const char *)(entry + 1);
    }
    /* No name character is a `}`; a namespace may hold some with an old expat. */
    size_t uri_length = expanded.length;
    while (uri_length && expanded.bytes[uri_length - 1] != '}') uri_length--;
    entry->name.expanded = expanded;
    entry->name.uri_length = uri_length ? (uint32_t)(uri_length - 1) : 0;
    entry->name.symbol = UNRESOLVED;
    entry->tag = 0;
    return entry;
}

int name_table_intern(struct name_table *table, struct span expanded, enum name_lifetime lifetime,
                      size_t name_length, struct name_entry **entry) {
    if (grow(table) < 0) return OUT_OF_MEMORY;
    uint64_t hash = siphash(hash_key(), expanded.bytes, expanded.length);
    size_t slot = slot_of(table->slots, table->capacity, table->generation, hash, expanded);
    if (table->slots[slot].generation == table->generation) {
        *entry = table->slots[slot].entry;
        return READ;
    }
    /* Once for every distinct name is enough. */
    if (expanded.length > UINT32_MAX || is_longer(expanded, name_length)) return LIMIT_EXCEEDED;
    *entry = new_entry(table, expanded, lifetime);
    if (!*entry) return OUT_OF_MEMORY;
    table->slots[slot] = (struct name_slot){table->generation, (uint32_t)(hash >> 32), *entry};
    table->count++;
    return READ;
}

void name_table_clear(struct name_table *table) {
    arena_clear(&table->arena);
    table->count = 0;
    if (table->capacity > KEPT_CAPACITY) {
        free(table->slots);
        table->slots = NULL;
        table->capacity = 0;
    } else if (++table->generation == 0) {
        if (table->slots) memset(table->slots, 0, table->capacity * sizeof *table->slots);
        table->generation = 1;
    }
}

void name_table_free(struct name_table *table) {
    arena_free(&table->arena);
    free(table->slots);
    *table = (struct name_table){0};
}

int is_longer(struct span text, size_t limit) {
    if (text.length <= limit) return 0;
    size_t characters = 0;
    for (size_t i = 0; i < text.length; i++) characters += ((unsigned char)text.bytes[i] & 0xC0) != 0x80;
    return characters > limit;
}
