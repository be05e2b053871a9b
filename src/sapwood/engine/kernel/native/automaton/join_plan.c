#include "planner.h"

void plan_free(struct join_plan *plan) {
    FREE_ARRAY(&plan->class_of);
    FREE_ARRAY(&plan->group_of);
    FREE_ARRAY(&plan->words);
    FREE_ARRAY(&plan->node_words);
    FREE_ARRAY(&plan->hits);
    FREE_ARRAY(&plan->reports);
    FREE_ARRAY(&plan->entries);
    FREE_ARRAY(&plan->first_entry);
    FREE_ARRAY(&plan->runs);
    FREE_ARRAY(&plan->first_run);
    FREE_ARRAY(&plan->checks);
    FREE_ARRAY(&plan->conditions);
    FREE_ARRAY(&plan->accesses);
    FREE_ARRAY(&plan->groups);
    FREE_ARRAY(&plan->bundles);
    FREE_ARRAY(&plan->bundle_slots);
    FREE_ARRAY(&plan->bundle_of);
}

int plan_is_valid(const struct automaton *automaton) {
    const struct join_plan *plan = &automaton->plan;
    return plan->number != 0 && plan->twig_changes == automaton->twigs.changes &&
           plan->guide_changes == automaton->guide.changes;
}

uint64_t plan_cost(const struct automaton *automaton) {
    if (automaton->plan.number) return automaton->plan.cost * 2;
    const struct twigs *twigs = &automaton->twigs;
    return 16 * ((uint64_t)twigs->count + twigs->positions.count) + 8 * (uint64_t)automaton->guide.hits.count;
}

void plan_weigh(struct join_plan *plan, uint32_t slot, int64_t change) {
    if (slot >= plan->bundle_of.count || plan->bundle_of.items[slot] == NONE) return;
    plan->bundles.items[plan->bundle_of.items[slot]].weight += (uint64_t)change;
}

/* -- classes -------------------------------------------------------------------------------------------- */

static void free_partition(struct partition *partition) {
    FREE_ARRAY(&partition->class_of);
    FREE_ARRAY(&partition->stamps);
    FREE_ARRAY(&partition->moved_to);
}

static int fill(struct numbers *numbers, uint32_t count, uint32_t with) {
    if (RESERVE(numbers, count)) return -1;
    for (uint32_t i = 0; i < count; i++) numbers->items[i] = with;
    numbers->count = count;
    return 0;
}

static uint32_t new_class(struct partition *partition) {
    uint32_t class = partition->stamps.count;
    return PUSH(&partition->stamps, 0) || PUSH(&partition->moved_to, class) ? NONE : class;
}

static int init_partition(struct partition *partition, uint32_t count) {
    memset(partition, 0, sizeof *partition);
    if (fill(&partition->class_of, count, NONE)) return -1;
    return new_class(partition) == NONE ? -1 : 0; /* class 0 is that of all that were in no list before */
}

static void begin_list(struct partition *partition) { partition->list++; }

/* Note that a thing is in the current list. */
static int refine(struct partition *partition, uint32_t thing) {
    uint32_t *class = &partition->class_of.items[thing];
    uint32_t from = *class == NONE ? 0 : *class;
    if (partition->stamps.items[from] != partition->list) {
        uint32_t to = new_class(partition);
        if (to == NONE) return -1;
        partition->stamps.items[from] = partition->stamps.items[to] = partition->list;
        partition->moved_to.items[from] = to;
    }
    *class = partition->moved_to.items[from];
    return 0;
}

/* -- making a plan -------------------------------------------------------------------------------------- */

/* Return whether only nodes and hits set an anchoring, which they do by their lists. */
static int is_set_by_lists(const struct anchoring *anchoring) {
    if (anchoring->kind == ELEMENT_PART) return 1;
    return anchoring->kind == TEST_PART &&
           (anchoring->operator== EXISTS || anchoring->operator== EQUAL || anchoring->operator== NUMBER_EQUAL);
}

static int refine_reach(struct planner *planner, const struct reaches *reach) {
    planner->plan->cost += reach->count;
    for (uint32_t i = 0; i < reach->count; i++) {
        if (i == 0 || reach->items[i].depth != reach->items[i - 1].depth) begin_list(&planner->positions);
        if (refine(&planner->positions, reach->items[i].position)) return -1;
    }
    return 0;
}

