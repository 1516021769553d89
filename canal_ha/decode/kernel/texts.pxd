# The functions of texts.py in C, with the same names and results. Positions are not checked, as in primitives.pxd.

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.math cimport isinf
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

cdef extern from "primitives.h":
    char *kernel_extend(bytearray out, Py_ssize_t size) except NULL nogil
    void kernel_truncate(bytearray out, Py_ssize_t size) noexcept
    void kernel_copy(char *to, const char *start, Py_ssize_t size) noexcept nogil
    bint kernel_is_ascii(const unsigned char *at, Py_ssize_t size) noexcept
    char *kernel_repeat(char *to, const char *start, Py_ssize_t size, Py_ssize_t count) noexcept nogil

cdef extern from "texts.h":
    int kernel_integer(const unsigned char *at, Py_ssize_t size, int64_t *value) noexcept
    int kernel_decimal(
        const unsigned char *at, Py_ssize_t size, int precision, int scale, unsigned char *to
    ) noexcept
    int kernel_short_double(const unsigned char *at, Py_ssize_t size, double *value) noexcept nogil
    int kernel_long_double(const unsigned char *at, Py_ssize_t size, double *value) noexcept nogil
    int kernel_day(const unsigned char *at, int64_t *days) noexcept
    int kernel_instant(const unsigned char *at, Py_ssize_t size, int64_t *value) noexcept
    Py_ssize_t kernel_narrow(unsigned char *to, const unsigned char *at, Py_ssize_t size) noexcept

cdef extern from "Python.h":
    char *PyBytes_AS_STRING(bytes data) noexcept nogil
    double PyOS_string_to_double(const char *text, char **stop, void *overflow) except? -1.0

ctypedef unsigned char byte

cdef enum:
    NOTHING = 2

cdef inline const byte *_at(bytes src, Py_ssize_t at) noexcept nogil:
    return <const byte *>PyBytes_AS_STRING(src) + at

# ---- numbers of protobuf

cdef inline int64_t int64(uint64_t value) noexcept:
    return <int64_t>value

cdef inline int64_t int32(uint64_t value) noexcept:
    return <int64_t><int32_t>value

# ---- fixed sizes: this machine has Arrow's byte order

cdef inline int _put(bytearray out, const void *value, Py_ssize_t size) except -1 nogil:
    memcpy(kernel_extend(out, size), value, size)
    return 0

