/* Trace events, from JSON text to columns: the optional fast tier of
 * traceconv/readers/shared/trace_events.
 *
 * It reads the plain, common form of an event and nothing else. Whatever is unusual (an escaped
 * key, a doubled key, a missing stamp, a number too long, bytes that are not UTF-8, anything
 * that is not JSON) stops it in front of that record with the status ODD, and the Python tier,
 * which decides such cases, takes the record from there. So it needs to be right, not clever:
 * it validates all syntax it passes over, and never reads outside [start, end).
 *
 * While scanning no Python object is touched and the lock is released.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "table.h"
#include "tokens.h"

#define CAPACITY 32768       /* records of one kind before Python must take them */
#define BLOB_LIMIT (8 << 20) /* copied argument bytes before Python must take them */
#define MAX_GRAPH_KEYS 8
#define MAX_EXTRAS 16        /* members of one record that nothing is made of */
#define MOST_VALUES 4096     /* values of graph keys that are kept from one take to the next */
#define MAX_UNREAD 64        /* names of such members that are counted */
#define MAX_SERIES 8
#define MAX_SHAPE 1024
#define RECENT 64 /* shapes that are found without being spelled out; a power of two */

/* ---- hashing of arrows: SipHash-1-3, keyed: there, a collision would join two -------------- */

#define ROTL(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
#define ROUND(a, b, c, d)                                                                        \
    do {                                                                                         \
        a += b; c += d; b = ROTL(b, 13); d = ROTL(d, 16); b ^= a; d ^= c; a = ROTL(a, 32);       \
        c += b; a += d; b = ROTL(b, 17); d = ROTL(d, 21); b ^= c; d ^= a; c = ROTL(c, 32);       \
    } while (0)

typedef struct { u64 a, b, c, d, tail; unsigned filled; u64 length; } Sip;

static void sip_start(Sip *h, u64 k0, u64 k1)
{
    h->a = k0 ^ 0x736f6d6570736575ULL; h->b = k1 ^ 0x646f72616e646f6dULL;
    h->c = k0 ^ 0x6c7967656e657261ULL; h->d = k1 ^ 0x7465646279746573ULL;
    h->tail = 0; h->filled = 0; h->length = 0;
}

static void sip_word(Sip *h, u64 m)
{
    u64 a = h->a, b = h->b, c = h->c, d = h->d ^ m;
    ROUND(a, b, c, d);
    h->a = a ^ m; h->b = b; h->c = c; h->d = d;
}

static void sip_bytes(Sip *h, const u8 *p, size_t n)
{
    h->length += n;
    if (h->filled == 0)
        for (; n >= 8; p += 8, n -= 8) sip_word(h, load64(p));
    for (; n; p++, n--) {
        h->tail |= (u64)*p << (8 * h->filled);
        if (++h->filled == 8) { sip_word(h, h->tail); h->tail = 0; h->filled = 0; }
    }
}

static u64 sip_end(Sip *h)
{
    sip_word(h, h->tail | (h->length << 56));
    u64 a = h->a, b = h->b, c = h->c ^ 0xff, d = h->d;
    ROUND(a, b, c, d); ROUND(a, b, c, d); ROUND(a, b, c, d);
    return a ^ b ^ c ^ d;
}

/* ---- the scanner's state ----------------------------------------------------------------- */

typedef struct {
    int32_t shape[CAPACITY], name[CAPACITY];
    int64_t start[CAPACITY], dur[CAPACITY], args[CAPACITY];
    int32_t length[CAPACITY], graph[CAPACITY], step[CAPACITY], type[CAPACITY];
    int count;
} Rows;

typedef struct {
    int32_t shape[CAPACITY], name[CAPACITY];
    int64_t start[CAPACITY], key[CAPACITY];
    u8 encloses[CAPACITY];
    int count;
} Flows;

typedef struct {
    int32_t shape[CAPACITY], name[CAPACITY], series[CAPACITY];
    int64_t start[CAPACITY];
    double value[CAPACITY];
    int count;
} Samples;

/* A shape and the tokens it was last made of, in the bytes that are being scanned. */
typedef struct { Token cat, pid, tid; u8 phase; int32_t code; } Recent;

/* A member of a record that nothing is made of. */
typedef struct { const u8 *key; size_t n; Token value; } Extra;

/* How often members of one name were left out. */
typedef struct { u8 name[32]; size_t n; int64_t count; } Unread;

typedef struct {
    PyObject_HEAD
    Rows *rows;
    Flows *flows;
    Samples *samples;
    int64_t *others; /* records that Python decodes: start, end, samples before it */
    int other_count;
    Table names, shapes, series, values;
    int32_t reported[4]; /* entries of these that Python knows already */
    u8 *blob; /* copied arguments, where the input does not stay */
    size_t blob_used, blob_size;
    int copy_args, keep, busy;
    Unread unread[MAX_UNREAD];
    int unread_count;
    int64_t rounded_durations, rounded_stamps;
    u64 k0, k1;
    u64 name_hash; /* of the record at hand, if its name is a string */
    Recent recent[RECENT];
    struct { u8 *text; size_t n; int is_type; } probes[MAX_GRAPH_KEYS + 1];
    int probe_count;
} Scanner;

static u64 hash_of(const Scanner *z, const u8 *p, size_t n)
{
    Sip h;
    sip_start(&h, z->k0, z->k1);
    sip_bytes(&h, p, n);
    return sip_end(&h);
}

static u64 table_key(const Scanner *z) { return z->k0 ^ z->k1; }

/* The code of the bytes, or -1 when there is no memory. */
static int32_t intern_hashed(Table *t, u64 hash, const u8 *p, size_t n)
{
    int32_t code = table_find(t, hash, p, n);
    return code < 0 ? table_add(t, hash, p, n) : code;
}

static int32_t intern(Scanner *z, Table *t, const u8 *p, size_t n)
{
    return intern_hashed(t, table_hash(table_key(z), p, n), p, n);
}

/* ---- numbers ----------------------------------------------------------------------------- */

