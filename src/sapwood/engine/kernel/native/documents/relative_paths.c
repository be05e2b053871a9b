#include "relative_paths.h"

#include "names.h"

int relative_paths_init(struct relative_paths *paths, struct hash_key key, uint64_t budget) {
    return automaton_init(&paths->automaton, key, budget);
}

void relative_paths_free(struct relative_paths *paths) {
    automaton_free(&paths->automaton);
    FREE_ARRAY(&paths->number_of);
    FREE_ARRAY(&paths->path_of);
    FREE_ARRAY(&paths->reach);
    FREE_ARRAY(&paths->ends);
    FREE_ARRAY(&paths->buffer);
}

/* -- edits ----------------------------------------------------------------------------------------------- */

/* Have room for an item, and fill up with NONE. */
static int reserve_numbers(struct numbers *numbers, uint32_t item) {
    while (numbers->count <= item) {
        if (PUSH(numbers, NONE)) return -1;
    }
    return 0;
}

static int add_path(struct relative_paths *paths, uint32_t number, const struct span *path, uint32_t length) {
    struct automaton *automaton = &paths->automaton;
    if (automaton_begin_edit(automaton)) return -1;
    uint32_t added = automaton_add_relative_path(automaton, path, length);
    if (added == NONE || reserve_numbers(&paths->number_of, added)) return -1;
    if (reserve_numbers(&paths->path_of, number)) return -1;
    paths->number_of.items[added] = number;
    paths->path_of.items[number] = added;
    return automaton_end_edit(automaton);
}

int relative_paths_add(struct relative_paths *paths, uint32_t number, const struct span *path,
                       uint32_t length) {
    lock_write(&paths->automaton.lock);
    int failed = add_path(paths, number, path, length);
    if (failed) paths->automaton.damaged = 1;
    unlock_write(&paths->automaton.lock);
    return failed;
}

static int remove_path(struct relative_paths *paths, uint32_t number) {
    if (number >= paths->path_of.count || paths->path_of.items[number] == NONE) return 0;
    if (automaton_begin_edit(&paths->automaton)) return -1;
    automaton_remove_relative_path(&paths->automaton, paths->path_of.items[number]);
    paths->path_of.items[number] = NONE;
    return automaton_end_edit(&paths->automaton);
}

int relative_paths_remove(struct relative_paths *paths, uint32_t number) {
    lock_write(&paths->automaton.lock);
    int failed = remove_path(paths, number);
    if (failed) paths->automaton.damaged = 1;
    unlock_write(&paths->automaton.lock);
    return failed;
}

int relative_paths_clear(struct relative_paths *paths) {
    lock_write(&paths->automaton.lock);
    int failed = automaton_clear(&paths->automaton);
    if (failed) paths->automaton.damaged = 1;
    unlock_write(&paths->automaton.lock);
    return failed;
}

/* -- the reach of guide nodes ---------------------------------------------------------------------------- */

/* Return whether a `//` stands in a path behind the one that it begins with. */
static int is_deep(const struct path_trie *trie, uint32_t state) {
    const struct trie_state *states = trie->states.items;
    for (; states[state].parent != ROOT; state = states[state].parent) {
        if (states[state].symbol == DESCENDANT) return 1;
    }
    return 0;
}

/* Add the ends of one path, whose last state a node has. */
static int add_ends(struct relative_paths *paths, uint32_t node, uint32_t state, uint32_t number) {
    const struct automaton *automaton = &paths->automaton;
    uint32_t depth = automaton->guide.nodes.items[node].depth;
    if (!is_deep(&automaton->trie, state)) {
        uint32_t start = depth - (steps_to(&automaton->trie, state) - 1);
        return PUSH(&paths->ends, ((struct path_end){number, start}));
    }
    uint32_t names[MOST_DEPTH];
    collect_tag_path(&automaton->guide, node, names);
    for (uint64_t depths = free_depths(automaton, state, 1, names, depth); depths; depths &= depths - 1) {
        if (PUSH(&paths->ends, ((struct path_end){number, lowest_bit(depths)}))) return -1;
    }
    return 0;
}

