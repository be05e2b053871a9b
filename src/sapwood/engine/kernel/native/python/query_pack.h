/* Registered queries as flat arrays, of the layout that `registered_parts.py` describes. */
#ifndef SAPWOOD_QUERY_PACK_H
#define SAPWOOD_QUERY_PACK_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "automaton.h"

/* Return all queries as (code, strings, numbers); NULL with a Python exception. */
PyObject *pack_queries(const struct automaton *automaton);

struct packed_queries {
    Py_buffer code, numbers;
    PyObject *kept; /* what has the bytes of the strings */
    struct span *strings;
    uint32_t string_count;
};

/* Convert the strings; -1 with a Python exception. The buffers are the caller's; close in either case. */
int packed_queries_open(struct packed_queries *packed, PyObject *strings);
void packed_queries_close(struct packed_queries *packed);

enum { DAMAGED_PACK = -2 };

/* Register all queries; -1: memory is out; DAMAGED_PACK: those before the damage are registered. */
int unpack_queries(struct automaton *automaton, const struct packed_queries *packed);

#endif
