/* Replaying the graph of a job (see analysis/replay/engine.py and graph.py, which have the same in
 * Python): operations are rows, in sets that meet; `before` are the rows that each one waits for,
 * the number of rows for none.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

/* Whether a buffer holds `count` values of `size` bytes. */
static int holds(const Py_buffer *one, size_t count, size_t size)
{
    return (size_t)one->len == count * size;
}

/* Whether all numbers of a column are from `low` to `high`. */
static int within(const int32_t *column, size_t count, int64_t low, int64_t high)
{
    for (size_t i = 0; i < count; i++)
        if (column[i] < low || column[i] > high) return 0;
    return 1;
}

typedef struct {
    const int32_t *before, *source;
    const int64_t *meets;
    const double *lengths, *delays;
    size_t rows, width, sets, each_length, each_delay; /* the last two: columns of these */
} Graph;

/* The end of each row in a scenario. `ends` has a cell more, of what waits for nothing. */
static void replay(const Graph *g, size_t scenario, double *ends)
{
    size_t length = g->each_length > 1 ? scenario : 0, delay = g->each_delay > 1 ? scenario : 0;
    ends[g->rows] = 0;
    for (size_t set = 0; set < g->sets; set++) {
        size_t first = (size_t)g->meets[set];
        size_t last = set + 1 < g->sets ? (size_t)g->meets[set + 1] : g->rows;
        double met = 0;
        for (size_t row = first; row < last; row++) {
            const int32_t *before = g->before + row * g->width;
            double arrival = ends[before[0]];
            for (size_t i = 1; i < g->width; i++)
                if (ends[before[i]] > arrival) arrival = ends[before[i]];
            arrival += g->delays[row * g->each_delay + delay];
            if (ends[g->source[row]] > arrival) arrival = ends[g->source[row]];
            if (row == first || arrival > met) met = arrival;
        }
        for (size_t row = first; row < last; row++)
            ends[row] = met + g->lengths[row * g->each_length + length];
    }
}

/* Whether rows wait for rows of earlier sets only, and sets are ascending. */
static int ordered(const Graph *g)
{
    int64_t first = 0;
    if (g->sets ? g->meets[0] != 0 : g->rows > 0) return 0;
    for (size_t set = 0; set < g->sets; set++) {
        int64_t last = set + 1 < g->sets ? g->meets[set + 1] : (int64_t)g->rows;
        if (last <= first || last > (int64_t)g->rows) return 0;
        for (int64_t row = first; row < last; row++) {
            for (size_t i = 0; i <= g->width; i++) {
                int32_t other = i < g->width ? g->before[(size_t)row * g->width + i]
                                             : g->source[row];
                if (other < 0 || (other >= first && (size_t)other != g->rows)) return 0;
            }
        }
        first = last;
    }
    return 1;
}

PyDoc_STRVAR(ends_doc,
    "ends(before, source, meets, lengths, delays, scenarios)\n\n"
    "When each row ends, as doubles, the rows of each scenario one after the other, and after them\n"
    "a 0. Lengths and delays have a column for each scenario, or one for all.");

static PyObject *ends(PyObject *Py_UNUSED(self), PyObject *args)
{
    Py_buffer before, source, meets, lengths, delays;
    Py_ssize_t scenarios;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*n", &before, &source, &meets, &lengths, &delays,
                          &scenarios))
        return NULL;
    PyObject *result = NULL;
    size_t rows = (size_t)source.len / sizeof(int32_t), size = rows * sizeof(double);
    Graph g = {before.buf, source.buf, meets.buf, lengths.buf, delays.buf, rows, 1,
               (size_t)meets.len / sizeof(int64_t), 1, 1};
    if (rows) {
        g.width = (size_t)before.len / (rows * sizeof(int32_t));
        g.each_length = (size_t)lengths.len / size;
        g.each_delay = (size_t)delays.len / size;
    }
    if (scenarios < 1 || scenarios > INT32_MAX || rows > INT32_MAX || !g.width ||
        !holds(&source, rows, sizeof(int32_t)) ||
        !holds(&before, rows * g.width, sizeof(int32_t)) ||
        !holds(&meets, g.sets, sizeof(int64_t)) ||
        !holds(&lengths, rows * g.each_length, sizeof(double)) ||
        !holds(&delays, rows * g.each_delay, sizeof(double)) ||
        (g.each_length != 1 && g.each_length != (size_t)scenarios) ||
        (g.each_delay != 1 && g.each_delay != (size_t)scenarios) || !ordered(&g)) {
        PyErr_SetString(PyExc_ValueError, "columns that do not fit together");
        goto done;
    }
    result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(size + sizeof(double)) * scenarios);
    if (!result)
        goto done;
    double *out = (double *)PyBytes_AS_STRING(result);
    Py_BEGIN_ALLOW_THREADS
    for (size_t scenario = 0; scenario < (size_t)scenarios; scenario++)
        replay(&g, scenario, out + scenario * (rows + 1));
    Py_END_ALLOW_THREADS
