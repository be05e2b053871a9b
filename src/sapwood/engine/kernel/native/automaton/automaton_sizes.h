/* How large an automaton is. */
#ifndef SAPWOOD_AUTOMATON_SIZES_H
#define SAPWOOD_AUTOMATON_SIZES_H

#include "automaton.h"

struct automaton_sizes {
    uint32_t slots, names, states, predicate_indexes, constants, twigs, anchorings; /* of queries */
    uint32_t guide_nodes, classes, probes, hits;                                    /* of messages */
    uint64_t bytes;                                                                 /* allocated, in all */
};

void automaton_measure(const struct automaton *automaton, struct automaton_sizes *sizes);

#endif
