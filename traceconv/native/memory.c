/* Large numpy arrays on disk instead of in memory, for runs with a memory limit.
 *
 * start() gives numpy an allocator (NEP 49) that takes blocks of LARGE bytes and more from mapped,
 * unnamed files. Their pages can leave memory at any time: a thread checks the size of the
 * process every few milliseconds and unmaps the pages when it nears the limit. They stay in the
 * file and come back when they are touched. Arrays keep the allocator they were made with, so
 * those that outlive stop() are freed as they should be. Pages of files that are mapped for reading
 * (watch) go with them.
 */
#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#include <numpy/arrayobject.h>

#include <errno.h>
#include <fcntl.h>
#ifdef __GLIBC__
#include <malloc.h>
#if __GLIBC_PREREQ(2, 33)
#define HAVE_MALLINFO2
#endif
#endif
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>


#define LARGE ((size_t)32 << 10)
#define LOOK 32 /* share of the limit after which one looks oneself: the thread may come too late */
#define SEGMENT ((size_t)128 << 20)
#define HEAD 64 /* before every block: its size, and the alignment numpy's loops like */
#define PAGE ((size_t)4096)
/* So many freed blocks, of so many bytes at most, wait to be used again: arrays of a block of rows come
   and go all the time, and their pages would be made anew each time. */
#define SPARES 64
#define SPARE_MOST ((size_t)256 << 10)
#define TRIM_EVERY 40 /* ticks */
#define TICK_NS 2000000L
#define MEMORY_FILE_SYSTEM 0x01021994L /* tmpfs: what is written there stays in memory */

typedef struct segment {
    char *start;
    size_t size, used;
    long live;
    struct segment *next;
} segment;

/* A mapping of a file that is only read: its pages can leave memory, too. */
typedef struct mapping {
    char *start;
    size_t size;
    struct mapping *next;
} mapping;

/* A freed block whose pages are still there. */
typedef struct {
    char *block;
    size_t whole;
} spare;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static segment *segments;
static spare spares[SPARES]; /* the latest last */
static int spare_count;
static mapping *mappings;
static char folder[4096];
static size_t limit_bytes, purges, lately;
static int ticking;
static pthread_t ticker;

