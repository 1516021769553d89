# The primitives in C. Same names, same results as in primitives.py; what is here is what hot modules call.
# Readers trust the position they are given, as their interpreted versions do not: callers check first.

from cpython.array cimport array as c_array, resize_smart
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free
from cpython.object cimport Py_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memmove

cdef extern from "primitives.h":
    char *kernel_extend(bytearray out, Py_ssize_t size) except NULL
    void kernel_truncate(bytearray out, Py_ssize_t size) noexcept
    char *kernel_digits(char *end, uint64_t value) noexcept
    void kernel_copy(char *to, const char *start, Py_ssize_t size) noexcept
    void kernel_two_digits(char *to, uint64_t value) noexcept
    Py_ssize_t kernel_digits_size(uint64_t value) noexcept
    bint kernel_copy_ascii(char *to, const char *start, Py_ssize_t size) noexcept
    bint kernel_is_ascii(const unsigned char *at, Py_ssize_t size) noexcept
    bint kernel_is_utf8(const unsigned char *at, Py_ssize_t size) noexcept
    Py_ssize_t kernel_latin1_size(const unsigned char *at, Py_ssize_t size) noexcept
    void kernel_latin1(char *to, const unsigned char *at, Py_ssize_t size) noexcept
    bint kernel_is_plain(const unsigned char *at, Py_ssize_t size) noexcept
    Py_ssize_t kernel_quoted_size(const unsigned char *at, Py_ssize_t size) noexcept
    void kernel_quoted(char *to, const unsigned char *at, Py_ssize_t size) noexcept
    uint32_t kernel_crc32(const unsigned char *at, Py_ssize_t size) noexcept

cdef extern from "Python.h":
    int Py_DTSF_ADD_DOT_0
    char *PyOS_double_to_string(double value, char style, int precision, int flags, int *kind) except NULL
    double PyOS_string_to_double(const char *text, char **stop, void *overflow) except? -1.0

ctypedef unsigned char byte

# ---- reading

cdef inline const byte *_at(bytes src, Py_ssize_t at) noexcept:
    return <const byte *>PyBytes_AS_STRING(src) + at

cdef inline int64_t u16(bytes src, Py_ssize_t at) noexcept:
    cdef const byte *b = _at(src, at)
    return b[0] | b[1] << 8

cdef inline int64_t u24(bytes src, Py_ssize_t at) noexcept:
    cdef const byte *b = _at(src, at)
    return b[0] | b[1] << 8 | b[2] << 16

cdef inline int64_t u32(bytes src, Py_ssize_t at) noexcept:
    cdef const byte *b = _at(src, at)
    return <int64_t>b[0] | <int64_t>b[1] << 8 | <int64_t>b[2] << 16 | <int64_t>b[3] << 24

cdef inline int64_t u48(bytes src, Py_ssize_t at) noexcept:
    return u32(src, at) | u16(src, at + 4) << 32

cdef inline uint64_t little(bytes src, Py_ssize_t at, Py_ssize_t size) noexcept:
    cdef const byte *b = _at(src, at)
    cdef uint64_t value = 0
    while size:
        size -= 1
        value = value << 8 | b[size]
    return value

cdef inline uint64_t u64(bytes src, Py_ssize_t at) noexcept:
    return little(src, at, 8)

cdef inline int64_t signed(bytes src, Py_ssize_t at, Py_ssize_t size) noexcept:
    cdef int shift = <int>(64 - 8 * size)
    if size == 4:
        return <int64_t>(<uint64_t>u32(src, at) << 32) >> 32
    return <int64_t>(little(src, at, size) << shift) >> shift

cdef inline uint64_t big(bytes src, Py_ssize_t at, Py_ssize_t size) noexcept:
    cdef const byte *b = _at(src, at)
    cdef uint64_t value = 0
    cdef Py_ssize_t index
    for index in range(size):
        value = value << 8 | b[index]
    return value

cdef inline double f64(bytes src, Py_ssize_t at) noexcept:
    cdef uint64_t bits = little(src, at, 8)
    cdef double value
    memcpy(&value, &bits, 8)
    return value

cdef inline double f32(bytes src, Py_ssize_t at) noexcept:
    cdef uint32_t bits = <uint32_t>u32(src, at)
    cdef float value
    memcpy(&value, &bits, 4)
    return value

cdef inline double as_single(double value) noexcept:
    return <double><float>value

