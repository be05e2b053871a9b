/* `Automaton` and `Result` in Python: the seam between the index and the kernel. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "automaton_object.h"
#include "automaton_sizes.h"
#include "hash_key.h"
#include "module.h"
#include "path_text.h"
#include "query_pack.h"
#include "query_spec.h"
#include "result.h"

typedef struct {
    PyObject_HEAD
    struct automaton automaton;
    struct match_options options;
    struct scratch *scratches[16]; /* not in use; guarded by the lock of results */
    uint32_t scratch_count;
} Automaton;

typedef struct {
    PyObject_HEAD
    Automaton *owner;
    struct result result;
} Result;

static PyTypeObject ResultType;

/* -- scratch ---------------------------------------------------------------------------------------------- */

static struct scratch *take_scratch(Automaton *self) {
    struct scratch *scratch = NULL;
    lock_write(&self->automaton.results_lock);
    if (self->scratch_count) scratch = self->scratches[--self->scratch_count];
    unlock_write(&self->automaton.results_lock);
    return scratch ? scratch : scratch_new();
}

static void give_scratch(Automaton *self, struct scratch *scratch) {
    lock_write(&self->automaton.results_lock);
    if (self->scratch_count < sizeof self->scratches / sizeof *self->scratches) {
        self->scratches[self->scratch_count++] = scratch;
        scratch = NULL;
    }
    unlock_write(&self->automaton.results_lock);
    scratch_free(scratch);
}

/* -- locks ------------------------------------------------------------------------------------------------- */

/* Whoever has the GIL must not wait for the automaton's lock, and whoever has that must not wait for the GIL: so
   wait without both, and try again with the GIL. */

static void wait_to_read(Automaton *self) {
    while (!try_lock_read(&self->automaton.lock)) {
        Py_BEGIN_ALLOW_THREADS
        lock_read(&self->automaton.lock);
        unlock_read(&self->automaton.lock);
        Py_END_ALLOW_THREADS
    }
}

static void wait_to_write(Automaton *self) {
    while (!try_lock_write(&self->automaton.lock)) {
        Py_BEGIN_ALLOW_THREADS
        lock_write(&self->automaton.lock);
        unlock_write(&self->automaton.lock);
        Py_END_ALLOW_THREADS
    }
}

/* -- edits -------------------------------------------------------------------------------------------------- */

