/* Text records from columns: what traceconv/writers/template.py does piece by piece in Python.

   A record is the same pieces, in the same order, for every row: texts of a table by number,
   microseconds, and JSON as it was read. While text is made no Python object is touched and the
   lock is released. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

enum { SAME, TABLE, MICROS, JSON, MOST_PIECES = 16, MICROS_SIZE = 24 };

typedef struct { const u8 *at; size_t n; } Span;

typedef struct {
    int kind;
    Span lead;            /* before the text of a row that has one */
    const u8 *table;      /* TABLE: texts, one after the other */
    const int64_t *ends;  /* where they end */
    const int32_t *code;  /* of each row, -1 for none */
    const int64_t *ns;    /* MICROS: INT64_MIN for none; JSON: addresses */
    const int32_t *length;
    Span *blobs;
    size_t blob_count;
} Piece;

typedef struct { u8 *at; size_t n, room; } Text;

static int make_room(Text *t, size_t more)
{
    if (t->room - t->n >= more) return 1;
    size_t room = t->room + t->room / 2 + more + 4096;
    u8 *at = realloc(t->at, room);
    if (!at) return 0;
    t->at = at;
    t->room = room;
    return 1;
}

static void put(Text *t, const u8 *from, size_t n)
{
    if (n) memcpy(t->at + t->n, from, n);
    t->n += n;
}

static void put_micros(Text *t, int64_t ns)
{
    u8 digits[MICROS_SIZE], *p = digits + sizeof digits;
    uint64_t left = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
    for (int i = 0; left || i < 5; i++) { /* three decimals, the point, at least one digit */
        if (i == 3) { *--p = '.'; continue; }
        *--p = (u8)('0' + left % 10);
        left /= 10;
    }
    if (ns < 0) *--p = '-';
    put(t, p, (size_t)(digits + sizeof digits - p));
}

/* Whether the writer has to look at this JSON: it may hold an escaped surrogate, NaN, Infinity, a
   number beyond int64 or beyond a double. True wherever it does, and seldom elsewhere. */
static int is_suspicious(const u8 *p, size_t n)
{
    int run = 0;
    for (size_t i = 0; i < n; i++) {
        u8 c = p[i];
        if (is_digit(c)) {
            if (++run == 19) return 1;
            continue;
        }
        int after_digit = run > 0;
        run = 0;
        if (c == '\\') {
            if (n - i > 2 && p[i + 1] == 'u' && (p[i + 2] | 32) == 'd') return 1;
        } else if (c == 'N') {
            if (n - i > 2 && p[i + 1] == 'a' && p[i + 2] == 'N') return 1;
        } else if (c == 'I') {
            if (n - i > 3 && p[i + 1] == 'n' && p[i + 2] == 'f' && p[i + 3] == 'i') return 1;
        } else if ((c | 32) == 'e' && after_digit) {
            size_t at = i + 1 + (n - i > 1 && p[i + 1] == '+');
            if (n - i > 3 && n - at > 2 && is_digit(p[at]) && is_digit(p[at + 1]) && is_digit(p[at + 2]))
                return 1;
        }
    }
    return 0;
}

enum { DONE, NO_MEMORY, OUTSIDE, SUSPICIOUS };

static int put_piece(Text *t, const Piece *z, Py_ssize_t row)
{
    Span text = {NULL, 0};
    if (z->kind == TABLE) {
        int32_t code = z->code[row];
        if (code < 0) return DONE;
        int64_t from = code ? z->ends[code - 1] : 0;
        text = (Span){z->table + from, (size_t)(z->ends[code] - from)};
    } else if (z->kind == MICROS) {
        if (z->ns[row] == INT64_MIN) return DONE;
        if (!make_room(t, z->lead.n + MICROS_SIZE)) return NO_MEMORY;
        put(t, z->lead.at, z->lead.n);
        put_micros(t, z->ns[row]);
        return DONE;
    } else if (z->kind == JSON) {
        if (!z->length[row]) return DONE;
        uint64_t address = (uint64_t)z->ns[row], blob = address >> 48;
        size_t from = (size_t)(address & 0xffffffffffffULL), n = (size_t)z->length[row];
        if (z->length[row] < 0 || blob >= z->blob_count || from > z->blobs[blob].n ||
            n > z->blobs[blob].n - from)
            return OUTSIDE;
        text = (Span){z->blobs[blob].at + from, n};
        if (is_suspicious(text.at, text.n)) return SUSPICIOUS;
    }
    if (!make_room(t, z->lead.n + text.n)) return NO_MEMORY;
    put(t, z->lead.at, z->lead.n);
    put(t, text.at, text.n);
    return DONE;
}

static int put_rows(Text *t, const Piece *pieces, Py_ssize_t count, Py_ssize_t rows)
{
    for (Py_ssize_t row = 0; row < rows; row++)
        for (Py_ssize_t i = 0; i < count; i++) {
            int done = put_piece(t, &pieces[i], row);
            if (done != DONE) return done;
        }
    return DONE;
}

/* ---- Python's view ----------------------------------------------------------------------- */

typedef struct {
    Piece pieces[MOST_PIECES];
    Py_buffer *views; /* all that were taken */
    size_t view_count, view_room;
} Call;

static Py_buffer *view_of(Call *c, PyObject *from)
{
    if (c->view_count == c->view_room) {
        PyErr_SetString(PyExc_ValueError, "too many buffers");
        return NULL;
    }
    Py_buffer *view = &c->views[c->view_count];
    if (PyObject_GetBuffer(from, view, PyBUF_SIMPLE) < 0) return NULL;
    c->view_count++;
    return view;
}

static int refuse(const char *why)
{
    PyErr_SetString(PyExc_ValueError, why);
    return 0;
}

