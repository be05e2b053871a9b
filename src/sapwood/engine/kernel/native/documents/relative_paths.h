/* Relative paths, such as `section//figure` from any element, followed on a document.

   To the automaton the path is a path like all others, with two steps in front: any element, anywhere,
   from which it starts. An automaton that has nothing but relative paths finds, for every tag path, which
   of them end there. What is kept for a guide node is its *reach*: the paths that end at its elements,
   each with the depth of the element that it starts from.

       reach     by guide node: a part of `ends`, or not yet known
       ends      (path, depth of the start)

   So an element costs one look-up, and one entry for each path that ends at it, however many paths there
   are. The reach of all nodes is forgotten when paths come or go: they do so with queries, not with
   messages.

   What is reached is listed as triples (path, start, end), in document order of the ends. Those of one
   path and start are chained, and found by a hash table:

       number, start, end    by triple
       next                  the next triple of the same path and start, or NONE
       groups                path, start, first and last triple, count: looked up by path and start

   Sorting the triples by path and start was rejected: chains keep the order of the ends, and cost less.

   Readers take turns: each makes the guide nodes that are missing. A walk is too short to let several in. */
#ifndef SAPWOOD_RELATIVE_PATHS_H
#define SAPWOOD_RELATIVE_PATHS_H

#include "automaton.h"
#include "document.h"

struct path_end {
    uint32_t number, depth;
};

struct path_reach {
    uint32_t first, count; /* of `ends`; first is NONE if it is not known */
};

struct relative_paths {
    struct automaton automaton;
    struct numbers number_of, path_of; /* the automaton's number of a path ↔ the caller's */
    uint64_t version;                  /* of the automaton that the reach belongs to */
    struct ARRAY_OF(struct path_reach) reach;
    struct ARRAY_OF(struct path_end) ends;
    struct ARRAY_OF(char) buffer; /* for names */
};

struct reached_group {
    uint32_t number, start;
    uint32_t first, last, count;
};

struct reached {
    struct numbers number, start, end, next;
    struct ARRAY_OF(struct reached_group) groups;
    struct table by_path;
};

int relative_paths_init(struct relative_paths *paths, struct hash_key key, uint64_t budget);
void relative_paths_free(struct relative_paths *paths);

/* What follows takes the lock, and needs no GIL. Results are -1 when memory is out. */

/* Add a path, given as symbols, under a number that no other path has. */
int relative_paths_add(struct relative_paths *paths, uint32_t number, const struct span *path,
                       uint32_t length);

/* Remove a path; one that is not there is none. */
int relative_paths_remove(struct relative_paths *paths, uint32_t number);

/* Drop the guide nodes. */
int relative_paths_clear(struct relative_paths *paths);

/* What to look for: paths from these elements, in document order, and from those inside them. */
struct reached_request {
    const struct document *document;
    const struct span *names; /* by the document's numbers */
    const uint32_t *starts;
    uint32_t count;
    int inside;
};

enum { TOO_DEEP_TO_REACH = 1 };

/* List what is reached. Return 0, -1, or TOO_DEEP_TO_REACH: elements nest deeper than masks have bits. */
int find_reached(struct relative_paths *paths, const struct reached_request *request,
                 struct reached *reached);

/* Return the group of a path and the element that it starts from, or NONE. */
uint32_t reached_group(const struct reached *reached, uint32_t number, uint32_t start);

void reached_free(struct reached *reached);

#endif
