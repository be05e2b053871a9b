/* The tests of values: see predicate_index.h and dataguide.h for what is looked up where. */
#include <math.h>

#include "match.h"
#include "substring.h"
#include "xpath_number.h"

/* A value of the message, looked up among the constants when first needed. */
struct tested_value {
    struct span text;
    uint32_t constant;
    double number;
    uint8_t has_constant, has_number;
};

static uint32_t constant_of(const struct match *match, struct tested_value *value) {
    if (!value->has_constant) {
        value->constant = strings_find(&match->automaton->predicates.constants, value->text);
        value->has_constant = 1;
    }
    return value->constant;
}

static double number_of(struct tested_value *value) {
    if (!value->has_number) {
        value->number = xpath_number(value->text);
        value->has_number = 1;
    }
    return value->number;
}

static int report_postings(struct match *match, uint32_t posted) {
    FOR_POSTINGS(&match->automaton->trie.postings, posted, kind, number, {
        TRY(kind == POST_SLOT ? report_slot(match, number) : set_anchoring(match, number));
    });
    return 0;
}

/* Return the first of an array of ascending numbers that is not less than another. */
static uint32_t first_not_less(const struct numbers *numbers, uint32_t than) {
    uint32_t low = 0, high = numbers->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (numbers->items[middle] < than)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Report the queries of a run of sorted tests, whose one end is fixed: another value has got a part of it. */
static int report_run(struct match *match, uint32_t index, enum test_operator operator, uint32_t first,
                      uint32_t end) {
    struct scratch *scratch = match->scratch;
    const struct rare_tests *rare = match->automaton->predicates.items.items[index].rare;
    const struct sorted_tests *sorted = &rare->ordered[operator];
    uint32_t number = index * 4 + (uint32_t)(operator - LESS);
    TRY_MEMORY(index > UINT32_MAX / 4 - 1 || reserve_stamps(&scratch->run_stamps, number + 1) ||
               reserve_stamps(&scratch->runs, number + 1));
    if (scratch->run_stamps.items[number] != scratch->stamp) {
        scratch->run_stamps.items[number] = scratch->stamp;
        scratch->runs.items[number] = match->found->runs.count;
        uint32_t fixed = operator == LESS || operator == AT_MOST ? end : first;
        TRY_MEMORY(PUSH(&match->found->runs, ((struct passed_run){index, operator, fixed, fixed})));
    }
    struct passed_run *run = &match->found->runs.items[scratch->runs.items[number]];
    uint32_t low = first < run->first ? first : run->first, high = end > run->end ? end : run->end;
    const uint64_t *sums = sorted->sums.items;
    match->found->count += (sums[run->first] - sums[low]) + (sums[high] - sums[run->end]);
    run->first = low;
    run->end = high;
    for (uint32_t i = first_not_less(&sorted->shared, first); i < sorted->shared.count; i++) {
        if (sorted->shared.items[i] >= end) break;
        TRY(report_slot(match, sorted->tests.items[sorted->shared.items[i]].slot));
    }
    return 0;
}

/* Report the queries that one comparison decides. */
static int report_sorted(struct match *match, uint32_t index, enum test_operator operator, double number) {
    const struct rare_tests *rare = match->automaton->predicates.items.items[index].rare;
    const struct sorted_tests *sorted = &rare->ordered[operator];
    const struct sorted_test *tests = sorted->tests.items;
    uint32_t low = 0, high = sorted->numbers;
    if (operator == NUMBER_UNEQUAL) {
        for (uint32_t i = 0; i < sorted->tests.count; i++) {
            if (number != tests[i].constant) TRY(report_slot(match, tests[i].slot));
        }
        return 0;
    }
    if (isnan(number)) return 0;
    /* the first test whose constant is greater (or, for > and <=, not less) than the number */
    int or_equal = operator == MORE || operator == AT_MOST;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int below = or_equal ? tests[middle].constant < number : tests[middle].constant <= number;
        if (below)
            low = middle + 1;
        else
            high = middle;
    }
    int from_below = operator == MORE || operator == AT_LEAST;
    return from_below ? report_run(match, index, operator, 0, low)
                      : report_run(match, index, operator, low, sorted->numbers);
}