static const u64 TEN[20] = {
    1ULL, 10ULL, 100ULL, 1000ULL, 10000ULL, 100000ULL, 1000000ULL, 10000000ULL, 100000000ULL,
    1000000000ULL, 10000000000ULL, 100000000000ULL, 1000000000000ULL, 10000000000000ULL,
    100000000000000ULL, 1000000000000000ULL, 10000000000000000ULL, 100000000000000000ULL,
    1000000000000000000ULL, 10000000000000000000ULL};

/* The value of the eight digits at p, the first of which weighs most; 0 if some are none. */
static int eight_digits(const u8 *p, u64 *value)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    u64 x = load64(p);
    if (((x & EACH(0xf0)) | (((x + EACH(6)) & EACH(0xf0)) >> 4)) != EACH(0x33)) return 0;
    x -= EACH('0');
    x = x * 10 + (x >> 8); /* pairs, in every other byte */
    u64 pairs = 0x000000ff000000ffULL, low = x & pairs, high = (x >> 16) & pairs;
    *value = (low * (100 + (1000000ULL << 32)) + high * (1 + (10000ULL << 32))) >> 32;
    return 1;
#else
    (void)p, (void)value;
    return 0;
#endif
}

/* digits[.digits], 19 of them at most; 0 if it is anything else. */
static int short_decimal(const u8 *p, const u8 *end, u64 *digits, int *exponent)
{
    const u8 *from = p, *point = NULL;
    u64 m = 0, eight;
    if (end - p > 20) return 0;
    for (; end - p >= 8 && eight_digits(p, &eight); p += 8) m = m * 100000000 + eight;
    for (; p < end && is_digit(*p); p++) m = m * 10 + (u64)(*p - '0');
    if (p == from) return 0;
    if (p < end && *p == '.') {
        point = p++;
        for (; end - p >= 8 && eight_digits(p, &eight); p += 8) m = m * 100000000 + eight;
        for (; p < end && is_digit(*p); p++) m = m * 10 + (u64)(*p - '0');
    }
    if (p < end || p - from - (point != NULL) > 19 || (point && p == point + 1)) return 0;
    *digits = m;
    *exponent = point ? -(int)(p - point - 1) : 0;
    return 1;
}

/* -?digits[.digits][e[+-]digits] into digits * 10**exponent. 0 if it does not fit 19 digits. */
static int decimal(const u8 *p, const u8 *end, int *negative, u64 *digits, int *exponent)
{
    u64 m = 0;
    int significant = 0, places = 0, seen = 0, e = 0;
    *negative = p < end && *p == '-';
    p += *negative;
    if (short_decimal(p, end, digits, exponent)) return 1;
    for (; p < end && is_digit(*p); p++, seen++) {
        if ((significant += m || *p != '0') > 19) return 0;
        m = m * 10 + (u64)(*p - '0');
    }
    if (!seen) return 0;
    if (p < end && *p == '.') {
        const u8 *first = ++p;
        for (; p < end && is_digit(*p); p++) {
            if ((significant += m || *p != '0') > 19) return 0;
            m = m * 10 + (u64)(*p - '0');
        }
        if (p == first || p - first > 400) return 0;
        places = (int)(p - first);
    }
    if (p < end && (*p | 32) == 'e') {
        int minus = ++p < end && *p == '-';
        if (p < end && (*p == '-' || *p == '+')) p++;
        if (p == end || end - p > 3) return 0;
        for (; p < end && is_digit(*p); p++) e = e * 10 + (*p - '0');
        if (minus) e = -e;
    }
    *digits = m;
    *exponent = e - places;
    return p == end;
}

/* Microseconds, as a number or a string of one, to nanoseconds, half up. 0 if unusual. */
static int nanoseconds(const Token *t, int64_t *ns, int *rounded)
{
    const u8 *p = t->p, *end = t->p + t->n;
    int negative, shift;
    u64 m;
    if (t->kind == STRING && !t->escaped) { p++; end--; }
    else if (t->kind != NUMBER) return 0;
    if (!decimal(p, end, &negative, &m, &shift)) return 0;
    shift += 3;
    if (shift > 18 && m) return 0;
    if (shift >= 0) {
        if (m && m > (u64)INT64_MAX / TEN[shift]) return 0;
        m = m ? m * TEN[shift] : 0;
    } else if (shift < -19) {
        *rounded = m > 0;
        m = 0;
    } else {
        u64 scale = TEN[-shift];
        *rounded = m % scale > 0;
        m = (m + scale / 2) / scale;
    }
    if (m > INT64_MAX) return 0;
    *ns = negative ? -(int64_t)m : (int64_t)m;
    return 1;
}

/* A double, where that is exact arithmetic: up to 2**53 times or over a power of ten. */
static int real(const Token *t, double *out)
{
    int negative, shift;
    u64 m;
    if (!decimal(t->p, t->p + t->n, &negative, &m, &shift)) return 0;
    if (m > (1ULL << 53) || shift < -19 || shift > 19) return 0;
    double v = (double)m;
    v = shift < 0 ? v / (double)TEN[-shift] : v * (double)TEN[shift];
    *out = negative && m ? -v : v;
    return 1;
}

/* ---- events ------------------------------------------------------------------------------ */

enum { PH, NAME, CAT, PID, TID, TS, DUR, ARGS, ID, BP, GRAPH, STEP, BIND, ID2, FIELDS };

static int field_of(const u8 *k, size_t n)
{
#define IS(text, field) if (!memcmp(k, text, sizeof text - 1)) return field
    switch (n) {
    case 2: IS("ph", PH); IS("ts", TS); IS("id", ID); IS("bp", BP); break;
    case 3: IS("pid", PID); IS("tid", TID); IS("dur", DUR); IS("cat", CAT); IS("id2", ID2); break;
    case 4: IS("name", NAME); IS("args", ARGS); IS("step", STEP); break;
    case 5: IS("graph", GRAPH); break;
    case 7: IS("bind_id", BIND); break;
    default: break;
    }
    return FIELDS;
}

