#include "query_pack.h"

#include "query_spec.h"

enum { FLAG_BINDS = 1, FLAG_SHARED = 2 };
enum { ELEMENT_TARGET, VALUE_TARGET, TEXT_TARGET, FIRST_NAME_TARGET };

/* The numbers of operators in a pack. */
static const uint8_t packed_operators[] = {
    [EXISTS] = 0,        [EQUAL] = 1, [UNEQUAL] = 2,  [CONTAINS] = 7, [STARTS_WITH] = 8, [NUMBER_EQUAL] = 17,
    [NUMBER_UNEQUAL] = 18, [LESS] = 19, [AT_MOST] = 20, [MORE] = 21,    [AT_LEAST] = 22,
};
enum { OPERATORS = sizeof packed_operators / sizeof *packed_operators };

/* -- packing ------------------------------------------------------------------------------------------------ */

struct pack_writer {
    const struct automaton *automaton;
    struct ARRAY_OF(int32_t) code;
    struct ARRAY_OF(double) numbers;
    PyObject *strings;
    uint32_t *names, *constants; /* their numbers among the strings; NONE: not yet there */
};

static int write_number(struct pack_writer *writer, uint32_t number) {
    if (PUSH(&writer->code, (int32_t)number) == 0) return 0;
    PyErr_NoMemory();
    return -1;
}

/* Write a string of a table, which is added to the strings at its first occurrence; `base` is added to it. */
static int write_string(struct pack_writer *writer, const struct string_table *table, uint32_t *places,
                        uint32_t number, uint32_t base) {
    if (places[number] == NONE) {
        struct span text = strings_text(table, number);
        PyObject *string = PyUnicode_DecodeUTF8(text.bytes, (Py_ssize_t)text.length, "surrogatepass");
        int failed = string == NULL || PyList_Append(writer->strings, string);
        Py_XDECREF(string);
        if (failed) return -1;
        places[number] = (uint32_t)PyList_GET_SIZE(writer->strings) - 1;
    }
    return write_number(writer, base + places[number]);
}

static int write_path(struct pack_writer *writer, uint32_t state) {
    const struct trie_state *states = writer->automaton->trie.states.items;
    uint32_t length = 0, symbols[256];
    for (uint32_t at = state; at != ROOT; at = states[at].parent) length++;
    uint32_t *path = length <= 256 ? symbols : PyMem_Malloc(length * sizeof *path);
    if (path == NULL) return PyErr_NoMemory(), -1;
    for (uint32_t at = state, i = length; at != ROOT; at = states[at].parent) path[--i] = states[at].symbol;
    int failed = write_number(writer, length);
    for (uint32_t i = 0; i < length && !failed; i++)
        failed = write_string(writer, &writer->automaton->names, writer->names, path[i], 0);
    if (path != symbols) PyMem_Free(path);
    return failed;
}

static int write_target(struct pack_writer *writer, uint32_t target) {
    if (target == TARGET_VALUE) return write_number(writer, VALUE_TARGET);
    if (target == TARGET_TEXT) return write_number(writer, TEXT_TARGET);
    return write_string(writer, &writer->automaton->names, writer->names, target, FIRST_NAME_TARGET);
}

static int write_leaf(struct pack_writer *writer, uint8_t kind, uint8_t operator, uint32_t source,
                      uint32_t constant, double number) {
    const struct predicate_indexes *predicates = &writer->automaton->predicates;
    if (kind == ELEMENT_PART)
        return write_path(writer, source) || write_number(writer, ELEMENT_TARGET) || write_number(writer, 0) ? -1 : 0;
    const struct predicate_index *index = &predicates->items.items[source];
    if (write_path(writer, index->state) || write_target(writer, index->target) ||
        write_number(writer, packed_operators[operator]))
        return -1;
    if (operator == EXISTS) return 0;
    if (operator < NUMBER_EQUAL)
        return write_string(writer, &predicates->constants, writer->constants, constant & ~PREFIX_CONSTANT, 0);
    if (operator == NUMBER_EQUAL) number = predicates->number_entries.items[constant & ~NUMBER_CONSTANT].value;
    if (PUSH(&writer->numbers, number)) return PyErr_NoMemory(), -1;
    return write_number(writer, writer->numbers.count - 1);
}

