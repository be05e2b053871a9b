#include "xml_declaration.h"

#include <string.h>

#include "byte_scan.h"

static int begins_with(const unsigned char *at, const unsigned char *end, const char *string) {
    size_t length = strlen(string);
    return (size_t)(end - at) >= length && memcmp(at, string, length) == 0;
}

static int is_any_case(const unsigned char *at, size_t length, const char *lower) {
    if (length != strlen(lower)) return 0;
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = at[i] >= 'A' && at[i] <= 'Z' ? (unsigned char)(at[i] + 32) : at[i];
        if (byte != (unsigned char)lower[i]) return 0;
    }
    return 1;
}

static int is_ascii(const unsigned char *at, const unsigned char *end) {
    unsigned char all = 0;
    for (; at < end; at++) all |= *at;
    return all < 0x80;
}

/* Read ` name = "value"`. Return the position after it, `at` if another name or none follows, or NULL. */
static const unsigned char *read_pair(const unsigned char *at, const unsigned char *end, const char *name,
                                      const unsigned char **value, size_t *length) {
    const unsigned char *begin = at;
    at = skip_space(at, end);
    if (at == begin || !begins_with(at, end, name)) return begin;
    at = skip_space(at + strlen(name), end);
    if (at == end || *at != '=') return NULL;
    at = skip_space(at + 1, end);
    if (at == end || (*at != '"' && *at != '\'')) return NULL;
    unsigned char quote = *at++;
    *value = at;
    while (at < end && (has_class(*at, NAME_PART))) at++;
    if (at == end || *at != quote) return NULL;
    *length = (size_t)(at - *value);
    return at + 1;
}

const unsigned char *skip_xml_declaration(const unsigned char *at, const unsigned char *end) {
    int is_marked = begins_with(at, end, "\xEF\xBB\xBF");
    if (is_marked) at += 3;
    if (!begins_with(at, end, "<?xml") || end - at < 6 || !has_class(at[5], SPACE)) return at;
    const unsigned char *value, *before = at += 5;
    size_t length;
    at = read_pair(at, end, "version", &value, &length);
    if (!at || at == before || !is_any_case(value, length, "1.0")) return NULL;
    before = at;
    at = read_pair(at, end, "encoding", &value, &length);
    if (!at) return NULL;
    int must_be_ascii = at != before && is_any_case(value, length, "us-ascii");
    if (at != before && !is_any_case(value, length, "utf-8") && (!must_be_ascii || is_marked)) return NULL;
    before = at;
    at = read_pair(at, end, "standalone", &value, &length);
    if (!at) return NULL;
    if (at != before && !(length == 3 && memcmp(value, "yes", 3) == 0) &&
        !(length == 2 && memcmp(value, "no", 2) == 0))
        return NULL;
    at = skip_space(at, end);
    if (!begins_with(at, end, "?>")) return NULL;
    return !must_be_ascii || is_ascii(at, end) ? at + 2 : NULL;
}
