#include "dataguide.h"

#include "automaton.h"
#include "names.h"

/* -- tables --------------------------------------------------------------------------------------------- */

static inline uint32_t child_hash(const struct dataguide *guide, uint32_t node) {
    return mix_pair(guide->nodes.items[node].parent, guide->nodes.items[node].name);
}

static inline uint32_t composite_hash(const struct dataguide *guide, uint32_t item) {
    return mix_pair(guide->composites.items[item].by_namespace, guide->composites.items[item].by_local);
}

TABLE_FUNCTIONS(children, const struct dataguide, child_hash)
TABLE_FUNCTIONS(composites, const struct dataguide, composite_hash)

uint32_t guide_make_composite(struct automaton *automaton, struct composite composite) {
    struct dataguide *guide = &automaton->guide;
    uint32_t known = guide_composite(guide, composite.by_namespace, composite.by_local);
    if (known != NONE) return known;
    if (PUSH(&guide->composites, composite)) return NONE;
    guide->spent += 32;
    uint32_t item = guide->composites.count - 1;
    return composites_insert(guide, &guide->composite_table, item) ? NONE : item | COMPOSITE_NAME;
}

/* -- nodes ---------------------------------------------------------------------------------------------- */

static struct guide_node empty_node(uint32_t parent, uint32_t name, uint32_t depth) {
    struct guide_node node;
    memset(&node, 0, sizeof node);
    node.parent = parent;
    node.name = name;
    node.depth = depth;
    node.first_child = node.next_sibling = node.first_probe = node.text_probe = node.value_probe = NONE;
    return node;
}

void free_node(struct guide_node *node) {
    FREE_ARRAY(&node->members);
    FREE_ARRAY(&node->classes);
    FREE_ARRAY(&node->slots);
    FREE_ARRAY(&node->reach);
}

static void drop_nodes(struct dataguide *guide) {
    for (uint32_t i = 0; i < guide->nodes.count; i++) free_node(&guide->nodes.items[i]);
    guide->nodes.count = 0;
    guide_drop_probes(guide);
    guide->links.count = guide->composites.count = 0;
    guide->free_link = NONE;
    clear_table(&guide->children);
    clear_table(&guide->composite_table);
    if (guide->nodes_with.items) memset(guide->nodes_with.items, 0xff, (size_t)guide->nodes_with.count * 4);
    guide->spent = 0;
}

void guide_free(struct dataguide *guide) {
    drop_nodes(guide);
    FREE_ARRAY(&guide->nodes);
    FREE_ARRAY(&guide->links);
    FREE_ARRAY(&guide->nodes_with);
    FREE_ARRAY(&guide->probes);
    FREE_ARRAY(&guide->free_probes);
    FREE_ARRAY(&guide->hits);
    FREE_ARRAY(&guide->free_hits);
    FREE_ARRAY(&guide->hits_of_text);
    FREE_ARRAY(&guide->hits_of_number);
    FREE_ARRAY(&guide->composites);
    FREE_ARRAY(&guide->state_stamps);
    FREE_ARRAY(&guide->slots);
    free_table(&guide->children);
    free_table(&guide->probe_table);
    free_table(&guide->hit_table);
    free_table(&guide->composite_table);
}

/* Note that a node has a state as a member. */
static int link_member(struct dataguide *guide, uint32_t node, uint32_t state) {
    while (guide->nodes_with.count <= state) {
        if (PUSH(&guide->nodes_with, NONE)) return -1;
    }
    struct node_link link = {node, guide->nodes_with.items[state]};
    uint32_t at = guide->free_link;
    if (at != NONE) {
        guide->free_link = guide->links.items[at].next;
        guide->links.items[at] = link;
    } else {
        at = guide->links.count;
        if (PUSH(&guide->links, link)) return -1;
    }
    guide->nodes_with.items[state] = at;
    guide->spent += MEMBER_BYTES;
    return 0;
}

static uint32_t first_link(const struct dataguide *guide, uint32_t state) {
    return state < guide->nodes_with.count ? guide->nodes_with.items[state] : NONE;
}

/* Add a state to those entered, unless it is there already. */
static int enter_state(struct numbers *entered, struct numbers *stamps, uint32_t stamp, uint32_t state) {
    if (stamps->items[state] == stamp) return 0;
    stamps->items[state] = stamp;
    return PUSH(entered, state);
}

/* Collect the states that an element enters whose parent has these members, and whose name passes these tests.
   This is the step of the automaton. */
