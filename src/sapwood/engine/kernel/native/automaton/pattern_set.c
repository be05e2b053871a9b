#include "pattern_set.h"

/* -- patterns ------------------------------------------------------------------------------------------- */

static inline uint32_t pattern_hash(const struct pattern_set *set, uint32_t pattern) {
    return mix(set->patterns.items[pattern].constant);
}

static inline uint32_t edge_hash(const struct pattern_set *set, uint32_t node) {
    return mix_pair(set->nodes.items[node].parent, set->nodes.items[node].byte);
}

TABLE_FUNCTIONS(constants, const struct pattern_set, pattern_hash)
TABLE_FUNCTIONS(edges, const struct pattern_set, edge_hash)

void pattern_set_free(struct pattern_set *set) {
    FREE_ARRAY(&set->patterns);
    FREE_ARRAY(&set->added);
    FREE_ARRAY(&set->free);
    FREE_ARRAY(&set->nodes);
    FREE_ARRAY(&set->from_root);
    free_table(&set->by_constant);
    free_table(&set->edges);
}

static uint32_t find_pattern(const struct pattern_set *set, uint32_t constant) {
    uint32_t found;
    const struct pattern *patterns = set->patterns.items;
    FIND_IN(&set->by_constant, mix(constant), pattern, patterns[pattern].constant == constant, found);
    return found;
}

uint32_t *patterns_find(struct pattern_set *set, uint32_t constant) {
    uint32_t pattern = find_pattern(set, constant);
    return pattern == NONE ? NULL : &set->patterns.items[pattern].posted;
}

uint32_t *patterns_require(struct pattern_set *set, uint32_t constant, uint32_t length) {
    uint32_t pattern = find_pattern(set, constant);
    if (pattern != NONE) return &set->patterns.items[pattern].posted;
    struct pattern made = {constant, NONE, length, set->added.count};
    if (set->free.count) {
        pattern = POP(&set->free);
        set->patterns.items[pattern] = made;
    } else {
        pattern = set->patterns.count;
        if (PUSH(&set->patterns, made)) return NULL;
    }
    if (PUSH(&set->added, pattern) || constants_insert(set, &set->by_constant, pattern)) return NULL;
    return &set->patterns.items[pattern].posted;
}

void patterns_remove(struct pattern_set *set, uint32_t constant) {
    uint32_t pattern = find_pattern(set, constant);
    constants_remove(set, &set->by_constant, pattern);
    uint32_t at = set->patterns.items[pattern].at;
    if (at == NONE) {
        set->gone++;
        return;
    }
    uint32_t moved = POP(&set->added);
    if (moved != pattern) {
        set->added.items[at] = moved;
        set->patterns.items[moved].at = at;
    }
    (void)PUSH(&set->free, pattern);
}

/* -- the trie ------------------------------------------------------------------------------------------- */

int patterns_need_building(const struct pattern_set *set) {
    return set->added.count > 8 + set->patterns.count / 1024 || set->gone > 16 + set->patterns.count / 2;
}

static uint32_t find_edge(const struct pattern_set *set, uint32_t node, uint32_t byte) {
    uint32_t found;
    const struct pattern_node *nodes = set->nodes.items;
    FIND_IN(&set->edges, mix_pair(node, byte), child,
            nodes[child].parent == node && nodes[child].byte == byte, found);
    return found;
}

static int add_to_trie(struct pattern_set *set, struct span text, uint32_t pattern) {
    uint32_t node = 0;
    for (size_t i = 0; i < text.length; i++) {
        uint32_t byte = (unsigned char)text.bytes[i], child = find_edge(set, node, byte);
        if (child == NONE) {
            child = set->nodes.count;
            if (PUSH(&set->nodes, ((struct pattern_node){node, byte, 0, NONE, NONE, NONE})) ||
                edges_insert(set, &set->edges, child))
                return -1;
            if (node == 0) set->from_root.items[byte] = child;
        }
        node = child;
    }
    set->nodes.items[node].pattern = pattern;
    return 0;
}

/* Go on from a node by a byte. */
static inline uint32_t step(const struct pattern_set *set, uint32_t node, uint32_t byte) {
    while (node != 0) {
        uint32_t child = find_edge(set, node, byte);
        if (child != NONE) return child;
        node = set->nodes.items[node].fail;
    }
    return set->from_root.items[byte];
}

