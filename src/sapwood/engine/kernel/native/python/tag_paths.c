/* The numbers of tag paths, by a trie of Python: a dict for each path, with the numbers of those one step
   below. Paths that the trie does not have are numbered behind its own, as they come. */
#define PY_SSIZE_T_CLEAN
#include "document_object.h"

/* The number of a path below another one, borrowed, or NULL if the trie has none, or for an error. */
static PyObject *find_below(PyObject *children, Py_ssize_t parent, PyObject *name) {
    Py_ssize_t first = PyList_GET_SIZE(children) - 1; /* the last dict is that of roots */
    if (parent >= first) return NULL;
    PyObject *below = PyList_GET_ITEM(children, parent < 0 ? first : parent);
    if (PyDict_Check(below)) return PyDict_GetItemWithError(below, name);
    PyErr_SetString(PyExc_TypeError, "the paths below a path are a dict");
    return NULL;
}

/* The number of a path that the trie does not have, as a new reference. */
static PyObject *find_literal(PyObject *new, PyObject *literals, PyObject *parent, PyObject *name,
                              Py_ssize_t first) {
    PyObject *path = PyTuple_Pack(2, parent, name);
    if (path == NULL) return NULL;
    PyObject *number = PyDict_GetItemWithError(new, path);
    if (number != NULL) {
        Py_INCREF(number);
    } else if (!PyErr_Occurred()) {
        number = PyLong_FromSsize_t(first + PyList_GET_SIZE(literals));
        if (number != NULL && (PyDict_SetItem(new, path, number) < 0 || PyList_Append(literals, path) < 0))
            Py_CLEAR(number);
    }
    Py_DECREF(path);
    return number;
}

static PyObject *find_number(struct document_object *self, uint32_t element, PyObject *numbers,
                             PyObject *children, PyObject *new, PyObject *literals) {
    PyObject *name = PyList_GET_ITEM(self->strings, (Py_ssize_t)self->document.name[element]);
    PyObject *parent = PyList_GET_ITEM(numbers, (Py_ssize_t)self->document.parent[element]);
    Py_ssize_t number = PyLong_AsSsize_t(parent);
    if (number == -1 && PyErr_Occurred()) return NULL;
    PyObject *found = find_below(children, number, name);
    if (found != NULL) {
        if (PyLong_Check(found)) return Py_NewRef(found);
        PyErr_SetString(PyExc_TypeError, "the number of a path is an int");
    }
    if (PyErr_Occurred()) return NULL;
    return find_literal(new, literals, parent, name, PyList_GET_SIZE(children) - 1);
}

PyObject *document_number_paths(PyObject *document, PyObject *arguments) {
    struct document_object *self = (struct document_object *)document;
    PyObject *children, *literals;
    if (!PyArg_ParseTuple(arguments, "O!O!:number_paths", &PyList_Type, &children, &PyList_Type, &literals))
        return NULL;
    if (PyList_GET_SIZE(children) < 1) {
        PyErr_SetString(PyExc_ValueError, "a trie has a dict of its roots");
        return NULL;
    }
    PyObject *new = PyDict_New(), *numbers = PyList_New(0);
    PyObject *number = PyLong_FromLong(-1); /* of the document */
    int failed = new == NULL || numbers == NULL || number == NULL || PyList_Append(numbers, number) < 0;
    Py_XDECREF(number);
    for (uint32_t i = 1; !failed && i < self->document.elements; i++) {
        number = find_number(self, i, numbers, children, new, literals);
        failed = number == NULL || PyList_Append(numbers, number) < 0;
        Py_XDECREF(number);
    }
    Py_XDECREF(new);
    if (failed) Py_CLEAR(numbers);
    return numbers;
}
