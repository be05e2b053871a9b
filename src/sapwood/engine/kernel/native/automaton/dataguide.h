/* The dataguide: the trie of the tag paths seen in messages, each with the trie states that are active there.

   A *guide node* stands for a path of names from the root, such as nitf, body, p. It has its *members*, the
   states of the path trie that an element with this path enters, and what follows from them: the classes of
   queries whose paths end there, the anchorings with the depths of their anchors, the probes of its
   attributes and text. In a warm guide an element costs one look-up, however many queries there are.

       nodes        rows; a child is found by (parent, name) in one table for all
       names        a symbol of a query; a *composite* of a namespace's and an any-namespace's test for a name
                    that no query mentions but some test passes; or OTHER
       nodes_with   state → the nodes that have it as a member: whom an edit concerns
       probes       (node, attribute's name) or (node, text) → the predicate indexes to ask
       hits         (probe, constant) → what follows when a value is that constant; filled when first needed

   New nodes, probes and hits are made under the writer's lock. The guide has a budget: when it is exceeded,
   new nodes are made for the current message only (`guide_step` with a node of the caller's), and the next
   message finds the guide empty. */
#ifndef SAPWOOD_DATAGUIDE_H
#define SAPWOOD_DATAGUIDE_H

#include "arrays.h"
#include "query_classes.h"

enum { ROOT_NODE = 0 };

/* The position of an anchoring's cell, and the depth of its anchor. */
struct reach {
    uint32_t position, depth;
};

struct reaches ARRAY_OF(struct reach);

enum node_flags {
    DEAD_END = 1,       /* no member: elements below it are at the same node */
    STALE = 2,          /* anchorings have changed */
    HAS_ATTRIBUTES = 4, /* some query tests attributes */
};

struct guide_node {
    uint32_t parent, name, first_child, next_sibling;
    uint32_t depth, flags;
    uint32_t text_probe, value_probe; /* NONE: nothing to test */
    uint32_t first_probe;             /* of attributes */
    struct numbers members;
    struct numbers classes; /* of plain paths that end here */
    struct numbers slots;   /* queries reported one by one */
    struct reaches reach;   /* deepest anchors first */
};

/* The predicate indexes of one target at one node: the name of an attribute, or one of these. */
#define TEXT_PROBE (NONE - 1)
#define VALUE_PROBE (NONE - 2)

struct probe {
    uint32_t node, name;
    uint32_t next;      /* attribute of the same node */
    uint32_t first_hit; /* of its hits */
    struct numbers indexes;
    uint8_t exists, texts, numbers, rare; /* whether any index has such tests */
};

struct hit {
    uint32_t probe, constant; /* NONE: mere existence */
    uint32_t next, previous;  /* of the same probe */
    uint32_t next_same, previous_same; /* of the same constant */
    struct numbers slots;
    struct reaches reach;
};

/* A name in messages that only tests for namespaces pass: see `names`. */
struct composite {
    uint32_t by_namespace, by_local; /* symbols `uri}*` and `\0}local`; NONE: not tested */
};

struct node_link {
    uint32_t node, next;
};

struct dataguide {
    struct ARRAY_OF(struct guide_node) nodes;
    struct table children;
    struct ARRAY_OF(struct node_link) links;
    uint32_t free_link;
    struct numbers nodes_with; /* by state: the first link, or NONE */
    struct ARRAY_OF(struct probe) probes;
    struct numbers free_probes;
    struct table probe_table;
    struct ARRAY_OF(struct hit) hits;
    struct numbers free_hits;
    struct table hit_table;
    struct numbers hits_of_text, hits_of_number; /* by constant: the first hit, or NONE */
    struct ARRAY_OF(struct composite) composites;
    struct table composite_table;
    uint64_t spent, budget; /* in bytes */
    uint64_t changes;       /* of hits, by edits */
    struct numbers state_stamps, slots; /* scratch of `guide_make_child` */
    uint32_t state_stamp;
};

#define COMPOSITE_NAME 0x80000000u

static inline uint32_t guide_child(const struct dataguide *guide, uint32_t node, uint32_t name) {
    uint32_t found;
    const struct guide_node *nodes = guide->nodes.items;
    FIND_IN(&guide->children, mix_pair(node, name), child,
            nodes[child].parent == node && nodes[child].name == name, found);
    return found;
}

