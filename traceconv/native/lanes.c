/* Slices that cross go to lanes of their own (see passes/lanes.py, which has the same in Python).
 *
 * A lane that nests keeps a stack of the ends of its open slices; a slice goes to the first lane on
 * whose innermost open slice it ends in time. Lanes after the first `nesting` ones are kept in a heap
 * by the time they are free at; of these, slices nest only in the one that was taken last.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <stdlib.h>

#include "text.h"

typedef struct {
    int64_t end;
    int32_t lane;
} Free;

typedef struct {
    int64_t *ends; /* `nesting` stacks of `depth`, and one for the lane that was taken last */
    int32_t *height, last;
    Free *free;
    size_t depth, nesting, used, waiting, room;
} Lanes;

static int before(Free a, Free b) { return a.end < b.end || (a.end == b.end && a.lane < b.lane); }

/* Put `one` where the heap has a hole at `at`, nothing below which comes before its parent. */
static void sift_down(Lanes *z, size_t at, Free one)
{
    for (size_t child; (child = 2 * at + 1) < z->waiting; at = child) {
        if (child + 1 < z->waiting && before(z->free[child + 1], z->free[child])) child++;
        if (!before(z->free[child], one)) break;
        z->free[at] = z->free[child];
    }
    z->free[at] = one;
}

/* Add `one` to the heap; 0 if there is no memory. */
static int push(Lanes *z, Free one)
{
    if (z->waiting == z->room) {
        size_t room = z->room ? 2 * z->room : 256;
        Free *more = realloc(z->free, room * sizeof *more);
        if (!more) return 0;
        z->free = more, z->room = room;
    }
    size_t at = z->waiting++;
    for (size_t parent; at && before(one, z->free[parent = (at - 1) / 2]); at = parent)
        z->free[at] = z->free[parent];
    z->free[at] = one;
    return 1;
}

/* Forget the slices of a stack that have ended by `start`; how many are open. */
static int32_t opened(Lanes *z, size_t lane, int64_t start)
{
    int32_t height = z->height[lane];
    while (height && z->ends[lane * z->depth + (size_t)height - 1] <= start) height--;
    return z->height[lane] = height;
}

/* Put a slice on top of a stack. */
static void nest(Lanes *z, size_t lane, int64_t end)
{
    z->ends[lane * z->depth + (size_t)z->height[lane]++] = end;
}

/* The lane of one slice; *full is set if a lane that it would fit is as deep as it may be.
 * -1 if there is no memory. */
static int32_t place(Lanes *z, int64_t start, int64_t end, int *full)
{
    for (size_t lane = 0; lane < z->used; lane++) {
        int32_t height = opened(z, lane, start);
        if (height && end > z->ends[lane * z->depth + (size_t)height - 1]) continue;
        if ((size_t)height < z->depth) {
            nest(z, lane, end);
            return (int32_t)lane;
        }
        *full = 1;
    }
    if (z->used < z->nesting) {
        nest(z, z->used, end);
        return (int32_t)z->used++;
    }
    size_t last = z->nesting;
    int32_t height = opened(z, last, start);
    if (height && (size_t)height < z->depth && end <= z->ends[last * z->depth + (size_t)height - 1]) {
        nest(z, last, end);
        return z->last;
    }
    Free one = {end, (int32_t)(z->nesting + z->waiting)};
    if (z->waiting && z->free[0].end <= start) {
        one.lane = z->free[0].lane;
        sift_down(z, 0, one);
    } else if (!push(z, one))
        return -1;
    z->height[last] = 0;
    nest(z, last, end);
    return z->last = one.lane;
}

PyDoc_STRVAR(doc,
    "first_fit(start, end, depth, nesting)\n\n"
    "The lane of each slice, as int32, and how many were too deep for one that they would fit.\n"
    "Slices are int64 and sorted by (start, -end).");

static PyObject *first_fit(PyObject *Py_UNUSED(self), PyObject *args)
{
    Py_buffer start, end;
    Py_ssize_t depth, nesting;
    if (!PyArg_ParseTuple(args, "y*y*nn", &start, &end, &depth, &nesting)) return NULL;
    PyObject *result = NULL, *lanes = NULL;
    Lanes z = {0};
    size_t n = (size_t)start.len / sizeof(int64_t);
    long long deep = 0;
    int failed = 0;
    if (start.len != end.len || start.len % (Py_ssize_t)sizeof(int64_t) || depth < 1 ||
        nesting < 1 || depth > INT32_MAX || nesting > INT32_MAX || n > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "columns of one length and positive numbers are needed");
        goto done;
    }
    z.depth = (size_t)depth, z.nesting = (size_t)nesting;
    z.ends = calloc(z.depth * (z.nesting + 1), sizeof *z.ends);
    z.height = calloc(z.nesting + 1, sizeof *z.height);
    lanes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(n * sizeof(int32_t)));
    if (!z.ends || !z.height || !lanes) {
        if (!PyErr_Occurred()) PyErr_NoMemory();
        goto done;
    }
    int32_t *out = (int32_t *)PyBytes_AS_STRING(lanes);
    const int64_t *from = start.buf, *to = end.buf;
    Py_BEGIN_ALLOW_THREADS
    for (size_t i = 0; i < n && !failed; i++) {
        int full = 0;
        out[i] = place(&z, from[i], to[i], &full);
        failed = out[i] < 0;
        deep += full;
    }
    Py_END_ALLOW_THREADS
    if (failed)
        PyErr_NoMemory();
    else
        result = Py_BuildValue("(OL)", lanes, deep);
done:
    Py_XDECREF(lanes);
    free(z.ends);
    free(z.height);
    free(z.free);
    PyBuffer_Release(&start);
    PyBuffer_Release(&end);
    return result;
}

static PyMethodDef methods[] = {
    {"first_fit", first_fit, METH_VARARGS, doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "traceconv.native._lanes",
    "Lanes for slices that cross; see traceconv/passes/lanes.py.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__lanes(void) { return PyModule_Create(&module); }
