/* Twigs: parts of tree patterns that must meet at one element, and where they meet.

   A *twig* is a set of parts, leaves or other twigs, that have to be found below (or at) one element, their
   *anchor*. An *anchoring* is a part with the step of its path at which the anchor stands; equal ones are
   shared by all twigs. Given the depth at which the part was found, its anchor is

       UP     no `//` between anchor and part: so many levels up
       DEPTH  no `//` above the anchor: at that depth
       FREE   else: at any depth where the names of the path allow it

   While a message is matched, every open element is one depth, and so an anchoring that was found is one bit
   of a 64-bit mask: bit d says that it is anchored at the open element of depth d. When that element closes,
   the twigs are checked whose rarest part, their *access*, has the bit set, and all bits of that depth are
   cleared. No pairs are stored, nothing is sorted.

   Masks belong to *cells*. An anchoring has a cell of its own, unless its part is a comparison (`< 5`): all
   comparisons of one predicate index with the same step share one cell, their group. There the mask says that
   values were found, and the twig compares its constant with the least and the greatest of them.

   Most parts are never found: queries ask for more than messages have. A cell gets a *position*, the index of
   its mask, when a guide node, a probe or a hit first refers to it, and a twig is *live* when all its cells
   have positions. Only live twigs are checked, and cells that are found together stand together.

   This serves messages that bring something new. Others are joined by the plan that is made of it: see
   join_plan.h. */
#ifndef SAPWOOD_TWIGS_H
#define SAPWOOD_TWIGS_H

#include "predicate_index.h"

enum { MOST_DEPTH = 63 };

enum part_kind { ELEMENT_PART, TEST_PART, TWIG_PART };
enum anchor_position { UP, DEPTH, FREE };

struct anchoring {
    uint32_t source;   /* a trie state, a predicate index or a twig */
    uint32_t constant; /* of a test: the key of its constant, or NONE */
    double number;     /* of a comparison with a number */
    uint32_t step;     /* steps from the document down to the anchor */
    uint32_t state;    /* of the path trie: the end of the part's path */
    uint32_t cell;
    uint32_t uses;
    int32_t offset;
    uint8_t kind, operator, position;
};

/* A live twig, to be checked when the mask of its access is set. */
struct access {
    uint32_t other; /* the position of its only other part; NONE: there is none; SEVERAL: see the twig */
    uint32_t twig;
    uint32_t slot; /* the only thing that follows from it; NONE: see what is posted */
};

#define SEVERAL (NONE - 1)

struct accesses ARRAY_OF(struct access);

struct cell {
    struct numbers twigs; /* of which it is a part */
    uint32_t group;       /* of comparisons, or NONE */
    uint32_t position;    /* NONE: never found so far */
};

/* What a match has to know of a position at every turn, in an array of its own that stays in the cache. */
enum position_flags {
    HAS_ACCESSES = 1,
    IS_GROUP = 2,
};

/* What belongs to the mask of a cell that has been found. */
struct position {
    struct accesses accesses;
    uint32_t cell;
    uint32_t group; /* of the cell */
};

struct comparison_group {
    uint32_t index, step, cell, uses;
    uint32_t texts; /* how many compare texts */
    uint32_t state; /* where their anchors are, as for anchorings: it is the same for all */
    int32_t offset;
    uint8_t position;
};

struct twig {
    struct numbers parts; /* anchorings, the access first */
    uint32_t posted;      /* the slots that it decides, and the anchorings of which it is the part */
    uint32_t binding;     /* slots among them that bind elements */
    uint32_t parents;     /* anchorings among them */
    uint32_t missing;     /* parts whose cell has no position; 0: live */
};

struct twigs {
    struct path_trie *trie;
    struct predicate_indexes *indexes;
    struct ARRAY_OF(struct anchoring) anchorings;
    struct numbers free_anchorings;
    struct table anchoring_table;
    struct ARRAY_OF(struct cell) cells;
    struct numbers free_cells;
    struct ARRAY_OF(struct position) positions;
    struct ARRAY_OF(uint8_t) position_flags;
    struct numbers free_positions;
    struct ARRAY_OF(struct comparison_group) groups;
    struct numbers free_groups;
    struct ARRAY_OF(struct twig) items;
    struct numbers free;
    struct table table;
    uint32_t count;   /* twigs in use */
    uint64_t changes; /* by edits */
};

void twigs_init(struct twigs *twigs, struct path_trie *trie, struct predicate_indexes *indexes);
void twigs_free(struct twigs *twigs);

/* Add one use of an anchoring; `*is_new` if it was not there, and has to be posted. NONE: memory is out. */
uint32_t twigs_use_anchoring(struct twigs *twigs, const struct anchoring *wanted, int *is_new);

/* Take one use back; return whether it was the last: then its part is no longer needed, and the anchoring is
   forgotten by `twigs_forget_anchoring`. */
int twigs_release_anchoring(struct twigs *twigs, uint32_t anchoring);
void twigs_forget_anchoring(struct twigs *twigs, uint32_t anchoring);

/* Return the twig of these anchorings, given with the access first; made if it is not there: then it takes
   over their uses, else the caller takes them back. */
uint32_t twigs_require(struct twigs *twigs, const struct numbers *parts, int *is_new);

/* Remove a twig that decides nothing and is part of nothing; its anchorings are the caller's to release. */
void twigs_remove(struct twigs *twigs, uint32_t twig);

/* Have a slot or an anchoring follow from a twig, or no longer. */
int twigs_post(struct twigs *twigs, uint32_t twig, enum posting_kind kind, uint32_t number, int binds);
void twigs_unpost(struct twigs *twigs, uint32_t twig, enum posting_kind kind, uint32_t number, int binds);

/* Return the position of a cell, assigned if it has none; NONE: memory is out. */
uint32_t twigs_require_position(struct twigs *twigs, uint32_t cell);

/* Take all positions back, because the dataguide is dropped. */
void twigs_clear_positions(struct twigs *twigs);

/* Steps on the path to a state of the trie. */
uint32_t steps_to(const struct path_trie *trie, uint32_t state);

/* Return the state at which the first so many steps of a path end. */
uint32_t state_at_step(const struct path_trie *trie, uint32_t state, uint32_t step);

#endif
