#include "qualified_names.h"

#include <string.h>

#include "name_syntax.h"

enum { FIRST_CAPACITY = 256, KEPT_CAPACITY = 8192 };

#define XML_NAMESPACE "http://www.w3.org/XML/1998/namespace"
#define XMLNS_NAMESPACE "http://www.w3.org/2000/xmlns/"

static int is_string(struct span text, const char *string) {
    return text.length == strlen(string) && memcmp(text.bytes, string, text.length) == 0;
}

static int is_same(struct span a, struct span b) {
    return a.length == b.length && memcmp(a.bytes, b.bytes, a.length) == 0;
}

/* -- the seeded table ------------------------------------------------------------------------------------ */

static int grow(struct qualified_names *table) {
    if (table->count < table->capacity / 2) return 0;
    size_t capacity = table->capacity ? 2 * table->capacity : FIRST_CAPACITY;
    if (capacity > SIZE_MAX / sizeof(struct qualified_slot)) return -1;
    struct qualified_slot *slots = calloc(capacity, sizeof *slots);
    if (!slots) return -1;
    for (size_t i = 0; i < table->capacity; i++) {
        if (table->slots[i].generation != table->generation) continue;
        size_t slot = (size_t)table->slots[i].name->hash & (capacity - 1);
        while (slots[slot].generation) slot = (slot + 1) & (capacity - 1);
        slots[slot] = table->slots[i];
    }
    free(table->slots);
    table->slots = slots;
    table->capacity = capacity;
    return 0;
}

/* Fill a new entry: enter its prefix, or the prefix that it declares. */
static int analyze(struct qualified_names *table, struct qualified_name *name, size_t colon) {
    struct span raw = name->raw;
    if (colon) {
        struct span prefix = {raw.bytes, colon}, local = {raw.bytes + colon + 1, raw.length - colon - 1};
        int status = enter_name(table, prefix, &name->prefix);
        if (status != READ || !is_string(prefix, "xmlns")) return status;
        return enter_name(table, local, &name->declares);
    }
    if (is_string(raw, "xmlns")) name->declares = &table->default_prefix;
    if (!is_string(raw, "xml")) return READ;
    name->bound_to = &table->xml_namespace;
    return READ;
}

int enter_name(struct qualified_names *table, struct span raw, struct qualified_name **name) {
    if (grow(table) < 0) return OUT_OF_MEMORY;
    uint64_t hash = name_hash(raw);
    uint32_t high = (uint32_t)(hash >> 32);
    size_t mask = table->capacity - 1, slot = (size_t)hash & mask;
    for (; table->slots[slot].generation == table->generation; slot = (slot + 1) & mask) {
        if (table->slots[slot].hash != high || !is_same(table->slots[slot].name->raw, raw)) continue;
        *name = table->slots[slot].name;
        return READ;
    }
    size_t colon;
    if (!is_certain_qualified_name(raw, &colon)) return GAVE_UP;
    *name = arena_allocate(&table->names->arena, sizeof **name + raw.length);
    if (!*name) return OUT_OF_MEMORY;
    char *bytes = (char *)(*name + 1);
    memcpy(bytes, raw.bytes, raw.length);
    **name = (struct qualified_name){.raw = {bytes, raw.length}, .hash = hash};
    table->slots[slot] = (struct qualified_slot){table->generation, high, *name};
    table->count++;
    return analyze(table, *name, colon);
}

/* -- namespaces ------------------------------------------------------------------------------------------ */

/* Whether expat takes a declaration. */
static int is_allowed(const struct qualified_names *table, const struct qualified_name *prefix,
                      struct span uri) {
    int is_xml_namespace = is_string(uri, XML_NAMESPACE);
    if (memchr(uri.bytes, '}', uri.length)) return 0; /* the separator in expanded names */
    if (prefix == &table->default_prefix) return !is_xml_namespace && !is_string(uri, XMLNS_NAMESPACE);
    if (uri.length == 0 || is_string(prefix->raw, "xmlns")) return 0;
    if (is_string(prefix->raw, "xml")) return is_xml_namespace;
    return !is_xml_namespace && !is_string(uri, XMLNS_NAMESPACE);
}

/* The namespace of a URI. */
static int find_namespace(struct qualified_names *table, struct span uri, struct name_entry **bound_to) {
    *bound_to = NULL;
    if (uri.length == 0) return READ;
    if (!is_string(uri, XML_NAMESPACE)) return name_table_intern(table->names, uri, name_hash(uri), bound_to);
    *bound_to = &table->xml_namespace;
    return is_longer(uri, table->names->name_length) ? LIMIT_EXCEEDED : READ;
}

