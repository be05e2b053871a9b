/* `group_bound`: the slots that bind elements, each with its elements.

   Pairs of slot and element are sorted as numbers of 64 bits. There are as many as queries bind elements
   in one message, tens or hundreds: arrays of NumPy cost more to call than this costs in all. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>

#include "module.h"

static int compare_pairs(const void *one, const void *other) {
    uint64_t a, b;
    memcpy(&a, one, sizeof a);
    memcpy(&b, other, sizeof b);
    return (a > b) - (a < b);
}

/* Sort pairs, and remove those that occur again; return how many are left. */
static size_t sort_pairs(uint64_t *pairs, size_t count) {
    if (count < 2) return count;
    qsort(pairs, count, sizeof *pairs, compare_pairs);
    size_t kept = 1;
    for (size_t i = 1; i < count; i++) {
        if (pairs[i] != pairs[kept - 1]) pairs[kept++] = pairs[i];
    }
    return kept;
}

/* The slot of some pairs, and a tuple of their elements. */
static PyObject *new_group(const uint64_t *pairs, size_t count) {
    PyObject *elements = PyTuple_New((Py_ssize_t)count);
    for (size_t i = 0; elements && i < count; i++) {
        PyObject *element = PyLong_FromUnsignedLong((uint32_t)pairs[i]);
        if (element) PyTuple_SET_ITEM(elements, (Py_ssize_t)i, element);
        else Py_CLEAR(elements);
    }
    return elements ? Py_BuildValue("(kN)", (unsigned long)(pairs[0] >> 32), elements) : NULL;
}

static PyObject *list_groups(const uint64_t *pairs, size_t count) {
    PyObject *groups = PyList_New(0);
    for (size_t first = 0, after; groups && first < count; first = after) {
        for (after = first + 1; after < count && pairs[after] >> 32 == pairs[first] >> 32;) after++;
        PyObject *group = new_group(pairs + first, after - first);
        if (!group || PyList_Append(groups, group) < 0) Py_CLEAR(groups);
        Py_XDECREF(group);
    }
    return groups;
}

static PyObject *group_bound(PyObject *unused, PyObject *arguments) {
    (void)unused;
    const char *slots, *elements;
    Py_ssize_t length, other;
    if (!PyArg_ParseTuple(arguments, "y#y#:group_bound", &slots, &length, &elements, &other)) return NULL;
    if (length != other || length % 4) {
        PyErr_SetString(PyExc_ValueError, "slots and elements are given as bytes of as many int32");
        return NULL;
    }
    size_t count = (size_t)length / 4;
    uint64_t *pairs = PyMem_Calloc(count ? count : 1, sizeof *pairs);
    if (!pairs) return PyErr_NoMemory();
    for (size_t i = 0; i < count; i++) {
        uint32_t slot, element;
        memcpy(&slot, slots + 4 * i, 4);
        memcpy(&element, elements + 4 * i, 4);
        pairs[i] = (uint64_t)slot << 32 | element;
    }
    PyObject *groups = list_groups(pairs, sort_pairs(pairs, count));
    PyMem_Free(pairs);
    return groups;
}

static PyMethodDef functions[] = {
    {"group_bound", group_bound, METH_VARARGS,
     "Return slots that are bound, ascending, each with its elements, given as two columns of int32."},
    {NULL, NULL, 0, NULL},
};

int add_bound_elements(PyObject *module) { return PyModule_AddFunctions(module, functions); }
