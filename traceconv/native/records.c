/* Text records from columns: what traceconv/writers/template.py does piece by piece in Python.

   A record is the same pieces, in the same order, for every row: texts of a table by number, numbers,
   microseconds, and JSON as it was read. While text is made no Python object is touched and the
   lock is released. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

enum { SAME, TABLE, MICROS, JSON, NUMBER, MOST_PIECES = 16, MOST_DIGITS = 24 };

#define OFFSET 0xffffffffffffULL /* of an address; the number of the blob is above */

typedef struct { const u8 *at; size_t n; } Span;

typedef struct {
    int kind;
    Span lead;            /* before the text of a row that has one */
    const u8 *table;      /* TABLE: texts, one after the other */
    const int64_t *ends;  /* where they end */
    const int32_t *code;  /* of each row, -1 for none */
    const int64_t *value; /* NUMBER, MICROS: INT64_MIN for none; JSON: addresses */
    const int32_t *length;
    Span *blobs;
    size_t blob_count;
} Piece;

/* Each puts something at `to`, where there is room for it; the result is behind that. */

static u8 *put(u8 *to, Span text)
{
    if (text.n) memcpy(to, text.at, text.n);
    return to + text.n;
}

static const char PAIRS[] = /* of digits: 00 to 99 */
    "0001020304050607080910111213141516171819"
    "2021222324252627282930313233343536373839"
    "4041424344454647484950515253545556575859"
    "6061626364656667686970717273747576777879"
    "8081828384858687888990919293949596979899";

/* A whole number, or ns as microseconds with three decimals. */
static u8 *put_digits(u8 *to, int64_t value, int is_ns)
{
    u8 digits[MOST_DIGITS], *p = digits + sizeof digits;
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    if (is_ns) {
        unsigned decimals = (unsigned)(left % 1000);
        left /= 1000;
        memcpy(p -= 2, PAIRS + decimals % 100 * 2, 2);
        *--p = (u8)('0' + decimals / 100);
        *--p = '.';
    }
    for (; left >= 100; left /= 100) memcpy(p -= 2, PAIRS + left % 100 * 2, 2);
    if (left >= 10) memcpy(p -= 2, PAIRS + left * 2, 2);
    else *--p = (u8)('0' + left);
    if (value < 0) *--p = '-';
    return put(to, (Span){p, (size_t)(digits + sizeof digits - p)});
}

enum { LONGEST_RUN = 18 }; /* digits of a number that int64 holds in any case */

/* Whether what begins with the byte at i, which is no digit, may need more than to be copied. */
static int is_odd_at(const u8 *p, size_t n, size_t i, int after_digit)
{
    switch (p[i]) {
    case '\\': return n - i > 2 && p[i + 1] == 'u' && (p[i + 2] | 32) == 'd';
    case 'N': return n - i > 2 && p[i + 1] == 'a' && p[i + 2] == 'N';
    case 'I': return n - i > 3 && p[i + 1] == 'n' && p[i + 2] == 'f' && p[i + 3] == 'i';
    case 'e': case 'E': break;
    default: return 0;
    }
    size_t at = i + 1 + (n - i > 1 && p[i + 1] == '+');
    return after_digit && n - i > 3 && n - at > 2 && is_digit(p[at]) && is_digit(p[at + 1]) && is_digit(p[at + 2]);
}

/* Whether the writer has to look at this JSON: it may hold an escaped surrogate, NaN, Infinity, a
   number beyond int64 or beyond a double. True wherever it does, and seldom elsewhere. */
static int is_suspicious(const u8 *p, size_t n)
{
    size_t i = 0;
    int run = 0; /* digits before i */
#if defined(__SSE2__)
    for (; n - i >= 16; i += 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(p + i));
        __m128i low = _mm_sub_epi8(x, _mm_set1_epi8((char)('0' - 128))); /* digits: the least ten */
        __m128i first = _mm_or_si128(_mm_cmpeq_epi8(x, _mm_set1_epi8('\\')),
            _mm_or_si128(_mm_cmpeq_epi8(x, _mm_set1_epi8('N')), _mm_cmpeq_epi8(x, _mm_set1_epi8('I'))));
        __m128i e = _mm_cmpeq_epi8(_mm_or_si128(x, _mm_set1_epi8(32)), _mm_set1_epi8('e'));
        unsigned digit = (unsigned)_mm_movemask_epi8(_mm_cmplt_epi8(low, _mm_set1_epi8(-128 + 10)));
        unsigned after = digit << 1 | (run > 0);
        unsigned look = (unsigned)_mm_movemask_epi8(first) | ((unsigned)_mm_movemask_epi8(e) & after);
        for (; look; look &= look - 1) {
            int at = __builtin_ctz(look);
            if (is_odd_at(p, n, i + (size_t)at, (int)(after >> at & 1))) return 1;
        }
        if (run + __builtin_ctz(~digit) > LONGEST_RUN) return 1;
        run = digit == 0xffff ? run + 16 : __builtin_clz(~(digit << 16));
    }
