cimport canal_ha.decode.kernel.fields as f
cimport canal_ha.decode.kernel.codes as k
cimport canal_ha.decode.kernel.primitives as p
cimport cython
from libc.stdint cimport uint64_t

cdef Py_ssize_t _VARIANTS, _LAYOUTS

cdef class Variant:
    cdef public bytes head, tail
    cdef public Py_ssize_t head_size, tail_size
    cdef public bint null
    cdef public int sql_type

cdef class ColumnLayout:
    cdef public bytes raw_name, raw_type
    cdef public str name, mysql_type
    cdef public Py_ssize_t index, start, stop
    cdef public int sql_type, cell_type
    cdef public bint key, binary, utc, labelled
    cdef public list variants
    cdef public Variant last

cdef class Layout:
    cdef public list columns, keys
    cdef public bint partial
    cdef public object identity, names, plan

cdef class Images(f.Cursor):
    cdef public dict identities, known_before, known_after
    cdef public object key_places
    cdef public Layout before, after
    cdef public Py_ssize_t _index, _name_start, _name_stop, _type_start, _type_stop, _value_at, _value_start, _value_stop
    cdef public Py_ssize_t _values, learned
    cdef public int _sql_type
    cdef public bint _key, _null

    @cython.locals(before=list, after=list, tag=uint64_t)
    cpdef bint row(self, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1
    @cython.locals(
        src=bytes, before=list, after=list, befores=Py_ssize_t, afters=Py_ssize_t, before_at=Py_ssize_t,
        after_at=Py_ssize_t, pos=Py_ssize_t, tag=uint64_t, column=ColumnLayout, start=Py_ssize_t, end=Py_ssize_t,
        variant=Variant
    )
    cdef bint _match(self, Py_ssize_t start, Py_ssize_t stop) except -1
    @cython.locals(src=bytes, start=Py_ssize_t, stop=Py_ssize_t, size=Py_ssize_t)
    cdef bint _is(self, Variant variant, ColumnLayout column, Py_ssize_t pos, Py_ssize_t end) except -1
    @cython.locals(src=bytes, variant=Variant, null=bint)
    cdef bint _find(self, ColumnLayout column, Py_ssize_t pos, Py_ssize_t end) except -1
    @cython.locals(tag=uint64_t)
    cdef int _parse(self, Py_ssize_t end) except -1
    cdef int _other(self, uint64_t tag, Py_ssize_t stop) except -1
    @cython.locals(src=bytes)
    cdef ColumnLayout _new_column(self, Py_ssize_t end)
    cdef Layout _layout(self, list columns, dict known)

cpdef list primary_key(list columns)

@cython.locals(place=Py_ssize_t, old=ColumnLayout, new=ColumnLayout)
cpdef bint same_key(Layout before, Layout after, bytes src) except -1
