/* Trace events copied as bytes, with processes renumbered and ids set apart: the fast tier of
 * traceconv/pipeline/patch.py, which says what is done and does what is unusual.
 *
 * Every event is checked to be JSON while it is copied. One that names something (phase M), has an
 * escaped or doubled key, or an id, a time or a thread that is not a plain number stops the copying in
 * front of it with the status ODD, and Python takes it from there.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "tokens.h"

#define PHASES 128
#define KNOWN 8          /* process ids at hand without asking Python */
#define LONGEST_PID 64
#define ROOM 64          /* bytes an event may grow by: three numbers of 20 digits */

enum { PH, PID, ID, BIND, TID, TS, DUR, FIELDS };

typedef struct { u8 from[LONGEST_PID], to[24]; size_t n, m; } Process;

typedef struct {
    PyObject *pids;
    Process known[KNOWN];
    int count, oldest;
    u64 mask;
    PyObject *bytes; /* what is written so far, and room for more */
    u8 *out;
    size_t used, size;
    int64_t phases[PHASES];
} Patcher;

static int room_for(Patcher *z, size_t n)
{
    if (z->size - z->used >= n) return 1;
    size_t size = z->size + z->size / 2 + n;
    if (!z->bytes) z->bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    else _PyBytes_Resize(&z->bytes, (Py_ssize_t)size);
    if (!z->bytes) return 0;
    z->out = (u8 *)PyBytes_AS_STRING(z->bytes);
    z->size = size;
    return 1;
}

static void put(Patcher *z, const void *from, size_t n)
{
    memcpy(z->out + z->used, from, n);
    z->used += n;
}

/* The new number of a process id; NULL with an exception set if Python has none for it. */
static const Process *process(Patcher *z, const u8 *p, size_t n)
{
    for (int i = 0; i < z->count; i++)
        if (z->known[i].n == n && !memcmp(z->known[i].from, p, n)) return &z->known[i];
    PyObject *key = PyBytes_FromStringAndSize((const char *)p, (Py_ssize_t)n), *found = NULL;
    if (key) found = PyObject_GetItem(z->pids, key);
    Py_XDECREF(key);
    if (!found) return NULL;
    Process *made = &z->known[z->count < KNOWN ? z->count++ : (z->oldest++ % KNOWN)];
    char *text;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(found, &text, &length) < 0 || length > (Py_ssize_t)sizeof made->to) {
        Py_DECREF(found);
        made->n = 0;
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "process number too long");
        return NULL;
    }
    memcpy(made->from, p, n);
    memcpy(made->to, text, (size_t)length);
    made->n = n;
    made->m = (size_t)length;
    Py_DECREF(found);
    return made;
}

static int field_of(const u8 *k, size_t n)
{
    if (n == 2 && !memcmp(k, "ph", 2)) return PH;
    if (n == 2 && !memcmp(k, "id", 2)) return ID;
    if (n == 2 && !memcmp(k, "ts", 2)) return TS;
    if (n == 3 && !memcmp(k, "pid", 3)) return PID;
    if (n == 3 && !memcmp(k, "tid", 3)) return TID;
    if (n == 3 && !memcmp(k, "dur", 3)) return DUR;
    if (n == 7 && !memcmp(k, "bind_id", 7)) return BIND;
    return FIELDS;
}

static int odd_key(const u8 *k, size_t n) { return n == 3 && !memcmp(k, "id2", 3); }

/* The number of an id: decimal digits as a number or as text, 0x and hexadecimal digits;
 * any other text is hashed (FNV-1a). 0 if it is none of these. */
