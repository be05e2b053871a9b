/* Names in messages, and the name tests that they pass. */
#ifndef SAPWOOD_NAMES_H
#define SAPWOOD_NAMES_H

#include "automaton.h"

/* Return a name of a message as the guide has it; NONE if it is a composite that is not known yet, whose parts
   are then in `composite`. `buffer` has room for the name and three bytes. */
uint32_t resolve_name(const struct automaton *automaton, const struct name *name, char *buffer,
                      struct composite *composite);

/* Return how many tests in use a name passes, at most four, and their symbols. */
uint32_t tests_of_name(const struct automaton *automaton, uint32_t name, char *buffer, uint32_t tests[4]);

/* Return whether a name passes a name test. */
int name_passes(const struct automaton *automaton, uint32_t name, uint32_t symbol);

#endif