static int enter_states(const struct path_trie *trie, const struct numbers *members, const uint32_t *tests,
                        uint32_t count, struct numbers *stamps, uint32_t *stamp, struct numbers *entered) {
    if (RESERVE(stamps, trie->states.count)) return -1;
    if (stamps->count < trie->states.count) {
        memset(stamps->items + stamps->count, 0, (size_t)(trie->states.count - stamps->count) * 4);
        stamps->count = trie->states.count;
    }
    if (++*stamp == 0) {
        memset(stamps->items, 0, (size_t)stamps->count * 4);
        *stamp = 1;
    }
    for (uint32_t i = 0; i < members->count; i++) {
        uint32_t member = members->items[i];
        const struct trie_state *row = &trie->states.items[member];
        if (row->symbol == DESCENDANT && enter_state(entered, stamps, *stamp, member)) return -1;
        uint32_t deep = trie_edge(trie, member, DESCENDANT);
        if (deep != NONE && enter_state(entered, stamps, *stamp, deep)) return -1;
        for (uint32_t j = 0; j < count; j++) {
            uint32_t target = trie_edge(trie, member, tests[j]);
            if (target != NONE && enter_state(entered, stamps, *stamp, target)) return -1;
            if (deep == NONE) continue;
            target = trie_edge(trie, deep, tests[j]);
            if (target != NONE && enter_state(entered, stamps, *stamp, target)) return -1;
        }
    }
    return 0;
}

static int enter_children(const struct automaton *automaton, const struct numbers *members, uint32_t name,
                          struct numbers *stamps, uint32_t *stamp, struct numbers *entered) {
    uint32_t tests[4], count;
    struct span text = {NULL, 0};
    if (name != OTHER && !(name & COMPOSITE_NAME)) text = strings_text(&automaton->names, name);
    char small[256], *buffer = text.length + 3 <= sizeof small ? small : malloc(text.length + 3);
    if (buffer == NULL) return -1;
    count = tests_of_name(automaton, name, buffer, tests);
    if (buffer != small) free(buffer);
    return enter_states(&automaton->trie, members, tests, count, stamps, stamp, entered);
}

/* Note which values of elements at a node are tested. */
static void flag_tests(const struct automaton *automaton, struct guide_node *node, int *text, int *value) {
    *text = *value = 0;
    for (uint32_t i = 0; i < node->members.count; i++) {
        uint32_t index = automaton->trie.states.items[node->members.items[i]].tests;
        for (; index != NONE; index = automaton->predicates.items.items[index].next) {
            uint32_t target = automaton->predicates.items.items[index].target;
            if (target == TARGET_TEXT)
                *text = 1;
            else if (target == TARGET_VALUE)
                *value = 1;
            else
                node->flags |= HAS_ATTRIBUTES;
        }
    }
}

/* Fill a new node of the guide with what its members have posted. */
static int fill_node(struct automaton *automaton, uint32_t number) {
    struct dataguide *guide = &automaton->guide;
    struct guide_node *node = &guide->nodes.items[number];
    guide->slots.count = 0;
    for (uint32_t i = 0; i < node->members.count; i++) {
        uint32_t state = node->members.items[i];
        if (link_member(guide, number, state)) return -1;
        FOR_POSTINGS(&automaton->trie.postings, automaton->trie.states.items[state].posted, kind, posted, {
            if (kind == POST_ANCHORING) node->flags |= STALE;
            if (kind != POST_SLOT) continue;
            if (automaton->slots.items[posted].flags & CLASSED) {
                if (PUSH(&guide->slots, posted)) return -1;
            } else if (PUSH(&node->slots, posted)) {
                return -1;
            }
        });
    }
    int text, value;
    flag_tests(automaton, node, &text, &value);
    if (text) {
        uint32_t probe = guide_make_probe(automaton, number, TEXT_PROBE);
        if (probe == NONE) return -1;
        guide->nodes.items[number].text_probe = probe;
    }
    if (value) {
        uint32_t probe = guide_make_probe(automaton, number, VALUE_PROBE);
        if (probe == NONE) return -1;
        guide->nodes.items[number].value_probe = probe;
    }
    uint32_t before = automaton->classes.items.count;
    if (classes_add_node(automaton, number, &guide->slots)) return -1;
    node = &guide->nodes.items[number];
    if (node->flags & STALE && guide_refresh(automaton, number)) return -1;
    guide->spent += NODE_BYTES + 8 * (uint64_t)node->classes.count + 12 * (uint64_t)node->reach.count +
                    (sizeof(struct query_class) + 64) * (uint64_t)(automaton->classes.items.count - before);
    return 0;
}

