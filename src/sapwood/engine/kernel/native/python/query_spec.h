/* The parts of a query, converted from `Leaf` and `Twig` in Python before the automaton is locked. */
#ifndef SAPWOOD_QUERY_SPEC_H
#define SAPWOOD_QUERY_SPEC_H

#include <Python.h>

#include "automaton.h"

struct query_spec {
    struct part_spec *parts;
    uint32_t count;
    PyObject *kept;              /* objects whose bytes the spans refer to */
    struct ARRAY_OF(void *) blocks;
};

/* Convert a tuple of parts; NULL with a Python exception. */
struct query_spec *query_spec_new(PyObject *parts);
void query_spec_free(struct query_spec *spec);

/* Convert a tuple of symbols: return what keeps their bytes, or NULL; free `*symbols` with PyMem_Free. */
PyObject *path_spec_new(PyObject *path, struct span **symbols, uint32_t *length);

#endif
