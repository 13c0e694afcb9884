/* Protobuf in columns: fields of many messages at once, and annotations of Perfetto as JSON.

   The same results as traceconv/core/protobuf_columns.py and
   traceconv/readers/perfetto/annotations.py, which say what is read and why; property tests compare
   them. Input is never trusted: every read is bounded by the end of its message, and messages by the
   end of the buffer. */

#include <math.h>
#include "encode.h"

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
enum { WHOLE = 0, CUT = 1, FOREIGN = 2 }; /* how a run of frames ended */
enum { ABSENT = -1, IS_VARINT = -2, IS_FIXED64 = -3, IS_FIXED32 = -4 }; /* instead of a length */
enum { OTHERS = 1, DAMAGED = 2, REPEATED = 4 };
enum { MAX_WANTED = 64, MAX_FIELD = 1 << 14 };

/* `value` of bytes is where they are in the buffer; `length` is theirs, or says what `value` was. */
typedef struct { int number; int32_t length; uint64_t value; } Field;

/* The varint at *at, NULL if it is cut off or longer than 10 bytes. */
static inline const uint8_t *varint(const uint8_t *p, const uint8_t *end, uint64_t *value)
{
    uint64_t v = 0;
    for (int shift = 0; p < end && shift < 70; shift += 7) {
        uint8_t byte = *p++;
        if (shift < 64) v |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) { *value = v; return p; }
    }
    return NULL;
}

/* The field at p of a message that ends at `end`; NULL if there is none. */
static inline const uint8_t *field(const uint8_t *base, const uint8_t *p, const uint8_t *end, Field *f)
{
    uint64_t tag, value = 0;
    if (p < end && *p < 0x80) tag = *p++;
    else if (!(p = varint(p, end, &tag))) return NULL;
    if (tag < 8 || tag >> 3 > INT32_MAX) return NULL;
    f->number = (int)(tag >> 3);
    int size = 8;
    switch (tag & 7) {
    case VARINT:
        f->length = IS_VARINT;
        p = varint(p, end, &value);
        break;
    case BYTES:
        if (!(p = varint(p, end, &value)) || value > (uint64_t)(end - p) || value > INT32_MAX) return NULL;
        f->length = (int32_t)value;
        value = (uint64_t)(p - base);
        p += f->length;
        break;
    case FIXED32:
        size = 4; /* fall through */
    case FIXED64:
        f->length = size == 8 ? IS_FIXED64 : IS_FIXED32;
        if (end - p < size) return NULL;
        for (int i = 0; i < size; i++) value |= (uint64_t)*p++ << 8 * i;
        break;
    default:
        return NULL;
    }
    f->value = value;
    return p;
}

/* ---- frames ------------------------------------------------------------------------------- */

/* Records `0A length bytes` from `at` on: where their bytes are, without those of no length. */
static PyObject *frames(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer data;
    Py_ssize_t at, end, most;
    Buffer starts = {0}, sizes = {0};
    int how = WHOLE, ok = 1;
    if (!PyArg_ParseTuple(args, "y*nnn:frames", &data, &at, &end, &most)) return NULL;
    if (end > data.len) end = data.len;
    if (at < 0) at = 0;
    Py_BEGIN_ALLOW_THREADS
    const uint8_t *base = data.buf;
    for (Py_ssize_t n = 0; at < end && n < most; n++) {
        uint64_t size;
        if (base[at] != 0x0a) { how = FOREIGN; break; }
        const uint8_t *p = varint(base + at + 1, base + end, &size);
        if (!p) { how = end - at > 11 ? FOREIGN : CUT; break; }
        if (size > (uint64_t)(base + end - p)) { how = CUT; break; }
        if (size) {
            int64_t start = p - base, length = (int64_t)size;
            if (!(ok = room(&starts, 8) && room(&sizes, 8))) break;
            put(&starts, &start, 8);
            put(&sizes, &length, 8);
        }
        at = p - base + (Py_ssize_t)size;
    }
    Py_END_ALLOW_THREADS
    PyObject *result = !ok ? PyErr_NoMemory() : Py_BuildValue("y#y#ni",
        starts.at ? (char *)starts.at : "", (Py_ssize_t)starts.n,
        sizes.at ? (char *)sizes.at : "", (Py_ssize_t)sizes.n, at, how);
    PyMem_RawFree(starts.at);
    PyMem_RawFree(sizes.at);
    PyBuffer_Release(&data);
    return result;
}

/* ---- columns ------------------------------------------------------------------------------ */