static int write_twig(struct pack_writer *writer, uint32_t twig) {
    const struct twigs *twigs = &writer->automaton->twigs;
    const struct numbers *parts = &twigs->items.items[twig].parts;
    uint32_t step = twigs->anchorings.items[parts->items[0]].step;
    int failed = write_number(writer, ~step) || write_number(writer, parts->count);
    for (uint32_t i = 0; i < parts->count && !failed; i++) {
        const struct anchoring *part = &twigs->anchorings.items[parts->items[i]];
        failed = part->kind == TWIG_PART
                     ? write_twig(writer, part->source)
                     : write_leaf(writer, part->kind, part->operator, part->source, part->constant, part->number);
    }
    return failed;
}

static int write_query(struct pack_writer *writer, uint32_t number, const struct slot *slot) {
    const struct part *parts = writer->automaton->parts.items;
    uint32_t flags = (slot->flags & BINDS ? FLAG_BINDS : 0) | (slot->flags & SHARED ? FLAG_SHARED : 0), count = 0;
    for (uint32_t at = slot->part; !(slot->flags & CLASSED) && at != NONE; at = parts[at].next) count++;
    if (write_number(writer, number) || write_number(writer, flags) || write_number(writer, slot->weight) ||
        write_number(writer, slot->flags & CLASSED ? 1 : count))
        return -1;
    if (slot->flags & CLASSED) return write_leaf(writer, ELEMENT_PART, EXISTS, slot->part, NONE, 0);
    int failed = 0;
    for (uint32_t at = slot->part; at != NONE && !failed; at = parts[at].next) {
        const struct part *part = &parts[at];
        failed = part->kind == TWIG_PART
                     ? write_twig(writer, part->source)
                     : write_leaf(writer, part->kind, part->operator, part->source, part->constant, part->number);
    }
    return failed;
}

static uint32_t *new_places(uint32_t count) {
    uint32_t *places = PyMem_Malloc(((size_t)count + 1) * sizeof *places);
    if (places != NULL) memset(places, 0xff, ((size_t)count + 1) * sizeof *places);
    return places;
}

static PyObject *bytes_of(const void *items, uint32_t count, size_t size) {
    return PyBytes_FromStringAndSize(count ? items : "", (Py_ssize_t)(count * size));
}

PyObject *pack_queries(const struct automaton *automaton) {
    struct pack_writer writer = {.automaton = automaton, .strings = PyList_New(0)};
    writer.names = new_places(automaton->names.entries.count);
    writer.constants = new_places(automaton->predicates.constants.entries.count);
    int failed = writer.strings == NULL || writer.names == NULL || writer.constants == NULL;
    if (failed) PyErr_NoMemory();
    for (uint32_t number = 0; number < automaton->slots.count && !failed; number++) {
        const struct slot *slot = &automaton->slots.items[number];
        if (slot->flags & IN_USE) failed = write_query(&writer, number, slot);
    }
    PyObject *packed = NULL;
    if (!failed)
        packed = Py_BuildValue("(NON)", bytes_of(writer.code.items, writer.code.count, sizeof *writer.code.items),
                               writer.strings,
                               bytes_of(writer.numbers.items, writer.numbers.count, sizeof *writer.numbers.items));
    FREE_ARRAY(&writer.code);
    FREE_ARRAY(&writer.numbers);
    PyMem_Free(writer.names);
    PyMem_Free(writer.constants);
    Py_XDECREF(writer.strings);
    return packed;
}

/* -- unpacking ---------------------------------------------------------------------------------------------- */

