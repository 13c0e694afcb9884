/* The Perfetto encoder in C: rows to packets, and the module.

   The same bytes as traceconv/writers/perfetto/arguments.py and packets.py, which say what is
   written and why; a property test compares them. Loops run without the interpreter lock. */

#include "encode.h"

/* ---- packets ------------------------------------------------------------------------------ */

typedef struct { /* columns of n rows */
    const int8_t *kind, *last;
    const int64_t *time, *dur, *uuid;
    const int32_t *name;
    const uint8_t *category;
    const int64_t *flow_ends;
    const uint8_t *flows;
    const int64_t *arg_ends;
    const uint8_t *args;
} Rows;

static void put_head(Buffer *b, int64_t time, Span sequence, uint64_t event, int type)
{
    uint64_t t = (uint64_t)time;
    put_byte(b, 0x0a); /* packet */
    put_varint(b, 4 + varint_size(t) + sequence.n + varint_size(event) + event);
    put_byte(b, 0x40); /* timestamp */
    put_varint(b, t);
    put(b, sequence.at, sequence.n);
    put_tag(b, 0x68, 2); /* sequence_flags: needs state */
    put_byte(b, 0x5a); /* track_event */
    put_varint(b, event);
    put_tag(b, 0x48, (uint8_t)type);
    put_byte(b, 0x58); /* track_uuid */
}

static int put_end(Buffer *b, int64_t time, Span sequence, uint64_t uuid)
{
    if (!room(b, 64 + sequence.n)) return 0;
    put_head(b, time, sequence, 3 + varint_size(uuid), 2);
    put_varint(b, uuid);
    return 1;
}

static int put_begin(Buffer *b, const Rows *r, Py_ssize_t i, Span sequence)
{
    uint64_t uuid = (uint64_t)r->uuid[i], name = (uint32_t)r->name[i];
    int64_t flow = i ? r->flow_ends[i - 1] : 0, arg = i ? r->arg_ends[i - 1] : 0;
    size_t flows = (size_t)(r->flow_ends[i] - flow) * 10, args = (size_t)(r->arg_ends[i] - arg);
    size_t event = 4 + varint_size(uuid) + varint_size(name) + (r->category[i] ? 2 : 0) + flows + args;
    if (!room(b, 96 + sequence.n + flows + args)) return 0;
    put_head(b, r->time[i], sequence, event, r->kind[i] ? 3 : 1);
    put_varint(b, uuid);
    put_byte(b, 0x50); /* name_iid */
    put_varint(b, name);
    if (r->category[i]) put_tag(b, 0x18, r->category[i]); /* category_iids */
    put(b, r->flows + flow * 10, flows);
    put(b, r->args + arg, args);
    return 1;
}

/* `open` holds the ends of open slices, the innermost last. */
static int encode(Buffer *b, Buffer *open, const Rows *r, Py_ssize_t n, Span sequence)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        int64_t *stack = (int64_t *)open->at, time = r->time[i];
        size_t depth = open->n / 8, at;
        for (; depth && stack[depth - 1] <= time; depth--)
            if (!put_end(b, stack[depth - 1], sequence, (uint64_t)r->uuid[i])) return 0;
        open->n = depth * 8;
        if (!put_begin(b, r, i, sequence) || !room(open, 8)) return 0;
        stack = (int64_t *)open->at;
        if (!r->kind[i]) {
            int64_t end = (int64_t)((uint64_t)time + (uint64_t)r->dur[i]);
            for (at = depth++; at && stack[at - 1] < end; at--) stack[at] = stack[at - 1];
            stack[at] = end;
        }
        for (; r->last[i] && depth; depth--)
            if (!put_end(b, stack[depth - 1], sequence, (uint64_t)r->uuid[i])) return 0;
        open->n = depth * 8;
    }
    return 1;
}

/* ---- Python ------------------------------------------------------------------------------- */

static int has_rows(const Py_buffer *view, Py_ssize_t n, Py_ssize_t size)
{
    if (view->len == n * size) return 1;
    PyErr_SetString(PyExc_ValueError, "columns differ in length");
    return 0;
}

/* Ends never fall and stay within `limit`. */
static int are_ends(const int64_t *ends, Py_ssize_t n, Py_ssize_t limit)
{
    int64_t before = 0;
    for (Py_ssize_t i = 0; i < n; before = ends[i++])
        if (ends[i] < before || ends[i] > limit) {
            PyErr_SetString(PyExc_ValueError, "ends outside their data");
            return 0;
        }
    return 1;
}

