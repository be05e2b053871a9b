#include "match.h"

#include "names.h"
#include "result.h"

/* -- scratch -------------------------------------------------------------------------------------------- */

struct scratch *scratch_new(void) {
    struct scratch *scratch = calloc(1, sizeof *scratch);
    if (scratch == NULL) return NULL;
    scratch->reader = reader_new();
    scratch->free_values = NONE;
    if (scratch->reader != NULL && !RESERVE(&scratch->text, 256)) return scratch; /* spans of no text need one */
    if (scratch->reader != NULL) reader_free(scratch->reader);
    free(scratch);
    return NULL;
}

void scratch_free(struct scratch *scratch) {
    if (scratch == NULL) return;
    reader_free(scratch->reader);
    FREE_ARRAY(&scratch->slot_stamps);
    FREE_ARRAY(&scratch->class_stamps);
    FREE_ARRAY(&scratch->node_stamps);
    FREE_ARRAY(&scratch->twig_stamps);
    FREE_ARRAY(&scratch->bundle_stamps);
    FREE_ARRAY(&scratch->rows);
    FREE_ARRAY(&scratch->found);
    FREE_ARRAY(&scratch->last_at_node);
    FREE_ARRAY(&scratch->masks);
    for (uint32_t i = 0; i <= MOST_DEPTH; i++) FREE_ARRAY(&scratch->set_at[i]);
    FREE_ARRAY(&scratch->run_stamps);
    FREE_ARRAY(&scratch->runs);
    FREE_ARRAY(&scratch->group_stamps);
    FREE_ARRAY(&scratch->group_values);
    FREE_ARRAY(&scratch->values);
    FREE_ARRAY(&scratch->open);
    FREE_ARRAY(&scratch->names);
    for (uint32_t i = 0; i < scratch->transients.count; i++) free_node(&scratch->transients.items[i]);
    FREE_ARRAY(&scratch->transients);
    FREE_ARRAY(&scratch->state_stamps);
    FREE_ARRAY(&scratch->probe.indexes);
    for (uint32_t i = 0; i < scratch->searches.count; i++) FREE_ARRAY(&scratch->searches.items[i].found);
    FREE_ARRAY(&scratch->searches);
    FREE_ARRAY(&scratch->text);
    FREE_ARRAY(&scratch->name);
    free(scratch);
}

void free_matched(struct matched *matched) {
    FREE_ARRAY(&matched->classes);
    FREE_ARRAY(&matched->bundles);
    FREE_ARRAY(&matched->runs);
    FREE_ARRAY(&matched->slots);
    FREE_ARRAY(&matched->candidates);
    FREE_ARRAY(&matched->bound_slots);
    FREE_ARRAY(&matched->bound_to);
}

static int reserve_scratch(struct match *match) {
    struct scratch *scratch = match->scratch;
    const struct automaton *automaton = match->automaton;
    uint32_t positions = automaton->twigs.positions.count;
    if (scratch->masks.count < positions) {
        if (RESERVE(&scratch->masks, positions)) return -1;
        memset(scratch->masks.items + scratch->masks.count, 0,
               (size_t)(scratch->masks.room - scratch->masks.count) * sizeof *scratch->masks.items);
        scratch->masks.count = scratch->masks.room;
    }
    return reserve_stamps(&scratch->slot_stamps, automaton->slots.count) ||
                   reserve_stamps(&scratch->class_stamps, automaton->classes.items.count) ||
                   reserve_stamps(&scratch->node_stamps, automaton->guide.nodes.count) ||
                   reserve_stamps(&scratch->last_at_node, automaton->guide.nodes.count) ||
                   reserve_stamps(&scratch->twig_stamps, automaton->twigs.items.count) ||
                   reserve_stamps(&scratch->bundle_stamps, automaton->plan.bundles.count) ||
                   reserve_stamps(&scratch->found, positions) ||
                   reserve_stamps(&scratch->group_stamps, automaton->twigs.groups.count) ||
                   reserve_stamps(&scratch->group_values, automaton->twigs.groups.count)
               ? -1
               : 0;
}

static void clear_stamps(struct scratch *scratch) {
    struct numbers *all[] = {&scratch->slot_stamps, &scratch->class_stamps, &scratch->node_stamps,
                             &scratch->twig_stamps, &scratch->group_stamps, &scratch->bundle_stamps,
                             &scratch->run_stamps};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i]->items) memset(all[i]->items, 0, (size_t)all[i]->count * 4);
    }
    scratch->stamp = 1;
}

