/* One message against the automaton.

   A match is the consumer of a reader's events. It walks the dataguide, reports the classes and slots that it
   finds there, tests values, and joins twigs. It reads the automaton under the reader's lock; all that it
   writes is in its `scratch`, of which every thread has its own.

   When something is missing in the dataguide (a node, a probe, a hit), the match lets go of the lock, takes the
   writer's, makes it, and goes on. If an edit got in between, the message is read again from its start: so
   what a message matches belongs to one version of the queries.

   Twigs are joined by the join plan where it knows all that the message meets, else by masks: see twigs.h and
   join_plan.h. What is new to the plan ends the match, and the message is read again without it.

   Stamps say what was reported already: a number per message instead of clearing tables.

   Where elements nest deeper than the 64 bits of the masks, the message is read again in *loose* mode: then all
   anchors count as one, and twigs are found that may match (candidates), which the caller decides one by one. */
#ifndef SAPWOOD_MATCH_H
#define SAPWOOD_MATCH_H

#include "automaton.h"
#include "reader.h"

/* The values of a comparison group found below one anchor. */
struct comparison_values {
    uint32_t depth, next;
    double least, greatest;
    uint32_t constant;  /* of the text found, if all are the same; NONE: no query mentions it */
    uint8_t has_number; /* one that is not NaN */
    uint8_t has_nan, several_texts;
};

struct open_element {
    uint32_t node; /* TRANSIENT: the element's own */
    uint32_t number;
    size_t text_start; /* where its string-value starts in the text */
};

#define TRANSIENT NONE

struct scratch {
    struct reader *reader;
    uint32_t stamp; /* of the message */
    struct numbers slot_stamps, class_stamps, node_stamps, twig_stamps, bundle_stamps, last_at_node;
    struct ARRAY_OF(uint64_t) masks;       /* by position */
    struct ARRAY_OF(uint64_t) rows;        /* of the plan: by depth, so many words each: */
    uint32_t row_words;                    /* 0: the last message was matched without a plan */
    struct numbers set_at[MOST_DEPTH + 1]; /* the positions with the bit of a depth, or words of its row */
    struct numbers found;                  /* by position: how often it was set without a plan */
    struct numbers run_stamps, runs;           /* by predicate index and operator: the run that passed */
    struct numbers group_stamps, group_values; /* by group: the first of its values */
    struct ARRAY_OF(struct comparison_values) values;
    uint32_t free_values;
    struct ARRAY_OF(struct open_element) open;
    struct numbers names; /* of the open elements, from the root element down */
    struct ARRAY_OF(struct guide_node) transients; /* by depth */
    struct numbers state_stamps;
    uint32_t state_stamp;
    struct probe probe; /* of a transient node */
    struct ARRAY_OF(char) text;
    uint64_t text_number; /* counts texts: runs of messages in which string-values are wanted */
    struct ARRAY_OF(struct text_search) searches; /* by predicate index */
    struct ARRAY_OF(char) name;
    uint64_t overflow; /* bytes of nodes that the guide had no room for */
    uint64_t unplanned; /* anchors set and twigs checked without a plan, since one was made */
};

/* A run of the tests by one operator that a message has passed. */
struct passed_run {
    uint32_t index, operator, first, end;
};

struct matched {
    struct numbers classes, bundles, slots;
    struct ARRAY_OF(struct passed_run) runs;
    struct numbers candidates;             /* loose: slots that twigs may match */
    struct numbers bound_slots, bound_to;  /* slots that bind elements, and these */
    uint64_t count;                        /* subscriptions */
    int loose;
    int mixed; /* slots may be in the classes as well */
};

/* Positive statuses, beside those of readers. */
enum match_status {
    RESTART = 1, /* an edit came in between */
    TOO_DEEP,    /* for masks */
    UNKNOWN,     /* to the plan */
    NO_MEMORY,
};

struct match_options {
    int tokenizer; /* try it before expat */
    struct reader_limits limits;
};

struct match {
    struct automaton *automaton;
    struct scratch *scratch;
    struct matched *found;
    uint64_t version;
    const struct join_plan *plan; /* NULL: it is not used */
    uint32_t plan_number;
    int without_plan; /* because the message has something new */
    uint32_t splits_seen; /* of classes */
    uint32_t depth;   /* of the innermost open element */
    uint32_t element; /* the number of the last element that has started */
    uint32_t values_open; /* open elements whose string-value is tested */
    size_t text_node;     /* where the current text node starts in the text */
    int loose, with_twigs;
};

struct scratch *scratch_new(void);
void scratch_free(struct scratch *scratch);

void free_matched(struct matched *matched);

