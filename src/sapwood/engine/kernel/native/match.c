#include "match.h"

#include <math.h>

#include "names.h"
#include "result.h"
#include "substring.h"
#include "xpath_number.h"

/* -- scratch -------------------------------------------------------------------------------------------- */

struct scratch *scratch_new(void) {
    struct scratch *scratch = calloc(1, sizeof *scratch);
    if (scratch == NULL) return NULL;
    scratch->reader = reader_new();
    scratch->free_values = NONE;
    if (scratch->reader != NULL && !RESERVE(&scratch->text, 256)) return scratch; /* spans of no text need one */
    if (scratch->reader != NULL) reader_free(scratch->reader);
    free(scratch);
    return NULL;
}

void scratch_free(struct scratch *scratch) {
    if (scratch == NULL) return;
    reader_free(scratch->reader);
    FREE_ARRAY(&scratch->slot_stamps);
    FREE_ARRAY(&scratch->class_stamps);
    FREE_ARRAY(&scratch->node_stamps);
    FREE_ARRAY(&scratch->twig_stamps);
    FREE_ARRAY(&scratch->last_at_node);
    FREE_ARRAY(&scratch->masks);
    for (uint32_t i = 0; i <= MOST_DEPTH; i++) FREE_ARRAY(&scratch->set_at[i]);
    FREE_ARRAY(&scratch->group_stamps);
    FREE_ARRAY(&scratch->group_values);
    FREE_ARRAY(&scratch->values);
    FREE_ARRAY(&scratch->open);
    FREE_ARRAY(&scratch->names);
    for (uint32_t i = 0; i < scratch->transients.count; i++) free_node(&scratch->transients.items[i]);
    FREE_ARRAY(&scratch->transients);
    FREE_ARRAY(&scratch->state_stamps);
    FREE_ARRAY(&scratch->probe.indexes);
    FREE_ARRAY(&scratch->text);
    FREE_ARRAY(&scratch->name);
    free(scratch);
}

void free_matched(struct matched *matched) {
    FREE_ARRAY(&matched->classes);
    FREE_ARRAY(&matched->slots);
    FREE_ARRAY(&matched->candidates);
    FREE_ARRAY(&matched->bound_slots);
    FREE_ARRAY(&matched->bound_to);
}

/* Have room for stamps of so many things; new ones are 0, which no message has. */
static int reserve_stamps(struct numbers *stamps, uint32_t count) {
    if (stamps->count >= count) return 0;
    if (RESERVE(stamps, count)) return -1;
    memset(stamps->items + stamps->count, 0, (size_t)(stamps->room - stamps->count) * 4);
    stamps->count = stamps->room;
    return 0;
}

static int reserve_scratch(struct match *match) {
    struct scratch *scratch = match->scratch;
    const struct automaton *automaton = match->automaton;
    uint32_t cells = automaton->twigs.cells.count;
    if (scratch->masks.count < cells) {
        if (RESERVE(&scratch->masks, cells)) return -1;
        memset(scratch->masks.items + scratch->masks.count, 0,
               (size_t)(scratch->masks.room - scratch->masks.count) * sizeof *scratch->masks.items);
        scratch->masks.count = scratch->masks.room;
    }
    return reserve_stamps(&scratch->slot_stamps, automaton->slots.count) ||
                   reserve_stamps(&scratch->class_stamps, automaton->classes.items.count) ||
                   reserve_stamps(&scratch->node_stamps, automaton->guide.nodes.count) ||
                   reserve_stamps(&scratch->last_at_node, automaton->guide.nodes.count) ||
                   reserve_stamps(&scratch->twig_stamps, automaton->twigs.items.count) ||
                   reserve_stamps(&scratch->group_stamps, automaton->twigs.groups.count) ||
                   reserve_stamps(&scratch->group_values, automaton->twigs.groups.count)
               ? -1
               : 0;
}

static void clear_stamps(struct scratch *scratch) {
    struct numbers *all[] = {&scratch->slot_stamps, &scratch->class_stamps, &scratch->node_stamps,
                             &scratch->twig_stamps, &scratch->group_stamps};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i]->items) memset(all[i]->items, 0, (size_t)all[i]->count * 4);
    }
    scratch->stamp = 1;
}

/* -- locks ---------------------------------------------------------------------------------------------- */

