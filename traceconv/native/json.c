/* Arguments: JSON text to DebugAnnotations, as traceconv/writers/perfetto/arguments.py says.

   Input is never trusted: every read is bounded by the end of the row, and a row that turns out
   not to be JSON leaves nothing behind. Nothing here needs the interpreter lock, unless it says so. */

#include <float.h>
#include <stdlib.h>
#include "encode.h"

enum { MAX_DEPTH = 32, MAX_NUMBER = 63, MAX_EXPONENT = 308 };

enum { MOST_EXACT = 15, MOST_DECIMALS = 60 };

/* A token that is no string, as a string of its own spelling. */
static int put_token(Coder *c, Span s) { return put_string(c, s, s); }

static int put_text(Coder *c, const char *s)
{
    return put_token(c, (Span){(const uint8_t *)s, strlen(s)});
}

static int put_digits(Coder *c, Span s)
{
    c->clipped += !c->skip;
    return put_token(c, s);
}

/* The text of the row is not what its annotations say. */
static void set_odd(Coder *c) { if (!c->skip) c->odd[c->row] = 1; }

/* Each function reads one thing and writes it; 0 means that it is none. */

static int peek(const Coder *c) { return c->p < c->end ? *c->p : -1; }

static int space(Coder *c)
{
    c->p = blank(c->p, c->end);
    return 1;
}

/* The byte `byte`, and blanks after it. */
static int mark(Coder *c, uint8_t byte)
{
    const uint8_t *p = c->p, *end = c->end;
    if (p == end || *p != byte) return 0;
    c->p = blank(p + 1, end);
    return 1;
}

static int literal(Coder *c, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, word, n)) return 0;
    c->p += n;
    return 1;
}

/* Four hex digits after \u, or -1. */
static long code_unit(const uint8_t *p, const uint8_t *end) { return end - p < 4 ? -1 : hex4(p); }

static void put_utf8(Buffer *b, long rune)
{
    if (rune < 0x80) { put_byte(b, (uint8_t)rune); return; }
    if (rune < 0x800) put_byte(b, (uint8_t)(0xc0 | rune >> 6));
    else {
        if (rune < 0x10000) put_byte(b, (uint8_t)(0xe0 | rune >> 12));
        else {
            put_byte(b, (uint8_t)(0xf0 | rune >> 18));
            put_byte(b, (uint8_t)(0x80 | (rune >> 12 & 0x3f)));
        }
        put_byte(b, (uint8_t)(0x80 | (rune >> 6 & 0x3f)));
    }
    put_byte(b, (uint8_t)(0x80 | (rune & 0x3f)));
}

/* \uXXXX; two halves of a pair become one character, a lone half U+FFFD. */
static int escaped_unit(Coder *c, int *replaced)
{
    long unit = code_unit(c->p, c->end), low;
    if (unit < 0) return 0;
    c->p += 4;
    if (unit >= 0xd800 && unit < 0xdc00 && c->end - c->p > 6 && c->p[0] == '\\' && c->p[1] == 'u'
        && (low = code_unit(c->p + 2, c->end)) >= 0xdc00 && low < 0xe000) {
        c->p += 6;
        unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
    } else if (unit >= 0xd800 && unit < 0xe000) {
        *replaced = 1;
        unit = 0xfffd;
    }
    put_utf8(&c->scratch, unit);
    return 1;
}

/* Whether \uXXXX at p (behind the u) is the way to write its character: of control characters that
   have no letter, in small digits. */
static int is_needed_unit(const uint8_t *p)
{
    long unit = hex4(p);
    if (unit >= 0x20 || (unit >= 8 && unit <= 13 && unit != 11)) return 0;
    return p[2] < 'A' || p[2] > 'F' ? p[3] < 'A' || p[3] > 'F' : 0;
}

/* Behind the bytes at p that stand for themselves: at a quote, a backslash, or a control character. */
static inline const uint8_t *plain_run(const uint8_t *p, const uint8_t *end)
{
#if defined(__SSE2__)
    for (; end - p >= 16; p += 16) {
        unsigned hit = marks16(p);
        if (hit) return p + __builtin_ctz(hit);
    }
#endif
    while (p < end && *p != '"' && *p != '\\' && *p >= 0x20) p++;
    return p;
}

/* What the byte behind a backslash means; 0 if it is none of one letter. */
static inline uint8_t meant(uint8_t letter)
{
    switch (letter) {
    case '"': case '\\': case '/': return letter;
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    default: return 0;
    }
}

