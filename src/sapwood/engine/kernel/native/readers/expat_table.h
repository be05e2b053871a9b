/* The table of expat's functions that pyexpat offers to other modules, in its capsule `pyexpat.expat_CAPI`.

   It is declared here because Python's own declaration, `pyexpat.h`, needs expat's header, which is seldom
   there. New functions are only ever added at the end, so the first part holds for Python 3.11 to 3.14. The
   table has no function that stops a parser, nor one that resets it. */
#ifndef SAPWOOD_EXPAT_TABLE_H
#define SAPWOOD_EXPAT_TABLE_H

#include "expat_memory.h"

typedef struct XML_ParserStruct *XML_Parser; /* expat's own name */

enum { EXPAT_ERROR_NO_MEMORY = 1, EXPAT_ERROR_UNKNOWN_ENCODING = 18 };
enum { EXPAT_STATUS_OK = 1 };

struct expat_table {
    const char *magic;
    int size;
    int major, minor, micro;
    const char *(*error_string)(int code);
    int (*get_error_code)(XML_Parser parser);
    /* Their results are as wide as expat was built to count; nobody here calls them. */
    void (*get_error_column_number)(void);
    void (*get_error_line_number)(void);
    int (*parse)(XML_Parser parser, const char *bytes, int length, int is_final);
    XML_Parser (*parser_create)(const char *encoding, const struct expat_memory_suite *memory,
                                const char *separator);
    void (*parser_free)(XML_Parser parser);
    void (*set_character_data_handler)(XML_Parser parser, void (*text)(void *, const char *, int));
    void (*set_comment_handler)(XML_Parser parser, void (*comment)(void *, const char *));
    void (*set_default_handler_expand)(XML_Parser parser, void (*other)(void *, const char *, int));
    void (*set_element_handler)(XML_Parser parser, void (*start)(void *, const char *, const char **),
                                void (*end)(void *, const char *));
    void (*set_namespace_declaration_handler)(XML_Parser parser,
                                              void (*start)(void *, const char *, const char *),
                                              void (*end)(void *, const char *));
    void (*set_processing_instruction_handler)(XML_Parser parser,
                                               void (*instruction)(void *, const char *, const char *));
    void (*set_unknown_encoding_handler)(void);
    void (*set_user_data)(XML_Parser parser, void *data);
    void (*set_start_doctype_handler)(XML_Parser parser, void (*start)(void *, const char *, const char *,
                                                                       const char *, int));
    int (*set_encoding)(XML_Parser parser, const char *encoding);
    void (*default_unknown_encoding_handler)(void);
    int (*set_hash_salt)(XML_Parser parser, unsigned long salt);
};

#endif
