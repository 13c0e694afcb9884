/* Large numpy arrays in memory that earlier ones left.
 *
 * A rank goes through some hundred arrays of one to a few bytes per row, each used for moments. The C
 * library either keeps what they leave in its heap, where those that live on stand between holes, or
 * takes each from the system and gives it back, which clears every page before every use. Here a
 * block that is freed is kept, and the next one is made of it: of a part, if it is larger, or with
 * more pages behind it, if it is smaller. What is new to the process first displaces what is kept,
 * so that both together never take more than the arrays alone once took.
 */
#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#define NO_IMPORT_ARRAY
#include <numpy/ndarraytypes.h>

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "reuse.h"

#define HEAD 64 /* before every array: its block; and the alignment numpy's loops like */
#define UNIT ((size_t)64 << 10) /* of sizes: a multiple of any page's */
#define LEAST_PAGE ((size_t)4096)
#define HUGE_FROM ((size_t)4 << 20) /* from here on numpy asks for huge pages, too */

/* At the start of its pages, which are `size` bytes. */
typedef struct block {
    size_t size;
    struct block *next;
} block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static block *used, *kept; /* in arrays; free, the latest first */
static size_t least, most_kept, kept_bytes;

static void keep(block *b)
{
    b->next = kept;
    kept = b;
    kept_bytes += b->size;
}

static block *taken(block **link)
{
    block *b = *link;
    *link = b->next;
    kept_bytes -= b->size;
    return b;
}

/* Give so many bytes that are kept back to the system, or all; what was kept longest first. */
static void displace(size_t bytes)
{
    while (kept && bytes) {
        block **link = &kept;
        while ((*link)->next)
            link = &(*link)->next;
        block *b = taken(link);
        size_t gone = b->size < bytes ? b->size : bytes, rest = b->size - gone;
        munmap((char *)b + rest, gone);
        bytes -= gone;
        if (rest) {
            b->size = rest;
            keep(b);
        }
    }
}

static block *mapped(size_t size)
{
    displace(size);
    block *b = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b == MAP_FAILED)
        return NULL;
    if (size >= HUGE_FROM)
        madvise(b, size, MADV_HUGEPAGE);
    return b;
}

/* The kept block that fits best: the smallest one that is large enough, else the largest. */
static block **best_for(size_t size)
{
    block **best = NULL;
    for (block **link = &kept; *link; link = &(*link)->next) {
        size_t one = (*link)->size, other = best ? (*best)->size : 0;
        if (other >= size ? one >= size && one < other : one > other)
            best = link;
    }
    return best;
}

/* A block of `size` bytes; how many of them, from its start, are not known to be 0. */
static block *of_kept(size_t size, size_t *dirty)
{
    block **best = best_for(size), *b;
    *dirty = 0;
    if (!best)
        return mapped(size);
    b = taken(best);
    *dirty = b->size < size ? b->size : size;
    if (b->size > size) {
        block *rest = (block *)(void *)((char *)b + size);
        rest->size = b->size - size;
        keep(rest);
    } else if (b->size < size) {
        displace(size - b->size);
        void *grown = mremap(b, b->size, size, MREMAP_MAYMOVE);
        if (grown != MAP_FAILED)
            return grown;
        munmap(b, b->size); /* parts of two mappings, or no room */
        *dirty = 0;
        return mapped(size);
    }
    return b;
}

static void *array_new(size_t size, size_t *dirty)
{
    if (size > SIZE_MAX / 2)
        return NULL;
    size_t whole = (size + HEAD + UNIT - 1) & ~(UNIT - 1);
    pthread_mutex_lock(&lock);
    block *b = of_kept(whole, dirty);
    if (b) {
        *b = (block){whole, used};
        used = b;
    }
    pthread_mutex_unlock(&lock);
    return b ? (char *)b + HEAD : NULL;
}

/* Whether the array lies where ours do; nearly all others do not, and need no lock. */
static int may_be_ours(const void *array) { return ((uintptr_t)array & (LEAST_PAGE - 1)) == HEAD; }

/* Where the array's block is linked; NULL if it has none. The lock is held. */
static block **link_of(void *array)
{
    block **link = &used;
    while (*link && (char *)*link + HEAD != (char *)array)
        link = &(*link)->next;
    return *link ? link : NULL;
}

/* Join a free block to those kept ones that are its neighbours. */
static block *joined(block *b)
{
    for (block **link = &kept; *link;) {
        block *other = *link;
        if ((char *)other + other->size == (char *)b) {
            taken(link);
            other->size += b->size;
            b = other;
        } else if ((char *)b + b->size == (char *)other) {
            taken(link);
            b->size += other->size;
        } else {
            link = &other->next;
        }
    }
    return b;
}

/* Whether the array was ours. */
static int array_free(void *array)
{
    if (!may_be_ours(array))
        return 0;
    pthread_mutex_lock(&lock);
    block **link = link_of(array);
    if (link) {
        block *b = *link;
        *link = b->next;
        keep(joined(b));
        if (kept_bytes > most_kept)
            displace(kept_bytes - most_kept);
    }
    pthread_mutex_unlock(&lock);
    return link != NULL;
}

static void *take(void *Py_UNUSED(context), size_t size)
{
    size_t dirty;
    return size >= least ? array_new(size, &dirty) : malloc(size ? size : 1);
}

static void *take_zeroed(void *Py_UNUSED(context), size_t count, size_t each)
{
    size_t size, dirty;
    if (__builtin_mul_overflow(count, each, &size))
        return NULL;
    if (size < least)
        return calloc(count ? count : 1, each ? each : 1);
    char *array = array_new(size, &dirty);
    if (array && dirty > HEAD)
        memset(array, 0, dirty - HEAD < size ? dirty - HEAD : size);
    return array;
}

static void give(void *Py_UNUSED(context), void *array, size_t Py_UNUSED(size))
{
    if (!array_free(array))
        free(array);
}

static void *grow(void *Py_UNUSED(context), void *array, size_t size)
{
    size_t dirty, old = 0;
    if (may_be_ours(array)) {
        pthread_mutex_lock(&lock);
        block **link = link_of(array);
        if (link)
            old = (*link)->size - HEAD;
        pthread_mutex_unlock(&lock);
    }
    if (!old) /* its size is not known, so a small one stays where small ones are */
        return realloc(array, size ? size : 1);
    void *moved = size >= least ? array_new(size, &dirty) : malloc(size ? size : 1);
    if (moved) {
        memcpy(moved, array, old < size ? old : size);
        array_free(array);
    }
    return moved;
}

PyDataMem_Handler reusing = {"traceconv_reused", 1, {NULL, take, take_zeroed, grow, give}};

void reuse_from(size_t least_bytes, size_t most_kept_bytes)
{
    pthread_mutex_lock(&lock);
    least = least_bytes;
    most_kept = most_kept_bytes;
    if (kept_bytes > most_kept)
        displace(kept_bytes - most_kept);
    pthread_mutex_unlock(&lock);
}
