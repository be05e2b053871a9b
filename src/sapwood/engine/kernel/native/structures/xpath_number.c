/* `strtod` depends on the locale of the process, which may write 3,14: the digits are converted under the C
   locale, or, if they are few, exactly by one multiplication or division (both operands are then exact, so
   the one rounding is the right one). */
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#if defined(__APPLE__) || defined(__FreeBSD__)
#include <xlocale.h>
#endif

#include "xpath_number.h"

static inline int is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
static inline int is_digit(char c) { return c >= '0' && c <= '9'; }

/* Convert a terminated decimal number under the C locale. */
static double convert(const char *text) {
#ifdef _WIN32
    static _locale_t c_locale; /* setting it twice from two threads sets it to equal values */
    if (c_locale == NULL) c_locale = _create_locale(LC_NUMERIC, "C");
    return _strtod_l(text, NULL, c_locale);
#else
    locale_t c_locale = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (c_locale == (locale_t)0) return strtod(text, NULL);
    double number = strtod_l(text, NULL, c_locale);
    freelocale(c_locale);
    return number;
#endif
}

static double convert_long(const char *start, const char *end) {
    char buffer[128];
    size_t length = (size_t)(end - start);
    char *copy = length < sizeof buffer ? buffer : malloc(length + 1);
    if (copy == NULL) return NAN;
    memcpy(copy, start, length);
    copy[length] = 0;
    double number = convert(copy);
    if (copy != buffer) free(copy);
    return number;
}

static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

double xpath_number(struct span text) {
    const char *p = text.bytes, *end = p + text.length;
    while (p < end && is_space(*p)) p++;
    const char *start = p;
    int negative = p < end && *p == '-';
    p += negative;
    uint64_t digits = 0;
    int count = 0, seen = 0, scale = 0; /* significant digits; any digits; digits behind the point */
    for (; p < end && is_digit(*p); p++, seen = 1) {
        if (count || *p != '0') count++;
        if (count <= 19) digits = digits * 10 + (uint64_t)(*p - '0');
    }
    if (p < end && *p == '.') {
        const char *point = p++;
        for (; p < end && is_digit(*p); p++, seen = 1) {
            if (count || *p != '0') count++;
            if (count <= 19) digits = digits * 10 + (uint64_t)(*p - '0');
        }
        ptrdiff_t behind = p - point - 1;
        scale = behind > 1000000 ? 1000000 : (int)behind;
    }
    if (!seen) return NAN;
    const char *stop = p;
    int exponent = 0;
    if (p < end && (*p == 'e' || *p == 'E')) {
        const char *q = p + 1;
        int minus = q < end && *q == '-';
        if (q < end && (*q == '-' || *q == '+')) q++;
        if (q < end && is_digit(*q)) {
            for (; q < end && is_digit(*q); q++) exponent = exponent < 100000 ? exponent * 10 + (*q - '0') : exponent;
            if (minus) exponent = -exponent;
            stop = p = q;
        }
    }
    if (p < end && (*p == 'e' || *p == 'E')) { /* an exponent without digits is ignored */
        p++;
        if (p < end && (*p == '-' || *p == '+')) p++;
    }
    while (p < end && is_space(*p)) p++;
    if (p < end) return NAN;
    int power = exponent - scale;
    if (count <= 15 && power >= -22 && power <= 22) {
        double number = power < 0 ? (double)digits / powers[-power] : (double)digits * powers[power];
        return negative ? -number : number;
    }
    return convert_long(start, stop);
}