static int upgrade(struct match *match) {
    unlock_read(&match->automaton->lock);
    lock_write(&match->automaton->lock);
    return match->automaton->version != match->version;
}

static int downgrade(struct match *match) {
    unlock_write(&match->automaton->lock);
    lock_read(&match->automaton->lock);
    return match->automaton->version != match->version ? RESTART : 0;
}

/* Make something under the writer's lock: `made` is assigned the expression, NONE if memory is out. */
#define MAKE(match, made, expression) \
    do { \
        if (upgrade(match)) { \
            downgrade(match); \
            return RESTART; \
        } \
        (made) = (expression); \
        int failed_ = (made) == NONE || reserve_scratch(match) ? NO_MEMORY : 0; \
        if (downgrade(match)) return RESTART; \
        if (failed_) return failed_; \
    } while (0)

/* -- values --------------------------------------------------------------------------------------------- */

/* A value of the message, looked up among the constants when first needed. */
struct tested_value {
    struct span text;
    uint32_t constant, number_constant;
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
        if (kind == POST_SLOT ? report_slot(match, number) : set_anchoring(match, number)) return NO_MEMORY;
    });
    return 0;
}

/* Report the queries that one comparison decides. */
static int report_sorted(struct match *match, const struct sorted_tests *sorted, enum test_operator operator,
                         double number) {
    const struct sorted_test *tests = sorted->tests.items;
    uint32_t count = sorted->tests.count, low = 0, high = count;
    if (operator == NUMBER_UNEQUAL) {
        for (uint32_t i = 0; i < count; i++) {
            if (number != tests[i].constant && report_slot(match, tests[i].slot)) return NO_MEMORY;
        }
        return 0;
    }
    if (isnan(number)) return 0;
    /* the first test whose constant is greater (or, for >= and <, not less) than the number */
    int or_equal = operator == MORE || operator == AT_MOST;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int below = or_equal ? tests[middle].constant < number : tests[middle].constant <= number;
        if (below)
            low = middle + 1;
        else
            high = middle;
    }
    uint32_t first = operator == MORE || operator == AT_LEAST ? 0 : low;
    uint32_t last = operator == MORE || operator == AT_LEAST ? low : count;
    for (uint32_t i = first; i < last && !isnan(tests[i].constant); i++) {
        if (report_slot(match, tests[i].slot)) return NO_MEMORY;
    }
    return 0;
}

/* Report what follows from the tests of one index that are no mere equality. */
static int test_rare(struct match *match, uint32_t index, struct tested_value *value) {
    const struct predicate_indexes *predicates = &match->automaton->predicates;
    const struct rare_tests *rare = predicates->items.items[index].rare;
    if (rare == NULL) return 0;
    for (int operator = NUMBER_UNEQUAL; operator <= AT_LEAST; operator++) {
        if (rare->ordered[operator].tests.count &&
            report_sorted(match, &rare->ordered[operator], operator, number_of(value)))
            return NO_MEMORY;
    }
    for (uint32_t i = 0; i < rare->unequal.count; i++) {
        if (rare->unequal.items[i].constant != constant_of(match, value) &&
            report_slot(match, rare->unequal.items[i].slot))
            return NO_MEMORY;
    }
    for (uint32_t i = 0; i < rare->groups.count; i++) {
        uint32_t group = rare->groups.items[i];
        uint32_t constant = match->automaton->twigs.groups.items[group].texts ? constant_of(match, value) : NONE;
        if (add_comparison(match, group, number_of(value), constant)) return NO_MEMORY;
    }
    for (uint32_t i = 0; i < rare->prefixes.count; i++) {
        uint32_t length = rare->prefixes.items[i].length;
        if (length > value->text.length) continue;
        uint32_t prefix = strings_find(&predicates->constants, (struct span){value->text.bytes, length});
        if (prefix != NONE && report_postings(match, equal_find(predicates, index, prefix | PREFIX_CONSTANT)))
            return NO_MEMORY;
    }
    for (uint32_t i = 0; i < rare->substrings.count; i++) {
        struct span wanted = strings_text(&predicates->constants, rare->substrings.items[i].constant);
        if (contains(value->text, wanted) && report_postings(match, rare->substrings.items[i].posted))
            return NO_MEMORY;
    }
    return 0;
}

