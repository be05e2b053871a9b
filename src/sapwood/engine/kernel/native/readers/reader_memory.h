/* The memory of a reader, which is used again from message to message. Both readers share the name table and
   the attributes of the current start tag; the rest is the tokeniser's. What a message has made large is
   freed when that message has been read. */
#ifndef SAPWOOD_READER_MEMORY_H
#define SAPWOOD_READER_MEMORY_H

#include "arena.h"
#include "growing_array.h"
#include "name_table.h"
#include "qualified_names.h"
#include "reader.h"

/* An element whose end tag is still to come. */
struct open_element {
    struct span raw; /* its name in the start tag, which the end tag repeats */
    size_t bound;    /* the bindings before its start tag */
};

/* An attribute as the start tag writes it, if more of the tag has to be known before it can be reported. */
struct deferred_attribute {
    struct qualified_name *name;
    struct span value;
    int needs_normalization;
    size_t index; /* among the attributes that are reported, unless this one is a declaration */
};

struct reader {
    struct name_table names;
    int keeps_symbols; /* in the next reading */
    int has_version;
    uint64_t version; /* of the symbols that names have, if they have one */
    struct growing_array attributes; /* struct attribute */
    struct arena expat_memory;
    struct qualified_names qualified;
    struct growing_array deferred;   /* struct deferred_attribute */
    struct growing_array normalized; /* char: values of the current start tag */
    struct growing_array open;       /* struct open_element, a stack */
    uint64_t tags;                   /* the number of start tags of all messages so far */
    struct tag_position tag_position;
};

/* Begin a message: names keep its limit, and have no symbols unless those are kept. */
void reader_begin(struct reader *reader, const struct reader_limits *limits);

/* End a message: prefixes are not bound any more, and what is large is freed. */
void reader_end(struct reader *reader);

#endif
