/* Scans over the bytes of a message: how far nothing needs attention.

   Each scan returns the first byte of its stop set, or the end. Where the processor has SSE2, sixteen bytes
   are compared at once: text and values are read at several bytes a cycle, which is most of a message. The
   last bytes, and all of them elsewhere, are looked up in a table, one at a time. No scan reads a byte at or
   after the end, so messages need no terminator.

   Stop sets hold all bytes from 0x80 on: what is not ASCII is checked character by character (`utf8.h`).
   Names go on there: their bytes are checked where they are entered (`qualified_names.h`). */
#ifndef SAPWOOD_BYTE_SCAN_H
#define SAPWOOD_BYTE_SCAN_H

#include <stddef.h>
#include <stdint.h>

/* SAPWOOD_PORTABLE_SCAN is for tests of the other way. */
#if (defined(__SSE2__) || defined(_M_X64)) && !defined(SAPWOOD_PORTABLE_SCAN)
#define SAPWOOD_SSE2 1
#include <emmintrin.h>
#ifdef _MSC_VER
#include <intrin.h>
#endif
#endif

enum byte_class {
    SPACE = 1,        /* white space of XML */
    NAME_START = 2,   /* letters and `_` */
    NAME_PART = 4,    /* also digits, `-` and `.`, but not `:` */
    NAME_STOP = 8,    /* what may follow a name in a tag: white space, other controls, `=`, `/`, `>` */
    TEXT_STOP = 16,   /* `<`, `&`, `]`, controls other than tab and line feed, and bytes that are not ASCII */
    VALUE_STOP = 32,  /* `<`, `&`, quotes, controls with tab and line feed, bytes that are not ASCII */
    MARKUP_STOP = 64, /* controls other than tab and line feed, bytes that are not ASCII */
};

extern const uint8_t byte_classes[256];

static inline int has_class(unsigned char byte, int classes) { return byte_classes[byte] & classes; }

static inline const unsigned char *skip_space(const unsigned char *at, const unsigned char *end) {
    while (at < end && has_class(*at, SPACE)) at++;
    return at;
}

#ifdef SAPWOOD_SSE2

static inline unsigned lowest_bit(unsigned mask) {
#ifdef _MSC_VER
    unsigned long index;
    _BitScanForward(&index, mask);
    return (unsigned)index;
#else
    return (unsigned)__builtin_ctz(mask);
#endif
}

static inline __m128i equal(__m128i block, char byte) { return _mm_cmpeq_epi8(block, _mm_set1_epi8(byte)); }

static inline __m128i either(__m128i a, __m128i b) { return _mm_or_si128(a, b); }

/* Controls and bytes that are not ASCII: the comparison is signed. */
static inline __m128i control_or_high(__m128i block) { return _mm_cmplt_epi8(block, _mm_set1_epi8(0x20)); }

static inline __m128i markup_stop(__m128i block) {
    return _mm_andnot_si128(either(equal(block, '\n'), equal(block, '\t')), control_or_high(block));
}

/* Advance over blocks of sixteen bytes; `stops` is what stops in `block`. */
#define SCAN_BLOCKS(at, end, block, stops)                              \
    while ((end) - (at) >= 16) {                                        \
        __m128i block = _mm_loadu_si128((const __m128i *)(at));         \
        unsigned mask = (unsigned)_mm_movemask_epi8(stops);             \
        if (mask) return (at) + lowest_bit(mask);                       \
        (at) += 16;                                                     \
    }

#else
#define SCAN_BLOCKS(at, end, block, stops)
#endif

static inline const unsigned char *scan_name(const unsigned char *at, const unsigned char *end) {
    SCAN_BLOCKS(at, end, block,
                either(either(equal(block, '>'), equal(block, '=')),
                       either(equal(block, '/'),
                              _mm_cmpeq_epi8(_mm_min_epu8(block, _mm_set1_epi8(0x20)), block))))
    while (at < end && !has_class(*at, NAME_STOP)) at++;
    return at;
}

static inline const unsigned char *scan_text(const unsigned char *at, const unsigned char *end) {
    SCAN_BLOCKS(at, end, block,
                either(either(equal(block, '<'), equal(block, '&')),
                       either(equal(block, ']'), markup_stop(block))))
    while (at < end && !has_class(*at, TEXT_STOP)) at++;
    return at;
}

/* Stops at one kind of quote alone. */
static inline const unsigned char *scan_value(const unsigned char *at, const unsigned char *end, char quote) {
    SCAN_BLOCKS(at, end, block,
                either(either(equal(block, '<'), equal(block, '&')),
                       either(equal(block, quote), control_or_high(block))))
    while (at < end && (!has_class(*at, VALUE_STOP) || (*at == (quote ^ '"' ^ '\'')))) at++;
    return at;
}

/* Inside comments, processing instructions and CDATA sections: stops at the byte that may begin their end. */
static inline const unsigned char *scan_markup(const unsigned char *at, const unsigned char *end,
                                               char closing) {
    SCAN_BLOCKS(at, end, block, either(equal(block, closing), markup_stop(block)))
    while (at < end && !has_class(*at, MARKUP_STOP) && *at != (unsigned char)closing) at++;
    return at;
}

#endif