static int id_value(const Token *t, u64 *value)
{
    const u8 *p = t->p;
    size_t n = t->n, i;
    if (t->kind == STRING && !t->escaped) { p++; n -= 2; }
    else if (t->kind != NUMBER) return 0;
    *value = 0;
    for (i = 0; i < n && i < 19 && is_digit(p[i]); i++) *value = *value * 10 + (u64)(p[i] - '0');
    if (i == n && n) return 1;
    if (t->kind == NUMBER) return 0;
    if (n > 2 && n <= 18 && p[0] == '0' && (p[1] | 32) == 'x') {
        *value = 0;
        for (i = 2; i < n && hexadecimal(p[i]) >= 0; i++) *value = *value << 4 | (u64)hexadecimal(p[i]);
        if (i == n) return 1;
    }
    *value = 0xcbf29ce484222325ULL;
    for (i = 0; i < n; i++) *value = (*value ^ p[i]) * 0x100000001b3ULL;
    return 1;
}

/* An id as viewers read it: exact numbers as such, larger ones as text of base 16. */
static size_t spelled(u64 value, char *to)
{
    char digits[24];
    size_t n = 0, at = 0;
    int text = value >> 53 != 0;
    unsigned base = text ? 16 : 10;
    do digits[n++] = "0123456789abcdef"[value % base]; while (value /= base);
    if (text) to[at++] = '"';
    while (n) to[at++] = digits[--n];
    if (text) to[at++] = '"';
    return at;
}

/* The members of one event, p behind its brace; the byte after it. */
static const u8 *members(const u8 *p, const u8 *end, Token *f, int *why)
{
    p = blank(p, end);
    for (;;) {
        if (p == end) return fail(why, MORE);
        if (*p != '"') return fail(why, ODD);
        const u8 *k = p + 1;
        int escaped = 0;
        if (!(p = string(k, end, &escaped, why))) return NULL;
        size_t n = (size_t)(p - k) - 1;
        int field = field_of(k, n);
        if (escaped || odd_key(k, n)) return fail(why, ODD);
        if (!(p = colon(p, end, why))) return NULL;
        Token t;
        if (!(p = value(p, end, &t, why))) return NULL;
        if (field != FIELDS) {
            if (f[field].kind) return fail(why, ODD);
            f[field] = t;
        }
        if (!(p = next_member(p, end, why))) return NULL;
        if (*p == '}') return p + 1;
    }
}

/* Digits with at most one point, in microseconds that fit int64 nanoseconds: a time to any reader.
 * Others may be one, too; Python decides. */
static int plain_time(const Token *t, int below_zero)
{
    const u8 *p = t->p, *end = t->p + t->n;
    if (t->kind == STRING && !t->escaped) { p++; end--; }
    else if (t->kind != NUMBER) return 0;
    if (below_zero && p < end && *p == '-') p++;
    const u8 *first = p;
    while (p < end && is_digit(*p)) p++;
    if (p == first || p - first > 16 || (p - first == 16 && *first == '9')) return 0;
    if (p < end && *p == '.')
        for (first = ++p; p < end && p - first < 9 && is_digit(*p);) p++;
    return p == end && is_digit(p[-1]);
}

/* A thread that viewers tell from others: text, nothing, or a small number. */
static int plain_thread(const Token *t)
{
    if (t->kind == NUMBER) {
        if (t->n > 9) return 0;
        for (size_t i = 0; i < t->n; i++)
            if (!is_digit(t->p[i])) return 0;
    }
    return t->kind == NUMBER || t->kind == STRING || t->kind == ABSENT;
}

static int takes_part(u8 phase) { return phase && strchr("stfbneSTpFNOD", phase) != NULL; }

/* Copy up to a token and write something else in its place. */
static const u8 *replaced(Patcher *z, const u8 *from, const Token *t, const void *with, size_t n)
{
    put(z, from, (size_t)(t->p - from));
    put(z, with, n);
    return t->p + t->n;
}