done:
    PyBuffer_Release(&before);
    PyBuffer_Release(&source);
    PyBuffer_Release(&meets);
    PyBuffer_Release(&lengths);
    PyBuffer_Release(&delays);
    return result;
}

/* The level of each row; see `levels`. 0 if there is no memory. */
static int find_levels(const int32_t *before, const int32_t *meet, size_t rows, size_t width,
                       int32_t *level)
{
    size_t edges = 0;
    int32_t *waiting = calloc(rows + 1, sizeof *waiting); /* edges into each set that are left */
    int32_t *begin = calloc(rows + 2, sizeof *begin);     /* of each set, in `target` */
    int32_t *queue = malloc((rows + 1) * sizeof *queue), *target = NULL;
    if (!waiting || !begin || !queue) goto done;
    for (size_t i = 0; i < rows * width; i++) {
        if ((size_t)before[i] == rows) continue;
        begin[meet[before[i]] + 2]++, waiting[meet[i / width]]++, edges++;
    }
    for (size_t i = 2; i < rows + 2; i++) begin[i] += begin[i - 1];
    if (!(target = malloc((edges + 1) * sizeof *target))) goto done;
    for (size_t i = 0; i < rows * width; i++)
        if ((size_t)before[i] < rows) target[begin[meet[before[i]] + 1]++] = meet[i / width];
    size_t head = 0, tail = 0;
    for (size_t i = 0; i < rows; i++) {
        int ready = (size_t)meet[i] == i && !waiting[i];
        level[i] = ready ? 0 : -1;
        if (ready) queue[tail++] = (int32_t)i;
    }
    /* the last that a set waits for decides on its level: sets are queued in order of these */
    for (; head < tail; head++) {
        int32_t set = queue[head];
        for (int32_t i = begin[set]; i < begin[set + 1]; i++)
            if (!--waiting[target[i]]) {
                level[target[i]] = level[set] + 1;
                queue[tail++] = target[i];
            }
    }
    for (size_t i = 0; i < rows; i++) level[i] = level[meet[i]];
done:
    free(waiting);
    free(begin);
    free(queue);
    int made = target != NULL;
    free(target);
    return made;
}

PyDoc_STRVAR(levels_doc,
    "levels(before, meet)\n\n"
    "The level of each row, as int32: behind all that its set waits for; -1 of rows in a circle or\n"
    "behind one. `meet` is the first row of the set of each row.");

static PyObject *levels(PyObject *Py_UNUSED(self), PyObject *args)
{
    Py_buffer before, meet;
    if (!PyArg_ParseTuple(args, "y*y*", &before, &meet)) return NULL;
    PyObject *result = NULL;
    size_t rows = (size_t)meet.len / sizeof(int32_t);
    size_t width = rows ? (size_t)before.len / (rows * sizeof(int32_t)) : 0;
    const int32_t *of = meet.buf;
    int fits = holds(&meet, rows, sizeof(int32_t)) && rows < INT32_MAX / 64 && width < 64 &&
               holds(&before, rows * width, sizeof(int32_t)) &&
               within(before.buf, rows * width, 0, (int64_t)rows) &&
               within(of, rows, 0, (int64_t)rows - 1);
    for (size_t i = 0; i < rows && fits; i++) fits = of[of[i]] == of[i] && of[i] <= (int32_t)i;
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "columns that do not fit together");
        goto done;
    }
    result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(rows * sizeof(int32_t)));
    if (!result) goto done;
    int32_t *out = (int32_t *)PyBytes_AS_STRING(result);
    int made;
    Py_BEGIN_ALLOW_THREADS
    made = find_levels(before.buf, of, rows, width, out);
    Py_END_ALLOW_THREADS
    if (!made) {
        Py_CLEAR(result);
        PyErr_NoMemory();
    }
done:
    PyBuffer_Release(&before);
    PyBuffer_Release(&meet);
    return result;
}

static PyMethodDef methods[] = {
    {"ends", ends, METH_VARARGS, ends_doc},
    {"levels", levels, METH_VARARGS, levels_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "traceconv.native._replay",
    "The graph of a job, replayed; see traceconv/analysis/replay.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__replay(void) { return PyModule_Create(&module); }