/* Messages as places in a buffer: starts and sizes (int64), all within it. */
typedef struct { Py_buffer data, start, size; Py_ssize_t n; } Messages;

static int are_within(const Messages *m)
{
    const int64_t *start = m->start.buf, *size = m->size.buf;
    if (m->size.len == m->start.len && m->start.len % 8 == 0) {
        Py_ssize_t i = 0;
        while (i < m->n && start[i] >= 0 && size[i] >= 0 && start[i] <= m->data.len
               && size[i] <= m->data.len - start[i]) i++;
        if (i == m->n) return 1;
    }
    PyErr_SetString(PyExc_ValueError, "messages outside the buffer");
    return 0;
}

static void release(Messages *m)
{
    PyBuffer_Release(&m->data);
    PyBuffer_Release(&m->start);
    PyBuffer_Release(&m->size);
}

/* The last value of each wanted field in every message. */
static PyObject *columns(PyObject *module, PyObject *args)
{
    (void)module;
    Messages m;
    PyObject *wanted, *values = NULL, *lengths = NULL, *rest = NULL, *result = NULL;
    int8_t *place = NULL; /* of a field among the wanted ones, -1 = not wanted */
    if (!PyArg_ParseTuple(args, "y*y*y*O!:columns", &m.data, &m.start, &m.size, &PyTuple_Type, &wanted))
        return NULL;
    m.n = m.start.len / 8;
    Py_ssize_t k = PyTuple_GET_SIZE(wanted);
    long highest = 0;
    if (!are_within(&m)) goto done;
    if (k > MAX_WANTED) {
        PyErr_SetString(PyExc_ValueError, "too many fields");
        goto done;
    }
    if (!(place = PyMem_Malloc(MAX_FIELD))) {
        PyErr_NoMemory();
        goto done;
    }
    memset(place, -1, MAX_FIELD);
    for (Py_ssize_t i = 0; i < k; i++) {
        long number = PyLong_AsLong(PyTuple_GET_ITEM(wanted, i));
        if (number < 1 || number >= MAX_FIELD) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "no number of a field");
            goto done;
        }
        place[number] = (int8_t)i;
        if (number > highest) highest = number;
    }
    values = PyBytes_FromStringAndSize(NULL, m.n * k * 8);
    lengths = PyBytes_FromStringAndSize(NULL, m.n * k * 4);
    rest = PyBytes_FromStringAndSize(NULL, m.n);
    if (!values || !lengths || !rest) goto done;
    uint64_t *value = (uint64_t *)PyBytes_AS_STRING(values);
    int32_t *length = (int32_t *)PyBytes_AS_STRING(lengths);
    uint8_t *flags = (uint8_t *)PyBytes_AS_STRING(rest);
    Py_BEGIN_ALLOW_THREADS
    const int64_t *start = m.start.buf, *size = m.size.buf;
    const uint8_t *base = m.data.buf;
    memset(value, 0, (size_t)(m.n * k * 8));
    memset(length, 0xff, (size_t)(m.n * k * 4));
    memset(flags, 0, (size_t)m.n);
    for (Py_ssize_t i = 0; i < m.n; i++) {
        const uint8_t *p = base + start[i], *end = p + size[i];
        Field f;
        while (p < end) {
            if (!(p = field(base, p, end, &f))) { flags[i] |= DAMAGED; break; }
            int at = f.number <= highest ? place[f.number] : -1;
            if (at < 0) { flags[i] |= OTHERS; continue; }
            if (f.length == IS_VARINT && length[at * m.n + i] != ABSENT) flags[i] |= REPEATED;
            value[at * m.n + i] = f.value;
            length[at * m.n + i] = f.length;
        }
    }
    Py_END_ALLOW_THREADS
    result = PyTuple_Pack(3, values, lengths, rest);
done:
    PyMem_Free(place);
    Py_XDECREF(values);
    Py_XDECREF(lengths);
    Py_XDECREF(rest);
    release(&m);
    return result;
}