/* The field whose key begins at p, behind the quote, and its length; -1 if it is not one of those that
   nearly all events have. */
static int common_field(const u8 *p, const u8 *end, size_t *n)
{
#define KEY(text, field) if (!memcmp(p, text "\"", sizeof text)) { *n = sizeof text - 1; return field; }
    if (end - p < 8) return -1;
    switch (p[0]) {
    case 'n': KEY("name", NAME) break;
    case 'p': KEY("ph", PH) KEY("pid", PID) break;
    case 't': KEY("ts", TS) KEY("tid", TID) break;
    case 'd': KEY("dur", DUR) break;
    case 'c': KEY("cat", CAT) break;
    case 'a': KEY("args", ARGS) break;
    case 'i': KEY("id", ID) break;
    case 'b': KEY("bp", BP) break;
    default: break;
    }
    return -1;
}

static int text_or_nothing(const Token *t) { return t->kind == STRING || t->kind == ABSENT || t->kind == NIL; }
static int id_or_nothing(const Token *t) { return text_or_nothing(t) || t->kind == NUMBER; }

/* A process or thread id in a form Python reads in the same way as here: no 1e999, no 5000 digits. */
static int plain_id(const Token *t)
{
    if (t->kind != NUMBER) return text_or_nothing(t);
    for (size_t i = 0; i < t->n; i++)
        if ((t->p[i] | 32) == 'e') return 0;
    return t->n <= 40;
}

/* The bytes of a string without quotes, of a number as it is; nothing for null and absent. */
static size_t content(const Token *t, const u8 **p)
{
    *p = t->kind == STRING ? t->p + 1 : t->p;
    return t->kind == STRING ? t->n - 2 : t->kind == NUMBER ? t->n : 0;
}

static size_t put(u8 *to, size_t at, const Token *t)
{
    if (t->kind == STRING || t->kind == NUMBER) {
        if (at + t->n + 1 > MAX_SHAPE) return MAX_SHAPE;
        memcpy(to + at, t->p, t->n);
        at += t->n;
    }
    to[at] = 0; /* cannot occur inside of a token */
    return at + 1;
}

static int alike(const Token *a, const Token *b)
{
    return a->kind == b->kind && a->n == b->n && !memcmp(a->p, b->p, a->n);
}

static u64 last_byte(const Token *t) { return t->n ? t->p[t->n - 1] : 0; }

/* The code of (phase, category, pid, tid) as spelled; -1: no memory, -2: unusual. */
static int32_t shape_of(Scanner *z, const Token *f)
{
    u8 key[MAX_SHAPE];
    const Token *cat = &f[CAT], *pid = &f[PID], *tid = &f[TID];
    const u8 phase = f[PH].p[1];
    u64 place = phase + cat->n * 3 + last_byte(pid) * 5 + last_byte(tid) * 7;
    if (tid->n > 1) place += (u64)tid->p[tid->n - 2] * 131;
    Recent *recent = &z->recent[place % RECENT];
    if (recent->phase == phase && alike(&recent->cat, cat) && alike(&recent->pid, pid) &&
        alike(&recent->tid, tid))
        return recent->code;
    if (!text_or_nothing(cat) || !plain_id(pid) || !plain_id(tid)) return -2;
    key[0] = phase;
    size_t at = put(key, 1, cat);
    if (at < MAX_SHAPE) at = put(key, at, pid);
    if (at < MAX_SHAPE) at = put(key, at, tid);
    if (at >= MAX_SHAPE) return -2;
    int32_t code = intern(z, &z->shapes, key, at);
    if (code >= 0) *recent = (Recent){*cat, *pid, *tid, phase, code};
    return code;
}

/* The code of a name as spelled (escapes and all); -1 none, -2 no memory. */
static int32_t name_of(Scanner *z, const Token *t)
{
    const u8 *p;
    if (t->kind != STRING) return -1;
    size_t n = content(t, &p);
    int32_t code = intern_hashed(&z->names, z->name_hash, p, n);
    return code < 0 ? -2 : code;
}

static int value_code(Scanner *z, const Token *t, int32_t *out)
{
    if (t->kind == ABSENT || t->kind == NIL) return OBJECT;
    if (t->kind == ABSENT || !plain_id(t)) return ODD;
    *out = intern(z, &z->values, t->p, t->n);
    return *out < 0 ? NO_MEMORY : OBJECT;
}

/* What is noted of the arguments while passing over them. */
typedef struct { Token probes[MAX_GRAPH_KEYS + 1]; int empty, escaped; } Members;

/* p is at the opening brace of the arguments. */
static const u8 *arguments(const Scanner *z, const u8 *p, const u8 *end, Members *a, int *why)
{
    a->empty = a->escaped = 0;
    for (int i = 0; i < z->probe_count; i++) a->probes[i].kind = ABSENT;
    p = blank(p + 1, end);
    if (p < end && *p == '}') { a->empty = 1; return p + 1; }
    for (;;) {
        Token t;
        if (p == end) return fail(why, MORE);
        if (*p != '"') return fail(why, ODD);
        const u8 *key = p + 1;
        if (!(p = string(key, end, &a->escaped, why))) return NULL;
        size_t n = (size_t)(p - 1 - key);
        if (!(p = colon(p, end, why)) || !(p = value(p, end, &t, why))) return NULL;
        for (int i = 0; i < z->probe_count; i++)
            if (z->probes[i].n == n && !memcmp(z->probes[i].text, key, n)) a->probes[i] = t;
        if (!(p = next_member(p, end, why))) return NULL;
        if (*p == '}') return p + 1;
    }
}

/* The codes of the graph (its first spelling that is there) and of the type. */
static int probed(Scanner *z, const Members *a, int row)
{
    for (int i = 0; i < z->probe_count; i++) {
        const Token *t = &a->probes[i];
        int32_t *column = z->probes[i].is_type ? z->rows->type : z->rows->graph;
        if (t->kind == ABSENT || t->kind == NIL || column[row] >= 0) continue;
        int done = value_code(z, t, &column[row]);
        if (done != OBJECT) return done;
    }
    return OBJECT;
}

