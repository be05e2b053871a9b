/* `Document` in Python: the columns of a document, each made into a list when it is asked for. */
#ifndef SAPWOOD_DOCUMENT_OBJECT_H
#define SAPWOOD_DOCUMENT_OBJECT_H

#include <Python.h>

#include "document.h"

struct document_object {
    PyObject_HEAD
    struct document document;
    PyObject *strings; /* a list: the names of this document, and others, by number */
};

extern PyTypeObject document_type;

#endif
