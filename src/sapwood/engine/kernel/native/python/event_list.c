/* `read_events` and `count_events`: what a reader reports, as Python objects, for tests and measurements.

   Both copy the message to memory of its exact size, so that AddressSanitizer sees a reader that reads beyond
   it: the terminator of a `bytes` object would hide one. A reader is kept from call to call, as a matcher
   keeps it, so that tests see what one message leaves behind for the next. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "module.h"
#include "reader.h"

/* The reader that is kept, as long as the module; who finds it in use makes another. */
struct kept_reader {
    PyThread_type_lock lock;
    struct reader *reader;
};

/* The consumer of `read_events`. Adjacent pieces of text become one event. */
struct event_list {
    PyObject *events;
    PyObject *names;   /* a list: the symbol of a name is its index */
    PyObject *symbols; /* a dict from name to symbol */
    char *text;
    size_t text_length, text_capacity;
};

enum { PYTHON_ERROR = 1 }; /* what handlers return after a Python exception */

static int append(PyObject *list, PyObject *item) {
    if (!item) return PYTHON_ERROR;
    int failed = PyList_Append(list, item) < 0;
    Py_DECREF(item);
    return failed ? PYTHON_ERROR : 0;
}

static PyObject *string_of(struct span text) {
    return PyUnicode_DecodeUTF8(text.bytes, (Py_ssize_t)text.length, "strict");
}

static int end_text(struct event_list *list) {
    if (!list->text_length) return 0;
    struct span text = {list->text, list->text_length};
    list->text_length = 0;
    return append(list->events, Py_BuildValue("(sN)", "text", string_of(text)));
}

static int wrong_name(PyObject *string, const char *reason) {
    PyErr_Format(PyExc_AssertionError, "%s: %R", reason, string);
    return PYTHON_ERROR;
}

/* Give a new name its symbol, and check that it has one entry and that its namespace is told rightly. */
static int resolve(struct event_list *list, struct name *name) {
    PyObject *string = string_of(name->expanded);
    if (!string) return PYTHON_ERROR;
    int status = 0;
    const char *local = name->expanded.bytes + name->uri_length;
    size_t left = name->expanded.length - name->uri_length;
    if (PyDict_Contains(list->symbols, string)) status = wrong_name(string, "a name has two entries");
    else if (name->uri_length ? *local != '}' : memchr(local, '}', left) != NULL)
        status = wrong_name(string, "the length of the namespace is wrong");
    name->symbol = (uint32_t)PyList_GET_SIZE(list->names);
    if (!status && PyDict_SetItem(list->symbols, string, Py_None) < 0) status = PYTHON_ERROR;
    if (!status && PyList_Append(list->names, string) < 0) status = PYTHON_ERROR;
    Py_DECREF(string);
    return status;
}

/* The string of a name, borrowed, or NULL with an exception. */
static PyObject *name_string(struct event_list *list, struct name *name) {
    if (name->symbol == UNRESOLVED && resolve(list, name)) return NULL;
    return PyList_GetItem(list->names, (Py_ssize_t)name->symbol);
}

static int list_start(void *consumer, struct name *name, const struct attribute *attributes, size_t count) {
    struct event_list *list = consumer;
    if (end_text(list)) return PYTHON_ERROR;
    PyObject *pairs = PyList_New(0);
    if (!pairs) return PYTHON_ERROR;
    for (size_t i = 0; i < count; i++) {
        PyObject *string = name_string(list, attributes[i].name);
        PyObject *value = string ? string_of(attributes[i].value) : NULL;
        if (!value || append(pairs, Py_BuildValue("(ON)", string, value))) {
            Py_DECREF(pairs);
            return PYTHON_ERROR;
        }
    }
    PyObject *string = name_string(list, name);
    if (!string) {
        Py_DECREF(pairs);
        return PYTHON_ERROR;
    }
    return append(list->events, Py_BuildValue("(sON)", "start", string, pairs));
}

static int list_end(void *consumer) {
    struct event_list *list = consumer;
    return end_text(list) ? PYTHON_ERROR : append(list->events, Py_BuildValue("(s)", "end"));
}

static int list_text(void *consumer, const char *bytes, size_t length) {
    struct event_list *list = consumer;
    if (length > list->text_capacity - list->text_length) {
        size_t capacity = 2 * (list->text_length + length);
        char *text = PyMem_Realloc(list->text, capacity);
        if (!text) {
            PyErr_NoMemory();
            return PYTHON_ERROR;
        }
        list->text = text;
        list->text_capacity = capacity;
    }
    memcpy(list->text + list->text_length, bytes, length);
    list->text_length += length;
    return 0;
}