static u8 *room_for(Scanner *z, size_t n)
{
    if (z->blob_size - z->blob_used < n) {
        size_t size = z->blob_size * 2 + n;
        u8 *blob = realloc(z->blob, size);
        if (!blob) return NULL;
        z->blob = blob;
        z->blob_size = size;
    }
    u8 *at = z->blob + z->blob_used;
    z->blob_used += n;
    return at;
}

static u8 *copied(u8 *to, const void *from, size_t n) { memcpy(to, from, n); return to + n; }

#define WRITE(to, text) copied(to, text, sizeof text - 1)

/* The arguments of a row with what else is kept of its event as their last member; 0 if that is
   nothing, -1 if there is no memory. */
static int with_extras(Scanner *z, const Token *f, int empty, const Extra *extra, int extras, int row)
{
    const Token *cat = &f[CAT], *id = &f[ID];
    int has_cat = cat->kind == STRING && cat->n > 2, has_id = id->kind != ABSENT;
    if (!extras && !has_cat && !has_id) return 0;
    size_t size = empty ? 1 : f[ARGS].n;
    size += sizeof ",\"trace_event\":{}}" + (has_cat ? cat->n + sizeof "\"cat\":," : 0);
    size += has_id ? id->n + sizeof "\"id\":," : 0;
    for (int i = 0; i < extras; i++) size += extra[i].n + extra[i].value.n + sizeof "\"\":,";
    if (size > INT32_MAX) return 0;
    u8 *begin = room_for(z, size), *to = begin;
    if (!begin) return -1;
    to = empty ? WRITE(to, "{") : copied(to, f[ARGS].p, f[ARGS].n - 1);
    if (!empty) to = WRITE(to, ",");
    to = WRITE(to, "\"trace_event\":{");
    if (has_cat) to = WRITE(copied(WRITE(to, "\"cat\":"), cat->p, cat->n), ",");
    if (has_id) to = WRITE(copied(WRITE(to, "\"id\":"), id->p, id->n), ",");
    for (int i = 0; i < extras; i++) {
        to = copied(WRITE(to, "\""), extra[i].key, extra[i].n);
        to = WRITE(copied(WRITE(to, "\":"), extra[i].value.p, extra[i].value.n), ",");
    }
    to = WRITE(to - 1, "}}"); /* over the last comma */
    int64_t at = begin - z->blob;
    z->rows->args[row] = z->copy_args ? at : -1 - at;
    z->rows->length[row] = (int32_t)(to - begin);
    z->blob_used = (size_t)(to - z->blob);
    return 1;
}

/* Whether the names of members can be counted here. */
static int countable(const Scanner *z, const Extra *extra, int extras)
{
    for (int i = 0; i < extras; i++)
        if (extra[i].n > sizeof z->unread[0].name) return 0;
    return z->unread_count + extras <= MAX_UNREAD;
}

static void count_unread(Scanner *z, const Extra *extra, int extras)
{
    for (int i = 0; i < extras; i++) {
        int at = 0;
        while (at < z->unread_count && (z->unread[at].n != extra[i].n ||
               memcmp(z->unread[at].name, extra[i].key, extra[i].n))) at++;
        if (at == z->unread_count) {
            memcpy(z->unread[at].name, extra[i].key, extra[i].n);
            z->unread[at].n = extra[i].n;
            z->unread[at].count = 0;
            z->unread_count++;
        }
        z->unread[at].count++;
    }
}

static int row(
    Scanner *z, const Token *f, const Members *a, const Extra *extra, int extras, const u8 *data,
    u8 phase)
{
    Rows *r = z->rows;
    int i = r->count, empty = 1, stamp_rounded = 0, dur_rounded = 0, done;
    int complete = phase == 'X';
    r->dur[i] = 0;
    r->graph[i] = r->step[i] = r->type[i] = -1;
    if (f[BIND].kind || !text_or_nothing(&f[NAME])) return ODD;
    if (!nanoseconds(&f[TS], &r->start[i], &stamp_rounded)) return ODD;
    if (complete && (!nanoseconds(&f[DUR], &r->dur[i], &dur_rounded) || r->dur[i] < 0)) return ODD;
    if ((done = value_code(z, &f[GRAPH], &r->graph[i])) != OBJECT) return done;
    if ((done = value_code(z, &f[STEP], &r->step[i])) != OBJECT) return done;
    if (f[ARGS].kind == OBJECT) {
        empty = a->empty;
        if (a->escaped) return ODD;
        if ((done = probed(z, a, i)) != OBJECT) return done;
    } else if (f[ARGS].kind != ABSENT && f[ARGS].kind != NIL) return ODD;
    if ((r->shape[i] = shape_of(z, f)) < 0) return r->shape[i] == -2 ? ODD : NO_MEMORY;
    if ((r->name[i] = name_of(z, &f[NAME])) == -2) return NO_MEMORY;
    if (!empty && f[ARGS].n > INT32_MAX) return ODD;
    int kept = z->keep && phase != 'E' ? with_extras(z, f, empty, extra, extras, i) : 0;
    if (kept < 0) return NO_MEMORY;
    if (!kept) {
        count_unread(z, extra, extras);
        r->length[i] = empty ? 0 : (int32_t)f[ARGS].n;
        r->args[i] = empty ? 0 : z->copy_args ? (int64_t)z->blob_used : f[ARGS].p - data;
        if (!empty && z->copy_args) {
            u8 *to = room_for(z, f[ARGS].n);
            if (!to) return NO_MEMORY;
            memcpy(to, f[ARGS].p, f[ARGS].n);
        }
    }
    z->rounded_stamps += stamp_rounded;
    z->rounded_durations += dur_rounded;
    r->count++;
    return OBJECT;
}

