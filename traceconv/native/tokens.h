/* JSON tokens, for the scanner of trace events (scan.c) and for the copier (patch.c).
 *
 * Strict: what is not plain JSON is left to Python. (The encoder of arguments, json.c, accepts what
 * Python's json does with strict=False: NaN, Infinity, control characters and lone surrogates.)
 * Nothing is read at or beyond `end`. Each function returns the byte after the token, or NULL with *why
 * set: MORE if the bytes end too early, ODD if this is not plain JSON.
 */
#ifndef TRACECONV_TOKENS_H
#define TRACECONV_TOKENS_H
#include <string.h>

#include "text.h"

enum { MORE = 0, END = 1, ODD = 2, FULL = 3, NO_MEMORY = 4 };
enum { ABSENT = 0, STRING, NUMBER, NIL, BOOLEAN, OBJECT, ARRAY };

#define MAX_DEPTH 63

typedef struct { const u8 *p; size_t n; int kind, escaped; } Token;

static inline u64 load64(const u8 *p) { u64 v; memcpy(&v, p, 8); return v; }

static const u8 *fail(int *why, int status) { *why = status; return NULL; }

/* p is at a backslash. */
static const u8 *escape(const u8 *p, const u8 *end, int *why)
{
    if (end - p < 2) return fail(why, MORE);
    if (p[1] != 'u') {
        switch (p[1]) {
        case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't': return p + 2;
        default: return fail(why, ODD);
        }
    }
    if (end - p < 12) return fail(why, end - p < 6 ? MORE : ODD);
    int v = hex4(p + 2);
    if (v < 0) return fail(why, ODD);
    if (v < 0xd800 || v > 0xdfff) return p + 6;
    int low = p[6] == '\\' && p[7] == 'u' ? hex4(p + 8) : -1;
    if (v > 0xdbff || low < 0xdc00 || low > 0xdfff) return fail(why, ODD);
    return p + 12;
}

/* p is at a byte >= 0x80: one well-formed UTF-8 sequence. */
static const u8 *wide(const u8 *p, const u8 *end, int *why)
{
    int n = wide_length(*p);
    if (!n) return fail(why, ODD);
    if (end - p < n) return fail(why, MORE);
    return is_wide(p, n) ? p + n : fail(why, ODD);
}

#define EACH(b) (0x0101010101010101ULL * (b))

/* Skips bytes that are neither a quote, nor a backslash, nor a control character, nor >= 0x80. */
static const u8 *plain(const u8 *p, const u8 *end)
{
#if defined(__SSE2__)
    for (; end - p >= 16; p += 16) {
        unsigned hit = special16(p);
        if (hit) return p + __builtin_ctz(hit);
    }
#endif
    while (end - p >= 8) {
        u64 x = load64(p), q = x ^ EACH(0x22), b = x ^ EACH(0x5c);
        u64 hit = (((q - EACH(1)) & ~q) | ((b - EACH(1)) & ~b) | ((x - EACH(0x20)) & ~x) | x) & EACH(0x80);
        if (hit) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
            return p + (__builtin_ctzll(hit) >> 3);
#else
            break;
#endif
        }
        p += 8;
    }
    while (p < end && *p != '"' && *p != '\\' && *p >= 0x20 && *p < 0x80) p++;
    return p;
}

/* p is within a string; the result is behind the closing quote. */
static const u8 *string_rest(const u8 *p, const u8 *end, int *escaped, int *why)
{
    for (;;) {
        p = plain(p, end);
        if (p == end) return fail(why, MORE);
        if (*p == '"') return p + 1;
        if (*p == '\\') { *escaped = 1; p = escape(p, end, why); }
        else if (*p >= 0x80) p = wide(p, end, why);
        else return fail(why, ODD);
        if (!p) return NULL;
    }
}

/* p is behind the opening quote; the result is behind the closing one. */
static inline const u8 *string(const u8 *p, const u8 *end, int *escaped, int *why)
{
#if defined(__SSE2__)
    for (; end - p >= 16; p += 16) { /* most strings are plain */
        unsigned hit = special16(p);
        if (!hit) continue;
        p += __builtin_ctz(hit);
        if (*p == '"') return p + 1;
        break;
    }
#endif
    return string_rest(p, end, escaped, why);
}

/* Behind the digits at p. */
static inline const u8 *digits(const u8 *p, const u8 *end)
{
#if defined(__SSE2__)
    const __m128i zero = _mm_set1_epi8('0'), nine = _mm_set1_epi8(9);
    for (; end - p >= 16; p += 16) {
        __m128i x = _mm_sub_epi8(_mm_loadu_si128((const __m128i *)(const void *)p), zero);
        unsigned other = 0xffffu ^ (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(x, nine), x));
        if (other) return p + __builtin_ctz(other);
    }