static PyObject *packets(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer v[13];
    PyObject *result = NULL;
    Buffer out = {0}, open = {0};
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*y*y*y*y*y*y*y*:packets", &v[0], &v[1], &v[2], &v[3],
            &v[4], &v[5], &v[6], &v[7], &v[8], &v[9], &v[10], &v[11], &v[12])) return NULL;
    Py_ssize_t n = v[1].len;
    static const int size[] = {0, 1, 1, 8, 8, 8, 4, 1, 8, 0, 8};
    int ok = 1;
    for (int i = 1; i <= 10 && ok; i++) ok = !size[i] || has_rows(&v[i], n, size[i]);
    ok = ok && are_ends(v[8].buf, n, v[9].len / 10) && are_ends(v[10].buf, n, v[11].len);
    if (ok) {
        const Rows rows = {v[1].buf, v[2].buf, v[3].buf, v[4].buf, v[5].buf, v[6].buf, v[7].buf,
            v[8].buf, v[9].buf, v[10].buf, v[11].buf};
        Py_BEGIN_ALLOW_THREADS
        ok = room(&open, (size_t)v[12].len + 8);
        if (ok) {
            put(&open, v[12].buf, (size_t)v[12].len / 8 * 8);
            ok = encode(&out, &open, &rows, n, (Span){v[0].buf, (size_t)v[0].len});
        }
        Py_END_ALLOW_THREADS
        result = ok ? Py_BuildValue("y#y#", (char *)out.at, (Py_ssize_t)out.n, (char *)open.at,
                          (Py_ssize_t)open.n) : PyErr_NoMemory();
    }
    PyMem_RawFree(out.at);
    PyMem_RawFree(open.at);
    for (int i = 0; i < 13; i++) PyBuffer_Release(&v[i]);
    return result;
}

/* What is left of a text that UTF-8 cannot hold: halves of surrogate pairs become U+FFFD. */
static void without_halves(uint8_t *p, const uint8_t *end)
{
    for (; p < end; p++)
        if (*p == 0xed && end - p > 2 && p[1] > 0x9f) memcpy(p, "\xef\xbf\xbd", 3);
}

static int put_event_name(Buffer *b, uint32_t number, Span s)
{
    static const uint8_t event_names[] = {0x12};
    if (!room(b, s.n + MAX_ENTRY_FRAME)) return 0;
    put_entry(b, (Span){event_names, 1}, number, s, (Span){0});
    return 1;
}

static PyObject *names(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *values, *result = NULL;
    unsigned int first;
    Buffer out = {0};
    if (!PyArg_ParseTuple(args, "O!I:names", &PyList_Type, &values, &first)) return NULL;
    int ok = 1;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(values) && ok; i++) {
        PyObject *text = PyList_GET_ITEM(values, i);
        const uint32_t number = first + (uint32_t)i;
        if (PyUnicode_Check(text) && PyUnicode_IS_ASCII(text)) {
            ok = put_event_name(&out, number, (Span){PyUnicode_DATA(text), (size_t)PyUnicode_GET_LENGTH(text)});
            continue;
        }
        PyObject *wide = PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass");
        if (!wide) goto done;
        uint8_t *at = (uint8_t *)PyBytes_AS_STRING(wide);
        size_t n = (size_t)PyBytes_GET_SIZE(wide);
        without_halves(at, at + n);
        ok = put_event_name(&out, number, (Span){at, n});
        Py_DECREF(wide);
    }
    result = ok ? PyBytes_FromStringAndSize((char *)out.at, (Py_ssize_t)out.n) : PyErr_NoMemory();
done:
    PyMem_RawFree(out.at);
    return result;
}

/* Bytes `length` at `address` (blob in the upper 16 bits, offset below), as far as they exist. */
static Span located(const Py_buffer *blob, Py_ssize_t blobs, int64_t address, int32_t length)
{
    int64_t which = address >> 48, at = address & (((int64_t)1 << 48) - 1);
    if (which < 0 || which >= blobs || at >= blob[which].len || length <= 0) return (Span){0};
    int64_t left = blob[which].len - at;
    return (Span){(const uint8_t *)blob[which].buf + at, (size_t)(length < left ? length : left)};
}

static int encode_rows(Coder *c, const Py_buffer *blob, Py_ssize_t blobs, const int64_t *address,
                       const int32_t *length, Py_ssize_t n, int64_t *ends)
{
    int ok = 1;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < n && ok; i++) {
        Span s = located(blob, blobs, address[i], length[i]);
        c->row = i;
        if (n - i > 2) { /* rows are in the order of tracks, their texts in that of the input */
            Span soon = located(blob, blobs, address[i + 2], length[i + 2]);
            if (soon.n) PREFETCH(soon.at), PREFETCH(soon.at + soon.n - 1);
        }
        if (s.n && !encode_row(c, s) && !c->no_memory) {
            Py_BLOCK_THREADS
            ok = encode_broken(c, s);
            Py_UNBLOCK_THREADS
        }
        ok = ok && !c->no_memory;
        ends[i] = (int64_t)c->out.n;
    }
    Py_END_ALLOW_THREADS
    if (!ok && !PyErr_Occurred()) PyErr_NoMemory();
    return ok && settle(c);
}

