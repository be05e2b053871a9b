/* The parts of the module `_kernel`, each of which adds its own functions and types. */
#ifndef SAPWOOD_MODULE_H
#define SAPWOOD_MODULE_H

#include <Python.h>

/* `read_events`, a list of what a reader reports, for tests of the readers. */
int add_event_list(PyObject *module);

/* `Document`, and `read_document`, which makes one. */
int add_document(PyObject *module);

/* `RelativePaths` and `Reached`. */
int add_relative_paths(PyObject *module);

/* `group_bound`. */
int add_bound_elements(PyObject *module);

/* `Automaton` and `Result`. */
int add_automaton(PyObject *module);

/* `Subscriptions`. */
int add_subscriptions(PyObject *module);

#endif
