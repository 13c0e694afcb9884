/* What the parts of the Perfetto encoder share: growing buffers, varints, the state of a coder. */

#ifndef TRACECONV_NATIVE_ENCODE_H
#define TRACECONV_NATIVE_ENCODE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "table.h"
#include "text.h"

/* Writers first make room, then put. */

typedef struct { uint8_t *at; size_t n, cap; } Buffer;
typedef struct { const uint8_t *at; size_t n; } Span;

static inline int room(Buffer *b, size_t more)
{
    if (b->cap - b->n >= more) return 1;
    size_t cap = b->cap + b->cap / 2 + more + 4096;
    uint8_t *at = PyMem_RawRealloc(b->at, cap);
    if (!at) return 0;
    b->at = at;
    b->cap = cap;
    return 1;
}

static inline void put_byte(Buffer *b, uint8_t byte) { b->at[b->n++] = byte; }

static inline void put_tag(Buffer *b, uint8_t low, uint8_t high)
{
    uint8_t *at = b->at + b->n;
    at[0] = low;
    at[1] = high;
    b->n += 2;
}

static inline void put(Buffer *b, const void *from, size_t n)
{
    if (n) memcpy(b->at + b->n, from, n);
    b->n += n;
}

static inline void put_varint(Buffer *b, uint64_t v)
{
    uint8_t *from = b->at + b->n, *at = from; /* of one's own: bytes may be parts of anything */
    for (; v > 0x7f; v >>= 7) *at++ = (uint8_t)(v | 0x80);
    *at++ = (uint8_t)v;
    b->n += (size_t)(at - from);
}

static inline size_t varint_size(uint64_t v)
{
    return (size_t)(70 - __builtin_clzll(v | 1)) / 7;
}

static inline void set_double(uint8_t *at, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, 8);
    for (int i = 0; i < 8; i++) at[i] = (uint8_t)(bits >> 8 * i);
}

static inline void put_double(Buffer *b, double value)
{
    set_double(b->at + b->n, value);
    b->n += 8;
}

enum { OWN_LOW = 0xb0, OWN_NUMBER = 0xb0, OWN_BYTES = 0xb2, OWN_HIGH = 0x7c }; /* tags of field 1990 */

/* The arguments of one packet sequence. */

/* A double that is set when the lock is held, and the row it is in. */
typedef struct { size_t at; Span text; Py_ssize_t row; } Slow;

#define SEEN_BITS 19 /* eight times the strings that are numbered */

/* What is interned, numbered from 1 in the output. */
typedef struct {
    Table names, strings;
    uint64_t seen[1 << (SEEN_BITS - 6)]; /* a bit for each of them, and for some others, by its hash */
} Known;

typedef struct {
    PyObject_HEAD
    Known *known;
    uint32_t max_names, max_strings;
    Buffer out, interned, scratch, slow, key;
    PyObject *selected; /* tuple of bytes, or NULL for all */
    uint64_t seed;
    size_t max_bytes;
    const uint8_t *p, *end; /* what is left of the row */
    Span spelt; /* the string read last, as it is in the row, if it can be written otherwise */
    Py_ssize_t row;
    uint8_t *odd; /* by row: whether its text is not what a reader makes of its annotations */
    long long not_json, clipped, replaced, dropped;
    int skip, row_dropped, no_memory, busy;
} Coder;

static inline int grow(Coder *c, Buffer *b, size_t more)
{
    if (room(b, more)) return 1;
    c->no_memory = 1;
    return 0;
}

/* An entry of InternedData: `list` is the tag of its list; `json`, if there is any, the text the
   string has in JSON. */
#define MAX_ENTRY_FRAME 48 /* bytes, without the texts */
static inline void put_entry(Buffer *b, Span list, uint32_t number, Span s, Span json)
{
    size_t own = json.n ? 2 + varint_size(json.n) + json.n : 0;
    put(b, list.at, list.n);
    put_varint(b, 2 + varint_size(number) + varint_size(s.n) + s.n + own);
    put_byte(b, 0x08); /* iid */
    put_varint(b, number);
    put_byte(b, 0x12); /* name, str */
    put_varint(b, s.n);
    put(b, s.at, s.n);
    if (own) {
        put_tag(b, OWN_BYTES, OWN_HIGH);
        put_varint(b, json.n);
        put(b, json.at, json.n);
    }
}

/* strings.c */
int put_name(Coder *c, Span s, Span json);
int put_string(Coder *c, Span s, Span json);

/* json.c */
int encode_row(Coder *c, Span s);
int encode_broken(Coder *c, Span s);
int settle(Coder *c);

#endif