/* -- locks ---------------------------------------------------------------------------------------------- */

/* Exchange the reader's lock for the writer's. */
int begin_fill(struct match *match) {
    struct automaton *automaton = match->automaton;
    unlock_read(&automaton->lock);
    lock_write(&automaton->lock);
    if (automaton->version == match->version && automaton->plan.number == match->plan_number) return 0;
    unlock_write(&automaton->lock);
    lock_read(&automaton->lock);
    return RESTART;
}

/* Count what was split off classes that are reported already as reported: it is counted with them. */
static int follow_splits(struct match *match) {
    struct scratch *scratch = match->scratch;
    for (; match->splits_seen < match->automaton->splits.count; match->splits_seen++) {
        struct split split = match->automaton->splits.items[match->splits_seen];
        if (scratch->class_stamps.items[split.from] != scratch->stamp) continue;
        scratch->class_stamps.items[split.to] = scratch->stamp;
        if (PUSH(&match->found->classes, split.to)) return -1;
    }
    return 0;
}

/* Memory is out in the middle of a fill: forget what is filled in, part of which is half made. */
static void abandon_fill(struct automaton *automaton) {
    if (automaton_clear(automaton)) automaton->damaged = 1;
}

int end_fill(struct match *match, int failed) {
    struct automaton *automaton = match->automaton;
    if (failed) abandon_fill(automaton);
    unlock_write(&automaton->lock);
    lock_read(&automaton->lock);
    if (failed) return NO_MEMORY;
    if (automaton->version != match->version || automaton->plan.number != match->plan_number) return RESTART;
    /* Not before: others may have filled in more between the two locks. */
    return reserve_scratch(match) || follow_splits(match) ? NO_MEMORY : 0;
}

/* -- text ----------------------------------------------------------------------------------------------- */

static inline const struct guide_node *node_at(const struct match *match, uint32_t depth) {
    uint32_t node = match->scratch->open.items[depth].node;
    return node == TRANSIENT ? &match->scratch->transients.items[depth] : &match->automaton->guide.nodes.items[node];
}

static int on_text(void *consumer, const char *bytes, size_t length) {
    struct match *match = consumer;
    struct scratch *scratch = match->scratch;
    if (match->values_open == 0 && node_at(match, match->depth)->text_probe == NONE) return 0;
    if (length > UINT32_MAX - scratch->text.count || RESERVE(&scratch->text, scratch->text.count + (uint32_t)length))
        return NO_MEMORY;
    memcpy(scratch->text.items + scratch->text.count, bytes, length);
    scratch->text.count += (uint32_t)length;
    return 0;
}

/* End a text node: at a tag, a comment or a processing instruction. */
static int end_text_node(struct match *match) {
    struct scratch *scratch = match->scratch;
    if (scratch->text.count == match->text_node) return 0;
    int status = 0;
    if (node_at(match, match->depth)->text_probe != NONE) {
        struct span text = {scratch->text.items + match->text_node, scratch->text.count - match->text_node};
        status = test_value(match, TEXT_PROBE, text);
    }
    if (match->values_open == 0) scratch->text.count = 0;
    match->text_node = scratch->text.count;
    return status;
}

static int on_boundary(void *consumer) { return end_text_node(consumer); }

/* -- elements ------------------------------------------------------------------------------------------- */

/* Set the anchorings of a node by the plan: see `visit`. */
static int visit_planned(struct match *match, uint32_t number, uint32_t reach, uint32_t last) {
    const struct join_plan *plan = match->plan;
    if (number >= plan->nodes) return reach ? UNKNOWN : 0;
    const uint32_t *first = &plan->node_words.items[number];
    const struct anchor_word *word = plan->words.items + first[0], *end = plan->words.items + first[1];
    for (; word < end; word++) {
        if (match->scratch->open.items[word->depth].number <= last && last != 0) break;
        TRY(set_classes(match, word->word, word->bits, word->depth));
    }
    return 0;
}

