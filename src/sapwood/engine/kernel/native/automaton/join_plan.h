/* The join plan: twigs, and what finds their parts, compiled for messages like those seen so far.

   The dataguide and the twigs are made for change: a posting is a cell of a list, a hit has arrays of its own.
   A message that meets thousands of them waits for memory most of the time. The plan is a copy in the order in
   which a message needs it, of the guide nodes, hits and live twigs that there are:

       class      positions (see twigs.h) that nodes and hits set together, always. Queries share their parts'
                  paths up to wildcards and `//`, and most of these make no difference in practice
       row        the classes anchored at the open element of one depth, as a bitmap. Classes are numbered in
                  the order in which nodes set them, so a node sets a few words of a row, not single bits
       entry      at a class, the *access* of twigs, the other class that has to be set at the same depth, and
                  what follows: all twigs with these two classes are one entry
       run        the twigs with more parts, or that compare: sorted by the bound of their most selective
                  comparison, so that only those are looked at further that pass it
       bundle     slots that are found together, always: those of one entry, or those at the same hits. It is
                  counted by its weight; a result holds bundles, and lists their slots when asked to

   Accesses are chosen by how often messages have set their positions: the rarest.

       nodes → words, hits → words and reports, classes → entries, bundles → slots: arrays in arrays

   The invariant: a plan is right for all it knows, or is not used at all. An edit of twigs or tests makes it
   invalid. What a message is first to need (a new node, a new hit) only makes it incomplete: a message that
   meets such is read again without the plan, by positions and masks. When messages without it have cost about
   as much as making a new one, it is made anew. Rejected: to keep the classes up to date step by step, as is
   done for plain paths. A class that splits would move twigs in turn, and bundles, in the middle of a message,
   and the order in memory, from which most of the speed comes, would be lost again.

   Classes are found by refinement: all positions start as one, and each list of a node or hit divides the
   classes that it has only a part of. That is exact, where a hash of the lists would have to be verified. */
#ifndef SAPWOOD_JOIN_PLAN_H
#define SAPWOOD_JOIN_PLAN_H

#include "arrays.h"

/* Classes to set, of one word of the row of a depth. */
struct anchor_word {
    uint64_t bits;
    uint32_t word, depth;
};

/* A hit with its words and reports, in a hash table that has all of it: one access to memory. */
struct planned_hit {
    uint32_t probe; /* NONE: an empty cell */
    uint32_t constant;
    uint32_t words, word_count; /* the first, and how many there are */
    uint32_t reports, report_count;
};

struct join_entry {
    uint32_t other; /* class; the access again, if there is no other part */
    uint32_t bundle;
};

/* One more part of a twig: its class is set, and if it is a comparison, a value passes it. */
struct condition {
    double number;
    uint32_t class, constant;
    uint32_t operator; /* EXISTS: no comparison */
};

/* A twig that has more to check than two classes, or more to report than slots. */
struct check {
    double bound;
    uint32_t twig, conditions; /* the first one, up to those of the next check */
};

/* Checks at a class that start with the same condition; if that is a comparison, they are sorted by its bound,
   so that a value passes a part of the run from one end. */
struct check_run {
    uint32_t other, operator, first, end;
};

struct bundle {
    uint64_t weight;
    uint32_t first; /* of its slots, up to those of the next one */
};

/* The class of a position that was not in use when the plan was made. */
#define UNKNOWN_CLASS (NONE - 1)

/* Marks a slot among the bundles that a hit reports. */
#define SINGLE 0x80000000u

struct join_plan {
    uint32_t number; /* counts plans; 0: there was none so far */
    uint64_t twig_changes, guide_changes;
    uint32_t nodes, positions; /* that it knows */
    uint32_t classes, depths;
    uint32_t row_words;
    uint64_t cost;           /* of making it, in items touched */
    struct numbers class_of; /* by position; NONE: no twig needs it; or UNKNOWN_CLASS */
    struct numbers group_of; /* by class: of comparisons, or NONE */
    struct ARRAY_OF(struct anchor_word) words;
    struct numbers node_words; /* by node: the first of its words, deepest anchors first */
    struct ARRAY_OF(struct planned_hit) hits; /* a table: collisions go to the next cell */
    struct numbers reports;
    struct ARRAY_OF(struct join_entry) entries;
    struct numbers first_entry;                  /* by class */
    struct ARRAY_OF(struct check_run) runs;
    struct numbers first_run; /* by class */
    struct ARRAY_OF(struct check) checks;
    struct ARRAY_OF(struct condition) conditions;
    struct ARRAY_OF(uint64_t) accesses, groups; /* classes that are accesses, and of comparisons, as bits */
    struct ARRAY_OF(struct bundle) bundles;
    struct numbers bundle_slots, bundle_of; /* by slot: or NONE */
};

struct automaton;

void plan_free(struct join_plan *plan);

/* Make the plan anew; `found` says how often positions were set. The caller holds the writer's lock. */
int plan_make(struct automaton *automaton, const struct numbers *found);

/* Return whether the plan is right for what it knows. */
int plan_is_valid(const struct automaton *automaton);

/* Estimate what it takes to make the plan, in anchors set and twigs checked without one. */
uint64_t plan_cost(const struct automaton *automaton);

/* Have a slot weigh more or less. */
void plan_weigh(struct join_plan *plan, uint32_t slot, int64_t change);

/* Return a hit that the plan knows, or NULL. */
static inline const struct planned_hit *plan_hit(const struct join_plan *plan, uint32_t probe,
                                                 uint32_t constant) {
    uint32_t mask = plan->hits.count - 1; /* a power of two, and no more than half of the cells are in use */
    for (uint32_t at = mix_pair(probe, constant) & mask;; at = (at + 1) & mask) {
        const struct planned_hit *hit = &plan->hits.items[at];
        if (hit->probe == probe && hit->constant == constant) return hit;
        if (hit->probe == NONE) return NULL;
    }
}

#endif
