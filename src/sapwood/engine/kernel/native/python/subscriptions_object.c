/* `Subscriptions` in Python: see `subscriptions.h`. */
#include "subscriptions.h"

#include "automaton_object.h"
#include "module.h"

typedef struct {
    PyObject_HEAD
    struct subscriptions table;
} Subscriptions;

/* Find the row of an id; -1 with a KeyError if there is none. */
static int require_row(Subscriptions *self, PyObject *id, uint32_t *hash, uint32_t *row) {
    int found = subscriptions_find(&self->table, id, hash, row);
    if (found == 0) PyErr_SetObject(PyExc_KeyError, id);
    return found == 1 ? 0 : -1;
}

/* -- edits -------------------------------------------------------------------------------------------------- */

static PyObject *py_add(Subscriptions *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 4) return PyErr_Format(PyExc_TypeError, "add(id, number: int, slot: int, text: str | None)");
    long long number = PyLong_AsLongLong(args[1]);
    unsigned long slot = PyLong_AsUnsignedLong(args[2]);
    uint32_t hash, row;
    if (PyErr_Occurred()) return NULL;
    int found = subscriptions_find(&self->table, args[0], &hash, &row);
    if (found > 0) PyErr_SetObject(PyExc_KeyError, args[0]);
    if (found != 0) return NULL;
    if (slot >= NONE || subscriptions_add(&self->table, args[0], hash, number, (uint32_t)slot, args[3]))
        return PyErr_NoMemory();
    return PyLong_FromUnsignedLong(subscriptions_of_slot(&self->table, (uint32_t)slot));
}

static PyObject *py_remove(Subscriptions *self, PyObject *id) {
    uint32_t row, hash;
    if (require_row(self, id, &hash, &row)) return NULL;
    uint32_t slot = self->table.rows.items[row].slot, left = subscriptions_remove(&self->table, row, hash);
    return Py_BuildValue("(II)", slot, left);
}

static PyObject *py_move(Subscriptions *self, PyObject *args) {
    PyObject *id, *text;
    unsigned int slot;
    uint32_t row, hash;
    if (!PyArg_ParseTuple(args, "OIO:move", &id, &slot, &text) || require_row(self, id, &hash, &row)) return NULL;
    uint32_t before = self->table.rows.items[row].slot;
    if (slot >= NONE || subscriptions_move(&self->table, row, slot, text)) return PyErr_NoMemory();
    return Py_BuildValue("(II)", before, subscriptions_of_slot(&self->table, before));
}

/* -- lookups ------------------------------------------------------------------------------------------------ */

static PyObject *py_get(Subscriptions *self, PyObject *id) {
    uint32_t row, hash;
    if (require_row(self, id, &hash, &row)) return NULL;
    const struct row *item = &self->table.rows.items[row];
    PyObject *text = item->text == NONE ? Py_None : self->table.texts.items[item->text];
    return Py_BuildValue("(LIO)", (long long)self->table.numbers.items[row], item->slot, text);
}

static int py_contains(Subscriptions *self, PyObject *id) {
    uint32_t hash, row;
    return subscriptions_find(&self->table, id, &hash, &row);
}

static Py_ssize_t py_length(Subscriptions *self) { return subscriptions_count(&self->table); }

static PyObject *py_count(Subscriptions *self, PyObject *arg) {
    unsigned long slot = PyLong_AsUnsignedLong(arg);
    if (PyErr_Occurred()) return NULL;
    return PyLong_FromUnsignedLong(slot < NONE ? subscriptions_of_slot(&self->table, (uint32_t)slot) : 0);
}

/* -- lists -------------------------------------------------------------------------------------------------- */

/* List the slots of a `Result`, or of an array of int32. */
static int list_slots(PyObject *source, struct numbers *slots) {
    if (is_result(source)) return result_object_slots(source, slots) ? (PyErr_NoMemory(), -1) : 0;
    Py_buffer view;
    if (PyObject_GetBuffer(source, &view, PyBUF_SIMPLE)) return -1;
    if (view.len % 4) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ValueError, "slots are int32");
        return -1;
    }
    int failed = view.len / 4 >= NONE || RESERVE(slots, (uint32_t)(view.len / 4));
    if (!failed && view.len) memcpy(slots->items, view.buf, (size_t)view.len);
    slots->count = failed ? 0 : (uint32_t)(view.len / 4);
    PyBuffer_Release(&view);
    if (failed) PyErr_NoMemory();
    return failed ? -1 : 0;
}

