#include "reader_memory.h"

static void forget_names(struct reader *reader) {
    qualified_names_clear(&reader->qualified);
    name_table_clear(&reader->names);
}

struct reader *reader_new(void) {
    struct reader *reader = calloc(1, sizeof *reader);
    if (!reader) return NULL;
    reader->qualified.names = &reader->names;
    forget_names(reader);
    return reader;
}

const struct tag_position *reader_tag_position(const struct reader *reader) { return &reader->tag_position; }

void reader_keep_symbols(struct reader *reader, uint64_t version) {
    if (!reader->has_version || reader->version != version) reader->names.epoch++;
    reader->keeps_symbols = reader->has_version = 1;
    reader->version = version;
}

void reader_begin(struct reader *reader, const struct reader_limits *limits) {
    if (!reader->keeps_symbols) {
        reader->names.epoch++;
        reader->has_version = 0;
    }
    reader->keeps_symbols = 0;
    if (reader->names.name_length == limits->name_length) return;
    forget_names(reader); /* the names that are there were checked against another limit */
    reader->names.name_length = limits->name_length;
}

void reader_end(struct reader *reader) {
    qualified_names_trim(&reader->qualified);
    if (name_table_is_large(&reader->names)) forget_names(reader);
    arena_clear(&reader->expat_memory);
    array_trim(&reader->attributes, sizeof(struct attribute));
    array_trim(&reader->deferred, sizeof(struct deferred_attribute));
    array_trim(&reader->normalized, 1);
    array_trim(&reader->open, sizeof(struct open_element));
}

void reader_free(struct reader *reader) {
    if (!reader) return;
    qualified_names_free(&reader->qualified);
    name_table_free(&reader->names);
    arena_free(&reader->expat_memory);
    free(reader->attributes.items);
    free(reader->deferred.items);
    free(reader->normalized.items);
    free(reader->open.items);
    free(reader);
}
