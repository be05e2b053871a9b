/* Subscriptions: who is subscribed to which slot.

   A row for each subscription: its id, its number, the slot of its query, and its place among the rows of that
   slot. Rows are in the order in which they came, which is that of their numbers unless one was added with
   the number of another (`is_ordered`). Rows that are removed leave holes, which are closed when they are many.

       by_id     a hash table of rows by their ids
       of_slot   the row of each slot, or, marked as SEVERAL, the number of a group of them
       groups    rows of one slot
       texts     of the few subscriptions whose query is written otherwise than the slot's

   The subscriptions of matched slots are listed by marking their rows, so that they come in order.

   Rejected: dicts by id and by number and an object for each subscription, which took 350 bytes against some
   60, and a lookup for each id that is listed.

   Comparing ids may run any code, even such that changes this table: `changes` tells. */
#ifndef SAPWOOD_SUBSCRIPTIONS_H
#define SAPWOOD_SUBSCRIPTIONS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "arrays.h"

/* What is not listed: the rest of a row is in columns of their own, since listing reads one of them. */
struct row {
    uint32_t slot;
    uint32_t place; /* in the group, if the slot has one */
    uint32_t text;  /* among the texts, or NONE */
};

struct row_cell {
    uint32_t row, hash;
};

#define SEVERAL 0x80000000u

struct subscriptions {
    struct ARRAY_OF(struct row) rows;
    struct ARRAY_OF(PyObject *) ids; /* by row; NULL: a hole */
    struct ARRAY_OF(int64_t) numbers; /* by row */
    uint32_t holes;
    int is_ordered;
    uint64_t changes;
    struct row_cell *cells;
    uint32_t mask; /* of the number of cells, a power of two; they are at most three quarters full */
    struct numbers of_slot;
    struct ARRAY_OF(struct numbers) groups;
    struct numbers free_groups;
    struct ARRAY_OF(PyObject *) texts;
    struct numbers free_texts;
};

/* Start without subscriptions, and end so: release all ids and texts. */
void subscriptions_clear(struct subscriptions *table);

static inline uint32_t subscriptions_count(const struct subscriptions *table) {
    return table->rows.count - table->holes;
}

/* Find the row of an id, and the hash of it: 1, or 0 if there is none, or -1 with an exception. */
int subscriptions_find(struct subscriptions *table, PyObject *id, uint32_t *hash, uint32_t *row);

/* Add an id that is not there; `text` may be None. -1: memory is out. */
int subscriptions_add(struct subscriptions *table, PyObject *id, uint32_t hash, int64_t number, uint32_t slot,
                      PyObject *text);

/* Remove a row, and return how many its slot has left. */
uint32_t subscriptions_remove(struct subscriptions *table, uint32_t row, uint32_t hash);

/* Give a row another slot and text; -1: memory is out. */
int subscriptions_move(struct subscriptions *table, uint32_t row, uint32_t slot, PyObject *text);

/* Return how many rows a slot has. */
uint32_t subscriptions_of_slot(const struct subscriptions *table, uint32_t slot);

/* List the rows of slots, each once, or all rows, in the order of their numbers; -1: memory is out. */
int subscriptions_list(const struct subscriptions *table, const struct numbers *slots, struct numbers *rows);
int subscriptions_list_all(const struct subscriptions *table, struct numbers *rows);

struct subscription_numbers ARRAY_OF(int64_t);

/* Add the numbers of the rows of slots, each of which is there once, in any order; -1: memory is out. */
int subscriptions_add_numbers(const struct subscriptions *table, const struct numbers *slots,
                              struct subscription_numbers *numbers);

/* Return the memory that the arrays take. */
size_t subscriptions_bytes(const struct subscriptions *table);

#endif