/* Test a value by all indexes of a probe, one by one. */
static int test_directly(struct match *match, const struct probe *probe, struct tested_value *value) {
    const struct predicate_indexes *predicates = &match->automaton->predicates;
    for (uint32_t i = 0; i < probe->indexes.count; i++) {
        uint32_t index = probe->indexes.items[i];
        const struct predicate_index *item = &predicates->items.items[index];
        if (report_postings(match, item->exists)) return NO_MEMORY;
        if (item->texts && constant_of(match, value) != NONE &&
            report_postings(match, equal_find(predicates, index, value->constant)))
            return NO_MEMORY;
        if (item->numbers && !isnan(number_of(value))) {
            uint32_t constant = constant_find_number(predicates, value->number);
            if (constant != NONE && report_postings(match, equal_find(predicates, index, constant)))
                return NO_MEMORY;
        }
        if (test_rare(match, index, value)) return NO_MEMORY;
    }
    return 0;
}

/* Report what follows from a constant at a probe; NONE is mere existence. */
static int report_constant(struct match *match, uint32_t probe, uint32_t constant) {
    struct automaton *automaton = match->automaton;
    uint32_t hit = guide_hit(&automaton->guide, probe, constant);
    if (hit == NONE) {
        if (!guide_has_room(&automaton->guide)) {
            const struct numbers *indexes = &automaton->guide.probes.items[probe].indexes;
            for (uint32_t i = 0; i < indexes->count; i++) {
                uint32_t index = indexes->items[i];
                uint32_t posted = constant == NONE ? automaton->predicates.items.items[index].exists
                                                   : equal_find(&automaton->predicates, index, constant);
                if (report_postings(match, posted)) return NO_MEMORY;
            }
            return 0;
        }
        MAKE(match, hit, guide_make_hit(automaton, probe, constant));
    }
    const struct hit *item = &automaton->guide.hits.items[hit];
    for (uint32_t i = 0; i < item->slots.count; i++) {
        if (report_slot(match, item->slots.items[i])) return NO_MEMORY;
    }
    return set_anchors(match, &item->reach);
}

/* Test a value by a probe of the guide. */
static int test_by_probe(struct match *match, uint32_t number, struct tested_value *value) {
    const struct dataguide *guide = &match->automaton->guide;
    struct probe probe = guide->probes.items[number]; /* a copy: it may move */
    int status = 0;
    if (probe.exists && (status = report_constant(match, number, NONE))) return status;
    if (probe.texts && constant_of(match, value) != NONE &&
        (status = report_constant(match, number, value->constant)))
        return status;
    if (probe.numbers && !isnan(number_of(value))) {
        uint32_t constant = constant_find_number(&match->automaton->predicates, value->number);
        if (constant != NONE && (status = report_constant(match, number, constant))) return status;
    }
    for (uint32_t i = 0; probe.rare && i < probe.indexes.count; i++) {
        if (test_rare(match, guide->probes.items[number].indexes.items[i], value)) return NO_MEMORY;
    }
    return 0;
}

/* Test a value of the innermost open element: an attribute, by its name, its text or its string-value. */
static int test_value(struct match *match, uint32_t name, struct span text) {
    struct scratch *scratch = match->scratch;
    struct automaton *automaton = match->automaton;
    uint32_t node = scratch->open.items[match->depth].node;
    struct tested_value value = {text, NONE, NONE, 0, 0, 0};
    if (node == TRANSIENT) {
        const struct guide_node *own = &scratch->transients.items[match->depth];
        if (collect_indexes(automaton, &own->members, name, &scratch->probe)) return NO_MEMORY;
        return test_directly(match, &scratch->probe, &value);
    }
    const struct guide_node *at = &automaton->guide.nodes.items[node];
    uint32_t probe = name == TEXT_PROBE    ? at->text_probe
                     : name == VALUE_PROBE ? at->value_probe
                                           : guide_probe(&automaton->guide, node, name);
    if (probe == NONE) { /* of an attribute */
        if (!guide_has_room(&automaton->guide)) {
            if (collect_indexes(automaton, &at->members, name, &scratch->probe)) return NO_MEMORY;
            return test_directly(match, &scratch->probe, &value);
        }
        MAKE(match, probe, guide_make_probe(automaton, node, name));
    }
    return test_by_probe(match, probe, &value);
}