/* A string with escapes, of which `from` to c->p is already read. No escape grows. */
static int unescaped(Coder *c, const uint8_t *from, Span *s, int plain)
{
    int replaced = 0;
    c->scratch.n = 0;
    if (!grow(c, &c->scratch, (size_t)(c->end - from))) return 0;
    put(&c->scratch, from, (size_t)(c->p - from));
    while (c->p < c->end) {
        const uint8_t *run = c->p;
        c->p = plain_run(run, c->end);
        put(&c->scratch, run, (size_t)(c->p - run));
        if (c->p == c->end) return 0;
        uint8_t byte = *c->p++;
        if (byte == '"') {
            *s = (Span){c->scratch.at, c->scratch.n};
            c->replaced += replaced && !c->skip;
            if (!plain) c->spelt = (Span){from - 1, (size_t)(c->p - from) + 1};
            return 1;
        }
        if (byte != '\\') {
            plain = 0;
            put_byte(&c->scratch, byte);
            continue;
        }
        if (c->p == c->end) return 0;
        byte = *c->p++;
        plain &= byte != '/';
        if (byte == 'u') {
            const uint8_t *digits = c->p;
            if (!escaped_unit(c, &replaced)) return 0;
            plain &= is_needed_unit(digits);
        } else if ((byte = meant(byte))) put_byte(&c->scratch, byte);
        else return 0;
    }
    return 0;
}

/* A string, the opening quote being next. It is valid until the next one is read. */
static int string(Coder *c, Span *s)
{
    const uint8_t *from = ++c->p, *end = c->end, *p = plain_run(from, end);
    int plain = 1;
    for (; p < end && *p < 0x20; p = plain_run(p + 1, end)) plain = 0;
    c->p = p;
    c->spelt = (Span){0};
    if (p == end) return 0;
    if (*p == '\\') return unescaped(c, from, s, plain);
    *s = (Span){from, (size_t)(p - from)};
    c->p++;
    if (!plain) c->spelt = (Span){from - 1, s->n + 2};
    return 1;
}

