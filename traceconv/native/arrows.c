/* Ends of arrows that belong together (see readers/shared/trace_events/arrows.py, which has the same
 * in Python): a table of the ends by key. Keys are secret hashes, so no input can make them collide.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <stdlib.h>

#include "text.h"

enum { START, STEP };

typedef struct {
    const int64_t *key;
    const int8_t *stage;
    size_t n;
    int32_t *tail;  /* of each end: first the first end of its key, then where its arrow is from */
    int32_t *start; /* at the first end of a key: its start, -1 for none */
    u8 *many;       /* there: whether it has several starts, or steps */
} Ends;

/* Find the first end of every end's key, and what is known of the key; 0 if there is no memory. */
static int grouped(Ends *z)
{
    unsigned bits = 4;
    while ((size_t)1 << bits < z->n + z->n / 4) bits++;
    size_t mask = ((size_t)1 << bits) - 1;
    int32_t *slots = malloc((mask + 1) * sizeof *slots);
    if (!slots) return 0;
    for (size_t i = 0; i <= mask; i++) slots[i] = -1;
    for (size_t i = 0; i < z->n; i++) {
        size_t at = (size_t)((u64)z->key[i] * 0x9E3779B97F4A7C15u >> (64 - bits));
        while (slots[at] >= 0 && z->key[slots[at]] != z->key[i]) at = (at + 1) & mask;
        if (slots[at] < 0) {
            slots[at] = (int32_t)i;
            z->start[i] = -1, z->many[i] = 0;
        }
        int32_t first = z->tail[i] = slots[at];
        if (z->stage[i] == START && z->start[first] < 0)
            z->start[first] = (int32_t)i;
        else if (z->stage[i] == START || z->stage[i] == STEP)
            z->many[first] = 1;
    }
    free(slots);
    return 1;
}

/* Ends of keys with one start and no step come from that; how many others there are. */
static size_t simple(Ends *z)
{
    size_t rest = 0;
    for (size_t i = 0; i < z->n; i++) {
        int32_t first = z->tail[i];
        if (z->many[first]) {
            rest++;
            z->tail[i] = -2 - first;
        } else
            z->tail[i] = z->stage[i] == START ? -1 : z->start[first];
    }
    return rest;
}

PyDoc_STRVAR(doc,
    "joined(key, stage)\n\n"
    "For every end the one its arrow comes from, and how many are not decided, as int32 and int.");

static PyObject *joined(PyObject *Py_UNUSED(self), PyObject *args)
{
    Py_buffer key, stage;
    if (!PyArg_ParseTuple(args, "y*y*", &key, &stage)) return NULL;
    PyObject *result = NULL, *tail = NULL;
    Ends z = {key.buf, stage.buf, (size_t)stage.len, NULL, NULL, NULL};
    size_t rest = 0;
    int grown = 0;
    if ((size_t)key.len != z.n * sizeof(int64_t) || z.n > INT32_MAX / 2) {
        PyErr_SetString(PyExc_ValueError, "columns of one length are needed");
        goto done;
    }
    tail = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(z.n * sizeof *z.tail));
    z.start = malloc((z.n + 1) * sizeof *z.start);
    z.many = malloc(z.n + 1);
    if (!tail || !z.start || !z.many) {
        if (!PyErr_Occurred()) PyErr_NoMemory();
        goto done;
    }
    z.tail = (int32_t *)PyBytes_AS_STRING(tail);
    Py_BEGIN_ALLOW_THREADS
    grown = grouped(&z);
    if (grown) rest = simple(&z);
    Py_END_ALLOW_THREADS
    if (grown)
        result = Py_BuildValue("(On)", tail, (Py_ssize_t)rest);
    else
        PyErr_NoMemory();
done:
    Py_XDECREF(tail);
    free(z.start);
    free(z.many);
    PyBuffer_Release(&key);
    PyBuffer_Release(&stage);
    return result;
}

static PyMethodDef methods[] = {
    {"joined", joined, METH_VARARGS, doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "traceconv.native._arrows",
    "Arrows; see traceconv/readers/shared/trace_events/arrows.py.", 0, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__arrows(void) { return PyModule_Create(&module); }
