cimport canal_ha.decode.kernel.reuse as r
cimport cython

cdef Py_ssize_t _SMALL, _LARGE, _MESSAGES, _COLUMNS

cdef class Landing:
    cdef list _held
    cdef bytes _room

    cpdef object begin(self, Py_ssize_t size)
    @cython.locals(room=bytes)
    cpdef bytes finish(self)

cdef class Spares:
    cdef list _held

    cpdef bytearray take(self, Py_ssize_t size)