static int list_boundary(void *consumer) {
    struct event_list *list = consumer;
    return end_text(list) ? PYTHON_ERROR : append(list->events, Py_BuildValue("(s)", "boundary"));
}

static int list_declaration(void *consumer, struct span prefix, struct span uri) {
    struct event_list *list = consumer;
    if (end_text(list)) return PYTHON_ERROR;
    return append(list->events, Py_BuildValue("(sNN)", "declare", string_of(prefix), string_of(uri)));
}

/* The consumer of `count_events`, which does as little as one can. */
struct event_counts {
    size_t starts, attributes, ends, text, boundaries, declarations, resolved;
};

static void resolve_once(struct event_counts *counts, struct name *name) {
    if (name->symbol != UNRESOLVED) return;
    name->symbol = 0;
    counts->resolved++;
}

static int count_start(void *consumer, struct name *name, const struct attribute *attributes, size_t count) {
    struct event_counts *counts = consumer;
    counts->starts++;
    counts->attributes += count;
    resolve_once(counts, name);
    for (size_t i = 0; i < count; i++) resolve_once(counts, attributes[i].name);
    return 0;
}

static int count_end(void *consumer) { return ((struct event_counts *)consumer)->ends++, 0; }

static int count_text(void *consumer, const char *bytes, size_t length) {
    (void)bytes;
    return ((struct event_counts *)consumer)->text += length, 0;
}

static int count_boundary(void *consumer) { return ((struct event_counts *)consumer)->boundaries++, 0; }

static int count_declaration(void *consumer, struct span prefix, struct span uri) {
    (void)prefix, (void)uri;
    return ((struct event_counts *)consumer)->declarations++, 0;
}

static const struct handlers list_handlers = {list_start, list_end, list_text, list_boundary,
                                              list_declaration};
static const struct handlers count_handlers = {count_start, count_end, count_text, count_boundary,
                                               count_declaration};

/* The arguments of both functions. */
struct request {
    struct span message;
    int with_tokenizer;
    const char *encoding;
    struct reader_limits limits;
    struct reader *reader;
};

static int run(const struct request *request, const struct handlers *handlers, void *consumer) {
    if (request->with_tokenizer)
        return tokenizer_read(request->reader, request->message, &request->limits, handlers, consumer);
    return expat_read(request->reader, request->message, request->encoding, &request->limits, handlers,
                      consumer);
}

static char *names_to_list[] = {"data", "reader", "encoding", "depth", "attributes", "name_length", NULL};
static char *names_to_count[] = {"data",       "reader",      "encoding", "depth",
                                 "attributes", "name_length", "times",    "version", NULL};

static int parse_request(PyObject *arguments, PyObject *keywords, const char *format, char **names,
                         struct request *request, Py_ssize_t *times, Py_ssize_t *version) {
    Py_ssize_t length, depth = 500, attributes = 1000, name_length = 1000;
    const char *reader;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, format, names, &request->message.bytes, &length,
                                     &reader, &request->encoding, &depth, &attributes, &name_length, times,
                                     version))
        return -1;
    request->message.length = (size_t)length;
    request->with_tokenizer = strcmp(reader, "tokenizer") == 0;
    if (!request->with_tokenizer && strcmp(reader, "expat") != 0) {
        PyErr_Format(PyExc_ValueError, "there is no reader %s: name \"tokenizer\" or \"expat\"", reader);
        return -1;
    }
    if (depth < 0 || attributes < 0 || name_length < 0 || *times < 1) {
        PyErr_SetString(PyExc_ValueError, "limits must not be negative, and a message is read at least once");
        return -1;
    }
    request->limits = (struct reader_limits){(size_t)depth, (size_t)attributes, (size_t)name_length};
    return 0;
}

/* Copy the message and take the kept reader or a new one. Return 0, or -1 with an exception. */
static int begin(struct request *request, struct kept_reader *kept, int *is_kept) {
    size_t length = request->message.length;
    char *copy = malloc(length + 1); /* the message ends where the memory does, also an empty one */
    if (!copy) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(copy + 1, request->message.bytes, length);
    request->message.bytes = copy + 1;
    *is_kept = PyThread_acquire_lock(kept->lock, NOWAIT_LOCK);
    request->reader = *is_kept ? kept->reader : reader_new();
    if (request->reader) return 0;
    free(copy);
    PyErr_NoMemory();
    return -1;
}