/* All occurrences of one field: its message, value and length, up to the first damage of a message. */
static PyObject *repeated(PyObject *module, PyObject *args)
{
    (void)module;
    Messages m;
    int number, ok = 1;
    Buffer owner = {0}, value = {0}, length = {0};
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*y*y*i:repeated", &m.data, &m.start, &m.size, &number)) return NULL;
    m.n = m.start.len / 8;
    if (are_within(&m)) {
        Py_BEGIN_ALLOW_THREADS
        const int64_t *start = m.start.buf, *size = m.size.buf;
        const uint8_t *base = m.data.buf;
        for (Py_ssize_t i = 0; i < m.n && ok; i++) {
            const uint8_t *p = base + start[i], *end = p + size[i];
            Field f;
            while (p < end && ok && (p = field(base, p, end, &f))) {
                if (f.number != number) continue;
                int64_t at = i;
                if (!(ok = room(&owner, 8) && room(&value, 8) && room(&length, 4))) break;
                put(&owner, &at, 8);
                put(&value, &f.value, 8);
                put(&length, &f.length, 4);
            }
        }
        Py_END_ALLOW_THREADS
        result = !ok ? PyErr_NoMemory() : Py_BuildValue("y#y#y#",
            owner.at ? (char *)owner.at : "", (Py_ssize_t)owner.n,
            value.at ? (char *)value.at : "", (Py_ssize_t)value.n,
            length.at ? (char *)length.at : "", (Py_ssize_t)length.n);
    }
    PyMem_RawFree(owner.at);
    PyMem_RawFree(value.at);
    PyMem_RawFree(length.at);
    release(&m);
    return result;
}

/* ---- codes -------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    Table table;
    uint64_t seed;
    int busy;
} Codes;

static inline int32_t code_of(Codes *c, const uint8_t *p, size_t n)
{
    uint64_t hash = table_hash(c->seed, p, n);
    int32_t known = table_find(&c->table, hash, p, n);
    return known >= 0 ? known : table_add(&c->table, hash, p, n);
}

static PyObject *Codes_finished(Codes *c, PyObject *codes, int ok)
{
    c->busy = 0;
    if (ok) return codes;
    Py_XDECREF(codes);
    return PyErr_Occurred() ? NULL : PyErr_NoMemory();
}

static int Codes_start(Codes *c)
{
    if (!c->busy) return c->busy = 1;
    PyErr_SetString(PyExc_RuntimeError, "one thread at a time");
    return 0;
}

static PyObject *Codes_texts(Codes *c, PyObject *args)
{
    Messages m;
    PyObject *codes = NULL, *result = NULL;
    if (!PyArg_ParseTuple(args, "y*y*y*:texts", &m.data, &m.start, &m.size)) return NULL;
    m.n = m.start.len / 8;
    if (are_within(&m) && Codes_start(c)) {
        int ok = (codes = PyBytes_FromStringAndSize(NULL, m.n * 4)) != NULL;
        if (ok) {
            int32_t *code = (int32_t *)PyBytes_AS_STRING(codes);
            Py_BEGIN_ALLOW_THREADS
            const int64_t *start = m.start.buf, *size = m.size.buf;
            for (Py_ssize_t i = 0; i < m.n && ok; i++)
                ok = (code[i] = code_of(c, (const uint8_t *)m.data.buf + start[i], (size_t)size[i])) >= 0;
            Py_END_ALLOW_THREADS
        }
        result = Codes_finished(c, codes, ok);
    }
    release(&m);
    return result;
}

static PyObject *Codes_numbers(Codes *c, PyObject *args)
{
    Py_buffer values;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*:numbers", &values)) return NULL;
    if (Codes_start(c)) {
        Py_ssize_t n = values.len / 8;
        PyObject *codes = PyBytes_FromStringAndSize(NULL, n * 4);
        int ok = codes != NULL;
        if (ok) {
            int32_t *code = (int32_t *)PyBytes_AS_STRING(codes);
            Py_BEGIN_ALLOW_THREADS
            const uint8_t *p = values.buf;
            for (Py_ssize_t i = 0; i < n && ok; i++) /* neighbours are often equal */
                ok = (code[i] = i && !memcmp(p + 8 * i, p + 8 * i - 8, 8)
                          ? code[i - 1] : code_of(c, p + 8 * i, 8)) >= 0;
            Py_END_ALLOW_THREADS
        }
        result = Codes_finished(c, codes, ok);
    }
    PyBuffer_Release(&values);
    return result;
}

static PyObject *Codes_entries(Codes *c, PyObject *args)
{
    Py_ssize_t first;
    if (!PyArg_ParseTuple(args, "n:entries", &first)) return NULL;
    if (first < 0) first = 0;
    Py_ssize_t n = c->table.count > first ? c->table.count - first : 0;
    PyObject *list = PyList_New(n);
    for (Py_ssize_t i = 0; list && i < n; i++) {
        const Entry *e = &c->table.entries[first + i];
        PyObject *text = PyBytes_FromStringAndSize((const char *)table_string(&c->table, e), e->length);
        if (!text) { Py_DECREF(list); return NULL; }
        PyList_SET_ITEM(list, i, text);
    }
    return list;
}

