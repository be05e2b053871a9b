/* Qualified names and namespaces: names as tags write them → entries of the name table.

       bytes in a tag ──→ recent names ──found──→ qualified name ──→ entry of the name table
                             └─not─→ slots ─────→ ↑    │
                                                  └────┘ its prefix

   A qualified name is entered where it first occurs: there its syntax is checked, and its prefix is entered,
   too. Every further occurrence is a look-up of its bytes. Names stay from message to message as long as
   those of the name table do.

   An entry serves a name, and a prefix of the same bytes: then `bound_to` is the namespace that the prefix
   stands for at this point of the message. A declaration changes that pointer and the end of its element
   changes it back, so nothing is looked up in scopes. Namespaces are entries of the name table: equal URIs
   are equal pointers. A name keeps the last namespace that it was resolved in, with the result, and is
   resolved anew only where its prefix stands for another. Keeping results by a number of the scope was
   rejected: messages that declare the same namespace on every record would have a scope for each.

   The invariant: every prefix is bound as the innermost declaration of an open element says, and `bindings`
   holds, for each declaration of an open element, how the prefix was bound before. Between messages no prefix
   is bound but `xml`. */
#ifndef SAPWOOD_QUALIFIED_NAMES_H
#define SAPWOOD_QUALIFIED_NAMES_H

#include "growing_array.h"
#include "name_table.h"
#include "recent_names.h"

struct qualified_name {
    struct span raw;                 /* in the arena; first, see `recent_names.h` */
    uint64_t hash;
    struct qualified_name *prefix;   /* NULL without one */
    struct qualified_name *declares; /* the prefix that an attribute of this name declares, or NULL */
    struct name_entry *plain;        /* the name without a namespace, or NULL before it is resolved */
    struct name_entry *resolved;     /* the name in the namespace `resolved_in` */
    struct name_entry *resolved_in;
    struct name_entry *bound_to;     /* as a prefix; NULL if it is not bound */
    uint64_t declared_by;            /* as a prefix: the number of the last start tag that declares it */
};

struct qualified_slot {
    uint32_t generation;
    uint32_t hash; /* the half of the hash that does not choose the slot */
    struct qualified_name *name;
};

struct binding {
    struct qualified_name *prefix;
    struct name_entry *previous;
};

struct qualified_names {
    struct name_table *names; /* its arena holds the entries of this one, too */
    struct qualified_slot *slots;
    size_t capacity; /* a power of two, or 0 */
    size_t count;
    uint32_t generation;
    struct qualified_name default_prefix;
    struct name_entry xml_namespace; /* apart from the name table: no limit applies to it before its names */
    struct growing_array bindings; /* struct binding, a stack */
    size_t bound;                  /* the height of that stack */
    struct growing_array expanded; /* char: where an expanded name is put together */
    struct recent_name recent[RECENT_NAMES];
};

/* Find or enter a name in the seeded table. Return READ, GAVE_UP if its syntax is not certain, or
   OUT_OF_MEMORY. */
int enter_name(struct qualified_names *table, struct span raw, struct qualified_name **name);

/* Find or enter the name, not an empty one, between two positions of a message that ends at `end`. This is
   done for every name of every start tag. */
static inline int find_name(struct qualified_names *table, const unsigned char *begin,
                            const unsigned char *after, const unsigned char *end,
                            struct qualified_name **name) {
    struct span raw = {(const char *)begin, (size_t)(after - begin)};
    struct recent_name *place;
    const struct span *found = recent_entry(table->recent, table->generation, raw, (const char *)end, &place);
    *name = (struct qualified_name *)found;
    if (*name) return READ;
    int status = enter_name(table, raw, name);
    if (status == READ) remember(place, table->generation, &(*name)->raw);
    return status;
}

/* Bind a prefix to a namespace, in the start tag of this number. Return READ, LIMIT_EXCEEDED, OUT_OF_MEMORY,
   or GAVE_UP if expat would refuse the declaration. */
int bind_prefix(struct qualified_names *table, struct qualified_name *prefix, struct span uri, uint64_t tag);

/* Undo the bindings after the first `bound`. */
void unbind_prefixes(struct qualified_names *table, size_t bound);

/* Find the entry of an attribute's or an element's expanded name. Return READ, LIMIT_EXCEEDED, OUT_OF_MEMORY,
   or GAVE_UP if its prefix is not bound. */
int resolve_attribute(struct qualified_names *table, struct qualified_name *name, struct name_entry **entry);
int resolve_element(struct qualified_names *table, struct qualified_name *name, struct name_entry **entry);

/* The entry of an attribute's name that has no prefix and was resolved before, or NULL. */
static inline struct name_entry *resolved_attribute(const struct qualified_names *table,
                                                    const struct qualified_name *name) {
    if (name->prefix || !name->plain) return NULL;
    refresh_symbol(table->names, name->plain);
    return name->plain;
}

/* Free what a message has made large; the names stay. */
void qualified_names_trim(struct qualified_names *table);

/* Forget all names, before the name table does: their memory is its. */
void qualified_names_clear(struct qualified_names *table);

void qualified_names_free(struct qualified_names *table);

#endif
