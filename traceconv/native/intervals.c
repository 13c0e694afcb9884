/* Sets of intervals, and slices within slices (see core/intervals.py and analysis/tables/host.py, which
 * have the same in Python).
 *
 * All columns come from numpy, also those that are filled: nothing is allocated here, so that a
 * limit on memory holds for everything. Columns of a set are strided: starts and ends are the two
 * columns of one array.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

#include "text.h"

typedef struct {
    Py_buffer view;
    char *at;
    Py_ssize_t n, step; /* step in bytes */
} Column;

static inline int64_t value(const Column *c, Py_ssize_t i)
{
    int64_t found;
    memcpy(&found, c->at + i * c->step, sizeof found);
    return found;
}

static inline void put(const Column *c, Py_ssize_t i, int64_t found)
{
    memcpy(c->at + i * c->step, &found, sizeof found);
}

/* Arguments as columns of int64, of one dimension each. 0, with an error, if one is none. */
static int columns(PyObject *const *args, Py_ssize_t given, Column *c, Py_ssize_t wanted,
                   unsigned filled)
{
    memset(c, 0, (size_t)wanted * sizeof *c);
    if (given != wanted) {
        PyErr_Format(PyExc_TypeError, "%zd columns are needed", wanted);
        return 0;
    }
    for (Py_ssize_t i = 0; i < wanted; i++) {
        int flags = PyBUF_STRIDES | PyBUF_FORMAT | (filled >> i & 1 ? PyBUF_WRITABLE : 0);
        if (PyObject_GetBuffer(args[i], &c[i].view, flags)) return 0;
        const char *format = c[i].view.format ? c[i].view.format : "";
        if (c[i].view.ndim != 1 || c[i].view.itemsize != sizeof(int64_t) ||
            (strcmp(format, "l") && strcmp(format, "q"))) {
            PyErr_SetString(PyExc_ValueError, "columns of int64 are needed");
            return 0;
        }
        c[i].at = c[i].view.buf, c[i].n = c[i].view.shape[0], c[i].step = c[i].view.strides[0];
    }
    return 1;
}

static PyObject *released(Column *c, Py_ssize_t count, PyObject *result)
{
    for (Py_ssize_t i = 0; i < count; i++)
        if (c[i].view.obj) PyBuffer_Release(&c[i].view);
    return result;
}

static PyObject *too_short(void)
{
    PyErr_SetString(PyExc_ValueError, "columns differ in length, or are too short to fill");
    return NULL;
}

/* -- union ----------------------------------------------------------------------------------- */

typedef struct {
    int64_t start, end;
} Span;

/* Merge sorted runs of `from` by pairs into `to`; how many there are then. */
static Py_ssize_t merge_runs(const Span *from, Span *to, Py_ssize_t n)
{
    Py_ssize_t runs = 0, k = 0;
    for (Py_ssize_t a = 0; a < n; runs++) {
        Py_ssize_t b = a + 1;
        while (b < n && from[b].start >= from[b - 1].start) b++;
        Py_ssize_t end = b < n ? b + 1 : n;
        while (end < n && from[end].start >= from[end - 1].start) end++;
        Py_ssize_t i = a, j = b;
        while (i < b && j < end) to[k++] = from[j].start < from[i].start ? from[j++] : from[i++];
        while (i < b) to[k++] = from[i++];
        while (j < end) to[k++] = from[j++];
        a = end;
    }
    return runs;
}

#define RUN 16 /* as _RUNS of core/ordering.py: shorter ones are sorted sooner by numpy */
#define FEW 256

static Py_ssize_t united(const Column *start, const Column *end, Span *out, Span *other)
{
    Py_ssize_t n = 0, breaks = 0, most = start->n > FEW ? start->n / RUN : start->n;
    for (Py_ssize_t i = 0; i < start->n; i++) {
        Span one = {value(start, i), value(end, i)};
        if (one.end <= one.start) continue;
        if (n && one.start < out[n - 1].start && ++breaks > most) return -1;
        out[n++] = one;
    }
    Span *from = out, *to = other;
    for (Py_ssize_t runs = breaks + 1; runs > 1; ) {
        runs = merge_runs(from, to, n);
        Span *swap = from;
        from = to, to = swap;
    }
    Py_ssize_t m = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (m && from[i].start <= out[m - 1].end) {
            if (from[i].end > out[m - 1].end) out[m - 1].end = from[i].end;
        } else
            out[m++] = from[i]; /* m <= i: what is overwritten has been read */
    }
    return m;
}

