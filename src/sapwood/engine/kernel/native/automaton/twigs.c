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
    for (uint32_t i = 0; i < twigs->cells.count; i++) FREE_ARRAY(&twigs->cells.items[i].twigs);
    for (uint32_t i = 0; i < twigs->positions.count; i++) FREE_ARRAY(&twigs->positions.items[i].accesses);
    FREE_ARRAY(&twigs->positions);
    FREE_ARRAY(&twigs->position_flags);
    FREE_ARRAY(&twigs->free_positions);
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

static uint32_t new_cell(struct twigs *twigs, uint32_t group) {
    struct cell made = {{NULL, 0, 0}, group, NONE};
    if (twigs->free_cells.count) {
        uint32_t cell = POP(&twigs->free_cells);
        twigs->cells.items[cell] = made;
        return cell;
    }
    return PUSH(&twigs->cells, made) ? NONE : twigs->cells.count - 1;
}

static void free_cell(struct twigs *twigs, uint32_t cell) {
    uint32_t position = twigs->cells.items[cell].position;
    if (position != NONE) {
        twigs->changes++;
        FREE_ARRAY(&twigs->positions.items[position].accesses);
        (void)PUSH(&twigs->free_positions, position);
    }
    FREE_ARRAY(&twigs->cells.items[cell].twigs);
    (void)PUSH(&twigs->free_cells, cell);
}

static uint32_t cell_of(const struct twigs *twigs, uint32_t anchoring) {
    return twigs->anchorings.items[anchoring].cell;
}

static uint32_t position_of(const struct twigs *twigs, uint32_t anchoring) {
    return twigs->cells.items[cell_of(twigs, anchoring)].position;
}

/* Return the only slot that follows from a twig, or NONE. */
static uint32_t single_slot(const struct twig *twig) {
    return twig->posted != NONE && twig->posted & SINGLE_SLOT && !twig->binding ? twig->posted & ~SINGLE_SLOT : NONE;
}

/* Have a twig checked, now that all its parts can be found. */
static int make_live(struct twigs *twigs, uint32_t number) {
    const struct twig *twig = &twigs->items.items[number];
    const uint32_t *parts = twig->parts.items;
    uint32_t access = position_of(twigs, parts[0]);
    struct position *position = &twigs->positions.items[access];
    twigs->position_flags.items[access] |= HAS_ACCESSES;
    uint32_t other = SEVERAL;
    if (position->group == NONE && twig->parts.count == 1) other = NONE;
    if (position->group == NONE && twig->parts.count == 2) {
        uint32_t second = position_of(twigs, parts[1]);
        if (twigs->positions.items[second].group == NONE) other = second;
    }
    if (PUSH(&position->accesses, ((struct access){other, number, single_slot(twig)}))) return -1;
    FOR_POSTINGS(&twigs->trie->postings, twig->posted, kind, posted, {
        if (kind == POST_ANCHORING && twigs_require_position(twigs, cell_of(twigs, posted)) == NONE) return -1;
    });
    return 0;
}

uint32_t twigs_require_position(struct twigs *twigs, uint32_t number) {
    struct cell *cell = &twigs->cells.items[number];
    if (cell->position != NONE) return cell->position;
    struct position made = {{NULL, 0, 0}, number, cell->group};
    if (twigs->free_positions.count) {
        cell->position = POP(&twigs->free_positions);
        twigs->positions.items[cell->position] = made;
    } else {
        if (PUSH(&twigs->positions, made) || PUSH(&twigs->position_flags, 0)) return NONE;
        cell->position = twigs->positions.count - 1;
    }
    twigs->position_flags.items[cell->position] = cell->group == NONE ? 0 : IS_GROUP;
    for (uint32_t i = 0; i < cell->twigs.count; i++) {
        uint32_t twig = cell->twigs.items[i];
        if (--twigs->items.items[twig].missing == 0 && make_live(twigs, twig)) return NONE;
    }
    return cell->position;
}

void twigs_clear_positions(struct twigs *twigs) {
    twigs->changes++;
    for (uint32_t i = 0; i < twigs->positions.count; i++) FREE_ARRAY(&twigs->positions.items[i].accesses);
    twigs->positions.count = twigs->position_flags.count = twigs->free_positions.count = 0;
    for (uint32_t i = 0; i < twigs->cells.count; i++) twigs->cells.items[i].position = NONE;
    for (uint32_t i = 0; i < twigs->items.count; i++) twigs->items.items[i].missing = twigs->items.items[i].parts.count;
}

