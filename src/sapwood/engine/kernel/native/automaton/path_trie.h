/* The path trie: all root-to-leaf paths of all queries as one prefix tree, in flat arrays.

   A path is a sequence of symbols: a name test enters a state, `//` (DESCENDANT) enters a state that stays
   active all the way down. That state of its own is what keeps `/r//a` from turning its sibling `/r/b` into
   `/r//b`. A state is a row of

       parent, symbol    the state it hangs from, and the symbol that enters it
       uses              how many paths end here or edges leave; a state with none is pruned at once
       posted            what is posted for elements that enter it: see `postings`
       query             the slot that all filters share which are this path and no more, or NONE
       tests             the first predicate index at it, or NONE: see `predicate_index.h`

   Edges are one hash table of target states for the whole trie, four bytes an entry: an edge's key, its source
   and symbol, is the target's own row. To enter a guide node's children, edges are only ever looked up, never
   listed, so nothing more is needed. */
#ifndef SAPWOOD_PATH_TRIE_H
#define SAPWOOD_PATH_TRIE_H

#include "arrays.h"

enum { ROOT = 0 };

/* Symbols that are no names, the first in the table of names. */
enum { OTHER = 0, ANY = 1, DESCENDANT = 2 };

/* Postings: small lists of numbers of three kinds. One number, the frequent case, is kept in the head itself.

       head  NONE              nothing
             bit 31 set        one slot, in the other bits
             else              index of the first cell of a linked list
*/
enum posting_kind { POST_SLOT = 0, POST_ANCHORING = 1, POST_RELATIVE = 2 };

struct posting {
    uint32_t number, next, kind;
};

struct postings {
    struct ARRAY_OF(struct posting) cells;
    uint32_t free; /* first of the free cells, or NONE */
};

#define SINGLE_SLOT 0x80000000u

int postings_add(struct postings *postings, uint32_t *head, enum posting_kind kind, uint32_t number);
void postings_remove(struct postings *postings, uint32_t *head, enum posting_kind kind, uint32_t number);

/* Do something with each posting under a head: KIND and NUMBER are names of variables. */
#define FOR_POSTINGS(postings, head, kind_, number_, body) \
    do { \
        uint32_t head_ = (head); \
        if (head_ == NONE) break; \
        if (head_ & SINGLE_SLOT) { \
            uint32_t kind_ = POST_SLOT, number_ = head_ & ~SINGLE_SLOT; \
            (void)kind_; \
            body; \
            break; \
        } \
        for (uint32_t cell_ = head_; cell_ != NONE; cell_ = (postings)->cells.items[cell_].next) { \
            uint32_t kind_ = (postings)->cells.items[cell_].kind, \
                     number_ = (postings)->cells.items[cell_].number; \
            (void)kind_; \
            body; \
        } \
    } while (0)

struct trie_state {
    uint32_t parent, symbol, uses, posted, query, tests;
};

struct path_trie {
    struct ARRAY_OF(struct trie_state) states;
    struct table edges;
    struct numbers free;
    struct postings postings;
};

int trie_init(struct path_trie *trie);
void trie_free(struct path_trie *trie);

/* Return the state that an edge leads to, or NONE. */
static inline uint32_t trie_edge(const struct path_trie *trie, uint32_t state, uint32_t symbol) {
    uint32_t found;
    const struct trie_state *states = trie->states.items;
    FIND_IN(&trie->edges, mix_pair(state, symbol), target,
            states[target].parent == state && states[target].symbol == symbol, found);
    return found;
}

/* Return the state that an edge leads to, made if it is not there: then `*is_new`. NONE: memory is out. */
uint32_t trie_grow(struct path_trie *trie, uint32_t state, uint32_t symbol, int *is_new);

/* Remove a state without uses; the caller has taken back the edge's use of its parent. */
void trie_prune(struct path_trie *trie, uint32_t state);

#endif
