cimport canal_ha.decode.kernel.buffers as b
cimport canal_ha.decode.kernel.codes as k
cimport canal_ha.decode.kernel.columns as c
cimport canal_ha.decode.kernel.entries as e
cimport canal_ha.decode.kernel.layouts as ly
cimport canal_ha.decode.kernel.primitives as p
cimport canal_ha.decode.kernel.shapes as sh
cimport canal_ha.decode.kernel.texts as t
cimport cython
from cpython.array cimport array as c_array
from libc.stdint cimport int64_t

cdef Py_ssize_t _SHAPES

cdef int _kind(e.Entries entry) except -1

cdef class Marks:
    cdef public Py_ssize_t count, entries, expected, expected_entries, _last
    cdef public bint named
    cdef public bytearray ops, rows, places, numbers, subs, times, servers, offsets
    cdef public c.Target journals, gtids, schemas, tables

    @cython.locals(again=Marks)
    cpdef Marks left(self)
    @cython.locals(again=Marks, entries=Py_ssize_t)
    cpdef Marks renewed(self, b.Spares spares)
    cpdef int put(self, e.Entries entry, int op, Py_ssize_t row, Py_ssize_t count=*) except -1
    cdef int _put_text(self, c.Target target, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1

cdef class Sheet:
    cdef public object owner, identity
    cdef public list changes, plan
    cdef public Marks marks
    cdef public Py_ssize_t since
    cdef public bint whole
    cdef list _shapes
    cdef Py_ssize_t _made

    cpdef start(self, object identity, list plan, Marks marks=*)
    cdef sh.RowShape shape(self, int event)
    @cython.locals(shape=sh.RowShape)
    cdef int learn(self, int event, ly.Images images) except -1
    @cython.locals(images=ly.Images, target=c.Target)
    cpdef int rest(self) except -1

cdef class TableRows:
    cdef public e.Entries entry
    cdef public Py_ssize_t rows, size, place, _row, _count
    cdef public dict sheets
    cdef public Sheet sheet
    cdef public Sheet _present
    cdef public bytes key, _schema, _table
    cdef public bint _deleted, _table_known
    cdef public ly.Layout layout
    cdef public c.Target refused

    @cython.locals(entry=e.Entries, key=bytes, code=int, sheet=Sheet)
    cpdef int step(self) except -1
    @cython.locals(src=bytes)
    cdef bint _same_table(self, e.Entries entry) except -1
    @cython.locals(
        src=bytes, marks=Marks, plan=list, event=int, images=ly.Images, row=Py_ssize_t, before=ly.Layout,
        after=ly.Layout, layout=ly.Layout, kind=int, op=int, partial=bint, usual=bint, shape=sh.RowShape, done=Py_ssize_t,
        changed=bint
    )
    cdef int _entry_rows(self, e.Entries entry, Sheet sheet) except -1
    @cython.locals(columns=list, place=Py_ssize_t, target=c.Target, column=ly.ColumnLayout)
    cdef int _put(self, bytes src, ly.Layout layout, list plan) except -1
    cdef int _refuse(self, ly.Layout layout, Py_ssize_t place, list plan) except -1

cdef class Maps:
    cdef public c.Groups items
    cdef public bytearray names
    cdef public c.Target values
    cdef public Py_ssize_t size

    @cython.locals(column=ly.ColumnLayout)
    cpdef int put(self, bytes src, list columns, bytes names) except -1
    cpdef int put_null(self) except -1

cdef class MapPlan:
    cdef public bytes key_names, names
    cdef public list keys

cdef class MapRows:
    cdef public e.Entries entry
    cdef public Py_ssize_t rows, size, _row, _count, _since
    cdef public dict tables, _numbers
    cdef public list names
    cdef public Marks marks
    cdef public Maps keys, befores, afters
    cdef public c.Target statements

    @cython.locals(entry=e.Entries)
    cpdef int step(self) except -1
    @cython.locals(
        src=bytes, key=bytes, changes=list, event=int, images=ly.Images, row=Py_ssize_t, before=ly.Layout,
        after=ly.Layout, layout=ly.Layout, kind=int, plan=MapPlan
    )
    cdef int _entry_rows(self, e.Entries entry) except -1
    cdef int _put(self, Maps maps, bytes src, ly.Layout layout) except -1
    cdef MapPlan _plan(self, ly.Layout layout)
    cpdef Py_ssize_t _number(self, str name) except -1

@cython.locals(src=bytes, found=list, row=Py_ssize_t)
cpdef list entry_rows(e.Entries entry, ly.Images images, object convert)
@cython.locals(columns=list, values=dict, column=ly.ColumnLayout, start=Py_ssize_t, sql_type=int)
cdef dict _values(bytes src, ly.Layout layout, object convert)
@cython.locals(found=list, row=Py_ssize_t)
cpdef list entry_texts(bytes src, c_array places, ly.Images images)
@cython.locals(texts=list, column=ly.ColumnLayout)
cdef list _all_texts(bytes src, ly.Layout layout)
@cython.locals(src=bytes, found=list, row=Py_ssize_t)
cpdef list entry_keys(e.Entries entry, ly.Images images, tuple names)
@cython.locals(known=dict)
cdef tuple _texts(bytes src, ly.Layout layout, tuple names)
cdef object _text(bytes src, ly.ColumnLayout column)
