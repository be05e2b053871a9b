/* The automaton: all registered queries in one structure, and the edits that change it.

   Every distinct query has a *slot*. It is registered by its parts, any of which suffices to find it:

       a plain path   posted at the path's state of the trie; if it is the only part, the query is in a class
       a tested leaf  posted in a predicate index
       a twig         posted at the twig, whose parts are anchorings

   Readers (matches) and writers (edits, and fills of the dataguide) take turns by one lock. `version` counts
   edits, not fills: a match that had to let go of the lock in the middle starts again if it has changed. */
#ifndef SAPWOOD_AUTOMATON_H
#define SAPWOOD_AUTOMATON_H

#include "dataguide.h"
#include "join_plan.h"
#include "path_trie.h"
#include "predicate_index.h"
#include "query_classes.h"
#include "read_write_lock.h"
#include "string_table.h"
#include "twigs.h"

/* A part of a registered query, as it has to be found again when the query is removed. */
struct part {
    uint8_t kind, operator;
    uint32_t source; /* a trie state, a predicate index or a twig */
    uint32_t constant;
    double number;
    uint32_t next; /* of the same query, or NONE */
};

enum slot_flags {
    IN_USE = 1,
    CLASSED = 2,   /* one plain path: the query is in a class */
    BINDS = 4,     /* reported with the elements at which its twig matches */
    SHARED = 8,    /* the query that its path has: see `path_trie.h` */
};

struct slot {
    uint32_t weight; /* subscriptions */
    uint32_t part;   /* CLASSED: the trie state of the path; else the first part, or NONE */
    uint32_t flags;
};

/* What a path is when it is registered. */
struct leaf_spec {
    const struct span *path; /* symbols: name tests, `*` and `//` */
    uint32_t path_length;
    struct span target; /* "", ".", "text()" or "@name" */
    struct test test;
};

struct part_spec {
    enum { LEAF_SPEC, TWIG_SPEC } kind;
    struct leaf_spec leaf;
    uint32_t step;              /* of a twig: steps down to the anchor */
    const struct part_spec *parts; /* of a twig */
    uint32_t count;
};

/* A path relative to an element, followed from any: see `relative_paths` in Python. */
struct relative_path {
    uint32_t state; /* NONE: free */
};

struct unsorted {
    uint32_t index, operator;
};

/* A class that was split off another, after which results that hold the other one mean both. */
struct split {
    uint32_t from, to;
};

struct result; /* see match.h */

struct automaton {
    read_write_lock lock;
    uint64_t version;
    uint64_t name_version; /* counts changes after which the name of an element may have another symbol */
    int with_classes; /* plain paths are in classes */
    int damaged;      /* memory ran out in the middle of an edit */
    struct string_table names;
    uint32_t namespace_tests, any_namespace_tests; /* how many names in use are such tests */
    struct path_trie trie;
    struct predicate_indexes predicates;
    struct twigs twigs;
    struct dataguide guide;
    struct query_classes classes;
    struct join_plan plan;
    struct ARRAY_OF(struct split) splits;
    struct ARRAY_OF(struct slot) slots;
    struct ARRAY_OF(struct part) parts;
    uint32_t free_part;
    struct ARRAY_OF(struct relative_path) relative_paths;
    struct numbers free_relative_paths;
    struct ARRAY_OF(struct unsorted) unsorted;
    uint32_t text_indexes;    /* predicate indexes of text or string-values */
    read_write_lock results_lock;
    struct result *results; /* those that hold classes or bundles */
};

int automaton_init(struct automaton *automaton, struct hash_key key, uint64_t budget);
void automaton_free(struct automaton *automaton);

/* Edits. The caller holds the writer's lock. They return 0, or -1 when memory is out. */
int automaton_register(struct automaton *automaton, uint32_t slot, const struct part_spec *parts,
                       uint32_t count, int binds);
int automaton_unregister(struct automaton *automaton, uint32_t slot);

/* Register a query that is one plain path, unless an equal one is registered; `*slot` is the one that has it. */
int automaton_register_path(struct automaton *automaton, uint32_t *slot, const struct span *path, uint32_t length);
int automaton_set_weight(struct automaton *automaton, uint32_t slot, uint32_t weight);

/* Relative paths, by number; NONE: memory is out. Equal ones are the caller's to share. */
uint32_t automaton_add_relative_path(struct automaton *automaton, const struct span *path, uint32_t length);
void automaton_remove_relative_path(struct automaton *automaton, uint32_t number);

/* Begin and end an edit: results are listed before, what is no longer used is swept after. */
int automaton_begin_edit(struct automaton *automaton);
int automaton_end_edit(struct automaton *automaton);

/* Drop all guide nodes; coming messages make them anew. */
int automaton_clear(struct automaton *automaton);

/* Return whether a slot is found in one way only, so that it can be counted with others. */
static inline int is_single_part(const struct automaton *automaton, uint32_t slot) {
    const struct slot *item = &automaton->slots.items[slot];
    return !(item->flags & (CLASSED | BINDS)) && item->part != NONE &&
           automaton->parts.items[item->part].next == NONE;
}

/* Sort and build what waits for it; -1: memory is out. */
int automaton_prepare(struct automaton *automaton);

static inline int automaton_is_prepared(const struct automaton *automaton) {
    return automaton->unsorted.count == 0 && automaton->predicates.unbuilt.count == 0;
}

/* List the slots of results that hold classes or bundles, because these are about to go. */
int freeze_results(struct automaton *automaton);

#endif
