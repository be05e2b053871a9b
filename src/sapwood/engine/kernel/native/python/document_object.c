/* `read_document` and `Document`: a message's nodes for Python.

   A message is read into columns of numbers without the GIL. Lists are made of a column when Python asks
   for it: a transformation that copies elements needs spans and no texts, a residual check names and no
   spans.

   Names are strings that documents share. Each builder has a list of them, to which a message adds those
   that it is the first to have; a document refers to names by their place in the list. When there are
   many, the next document starts a new list, and the old one goes with the last document that refers to
   it.

   Builders are kept for the next messages: as many as there are threads that read at the same time. */
#define PY_SSIZE_T_CLEAN
#include "document_object.h"

#include "module.h"

enum { KEPT_BUILDERS = 16, MOST_STRINGS = 4096, MOST_STRING_BYTES = 256 * 1024 };

/* A builder, and the strings of its names. */
struct string_builder {
    struct document_builder *builder;
    PyObject *strings;
    size_t bytes; /* of all strings */
};

/* The builders that are not in use; with the GIL or, where there is none, the lock. */
struct builder_pool {
    PyThread_type_lock lock;
    struct string_builder items[KEPT_BUILDERS];
    int count;
};

/* -- builders -------------------------------------------------------------------------------------------- */

static void free_builder(struct string_builder *item) {
    document_builder_free(item->builder);
    Py_XDECREF(item->strings);
}

static int start_strings(struct string_builder *item) {
    document_builder_forget_names(item->builder);
    item->bytes = 0;
    Py_XSETREF(item->strings, PyList_New(0));
    return item->strings == NULL ? -1 : 0;
}

static int take_builder(struct builder_pool *pool, struct string_builder *item) {
    *item = (struct string_builder){NULL, NULL, 0};
    PyThread_acquire_lock(pool->lock, WAIT_LOCK);
    if (pool->count) *item = pool->items[--pool->count];
    PyThread_release_lock(pool->lock);
    if (item->builder == NULL) {
        item->builder = document_builder_new();
        if (item->builder == NULL) return PyErr_NoMemory(), -1;
    }
    int is_full = item->strings == NULL || PyList_GET_SIZE(item->strings) > MOST_STRINGS ||
                  item->bytes > MOST_STRING_BYTES;
    if (!is_full || start_strings(item) == 0) return 0;
    free_builder(item);
    return -1;
}

static void give_builder(struct builder_pool *pool, struct string_builder *item) {
    int kept = 0;
    PyThread_acquire_lock(pool->lock, WAIT_LOCK);
    if (item->strings != NULL && pool->count < KEPT_BUILDERS) {
        pool->items[pool->count++] = *item;
        kept = 1;
    }
    PyThread_release_lock(pool->lock);
    if (!kept) free_builder(item);
}

/* Make strings of the names that the last message was the first to have. Without memory for one, all names
   are forgotten: a name's number is its place in the list. */
static int add_strings(struct string_builder *item) {
    struct document_builder *builder = item->builder;
    const char *bytes = builder->new_name_bytes.items;
    uint32_t from = 0;
    for (uint32_t i = 0; i < builder->new_names.count; i++) {
        uint32_t stop = builder->new_names.items[i].stop;
        PyObject *string = PyUnicode_DecodeUTF8(bytes + from, (Py_ssize_t)(stop - from), "strict");
        int failed = string == NULL || PyList_Append(item->strings, string) < 0;
        Py_XDECREF(string);
        if (failed) {
            Py_CLEAR(item->strings);
            return -1;
        }
        from = stop;
    }
    item->bytes += builder->new_name_bytes.count;
    builder->new_names.count = builder->new_name_bytes.count = 0;
    return 0;
}

/* -- reading --------------------------------------------------------------------------------------------- */

static PyObject *new_document(const struct document *document, PyObject *strings, PyObject *source) {
    struct document_object *self = PyObject_New(struct document_object, &document_type);
    if (self == NULL) return NULL;
    self->document = *document;
    self->strings = Py_NewRef(strings);
    self->source = Py_XNewRef(source);
    return (PyObject *)self;
}

