cimport canal_ha.decode.kernel.codes as k
cimport canal_ha.decode.kernel.layouts as ly
cimport canal_ha.decode.kernel.primitives as p
cimport canal_ha.decode.kernel.texts as t
cimport cython
from cpython.array cimport array as c_array
from libc.stdint cimport uint64_t

cdef Py_ssize_t _QUOTE, _BACKSLASH
cdef uint64_t _ALL
cdef bytes _NAMED, _DIGITS
cdef str _DIFFERENT

@cython.locals(
    found=list, text=bytearray, names=object, row=Py_ssize_t, layout=ly.Layout, index=Py_ssize_t
)
cpdef list row_objects(bytes src, c_array places, ly.Images images, bint deleted, list labels)
@cython.locals(
    found=list, text=bytearray, updated=bytearray, before=object, after=object, row=Py_ssize_t, old=list, new=list,
    index=Py_ssize_t, place=Py_ssize_t
)
cpdef list old_objects(bytes src, c_array places, ly.Images images, list now, list labels)
@cython.locals(
    found=list, names=object, row=Py_ssize_t, layout=ly.Layout, hashed=uint64_t, index=Py_ssize_t, column=ly.ColumnLayout
)
cpdef list row_hashes(bytes src, c_array places, ly.Images images, bint deleted, list columns)
@cython.locals(found=uint64_t, byte=uint64_t, unit=uint64_t, size=Py_ssize_t)
cdef uint64_t java_hash(bytes src, Py_ssize_t start, Py_ssize_t stop) noexcept nogil
@cython.locals(size=Py_ssize_t)
cdef bint same_value(bytes src, ly.ColumnLayout one, ly.ColumnLayout other) noexcept
cdef int put_string(bytearray text, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1
cdef int _put_member(bytearray text, bytes src, ly.ColumnLayout column, bytes label, bint first) except -1
@cython.locals(at=Py_ssize_t, byte=Py_ssize_t)
cdef int _put_escaped(bytearray text, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1