cdef inline int64_t nearest(double value) noexcept:
    return <int64_t>(value + 0.5)

cdef inline bytes shortest(double value):
    return _formatted(value, b"r", 0)

cdef inline bytes _formatted(double value, char style, int precision):
    cdef char *text = PyOS_double_to_string(value, style, precision, Py_DTSF_ADD_DOT_0 if style == b"r" else 0, NULL)
    try:
        return text
    finally:
        PyMem_Free(text)

cdef inline bytes shortest_single(double value):
    cdef int precision
    cdef bytes text
    for precision in range(5, 8):
        text = _formatted(value, b"e", precision)
        if as_single(PyOS_string_to_double(text, NULL, NULL)) == value:
            return text
    return _formatted(value, b"e", 8)

cdef inline uint64_t magnitude(int64_t value) noexcept:
    return -<uint64_t>value if value < 0 else <uint64_t>value

cdef inline uint64_t bit(int number) noexcept:
    return <uint64_t>1 << number

cdef inline (int64_t, int64_t, int64_t, int64_t, int64_t, int64_t) event_header(bytes src, Py_ssize_t at) noexcept:
    return (
        u32(src, at), _at(src, at)[4], u32(src, at + 5), u32(src, at + 9), u32(src, at + 13), u16(src, at + 17)
    )

cdef inline bint checksum_holds(bytes src, Py_ssize_t start, Py_ssize_t stop) noexcept:
    return <int64_t>kernel_crc32(_at(src, start), stop - 4 - start) == u32(src, stop - 4)

cdef inline (uint64_t, Py_ssize_t) number(bytes src, Py_ssize_t at, Py_ssize_t stop) noexcept:
    cdef const byte *b = _at(src, at)
    cdef Py_ssize_t index = 0, most = stop - at
    cdef uint64_t value = 0
    if most > 9:
        most = 9
    while index < most:
        value |= <uint64_t>(b[index] & 127) << 7 * index
        index += 1
        if b[index - 1] < 128:
            return value, at + index
    return 0, -1

cdef inline (Py_ssize_t, Py_ssize_t) stretch(bytes src, Py_ssize_t at, Py_ssize_t stop) noexcept:
    cdef const byte *b = _at(src, at)
    cdef Py_ssize_t index = 0, most = stop - at, size = 0
    if most > 3:
        most = 3
    while index < most:
        size |= <Py_ssize_t>(b[index] & 127) << 7 * index
        index += 1
        if b[index - 1] < 128:
            at += index
            if size <= stop - at:
                return at, at + size
            break
    return -1, -1

cdef inline bint same_bytes(bytes src, Py_ssize_t start, Py_ssize_t stop, bytes other) noexcept:
    return PyBytes_GET_SIZE(other) == stop - start and memcmp(_at(src, start), _at(other, 0), stop - start) == 0

cdef inline bint has_null(bytes src, Py_ssize_t at, Py_ssize_t count) noexcept:
    cdef const byte *b = _at(src, at)
    cdef Py_ssize_t index
    for index in range(count >> 3):
        if b[index]:
            return True
    return count & 7 != 0 and b[count >> 3] & ((1 << (count & 7)) - 1) != 0

cdef inline bint is_ascii(bytes src, Py_ssize_t start, Py_ssize_t stop) noexcept:
    return kernel_is_ascii(_at(src, start), stop - start)

cdef inline bint is_utf8(bytes src, Py_ssize_t start, Py_ssize_t stop) noexcept:
    return kernel_is_ascii(_at(src, start), stop - start) or kernel_is_utf8(_at(src, start), stop - start)

cdef inline Py_ssize_t latin1_size(bytes src, Py_ssize_t start, Py_ssize_t stop) noexcept:
    return kernel_latin1_size(_at(src, start), stop - start)

# ---- writing

cdef inline int put(bytearray out, object data) except -1:
    cdef Py_ssize_t size
    if type(data) is bytes:
        size = PyBytes_GET_SIZE(data)
        kernel_copy(kernel_extend(out, size), PyBytes_AS_STRING(data), size)
    elif type(data) is bytearray:
        size = PyByteArray_GET_SIZE(data)
        kernel_copy(kernel_extend(out, size), PyByteArray_AS_STRING(data), size)
    else:
        raise TypeError("neither bytes nor a bytearray")
    return 0

cdef inline int put_byte(bytearray out, int value) except -1:
    kernel_extend(out, 1)[0] = <char>value
    return 0

