cimport canal_ha.decode.kernel.cells as c
cimport canal_ha.decode.kernel.documents as documents
cimport canal_ha.decode.kernel.kinds as k
cimport canal_ha.decode.kernel.numbers as numbers
cimport canal_ha.decode.kernel.primitives as p
cimport canal_ha.decode.kernel.temporal as temporal
cimport canal_ha.decode.kernel.views as views
cimport cython
from libc.stdint cimport int64_t

cdef Py_ssize_t _TEXT_KEPT

@cython.final
cdef class RowWriter:
    cdef bytearray text, before_cells, after_cells
    cdef Py_ssize_t pos, partial_at, length_size
    cdef bint partial, whole
    cdef bytearray clear
    cdef Py_ssize_t stop

    @cython.locals(
        width=Py_ssize_t, size=Py_ssize_t, cells=c.Image, afters=c.Image, count=Py_ssize_t,
        after_count=Py_ssize_t, index=Py_ssize_t, start=Py_ssize_t, rows=Py_ssize_t, cell=c.Seen
    )
    cdef Py_ssize_t rows(
        self, c.PlanView *plan, int kind, bint partial, bytes src, Py_ssize_t pos, Py_ssize_t stop, bytearray out
    ) except -1 nogil
    @cython.locals(nulls=Py_ssize_t)
    cdef bint _nulls(self, Py_ssize_t count, bytes src, Py_ssize_t stop) except -1 nogil
    @cython.locals(nulls=Py_ssize_t, any_null=bint, bit=Py_ssize_t, cell=c.Seen, mark=Py_ssize_t)
    cdef int _image(self, c.View **cells, Py_ssize_t count, bytes src, Py_ssize_t stop, bytearray out) except -1 nogil
    @cython.locals(nulls=Py_ssize_t, any_null=bint, bit=Py_ssize_t, cell=c.Seen, size=Py_ssize_t)
    cdef int _before(self, c.View **cells, Py_ssize_t count, bytes src, Py_ssize_t stop, bytearray out) except -1 nogil
    @cython.locals(
        nulls=Py_ssize_t, any_null=bint, bit=Py_ssize_t, cell=c.Seen, twin=c.Seen, mark=Py_ssize_t,
        size=Py_ssize_t, start=Py_ssize_t
    )
    cdef int _after(self, c.View **cells, Py_ssize_t count, bytes src, Py_ssize_t stop, bytearray out) except -1 nogil
    cdef bint _repeats(self, c.View *cell, c.View *twin, bytes src, Py_ssize_t stop) noexcept nogil
    @cython.locals(pos=Py_ssize_t, options=int)
    cdef int _partial(self, c.PlanView *plan, bytes src, Py_ssize_t stop) except -1 nogil
    @cython.locals(
        pos=Py_ssize_t, kind=int, size=Py_ssize_t, length=Py_ssize_t, end=Py_ssize_t, value=int64_t, mark=Py_ssize_t
    )
    cdef Py_ssize_t put_cell(self, c.View *cell, bytes src, Py_ssize_t stop, bytearray out) except -1 nogil
    @cython.locals(kind=int, size=Py_ssize_t)
    cdef int _put_fixed(self, c.View *cell, bytes src, Py_ssize_t pos, bytearray text) except -1 nogil
    cdef bint _is_diff(self, c.View *cell, bytes src) noexcept nogil
    @cython.locals(size=Py_ssize_t)
    cdef Py_ssize_t _put_document(
        self, c.View *cell, bytes src, Py_ssize_t start, Py_ssize_t stop, bytearray out
    ) except -1 nogil
    cdef int _forget_text(self) except -1 with gil
    @cython.locals(text=bytearray)
    cdef Py_ssize_t _put_repaired(
        self, c.View *view, bytes src, Py_ssize_t start, Py_ssize_t stop, bytearray out
    ) except -1 with gil
    @cython.locals(data=bytes, cell=c.Cell, text=bytes)
    cdef Py_ssize_t _put_rare(
        self, c.View *view, bytes src, Py_ssize_t start, Py_ssize_t stop, bytearray out
    ) except -1 with gil
    @cython.locals(twin=c.Seen)
    cdef bytes _before_bytes(self, c.View *view, bytes src)
