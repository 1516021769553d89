cimport canal_ha.decode.kernel.primitives as p
cimport cython
from libc.stdint cimport int64_t, uint64_t

cdef uint64_t _DOUBLE_FRACTION
cdef int _SHORT_DECIMALS
cdef tuple _INSIGNIFICANT, _FIVE_BITS

cdef int _group_size(int digits) noexcept nogil
@cython.locals(whole=int)
cpdef int decimal_size(int precision, int decimals) noexcept nogil
cpdef bytes decimal_text(bytes src, Py_ssize_t at, int precision, int decimals)
@cython.locals(
    negative=bint, sign_at=Py_ssize_t, zero=bint, pos=Py_ssize_t, left=int, digits=int, value=uint64_t,
    fraction_at=Py_ssize_t
)
cpdef int put_decimal(bytearray text, bytes src, Py_ssize_t at, int precision, int decimals) except -1 nogil
@cython.locals(bits=int, value=uint64_t)
cdef uint64_t _group(
    bytes src, Py_ssize_t at, Py_ssize_t pos, int digits, bint negative
) except? 4294967295 nogil
cpdef bytes double_text(bytes src, Py_ssize_t at)
cpdef bytes float_text(bytes src, Py_ssize_t at)
@cython.locals(bits=uint64_t, exponent=int, fraction=uint64_t, value=double, digits=uint64_t, tens=int)
cpdef int put_double(bytearray text, bytes src, Py_ssize_t at) except -1 nogil
@cython.locals(bits=uint64_t, exponent=int, fraction=uint64_t, value=double, digits=uint64_t, tens=int)
cpdef int put_float(bytearray text, bytes src, Py_ssize_t at) except -1 nogil
@cython.locals(scale=int64_t, decimals=int, digits=int64_t, back=double)
cdef bint _put_short(bytearray text, double value, bint negative, bint is_single) except -1 nogil
@cython.locals(count=int, point=int, after=int, unit=uint64_t)
cdef int _put_layout(bytearray text, bint negative, uint64_t digits, int tens) except -1 nogil
cdef int _put_exact(
    bytearray text, bint negative, int exponent, uint64_t fraction, int bias, int width
) except -1 with gil