static int flow(Scanner *z, const Token *f)
{
    Flows *w = z->flows;
    int i = w->count, rounded = 0;
    static const u8 zero = 0;
    const Token *parts[3] = {&f[CAT], &f[NAME], &f[ID]};
    Sip h;
    if (f[ID2].kind || f[BIND].kind || !text_or_nothing(&f[NAME]) || !id_or_nothing(&f[ID]) ||
        !text_or_nothing(&f[BP]) || f[BP].escaped)
        return ODD;
    if (!nanoseconds(&f[TS], &w->start[i], &rounded)) return ODD;
    if ((w->shape[i] = shape_of(z, f)) < 0) return w->shape[i] == -2 ? ODD : NO_MEMORY;
    sip_start(&h, z->k0, z->k1);
    for (int k = 0; k < 3; k++) {
        const u8 *p;
        size_t n = content(parts[k], &p);
        if (parts[k]->escaped) return ODD;
        if (n) sip_bytes(&h, p, n);
        if (k < 2) sip_bytes(&h, &zero, 1);
    }
    w->key[i] = (int64_t)sip_end(&h);
    w->name[i] = -1;
    if ((f[CAT].kind != STRING || f[CAT].n == 2) && (w->name[i] = name_of(z, &f[NAME])) == -2)
        return NO_MEMORY;
    w->encloses[i] = f[BP].kind == STRING && f[BP].n == 3 && f[BP].p[1] == 'e';
    z->rounded_stamps += rounded;
    w->count++;
    return OBJECT;
}

typedef struct { const u8 *key; size_t n; Token value; int is_id; } Part;

/* Whether a key numbers counters of one name: "id", or ends with it as a word. */
static int is_identifier(const u8 *k, size_t n)
{
    if (n < 2 || (k[n - 1] | 32) != 'd' || (k[n - 2] | 32) != 'i') return 0;
    return n == 2 || k[n - 3] == '_' || k[n - 3] == ' ';
}

/* A natural number as Python would write it. */
static int is_natural(const Token *t)
{
    if (t->kind != NUMBER || t->n > 18 || (t->n > 1 && t->p[0] == '0')) return 0;
    for (size_t i = 0; i < t->n; i++)
        if (!is_digit(t->p[i])) return 0;
    return 1;
}

/* The members of a counter's arguments; their number, or -1: not the plain form, -2: ODD. */
static int parts_of(const Token *args, Part *parts)
{
    const u8 *end = args->p + args->n, *p = blank(args->p + 1, end);
    int count = 0, why = ODD;
    for (; *p == '"'; count++) {
        int escaped = 0;
        if (count == MAX_SERIES) return -1;
        Part *m = &parts[count];
        m->key = p + 1;
        if (!(p = string(m->key, end, &escaped, &why))) return -2;
        m->n = (size_t)(p - 1 - m->key);
        if (escaped) return -1;
        for (size_t i = 0; i < m->n; i++)
            if (m->key[i] >= 0x80) return -1; /* other letters may count as i */
        if (!(p = colon(p, end, &why)) || !(p = value(p, end, &m->value, &why))) return -2;
        m->is_id = is_identifier(m->key, m->n);
        for (int k = 0; k < count; k++)
            if (parts[k].n == m->n && !memcmp(parts[k].key, m->key, m->n)) return -1;
        p = blank(p, end);
        if (*p == ',') p = blank(p + 1, end);
    }
    return count;
}

/* Behind a key and a NUL: the other members that tell series of one name apart, as "key value ...".
   The length of all; 0 if it is too long. */
static size_t series_key(u8 *to, const Part *parts, int count, const Part *of)
{
    size_t at = 0;
    if (of->n + 1 > MAX_SHAPE) return 0;
    memcpy(to, of->key, of->n);
    at = of->n;
    to[at++] = 0;
    size_t first = at;
    for (int k = 0; k < count; k++) {
        const Part *m = &parts[k];
        if (!m->is_id) continue;
        if (at + m->n + m->value.n + 2 > MAX_SHAPE) return 0;
        if (at > first) to[at++] = ' ';
        memcpy(to + at, m->key, m->n);
        at += m->n;
        to[at++] = ' ';
        memcpy(to + at, m->value.p, m->value.n);
        at += m->value.n;
    }
    return at;
}

/* One sample per member. ARRAY: not the plain form, let Python decode the whole event. */
static int counter(Scanner *z, const Token *f)
{
    Samples *s = z->samples;
    Part parts[MAX_SERIES];
    u8 key[MAX_SHAPE];
    int first = s->count, i = first, rounded = 0, ids = 0;
    int64_t start;
    if (f[ID].kind || f[ID2].kind || f[NAME].kind != STRING || f[ARGS].kind != OBJECT) return ARRAY;
    if (!nanoseconds(&f[TS], &start, &rounded)) return ODD;
    int count = parts_of(&f[ARGS], parts);
    if (count < 0) return count == -1 ? ARRAY : ODD;
    for (int k = 0; k < count; k++) {
        if (parts[k].is_id && !is_natural(&parts[k].value)) return ARRAY;
        ids += parts[k].is_id;
    }
    if (ids == count) return ARRAY;
    int32_t shape = shape_of(z, f), name = shape < 0 ? -1 : name_of(z, &f[NAME]);
    if (shape < 0) return shape == -2 ? ODD : NO_MEMORY;
    if (name < 0) return NO_MEMORY;
    for (int k = 0; k < count; k++) {
        const Part *m = &parts[k];
        if (m->is_id) continue;
        if (m->value.kind != NUMBER || !real(&m->value, &s->value[i])) return ARRAY;
        size_t n = series_key(key, parts, count, m);
        if (!n) return ARRAY;
        if ((s->series[i] = intern(z, &z->series, key, n)) < 0) return NO_MEMORY;
        s->shape[i] = shape;
        s->name[i] = name;
        s->start[i++] = start;
    }
    z->rounded_stamps += rounded;
    s->count = i;
    return OBJECT;
}