/* Report the substrings of an index that a value has. */
static int test_substrings(struct match *match, uint32_t index, struct span text) {
    struct scratch *scratch = match->scratch;
    const struct predicate_indexes *predicates = &match->automaton->predicates;
    const struct pattern_set *set = &predicates->items.items[index].rare->substrings;
    for (uint32_t i = 0; i < set->added.count; i++) {
        struct pattern pattern = set->patterns.items[set->added.items[i]];
        if (contains(text, strings_text(&predicates->constants, pattern.constant)))
            TRY(report_postings(match, pattern.posted));
    }
    while (scratch->searches.count <= index)
        TRY_MEMORY(PUSH(&scratch->searches, ((struct text_search){0, 0, 0, NONE, {NULL, 0, 0}})));
    struct text_search *search = &scratch->searches.items[index];
    uint32_t start = 0;
    if (predicates->items.items[index].target == TARGET_VALUE) { /* a suffix of the text so far */
        start = (uint32_t)(text.bytes - scratch->text.items);
        text = (struct span){scratch->text.items, start + text.length};
        if (search->text != scratch->text_number) TRY_MEMORY(search_begin(search, set, scratch->text_number));
    } else {
        TRY_MEMORY(search_begin(search, set, 0));
    }
    search_on(search, set, text);
    for (uint32_t next = search->last; next != NONE; next = search->found.items[next].next) {
        uint32_t end = search->found.items[next].end;
        if (end <= start) break;
        if (end - set->patterns.items[next].length >= start)
            TRY(report_postings(match, set->patterns.items[next].posted));
    }
    return 0;
}

/* Report what follows from the tests of one index that are no mere equality. */
static int test_rare(struct match *match, uint32_t index, struct tested_value *value) {
    const struct predicate_indexes *predicates = &match->automaton->predicates;
    const struct rare_tests *rare = predicates->items.items[index].rare;
    if (rare == NULL) return 0;
    for (int operator = NUMBER_UNEQUAL; operator <= AT_LEAST; operator++) {
        if (rare->ordered[operator].tests.count)
            TRY(report_sorted(match, index, operator, number_of(value)));
    }
    for (uint32_t i = 0; i < rare->unequal.count; i++) {
        if (rare->unequal.items[i].constant != constant_of(match, value))
            TRY(report_slot(match, rare->unequal.items[i].slot));
    }
    for (uint32_t i = 0; i < rare->groups.count; i++) {
        uint32_t group = rare->groups.items[i];
        uint32_t constant = match->automaton->twigs.groups.items[group].texts ? constant_of(match, value) : NONE;
        TRY(add_comparison(match, group, number_of(value), constant));
    }
    for (uint32_t i = 0; i < rare->prefixes.count; i++) {
        uint32_t length = rare->prefixes.items[i].length;
        if (length > value->text.length) continue;
        uint32_t prefix = strings_find(&predicates->constants, (struct span){value->text.bytes, length});
        if (prefix != NONE) TRY(report_postings(match, equal_find(predicates, index, prefix | PREFIX_CONSTANT)));
    }
    return rare->substrings.patterns.count ? test_substrings(match, index, value->text) : 0;
}

/* Test a value by all indexes of a probe, one by one. */
static int test_directly(struct match *match, const struct probe *probe, struct tested_value *value) {
    const struct predicate_indexes *predicates = &match->automaton->predicates;
    for (uint32_t i = 0; i < probe->indexes.count; i++) {
        uint32_t index = probe->indexes.items[i];
        const struct predicate_index *item = &predicates->items.items[index];
        TRY(report_postings(match, item->exists));
        if (item->texts && constant_of(match, value) != NONE)
            TRY(report_postings(match, equal_find(predicates, index, value->constant)));
        if (item->numbers && !isnan(number_of(value))) {
            uint32_t constant = constant_find_number(predicates, value->number);
            if (constant != NONE) TRY(report_postings(match, equal_find(predicates, index, constant)));
        }
        TRY(test_rare(match, index, value));
    }
    return 0;
}