#endif
    while (p < end && is_digit(*p)) p++;
    return p;
}

static inline const u8 *number(const u8 *p, const u8 *end, int *why)
{
    if (*p == '-' && ++p == end) return fail(why, MORE);
    if (!is_digit(*p)) return fail(why, ODD);
    p = *p == '0' ? p + 1 : digits(p, end);
    if (p < end && *p == '.') {
        if (++p == end) return fail(why, MORE);
        if (!is_digit(*p)) return fail(why, ODD);
        p = digits(p, end);
    }
    if (p < end && (*p | 32) == 'e') {
        if (++p < end && (*p == '+' || *p == '-')) p++;
        if (p == end) return fail(why, MORE);
        if (!is_digit(*p)) return fail(why, ODD);
        while (p < end && is_digit(*p)) p++;
    }
    return p == end ? fail(why, MORE) : p;
}

static const u8 *literal(const u8 *p, const u8 *end, const char *text, int *why)
{
    size_t n = strlen(text);
    if ((size_t)(end - p) < n) return fail(why, MORE);
    return memcmp(p, text, n) ? fail(why, ODD) : p + n;
}

static inline const u8 *scalar(const u8 *p, const u8 *end, int *kind, int *escaped, int *why)
{
    switch (*p) {
    case '"': *kind = STRING; return string(p + 1, end, escaped, why);
    case 't': *kind = BOOLEAN; return literal(p, end, "true", why);
    case 'f': *kind = BOOLEAN; return literal(p, end, "false", why);
    case 'n': *kind = NIL; return literal(p, end, "null", why);
    default: *kind = NUMBER; return number(p, end, why);
    }
}

/* p is behind a member's key: the colon and the blanks around it. */
static inline const u8 *colon(const u8 *p, const u8 *end, int *why)
{
    if (end - p > 2 && p[0] == ':' && p[1] == ' ' && p[2] > ' ') return p + 2; /* as most write it */
    p = blank(p, end);
    if (p < end && *p != ':') return fail(why, ODD);
    if (p < end) p = blank(p + 1, end);
    return p < end ? p : fail(why, MORE);
}

/* p is behind a member of an object; the result is at the quote of the next one's key, or at the
   brace that ends the object. */
static inline const u8 *next_member(const u8 *p, const u8 *end, int *why)
{
    if (end - p > 2 && p[0] == ',' && p[1] == ' ' && p[2] == '"') return p + 2; /* as most write it */
    p = blank(p, end);
    if (p < end && *p == '}') return p;
    if (p < end && *p != ',') return fail(why, ODD);
    if (p < end) p = blank(p + 1, end);
    if (p == end) return fail(why, MORE);
    return *p == '"' ? p : fail(why, ODD);
}

static const u8 *member_key(const u8 *p, const u8 *end, int *why)
{
    int escaped = 0;
    if (p == end) return fail(why, MORE);
    if (*p != '"') return fail(why, ODD);
    p = string(p + 1, end, &escaped, why);
    return p ? colon(p, end, why) : NULL;
}

/* A whole value, p at its first byte (p < end). */
static const u8 *skip(const u8 *p, const u8 *end, int *why)
{
    u64 objects = 0; /* bit per depth: is it an object */
    int depth = 0, kind, escaped = 0;
    for (;;) {
        if (*p == '{' || *p == '[') {
            int object = *p == '{';
            p = blank(p + 1, end);
            if (p == end) return fail(why, MORE);
            if (*p != (object ? '}' : ']')) {
                if (++depth > MAX_DEPTH) return fail(why, ODD);
                objects = (objects << 1) | (u64)object;
                if (object && !(p = member_key(p, end, why))) return NULL;
                continue;
            }
            p++;
        } else if (!(p = scalar(p, end, &kind, &escaped, why))) return NULL;
        for (;;) { /* behind a value */
            if (!depth) return p;
            p = blank(p, end);
            if (p == end) return fail(why, MORE);
            if (*p == ',') break;
            if (*p != (objects & 1 ? '}' : ']')) return fail(why, ODD);
            objects >>= 1;
            depth--;
            p++;
        }
        p = blank(p + 1, end);
        if (p == end) return fail(why, MORE);
        if (objects & 1 && !(p = member_key(p, end, why))) return NULL;
    }
}

static inline const u8 *value(const u8 *p, const u8 *end, Token *t, int *why)
{
    t->p = p;
    t->escaped = 0;
    if (*p == '{' || *p == '[') {
        t->kind = *p == '{' ? OBJECT : ARRAY;
        p = skip(p, end, why);
    } else p = scalar(p, end, &t->kind, &t->escaped, why);
    if (p) t->n = (size_t)(p - t->p);
    return p;
}

#endif