/* Report the queries whose paths end at a node, and the anchorings. */
static int visit(struct match *match, uint32_t number) {
    struct scratch *scratch = match->scratch;
    struct automaton *automaton = match->automaton;
    const struct guide_node *node = number == TRANSIENT ? &scratch->transients.items[match->depth]
                                                        : &automaton->guide.nodes.items[number];
    if (number == TRANSIENT) {
        for (uint32_t i = 0; i < node->slots.count; i++) TRY(report_slot(match, node->slots.items[i]));
        for (uint32_t i = 0; match->with_twigs && i < node->members.count; i++) {
            FOR_POSTINGS(&automaton->trie.postings, automaton->trie.states.items[node->members.items[i]].posted,
                         kind, posted, {
                             if (kind == POST_ANCHORING) TRY(set_anchoring(match, posted));
                         });
        }
        return 0;
    }
    if (node->flags & STALE) {
        uint32_t refreshed;
        MAKE(match, refreshed, guide_refresh(automaton, number) ? NONE : number);
        node = &automaton->guide.nodes.items[refreshed];
    }
    uint32_t last = 0;
    if (scratch->node_stamps.items[number] != scratch->stamp) {
        scratch->node_stamps.items[number] = scratch->stamp;
        for (uint32_t i = 0; i < node->classes.count; i++) {
            uint32_t class = node->classes.items[i];
            if (scratch->class_stamps.items[class] == scratch->stamp) continue;
            scratch->class_stamps.items[class] = scratch->stamp;
            match->found->count += automaton->classes.items.items[class].weight;
            TRY_MEMORY(PUSH(&match->found->classes, class));
        }
        for (uint32_t i = 0; i < node->slots.count; i++) TRY(report_slot(match, node->slots.items[i]));
    } else {
        last = scratch->last_at_node.items[number];
    }
    scratch->last_at_node.items[number] = match->element;
    /* An anchor that was open when the last element of this node started has got all of this already; the
       deepest, which are the youngest, come first. */
    if (match->plan) return visit_planned(match, number, node->reach.count, last);
    const struct reach *reach = node->reach.items, *end = reach + node->reach.count;
    for (; reach < end; reach++) {
        if (scratch->open.items[reach->depth].number <= last && last != 0 && !match->loose) break;
        TRY(set_anchor(match, reach->position, reach->depth));
    }
    return 0;
}

static int resolve(struct match *match, struct name *name) {
    if (name->symbol != UNRESOLVED) return 0;
    struct scratch *scratch = match->scratch;
    size_t room = name->expanded.length + 3;
    TRY_MEMORY(room > UINT32_MAX || RESERVE(&scratch->name, (uint32_t)room));
    struct composite composite;
    uint32_t symbol = resolve_name(match->automaton, name, scratch->name.items, &composite);
    if (symbol == NONE) MAKE(match, symbol, guide_make_composite(match->automaton, composite));
    name->symbol = symbol;
    return 0;
}

/* Find the guide node of an element whose parent is the innermost open one, or make one for this message. */
static int find_node(struct match *match, uint32_t name, uint32_t *found) {
    struct scratch *scratch = match->scratch;
    struct automaton *automaton = match->automaton;
    uint32_t parent = scratch->open.items[match->depth].node;
    if (parent != TRANSIENT) {
        *found = parent;
        if (automaton->guide.nodes.items[parent].flags & DEAD_END) return 0;
        *found = guide_child(&automaton->guide, parent, name);
        if (*found != NONE) return 0;
        if (guide_has_room(&automaton->guide)) {
            MAKE(match, *found, guide_make_child(automaton, parent, name));
            return 0;
        }
    }
    if (match->plan) return UNKNOWN;
    *found = TRANSIENT;
    match->found->mixed = 1;
    uint32_t depth = match->depth + 1;
    while (scratch->transients.count <= depth) {
        TRY_MEMORY(RESERVE(&scratch->transients, scratch->transients.count + 1));
        memset(&scratch->transients.items[scratch->transients.count++], 0, sizeof(struct guide_node));
    }
    free_node(&scratch->transients.items[depth]);
    const struct guide_node *above = parent == TRANSIENT ? &scratch->transients.items[depth - 1]
                                                         : &automaton->guide.nodes.items[parent];
    TRY_MEMORY(guide_make_transient(automaton, above, name, &scratch->transients.items[depth],
                                    &scratch->state_stamps, &scratch->state_stamp));
    scratch->overflow += sizeof(struct guide_node) + 4 * (uint64_t)scratch->transients.items[depth].members.count;
    return 0;
}