int bind_prefix(struct qualified_names *table, struct qualified_name *prefix, struct span uri, uint64_t tag) {
    if (prefix->declared_by == tag || !is_allowed(table, prefix, uri)) return GAVE_UP;
    prefix->declared_by = tag;
    if (is_longer(prefix->raw, table->names->name_length)) return LIMIT_EXCEEDED;
    struct name_entry *bound_to;
    int status = find_namespace(table, uri, &bound_to);
    if (status != READ) return status;
    if (array_reserve(&table->bindings, table->bound + 1, sizeof(struct binding)) < 0) return OUT_OF_MEMORY;
    ((struct binding *)table->bindings.items)[table->bound++] = (struct binding){prefix, prefix->bound_to};
    prefix->bound_to = bound_to;
    return READ;
}

void unbind_prefixes(struct qualified_names *table, size_t bound) {
    const struct binding *bindings = table->bindings.items;
    while (table->bound > bound) {
        table->bound--;
        bindings[table->bound].prefix->bound_to = bindings[table->bound].previous;
    }
}

/* Put `uri}local` together, and find its entry. */
static int expand(struct qualified_names *table, struct qualified_name *name, struct span uri) {
    struct span local = name->raw;
    if (name->prefix) {
        size_t skipped = name->prefix->raw.length + 1;
        local = (struct span){local.bytes + skipped, local.length - skipped};
    }
    size_t length = uri.length + 1 + local.length; /* both are parts of one message: no overflow */
    if (array_reserve(&table->expanded, length, 1) < 0) return OUT_OF_MEMORY;
    char *bytes = table->expanded.items;
    memcpy(bytes, uri.bytes, uri.length);
    bytes[uri.length] = '}';
    memcpy(bytes + uri.length + 1, local.bytes, local.length);
    struct span expanded = {bytes, length};
    return name_table_intern(table->names, expanded, name_hash(expanded), &name->resolved);
}

static int resolve_in(struct qualified_names *table, struct qualified_name *name, struct name_entry *bound_to,
                      struct name_entry **entry) {
    if (name->resolved_in != bound_to) {
        name->resolved_in = NULL;
        int status = expand(table, name, bound_to->name.expanded);
        if (status != READ) return status;
        name->resolved_in = bound_to;
    }
    refresh_symbol(table->names, name->resolved);
    *entry = name->resolved;
    return READ;
}

static int resolve_plain(struct qualified_names *table, struct qualified_name *name,
                         struct name_entry **entry) {
    if (!name->plain) {
        int status = name_table_intern(table->names, name->raw, name->hash, &name->plain);
        if (status != READ) return status;
    }
    refresh_symbol(table->names, name->plain);
    *entry = name->plain;
    return READ;
}

int resolve_attribute(struct qualified_names *table, struct qualified_name *name, struct name_entry **entry) {
    if (!name->prefix) return resolve_plain(table, name, entry);
    if (!name->prefix->bound_to) return GAVE_UP;
    return resolve_in(table, name, name->prefix->bound_to, entry);
}

int resolve_element(struct qualified_names *table, struct qualified_name *name, struct name_entry **entry) {
    if (name->prefix || !table->default_prefix.bound_to) return resolve_attribute(table, name, entry);
    return resolve_in(table, name, table->default_prefix.bound_to, entry);
}

void qualified_names_trim(struct qualified_names *table) {
    unbind_prefixes(table, 0);
    array_trim(&table->bindings, sizeof(struct binding));
    array_trim(&table->expanded, 1);
}

void qualified_names_clear(struct qualified_names *table) {
    table->count = 0;
    table->default_prefix = (struct qualified_name){.raw = {"", 0}};
    table->xml_namespace = (struct name_entry){.name.expanded = {XML_NAMESPACE, strlen(XML_NAMESPACE)}};
    if (table->capacity > KEPT_CAPACITY) {
        free(table->slots);
        table->slots = NULL;
        table->capacity = 0;
    }
    if (++table->generation == 0) {
        if (table->slots) memset(table->slots, 0, table->capacity * sizeof *table->slots);
        memset(table->recent, 0, sizeof table->recent);
        table->generation = 1;
    }
}

void qualified_names_free(struct qualified_names *table) {
    free(table->slots);
    free(table->bindings.items);
    free(table->expanded.items);
}