/* -- text ----------------------------------------------------------------------------------------------- */

static inline const struct guide_node *node_at(const struct match *match, uint32_t depth) {
    uint32_t node = match->scratch->open.items[depth].node;
    return node == TRANSIENT ? &match->scratch->transients.items[depth] : &match->automaton->guide.nodes.items[node];
}

static int on_text(void *consumer, const char *bytes, size_t length) {
    struct match *match = consumer;
    struct scratch *scratch = match->scratch;
    if (match->values_open == 0 && node_at(match, match->depth)->text_probe == NONE) return 0;
    if (length > UINT32_MAX - scratch->text.count || RESERVE(&scratch->text, scratch->text.count + (uint32_t)length))
        return NO_MEMORY;
    memcpy(scratch->text.items + scratch->text.count, bytes, length);
    scratch->text.count += (uint32_t)length;
    return 0;
}

/* End a text node: at a tag, a comment or a processing instruction. */
static int end_text_node(struct match *match) {
    struct scratch *scratch = match->scratch;
    if (scratch->text.count == match->text_node) return 0;
    int status = 0;
    if (node_at(match, match->depth)->text_probe != NONE) {
        struct span text = {scratch->text.items + match->text_node, scratch->text.count - match->text_node};
        status = test_value(match, TEXT_PROBE, text);
    }
    if (match->values_open == 0) scratch->text.count = 0;
    match->text_node = scratch->text.count;
    return status;
}

static int on_boundary(void *consumer) { return end_text_node(consumer); }

/* -- elements ------------------------------------------------------------------------------------------- */

/* Report the queries whose paths end at a node, and the anchorings. */
static int visit(struct match *match, uint32_t number) {
    struct scratch *scratch = match->scratch;
    struct automaton *automaton = match->automaton;
    const struct guide_node *node = number == TRANSIENT ? &scratch->transients.items[match->depth]
                                                        : &automaton->guide.nodes.items[number];
    if (number == TRANSIENT) {
        for (uint32_t i = 0; i < node->slots.count; i++) {
            if (report_slot(match, node->slots.items[i])) return NO_MEMORY;
        }
        for (uint32_t i = 0; match->with_twigs && i < node->members.count; i++) {
            FOR_POSTINGS(&automaton->trie.postings, automaton->trie.states.items[node->members.items[i]].posted,
                         kind, posted, {
                             if (kind == POST_ANCHORING && set_anchoring(match, posted)) return NO_MEMORY;
                         });
        }
        return 0;
    }
    if (node->flags & STALE) {
        uint32_t refreshed;
        MAKE(match, refreshed, guide_refresh(automaton, number) ? NONE : number);
        node = &automaton->guide.nodes.items[refreshed];
    }
    uint32_t last = 0;
    if (scratch->node_stamps.items[number] != scratch->stamp) {
        scratch->node_stamps.items[number] = scratch->stamp;
        for (uint32_t i = 0; i < node->classes.count; i++) {
            uint32_t class = node->classes.items[i];
            if (scratch->class_stamps.items[class] == scratch->stamp) continue;
            scratch->class_stamps.items[class] = scratch->stamp;
            match->found->count += automaton->classes.items.items[class].weight;
            if (PUSH(&match->found->classes, class)) return NO_MEMORY;
        }
        for (uint32_t i = 0; i < node->slots.count; i++) {
            if (report_slot(match, node->slots.items[i])) return NO_MEMORY;
        }
    } else {
        last = scratch->last_at_node.items[number];
    }
    scratch->last_at_node.items[number] = match->element;
    /* An anchor that was open when the last element of this node started has got all of this already; the
       deepest, which are the youngest, come first. */
    const struct reach *reach = node->reach.items, *end = reach + node->reach.count;
    for (; reach < end; reach++) {
        if (scratch->open.items[reach->depth].number <= last && last != 0 && !match->loose) break;
        if (set_anchor(match, reach->cell, reach->depth)) return NO_MEMORY;
    }
    return 0;
}

