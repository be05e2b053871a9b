/* Probes and hits: the tests of one value at one guide node, and what follows from a constant there. */
#include "automaton.h"
#include "names.h"

static inline uint32_t probe_hash(const struct dataguide *guide, uint32_t probe) {
    return mix_pair(guide->probes.items[probe].node, guide->probes.items[probe].name);
}

static inline uint32_t hit_hash(const struct dataguide *guide, uint32_t hit) {
    return mix_pair(guide->hits.items[hit].probe, guide->hits.items[hit].constant);
}

TABLE_FUNCTIONS(probes, const struct dataguide, probe_hash)
TABLE_FUNCTIONS(hits, const struct dataguide, hit_hash)

static int is_target(const struct automaton *automaton, uint32_t name, uint32_t target) {
    if (name == TEXT_PROBE) return target == TARGET_TEXT;
    if (name == VALUE_PROBE) return target == TARGET_VALUE;
    return target != TARGET_TEXT && target != TARGET_VALUE && name_passes(automaton, name, target);
}

/* Note which kinds of tests the indexes of a probe have. */
static void flag_kinds(const struct automaton *automaton, struct probe *probe) {
    probe->exists = probe->texts = probe->numbers = probe->rare = 0;
    for (uint32_t i = 0; i < probe->indexes.count; i++) {
        const struct predicate_index *index = &automaton->predicates.items.items[probe->indexes.items[i]];
        probe->exists |= index->exists != NONE;
        probe->texts |= index->texts != 0;
        probe->numbers |= index->numbers != 0;
        probe->rare |= index->rare != NULL;
    }
}

int collect_indexes(const struct automaton *automaton, const struct numbers *states, uint32_t name,
                    struct probe *probe) {
    probe->indexes.count = 0;
    for (uint32_t i = 0; i < states->count; i++) {
        uint32_t index = automaton->trie.states.items[states->items[i]].tests;
        for (; index != NONE; index = automaton->predicates.items.items[index].next) {
            if (is_target(automaton, name, automaton->predicates.items.items[index].target) &&
                PUSH(&probe->indexes, index))
                return -1;
        }
    }
    flag_kinds(automaton, probe);
    return 0;
}

/* Have the comparison groups of a probe checked. */
static int place_groups(struct automaton *automaton, const struct probe *probe) {
    for (uint32_t i = 0; i < probe->indexes.count; i++) {
        const struct rare_tests *rare = automaton->predicates.items.items[probe->indexes.items[i]].rare;
        for (uint32_t j = 0; rare != NULL && j < rare->groups.count; j++) {
            uint32_t cell = automaton->twigs.groups.items[rare->groups.items[j]].cell;
            if (twigs_require_position(&automaton->twigs, cell) == NONE) return -1;
        }
    }
    return 0;
}

uint32_t guide_make_probe(struct automaton *automaton, uint32_t node, uint32_t name) {
    struct dataguide *guide = &automaton->guide;
    uint32_t number = guide_probe(guide, node, name);
    if (number != NONE) return number; /* made by another thread in the meantime */
    int of_attribute = name < VALUE_PROBE;
    struct probe probe = {node, name, of_attribute ? guide->nodes.items[node].first_probe : NONE, NONE,
                          {NULL, 0, 0}, 0, 0, 0, 0};
    if (collect_indexes(automaton, &guide->nodes.items[node].members, name, &probe)) return NONE;
    if (place_groups(automaton, &probe)) return NONE;
    if (guide->free_probes.count) {
        number = POP(&guide->free_probes);
        guide->probes.items[number] = probe;
    } else {
        number = guide->probes.count;
        if (PUSH(&guide->probes, probe)) return NONE;
    }
    if (probes_insert(guide, &guide->probe_table, number)) return NONE;
    if (of_attribute) guide->nodes.items[node].first_probe = number;
    guide->spent += sizeof probe + 4 * (uint64_t)probe.indexes.count;
    return number;
}