static PyObject *Codes_new(PyTypeObject *type, PyObject *args, PyObject *kw)
{
    (void)kw;
    unsigned long long seed;
    if (!PyArg_ParseTuple(args, "K:Codes", &seed)) return NULL;
    Codes *c = (Codes *)type->tp_alloc(type, 0);
    if (c) c->seed = seed;
    return (PyObject *)c;
}

static void Codes_dealloc(Codes *c)
{
    table_free(&c->table);
    Py_TYPE(c)->tp_free((PyObject *)c);
}

static Py_ssize_t Codes_length(Codes *c) { return c->table.count; }

static PyMethodDef codes_methods[] = {
    {"texts", (PyCFunction)Codes_texts, METH_VARARGS, "See _wire.pyi."},
    {"numbers", (PyCFunction)Codes_numbers, METH_VARARGS, "See _wire.pyi."},
    {"entries", (PyCFunction)Codes_entries, METH_VARARGS, "See _wire.pyi."},
    {0}};
static PySequenceMethods codes_sequence = {.sq_length = (lenfunc)Codes_length};
static PyTypeObject codes_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "traceconv.native._wire.Codes",
    .tp_basicsize = sizeof(Codes),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = Codes_new,
    .tp_dealloc = (destructor)Codes_dealloc,
    .tp_methods = codes_methods,
    .tp_as_sequence = &codes_sequence,
};

/* ---- annotations -------------------------------------------------------------------------- */

enum { UNDEFINED = 1, PYTHON = 2 }; /* why a row is left to the caller */
enum { MOST_NESTED = 100, OWN = 1990, MOST_DECIMALS = 60 };

typedef struct {
    const uint8_t *base;
    PyObject *names[2], *strings[2]; /* a list by number, and a dictionary of those beyond it */
    Buffer out;
    int odd, no_memory, pairs; /* pairs: not annotations, but a text for a key and one for a value */
} Texts;

static int text_room(Texts *t, size_t more)
{
    if (room(&t->out, more)) return 1;
    t->no_memory = 1;
    return 0;
}

/* Interned text by its number; borrowed, NULL if there is none. */
static PyObject *interned(PyObject *const table[2], uint64_t iid)
{
    if (iid < (uint64_t)PyList_GET_SIZE(table[0])) {
        PyObject *found = PyList_GET_ITEM(table[0], (Py_ssize_t)iid);
        return PyBytes_Check(found) ? found : NULL;
    }
    PyObject *key = PyLong_FromUnsignedLongLong(iid);
    PyObject *found = key ? PyDict_GetItemWithError(table[1], key) : NULL;
    Py_XDECREF(key);
    return found && PyBytes_Check(found) ? found : NULL;
}

static int put_interned(Texts *t, PyObject *const table[2], uint64_t iid)
{
    PyObject *found = interned(table, iid);
    if (!found) { t->odd |= UNDEFINED; return 0; }
    size_t n = (size_t)PyBytes_GET_SIZE(found);
    if (!text_room(t, n)) return 0;
    put(&t->out, PyBytes_AS_STRING(found), n);
    return 1;
}

/* Bytes as a JSON string; those that are no UTF-8 are left to Python. */
static int put_quoted(Texts *t, const uint8_t *p, size_t n)
{
    static const char digits[] = "0123456789abcdef", special[] = "btn?fr";
    if (!text_room(t, 6 * n + 2)) return 0;
    put_byte(&t->out, '"');
    for (size_t i = 0; i < n;) {
        uint8_t c = p[i];
        if (c >= 0x80) {
            int wide = wide_length(c);
            if (!wide || n - i < (size_t)wide || !is_wide(p + i, wide)) { t->odd |= PYTHON; return 0; }
            put(&t->out, p + i, (size_t)wide);
            i += (size_t)wide;
            continue;
        }
        if (c == '"' || c == '\\') put_tag(&t->out, '\\', c);
        else if (c >= 0x20) put_byte(&t->out, c);
        else if (c >= 8 && c <= 13 && c != 11) put_tag(&t->out, '\\', (uint8_t)special[c - 8]);
        else {
            put(&t->out, "\\u00", 4);
            put_tag(&t->out, (uint8_t)digits[c >> 4], (uint8_t)digits[c & 15]);
        }
        i++;
    }
    put_byte(&t->out, '"');
    return 1;
}