static int resolve(struct match *match, struct name *name) {
    if (name->symbol != UNRESOLVED) return 0;
    struct scratch *scratch = match->scratch;
    size_t room = name->expanded.length + 3;
    if (room > UINT32_MAX || RESERVE(&scratch->name, (uint32_t)room)) return NO_MEMORY;
    struct composite composite;
    uint32_t symbol = resolve_name(match->automaton, name, scratch->name.items, &composite);
    if (symbol == NONE) MAKE(match, symbol, guide_make_composite(match->automaton, composite));
    name->symbol = symbol;
    return 0;
}

/* Find the guide node of an element whose parent is the innermost open one, or make one for this message. */
static int find_node(struct match *match, uint32_t name, uint32_t *found) {
    struct scratch *scratch = match->scratch;
    struct automaton *automaton = match->automaton;
    uint32_t parent = scratch->open.items[match->depth].node;
    if (parent != TRANSIENT) {
        *found = parent;
        if (automaton->guide.nodes.items[parent].flags & DEAD_END) return 0;
        *found = guide_child(&automaton->guide, parent, name);
        if (*found != NONE) return 0;
        if (guide_has_room(&automaton->guide)) {
            MAKE(match, *found, guide_make_child(automaton, parent, name));
            return 0;
        }
    }
    *found = TRANSIENT;
    match->found->mixed = 1;
    uint32_t depth = match->depth + 1;
    while (scratch->transients.count <= depth) {
        if (RESERVE(&scratch->transients, scratch->transients.count + 1)) return NO_MEMORY;
        memset(&scratch->transients.items[scratch->transients.count++], 0, sizeof(struct guide_node));
    }
    free_node(&scratch->transients.items[depth]);
    const struct guide_node *above = parent == TRANSIENT ? &scratch->transients.items[depth - 1]
                                                         : &automaton->guide.nodes.items[parent];
    if (guide_make_transient(automaton, above, name, &scratch->transients.items[depth], &scratch->state_stamps,
                             &scratch->state_stamp))
        return NO_MEMORY;
    scratch->overflow += sizeof(struct guide_node) + 4 * (uint64_t)scratch->transients.items[depth].members.count;
    return 0;
}

static int on_start(void *consumer, struct name *name, const struct attribute *attributes, size_t count) {
    struct match *match = consumer;
    struct scratch *scratch = match->scratch;
    int status = end_text_node(match);
    if (status || (status = resolve(match, name))) return status;
    if (match->depth == MOST_DEPTH && match->with_twigs && !match->loose) return TOO_DEEP;
    uint32_t node;
    if ((status = find_node(match, name->symbol, &node))) return status;
    match->depth++;
    match->element++;
    scratch->open.count = scratch->names.count = match->depth;
    scratch->names.count--;
    if (PUSH(&scratch->open, ((struct open_element){node, match->element, scratch->text.count})) ||
        PUSH(&scratch->names, name->symbol))
        return NO_MEMORY;
    if ((status = visit(match, node))) return status;
    if (node_at(match, match->depth)->value_probe != NONE) match->values_open++;
    for (size_t i = 0; i < count && node_at(match, match->depth)->flags & HAS_ATTRIBUTES; i++) {
        if ((status = resolve(match, attributes[i].name))) return status;
        if ((status = test_value(match, attributes[i].name->symbol, attributes[i].value))) return status;
    }
    return 0;
}

static int on_end(void *consumer) {
    struct match *match = consumer;
    struct scratch *scratch = match->scratch;
    int status = end_text_node(match);
    if (status) return status;
    if (node_at(match, match->depth)->value_probe != NONE) {
        size_t start = scratch->open.items[match->depth].text_start;
        struct span text = {scratch->text.items + start, scratch->text.count - start};
        if ((status = test_value(match, VALUE_PROBE, text))) return status;
        if (--match->values_open == 0) scratch->text.count = match->text_node = 0;
    }
    if (match->with_twigs && !match->loose && join_twigs(match, match->depth)) return NO_MEMORY;
    match->depth--;
    return 0;
}

/* -- messages ------------------------------------------------------------------------------------------- */