/* Finish an edit: an automaton that ran out of memory in the middle of one cannot be trusted. */
static PyObject *edited(Automaton *self, int failed) {
    failed = failed || automaton_end_edit(&self->automaton);
    if (failed) self->automaton.damaged = 1;
    unlock_write(&self->automaton.lock);
    if (failed) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static int begin_edit(Automaton *self) {
    if (self->automaton.damaged) {
        PyErr_SetString(PyExc_MemoryError, "memory ran out during an earlier change of the queries");
        return -1;
    }
    wait_to_write(self);
    if (automaton_begin_edit(&self->automaton) == 0) return 0;
    unlock_write(&self->automaton.lock);
    PyErr_NoMemory();
    return -1;
}

static PyObject *automaton_py_register(Automaton *self, PyObject *args) {
    unsigned int slot;
    PyObject *parts;
    int binds;
    if (!PyArg_ParseTuple(args, "IO!p:register", &slot, &PyTuple_Type, &parts, &binds)) return NULL;
    struct query_spec *spec = query_spec_new(parts);
    if (spec == NULL) return NULL;
    PyObject *done = NULL;
    if (begin_edit(self) == 0)
        done = edited(self, automaton_register(&self->automaton, slot, spec->parts, spec->count, binds));
    query_spec_free(spec);
    return done;
}

/* Register a plain path, given as symbols or as a query: return the slot that has it, or None if the query is no
   plain path. */
static PyObject *automaton_py_register_path(Automaton *self, PyObject *const *args, Py_ssize_t count) {
    struct span symbols[MOST_SYMBOLS], *path = symbols;
    uint32_t length;
    PyObject *kept = NULL;
    if (count != 2) return PyErr_Format(PyExc_TypeError, "register_path(slot: int, path: str | tuple[str, ...])");
    uint32_t slot = (uint32_t)PyLong_AsUnsignedLong(args[0]);
    if (PyErr_Occurred()) return NULL;
    if (PyUnicode_Check(args[1])) {
        if (!PyUnicode_IS_COMPACT_ASCII(args[1])) Py_RETURN_NONE;
        struct span text = {(const char *)PyUnicode_1BYTE_DATA(args[1]), (size_t)PyUnicode_GET_LENGTH(args[1])};
        length = split_path(text, symbols);
        if (length == 0) Py_RETURN_NONE;
    } else {
        kept = path_spec_new(args[1], &path, &length);
        if (kept == NULL) return NULL;
    }
    PyObject *done = NULL;
    if (begin_edit(self) == 0) done = edited(self, automaton_register_path(&self->automaton, &slot, path, length));
    if (kept != NULL) PyMem_Free(path);
    Py_XDECREF(kept);
    if (done == NULL) return NULL;
    Py_DECREF(done);
    return PyLong_FromUnsignedLong(slot);
}

static PyObject *automaton_py_unregister(Automaton *self, PyObject *arg) {
    unsigned long slot = PyLong_AsUnsignedLong(arg);
    if (PyErr_Occurred() || begin_edit(self)) return NULL;
    int known = slot < self->automaton.slots.count && self->automaton.slots.items[slot].flags & IN_USE;
    int failed = known && automaton_unregister(&self->automaton, (uint32_t)slot);
    PyObject *done = edited(self, failed);
    if (known || done == NULL) return done;
    Py_DECREF(done);
    return PyErr_Format(PyExc_KeyError, "no query has slot %lu", slot);
}

static PyObject *automaton_py_set_weight(Automaton *self, PyObject *args) {
    unsigned int slot, weight;
    if (!PyArg_ParseTuple(args, "II:set_weight", &slot, &weight) || begin_edit(self)) return NULL;
    return edited(self, automaton_set_weight(&self->automaton, slot, weight));
}

/* Return the sum of the weights of slots, given as int32. */
static PyObject *automaton_py_count(Automaton *self, PyObject *slots) {
    if (!PyBytes_Check(slots)) return PyErr_Format(PyExc_TypeError, "slots are given as bytes");
    const char *bytes = PyBytes_AS_STRING(slots);
    uint64_t sum = 0;
    wait_to_read(self);
    for (Py_ssize_t at = 0; at + 4 <= PyBytes_GET_SIZE(slots); at += 4) {
        uint32_t slot;
        memcpy(&slot, bytes + at, 4);
        if (slot < self->automaton.slots.count) sum += self->automaton.slots.items[slot].weight;
    }
    unlock_read(&self->automaton.lock);
    return PyLong_FromUnsignedLongLong(sum);
}

static PyObject *automaton_py_dump(Automaton *self, PyObject *unused) {
    (void)unused;
    wait_to_read(self);
    PyObject *dumped = pack_queries(&self->automaton);
    unlock_read(&self->automaton.lock);
    return dumped;
}

static PyObject *automaton_py_load(Automaton *self, PyObject *args) {
    struct packed_queries packed;
    PyObject *strings;
    if (!PyArg_ParseTuple(args, "y*O!y*:load", &packed.code, &PyList_Type, &strings, &packed.numbers)) return NULL;
    PyObject *done = NULL;
    if (packed_queries_open(&packed, strings) == 0 && begin_edit(self) == 0) {
        int status = unpack_queries(&self->automaton, &packed);
        done = edited(self, status == -1);
        if (status == DAMAGED_PACK && done != NULL) {
            Py_CLEAR(done);
            PyErr_SetString(PyExc_ValueError, "the packed queries are damaged");
        }
    }
    packed_queries_close(&packed);
    return done;
}

static PyObject *automaton_py_reads_text(Automaton *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(self->automaton.text_indexes != 0);
}

static PyObject *automaton_py_clear(Automaton *self, PyObject *unused) {
    (void)unused;
    return begin_edit(self) ? NULL : edited(self, automaton_clear(&self->automaton));
}

/* -- matching ----------------------------------------------------------------------------------------------- */

/* A message that is about to be matched, and then what came of it. */
struct job {
    Result *result;
    struct span message;
    const char *encoding;
    int status;
};

static int job_init(struct job *job, Automaton *self, PyObject *message, PyObject *encoding) {
    if (!PyBytes_Check(message) || !(encoding == Py_None || PyUnicode_Check(encoding))) {
        PyErr_SetString(PyExc_TypeError, "a message is bytes, and its encoding str or None");
        return -1;
    }
    job->message = (struct span){PyBytes_AS_STRING(message), (size_t)PyBytes_GET_SIZE(message)};
    job->encoding = encoding == Py_None ? NULL : PyUnicode_AsUTF8(encoding);
    job->result = PyErr_Occurred() ? NULL : PyObject_New(Result, &ResultType);
    if (job->result == NULL) return -1;
    memset(&job->result->result, 0, sizeof job->result->result);
    job->result->owner = (Automaton *)Py_NewRef((PyObject *)self);
    job->result->result.automaton = &self->automaton;
    return 0;
}

/* Match messages, without the GIL; -1: memory is out. */
static int run_jobs(Automaton *self, struct job *jobs, Py_ssize_t count, int tokenizer) {
    struct match_options options = self->options;
    options.tokenizer = tokenizer;
    struct scratch *scratch = self->automaton.damaged ? NULL : take_scratch(self);
    if (scratch == NULL) return -1;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < count; i++)
        jobs[i].status = match_message(&jobs[i].result->result, scratch, jobs[i].message, jobs[i].encoding, &options);
    give_scratch(self, scratch);
    Py_END_ALLOW_THREADS
    return 0;
}

