/* Query classes: queries that are found at exactly the same guide nodes, counted and reported as one.

   Whatever message comes, it matches either all queries of a class or none, as long as no guide node tells
   them apart. 154,000 paths on news messages are 4,400 classes, and a message reports 300 of them instead of
   6,000 queries, so its cost no longer grows with the number of queries.

   Classes are kept by partition refinement. A new guide node *splits* each class of which it has some queries
   and not others. A query that comes while the guide is warm joins the class with its set of nodes, which is
   compared in full, or becomes a class of its own. There are never more entries (class, node) than there
   would be (query, node), so no bound is needed.

   Only queries that are one plain path are in classes. Those with several parts or with tests are reported
   one by one, because they can be found in several ways and must be counted once. */
#ifndef SAPWOOD_QUERY_CLASSES_H
#define SAPWOOD_QUERY_CLASSES_H

#include "arrays.h"

struct query_class {
    struct numbers slots, nodes;
    uint64_t weight;   /* subscriptions to its queries */
    uint32_t touched;  /* scratch of a split: its queries at the new node, */
    uint32_t split_to; /* and the class to which they go */
};

struct slot_class {
    uint32_t class, position; /* NONE: at no guide node so far; else its place among the class's slots */
};

struct query_classes {
    struct ARRAY_OF(struct query_class) items;
    struct ARRAY_OF(struct slot_class) of_slot;
    struct numbers free, touched;
    struct numbers node_stamps; /* scratch: which nodes are in a set */
    uint32_t node_stamp;
};

struct automaton;

void classes_free(struct query_classes *classes);

/* Forget all nodes. */
void classes_clear(struct query_classes *classes);

/* Have room for a slot; it is at no node. */
int classes_add_slot(struct query_classes *classes, uint32_t slot);

/* A new guide node has these slots. */
int classes_add_node(struct automaton *automaton, uint32_t node, const struct numbers *slots);

/* A slot is posted at these guide nodes. */
int classes_post(struct automaton *automaton, uint32_t slot, const struct numbers *nodes);

/* A slot is removed from all guide nodes. */
void classes_unpost(struct automaton *automaton, uint32_t slot);

/* The number of subscriptions to a slot changes. */
static inline void classes_weigh(struct query_classes *classes, uint32_t slot, int64_t change) {
    if (slot < classes->of_slot.count && classes->of_slot.items[slot].class != NONE)
        classes->items.items[classes->of_slot.items[slot].class].weight += (uint64_t)change;
}

#endif
