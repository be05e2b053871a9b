#include "result.h"

#include "ordered_numbers.h"

void result_link(struct result *result) {
    struct automaton *automaton = result->automaton;
    lock_write(&automaton->results_lock);
    result->next = automaton->results;
    result->previous = NULL;
    if (result->next) result->next->previous = result;
    automaton->results = result;
    unlock_write(&automaton->results_lock);
}

/* Take a result out of the list; the caller holds the lock of results. */
static void unlink_result(struct result *result) {
    if (result->previous)
        result->previous->next = result->next;
    else if (result->automaton->results == result)
        result->automaton->results = result->next;
    if (result->next) result->next->previous = result->previous;
    result->previous = result->next = NULL;
}

void result_free(struct result *result) {
    lock_write(&result->automaton->results_lock);
    unlink_result(result);
    unlock_write(&result->automaton->results_lock);
    free_matched(&result->matched);
}

/* Return the classes that a result holds, those that were split off since included, in `all` if that is needed;
   NULL: memory is out. */
static const struct numbers *classes_of(const struct result *result, struct numbers *all) {
    const struct automaton *automaton = result->automaton;
    const struct numbers *held = &result->matched.classes;
    if (result->splits_seen == automaton->splits.count || held->count == 0) return held;
    uint64_t *is_held = calloc(automaton->classes.items.count / 64 + 1, sizeof *is_held);
    if (is_held == NULL || RESERVE(all, held->count)) return free(is_held), NULL;
    memcpy(all->items, held->items, (size_t)held->count * 4);
    all->count = held->count;
    for (uint32_t i = 0; i < held->count; i++) is_held[held->items[i] / 64] |= (uint64_t)1 << held->items[i] % 64;
    for (uint32_t i = result->splits_seen; i < automaton->splits.count; i++) {
        struct split split = automaton->splits.items[i];
        if (!(is_held[split.from / 64] >> split.from % 64 & 1)) continue;
        is_held[split.to / 64] |= (uint64_t)1 << split.to % 64;
        if (PUSH(all, split.to)) return free(is_held), NULL;
    }
    free(is_held);
    return all;
}

static int add_slots(struct numbers *slots, const uint32_t *items, uint32_t count) {
    if (count > NONE - 1 - slots->count || RESERVE(slots, slots->count + count)) return -1;
    if (count) memcpy(slots->items + slots->count, items, (size_t)count * sizeof *items);
    slots->count += count;
    return 0;
}

static int add_classes(const struct result *result, struct numbers *slots) {
    struct numbers all = {NULL, 0, 0};
    const struct numbers *classes = classes_of(result, &all);
    int failed = classes == NULL;
    for (uint32_t i = 0; !failed && i < classes->count; i++) {
        const struct numbers *of_class = &result->automaton->classes.items.items[classes->items[i]].slots;
        failed = add_slots(slots, of_class->items, of_class->count);
    }
    FREE_ARRAY(&all);
    return failed;
}

static int add_bundles(const struct result *result, struct numbers *slots) {
    const struct join_plan *plan = &result->automaton->plan;
    for (uint32_t i = 0; i < result->matched.bundles.count; i++) {
        const struct bundle *bundle = &plan->bundles.items[result->matched.bundles.items[i]];
        uint32_t first = bundle[0].first;
        if (add_slots(slots, plan->bundle_slots.items + first, bundle[1].first - first)) return -1;
    }
    return 0;
}

static int add_runs(const struct result *result, struct numbers *slots) {
    for (uint32_t i = 0; i < result->matched.runs.count; i++) {
        const struct passed_run *run = &result->matched.runs.items[i];
        const struct rare_tests *rare = result->automaton->predicates.items.items[run->index].rare;
        for (uint32_t j = run->first; j < run->end; j++) {
            if (PUSH(slots, rare->ordered[run->operator].tests.items[j].slot)) return -1;
        }
    }
    return 0;
}

int result_list(const struct result *result, struct numbers *slots) {
    const struct numbers *listed = &result->matched.slots;
    return add_slots(slots, listed->items, listed->count) || add_classes(result, slots) ||
                   add_bundles(result, slots) || add_runs(result, slots)
               ? -1
               : 0;
}

int result_slots(const struct result *result, struct numbers *slots) {
    return result_list(result, slots) || order_numbers(slots, result->automaton->slots.count) ? -1 : 0;
}

int freeze_results(struct automaton *automaton) {
    int failed = 0;
    lock_write(&automaton->results_lock);
    while (automaton->results && !failed) {
        struct result *result = automaton->results;
        struct numbers slots = {NULL, 0, 0};
        failed = result_slots(result, &slots);
        if (!failed) {
            FREE_ARRAY(&result->matched.slots);
            result->matched.slots = slots;
            result->matched.classes.count = result->matched.bundles.count = result->matched.runs.count = 0;
            unlink_result(result);
        }
    }
    unlock_write(&automaton->results_lock);
    return failed;
}
