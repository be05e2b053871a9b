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

int result_list(const struct result *result, struct numbers *slots) {
    const struct numbers *listed = &result->matched.slots;
    struct numbers all = {NULL, 0, 0};
    const struct numbers *classes = classes_of(result, &all);
    uint64_t total = listed->count;
    for (uint32_t i = 0; classes != NULL && i < classes->count; i++)
        total += result->automaton->classes.items.items[classes->items[i]].slots.count;
    int failed = classes == NULL || total >= NONE || RESERVE(slots, (uint32_t)total);
    if (!failed && listed->count) memcpy(slots->items, listed->items, (size_t)listed->count * 4);
    if (!failed) slots->count = listed->count;
    for (uint32_t i = 0; !failed && i < classes->count; i++) {
        const struct numbers *of_class = &result->automaton->classes.items.items[classes->items[i]].slots;
        if (of_class->count) memcpy(slots->items + slots->count, of_class->items, (size_t)of_class->count * 4);
        slots->count += of_class->count;
    }
    FREE_ARRAY(&all);
    return failed ? -1 : 0;
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
            result->matched.classes.count = 0;
            unlink_result(result);
        }
    }
    unlock_write(&automaton->results_lock);
    return failed;
}
