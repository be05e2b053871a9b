/* A pattern set: many strings, to be searched for in a text all at once, as by Aho and Corasick (1975).

   The patterns are a trie of bytes. A node's *fail* is the node of the longest proper suffix of its string that
   is in the trie, so after each byte of the text the search is at the longest suffix of what it has read that
   some pattern starts with; `output` leads to the patterns that end there. So a text costs its length and what
   is found in it, however many patterns there are.

       edges     one hash table of nodes, whose key is their own parent and byte
       patterns  constants with what is posted; a number stays the same until the trie is built anew

   The trie is built between messages, not for each change: up to a few patterns are `added` later and searched
   for one by one, and patterns that have gone stay in the trie with nothing posted. Rejected: one search for
   each pattern, which is what it was: a hundred thousand of them cost as many passes over the text.

   A *text search* is the progress of one search through a text that grows. The string-values of the elements
   that are open are all suffixes of the text so far, so when one closes, only what came since the last time is
   searched, and a pattern is in its value if its last occurrence starts in it. Occurrences are in a list, the
   last first, so that what ended before the value began is not looked at. */
#ifndef SAPWOOD_PATTERN_SET_H
#define SAPWOOD_PATTERN_SET_H

#include "string_table.h"

struct pattern {
    uint32_t constant, posted; /* NONE: gone */
    uint32_t length;
    uint32_t at; /* among those added; NONE: in the trie */
};

struct pattern_node {
    uint32_t parent, byte;
    uint32_t fail;
    uint32_t pattern; /* that ends here, or NONE */
    uint32_t output;  /* the node itself or the first in the chain of fails at which patterns end, or NONE */
    uint32_t next;    /* node of the next level in the order of building */
};

struct pattern_set {
    struct ARRAY_OF(struct pattern) patterns;
    struct table by_constant; /* those that are not gone */
    struct numbers added;     /* patterns that are not in the trie */
    struct numbers free;      /* numbers of patterns that were never in the trie */
    uint32_t gone;            /* patterns of the trie with nothing posted */
    struct ARRAY_OF(struct pattern_node) nodes; /* the root first, if there is any */
    struct table edges;
    struct numbers from_root; /* by byte: a node, or the root */
    int waits;               /* to be built */
};

void pattern_set_free(struct pattern_set *set);

/* Return where to post under a constant, made if it is not there; NULL: memory is out. */
uint32_t *patterns_require(struct pattern_set *set, uint32_t constant, uint32_t length);

/* Return where it is posted. */
uint32_t *patterns_find(struct pattern_set *set, uint32_t constant);

/* Forget a constant under which nothing is posted any more. */
void patterns_remove(struct pattern_set *set, uint32_t constant);

/* Return whether the trie should be built before the next message. */
int patterns_need_building(const struct pattern_set *set);
int patterns_build(struct pattern_set *set, const struct string_table *constants);

struct occurrence {
    uint32_t end, next, previous; /* end 0: not found so far */
};

struct text_search {
    uint64_t text; /* which one it has searched */
    uint32_t searched, node;
    uint32_t last; /* pattern found last, or NONE */
    struct ARRAY_OF(struct occurrence) found; /* by pattern */
};

/* Begin to search another text. */
int search_begin(struct text_search *search, const struct pattern_set *set, uint64_t text);

/* Search the part of a text that has not been searched. */
void search_on(struct text_search *search, const struct pattern_set *set, struct span text);

#endif
