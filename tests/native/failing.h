/* Put in front of every C part by `make sanitize` (-include): allocations that fail when they are told
 * to. test_allocations.py sets how many succeed before one does not; -1, as here, is all of them.
 */
#ifndef TRACECONV_FAILING_H
#define TRACECONV_FAILING_H
#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

__attribute__((weak)) long traceconv_left = -1;
__attribute__((weak)) long traceconv_failed = 0;

static inline int traceconv_fails(void)
{
    long left = traceconv_left;
    if (left < 0) return 0;
    traceconv_left = left - 1;
    if (left) return 0;
    traceconv_failed++;
    return 1;
}

/* What _PyBytes_Resize does where there is no memory. */
static inline int traceconv_resize(PyObject **bytes, Py_ssize_t n)
{
    if (!traceconv_fails()) return _PyBytes_Resize(bytes, n);
    Py_CLEAR(*bytes);
    PyErr_NoMemory();
    return -1;
}

#define FAILS(otherwise, call) (traceconv_fails() ? (otherwise) : (call))
#define malloc(n) FAILS(NULL, malloc(n))
#define calloc(n, each) FAILS(NULL, calloc(n, each))
#define realloc(p, n) FAILS(NULL, realloc(p, n))
#define PyMem_RawCalloc(n, each) FAILS(NULL, PyMem_RawCalloc(n, each))
#define PyMem_RawRealloc(p, n) FAILS(NULL, PyMem_RawRealloc(p, n))
#undef PyMem_Malloc
#define PyMem_Malloc(n) FAILS(NULL, PyMem_Malloc(n))
#define PyBytes_FromStringAndSize(p, n) FAILS(PyErr_NoMemory(), PyBytes_FromStringAndSize(p, n))
#define PyByteArray_FromStringAndSize(p, n) FAILS(PyErr_NoMemory(), PyByteArray_FromStringAndSize(p, n))
#define PyList_New(n) FAILS(PyErr_NoMemory(), PyList_New(n))
#define PyList_Append(list, one) FAILS((PyErr_NoMemory(), -1), PyList_Append(list, one))
#define PyLong_FromUnsignedLongLong(v) FAILS(PyErr_NoMemory(), PyLong_FromUnsignedLongLong(v))
#define PyTuple_Pack(...) FAILS(PyErr_NoMemory(), PyTuple_Pack(__VA_ARGS__))
#define PyOS_double_to_string(...) FAILS((PyErr_NoMemory(), (char *)NULL), PyOS_double_to_string(__VA_ARGS__))
#define _PyBytes_Resize(p, n) traceconv_resize(p, n)
/* What gives memory.c room on disk, and its thread. */
#define mmap(...) FAILS((errno = ENOMEM, MAP_FAILED), mmap(__VA_ARGS__))
#define posix_fallocate(...) FAILS(ENOSPC, posix_fallocate(__VA_ARGS__))
#define pthread_create(...) FAILS(EAGAIN, pthread_create(__VA_ARGS__))

#endif
