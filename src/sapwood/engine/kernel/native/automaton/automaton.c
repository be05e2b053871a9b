#include "automaton.h"

int automaton_init(struct automaton *automaton, struct hash_key key, uint64_t budget) {
    memset(automaton, 0, sizeof *automaton);
    if (lock_init(&automaton->lock) || lock_init(&automaton->results_lock)) return -1;
    strings_init(&automaton->names, key);
    automaton->free_part = NONE;
    if (trie_init(&automaton->trie)) return -1;
    predicates_init(&automaton->predicates, &automaton->trie, key);
    twigs_init(&automaton->twigs, &automaton->trie, &automaton->predicates);
    static const char *const reserved[] = {"", "*", "//"}; /* OTHER, ANY, DESCENDANT */
    for (uint32_t i = 0; i < 3; i++) {
        if (strings_use(&automaton->names, (struct span){reserved[i], strlen(reserved[i])}) != i) return -1;
    }
    return guide_init(automaton, budget);
}

void automaton_free(struct automaton *automaton) {
    guide_free(&automaton->guide);
    plan_free(&automaton->plan);
    classes_free(&automaton->classes);
    twigs_free(&automaton->twigs);
    predicates_free(&automaton->predicates);
    trie_free(&automaton->trie);
    strings_free(&automaton->names);
    FREE_ARRAY(&automaton->splits);
    FREE_ARRAY(&automaton->slots);
    FREE_ARRAY(&automaton->parts);
    FREE_ARRAY(&automaton->relative_paths);
    FREE_ARRAY(&automaton->free_relative_paths);
    FREE_ARRAY(&automaton->unsorted);
    lock_destroy(&automaton->lock);
    lock_destroy(&automaton->results_lock);
}

int automaton_begin_edit(struct automaton *automaton) {
    automaton->version++;
    if (freeze_results(automaton)) return -1;
    automaton->splits.count = 0; /* nobody needs them any more */
    return 0;
}

int automaton_end_edit(struct automaton *automaton) {
    struct predicate_indexes *predicates = &automaton->predicates;
    const struct numbers *texts = &predicates->constants.retired, *numbers = &predicates->retired_numbers;
    for (uint32_t i = 0; i < texts->count; i++) guide_forget_constant(&automaton->guide, texts->items[i]);
    for (uint32_t i = 0; i < numbers->count; i++)
        guide_forget_constant(&automaton->guide, numbers->items[i] | NUMBER_CONSTANT);
    constants_recycle(predicates);
    /* The guide has links by names that no query mentions any more. Queries share their names, so there are
       few, and it is not worth while to look for the links before there are many. */
    uint32_t retired = automaton->names.retired.count;
    return retired > 64 && retired > automaton->names.table.count / 4 ? automaton_clear(automaton) : 0;
}

/* Sort tests, and sum up the weights of those that are whole queries. */
static int prepare_sorted(const struct automaton *automaton, struct sorted_tests *sorted) {
    if (sorted_tests_sort(sorted)) return -1;
    uint32_t count = sorted->tests.count;
    sorted->numbers = sorted->sums.count = sorted->shared.count = 0;
    if (RESERVE(&sorted->sums, count + 1)) return -1;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct sorted_test *test = &sorted->tests.items[i];
        sorted->sums.items[i] = sum;
        sorted->numbers += test->constant == test->constant;
        if (is_single_part(automaton, test->slot))
            sum += automaton->slots.items[test->slot].weight;
        else if (PUSH(&sorted->shared, i))
            return -1;
    }
    sorted->sums.items[count] = sum;
    sorted->sums.count = count + 1;
    sorted->waits = 0;
    return 0;
}

int automaton_prepare(struct automaton *automaton) {
    if (predicates_build(&automaton->predicates)) return -1;
    while (automaton->unsorted.count) {
        struct unsorted next = automaton->unsorted.items[automaton->unsorted.count - 1];
        struct rare_tests *rare = automaton->predicates.items.items[next.index].rare;
        struct sorted_tests *sorted = rare == NULL ? NULL : &rare->ordered[next.operator]; /* NULL: gone since */
        if (sorted != NULL && sorted->waits && prepare_sorted(automaton, sorted)) return -1;
        (void)POP(&automaton->unsorted);
    }
    return 0;
}

