cimport canal_ha.decode.kernel.codes as k
cimport canal_ha.decode.kernel.primitives as p
cimport canal_ha.decode.kernel.texts as t
cimport cython

cdef Py_ssize_t _LARGEST_OFFSET

cdef class Target:
    cdef public int format, width, precision, scale
    cdef public Py_ssize_t size, count, nulls
    cdef public bytearray validity, offsets, data
    cdef public bytes refused

    @cython.locals(format=int, data=bytearray, done=int, before=Py_ssize_t)
    cpdef bint put(self, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1
    cpdef int put_null(self) except -1

cdef class Groups:
    cdef public Py_ssize_t count, nulls
    cdef public bytearray validity, offsets

    cpdef int put(self, Py_ssize_t end) except -1
    cpdef int put_null(self, Py_ssize_t end) except -1

cpdef bytearray spread(bytearray data, int width, bytearray places)
@cython.locals(out=Target, src=bytes, ends=bytes, wanted=bytes, index=Py_ssize_t, place=Py_ssize_t)
cpdef Target spread_texts(Target texts, Py_ssize_t width, bytearray places)

cdef int _slot(int format, int width) except -1
cdef int _put_end(bytearray offsets, Py_ssize_t end) except -1
cdef int _all_valid(bytearray bitmap, Py_ssize_t count) except -1