PyDoc_STRVAR(union_doc,
    "union(start, end, out, other)\n\n"
    "Fill `out` with the union of intervals; how many rows it has, or -1 where sorting takes less\n"
    "in another way. `out` and `other` are int64, one after the other, two for each interval.");

static PyObject *union_(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t given)
{
    Column c[4];
    if (!columns(args, given, c, 4, 0xc)) return released(c, 4, NULL);
    Py_ssize_t n = c[0].n, m;
    if (c[1].n != n || c[2].n / 2 < n || c[3].n / 2 < n ||
        (n && (c[2].step != sizeof(int64_t) || c[3].step != sizeof(int64_t))))
        return released(c, 4, too_short());
    Py_BEGIN_ALLOW_THREADS
    m = united(&c[0], &c[1], (Span *)c[2].at, (Span *)c[3].at);
    Py_END_ALLOW_THREADS
    return released(c, 4, PyLong_FromSsize_t(m));
}

/* -- two sets -------------------------------------------------------------------------------- */

/* The pieces of time that are in one, the other or both of two sets, as `wanted` has a bit 1 << m
 * for the mask m. -1 if a set is none. */
static Py_ssize_t combined(const Column *c, unsigned wanted, Span *out)
{
    Py_ssize_t at[2] = {0, 0}, m = 0;
    unsigned inside = 0;
    int64_t since = 0;
    while (at[0] < 2 * c[0].n || at[1] < 2 * c[2].n) {
        int64_t next[2];
        for (int s = 0; s < 2; s++) {
            const Column *side = c + 2 * s;
            Py_ssize_t i = at[s];
            if (i >= 2 * side->n) continue;
            next[s] = value(&side[i & 1], i >> 1);
            if (i && next[s] <= value(&side[~i & 1], (i - 1) >> 1)) return -1;
        }
        int first = at[0] >= 2 * c[0].n || (at[1] < 2 * c[2].n && next[1] < next[0]);
        int64_t now = next[first];
        if (wanted >> inside & 1 && inside && now > since) {
            if (m && out[m - 1].end == since)
                out[m - 1].end = now;
            else
                out[m++] = (Span){since, now};
        }
        inside ^= 1u << first;
        at[first]++;
        since = now;
    }
    return m;
}

PyDoc_STRVAR(combined_doc,
    "combined(start, end, start, end, wanted, out)\n\n"
    "Fill `out` with what is in two sets of intervals as `wanted` says: bit 1 << m is set for what\n"
    "is in the sets of the bit mask m. How many rows that has; -1 if one is no set.");

static PyObject *combined_(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t given)
{
    Column c[5];
    if (given != 6) {
        PyErr_SetString(PyExc_TypeError, "six arguments are needed");
        return NULL;
    }
    PyObject *const five[] = {args[0], args[1], args[2], args[3], args[5]};
    if (!columns(five, 5, c, 5, 0x10)) return released(c, 5, NULL);
    long wanted = PyLong_AsLong(args[4]);
    if (wanted == -1 && PyErr_Occurred()) return released(c, 5, NULL);
    if (c[1].n != c[0].n || c[3].n != c[2].n || c[4].n / 2 < c[0].n + c[2].n ||
        (c[4].n && c[4].step != sizeof(int64_t)) || wanted < 0 || wanted > 0xf)
        return released(c, 5, too_short());
    Py_ssize_t m;
    Py_BEGIN_ALLOW_THREADS
    m = combined(c, (unsigned)wanted, (Span *)c[4].at);
    Py_END_ALLOW_THREADS
    return released(c, 5, PyLong_FromSsize_t(m));
}

/* -- how much of a set is before an instant --------------------------------------------------- */

