/* XPath's number() of a string, as `lang.literals.numbers.to_number` has it: libxml2's, with exponents. */
#ifndef SAPWOOD_XPATH_NUMBER_H
#define SAPWOOD_XPATH_NUMBER_H

#include "reader.h"

/* Return the number that a text spells, white space around it aside; NaN if it spells none. */
double xpath_number(struct span text);

#endif