/* Set the fails of all nodes, level by level: that of a node is found from that of its parent. */
static int set_fails(struct pattern_set *set) {
    struct numbers depths = {NULL, 0, 0}, first = {NULL, 0, 0}; /* by node; by depth: lists of nodes */
    int failed = PUSH(&depths, 0) || PUSH(&first, NONE);
    for (uint32_t i = 1; !failed && i < set->nodes.count; i++) { /* a parent is before its children */
        struct pattern_node *node = &set->nodes.items[i];
        uint32_t depth = depths.items[node->parent] + 1;
        failed = PUSH(&depths, depth) || (first.count <= depth && PUSH(&first, NONE));
        if (failed) break;
        node->next = first.items[depth];
        first.items[depth] = i;
    }
    for (uint32_t depth = 1; !failed && depth < first.count; depth++) {
        for (uint32_t i = first.items[depth]; i != NONE; i = set->nodes.items[i].next) {
            struct pattern_node *node = &set->nodes.items[i];
            node->fail = depth == 1 ? 0 : step(set, set->nodes.items[node->parent].fail, node->byte);
            node->output = node->pattern != NONE ? i : set->nodes.items[node->fail].output;
        }
    }
    FREE_ARRAY(&depths);
    FREE_ARRAY(&first);
    return failed ? -1 : 0;
}

int patterns_build(struct pattern_set *set, const struct string_table *constants) {
    uint32_t kept = 0;
    clear_table(&set->by_constant);
    clear_table(&set->edges);
    if (RESERVE(&set->from_root, 256)) return -1;
    memset(set->from_root.items, 0, 256 * sizeof *set->from_root.items);
    set->from_root.count = 256;
    set->nodes.count = set->added.count = set->free.count = set->gone = 0;
    if (PUSH(&set->nodes, ((struct pattern_node){NONE, 0, 0, NONE, NONE, NONE}))) return -1;
    for (uint32_t i = 0; i < set->patterns.count; i++) {
        struct pattern pattern = set->patterns.items[i];
        if (pattern.posted == NONE) continue;
        pattern.at = pattern.length ? NONE : set->added.count;
        set->patterns.items[kept] = pattern;
        if (constants_insert(set, &set->by_constant, kept)) return -1;
        if (pattern.length == 0) { /* which is in every text */
            if (PUSH(&set->added, kept)) return -1;
        } else if (add_to_trie(set, strings_text(constants, pattern.constant), kept)) {
            return -1;
        }
        kept++;
    }
    set->patterns.count = kept;
    set->waits = 0;
    return set_fails(set);
}

/* -- searches ------------------------------------------------------------------------------------------- */

int search_begin(struct text_search *search, const struct pattern_set *set, uint64_t text) {
    while (search->last != NONE && search->found.count) {
        struct occurrence *last = &search->found.items[search->last];
        last->end = 0;
        search->last = last->next;
    }
    if (search->found.count < set->patterns.count) {
        if (RESERVE(&search->found, set->patterns.count)) return -1;
        memset(search->found.items + search->found.count, 0,
               (size_t)(set->patterns.count - search->found.count) * sizeof *search->found.items);
        search->found.count = set->patterns.count;
    }
    search->text = text;
    search->searched = search->node = 0;
    search->last = NONE;
    return 0;
}

/* Note that a pattern was found, and move it to the front. */
static void note_occurrence(struct text_search *search, uint32_t pattern, uint32_t end) {
    struct occurrence *items = search->found.items, *item = &items[pattern];
    int is_new = item->end == 0;
    item->end = end;
    if (search->last == pattern) return;
    if (!is_new) { /* it is not the first in the list, so it has one before it */
        items[item->previous].next = item->next;
        if (item->next != NONE) items[item->next].previous = item->previous;
    }
    item->next = search->last;
    item->previous = NONE;
    if (search->last != NONE) items[search->last].previous = pattern;
    search->last = pattern;
}

void search_on(struct text_search *search, const struct pattern_set *set, struct span text) {
    if (set->nodes.count < 2) return;
    uint32_t node = search->node;
    for (uint32_t i = search->searched; i < text.length; i++) {
        node = step(set, node, (unsigned char)text.bytes[i]);
        uint32_t output = set->nodes.items[node].output;
        while (output != NONE) {
            note_occurrence(search, set->nodes.items[output].pattern, i + 1);
            output = set->nodes.items[set->nodes.items[output].fail].output;
        }
    }
    search->node = node;
    search->searched = (uint32_t)text.length;
}