/* Have the comparisons by one operator sorted and summed up anew before the next message. */
static int queue_sorting(struct automaton *automaton, uint32_t index, uint32_t operator) {
    struct rare_tests *rare = automaton->predicates.items.items[index].rare;
    if (rare == NULL || rare->ordered[operator].waits) return 0;
    /* indexes that come and go leave entries behind, even if no message is ever matched */
    uint32_t most = 64 + 4 * automaton->predicates.items.count;
    if (automaton->unsorted.count > most && automaton_prepare(automaton)) return -1;
    if (PUSH(&automaton->unsorted, ((struct unsorted){index, operator}))) return -1;
    rare->ordered[operator].waits = 1;
    return 0;
}

/* -- symbols and paths ---------------------------------------------------------------------------------- */

/* A symbol comes into use, or goes out of it. */
static void count_symbol(struct automaton *automaton, uint32_t symbol, uint32_t change) {
    automaton->name_version++;
    struct span text = strings_text(&automaton->names, symbol);
    if (text.length >= 2 && text.bytes[0] == 0 && text.bytes[1] == '}')
        automaton->any_namespace_tests += change;
    else if (text.length >= 2 && memcmp(text.bytes + text.length - 2, "}*", 2) == 0)
        automaton->namespace_tests += change;
}

static uint32_t use_symbol(struct automaton *automaton, struct span text) {
    uint32_t symbol = strings_use(&automaton->names, text);
    if (symbol != NONE && automaton->names.entries.items[symbol].uses == 1) count_symbol(automaton, symbol, 1);
    return symbol;
}

static void release_symbol(struct automaton *automaton, uint32_t symbol) {
    if (automaton->names.entries.items[symbol].uses == 1) count_symbol(automaton, symbol, UINT32_MAX);
    strings_release(&automaton->names, symbol);
}

/* Take back one use of a path, and prune the states that nothing uses any more. */
static void release_path(struct automaton *automaton, uint32_t state) {
    struct path_trie *trie = &automaton->trie;
    trie->states.items[state].uses--;
    while (state != ROOT && trie->states.items[state].uses == 0) {
        uint32_t parent = trie->states.items[state].parent;
        guide_remove_state(automaton, state);
        release_symbol(automaton, trie->states.items[state].symbol);
        trie_prune(trie, state);
        trie->states.items[parent].uses--;
        state = parent;
    }
}

/* Add one use of a path, and return its last state; NONE: memory is out. */
static uint32_t use_path(struct automaton *automaton, const struct span *path, uint32_t length) {
    struct path_trie *trie = &automaton->trie;
    struct numbers chain = {NULL, 0, 0};
    uint32_t state = ROOT;
    for (uint32_t i = 0; i < length; i++) {
        uint32_t symbol = use_symbol(automaton, path[i]);
        int is_new = 0;
        uint32_t target = symbol == NONE ? NONE : trie_grow(trie, state, symbol, &is_new);
        if (target == NONE || (is_new && PUSH(&chain, target))) {
            FREE_ARRAY(&chain);
            return NONE;
        }
        if (!is_new) release_symbol(automaton, symbol);
        state = target;
    }
    trie->states.items[state].uses++;
    int failed = chain.count && guide_propagate(automaton, &chain);
    FREE_ARRAY(&chain);
    return failed ? NONE : state;
}

/* -- leaves --------------------------------------------------------------------------------------------- */

static int post_at_state(struct automaton *automaton, uint32_t state, uint32_t kind, uint32_t number) {
    return postings_add(&automaton->trie.postings, &automaton->trie.states.items[state].posted, kind, number) ||
                   guide_post(automaton, state, kind, number)
               ? -1
               : 0;
}

static void unpost_at_state(struct automaton *automaton, uint32_t state, uint32_t kind, uint32_t number) {
    postings_remove(&automaton->trie.postings, &automaton->trie.states.items[state].posted, kind, number);
    guide_unpost(automaton, state, kind, number);
    release_path(automaton, state);
}

static int is_text_target(uint32_t target) { return target == TARGET_TEXT || target == TARGET_VALUE; }

