/* Strings that get a number when they first occur, and their two forms in an annotation. */

#include "encode.h"

/* The number of a string, 0 if it is written in place; see put_entry. Strings with a `json` are others
   than those without; no UTF-8 begins with the byte that says so. */
static uint32_t intern(Coder *c, Table *t, uint32_t max, Span list, Span s, Span json)
{
    Span key = s;
    if (s.n > c->max_bytes || json.n > c->max_bytes) return 0;
    if (json.n) {
        c->key.n = 0;
        if (!grow(c, &c->key, json.n + 1)) return 0;
        put_byte(&c->key, 0xff);
        put(&c->key, json.at, json.n);
        key = (Span){c->key.at, c->key.n};
    }
    uint64_t hash = table_hash(c->seed, key.at, key.n);
    uint64_t *seen = &c->known->seen[hash >> (70 - SEEN_BITS)], bit = (uint64_t)1 << (hash >> (64 - SEEN_BITS) & 63);
    /* no string is new to a full table, and most of those that do not repeat are told by a bit: the
       table lies outside of the caches */
    if ((uint32_t)t->count >= max && !(*seen & bit)) return 0;
    int32_t known = table_find(t, hash, key.at, key.n);
    if (known >= 0) return (uint32_t)known + 1;
    if ((uint32_t)t->count >= max || !grow(c, &c->interned, s.n + json.n + MAX_ENTRY_FRAME)) return 0;
    if (table_add(t, hash, key.at, key.n) < 0) { c->no_memory = 1; return 0; }
    *seen |= bit;
    uint32_t number = (uint32_t)t->count;
    put_entry(&c->interned, list, number, s, json);
    return number;
}

int put_name(Coder *c, Span s, Span json)
{
    static const uint8_t debug_annotation_names[] = {0x1a};
    if (c->skip) return 1;
    if (!s.n) {
        s = (Span){(const uint8_t *)"(empty)", 7};
        json = (Span){(const uint8_t *)"\"\"", 2};
    }
    uint32_t iid = intern(c, &c->known->names, c->max_names, (Span){debug_annotation_names, 1}, s, json);
    if (!iid && json.n) c->odd[c->row] = 1;
    if (!grow(c, &c->out, s.n + 16)) return 0;
    put_byte(&c->out, iid ? 0x08 : 0x52); /* name_iid or name */
    put_varint(&c->out, iid ? iid : s.n);
    if (!iid) put(&c->out, s.at, s.n);
    return 1;
}

int put_string(Coder *c, Span s, Span json)
{
    static const uint8_t debug_annotation_string_values[] = {0xea, 0x01};
    if (c->skip) return 1;
    const Span list = {debug_annotation_string_values, 2};
    uint32_t iid = intern(c, &c->known->strings, c->max_strings, list, s, json);
    if (!iid && json.n) c->odd[c->row] = 1;
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