/* Divide positions and slots into classes. */
static int find_classes(struct planner *planner) {
    const struct automaton *automaton = planner->automaton;
    const struct dataguide *guide = &automaton->guide;
    for (uint32_t i = 0; i < guide->nodes.count; i++) {
        if (refine_reach(planner, &guide->nodes.items[i].reach)) return -1;
    }
    for (uint32_t i = 0; i < guide->hits.count; i++) {
        const struct hit *hit = &guide->hits.items[i];
        if (planner->is_free.items[i]) continue;
        if (refine_reach(planner, &hit->reach)) return -1;
        begin_list(&planner->slots);
        for (uint32_t j = 0; j < hit->slots.count; j++) {
            if (is_single_part(automaton, hit->slots.items[j]) && refine(&planner->slots, hit->slots.items[j]))
                return -1;
        }
        planner->plan->cost += hit->slots.count;
    }
    const struct twigs *twigs = &automaton->twigs;
    for (uint32_t i = 0; i < twigs->anchorings.count; i++) {
        const struct anchoring *anchoring = &twigs->anchorings.items[i];
        if (anchoring->uses == 0 || is_set_by_lists(anchoring)) continue;
        uint32_t position = twigs->cells.items[anchoring->cell].position;
        if (position == NONE) continue;
        uint32_t own = new_class(&planner->positions);
        if (own == NONE) return -1;
        planner->positions.class_of.items[position] = own;
    }
    return 0;
}

/* Number the classes in which live twigs have parts in the order in which nodes and hits set them. */
static int number_position(struct planner *planner, uint32_t position) {
    struct join_plan *plan = planner->plan;
    uint32_t class = planner->positions.class_of.items[position];
    if (class == NONE || planner->numbers.items[class] != SEVERAL) return 0;
    planner->numbers.items[class] = plan->classes++;
    return PUSH(&plan->group_of, planner->automaton->twigs.positions.items[position].group);
}

static int number_classes(struct planner *planner) {
    const struct automaton *automaton = planner->automaton;
    const struct twigs *twigs = &automaton->twigs;
    struct join_plan *plan = planner->plan;
    if (fill(&planner->numbers, planner->positions.stamps.count, NONE)) return -1;
    for (uint32_t i = 0; i < twigs->items.count; i++) {
        const struct twig *twig = &twigs->items.items[i];
        for (uint32_t j = 0; is_live(twig) && j < twig->parts.count; j++) {
            uint32_t cell = twigs->anchorings.items[twig->parts.items[j]].cell;
            uint32_t class = planner->positions.class_of.items[twigs->cells.items[cell].position];
            if (class != NONE) planner->numbers.items[class] = SEVERAL; /* it will have a number */
        }
    }
    for (uint32_t i = 0; i < automaton->guide.nodes.count; i++) {
        const struct reaches *reach = &automaton->guide.nodes.items[i].reach;
        for (uint32_t j = 0; j < reach->count; j++) {
            if (number_position(planner, reach->items[j].position)) return -1;
        }
    }
    for (uint32_t i = 0; i < twigs->positions.count; i++) {
        if (number_position(planner, i)) return -1;
    }
    if (RESERVE(&plan->class_of, twigs->positions.count) || fill(&planner->class_found, plan->classes, 0))
        return -1;
    for (uint32_t i = 0; i < twigs->positions.count; i++) {
        uint32_t class = planner->positions.class_of.items[i];
        uint32_t number = class == NONE ? NONE : planner->numbers.items[class];
        plan->class_of.items[i] = number;
        if (number == NONE || i >= planner->found->count) continue;
        if (planner->found->items[i] > planner->class_found.items[number])
            planner->class_found.items[number] = planner->found->items[i];
    }
    for (uint32_t i = 0; i < twigs->free_positions.count; i++)
        plan->class_of.items[twigs->free_positions.items[i]] = UNKNOWN_CLASS;
    plan->class_of.count = plan->positions = twigs->positions.count;
    plan->row_words = plan->classes / 64 + 1;
    return 0;
}