/* Return the result of a job, or the status if the message could not be read. */
static PyObject *job_finish(struct job *job) {
    if (job->status == READ) return (PyObject *)job->result;
    Py_DECREF(job->result);
    return job->status == OUT_OF_MEMORY ? PyErr_NoMemory() : PyLong_FromLong(job->status);
}

static PyObject *automaton_py_match(Automaton *self, PyObject *const *args, Py_ssize_t count) {
    struct job job;
    if (count != 3) return PyErr_Format(PyExc_TypeError, "match(message, encoding, tokenizer)");
    int tokenizer = PyObject_IsTrue(args[2]);
    if (tokenizer < 0 || job_init(&job, self, args[0], args[1])) return NULL;
    if (run_jobs(self, &job, 1, tokenizer) == 0) return job_finish(&job);
    Py_DECREF(job.result);
    return PyErr_NoMemory();
}

static PyObject *automaton_py_match_many(Automaton *self, PyObject *args) {
    PyObject *messages, *encodings;
    int tokenizer;
    if (!PyArg_ParseTuple(args, "O!O!p:match_many", &PyTuple_Type, &messages, &PyTuple_Type, &encodings, &tokenizer))
        return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(messages), ready = 0;
    if (PyTuple_GET_SIZE(encodings) != count)
        return PyErr_Format(PyExc_ValueError, "there must be an encoding, or None, for each message");
    struct job *jobs = PyMem_Calloc((size_t)count + 1, sizeof *jobs);
    if (jobs == NULL) return PyErr_NoMemory();
    while (ready < count && job_init(&jobs[ready], self, PyTuple_GET_ITEM(messages, ready),
                                     PyTuple_GET_ITEM(encodings, ready)) == 0)
        ready++;
    PyObject *found = NULL;
    if (ready == count) found = run_jobs(self, jobs, count, tokenizer) ? PyErr_NoMemory() : PyList_New(count);
    for (Py_ssize_t i = 0; i < ready; i++) {
        PyObject *item = found != NULL ? job_finish(&jobs[i]) : NULL;
        if (item != NULL)
            PyList_SET_ITEM(found, i, item);
        else if (found != NULL)
            Py_CLEAR(found);
        else
            Py_DECREF(jobs[i].result);
    }
    PyMem_Free(jobs);
    return found;
}

