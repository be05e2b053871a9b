/* The tokeniser: reads messages in UTF-8 without a DOCTYPE, several times as fast as expat.

   It gives up at anything malformed or unusual, and expat reads the message from the start: it decides and
   words the error. So it may refuse what expat takes, but it must never take what expat refuses, nor report
   anything else: every check here is one that expat makes, or a stricter one.

   1. Runs of bytes that need no attention are skipped sixteen at a time (`byte_scan.h`). Text and values are
      reported where they are in the message; only values with references, tabs or line ends are copied.
   2. A name is checked once per message, and looked up wherever it occurs again (`qualified_names.h`).
   3. An attribute without a prefix is ready when it has been read. Declarations, attributes with a prefix and
      values that have to be normalised are deferred to the end of the tag, where all its declarations are
      known.
   4. An end tag is compared with the bytes of its start tag's name, and needs no look-up.

   Each function takes the position where its construct begins and returns the one after it, or NULL: then the
   reason is in `status`. */
#include <string.h>

#include "byte_scan.h"
#include "name_syntax.h"
#include "reader_memory.h"
#include "reference.h"
#include "utf8.h"
#include "xml_declaration.h"

/* Larger messages are expat's: it counts with `int`, so what it does to longer tokens is its own matter. */
enum { LARGEST_MESSAGE = 1 << 30 };

typedef const unsigned char *position;

struct tokenizer {
    position begin, end;
    const struct reader_limits *limits;
    const struct handlers *handlers;
    void *consumer;
    struct reader *reader;
    size_t depth; /* how many elements are open */
    uint64_t tag; /* the number of the current start tag */
    int status;   /* why a function returned NULL: GAVE_UP if nothing else is set */
};

static position fail(struct tokenizer *tokenizer, int status) {
    tokenizer->status = status;
    return NULL;
}

static int begins_with(position at, position end, const char *string, size_t length) {
    return (size_t)(end - at) >= length && memcmp(at, string, length) == 0;
}

/* -- text ------------------------------------------------------------------------------------------------ */

static int report_text(struct tokenizer *tokenizer, const void *bytes, size_t length) {
    if (!length || !tokenizer->handlers->text) return READ;
    return tokenizer->status = tokenizer->handlers->text(tokenizer->consumer, bytes, length);
}

/* Report a run of text that ends at a carriage return, which line feeds replace. Return where the next run
   begins: at the line feed of a pair. */
static position read_carriage_return(struct tokenizer *tokenizer, position run, position at) {
    if (report_text(tokenizer, run, (size_t)(at - run))) return NULL;
    at++;
    if (at < tokenizer->end && *at == '\n') return at;
    return report_text(tokenizer, "\n", 1) ? NULL : at;
}

static position read_text(struct tokenizer *tokenizer, position at) {
    position end = tokenizer->end, run = at;
    for (;;) {
        at = scan_text(at, end);
        if (at == end) return NULL;
        if (*at == '<') break;
        if (*at >= 0x80) {
            at = utf8_next(at, end);
        } else if (*at == ']') {
            if (begins_with(at, end, "]]>", 3)) return NULL;
            at++;
        } else if (*at == '&') {
            char bytes[4];
            size_t length;
            position after = resolve_reference(at, end, bytes, &length);
            if (!after || report_text(tokenizer, run, (size_t)(at - run))) return NULL;
            if (report_text(tokenizer, bytes, length)) return NULL;
            run = at = after;
        } else if (*at == '\r') {
            run = at = read_carriage_return(tokenizer, run, at);
        } else {
            return NULL;
        }
        if (!at) return NULL;
    }
    return report_text(tokenizer, run, (size_t)(at - run)) ? NULL : at;
}

/* `at` is after `<![CDATA[`. */
static position read_cdata(struct tokenizer *tokenizer, position at) {
    position end = tokenizer->end, run = at;
    for (;;) {
        at = scan_markup(at, end, ']');
        if (at == end) return NULL;
        if (*at >= 0x80) {
            at = utf8_next(at, end);
        } else if (*at == ']') {
            if (begins_with(at, end, "]]>", 3)) break;
            at++;
        } else if (*at == '\r') {
            run = at = read_carriage_return(tokenizer, run, at);
        } else {
            return NULL;
        }
        if (!at) return NULL;
    }
    return report_text(tokenizer, run, (size_t)(at - run)) ? NULL : at + 3;
}

/* -- comments and processing instructions ---------------------------------------------------------------- */

