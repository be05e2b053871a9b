#include "string_table.h"

static inline uint32_t entry_hash(const struct string_table *strings, uint32_t number) {
    return strings->entries.items[number].hash;
}

TABLE_FUNCTIONS(strings, const struct string_table, entry_hash)

void strings_init(struct string_table *strings, struct hash_key key) {
    memset(strings, 0, sizeof *strings);
    strings->key = key;
}

void strings_free(struct string_table *strings) {
    free_table(&strings->table);
    FREE_ARRAY(&strings->block);
    FREE_ARRAY(&strings->entries);
    FREE_ARRAY(&strings->free);
    FREE_ARRAY(&strings->retired);
}

/* Move all strings together when half of the block is waste. */
static void compact(struct string_table *strings) {
    char *block = malloc(strings->block.count ? strings->block.count : 1);
    if (block == NULL) return; /* the waste stays */
    uint32_t end = 0;
    for (uint32_t i = 0; i < strings->entries.count; i++) {
        struct string_entry *entry = &strings->entries.items[i];
        if (entry->uses == 0) continue;
        memcpy(block + end, strings->block.items + entry->offset, entry->length);
        entry->offset = end;
        end += entry->length;
    }
    free(strings->block.items);
    strings->block.items = block;
    strings->block.room = strings->block.count ? strings->block.count : 1;
    strings->block.count = end;
    strings->wasted = 0;
}

uint32_t strings_use(struct string_table *strings, struct span text) {
    uint32_t number = strings_find(strings, text);
    if (number != NONE) {
        strings->entries.items[number].uses++;
        return number;
    }
    if (text.length >= NONE - strings->block.count) return NONE;
    uint32_t length = (uint32_t)text.length, offset = strings->block.count;
    if (RESERVE(&strings->block, offset + length)) return NONE;
    if (strings->free.count) {
        number = POP(&strings->free);
    } else {
        if (RESERVE(&strings->entries, strings->entries.count + 1)) return NONE;
        number = strings->entries.count++;
    }
    if (length) memcpy(strings->block.items + offset, text.bytes, length);
    strings->block.count += length;
    strings->entries.items[number] = (struct string_entry){offset, length, strings_hash(strings, text), 1};
    if (strings_insert(strings, &strings->table, number)) return NONE;
    return number;
}

void strings_release(struct string_table *strings, uint32_t number) {
    struct string_entry *entry = &strings->entries.items[number];
    if (--entry->uses) return;
    strings_remove(strings, &strings->table, number);
    strings->wasted += entry->length;
    (void)PUSH(&strings->retired, number); /* if memory is out, the number is merely not used again */
    if (strings->wasted > 2048 && strings->wasted * 2 > strings->block.count) compact(strings);
}

void strings_recycle(struct string_table *strings) {
    while (strings->retired.count) (void)PUSH(&strings->free, POP(&strings->retired));
}
