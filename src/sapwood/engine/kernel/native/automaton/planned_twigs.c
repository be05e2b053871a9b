/* The last part of making a join plan: what is checked when an element closes. */
#include <math.h>

#include "planner.h"

void free_pending(struct planner *planner) {
    FREE_ARRAY(&planner->entries);
    FREE_ARRAY(&planner->checks);
    FREE_ARRAY(&planner->conditions);
    FREE_ARRAY(&planner->ranked);
    FREE_ARRAY(&planner->bounds);
}

static int is_ordered(uint32_t operator) { return operator >= LESS; }

/* -- how selective comparisons are ---------------------------------------------------------------------- */

static int collect_bounds(struct planner *planner) {
    const struct twigs *twigs = &planner->automaton->twigs;
    if (RESERVE(&planner->bounds, twigs->groups.count + 1)) return -1;
    for (uint32_t i = 0; i < twigs->groups.count; i++)
        planner->bounds.items[i] = (struct bounds){INFINITY, -INFINITY};
    for (uint32_t i = 0; i < twigs->anchorings.count; i++) {
        const struct anchoring *anchoring = &twigs->anchorings.items[i];
        if (anchoring->uses == 0 || anchoring->kind != TEST_PART || !is_ordered(anchoring->operator)) continue;
        if (!isfinite(anchoring->number)) continue;
        struct bounds *bounds = &planner->bounds.items[twigs->cells.items[anchoring->cell].group];
        if (anchoring->number < bounds->least) bounds->least = anchoring->number;
        if (anchoring->number > bounds->greatest) bounds->greatest = anchoring->number;
    }
    return 0;
}

/* Guess which share of values passes a comparison: values are spread like constants. */
static double expected_share(const struct planner *planner, uint32_t group, uint32_t operator, double number) {
    if (!is_ordered(operator)) return 1;
    const struct bounds *bounds = &planner->bounds.items[group];
    double range = bounds->greatest - bounds->least;
    if (!(range > 0) || !isfinite(range) || !isfinite(number)) return 0.5;
    double below = (number - bounds->least) / range;
    return operator == LESS || operator == AT_MOST ? below : 1 - below;
}

/* -- the conditions of a twig --------------------------------------------------------------------------- */

/* Collect the conditions of a twig, the most selective first. Return 1; 0 if they cannot be met; or -1 when
   memory is out. */
static int rank_conditions(struct planner *planner, const struct twig *twig) {
    const struct twigs *twigs = &planner->automaton->twigs;
    const struct join_plan *plan = planner->plan;
    planner->ranked.count = 0;
    for (uint32_t i = 0; i < twig->parts.count; i++) {
        const struct anchoring *part = &twigs->anchorings.items[twig->parts.items[i]];
        uint32_t class = plan->class_of.items[twigs->cells.items[part->cell].position];
        if (class == NONE) return 0; /* no message can find it yet */
        uint32_t group = plan->group_of.items[class];
        struct ranked_condition made = {{0, class, NONE, EXISTS}, 0};
        if (group == NONE) { /* before all comparisons, the rarest first */
            made.share = -1 / (1 + (double)planner->class_found.items[class]);
        } else {
            made.condition = (struct condition){part->number, class, part->constant, part->operator};
            made.share = expected_share(planner, group, part->operator, part->number);
            if (is_ordered(part->operator) && isnan(part->number)) return 0; /* which nothing passes */
        }
        if (PUSH(&planner->ranked, made)) return -1;
        uint32_t at = planner->ranked.count - 1;
        for (; at > 0 && planner->ranked.items[at - 1].share > made.share; at--)
            planner->ranked.items[at] = planner->ranked.items[at - 1];
        planner->ranked.items[at] = made;
    }
    return 1;
}

/* Return whether all that follows from a twig are slots that can be counted with others. */
static int is_plain(const struct automaton *automaton, const struct twig *twig) {
    if (twig->binding || twig->parents) return 0;
    FOR_POSTINGS(&automaton->trie.postings, twig->posted, kind, slot, {
        if (!is_single_part(automaton, slot)) return 0;
    });
    return 1;
}

/* Return whether a condition is a comparison. */
static int compares(const struct planner *planner, const struct ranked_condition *ranked) {
    return planner->plan->group_of.items[ranked->condition.class] != NONE;
}

static int add_check(struct planner *planner, uint32_t twig) {
    const struct ranked_condition *ranked = planner->ranked.items;
    uint32_t count = planner->ranked.count, first = 0;
    while (first < count && !compares(planner, &ranked[first])) first++; /* the most selective comparison */
    if (first == count || !is_ordered(ranked[first].condition.operator)) first = count;
    struct pending_check check = {0, ranked[0].condition.class, ranked[0].condition.class, EXISTS, twig,
                                  planner->conditions.count, 0};
    if (first < count) {
        check.other = ranked[first].condition.class;
        check.operator= ranked[first].condition.operator;
        check.bound = ranked[first].condition.number;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (i == first || (i == 0 && !compares(planner, &ranked[0]))) continue;
        if (PUSH(&planner->conditions, ranked[i].condition)) return -1;
        check.count++;
    }
    return PUSH(&planner->checks, check);
}

