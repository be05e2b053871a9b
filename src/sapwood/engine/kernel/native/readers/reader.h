/* Readers of messages: bytes → events, by expat or by the tokeniser.

   A reader calls the handlers of its consumer for every start tag, end tag and piece of text, in document
   order, without Python and without the GIL. Both readers make the same calls for the same message; that is
   what the differential tests compare.

   Names arrive as entries of a name table: the same expanded name is the same entry wherever it occurs in a
   message, so a consumer looks it up among the names of queries once per message, and keeps the result in
   `symbol`. Entries count as new with every message, unless the consumer asks for symbols to be kept.
*/
#ifndef SAPWOOD_READER_H
#define SAPWOOD_READER_H

#include <stddef.h>
#include <stdint.h>

/* Bytes that belong to someone else; not terminated. */
struct span {
    const char *bytes;
    size_t length;
};

/* A name as queries write it: `local`, or `uri}local` in a namespace. Attributes and elements share entries:
   an attribute without a prefix has no namespace. */
struct name {
    struct span expanded;
    uint32_t uri_length; /* bytes before the `}`; 0 without a namespace */
    uint32_t symbol;     /* the consumer's; UNRESOLVED when the entry is made */
};

enum { UNRESOLVED = UINT32_MAX };

struct attribute {
    struct name *name;
    struct span value; /* normalised: references expanded, white space as XML demands */
};

/* What a consumer is told. Every handler returns 0 to go on; anything else ends the reading, and is returned
   by the reader. Handlers that are NULL are not called. Spans are valid during the call only; names until the
   reading ends. */
struct handlers {
    int (*start)(void *consumer, struct name *name, const struct attribute *attributes, size_t count);
    int (*end)(void *consumer);
    /* A piece of a text node: a text node ends at the next tag or boundary. Line ends are normalised,
       references and CDATA sections are resolved. */
    int (*text)(void *consumer, const char *bytes, size_t length);
    /* A comment or a processing instruction, which separates text nodes. */
    int (*boundary)(void *consumer);
    /* A namespace declaration of the element whose start follows; an empty prefix is the default one. */
    int (*declare)(void *consumer, struct span prefix, struct span uri);
};

/* The limits on one message that a reader checks itself: see `Limits` in Python. */
struct reader_limits {
    size_t depth;
    size_t attributes;
    size_t name_length; /* in characters, of expanded names and of namespaces */
};

enum reader_status {
    READ = 0,
    /* Negative, so that consumers have the positive numbers to themselves. */
    GAVE_UP = -1,       /* the tokeniser met something unusual: expat has to decide */
    NOT_WELL_FORMED = -2,
    LIMIT_EXCEEDED = -3,
    HAS_DOCTYPE = -4,   /* read by Python, which counts what it expands to */
    UNKNOWN_ENCODING = -5,
    OUT_OF_MEMORY = -6,
};

struct reader; /* memory that is used again from message to message; one for each thread */

struct reader *reader_new(void);
void reader_free(struct reader *reader);

/* Where the tag that a handler is told of stands in the message: set by the tokeniser before it calls `start`
   and `end`. Of an element without an end tag it is the start tag. */
struct tag_position {
    size_t start; /* of a start tag */
    size_t stop;  /* of an end tag: the position after it */
};

const struct tag_position *reader_tag_position(const struct reader *reader);

/* Keep the symbols that names got while the version was the same, for the next reading alone: call it before
   each. The consumer changes the version whenever a name may have another symbol, and uses neither an earlier
   version again nor one of another consumer of the same reader. A reading without this call begins with all
   names UNRESOLVED. */
void reader_keep_symbols(struct reader *reader, uint64_t version);

/* Read a message in UTF-8 without DOCTYPE, or give up: then the consumer has to forget what it was told. */
int tokenizer_read(struct reader *reader, struct span message, const struct reader_limits *limits,
                   const struct handlers *handlers, void *consumer);

/* Read a message with expat; `encoding` overrides what the message declares, NULL does not. */
int expat_read(struct reader *reader, struct span message, const char *encoding,
               const struct reader_limits *limits, const struct handlers *handlers, void *consumer);

/* Fetch pyexpat's table of functions; call once, with the GIL. Return 0, or -1 with a Python exception. */
int expat_load(void);

#endif
