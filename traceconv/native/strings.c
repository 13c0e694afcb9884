/* Strings that get a number when they are first met, and their two ways into an annotation. */

#include "encode.h"

int grow(Coder *c, Buffer *b, size_t more)
{
    if (room(b, more)) return 1;
    c->no_memory = 1;
    return 0;
}

int table_init(Table *t, uint32_t max)
{
    uint32_t slots = 2;
    while (slots < 2 * max) slots *= 2;
    t->max = max;
    t->mask = slots - 1;
    t->entry = PyMem_RawCalloc(max + 1, sizeof(Entry));
    t->slot = PyMem_RawCalloc(slots, sizeof(uint32_t));
    return t->entry && t->slot;
}

void table_free(Table *t)
{
    PyMem_RawFree(t->entry);
    PyMem_RawFree(t->slot);
    PyMem_RawFree(t->text.at);
}

/* Takes the newest entries back; nothing was placed after them, so their slots just empty. */
void table_shrink(Table *t, uint32_t n)
{
    while (t->n > n) {
        uint32_t id = t->n--, i = (uint32_t)t->entry[id - 1].hash & t->mask;
        while (t->slot[i] != id) i = (i + 1) & t->mask;
        t->slot[i] = 0;
        t->text.n = t->entry[id - 1].at;
    }
}

static uint64_t hash_of(uint64_t seed, Span s)
{
    const uint64_t odd = 0x9E3779B97F4A7C15u;
    uint64_t h = (seed ^ s.n) * odd, word;
    size_t i = 0;
    for (; i + 8 <= s.n; i += 8) {
        memcpy(&word, s.at + i, 8);
        h = (h ^ word) * odd;
        h ^= h >> 32;
    }
    for (word = 0; i < s.n; i++) word = word << 8 | s.at[i];
    h = (h ^ word) * odd;
    return h ^ h >> 32;
}

/* The number of a string, 0 if it must stand in place. `list` is the tag of its InternedData. */
static uint32_t intern(Coder *c, Table *t, Span list, Span s)
{
    if (s.n > c->max_bytes) return 0;
    uint64_t hash = hash_of(c->seed, s);
    uint32_t i = (uint32_t)hash & t->mask;
    for (; t->slot[i]; i = (i + 1) & t->mask) {
        Entry *e = &t->entry[t->slot[i] - 1];
        if (e->hash == hash && e->n == s.n && !memcmp(t->text.at + e->at, s.at, s.n))
            return t->slot[i];
    }
    if (t->n >= t->max || !grow(c, &t->text, s.n + 1) || !grow(c, &c->interned, s.n + 32)) return 0;
    t->entry[t->n++] = (Entry){hash, t->text.n, s.n};
    t->slot[i] = t->n;
    put(&t->text, s.at, s.n);
    put(&c->interned, list.at, list.n);
    put_varint(&c->interned, 2 + varint_size(t->n) + varint_size(s.n) + s.n);
    put_byte(&c->interned, 0x08); /* iid */
    put_varint(&c->interned, t->n);
    put_byte(&c->interned, 0x12); /* name, str */
    put_varint(&c->interned, s.n);
    put(&c->interned, s.at, s.n);
    return t->n;
}

int put_name(Coder *c, Span s)
{
    static const uint8_t debug_annotation_names[] = {0x1a};
    if (c->skip) return 1;
    if (!s.n) s = (Span){(const uint8_t *)"(empty)", 7};
    uint32_t iid = intern(c, &c->names, (Span){debug_annotation_names, 1}, s);
    if (!grow(c, &c->out, s.n + 16)) return 0;
    put_byte(&c->out, iid ? 0x08 : 0x52); /* name_iid or name */
    put_varint(&c->out, iid ? iid : s.n);
    if (!iid) put(&c->out, s.at, s.n);
    return 1;
}

int put_string(Coder *c, Span s)
{
    static const uint8_t debug_annotation_string_values[] = {0xea, 0x01};
    if (c->skip) return 1;
    uint32_t iid = intern(c, &c->strings, (Span){debug_annotation_string_values, 2}, s);
    if (!grow(c, &c->out, s.n + 16)) return 0;
    if (iid) {
        put_tag(&c->out, 0x88, 0x01); /* string_value_iid */
        put_varint(&c->out, iid);
    } else {
        put_byte(&c->out, 0x32); /* string_value */
        put_varint(&c->out, s.n);
        put(&c->out, s.at, s.n);
    }
    return 1;
}
