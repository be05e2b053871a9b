/* Names in messages, and the name tests that they pass: itself, `*`, `uri}*`, and `\0}local` for a local name
   in any namespace. Few queries test for namespaces, so a name is first looked up as it is; the other tests are
   looked up only while some query uses such tests. Nothing is stored for a name that no query mentions: data
   with ever new names costs nothing. */
#include "names.h"

static struct span uri_of(struct span name) {
    for (size_t i = name.length; i-- > 0;) {
        if (name.bytes[i] == '}') return (struct span){name.bytes, i};
    }
    return (struct span){name.bytes, 0};
}

static struct span local_of(struct span name) {
    struct span uri = uri_of(name);
    size_t skip = uri.length ? uri.length + 1 : name.length && name.bytes[0] == '}' ? 1 : 0;
    return (struct span){name.bytes + skip, name.length - skip};
}

/* Return the symbols of the tests by namespace and by local name that a name passes, NONE where not in use. */
static struct composite tests_by_part(const struct automaton *automaton, struct span name, char *buffer) {
    struct composite found = {NONE, NONE};
    struct span uri = uri_of(name), local = local_of(name);
    if (automaton->namespace_tests && uri.length) {
        memcpy(buffer, uri.bytes, uri.length);
        memcpy(buffer + uri.length, "}*", 2);
        found.by_namespace = strings_find(&automaton->names, (struct span){buffer, uri.length + 2});
    }
    if (automaton->any_namespace_tests) {
        buffer[0] = 0;
        buffer[1] = '}';
        memcpy(buffer + 2, local.bytes, local.length);
        found.by_local = strings_find(&automaton->names, (struct span){buffer, local.length + 2});
    }
    return found;
}

uint32_t resolve_name(const struct automaton *automaton, const struct name *name, char *buffer,
                      struct composite *composite) {
    uint32_t exact = strings_find(&automaton->names, name->expanded);
    if (exact != NONE) return exact;
    if (automaton->namespace_tests == 0 && automaton->any_namespace_tests == 0) return OTHER;
    *composite = tests_by_part(automaton, name->expanded, buffer);
    if (composite->by_namespace == NONE && composite->by_local == NONE) return OTHER;
    return guide_composite(&automaton->guide, composite->by_namespace, composite->by_local);
}

/* Return the symbols of all tests in use that a name passes, at most four; `buffer` has room for the name and
   three bytes. */
uint32_t tests_of_name(const struct automaton *automaton, uint32_t name, char *buffer, uint32_t tests[4]) {
    uint32_t count = 0;
    struct composite by_part = {NONE, NONE};
    tests[count++] = ANY;
    if (name & COMPOSITE_NAME) {
        by_part = automaton->guide.composites.items[name & ~COMPOSITE_NAME];
    } else if (name != OTHER) {
        tests[count++] = name;
        by_part = tests_by_part(automaton, strings_text(&automaton->names, name), buffer);
    }
    if (by_part.by_namespace != NONE) tests[count++] = by_part.by_namespace;
    if (by_part.by_local != NONE) tests[count++] = by_part.by_local;
    return count;
}

int name_passes(const struct automaton *automaton, uint32_t name, uint32_t symbol) {
    if (symbol == ANY || symbol == name) return 1;
    if (name & COMPOSITE_NAME) {
        const struct composite *composite = &automaton->guide.composites.items[name & ~COMPOSITE_NAME];
        return symbol == composite->by_namespace || symbol == composite->by_local;
    }
    if (name == OTHER || (automaton->namespace_tests == 0 && automaton->any_namespace_tests == 0)) return 0;
    struct span text = strings_text(&automaton->names, name), test = strings_text(&automaton->names, symbol);
    if (test.length >= 2 && test.bytes[0] == 0 && test.bytes[1] == '}') {
        struct span local = local_of(text);
        return local.length + 2 == test.length && memcmp(local.bytes, test.bytes + 2, local.length) == 0;
    }
    if (test.length >= 2 && memcmp(test.bytes + test.length - 2, "}*", 2) == 0) {
        struct span uri = uri_of(text);
        return uri.length + 2 == test.length && memcmp(uri.bytes, test.bytes, uri.length) == 0;
    }
    return 0;
}