/* Return the predicate index of a target, made if it is not there: then `*is_new`. */
static uint32_t require_index(struct automaton *automaton, uint32_t state, struct span target, int *is_new) {
    uint32_t symbol;
    if (target.length == 1 && target.bytes[0] == '.') {
        symbol = TARGET_VALUE;
    } else if (target.length == 6 && memcmp(target.bytes, "text()", 6) == 0) {
        symbol = TARGET_TEXT;
    } else {
        symbol = use_symbol(automaton, (struct span){target.bytes + 1, target.length - 1});
        if (symbol == NONE) return NONE;
    }
    uint32_t index = predicates_find(&automaton->predicates, state, symbol);
    *is_new = index == NONE;
    if (index != NONE) {
        if (!is_text_target(symbol)) release_symbol(automaton, symbol);
        return index;
    }
    automaton->text_indexes += is_text_target(symbol);
    return predicates_require(&automaton->predicates, state, symbol);
}

/* Discard an index that has no tests, and take back its use of the path. */
static int release_index(struct automaton *automaton, uint32_t index, uint32_t constant) {
    struct predicate_index *item = &automaton->predicates.items.items[index];
    uint32_t state = item->state, target = item->target;
    int is_empty = item->size == 0;
    if (is_empty) {
        predicates_discard_empty(&automaton->predicates, index);
        automaton->text_indexes -= is_text_target(target);
    }
    int failed = guide_update_tests(automaton, state, target, constant, is_empty);
    if (is_empty && !is_text_target(target)) release_symbol(automaton, target);
    release_path(automaton, state);
    return failed;
}

/* Post a number under a leaf; `*part` says where it is. */
static int post_leaf(struct automaton *automaton, const struct leaf_spec *leaf, uint32_t kind, uint32_t number,
                     struct part *part) {
    uint32_t state = use_path(automaton, leaf->path, leaf->path_length);
    if (state == NONE) return -1;
    if (leaf->target.length == 0) {
        *part = (struct part){ELEMENT_PART, EXISTS, state, NONE, 0, NONE};
        return post_at_state(automaton, state, kind, number);
    }
    int is_new;
    uint32_t constant, index = require_index(automaton, state, leaf->target, &is_new);
    if (index == NONE) return -1;
    if (predicates_post(&automaton->predicates, index, &leaf->test, kind, number, &constant)) return -1;
    enum test_operator operator = leaf->test.operator;
    if (operator >= NUMBER_UNEQUAL && queue_sorting(automaton, index, operator)) return -1;
    *part = (struct part){TEST_PART, (uint8_t)operator, index, constant, leaf->test.number, NONE};
    uint32_t target = automaton->predicates.items.items[index].target;
    return guide_update_tests(automaton, state, target, constant, is_new);
}

static int unpost_leaf(struct automaton *automaton, const struct part *part, uint32_t kind, uint32_t number) {
    if (part->kind == ELEMENT_PART) {
        unpost_at_state(automaton, part->source, kind, number);
        return 0;
    }
    predicates_unpost(&automaton->predicates, part->source, part->operator, part->constant, part->number, kind,
                      number);
    if (part->operator >= NUMBER_UNEQUAL && queue_sorting(automaton, part->source, part->operator)) return -1;
    return release_index(automaton, part->source, part->constant);
}

/* -- twigs ---------------------------------------------------------------------------------------------- */

/* A sort key that puts rare parts first: by their tests, then by how specific their path is. */
static int32_t rarity(const struct part_spec *part) {
    if (part->kind == TWIG_SPEC) {
        int32_t least = INT32_MAX;
        for (uint32_t i = 0; i < part->count; i++) {
            int32_t inner = rarity(&part->parts[i]);
            if (inner < least) least = inner;
        }
        return least;
    }
    static const int32_t by_operator[] = {
        [EXISTS] = 3, [EQUAL] = 0, [NUMBER_EQUAL] = 0,   [STARTS_WITH] = 1, [CONTAINS] = 1, [UNEQUAL] = 3,
        [LESS] = 2,   [AT_MOST] = 2, [NUMBER_UNEQUAL] = 3, [MORE] = 2,        [AT_LEAST] = 2,
    };
    int32_t named = 0;
    for (uint32_t i = 0; i < part->leaf.path_length; i++) {
        const struct span *symbol = &part->leaf.path[i];
        named += !(symbol->length == 1 && symbol->bytes[0] == '*') &&
                 !(symbol->length == 2 && memcmp(symbol->bytes, "//", 2) == 0);
    }
    return by_operator[part->leaf.test.operator] * 65536 - named;
}