/* Add the words of a list, which has the deepest anchors first. */
static int add_words(struct planner *planner, const struct reaches *reach) {
    struct join_plan *plan = planner->plan;
    for (uint32_t i = 0; i < reach->count;) {
        uint32_t depth = reach->items[i].depth;
        planner->row_touched.count = 0;
        for (; i < reach->count && reach->items[i].depth == depth; i++) {
            uint32_t class = plan->class_of.items[reach->items[i].position];
            if (class == NONE) continue;
            uint64_t *word = &planner->row.items[class / 64];
            if (*word == 0 && PUSH(&planner->row_touched, class / 64)) return -1;
            *word |= (uint64_t)1 << class % 64;
        }
        for (uint32_t j = 0; j < planner->row_touched.count; j++) {
            uint32_t word = planner->row_touched.items[j];
            if (PUSH(&plan->words, ((struct anchor_word){planner->row.items[word], word, depth}))) return -1;
            planner->row.items[word] = 0;
        }
    }
    return 0;
}

/* -- slots ---------------------------------------------------------------------------------------------- */

uint32_t new_bundle(struct join_plan *plan) {
    struct bundle made = {0, plan->bundle_slots.count};
    return PUSH(&plan->bundles, made) ? NONE : plan->bundles.count - 1;
}

int add_to_bundle(struct planner *planner, uint32_t slot) {
    struct join_plan *plan = planner->plan;
    plan->bundles.items[plan->bundles.count - 1].weight += planner->automaton->slots.items[slot].weight;
    plan->bundle_of.items[slot] = plan->bundles.count - 1;
    return PUSH(&plan->bundle_slots, slot);
}

/* Make the bundles of slots that hits report together. */
static int add_hit_bundles(struct planner *planner) {
    struct join_plan *plan = planner->plan;
    struct partition *slots = &planner->slots;
    uint32_t classes = slots->stamps.count;
    struct numbers first = {NULL, 0, 0}, next = {NULL, 0, 0}; /* by class and slot: lists */
    int failed = fill(&first, classes, NONE) || fill(&next, slots->class_of.count, NONE) ||
                 fill(&plan->bundle_of, slots->class_of.count, NONE);
    for (uint32_t slot = slots->class_of.count; !failed && slot-- > 0;) {
        uint32_t class = slots->class_of.items[slot];
        if (class == NONE) continue;
        next.items[slot] = first.items[class];
        first.items[class] = slot;
    }
    for (uint32_t class = 0; !failed && class < classes; class++) {
        if (first.items[class] == NONE) continue;
        failed = new_bundle(plan) == NONE;
        for (uint32_t slot = first.items[class]; !failed && slot != NONE; slot = next.items[slot])
            failed = add_to_bundle(planner, slot);
    }
    FREE_ARRAY(&first);
    FREE_ARRAY(&next);
    return failed ? -1 : 0;
}

/* Make the table of hits. */
static int add_hit_table(struct planner *planner) {
    struct join_plan *plan = planner->plan;
    const struct dataguide *guide = &planner->automaton->guide;
    uint64_t cells = 2;
    while (cells < (uint64_t)guide->hits.count * 2) cells *= 2;
    if (cells > UINT32_MAX / 2 || RESERVE(&plan->hits, (uint32_t)cells)) return -1;
    plan->hits.count = (uint32_t)cells;
    for (uint32_t i = 0; i < plan->hits.count; i++) plan->hits.items[i].probe = NONE;
    return 0;
}

static void add_planned_hit(struct join_plan *plan, const struct planned_hit *hit) {
    uint32_t mask = plan->hits.count - 1, at = mix_pair(hit->probe, hit->constant) & mask;
    while (plan->hits.items[at].probe != NONE) at = (at + 1) & mask;
    plan->hits.items[at] = *hit;
}