int packed_queries_open(struct packed_queries *packed, PyObject *strings) {
    packed->strings = NULL;
    packed->kept = PyList_AsTuple(strings); /* which nobody can change */
    if (packed->kept == NULL) return -1;
    PyObject *path = packed->kept;
    packed->kept = path_spec_new(path, &packed->strings, &packed->string_count);
    if (packed->kept != NULL && PyList_Append(packed->kept, path)) Py_CLEAR(packed->kept);
    Py_DECREF(path);
    return packed->kept == NULL ? -1 : 0;
}

void packed_queries_close(struct packed_queries *packed) {
    PyBuffer_Release(&packed->code);
    PyBuffer_Release(&packed->numbers);
    PyMem_Free(packed->strings);
    Py_XDECREF(packed->kept);
}

/* What is left to be read of the code, and the memory of the query that is read. */
struct pack_reader {
    const struct packed_queries *packed;
    const int32_t *at, *end;
    struct ARRAY_OF(void *) blocks;
};

static void *allocate(struct pack_reader *reader, size_t count, size_t size) {
    void *block = calloc(count ? count : 1, size);
    if (block == NULL || PUSH(&reader->blocks, block)) {
        free(block);
        return NULL;
    }
    return block;
}

static void free_blocks(struct pack_reader *reader) {
    while (reader->blocks.count) free(POP(&reader->blocks));
}

/* Read a number that is at least 0 and below a limit. */
static int read_number(struct pack_reader *reader, size_t limit, uint32_t *number) {
    if (reader->at == reader->end || *reader->at < 0 || (size_t)*reader->at >= limit) return DAMAGED_PACK;
    *number = (uint32_t)*reader->at++;
    return 0;
}

static int read_string(struct pack_reader *reader, struct span *text) {
    uint32_t number;
    int status = read_number(reader, reader->packed->string_count, &number);
    if (status == 0) *text = reader->packed->strings[number];
    return status;
}

static int read_test(struct pack_reader *reader, struct test *test) {
    uint32_t packed, number;
    int status = read_number(reader, INT32_MAX, &packed);
    if (status) return status;
    uint32_t operator = 0;
    while (operator < OPERATORS && packed_operators[operator] != packed) operator++;
    if (operator == OPERATORS) return DAMAGED_PACK;
    test->operator= (enum test_operator)operator;
    if (operator == EXISTS) return 0;
    if (operator < NUMBER_EQUAL) return read_string(reader, &test->text);
    status = read_number(reader, (size_t)reader->packed->numbers.len / 8, &number);
    if (status == 0) memcpy(&test->number, (const char *)reader->packed->numbers.buf + (size_t)number * 8, 8);
    return status;
}

static int read_leaf(struct pack_reader *reader, struct leaf_spec *leaf) {
    uint32_t target;
    int status = read_number(reader, (size_t)(reader->end - reader->at), &leaf->path_length);
    if (status) return status;
    struct span *path = allocate(reader, leaf->path_length, sizeof *path);
    if (path == NULL) return -1;
    leaf->path = path;
    for (uint32_t i = 0; i < leaf->path_length && !status; i++) status = read_string(reader, &path[i]);
    if (status == 0) status = read_number(reader, (size_t)reader->packed->string_count + FIRST_NAME_TARGET, &target);
    if (status) return status;
    static const struct span known[] = {{"", 0}, {".", 1}, {"text()", 6}};
    if (target < FIRST_NAME_TARGET) {
        leaf->target = known[target];
    } else {
        struct span name = reader->packed->strings[target - FIRST_NAME_TARGET];
        char *written = allocate(reader, name.length + 1, 1);
        if (written == NULL) return -1;
        written[0] = '@';
        memcpy(written + 1, name.bytes, name.length);
        leaf->target = (struct span){written, name.length + 1};
    }
    return read_test(reader, &leaf->test);
}

