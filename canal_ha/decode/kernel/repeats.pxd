# The functions of repeats.py in C, with the same names. These read what has the usual form; see repeats.h.

cimport canal_ha.decode.kernel.columns as c
cimport canal_ha.decode.kernel.layouts as ly
cimport canal_ha.decode.kernel.primitives as p
from cpython.array cimport array as c_array
from libc.stdint cimport int64_t
from libc.string cimport memset

cdef extern from "Python.h":
    char *PyBytes_AS_STRING(bytes data) noexcept nogil
    Py_ssize_t PyBytes_GET_SIZE(bytes data) noexcept nogil
    char *PyByteArray_AS_STRING(bytearray data) noexcept nogil
    ctypedef struct PyObject:
        pass

cdef struct ChangeFields:
    Py_ssize_t pos
    int event_type
    bint is_ddl

cdef extern from "repeats.h":
    ctypedef struct Head "kernel_head":
        bint known, ascii, partial
        int kind
        int64_t offset, server_id, time_ms
        Py_ssize_t journal_start, journal_stop, schema_start, schema_stop, table_start, table_stop
        Py_ssize_t gtid_start, gtid_stop, snapshot_start, snapshot_stop, own_gtid_start, own_gtid_stop
        Py_ssize_t store_start, store_stop
    ctypedef struct Name "kernel_name":
        const unsigned char *data
        Py_ssize_t size
    ctypedef struct Form "kernel_form":
        Py_ssize_t size
    ctypedef struct Known "kernel_variant":
        const unsigned char *head
        const unsigned char *tail
        Py_ssize_t head_size, tail_size
        bint null
    ctypedef struct Part "kernel_part":
        int known, last, tag, twin, format, width, precision, scale
        Py_ssize_t slot
        const Known *variants
        PyObject *data
        PyObject *offsets
        PyObject *validity
        Py_ssize_t *count
        Py_ssize_t *nulls
    ctypedef struct Place "kernel_place":
        Py_ssize_t start, stop
        bint null
    ctypedef struct Rows "kernel_rows":
        Part *parts
        const Place *places
        const unsigned char *row
        bint twins
    const Head *kernel_entry(
        const unsigned char *base, Py_ssize_t start, Py_ssize_t stop, int kind, int kinds, const Name *names,
        Form *form
    ) noexcept nogil
    const unsigned char *kernel_stretch(
        const unsigned char *at, const unsigned char *stop, Py_ssize_t *size
    ) noexcept nogil
    void kernel_fetch(const unsigned char *at, Py_ssize_t size, const unsigned char *stop) noexcept nogil
    Py_ssize_t kernel_rows_size(Py_ssize_t width, Py_ssize_t variants, Py_ssize_t gaps) noexcept nogil
    Known *kernel_rows_begin(Rows *rows, Py_ssize_t width, Py_ssize_t variants, Py_ssize_t gaps) noexcept nogil
    Py_ssize_t kernel_put_rows(
        Rows *rows, const unsigned char *base, const long long *ends, Py_ssize_t row, Py_ssize_t count,
        Py_ssize_t *index
    ) except -1

ctypedef const Head *HeadView  # of the entry that was read last

cdef inline const unsigned char *_base(bytes src) noexcept nogil:
    return <const unsigned char *>PyBytes_AS_STRING(src)

cdef inline int _name(Name *name, bytes text) noexcept nogil:
    name.data = _base(text)
    name.size = PyBytes_GET_SIZE(text)
    return 0

cdef inline bytearray forms(int count):
    cdef bytearray room = bytearray()
    p.reserve(room, count * sizeof(Form))
    memset(PyByteArray_AS_STRING(room), 0, count * sizeof(Form))
    return room

cdef inline HeadView head(
    bytearray forms, int which, bytes src, Py_ssize_t start, Py_ssize_t stop, int kind, int kinds, bytes snapshot,
    bytes own_gtid, bytes partial
) noexcept nogil:
    cdef Name[3] names
    _name(names, snapshot)
    _name(names + 1, own_gtid)
    _name(names + 2, partial)
    return kernel_entry(_base(src), start, stop, kind, kinds, names, <Form *>PyByteArray_AS_STRING(forms) + which)

