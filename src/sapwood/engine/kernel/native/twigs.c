#include "twigs.h"

static uint32_t hash_anchoring(const struct anchoring *key) {
    uint64_t bits;
    memcpy(&bits, &key->number, 8);
    uint32_t hash = mix_pair(key->source, key->constant);
    hash = mix_pair(hash, key->step << 8 | (uint32_t)key->kind << 4 | key->operator);
    return mix_pair(hash, (uint32_t)(bits ^ bits >> 32));
}

static inline uint32_t anchoring_hash(const struct twigs *twigs, uint32_t number) {
    return hash_anchoring(&twigs->anchorings.items[number]);
}

TABLE_FUNCTIONS(anchorings, const struct twigs, anchoring_hash)

static uint32_t hash_parts(const uint32_t *parts, uint32_t count) {
    uint32_t hash = count; /* the same for any order, since equal sets are one twig */
    for (uint32_t i = 0; i < count; i++) hash += mix(parts[i]);
    return mix(hash);
}

static inline uint32_t twig_hash(const struct twigs *twigs, uint32_t twig) {
    return hash_parts(twigs->items.items[twig].parts.items, twigs->items.items[twig].parts.count);
}

TABLE_FUNCTIONS(twigs_table, const struct twigs, twig_hash)

void twigs_init(struct twigs *twigs, struct path_trie *trie, struct predicate_indexes *indexes) {
    memset(twigs, 0, sizeof *twigs);
    twigs->trie = trie;
    twigs->indexes = indexes;
}

void twigs_free(struct twigs *twigs) {
    for (uint32_t i = 0; i < twigs->cells.count; i++) FREE_ARRAY(&twigs->cells.items[i].accesses);
    for (uint32_t i = 0; i < twigs->items.count; i++) FREE_ARRAY(&twigs->items.items[i].parts);
    FREE_ARRAY(&twigs->anchorings);
    FREE_ARRAY(&twigs->free_anchorings);
    FREE_ARRAY(&twigs->cells);
    FREE_ARRAY(&twigs->free_cells);
    FREE_ARRAY(&twigs->groups);
    FREE_ARRAY(&twigs->free_groups);
    FREE_ARRAY(&twigs->items);
    FREE_ARRAY(&twigs->free);
    free_table(&twigs->anchoring_table);
    free_table(&twigs->table);
}

uint32_t steps_to(const struct path_trie *trie, uint32_t state) {
    uint32_t steps = 0;
    for (; state != ROOT; state = trie->states.items[state].parent)
        steps += trie->states.items[state].symbol != DESCENDANT;
    return steps;
}

uint32_t state_at_step(const struct path_trie *trie, uint32_t state, uint32_t step) {
    for (uint32_t steps = steps_to(trie, state); steps > step; state = trie->states.items[state].parent)
        steps -= trie->states.items[state].symbol != DESCENDANT;
    while (state != ROOT && trie->states.items[state].symbol == DESCENDANT) state = trie->states.items[state].parent;
    return state;
}

/* -- cells ---------------------------------------------------------------------------------------------- */

static uint32_t new_cell(struct twigs *twigs, uint32_t group, uint32_t anchoring) {
    struct cell made = {{NULL, 0, 0}, group, anchoring};
    if (twigs->free_cells.count) {
        uint32_t cell = POP(&twigs->free_cells);
        twigs->cells.items[cell] = made;
        return cell;
    }
    return PUSH(&twigs->cells, made) ? NONE : twigs->cells.count - 1;
}

static void free_cell(struct twigs *twigs, uint32_t cell) {
    FREE_ARRAY(&twigs->cells.items[cell].accesses);
    (void)PUSH(&twigs->free_cells, cell);
}

/* Return the group of the comparisons of a predicate index with a step; NONE: memory is out. */
static uint32_t require_group(struct twigs *twigs, uint32_t index, uint32_t step, uint32_t anchoring) {
    struct rare_tests *rare = predicates_rare(twigs->indexes, index);
    if (rare == NULL) return NONE;
    for (uint32_t i = 0; i < rare->groups.count; i++) {
        if (twigs->groups.items[rare->groups.items[i]].step == step) return rare->groups.items[i];
    }
    struct comparison_group made = {index, step, NONE, 0, anchoring, 0};
    uint32_t group;
    if (twigs->free_groups.count) {
        group = POP(&twigs->free_groups);
        twigs->groups.items[group] = made;
    } else {
        group = twigs->groups.count;
        if (PUSH(&twigs->groups, made)) return NONE;
    }
    uint32_t cell = new_cell(twigs, group, anchoring);
    if (cell == NONE || PUSH(&rare->groups, group)) return NONE;
    twigs->groups.items[group].cell = cell;
    return group;
}

static void release_group(struct twigs *twigs, uint32_t group) {
    struct comparison_group *item = &twigs->groups.items[group];
    if (--item->uses) return;
    remove_number(&twigs->indexes->items.items[item->index].rare->groups, group);
    free_cell(twigs, item->cell);
    (void)PUSH(&twigs->free_groups, group);
}

/* -- anchorings ----------------------------------------------------------------------------------------- */