static PyObject *read_document(PyObject *capsule, PyObject *arguments) {
    struct builder_pool *pool = PyCapsule_GetPointer(capsule, NULL);
    PyObject *data;
    const char *encoding;
    struct document_options options;
    Py_ssize_t depth, attributes, name_length;
    if (!pool || !PyArg_ParseTuple(arguments, "Szpppnnn:read_document", &data, &encoding, &options.tokenizer,
                                   &options.with_text, &options.with_source, &depth, &attributes,
                                   &name_length))
        return NULL;
    if (depth < 0 || attributes < 0 || name_length < 0) {
        PyErr_SetString(PyExc_ValueError, "limits must not be negative");
        return NULL;
    }
    options.limits = (struct reader_limits){(size_t)depth, (size_t)attributes, (size_t)name_length};
    struct string_builder item;
    if (take_builder(pool, &item) < 0) return NULL;
    struct span message = {PyBytes_AS_STRING(data), (size_t)PyBytes_GET_SIZE(data)};
    struct document document = {0};
    int status;
    Py_BEGIN_ALLOW_THREADS
    status = document_read(&document, item.builder, message, encoding, &options);
    Py_END_ALLOW_THREADS
    PyObject *made = NULL;
    if (add_strings(&item) == 0) {
        if (status == OUT_OF_MEMORY) PyErr_NoMemory();
        else if (status != READ) made = PyLong_FromLong(status);
        else made = new_document(&document, item.strings, options.with_source ? data : NULL);
    }
    if (made == NULL && status == READ) document_free(&document);
    give_builder(pool, &item);
    return made;
}

/* -- documents of Python --------------------------------------------------------------------------------- */

/* Fill the columns of elements from lists, and check what others rely on. */
static int convert_elements(struct document *document, PyObject *parents, PyObject *ends) {
    uint32_t elements = document->elements;
    for (uint32_t i = 0; i < elements; i++) {
        unsigned long end = PyLong_AsUnsignedLong(PyList_GET_ITEM(ends, i));
        if (PyErr_Occurred()) return -1;
        unsigned long parent = i ? PyLong_AsUnsignedLong(PyList_GET_ITEM(parents, i)) : NONE;
        if (PyErr_Occurred()) return -1;
        if ((i && parent >= i) || end <= i || end > elements) {
            PyErr_Format(PyExc_ValueError, "element %u has parent %lu and end %lu", i, parent, end);
            return -1;
        }
        document->name[i] = i;
        document->parent[i] = (uint32_t)parent;
        document->end[i] = (uint32_t)end;
    }
    return 0;
}

/* A document of which only the elements are known. */
static PyObject *document_of_elements(PyObject *unused, PyObject *arguments) {
    (void)unused;
    PyObject *names, *parents, *ends;
    if (!PyArg_ParseTuple(arguments, "O!O!O!:of_elements", &PyList_Type, &names, &PyList_Type, &parents,
                          &PyList_Type, &ends))
        return NULL;
    Py_ssize_t count = PyList_GET_SIZE(names);
    if (count < 1 || (size_t)count >= NONE || PyList_GET_SIZE(parents) != count ||
        PyList_GET_SIZE(ends) != count) {
        PyErr_SetString(PyExc_ValueError, "names, parents and ends have one entry for each element");
        return NULL;
    }
    size_t elements = (size_t)count;
    uint32_t *block = calloc(4 * elements + 1, 4);
    PyObject *strings = block ? PyList_GetSlice(names, 0, count) : PyErr_NoMemory();
    if (strings == NULL) {
        free(block);
        return NULL;
    }
    uint32_t *zeros = block + 3 * elements; /* no text, no attributes, no spans */
    struct document document = {
        .block = block,
        .elements = (uint32_t)elements,
        .name = block,
        .parent = block + elements,
        .end = block + 2 * elements,
        .text_start = zeros,
        .text_end = zeros,
        .first_attribute = zeros,
        .start = zeros,
        .stop = zeros,
    };
    PyObject *made = NULL;
    if (convert_elements(&document, parents, ends) == 0) made = new_document(&document, strings, NULL);
    if (made == NULL) document_free(&document);
    Py_DECREF(strings);
    return made;
}

/* -- columns --------------------------------------------------------------------------------------------- */

/* Set an item of a new list, or free the list: then the macro's user returns NULL. */
static int set_item(PyObject *list, Py_ssize_t at, PyObject *item) {
    if (item == NULL) {
        Py_DECREF(list);
        return -1;
    }
    PyList_SET_ITEM(list, at, item);
    return 0;
}

/* A list of numbers; the first of them is another one where an element's column has none for the document. */
static PyObject *list_numbers(const uint32_t *numbers, uint32_t count) {
    PyObject *list = PyList_New((Py_ssize_t)count);
    if (list == NULL) return NULL;
    for (uint32_t i = 0; i < count; i++) {
        PyObject *number = numbers[i] == NONE ? PyLong_FromLong(-1) : PyLong_FromUnsignedLong(numbers[i]);
        if (set_item(list, i, number) < 0) return NULL;
    }
    return list;
}

/* A list of strings that follow each other in memory, given where each stops. */
static PyObject *list_strings(const char *bytes, const uint32_t *stops, uint32_t count) {
    PyObject *list = PyList_New((Py_ssize_t)count);
    if (list == NULL) return NULL;
    uint32_t from = 0;
    for (uint32_t i = 0; i < count; from = stops[i++]) {
        PyObject *string = PyUnicode_DecodeUTF8(bytes + from, (Py_ssize_t)(stops[i] - from), "strict");
        if (set_item(list, i, string) < 0) return NULL;
    }
    return list;
}