uint32_t guide_make_child(struct automaton *automaton, uint32_t parent, uint32_t name) {
    struct dataguide *guide = &automaton->guide;
    uint32_t number = guide_child(guide, parent, name);
    if (number != NONE) return number; /* made by another thread in the meantime */
    struct guide_node node = empty_node(parent, name, guide->nodes.items[parent].depth + 1);
    if (enter_children(automaton, &guide->nodes.items[parent].members, name, &guide->state_stamps,
                       &guide->state_stamp, &node.members)) {
        free_node(&node);
        return NONE;
    }
    if (node.members.count == 0) node.flags |= DEAD_END;
    node.next_sibling = guide->nodes.items[parent].first_child;
    number = guide->nodes.count;
    if (PUSH(&guide->nodes, node)) {
        free_node(&node);
        return NONE;
    }
    guide->nodes.items[parent].first_child = number;
    if (children_insert(guide, &guide->children, number)) return NONE;
    return fill_node(automaton, number) ? NONE : number;
}

int guide_make_transient(const struct automaton *automaton, const struct guide_node *parent, uint32_t name,
                         struct guide_node *node, struct numbers *stamps, uint32_t *stamp) {
    *node = empty_node(NONE, name, parent->depth + 1);
    if (parent->flags & DEAD_END) {
        node->flags = DEAD_END;
        return 0;
    }
    if (enter_children(automaton, &parent->members, name, stamps, stamp, &node->members)) return -1;
    if (node->members.count == 0) node->flags = DEAD_END;
    for (uint32_t i = 0; i < node->members.count; i++) {
        FOR_POSTINGS(&automaton->trie.postings, automaton->trie.states.items[node->members.items[i]].posted, kind,
                     posted, {
                         if (kind == POST_SLOT && PUSH(&node->slots, posted)) return -1;
                     });
    }
    int text, value;
    flag_tests(automaton, node, &text, &value);
    node->text_probe = text ? 0 : NONE; /* no probes of its own: its values are tested directly */
    node->value_probe = value ? 0 : NONE;
    return 0;
}

static int guide_make_root(struct automaton *automaton) {
    struct guide_node root = empty_node(NONE, OTHER, 0);
    if (PUSH(&root.members, ROOT) || PUSH(&automaton->guide.nodes, root)) return -1;
    return fill_node(automaton, ROOT_NODE);
}

int guide_init(struct automaton *automaton, uint64_t budget) {
    struct dataguide *guide = &automaton->guide;
    memset(guide, 0, sizeof *guide);
    guide->budget = budget;
    guide->free_link = NONE;
    return guide_make_root(automaton);
}

int automaton_clear(struct automaton *automaton) {
    if (freeze_results(automaton)) return -1;
    drop_nodes(&automaton->guide);
    twigs_clear_positions(&automaton->twigs);
    classes_clear(&automaton->classes);
    automaton->splits.count = 0;
    strings_recycle(&automaton->names);
    constants_recycle(&automaton->predicates);
    automaton->version++;
    automaton->name_version++;
    return guide_make_root(automaton);
}

/* -- anchors -------------------------------------------------------------------------------------------- */

/* Collect the names down to a node. */
void collect_tag_path(const struct dataguide *guide, uint32_t node, uint32_t *names) {
    for (uint32_t depth = guide->nodes.items[node].depth; depth > 0; depth--) {
        names[depth - 1] = guide->nodes.items[node].name;
        node = guide->nodes.items[node].parent;
    }
}

int add_reach(struct automaton *automaton, uint32_t anchoring, const uint32_t *names, uint32_t depth,
              struct reaches *reach) {
    const struct anchoring *item = &automaton->twigs.anchorings.items[anchoring];
    uint32_t position = twigs_require_position(&automaton->twigs, item->cell);
    if (position == NONE) return -1;
    if (depth > MOST_DEPTH) return PUSH(reach, ((struct reach){position, 0})); /* see `loose` in match.h */
    if (item->position == UP) return PUSH(reach, ((struct reach){position, depth - (uint32_t)item->offset}));
    if (item->position == DEPTH) return PUSH(reach, ((struct reach){position, (uint32_t)item->offset}));
    uint64_t depths = free_depths(automaton, item->state, item->step, names, depth);
    for (uint32_t at = 0; depths; at++, depths >>= 1) {
        if (depths & 1 && PUSH(reach, ((struct reach){position, at}))) return -1;
    }
    return 0;
}

