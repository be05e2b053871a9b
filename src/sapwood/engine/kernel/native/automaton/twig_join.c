/* The twig join: see twigs.h for the idea. This runs when elements close. */
#include <math.h>

#include "match.h"

/* Return the position of a cell, which a node that is not in the guide may be the first to need. */
static int find_position(struct match *match, uint32_t cell, uint32_t *position) {
    struct twigs *twigs = &match->automaton->twigs;
    *position = twigs->cells.items[cell].position;
    if (*position == NONE && match->plan) return UNKNOWN;
    if (*position == NONE) MAKE(match, *position, twigs_require_position(twigs, cell));
    return 0;
}

int set_anchoring(struct match *match, uint32_t anchoring) {
    const struct anchoring item = match->automaton->twigs.anchorings.items[anchoring];
    uint32_t depth = match->depth, position;
    TRY(find_position(match, item.cell, &position));
    if (match->loose) return set_anchor(match, position, 0);
    if (item.position == UP) return set_anchor(match, position, depth - (uint32_t)item.offset);
    if (item.position == DEPTH) return set_anchor(match, position, (uint32_t)item.offset);
    uint64_t depths = free_depths(match->automaton, item.state, item.step, match->scratch->names.items, depth);
    for (; depths; depths &= depths - 1) TRY(set_anchor(match, position, lowest_bit(depths)));
    return 0;
}

/* -- comparisons ---------------------------------------------------------------------------------------- */

static struct comparison_values *values_at(struct scratch *scratch, uint32_t group, uint32_t depth) {
    if (scratch->group_stamps.items[group] != scratch->stamp) return NULL;
    uint32_t at = scratch->group_values.items[group];
    while (at != NONE && scratch->values.items[at].depth != depth) at = scratch->values.items[at].next;
    return at == NONE ? NULL : &scratch->values.items[at];
}

static int add_values(struct match *match, uint32_t group, uint32_t depth, double number, uint32_t constant) {
    struct scratch *scratch = match->scratch;
    if (match->loose) depth = 0;
    struct comparison_values *values = values_at(scratch, group, depth);
    if (values == NULL) {
        if (scratch->group_stamps.items[group] != scratch->stamp) {
            scratch->group_stamps.items[group] = scratch->stamp;
            scratch->group_values.items[group] = NONE;
        }
        uint32_t at = scratch->free_values, next = scratch->group_values.items[group];
        if (at != NONE) {
            scratch->free_values = scratch->values.items[at].next;
        } else {
            TRY_MEMORY(RESERVE(&scratch->values, scratch->values.count + 1));
            at = scratch->values.count++;
        }
        values = &scratch->values.items[at];
        *values = (struct comparison_values){depth, next, INFINITY, -INFINITY, constant, 0, 0, 0};
        scratch->group_values.items[group] = at;
        uint32_t cell = match->automaton->twigs.groups.items[group].cell;
        TRY(set_anchor(match, match->automaton->twigs.cells.items[cell].position, depth));
    } else if (values->constant != constant) {
        values->several_texts = 1;
    }
    if (isnan(number)) {
        values->has_nan = 1;
    } else {
        values->has_number = 1;
        if (number < values->least) values->least = number;
        if (number > values->greatest) values->greatest = number;
    }
    return 0;
}

int add_comparison(struct match *match, uint32_t group, double number, uint32_t constant) {
    const struct automaton *automaton = match->automaton;
    const struct comparison_group item = automaton->twigs.groups.items[group];
    uint32_t depth = match->depth, position;
    TRY(find_position(match, item.cell, &position));
    if (match->loose) return add_values(match, group, 0, number, constant);
    if (item.position == UP) return add_values(match, group, depth - (uint32_t)item.offset, number, constant);
    if (item.position == DEPTH) return add_values(match, group, (uint32_t)item.offset, number, constant);
    uint64_t depths = free_depths(automaton, item.state, item.step, match->scratch->names.items, depth);
    for (; depths; depths &= depths - 1) TRY(add_values(match, group, lowest_bit(depths), number, constant));
    return 0;
}

static void drop_values(struct scratch *scratch, uint32_t group, uint32_t depth) {
    uint32_t *link = &scratch->group_values.items[group];
    while (*link != NONE && scratch->values.items[*link].depth != depth) link = &scratch->values.items[*link].next;
    if (*link == NONE) return;
    uint32_t at = *link;
    *link = scratch->values.items[at].next;
    scratch->values.items[at].next = scratch->free_values;
    scratch->free_values = at;
}