/* Find a live twig among the accesses. */
static struct access *find_access(struct twigs *twigs, uint32_t twig) {
    struct accesses *accesses = &twigs->positions.items[position_of(twigs, twigs->items.items[twig].parts.items[0])].accesses;
    for (uint32_t i = 0; i < accesses->count; i++) {
        if (accesses->items[i].twig == twig) return &accesses->items[i];
    }
    return NULL;
}

/* Return the group of the comparisons of a predicate index with a step; NONE: memory is out. */
static uint32_t require_group(struct twigs *twigs, const struct anchoring *anchoring) {
    uint32_t index = anchoring->source, step = anchoring->step;
    struct rare_tests *rare = predicates_rare(twigs->indexes, index);
    if (rare == NULL) return NONE;
    for (uint32_t i = 0; i < rare->groups.count; i++) {
        if (twigs->groups.items[rare->groups.items[i]].step == step) return rare->groups.items[i];
    }
    struct comparison_group made = {index, step, NONE, 0, 0, anchoring->state, anchoring->offset, anchoring->position};
    uint32_t group;
    if (twigs->free_groups.count) {
        group = POP(&twigs->free_groups);
        twigs->groups.items[group] = made;
    } else {
        group = twigs->groups.count;
        if (PUSH(&twigs->groups, made)) return NONE;
    }
    uint32_t cell = new_cell(twigs, group);
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
        uint32_t group = require_group(twigs, &made);
        if (group == NONE) return NONE;
        twigs->groups.items[group].uses++;
        twigs->groups.items[group].texts += made.operator== UNEQUAL;
        anchoring->cell = twigs->groups.items[group].cell;
    } else {
        anchoring->cell = new_cell(twigs, NONE);
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
    twigs->changes++;
    struct twig made = {{NULL, 0, 0}, NONE, 0, 0, 0};
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
    struct twig *item = &twigs->items.items[twig];
    for (uint32_t i = 0; i < parts->count; i++) {
        struct cell *cell = &twigs->cells.items[cell_of(twigs, parts->items[i])];
        item->missing += cell->position == NONE;
        if (PUSH(&cell->twigs, twig)) return NONE;
    }
    if (item->missing == 0 && make_live(twigs, twig)) return NONE;
    if (twigs_table_insert(twigs, &twigs->table, twig)) return NONE;
    twigs->count++;
    return twig;
}

void twigs_remove(struct twigs *twigs, uint32_t twig) {
    struct twig *item = &twigs->items.items[twig];
    twigs->changes++;
    if (item->missing == 0) {
        struct accesses *accesses = &twigs->positions.items[position_of(twigs, item->parts.items[0])].accesses;
        struct access *removed = find_access(twigs, twig);
        *removed = POP(accesses);
    }
    for (uint32_t i = 0; i < item->parts.count; i++)
        remove_number(&twigs->cells.items[cell_of(twigs, item->parts.items[i])].twigs, twig);
    twigs_table_remove(twigs, &twigs->table, twig);
    FREE_ARRAY(&item->parts);
    item->posted = NONE;
    (void)PUSH(&twigs->free, twig);
    twigs->count--;
}

int twigs_post(struct twigs *twigs, uint32_t number, enum posting_kind kind, uint32_t posted, int binds) {
    struct twig *twig = &twigs->items.items[number];
    twig->binding += binds != 0;
    twig->parents += kind == POST_ANCHORING;
    if (postings_add(&twigs->trie->postings, &twig->posted, kind, posted)) return -1;
    if (twig->missing) return 0;
    twigs->changes++;
    find_access(twigs, number)->slot = single_slot(twig);
    return kind == POST_ANCHORING && twigs_require_position(twigs, cell_of(twigs, posted)) == NONE ? -1 : 0;
}

void twigs_unpost(struct twigs *twigs, uint32_t number, enum posting_kind kind, uint32_t posted, int binds) {
    struct twig *twig = &twigs->items.items[number];
    twig->binding -= binds != 0;
    twig->parents -= kind == POST_ANCHORING;
    postings_remove(&twigs->trie->postings, &twig->posted, kind, posted);
    if (twig->missing) return;
    twigs->changes++;
    find_access(twigs, number)->slot = single_slot(twig);
}