/* Return where the first hit of a constant is noted; NULL: nowhere so far, or it is mere existence. */
static uint32_t *first_of_constant(struct dataguide *guide, uint32_t constant) {
    if (constant == NONE) return NULL;
    struct numbers *heads = constant & NUMBER_CONSTANT ? &guide->hits_of_number : &guide->hits_of_text;
    constant &= ~NUMBER_CONSTANT;
    return constant < heads->count ? &heads->items[constant] : NULL;
}

/* Add a hit to the lists of its probe and of its constant. */
static int link_hit(struct dataguide *guide, uint32_t number) {
    struct hit *hit = &guide->hits.items[number];
    if (hit->next != NONE) guide->hits.items[hit->next].previous = number;
    guide->probes.items[hit->probe].first_hit = number;
    if (hit->constant == NONE) return 0;
    struct numbers *heads = hit->constant & NUMBER_CONSTANT ? &guide->hits_of_number : &guide->hits_of_text;
    while (heads->count <= (hit->constant & ~NUMBER_CONSTANT)) {
        if (PUSH(heads, NONE)) return -1;
    }
    uint32_t *first = first_of_constant(guide, hit->constant);
    hit->next_same = *first;
    if (*first != NONE) guide->hits.items[*first].previous_same = number;
    *first = number;
    return 0;
}

static void unlink_hit(struct dataguide *guide, uint32_t number) {
    struct hit *hits = guide->hits.items;
    const struct hit *hit = &hits[number];
    if (hit->next != NONE) hits[hit->next].previous = hit->previous;
    if (hit->previous != NONE)
        hits[hit->previous].next = hit->next;
    else
        guide->probes.items[hit->probe].first_hit = hit->next;
    if (hit->next_same != NONE) hits[hit->next_same].previous_same = hit->previous_same;
    uint32_t *first = first_of_constant(guide, hit->constant);
    if (hit->previous_same != NONE)
        hits[hit->previous_same].next_same = hit->next_same;
    else if (first != NULL)
        *first = hit->next_same;
}

uint32_t guide_make_hit(struct automaton *automaton, uint32_t probe, uint32_t constant) {
    struct dataguide *guide = &automaton->guide;
    uint32_t number = guide_hit(guide, probe, constant);
    if (number != NONE) return number;
    const struct probe *of = &guide->probes.items[probe];
    const struct guide_node *node = &guide->nodes.items[of->node];
    struct hit hit = {probe, constant, of->first_hit, NONE, NONE, NONE, {NULL, 0, 0}, {NULL, 0, 0}};
    uint32_t names[MOST_DEPTH];
    if (node->depth <= MOST_DEPTH) collect_tag_path(guide, of->node, names);
    for (uint32_t i = 0; i < of->indexes.count; i++) {
        uint32_t index = of->indexes.items[i];
        uint32_t posted = constant == NONE ? automaton->predicates.items.items[index].exists
                                           : equal_find(&automaton->predicates, index, constant);
        FOR_POSTINGS(&automaton->trie.postings, posted, kind, posting, {
            if (kind == POST_SLOT ? PUSH(&hit.slots, posting)
                                  : add_reach(automaton, posting, names, node->depth, &hit.reach))
                return NONE;
        });
    }
    sort_reach(&hit.reach);
    if (guide->free_hits.count) {
        number = POP(&guide->free_hits);
        guide->hits.items[number] = hit;
    } else {
        number = guide->hits.count;
        if (PUSH(&guide->hits, hit)) return NONE;
    }
    if (hits_insert(guide, &guide->hit_table, number) || link_hit(guide, number)) return NONE;
    guide->spent += HIT_BYTES + 4 * (uint64_t)hit.slots.count + 8 * (uint64_t)hit.reach.count;
    return number;
}

static void free_hit(struct dataguide *guide, uint32_t number) {
    FREE_ARRAY(&guide->hits.items[number].slots);
    FREE_ARRAY(&guide->hits.items[number].reach);
}

