/* The extension module `_kernel`: what Python sees of the compiled kernel. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "hash_key.h"
#include "module.h"
#include "reader.h"

/* What the module was compiled from, which the loader compares with the C files: see source_checksum.py. The
   build defines it. */
static int add_source_checksum(PyObject *module) {
    PyObject *checksum = PyLong_FromUnsignedLong(SOURCE_CHECKSUM);
    int added = PyModule_AddObjectRef(module, "SOURCE_CHECKSUM", checksum);
    Py_XDECREF(checksum);
    return added;
}

static int kernel_exec(PyObject *module) {
    return add_source_checksum(module) == 0 && hash_key_load() == 0 && expat_load() == 0 &&
                   add_event_list(module) == 0 && add_document(module) == 0 && add_relative_paths(module) == 0 &&
                   add_bound_elements(module) == 0 && add_automaton(module) == 0 && add_subscriptions(module) == 0
               ? 0
               : -1;
}

static PyModuleDef_Slot kernel_slots[] = {
    {Py_mod_exec, kernel_exec},
    {0, NULL},
};

static struct PyModuleDef kernel_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_kernel",
    .m_doc = "The compiled kernel: reads messages and matches them against all queries, without the GIL.",
    .m_size = 0,
    .m_slots = kernel_slots,
};

PyMODINIT_FUNC PyInit__kernel(void) { return PyModuleDef_Init(&kernel_module); }
