/* What other types of the module see of `Result`. */
#ifndef SAPWOOD_AUTOMATON_OBJECT_H
#define SAPWOOD_AUTOMATON_OBJECT_H

#include <Python.h>

#include "arrays.h"

int is_result(PyObject *object);

/* List the slots of a `Result`, in any order, perhaps some of them twice; -1: memory is out. */
int result_object_slots(PyObject *result, struct numbers *slots);

/* List the same, and say whether none of them is there twice. */
int result_object_slots_once(PyObject *result, struct numbers *slots, int *once);

#endif
