#define PY_SSIZE_T_CLEAN
#include "query_spec.h"

/* Return the UTF-8 of a string; the object that has the bytes is added to `kept`, unless it is the string. */
static int utf8_of(PyObject *string, PyObject *kept, struct span *text) {
    Py_ssize_t length;
    const char *bytes = PyUnicode_AsUTF8AndSize(string, &length);
    if (bytes == NULL) { /* a lone surrogate, which no message has, but a query may */
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) return -1;
        PyErr_Clear();
        PyObject *encoded = PyUnicode_AsEncodedString(string, "utf-8", "surrogatepass");
        if (encoded == NULL) return -1;
        int failed = PyList_Append(kept, encoded);
        Py_DECREF(encoded);
        if (failed) return -1;
        bytes = PyBytes_AS_STRING(encoded);
        length = PyBytes_GET_SIZE(encoded);
    }
    *text = (struct span){bytes, (size_t)length};
    return 0;
}

static int convert_path(PyObject *path, PyObject *kept, struct span *symbols) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(path); i++) {
        PyObject *symbol = PyTuple_GET_ITEM(path, i);
        if (!PyUnicode_Check(symbol)) {
            PyErr_SetString(PyExc_TypeError, "the symbols of a path are strings");
            return -1;
        }
        if (utf8_of(symbol, kept, &symbols[i])) return -1;
    }
    return 0;
}

PyObject *path_spec_new(PyObject *path, struct span **symbols, uint32_t *length) {
    if (!PyTuple_Check(path)) {
        PyErr_SetString(PyExc_TypeError, "a path is a tuple of symbols");
        return NULL;
    }
    *length = (uint32_t)PyTuple_GET_SIZE(path);
    *symbols = PyMem_Calloc(*length + 1, sizeof **symbols);
    PyObject *kept = PyList_New(0);
    if (*symbols != NULL && kept != NULL && convert_path(path, kept, *symbols) == 0) return kept;
    if (!PyErr_Occurred()) PyErr_NoMemory();
    Py_XDECREF(kept);
    PyMem_Free(*symbols);
    return NULL;
}

/* Return zeroed memory that lives as long as the spec. */
static void *allocate(struct query_spec *spec, size_t count, size_t size) {
    void *block = PyMem_Calloc(count ? count : 1, size);
    if (block == NULL || PUSH(&spec->blocks, block)) {
        PyMem_Free(block);
        PyErr_NoMemory();
        return NULL;
    }
    return block;
}

static int set_operator(struct test *test, PyObject *operator, int is_number) {
    static const struct {
        const char *text;
        int of_text, of_number; /* -1: there is none */
    } known[] = {
        {"=", EQUAL, NUMBER_EQUAL}, {"!=", UNEQUAL, NUMBER_UNEQUAL}, {"<", -1, LESS},       {"<=", -1, AT_MOST},
        {">", -1, MORE},            {">=", -1, AT_LEAST},            {"contains", CONTAINS, -1},
        {"starts-with", STARTS_WITH, -1},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        int found = is_number ? known[i].of_number : known[i].of_text;
        if (found >= 0 && PyUnicode_CompareWithASCIIString(operator, known[i].text) == 0) {
            test->operator= (enum test_operator)found;
            return 0;
        }
    }
    PyErr_Format(PyExc_ValueError, "no such test: %R", operator);
    return -1;
}

static int convert_test(struct query_spec *spec, PyObject *source, struct test *test) {
    if (source == Py_None) {
        test->operator= EXISTS;
        return 0;
    }
    PyObject *operator= PyObject_GetAttrString(source, "op"), *value = PyObject_GetAttrString(source, "value");
    int failed = -1;
    if (operator== NULL || value == NULL) goto done;
    int is_number = PyFloat_Check(value);
    if (set_operator(test, operator, is_number)) goto done;
    if (is_number)
        test->number = PyFloat_AS_DOUBLE(value);
    else if (PyList_Append(spec->kept, value) || utf8_of(value, spec->kept, &test->text))
        goto done;
    failed = 0;
done:
    Py_XDECREF(operator);
    Py_XDECREF(value);
    return failed;
}

static int convert_leaf(struct query_spec *spec, PyObject *source, PyObject *path, struct leaf_spec *leaf) {
    PyObject *target = PyObject_GetAttrString(source, "target"), *test = PyObject_GetAttrString(source, "test");
    int failed = -1;
    leaf->path_length = (uint32_t)PyTuple_GET_SIZE(path);
    struct span *symbols = allocate(spec, leaf->path_length, sizeof *symbols);
    leaf->path = symbols;
    if (target != NULL && test != NULL && symbols != NULL && convert_path(path, spec->kept, symbols) == 0 &&
        PyList_Append(spec->kept, target) == 0 && utf8_of(target, spec->kept, &leaf->target) == 0)
        failed = convert_test(spec, test, &leaf->test);
    Py_XDECREF(target);
    Py_XDECREF(test);
    return failed;
}

static struct part_spec *convert_parts(struct query_spec *spec, PyObject *sources);

static int convert_part(struct query_spec *spec, PyObject *source, struct part_spec *part) {
    PyObject *path = PyObject_GetAttrString(source, "path"), *parts = NULL, *step = NULL;
    int failed = -1;
    if (path == NULL || PyList_Append(spec->kept, path)) goto done;
    if (!PyTuple_Check(path)) {
        PyErr_SetString(PyExc_TypeError, "a path is a tuple of symbols");
        goto done;
    }
    if (!PyObject_HasAttrString(source, "parts")) {
        part->kind = LEAF_SPEC;
        failed = convert_leaf(spec, source, path, &part->leaf);
        goto done;
    }
    part->kind = TWIG_SPEC;
    parts = PyObject_GetAttrString(source, "parts");
    step = PyObject_GetAttrString(source, "step");
    if (parts == NULL || step == NULL || !PyTuple_Check(parts)) goto done;
    part->step = (uint32_t)PyLong_AsUnsignedLong(step);
    if (PyErr_Occurred()) goto done;
    part->count = (uint32_t)PyTuple_GET_SIZE(parts);
    part->parts = convert_parts(spec, parts);
    failed = part->parts == NULL ? -1 : 0;
done:
    Py_XDECREF(path);
    Py_XDECREF(parts);
    Py_XDECREF(step);
    return failed;
}

static struct part_spec *convert_parts(struct query_spec *spec, PyObject *sources) {
    Py_ssize_t count = PyTuple_GET_SIZE(sources);
    struct part_spec *parts = allocate(spec, (size_t)count, sizeof *parts);
    for (Py_ssize_t i = 0; parts != NULL && i < count; i++) {
        if (convert_part(spec, PyTuple_GET_ITEM(sources, i), &parts[i])) return NULL;
    }
    return parts;
}

void query_spec_free(struct query_spec *spec) {
    if (spec == NULL) return;
    for (uint32_t i = 0; i < spec->blocks.count; i++) PyMem_Free(spec->blocks.items[i]);
    FREE_ARRAY(&spec->blocks);
    Py_XDECREF(spec->kept);
    PyMem_Free(spec);
}

struct query_spec *query_spec_new(PyObject *parts) {
    struct query_spec *spec = PyMem_Calloc(1, sizeof *spec);
    if (spec == NULL) return (struct query_spec *)PyErr_NoMemory();
    spec->kept = PyList_New(0);
    spec->count = (uint32_t)PyTuple_GET_SIZE(parts);
    spec->parts = spec->kept == NULL ? NULL : convert_parts(spec, parts);
    if (spec->parts != NULL) return spec;
    query_spec_free(spec);
    return NULL;
}
