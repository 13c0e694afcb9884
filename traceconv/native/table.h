/* Byte strings by number, counted from 0 in order of appearance: open addressing, at most half full.
 *
 * A slot holds a part of the hash and where the string is, and its number stands before it: large
 * tables lie outside of the caches, and a string is found by two reads from there, one that is not
 * in the table by one. The caller brings the hash, which must be keyed: table_hash, or a stronger one.
 */
#ifndef TRACECONV_TABLE_H
#define TRACECONV_TABLE_H
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

#define TABLE_UNIT 8 /* strings begin at multiples of it */

typedef struct { uint64_t hash; uint32_t unit, length; } Entry; /* place of the string, in units */
typedef struct { uint32_t hash, unit; } Slot; /* upper half of the hash; 0 where it is empty */
typedef struct { int32_t number; uint32_t length; } Head;

/* Both halves of the product, mixed. */
static inline uint64_t table_fold(uint64_t a, uint64_t b)
{
#if defined(__SIZEOF_INT128__)
    __extension__ typedef unsigned __int128 Wide;
    Wide product = (Wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
#else
    uint64_t low = (a & 0xffffffffu) * (b & 0xffffffffu), left = (a >> 32) * (b & 0xffffffffu);
    uint64_t right = (a & 0xffffffffu) * (b >> 32), high = (a >> 32) * (b >> 32);
    uint64_t middle = (low >> 32) + (left & 0xffffffffu) + (right & 0xffffffffu);
    return (middle << 32 | (low & 0xffffffffu)) ^ (high + (left >> 32) + (right >> 32) + (middle >> 32));
#endif
}

/* For tables, which compare the strings themselves. How a change of one word spreads depends on the
 * key, so that no input can be made of strings that collide whatever the key is. */
static inline uint64_t table_hash(uint64_t key, const uint8_t *p, size_t n)
{
    const uint64_t factor = (key * 0x9E3779B97F4A7C15u) ^ 0xD6E8FEB86659FD93u;
    uint64_t h = key ^ n, word = 0;
    if (n >= 8) {
        for (; n > 8; p += 8, n -= 8) {
            memcpy(&word, p, 8);
            h = table_fold(h ^ word, factor | 1) ^ key;
        }
        memcpy(&word, p + n - 8, 8); /* some of them were in the word before, too */
    } else for (; n; n--) word = word << 8 | *p++;
    return table_fold(h ^ word, factor | 1);
}

typedef struct {
    Entry *entries;
    int32_t count, room;
    Slot *slots;
    uint32_t mask;  /* slots - 1; 0 while there are none */
    uint8_t *arena; /* the strings one after the other, each with a Head before it */
    size_t used, size;
} Table;

static inline void table_free(Table *t)
{
    free(t->entries);
    free(t->slots);
    free(t->arena);
}

static inline const uint8_t *table_string(const Table *t, const Entry *e)
{
    return t->arena + (size_t)e->unit * TABLE_UNIT;
}

static inline int table_widen(Table *t)
{
    uint32_t size = t->mask ? (t->mask + 1) * 2 : 1024;
    Slot *slots = calloc(size, sizeof *slots);
    if (!slots) return -1;
    for (int32_t i = 0; i < t->count; i++) {
        const Entry *e = &t->entries[i];
        uint32_t at = (uint32_t)e->hash & (size - 1);
        while (slots[at].unit) at = (at + 1) & (size - 1);
        slots[at] = (Slot){(uint32_t)(e->hash >> 32), e->unit};
    }
    free(t->slots);
    t->slots = slots;
    t->mask = size - 1;
    return 0;
}

static inline int table_room(Table *t, size_t n)
{
    if (t->count == t->room) {
        int32_t room = t->room ? t->room * 2 : 512;
        Entry *entries = realloc(t->entries, (size_t)room * sizeof *entries);
        if (!entries) return -1;
        t->entries = entries;
        t->room = room;
    }
    if (t->size - t->used < n) {
        size_t size = (t->size ? t->size * 2 : 16384) + n;
        uint8_t *arena = realloc(t->arena, size);
        if (!arena) return -1;
        t->arena = arena;
        t->size = size;
    }
    return 0;
}

/* Ask for what table_find will read, in two steps with other work behind each: the slot, and the
 * string that it tells of. */
static inline void table_expect_slot(const Table *t, uint64_t hash)
{
    if (t->mask) PREFETCH(&t->slots[(uint32_t)hash & t->mask]);
}

static inline void table_expect_string(const Table *t, uint64_t hash)
{
    if (t->mask) PREFETCH(t->arena + (size_t)t->slots[(uint32_t)hash & t->mask].unit * TABLE_UNIT);
}

/* The number of the bytes, or -1 when they have none. */
static inline int32_t table_find(const Table *t, uint64_t hash, const uint8_t *p, size_t n)
{
    if (!t->mask) return -1;
    uint32_t at = (uint32_t)hash & t->mask;
    for (Slot found; (found = t->slots[at]).unit; at = (at + 1) & t->mask) {
        if (found.hash != (uint32_t)(hash >> 32)) continue;
        const uint8_t *string = t->arena + (size_t)found.unit * TABLE_UNIT;
        Head head;
        memcpy(&head, string - sizeof head, sizeof head);
        if (head.length == n && !memcmp(string, p, n)) return head.number;
    }
    return -1;
}

/* Give the bytes, which have none, a number; -1 when there is no memory. */
static inline int32_t table_add(Table *t, uint64_t hash, const uint8_t *p, size_t n)
{
    if ((uint32_t)t->count * 2 >= t->mask && table_widen(t) < 0) return -1;
    if (t->count == INT32_MAX / 4 || n > UINT32_MAX) return -1;
    if (table_room(t, n + sizeof(Head) + TABLE_UNIT) < 0) return -1;
    const size_t unit = (t->used + sizeof(Head) + TABLE_UNIT - 1) / TABLE_UNIT;
    if (unit > UINT32_MAX) return -1;
    uint32_t at = (uint32_t)hash & t->mask;
    while (t->slots[at].unit) at = (at + 1) & t->mask;
    t->slots[at] = (Slot){(uint32_t)(hash >> 32), (uint32_t)unit};
    t->entries[t->count] = (Entry){hash, (uint32_t)unit, (uint32_t)n};
    const Head head = {t->count, (uint32_t)n};
    uint8_t *string = t->arena + unit * TABLE_UNIT;
    memcpy(string - sizeof head, &head, sizeof head);
    if (n) memcpy(string, p, n);
    t->used = unit * TABLE_UNIT + n;
    return t->count++;
}

/* Take the newest numbers back. Slots are filled in the order of numbers, also when the table is
 * widened, so no string was placed behind these, and their slots can simply be emptied. */
static inline void table_shrink(Table *t, int32_t count)
{
    while (t->count > count) {
        const Entry *e = &t->entries[--t->count];
        uint32_t at = (uint32_t)e->hash & t->mask;
        while (t->slots[at].unit != e->unit) at = (at + 1) & t->mask;
        t->slots[at] = (Slot){0, 0};
        t->used = (size_t)e->unit * TABLE_UNIT - sizeof(Head);
    }
}

#endif
