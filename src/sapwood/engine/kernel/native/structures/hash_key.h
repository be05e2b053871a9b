/* The key of all hashes of names and values, drawn at random when the module is loaded. */
#ifndef SAPWOOD_HASH_KEY_H
#define SAPWOOD_HASH_KEY_H

#include "siphash.h"

/* Draw the key, unless it is there; call with the GIL. Return 0, or -1 with a Python exception. */
int hash_key_load(void);

/* The key, which never changes after it is drawn: threads read it without a lock. */
const struct hash_key *hash_key(void);

#endif
