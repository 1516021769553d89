cimport canal_ha.decode.kernel.primitives as p
cimport canal_ha.decode.kernel.texts as t
cimport cython
from libc.stdint cimport int64_t, uint64_t

cdef int _NUMBER_BYTES, _TAG_BYTES, _DEPTH
cdef uint64_t _ALL, _LARGEST_TAG, _LARGEST_SIZE

cdef class Cursor:
    cdef public bytes src
    cdef public Py_ssize_t pos

    @cython.locals(src=bytes, pos=Py_ssize_t, limit=Py_ssize_t, value=uint64_t, shift=int, byte=uint64_t)
    cpdef uint64_t varint(self, Py_ssize_t stop) except? 0
    cpdef int64_t int64(self, Py_ssize_t stop) except? 0
    cpdef int64_t int32(self, Py_ssize_t stop) except? 0
    @cython.locals(pos=Py_ssize_t, value=uint64_t)
    cdef uint64_t _short(self, Py_ssize_t stop) except? 0
    @cython.locals(pos=Py_ssize_t, value=uint64_t)
    cpdef uint64_t tag(self, Py_ssize_t stop) except 0
    @cython.locals(src=bytes, pos=Py_ssize_t, size=uint64_t, left=uint64_t)
    cpdef Py_ssize_t end(self, Py_ssize_t stop) except -1
    cpdef int skip(self, uint64_t tag, Py_ssize_t stop) except -1
    @cython.locals(src=bytes, tag=uint64_t, start=Py_ssize_t, end=Py_ssize_t)
    cpdef int check(self, Py_ssize_t stop) except -1
    @cython.locals(kind=int, size=Py_ssize_t, inner=uint64_t)
    cdef int _skip(self, uint64_t tag, Py_ssize_t stop, int depth) except -1