static const u8 *event(Patcher *z, const u8 *p, const u8 *end, int *why)
{
    Token f[FIELDS] = {{0}};
    u64 ids[FIELDS] = {0};
    const u8 *stop = members(p + 1, end, f, why);
    if (!stop) return NULL;
    if (f[PH].kind != STRING || f[PH].n != 3 || f[PH].p[1] == 'M' || f[PH].p[1] >= PHASES ||
        (f[PID].kind != NUMBER && f[PID].kind != STRING) || f[PID].n > LONGEST_PID ||
        f[PID].escaped)
        return fail(why, ODD);
    u8 phase = f[PH].p[1];
    if (!plain_time(&f[TS], 1) || (f[DUR].kind ? !plain_time(&f[DUR], 0) : phase == 'X') ||
        !plain_thread(&f[TID]))
        return fail(why, ODD);
    if (!takes_part(phase)) f[ID].kind = ABSENT;
    for (int i = ID; i <= BIND; i++)
        if (f[i].kind && !id_value(&f[i], &ids[i])) return fail(why, ODD);
    const Process *one = process(z, f[PID].p, f[PID].n);
    if (!one) return fail(why, NO_MEMORY);
    if (!room_for(z, (size_t)(stop - p) + ROOM + sizeof one->to)) return fail(why, NO_MEMORY);
    if (z->used) put(z, ",\n", 2);
    const u8 *from = p;
    int order[3] = {PID, ID, BIND};
    for (int i = 1; i < 3; i++) /* sort the three by position */
        for (int j = i; j > 0 && f[order[j]].p < f[order[j - 1]].p; j--) {
            int t = order[j];
            order[j] = order[j - 1];
            order[j - 1] = t;
        }
    for (int i = 0; i < 3; i++) {
        const Token *t = &f[order[i]];
        char number[24];
        if (!t->kind) continue;
        if (order[i] == PID) from = replaced(z, from, t, one->to, one->m);
        else {
            size_t n = spelled(ids[order[i]] ^ z->mask, number);
            from = replaced(z, from, t, number, n);
        }
    }
    put(z, from, (size_t)(stop - from));
    z->phases[phase]++;
    return stop;
}

/* Events from p on, with the commas between them; MORE, END behind the bracket, or ODD. */
static int copy(Patcher *z, const u8 *p, const u8 *end, int first, const u8 **stop)
{
    int why = MORE;
    for (;;) {
        *stop = p;
        p = blank(p, end);
        if (p == end) return MORE;
        if (*p == ']') { *stop = p + 1; return END; }
        if (!first) {
            if (*p != ',') return ODD;
            p = blank(p + 1, end);
            if (p == end) return MORE;
        }
        if (*p != '{') return ODD;
        first = 0;
        if (!(p = event(z, p, end, &why))) return why;
    }
}

PyDoc_STRVAR(doc, "copy(data, start, end, pids, mask, first)\n--\n\n"
    "Copy events of `data` from `start` on, joined by commas; no comma before the `first`.\n"
    "Returns the status, where it stopped, the bytes, and how many events of each phase.");

static PyObject *patch_copy(PyObject *Py_UNUSED(self), PyObject *args)
{
    Py_buffer data;
    Py_ssize_t start, end;
    unsigned long long mask;
    int first;
    Patcher z = {0};
    if (!PyArg_ParseTuple(args, "y*nnOKp", &data, &start, &end, &z.pids, &mask, &first)) return NULL;
    PyObject *result = NULL;
    if (start < 0 || end > data.len || start > end)
        PyErr_SetString(PyExc_ValueError, "no such part of the data");
    else {
        z.mask = mask;
        const u8 *base = data.buf, *stop = base;
        if (room_for(&z, (size_t)(end - start) + ((size_t)(end - start) >> 4) + ROOM)) {
            int status = copy(&z, base + start, base + end, first, &stop);
            if (!PyErr_Occurred() && !_PyBytes_Resize(&z.bytes, (Py_ssize_t)z.used))
                result = Py_BuildValue("(inOy#)", status, (Py_ssize_t)(stop - base), z.bytes,
                                       (char *)z.phases, (Py_ssize_t)sizeof z.phases);
        }
        Py_XDECREF(z.bytes);
    }
    PyBuffer_Release(&data);
    return result;
}

static PyMethodDef methods[] = {
    {"copy", patch_copy, METH_VARARGS, doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "traceconv.native._patch",
    "Trace events as bytes; see traceconv/pipeline/patch.py.", 0,
    methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__patch(void) { return PyModule_Create(&module); }