#endif
    for (; i < n; i++) {
        if (is_digit(p[i])) {
            if (++run > LONGEST_RUN) return 1;
            continue;
        }
        if (is_odd_at(p, n, i, run > 0)) return 1;
        run = 0;
    }
    return 0;
}

static int is_number(const Piece *z) { return z->kind == MICROS || z->kind == NUMBER; }

/* The text of a row behind the lead; 0 if the row has none. Not for numbers. */
static int text_of(const Piece *z, Py_ssize_t row, Span *text)
{
    *text = (Span){NULL, 0};
    if (z->kind == TABLE) {
        int32_t code = z->code[row];
        if (code < 0) return 0;
        int64_t from = code ? z->ends[code - 1] : 0;
        *text = (Span){z->table + from, (size_t)(z->ends[code] - from)};
    } else if (z->kind == JSON) {
        if (!z->length[row]) return 0;
        uint64_t address = (uint64_t)z->value[row];
        *text = (Span){z->blobs[address >> 48].at + (address & OFFSET), (size_t)z->length[row]};
    }
    return 1;
}

/* Adds what the rows take at most; 0 if an address is outside its blob. */
static int measure(const Piece *z, Py_ssize_t rows, size_t *size)
{
    for (Py_ssize_t row = 0; row < rows; row++) {
        Span text = {NULL, MOST_DIGITS};
        if (z->kind == JSON) {
            uint64_t address = (uint64_t)z->value[row], blob = address >> 48, from = address & OFFSET;
            int32_t n = z->length[row];
            if (n < 0 || (n && (blob >= z->blob_count || from > z->blobs[blob].n ||
                                (size_t)n > z->blobs[blob].n - from)))
                return 0;
        }
        if (is_number(z) || text_of(z, row, &text)) *size += z->lead.n + text.n;
    }
    return 1;
}

enum { AHEAD = 4 }; /* rows: texts of JSON lie anywhere in the input */

/* Behind the records; NULL where JSON is suspicious. */
static u8 *put_rows(u8 *to, const Piece *pieces, Py_ssize_t count, Py_ssize_t rows)
{
    for (Py_ssize_t row = 0; row < rows; row++)
        for (const Piece *z = pieces; z < pieces + count; z++) {
            Span text;
            if (is_number(z)) {
                if (z->value[row] != INT64_MIN)
                    to = put_digits(put(to, z->lead), z->value[row], z->kind == MICROS);
                continue;
            }
            if (z->kind == JSON && row + AHEAD < rows && text_of(z, row + AHEAD, &text)) {
                PREFETCH(text.at);
                PREFETCH(text.at + text.n - 1);
            }
            if (!text_of(z, row, &text)) continue;
            if (z->kind == JSON && is_suspicious(text.at, text.n)) return NULL;
            to = put(put(to, z->lead), text);
        }
    return to;
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
    return (z->value = column(c, address, rows, sizeof *z->value)) &&
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
    case MICROS:
    case NUMBER: return a ? (z->value = column(c, a, rows, sizeof *z->value)) != NULL : refuse("a piece is incomplete");
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
        size_t size = 0;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; ok && i < count; i++) ok = measure(&c->pieces[i], rows, &size);
        Py_END_ALLOW_THREADS
        if (!ok) PyErr_SetString(PyExc_ValueError, "an address outside its blob");
        else if ((result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size))) {
            u8 *text = (u8 *)PyBytes_AS_STRING(result), *end;
            Py_BEGIN_ALLOW_THREADS
            end = put_rows(text, c->pieces, count, rows);
            Py_END_ALLOW_THREADS
            if (!end) Py_SETREF(result, Py_NewRef(Py_None));
            else if ((size_t)(end - text) < size) _PyBytes_Resize(&result, end - text);
        }
    }
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