/* Match a message with the automaton of a result. Return READ, or a negative status of the readers. The caller
   holds no lock; the GIL is not needed. */
int match_message(struct result *result, struct scratch *scratch, struct span message, const char *encoding,
                  const struct match_options *options);

/* Have room for stamps of so many things; new ones are 0, which no message has. */
static inline int reserve_stamps(struct numbers *stamps, uint32_t count) {
    if (stamps->count >= count) return 0;
    if (RESERVE(stamps, count)) return -1;
    memset(stamps->items + stamps->count, 0, (size_t)(stamps->room - stamps->count) * 4);
    stamps->count = stamps->room;
    return 0;
}

/* Return a status that is not 0 at once; or NO_MEMORY, if an allocation fails. */
#define TRY(expression) \
    do { \
        int status_ = (expression); \
        if (status_) return status_; \
    } while (0)
#define TRY_MEMORY(expression) \
    do { \
        if (expression) return NO_MEMORY; \
    } while (0)

/* Make something under the writer's lock: `made` is assigned the expression, NONE if memory is out. Pointers
   into the dataguide and the twigs are no longer valid. */
#define MAKE(match, made, expression) \
    do { \
        TRY(begin_fill(match)); \
        (made) = (expression); \
        TRY(end_fill(match, (made) == NONE)); \
    } while (0)

int begin_fill(struct match *match);
int end_fill(struct match *match, int failed);

/* -- values (value_tests.c) -- */

/* Test a value of the innermost open element: an attribute, by its name, or TEXT_PROBE or VALUE_PROBE. */
int test_value(struct match *match, uint32_t name, struct span text);

/* -- twigs (twig_join.c) -- */

/* Set classes of the plan in the row of a depth. */
static inline int set_classes(struct match *match, uint32_t word, uint64_t bits, uint32_t depth) {
    struct scratch *scratch = match->scratch;
    uint64_t *at = &scratch->rows.items[(size_t)depth * scratch->row_words + word];
    if (*at == 0 && PUSH(&scratch->set_at[depth], word)) return NO_MEMORY;
    *at |= bits;
    return 0;
}

static inline int set_words(struct match *match, const struct anchor_word *word, uint32_t count) {
    for (; count > 0; word++, count--) TRY(set_classes(match, word->word, word->bits, word->depth));
    return 0;
}

/* Note that an anchoring, given by the position of its cell, was found with an anchor at a depth. */
static inline int set_anchor(struct match *match, uint32_t position, uint32_t depth) {
    struct scratch *scratch = match->scratch;
    if (match->plan) {
        if (position >= match->plan->positions || depth >= match->plan->depths) return UNKNOWN;
        uint32_t class = match->plan->class_of.items[position];
        if (class == NONE) return 0;
        if (class == UNKNOWN_CLASS) return UNKNOWN;
        return set_classes(match, class / 64, (uint64_t)1 << class % 64, depth);
    }
    if (match->loose) depth = 0;
    uint64_t bit = (uint64_t)1 << depth;
    if (scratch->masks.items[position] & bit) return 0;
    scratch->masks.items[position] |= bit;
    scratch->found.items[position]++;
    scratch->unplanned++;
    return PUSH(&scratch->set_at[depth], position) ? NO_MEMORY : 0;
}

static inline int set_anchors(struct match *match, const struct reaches *reach) {
    for (uint32_t i = 0; i < reach->count; i++)
        TRY(set_anchor(match, reach->items[i].position, reach->items[i].depth));
    return 0;
}

/* Note the same for an anchoring, whose anchors are found by its position. */
int set_anchoring(struct match *match, uint32_t anchoring);

/* Note a value of a comparison group. */
int add_comparison(struct match *match, uint32_t group, double number, uint32_t constant);

/* Check the twigs anchored at the element of a depth, which closes. */
int join_twigs(struct match *match, uint32_t depth);

/* -- reporting -- */

static inline int report_slot(struct match *match, uint32_t slot) {
    struct scratch *scratch = match->scratch;
    if (scratch->slot_stamps.items[slot] == scratch->stamp) return 0;
    scratch->slot_stamps.items[slot] = scratch->stamp;
    return PUSH(&match->found->slots, slot) ? NO_MEMORY : 0;
}

static inline int report_bundle(struct match *match, uint32_t bundle) {
    struct scratch *scratch = match->scratch;
    if (scratch->bundle_stamps.items[bundle] == scratch->stamp) return 0;
    scratch->bundle_stamps.items[bundle] = scratch->stamp;
    match->found->count += match->plan->bundles.items[bundle].weight;
    return PUSH(&match->found->bundles, bundle) ? NO_MEMORY : 0;
}

#endif
