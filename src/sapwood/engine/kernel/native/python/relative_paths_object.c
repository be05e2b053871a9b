/* `RelativePaths` and `Reached` in Python. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "document_object.h"
#include "hash_key.h"
#include "module.h"
#include "query_spec.h"
#include "relative_paths.h"

typedef struct {
    PyObject_HEAD
    struct relative_paths paths;
} RelativePaths;

typedef struct {
    PyObject_HEAD
    struct reached reached;
    struct document_object *document;
} Reached;

static PyTypeObject reached_type;

/* -- edits ----------------------------------------------------------------------------------------------- */

static PyObject *paths_add(RelativePaths *self, PyObject *arguments) {
    unsigned int number;
    PyObject *path;
    if (!PyArg_ParseTuple(arguments, "IO:add", &number, &path)) return NULL;
    struct span *symbols;
    uint32_t length;
    PyObject *kept = path_spec_new(path, &symbols, &length);
    if (kept == NULL) return NULL;
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = relative_paths_add(&self->paths, number, symbols, length);
    Py_END_ALLOW_THREADS
    PyMem_Free(symbols);
    Py_DECREF(kept);
    if (failed) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *paths_remove(RelativePaths *self, PyObject *argument) {
    unsigned long number = PyLong_AsUnsignedLong(argument);
    if (PyErr_Occurred()) return NULL;
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = number < NONE && relative_paths_remove(&self->paths, (uint32_t)number);
    Py_END_ALLOW_THREADS
    if (failed) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *paths_clear(RelativePaths *self, PyObject *unused) {
    (void)unused;
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = relative_paths_clear(&self->paths);
    Py_END_ALLOW_THREADS
    if (failed) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* -- reaching -------------------------------------------------------------------------------------------- */

/* Convert a list of elements that ascend; NULL with an exception. */
static uint32_t *convert_starts(PyObject *list, uint32_t elements) {
    Py_ssize_t count = PyList_GET_SIZE(list);
    uint32_t *starts = PyMem_Malloc(count ? (size_t)count * 4 : 4);
    if (starts == NULL) return (uint32_t *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        unsigned long element = PyLong_AsUnsignedLong(PyList_GET_ITEM(list, i));
        if (!PyErr_Occurred() && (element >= elements || (i && element < starts[i - 1])))
            PyErr_Format(PyExc_ValueError, "no element, or not in document order: %lu", element);
        if (PyErr_Occurred()) {
            PyMem_Free(starts);
            return NULL;
        }
        starts[i] = (uint32_t)element;
    }
    return starts;
}

/* The bytes of all names of a document, by number; NULL with an exception. */
static struct span *collect_names(const struct document_object *object) {
    const struct document *document = &object->document;
    Py_ssize_t count = PyList_GET_SIZE(object->strings);
    struct span *names = PyMem_Calloc((size_t)count + 1, sizeof *names);
    if (names == NULL) return (struct span *)PyErr_NoMemory();
    for (uint32_t i = 1; i < document->elements; i++) {
        struct span *name = &names[document->name[i]];
        if (name->bytes) continue;
        Py_ssize_t length;
        name->bytes = PyUnicode_AsUTF8AndSize(PyList_GET_ITEM(object->strings, document->name[i]), &length);
        if (name->bytes == NULL) {
            PyMem_Free(names);
            return NULL;
        }
        name->length = (size_t)length;
    }
    return names;
}

static PyObject *paths_reached(RelativePaths *self, PyObject *arguments) {
    struct document_object *object;
    PyObject *list;
    struct reached_request request = {0};
    if (!PyArg_ParseTuple(arguments, "O!O!p:reached", &document_type, &object, &PyList_Type, &list,
                          &request.inside))
        return NULL;
    uint32_t *starts = convert_starts(list, object->document.elements);
    if (starts == NULL) return NULL;
    struct span *names = collect_names(object);
    Reached *made = names ? PyObject_New(Reached, &reached_type) : NULL;
    int status = -1;
    if (made) {
        made->reached = (struct reached){0};
        made->document = (struct document_object *)Py_NewRef((PyObject *)object);
        request.document = &object->document;
        request.names = names;
        request.starts = starts;
        request.count = (uint32_t)PyList_GET_SIZE(list);
        Py_BEGIN_ALLOW_THREADS
        status = find_reached(&self->paths, &request, &made->reached);
        Py_END_ALLOW_THREADS
        if (status < 0) PyErr_NoMemory();
        if (status) Py_CLEAR(made);
    }
    PyMem_Free(names);
    PyMem_Free(starts);
    if (status == TOO_DEEP_TO_REACH) Py_RETURN_NONE;
    return (PyObject *)made;
}

/* -- what is reached ------------------------------------------------------------------------------------- */

static PyObject *reached_of(Reached *self, PyObject *const *arguments, Py_ssize_t count) {
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "of(number: int, element: int)");
        return NULL;
    }
    long number = PyLong_AsLong(arguments[0]), start = PyLong_AsLong(arguments[1]);
    if ((number == -1 || start == -1) && PyErr_Occurred()) return NULL;
    const struct reached *reached = &self->reached;
    uint32_t found = NONE;
    if (number >= 0 && start >= 0) found = reached_group(reached, (uint32_t)number, (uint32_t)start);
    if (found == NONE) return PyList_New(0);
    const struct reached_group *group = &reached->groups.items[found];
    PyObject *list = PyList_New((Py_ssize_t)group->count);
    uint32_t triple = group->first;
    for (Py_ssize_t i = 0; list && triple != NONE; i++, triple = reached->next.items[triple]) {
        PyObject *end = PyLong_FromUnsignedLong(reached->end.items[triple]);
        if (end) PyList_SET_ITEM(list, i, end);
        else Py_CLEAR(list);
    }
    return list;
}

/* What is copied for one part: constant bytes, or elements that a path reaches, in turn. */
struct copied_part {
    const char *bytes; /* of a constant, or NULL */
    size_t length;
    uint32_t triple;  /* NONE: no more elements */
    uint32_t element; /* the element itself instead, or NONE */
};

static int convert_part(const Reached *self, PyObject *part, uint32_t element, struct copied_part *copied) {
    *copied = (struct copied_part){NULL, 0, NONE, NONE};
    if (PyBytes_Check(part)) {
        copied->bytes = PyBytes_AS_STRING(part);
        copied->length = (size_t)PyBytes_GET_SIZE(part);
        return 0;
    }
    long number = PyLong_AsLong(part);
    if (number == -1 && PyErr_Occurred()) return -1;
    if (number < 0) {
        copied->element = element;
        return 0;
    }
    uint32_t group = reached_group(&self->reached, (uint32_t)number, element);
    if (group != NONE) copied->triple = self->reached.groups.items[group].first;
    return 0;
}

/* Go on to the next bytes of a part; return 0 at its end. */
static int next_bytes(const Reached *self, struct copied_part *part, struct span *bytes) {
    const struct document *document = &self->document->document;
    if (part->bytes) {
        *bytes = (struct span){part->bytes, part->length};
        part->bytes = NULL;
        return 1;
    }
    uint32_t element = part->element;
    part->element = NONE;
    if (element == NONE && part->triple != NONE) {
        element = self->reached.end.items[part->triple];
        part->triple = self->reached.next.items[part->triple];
    }
    if (element == NONE) return 0;
    bytes->bytes = PyBytes_AS_STRING(self->document->source) + document->start[element];
    bytes->length = document->stop[element] - document->start[element];
    return 1;
}

/* Copy all parts to memory, or only add up their lengths if there is none. Return -1 with an exception. */
static Py_ssize_t copy_parts(const Reached *self, PyObject *parts, uint32_t element, char *to) {
    size_t total = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(parts); i++) {
        struct copied_part part;
        struct span bytes;
        if (convert_part(self, PyTuple_GET_ITEM(parts, i), element, &part) < 0) return -1;
        while (next_bytes(self, &part, &bytes)) {
            if (to) memcpy(to + total, bytes.bytes, bytes.length);
            else if (bytes.length > (size_t)PY_SSIZE_T_MAX - total) return PyErr_NoMemory(), -1;
            total += bytes.length;
        }
    }
    return (Py_ssize_t)total;
}