static int event(
    Scanner *z, const Token *f, const Members *a, const Extra *extra, int extras, const u8 *data,
    const u8 *from, const u8 *to)
{
    if (f[PH].kind != STRING || f[PH].n != 3 || !countable(z, extra, extras)) return ODD;
    int done = ARRAY;
    u8 phase = f[PH].p[1];
    switch (phase) {
    case 'X': case 'i': case 'I': case 'R': case 'B': case 'E':
        return row(z, f, a, extra, extras, data, phase);
    case 's': case 't': case 'f': done = flow(z, f); break;
    case 'C': done = counter(z, f); break;
    default: break;
    }
    if (done == OBJECT) count_unread(z, extra, extras);
    if (done != ARRAY) return done;
    int64_t *other = z->others + 3 * z->other_count++;
    other[0] = from - data;
    other[1] = to - data;
    other[2] = z->samples->count;
    return OBJECT;
}

/* Whether a member is the scope of an instant, which is read where it is that of the thread; others
   are kept where anything is. */
static int is_scope(const u8 *key, size_t n, const Token *value, int keep)
{
    return n == 1 && *key == 's' && (!keep || (value->n == 3 && !memcmp(value->p, "\"t\"", 3)));
}

static int is_there(const Extra *extra, int extras, const u8 *key, size_t n)
{
    for (int i = 0; i < extras; i++)
        if (extra[i].n == n && !memcmp(extra[i].key, key, n)) return 1;
    return 0;
}

/* p is at the opening brace; the result is behind the closing one. */
static const u8 *record(Scanner *z, const u8 *data, const u8 *p, const u8 *end, int *why)
{
    Token f[FIELDS + 1];
    Members a; /* of the arguments, once there are any */
    Extra extra[MAX_EXTRAS];
    int extras = 0;
    const u8 *from = p;
    for (int i = 0; i <= FIELDS; i++) f[i] = (Token){from, 0, ABSENT, 0};
    p = blank(p + 1, end);
    if (p == end) return fail(why, MORE);
    if (*p == '}') return fail(why, ODD);
    for (;;) {
        int escaped = 0;
        if (p == end) return fail(why, MORE);
        if (*p != '"') return fail(why, ODD);
        const u8 *key = p + 1;
        size_t n;
        int field = common_field(key, end, &n);
        if (field >= 0) p = key + n + 1;
        else {
            if (!(p = string(key, end, &escaped, why))) return NULL;
            if (escaped) return fail(why, ODD);
            field = field_of(key, n = (size_t)(p - 1 - key));
        }
        Token *t = &f[field];
        if (t->kind && t != &f[FIELDS]) return fail(why, ODD);
        if (!(p = colon(p, end, why))) return NULL;
        if (t == &f[ARGS] && *p == '{') {
            t->kind = OBJECT;
            t->p = p;
            if (f[NAME].kind == STRING) table_expect_string(&z->names, z->name_hash);
            if (!(p = arguments(z, p, end, &a, why))) return NULL;
            t->n = (size_t)(p - t->p);
        } else if (!(p = value(p, end, t, why))) return NULL;
        if (t == &f[NAME] && t->kind == STRING) {
            z->name_hash = table_hash(table_key(z), t->p + 1, t->n - 2);
            table_expect_slot(&z->names, z->name_hash);
        }
        if (t == &f[FIELDS] && !is_scope(key, n, t, z->keep)) {
            if (extras == MAX_EXTRAS || is_there(extra, extras, key, n)) return fail(why, ODD);
            extra[extras++] = (Extra){key, n, *t};
        }
        if (!(p = next_member(p, end, why))) return NULL;
        if (*p == '}') break;
    }
    int done = event(z, f, &a, extra, extras, data, from, p + 1);
    return done == OBJECT ? p + 1 : fail(why, done);
}

static int is_full(const Scanner *z)
{
    return z->rows->count == CAPACITY || z->flows->count == CAPACITY || z->other_count == CAPACITY ||
           z->samples->count > CAPACITY - MAX_SERIES - 1 || z->blob_used > BLOB_LIMIT;
}

