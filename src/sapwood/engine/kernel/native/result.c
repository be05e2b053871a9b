#include "result.h"

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

/* Mark the slots of the classes in a bitmap, those split off since included. */
static int mark_classes(const struct result *result, uint64_t *bits) {
    const struct automaton *automaton = result->automaton;
    struct numbers classes = {NULL, 0, 0};
    const struct numbers *held = &result->matched.classes;
    if (result->splits_seen < automaton->splits.count && held->count) {
        if (RESERVE(&classes, held->count)) return -1;
        memcpy(classes.items, held->items, (size_t)held->count * 4);
        classes.count = held->count;
        uint32_t words = automaton->classes.items.count / 64 + 1;
        uint64_t *is_held = calloc(words, 8);
        if (is_held == NULL) return FREE_ARRAY(&classes), -1;
        for (uint32_t i = 0; i < held->count; i++) is_held[held->items[i] / 64] |= (uint64_t)1 << held->items[i] % 64;
        for (uint32_t i = result->splits_seen; i < automaton->splits.count; i++) {
            struct split split = automaton->splits.items[i];
            if (!(is_held[split.from / 64] >> split.from % 64 & 1)) continue;
            is_held[split.to / 64] |= (uint64_t)1 << split.to % 64;
            if (PUSH(&classes, split.to)) return free(is_held), FREE_ARRAY(&classes), -1;
        }
        free(is_held);
        held = &classes;
    }
    for (uint32_t i = 0; i < held->count; i++) {
        const struct numbers *slots = &automaton->classes.items.items[held->items[i]].slots;
        for (uint32_t j = 0; j < slots->count; j++) bits[slots->items[j] / 64] |= (uint64_t)1 << slots->items[j] % 64;
    }
    FREE_ARRAY(&classes);
    return 0;
}

static void mark_bundles(const struct result *result, uint64_t *bits) {
    const struct join_plan *plan = &result->automaton->plan;
    for (uint32_t i = 0; i < result->matched.bundles.count; i++) {
        const struct bundle *bundle = &plan->bundles.items[result->matched.bundles.items[i]];
        for (uint32_t j = bundle[0].first; j < bundle[1].first; j++) {
            uint32_t slot = plan->bundle_slots.items[j];
            bits[slot / 64] |= (uint64_t)1 << slot % 64;
        }
    }
}

static void mark_runs(const struct result *result, uint64_t *bits) {
    for (uint32_t i = 0; i < result->matched.runs.count; i++) {
        const struct passed_run *run = &result->matched.runs.items[i];
        const struct rare_tests *rare = result->automaton->predicates.items.items[run->index].rare;
        for (uint32_t j = run->first; j < run->end; j++) {
            uint32_t slot = rare->ordered[run->operator].tests.items[j].slot;
            bits[slot / 64] |= (uint64_t)1 << slot % 64;
        }
    }
}

static int by_number(const void *one, const void *other) {
    uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return (a > b) - (a < b);
}

int result_slots(const struct result *result, struct numbers *slots) {
    const struct matched *matched = &result->matched;
    if (matched->classes.count + matched->bundles.count + matched->runs.count == 0) { /* each is listed once */
        if (RESERVE(slots, matched->slots.count)) return -1;
        if (matched->slots.count) memcpy(slots->items, matched->slots.items, (size_t)matched->slots.count * 4);
        slots->count = matched->slots.count;
        if (slots->count) qsort(slots->items, slots->count, sizeof *slots->items, by_number);
        return 0;
    }
    uint32_t words = result->automaton->slots.count / 64 + 1;
    uint64_t *bits = calloc(words, 8);
    if (bits == NULL) return -1;
    for (uint32_t i = 0; i < matched->slots.count; i++)
        bits[matched->slots.items[i] / 64] |= (uint64_t)1 << matched->slots.items[i] % 64;
    int failed = mark_classes(result, bits);
    mark_bundles(result, bits);
    mark_runs(result, bits);
    for (uint32_t word = 0; word < words && !failed; word++) {
        for (uint64_t left = bits[word]; left && !failed; left &= left - 1)
            failed = PUSH(slots, word * 64 + lowest_bit(left));
    }
    free(bits);
    return failed;
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
