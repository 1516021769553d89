cimport canal_ha.decode.kernel.primitives as p
cimport cython
from cpython.array cimport array as c_array
from libc.stdint cimport int64_t, uint64_t

cdef c_array _offsets
cdef int64_t _MINUTES

cpdef int fraction_size(int decimals) noexcept nogil
cdef int64_t _scale(int decimals) noexcept nogil
@cython.locals(size=Py_ssize_t)
cdef int _put_fraction(bytearray text, int64_t stored, int decimals) except -1 nogil
@cython.locals(value=int64_t)
cpdef int put_date(bytearray text, bytes src, Py_ssize_t at) except -1 nogil
@cython.locals(packed=int64_t)
cpdef int put_datetime2(bytearray text, bytes src, Py_ssize_t at, int decimals) except -1 nogil
@cython.locals(month=int64_t)
cpdef int put_packed_datetime(bytearray text, int64_t packed) except -1 nogil
cpdef int put_timestamp2(bytearray text, bytes src, Py_ssize_t at, int decimals, bint utc=*) except -1 nogil
cpdef int put_seconds(bytearray text, int64_t seconds, bint utc=*) except -1 nogil
@cython.locals(minute=int64_t, known=int64_t)
cdef int _put_local(bytearray text, int64_t seconds) except -1 nogil
@cython.locals(day=int64_t, rest=uint64_t)
cdef int _put_moment(bytearray text, int64_t seconds) except -1 nogil
cdef int64_t _east(int64_t seconds) except? -1 with gil
@cython.locals(era=uint64_t, years=uint64_t, month=uint64_t, day=uint64_t)
cdef int _put_day(bytearray text, uint64_t days) except -1 nogil
@cython.locals(bits=int, value=int64_t)
cpdef int put_time2(bytearray text, bytes src, Py_ssize_t at, int decimals) except -1 nogil
cpdef int put_packed_time(bytearray text, int64_t packed) except -1 nogil
@cython.locals(value=uint64_t, day=uint64_t, time=uint64_t)
cpdef int put_datetime(bytearray text, bytes src, Py_ssize_t at) except -1 nogil
@cython.locals(value=int64_t)
cpdef int put_time(bytearray text, bytes src, Py_ssize_t at) except -1 nogil
cpdef int put_year(bytearray text, int value) except -1 nogil