static int put_format(Texts *t, const char *format, unsigned long long value)
{
    if (!text_room(t, 32)) return 0;
    t->out.n += (size_t)snprintf((char *)t->out.at + t->out.n, 32, format, value);
    return 1;
}

static int put_plain(Texts *t, const char *text)
{
    size_t n = strlen(text);
    if (!text_room(t, n)) return 0;
    put(&t->out, text, n);
    return 1;
}

static int put_real(Texts *t, uint64_t bits, uint64_t decimals, int fixed)
{
    double value;
    memcpy(&value, &bits, 8);
    if (isnan(value)) return put_plain(t, "NaN");
    if (isinf(value)) return put_plain(t, value < 0 ? "-Infinity" : "Infinity");
    for (int way = !(fixed && decimals <= MOST_DECIMALS); way < 2; way++) {
        char *text = way ? PyOS_double_to_string(value, 'r', 0, Py_DTSF_ADD_DOT_0, NULL)
                         : PyOS_double_to_string(value, 'f', (int)decimals, 0, NULL);
        if (!text) { PyErr_Clear(); t->no_memory = 1; return 0; }
        int same = way || PyOS_string_to_double(text, NULL, NULL) == value;
        int ok = !same || put_plain(t, text);
        PyMem_Free(text);
        if (same) return ok;
    }
    return 0;
}

static int annotation(Texts *t, uint64_t at, int32_t size, int named, int depth);

/* The annotations in a repeated field of one, between brackets. */
static int nested(Texts *t, const uint8_t *p, const uint8_t *end, int number, int depth)
{
    int objects = number == 11;
    Field f;
    if (depth >= MOST_NESTED) { t->odd |= PYTHON; return 0; }
    if (!text_room(t, 2)) return 0;
    put_byte(&t->out, objects ? '{' : '[');
    size_t first = t->out.n;
    while (p < end && (p = field(t->base, p, end, &f))) {
        if (f.number != number || f.length < 0) continue;
        size_t before = t->out.n;
        if (!text_room(t, 1)) return 0;
        if (before > first) put_byte(&t->out, ',');
        if (!annotation(t, f.value, f.length, objects, depth + 1)) {
            if (t->odd || t->no_memory) return 0;
            t->out.n = before; /* it says nothing */
        }
    }
    if (!text_room(t, 1)) return 0;
    put_byte(&t->out, objects ? '}' : ']');
    return 1;
}

/* A message of two texts, key and value; either may be absent. */
static int pair(Texts *t, const uint8_t *p, const uint8_t *end)
{
    Field text[2] = {{0, 0, 0}, {0, 0, 0}}, f;
    while (p < end) {
        if (!(p = field(t->base, p, end, &f))) { t->odd |= PYTHON; return 0; }
        if (f.number > 2) continue;
        if (f.length < 0) { t->odd |= PYTHON; return 0; }
        text[f.number - 1] = f;
    }
    if (!put_quoted(t, t->base + text[0].value, (size_t)text[0].length) || !text_room(t, 1)) return 0;
    put_byte(&t->out, ':');
    return put_quoted(t, t->base + text[1].value, (size_t)text[1].length);
}

/* One DebugAnnotation, with its key if `named`; 0 if it says nothing. */
static int annotation(Texts *t, uint64_t at, int32_t size, int named, int depth)
{
    static const int order[] = {2, 3, 4, 5, 6, 17, 7};
    const uint8_t *p = t->base + at, *end = p + size;
    Field last[18], f, own = {0, ABSENT, 0};
    uint32_t has = 0;
    if (t->pairs) return pair(t, p, end);
    for (const uint8_t *q = p; q < end;) {
        if (!(q = field(t->base, q, end, &f))) { t->odd |= PYTHON; return 0; }
        if (f.number == OWN) own = f;
        if (f.number == 8 || f.number == 9 || f.number == 14) { t->odd |= PYTHON; return 0; }
        if (f.number > 17) continue;
        last[f.number] = f;
        has |= 1u << f.number;
    }
    if (named) {
        if (has & 1 << 1 && last[1].length != IS_VARINT) { t->odd |= PYTHON; return 0; }
        if (has & 1 << 1 && last[1].value) {
            if (!put_interned(t, t->names, last[1].value)) return 0;
        } else {
            if (!(has & 1 << 10) || last[10].length < 0) return 0;
            if (!put_quoted(t, t->base + last[10].value, (size_t)last[10].length)) return 0;
            if (!text_room(t, 1)) return 0;
            put_byte(&t->out, ':');
        }
    }
    if (has & 1 << 11) return nested(t, p, end, 11, depth);
    if (has & 1 << 12) return nested(t, p, end, 12, depth);
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        if (!(has & 1u << order[i])) continue;
        const Field *v = &last[order[i]];
        if (order[i] == 5) {
            if (v->length != IS_FIXED64) { t->odd |= PYTHON; return 0; }
            return put_real(t, v->value, own.value, own.length == IS_VARINT);
        }
        if (order[i] == 6) {
            if (v->length < 0 || own.length >= 0) { t->odd |= PYTHON; return 0; }
            return put_quoted(t, t->base + v->value, (size_t)v->length);
        }
        if (v->length != IS_VARINT) { t->odd |= PYTHON; return 0; }
        switch (order[i]) {
        case 2: return put_plain(t, v->value ? "true" : "false");
        case 3: return put_format(t, "%llu", v->value);
        case 4: return put_format(t, "%lld", v->value);
        case 7: return put_format(t, "\"0x%llx\"", v->value);
        default: return put_interned(t, t->strings, v->value);
        }
    }
    return 0;
}