static int on_start(void *consumer, struct name *name, const struct attribute *attributes, size_t count) {
    struct match *match = consumer;
    struct scratch *scratch = match->scratch;
    TRY(end_text_node(match));
    TRY(resolve(match, name));
    if (match->depth == MOST_DEPTH && match->with_twigs && !match->loose) return TOO_DEEP;
    uint32_t node;
    TRY(find_node(match, name->symbol, &node));
    match->depth++;
    match->element++;
    scratch->open.count = scratch->names.count = match->depth;
    scratch->names.count--;
    TRY_MEMORY(PUSH(&scratch->open, ((struct open_element){node, match->element, scratch->text.count})));
    TRY_MEMORY(PUSH(&scratch->names, name->symbol));
    TRY(visit(match, node));
    if (node_at(match, match->depth)->value_probe != NONE && match->values_open++ == 0) scratch->text_number++;
    for (size_t i = 0; i < count && node_at(match, match->depth)->flags & HAS_ATTRIBUTES; i++) {
        TRY(resolve(match, attributes[i].name));
        TRY(test_value(match, attributes[i].name->symbol, attributes[i].value));
    }
    return 0;
}

static int on_end(void *consumer) {
    struct match *match = consumer;
    struct scratch *scratch = match->scratch;
    TRY(end_text_node(match));
    if (node_at(match, match->depth)->value_probe != NONE) {
        size_t start = scratch->open.items[match->depth].text_start;
        struct span text = {scratch->text.items + start, scratch->text.count - start};
        TRY(test_value(match, VALUE_PROBE, text));
        if (--match->values_open == 0) scratch->text.count = match->text_node = 0;
    }
    if (match->with_twigs && !match->loose) TRY(join_twigs(match, match->depth));
    match->depth--;
    return 0;
}

/* -- messages ------------------------------------------------------------------------------------------- */

/* Clear what a message left that was not read to its end. */
static void clear_anchors(struct scratch *scratch) {
    for (uint32_t depth = 0; depth <= MOST_DEPTH; depth++) {
        struct numbers *set = &scratch->set_at[depth];
        for (uint32_t i = 0; i < set->count; i++) {
            if (scratch->row_words)
                scratch->rows.items[(size_t)depth * scratch->row_words + set->items[i]] = 0;
            else
                scratch->masks.items[set->items[i]] = 0;
        }
        set->count = 0;
    }
}

/* Decide whether the plan is used. */
static int begin_plan(struct match *match) {
    struct scratch *scratch = match->scratch;
    const struct join_plan *plan = &match->automaton->plan;
    match->plan_number = plan->number;
    match->plan = NULL;
    scratch->row_words = 0;
    if (match->loose || match->without_plan || !plan_is_valid(match->automaton)) return 0;
    uint64_t words = (uint64_t)plan->depths * plan->row_words;
    if (scratch->rows.count < words) { /* all words are 0 between messages */
        if (words > UINT32_MAX / 2 || RESERVE(&scratch->rows, (uint32_t)words)) return -1;
        memset(scratch->rows.items + scratch->rows.count, 0,
               (size_t)(scratch->rows.room - scratch->rows.count) * sizeof *scratch->rows.items);
        scratch->rows.count = scratch->rows.room;
    }
    scratch->row_words = plan->row_words;
    match->plan = plan;
    return 0;
}

static int begin(struct match *match) {
    struct scratch *scratch = match->scratch;
    struct matched *found = match->found;
    found->classes.count = found->slots.count = found->candidates.count = found->bundles.count = 0;
    found->runs.count = found->bound_slots.count = found->bound_to.count = 0;
    found->count = 0;
    found->mixed = 0;
    clear_anchors(scratch);
    TRY_MEMORY(begin_plan(match));
    scratch->values.count = 0;
    scratch->free_values = NONE;
    scratch->text.count = 0;
    if (++scratch->stamp == 0) clear_stamps(scratch);
    match->depth = match->element = match->values_open = 0;
    match->text_node = 0;
    match->with_twigs = match->automaton->twigs.count != 0;
    match->version = match->automaton->version;
    match->splits_seen = match->automaton->splits.count;
    scratch->open.count = scratch->names.count = 0;
    TRY_MEMORY(reserve_scratch(match) || PUSH(&scratch->open, ((struct open_element){ROOT_NODE, 0, 0})));
    scratch->text_number++;
    if (match->automaton->guide.nodes.items[ROOT_NODE].value_probe != NONE) match->values_open++;
    return visit(match, ROOT_NODE);
}