/* A new segment of at least `size` bytes, reserved on disk; NULL if there is no room. */
static segment *segment_new(size_t size)
{
    segment *made = malloc(sizeof *made);
    int file = -1;
    char *start = MAP_FAILED;
    size = size > SEGMENT ? (size + PAGE - 1) & ~(PAGE - 1) : SEGMENT;
#ifdef O_TMPFILE
    file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
#endif
    if (file < 0) {
        char name[4200];
        snprintf(name, sizeof name, "%s/traceconv-XXXXXX", folder);
        file = mkstemp(name);
        if (file >= 0)
            unlink(name);
    }
    if (made && file >= 0) {
        int failed = posix_fallocate(file, 0, (off_t)size);
        if (!failed)
            start = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    if (file >= 0)
        close(file);
    if (start == MAP_FAILED) {
        free(made);
        return NULL;
    }
    *made = (segment){start, size, 0, 0, segments};
    return segments = made;
}

static segment *segment_of(const void *block)
{
    const char *at = block;
    for (segment *s = segments; s; s = s->next)
        if (at >= s->start && at < s->start + s->size)
            return s;
    return NULL;
}

static size_t resident(void)
{
    char text[64] = "";
    size_t size = 0, pages = 0;
    int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        if (read(file, text, sizeof text - 1) > 0)
            sscanf(text, "%zu %zu", &size, &pages);
        close(file);
    }
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Put the pages of all segments and mappings out; the thread and large requests call it. */
static void purge(void)
{
    pthread_mutex_lock(&lock);
    for (segment *s = segments; s; s = s->next)
        madvise(s->start, s->used, MADV_DONTNEED);
    for (mapping *m = mappings; m; m = m->next)
        madvise(m->start, m->size, MADV_DONTNEED);
    pthread_mutex_unlock(&lock);
    __atomic_add_fetch(&purges, 1, __ATOMIC_RELAXED);
}

/* Small arrays leave holes between what lives longer: give those pages back too. */
static void trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

/* Bytes of the pages of a block. */
static size_t whole_of(size_t size) { return (size + HEAD + PAGE - 1) & ~(PAGE - 1); }

/* Take the spare block number `at` out. */
static spare spare_out(int at)
{
    spare one = spares[at];
    memmove(&spares[at], &spares[at + 1], (size_t)(--spare_count - at) * sizeof one);
    return one;
}

/* A spare block of just so many bytes; NULL if there is none. */
static char *spare_of(size_t whole)
{
    for (int at = spare_count - 1; at >= 0; at--)
        if (spares[at].whole == whole)
            return spare_out(at).block;
    return NULL;
}

/* A block of `size` bytes, and whether all of it is 0. */
static void *block_new(size_t size, int *clear)
{
    size_t whole = whole_of(size);
    char *block = NULL;
    if (__atomic_add_fetch(&lately, size, __ATOMIC_RELAXED) >= limit_bytes / LOOK) {
        __atomic_store_n(&lately, 0, __ATOMIC_RELAXED);
        if (resident() + size > limit_bytes)
            purge();
    }
    pthread_mutex_lock(&lock);
    block = spare_of(whole);
    *clear = !block;
    if (!block) {
        segment *s = segments;
        while (s && s->size - s->used < whole)
            s = s->next;
        if (!s)
            s = segment_new(whole);
        if (s) {
            block = s->start + s->used + HEAD;
            s->used += whole;
            s->live++;
        }
    }
    if (block)
        memcpy(block - HEAD, &size, sizeof size);
    pthread_mutex_unlock(&lock);
    return block;
}

/* Give back the pages of a block, and its room on disk. The lock is held. */
static void release(segment *s, char *block, size_t whole)
{
    if (--s->live) {
        madvise(block - HEAD, whole, MADV_REMOVE);
        return;
    }
    segment **link = &segments;
    while (*link != s)
        link = &(*link)->next;
    *link = s->next;
    munmap(s->start, s->size);
    free(s);
}

/* Release spare blocks, those first that have been so longest, until there are no more than `most`. The
   lock is held. */
static void release_spares(int most)
{
    while (spare_count > most) {
        spare one = spare_out(0);
        release(segment_of(one.block), one.block, one.whole);
    }
}

/* Whether `block` was ours. A small one is kept as a spare while there is a limit. */
static int block_free(void *block)
{
    pthread_mutex_lock(&lock);
    segment *s = segment_of(block);
    if (s) {
        size_t size, whole;
        memcpy(&size, (char *)block - HEAD, sizeof size);
        whole = whole_of(size);
        if (whole > SPARE_MOST || !__atomic_load_n(&ticking, __ATOMIC_RELAXED)) {
            release(s, block, whole);
        } else {
            release_spares(SPARES - 1);
            spares[spare_count++] = (spare){block, whole};
        }
    }
    pthread_mutex_unlock(&lock);
    return s != NULL;
}

static void *take(void *Py_UNUSED(context), size_t size)
{
    int clear;
    return size >= LARGE ? block_new(size, &clear) : malloc(size ? size : 1);
}

static void *take_zeroed(void *Py_UNUSED(context), size_t count, size_t each)
{
    size_t size;
    int clear;
    if (__builtin_mul_overflow(count, each, &size))
        return NULL;
    if (size < LARGE)
        return calloc(count ? count : 1, each ? each : 1);
    void *block = block_new(size, &clear);
    if (block && !clear)
        memset(block, 0, size);
    return block;
}

static void give(void *Py_UNUSED(context), void *block, size_t size)
{
    if (size < LARGE || !block_free(block))
        free(block);
}

static void *grow(void *Py_UNUSED(context), void *block, size_t size)
{
    size_t old = 0;
    int clear;
    pthread_mutex_lock(&lock);
    segment *s = block ? segment_of(block) : NULL;
    if (s)
        memcpy(&old, (char *)block - HEAD, sizeof old);
    pthread_mutex_unlock(&lock);
#ifdef __GLIBC__
    if (!s && block && size >= LARGE) /* an array that grows, as those made of iterators do */
        old = malloc_usable_size(block);
#endif
    if (!old) /* a small one, or of a size that is not known: it stays where small ones are */
        return realloc(block, size ? size : 1);
    void *moved = size >= LARGE ? block_new(size, &clear) : malloc(size ? size : 1);
    if (moved) {
        memcpy(moved, block, old < size ? old : size);
        if (!block_free(block))
            free(block);
    }
    return moved;
}

static PyDataMem_Handler handler = {
    "traceconv_on_disk", 1, {NULL, take, take_zeroed, grow, give}};

static void *tick(void *Py_UNUSED(nothing))
{
    struct timespec pause = {0, TICK_NS};
#ifdef __linux__ /* who waits behind others comes too late; not every process may ask for it */
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), -20);
#endif
    for (int since = 0; __atomic_load_n(&ticking, __ATOMIC_RELAXED); since++) {
        nanosleep(&pause, NULL);
        if (resident() <= limit_bytes)
            continue;
        purge();
        if (since >= TRIM_EVERY && resident() > limit_bytes / 2) { /* long, and nothing else is done */
            trim();
            since = 0;
        }
    }
    return NULL;
}

/* Whether numpy, in this thread, takes memory from there from now on; else an error is set. */
static int allocate_by(PyDataMem_Handler *one)
{
    PyObject *capsule = PyCapsule_New(one, "mem_handler", NULL);
    PyObject *before = capsule ? PyDataMem_SetHandler(capsule) : NULL;
    Py_XDECREF(capsule);
    Py_XDECREF(before);
    return before != NULL;
}

PyDoc_STRVAR(start_doc, "start(folder, limit)\n--\n\nAllocate large arrays of this thread in files of"
    " `folder`;\npages leave memory when the process takes more than `limit` bytes.\n"
    "Returns whether the folder is on a disk (not in memory).");

