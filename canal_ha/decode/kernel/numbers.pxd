cimport canal_ha.decode.kernel.primitives as p
cimport cython
from libc.stdint cimport uint64_t

cdef tuple _POWERS, _INSIGNIFICANT, _FIVE_BITS

cdef int _group_size(int digits) noexcept
cpdef int decimal_size(int precision, int decimals) noexcept
cpdef bytes decimal_text(bytes src, Py_ssize_t at, int precision, int decimals)
@cython.locals(
    negative=bint, sign_at=Py_ssize_t, zero=bint, pos=Py_ssize_t, left=int, digits=int, value=uint64_t,
    fraction_at=Py_ssize_t
)
cpdef int put_decimal(bytearray text, bytes src, Py_ssize_t at, int precision, int decimals) except -1
@cython.locals(bits=int, value=uint64_t)
cdef uint64_t _group(bytes src, Py_ssize_t at, Py_ssize_t pos, int digits, bint negative) except? 4294967295
@cython.locals(bits=uint64_t, exponent=int, fraction=uint64_t)
cpdef bytes double_text(bytes src, Py_ssize_t at)
@cython.locals(bits=uint64_t, exponent=int, fraction=uint64_t)
cpdef bytes float_text(bytes src, Py_ssize_t at)