static void finish(struct request *request, struct kept_reader *kept, int is_kept) {
    if (is_kept) PyThread_release_lock(kept->lock);
    else reader_free(request->reader);
    free((char *)request->message.bytes - 1);
}

static PyObject *read_events(PyObject *capsule, PyObject *arguments, PyObject *keywords) {
    struct kept_reader *kept = PyCapsule_GetPointer(capsule, NULL);
    struct request request = {0};
    Py_ssize_t times = 1;
    int is_kept;
    const char *format = "y#s|znnn:read_events";
    if (!kept || parse_request(arguments, keywords, format, names_to_list, &request, &times, NULL) < 0)
        return NULL;
    struct event_list list = {PyList_New(0), PyList_New(0), PyDict_New(), NULL, 0, 0};
    PyObject *result = NULL;
    if (list.events && list.names && list.symbols && begin(&request, kept, &is_kept) == 0) {
        int status = run(&request, &list_handlers, &list);
        finish(&request, kept, is_kept);
        if (status == READ) result = Py_NewRef(list.events);
        else if (status != PYTHON_ERROR) result = PyLong_FromLong(status);
    }
    PyMem_Free(list.text);
    Py_XDECREF(list.events);
    Py_XDECREF(list.names);
    Py_XDECREF(list.symbols);
    return result;
}

static PyObject *count_events(PyObject *capsule, PyObject *arguments, PyObject *keywords) {
    struct kept_reader *kept = PyCapsule_GetPointer(capsule, NULL);
    struct request request = {0};
    Py_ssize_t times = 1;
    int is_kept;
    const char *format = "y#s|znnnnn:count_events";
    Py_ssize_t version = -1;
    if (!kept || parse_request(arguments, keywords, format, names_to_count, &request, &times, &version) < 0)
        return NULL;
    if (begin(&request, kept, &is_kept) < 0) return NULL;
    struct event_counts counts = {0};
    int status = READ;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < times && status == READ; i++) {
        counts = (struct event_counts){0};
        if (version >= 0) reader_keep_symbols(request.reader, (uint64_t)version);
        status = run(&request, &count_handlers, &counts);
    }
    Py_END_ALLOW_THREADS
    finish(&request, kept, is_kept);
    if (status != READ) return PyLong_FromLong(status);
    return Py_BuildValue("(nnnnnnn)", (Py_ssize_t)counts.starts, (Py_ssize_t)counts.attributes,
                         (Py_ssize_t)counts.ends, (Py_ssize_t)counts.text, (Py_ssize_t)counts.boundaries,
                         (Py_ssize_t)counts.declarations, (Py_ssize_t)counts.resolved);
}

static PyMethodDef functions[] = {
    {"read_events", (PyCFunction)(void (*)(void))read_events, METH_VARARGS | METH_KEYWORDS,
     "Return what a reader reports for a message as a list of tuples, or its negative status."},
    {"count_events", (PyCFunction)(void (*)(void))count_events, METH_VARARGS | METH_KEYWORDS,
     "Read a message without the GIL, several times if wanted, and return how many starts, attributes,\n"
     "ends, bytes of text, boundaries and declarations the last reading reports, and how many names it has\n"
     "without a symbol, or its status. Symbols are kept from the last call with the same version."},
};

static void free_kept(PyObject *capsule) {
    struct kept_reader *kept = PyCapsule_GetPointer(capsule, NULL);
    if (kept->lock) PyThread_free_lock(kept->lock);
    reader_free(kept->reader);
    PyMem_Free(kept);
}

static PyObject *new_kept(void) {
    struct kept_reader *kept = PyMem_Calloc(1, sizeof *kept);
    PyObject *capsule = kept ? PyCapsule_New(kept, NULL, free_kept) : NULL;
    if (!capsule) {
        PyMem_Free(kept);
        return kept ? NULL : PyErr_NoMemory();
    }
    kept->lock = PyThread_allocate_lock();
    kept->reader = reader_new();
    if (kept->lock && kept->reader) return capsule;
    Py_DECREF(capsule);
    return PyErr_NoMemory();
}

int add_event_list(PyObject *module) {
    PyObject *capsule = new_kept();
    if (!capsule) return -1;
    int status = 0;
    for (size_t i = 0; i < sizeof functions / sizeof *functions && status == 0; i++) {
        PyObject *function = PyCFunction_NewEx(&functions[i], capsule, NULL);
        status = function ? PyModule_AddObjectRef(module, functions[i].ml_name, function) : -1;
        Py_XDECREF(function);
    }
    Py_DECREF(capsule);
    return status;
}