cdef inline int put_slice(bytearray out, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1:
    kernel_copy(kernel_extend(out, stop - start), <const char *>_at(src, start), stop - start)
    return 0

cdef inline int put_framed(
    bytearray out, bytes before, bytes src, Py_ssize_t start, Py_ssize_t stop, bytes after
) except -1:
    cdef Py_ssize_t head = PyBytes_GET_SIZE(before), tail = PyBytes_GET_SIZE(after)
    cdef char *to = kernel_extend(out, head + (stop - start) + tail)
    kernel_copy(to, PyBytes_AS_STRING(before), head)
    kernel_copy(to + head, <const char *>_at(src, start), stop - start)
    kernel_copy(to + head + (stop - start), PyBytes_AS_STRING(after), tail)
    return 0

cdef inline bint put_framed_ascii(
    bytearray out, bytes before, bytes src, Py_ssize_t start, Py_ssize_t stop, bytes after
) except -1:
    cdef Py_ssize_t head = PyBytes_GET_SIZE(before), tail = PyBytes_GET_SIZE(after)
    cdef char *to = kernel_extend(out, head + (stop - start) + tail)
    kernel_copy(to, PyBytes_AS_STRING(before), head)
    kernel_copy(to + head + (stop - start), PyBytes_AS_STRING(after), tail)
    return kernel_copy_ascii(to + head, <const char *>_at(src, start), stop - start)

cdef inline int put_around(bytearray out, bytes before, bytearray text, bytes after) except -1:
    cdef Py_ssize_t head = PyBytes_GET_SIZE(before), tail = PyBytes_GET_SIZE(after)
    cdef Py_ssize_t size = PyByteArray_GET_SIZE(text)
    cdef char *to = kernel_extend(out, head + size + tail)
    kernel_copy(to, PyBytes_AS_STRING(before), head)
    kernel_copy(to + head, PyByteArray_AS_STRING(text), size)
    kernel_copy(to + head + size, PyBytes_AS_STRING(after), tail)
    return 0

cdef inline int put_unsigned(bytearray out, uint64_t value) except -1:
    cdef char[24] b
    cdef char *at = kernel_digits(b + 24, value)
    kernel_copy(kernel_extend(out, b + 24 - at), at, b + 24 - at)
    return 0

cdef inline Py_ssize_t digits_size(int64_t value) noexcept:
    return kernel_digits_size(-<uint64_t>value) + 1 if value < 0 else kernel_digits_size(<uint64_t>value)

cdef inline int put_number(bytearray out, bytes before, int64_t value, Py_ssize_t size, bytes after) except -1:
    cdef Py_ssize_t head = PyBytes_GET_SIZE(before), tail = PyBytes_GET_SIZE(after)
    cdef char *to = kernel_extend(out, head + size + tail)
    kernel_copy(to, PyBytes_AS_STRING(before), head)
    if value < 0:
        to[head] = 45
    kernel_digits(to + head + size, -<uint64_t>value if value < 0 else <uint64_t>value)
    kernel_copy(to + head + size, PyBytes_AS_STRING(after), tail)
    return 0

cdef inline int put_digits(bytearray out, int64_t value) except -1:
    cdef char[24] b
    cdef char *at = kernel_digits(b + 24, -<uint64_t>value if value < 0 else <uint64_t>value)
    if value < 0:
        at -= 1
        at[0] = 45
    kernel_copy(kernel_extend(out, b + 24 - at), at, b + 24 - at)
    return 0

cdef inline int put_padded(bytearray out, uint64_t value, int width) except -1:
    cdef char[24] b
    cdef char *at = kernel_digits(b + 24, value)
    while b + 24 - at < width:
        at -= 1
        at[0] = 48
    kernel_copy(kernel_extend(out, b + 24 - at), at, b + 24 - at)
    return 0

cdef inline int put_date(bytearray out, uint64_t year, uint64_t month, uint64_t day) except -1:
    cdef char *to
    if year > 9999 or month > 99 or day > 99:
        return _put_padded(out, year, 4, 45, month, day)
    to = kernel_extend(out, 10)
    kernel_two_digits(to, year // 100)
    kernel_two_digits(to + 2, year % 100)
    to[4] = to[7] = 45
    kernel_two_digits(to + 5, month)
    kernel_two_digits(to + 8, day)
    return 0

cdef inline int put_clock(bytearray out, uint64_t hours, uint64_t minutes, uint64_t seconds) except -1:
    cdef char *to
    if hours > 99 or minutes > 99 or seconds > 99:
        return _put_padded(out, hours, 2, 58, minutes, seconds)
    to = kernel_extend(out, 8)
    kernel_two_digits(to, hours)
    kernel_two_digits(to + 3, minutes)
    kernel_two_digits(to + 6, seconds)
    to[2] = to[5] = 58
    return 0

cdef inline int _put_padded(
    bytearray out, uint64_t first, int width, int between, uint64_t second, uint64_t third
) except -1:
    put_padded(out, first, width)
    put_byte(out, between)
    put_padded(out, second, 2)
    put_byte(out, between)
    return put_padded(out, third, 2)

cdef inline int put_upper_half(bytearray out, int64_t value, Py_ssize_t size) except -1:
    cdef uint64_t mask = <uint64_t>-1 if size == 8 else (<uint64_t>1 << (8 * size)) - 1
    return put_unsigned(out, <uint64_t>value & mask)

cdef inline int put_latin1(bytearray out, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1:
    kernel_latin1(kernel_extend(out, latin1_size(src, start, stop)), _at(src, start), stop - start)
    return 0

cdef inline int put_text(bytearray out, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1:
    if is_utf8(src, start, stop):
        return put_slice(out, src, start, stop)
    return put(out, src[start:stop].decode("utf-8", "canal-utf-8").encode())

cdef inline int put_quoted(bytearray out, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1:
    cdef Py_ssize_t size = stop - start
    cdef char *to
    if kernel_is_plain(_at(src, start), size):
        to = kernel_extend(out, size + 2)
        to[0] = to[size + 1] = 34
        kernel_copy(to + 1, <const char *>_at(src, start), size)
        return 0
    if not is_utf8(src, start, stop):
        src = src[start:stop].decode("utf-8", "canal-utf-8").encode()
        start = 0
        size = PyBytes_GET_SIZE(src)
    kernel_quoted(kernel_extend(out, kernel_quoted_size(_at(src, start), size)), _at(src, start), size)
    return 0

cdef inline int _varint(byte *b, uint64_t value) noexcept:
    cdef int size = 0
    while value > 127:
        b[size] = <byte>(value & 127 | 128)
        value >>= 7
        size += 1
    b[size] = <byte>value
    return size + 1

cdef inline bytes varint(uint64_t value):
    cdef byte[10] b
    cdef int size = _varint(b, value)
    return PyBytes_FromStringAndSize(<char *>b, size)

cdef inline int put_varint(bytearray out, uint64_t value) except -1:
    cdef Py_ssize_t start = PyByteArray_GET_SIZE(out)
    cdef byte *b = <byte *>kernel_extend(out, 10)
    kernel_truncate(out, start + _varint(b, value))
    return 0

cdef inline int put_tagged(bytearray out, int tag, uint64_t value) except -1:
    cdef Py_ssize_t start = PyByteArray_GET_SIZE(out)
    cdef byte *b = <byte *>kernel_extend(out, 11)
    b[0] = <byte>tag
    kernel_truncate(out, start + 1 + _varint(b + 1, value))
    return 0

cdef inline int varint_size(uint64_t value) noexcept:
    cdef int size = 1
    while value > 127:
        value >>= 7
        size += 1
    return size

cdef inline char *_copied(char *to, bytes data) noexcept:
    kernel_copy(to, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    return to + PyBytes_GET_SIZE(data)

cdef inline char *_numbered(char *to, byte tag, uint64_t value) noexcept:
    to[0] = <char>tag
    return to + 1 + _varint(<byte *>to + 1, value)

cdef inline int put_head(bytearray out, bytes tag, bytes fixed, uint64_t size, uint64_t rest) except -1:
    cdef uint64_t body = <uint64_t>PyBytes_GET_SIZE(fixed) + 1 + varint_size(size) + size + rest
    cdef char *to = kernel_extend(
        out, PyBytes_GET_SIZE(tag) + varint_size(body) + PyBytes_GET_SIZE(fixed) + 1 + varint_size(size)
    )
    to = _copied(to, tag)
    _numbered(_copied(to + _varint(<byte *>to, body), fixed), 0x42, size)
    return 0

cdef inline Py_ssize_t put_frame(
    bytearray out, bytes journal, uint64_t offset, bytes clock, bytes names, uint64_t length, bytes event_type,
    bytes props, bytes count, bytes gtid, bytes entry_type, uint64_t store
) except -1:
    cdef Py_ssize_t header = (
        PyBytes_GET_SIZE(journal) + varint_size(offset) + PyBytes_GET_SIZE(clock) + PyBytes_GET_SIZE(names) + 1
        + varint_size(length) + PyBytes_GET_SIZE(event_type) + PyBytes_GET_SIZE(props) + PyBytes_GET_SIZE(count)
        + PyBytes_GET_SIZE(gtid)
    )
    cdef Py_ssize_t entry = (
        1 + varint_size(header) + header + PyBytes_GET_SIZE(entry_type) + varint_size(store) + <Py_ssize_t>store
    )
    cdef char *to = kernel_extend(out, 1 + varint_size(entry) + entry - <Py_ssize_t>store)
    to = _numbered(_numbered(to, 0x12, entry), 0x0A, header)
    to = _copied(to, journal)
    to += _varint(<byte *>to, offset)
    to = _numbered(_copied(_copied(to, clock), names), 0x50, length)
    to = _copied(_copied(_copied(_copied(_copied(to, event_type), props), count), gtid), entry_type)
    _varint(<byte *>to, store)
    return entry

cdef inline int reserve(bytearray out, Py_ssize_t size) except -1:
    kernel_extend(out, size)
    return 0

cdef inline byte *_gap(bytearray out, Py_ssize_t at, Py_ssize_t size, Py_ssize_t wanted) except NULL:
    """Make `size` bytes at `at` as many as are wanted; what follows moves."""
    cdef Py_ssize_t total = PyByteArray_GET_SIZE(out)
    cdef byte *b
    if wanted > size:
        kernel_extend(out, wanted - size)
    b = <byte *>PyByteArray_AS_STRING(out) + at
    if wanted != size:
        memmove(b + wanted, b + size, total - at - size)
    if wanted < size:
        kernel_truncate(out, total + wanted - size)
    return b

cdef inline int fill(bytearray out, Py_ssize_t at, Py_ssize_t size, bytearray data) except -1:
    cdef Py_ssize_t wanted = PyByteArray_GET_SIZE(data)
    kernel_copy(<char *>_gap(out, at, size, wanted), PyByteArray_AS_STRING(data), wanted)
    return 0

cdef inline int fill_varint(bytearray out, Py_ssize_t at, Py_ssize_t size, uint64_t value) except -1:
    _varint(_gap(out, at, size, varint_size(value)), value)
    return 0

cdef inline int set_byte(bytearray out, Py_ssize_t at, int value) noexcept:
    PyByteArray_AS_STRING(out)[at] = <char>value
    return 0

cdef inline int truncate(bytearray out, Py_ssize_t size) noexcept:
    kernel_truncate(out, size)
    return 0

cdef inline int forget(bytearray out, Py_ssize_t size) except -1:
    cdef Py_ssize_t left = PyByteArray_GET_SIZE(out) - size
    cdef char *b = PyByteArray_AS_STRING(out)
    if left > 0:
        memmove(b, b + size, left)
    kernel_truncate(out, left)
    return 0

cdef inline bint same_text(bytearray out, Py_ssize_t start, Py_ssize_t other, Py_ssize_t size) noexcept:
    cdef const char *b = PyByteArray_AS_STRING(out)
    return memcmp(b + start, b + other, size) == 0

# ---- flat arrays

cdef inline Py_ssize_t length(c_array column) noexcept:
    return Py_SIZE(column)

cdef inline int push(c_array column, int64_t value) except -1:
    cdef Py_ssize_t size = Py_SIZE(column)
    resize_smart(column, size + 1)
    column.data.as_longlongs[size] = value
    return 0

cdef inline int push_small(c_array column, int value) except -1:
    cdef Py_ssize_t size = Py_SIZE(column)
    resize_smart(column, size + 1)
    column.data.as_ints[size] = value
    return 0

cdef inline int cut(c_array column, Py_ssize_t size) except -1:
    if size < Py_SIZE(column):
        resize_smart(column, size)
    return 0

cdef inline int set_item(c_array column, Py_ssize_t index, int64_t value) noexcept:
    column.data.as_longlongs[index] = value
    return 0

cdef inline int64_t item(c_array column, Py_ssize_t index) noexcept:
    return column.data.as_longlongs[index]
