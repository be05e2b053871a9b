/* A document: the nodes of one message as flat columns, one entry per element in document order; entry 0 is
   the document itself. `Document` in Python has the same columns, as lists, and says what they mean.

       columns of elements       name, parent, end, text_start, text_end, first_attribute, start, stop
       columns of attributes     name, and where the value stops in `values`
       columns of text nodes     parent, after, and where the node stops in `text`
       columns of declarations   element, and where prefix and URI stop in `declared`

   All of it is one block of memory. It is made when the message has been read, of the sizes that are
   known by then: the arrays in which it grows belong to the builder, and are used again for the next
   message. Arrays of its own for each document were rejected: growing twenty of them took longer than
   reading a short message.

   The invariants: parents come before their children; the attributes of an element are those from its
   `first_attribute` up to the next element's; spans in `text`, `values` and `declared` follow each other
   without gaps. */
#ifndef SAPWOOD_DOCUMENT_H
#define SAPWOOD_DOCUMENT_H

#include "arrays.h"
#include "reader.h"

struct document {
    void *block; /* what all columns are in */
    uint32_t elements, attributes, texts, declarations;
    int has_spans; /* the tokeniser has read it: starts and stops are known */
    /* by element */
    uint32_t *name, *parent, *end, *text_start, *text_end;
    uint32_t *first_attribute; /* one more than there are elements */
    uint32_t *start, *stop;    /* in the bytes of the message */
    /* by attribute, by text node, by declaration */
    uint32_t *attribute_name, *value_stop;
    uint32_t *text_parent, *text_after, *text_stop;
    uint32_t *declared_at, *prefix_stop, *uri_stop;
    char *text, *values, *declared;
};

struct document_options {
    int tokenizer; /* try it before expat */
    int with_text;
    int with_source; /* elements are to be copied from it: note namespace declarations */
    struct reader_limits limits;
};

/* A name that the last reading met for the first time: a part of `new_name_bytes`. */
struct new_name {
    uint32_t stop;
};

/* What reads documents, one after the other. Names of all documents have numbers, in the order of their first
   occurrence, until they are forgotten. */
struct document_builder {
    struct reader *reader;
    uint64_t version; /* of the numbers of names */
    uint32_t names;   /* how many have a number */
    struct ARRAY_OF(struct new_name) new_names;
    struct ARRAY_OF(char) new_name_bytes;
    struct numbers name, parent, end, text_start, text_end, first_attribute, start, stop;
    struct numbers attribute_name, value_stop;
    struct numbers text_parent, text_after, text_stop;
    struct numbers declared_at, prefix_stop, uri_stop;
    struct ARRAY_OF(char) text;
    struct ARRAY_OF(char) values;
    struct ARRAY_OF(char) declared;
    struct numbers open;                      /* the elements that have not ended, from the document down */
    const struct tag_position *tag_position; /* NULL: expat reads */
};

struct document_builder *document_builder_new(void);
void document_builder_free(struct document_builder *builder);

/* Number names anew: the numbers of earlier documents are not used again for others before this call. */
void document_builder_forget_names(struct document_builder *builder);

/* Read a message. Return READ, or a status of the readers; OUT_OF_MEMORY, too, for what 32 bits do not
   number. Names that are new, whether it succeeds or not, are in `new_names`. The GIL is not needed. */
int document_read(struct document *document, struct document_builder *builder, struct span message,
                  const char *encoding, const struct document_options *options);

void document_free(struct document *document);

#endif
