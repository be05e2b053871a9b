/* The key of all hashes: 16 bytes from the system's source of randomness.

   `os.urandom` is asked, since it knows each system's way; CPython's own hash secret is private. One key
   serves the whole process, so that loading the module in a second interpreter changes nothing. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "hash_key.h"

static struct hash_key the_key;
static int is_drawn;

int hash_key_load(void) {
    if (is_drawn) return 0;
    PyObject *os = PyImport_ImportModule("os");
    if (!os) return -1;
    PyObject *random = PyObject_CallMethod(os, "urandom", "n", (Py_ssize_t)sizeof the_key);
    Py_DECREF(os);
    if (!random) return -1;
    char *bytes;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(random, &bytes, &length) < 0) {
        Py_DECREF(random);
        return -1;
    }
    if (length != (Py_ssize_t)sizeof the_key) {
        Py_DECREF(random);
        PyErr_SetString(PyExc_ImportError, "os.urandom returns fewer bytes than asked for");
        return -1;
    }
    memcpy(&the_key, bytes, sizeof the_key);
    is_drawn = 1;
    Py_DECREF(random);
    return 0;
}

const struct hash_key *hash_key(void) { return &the_key; }