static int begin(struct match *match) {
    struct scratch *scratch = match->scratch;
    struct matched *found = match->found;
    found->classes.count = found->slots.count = found->candidates.count = 0;
    found->bound_slots.count = found->bound_to.count = 0;
    found->count = 0;
    found->mixed = 0;
    for (uint32_t depth = 0; depth <= MOST_DEPTH; depth++) { /* what a message left that was not read to its end */
        struct numbers *cells = &scratch->set_at[depth];
        for (uint32_t i = 0; i < cells->count; i++) scratch->masks.items[cells->items[i]] = 0;
        cells->count = 0;
    }
    scratch->values.count = 0;
    scratch->free_values = NONE;
    scratch->text.count = 0;
    if (++scratch->stamp == 0) clear_stamps(scratch);
    match->depth = match->element = match->values_open = 0;
    match->text_node = 0;
    match->with_twigs = match->automaton->twigs.count != 0;
    match->version = match->automaton->version;
    scratch->open.count = scratch->names.count = 0;
    if (reserve_scratch(match) || PUSH(&scratch->open, ((struct open_element){ROOT_NODE, 0, 0}))) return NO_MEMORY;
    if (match->automaton->guide.nodes.items[ROOT_NODE].value_probe != NONE) match->values_open++;
    return visit(match, ROOT_NODE);
}

static int finish(struct match *match) {
    struct scratch *scratch = match->scratch;
    int status = 0;
    if (match->automaton->guide.nodes.items[ROOT_NODE].value_probe != NONE) {
        struct span text = {scratch->text.items, scratch->text.count};
        status = test_value(match, VALUE_PROBE, text);
    }
    if (!status && match->with_twigs) status = join_twigs(match, 0);
    match->found->elements = match->element;
    match->found->loose = match->loose;
    return status;
}

/* Read the message once by one reader. */
static int run(struct match *match, struct span message, const char *encoding, const struct match_options *options,
               int tokenizer) {
    static const struct handlers handlers = {on_start, on_end, on_text, on_boundary, NULL};
    static const struct handlers without_text = {on_start, on_end, NULL, NULL, NULL};
    int status = begin(match);
    if (status) return status;
    const struct handlers *used = match->automaton->text_indexes ? &handlers : &without_text;
    struct reader *reader = match->scratch->reader;
    status = tokenizer ? tokenizer_read(reader, message, &options->limits, used, match)
                       : expat_read(reader, message, encoding, &options->limits, used, match);
    return status ? status : finish(match);
}

/* Do what has to be done between messages: sort new tests, and drop a guide that has long been too small. */
static int prepare(struct match *match) {
    struct automaton *automaton = match->automaton;
    int is_full = match->scratch->overflow > automaton->guide.budget && automaton->guide.budget;
    if (automaton->unsorted.count == 0 && !is_full) return 0;
    unlock_read(&automaton->lock);
    lock_write(&automaton->lock);
    automaton_prepare(automaton);
    int failed = is_full && automaton_clear(automaton);
    if (is_full) match->scratch->overflow = 0;
    unlock_write(&automaton->lock);
    lock_read(&automaton->lock);
    return failed;
}

/* Complete a result, which may be read when the lock is gone. */
static int complete(struct result *result) {
    struct matched *matched = &result->matched;
    result->splits_seen = result->automaton->splits.count;
    if (matched->mixed) { /* slots of classes are listed one by one as well: count each once */
        struct numbers slots = {NULL, 0, 0};
        if (result_slots(result, &slots)) return FREE_ARRAY(&slots), NO_MEMORY;
        matched->count = 0;
        for (uint32_t i = 0; i < slots.count; i++) matched->count += result->automaton->slots.items[slots.items[i]].weight;
        FREE_ARRAY(&matched->slots);
        matched->slots = slots;
        matched->classes.count = 0;
    }
    if (matched->classes.count) result_link(result);
    return READ;
}

int match_message(struct result *result, struct scratch *scratch, struct span message, const char *encoding,
                  const struct match_options *options) {
    struct automaton *automaton = result->automaton;
    struct match match = {.automaton = automaton, .scratch = scratch, .found = &result->matched};
    int tokenizer = options->tokenizer && encoding == NULL, status;
    lock_read(&automaton->lock);
    for (;;) {
        status = prepare(&match) ? NO_MEMORY : run(&match, message, encoding, options, tokenizer);
        if (status == GAVE_UP && tokenizer)
            tokenizer = 0;
        else if (status == TOO_DEEP)
            match.loose = 1;
        else if (status != RESTART)
            break;
    }
    if (status == READ) status = complete(result);
    unlock_read(&automaton->lock);
    return status == NO_MEMORY ? OUT_OF_MEMORY : status;
}