static int report_boundary(struct tokenizer *tokenizer) {
    if (!tokenizer->handlers->boundary) return READ;
    return tokenizer->status = tokenizer->handlers->boundary(tokenizer->consumer);
}

/* Find the first byte of a pair, and check the characters before it. */
static position find_pair(struct tokenizer *tokenizer, position at, const char pair[2]) {
    position end = tokenizer->end;
    while ((at = scan_markup(at, end, pair[0])) != end) {
        if (*at >= 0x80) {
            at = utf8_next(at, end);
            if (!at) return NULL;
        } else if (*at == (unsigned char)pair[0]) {
            if (begins_with(at, end, pair, 2)) return at;
            at++;
        } else if (*at == '\r') {
            at++;
        } else {
            return NULL;
        }
    }
    return NULL;
}

/* `at` is after `<!--`. */
static position read_comment(struct tokenizer *tokenizer, position at) {
    at = find_pair(tokenizer, at, "--");
    if (!at || !begins_with(at, tokenizer->end, "-->", 3) || report_boundary(tokenizer)) return NULL;
    return at + 3;
}

static int is_xml_in_any_case(struct span name) {
    return name.length == 3 && (name.bytes[0] | 0x20) == 'x' && (name.bytes[1] | 0x20) == 'm' &&
           (name.bytes[2] | 0x20) == 'l';
}

/* `at` is after `<?`. */
static position read_instruction(struct tokenizer *tokenizer, position at) {
    position target = at, end = tokenizer->end;
    while (at < end && !has_class(*at, SPACE) && *at != '?') at++;
    struct span name = {(const char *)target, (size_t)(at - target)};
    if (!is_certain_name(name) || is_xml_in_any_case(name)) return NULL;
    if (at < end && *at == '?') {
        if (!begins_with(at, end, "?>", 2)) return NULL;
    } else {
        at = find_pair(tokenizer, at, "?>");
        if (!at) return NULL;
    }
    return report_boundary(tokenizer) ? NULL : at + 2;
}

/* -- tags ------------------------------------------------------------------------------------------------ */

static position read_name(struct tokenizer *tokenizer, position at, struct qualified_name **name) {
    position after = scan_name(at, tokenizer->end);
    if (after == at) return NULL;
    int status = find_name(&tokenizer->reader->qualified, at, after, tokenizer->end, name);
    return status == READ ? after : fail(tokenizer, status);
}

/* Read a quoted value; return the position after it. */
static position read_value(struct tokenizer *tokenizer, position at, struct span *value, int *is_plain) {
    position end = tokenizer->end;
    if (at == end || (*at != '"' && *at != '\'')) return NULL;
    char quote = (char)*at++;
    position begin = at;
    *is_plain = 1;
    for (;;) {
        at = scan_value(at, end, quote);
        if (at == end) return NULL;
        if (*at == (unsigned char)quote) break;
        if (*at >= 0x80) {
            at = utf8_next(at, end);
            if (!at) return NULL;
        } else if (*at == '&' || has_class(*at, SPACE)) {
            *is_plain = 0;
            at++;
        } else {
            return NULL;
        }
    }
    *value = (struct span){(const char *)begin, (size_t)(at - begin)};
    return at + 1;
}

/* Make an attribute ready to be reported. */
static int set_attribute(struct tokenizer *tokenizer, struct qualified_name *name, struct span value,
                         size_t index) {
    struct reader *reader = tokenizer->reader;
    struct name_entry *entry = resolved_attribute(&reader->qualified, name);
    if (!entry) {
        int status = resolve_attribute(&reader->qualified, name, &entry);
        if (status != READ) return status;
    }
    if (entry->tag == tokenizer->tag) return GAVE_UP; /* a duplicate */
    entry->tag = tokenizer->tag;
    ((struct attribute *)reader->attributes.items)[index] = (struct attribute){&entry->name, value};
    return READ;
}

/* The numbers of attributes in a start tag. */
struct tag_counts {
    size_t attributes; /* that are reported */
    size_t deferred;
};