static PyObject *memory_start(PyObject *Py_UNUSED(self), PyObject *args)
{
    const char *where;
    Py_ssize_t bytes;
    struct statfs about;
    if (!PyArg_ParseTuple(args, "sn", &where, &bytes))
        return NULL;
    errno = ENAMETOOLONG;
    if (strlen(where) >= sizeof folder - 1 || statfs(where, &about))
        return PyErr_SetFromErrnoWithFilename(PyExc_OSError, where);
    strcpy(folder, where);
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, (int)LARGE); /* else it grows, and large buffers leave holes */
#endif
    limit_bytes = (size_t)bytes;
    if (!allocate_by(&handler))
        return NULL;
    if (!ticking) {
        ticking = 1;
        if ((errno = pthread_create(&ticker, NULL, tick, NULL))) { /* it does not set errno itself */
            ticking = 0;
            Py_XDECREF(PyDataMem_SetHandler(NULL));
            return PyErr_SetFromErrno(PyExc_OSError);
        }
    }
    return PyBool_FromLong((long)about.f_type != MEMORY_FILE_SYSTEM);
}

PyDoc_STRVAR(stop_doc, "stop()\n--\n\nAllocate as numpy does again; how often pages were written out.");

static PyObject *memory_stop(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(nothing))
{
    PyObject *before = PyDataMem_SetHandler(NULL);
    if (!before)
        return NULL;
    Py_DECREF(before);
    if (ticking) {
        __atomic_store_n(&ticking, 0, __ATOMIC_RELAXED);
        Py_BEGIN_ALLOW_THREADS
        pthread_join(ticker, NULL);
        Py_END_ALLOW_THREADS
        pthread_mutex_lock(&lock);
        release_spares(0);
        pthread_mutex_unlock(&lock);
    }
    return PyLong_FromSize_t(purges);
}

PyDoc_STRVAR(resident_doc, "resident()\n--\n\nBytes of the process that are in memory.");

static PyObject *memory_resident(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(nothing))
{
    return PyLong_FromSize_t(resident());
}

PyDoc_STRVAR(watch_doc, "watch(mapped)\n--\n\nLet the pages of a file mapped for reading leave memory,"
    " too, until forget().");

static PyObject *memory_watch(PyObject *Py_UNUSED(self), PyObject *mapped)
{
    Py_buffer view;
    mapping *made = malloc(sizeof *made);
    if (!made)
        return PyErr_NoMemory();
    if (PyObject_GetBuffer(mapped, &view, PyBUF_SIMPLE)) {
        free(made);
        return NULL;
    }
    if (!view.readonly) {
        PyBuffer_Release(&view);
        free(made);
        return PyErr_Format(PyExc_ValueError, "only what is mapped for reading can be read again");
    }
    *made = (mapping){view.buf, (size_t)view.len, NULL};
    PyBuffer_Release(&view); /* forget() comes before the mapping goes */
    pthread_mutex_lock(&lock);
    made->next = mappings;
    mappings = made;
    pthread_mutex_unlock(&lock);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(forget_doc, "forget(mapped)\n--\n\nThe opposite of watch(), before it is unmapped.");

static PyObject *memory_forget(PyObject *Py_UNUSED(self), PyObject *mapped)
{
    Py_buffer view;
    if (PyObject_GetBuffer(mapped, &view, PyBUF_SIMPLE))
        return NULL;
    pthread_mutex_lock(&lock);
    mapping **link = &mappings, *found;
    while (*link && (*link)->start != view.buf)
        link = &(*link)->next;
    found = *link;
    if (found)
        *link = found->next;
    pthread_mutex_unlock(&lock);
    free(found);
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(trim_doc, "trim(least)\n--\n\nGive pages of freed memory back to the system, if there are"
    " `least` bytes of it.");

static PyObject *memory_trim(PyObject *Py_UNUSED(self), PyObject *given)
{
    size_t least = PyLong_AsSize_t(given);
    if (least == (size_t)-1 && PyErr_Occurred())
        return NULL;
#ifdef HAVE_MALLINFO2
    if (mallinfo2().fordblks < least)
        Py_RETURN_NONE;
#endif
    Py_BEGIN_ALLOW_THREADS
    trim();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

PyDoc_STRVAR(apart_doc, "apart(least)\n--\n\nFrom now on, blocks of `least` bytes and more go back to"
    " the system as soon as they are freed.");

static PyObject *memory_apart(PyObject *Py_UNUSED(self), PyObject *given)
{
    size_t least = PyLong_AsSize_t(given);
    if (least == (size_t)-1 && PyErr_Occurred())
        return NULL;
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, (int)least);
#endif
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"apart", memory_apart, METH_O, apart_doc},
    {"trim", memory_trim, METH_O, trim_doc},
    {"watch", memory_watch, METH_O, watch_doc},
    {"forget", memory_forget, METH_O, forget_doc},
    {"start", memory_start, METH_VARARGS, start_doc},
    {"stop", memory_stop, METH_NOARGS, stop_doc},
    {"resident", memory_resident, METH_NOARGS, resident_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "traceconv._memory", "Large arrays on disk; see traceconv/io/memory.py.",
    -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__memory(void)
{
    import_array();
    return PyModule_Create(&module);
}
