/* The reader with expat: what expat reports → calls of a consumer's handlers.

   1. A parser is made for every message, since the table has no function to reset one; its memory is an
      arena of the reader's.
   2. Handlers cannot stop expat. When a limit is exceeded or the consumer ends the reading, a status is kept
      and the handlers ignore what follows. The message is handed over in pieces, each as long as all before
      it, so that expat reads no more than twice what it has read by then, and the cost of tokens that cross
      pieces stays linear (expat before 2.6 begins such a token again with every piece).
   3. A DOCTYPE is looked for before expat is: the entities that it declares could keep expat busy for long.
      The handler remains for what that search would miss.
   4. Without a handler for encodings, expat knows UTF-8, UTF-16, ISO-8859-1 and US-ASCII. Python knows the
      others, and reads those messages itself. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "doctype.h"
#include "expat_table.h"
#include "reader_memory.h"

enum { FIRST_PIECE = 64 * 1024, LARGEST_PIECE = 1 << 30 };

static struct expat_table expat; /* written by expat_load alone */

struct reading {
    struct reader *reader;
    const struct reader_limits *limits;
    const struct handlers *handlers;
    void *consumer;
    size_t depth;
    int status;
};

static struct span span_of(const char *string) {
    return (struct span){string ? string : "", string ? strlen(string) : 0};
}

static int intern(struct reading *reading, const char *expanded, struct name_entry **entry) {
    struct span name = span_of(expanded);
    return name_table_find(&reading->reader->names, name, expanded + name.length + 1, entry);
}

/* Collect the attributes of a start tag in the reader's memory. */
static int collect_attributes(struct reading *reading, const char **pairs, size_t *count) {
    struct growing_array *array = &reading->reader->attributes;
    size_t collected = 0;
    for (; pairs[0]; pairs += 2, collected++) {
        if (collected == reading->limits->attributes) return LIMIT_EXCEEDED;
        if (array_reserve(array, collected + 1, sizeof(struct attribute)) < 0) return OUT_OF_MEMORY;
        struct name_entry *entry;
        int status = intern(reading, pairs[0], &entry);
        if (status != READ) return status;
        ((struct attribute *)array->items)[collected] = (struct attribute){&entry->name, span_of(pairs[1])};
    }
    *count = collected;
    return READ;
}

static void handle_start(void *data, const char *expanded, const char **pairs) {
    struct reading *reading = data;
    if (reading->status) return;
    if (++reading->depth > reading->limits->depth) {
        reading->status = LIMIT_EXCEEDED;
        return;
    }
    struct name_entry *entry;
    size_t count = 0;
    reading->status = intern(reading, expanded, &entry);
    if (!reading->status) reading->status = collect_attributes(reading, pairs, &count);
    if (!reading->status && reading->handlers->start) {
        reading->status = reading->handlers->start(reading->consumer, &entry->name,
                                                   reading->reader->attributes.items, count);
    }
}

static void handle_end(void *data, const char *expanded) {
    (void)expanded;
    struct reading *reading = data;
    if (reading->status) return;
    reading->depth--;
    if (reading->handlers->end) reading->status = reading->handlers->end(reading->consumer);
}

static void handle_text(void *data, const char *bytes, int length) {
    struct reading *reading = data;
    if (reading->status) return;
    reading->status = reading->handlers->text(reading->consumer, bytes, (size_t)length);
}

static void handle_comment(void *data, const char *text) {
    (void)text;
    struct reading *reading = data;
    if (reading->status) return;
    reading->status = reading->handlers->boundary(reading->consumer);
}

static void handle_instruction(void *data, const char *target, const char *text) {
    (void)target;
    handle_comment(data, text);
}

static void handle_declaration(void *data, const char *prefix, const char *uri) {
    struct reading *reading = data;
    if (reading->status) return;
    struct span prefix_span = span_of(prefix), uri_span = span_of(uri);
    size_t longest = reading->limits->name_length;
    if (is_longer(prefix_span, longest) || is_longer(uri_span, longest)) reading->status = LIMIT_EXCEEDED;
    else if (reading->handlers->declare)
        reading->status = reading->handlers->declare(reading->consumer, prefix_span, uri_span);
}

static void handle_doctype(void *data, const char *name, const char *system_id, const char *public_id,
                           int has_internal_subset) {
    (void)name, (void)system_id, (void)public_id, (void)has_internal_subset;
    struct reading *reading = data;
    if (!reading->status) reading->status = HAS_DOCTYPE;
}

static XML_Parser new_parser(const char *encoding, struct reading *reading) {
    XML_Parser parser = expat.parser_create(encoding, &expat_memory_suite, "}");
    if (!parser) return NULL;
    expat.set_hash_salt(parser, (unsigned long)hash_key()->k0);
    expat.set_user_data(parser, reading);
    expat.set_element_handler(parser, handle_start, handle_end);
    expat.set_namespace_declaration_handler(parser, handle_declaration, NULL);
    expat.set_start_doctype_handler(parser, handle_doctype);
    if (reading->handlers->text) expat.set_character_data_handler(parser, handle_text);
    if (reading->handlers->boundary) {
        expat.set_comment_handler(parser, handle_comment);
        expat.set_processing_instruction_handler(parser, handle_instruction);
    }
    return parser;
}

static int status_of_error(int code) {
    if (code == EXPAT_ERROR_NO_MEMORY) return OUT_OF_MEMORY;
    return code == EXPAT_ERROR_UNKNOWN_ENCODING ? UNKNOWN_ENCODING : NOT_WELL_FORMED;
}

static int parse(XML_Parser parser, struct span message, struct reading *reading) {
    size_t done = 0;
    for (;;) {
        size_t piece = done < FIRST_PIECE ? FIRST_PIECE : done < LARGEST_PIECE ? done : LARGEST_PIECE;
        int is_final = piece >= message.length - done;
        if (is_final) piece = message.length - done;
        int parsed = expat.parse(parser, message.bytes + done, (int)piece, is_final);
        if (reading->status) return reading->status;
        if (parsed != EXPAT_STATUS_OK) return status_of_error(expat.get_error_code(parser));
        if (is_final) return READ;
        done += piece;
    }
}

int expat_read(struct reader *reader, struct span message, const char *encoding,
               const struct reader_limits *limits, const struct handlers *handlers, void *consumer) {
    if (begins_with_doctype(message)) return HAS_DOCTYPE;
    struct reading reading = {reader, limits, handlers, consumer, 0, READ};
    struct arena *before = expat_memory_use(&reader->expat_memory);
    reader_begin(reader, limits);
    XML_Parser parser = new_parser(encoding, &reading);
    int status = parser ? parse(parser, message, &reading) : OUT_OF_MEMORY;
    if (parser) expat.parser_free(parser);
    reader_end(reader);
    expat_memory_use(before);
    return status;
}

int expat_load(void) {
    const struct expat_table *table = PyCapsule_Import("pyexpat.expat_CAPI", 0);
    if (!table) return -1;
    if (strcmp(table->magic, "pyexpat.expat_CAPI 1.1") != 0 || table->size < (int)sizeof expat) {
        PyErr_SetString(PyExc_ImportError, "pyexpat's table of functions has a form that is not known");
        return -1;
    }
    if (table->major != 2 || table->minor < 1 || !table->set_hash_salt) {
        PyErr_Format(PyExc_ImportError, "expat %d.%d.%d is not a 2.x from 2.1 on", table->major, table->minor,
                     table->micro);
        return -1;
    }
    /* Copied, since newer Pythons free the table with its capsule; the functions stay in the process. */
    if (!expat.magic) expat = *table;
    return 0;
}
