#include "name_syntax.h"

#include <string.h>

#include "byte_scan.h"
#include "utf8.h"

/* Letters beyond ASCII that names may begin with, of the alphabets in wide use. Expat follows the fourth
   edition of XML 1.0, whose appendix B lists 202 such ranges, and more characters that may follow. A table of
   all of them was rejected: names outside ASCII are rare, and those that are not here are left to expat. */
static const struct {
    uint16_t first, last;
} letters[] = {
    {0x00C0, 0x00D6}, {0x00D8, 0x00F6}, {0x00F8, 0x0131}, /* Latin */
    {0x0134, 0x013E}, {0x0141, 0x0148}, {0x014A, 0x017E}, {0x0388, 0x038A}, /* Greek from here */
    {0x038E, 0x03A1}, {0x03A3, 0x03CE}, {0x0401, 0x040C}, {0x040E, 0x044F}, /* Cyrillic from U+0401 */
    {0x0451, 0x045C}, {0x05D0, 0x05EA}, {0x0621, 0x063A}, {0x0641, 0x064A}, /* Hebrew, Arabic */
    {0x3041, 0x3094}, {0x30A1, 0x30FA}, {0x4E00, 0x9FA5}, {0xAC00, 0xD7A3}, /* Kana, Han, Hangul */
};

static int is_letter(uint32_t code) {
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
        if (code >= letters[i].first && code <= letters[i].last) return 1;
    return 0;
}

int is_certain_name(struct span name) {
    const unsigned char *at = (const unsigned char *)name.bytes, *end = at + name.length;
    if (at == end || (*at < 0x80 && !has_class(*at, NAME_START))) return 0;
    while (at < end) {
        if (*at < 0x80) {
            if (!has_class(*at++, NAME_PART)) return 0;
            continue;
        }
        const unsigned char *next = utf8_next(at, end);
        if (!next) return 0;
        uint32_t code = next - at == 2   ? (uint32_t)(at[0] & 0x1F) << 6 | (at[1] & 0x3F)
                        : next - at == 3 ? (uint32_t)(at[0] & 0x0F) << 12 | (uint32_t)(at[1] & 0x3F) << 6 |
                                               (at[2] & 0x3F)
                                         : 0; /* expat takes none of four bytes */
        if (!is_letter(code)) return 0;
        at = next;
    }
    return 1;
}

int is_certain_qualified_name(struct span name, size_t *colon) {
    const char *found = memchr(name.bytes, ':', name.length);
    *colon = found ? (size_t)(found - name.bytes) : 0;
    if (!found) return is_certain_name(name);
    struct span prefix = {name.bytes, *colon};
    struct span local = {found + 1, name.length - *colon - 1};
    return is_certain_name(prefix) && is_certain_name(local);
}