static PyObject *reached_copy(Reached *self, PyObject *const *arguments, Py_ssize_t count) {
    if (count != 2 || !PyTuple_Check(arguments[0])) {
        PyErr_SetString(PyExc_TypeError, "copy(parts: tuple[bytes | int, ...], element: int)");
        return NULL;
    }
    long element = PyLong_AsLong(arguments[1]);
    if (element == -1 && PyErr_Occurred()) return NULL;
    const struct document_object *object = self->document;
    if (!object->source || !object->document.has_spans || element < 0 ||
        (unsigned long)element >= object->document.elements) {
        PyErr_SetString(PyExc_ValueError, "the message has no source to copy from, or not this element");
        return NULL;
    }
    Py_ssize_t length = copy_parts(self, arguments[0], (uint32_t)element, NULL);
    PyObject *made = length < 0 ? NULL : PyBytes_FromStringAndSize(NULL, length);
    if (made) copy_parts(self, arguments[0], (uint32_t)element, PyBytes_AS_STRING(made));
    return made;
}

static PyObject *bytes_of(const struct numbers *numbers) {
    return PyBytes_FromStringAndSize((const char *)numbers->items, (Py_ssize_t)numbers->count * 4);
}

static PyObject *reached_triples(Reached *self, PyObject *unused) {
    (void)unused;
    return Py_BuildValue("(NNN)", bytes_of(&self->reached.number), bytes_of(&self->reached.start),
                         bytes_of(&self->reached.end));
}

