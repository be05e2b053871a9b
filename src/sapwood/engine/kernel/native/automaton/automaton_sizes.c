#include "automaton_sizes.h"

#define BYTES(array) ((uint64_t)(array).room * sizeof *(array).items)

static uint64_t table_bytes(const struct table *table) {
    return table->cells ? ((uint64_t)table->mask + 1) * sizeof *table->cells : 0;
}

static uint64_t string_bytes(const struct string_table *strings) {
    return table_bytes(&strings->table) + BYTES(strings->block) + BYTES(strings->entries) + BYTES(strings->free) +
           BYTES(strings->retired);
}

static uint64_t pattern_bytes(const struct pattern_set *set) {
    return BYTES(set->patterns) + BYTES(set->added) + BYTES(set->free) + BYTES(set->nodes) + BYTES(set->from_root) +
           table_bytes(&set->by_constant) + table_bytes(&set->edges);
}

static uint64_t predicate_bytes(const struct predicate_indexes *indexes) {
    uint64_t bytes = BYTES(indexes->items) + BYTES(indexes->free) + string_bytes(&indexes->constants) +
                     BYTES(indexes->number_entries) + BYTES(indexes->equal_entries) + BYTES(indexes->free_equal) +
                     table_bytes(&indexes->number_table) + table_bytes(&indexes->equal_table);
    for (uint32_t i = 0; i < indexes->items.count; i++) {
        const struct rare_tests *rare = indexes->items.items[i].rare;
        if (rare == NULL) continue;
        bytes += sizeof *rare + BYTES(rare->unequal) + BYTES(rare->prefixes) + pattern_bytes(&rare->substrings) +
                 BYTES(rare->groups);
        for (int operator = 0; operator <= AT_LEAST; operator++)
            bytes += BYTES(rare->ordered[operator].tests) + BYTES(rare->ordered[operator].sums) +
                     BYTES(rare->ordered[operator].shared);
    }
    return bytes;
}

static uint64_t twig_bytes(const struct twigs *twigs) {
    uint64_t bytes = BYTES(twigs->anchorings) + BYTES(twigs->cells) + BYTES(twigs->positions) + BYTES(twigs->position_flags) +
                     BYTES(twigs->groups) + BYTES(twigs->items) + table_bytes(&twigs->anchoring_table) +
                     table_bytes(&twigs->table);
    for (uint32_t i = 0; i < twigs->items.count; i++) bytes += BYTES(twigs->items.items[i].parts);
    for (uint32_t i = 0; i < twigs->cells.count; i++) bytes += BYTES(twigs->cells.items[i].twigs);
    for (uint32_t i = 0; i < twigs->positions.count; i++) bytes += BYTES(twigs->positions.items[i].accesses);
    return bytes;
}

static uint64_t guide_bytes(const struct dataguide *guide) {
    uint64_t bytes = BYTES(guide->nodes) + BYTES(guide->links) + BYTES(guide->nodes_with) + BYTES(guide->probes) +
                     BYTES(guide->hits) + BYTES(guide->composites) + BYTES(guide->state_stamps) +
                     table_bytes(&guide->children) + table_bytes(&guide->probe_table) +
                     table_bytes(&guide->hit_table) + table_bytes(&guide->composite_table);
    for (uint32_t i = 0; i < guide->nodes.count; i++) {
        const struct guide_node *node = &guide->nodes.items[i];
        bytes += BYTES(node->members) + BYTES(node->classes) + BYTES(node->slots) + BYTES(node->reach);
    }
    for (uint32_t i = 0; i < guide->probes.count; i++) bytes += BYTES(guide->probes.items[i].indexes);
    for (uint32_t i = 0; i < guide->hits.count; i++)
        bytes += BYTES(guide->hits.items[i].slots) + BYTES(guide->hits.items[i].reach);
    return bytes;
}

static uint64_t class_bytes(const struct query_classes *classes) {
    uint64_t bytes = BYTES(classes->items) + BYTES(classes->of_slot) + BYTES(classes->node_stamps);
    for (uint32_t i = 0; i < classes->items.count; i++)
        bytes += BYTES(classes->items.items[i].slots) + BYTES(classes->items.items[i].nodes);
    return bytes;
}

static uint64_t plan_bytes(const struct join_plan *plan) {
    return BYTES(plan->class_of) + BYTES(plan->group_of) + BYTES(plan->words) + BYTES(plan->node_words) +
           BYTES(plan->hits) + BYTES(plan->reports) + BYTES(plan->entries) + BYTES(plan->first_entry) +
           BYTES(plan->runs) + BYTES(plan->first_run) + BYTES(plan->checks) + BYTES(plan->conditions) +
           BYTES(plan->accesses) + BYTES(plan->groups) + BYTES(plan->bundles) + BYTES(plan->bundle_slots) +
           BYTES(plan->bundle_of);
}

void automaton_measure(const struct automaton *automaton, struct automaton_sizes *sizes) {
    const struct path_trie *trie = &automaton->trie;
    const struct predicate_indexes *predicates = &automaton->predicates;
    const struct twigs *twigs = &automaton->twigs;
    memset(sizes, 0, sizeof *sizes);
    for (uint32_t i = 0; i < automaton->slots.count; i++) sizes->slots += automaton->slots.items[i].flags & IN_USE;
    sizes->names = automaton->names.table.count;
    sizes->states = trie->states.count - trie->free.count;
    sizes->predicate_indexes = predicates->items.count - predicates->free.count;
    sizes->constants = predicates->constants.table.count + predicates->number_table.count;
    sizes->twigs = twigs->count;
    sizes->anchorings = twigs->anchorings.count - twigs->free_anchorings.count;
    sizes->guide_nodes = automaton->guide.nodes.count;
    sizes->classes = automaton->classes.items.count - automaton->classes.free.count;
    sizes->probes = automaton->guide.probes.count - automaton->guide.free_probes.count;
    sizes->hits = automaton->guide.hits.count - automaton->guide.free_hits.count;
    sizes->bytes = string_bytes(&automaton->names) + BYTES(trie->states) + table_bytes(&trie->edges) +
                   BYTES(trie->postings.cells) + predicate_bytes(predicates) + twig_bytes(twigs) +
                   guide_bytes(&automaton->guide) + plan_bytes(&automaton->plan) +
                   class_bytes(&automaton->classes) + BYTES(automaton->splits) +
                   BYTES(automaton->slots) + BYTES(automaton->parts);
}