/* Attributes of a node: names of text and value probes are not looked up. */
static inline uint32_t guide_probe(const struct dataguide *guide, uint32_t node, uint32_t name) {
    uint32_t found;
    const struct probe *probes = guide->probes.items;
    FIND_IN(&guide->probe_table, mix_pair(node, name), probe,
            probes[probe].node == node && probes[probe].name == name, found);
    return found;
}

static inline uint32_t guide_hit(const struct dataguide *guide, uint32_t probe, uint32_t constant) {
    uint32_t found;
    const struct hit *hits = guide->hits.items;
    FIND_IN(&guide->hit_table, mix_pair(probe, constant), hit,
            hits[hit].probe == probe && hits[hit].constant == constant, found);
    return found;
}

static inline uint32_t guide_composite(const struct dataguide *guide, uint32_t by_namespace, uint32_t by_local) {
    uint32_t found;
    const struct composite *items = guide->composites.items;
    FIND_IN(&guide->composite_table, mix_pair(by_namespace, by_local), item,
            items[item].by_namespace == by_namespace && items[item].by_local == by_local, found);
    return found == NONE ? NONE : found | COMPOSITE_NAME;
}

struct automaton;

int guide_init(struct automaton *automaton, uint64_t budget);
void guide_free(struct dataguide *guide);

/* What a node takes, beside its arrays: its row, cells of tables, stamps, and what allocators add. */
#define NODE_BYTES (sizeof(struct guide_node) + 192)
#define MEMBER_BYTES 24
#define HIT_BYTES (sizeof(struct hit) + 64)

static inline int guide_has_room(const struct dataguide *guide) { return guide->spent <= guide->budget; }

/* What follows needs the writer's lock, but for `guide_make_transient`. Numbers are NONE, and results -1, when
   memory is out. */

/* Make the node of a child, with everything that follows from its members. */
uint32_t guide_make_child(struct automaton *automaton, uint32_t parent, uint32_t name);

/* Fill in a node for one message, which is not in the guide: it has members and slots. */
int guide_make_transient(const struct automaton *automaton, const struct guide_node *parent, uint32_t name,
                         struct guide_node *node, struct numbers *stamps, uint32_t *stamp);
void free_node(struct guide_node *node);

/* Bring the anchorings of a node up to date. */
int guide_refresh(struct automaton *automaton, uint32_t node);

uint32_t guide_make_composite(struct automaton *automaton, struct composite composite);

/* Follow a path that has grown: `chain` are its new states, from the top down. */
int guide_propagate(struct automaton *automaton, const struct numbers *chain);
void guide_remove_state(struct automaton *automaton, uint32_t state);

/* Tell the nodes of a state that a posting has come or gone. */
int guide_post(struct automaton *automaton, uint32_t state, uint32_t kind, uint32_t number);
void guide_unpost(struct automaton *automaton, uint32_t state, uint32_t kind, uint32_t number);

/* Tell them that the tests of a target have changed: those with a constant, or which indexes there are. */
int guide_update_tests(struct automaton *automaton, uint32_t state, uint32_t target, uint32_t constant,
                       int other_indexes);

/* -- anchors -- */

/* Add the depths at which an anchoring's anchor may be, given the names down to where its part was found. */
int add_reach(struct automaton *automaton, uint32_t anchoring, const uint32_t *names, uint32_t depth,
              struct reaches *reach);
void sort_reach(struct reaches *reach);

/* Return the depths, as bits, at which the anchor of a FREE anchoring may be. */
uint64_t free_depths(const struct automaton *automaton, uint32_t state, uint32_t step, const uint32_t *names,
                     uint32_t depth);

/* -- probes (probes.c) -- */

uint32_t guide_make_probe(struct automaton *automaton, uint32_t node, uint32_t name);
uint32_t guide_make_hit(struct automaton *automaton, uint32_t probe, uint32_t constant);
int guide_update_node_tests(struct automaton *automaton, uint32_t node, uint32_t target, uint32_t constant,
                            int other_indexes);
void guide_drop_probes(struct dataguide *guide);

/* Drop the hits of a constant that no test has any more, so that its number can be assigned again. */
void guide_forget_constant(struct dataguide *guide, uint32_t constant);
void collect_tag_path(const struct dataguide *guide, uint32_t node, uint32_t *names);

/* Collect the predicate indexes of a target that states have: the name of an attribute, or TEXT_PROBE, … */
int collect_indexes(const struct automaton *automaton, const struct numbers *states, uint32_t name,
                    struct probe *probe);

#endif