static int scan(Scanner *z, const u8 *data, const u8 *p, const u8 *end, const u8 **stop)
{
    for (int why = MORE;;) {
        while (p < end && (*p == ',' || *p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
        *stop = p;
        if (p == end) return MORE;
        if (*p == ']') return END;
        if (*p != '{') return ODD;
        if (is_full(z)) return FULL;
        if (!(p = record(z, data, p, end, &why))) return why;
    }
}

/* ---- Python's view ----------------------------------------------------------------------- */

static PyObject *Scanner_scan(Scanner *z, PyObject *args)
{
    Py_buffer data;
    Py_ssize_t start, end;
    const u8 *stop = NULL;
    if (!PyArg_ParseTuple(args, "y*nn", &data, &start, &end)) return NULL;
    if (start < 0 || end > data.len || start > end || z->busy) {
        PyErr_SetString(PyExc_ValueError, z->busy ? "scanner is in use" : "range outside the buffer");
        PyBuffer_Release(&data);
        return NULL;
    }
    const u8 *bytes = data.buf;
    int status;
    z->busy = 1;
    memset(z->recent, 0, sizeof z->recent); /* they lie in the bytes of the call before */
    Py_BEGIN_ALLOW_THREADS
    status = scan(z, bytes, bytes + start, bytes + end, &stop);
    Py_END_ALLOW_THREADS
    z->busy = 0;
    Py_ssize_t at = stop - bytes;
    PyBuffer_Release(&data);
    if (status == NO_MEMORY) return PyErr_NoMemory();
    return Py_BuildValue("in", status, at);
}

static int add(PyObject *list, const void *from, size_t item, int count)
{
    PyObject *column = PyByteArray_FromStringAndSize(from, (Py_ssize_t)(item * (size_t)count));
    int failed = !column || PyList_Append(list, column) < 0;
    Py_XDECREF(column);
    return failed;
}

#define ADD(column, n) add(list, column, sizeof *(column), n)

/* Strings that got a code since the last call. */
static PyObject *unreported(const Table *t, int32_t *reported)
{
    PyObject *list = PyList_New(t->count - *reported);
    for (int32_t i = *reported; list && i < t->count; i++) {
        Entry *e = &t->entries[i];
        PyObject *text = PyBytes_FromStringAndSize((const char *)table_string(t, e), e->length);
        if (!text) { Py_CLEAR(list); break; }
        PyList_SET_ITEM(list, i - *reported, text);
    }
    if (list) *reported = t->count;
    return list;
}

static PyObject *columns_of_rows(Rows *r)
{
    PyObject *list = PyList_New(0);
    if (!list || ADD(r->shape, r->count) || ADD(r->name, r->count) || ADD(r->start, r->count) ||
        ADD(r->dur, r->count) || ADD(r->args, r->count) || ADD(r->length, r->count) ||
        ADD(r->graph, r->count) || ADD(r->step, r->count) || ADD(r->type, r->count))
        Py_CLEAR(list);
    return list;
}

static PyObject *columns_of_flows(Flows *w)
{
    PyObject *list = PyList_New(0);
    if (!list || ADD(w->shape, w->count) || ADD(w->name, w->count) || ADD(w->start, w->count) ||
        ADD(w->key, w->count) || ADD(w->encloses, w->count))
        Py_CLEAR(list);
    return list;
}

static PyObject *columns_of_samples(Samples *s)
{
    PyObject *list = PyList_New(0);
    if (!list || ADD(s->shape, s->count) || ADD(s->name, s->count) || ADD(s->series, s->count) ||
        ADD(s->start, s->count) || ADD(s->value, s->count))
        Py_CLEAR(list);
    return list;
}

/* Names and counts of what was left out since the last call. */
static PyObject *counted(const Scanner *z)
{
    PyObject *list = PyList_New(z->unread_count);
    for (int i = 0; list && i < z->unread_count; i++) {
        const Unread *u = &z->unread[i];
        PyObject *pair = Py_BuildValue(
            "y#L", (const char *)u->name, (Py_ssize_t)u->n, (long long)u->count);
        if (!pair) { Py_CLEAR(list); break; }
        PyList_SET_ITEM(list, i, pair);
    }
    return list;
}

static PyObject *Scanner_take(Scanner *z, PyObject *Py_UNUSED(ignored))
{
    if (z->busy) { PyErr_SetString(PyExc_ValueError, "scanner is in use"); return NULL; }
    int first = z->reported[3];
    PyObject *result = Py_BuildValue(
        "{s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:i,s:N,s:L,s:L}",
        "rows", columns_of_rows(z->rows), "flows", columns_of_flows(z->flows),
        "samples", columns_of_samples(z->samples),
        "others", PyByteArray_FromStringAndSize((char *)z->others, z->other_count * 24),
        "blob", PyBytes_FromStringAndSize((char *)z->blob, (Py_ssize_t)z->blob_used),
        "names", unreported(&z->names, &z->reported[0]),
        "shapes", unreported(&z->shapes, &z->reported[1]),
        "series", unreported(&z->series, &z->reported[2]),
        "values", unreported(&z->values, &z->reported[3]), "first_value", first,
        "unread", counted(z), "rounded_durations", (long long)z->rounded_durations,
        "rounded_stamps", (long long)z->rounded_stamps);
    if (z->values.count > MOST_VALUES) { /* each event has its own, as correlations: begin anew */
        table_free(&z->values);
        memset(&z->values, 0, sizeof z->values);
        z->reported[3] = 0;
    }
    z->rows->count = z->flows->count = z->samples->count = z->other_count = 0;
    z->blob_used = 0;
    z->unread_count = 0;
    z->rounded_durations = z->rounded_stamps = 0;
    return result;
}

static PyObject *Scanner_flow_key(Scanner *z, PyObject *args)
{
    Py_buffer text;
    if (!PyArg_ParseTuple(args, "y*", &text)) return NULL;
    u64 key = hash_of(z, text.buf, (size_t)text.len);
    PyBuffer_Release(&text);
    return PyLong_FromLongLong((int64_t)key);
}

static void Scanner_dealloc(Scanner *z)
{
    table_free(&z->names); table_free(&z->shapes); table_free(&z->series); table_free(&z->values);
    free(z->rows); free(z->flows); free(z->samples); free(z->others); free(z->blob);
    for (int i = 0; i < z->probe_count; i++) free(z->probes[i].text);
    PyTypeObject *type = Py_TYPE(z);
    type->tp_free((PyObject *)z);
    Py_DECREF(type);
}

static int add_probe(Scanner *z, PyObject *key, int is_type)
{
    char *text;
    Py_ssize_t n;
    if (PyBytes_AsStringAndSize(key, &text, &n) < 0) return -1;
    u8 *copy = malloc((size_t)n + 1);
    if (!copy) { PyErr_NoMemory(); return -1; }
    memcpy(copy, text, (size_t)n);
    z->probes[z->probe_count].text = copy;
    z->probes[z->probe_count].n = (size_t)n;
    z->probes[z->probe_count++].is_type = is_type;
    return 0;
}

static PyObject *Scanner_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(named))
{
    PyObject *graph, *kind;
    unsigned long long k0, k1;
    int copy, keep;
    if (!PyArg_ParseTuple(
            args, "O!O!KKpp", &PyTuple_Type, &graph, &PyBytes_Type, &kind, &k0, &k1, &copy, &keep))
        return NULL;
    if (PyTuple_GET_SIZE(graph) > MAX_GRAPH_KEYS) {
        PyErr_Format(PyExc_ValueError, "more than %d graph keys", MAX_GRAPH_KEYS);
        return NULL;
    }
    Scanner *z = (Scanner *)type->tp_alloc(type, 0);
    if (!z) return NULL;
    z->k0 = k0; z->k1 = k1; z->copy_args = copy; z->keep = keep;
    z->rows = malloc(sizeof *z->rows);
    z->flows = malloc(sizeof *z->flows);
    z->samples = malloc(sizeof *z->samples);
    z->others = malloc(3 * CAPACITY * sizeof *z->others);
    if (!z->rows || !z->flows || !z->samples || !z->others) {
        Py_DECREF(z);
        return PyErr_NoMemory();
    }
    z->rows->count = z->flows->count = z->samples->count = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(graph); i++)
        if (add_probe(z, PyTuple_GET_ITEM(graph, i), 0) < 0) { Py_DECREF(z); return NULL; }
    if (add_probe(z, kind, 1) < 0) { Py_DECREF(z); return NULL; }
    return (PyObject *)z;
}

