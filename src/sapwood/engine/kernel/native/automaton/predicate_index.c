#include "predicate_index.h"

#include <math.h>

/* -- constants ------------------------------------------------------------------------------------------ */

static inline uint64_t bits_of(double value) {
    uint64_t bits;
    memcpy(&bits, &value, 8);
    return bits;
}

static inline uint32_t number_hash(const struct predicate_indexes *indexes, uint32_t number) {
    return mix(bits_of(indexes->number_entries.items[number].value));
}

TABLE_FUNCTIONS(numbers, const struct predicate_indexes, number_hash)

uint32_t constant_find_number(const struct predicate_indexes *indexes, double value) {
    uint32_t found;
    value += 0.0; /* which makes -0 the same as 0 */
    FIND_IN(&indexes->number_table, mix(bits_of(value)), number,
            indexes->number_entries.items[number].value == value, found);
    return found == NONE ? NONE : found | NUMBER_CONSTANT;
}

uint32_t constant_use_number(struct predicate_indexes *indexes, double value) {
    uint32_t found = constant_find_number(indexes, value);
    if (found != NONE) {
        indexes->number_entries.items[found & ~NUMBER_CONSTANT].uses++;
        return found;
    }
    struct number_entry entry = {value + 0.0, 1};
    uint32_t number;
    if (indexes->free_numbers.count) {
        number = POP(&indexes->free_numbers);
        indexes->number_entries.items[number] = entry;
    } else {
        number = indexes->number_entries.count;
        if (PUSH(&indexes->number_entries, entry)) return NONE;
    }
    if (numbers_insert(indexes, &indexes->number_table, number)) return NONE;
    return number | NUMBER_CONSTANT;
}

uint32_t constant_use_text(struct predicate_indexes *indexes, struct span text) {
    return strings_use(&indexes->constants, text);
}

void constant_release(struct predicate_indexes *indexes, uint32_t constant) {
    if (constant & NUMBER_CONSTANT) {
        uint32_t number = constant & ~NUMBER_CONSTANT;
        struct number_entry *entry = &indexes->number_entries.items[number];
        if (--entry->uses) return;
        numbers_remove(indexes, &indexes->number_table, number);
        (void)PUSH(&indexes->retired_numbers, number);
    } else {
        strings_release(&indexes->constants, constant & ~PREFIX_CONSTANT);
    }
}

void constants_recycle(struct predicate_indexes *indexes) {
    strings_recycle(&indexes->constants);
    while (indexes->retired_numbers.count) (void)PUSH(&indexes->free_numbers, POP(&indexes->retired_numbers));
}

/* -- indexes -------------------------------------------------------------------------------------------- */

static inline uint32_t equal_hash(const struct predicate_indexes *indexes, uint32_t at) {
    return mix_pair(indexes->equal_entries.items[at].index, indexes->equal_entries.items[at].constant);
}

TABLE_FUNCTIONS(equal, const struct predicate_indexes, equal_hash)

void predicates_init(struct predicate_indexes *indexes, struct path_trie *trie, struct hash_key key) {
    memset(indexes, 0, sizeof *indexes);
    indexes->trie = trie;
    strings_init(&indexes->constants, key);
}

static void free_rare(struct rare_tests *rare) {
    if (rare == NULL) return;
    for (int operator = 0; operator <= AT_LEAST; operator++) {
        FREE_ARRAY(&rare->ordered[operator].tests);
        FREE_ARRAY(&rare->ordered[operator].sums);
        FREE_ARRAY(&rare->ordered[operator].shared);
    }
    FREE_ARRAY(&rare->unequal);
    FREE_ARRAY(&rare->prefixes);
    pattern_set_free(&rare->substrings);
    FREE_ARRAY(&rare->groups);
    free(rare);
}

void predicates_free(struct predicate_indexes *indexes) {
    for (uint32_t i = 0; i < indexes->items.count; i++) free_rare(indexes->items.items[i].rare);
    FREE_ARRAY(&indexes->items);
    FREE_ARRAY(&indexes->free);
    FREE_ARRAY(&indexes->unbuilt);
    FREE_ARRAY(&indexes->number_entries);
    FREE_ARRAY(&indexes->free_numbers);
    FREE_ARRAY(&indexes->retired_numbers);
    FREE_ARRAY(&indexes->equal_entries);
    FREE_ARRAY(&indexes->free_equal);
    free_table(&indexes->number_table);
    free_table(&indexes->equal_table);
    strings_free(&indexes->constants);
}

uint32_t predicates_find(const struct predicate_indexes *indexes, uint32_t state, uint32_t target) {
    uint32_t index = indexes->trie->states.items[state].tests;
    while (index != NONE && indexes->items.items[index].target != target) index = indexes->items.items[index].next;
    return index;
}

