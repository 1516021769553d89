cimport canal_ha.decode.kernel.kinds as k
cimport canal_ha.decode.kernel.primitives as p
cimport canal_ha.decode.kernel.temporal as temporal
cimport canal_ha.decode.kernel.texts as t
cimport cython
from libc.stdint cimport int64_t, uint64_t

cdef Py_ssize_t _FULL_PACKET
cdef int _DOCUMENT, _NULL, _MINUS, _POINT, _ZERO, _COLON, _DASH, _SPACE
cdef Py_ssize_t _LENGTH_AT
cdef int _ERROR_FIRST, _END_FIRST, _MORE, _END, _ERROR
cdef Py_ssize_t _END_BYTES_MOST
cdef int64_t _EPOCH, _TIMESTAMP_MAX

@cython.final
cdef class RowPackets:
    cdef readonly Py_ssize_t at, count, last, started

    @cython.locals(at=Py_ssize_t, size=Py_ssize_t, first=int)
    cpdef int scan(self, bytearray data, Py_ssize_t stop, Py_ssize_t most) except -1

@cython.final
cdef class RowImages:
    cdef bytes kinds, sizes, precisions, decimals, stripped, no_nulls, head
    cdef object documents
    cdef Py_ssize_t width

    @cython.locals(count=Py_ssize_t)
    cpdef Py_ssize_t events(self, bytes rows, skip, bytes head, Py_ssize_t size, bytearray out) except -1
    @cython.locals(
        pos=Py_ssize_t, number=Py_ssize_t, count=Py_ssize_t, start=Py_ssize_t, stop=Py_ssize_t, after=Py_ssize_t
    )
    cdef Py_ssize_t _events(self, bytes rows, bytearray skip, Py_ssize_t size, bytearray out) except -1 nogil
    @cython.locals(size=Py_ssize_t)
    cdef Py_ssize_t _behind(self, bytes rows, Py_ssize_t pos, Py_ssize_t stop) except -1 nogil
    @cython.locals(size=int64_t, index=int)
    cdef int _end(self, bytearray out, Py_ssize_t start) except -1 nogil
    @cython.locals(row=bytearray, size=Py_ssize_t)
    cdef int _wide(self, bytes rows, Py_ssize_t pos, Py_ssize_t after, bytearray out) except -1 with gil
    @cython.locals(nulls=Py_ssize_t, index=Py_ssize_t, size=int64_t, at=Py_ssize_t, width=int)
    cdef int _row(self, bytes src, Py_ssize_t pos, Py_ssize_t stop, bytearray out) except -1 nogil
    @cython.locals(kind=int, size=int, decimals=int)
    cdef int _put(self, Py_ssize_t index, bytes src, Py_ssize_t start, Py_ssize_t stop, bytearray out) except -1 nogil
    @cython.locals(document=bytes)
    cdef int _put_document(self, bytes src, Py_ssize_t start, Py_ssize_t stop, bytearray out) except -1 with gil

@cython.locals(value=int64_t, at=Py_ssize_t, digit=int)
cdef int64_t _number(bytes src, Py_ssize_t start, Py_ssize_t stop) noexcept nogil
@cython.locals(negative=bint, last=int64_t, first=int64_t)
cdef int _put_integer(
    bytes src, Py_ssize_t start, Py_ssize_t stop, int size, bint is_bit, bytearray out
) except -1 nogil
@cython.locals(
    negative=bint, point=Py_ssize_t, left=int, at=Py_ssize_t, sign_at=Py_ssize_t, digits=int, end=Py_ssize_t
)
cdef int _put_decimal(
    bytes src, Py_ssize_t start, Py_ssize_t stop, int precision, int decimals, bytearray out
) except -1 nogil
@cython.locals(value=int64_t, size=int)
cdef int _put_group(
    bytes src, Py_ssize_t start, Py_ssize_t stop, int zeros, int digits, bint negative, bytearray out
) except -1 nogil
@cython.locals(value=int64_t)
cdef int64_t _fraction(bytes src, Py_ssize_t start, Py_ssize_t stop, int decimals) noexcept nogil
@cython.locals(year=int64_t, month=int64_t, day=int64_t)
cdef int64_t _date(bytes src, Py_ssize_t at) noexcept nogil
@cython.locals(minute=int64_t, second=int64_t)
cdef int64_t _clock(bytes src, Py_ssize_t at) noexcept nogil
@cython.locals(date=int64_t, hour=int64_t, time=int64_t)
cdef int64_t _moment(bytes src, Py_ssize_t start, Py_ssize_t stop) noexcept nogil
@cython.locals(value=int64_t)
cdef int _put_date(bytes src, Py_ssize_t start, Py_ssize_t stop, bytearray out) except -1 nogil
@cython.locals(moment=int64_t, fraction=int64_t, year=int64_t, month=int64_t, packed=int64_t)
cdef int _put_datetime(bytes src, Py_ssize_t start, Py_ssize_t stop, int decimals, bytearray out) except -1 nogil
@cython.locals(moment=int64_t, fraction=int64_t, seconds=int64_t, year=int64_t, month=int64_t, day=int64_t)
cdef int _put_timestamp(bytes src, Py_ssize_t start, Py_ssize_t stop, int decimals, bytearray out) except -1 nogil
cdef int64_t _days(int64_t year, int64_t month, int64_t day) noexcept nogil
@cython.locals(negative=bint, colon=Py_ssize_t, hours=int64_t, clock=int64_t, fraction=int64_t, bits=int, value=int64_t)
cdef int _put_time(bytes src, Py_ssize_t start, Py_ssize_t stop, int decimals, bytearray out) except -1 nogil
@cython.locals(year=int64_t)
cdef int _put_year(bytes src, Py_ssize_t start, Py_ssize_t stop, bytearray out) except -1 nogil