static uint32_t use_twig(struct automaton *automaton, const struct part_spec *spec);
static int discard_twig(struct automaton *automaton, uint32_t twig);

/* Use the anchoring of a leaf, which is posted if it is new. */
static uint32_t use_leaf_anchoring(struct automaton *automaton, const struct leaf_spec *leaf, uint32_t step) {
    struct predicate_indexes *predicates = &automaton->predicates;
    uint32_t state = use_path(automaton, leaf->path, leaf->path_length);
    if (state == NONE) return NONE;
    int is_new;
    if (leaf->target.length == 0) {
        struct anchoring wanted = {state, NONE, 0, step, state, NONE, 0, 0, ELEMENT_PART, EXISTS, UP};
        uint32_t anchoring = twigs_use_anchoring(&automaton->twigs, &wanted, &is_new);
        if (anchoring == NONE) return NONE;
        if (!is_new)
            release_path(automaton, state);
        else if (post_at_state(automaton, state, POST_ANCHORING, anchoring))
            return NONE;
        return anchoring;
    }
    int index_is_new;
    uint32_t index = require_index(automaton, state, leaf->target, &index_is_new);
    if (index == NONE) return NONE;
    enum test_operator operator = leaf->test.operator;
    uint32_t constant = NONE;
    if (operator == NUMBER_EQUAL)
        constant = constant_use_number(predicates, leaf->test.number);
    else if (operator != EXISTS && operator < NUMBER_EQUAL)
        constant = constant_use_text(predicates, leaf->test.text);
    if (constant == NONE && operator != EXISTS && operator <= NUMBER_EQUAL) return NONE;
    struct anchoring wanted = {index, constant, operator >= NUMBER_UNEQUAL ? leaf->test.number : 0, step, state,
                               NONE,  0,        0, TEST_PART, (uint8_t)operator, UP};
    uint32_t anchoring = twigs_use_anchoring(&automaton->twigs, &wanted, &is_new), posted = constant;
    if (anchoring == NONE) return NONE;
    if (is_new) {
        if (is_comparison(operator))
            predicates->items.items[index].size++; /* it is compared by its group, not posted */
        else if (predicates_post(predicates, index, &leaf->test, POST_ANCHORING, anchoring, &posted))
            return NONE;
        if (guide_update_tests(automaton, state, predicates->items.items[index].target, posted, index_is_new))
            return NONE;
    } else {
        release_path(automaton, state);
    }
    if (constant != NONE && !(is_new && operator == UNEQUAL)) constant_release(predicates, constant);
    return anchoring;
}

/* Take back one use of an anchoring, and with the last one all that only it needs. */
static int release_anchoring(struct automaton *automaton, uint32_t number) {
    struct predicate_indexes *predicates = &automaton->predicates;
    if (!twigs_release_anchoring(&automaton->twigs, number)) return 0;
    struct anchoring anchoring = automaton->twigs.anchorings.items[number];
    int failed = 0;
    twigs_forget_anchoring(&automaton->twigs, number);
    if (anchoring.kind == ELEMENT_PART) {
        unpost_at_state(automaton, anchoring.source, POST_ANCHORING, number);
    } else if (anchoring.kind == TEST_PART) {
        uint32_t constant = anchoring.constant;
        if (anchoring.operator== STARTS_WITH) constant |= PREFIX_CONSTANT;
        if (is_comparison(anchoring.operator)) {
            predicates->items.items[anchoring.source].size--;
            if (anchoring.operator== UNEQUAL) constant_release(predicates, constant);
        } else {
            predicates_unpost(predicates, anchoring.source, anchoring.operator, constant, anchoring.number,
                              POST_ANCHORING, number);
        }
        failed = release_index(automaton, anchoring.source, constant);
    } else {
        twigs_unpost(&automaton->twigs, anchoring.source, POST_ANCHORING, number, 0);
        failed = discard_twig(automaton, anchoring.source);
    }
    return failed;
}

/* Return the state of the path of some leaf of a part. */
static uint32_t some_state(const struct automaton *automaton, uint32_t twig) {
    return automaton->twigs.anchorings.items[automaton->twigs.items.items[twig].parts.items[0]].state;
}