static PyMethodDef Scanner_methods[] = {
    {"scan", (PyCFunction)Scanner_scan, METH_VARARGS,
     "scan(buffer, start, end) -> (status, stop): read records until something stops it."},
    {"take", (PyCFunction)Scanner_take, METH_NOARGS,
     "take() -> dict of columns and of what was newly interned; the scanner is empty again."},
    {"flow_key", (PyCFunction)Scanner_flow_key, METH_VARARGS,
     "flow_key(bytes) -> int: the key of an arrow, 'category NUL name NUL id'."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot Scanner_slots[] = {
    {Py_tp_new, Scanner_new},
    {Py_tp_dealloc, Scanner_dealloc},
    {Py_tp_methods, Scanner_methods},
    {Py_tp_doc, "Scanner(graph_keys, type_key, k0, k1, copy_args): trace events to columns."},
    {0, NULL}};

static PyType_Spec Scanner_spec = {
    "traceconv.native._scan.Scanner", sizeof(Scanner), 0, Py_TPFLAGS_DEFAULT, Scanner_slots};

/* ---- members of arguments ----------------------------------------------------------------- */

#define MAX_KEYS 32

typedef struct { const char *text; size_t n; } Key;

/* The last value of each key in the object that fills [p, end): where it is, -1 if it is not there.
 * 0 if the object is unusual. */
static int members_of(const u8 *base, const u8 *p, const u8 *end, const Key *keys, Py_ssize_t count,
                      int64_t *place, int32_t *length, Py_ssize_t stride)
{
    int why, escaped = 0;
    for (Py_ssize_t k = 0; k < count; k++) { place[k * stride] = 0; length[k * stride] = -1; }
    if (p == end || *p != '{') return 0;
    p = blank(p + 1, end);
    if (p < end && *p == '}') return p + 1 == end;
    for (;;) {
        Token t;
        if (p == end || *p != '"') return 0;
        const u8 *key = p + 1;
        if (!(p = string(key, end, &escaped, &why)) || escaped) return 0;
        size_t n = (size_t)(p - 1 - key);
        if (!(p = colon(p, end, &why)) || !(p = value(p, end, &t, &why)) || t.n > INT32_MAX) return 0;
        for (Py_ssize_t k = 0; k < count; k++)
            if (keys[k].n == n && !memcmp(keys[k].text, key, n)) {
                place[k * stride] = t.p - base;
                length[k * stride] = (int32_t)t.n;
            }
        if (!(p = next_member(p, end, &why))) return 0;
        if (*p == '}') return p + 1 == end;
    }
}

static PyObject *members(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer data, start, size;
    PyObject *names, *places = NULL, *lengths = NULL, *plain = NULL, *result = NULL;
    Key keys[MAX_KEYS];
    if (!PyArg_ParseTuple(args, "y*y*y*O!:members", &data, &start, &size, &PyTuple_Type, &names)) return NULL;
    Py_ssize_t n = start.len / 8, count = PyTuple_GET_SIZE(names);
    const int64_t *from = start.buf, *many = size.buf;
    int within = start.len == size.len && start.len % 8 == 0 && count <= MAX_KEYS;
    for (Py_ssize_t i = 0; within && i < n; i++)
        within = from[i] >= 0 && many[i] >= 0 && from[i] <= data.len && many[i] <= data.len - from[i];
    if (!within) {
        PyErr_SetString(PyExc_ValueError, "objects outside the buffer, or too many keys");
        goto done;
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        char *text;
        Py_ssize_t length;
        if (PyBytes_AsStringAndSize(PyTuple_GET_ITEM(names, k), &text, &length) < 0) goto done;
        keys[k] = (Key){text, (size_t)length};
    }
    places = PyBytes_FromStringAndSize(NULL, n * count * 8);
    lengths = PyBytes_FromStringAndSize(NULL, n * count * 4);
    plain = PyBytes_FromStringAndSize(NULL, n);
    if (!places || !lengths || !plain) goto done;
    int64_t *place = (int64_t *)PyBytes_AS_STRING(places);
    int32_t *length = (int32_t *)PyBytes_AS_STRING(lengths);
    u8 *flag = (u8 *)PyBytes_AS_STRING(plain);
    const u8 *base = data.buf;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < n; i++) {
        const u8 *p = base + from[i];
        flag[i] = (u8)members_of(base, p, p + many[i], keys, count, place + i, length + i, n);
    }
    Py_END_ALLOW_THREADS
    result = PyTuple_Pack(3, places, lengths, plain);
done:
    Py_XDECREF(places);
    Py_XDECREF(lengths);
    Py_XDECREF(plain);
    PyBuffer_Release(&data);
    PyBuffer_Release(&start);
    PyBuffer_Release(&size);
    return result;
}

static PyMethodDef scan_functions[] = {
    {"members", members, METH_VARARGS,
     "members(buffer, start, size, keys): where values of JSON objects are."},
    {NULL, NULL, 0, NULL}};

static int scan_exec(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&Scanner_spec);
    if (!type) return -1;
    int failed = PyModule_AddObjectRef(module, "Scanner", type);
    Py_DECREF(type);
    static const struct { const char *name; int value; } statuses[] = {
        {"MORE", MORE}, {"END", END}, {"ODD", ODD}, {"FULL", FULL}};
    for (int i = 0; !failed && i < 4; i++)
        failed = PyModule_AddIntConstant(module, statuses[i].name, statuses[i].value);
    return failed ? -1 : 0;
}

static PyModuleDef_Slot scan_slots[] = {{Py_mod_exec, scan_exec}, {0, NULL}};

static struct PyModuleDef scan_module = {
    PyModuleDef_HEAD_INIT, "traceconv.native._scan", "Trace events to columns (optional fast tier).", 0,
    scan_functions, scan_slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__scan(void) { return PyModuleDef_Init(&scan_module); }
