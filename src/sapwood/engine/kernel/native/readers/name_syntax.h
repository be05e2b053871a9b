/* The syntax of names under namespaces: `local` or `prefix:local`. */
#ifndef SAPWOOD_NAME_SYNTAX_H
#define SAPWOOD_NAME_SYNTAX_H

#include "reader.h"

/* Whether a name without a colon is one that expat takes, for sure: some names of rare alphabets are said to
   be none, and then expat has to decide. */
int is_certain_name(struct span name);

/* Whether a name is certain, or a prefix and a local part that both are; `colon` is set to where the colon
   is, or 0 without one. */
int is_certain_qualified_name(struct span name, size_t *colon);

#endif