static uint32_t use_twig_anchoring(struct automaton *automaton, const struct part_spec *part, uint32_t step) {
    uint32_t nested = use_twig(automaton, part);
    if (nested == NONE) return NONE;
    uint32_t state = state_at_step(&automaton->trie, some_state(automaton, nested), part->step);
    struct anchoring wanted = {nested, NONE, 0, step, state, NONE, 0, 0, TWIG_PART, EXISTS, UP};
    int is_new;
    uint32_t anchoring = twigs_use_anchoring(&automaton->twigs, &wanted, &is_new);
    if (anchoring == NONE) return NONE;
    if (is_new && twigs_post(&automaton->twigs, nested, POST_ANCHORING, anchoring, 0)) return NONE;
    return anchoring;
}

/* Return the number of a twig, made if it is not there. */
static uint32_t use_twig(struct automaton *automaton, const struct part_spec *spec) {
    struct numbers parts = {NULL, 0, 0};
    int32_t rarest = INT32_MAX;
    uint32_t twig = NONE;
    for (uint32_t i = 0; i < spec->count; i++) {
        const struct part_spec *part = &spec->parts[i];
        uint32_t anchoring = part->kind == LEAF_SPEC ? use_leaf_anchoring(automaton, &part->leaf, spec->step)
                                                     : use_twig_anchoring(automaton, part, spec->step);
        if (anchoring == NONE) goto done;
        uint32_t known = 0;
        while (known < parts.count && parts.items[known] != anchoring) known++;
        if (known < parts.count) { /* the same part twice */
            if (release_anchoring(automaton, anchoring)) goto done;
            continue;
        }
        if (PUSH(&parts, anchoring)) goto done;
        int32_t rank = rarity(part);
        if (rank < rarest || (rank == rarest && anchoring < parts.items[0])) {
            rarest = rank;
            parts.items[parts.count - 1] = parts.items[0];
            parts.items[0] = anchoring;
        }
    }
    int is_new;
    twig = twigs_require(&automaton->twigs, &parts, &is_new);
    for (uint32_t i = 0; twig != NONE && !is_new && i < parts.count; i++) {
        if (release_anchoring(automaton, parts.items[i])) twig = NONE;
    }
done:
    FREE_ARRAY(&parts);
    return twig;
}

/* Remove a twig if nothing needs it any more. */
static int discard_twig(struct automaton *automaton, uint32_t twig) {
    struct numbers parts;
    int failed = 0;
    struct twig *item = &automaton->twigs.items.items[twig];
    if (item->posted != NONE) return 0;
    parts = item->parts;
    uint32_t *copy = malloc((size_t)parts.count * 4);
    if (copy == NULL) return -1;
    memcpy(copy, parts.items, (size_t)parts.count * 4);
    twigs_remove(&automaton->twigs, twig);
    for (uint32_t i = 0; i < parts.count; i++) failed |= release_anchoring(automaton, copy[i]);
    free(copy);
    return failed;
}

/* -- queries -------------------------------------------------------------------------------------------- */

static int add_part_record(struct automaton *automaton, struct slot *slot, struct part part) {
    uint32_t at = automaton->free_part;
    part.next = slot->part;
    if (at != NONE) {
        automaton->free_part = automaton->parts.items[at].next;
        automaton->parts.items[at] = part;
    } else {
        at = automaton->parts.count;
        if (PUSH(&automaton->parts, part)) return -1;
    }
    slot->part = at;
    return 0;
}

static int reserve_slot(struct automaton *automaton, uint32_t number) {
    while (automaton->slots.count <= number) {
        if (PUSH(&automaton->slots, ((struct slot){0, NONE, 0}))) return -1;
    }
    return 0;
}

int automaton_register(struct automaton *automaton, uint32_t number, const struct part_spec *parts,
                       uint32_t count, int binds) {
    if (reserve_slot(automaton, number) || classes_add_slot(&automaton->classes, number)) return -1;
    struct slot *slot = &automaton->slots.items[number];
    *slot = (struct slot){0, NONE, IN_USE | (binds ? BINDS : 0)};
    if (automaton->with_classes && count == 1 && !binds && parts->kind == LEAF_SPEC && parts->leaf.target.length == 0) {
        slot->flags |= CLASSED;
        struct part part;
        if (post_leaf(automaton, &parts->leaf, POST_SLOT, number, &part)) return -1;
        slot->part = part.source;
        return 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct part part;
        if (parts[i].kind == LEAF_SPEC) {
            if (post_leaf(automaton, &parts[i].leaf, POST_SLOT, number, &part)) return -1;
        } else {
            uint32_t twig = use_twig(automaton, &parts[i]);
            if (twig == NONE) return -1;
            if (twigs_post(&automaton->twigs, twig, POST_SLOT, number, binds)) return -1;
            part = (struct part){TWIG_PART, EXISTS, twig, NONE, 0, NONE};
        }
        if (add_part_record(automaton, slot, part)) return -1;
    }
    return 0;
}