/* Return whether some value below the anchor passes a comparison with a number, or with a text. */
static int passes(const struct comparison_values *values, uint32_t operator, double number, uint32_t constant) {
    switch (operator) {
    case LESS: return values->has_number && values->least < number;
    case AT_MOST: return values->has_number && values->least <= number;
    case MORE: return values->has_number && values->greatest > number;
    case AT_LEAST: return values->has_number && values->greatest >= number;
    case NUMBER_UNEQUAL:
        return values->has_nan ||
               (values->has_number && (values->least != number || values->greatest != number));
    default: return values->several_texts || values->constant != constant; /* UNEQUAL */
    }
}

/* -- the join ------------------------------------------------------------------------------------------- */

/* Return whether all parts of a twig are found with their anchor at a depth. */
static int all_found(struct match *match, const struct twig *twig, uint32_t depth) {
    const struct twigs *twigs = &match->automaton->twigs;
    struct scratch *scratch = match->scratch;
    scratch->unplanned += twig->parts.count;
    for (uint32_t i = 0; i < twig->parts.count; i++) {
        const struct anchoring *part = &twigs->anchorings.items[twig->parts.items[i]];
        uint32_t position = twigs->cells.items[part->cell].position;
        if (!(scratch->masks.items[position] >> depth & 1)) return 0;
        uint32_t group = twigs->positions.items[position].group;
        if (group == NONE) continue;
        if (!passes(values_at(scratch, group, depth), part->operator, part->number, part->constant)) return 0;
    }
    return 1;
}

/* Report what follows from a twig that matches. */
static int report_twig(struct match *match, const struct twig *twig, uint32_t depth) {
    struct automaton *automaton = match->automaton;
    FOR_POSTINGS(&automaton->trie.postings, twig->posted, kind, number, {
        if (kind == POST_ANCHORING) {
            TRY(set_anchoring(match, number));
        } else if (match->loose) {
            TRY_MEMORY(PUSH(&match->found->candidates, number));
        } else if (automaton->slots.items[number].flags & BINDS) {
            TRY_MEMORY(PUSH(&match->found->bound_slots, number));
            TRY_MEMORY(PUSH(&match->found->bound_to, match->scratch->open.items[depth].number));
        } else {
            TRY(report_slot(match, number));
        }
    });
    return 0;
}

/* Check a twig at a depth, unless it has reported all that it can. */
static int check_twig(struct match *match, uint32_t number, uint32_t depth, int has_all) {
    const struct twig *twig = &match->automaton->twigs.items.items[number];
    uint32_t *stamp = &match->scratch->twig_stamps.items[number];
    int decides = match->loose || !(twig->binding | twig->parents);
    if (decides && *stamp == match->scratch->stamp) return 0;
    if (!has_all && !all_found(match, twig, depth)) return 0;
    *stamp = match->scratch->stamp;
    return report_twig(match, twig, depth);
}

/* Check the live twigs of one access whose mask has the bit of a depth. */
static int check_accesses(struct match *match, const struct access *access, const struct access *end,
                          uint32_t depth) {
    struct scratch *scratch = match->scratch;
    uint64_t bit = (uint64_t)1 << depth;
    scratch->unplanned += (uint64_t)(end - access);
    for (; access < end; access++) {
        if (access->other < SEVERAL && !(scratch->masks.items[access->other] & bit)) continue;
        if (access->slot != NONE && access->other != SEVERAL && !match->loose) {
            TRY(report_slot(match, access->slot));
            continue;
        }
        TRY(check_twig(match, access->twig, depth, access->other != SEVERAL));
    }
    return 0;
}

/* -- the join by the plan ------------------------------------------------------------------------------- */

static inline int has_class(const uint64_t *row, uint32_t class) { return row[class / 64] >> class % 64 & 1; }

/* Return whether the rest of a check's conditions is met. */
static int meets_conditions(const struct match *match, const struct check *check, const uint64_t *row,
                            uint32_t depth) {
    const struct join_plan *plan = match->plan;
    for (uint32_t i = check[0].conditions; i < check[1].conditions; i++) {
        const struct condition *condition = &plan->conditions.items[i];
        if (!has_class(row, condition->class)) return 0;
        if (condition->operator== EXISTS) continue;
        const struct comparison_values *values =
            values_at(match->scratch, plan->group_of.items[condition->class], depth);
        if (!passes(values, condition->operator, condition->number, condition->constant)) return 0;
    }
    return 1;
}