static PyObject *automaton_py_version(Automaton *self, void *unused) {
    (void)unused;
    wait_to_read(self);
    uint64_t version = self->automaton.version;
    unlock_read(&self->automaton.lock);
    return PyLong_FromUnsignedLongLong(version);
}

/* -- results ------------------------------------------------------------------------------------------------ */

static PyObject *bytes_of(const struct numbers *numbers) {
    return PyBytes_FromStringAndSize((const char *)numbers->items, (Py_ssize_t)numbers->count * 4);
}

static PyObject *result_py_slots(Result *self, PyObject *unused) {
    (void)unused;
    struct numbers slots = {NULL, 0, 0};
    wait_to_read(self->owner);
    int failed = result_slots(&self->result, &slots);
    unlock_read(&self->owner->automaton.lock);
    PyObject *made = failed ? PyErr_NoMemory() : bytes_of(&slots);
    FREE_ARRAY(&slots);
    return made;
}

static PyObject *result_py_candidates(Result *self, PyObject *unused) {
    (void)unused;
    return bytes_of(&self->result.matched.candidates);
}

static PyObject *result_py_bound(Result *self, PyObject *unused) {
    (void)unused;
    return Py_BuildValue("(NN)", bytes_of(&self->result.matched.bound_slots),
                         bytes_of(&self->result.matched.bound_to));
}

static PyObject *result_py_count(Result *self, void *unused) {
    (void)unused;
    return PyLong_FromUnsignedLongLong(self->result.matched.count);
}

static PyObject *result_py_version(Result *self, void *unused) {
    (void)unused;
    return PyLong_FromUnsignedLongLong(self->result.version);
}

static PyObject *result_py_joined(Result *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(!self->result.matched.loose);
}

static void result_dealloc(Result *self) {
    result_free(&self->result);
    Py_XDECREF(self->owner);
    PyObject_Free(self);
}

int is_result(PyObject *object) { return Py_IS_TYPE(object, &ResultType); }

int result_object_slots(PyObject *object, struct numbers *slots) {
    int once;
    return result_object_slots_once(object, slots, &once);
}

int result_object_slots_once(PyObject *object, struct numbers *slots, int *once) {
    Result *self = (Result *)object;
    wait_to_read(self->owner);
    *once = result_has_classes_only(&self->result);
    int failed = result_list(&self->result, slots);
    unlock_read(&self->owner->automaton.lock);
    return failed;
}

static PyMethodDef result_methods[] = {
    {"slots", (PyCFunction)result_py_slots, METH_NOARGS, "Return the slots found, ascending, as int32."},
    {"candidates", (PyCFunction)result_py_candidates, METH_NOARGS,
     "Return the slots of twigs that may match, as uint32, where they were not joined."},
    {"bound", (PyCFunction)result_py_bound, METH_NOARGS,
     "Return the slots that bind elements, and these, as uint32."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef result_attributes[] = {
    {"count", (getter)result_py_count, NULL, "The number of subscriptions to the slots found.", NULL},
    {"joined", (getter)result_py_joined, NULL, "Whether twigs were joined.", NULL},
    {"version", (getter)result_py_version, NULL, "The version of the queries that were matched.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject ResultType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "sapwood.engine.kernel._kernel.Result",
    .tp_doc = "What a message matched.",
    .tp_basicsize = sizeof(Result),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)result_dealloc,
    .tp_methods = result_methods,
    .tp_getset = result_attributes,
};

/* -- the type ------------------------------------------------------------------------------------------------ */

static PyObject *automaton_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"budget", "depth", "attributes", "name_length", "query_classes", NULL};
    unsigned long long budget, depth, attributes, name_length;
    int query_classes;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "KKKKp:Automaton", names, &budget, &depth, &attributes,
                                     &name_length, &query_classes))
        return NULL;
    Automaton *self = (Automaton *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->options.limits = (struct reader_limits){(size_t)depth, (size_t)attributes, (size_t)name_length};
    if (automaton_init(&self->automaton, *hash_key(), budget)) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    self->automaton.with_classes = query_classes;
    return (PyObject *)self;
}