/* Return the state of a query that is one plain path. */
static uint32_t path_state(const struct automaton *automaton, const struct slot *slot) {
    return slot->flags & CLASSED ? slot->part : automaton->parts.items[slot->part].source;
}

int automaton_register_path(struct automaton *automaton, uint32_t *slot, const struct span *path, uint32_t length) {
    const struct trie_state *states = automaton->trie.states.items;
    uint32_t state = ROOT;
    for (uint32_t i = 0; i < length && state != NONE; i++) {
        uint32_t symbol = strings_find(&automaton->names, path[i]);
        state = symbol == NONE ? NONE : trie_edge(&automaton->trie, state, symbol);
    }
    if (state != NONE && states[state].query != NONE) {
        *slot = states[state].query;
        return 0;
    }
    struct part_spec part = {.kind = LEAF_SPEC, .leaf = {.path = path, .path_length = length, .target = {"", 0}}};
    if (automaton_register(automaton, *slot, &part, 1, 0)) return -1;
    struct slot *made = &automaton->slots.items[*slot];
    made->flags |= SHARED;
    automaton->trie.states.items[path_state(automaton, made)].query = *slot;
    return 0;
}

int automaton_unregister(struct automaton *automaton, uint32_t number) {
    struct slot *slot = &automaton->slots.items[number];
    int failed = 0;
    if (slot->flags & SHARED) automaton->trie.states.items[path_state(automaton, slot)].query = NONE;
    if (slot->flags & CLASSED) {
        unpost_at_state(automaton, slot->part, POST_SLOT, number);
    } else {
        while (slot->part != NONE) {
            uint32_t at = slot->part;
            struct part part = automaton->parts.items[at];
            slot->part = part.next;
            automaton->parts.items[at].next = automaton->free_part;
            automaton->free_part = at;
            if (part.kind == TWIG_PART) {
                twigs_unpost(&automaton->twigs, part.source, POST_SLOT, number, slot->flags & BINDS);
                failed |= discard_twig(automaton, part.source);
            } else {
                failed |= unpost_leaf(automaton, &part, POST_SLOT, number);
            }
        }
    }
    *slot = (struct slot){0, NONE, 0};
    return failed;
}

int automaton_set_weight(struct automaton *automaton, uint32_t number, uint32_t weight) {
    if (reserve_slot(automaton, number)) return -1;
    struct slot *slot = &automaton->slots.items[number];
    if (slot->flags & CLASSED) classes_weigh(&automaton->classes, number, (int64_t)weight - slot->weight);
    plan_weigh(&automaton->plan, number, (int64_t)weight - slot->weight);
    slot->weight = weight;
    if (!(slot->flags & IN_USE) || slot->flags & CLASSED || slot->part == NONE) return 0;
    const struct part *part = &automaton->parts.items[slot->part];
    if (part->kind != TEST_PART || part->operator < NUMBER_UNEQUAL) return 0;
    return queue_sorting(automaton, part->source, part->operator);
}

uint32_t automaton_add_relative_path(struct automaton *automaton, const struct span *path, uint32_t length) {
    uint32_t number, state = use_path(automaton, path, length);
    if (state == NONE) return NONE;
    if (automaton->free_relative_paths.count) {
        number = POP(&automaton->free_relative_paths);
        automaton->relative_paths.items[number].state = state;
    } else {
        number = automaton->relative_paths.count;
        if (PUSH(&automaton->relative_paths, ((struct relative_path){state}))) return NONE;
    }
    return post_at_state(automaton, state, POST_RELATIVE, number) ? NONE : number;
}

void automaton_remove_relative_path(struct automaton *automaton, uint32_t number) {
    unpost_at_state(automaton, automaton->relative_paths.items[number].state, POST_RELATIVE, number);
    automaton->relative_paths.items[number].state = NONE;
    (void)PUSH(&automaton->free_relative_paths, number);
}
