#include "path_trie.h"

static inline uint32_t edge_hash(const struct path_trie *trie, uint32_t target) {
    return mix_pair(trie->states.items[target].parent, trie->states.items[target].symbol);
}

TABLE_FUNCTIONS(edges, const struct path_trie, edge_hash)

int trie_init(struct path_trie *trie) {
    memset(trie, 0, sizeof *trie);
    trie->postings.free = NONE;
    return PUSH(&trie->states, ((struct trie_state){NONE, OTHER, 1, NONE, NONE, NONE}));
}

void trie_free(struct path_trie *trie) {
    FREE_ARRAY(&trie->states);
    FREE_ARRAY(&trie->free);
    FREE_ARRAY(&trie->postings.cells);
    free_table(&trie->edges);
}

uint32_t trie_grow(struct path_trie *trie, uint32_t state, uint32_t symbol, int *is_new) {
    uint32_t target = trie_edge(trie, state, symbol);
    *is_new = target == NONE;
    if (target != NONE) return target;
    struct trie_state row = {state, symbol, 0, NONE, NONE, NONE};
    if (trie->free.count) {
        target = POP(&trie->free);
        trie->states.items[target] = row;
    } else {
        target = trie->states.count;
        if (PUSH(&trie->states, row)) return NONE;
    }
    if (edges_insert(trie, &trie->edges, target)) {
        (void)PUSH(&trie->free, target);
        return NONE;
    }
    trie->states.items[state].uses++;
    return target;
}

void trie_prune(struct path_trie *trie, uint32_t state) {
    edges_remove(trie, &trie->edges, state);
    trie->states.items[state].parent = NONE;
    (void)PUSH(&trie->free, state); /* if memory is out, the row is merely not used again */
}

static uint32_t new_cell(struct postings *postings, struct posting cell) {
    uint32_t at = postings->free;
    if (at != NONE) {
        postings->free = postings->cells.items[at].next;
        postings->cells.items[at] = cell;
        return at;
    }
    at = postings->cells.count;
    return PUSH(&postings->cells, cell) ? NONE : at;
}

int postings_add(struct postings *postings, uint32_t *head, enum posting_kind kind, uint32_t number) {
    if (*head == NONE && kind == POST_SLOT) {
        *head = number | SINGLE_SLOT;
        return 0;
    }
    uint32_t rest = *head;
    if (rest != NONE && rest & SINGLE_SLOT) {
        rest = new_cell(postings, (struct posting){rest & ~SINGLE_SLOT, NONE, POST_SLOT});
        if (rest == NONE) return -1;
        *head = rest;
    }
    uint32_t first = new_cell(postings, (struct posting){number, rest, kind});
    if (first == NONE) return -1;
    *head = first;
    return 0;
}

void postings_remove(struct postings *postings, uint32_t *head, enum posting_kind kind, uint32_t number) {
    if (*head == NONE) return;
    if (*head & SINGLE_SLOT) {
        *head = NONE;
        return;
    }
    for (uint32_t *link = head; *link != NONE; link = &postings->cells.items[*link].next) {
        struct posting *cell = &postings->cells.items[*link];
        if (cell->kind == (uint32_t)kind && cell->number == number) {
            uint32_t removed = *link;
            *link = cell->next;
            cell->next = postings->free;
            postings->free = removed;
            return;
        }
    }
}