static void drop_hit(struct dataguide *guide, uint32_t number) {
    guide->changes++;
    unlink_hit(guide, number);
    hits_remove(guide, &guide->hit_table, number);
    free_hit(guide, number);
    (void)PUSH(&guide->free_hits, number);
    guide->spent -= guide->spent < HIT_BYTES ? guide->spent : HIT_BYTES;
}

static void drop_hits(struct dataguide *guide, uint32_t probe) {
    while (guide->probes.items[probe].first_hit != NONE) drop_hit(guide, guide->probes.items[probe].first_hit);
}

static void drop_hit_of(struct dataguide *guide, uint32_t probe, uint32_t constant) {
    uint32_t hit = guide_hit(guide, probe, constant);
    if (hit != NONE) drop_hit(guide, hit);
}

void guide_forget_constant(struct dataguide *guide, uint32_t constant) {
    uint32_t *first = first_of_constant(guide, constant);
    while (first != NULL && *first != NONE) drop_hit(guide, *first);
}

static void drop_probe(struct dataguide *guide, uint32_t probe) {
    drop_hits(guide, probe);
    probes_remove(guide, &guide->probe_table, probe);
    FREE_ARRAY(&guide->probes.items[probe].indexes);
    (void)PUSH(&guide->free_probes, probe);
}

void guide_drop_probes(struct dataguide *guide) {
    for (uint32_t i = 0; i < guide->probes.count; i++) FREE_ARRAY(&guide->probes.items[i].indexes);
    for (uint32_t i = 0; i < guide->hits.count; i++) free_hit(guide, i);
    guide->changes++;
    guide->probes.count = guide->hits.count = guide->free_probes.count = guide->free_hits.count = 0;
    guide->hits_of_text.count = guide->hits_of_number.count = 0;
    clear_table(&guide->probe_table);
    clear_table(&guide->hit_table);
}

/* Bring one probe up to date. */
static int update_probe(struct automaton *automaton, uint32_t number, uint32_t constant, int other_indexes) {
    struct dataguide *guide = &automaton->guide;
    struct probe *probe = &guide->probes.items[number];
    if (other_indexes) {
        drop_hits(guide, number);
        if (collect_indexes(automaton, &guide->nodes.items[probe->node].members, probe->name, probe)) return -1;
    } else {
        drop_hit_of(guide, number, constant);
        flag_kinds(automaton, probe);
    }
    return place_groups(automaton, probe);
}

/* Bring the probe of text or of the string-value up to date, which may come or go. */
static int update_own_probe(struct automaton *automaton, uint32_t node, uint32_t name, uint32_t constant,
                            int other_indexes) {
    struct dataguide *guide = &automaton->guide;
    uint32_t probe = guide_probe(guide, node, name);
    if (probe == NONE) {
        probe = guide_make_probe(automaton, node, name);
        if (probe == NONE) return -1;
    } else if (update_probe(automaton, probe, constant, other_indexes)) {
        return -1;
    }
    if (guide->probes.items[probe].indexes.count == 0) {
        drop_probe(guide, probe);
        probe = NONE;
    }
    if (name == TEXT_PROBE)
        guide->nodes.items[node].text_probe = probe;
    else
        guide->nodes.items[node].value_probe = probe;
    return 0;
}

int guide_update_node_tests(struct automaton *automaton, uint32_t node, uint32_t target, uint32_t constant,
                            int other_indexes) {
    struct dataguide *guide = &automaton->guide;
    if (target == TARGET_TEXT) return update_own_probe(automaton, node, TEXT_PROBE, constant, other_indexes);
    if (target == TARGET_VALUE) return update_own_probe(automaton, node, VALUE_PROBE, constant, other_indexes);
    guide->nodes.items[node].flags |= HAS_ATTRIBUTES;
    uint32_t probe = guide->nodes.items[node].first_probe;
    for (; probe != NONE; probe = guide->probes.items[probe].next) {
        if (name_passes(automaton, guide->probes.items[probe].name, target) &&
            update_probe(automaton, probe, constant, other_indexes))
            return -1;
    }
    return 0;
}