/* Report what follows from a hit by the plan. */
static int report_planned(struct match *match, const struct planned_hit *hit) {
    const struct join_plan *plan = match->plan;
    for (uint32_t i = 0; i < hit->report_count; i++) {
        uint32_t report = plan->reports.items[hit->reports + i];
        TRY(report & SINGLE ? report_slot(match, report & ~SINGLE) : report_bundle(match, report));
    }
    return set_words(match, plan->words.items + hit->words, hit->word_count);
}

/* Report what follows from a constant at a probe; NONE is mere existence. */
static int report_constant(struct match *match, uint32_t probe, uint32_t constant) {
    struct automaton *automaton = match->automaton;
    if (match->plan) {
        const struct planned_hit *planned = plan_hit(match->plan, probe, constant);
        if (planned) return report_planned(match, planned);
    }
    uint32_t hit = guide_hit(&automaton->guide, probe, constant);
    if (hit == NONE) {
        if (!guide_has_room(&automaton->guide)) {
            if (match->plan) return UNKNOWN;
            const struct numbers *indexes = &automaton->guide.probes.items[probe].indexes;
            for (uint32_t i = 0; i < indexes->count; i++) {
                uint32_t index = indexes->items[i];
                uint32_t posted = constant == NONE ? automaton->predicates.items.items[index].exists
                                                   : equal_find(&automaton->predicates, index, constant);
                TRY(report_postings(match, posted));
            }
            return 0;
        }
        MAKE(match, hit, guide_make_hit(automaton, probe, constant));
    }
    const struct hit *item = &automaton->guide.hits.items[hit];
    if (match->plan && item->slots.count + item->reach.count) return UNKNOWN;
    match->scratch->unplanned += item->slots.count;
    for (uint32_t i = 0; i < item->slots.count; i++) TRY(report_slot(match, item->slots.items[i]));
    return set_anchors(match, &item->reach);
}

/* Test a value by a probe of the guide. */
static int test_by_probe(struct match *match, uint32_t number, struct tested_value *value) {
    const struct dataguide *guide = &match->automaton->guide;
    struct probe probe = guide->probes.items[number]; /* a copy: it may move */
    if (probe.exists) TRY(report_constant(match, number, NONE));
    if (probe.texts && constant_of(match, value) != NONE) TRY(report_constant(match, number, value->constant));
    if (probe.numbers && !isnan(number_of(value))) {
        uint32_t constant = constant_find_number(&match->automaton->predicates, value->number);
        if (constant != NONE) TRY(report_constant(match, number, constant));
    }
    for (uint32_t i = 0; probe.rare && i < probe.indexes.count; i++)
        TRY(test_rare(match, guide->probes.items[number].indexes.items[i], value));
    return 0;
}

int test_value(struct match *match, uint32_t name, struct span text) {
    struct scratch *scratch = match->scratch;
    struct automaton *automaton = match->automaton;
    uint32_t node = scratch->open.items[match->depth].node;
    struct tested_value value = {text, NONE, 0, 0, 0};
    if (node == TRANSIENT) {
        const struct guide_node *own = &scratch->transients.items[match->depth];
        TRY_MEMORY(collect_indexes(automaton, &own->members, name, &scratch->probe));
        return test_directly(match, &scratch->probe, &value);
    }
    const struct guide_node *at = &automaton->guide.nodes.items[node];
    uint32_t probe = name == TEXT_PROBE    ? at->text_probe
                     : name == VALUE_PROBE ? at->value_probe
                                           : guide_probe(&automaton->guide, node, name);
    if (probe == NONE) { /* of an attribute */
        if (!guide_has_room(&automaton->guide)) {
            if (match->plan) return UNKNOWN;
            TRY_MEMORY(collect_indexes(automaton, &at->members, name, &scratch->probe));
            return test_directly(match, &scratch->probe, &value);
        }
        MAKE(match, probe, guide_make_probe(automaton, node, name));
    }
    return test_by_probe(match, probe, &value);
}