static int list_rows(const Subscriptions *self, PyObject *source, struct numbers *rows) {
    struct numbers slots = {NULL, 0, 0};
    int failed = list_slots(source, &slots);
    if (!failed && subscriptions_list(&self->table, &slots, rows)) {
        PyErr_NoMemory();
        failed = -1;
    }
    FREE_ARRAY(&slots);
    return failed;
}

static PyObject *numbers_of(const struct subscriptions *table, const struct numbers *rows) {
    PyObject *made = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)rows->count * 8);
    if (made == NULL) return NULL;
    char *listed = PyByteArray_AS_STRING(made);
    const int64_t *numbers = table->numbers.items;
    const uint32_t *row = rows->items, *end = rows->items + rows->count;
    for (; row < end; row++, listed += sizeof *numbers) memcpy(listed, &numbers[*row], sizeof *numbers);
    return made;
}

static PyObject *ids_of(const struct subscriptions *table, const struct numbers *rows) {
    int collects = PyGC_Disable(); /* it may run code that changes the rows */
    PyObject *made = PyList_New(rows->count), *const *ids = table->ids.items;
    const uint32_t *row = rows->items;
    for (Py_ssize_t i = 0; made && i < rows->count; i++) PyList_SET_ITEM(made, i, Py_NewRef(ids[row[i]]));
    if (collects) PyGC_Enable();
    return made;
}

static PyObject *py_numbers(Subscriptions *self, PyObject *source) {
    struct numbers rows = {NULL, 0, 0};
    PyObject *made = list_rows(self, source, &rows) ? NULL : numbers_of(&self->table, &rows);
    FREE_ARRAY(&rows);
    return made;
}

/* Add the numbers of the subscriptions to a result's slots. Rows bring them in order, and each once. */
static int add_numbers(const Subscriptions *self, PyObject *result, int ordered, struct numbers *slots,
                       struct numbers *rows, struct subscription_numbers *numbers) {
    int once;
    slots->count = rows->count = 0;
    if (result_object_slots_once(result, slots, &once)) return -1;
    if (once && !ordered) return subscriptions_add_numbers(&self->table, slots, numbers);
    if (subscriptions_list(&self->table, slots, rows)) return -1;
    if (rows->count > NONE - 1 - numbers->count || RESERVE(numbers, numbers->count + rows->count)) return -1;
    const int64_t *of_row = self->table.numbers.items;
    for (uint32_t i = 0; i < rows->count; i++) numbers->items[numbers->count++] = of_row[rows->items[i]];
    return 0;
}

static PyObject *py_numbers_of_many(Subscriptions *self, PyObject *args) {
    PyObject *results;
    int ordered;
    if (!PyArg_ParseTuple(args, "O!p:list_numbers_of_many", &PyList_Type, &results, &ordered)) return NULL;
    struct numbers slots = {NULL, 0, 0}, rows = {NULL, 0, 0};
    struct subscription_numbers numbers = {NULL, 0, 0};
    PyObject *made = NULL, *ends = PyByteArray_FromStringAndSize(NULL, PyList_GET_SIZE(results) * 8);
    for (Py_ssize_t i = 0; ends != NULL && i < PyList_GET_SIZE(results); i++) {
        PyObject *result = PyList_GET_ITEM(results, i);
        if (!is_result(result)) {
            PyErr_SetString(PyExc_TypeError, "each of the results must be a Result");
            Py_CLEAR(ends);
        } else if (add_numbers(self, result, ordered, &slots, &rows, &numbers)) {
            PyErr_NoMemory();
            Py_CLEAR(ends);
        } else {
            int64_t end = numbers.count;
            memcpy(PyByteArray_AS_STRING(ends) + i * 8, &end, sizeof end);
        }
    }
    if (ends != NULL) {
        PyObject *listed = PyByteArray_FromStringAndSize((const char *)numbers.items, (Py_ssize_t)numbers.count * 8);
        made = listed == NULL ? NULL : Py_BuildValue("(NN)", listed, ends);
        if (listed == NULL) Py_DECREF(ends);
    }
    FREE_ARRAY(&slots);
    FREE_ARRAY(&rows);
    FREE_ARRAY(&numbers);
    return made;
}

static PyObject *py_ids(Subscriptions *self, PyObject *source) {
    struct numbers rows = {NULL, 0, 0};
    PyObject *made = list_rows(self, source, &rows) ? NULL : ids_of(&self->table, &rows);
    FREE_ARRAY(&rows);
    return made;
}

static PyObject *slots_of(const struct subscriptions *table, const struct numbers *rows) {
    PyObject *made = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)rows->count * 4);
    char *slots = made ? PyByteArray_AS_STRING(made) : NULL;
    for (uint32_t i = 0; made && i < rows->count; i++)
        memcpy(slots + (size_t)i * 4, &table->rows.items[rows->items[i]].slot, 4);
    return made;
}

