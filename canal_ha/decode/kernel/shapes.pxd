cimport canal_ha.decode.kernel.codes as k
cimport canal_ha.decode.kernel.columns as c
cimport canal_ha.decode.kernel.layouts as ly
cimport canal_ha.decode.kernel.repeats as r
cimport cython
from cpython.array cimport array as c_array

cdef int _BEFORE, _AFTER

cdef class RowShape:
    cdef public ly.Layout before, after
    cdef public Py_ssize_t first, learned, refused
    cdef list _targets, _kept
    cdef bytearray _room

    @cython.locals(room=bytearray, targets=list, target=c.Target, first=Py_ssize_t, index=Py_ssize_t)
    cpdef Py_ssize_t put(self, bytes src, c_array rows, Py_ssize_t row, Py_ssize_t count) except -1