static int finish(struct match *match) {
    struct scratch *scratch = match->scratch;
    if (match->automaton->guide.nodes.items[ROOT_NODE].value_probe != NONE) {
        struct span text = {scratch->text.items, scratch->text.count};
        TRY(test_value(match, VALUE_PROBE, text));
    }
    if (match->with_twigs) TRY(join_twigs(match, 0));
    match->found->loose = match->loose;
    return 0;
}

/* Read the message once by one reader. */
static int run(struct match *match, struct span message, const char *encoding, const struct match_options *options,
               int tokenizer) {
    static const struct handlers handlers = {on_start, on_end, on_text, on_boundary, NULL};
    static const struct handlers without_text = {on_start, on_end, NULL, NULL, NULL};
    TRY(begin(match));
    const struct handlers *used = match->automaton->text_indexes ? &handlers : &without_text;
    struct reader *reader = match->scratch->reader;
    reader_keep_symbols(reader, match->automaton->name_version);
    int status = tokenizer ? tokenizer_read(reader, message, &options->limits, used, match)
                           : expat_read(reader, message, encoding, &options->limits, used, match);
    return status ? status : finish(match);
}

/* Return whether messages without a plan have cost as much as one. */
static int needs_plan(const struct scratch *scratch, const struct automaton *automaton) {
    return scratch->unplanned > plan_cost(automaton);
}

/* Do what has to be done between messages: sort new tests, plan the join, and drop a guide that has long been
   too small. */
static int prepare(struct match *match) {
    struct automaton *automaton = match->automaton;
    int is_full = match->scratch->overflow > automaton->guide.budget && automaton->guide.budget;
    int plans = needs_plan(match->scratch, automaton);
    if (automaton_is_prepared(automaton) && !is_full && !plans) return 0;
    unlock_read(&automaton->lock);
    lock_write(&automaton->lock);
    int failed = automaton_prepare(automaton) || (is_full && automaton_clear(automaton));
    if (is_full) match->scratch->overflow = 0;
    if (plans) {
        failed = failed || plan_make(automaton, &match->scratch->found);
        match->scratch->unplanned = 0;
    }
    if (failed) abandon_fill(automaton);
    unlock_write(&automaton->lock);
    lock_read(&automaton->lock);
    if (failed) return NO_MEMORY;
    return automaton_is_prepared(automaton) ? 0 : RESTART; /* an edit may have come in between */
}

/* Complete a result, which may be read when the lock is gone. */
static int complete(struct result *result) {
    struct matched *matched = &result->matched;
    result->version = result->automaton->version;
    result->splits_seen = result->automaton->splits.count;
    for (uint32_t i = 0; i < matched->slots.count; i++) /* here, where nothing else waits for memory */
        matched->count += result->automaton->slots.items[matched->slots.items[i]].weight;
    if (matched->mixed) { /* slots of classes are listed one by one as well: count each once */
        struct numbers slots = {NULL, 0, 0};
        if (result_slots(result, &slots)) return FREE_ARRAY(&slots), NO_MEMORY;
        matched->count = 0;
        for (uint32_t i = 0; i < slots.count; i++) matched->count += result->automaton->slots.items[slots.items[i]].weight;
        FREE_ARRAY(&matched->slots);
        matched->slots = slots;
        matched->classes.count = matched->runs.count = 0;
    }
    if (matched->classes.count || matched->bundles.count || matched->runs.count) result_link(result);
    return READ;
}

int match_message(struct result *result, struct scratch *scratch, struct span message, const char *encoding,
                  const struct match_options *options) {
    struct automaton *automaton = result->automaton;
    struct match match = {.automaton = automaton, .scratch = scratch, .found = &result->matched};
    int tokenizer = options->tokenizer && (encoding == NULL || strcmp(encoding, "utf-8") == 0), status;
    lock_read(&automaton->lock);
    for (;;) {
        status = automaton->damaged ? NO_MEMORY : prepare(&match);
        if (status == 0) status = run(&match, message, encoding, options, tokenizer);
        if (status == GAVE_UP && tokenizer)
            tokenizer = 0;
        else if (status == TOO_DEEP)
            match.loose = 1;
        else if (status == UNKNOWN)
            match.without_plan = 1;
        else if (status != RESTART)
            break;
    }
    if (status == READ) status = complete(result);
    unlock_read(&automaton->lock);
    return status == NO_MEMORY ? OUT_OF_MEMORY : status;
}