/* Return the texts that are kept, by the places of their rows in a list. */
static PyObject *texts_of(const struct subscriptions *table, const struct numbers *rows) {
    PyObject *texts = PyDict_New();
    for (uint32_t i = 0; texts != NULL && i < rows->count; i++) {
        const struct row *item = &table->rows.items[rows->items[i]];
        if (item->text == NONE) continue;
        PyObject *place = PyLong_FromUnsignedLong(i);
        if (place == NULL || PyDict_SetItem(texts, place, table->texts.items[item->text])) Py_CLEAR(texts);
        Py_XDECREF(place);
    }
    return texts;
}

static PyObject *py_columns(Subscriptions *self, PyObject *unused) {
    (void)unused;
    struct numbers rows = {NULL, 0, 0};
    int failed = subscriptions_list_all(&self->table, &rows);
    int collects = PyGC_Disable();
    PyObject *made = failed ? PyErr_NoMemory()
                            : Py_BuildValue("(NNNN)", ids_of(&self->table, &rows), numbers_of(&self->table, &rows),
                                            slots_of(&self->table, &rows), texts_of(&self->table, &rows));
    if (collects) PyGC_Enable();
    FREE_ARRAY(&rows);
    return made;
}

/* -- the type ----------------------------------------------------------------------------------------------- */

static PyObject *py_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    (void)args;
    (void)keywords;
    Subscriptions *self = (Subscriptions *)type->tp_alloc(type, 0);
    if (self != NULL) subscriptions_clear(&self->table);
    return (PyObject *)self;
}

static int py_traverse(Subscriptions *self, visitproc visit, void *arg) {
    for (uint32_t row = 0; row < self->table.ids.count; row++) Py_VISIT(self->table.ids.items[row]);
    return 0;
}

static int py_clear(Subscriptions *self) { return subscriptions_clear(&self->table), 0; }

static void py_dealloc(Subscriptions *self) {
    PyObject_GC_UnTrack(self);
    subscriptions_clear(&self->table);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *py_sizeof(Subscriptions *self, PyObject *unused) {
    (void)unused;
    return PyLong_FromSize_t(sizeof *self + subscriptions_bytes(&self->table));
}

static PyMethodDef subscriptions_methods[] = {
    {"add", (PyCFunction)(void (*)(void))py_add, METH_FASTCALL,
     "Subscribe an id to a slot, and return how many subscriptions the slot has then."},
    {"remove", (PyCFunction)py_remove, METH_O,
     "End a subscription: return its slot, and how many subscriptions that has left."},
    {"move", (PyCFunction)py_move, METH_VARARGS,
     "Subscribe an id to another slot: return the one before, and how many subscriptions that has left."},
    {"get", (PyCFunction)py_get, METH_O,
     "Return the number and the slot of a subscription, and its text if that is not the slot's."},
    {"count", (PyCFunction)py_count, METH_O, "Return how many subscriptions a slot has."},
    {"list_numbers", (PyCFunction)py_numbers, METH_O,
     "Return the numbers of the subscriptions to some slots, ascending, as int64."},
    {"list_numbers_of_many", (PyCFunction)py_numbers_of_many, METH_VARARGS,
     "Return the numbers of the subscriptions of several results, ascending if so asked, and where each ends."},
    {"list_ids", (PyCFunction)py_ids, METH_O,
     "Return the ids of the subscriptions to some slots, in the order of their numbers."},
    {"list_columns", (PyCFunction)py_columns, METH_NOARGS,
     "Return all ids, numbers (int64) and slots (int32) in the order of the numbers, and texts by place."},
    {"__sizeof__", (PyCFunction)py_sizeof, METH_NOARGS, "Return the memory in bytes."},
    {NULL, NULL, 0, NULL},
};

static PySequenceMethods subscriptions_sequence = {
    .sq_length = (lenfunc)py_length,
    .sq_contains = (objobjproc)py_contains,
};

static PyTypeObject SubscriptionsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "sapwood.engine.kernel._kernel.Subscriptions",
    .tp_doc = "Who is subscribed to which slot.",
    .tp_basicsize = sizeof(Subscriptions),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = py_new,
    .tp_dealloc = (destructor)py_dealloc,
    .tp_traverse = (traverseproc)py_traverse,
    .tp_clear = (inquiry)py_clear,
    .tp_methods = subscriptions_methods,
    .tp_as_sequence = &subscriptions_sequence,
};

int add_subscriptions(PyObject *module) { return PyModule_AddType(module, &SubscriptionsType) ? -1 : 0; }