/* JSON objects of rows: the annotations of row i are those from ends[i - 1] to ends[i]. */
static PyObject *annotations(PyObject *module, PyObject *args)
{
    (void)module;
    Messages m;
    Py_buffer ends;
    Texts t = {0};
    PyObject *lengths = NULL, *odd = NULL, *result = NULL;
    if (!PyArg_ParseTuple(args, "y*y*y*y*O!O!O!O!|p:annotations", &m.data, &m.start, &m.size, &ends,
            &PyList_Type, &t.names[0], &PyDict_Type, &t.names[1],
            &PyList_Type, &t.strings[0], &PyDict_Type, &t.strings[1], &t.pairs)) return NULL;
    m.n = m.start.len / 8;
    Py_ssize_t n = ends.len / 8;
    const int64_t *end = ends.buf, *start = m.start.buf, *size = m.size.buf;
    int ok = are_within(&m);
    for (Py_ssize_t i = 0; ok && i < n; i++)
        if (end[i] < (i ? end[i - 1] : 0) || end[i] > m.n) {
            PyErr_SetString(PyExc_ValueError, "ends outside their data");
            ok = 0;
        }
    if (ok && (lengths = PyBytes_FromStringAndSize(NULL, n * 4)) && (odd = PyBytes_FromStringAndSize(NULL, n))) {
        t.base = m.data.buf;
        for (Py_ssize_t i = 0, k = 0; i < n && !t.no_memory; i++) {
            size_t begin = t.out.n;
            t.odd = 0;
            if (!text_room(&t, 2)) break;
            put_byte(&t.out, '{');
            for (; k < end[i] && !t.odd && !t.no_memory; k++) {
                size_t before = t.out.n;
                if (!text_room(&t, 1)) break;
                if (before > begin + 1) put_byte(&t.out, ',');
                if (size[k] > INT32_MAX) t.odd = PYTHON;
                else if (!annotation(&t, (uint64_t)start[k], (int32_t)size[k], 1, 0)) t.out.n = before;
            }
            k = end[i];
            if (!text_room(&t, 1)) break;
            put_byte(&t.out, '}');
            if (t.odd) t.out.n = begin;
            ((int32_t *)PyBytes_AS_STRING(lengths))[i] = (int32_t)(t.out.n - begin);
            PyBytes_AS_STRING(odd)[i] = (char)t.odd;
        }
        result = t.no_memory ? PyErr_NoMemory() : PyErr_Occurred() ? NULL
            : Py_BuildValue("y#OO", t.out.at ? (char *)t.out.at : "", (Py_ssize_t)t.out.n, lengths, odd);
    }
    Py_XDECREF(lengths);
    Py_XDECREF(odd);
    PyMem_RawFree(t.out.at);
    PyBuffer_Release(&ends);
    release(&m);
    return result;
}

static PyMethodDef functions[] = {
    {"frames", frames, METH_VARARGS, "See _wire.pyi."},
    {"columns", columns, METH_VARARGS, "See _wire.pyi."},
    {"repeated", repeated, METH_VARARGS, "See _wire.pyi."},
    {"annotations", annotations, METH_VARARGS, "See _wire.pyi."},
    {0}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_wire", .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit__wire(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (!module || PyModule_AddType(module, &codes_type) < 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