cdef inline bint put_ended(bytearray out, bytearray ends, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1:
    cdef Py_ssize_t end = PyByteArray_GET_SIZE(out) + stop - start
    if end > 0x7FFFFFFF:
        return False
    kernel_copy(kernel_extend(out, stop - start), <const char *>_at(src, start), stop - start)
    put_i32(ends, end)
    return True

cdef inline int put_zeros(bytearray out, Py_ssize_t size) except -1:
    memset(kernel_extend(out, size), 0, size)
    return 0

cdef inline int put_i8(bytearray out, int value) except -1:
    kernel_extend(out, 1)[0] = <char>value
    return 0

cdef inline int put_i32(bytearray out, int64_t value) except -1:
    cdef int32_t narrow = <int32_t>value
    return _put(out, &narrow, 4)

cdef inline int put_i64(bytearray out, int64_t value) except -1:
    return _put(out, &value, 8)

cdef inline int put_marks(
    bytearray ops, bytearray rows, bytearray places, int op, Py_ssize_t row, Py_ssize_t place, Py_ssize_t count
) except -1:
    cdef char *to_rows
    cdef char *to_places
    cdef int32_t narrow
    cdef Py_ssize_t index
    memset(kernel_extend(ops, count), op, count)
    to_rows = kernel_extend(rows, 4 * count)
    to_places = kernel_extend(places, 4 * count)
    for index in range(count):
        narrow = <int32_t>(row + index)
        memcpy(to_rows + 4 * index, &narrow, 4)
        narrow = <int32_t>place
        memcpy(to_places + 4 * index, &narrow, 4)
    return 0

cdef inline int put_integer(bytearray out, bytes src, Py_ssize_t start, Py_ssize_t stop, int size) except -1:
    cdef int64_t value = 0
    cdef int8_t b1
    cdef int16_t b2
    cdef int32_t b4
    if not kernel_integer(_at(src, start), stop - start, &value):
        return False
    if size == 4:
        b4 = <int32_t>value
        if b4 != value:
            return False
        _put(out, &b4, 4)
    elif size == 8:
        _put(out, &value, 8)
    elif size == 2:
        b2 = <int16_t>value
        if b2 != value:
            return False
        _put(out, &b2, 2)
    else:
        b1 = <int8_t>value
        if b1 != value:
            return False
        _put(out, &b1, 1)
    return True

cdef inline int put_decimal(
    bytearray out, bytes src, Py_ssize_t start, Py_ssize_t stop, int precision, int scale
) except -1:
    cdef byte[16] b
    if not kernel_decimal(_at(src, start), stop - start, precision, scale, b):
        return False
    _put(out, b, 16)
    return True

cdef inline int _number(bytes src, Py_ssize_t start, Py_ssize_t stop, double *value) except -1 nogil:
    """A finite number of digits, a sign, a point and an exponent."""
    cdef const byte *b = _at(src, 0)
    cdef Py_ssize_t index
    if stop == start:
        return False
    if kernel_short_double(b + start, stop - start, value):
        return True
    for index in range(start, stop):
        if not (48 <= b[index] <= 57 or b[index] in (43, 45, 46, 69, 101)):
            return False
    if not kernel_long_double(b + start, stop - start, value) and not _any_number(src, start, stop, value):
        return False
    return not isinf(value[0])

cdef inline int _any_number(bytes src, Py_ssize_t start, Py_ssize_t stop, double *value) except -1 with gil:
    try:
        value[0] = PyOS_string_to_double(src[start:stop], NULL, NULL)
    except ValueError:
        return False
    return True

cdef inline int put_double(bytearray out, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1 nogil:
    cdef double value
    if not _number(src, start, stop, &value):
        return False
    _put(out, &value, 8)
    return True

cdef inline int put_single(bytearray out, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1 nogil:
    cdef double value
    cdef float narrow
    if not _number(src, start, stop, &value):
        return False
    narrow = <float>value
    if isinf(narrow):
        return False
    _put(out, &narrow, 4)
    return True

cdef inline int put_day(bytearray out, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1:
    cdef int64_t days = 0
    cdef int found = kernel_day(_at(src, start), &days) if stop - start == 10 else 0
    if found == 1:
        put_i32(out, days)
    return found

cdef inline int put_instant(bytearray out, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1:
    cdef int64_t value = 0
    cdef int found = kernel_instant(_at(src, start), stop - start, &value)
    if found == 1:
        _put(out, &value, 8)
    return found

cdef inline (int, int64_t) day(bytes src, Py_ssize_t start, Py_ssize_t stop) noexcept:
    cdef int64_t days = 0
    cdef int found = kernel_day(_at(src, start), &days) if stop - start == 10 else 0
    return found, days

cdef inline (int, int64_t) instant(bytes src, Py_ssize_t start, Py_ssize_t stop) noexcept:
    cdef int64_t value = 0
    cdef int found = kernel_instant(_at(src, start), stop - start, &value)
    return found, value

cdef inline Py_ssize_t _run(const char *places, int width, Py_ssize_t index, Py_ssize_t count) noexcept nogil:
    """Return where the run of places that are equal to the one at `index` ends."""
    cdef Py_ssize_t stop = index + 1
    if width == 1:
        while stop < count and places[stop] == places[index]:
            stop += 1
    else:
        while stop < count and memcmp(places + 4 * stop, places + 4 * index, 4) == 0:
            stop += 1
    return stop

cdef inline int32_t _place(const char *places, int width, Py_ssize_t index) noexcept nogil:
    cdef int32_t place = places[index]
    if width == 4:
        memcpy(&place, places + 4 * index, 4)
    return place

cdef inline int put_places(bytearray out, bytearray data, int width, bytearray places) except -1:
    cdef Py_ssize_t size = PyByteArray_GET_SIZE(data) // width, count = PyByteArray_GET_SIZE(places) >> 2
    cdef Py_ssize_t index = 0, stop
    cdef const char *values = PyByteArray_AS_STRING(data)
    cdef const char *at = PyByteArray_AS_STRING(places)
    cdef char *to = kernel_extend(out, width * count)
    cdef int32_t place, narrow
    cdef int64_t wide
    while index < count:
        place = _place(at, 4, index)
        if place < 0 or place >= size:
            raise IndexError
        stop = _run(at, 4, index, count)
        if width == 4:
            memcpy(&narrow, values + 4 * place, 4)
            for index in range(index, stop):
                memcpy(to + 4 * index, &narrow, 4)
        else:
            memcpy(&wide, values + 8 * place, 8)
            for index in range(index, stop):
                memcpy(to + 8 * index, &wide, 8)
        index = stop
    return 0

cdef inline Py_ssize_t places_size(bytearray offsets, bytearray places, int width) except -1:
    cdef Py_ssize_t size = (PyByteArray_GET_SIZE(offsets) >> 2) - 1, count = PyByteArray_GET_SIZE(places) // width
    cdef Py_ssize_t index = 0, stop, total = 0
    cdef const char *ends = PyByteArray_AS_STRING(offsets)
    cdef const char *at = PyByteArray_AS_STRING(places)
    cdef int32_t place
    cdef int32_t[2] around
    while index < count:
        place = _place(at, width, index)
        if place < 0 or place >= size:
            raise IndexError
        stop = _run(at, width, index, count)
        memcpy(around, ends + 4 * place, 8)
        total += (stop - index) * (around[1] - around[0])
        index = stop
    return total

cdef inline int put_text_places(
    bytearray out, bytearray ends, bytearray data, bytearray offsets, bytearray places, int width, Py_ssize_t size
) except -1:
    cdef Py_ssize_t count = PyByteArray_GET_SIZE(places) // width, index = 0, stop, length
    cdef char *to = kernel_extend(out, size)
    cdef char *to_ends = kernel_extend(ends, 4 * count)
    cdef const char *texts = PyByteArray_AS_STRING(data)
    cdef const char *known = PyByteArray_AS_STRING(offsets)
    cdef const char *at = PyByteArray_AS_STRING(places)
    cdef int32_t place, end = 0
    cdef int32_t[2] around
    while index < count:
        place = _place(at, width, index)
        stop = _run(at, width, index, count)
        memcpy(around, known + 4 * place, 8)
        length = around[1] - around[0]
        if length:
            to = kernel_repeat(to, texts + around[0], length, stop - index)
        for index in range(index, stop):
            end += <int32_t>length
            memcpy(to_ends + 4 * index, &end, 4)
        index = stop
    return 0

# ---- texts and bytes

cdef inline int put_narrow(bytearray out, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1:
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(out)
    cdef Py_ssize_t size = stop - start
    cdef char *to = kernel_extend(out, size)
    if kernel_is_ascii(_at(src, start), size):
        kernel_copy(to, <const char *>_at(src, start), size)
        return True
    size = kernel_narrow(<byte *>to, _at(src, start), size)
    kernel_truncate(out, before + (size if size > 0 else 0))
    return size >= 0

cdef inline str as_text(bytes src, Py_ssize_t start, Py_ssize_t stop):
    return PyUnicode_DecodeUTF8(<const char *>_at(src, start), stop - start, NULL)

cdef inline object as_integer(bytes src, Py_ssize_t start, Py_ssize_t stop):
    cdef int64_t value = 0
    if kernel_integer(_at(src, start), stop - start, &value):
        return value
    text = as_text(src, start, stop)
    try:
        return int(text)
    except ValueError:
        return text

cdef inline int mark(bytearray bitmap, Py_ssize_t index, bint valid) except -1:
    if index >> 3 == PyByteArray_GET_SIZE(bitmap):
        kernel_extend(bitmap, 1)[0] = 0
    if valid:
        PyByteArray_AS_STRING(bitmap)[index >> 3] |= <char>(1 << (index & 7))
    return 0
