#include "query_classes.h"

#include "automaton.h"

void classes_free(struct query_classes *classes) {
    for (uint32_t i = 0; i < classes->items.count; i++) {
        FREE_ARRAY(&classes->items.items[i].slots);
        FREE_ARRAY(&classes->items.items[i].nodes);
    }
    FREE_ARRAY(&classes->items);
    FREE_ARRAY(&classes->of_slot);
    FREE_ARRAY(&classes->free);
    FREE_ARRAY(&classes->touched);
    FREE_ARRAY(&classes->node_stamps);
}

void classes_clear(struct query_classes *classes) {
    for (uint32_t i = 0; i < classes->items.count; i++) {
        FREE_ARRAY(&classes->items.items[i].slots);
        FREE_ARRAY(&classes->items.items[i].nodes);
    }
    classes->items.count = classes->free.count = 0;
    if (classes->of_slot.count)
        memset(classes->of_slot.items, 0xff, classes->of_slot.count * sizeof *classes->of_slot.items);
    FREE_ARRAY(&classes->node_stamps);
    classes->node_stamp = 0;
}

int classes_add_slot(struct query_classes *classes, uint32_t slot) {
    while (classes->of_slot.count <= slot) {
        if (PUSH(&classes->of_slot, ((struct slot_class){NONE, 0}))) return -1;
    }
    classes->of_slot.items[slot] = (struct slot_class){NONE, 0};
    return 0;
}

static uint32_t new_class(struct query_classes *classes) {
    struct query_class made = {{NULL, 0, 0}, {NULL, 0, 0}, 0, 0, NONE};
    if (classes->free.count) {
        uint32_t class = POP(&classes->free);
        classes->items.items[class] = made;
        return class;
    }
    return PUSH(&classes->items, made) ? NONE : classes->items.count - 1;
}

static int enter_class(struct query_classes *classes, uint32_t class, uint32_t slot, uint64_t weight) {
    struct query_class *item = &classes->items.items[class];
    classes->of_slot.items[slot] = (struct slot_class){class, item->slots.count};
    item->weight += weight;
    return PUSH(&item->slots, slot);
}

static void leave_class(struct query_classes *classes, uint32_t slot, uint64_t weight) {
    struct slot_class *place = &classes->of_slot.items[slot];
    struct query_class *item = &classes->items.items[place->class];
    uint32_t last = POP(&item->slots);
    if (last != slot) {
        item->slots.items[place->position] = last;
        classes->of_slot.items[last].position = place->position;
    }
    item->weight -= weight;
    place->class = NONE;
}

static int link_class(struct automaton *automaton, uint32_t class, uint32_t node) {
    return PUSH(&automaton->classes.items.items[class].nodes, node) ||
                   PUSH(&automaton->guide.nodes.items[node].classes, class)
               ? -1
               : 0;
}

int classes_add_node(struct automaton *automaton, uint32_t node, const struct numbers *slots) {
    struct query_classes *classes = &automaton->classes;
    const struct slot *weights = automaton->slots.items;
    uint32_t fresh = NONE; /* the class of those that were at no node so far */
    classes->touched.count = 0;
    for (uint32_t i = 0; i < slots->count; i++) {
        uint32_t class = classes->of_slot.items[slots->items[i]].class;
        if (class != NONE && classes->items.items[class].touched++ == 0 && PUSH(&classes->touched, class)) return -1;
    }
    for (uint32_t i = 0; i < classes->touched.count; i++) {
        uint32_t class = classes->touched.items[i], target = class;
        struct query_class *item = &classes->items.items[class];
        if (item->touched < item->slots.count) {
            target = new_class(classes);
            if (target == NONE) return -1;
            item = &classes->items.items[class]; /* may have moved */
            item->split_to = target;
            if (PUSH(&automaton->splits, ((struct split){class, target}))) return -1;
            for (uint32_t j = 0; j < item->nodes.count; j++) {
                if (link_class(automaton, target, item->nodes.items[j])) return -1;
            }
        }
        if (link_class(automaton, target, node)) return -1;
    }
    for (uint32_t i = 0; i < slots->count; i++) {
        uint32_t slot = slots->items[i], class = classes->of_slot.items[slot].class, target;
        if (class == NONE) {
            if (fresh == NONE) {
                fresh = new_class(classes);
                if (fresh == NONE || link_class(automaton, fresh, node)) return -1;
            }
            target = fresh;
        } else {
            target = classes->items.items[class].split_to;
            if (target == NONE) continue;
            leave_class(classes, slot, weights[slot].weight);
        }
        if (enter_class(classes, target, slot, weights[slot].weight)) return -1;
    }
    for (uint32_t i = 0; i < classes->touched.count; i++) {
        struct query_class *item = &classes->items.items[classes->touched.items[i]];
        item->touched = 0;
        item->split_to = NONE;
    }
    return 0;
}

/* Mark the nodes of a set with a new stamp. */
static int stamp_nodes(struct query_classes *classes, const struct dataguide *guide, const struct numbers *nodes) {
    while (classes->node_stamps.count < guide->nodes.count) {
        if (PUSH(&classes->node_stamps, 0)) return -1;
    }
    if (++classes->node_stamp == 0) {
        memset(classes->node_stamps.items, 0, classes->node_stamps.count * 4);
        classes->node_stamp = 1;
    }
    for (uint32_t i = 0; i < nodes->count; i++) classes->node_stamps.items[nodes->items[i]] = classes->node_stamp;
    return 0;
}

int classes_post(struct automaton *automaton, uint32_t slot, const struct numbers *nodes) {
    struct query_classes *classes = &automaton->classes;
    const struct dataguide *guide = &automaton->guide;
    uint64_t weight = automaton->slots.items[slot].weight;
    if (nodes->count == 0) return 0;
    if (stamp_nodes(classes, guide, nodes)) return -1;
    uint32_t fewest = nodes->items[0];
    for (uint32_t i = 1; i < nodes->count; i++) {
        if (guide->nodes.items[nodes->items[i]].classes.count < guide->nodes.items[fewest].classes.count)
            fewest = nodes->items[i];
    }
    const struct numbers *candidates = &guide->nodes.items[fewest].classes;
    for (uint32_t i = 0; i < candidates->count; i++) {
        const struct numbers *at = &classes->items.items[candidates->items[i]].nodes;
        if (at->count != nodes->count) continue;
        uint32_t j = 0;
        while (j < at->count && classes->node_stamps.items[at->items[j]] == classes->node_stamp) j++;
        if (j == at->count) return enter_class(classes, candidates->items[i], slot, weight);
    }
    uint32_t class = new_class(classes);
    if (class == NONE) return -1;
    for (uint32_t i = 0; i < nodes->count; i++) {
        if (link_class(automaton, class, nodes->items[i])) return -1;
    }
    return enter_class(classes, class, slot, weight);
}

void classes_unpost(struct automaton *automaton, uint32_t slot) {
    struct query_classes *classes = &automaton->classes;
    uint32_t class = classes->of_slot.items[slot].class;
    if (class == NONE) return;
    leave_class(classes, slot, automaton->slots.items[slot].weight);
    struct query_class *item = &classes->items.items[class];
    if (item->slots.count) return;
    for (uint32_t i = 0; i < item->nodes.count; i++)
        remove_number(&automaton->guide.nodes.items[item->nodes.items[i]].classes, class);
    FREE_ARRAY(&item->slots);
    FREE_ARRAY(&item->nodes);
    (void)PUSH(&classes->free, class);
}
