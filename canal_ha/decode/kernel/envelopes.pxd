cimport canal_ha.decode.kernel.codes as k
cimport canal_ha.decode.kernel.layouts as ly
cimport canal_ha.decode.kernel.primitives as p
cimport canal_ha.decode.kernel.queue_rows as q
cimport canal_ha.decode.kernel.texts as t
cimport cython
from cpython.array cimport array as c_array
from libc.stdint cimport int64_t, uint64_t

cdef int _MINUS, _POINT, _ZERO, _COLON, _QUOTE, _CREATE, _UPDATE, _DELETE, _READ
cdef int64_t _INT_MAX
cdef uint64_t _ALL
cdef Py_ssize_t _SAFE_DIGITS, _MOST_DIGITS, _REMEMBERED, _SHORT
cdef bytes _CALL
cdef str _DIFFERENT

cdef class ColumnForm:
    cdef public int form
    cdef public bytes label, null
    cdef public object convert
    cdef public dict known
    cdef public Py_ssize_t size, scale

cdef class Pieces:
    cdef public bint avro
    cdef public bytes start, absent, image, image_end, between, row_end, key, key_end

cdef class MessageShape:
    cdef public Pieces pieces
    cdef public list old, new, sources, old_key, new_key, compared

cdef class Envelopes:
    cdef MessageShape _shape
    cdef bytes _middle, _end, _src
    cdef bytearray _text
    cdef bint _tombstones
    cdef int64_t _hashed, _count
    cdef list _old_columns, _new_columns
    cdef public list keys, values, partitions

    @cython.locals(before=object, after=object, old=list, new=list, row=Py_ssize_t, changed=bint)
    cpdef write(self, bytes src, c_array places, ly.Images images, int event, bint snapshot)
    @cython.locals(found=list, place=Py_ssize_t)
    cdef list _new(self, list old, list after)
    @cython.locals(shape=MessageShape, index=Py_ssize_t, place=Py_ssize_t)
    cdef bint _moved(self, list old, list new) except -1
    @cython.locals(shape=MessageShape, pieces=Pieces, text=bytearray)
    cdef int _put(self, int op, Py_ssize_t row, list old, list new) except -1
    @cython.locals(key=bytes, partition=Py_ssize_t)
    cdef int _keyed(self, int op, list image, list forms, list places, list counted) except -1
    @cython.locals(pieces=Pieces, text=bytearray, index=Py_ssize_t)
    cdef int _put_image(self, list columns, list forms) except -1
    @cython.locals(pieces=Pieces, text=bytearray, first=bint, place=Py_ssize_t)
    cdef bytes _key(self, list columns, list forms, list places)
    @cython.locals(src=bytes, hashed=uint64_t, place=Py_ssize_t, column=ly.ColumnLayout)
    cdef int64_t _partition(self, list columns, list places) except -1
    @cython.locals(
        text=bytearray, src=bytes, start=Py_ssize_t, stop=Py_ssize_t, avro=bint, skip=Py_ssize_t, at=Py_ssize_t,
        done=bint, converted=bytes
    )
    cdef int _put_value(self, ly.ColumnLayout column, ColumnForm form, bint first) except -1

@cython.locals(text=bytes, found=bytes)
cdef bytes _converted(bytes src, Py_ssize_t start, Py_ssize_t stop, ColumnForm form)
@cython.locals(kind=int, found=int, number=int64_t)
cdef bint _put_json(bytearray text, bytes src, Py_ssize_t start, Py_ssize_t stop, ColumnForm form) except -1
@cython.locals(kind=int, found=int, number=int64_t, at=Py_ssize_t)
cdef bint _put_avro(bytearray text, bytes src, Py_ssize_t start, Py_ssize_t stop, ColumnForm form) except -1
@cython.locals(found=int, number=int64_t)
cdef (int, int64_t) _temporal(int kind, bytes src, Py_ssize_t start, Py_ssize_t stop) noexcept
cdef bint _is_bit(bytes src, Py_ssize_t start, Py_ssize_t stop) noexcept
cdef bint _is_call(bytes src, Py_ssize_t start, Py_ssize_t stop) noexcept
@cython.locals(first=Py_ssize_t, digits=Py_ssize_t)
cdef bint _put_verbatim(bytearray text, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1
@cython.locals(first=Py_ssize_t, whole=Py_ssize_t, point=Py_ssize_t, decimals=Py_ssize_t)
cdef bint _put_real(bytearray text, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1
@cython.locals(found=int, number=int64_t, size=Py_ssize_t, left=uint64_t)
cdef bint _put_decimal(
    bytearray text, bytes src, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t precision, Py_ssize_t scale
) except -1
@cython.locals(at=Py_ssize_t, held=Py_ssize_t)
cdef bint _put_binary(bytearray text, bytes src, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t size) except -1
@cython.locals(found=int, _=int64_t, at=Py_ssize_t)
cdef bint _put_zoned(bytearray text, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1
@cython.locals(negative=bint, hours=Py_ssize_t, at=Py_ssize_t, number=int64_t, decimals=Py_ssize_t)
cdef (int, int64_t) _clock(bytes src, Py_ssize_t start, Py_ssize_t stop) noexcept
@cython.locals(negative=bint, whole=Py_ssize_t, at=Py_ssize_t, number=int64_t)
cdef (int, int64_t) _whole(bytes src, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t scale) noexcept
@cython.locals(at=Py_ssize_t)
cdef Py_ssize_t _digits(bytes src, Py_ssize_t start, Py_ssize_t stop) noexcept
@cython.locals(number=int64_t, at=Py_ssize_t)
cdef int64_t _number(bytes src, Py_ssize_t start, Py_ssize_t stop) noexcept
@cython.locals(number=int64_t, _=Py_ssize_t)
cdef int64_t _power(Py_ssize_t exponent) noexcept
