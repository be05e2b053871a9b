/* What a message matched, for as long as somebody holds it.

   A result holds classes, bundles and runs of tests, and lists their slots only when it is asked to. Classes may be split meanwhile, by
   other messages: a split is in the automaton's list of splits, and a result knows how long that list was when
   it was made. Before classes go altogether, results are *frozen*: their slots are listed. */
#ifndef SAPWOOD_RESULT_H
#define SAPWOOD_RESULT_H

#include "match.h"

struct result {
    struct matched matched;
    struct automaton *automaton;
    uint64_t version; /* of the automaton, when it was made */
    uint32_t splits_seen;
    struct result *previous, *next; /* in the automaton's list, while it holds such */
};

/* Put a result into the automaton's list; the caller holds the reader's lock. */
void result_link(struct result *result);

/* Free what a result holds. */
void result_free(struct result *result);

/* List all slots, in any order, perhaps some of them twice; the caller holds a lock of the automaton. */
int result_list(const struct result *result, struct numbers *slots);

/* Return whether it holds nothing but classes, which have no slot in common; the caller holds a lock. */
static inline int result_has_classes_only(const struct result *result) {
    const struct matched *matched = &result->matched;
    return matched->slots.count == 0 && matched->bundles.count == 0 && matched->runs.count == 0;
}

/* List all slots, ascending, each once; the caller holds a lock of the automaton. */
int result_slots(const struct result *result, struct numbers *slots);

#endif
