cimport canal_ha.decode.kernel.numbers as numbers
cimport canal_ha.decode.kernel.primitives as p
cimport canal_ha.decode.kernel.temporal as temporal
cimport cython
from libc.stdint cimport int64_t, uint64_t

cdef int _DEPTH_MAX

cpdef bytes document_text(bytes data, bint exact=*)
@cython.locals(limit=Py_ssize_t)
cpdef int put_document(bytearray text, bytes src, Py_ssize_t start, Py_ssize_t stop, bint exact) except -1 nogil
@cython.locals(length=Py_ssize_t, start=Py_ssize_t)
cdef int _put_value(
    bytearray text, Py_ssize_t limit, int kind, bytes src, Py_ssize_t pos, Py_ssize_t stop, bint exact, int depth
) except -1 nogil
@cython.locals(
    is_object=bint, width=Py_ssize_t, keys=Py_ssize_t, count=Py_ssize_t, size=Py_ssize_t, entries=Py_ssize_t,
    index=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t, child=int
)
cdef int _put_container(
    bytearray text, Py_ssize_t limit, int kind, bytes src, Py_ssize_t pos, Py_ssize_t stop, bint exact, int depth
) except -1 nogil
cdef int _put_literal(bytearray text, int code) except -1 nogil
@cython.locals(size=Py_ssize_t)
cdef int _put_integer(bytearray text, int kind, bytes src, Py_ssize_t pos, Py_ssize_t stop) except -1 nogil
@cython.locals(length=Py_ssize_t, shift=int, byte=Py_ssize_t)
cdef (Py_ssize_t, Py_ssize_t) _length(bytes src, Py_ssize_t pos, Py_ssize_t stop) noexcept nogil
@cython.locals(precision=int, decimals=int)
cdef int _put_opaque(
    bytearray text, int kind, bytes src, Py_ssize_t pos, Py_ssize_t length, bint exact
) except -1 nogil
cdef int _put_base64(bytearray text, int kind, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1 with gil
@cython.locals(magnitude=uint64_t)
cdef int _put_day(bytearray text, bytes src, Py_ssize_t pos) except -1 nogil
@cython.locals(value=int64_t, magnitude=uint64_t)
cdef int _put_time(bytearray text, bint is_clock, bytes src, Py_ssize_t pos, bint exact) except -1 nogil
cdef int _beyond() except -1 nogil