static int fill_reach(struct relative_paths *paths, uint32_t node) {
    struct automaton *automaton = &paths->automaton;
    uint32_t first = paths->ends.count;
    for (uint32_t i = 0; i < automaton->guide.nodes.items[node].members.count; i++) {
        uint32_t state = automaton->guide.nodes.items[node].members.items[i];
        FOR_POSTINGS(&automaton->trie.postings, automaton->trie.states.items[state].posted, kind, posted, {
            if (kind != POST_RELATIVE) continue;
            if (add_ends(paths, node, state, paths->number_of.items[posted])) return -1;
        });
    }
    uint32_t count = paths->ends.count - first;
    paths->reach.items[node] = (struct path_reach){first, count};
    automaton->guide.spent += sizeof(struct path_reach) + sizeof(struct path_end) * (uint64_t)count;
    return 0;
}

/* Return what is reached at the elements of a node; NULL: memory is out. */
static const struct path_reach *reach_of(struct relative_paths *paths, uint32_t node) {
    while (paths->reach.count <= node) {
        if (PUSH(&paths->reach, ((struct path_reach){NONE, 0}))) return NULL;
    }
    if (paths->reach.items[node].first == NONE && fill_reach(paths, node)) return NULL;
    return &paths->reach.items[node];
}

/* -- documents ------------------------------------------------------------------------------------------- */

/* A walk over the elements below those from which paths start. */
struct walk {
    struct relative_paths *paths;
    const struct reached_request *request;
    struct reached *reached;
    uint32_t *node_of; /* by element: its guide node, NONE if not yet looked up */
    uint32_t *name_of; /* by the document's number of a name: the automaton's, NONE if not yet looked up */
    uint8_t *is_start; /* by element */
    uint32_t line[MOST_DEPTH + 1]; /* the elements from the document down to the current one */
};

/* Return the automaton's number of a name of the document; NONE: memory is out. */
static uint32_t resolve(struct walk *walk, uint32_t number) {
    struct automaton *automaton = &walk->paths->automaton;
    if (walk->name_of[number] != NONE) return walk->name_of[number];
    struct name name = {walk->request->names[number], 0, UNRESOLVED};
    struct composite composite;
    if (name.expanded.length > UINT32_MAX - 3) return NONE;
    if (RESERVE(&walk->paths->buffer, (uint32_t)name.expanded.length + 3)) return NONE;
    uint32_t found = resolve_name(automaton, &name, walk->paths->buffer.items, &composite);
    if (found == NONE) found = guide_make_composite(automaton, composite);
    return walk->name_of[number] = found;
}

/* Find the guide node of an element, and those of its ancestors. Return 0, -1 or TOO_DEEP_TO_REACH. */
static int find_node(struct walk *walk, uint32_t element) {
    const struct document *document = walk->request->document;
    struct automaton *automaton = &walk->paths->automaton;
    uint32_t above[MOST_DEPTH + 1], count = 0;
    for (; walk->node_of[element] == NONE; element = document->parent[element]) {
        if (count > MOST_DEPTH) return TOO_DEEP_TO_REACH;
        above[count++] = element;
    }
    uint32_t node = walk->node_of[element];
    while (count) {
        element = above[--count];
        uint32_t name = resolve(walk, document->name[element]);
        if (name == NONE) return -1;
        uint32_t child = guide_child(&automaton->guide, node, name);
        if (child == NONE) child = guide_make_child(automaton, node, name);
        if (child == NONE) return -1;
        if (automaton->guide.nodes.items[child].depth > MOST_DEPTH) return TOO_DEEP_TO_REACH;
        walk->node_of[element] = node = child;
    }
    return 0;
}

static int visit(struct walk *walk, uint32_t element) {
    const uint32_t *parent = walk->request->document->parent;
    struct reached *reached = walk->reached;
    int status = walk->node_of[element] == NONE ? find_node(walk, element) : 0;
    if (status) return status;
    uint32_t node = walk->node_of[element], depth = walk->paths->automaton.guide.nodes.items[node].depth;
    for (uint32_t at = element; walk->line[depth] != at; at = parent[at]) {
        walk->line[depth] = at;
        if (depth-- == 0) break;
    }
    const struct path_reach *reach = reach_of(walk->paths, node);
    if (reach == NULL) return -1;
    const struct path_end *end = walk->paths->ends.items + reach->first;
    for (uint32_t i = 0; i < reach->count; i++) {
        uint32_t start = walk->line[end[i].depth];
        if (!walk->request->inside && !walk->is_start[start]) continue;
        if (PUSH(&reached->number, end[i].number) || PUSH(&reached->start, start)) return -1;
        if (PUSH(&reached->end, element)) return -1;
    }
    return 0;
}