/* Exact where both factors are; false where that is not sure. */
static int quick_double(uint64_t mantissa, long exponent, double *value)
{
    static const double ten[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
        1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (FLT_EVAL_METHOD != 0 || mantissa > (uint64_t)1 << 53 || labs(exponent) > 22) return 0;
    *value = exponent < 0 ? (double)mantissa / ten[-exponent] : (double)mantissa * ten[exponent];
    return 1;
}

/* The decimals of a number of no more than 15 digits, if it has more of them than it needs; 0 if not.
   With so many it comes back as it is. */
static uint64_t extra_decimals(uint64_t mantissa, const uint8_t *fraction, size_t decimals)
{
    /* below 0.0001, the shortest form has an exponent */
    int small = mantissa && decimals > 4;
    if (small) {
        uint64_t least = 1;
        size_t beyond = decimals - 4;
        for (size_t i = 0; i < beyond && least <= mantissa; i++) least *= 10;
        small = mantissa < least;
    }
    if (small || (decimals > 1 && fraction[decimals - 1] == '0')) return decimals;
    return 0;
}

/* `fraction` is what is behind the point, of `decimals` digits; NULL if there is an exponent. */
static int put_real(Coder *c, Span text, int negative, uint64_t mantissa, int exact, long exponent,
                    const uint8_t *fraction, size_t decimals)
{
    double value = 0;
    uint64_t own = 0;
    int sure = fraction && exact && mantissa < 1000000000000000u && decimals <= MOST_DECIMALS;
    if (!grow(c, &c->out, 32) || !grow(c, &c->slow, sizeof(Slow))) return 0;
    put_byte(&c->out, 0x29); /* double_value */
    int quick = exact && quick_double(mantissa, exponent, &value);
    if (!quick || !sure) {
        Slow later = {c->out.n, text, sure || c->skip ? -1 : c->row};
        put(&c->slow, &later, sizeof later);
    }
    put_double(&c->out, negative ? -value : value);
    if (sure && (own = extra_decimals(mantissa, fraction, decimals))) {
        put_tag(&c->out, OWN_NUMBER, OWN_HIGH);
        put_varint(&c->out, own);
    }
    return 1;
}

static int digits(Coder *c, uint64_t *mantissa)
{
    const uint8_t *p = c->p, *from = p, *end = c->end;
    uint64_t m = *mantissa;
    for (; p < end && is_digit(*p); p++) m = m * 10 + (*p - '0'); /* wraps where there are more than 19 */
    *mantissa = m;
    c->p = p;
    return p > from;
}

static int number(Coder *c)
{
    const uint8_t *from = c->p, *whole = from + (*from == '-'), *dot, *after;
    uint64_t mantissa = 0;
    long exponent = 0;
    c->p = whole;
    if (*from == '-' && literal(c, "Infinity")) return put_text(c, "-Infinity");
    if (peek(c) == '0') c->p++;
    else if (!digits(c, &mantissa)) return 0;
    dot = after = c->p;
    if (peek(c) == '.') {
        c->p++;
        if (!digits(c, &mantissa)) return 0;
        after = c->p;
    }
    if (peek(c) == 'e' || peek(c) == 'E') {
        c->p++;
        int sign = peek(c) == '-' ? -1 : 1;
        if (peek(c) == '-' || peek(c) == '+') c->p++;
        const uint8_t *first = c->p;
        for (; peek(c) >= '0' && peek(c) <= '9'; c->p++)
            if (exponent < 9999) exponent = exponent * 10 + (*c->p - '0');
        if (c->p == first) return 0;
        exponent *= sign;
    }
    Span text = {from, (size_t)(c->p - from)};
    int negative = *from == '-';
    if (c->p > dot) {
        if (text.n > MAX_NUMBER || dot - whole + exponent > MAX_EXPONENT) return put_digits(c, text);
        long fraction = after > dot ? (long)(after - dot) - 1 : 0;
        const uint8_t *point = c->p == after ? dot + 1 : NULL;
        return put_real(c, text, negative, mantissa, after - whole < 19, exponent - fraction, point,
            (size_t)fraction);
    }
    if (dot - whole > 19 || mantissa > (uint64_t)INT64_MAX + negative) return put_digits(c, text);
    if (!grow(c, &c->out, 16)) return 0;
    if (negative && !mantissa) set_odd(c);
    put_byte(&c->out, 0x20); /* int_value */
    put_varint(&c->out, negative ? 0 - mantissa : mantissa);
    return 1;
}

static int boolean(Coder *c, uint8_t value)
{
    if (!grow(c, &c->out, 2)) return 0;
    put_tag(&c->out, 0x10, value); /* bool_value */
    return 1;
}

static int members(Coder *c, uint8_t field, int depth);
static int elements(Coder *c, int depth);

static int value(Coder *c, int depth)
{
    Span s;
    switch (peek(c)) {
    case '"': return string(c, &s) && put_string(c, s, c->spelt);
    case '{': return members(c, 0x5a, depth + 1); /* dict_entries */
    case '[': return elements(c, depth + 1);
    case 't': return literal(c, "true") && boolean(c, 1);
    case 'f': return literal(c, "false") && boolean(c, 0);
    case 'n': return literal(c, "null") && put_text(c, "null");
    case 'N': return literal(c, "NaN") && put_text(c, "NaN");
    case 'I': return literal(c, "Infinity") && put_text(c, "Infinity");
    case -1: return 0;
    default: return number(c);
    }
}

/* One DebugAnnotation in field `field`: the value that is next, or `text` where that is given. Of the
   two parts of its name, the second is how it is written, if it could be otherwise. */
static int item(Coder *c, uint8_t field, const Span *name, int depth, const Span *text)
{
    if (!grow(c, &c->out, 2)) return 0;
    put_tag(&c->out, field, 0);
    size_t body = c->out.n;
    if (name && !put_name(c, name[0], name[1])) return 0;
    if (!(text ? put_string(c, *text, (Span){0}) : value(c, depth))) return 0;
    size_t n = c->out.n - body, more = varint_size(n) - 1;
    if (more) { /* the length takes more than the one byte left for it */
        if (!grow(c, &c->out, more)) return 0;
        memmove(c->out.at + body + more, c->out.at + body, n);
        for (size_t i = c->slow.n; i && ((Slow *)(c->slow.at + i))[-1].at >= body; i -= sizeof(Slow))
            ((Slow *)(c->slow.at + i))[-1].at += more;
    }
    c->out.n = body - 1;
    put_varint(&c->out, n);
    c->out.n += n;
    return 1;
}

static int is_selected(const Coder *c, Span name)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(c->selected); i++) {
        PyObject *key = PyTuple_GET_ITEM(c->selected, i);
        if ((size_t)PyBytes_GET_SIZE(key) == name.n && !memcmp(PyBytes_AS_STRING(key), name.at, name.n))
            return 1;
    }
    return 0;
}

/* An argument of the event itself. One that is not selected is read and forgotten. */
static int argument(Coder *c, const Span *name, const Span *text)
{
    size_t out = c->out.n, slow = c->slow.n;
    c->skip = c->selected && !is_selected(c, *name);
    int ok = item(c, 0x22, name, 1, text); /* debug_annotations */
    if (c->skip) {
        c->out.n = out;
        c->slow.n = slow;
        c->row_dropped = 1;
    }
    c->skip = 0;
    return ok;
}