static int add_twig(struct planner *planner, uint32_t number) {
    const struct automaton *automaton = planner->automaton;
    const struct twig *twig = &automaton->twigs.items.items[number];
    int can_match = rank_conditions(planner, twig);
    if (can_match != 1) return can_match;
    const struct ranked_condition *ranked = planner->ranked.items;
    uint32_t count = planner->ranked.count;
    if (count > 2 || compares(planner, &ranked[count - 1]) || !is_plain(automaton, twig))
        return add_check(planner, number);
    struct pending_entry entry = {ranked[0].condition.class, ranked[count - 1].condition.class, NONE};
    FOR_POSTINGS(&automaton->trie.postings, twig->posted, kind, slot, {
        entry.slot = slot;
        if (PUSH(&planner->entries, entry)) return -1;
    });
    return 0;
}

/* -- in the order of accesses --------------------------------------------------------------------------- */

static int by_classes(const void *one, const void *another) {
    const struct pending_entry *a = one, *b = another;
    if (a->access != b->access) return a->access < b->access ? -1 : 1;
    if (a->other != b->other) return a->other < b->other ? -1 : 1;
    return (a->slot > b->slot) - (a->slot < b->slot);
}

static int by_bound(const void *one, const void *another) {
    const struct pending_check *a = one, *b = another;
    if (a->access != b->access) return a->access < b->access ? -1 : 1;
    if (a->other != b->other) return a->other < b->other ? -1 : 1;
    if (a->operator!= b->operator) return a->operator< b->operator? - 1 : 1;
    if (a->bound != b->bound) return a->bound < b->bound ? -1 : 1;
    return (a->twig > b->twig) - (a->twig < b->twig);
}

/* Have the list of a class, and of all before it, start at `at` at the latest. */
static int start_list(struct numbers *first, uint32_t class, uint32_t at) {
    while (first->count <= class) {
        if (PUSH(first, at)) return -1;
    }
    return 0;
}

static void mark_access(struct join_plan *plan, uint32_t class) {
    plan->accesses.items[class / 64] |= (uint64_t)1 << class % 64;
}

static int add_entries(struct planner *planner) {
    struct join_plan *plan = planner->plan;
    uint32_t count = planner->entries.count;
    if (count) qsort(planner->entries.items, count, sizeof *planner->entries.items, by_classes);
    for (uint32_t i = 0; i < count; i++) {
        const struct pending_entry *next = &planner->entries.items[i];
        mark_access(plan, next->access);
        if (i == 0 || next[-1].access != next->access || next[-1].other != next->other) {
            uint32_t bundle = new_bundle(plan);
            if (bundle == NONE || start_list(&plan->first_entry, next->access, plan->entries.count) ||
                PUSH(&plan->entries, ((struct join_entry){next->other, bundle})))
                return -1;
        }
        if (add_to_bundle(planner, next->slot)) return -1;
    }
    if (new_bundle(plan) == NONE) return -1; /* empty: the last one ends where it starts */
    return start_list(&plan->first_entry, plan->classes, plan->entries.count);
}

static int add_runs(struct planner *planner) {
    struct join_plan *plan = planner->plan;
    uint32_t count = planner->checks.count;
    if (count) qsort(planner->checks.items, count, sizeof *planner->checks.items, by_bound);
    for (uint32_t i = 0; i < count; i++) {
        const struct pending_check *next = &planner->checks.items[i];
        mark_access(plan, next->access);
        if (i == 0 || next[-1].access != next->access || next[-1].other != next->other ||
            next[-1].operator!= next->operator) {
            if (start_list(&plan->first_run, next->access, plan->runs.count) ||
                PUSH(&plan->runs, ((struct check_run){next->other, next->operator, i, i})))
                return -1;
        }
        plan->runs.items[plan->runs.count - 1].end = i + 1;
        struct check check = {next->bound, next->twig, plan->conditions.count};
        if (PUSH(&plan->checks, check)) return -1;
        for (uint32_t j = 0; j < next->count; j++) {
            if (PUSH(&plan->conditions, planner->conditions.items[next->first + j])) return -1;
        }
    }
    struct check end = {0, NONE, plan->conditions.count};
    return PUSH(&plan->checks, end) || start_list(&plan->first_run, plan->classes, plan->runs.count) ? -1 : 0;
}

int plan_twigs(struct planner *planner) {
    const struct twigs *twigs = &planner->automaton->twigs;
    if (collect_bounds(planner)) return -1;
    for (uint32_t i = 0; i < twigs->items.count; i++) {
        if (is_live(&twigs->items.items[i]) && add_twig(planner, i)) return -1;
    }
    uint64_t pending = (uint64_t)planner->entries.count + planner->checks.count + planner->conditions.count;
    planner->plan->cost += 8 * pending;
    return add_entries(planner) || add_runs(planner) ? -1 : 0;
}