static PyObject *get_names(struct document_object *self, void *unused) {
    (void)unused;
    const struct document *document = &self->document;
    PyObject *list = PyList_New((Py_ssize_t)document->elements);
    if (list == NULL || set_item(list, 0, PyUnicode_FromStringAndSize(NULL, 0)) < 0) return NULL;
    for (uint32_t i = 1; i < document->elements; i++)
        PyList_SET_ITEM(list, i, Py_NewRef(PyList_GET_ITEM(self->strings, (Py_ssize_t)document->name[i])));
    return list;
}

static PyObject *get_parents(struct document_object *self, void *unused) {
    (void)unused;
    return list_numbers(self->document.parent, self->document.elements);
}

static PyObject *get_ends(struct document_object *self, void *unused) {
    (void)unused;
    return list_numbers(self->document.end, self->document.elements);
}

/* name, value, name, value … of the attributes of an element */
static PyObject *list_attributes(struct document_object *self, uint32_t element) {
    const struct document *document = &self->document;
    uint32_t first = document->first_attribute[element];
    uint32_t count = document->first_attribute[element + 1] - first;
    PyObject *list = PyList_New(2 * (Py_ssize_t)count);
    if (list == NULL) return NULL;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = first + i, from = at ? document->value_stop[at - 1] : 0;
        PyObject *name = PyList_GET_ITEM(self->strings, (Py_ssize_t)document->attribute_name[at]);
        PyList_SET_ITEM(list, 2 * (Py_ssize_t)i, Py_NewRef(name));
        PyObject *value = PyUnicode_DecodeUTF8(document->values + from,
                                               (Py_ssize_t)(document->value_stop[at] - from), "strict");
        if (set_item(list, 2 * (Py_ssize_t)i + 1, value) < 0) return NULL;
    }
    return list;
}

static PyObject *get_attributes(struct document_object *self, void *unused) {
    (void)unused;
    PyObject *list = PyList_New((Py_ssize_t)self->document.elements);
    if (list == NULL) return NULL;
    for (uint32_t i = 0; i < self->document.elements; i++) {
        if (set_item(list, i, list_attributes(self, i)) < 0) return NULL;
    }
    return list;
}

static PyObject *get_texts(struct document_object *self, void *unused) {
    (void)unused;
    return list_strings(self->document.text, self->document.text_stop, self->document.texts);
}

static PyObject *get_text_parents(struct document_object *self, void *unused) {
    (void)unused;
    return list_numbers(self->document.text_parent, self->document.texts);
}

static PyObject *get_text_after(struct document_object *self, void *unused) {
    (void)unused;
    return list_numbers(self->document.text_after, self->document.texts);
}

static PyObject *get_text_starts(struct document_object *self, void *unused) {
    (void)unused;
    return list_numbers(self->document.text_start, self->document.elements);
}

static PyObject *get_text_ends(struct document_object *self, void *unused) {
    (void)unused;
    return list_numbers(self->document.text_end, self->document.elements);
}

/* The characters before each text node, and of all. */
static PyObject *get_text_offsets(struct document_object *self, void *unused) {
    (void)unused;
    const struct document *document = &self->document;
    PyObject *list = PyList_New((Py_ssize_t)document->texts + 1);
    if (list == NULL || set_item(list, 0, PyLong_FromLong(0)) < 0) return NULL;
    uint32_t characters = 0, at = 0;
    for (uint32_t i = 0; i < document->texts; i++) {
        for (; at < document->text_stop[i]; at++)
            characters += ((unsigned char)document->text[at] & 0xC0) != 0x80;
        if (set_item(list, (Py_ssize_t)i + 1, PyLong_FromUnsignedLong(characters)) < 0) return NULL;
    }
    return list;
}

/* Element → its declarations, pairs of prefix and URI. */
static PyObject *get_declarations(struct document_object *self, void *unused) {
    (void)unused;
    const struct document *document = &self->document;
    PyObject *made = PyDict_New();
    uint32_t from = 0;
    for (uint32_t i = 0; made != NULL && i < document->declarations; from = document->uri_stop[i++]) {
        PyObject *element = PyLong_FromUnsignedLong(document->declared_at[i]);
        PyObject *list = element ? PyDict_GetItemWithError(made, element) : NULL; /* borrowed */
        if (element && !list && !PyErr_Occurred()) {
            list = PyList_New(0);
            if (list && PyDict_SetItem(made, element, list) < 0) Py_CLEAR(list);
            else Py_XDECREF(list); /* the dict has it */
        }
        uint32_t prefix = document->prefix_stop[i];
        Py_ssize_t length = (Py_ssize_t)(prefix - from), uri = (Py_ssize_t)(document->uri_stop[i] - prefix);
        PyObject *pair = NULL;
        if (list)
            pair = Py_BuildValue("(s#s#)", document->declared + from, length,
                                 document->declared + prefix, uri);
        if (!pair || PyList_Append(list, pair) < 0) Py_CLEAR(made);
        Py_XDECREF(pair);
        Py_XDECREF(element);
    }
    return made;
}

