/* The consumer that makes documents of what readers report. */
#include "document.h"

enum { NO_ROOM = 1 }; /* what handlers return when memory, or a column's numbers, are out */

/* Bytes of a column that are kept for the next message; a large message does not keep memory for ever. */
enum { KEPT_COLUMN = 64 * 1024 };

#define TRY_ROOM(expression) \
    do { \
        if (expression) return NO_ROOM; \
    } while (0)

/* All columns of numbers. */
enum { COLUMNS = 17 };

static void list_columns(struct document_builder *builder, struct numbers *columns[COLUMNS]) {
    struct numbers *all[COLUMNS] = {
        &builder->name,          &builder->parent,          &builder->end,         &builder->text_start,
        &builder->text_end,      &builder->first_attribute, &builder->start,       &builder->stop,
        &builder->attribute_name, &builder->value_stop,     &builder->text_parent, &builder->text_after,
        &builder->text_stop,     &builder->declared_at,     &builder->prefix_stop, &builder->uri_stop,
        &builder->open,
    };
    memcpy(columns, all, sizeof all);
}

struct document_builder *document_builder_new(void) {
    struct document_builder *builder = calloc(1, sizeof *builder);
    if (builder == NULL) return NULL;
    builder->reader = reader_new();
    if (builder->reader != NULL) return builder;
    free(builder);
    return NULL;
}

void document_builder_free(struct document_builder *builder) {
    if (builder == NULL) return;
    struct numbers *columns[COLUMNS];
    list_columns(builder, columns);
    for (int i = 0; i < COLUMNS; i++) FREE_ARRAY(columns[i]);
    FREE_ARRAY(&builder->new_names);
    FREE_ARRAY(&builder->new_name_bytes);
    FREE_ARRAY(&builder->text);
    FREE_ARRAY(&builder->values);
    FREE_ARRAY(&builder->declared);
    reader_free(builder->reader);
    free(builder);
}

void document_builder_forget_names(struct document_builder *builder) {
    builder->version++;
    builder->names = builder->new_names.count = builder->new_name_bytes.count = 0;
}

/* -- handlers -------------------------------------------------------------------------------------------- */

#define APPEND_BYTES(array, bytes, length) \
    ((length) > UINT32_MAX - 1 - (array)->count || RESERVE(array, (array)->count + (uint32_t)(length)) \
         ? -1 \
         : ((length) ? (void)memcpy((array)->items + (array)->count, bytes, length) : (void)0, \
            (array)->count += (uint32_t)(length), 0))

static int number_name(struct document_builder *builder, struct name *name) {
    if (name->symbol != UNRESOLVED) return 0;
    TRY_ROOM(APPEND_BYTES(&builder->new_name_bytes, name->expanded.bytes, name->expanded.length));
    TRY_ROOM(PUSH(&builder->new_names, ((struct new_name){builder->new_name_bytes.count})));
    name->symbol = builder->names++;
    return 0;
}

/* End a text node: at a tag, a comment or a processing instruction. */
static int end_text(struct document_builder *builder) {
    uint32_t nodes = builder->text_stop.count;
    if (builder->text.count == (nodes ? builder->text_stop.items[nodes - 1] : 0)) return 0;
    TRY_ROOM(PUSH(&builder->text_stop, builder->text.count));
    TRY_ROOM(PUSH(&builder->text_parent, builder->open.items[builder->open.count - 1]));
    TRY_ROOM(PUSH(&builder->text_after, builder->name.count - 1));
    return 0;
}

static int add_element(struct document_builder *builder, uint32_t name, uint32_t parent, uint32_t start) {
    TRY_ROOM(PUSH(&builder->open, builder->name.count));
    TRY_ROOM(PUSH(&builder->name, name) || PUSH(&builder->parent, parent) || PUSH(&builder->end, 0));
    TRY_ROOM(PUSH(&builder->text_start, builder->text_stop.count) || PUSH(&builder->text_end, 0));
    TRY_ROOM(PUSH(&builder->first_attribute, builder->attribute_name.count));
    TRY_ROOM(PUSH(&builder->start, start) || PUSH(&builder->stop, 0));
    return 0;
}

static void end_element(struct document_builder *builder, uint32_t stop) {
    uint32_t element = POP(&builder->open);
    builder->end.items[element] = builder->name.count;
    builder->text_end.items[element] = builder->text_stop.count;
    builder->stop.items[element] = stop;
}

static int on_start(void *consumer, struct name *name, const struct attribute *attributes, size_t count) {
    struct document_builder *builder = consumer;
    const struct tag_position *position = builder->tag_position;
    if (end_text(builder) || number_name(builder, name)) return NO_ROOM;
    uint32_t parent = builder->open.items[builder->open.count - 1];
    if (add_element(builder, name->symbol, parent, position ? (uint32_t)position->start : 0)) return NO_ROOM;
    for (size_t i = 0; i < count; i++) {
        if (number_name(builder, attributes[i].name)) return NO_ROOM;
        TRY_ROOM(PUSH(&builder->attribute_name, attributes[i].name->symbol));
        TRY_ROOM(APPEND_BYTES(&builder->values, attributes[i].value.bytes, attributes[i].value.length));
        TRY_ROOM(PUSH(&builder->value_stop, builder->values.count));
    }
    return 0;
}

static int on_end(void *consumer) {
    struct document_builder *builder = consumer;
    const struct tag_position *position = builder->tag_position;
    if (end_text(builder)) return NO_ROOM;
    end_element(builder, position ? (uint32_t)position->stop : 0);
    return 0;
}

static int on_text(void *consumer, const char *bytes, size_t length) {
    struct document_builder *builder = consumer;
    TRY_ROOM(APPEND_BYTES(&builder->text, bytes, length));
    return 0;
}

