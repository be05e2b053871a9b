#include "name_table.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 256, KEPT_CAPACITY = 8192, KEPT_NAMES = KEPT_CAPACITY / 2 };

static size_t slot_of(const struct name_table *table, uint64_t hash, struct span expanded) {
    size_t mask = table->capacity - 1;
    size_t slot = (size_t)hash & mask;
    uint32_t high = (uint32_t)(hash >> 32);
    for (; table->slots[slot].generation == table->generation; slot = (slot + 1) & mask) {
        if (table->slots[slot].hash != high) continue;
        struct span other = table->slots[slot].entry->name.expanded;
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
        size_t slot = (size_t)table->slots[i].entry->hash & (capacity - 1);
        while (slots[slot].generation) slot = (slot + 1) & (capacity - 1);
        slots[slot] = table->slots[i];
    }
    free(table->slots);
    table->slots = slots;
    table->capacity = capacity;
    return 0;
}

static struct name_entry *new_entry(struct name_table *table, struct span expanded, uint64_t hash) {
    if (expanded.length > SIZE_MAX - sizeof(struct name_entry)) return NULL;
    struct name_entry *entry = arena_allocate(&table->arena, sizeof *entry + expanded.length);
    if (!entry) return NULL;
    char *bytes = (char *)(entry + 1);
    memcpy(bytes, expanded.bytes, expanded.length);
    /* No name character is a `}`; a namespace may hold some with an old expat. */
    size_t separator = expanded.length;
    while (separator && bytes[separator - 1] != '}') separator--;
    *entry = (struct name_entry){
        .name = {{bytes, expanded.length}, separator ? (uint32_t)(separator - 1) : 0, UNRESOLVED},
        .hash = hash,
        .epoch = table->epoch,
    };
    return entry;
}

int name_table_intern(struct name_table *table, struct span expanded, uint64_t hash,
                      struct name_entry **entry) {
    if (grow(table) < 0) return OUT_OF_MEMORY;
    size_t slot = slot_of(table, hash, expanded);
    if (table->slots[slot].generation == table->generation) {
        *entry = table->slots[slot].entry;
        refresh_symbol(table, *entry);
        return READ;
    }
    if (expanded.length > UINT32_MAX || is_longer(expanded, table->name_length)) return LIMIT_EXCEEDED;
    *entry = new_entry(table, expanded, hash);
    if (!*entry) return OUT_OF_MEMORY;
    table->slots[slot] = (struct name_slot){table->generation, (uint32_t)(hash >> 32), *entry};
    table->count++;
    return READ;
}

int name_table_is_large(const struct name_table *table) {
    return table->count > KEPT_NAMES || table->arena.given > ARENA_KEPT;
}

void name_table_clear(struct name_table *table) {
    arena_clear(&table->arena);
    table->count = 0;
    if (table->capacity > KEPT_CAPACITY) {
        free(table->slots);
        table->slots = NULL;
        table->capacity = 0;
    }
    if (++table->generation == 0) {
        if (table->slots) memset(table->slots, 0, table->capacity * sizeof *table->slots);
        memset(table->recent, 0, sizeof table->recent);
        table->generation = 1;
    }
}

void name_table_free(struct name_table *table) {
    arena_free(&table->arena);
    free(table->slots);
}

int is_longer(struct span text, size_t limit) {
    if (text.length <= limit) return 0;
    size_t characters = 0;
    for (size_t i = 0; i < text.length; i++) characters += ((unsigned char)text.bytes[i] & 0xC0) != 0x80;
    return characters > limit;
}
