/* Characters of JSON text: what the strict tokenizer (tokens.h) and the lenient one (json.c) share.
 *
 * No function reads at or beyond `end`.
 */
#ifndef TRACECONV_TEXT_H
#define TRACECONV_TEXT_H
#include <float.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* What all parts rely on. Where it does not hold they are not built, and Python does the work.
 * Nothing relies on the order of bytes: numbers of files are read byte by byte, and columns go to
 * numpy in the order of this machine. */
_Static_assert(CHAR_BIT == 8 && sizeof(int) == 4, "bytes of 8 and int of 32 bits");
_Static_assert(sizeof(size_t) == 8 && sizeof(void *) == 8, "sizes and addresses of 64 bits");
_Static_assert(sizeof(double) == 8 && FLT_RADIX == 2 && DBL_MANT_DIG == 53, "IEEE 754 doubles");
_Static_assert(-1 == ~0 && (-3 >> 1) == -2, "two's complement, shifted with its sign");

#if defined(__GNUC__)
#define PREFETCH(at) __builtin_prefetch(at)
#else
#define PREFETCH(at) ((void)(at))
#endif

typedef uint8_t u8;
typedef uint64_t u64;

static inline int is_digit(u8 c) { return (u8)(c - '0') < 10; }

static inline const u8 *blank(const u8 *p, const u8 *end)
{
    if (p < end && *p > ' ') return p; /* none, mostly, or one */
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    return p;
}

#if defined(__SSE2__)
/* Which of the 16 bytes at p are a quote, a backslash, a control character, or 0x80 and more: a bit
   each. */
static inline unsigned special16(const u8 *p)
{
    __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
    __m128i hit = _mm_or_si128(_mm_cmpeq_epi8(x, _mm_set1_epi8('"')), _mm_cmpeq_epi8(x, _mm_set1_epi8('\\')));
    return (unsigned)_mm_movemask_epi8(_mm_or_si128(hit, _mm_cmplt_epi8(x, _mm_set1_epi8(' '))));
}

/* The same without 0x80 and more. */
static inline unsigned marks16(const u8 *p)
{
    __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
    __m128i hit = _mm_or_si128(_mm_cmpeq_epi8(x, _mm_set1_epi8('"')), _mm_cmpeq_epi8(x, _mm_set1_epi8('\\')));
    __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(x, _mm_set1_epi8(0x1f)), x);
    return (unsigned)_mm_movemask_epi8(_mm_or_si128(hit, control));
}
#endif

/* The value of a hexadecimal digit, -1 if it is none. */
static inline int hexadecimal(u8 c)
{
    return is_digit(c) ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 87 : -1;
}

/* The value of four hexadecimal digits, -1 if they are none; the caller knows that they exist. */
static inline int hex4(const u8 *p)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        int d = hexadecimal(p[i]);
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

/* The length of the UTF-8 sequence that begins with a byte >= 0x80; 0 if no sequence does. */
static inline int wide_length(u8 c)
{
    return c < 0xc2 || c > 0xf4 ? 0 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
}

/* Whether the n = wide_length(*p) bytes at p are one well-formed sequence. */
static inline int is_wide(const u8 *p, int n)
{
    u8 c = *p;
    if ((c == 0xe0 && p[1] < 0xa0) || (c == 0xed && p[1] > 0x9f) || (c == 0xf0 && p[1] < 0x90) ||
        (c == 0xf4 && p[1] > 0x8f))
        return 0;
    for (int i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    return 1;
}

#endif
