cimport canal_ha.decode.kernel.buffers as b
cimport canal_ha.decode.kernel.codes as k
cimport canal_ha.decode.kernel.primitives as p
cimport canal_ha.decode.kernel.texts as t
cimport cython

cdef Py_ssize_t _LARGEST_OFFSET

cdef class Target:
    cdef public int format, width, precision, scale
    cdef public Py_ssize_t size, count, nulls, rows, room
    cdef public bytearray validity, offsets, data
    cdef public bytes refused

    cpdef int leave(self) except -1
    cpdef int expect(self, Target other) except -1
    @cython.locals(again=Target)
    cpdef Target renewed(self, b.Spares spares)
    @cython.locals(format=int, data=bytearray, done=int, before=Py_ssize_t)
    cpdef bint put(self, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1
    cpdef int put_null(self) except -1

cdef class Groups:
    cdef public Py_ssize_t count, nulls
    cdef public bytearray validity, offsets

    cpdef int put(self, Py_ssize_t end) except -1
    cpdef int put_null(self, Py_ssize_t end) except -1

cpdef bytearray spread(bytearray data, int width, bytearray places, b.Spares spares)
@cython.locals(out=Target, size=Py_ssize_t)
cpdef Target spread_texts(Target texts, int width, bytearray places, b.Spares spares)

cdef int _slot(int format, int width) except -1
cdef int _put_end(bytearray offsets, Py_ssize_t end) except -1
cdef int _all_valid(bytearray bitmap, Py_ssize_t count) except -1
