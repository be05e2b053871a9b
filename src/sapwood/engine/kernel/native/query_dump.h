/* The registered queries as Python objects, from which any automaton can be made again. */
#ifndef SAPWOOD_QUERY_DUMP_H
#define SAPWOOD_QUERY_DUMP_H

#include <Python.h>

#include "automaton.h"

/* Return a list of (slot, parts, binds, weight). A part is (path, target, operator, value), or (step, parts) if
   it is a twig. */
PyObject *dump_queries(const struct automaton *automaton);

#endif