static int deepest_first(const void *one, const void *other) {
    const struct reach *a = one, *b = other;
    if (a->depth != b->depth) return a->depth < b->depth ? 1 : -1;
    return (a->position > b->position) - (a->position < b->position);
}

void sort_reach(struct reaches *reach) {
    if (reach->count > 1) qsort(reach->items, reach->count, sizeof *reach->items, deepest_first);
}

int guide_refresh(struct automaton *automaton, uint32_t number) {
    struct dataguide *guide = &automaton->guide;
    struct guide_node *node = &guide->nodes.items[number];
    node->flags &= ~(uint32_t)STALE;
    node->reach.count = 0;
    uint32_t names[MOST_DEPTH];
    if (node->depth <= MOST_DEPTH) collect_tag_path(guide, number, names);
    for (uint32_t i = 0; i < node->members.count; i++) {
        FOR_POSTINGS(&automaton->trie.postings, automaton->trie.states.items[node->members.items[i]].posted, kind,
                     posted, {
                         if (kind == POST_ANCHORING &&
                             add_reach(automaton, posted, names, node->depth, &node->reach))
                             return -1;
                     });
    }
    sort_reach(&node->reach);
    return 0;
}

/* For each depth, as a bit, whether the steps from the top down to `count` can end there. */
static uint64_t depths_from_above(const struct automaton *automaton, const uint32_t *symbols, const uint8_t *deep,
                                  uint32_t count, const uint32_t *names, uint32_t depth) {
    uint64_t reached = 1;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t after = 0;
        int above = 0;
        for (uint32_t at = 1; at <= depth; at++) {
            int parent = reached >> (at - 1) & 1;
            above |= parent;
            if ((deep[i] ? above : parent) && name_passes(automaton, names[at - 1], symbols[i]))
                after |= (uint64_t)1 << at;
        }
        reached = after;
    }
    return reached;
}

/* For each depth, as a bit, whether the steps from there down can end at the last name. */
static uint64_t depths_from_below(const struct automaton *automaton, const uint32_t *symbols, const uint8_t *deep,
                                  uint32_t count, const uint32_t *names, uint32_t depth) {
    uint64_t reached = (uint64_t)1 << depth;
    for (uint32_t i = count; i-- > 0;) {
        uint64_t before = 0;
        int below = 0;
        for (uint32_t at = depth; at >= 1; at--) {
            int passes = (reached >> at & 1) && name_passes(automaton, names[at - 1], symbols[i]);
            below |= passes;
            if (deep[i] ? below : passes) before |= (uint64_t)1 << (at - 1);
        }
        reached = before;
    }
    return reached;
}

uint64_t free_depths(const struct automaton *automaton, uint32_t state, uint32_t step, const uint32_t *names,
                     uint32_t depth) {
    uint32_t symbols[MOST_DEPTH];
    uint8_t deep[MOST_DEPTH];
    const struct trie_state *states = automaton->trie.states.items;
    uint32_t count = steps_to(&automaton->trie, state);
    if (count > MOST_DEPTH) return 0; /* longer than the path of names */
    for (uint32_t at = count; state != ROOT; state = states[state].parent) {
        if (states[state].symbol == DESCENDANT) {
            deep[at] = 1; /* the step below, which came before */
        } else {
            symbols[--at] = states[state].symbol;
            deep[at] = 0;
        }
    }
    return depths_from_above(automaton, symbols, deep, step, names, depth) &
           depths_from_below(automaton, symbols + step, deep + step, count - step, names, depth);
}

/* -- edits ---------------------------------------------------------------------------------------------- */

struct growth {
    uint32_t node, at; /* a new edge, by its place in the chain, leaves a state that the node has */
};

/* Return whether a state is among the members added last. */
static int has_new_member(const struct guide_node *node, uint32_t state, uint32_t most) {
    for (uint32_t i = node->members.count; i-- > 0 && most-- > 0;) {
        if (node->members.items[i] == state) return 1;
    }
    return 0;
}

/* Return whether a name test is passed by one name alone, so that children can be looked up by it. */
static int is_one_name(const struct automaton *automaton, uint32_t symbol) {
    return symbol != ANY && symbol != DESCENDANT && automaton->namespace_tests == 0 &&
           automaton->any_namespace_tests == 0;
}