/* Note what hits set and report. */
static int add_hits(struct planner *planner) {
    const struct automaton *automaton = planner->automaton;
    struct join_plan *plan = planner->plan;
    const struct dataguide *guide = &automaton->guide;
    struct numbers seen = {NULL, 0, 0}; /* by bundle: the last hit that reports it, + 1 */
    int failed = fill(&seen, plan->bundles.count, 0) || add_hit_table(planner);
    for (uint32_t i = 0; !failed && i < guide->hits.count; i++) {
        const struct hit *hit = &guide->hits.items[i];
        if (planner->is_free.items[i]) continue;
        struct planned_hit planned = {hit->probe, hit->constant, plan->words.count, 0, plan->reports.count, 0};
        failed = add_words(planner, &hit->reach);
        for (uint32_t j = 0; !failed && j < hit->slots.count; j++) {
            uint32_t slot = hit->slots.items[j], bundle = plan->bundle_of.items[slot];
            if (bundle == NONE) {
                failed = PUSH(&plan->reports, slot | SINGLE);
            } else if (seen.items[bundle] != i + 1) {
                seen.items[bundle] = i + 1;
                failed = PUSH(&plan->reports, bundle);
            }
        }
        planned.word_count = plan->words.count - planned.words;
        planned.report_count = plan->reports.count - planned.reports;
        add_planned_hit(plan, &planned);
    }
    FREE_ARRAY(&seen);
    return failed ? -1 : 0;
}

/* Bring nodes up to date, and note which hits there are. */
static int collect(struct planner *planner) {
    struct automaton *automaton = planner->automaton;
    struct dataguide *guide = &automaton->guide;
    for (uint32_t i = 0; i < guide->nodes.count; i++) {
        const struct guide_node *node = &guide->nodes.items[i];
        if (node->depth <= MOST_DEPTH && node->depth >= planner->plan->depths)
            planner->plan->depths = node->depth + 1;
        if (node->flags & STALE && guide_refresh(automaton, i)) return -1;
    }
    if (RESERVE(&planner->is_free, guide->hits.count + 1)) return -1;
    memset(planner->is_free.items, 0, guide->hits.count);
    for (uint32_t i = 0; i < guide->free_hits.count; i++) planner->is_free.items[guide->free_hits.items[i]] = 1;
    return init_partition(&planner->positions, automaton->twigs.positions.count) ||
                   init_partition(&planner->slots, automaton->slots.count)
               ? -1
               : 0;
}

static int make(struct planner *planner) {
    struct automaton *automaton = planner->automaton;
    struct join_plan *plan = planner->plan;
    if (collect(planner) || find_classes(planner) || number_classes(planner)) return -1;
    if (RESERVE(&planner->row, plan->row_words) || RESERVE(&plan->accesses, plan->row_words) ||
        RESERVE(&plan->groups, plan->row_words))
        return -1;
    memset(planner->row.items, 0, (size_t)plan->row_words * 8);
    memset(plan->accesses.items, 0, (size_t)plan->row_words * 8);
    memset(plan->groups.items, 0, (size_t)plan->row_words * 8);
    for (uint32_t class = 0; class < plan->classes; class++) {
        if (plan->group_of.items[class] != NONE) plan->groups.items[class / 64] |= (uint64_t)1 << class % 64;
    }
    for (uint32_t i = 0; i < automaton->guide.nodes.count; i++) {
        const struct guide_node *node = &automaton->guide.nodes.items[i];
        if (PUSH(&plan->node_words, plan->words.count) || add_words(planner, &node->reach)) return -1;
    }
    plan->nodes = automaton->guide.nodes.count;
    if (PUSH(&plan->node_words, plan->words.count)) return -1;
    return add_hit_bundles(planner) || add_hits(planner) || plan_twigs(planner) ? -1 : 0;
}

int plan_make(struct automaton *automaton, const struct numbers *found) {
    if (freeze_results(automaton)) return -1; /* those that hold bundles */
    struct join_plan plan;
    memset(&plan, 0, sizeof plan);
    struct planner planner = {.automaton = automaton, .found = found, .plan = &plan};
    int failed = make(&planner);
    free_partition(&planner.positions);
    free_partition(&planner.slots);
    FREE_ARRAY(&planner.numbers);
    FREE_ARRAY(&planner.class_found);
    FREE_ARRAY(&planner.row);
    FREE_ARRAY(&planner.row_touched);
    free_pending(&planner);
    FREE_ARRAY(&planner.is_free);
    if (failed) {
        plan_free(&plan);
        return -1;
    }
    plan.number = automaton->plan.number + 1;
    if (plan.number == 0) plan.number = 1;
    plan.twig_changes = automaton->twigs.changes;
    plan.guide_changes = automaton->guide.changes;
    plan_free(&automaton->plan);
    automaton->plan = plan;
    return 0;
}
