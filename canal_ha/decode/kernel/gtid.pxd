cimport canal_ha.decode.kernel.primitives as p
cimport cython
from libc.stdint cimport int64_t, uint64_t

cdef class _Intervals:
    cdef public list spans

@cython.final
cdef class Gtids:
    cdef public bytearray executed, field, props
    cdef dict _sources, _domains
    cdef object _moving, _moves
    cdef bytes _source, _uuid, _before, _after
    cdef bytearray _item
    cdef uint64_t _number
    cdef int64_t _domain

    @cython.locals(number=uint64_t, committed=uint64_t, sequence=uint64_t)
    cdef int transaction(self, bytes src, Py_ssize_t body, Py_ssize_t stop) except -1 nogil
    @cython.locals(source=bytes)
    cdef int _odd(self, bytes src, Py_ssize_t body, uint64_t number) except -1 with gil
    cdef int _settle(self) except -1
    cdef int _enter(self, int64_t domain) except -1 with gil
    cpdef int mariadb(self, int64_t domain, int64_t server_id, uint64_t sequence) except -1 nogil
    cdef int _write(self, uint64_t number) except -1 nogil
    cdef int _show(self, bytearray moved) except -1 nogil
    @cython.locals(size=Py_ssize_t)
    cdef int _tell(self, bytes source, uint64_t number, uint64_t last_committed, uint64_t sequence) except -1 nogil

cdef int _put_key(bytearray props, bytes key, int length, Py_ssize_t size) except -1 nogil