static PyObject *Coder_block(Coder *c, PyObject *args)
{
    PyObject *blobs, *ends = NULL, *odd = NULL, *result = NULL;
    Py_buffer address, length, *blob;
    Py_ssize_t got = 0;
    if (!PyArg_ParseTuple(args, "O!y*y*:block", &PyTuple_Type, &blobs, &address, &length)) return NULL;
    Py_ssize_t n = address.len / 8, count = PyTuple_GET_SIZE(blobs);
    blob = PyMem_Calloc((size_t)count + 1, sizeof *blob);
    if (!blob) PyErr_NoMemory();
    else if (has_rows(&length, n, 4))
        while (got < count && !PyObject_GetBuffer(PyTuple_GET_ITEM(blobs, got), &blob[got], PyBUF_SIMPLE))
            got++;
    if (!PyErr_Occurred() && (ends = PyBytes_FromStringAndSize(NULL, n * 8))
        && (odd = PyBytes_FromStringAndSize(NULL, n)) && c->busy)
        PyErr_SetString(PyExc_RuntimeError, "one thread at a time");
    else if (odd) {
        c->busy = 1;
        c->odd = (uint8_t *)PyBytes_AS_STRING(odd);
        memset(c->odd, 0, (size_t)n);
        c->out.n = c->interned.n = c->slow.n = 0;
        c->not_json = c->clipped = c->replaced = c->dropped = c->no_memory = 0;
        if (encode_rows(c, blob, count, address.buf, length.buf, n, (int64_t *)PyBytes_AS_STRING(ends)))
            result = Py_BuildValue("y#Oy#OLLLL", c->out.at ? (char *)c->out.at : "", (Py_ssize_t)c->out.n,
                ends, c->interned.at ? (char *)c->interned.at : "", (Py_ssize_t)c->interned.n, odd,
                c->not_json, c->clipped, c->replaced, c->dropped);
        c->busy = 0;
    }
    while (got) PyBuffer_Release(&blob[--got]);
    PyMem_Free(blob);
    Py_XDECREF(ends);
    Py_XDECREF(odd);
    PyBuffer_Release(&address);
    PyBuffer_Release(&length);
    return result;
}

static PyObject *Coder_new(PyTypeObject *type, PyObject *args, PyObject *kw)
{
    (void)kw;
    PyObject *selected;
    unsigned long long seed;
    unsigned int names, strings, max_bytes;
    if (!PyArg_ParseTuple(args, "OKIII:Coder", &selected, &seed, &names, &strings, &max_bytes)) return NULL;
    if (names > 1 << 24 || strings > 1 << 24 || (selected != Py_None && !PyTuple_Check(selected))) {
        PyErr_SetString(PyExc_ValueError, "selected must be None or a tuple, tables below 2^24");
        return NULL;
    }
    for (Py_ssize_t i = 0; selected != Py_None && i < PyTuple_GET_SIZE(selected); i++)
        if (!PyBytes_Check(PyTuple_GET_ITEM(selected, i))) {
            PyErr_SetString(PyExc_TypeError, "selected must consist of bytes");
            return NULL;
        }
    Coder *c = (Coder *)type->tp_alloc(type, 0);
    if (!c) return NULL;
    if (!(c->known = PyMem_RawCalloc(1, sizeof *c->known))) {
        Py_DECREF(c);
        return PyErr_NoMemory();
    }
    c->seed = seed;
    c->max_bytes = max_bytes;
    if (selected != Py_None) c->selected = Py_NewRef(selected);
    c->max_names = names;
    c->max_strings = strings;
    return (PyObject *)c;
}

static void Coder_dealloc(Coder *c)
{
    if (c->known) {
        table_free(&c->known->names);
        table_free(&c->known->strings);
        PyMem_RawFree(c->known);
    }
    PyMem_RawFree(c->out.at);
    PyMem_RawFree(c->interned.at);
    PyMem_RawFree(c->scratch.at);
    PyMem_RawFree(c->slow.at);
    PyMem_RawFree(c->key.at);
    Py_XDECREF(c->selected);
    Py_TYPE(c)->tp_free((PyObject *)c);
}

static PyObject *Coder_sizes(Coder *c, void *closure)
{
    (void)closure;
    return Py_BuildValue("ii", (int)c->known->names.count, (int)c->known->strings.count);
}

static PyMethodDef coder_methods[] = {
    {"block", (PyCFunction)Coder_block, METH_VARARGS, "See _encode.pyi."}, {0}};
static PyGetSetDef coder_getset[] = {{"sizes", (getter)Coder_sizes, NULL, "See _encode.pyi.", NULL}, {0}};
static PyTypeObject coder_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "traceconv.native._encode.Coder",
    .tp_basicsize = sizeof(Coder),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = Coder_new,
    .tp_dealloc = (destructor)Coder_dealloc,
    .tp_methods = coder_methods,
    .tp_getset = coder_getset,
};

static PyMethodDef functions[] = {{"packets", packets, METH_VARARGS, "See _encode.pyi."},
    {"names", names, METH_VARARGS, "See _encode.pyi."}, {0}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_encode", .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit__encode(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (!module || PyModule_AddType(module, &coder_type) < 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