cdef inline ChangeFields change(
    bytes src, Py_ssize_t start, Py_ssize_t stop, int event_type, int event_types, c_array found
) except *:
    cdef const unsigned char *base = _base(src)
    cdef const unsigned char *at = base + start
    cdef const unsigned char *end = base + stop
    cdef const unsigned char *last = base + PyBytes_GET_SIZE(src)
    cdef const unsigned char *data
    cdef Py_ssize_t size
    cdef ChangeFields read
    read.event_type = event_type
    read.is_ddl = False
    while at < end:
        if at[0] == 0x62:
            data = kernel_stretch(at + 1, end, &size)
            if data == NULL:
                break
            kernel_fetch(data, size, last)
            p.push(found, data - base)
            at = data + size
            p.push(found, at - base)
        elif end - at > 1 and at[1] < 128 and (at[0] == 0x08 or at[0] == 0x10 or at[0] == 0x50):
            if at[0] == 0x10:
                if 0 < at[1] <= event_types:
                    read.event_type = at[1]
            elif at[0] == 0x50:
                read.is_ddl = at[1] != 0
            at += 2
        elif at[0] == 0x08:  # tableId, of several bytes
            size = 1
            while size < 9 and size < end - at and at[size] > 127:
                size += 1
            if size == end - at or at[size] > 127:
                break
            at += size + 1
        else:
            break
    read.pos = at - base
    return read

cdef inline Rows *_rows(bytearray room) noexcept nogil:
    return <Rows *>PyByteArray_AS_STRING(room)

cdef inline int prepare(bytearray room, list columns, list targets, list twins, list tags) except -1:
    cdef Py_ssize_t width = len(columns), count = 0, gaps = 0, size, most, place, index
    cdef ly.ColumnLayout column
    cdef ly.Variant variant
    cdef c.Target target
    cdef Part *part
    cdef Known *known
    for column in columns:
        most = 0
        for variant in column.variants:
            count += 1
            size = variant.head_size + variant.tail_size
            most = max(most, size)
        gaps += most + 7  # a tag, and two lengths of at most three bytes
    size = kernel_rows_size(width, count, gaps)
    p.truncate(room, 0)
    p.reserve(room, size)
    memset(PyByteArray_AS_STRING(room), 0, size)
    known = kernel_rows_begin(_rows(room), width, count, gaps)
    for place in range(width):
        column = columns[place]
        part = _rows(room).parts + place
        part.variants = known
        part.known = <int>len(column.variants)
        part.tag = tags[place]
        part.twin = twins[place]
        if part.twin >= 0:
            _rows(room).twins = True
        for index in range(part.known):
            variant = column.variants[index]
            if variant is column.last:
                part.last = <int>index
            known.head = _base(variant.head)
            known.head_size = variant.head_size
            known.tail = _base(variant.tail)
            known.tail_size = variant.tail_size
            known.null = variant.null
            known += 1
        target = targets[place]
        if target is not None:
            part.format = target.format
            part.width = target.width
            part.precision = target.precision
            part.scale = target.scale
            part.slot = target.size
            part.count = &target.count
            part.nulls = &target.nulls
            part.data = <PyObject *>target.data
            part.offsets = <PyObject *>target.offsets
            part.validity = <PyObject *>target.validity
    return 0

cdef inline (Py_ssize_t, Py_ssize_t) put_rows(
    bytearray room, Py_ssize_t index, bytes src, c_array rows, Py_ssize_t row, Py_ssize_t count
) except *:
    row = kernel_put_rows(_rows(room), _base(src), rows.data.as_longlongs, row, count, &index)
    return row, index

cdef inline bint put_one(bytearray room, Py_ssize_t index, bytes src, c.Target target) except -1:
    cdef const Place *place = _rows(room).places + index
    cdef Py_ssize_t start = _rows(room).row - _base(src)
    if place.null:
        target.put_null()
        return True
    return target.put(src, start + place.start, start + place.stop)