/* Find out where the anchor is, given where the part was found. */
static void set_position(const struct path_trie *trie, struct anchoring *anchoring) {
    uint32_t steps = steps_to(trie, anchoring->state), at = steps;
    int deep_below = 0, deep_above = 0;
    for (uint32_t state = anchoring->state; state != ROOT; state = trie->states.items[state].parent) {
        /* a `//` in front of step number `at` + 1 */
        if (trie->states.items[state].symbol != DESCENDANT) {
            at--;
        } else if (at >= anchoring->step) {
            deep_below = 1;
        } else {
            deep_above = 1;
        }
    }
    if (!deep_below) {
        anchoring->position = UP;
        anchoring->offset = (int32_t)(steps - anchoring->step);
    } else if (!deep_above) {
        anchoring->position = DEPTH;
        anchoring->offset = (int32_t)anchoring->step;
    } else {
        anchoring->position = FREE;
    }
}

static int same_anchoring(const struct anchoring *one, const struct anchoring *other) {
    return one->kind == other->kind && one->source == other->source && one->operator== other->operator&&
           one->constant == other->constant && one->step == other->step &&
           memcmp(&one->number, &other->number, sizeof one->number) == 0;
}

uint32_t twigs_use_anchoring(struct twigs *twigs, const struct anchoring *wanted, int *is_new) {
    uint32_t number;
    FIND_IN(&twigs->anchoring_table, hash_anchoring(wanted), item,
            same_anchoring(&twigs->anchorings.items[item], wanted), number);
    *is_new = number == NONE;
    if (number != NONE) {
        twigs->anchorings.items[number].uses++;
        return number;
    }
    struct anchoring made = *wanted;
    made.uses = 1;
    made.offset = 0;
    set_position(twigs->trie, &made);
    if (twigs->free_anchorings.count) {
        number = POP(&twigs->free_anchorings);
        twigs->anchorings.items[number] = made;
    } else {
        number = twigs->anchorings.count;
        if (PUSH(&twigs->anchorings, made)) return NONE;
    }
    struct anchoring *anchoring = &twigs->anchorings.items[number];
    if (made.kind == TEST_PART && is_comparison(made.operator)) {
        uint32_t group = require_group(twigs, made.source, made.step, number);
        if (group == NONE) return NONE;
        twigs->groups.items[group].uses++;
        twigs->groups.items[group].texts += made.operator== UNEQUAL;
        anchoring->cell = twigs->groups.items[group].cell;
    } else {
        anchoring->cell = new_cell(twigs, NONE, number);
        if (anchoring->cell == NONE) return NONE;
    }
    return anchorings_insert(twigs, &twigs->anchoring_table, number) ? NONE : number;
}

int twigs_release_anchoring(struct twigs *twigs, uint32_t anchoring) {
    return --twigs->anchorings.items[anchoring].uses == 0;
}

void twigs_forget_anchoring(struct twigs *twigs, uint32_t number) {
    struct anchoring *anchoring = &twigs->anchorings.items[number];
    anchorings_remove(twigs, &twigs->anchoring_table, number);
    uint32_t group = twigs->cells.items[anchoring->cell].group;
    if (group != NONE) {
        twigs->groups.items[group].texts -= anchoring->operator== UNEQUAL;
        release_group(twigs, group);
    } else {
        free_cell(twigs, anchoring->cell);
    }
    (void)PUSH(&twigs->free_anchorings, number);
}

/* -- twigs ---------------------------------------------------------------------------------------------- */

static int same_parts(const struct numbers *one, const struct numbers *other) {
    if (one->count != other->count) return 0;
    for (uint32_t i = 0; i < one->count; i++) {
        uint32_t j = 0;
        while (j < other->count && other->items[j] != one->items[i]) j++;
        if (j == other->count) return 0;
    }
    return 1;
}

uint32_t twigs_require(struct twigs *twigs, const struct numbers *parts, int *is_new) {
    uint32_t twig;
    FIND_IN(&twigs->table, hash_parts(parts->items, parts->count), item,
            same_parts(&twigs->items.items[item].parts, parts), twig);
    *is_new = twig == NONE;
    if (twig != NONE) return twig;
    struct twig made = {{NULL, 0, 0}, NONE, 0, 0};
    if (RESERVE(&made.parts, parts->count)) return NONE;
    memcpy(made.parts.items, parts->items, parts->count * sizeof *parts->items);
    made.parts.count = parts->count;
    if (twigs->free.count) {
        twig = POP(&twigs->free);
        twigs->items.items[twig] = made;
    } else {
        twig = twigs->items.count;
        if (PUSH(&twigs->items, made)) return NONE;
    }
    const struct anchoring *anchorings = twigs->anchorings.items;
    uint32_t access = anchorings[parts->items[0]].cell, other = SEVERAL;
    if (twigs->cells.items[access].group == NONE) {
        if (parts->count == 1) other = NONE;
        if (parts->count == 2) {
            uint32_t cell = anchorings[parts->items[1]].cell;
            if (twigs->cells.items[cell].group == NONE) other = cell;
        }
    }
    if (PUSH(&twigs->cells.items[access].accesses, ((struct access){twig, other}))) return NONE;
    if (twigs_table_insert(twigs, &twigs->table, twig)) return NONE;
    twigs->count++;
    return twig;
}

void twigs_remove(struct twigs *twigs, uint32_t twig) {
    struct twig *item = &twigs->items.items[twig];
    struct cell *cell = &twigs->cells.items[twigs->anchorings.items[item->parts.items[0]].cell];
    for (uint32_t i = 0; i < cell->accesses.count; i++) {
        if (cell->accesses.items[i].twig == twig) {
            cell->accesses.items[i] = POP(&cell->accesses);
            break;
        }
    }
    twigs_table_remove(twigs, &twigs->table, twig);
    FREE_ARRAY(&item->parts);
    item->posted = NONE;
    (void)PUSH(&twigs->free, twig);
    twigs->count--;
}