static void reached_dealloc(Reached *self) {
    reached_free(&self->reached);
    Py_DECREF((PyObject *)self->document);
    PyObject_Free(self);
}

static PyMethodDef reached_methods[] = {
    {"of", (PyCFunction)(void (*)(void))reached_of, METH_FASTCALL,
     "Return the elements that a relative path reaches from an element, in document order."},
    {"copy", (PyCFunction)(void (*)(void))reached_copy, METH_FASTCALL,
     "Return constants, and copies of what relative paths reach from an element, or of that element for a\n"
     "negative number, end to end."},
    {"triples", (PyCFunction)reached_triples, METH_NOARGS,
     "Return relative paths, starts and ends, as int32, in document order of the ends."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject reached_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "sapwood.engine.kernel._kernel.Reached",
    .tp_doc = "The elements that each relative path reaches from each of some elements.",
    .tp_basicsize = sizeof(Reached),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)reached_dealloc,
    .tp_methods = reached_methods,
};

/* -- the type -------------------------------------------------------------------------------------------- */

static PyObject *paths_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    static char *names[] = {"budget", NULL};
    unsigned long long budget;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "K:RelativePaths", names, &budget)) return NULL;
    RelativePaths *self = (RelativePaths *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    if (relative_paths_init(&self->paths, *hash_key(), budget) == 0) return (PyObject *)self;
    Py_DECREF(self);
    return PyErr_NoMemory();
}

static void paths_dealloc(RelativePaths *self) {
    relative_paths_free(&self->paths);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef paths_methods[] = {
    {"add", (PyCFunction)paths_add, METH_VARARGS, "Add a path, given as symbols, under a number."},
    {"remove", (PyCFunction)paths_remove, METH_O, "Remove the path of a number."},
    {"clear", (PyCFunction)paths_clear, METH_NOARGS, "Drop what was learnt from documents."},
    {"reached", (PyCFunction)paths_reached, METH_VARARGS,
     "Return what all paths reach in a document from elements in document order and, if wanted, from all\n"
     "inside them; None if elements nest too deep."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject paths_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "sapwood.engine.kernel._kernel.RelativePaths",
    .tp_doc = "Paths that start at any element, followed on documents.",
    .tp_basicsize = sizeof(RelativePaths),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = paths_new,
    .tp_dealloc = (destructor)paths_dealloc,
    .tp_methods = paths_methods,
};

int add_relative_paths(PyObject *module) {
    return PyType_Ready(&reached_type) || PyModule_AddType(module, &paths_type) ? -1 : 0;
}
