cimport canal_ha.decode.kernel.cells as c
cimport canal_ha.decode.kernel.documents as documents
cimport canal_ha.decode.kernel.kinds as k
cimport canal_ha.decode.kernel.numbers as numbers
cimport canal_ha.decode.kernel.primitives as p
cimport canal_ha.decode.kernel.temporal as temporal
cimport cython
from libc.stdint cimport int64_t

cdef Py_ssize_t _ROW_LENGTH, _TEXT_KEPT

cdef class RowWriter:
    cdef public bytearray out, text
    cdef public Py_ssize_t pos, partial_at
    cdef public bint partial

    @cython.locals(
        width=Py_ssize_t, size=Py_ssize_t, cells=list, afters=list, count=Py_ssize_t, start=Py_ssize_t, cell=c.Cell
    )
    cpdef Py_ssize_t rows(
        self, c.TablePlan plan, int kind, bint partial, bytes src, Py_ssize_t pos, Py_ssize_t stop, bytearray out
    ) except -1
    @cython.locals(
        out=bytearray, nulls=Py_ssize_t, count=Py_ssize_t, any_null=bint, bit=Py_ssize_t, cell=c.Cell, mark=Py_ssize_t
    )
    cdef int _image(self, list cells, bytes src, Py_ssize_t stop) except -1
    @cython.locals(
        out=bytearray, nulls=Py_ssize_t, count=Py_ssize_t, any_null=bint, bit=Py_ssize_t, cell=c.Cell, mark=Py_ssize_t,
        size=Py_ssize_t
    )
    cdef int _before(self, list cells, bytes src, Py_ssize_t stop) except -1
    @cython.locals(
        out=bytearray, nulls=Py_ssize_t, count=Py_ssize_t, any_null=bint, bit=Py_ssize_t, cell=c.Cell, twin=c.Cell,
        mark=Py_ssize_t, size=Py_ssize_t, start=Py_ssize_t
    )
    cdef int _after(self, list cells, bytes src, Py_ssize_t stop) except -1
    @cython.locals(pos=Py_ssize_t, options=int)
    cdef int _partial(self, c.TablePlan plan, bytes src, Py_ssize_t stop) except -1
    @cython.locals(
        out=bytearray, text=bytearray, pos=Py_ssize_t, kind=int, size=Py_ssize_t, length=Py_ssize_t, end=Py_ssize_t,
        value=int64_t
    )
    cdef Py_ssize_t _cell(self, c.Cell cell, bytes src, Py_ssize_t stop) except -1
    @cython.locals(index=Py_ssize_t)
    cdef bint _is_diff(self, c.Cell cell, bytes src) except -1
    @cython.locals(text=bytearray)
    cdef Py_ssize_t _document(self, c.Cell cell, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1
    cdef bytes _text(self, c.Cell cell, bytes src, Py_ssize_t start, Py_ssize_t stop)

@cython.locals(full=Py_ssize_t, index=Py_ssize_t, rest=int)
cdef bint _all_present(bytes src, Py_ssize_t at, Py_ssize_t width) except -1
@cython.locals(cell=c.Cell)
cdef list _present(list cells, bytes src, Py_ssize_t at)
cdef Py_ssize_t _put_value(bytearray out, c.Cell cell, bytes value) except -1
@cython.locals(size=Py_ssize_t, before=bytes)
cdef bint _put_bytes(bytearray out, c.Cell cell, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1
@cython.locals(size=Py_ssize_t, before=bytes)
cdef Py_ssize_t _put_number(bytearray out, c.Cell cell, int64_t value) except -1
@cython.locals(size=Py_ssize_t, before=bytes)
cdef Py_ssize_t _put_text(bytearray out, c.Cell cell, bytearray text) except -1
@cython.locals(size=Py_ssize_t, before=bytes)
cdef Py_ssize_t _put_wide(bytearray out, c.Cell cell, bytearray text) except -1
@cython.locals(mark=Py_ssize_t)
cdef Py_ssize_t _put_utf8(bytearray out, c.Cell cell, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1
@cython.locals(size=Py_ssize_t, before=bytes)
cdef Py_ssize_t _put_latin1(bytearray out, c.Cell cell, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1