static int add_attribute(struct tokenizer *tokenizer, struct tag_counts *counts, struct qualified_name *name,
                         struct span value, int is_plain) {
    struct reader *reader = tokenizer->reader;
    size_t index = counts->attributes;
    if (!name->declares) {
        if (index == tokenizer->limits->attributes) return LIMIT_EXCEEDED;
        if (array_reserve(&reader->attributes, index + 1, sizeof(struct attribute)) < 0) return OUT_OF_MEMORY;
        counts->attributes++;
        if (is_plain && !name->prefix) return set_attribute(tokenizer, name, value, index);
    }
    if (array_reserve(&reader->deferred, counts->deferred + 1, sizeof(struct deferred_attribute)) < 0)
        return OUT_OF_MEMORY;
    struct deferred_attribute *deferred = reader->deferred.items;
    deferred[counts->deferred++] = (struct deferred_attribute){name, value, !is_plain, index};
    return READ;
}

/* Read the attributes of a start tag. `at` is after its name. Return the position of `>` or `/>`. */
static position read_attributes(struct tokenizer *tokenizer, position at, struct tag_counts *counts) {
    position end = tokenizer->end;
    for (;;) {
        position before = at;
        at = skip_space(at, end);
        if (at == end) return NULL;
        if (*at == '>' || *at == '/') return at;
        if (at == before) return NULL;
        struct qualified_name *name;
        struct span value;
        int is_plain;
        at = read_name(tokenizer, at, &name);
        if (!at) return NULL;
        at = skip_space(at, end);
        if (at == end || *at != '=') return NULL;
        at = read_value(tokenizer, skip_space(at + 1, end), &value, &is_plain);
        if (!at) return NULL;
        int status = add_attribute(tokenizer, counts, name, value, is_plain);
        if (status != READ) return fail(tokenizer, status);
    }
}

/* Normalise the values that need it, in the reader's memory. */
static int normalize_values(struct reader *reader, size_t count) {
    struct deferred_attribute *deferred = reader->deferred.items;
    size_t room = 0;
    for (size_t i = 0; i < count; i++)
        if (deferred[i].needs_normalization) room += deferred[i].value.length;
    if (!room) return READ;
    if (array_reserve(&reader->normalized, room, 1) < 0) return OUT_OF_MEMORY;
    char *to = reader->normalized.items;
    for (size_t i = 0; i < count; i++) {
        if (!deferred[i].needs_normalization) continue;
        ptrdiff_t length = normalize_value(deferred[i].value, to);
        if (length < 0) return GAVE_UP;
        deferred[i].value = (struct span){to, (size_t)length};
        to += length;
    }
    return READ;
}

static int declare(struct tokenizer *tokenizer, struct qualified_name *prefix, struct span uri) {
    int status = bind_prefix(&tokenizer->reader->qualified, prefix, uri, tokenizer->tag);
    if (status != READ || !tokenizer->handlers->declare) return status;
    return tokenizer->handlers->declare(tokenizer->consumer, prefix->raw, uri);
}

/* Do what was deferred to the end of a start tag: values, declarations, then attributes that need them. */
static int finish_attributes(struct tokenizer *tokenizer, size_t count) {
    int status = normalize_values(tokenizer->reader, count);
    const struct deferred_attribute *deferred = tokenizer->reader->deferred.items;
    for (size_t i = 0; i < count && status == READ; i++) {
        struct qualified_name *prefix = deferred[i].name->declares;
        if (prefix) status = declare(tokenizer, prefix, deferred[i].value);
    }
    for (size_t i = 0; i < count && status == READ; i++) {
        struct qualified_name *name = deferred[i].name;
        if (!name->declares) status = set_attribute(tokenizer, name, deferred[i].value, deferred[i].index);
    }
    return status;
}

static int report_start(struct tokenizer *tokenizer, struct qualified_name *name,
                        const struct tag_counts *counts) {
    struct reader *reader = tokenizer->reader;
    if (counts->deferred) {
        int status = finish_attributes(tokenizer, counts->deferred);
        if (status != READ) return status;
    }
    struct name_entry *entry;
    int status = resolve_element(&reader->qualified, name, &entry);
    if (status != READ || !tokenizer->handlers->start) return status;
    return tokenizer->handlers->start(tokenizer->consumer, &entry->name, reader->attributes.items,
                                      counts->attributes);
}

/* Report the end of an element, whose last tag ends before `after`. */
static int report_end(struct tokenizer *tokenizer, size_t bound, position after) {
    unbind_prefixes(&tokenizer->reader->qualified, bound);
    tokenizer->reader->tag_position.stop = (size_t)(after - tokenizer->begin);
    if (!tokenizer->handlers->end) return READ;
    return tokenizer->status = tokenizer->handlers->end(tokenizer->consumer);
}