/* How many of n ascending starts are at or before `time`; from `near` on, which is mostly close. */
static Py_ssize_t begun_at(const Column *start, int64_t time, Py_ssize_t near)
{
    Py_ssize_t low = 0, high = start->n; /* all before low have begun, none from high on has */
    for (Py_ssize_t reach = 1; low < high; reach *= 2) {
        if (near < high && value(start, near) <= time) {
            low = near + 1;
            if (high - near <= reach) break;
            near += reach;
        } else {
            high = near < high ? near : high;
            if (high - low <= reach) break;
            near = high - reach;
        }
    }
    while (low < high) {
        Py_ssize_t middle = low + (high - low) / 2;
        if (value(start, middle) <= time)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

PyDoc_STRVAR(before_doc,
    "before(start, end, time, sums, out)\n\n"
    "Fill `out` with the length of a set of intervals before each instant. `sums` is as long as\n"
    "the set and has room for the length of what is before each interval.");

static PyObject *before(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t given)
{
    Column c[5];
    if (!columns(args, given, c, 5, 0x18)) return released(c, 5, NULL);
    Py_ssize_t n = c[0].n, times = c[2].n, near = 0;
    if (c[1].n != n || c[3].n < n || c[4].n < times) return released(c, 5, too_short());
    Py_BEGIN_ALLOW_THREADS
    uint64_t sum = 0; /* as numpy adds: sums that leave int64 wrap */
    for (Py_ssize_t i = 0; i < n; i++) {
        put(&c[3], i, (int64_t)sum);
        sum += (uint64_t)value(&c[1], i) - (uint64_t)value(&c[0], i);
    }
    for (Py_ssize_t i = 0; i < times; i++) {
        int64_t time = value(&c[2], i), found = 0;
        Py_ssize_t begun = near = begun_at(&c[0], time, near);
        if (begun) {
            int64_t start = value(&c[0], begun - 1), end = value(&c[1], begun - 1);
            uint64_t reached = (uint64_t)(time < end ? time : end) - (uint64_t)start;
            found = (int64_t)((uint64_t)value(&c[3], begun - 1) + reached);
        }
        put(&c[4], i, found);
    }
    Py_END_ALLOW_THREADS
    Py_INCREF(Py_None);
    return released(c, 5, Py_None);
}

/* -- slices within slices --------------------------------------------------------------------- */

PyDoc_STRVAR(nest_doc,
    "nest(start, end, inside, open, time, top, parent)\n\n"
    "Which slice of a thread is innermost from each border on (`time`, `top`), and which is around\n"
    "each slice (`parent`); -1 = none. Starts come with the number of each slice (`inside`); ends are\n"
    "in order by themselves, for only how many are open counts. `open` has room for all slices.");

static int nested(const Column *c)
{
    const Column *start = &c[0], *end = &c[1], *inside = &c[2], *open = &c[3], *parent = &c[6];
    Py_ssize_t n = start->n, depth = 0, begun = 0;
    int64_t innermost = -1;
    for (Py_ssize_t k = 0; k < 2 * n; k++) {
        Py_ssize_t ended = k - begun;
        int64_t time;
        if (begun < n && value(start, begun) < value(end, ended)) {
            int64_t one = value(inside, begun);
            if (one < 0 || one >= parent->n) return 0;
            put(parent, one, innermost);
            put(open, depth++, one);
            time = value(start, begun++);
            innermost = one;
        } else {
            if (!depth) return 0;
            time = value(end, ended);
            innermost = --depth ? value(open, depth - 1) : -1;
        }
        put(&c[4], k, time);
        put(&c[5], k, innermost);
    }
    return 1;
}

static PyObject *nest(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t given)
{
    Column c[7];
    if (!columns(args, given, c, 7, 0x78)) return released(c, 7, NULL);
    Py_ssize_t n = c[0].n;
    if (c[1].n != n || c[2].n != n || c[3].n < n || c[4].n / 2 < n || c[5].n / 2 < n)
        return released(c, 7, too_short());
    int good;
    Py_BEGIN_ALLOW_THREADS
    good = nested(c);
    Py_END_ALLOW_THREADS
    if (!good) {
        PyErr_SetString(PyExc_ValueError, "a slice without a place, or one that ends first");
        return released(c, 7, NULL);
    }
    Py_INCREF(Py_None);
    return released(c, 7, Py_None);
}

#define CALL(f) ((PyCFunction)(void (*)(void))(f))

static PyMethodDef methods[] = {
    {"union", CALL(union_), METH_FASTCALL, union_doc},
    {"combined", CALL(combined_), METH_FASTCALL, combined_doc},
    {"before", CALL(before), METH_FASTCALL, before_doc},
    {"nest", CALL(nest), METH_FASTCALL, nest_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "traceconv.native._intervals",
    "Sets of intervals; see traceconv/core/intervals.py.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__intervals(void) { return PyModule_Create(&module); }
