/* What the files that make a join plan share: see join_plan.h. */
#ifndef SAPWOOD_PLANNER_H
#define SAPWOOD_PLANNER_H

#include "automaton.h"

/* Things divided into classes: those in the same lists so far are in the same class. */
struct partition {
    struct numbers class_of; /* NONE: in none, because it is in no list */
    struct numbers stamps, moved_to; /* by class: the last list that had it, and where its members went */
    uint32_t list;
};

/* A slot that follows from a live twig with two parts, on its way to an entry. */
struct pending_entry {
    uint32_t access, other, slot;
};

/* A live twig on its way to a run of checks. */
struct pending_check {
    double bound;
    uint32_t access, other, operator, twig;
    uint32_t first, count; /* of its conditions */
};

/* The constants that comparisons of one group have: how likely a value passes is guessed from them. */
struct bounds {
    double least, greatest;
};

/* A condition, and the share of values that is expected to pass it. */
struct ranked_condition {
    struct condition condition;
    double share;
};

struct planner {
    struct automaton *automaton;
    const struct numbers *found;
    struct join_plan *plan;
    struct partition positions, slots;
    struct numbers numbers;     /* of classes, by those of the partition */
    struct numbers class_found; /* by class: how often messages have set it */
    struct ARRAY_OF(uint64_t) row;
    struct numbers row_touched;
    struct ARRAY_OF(uint8_t) is_free; /* by hit */
    struct ARRAY_OF(struct pending_entry) entries;
    struct ARRAY_OF(struct pending_check) checks;
    struct ARRAY_OF(struct condition) conditions;    /* of pending checks */
    struct ARRAY_OF(struct ranked_condition) ranked; /* of one twig */
    struct ARRAY_OF(struct bounds) bounds;           /* by group */
};

static inline int is_live(const struct twig *twig) { return twig->parts.count && twig->missing == 0; }

/* Return the number of a new bundle; NONE: memory is out. */
uint32_t new_bundle(struct join_plan *plan);

/* Add a slot to the last bundle. */
int add_to_bundle(struct planner *planner, uint32_t slot);

/* -- what is checked when elements close (planned_twigs.c) -- */

/* Add entries and runs of checks for all live twigs. */
int plan_twigs(struct planner *planner);
void free_pending(struct planner *planner);

#endif