/* A column of `rows` values of `size` bytes. */
static const void *column(Call *c, PyObject *from, Py_ssize_t rows, size_t size)
{
    Py_buffer *view = view_of(c, from);
    if (!view) return NULL;
    if (view->len != rows * (Py_ssize_t)size) { refuse("columns differ in length"); return NULL; }
    return view->buf;
}

static int table_piece(Call *c, Piece *z, PyObject *table, PyObject *ends, PyObject *code, Py_ssize_t rows)
{
    Py_buffer *texts = view_of(c, table), *of = texts ? view_of(c, ends) : NULL;
    if (!of || !(z->code = column(c, code, rows, sizeof *z->code))) return 0;
    Py_ssize_t count = of->len / (Py_ssize_t)sizeof *z->ends;
    z->table = texts->buf;
    z->ends = of->buf;
    for (Py_ssize_t i = 0; i < count; i++)
        if (z->ends[i] < (i ? z->ends[i - 1] : 0) || z->ends[i] > texts->len)
            return refuse("ends outside their texts");
    for (Py_ssize_t i = 0; i < rows; i++)
        if (z->code[i] >= count) return refuse("a code without a text");
    return 1;
}

static int json_piece(Call *c, Piece *z, PyObject *blobs, PyObject *address, PyObject *length, Py_ssize_t rows)
{
    if (!PyTuple_Check(blobs)) return refuse("blobs are a tuple");
    z->blob_count = (size_t)PyTuple_GET_SIZE(blobs);
    z->blobs = calloc(z->blob_count + 1, sizeof *z->blobs);
    if (!z->blobs) { PyErr_NoMemory(); return 0; }
    for (size_t i = 0; i < z->blob_count; i++) {
        Py_buffer *view = view_of(c, PyTuple_GET_ITEM(blobs, (Py_ssize_t)i));
        if (!view) return 0;
        z->blobs[i] = (Span){view->buf, (size_t)view->len};
    }
    return (z->ns = column(c, address, rows, sizeof *z->ns)) &&
           (z->length = column(c, length, rows, sizeof *z->length));
}

/* (kind, lead, ...) */
static int parsed(Call *c, Piece *z, PyObject *from, Py_ssize_t rows)
{
    PyObject *lead, *a = NULL, *b = NULL, *d = NULL;
    if (!PyTuple_Check(from)) return refuse("a piece is a tuple");
    if (!PyArg_ParseTuple(from, "iS|OOO", &z->kind, &lead, &a, &b, &d)) return 0;
    z->lead = (Span){(const u8 *)PyBytes_AS_STRING(lead), (size_t)PyBytes_GET_SIZE(lead)};
    switch (z->kind) {
    case SAME: return 1;
    case TABLE: return d ? table_piece(c, z, a, b, d, rows) : refuse("a piece is incomplete");
    case MICROS: return a ? (z->ns = column(c, a, rows, sizeof *z->ns)) != NULL : refuse("a piece is incomplete");
    case JSON: return d ? json_piece(c, z, a, b, d, rows) : refuse("a piece is incomplete");
    default: return refuse("no such kind of piece");
    }
}

/* How many buffers the pieces may need. */
static size_t buffers_of(PyObject *pieces)
{
    size_t count = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pieces); i++) {
        PyObject *piece = PyTuple_GET_ITEM(pieces, i);
        PyObject *third = PyTuple_Check(piece) && PyTuple_GET_SIZE(piece) > 2 ? PyTuple_GET_ITEM(piece, 2) : NULL;
        count += 4 + (third && PyTuple_Check(third) ? (size_t)PyTuple_GET_SIZE(third) : 0);
    }
    return count;
}

PyDoc_STRVAR(doc,
    "records(pieces, rows)\n\n"
    "The text of so many records; None if JSON in it has to be looked at by the caller.");

static PyObject *records(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *pieces, *result = NULL;
    Py_ssize_t rows;
    if (!PyArg_ParseTuple(args, "O!n", &PyTuple_Type, &pieces, &rows)) return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(pieces);
    if (count > MOST_PIECES || rows < 0 || rows > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "too many pieces or rows");
        return NULL;
    }
    Call *c = calloc(1, sizeof *c);
    Text text = {NULL, 0, 0};
    int ok = c != NULL;
    if (ok) {
        c->view_room = buffers_of(pieces);
        c->views = calloc(c->view_room + 1, sizeof *c->views);
        ok = c->views != NULL;
    }
    if (!ok) PyErr_NoMemory();
    for (Py_ssize_t i = 0; ok && i < count; i++)
        ok = parsed(c, &c->pieces[i], PyTuple_GET_ITEM(pieces, i), rows);
    if (ok) {
        int done;
        Py_BEGIN_ALLOW_THREADS
        done = put_rows(&text, c->pieces, count, rows);
        Py_END_ALLOW_THREADS
        if (done == DONE) result = PyBytes_FromStringAndSize((const char *)text.at, (Py_ssize_t)text.n);
        else if (done == SUSPICIOUS) result = Py_NewRef(Py_None);
        else if (done == NO_MEMORY) PyErr_NoMemory();
        else PyErr_SetString(PyExc_ValueError, "an address outside its blob");
    }
    free(text.at);
    if (c) {
        for (Py_ssize_t i = 0; i < count; i++) free(c->pieces[i].blobs);
        for (size_t i = 0; i < c->view_count; i++) PyBuffer_Release(&c->views[i]);
        free(c->views);
        free(c);
    }
    return result;
}

static PyMethodDef methods[] = {
    {"records", records, METH_VARARGS, doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "traceconv.native._records",
    "Text records from columns; see traceconv/writers/template.py.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__records(void) { return PyModule_Create(&module); }