/* The offsets in the message at which each element starts and stops; None if expat has read it. */
static PyObject *get_spans(struct document_object *self, void *unused) {
    (void)unused;
    const struct document *document = &self->document;
    if (!document->has_spans) Py_RETURN_NONE;
    return Py_BuildValue("(NN)", list_numbers(document->start, document->elements),
                         list_numbers(document->stop, document->elements));
}

static PyObject *get_has_spans(struct document_object *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(self->document.has_spans);
}

static Py_ssize_t document_length(struct document_object *self) {
    return (Py_ssize_t)self->document.elements;
}

static void document_dealloc(struct document_object *self) {
    document_free(&self->document);
    Py_DECREF(self->strings);
    Py_XDECREF(self->source);
    PyObject_Free(self);
}

static PyGetSetDef document_columns[] = {
    {"names", (getter)get_names, NULL, "The name of each element.", NULL},
    {"parents", (getter)get_parents, NULL, "The parent of each element.", NULL},
    {"ends", (getter)get_ends, NULL, "One past the last descendant of each element.", NULL},
    {"attributes", (getter)get_attributes, NULL, "Names and values of the attributes of each element.", NULL},
    {"texts", (getter)get_texts, NULL, "The text nodes.", NULL},
    {"text_parents", (getter)get_text_parents, NULL, "The parent of each text node.", NULL},
    {"text_after", (getter)get_text_after, NULL, "The element that started before each text node.", NULL},
    {"text_starts", (getter)get_text_starts, NULL, "The first text node within each element.", NULL},
    {"text_ends", (getter)get_text_ends, NULL, "One past the last text node within each element.", NULL},
    {"text_offsets", (getter)get_text_offsets, NULL, "Characters before each text node, and of all.", NULL},
    {"declarations", (getter)get_declarations, NULL, "Prefixes and URIs declared, by element.", NULL},
    {"spans", (getter)get_spans, NULL, "Where each element starts and stops; None: not known.", NULL},
    {"has_spans", (getter)get_has_spans, NULL, "Whether it is known where elements start and stop.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef document_methods[] = {
    {"of_elements", (PyCFunction)document_of_elements, METH_VARARGS | METH_STATIC,
     "Return a document of which only the elements are known, by names, parents and ends."},
    {"number_paths", document_number_paths, METH_VARARGS,
     "Return the number of each element's tag path in a trie, and add paths that it lacks to a list."},
    {NULL, NULL, 0, NULL},
};

static PySequenceMethods document_as_sequence = {.sq_length = (lenfunc)document_length};

PyTypeObject document_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "sapwood.engine.kernel._kernel.Document",
    .tp_doc = "The nodes of a message; each column is made into a list when it is asked for.",
    .tp_basicsize = sizeof(struct document_object),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)document_dealloc,
    .tp_methods = document_methods,
    .tp_getset = document_columns,
    .tp_as_sequence = &document_as_sequence,
};

/* -- the module ------------------------------------------------------------------------------------------ */

static PyMethodDef read_document_method = {
    "read_document", (PyCFunction)read_document, METH_VARARGS,
    "Read a message: return its Document, or the status of the reader if it cannot be read."};

static void free_pool(PyObject *capsule) {
    struct builder_pool *pool = PyCapsule_GetPointer(capsule, NULL);
    while (pool->count) free_builder(&pool->items[--pool->count]);
    if (pool->lock) PyThread_free_lock(pool->lock);
    PyMem_Free(pool);
}

int add_document(PyObject *module) {
    struct builder_pool *pool = PyMem_Calloc(1, sizeof *pool);
    PyObject *capsule = pool ? PyCapsule_New(pool, NULL, free_pool) : NULL;
    if (capsule == NULL) {
        PyMem_Free(pool);
        if (!pool) PyErr_NoMemory();
        return -1;
    }
    pool->lock = PyThread_allocate_lock();
    if (pool->lock == NULL) {
        Py_DECREF(capsule);
        PyErr_NoMemory();
        return -1;
    }
    PyObject *function = PyCFunction_NewEx(&read_document_method, capsule, NULL);
    int status = function ? PyModule_AddObjectRef(module, "read_document", function) : -1;
    Py_XDECREF(function);
    Py_DECREF(capsule);
    return status == 0 ? PyModule_AddType(module, &document_type) : -1;
}
