cimport canal_ha.decode.kernel.primitives as p
cimport cython
from libc.stdint cimport int64_t, uint64_t

cdef uint64_t _DOUBLE_FRACTION
cdef int _SHORT_DECIMALS
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
cpdef bytes double_text(bytes src, Py_ssize_t at)
cpdef bytes float_text(bytes src, Py_ssize_t at)
@cython.locals(bits=uint64_t, exponent=int, fraction=uint64_t, value=double)
cpdef int put_double(bytearray text, bytes src, Py_ssize_t at) except -1
@cython.locals(bits=uint64_t, exponent=int, fraction=uint64_t, value=double)
cpdef int put_float(bytearray text, bytes src, Py_ssize_t at) except -1
@cython.locals(scale=int64_t, decimals=int, digits=int64_t, back=double)
cdef bint _put_short(bytearray text, double value, bint negative, bint is_single) except -1
@cython.locals(
    stop=Py_ssize_t, dot=Py_ssize_t, first=Py_ssize_t, last=Py_ssize_t, point=Py_ssize_t, index=Py_ssize_t, byte=int,
    count=Py_ssize_t
)
cdef int _put_layout(bytearray text, bytes raw) except -1
@cython.locals(index=Py_ssize_t, at=Py_ssize_t)
cdef int _put_some(
    bytearray text, bytes raw, Py_ssize_t first, Py_ssize_t dot, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count
) except -1
