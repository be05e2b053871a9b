#define PY_SSIZE_T_CLEAN
#include "query_dump.h"

static PyObject *string_of(struct span text) {
    return PyUnicode_DecodeUTF8(text.bytes, (Py_ssize_t)text.length, "surrogatepass");
}

static PyObject *dump_path(const struct automaton *automaton, uint32_t state) {
    const struct trie_state *states = automaton->trie.states.items;
    Py_ssize_t length = 0;
    for (uint32_t at = state; at != ROOT; at = states[at].parent) length++;
    PyObject *path = PyTuple_New(length);
    for (; path != NULL && state != ROOT; state = states[state].parent) {
        PyObject *symbol = string_of(strings_text(&automaton->names, states[state].symbol));
        if (symbol == NULL) {
            Py_CLEAR(path);
            break;
        }
        PyUnicode_InternInPlace(&symbol); /* so that a pickle has it once */
        PyTuple_SET_ITEM(path, --length, symbol);
    }
    return path;
}

static PyObject *dump_target(const struct automaton *automaton, uint32_t target) {
    if (target == TARGET_TEXT) return PyUnicode_FromString("text()");
    if (target == TARGET_VALUE) return PyUnicode_FromString(".");
    PyObject *name = string_of(strings_text(&automaton->names, target));
    PyObject *made = name ? PyUnicode_FromFormat("@%U", name) : NULL;
    Py_XDECREF(name);
    return made;
}

static PyObject *dump_value(const struct automaton *automaton, uint8_t operator, uint32_t constant, double number) {
    if (operator == NUMBER_EQUAL)
        return PyFloat_FromDouble(automaton->predicates.number_entries.items[constant & ~NUMBER_CONSTANT].value);
    if (operator > NUMBER_EQUAL) return PyFloat_FromDouble(number);
    if (operator == EXISTS) Py_RETURN_NONE;
    return string_of(strings_text(&automaton->predicates.constants, constant & ~PREFIX_CONSTANT));
}

static PyObject *dump_leaf(const struct automaton *automaton, uint8_t kind, uint8_t operator, uint32_t source,
                           uint32_t constant, double number) {
    static const char *const operators[] = {
        [EXISTS] = "",       [EQUAL] = "=",          [STARTS_WITH] = "starts-with", [CONTAINS] = "contains",
        [UNEQUAL] = "!=",    [NUMBER_EQUAL] = "=",   [NUMBER_UNEQUAL] = "!=",       [LESS] = "<",
        [AT_MOST] = "<=",    [MORE] = ">",           [AT_LEAST] = ">=",
    };
    if (kind == ELEMENT_PART) return Py_BuildValue("(NssO)", dump_path(automaton, source), "", "", Py_None);
    const struct predicate_index *index = &automaton->predicates.items.items[source];
    return Py_BuildValue("(NNsN)", dump_path(automaton, index->state), dump_target(automaton, index->target),
                         operators[operator], dump_value(automaton, operator, constant, number));
}

static PyObject *dump_twig(const struct automaton *automaton, uint32_t twig) {
    const struct numbers *parts = &automaton->twigs.items.items[twig].parts;
    PyObject *dumped = PyTuple_New(parts->count);
    uint32_t step = 0;
    for (uint32_t i = 0; dumped != NULL && i < parts->count; i++) {
        const struct anchoring *part = &automaton->twigs.anchorings.items[parts->items[i]];
        PyObject *item = part->kind == TWIG_PART ? dump_twig(automaton, part->source)
                                                 : dump_leaf(automaton, part->kind, part->operator, part->source,
                                                             part->constant, part->number);
        step = part->step;
        if (item == NULL) {
            Py_CLEAR(dumped);
            break;
        }
        PyTuple_SET_ITEM(dumped, i, item);
    }
    return dumped ? Py_BuildValue("(IN)", step, dumped) : NULL;
}

static PyObject *dump_parts(const struct automaton *automaton, const struct slot *slot) {
    if (slot->flags & CLASSED)
        return Py_BuildValue("(N)", dump_leaf(automaton, ELEMENT_PART, EXISTS, slot->part, NONE, 0));
    PyObject *list = PyList_New(0);
    for (uint32_t at = slot->part; list != NULL && at != NONE; at = automaton->parts.items[at].next) {
        const struct part *part = &automaton->parts.items[at];
        PyObject *item = part->kind == TWIG_PART ? dump_twig(automaton, part->source)
                                                 : dump_leaf(automaton, part->kind, part->operator, part->source,
                                                             part->constant, part->number);
        if (item == NULL || PyList_Append(list, item)) Py_CLEAR(list);
        Py_XDECREF(item);
    }
    PyObject *parts = list ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(list);
    return parts;
}

PyObject *dump_queries(const struct automaton *automaton) {
    PyObject *list = PyList_New(0);
    for (uint32_t number = 0; list != NULL && number < automaton->slots.count; number++) {
        const struct slot *slot = &automaton->slots.items[number];
        if (!(slot->flags & IN_USE)) continue;
        PyObject *item = Py_BuildValue("(INNNI)", number, dump_parts(automaton, slot),
                                       PyBool_FromLong(slot->flags & BINDS), PyBool_FromLong(slot->flags & SHARED),
                                       slot->weight);
        if (item == NULL || PyList_Append(list, item)) Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}