static int read_parts(struct pack_reader *reader, uint32_t depth, const struct part_spec **made, uint32_t *count);

enum { MOST_NESTED = 1000 };

static int is_descendant(const struct span *symbol) {
    return symbol->length == 2 && memcmp(symbol->bytes, "//", 2) == 0;
}

/* Return whether a path is one: `//` is followed by a name test. */
static int is_path(const struct leaf_spec *leaf) {
    for (uint32_t i = 0; i < leaf->path_length; i++) {
        if (is_descendant(&leaf->path[i]) && (i + 1 == leaf->path_length || is_descendant(&leaf->path[i + 1]))) return 0;
    }
    return 1;
}

/* Return whether a part begins at an anchor so many steps down. */
static int passes_anchor(const struct part_spec *part, uint32_t step) {
    if (part->kind == TWIG_SPEC) return part->step >= step;
    uint32_t steps = 0;
    for (uint32_t i = 0; i < part->leaf.path_length; i++) steps += !is_descendant(&part->leaf.path[i]);
    return steps >= step;
}

static int read_part(struct pack_reader *reader, uint32_t depth, struct part_spec *part) {
    if (reader->at < reader->end && *reader->at < 0) {
        part->kind = TWIG_SPEC;
        part->step = ~(uint32_t)*reader->at++;
        if (depth == MOST_NESTED) return DAMAGED_PACK;
        int status = read_parts(reader, depth + 1, &part->parts, &part->count);
        if (status == 0 && part->count == 0) status = DAMAGED_PACK;
        for (uint32_t i = 0; status == 0 && i < part->count; i++) {
            if (!passes_anchor(&part->parts[i], part->step)) status = DAMAGED_PACK;
        }
        return status;
    }
    part->kind = LEAF_SPEC;
    int status = read_leaf(reader, &part->leaf);
    return status == 0 && !is_path(&part->leaf) ? DAMAGED_PACK : status;
}

static int read_parts(struct pack_reader *reader, uint32_t depth, const struct part_spec **made, uint32_t *count) {
    int status = read_number(reader, (size_t)(reader->end - reader->at), count);
    if (status) return status;
    struct part_spec *parts = allocate(reader, *count, sizeof *parts);
    if (parts == NULL) return -1;
    for (uint32_t i = 0; i < *count && !status; i++) status = read_part(reader, depth, &parts[i]);
    *made = parts;
    return status;
}

static int register_packed(struct automaton *automaton, uint32_t slot, uint32_t flags, const struct part_spec *parts,
                           uint32_t count) {
    if (!(flags & FLAG_SHARED)) return automaton_register(automaton, slot, parts, count, flags & FLAG_BINDS);
    if (count != 1 || parts->kind != LEAF_SPEC) return DAMAGED_PACK;
    uint32_t used = slot;
    int failed = automaton_register_path(automaton, &used, parts->leaf.path, parts->leaf.path_length);
    return failed ? -1 : used == slot ? 0 : DAMAGED_PACK;
}

int unpack_queries(struct automaton *automaton, const struct packed_queries *packed) {
    const int32_t *code = packed->code.buf;
    struct pack_reader reader = {packed, code, code + packed->code.len / 4, {NULL, 0, 0}};
    int status = 0;
    while (reader.at < reader.end && !status) {
        uint32_t slot, flags, weight, count;
        const struct part_spec *parts;
        status = read_number(&reader, INT32_MAX, &slot);
        if (!status) status = read_number(&reader, FLAG_BINDS + FLAG_SHARED + 1, &flags);
        if (!status) status = read_number(&reader, INT32_MAX, &weight);
        if (!status) status = read_parts(&reader, 0, &parts, &count);
        if (!status) status = register_packed(automaton, slot, flags, parts, count);
        if (!status) status = automaton_set_weight(automaton, slot, weight);
        free_blocks(&reader);
    }
    FREE_ARRAY(&reader.blocks);
    return status;
}