int guide_propagate(struct automaton *automaton, const struct numbers *chain) {
    struct dataguide *guide = &automaton->guide;
    const struct trie_state *states = automaton->trie.states.items;
    struct ARRAY_OF(struct growth) work = {NULL, 0, 0};
    uint32_t grown = states[chain->items[0]].parent;
    int failed = -1;
    for (uint32_t link = first_link(guide, grown); link != NONE; link = guide->links.items[link].next) {
        if (PUSH(&work, ((struct growth){guide->links.items[link].node, 0}))) goto done;
    }
    if (grown != ROOT && states[grown].symbol == DESCENDANT) { /* the nodes of its parent have its edges, too */
        uint32_t link = first_link(guide, states[grown].parent);
        for (; link != NONE; link = guide->links.items[link].next) {
            if (PUSH(&work, ((struct growth){guide->links.items[link].node, 0}))) goto done;
        }
    }
    while (work.count) {
        struct growth next = POP(&work);
        uint32_t state = chain->items[next.at], symbol = states[state].symbol;
        int is_last = next.at + 1 == chain->count;
        if (symbol == DESCENDANT && !is_last && PUSH(&work, ((struct growth){next.node, next.at + 1}))) goto done;
        int is_looked_up = is_one_name(automaton, symbol);
        uint32_t child = is_looked_up ? guide_child(guide, next.node, symbol) : guide->nodes.items[next.node].first_child;
        for (; child != NONE; child = is_looked_up ? NONE : guide->nodes.items[child].next_sibling) {
            struct guide_node *node = &guide->nodes.items[child];
            if (symbol != DESCENDANT && !name_passes(automaton, node->name, symbol)) continue;
            if (has_new_member(node, state, chain->count)) continue;
            node->flags &= ~(uint32_t)DEAD_END;
            if (PUSH(&node->members, state) || link_member(guide, child, state)) goto done;
            if (symbol == DESCENDANT) {
                if (PUSH(&work, ((struct growth){child, next.at}))) goto done;
            } else if (!is_last && PUSH(&work, ((struct growth){child, next.at + 1}))) {
                goto done;
            }
        }
    }
    failed = 0;
done:
    FREE_ARRAY(&work);
    return failed;
}

void guide_remove_state(struct automaton *automaton, uint32_t state) {
    struct dataguide *guide = &automaton->guide;
    uint32_t link = first_link(guide, state);
    if (link == NONE) return;
    guide->nodes_with.items[state] = NONE;
    while (link != NONE) {
        struct node_link *item = &guide->links.items[link];
        uint32_t next = item->next;
        remove_number(&guide->nodes.items[item->node].members, state);
        item->next = guide->free_link;
        guide->free_link = link;
        link = next;
    }
}

int guide_post(struct automaton *automaton, uint32_t state, uint32_t kind, uint32_t number) {
    struct dataguide *guide = &automaton->guide;
    int classed = kind == POST_SLOT && automaton->slots.items[number].flags & CLASSED;
    guide->slots.count = 0;
    for (uint32_t link = first_link(guide, state); link != NONE; link = guide->links.items[link].next) {
        uint32_t node = guide->links.items[link].node;
        if (kind == POST_ANCHORING) guide->nodes.items[node].flags |= STALE;
        if (kind == POST_SLOT && PUSH(classed ? &guide->slots : &guide->nodes.items[node].slots, classed ? node : number))
            return -1;
    }
    return classed ? classes_post(automaton, number, &guide->slots) : 0;
}

void guide_unpost(struct automaton *automaton, uint32_t state, uint32_t kind, uint32_t number) {
    struct dataguide *guide = &automaton->guide;
    if (kind == POST_SLOT && automaton->slots.items[number].flags & CLASSED) {
        classes_unpost(automaton, number);
        return;
    }
    for (uint32_t link = first_link(guide, state); link != NONE; link = guide->links.items[link].next) {
        struct guide_node *node = &guide->nodes.items[guide->links.items[link].node];
        if (kind == POST_ANCHORING) node->flags |= STALE;
        if (kind == POST_SLOT) remove_number(&node->slots, number);
    }
}

int guide_update_tests(struct automaton *automaton, uint32_t state, uint32_t target, uint32_t constant,
                       int other_indexes) {
    struct dataguide *guide = &automaton->guide;
    for (uint32_t link = first_link(guide, state); link != NONE; link = guide->links.items[link].next) {
        if (guide_update_node_tests(automaton, guide->links.items[link].node, target, constant, other_indexes))
            return -1;
    }
    return 0;
}
