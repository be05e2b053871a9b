/* References in text and in values: to characters, and to the five entities that need no declaration. */
#ifndef SAPWOOD_REFERENCE_H
#define SAPWOOD_REFERENCE_H

#include "reader.h"

/* Resolve the reference at `at`, an `&`, to at most four bytes of UTF-8, never more than its own length.
   Return the position after it, or NULL if it is malformed or to another entity. */
const unsigned char *resolve_reference(const unsigned char *at, const unsigned char *end, char bytes[4],
                                       size_t *length);

/* Write the normalised form of an attribute's value, which is no longer than the value: references are
   resolved, white space becomes spaces, and a line end one space. Return its length, or -1 at a reference
   that cannot be resolved. */
ptrdiff_t normalize_value(struct span value, char *normalized);

#endif