/* `at` is after `<`, at the name. */
static position read_start_tag(struct tokenizer *tokenizer, position at) {
    struct reader *reader = tokenizer->reader;
    size_t bound = reader->qualified.bound;
    struct tag_counts counts = {0, 0};
    struct qualified_name *name;
    if (tokenizer->depth == tokenizer->limits->depth) return fail(tokenizer, LIMIT_EXCEEDED);
    tokenizer->tag = ++reader->tags;
    reader->tag_position.start = (size_t)(at - 1 - tokenizer->begin);
    at = read_name(tokenizer, at, &name);
    if (!at || at == tokenizer->end) return NULL;
    if (*at != '>') {
        at = read_attributes(tokenizer, at, &counts);
        if (!at) return NULL;
    }
    int is_empty = *at == '/';
    at += is_empty;
    if (at == tokenizer->end || *at != '>') return NULL;
    int status = report_start(tokenizer, name, &counts);
    if (status != READ) return fail(tokenizer, status);
    if (is_empty) return report_end(tokenizer, bound, at + 1) ? NULL : at + 1;
    if (array_reserve(&reader->open, tokenizer->depth + 1, sizeof(struct open_element)) < 0)
        return fail(tokenizer, OUT_OF_MEMORY);
    ((struct open_element *)reader->open.items)[tokenizer->depth++] = (struct open_element){name->raw, bound};
    return at + 1;
}

/* `at` is after `</`. */
static position read_end_tag(struct tokenizer *tokenizer, position at) {
    const struct open_element *elements = tokenizer->reader->open.items;
    const struct open_element *open = &elements[tokenizer->depth - 1];
    if (!begins_with(at, tokenizer->end, open->raw.bytes, open->raw.length)) return NULL;
    at = skip_space(at + open->raw.length, tokenizer->end);
    if (at == tokenizer->end || *at != '>') return NULL;
    tokenizer->depth--;
    return report_end(tokenizer, open->bound, at + 1) ? NULL : at + 1;
}

/* -- the message ----------------------------------------------------------------------------------------- */

/* Read comments, processing instructions and white space outside the root element. Return the position of the
   first other thing, or the end. */
static position read_around_root(struct tokenizer *tokenizer, position at) {
    position end = tokenizer->end;
    for (;;) {
        at = skip_space(at, end);
        if (begins_with(at, end, "<!--", 4)) at = read_comment(tokenizer, at + 4);
        else if (begins_with(at, end, "<?", 2)) at = read_instruction(tokenizer, at + 2);
        else return at;
        if (!at) return NULL;
    }
}

/* `at` is after the root's start tag. Return the position after its end tag. */
static position read_content(struct tokenizer *tokenizer, position at) {
    position end = tokenizer->end;
    while (tokenizer->depth) {
        if (at == end) return NULL;
        if (*at != '<') {
            at = read_text(tokenizer, at);
            if (!at) return NULL;
        }
        if (++at == end) return NULL;
        if (*at == '/') at = read_end_tag(tokenizer, at + 1);
        else if (*at == '?') at = read_instruction(tokenizer, at + 1);
        else if (*at != '!') at = read_start_tag(tokenizer, at);
        else if (begins_with(at, end, "!--", 3)) at = read_comment(tokenizer, at + 3);
        else if (begins_with(at, end, "![CDATA[", 8)) at = read_cdata(tokenizer, at + 8);
        else return NULL;
        if (!at) return NULL;
    }
    return at;
}

static position read_message(struct tokenizer *tokenizer, position at) {
    at = skip_xml_declaration(at, tokenizer->end);
    if (!at) return NULL;
    at = read_around_root(tokenizer, at);
    if (!at || at == tokenizer->end || *at != '<') return NULL;
    at = read_start_tag(tokenizer, at + 1);
    if (at) at = read_content(tokenizer, at);
    if (at) at = read_around_root(tokenizer, at);
    return at == tokenizer->end ? at : NULL;
}

int tokenizer_read(struct reader *reader, struct span message, const struct reader_limits *limits,
                   const struct handlers *handlers, void *consumer) {
    if (message.length == 0 || message.length > LARGEST_MESSAGE) return GAVE_UP;
    position begin = (position)message.bytes;
    struct tokenizer tokenizer = {begin, begin + message.length, limits, handlers, consumer, reader, 0, 0, READ};
    reader_begin(reader, limits);
    int is_read = read_message(&tokenizer, begin) != NULL;
    reader_end(reader);
    if (is_read) return READ;
    return tokenizer.status != READ ? tokenizer.status : GAVE_UP;
}