uint32_t predicates_require(struct predicate_indexes *indexes, uint32_t state, uint32_t target) {
    uint32_t index = predicates_find(indexes, state, target);
    if (index != NONE) return index;
    uint32_t *first = &indexes->trie->states.items[state].tests;
    struct predicate_index made = {state, target, *first, NONE, 0, 0, 0, NULL};
    if (indexes->free.count) {
        index = POP(&indexes->free);
        indexes->items.items[index] = made;
    } else {
        index = indexes->items.count;
        if (PUSH(&indexes->items, made)) return NONE;
    }
    *first = index;
    return index;
}

struct rare_tests *predicates_rare(struct predicate_indexes *indexes, uint32_t index) {
    struct predicate_index *item = &indexes->items.items[index];
    if (item->rare == NULL) item->rare = calloc(1, sizeof *item->rare);
    return item->rare;
}

void predicates_discard_empty(struct predicate_indexes *indexes, uint32_t index) {
    struct predicate_index *item = &indexes->items.items[index];
    if (item->size) return;
    uint32_t *link = &indexes->trie->states.items[item->state].tests;
    while (*link != index) link = &indexes->items.items[*link].next;
    *link = item->next;
    free_rare(item->rare);
    memset(item, 0, sizeof *item);
    (void)PUSH(&indexes->free, index);
}

/* -- postings ------------------------------------------------------------------------------------------- */

static uint32_t find_equal_entry(const struct predicate_indexes *indexes, uint32_t index, uint32_t constant) {
    uint32_t found;
    const struct equal_entry *entries = indexes->equal_entries.items;
    FIND_IN(&indexes->equal_table, mix_pair(index, constant), at,
            entries[at].index == index && entries[at].constant == constant, found);
    return found;
}

/* Return the entry of a constant, made if it is not there; NONE: memory is out. */
static uint32_t require_equal_entry(struct predicate_indexes *indexes, uint32_t index, uint32_t constant) {
    uint32_t at = find_equal_entry(indexes, index, constant);
    if (at != NONE) return at;
    struct equal_entry entry = {index, constant, NONE};
    if (indexes->free_equal.count) {
        at = POP(&indexes->free_equal);
        indexes->equal_entries.items[at] = entry;
    } else {
        at = indexes->equal_entries.count;
        if (PUSH(&indexes->equal_entries, entry)) return NONE;
    }
    return equal_insert(indexes, &indexes->equal_table, at) ? NONE : at;
}

/* Have the substrings of an index built before the next message, if that is worth while. */
static int queue_building(struct predicate_indexes *indexes, uint32_t index) {
    struct pattern_set *set = &indexes->items.items[index].rare->substrings;
    if (set->waits || !patterns_need_building(set)) return 0;
    if (PUSH(&indexes->unbuilt, index)) return -1;
    set->waits = 1;
    return 0;
}

int predicates_build(struct predicate_indexes *indexes) {
    while (indexes->unbuilt.count) {
        struct rare_tests *rare = indexes->items.items[indexes->unbuilt.items[indexes->unbuilt.count - 1]].rare;
        int waits = rare != NULL && rare->substrings.waits; /* else it has gone since */
        if (waits && patterns_build(&rare->substrings, &indexes->constants)) return -1;
        (void)POP(&indexes->unbuilt);
    }
    return 0;
}

static int count_prefix(struct rare_tests *rare, uint32_t length, int change) {
    for (uint32_t i = 0; i < rare->prefixes.count; i++) {
        struct prefix_length *known = &rare->prefixes.items[i];
        if (known->length == length) {
            known->uses += (uint32_t)change;
            if (known->uses == 0) *known = POP(&rare->prefixes);
            return 0;
        }
    }
    return PUSH(&rare->prefixes, ((struct prefix_length){length, 1}));
}

int predicates_post(struct predicate_indexes *indexes, uint32_t index, const struct test *test,
                    enum posting_kind kind, uint32_t number, uint32_t *constant) {
    struct postings *postings = &indexes->trie->postings;
    struct predicate_index *item = &indexes->items.items[index];
    enum test_operator operator = test->operator;
    *constant = NONE;
    item->size++;
    if (operator == EXISTS) return postings_add(postings, &item->exists, kind, number);
    if (operator >= NUMBER_UNEQUAL) {
        struct rare_tests *rare = predicates_rare(indexes, index);
        return rare == NULL ? -1
                            : PUSH(&rare->ordered[operator].tests, ((struct sorted_test){test->number, number}));
    }
    uint32_t used = operator == NUMBER_EQUAL ? constant_use_number(indexes, test->number)
                                             : constant_use_text(indexes, test->text);
    if (used == NONE) return -1;
    *constant = used;
    if (operator == UNEQUAL || operator == CONTAINS) {
        struct rare_tests *rare = predicates_rare(indexes, index);
        if (rare == NULL) return -1;
        if (operator == UNEQUAL) return PUSH(&rare->unequal, ((struct unequal_test){used, number}));
        uint32_t *posted = patterns_require(&rare->substrings, used, (uint32_t)test->text.length);
        if (posted == NULL || postings_add(postings, posted, kind, number)) return -1;
        return queue_building(indexes, index);
    }
    if (operator == STARTS_WITH) {
        struct rare_tests *rare = predicates_rare(indexes, index);
        if (rare == NULL || count_prefix(rare, (uint32_t)test->text.length, 1)) return -1;
        *constant = used |= PREFIX_CONSTANT;
    } else if (operator == EQUAL) {
        item->texts++;
    } else {
        item->numbers++;
    }
    uint32_t at = require_equal_entry(indexes, index, used);
    return at == NONE ? -1 : postings_add(postings, &indexes->equal_entries.items[at].posted, kind, number);
}