/* Narrow a run down to the checks whose bound some value passes. */
static void narrow(const struct check *checks, struct check_run *run, const struct comparison_values *values) {
    int from_below = run->operator== MORE || run->operator== AT_LEAST;
    double value = from_below ? values->greatest : values->least;
    /* the first bound that is greater (or, for > and <=, not less) than the value */
    int or_equal = run->operator== MORE || run->operator== AT_MOST;
    uint32_t low = run->first, high = run->end;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (or_equal ? checks[middle].bound < value : checks[middle].bound <= value)
            low = middle + 1;
        else
            high = middle;
    }
    if (!values->has_number)
        run->end = run->first;
    else if (from_below)
        run->end = low;
    else
        run->first = low;
}

static int check_run(struct match *match, struct check_run run, const uint64_t *row, uint32_t depth) {
    const struct join_plan *plan = match->plan;
    if (!has_class(row, run.other)) return 0;
    if (run.operator!= EXISTS)
        narrow(plan->checks.items, &run, values_at(match->scratch, plan->group_of.items[run.other], depth));
    for (uint32_t i = run.first; i < run.end; i++) {
        const struct check *check = &plan->checks.items[i];
        if (meets_conditions(match, check, row, depth)) TRY(check_twig(match, check->twig, depth, 1));
    }
    return 0;
}

/* Check the twigs whose access is a class that is set at a depth. */
static int check_class(struct match *match, uint32_t class, const uint64_t *row, uint32_t depth) {
    const struct join_plan *plan = match->plan;
    const uint32_t *first = &plan->first_entry.items[class];
    const struct join_entry *entry = plan->entries.items + first[0], *end = plan->entries.items + first[1];
    for (; entry < end; entry++) { /* the hottest loop */
        if (has_class(row, entry->other)) TRY(report_bundle(match, entry->bundle));
    }
    for (uint32_t i = plan->first_run.items[class]; i < plan->first_run.items[class + 1]; i++)
        TRY(check_run(match, plan->runs.items[i], row, depth));
    return 0;
}

static int join_by_plan(struct match *match, uint32_t depth) {
    struct scratch *scratch = match->scratch;
    const struct join_plan *plan = match->plan;
    struct numbers *words = &scratch->set_at[depth];
    if (words->count == 0) return 0;
    uint64_t *row = scratch->rows.items + (size_t)depth * plan->row_words;
    for (uint32_t i = 0; i < words->count; i++) {
        uint32_t word = words->items[i];
        for (uint64_t left = row[word] & plan->accesses.items[word]; left; left &= left - 1)
            TRY(check_class(match, word * 64 + lowest_bit(left), row, depth));
    }
    for (uint32_t i = 0; i < words->count; i++) {
        uint32_t word = words->items[i];
        for (uint64_t left = row[word] & plan->groups.items[word]; left; left &= left - 1)
            drop_values(scratch, plan->group_of.items[word * 64 + lowest_bit(left)], depth);
        row[word] = 0;
    }
    words->count = 0;
    return 0;
}

int join_twigs(struct match *match, uint32_t depth) {
    if (match->plan) return join_by_plan(match, depth);
    struct scratch *scratch = match->scratch;
    const struct twigs *twigs = &match->automaton->twigs;
    struct numbers *positions = &scratch->set_at[depth];
    uint32_t known;
    do { /* in loose mode, twigs set bits of the same depth: again until none is new */
        known = positions->count;
        for (uint32_t i = 0; i < positions->count; i++) {
            uint32_t position = positions->items[i];
            if (!(twigs->position_flags.items[position] & HAS_ACCESSES)) continue;
            const struct accesses *accesses = &twigs->positions.items[position].accesses;
            TRY(check_accesses(match, accesses->items, accesses->items + accesses->count, depth));
        }
    } while (match->loose && positions->count > known);
    for (uint32_t i = 0; i < positions->count; i++) {
        uint32_t position = positions->items[i];
        scratch->masks.items[position] &= ~((uint64_t)1 << depth);
        if (twigs->position_flags.items[position] & IS_GROUP)
            drop_values(scratch, twigs->positions.items[position].group, depth);
    }
    positions->count = 0;
    return 0;
}