static int members(Coder *c, uint8_t field, int depth)
{
    Span name[2];
    c->p++;
    if (depth > MAX_DEPTH) return 0;
    space(c);
    if (peek(c) == '}') {
        c->p++;
        if (depth == 1) set_odd(c);
        return depth == 1 || put_text(c, "{}");
    }
    for (;;) {
        if (peek(c) != '"' || !string(c, name)) return 0;
        name[1] = c->spelt;
        if (!space(c) || !mark(c, ':')) return 0;
        if (!(depth == 1 ? argument(c, name, NULL) : item(c, field, name, depth, NULL))) return 0;
        space(c);
        if (literal(c, "}")) return 1;
        if (!mark(c, ',')) return 0;
    }
}

static int elements(Coder *c, int depth)
{
    c->p++;
    if (depth > MAX_DEPTH) return 0;
    space(c);
    if (peek(c) == ']') { c->p++; return put_text(c, "[]"); }
    for (;;) {
        if (!item(c, 0x62, NULL, depth, NULL)) return 0; /* array_values */
        space(c);
        if (literal(c, "]")) return 1;
        if (!mark(c, ',')) return 0;
    }
}

static int valid_utf8(Span s)
{
    size_t i = 0;
    for (uint64_t word; i + 8 <= s.n; i += 8) {
        memcpy(&word, s.at + i, 8);
        if (word & 0x8080808080808080u) break;
    }
    while (i < s.n) {
        size_t n = s.at[i] < 0x80 ? 1 : (size_t)wide_length(s.at[i]);
        if (!n || s.n - i < n || (n > 1 && !is_wide(s.at + i, (int)n))) return 0;
        i += n;
    }
    return 1;
}

/* All arguments of one event; leaves nothing behind where they are no JSON. */
int encode_row(Coder *c, Span s)
{
    const Span args[2] = {{(const uint8_t *)"args", 4}, {0}};
    size_t out = c->out.n, interned = c->interned.n, slow = c->slow.n;
    int32_t names = c->known->names.count, strings = c->known->strings.count;
    long long clipped = c->clipped, replaced = c->replaced;
    c->p = s.at;
    c->end = s.at + s.n;
    c->row_dropped = 0;
    if (valid_utf8(s) && space(c)) {
        int object = peek(c) == '{';
        if (!object) set_odd(c);
        if ((object ? members(c, 0x22, 1) : argument(c, args, NULL)) && space(c) && c->p == c->end) {
            c->dropped += c->row_dropped;
            return 1;
        }
    }
    c->out.n = out;
    c->interned.n = interned;
    c->slow.n = slow;
    c->clipped = clipped;
    c->replaced = replaced;
    table_shrink(&c->known->names, names);
    table_shrink(&c->known->strings, strings);
    return 0;
}

/* With the lock: the doubles that need the full algorithm. */
int settle(Coder *c)
{
    for (size_t i = 0; i < c->slow.n; i += sizeof(Slow)) {
        Slow *s = (Slow *)(c->slow.at + i);
        char text[MAX_NUMBER + 1] = {0};
        memcpy(text, s->text.at, s->text.n);
        double value = PyOS_string_to_double(text, NULL, NULL);
        if (value == -1.0 && PyErr_Occurred()) return 0;
        set_double(c->out.at + s->at, value);
        if (s->row < 0) continue;
        char *shortest = PyOS_double_to_string(value, 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
        if (!shortest) return 0;
        if (strcmp(text, shortest)) c->odd[s->row] = 1;
        PyMem_Free(shortest);
    }
    c->slow.n = 0;
    return 1;
}

/* With the lock: a row that is not JSON, or not UTF-8. 0 with an exception set. */
int encode_broken(Coder *c, Span s)
{
    const Span args[2] = {{(const uint8_t *)"args", 4}, {0}};
    Py_ssize_t n;
    c->odd[c->row] = 1;
    int ok = settle(c); /* later ones point into memory that is gone after this */
    PyObject *text = PyUnicode_DecodeUTF8((const char *)s.at, (Py_ssize_t)s.n, "replace");
    const char *at = text ? PyUnicode_AsUTF8AndSize(text, &n) : NULL;
    if (ok && at) {
        int same = s.n == (size_t)n && !memcmp(s.at, at, s.n);
        s = (Span){(const uint8_t *)at, (size_t)n};
        if (!encode_row(c, s) && !c->no_memory) {
            c->row_dropped = 0;
            c->not_json++;
            ok = argument(c, args, &s);
            c->dropped += c->row_dropped;
        }
        c->replaced += !same;
        ok = ok && settle(c);
    }
    Py_XDECREF(text);
    return ok && at;
}