static void automaton_dealloc(Automaton *self) {
    while (self->scratch_count) scratch_free(self->scratches[--self->scratch_count]);
    automaton_free(&self->automaton);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *automaton_py_sizes(Automaton *self, PyObject *unused) {
    (void)unused;
    struct automaton_sizes sizes;
    wait_to_read(self);
    automaton_measure(&self->automaton, &sizes);
    unlock_read(&self->automaton.lock);
    return Py_BuildValue("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "slots", sizes.slots, "names", sizes.names,
                         "states", sizes.states, "predicate_indexes", sizes.predicate_indexes, "constants",
                         sizes.constants, "twigs", sizes.twigs, "anchorings", sizes.anchorings, "guide_nodes",
                         sizes.guide_nodes, "classes", sizes.classes, "probes", sizes.probes, "hits", sizes.hits);
}

/* What `sys.getsizeof` tells. */
static PyObject *automaton_py_sizeof(Automaton *self, PyObject *unused) {
    (void)unused;
    struct automaton_sizes sizes;
    wait_to_read(self);
    automaton_measure(&self->automaton, &sizes);
    unlock_read(&self->automaton.lock);
    return PyLong_FromUnsignedLongLong(sizeof *self + sizes.bytes);
}

static PyMethodDef automaton_methods[] = {
    {"register", (PyCFunction)automaton_py_register, METH_VARARGS,
     "Register a query, given by the parts of its index plan, under a slot."},
    {"register_path", (PyCFunction)(void (*)(void))automaton_py_register_path, METH_FASTCALL,
     "Register a plain path, given as symbols or as a query, unless an equal one is: return the slot that has "
     "it, or None if the query is no plain path."},
    {"unregister", (PyCFunction)automaton_py_unregister, METH_O, "Remove the query of a slot."},
    {"set_weight", (PyCFunction)automaton_py_set_weight, METH_VARARGS,
     "Set the number of subscriptions to a slot."},
    {"count", (PyCFunction)automaton_py_count, METH_O, "Return the number of subscriptions to some slots."},
    {"dump", (PyCFunction)automaton_py_dump, METH_NOARGS,
     "Return all queries as flat arrays: code, strings and numbers."},
    {"load", (PyCFunction)automaton_py_load, METH_VARARGS, "Register queries, given as flat arrays."},
    {"clear", (PyCFunction)automaton_py_clear, METH_NOARGS, "Drop the dataguide."},
    {"match", (PyCFunction)(void (*)(void))automaton_py_match, METH_FASTCALL,
     "Match a message: return a Result, or the status of the reader if it cannot be read."},
    {"match_many", (PyCFunction)automaton_py_match_many, METH_VARARGS,
     "Match messages, each with its encoding or None, and return the same for each."},
    {"__sizeof__", (PyCFunction)automaton_py_sizeof, METH_NOARGS, "Return the memory in bytes."},
    {"sizes", (PyCFunction)automaton_py_sizes, METH_NOARGS, "Return how large the structures are."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef automaton_attributes[] = {
    {"reads_text", (getter)automaton_py_reads_text, NULL, "Whether some query tests text.", NULL},
    {"version", (getter)automaton_py_version, NULL, "How often the queries were changed.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject AutomatonType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "sapwood.engine.kernel._kernel.Automaton",
    .tp_doc = "All queries, and the matching of messages against them.",
    .tp_basicsize = sizeof(Automaton),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = automaton_new,
    .tp_dealloc = (destructor)automaton_dealloc,
    .tp_methods = automaton_methods,
    .tp_getset = automaton_attributes,
};

int add_automaton(PyObject *module) {
    return PyModule_AddType(module, &ResultType) || PyModule_AddType(module, &AutomatonType) ? -1 : 0;
}