static int on_boundary(void *consumer) { return end_text(consumer); }

static int on_declaration(void *consumer, struct span prefix, struct span uri) {
    struct document_builder *builder = consumer;
    TRY_ROOM(PUSH(&builder->declared_at, builder->name.count));
    TRY_ROOM(APPEND_BYTES(&builder->declared, prefix.bytes, prefix.length));
    TRY_ROOM(PUSH(&builder->prefix_stop, builder->declared.count));
    TRY_ROOM(APPEND_BYTES(&builder->declared, uri.bytes, uri.length));
    TRY_ROOM(PUSH(&builder->uri_stop, builder->declared.count));
    return 0;
}

/* -- messages -------------------------------------------------------------------------------------------- */

static int begin(struct document_builder *builder) {
    struct numbers *columns[COLUMNS];
    list_columns(builder, columns);
    for (int i = 0; i < COLUMNS; i++) columns[i]->count = 0;
    builder->text.count = builder->values.count = builder->declared.count = 0;
    return add_element(builder, NONE, NONE, 0);
}

/* Copy a column behind the others. */
static uint32_t *move_column(const struct numbers *column, uint32_t **at) {
    uint32_t *copy = *at;
    if (column->count) memcpy(copy, column->items, (size_t)column->count * 4);
    *at += column->count;
    return copy;
}

static int make_document(struct document_builder *builder, struct document *document) {
    struct numbers *columns[COLUMNS];
    list_columns(builder, columns);
    size_t numbers = 0, bytes = (size_t)builder->text.count + builder->values.count + builder->declared.count;
    for (int i = 0; i < COLUMNS; i++) numbers += columns[i]->count;
    if (numbers > (SIZE_MAX - bytes) / 4) return NO_ROOM;
    uint32_t *at = malloc(numbers * 4 + bytes);
    if (at == NULL) return NO_ROOM;
    *document = (struct document){
        .block = at,
        .elements = builder->name.count,
        .attributes = builder->attribute_name.count,
        .texts = builder->text_stop.count,
        .declarations = builder->declared_at.count,
        .has_spans = builder->tag_position != NULL,
    };
    document->name = move_column(&builder->name, &at);
    document->parent = move_column(&builder->parent, &at);
    document->end = move_column(&builder->end, &at);
    document->text_start = move_column(&builder->text_start, &at);
    document->text_end = move_column(&builder->text_end, &at);
    document->first_attribute = move_column(&builder->first_attribute, &at);
    document->start = move_column(&builder->start, &at);
    document->stop = move_column(&builder->stop, &at);
    document->attribute_name = move_column(&builder->attribute_name, &at);
    document->value_stop = move_column(&builder->value_stop, &at);
    document->text_parent = move_column(&builder->text_parent, &at);
    document->text_after = move_column(&builder->text_after, &at);
    document->text_stop = move_column(&builder->text_stop, &at);
    document->declared_at = move_column(&builder->declared_at, &at);
    document->prefix_stop = move_column(&builder->prefix_stop, &at);
    document->uri_stop = move_column(&builder->uri_stop, &at);
    document->text = (char *)at;
    document->values = document->text + builder->text.count;
    if (builder->text.count) memcpy(document->text, builder->text.items, builder->text.count);
    if (builder->values.count) memcpy(document->values, builder->values.items, builder->values.count);
    document->declared = document->values + builder->values.count;
    if (builder->declared.count) memcpy(document->declared, builder->declared.items, builder->declared.count);
    return 0;
}

/* Free what a large message has made large. */
static void trim(struct document_builder *builder) {
    struct numbers *columns[COLUMNS];
    list_columns(builder, columns);
    for (int i = 0; i < COLUMNS; i++) {
        if (columns[i]->room > KEPT_COLUMN / 4) FREE_ARRAY(columns[i]);
    }
    if (builder->text.room > KEPT_COLUMN) FREE_ARRAY(&builder->text);
    if (builder->values.room > KEPT_COLUMN) FREE_ARRAY(&builder->values);
    if (builder->declared.room > KEPT_COLUMN) FREE_ARRAY(&builder->declared);
}

/* Read the message once by one reader. */
static int run(struct document_builder *builder, struct span message, const char *encoding,
               const struct document_options *options, int tokenizer) {
    struct handlers handlers = {on_start, on_end, NULL, NULL, NULL};
    if (options->with_text) {
        handlers.text = on_text;
        handlers.boundary = on_boundary;
    }
    if (options->with_source) handlers.declare = on_declaration;
    if (begin(builder)) return NO_ROOM;
    struct reader *reader = builder->reader;
    reader_keep_symbols(reader, builder->version);
    builder->tag_position = tokenizer ? reader_tag_position(reader) : NULL;
    if (tokenizer) return tokenizer_read(reader, message, &options->limits, &handlers, builder);
    return expat_read(reader, message, encoding, &options->limits, &handlers, builder);
}

int document_read(struct document *document, struct document_builder *builder, struct span message,
                  const char *encoding, const struct document_options *options) {
    int status = GAVE_UP;
    if (options->tokenizer) status = run(builder, message, encoding, options, 1);
    if (status == GAVE_UP) status = run(builder, message, encoding, options, 0);
    if (status == READ) {
        end_element(builder, (uint32_t)message.length);
        if (PUSH(&builder->first_attribute, builder->attribute_name.count)) status = NO_ROOM;
        else status = make_document(builder, document);
    }
    trim(builder);
    return status == NO_ROOM ? OUT_OF_MEMORY : status;
}

void document_free(struct document *document) {
    free(document->block);
    document->block = NULL;
}