static int by_constant(const void *one, const void *other) {
    double a = ((const struct sorted_test *)one)->constant, b = ((const struct sorted_test *)other)->constant;
    if (isnan(a) || isnan(b)) return isnan(a) - isnan(b); /* which passes nothing but !=, at the end */
    return (a > b) - (a < b);
}

/* Return the first of the sorted tests that is not before a key. */
static uint32_t first_not_before(const struct sorted_tests *sorted, const struct sorted_test *key) {
    uint32_t low = 0, high = sorted->sorted;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (by_constant(&sorted->tests.items[middle], key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void remove_sorted(struct sorted_tests *sorted, double constant, uint32_t slot) {
    struct sorted_test key = {constant, slot};
    struct sorted_test *tests = sorted->tests.items;
    uint32_t at = first_not_before(sorted, &key);
    while (at < sorted->sorted && by_constant(&tests[at], &key) == 0 && tests[at].slot != slot) at++;
    if (at == sorted->sorted || by_constant(&tests[at], &key) != 0) { /* among those that wait */
        at = sorted->sorted;
        while (at < sorted->tests.count && !(tests[at].slot == slot && by_constant(&tests[at], &key) == 0)) at++;
        if (at == sorted->tests.count) return;
    } else {
        sorted->sorted--;
    }
    memmove(&tests[at], &tests[at + 1], (sorted->tests.count - at - 1) * sizeof *tests);
    sorted->tests.count--;
}

void predicates_unpost(struct predicate_indexes *indexes, uint32_t index, enum test_operator operator,
                       uint32_t constant, double number, enum posting_kind kind, uint32_t posted) {
    struct postings *postings = &indexes->trie->postings;
    struct predicate_index *item = &indexes->items.items[index];
    struct rare_tests *rare = item->rare;
    item->size--;
    if (operator == EXISTS) {
        postings_remove(postings, &item->exists, kind, posted);
        return;
    }
    if (operator >= NUMBER_UNEQUAL) {
        remove_sorted(&rare->ordered[operator], number, posted);
        return;
    }
    if (operator == UNEQUAL) {
        for (uint32_t i = 0; i < rare->unequal.count; i++) {
            if (rare->unequal.items[i].slot == posted && rare->unequal.items[i].constant == constant) {
                rare->unequal.items[i] = POP(&rare->unequal);
                break;
            }
        }
    } else if (operator == CONTAINS) {
        uint32_t *head = patterns_find(&rare->substrings, constant);
        postings_remove(postings, head, kind, posted);
        if (*head == NONE) patterns_remove(&rare->substrings, constant);
        (void)queue_building(indexes, index); /* without memory, it is done later */
    } else {
        if (operator == STARTS_WITH)
            count_prefix(rare, (uint32_t)strings_text(&indexes->constants, constant & ~PREFIX_CONSTANT).length, -1);
        else if (operator == EQUAL)
            item->texts--;
        else
            item->numbers--;
        uint32_t at = find_equal_entry(indexes, index, constant);
        postings_remove(postings, &indexes->equal_entries.items[at].posted, kind, posted);
        if (indexes->equal_entries.items[at].posted == NONE) {
            equal_remove(indexes, &indexes->equal_table, at);
            (void)PUSH(&indexes->free_equal, at);
        }
    }
    constant_release(indexes, constant);
}

/* -- sorted tests --------------------------------------------------------------------------------------- */

int sorted_tests_sort(struct sorted_tests *sorted) {
    struct sorted_test *tests = sorted->tests.items;
    uint32_t old = sorted->sorted, new = sorted->tests.count - old;
    if (new == 0) return 0;
    qsort(tests + old, new, sizeof *tests, by_constant);
    struct sorted_test *added = malloc((size_t)new * sizeof *added);
    if (added == NULL) return -1;
    memcpy(added, tests + old, (size_t)new * sizeof *added);
    for (uint32_t to = sorted->tests.count; new > 0;) { /* merge from the end, where there is room */
        if (old > 0 && by_constant(&tests[old - 1], &added[new - 1]) > 0)
            tests[--to] = tests[--old];
        else
            tests[--to] = added[--new];
    }
    free(added);
    sorted->sorted = sorted->tests.count;
    return 0;
}
