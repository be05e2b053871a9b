/* Predicate indexes: one value against all the tests that queries make of it.

   A *predicate index* holds all tests of one target (an attribute, text nodes, the string-value) at one state
   of the path trie. What queries ask for most often, equality with a constant, is kept in one table for all
   indexes:

       constants      every string that a test compares with, once, with a number; numbers likewise
       equal          (predicate index, constant) → postings
                      and, marked as such, (predicate index, prefix) for starts-with()

   So a value of a message is looked up among the constants once, and a value that no query mentions is done
   with after that, however many indexes ask for its target.

   Other tests are rarer. For queries that one such test decides, comparisons with `<` and so on are arrays
   sorted by constant, of which a value passes a prefix or a suffix. For parts of twigs they are not posted at
   all: a *comparison group* stands for all comparisons of one index whose twigs meet at the same step, and
   notes which values were found (least, greatest, …); a twig then checks its constant against that. So a
   message marks one group instead of fifty thousand constants that are less than its price. */
#ifndef SAPWOOD_PREDICATE_INDEX_H
#define SAPWOOD_PREDICATE_INDEX_H

#include "path_trie.h"
#include "pattern_set.h"
#include "string_table.h"

enum test_operator {
    EXISTS,
    EQUAL,
    STARTS_WITH,
    CONTAINS,
    UNEQUAL,
    NUMBER_EQUAL,
    NUMBER_UNEQUAL,
    LESS,
    AT_MOST,
    MORE,
    AT_LEAST,
};

struct test {
    enum test_operator operator;
    struct span text; /* of the first five, but EXISTS */
    double number;    /* of the others */
};

static inline int is_comparison(enum test_operator operator) {
    return operator == UNEQUAL || operator >= NUMBER_UNEQUAL;
}

/* Targets: the symbol of an attribute's name test, or one of these symbols, which no attribute has. */
enum { TARGET_TEXT = OTHER, TARGET_VALUE = DESCENDANT };

/* A constant as a key: the number of a text, or of a number or a prefix, marked. */
#define NUMBER_CONSTANT 0x80000000u
#define PREFIX_CONSTANT 0x40000000u

struct equal_entry {
    uint32_t index, constant, posted;
};

/* Tests by one operator that decide queries alone, sorted by constant; new ones wait at the end. */
struct sorted_test {
    double constant;
    uint32_t slot;
};

/* A value passes a run of tests from one end. Queries that are this one test are counted by the difference of
   two sums, however many they are, and a result holds the run, not its slots. Those that can be found in other
   ways as well, too, have to be reported one by one. */
struct sorted_tests {
    struct ARRAY_OF(struct sorted_test) tests;
    uint32_t sorted;                 /* the first so many are in order */
    uint32_t numbers;                /* so many of them are not NaN, and come first */
    struct ARRAY_OF(uint64_t) sums;  /* the weight of the first i tests, as far as they are whole queries */
    struct numbers shared;           /* places of tests that are not */
    int waits;                       /* for `automaton_prepare` */
};

struct unequal_test {
    uint32_t constant, slot;
};

struct prefix_length {
    uint32_t length, uses;
};

/* Tests that most indexes do not have. */
struct rare_tests {
    struct sorted_tests ordered[AT_LEAST + 1];       /* by operator: comparisons with numbers */
    struct ARRAY_OF(struct unequal_test) unequal;
    struct ARRAY_OF(struct prefix_length) prefixes;
    struct pattern_set substrings;
    struct numbers groups; /* of comparisons of twigs */
};

struct predicate_index {
    uint32_t state, target;
    uint32_t next;   /* of the same state */
    uint32_t exists; /* postings of mere existence */
    uint32_t size;   /* postings in all; 0: free */
    uint32_t texts, numbers; /* entries in the table of equal constants, prefixes apart */
    struct rare_tests *rare;
};

struct number_entry {
    double value;
    uint32_t uses;
};

struct predicate_indexes {
    struct path_trie *trie;
    struct ARRAY_OF(struct predicate_index) items;
    struct numbers free;
    struct numbers unbuilt; /* indexes whose substrings should be built */
    struct string_table constants;
    struct ARRAY_OF(struct number_entry) number_entries;
    struct numbers free_numbers, retired_numbers;
    struct table number_table;
    struct ARRAY_OF(struct equal_entry) equal_entries;
    struct numbers free_equal;
    struct table equal_table;
};

void predicates_init(struct predicate_indexes *indexes, struct path_trie *trie, struct hash_key key);
void predicates_free(struct predicate_indexes *indexes);

/* Return the predicate index of a target at a state, or NONE. */
uint32_t predicates_find(const struct predicate_indexes *indexes, uint32_t state, uint32_t target);

/* Return the same, made if it is not there; NONE: memory is out. */
uint32_t predicates_require(struct predicate_indexes *indexes, uint32_t state, uint32_t target);

/* Post a number under a test; comparisons take slots only. `*constant` is the constant's key, or NONE. */
int predicates_post(struct predicate_indexes *indexes, uint32_t index, const struct test *test,
                    enum posting_kind kind, uint32_t number, uint32_t *constant);

/* Remove a posting, given by the constant's key where there is one. */
void predicates_unpost(struct predicate_indexes *indexes, uint32_t index, enum test_operator operator,
                       uint32_t constant, double number, enum posting_kind kind, uint32_t posted);

/* Free an index without postings, groups and uses. */
void predicates_discard_empty(struct predicate_indexes *indexes, uint32_t index);

struct rare_tests *predicates_rare(struct predicate_indexes *indexes, uint32_t index);

/* Constants as keys: use and release, and look up those of a message; NONE: no test has it. */
uint32_t constant_use_text(struct predicate_indexes *indexes, struct span text);
uint32_t constant_use_number(struct predicate_indexes *indexes, double value);
void constant_release(struct predicate_indexes *indexes, uint32_t constant);
uint32_t constant_find_number(const struct predicate_indexes *indexes, double value);
void constants_recycle(struct predicate_indexes *indexes);

/* Return the postings of an index under a constant's key, or NONE. */
static inline uint32_t equal_find(const struct predicate_indexes *indexes, uint32_t index, uint32_t constant) {
    uint32_t found;
    const struct equal_entry *entries = indexes->equal_entries.items;
    FIND_IN(&indexes->equal_table, mix_pair(index, constant), at,
            entries[at].index == index && entries[at].constant == constant, found);
    return found == NONE ? NONE : entries[found].posted;
}

/* Build the sets of substrings that have changed. */
int predicates_build(struct predicate_indexes *indexes);

/* Sort tests that were added; call before a message is matched. Return -1 if memory is out. */
int sorted_tests_sort(struct sorted_tests *sorted);

#endif