/* Visit the descendants of all starts, each once, in document order. */
static int visit_all(struct walk *walk) {
    const struct document *document = walk->request->document;
    uint32_t done = 0;
    for (uint32_t i = 0; i < walk->request->count; i++) {
        uint32_t start = walk->request->starts[i], end = document->end[start];
        for (uint32_t element = start + 1 > done ? start + 1 : done; element < end; element++) {
            int status = visit(walk, element);
            if (status) return status;
        }
        if (end > done) done = end;
    }
    return 0;
}

static inline uint32_t group_hash(const struct reached *reached, uint32_t group) {
    return mix_pair(reached->groups.items[group].number, reached->groups.items[group].start);
}

TABLE_FUNCTIONS(groups, const struct reached, group_hash)

uint32_t reached_group(const struct reached *reached, uint32_t number, uint32_t start) {
    uint32_t found;
    const struct reached_group *groups = reached->groups.items;
    FIND_IN(&reached->by_path, mix_pair(number, start), group,
            groups[group].number == number && groups[group].start == start, found);
    return found;
}

/* Chain the triples of each path and start. */
static int chain_groups(struct reached *reached) {
    if (RESERVE(&reached->next, reached->end.count)) return -1;
    for (uint32_t i = 0; i < reached->end.count; i++) {
        uint32_t number = reached->number.items[i], start = reached->start.items[i];
        uint32_t known = reached_group(reached, number, start);
        reached->next.items[i] = NONE;
        if (known != NONE) {
            struct reached_group *group = &reached->groups.items[known];
            reached->next.items[group->last] = i;
            group->last = i;
            group->count++;
        } else if (PUSH(&reached->groups, ((struct reached_group){number, start, i, i, 1})) ||
                   groups_insert(reached, &reached->by_path, reached->groups.count - 1)) {
            return -1;
        }
    }
    reached->next.count = reached->end.count;
    return 0;
}

static int begin_walk(struct walk *walk, uint32_t names) {
    uint32_t elements = walk->request->document->elements;
    walk->node_of = malloc((size_t)elements * 4);
    walk->name_of = malloc((size_t)names * 4);
    walk->is_start = calloc(elements, 1);
    if (walk->node_of == NULL || walk->name_of == NULL || walk->is_start == NULL) return -1;
    memset(walk->node_of, 0xff, (size_t)elements * 4);
    memset(walk->name_of, 0xff, (size_t)names * 4);
    memset(walk->line, 0xff, sizeof walk->line);
    walk->node_of[0] = ROOT_NODE;
    for (uint32_t i = 0; i < walk->request->count; i++) walk->is_start[walk->request->starts[i]] = 1;
    return 0;
}

/* Forget what is no longer true, and make room. */
static int prepare(struct relative_paths *paths) {
    struct automaton *automaton = &paths->automaton;
    if (!guide_has_room(&automaton->guide) && automaton_clear(automaton)) return automaton->damaged = 1, -1;
    if (paths->version != automaton->version) paths->reach.count = paths->ends.count = 0;
    paths->version = automaton->version;
    return 0;
}

int find_reached(struct relative_paths *paths, const struct reached_request *request,
                 struct reached *reached) {
    struct walk walk = {.paths = paths, .request = request, .reached = reached};
    uint32_t names = 1;
    for (uint32_t i = 1; i < request->document->elements; i++) {
        if (request->document->name[i] >= names) names = request->document->name[i] + 1;
    }
    int status = begin_walk(&walk, names);
    lock_write(&paths->automaton.lock);
    if (paths->automaton.damaged) status = -1;
    if (status == 0) status = prepare(paths);
    if (status == 0) status = visit_all(&walk);
    unlock_write(&paths->automaton.lock);
    if (status == 0) status = chain_groups(reached);
    free(walk.node_of);
    free(walk.name_of);
    free(walk.is_start);
    return status;
}

void reached_free(struct reached *reached) {
    FREE_ARRAY(&reached->number);
    FREE_ARRAY(&reached->start);
    FREE_ARRAY(&reached->end);
    FREE_ARRAY(&reached->next);
    FREE_ARRAY(&reached->groups);
    free_table(&reached->by_path);
}
