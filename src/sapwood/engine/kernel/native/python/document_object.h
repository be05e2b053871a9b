/* `Document` in Python: the columns of a document, each made into a list when it is asked for. */
#ifndef SAPWOOD_DOCUMENT_OBJECT_H
#define SAPWOOD_DOCUMENT_OBJECT_H

#include <Python.h>

#include "document.h"

struct document_object {
    PyObject_HEAD
    struct document document;
    PyObject *strings; /* a list: the names of this document, and others, by number */
    PyObject *source;  /* the bytes that were read, if elements are to be copied from it; or NULL */
};

extern PyTypeObject document_type;

/* The method `number_paths`: see `tag_paths.c`. */
PyObject *document_number_paths(PyObject *document, PyObject *arguments);

#endif
