/* Protobuf in columns: fields of many messages at once, and annotations of Perfetto as JSON.

   The same results as traceconv/readers/shared/protobuf_columns.py and
   traceconv/readers/perfetto/annotations.py, which say what is read and why; property tests compare
   them. Input is never trusted: every read is bounded by the end of its message, and messages by the
   end of the buffer. */

#include <math.h>
#include "encode.h"

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
enum { WHOLE = 0, CUT = 1, FOREIGN = 2 }; /* how a run of frames ended */
enum { ABSENT = -1, IS_VARINT = -2, IS_FIXED64 = -3, IS_FIXED32 = -4 }; /* instead of a length */
enum { OTHERS = 1, DAMAGED = 2 };
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
    if (k > MAX_WANTED || !(place = PyMem_Malloc(MAX_FIELD))) {
        PyErr_SetString(PyExc_ValueError, "too many fields");
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

static PyMethodDef functions[] = {
    {"frames", frames, METH_VARARGS, "See _wire.pyi."},
    {"columns", columns, METH_VARARGS, "See _wire.pyi."},
    {"repeated", repeated, METH_VARARGS, "See _wire.pyi."},
    {0}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_wire", .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit__wire(void) { return PyModule_Create(&definition); }
