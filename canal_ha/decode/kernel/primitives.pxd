# The functions of primitives.py in C, with the same names and results, as far as compiled modules call them.
# Readers do not check the position that they are given, so callers check it first.

from cpython.array cimport array as c_array, resize_smart
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memmove

cdef extern from "primitives.h":
    char *kernel_extend(bytearray out, Py_ssize_t size) except NULL nogil
    void kernel_truncate(bytearray out, Py_ssize_t size) noexcept nogil
    char *kernel_digits(char *end, uint64_t value) noexcept nogil
    void kernel_copy(char *to, const char *start, Py_ssize_t size) noexcept nogil
    void kernel_two_digits(char *to, uint64_t value) noexcept nogil
    Py_ssize_t kernel_digits_size(uint64_t value) noexcept nogil
    bint kernel_copy_ascii(char *to, const char *start, Py_ssize_t size) noexcept nogil
    bint kernel_is_ascii(const unsigned char *at, Py_ssize_t size) noexcept nogil
    bint kernel_is_utf8(const unsigned char *at, Py_ssize_t size) noexcept nogil
    Py_ssize_t kernel_latin1_size(const unsigned char *at, Py_ssize_t size) noexcept nogil
    void kernel_latin1(char *to, const unsigned char *at, Py_ssize_t size) noexcept nogil
    bint kernel_is_plain(const unsigned char *at, Py_ssize_t size) noexcept nogil
    Py_ssize_t kernel_quoted_size(const unsigned char *at, Py_ssize_t size) noexcept nogil
    void kernel_quoted(char *to, const unsigned char *at, Py_ssize_t size) noexcept nogil
    uint32_t kernel_crc32(const unsigned char *at, Py_ssize_t size) noexcept nogil
    void kernel_prepare() noexcept nogil
    int kernel_ones(unsigned int bits) noexcept nogil
    bint kernel_same(const unsigned char *one, const unsigned char *other, Py_ssize_t size) noexcept nogil
    void kernel_power(int index, uint64_t high, uint64_t low) noexcept
    uint64_t kernel_shortest(uint64_t significand, int exponent, int *tens) noexcept nogil

cdef extern from "Python.h":
    char *PyByteArray_AS_STRING(bytearray data) noexcept nogil
    Py_ssize_t PyByteArray_GET_SIZE(bytearray data) noexcept nogil
    char *PyBytes_AS_STRING(bytes data) noexcept nogil
    Py_ssize_t PyBytes_GET_SIZE(bytes data) noexcept nogil
    Py_ssize_t Py_SIZE(c_array column) noexcept nogil
    str PyUnicode_DecodeUTF8(const char *text, Py_ssize_t size, const char *errors)
    bint PyBytes_CheckExact(object data) noexcept nogil
    bint PyByteArray_CheckExact(object data) noexcept nogil

cdef extern from *:
    """
    #define kernel_room(column) (((arrayobject *)(column))->allocated - Py_SIZE(column))
    #define kernel_sized(column, size) Py_SET_SIZE(column, size)
    """
    Py_ssize_t kernel_room(c_array column) noexcept nogil
    void kernel_sized(c_array column, Py_ssize_t size) noexcept nogil

# A view of bytes. Its user keeps the bytes alive.
cdef struct Piece:
    const char *data
    Py_ssize_t size

ctypedef unsigned char byte

cdef inline int prepare() except -1:
    from canal_ha.decode.kernel.primitives import powers_of_ten
    cdef int index
    kernel_prepare()
    for index, (high, low) in enumerate(powers_of_ten()):
        kernel_power(index, high, low)
    return 0

cdef inline int broken(str text, int64_t number=0) except -1 with gil:
    from canal_ha.decode.kernel.primitives import broken as told
    told(text, number)
    return 0

# ---- reading

cdef inline const byte *_at(bytes src, Py_ssize_t at) noexcept nogil:
    return <const byte *>PyBytes_AS_STRING(src) + at

cdef inline int u8(bytes src, Py_ssize_t at) noexcept nogil:
    return _at(src, at)[0]

cdef inline Py_ssize_t held(bytes src) noexcept nogil:
    return PyBytes_GET_SIZE(src)

cdef inline bint is_set(bytes src, Py_ssize_t at, Py_ssize_t index) noexcept nogil:
    return _at(src, at)[index >> 3] >> (index & 7) & 1

cdef inline int64_t u16(bytes src, Py_ssize_t at) noexcept nogil:
    cdef const byte *b = _at(src, at)
    return b[0] | b[1] << 8

cdef inline int64_t u24(bytes src, Py_ssize_t at) noexcept nogil:
    cdef const byte *b = _at(src, at)
    return b[0] | b[1] << 8 | b[2] << 16

cdef inline int64_t u32(bytes src, Py_ssize_t at) noexcept nogil:
    cdef const byte *b = _at(src, at)
    return <int64_t>b[0] | <int64_t>b[1] << 8 | <int64_t>b[2] << 16 | <int64_t>b[3] << 24

cdef inline int64_t u48(bytes src, Py_ssize_t at) noexcept nogil:
    return u32(src, at) | u16(src, at + 4) << 32

cdef inline uint64_t little(bytes src, Py_ssize_t at, Py_ssize_t size) noexcept nogil:
    cdef const byte *b = _at(src, at)
    cdef uint64_t value = 0
    while size:
        size -= 1
        value = value << 8 | b[size]
    return value

cdef inline uint64_t u64(bytes src, Py_ssize_t at) noexcept nogil:
    return little(src, at, 8)

cdef inline int64_t signed(bytes src, Py_ssize_t at, Py_ssize_t size) noexcept nogil:
    cdef int shift = <int>(64 - 8 * size)
    if size == 4:
        return <int64_t>(<uint64_t>u32(src, at) << 32) >> 32
    return <int64_t>(little(src, at, size) << shift) >> shift

cdef inline uint64_t big(bytes src, Py_ssize_t at, Py_ssize_t size) noexcept nogil:
    cdef const byte *b = _at(src, at)
    cdef uint64_t value = 0
    cdef Py_ssize_t index
    for index in range(size):
        value = value << 8 | b[index]
    return value

cdef inline double f64(bytes src, Py_ssize_t at) noexcept nogil:
    cdef uint64_t bits = little(src, at, 8)
    cdef double value
    memcpy(&value, &bits, 8)
    return value

cdef inline double f32(bytes src, Py_ssize_t at) noexcept nogil:
    cdef uint32_t bits = <uint32_t>u32(src, at)
    cdef float value
    memcpy(&value, &bits, 4)
    return value

cdef inline double as_single(double value) noexcept nogil:
    return <double><float>value

cdef inline int64_t nearest(double value) noexcept nogil:
    return <int64_t>(value + 0.5)

cdef inline (uint64_t, int) shortest(double value) noexcept nogil:
    cdef uint64_t bits, hidden = <uint64_t>1 << 52
    cdef int tens
    memcpy(&bits, &value, 8)
    bits = kernel_shortest((bits & (hidden - 1)) | hidden, <int>(bits >> 52 & 0x7FF) - 1075, &tens)
    return bits, tens

cdef inline (uint64_t, int) shortest_single(double value) noexcept nogil:
    cdef float single = <float>value
    cdef uint32_t bits
    cdef uint64_t digits
    cdef int tens
    memcpy(&bits, &single, 4)
    digits = kernel_shortest(bits & 0x7FFFFF | 0x800000, <int>(bits >> 23 & 0xFF) - 150, &tens)
    return digits, tens

cdef inline uint64_t power(int exponent) noexcept nogil:
    cdef uint64_t value = 1
    while exponent > 0:
        value *= 10
        exponent -= 1
    return value

cdef inline uint64_t magnitude(int64_t value) noexcept nogil:
    return -<uint64_t>value if value < 0 else <uint64_t>value

cdef inline uint64_t bit(int number) noexcept nogil:
    return <uint64_t>1 << number

cdef inline (int64_t, int64_t, int64_t, int64_t, int64_t, int64_t) event_header(bytes src, Py_ssize_t at) noexcept nogil:
    return (
        u32(src, at), _at(src, at)[4], u32(src, at + 5), u32(src, at + 9), u32(src, at + 13), u16(src, at + 17)
    )

cdef inline bint checksum_holds(bytes src, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    return <int64_t>kernel_crc32(_at(src, start), stop - 4 - start) == u32(src, stop - 4)

cdef inline (uint64_t, Py_ssize_t) number(bytes src, Py_ssize_t at, Py_ssize_t stop) noexcept nogil:
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

cdef inline (Py_ssize_t, Py_ssize_t) stretch(bytes src, Py_ssize_t at, Py_ssize_t stop) noexcept nogil:
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

cdef inline bint same_bytes(bytes src, Py_ssize_t start, Py_ssize_t stop, bytes other) noexcept nogil:
    return PyBytes_GET_SIZE(other) == stop - start and kernel_same(_at(src, start), _at(other, 0), stop - start)

cdef inline bint has_null(bytes src, Py_ssize_t at, Py_ssize_t count) noexcept nogil:
    cdef const byte *b = _at(src, at)
    cdef Py_ssize_t index
    for index in range(count >> 3):
        if b[index]:
            return True
    return count & 7 != 0 and b[count >> 3] & ((1 << (count & 7)) - 1) != 0

cdef inline Py_ssize_t ones(bytes src, Py_ssize_t at, Py_ssize_t count) noexcept nogil:
    cdef const byte *b = _at(src, at)
    cdef Py_ssize_t index, found = 0
    for index in range(count >> 3):
        found += 8 if b[index] == 255 else kernel_ones(b[index])
    if count & 7:
        found += kernel_ones(b[count >> 3] & ((1 << (count & 7)) - 1))
    return found

cdef inline bint ends_in(bytearray out, Py_ssize_t start, bytearray text) noexcept nogil:
    cdef Py_ssize_t size = PyByteArray_GET_SIZE(text)
    return PyByteArray_GET_SIZE(out) - start == size and memcmp(
        PyByteArray_AS_STRING(out) + start, PyByteArray_AS_STRING(text), size
    ) == 0

cdef inline bint same_piece(bytes src, Py_ssize_t start, Py_ssize_t stop, Piece other) noexcept nogil:
    return other.size == stop - start and memcmp(_at(src, start), other.data, stop - start) == 0

cdef inline Py_ssize_t piece_size(Piece data) noexcept nogil:
    return data.size

cdef inline int byte_at(bytearray out, Py_ssize_t index) noexcept nogil:
    return <byte>PyByteArray_AS_STRING(out)[index]

cdef inline bint same_source(bytes src, Py_ssize_t start, Py_ssize_t other, Py_ssize_t size) noexcept nogil:
    return kernel_same(_at(src, start), _at(src, other), size)

cdef inline bint is_utf8(bytes src, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    return kernel_is_ascii(_at(src, start), stop - start) or kernel_is_utf8(_at(src, start), stop - start)

# ---- writing

cdef inline int put(bytearray out, object data) except -1 nogil:
    cdef Py_ssize_t size
    if PyBytes_CheckExact(data):
        size = PyBytes_GET_SIZE(<bytes>data)
        kernel_copy(kernel_extend(out, size), PyBytes_AS_STRING(<bytes>data), size)
    elif PyByteArray_CheckExact(data):
        size = PyByteArray_GET_SIZE(<bytearray>data)
        kernel_copy(kernel_extend(out, size), PyByteArray_AS_STRING(<bytearray>data), size)
    else:
        return _neither()
    return 0

cdef inline int _neither() except -1 with gil:
    raise TypeError("neither bytes nor a bytearray")

cdef inline Py_ssize_t size(bytearray out) noexcept nogil:
    return PyByteArray_GET_SIZE(out)

cdef inline int put_piece(bytearray out, Piece piece) except -1 nogil:
    kernel_copy(kernel_extend(out, piece.size), piece.data, piece.size)
    return 0

cdef inline int put_byte(bytearray out, int value) except -1 nogil:
    kernel_extend(out, 1)[0] = <char>value
    return 0

cdef inline int lay(bytes room, Py_ssize_t at, bytes src, Py_ssize_t start, Py_ssize_t size) noexcept nogil:
    memcpy(PyBytes_AS_STRING(room) + at, PyBytes_AS_STRING(src) + start, size)
    return 0

cdef inline int put_slice(bytearray out, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1 nogil:
    kernel_copy(kernel_extend(out, stop - start), <const char *>_at(src, start), stop - start)
    return 0

# Append a Column message and return the address of its value, whose `size` bytes the caller writes.
cdef inline char *_column(bytearray out, int tag, Piece fixed, Py_ssize_t size, Piece after) except NULL nogil:
    cdef Py_ssize_t body = fixed.size + 1 + varint_size(size) + size + after.size
    cdef char *to = kernel_extend(out, 1 + varint_size(body) + body)
    to[0] = <char>tag
    to += 1 + _varint(<byte *>to + 1, body)
    kernel_copy(to, fixed.data, fixed.size)
    to += fixed.size
    to[0] = 0x42
    to += 1 + _varint(<byte *>to + 1, size)
    kernel_copy(to + size, after.data, after.size)
    return to

cdef inline bint put_column(
    bytearray out, int tag, Piece fixed, bytes src, Py_ssize_t start, Py_ssize_t stop, Piece after
) except -1 nogil:
    return kernel_copy_ascii(_column(out, tag, fixed, stop - start, after), <const char *>_at(src, start), stop - start)

cdef inline Py_ssize_t put_text_column(
    bytearray out, int tag, Piece fixed, bytearray text, Piece after
) except -1 nogil:
    cdef Py_ssize_t size = PyByteArray_GET_SIZE(text)
    kernel_copy(_column(out, tag, fixed, size, after), PyByteArray_AS_STRING(text), size)
    return size

cdef inline Py_ssize_t put_latin1_column(
    bytearray out, int tag, Piece fixed, bytes src, Py_ssize_t start, Py_ssize_t stop, Piece after
) except -1 nogil:
    cdef Py_ssize_t size = kernel_latin1_size(_at(src, start), stop - start)
    cdef char *to = _column(out, tag, fixed, size, after)
    if size == stop - start:
        kernel_copy(to, <const char *>_at(src, start), size)
    else:
        kernel_latin1(to, _at(src, start), stop - start)
    return size

cdef inline Py_ssize_t put_number_column(
    bytearray out, int tag, Piece fixed, int64_t value, Piece after
) except -1 nogil:
    cdef uint64_t digits = -<uint64_t>value if value < 0 else <uint64_t>value
    cdef Py_ssize_t size = kernel_digits_size(digits) + (value < 0)
    cdef char *to = _column(out, tag, fixed, size, after)
    to[0] = 45
    kernel_digits(to + size, digits)
    return size

cdef inline int repeat_column(
    bytearray out, int tag, Py_ssize_t start, Py_ssize_t stop
) except -1 nogil:
    cdef char *to = kernel_extend(out, stop - start)
    kernel_copy(to, PyByteArray_AS_STRING(out) + start, stop - start)
    to[0] = <char>tag
    return 0

cdef inline int put_unsigned(bytearray out, uint64_t value) except -1 nogil:
    cdef char[24] b
    cdef char *at = kernel_digits(b + 24, value)
    kernel_copy(kernel_extend(out, b + 24 - at), at, b + 24 - at)
    return 0

cdef inline Py_ssize_t digits_size(uint64_t value) noexcept nogil:
    return kernel_digits_size(value)

cdef inline int put_digits(bytearray out, int64_t value) except -1 nogil:
    cdef char[24] b
    cdef char *at = kernel_digits(b + 24, -<uint64_t>value if value < 0 else <uint64_t>value)
    if value < 0:
        at -= 1
        at[0] = 45
    kernel_copy(kernel_extend(out, b + 24 - at), at, b + 24 - at)
    return 0

cdef inline uint64_t whole(uint64_t high, uint64_t low, bint negative) noexcept nogil:
    cdef uint64_t value = high * 1000000000000000000ULL + low
    return -value if negative else value

cdef inline int put_little(bytearray out, uint64_t value, Py_ssize_t size) except -1 nogil:
    cdef byte *b = <byte *>kernel_extend(out, size)
    cdef Py_ssize_t index
    for index in range(size):
        b[index] = <byte>value
        value >>= 8
    return 0

cdef inline int put_big(bytearray out, uint64_t value, Py_ssize_t size) except -1 nogil:
    cdef byte *b = <byte *>kernel_extend(out, size)
    while size:
        size -= 1
        b[size] = <byte>value
        value >>= 8
    return 0

cdef inline int put_padded(bytearray out, uint64_t value, int width) except -1 nogil:
    cdef char[24] b
    cdef char *at = kernel_digits(b + 24, value)
    while b + 24 - at < width:
        at -= 1
        at[0] = 48
    kernel_copy(kernel_extend(out, b + 24 - at), at, b + 24 - at)
    return 0

cdef inline int put_date(bytearray out, uint64_t year, uint64_t month, uint64_t day) except -1 nogil:
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

cdef inline int put_clock(bytearray out, uint64_t hours, uint64_t minutes, uint64_t seconds) except -1 nogil:
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
) except -1 nogil:
    put_padded(out, first, width)
    put_byte(out, between)
    put_padded(out, second, 2)
    put_byte(out, between)
    return put_padded(out, third, 2)

cdef inline int put_upper_half(bytearray out, int64_t value, Py_ssize_t size) except -1 nogil:
    cdef uint64_t mask = <uint64_t>-1 if size == 8 else (<uint64_t>1 << (8 * size)) - 1
    return put_unsigned(out, <uint64_t>value & mask)

cdef inline int put_text(bytearray out, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1 nogil:
    if is_utf8(src, start, stop):
        return put_slice(out, src, start, stop)
    return _put_repaired(out, src, start, stop)

cdef inline int _put_repaired(bytearray out, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1 with gil:
    return put(out, src[start:stop].decode("utf-8", "canal-utf-8").encode())

cdef inline bint is_plain(bytes src, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    return kernel_is_plain(_at(src, start), stop - start)

cdef inline int put_quoted(bytearray out, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1 nogil:
    cdef Py_ssize_t size = stop - start
    cdef char *to
    if kernel_is_plain(_at(src, start), size):
        to = kernel_extend(out, size + 2)
        to[0] = to[size + 1] = 34
        kernel_copy(to + 1, <const char *>_at(src, start), size)
        return 0
    if not is_utf8(src, start, stop):
        return _put_quoted_repaired(out, src, start, stop)
    kernel_quoted(kernel_extend(out, kernel_quoted_size(_at(src, start), size)), _at(src, start), size)
    return 0

cdef inline int _put_quoted_repaired(bytearray out, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1 with gil:
    cdef bytes text = src[start:stop].decode("utf-8", "canal-utf-8").encode()
    return put_quoted(out, text, 0, PyBytes_GET_SIZE(text))

cdef inline int _varint(byte *b, uint64_t value) noexcept nogil:
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

cdef inline int put_varint(bytearray out, uint64_t value) except -1 nogil:
    cdef Py_ssize_t start = PyByteArray_GET_SIZE(out)
    cdef byte *b = <byte *>kernel_extend(out, 10)
    kernel_truncate(out, start + _varint(b, value))
    return 0

cdef inline int varint_size(uint64_t value) noexcept nogil:
    cdef int size = 1
    while value > 127:
        value >>= 7
        size += 1
    return size

cdef inline char *_copied(char *to, bytes data) noexcept nogil:
    kernel_copy(to, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    return to + PyBytes_GET_SIZE(data)

cdef inline char *_numbered(char *to, byte tag, uint64_t value) noexcept nogil:
    to[0] = <char>tag
    return to + 1 + _varint(<byte *>to + 1, value)

cdef inline Py_ssize_t put_frame(
    bytearray out, bytes journal, uint64_t offset, bytes clock, Piece names, uint64_t length, int change,
    Piece mark, object props, int64_t rows, object gtid, int entry_type, uint64_t store
) except -1 nogil:
    cdef Piece said = _piece(props), executed = _piece(gtid)
    cdef Py_ssize_t digits = kernel_digits_size(<uint64_t>rows)
    cdef Py_ssize_t header = (
        PyBytes_GET_SIZE(journal) + varint_size(offset) + PyBytes_GET_SIZE(clock) + names.size + 1
        + varint_size(length) + (2 if change else 0) + said.size + (mark.size + 15 + digits if rows else 0)
        + executed.size
    )
    cdef Py_ssize_t entry = 1 + varint_size(header) + header + 3 + varint_size(store) + <Py_ssize_t>store
    cdef char *to = kernel_extend(out, 1 + varint_size(entry) + entry - <Py_ssize_t>store)
    to = _numbered(_numbered(to, 0x12, entry), 0x0A, header)
    to = _copied(to, journal)
    to += _varint(<byte *>to, offset)
    to = _numbered(_put_to(_copied(to, clock), names), 0x50, length)
    if change:
        to = _numbered(to, 0x58, change)
    if rows:
        to = _put_to(to, mark)
    to = _put_to(to, said)
    if rows:
        to[0] = 0x62
        to[1] = <char>(13 + digits)
        memcpy(to + 2, "\x0a\x09rowsCount\x12", 12)
        to[14] = <char>digits
        to += 15 + digits
        kernel_digits(to, <uint64_t>rows)
    to = _put_to(to, executed)
    to[0] = 0x10
    to[1] = <char>entry_type
    _numbered(to + 2, 0x1A, store)
    return entry

cdef inline Piece _piece(object data) noexcept nogil:
    cdef Piece piece
    if PyBytes_CheckExact(data):
        piece.data = PyBytes_AS_STRING(<bytes>data)
        piece.size = PyBytes_GET_SIZE(<bytes>data)
    else:
        piece.data = PyByteArray_AS_STRING(<bytearray>data)
        piece.size = PyByteArray_GET_SIZE(<bytearray>data)
    return piece

cdef inline Piece piece(bytes data) noexcept nogil:
    return _piece(data)

cdef inline char *_put_to(char *to, Piece piece) noexcept nogil:
    kernel_copy(to, piece.data, piece.size)
    return to + piece.size

cdef inline int reserve(bytearray out, Py_ssize_t size) except -1 nogil:
    kernel_extend(out, size)
    return 0

cdef inline byte *_gap(bytearray out, Py_ssize_t at, Py_ssize_t size, Py_ssize_t wanted) except NULL nogil:
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

cdef inline int fill(bytearray out, Py_ssize_t at, Py_ssize_t size, bytearray data) except -1 nogil:
    cdef Py_ssize_t wanted = PyByteArray_GET_SIZE(data)
    kernel_copy(<char *>_gap(out, at, size, wanted), PyByteArray_AS_STRING(data), wanted)
    return 0

cdef inline int fill_varint(bytearray out, Py_ssize_t at, Py_ssize_t size, uint64_t value) except -1 nogil:
    _varint(_gap(out, at, size, varint_size(value)), value)
    return 0

cdef inline str as_text(bytearray out, Py_ssize_t start, Py_ssize_t stop):
    return PyUnicode_DecodeUTF8(PyByteArray_AS_STRING(out) + start, stop - start, NULL)

cdef inline int set_byte(bytearray out, Py_ssize_t at, int value) noexcept nogil:
    PyByteArray_AS_STRING(out)[at] = <char>value
    return 0

cdef inline int truncate(bytearray out, Py_ssize_t size) noexcept nogil:
    kernel_truncate(out, size)
    return 0

cdef inline int remove(bytearray out, Py_ssize_t at) noexcept nogil:
    cdef char *b = PyByteArray_AS_STRING(out) + at
    memmove(b, b + 1, PyByteArray_GET_SIZE(out) - at - 1)
    kernel_truncate(out, PyByteArray_GET_SIZE(out) - 1)
    return 0

cdef inline int forget(bytearray out, Py_ssize_t size) except -1 nogil:
    cdef Py_ssize_t left = PyByteArray_GET_SIZE(out) - size
    cdef char *b = PyByteArray_AS_STRING(out)
    if left > 0:
        memmove(b, b + size, left)
    kernel_truncate(out, left)
    return 0

cdef inline bint same_text(bytearray out, Py_ssize_t start, Py_ssize_t other, Py_ssize_t size) noexcept nogil:
    cdef const char *b = PyByteArray_AS_STRING(out)
    return memcmp(b + start, b + other, size) == 0

# ---- flat arrays

cdef inline Py_ssize_t length(c_array column) noexcept nogil:
    return Py_SIZE(column)

cdef inline int _resize(c_array column, Py_ssize_t size) except -1 with gil:
    return resize_smart(column, size)

cdef inline int hold(c_array column, Py_ssize_t size) except -1:
    resize_smart(column, size)
    kernel_sized(column, 0)
    return 0

cdef inline int push(c_array column, int64_t value) except -1 nogil:
    cdef Py_ssize_t size = Py_SIZE(column)
    if kernel_room(column) > 0:
        kernel_sized(column, size + 1)
    else:
        _resize(column, size + 1)
    column.data.as_longlongs[size] = value
    return 0

cdef inline int push_small(c_array column, int value) except -1 nogil:
    cdef Py_ssize_t size = Py_SIZE(column)
    if kernel_room(column) > 0:
        kernel_sized(column, size + 1)
    else:
        _resize(column, size + 1)
    column.data.as_ints[size] = value
    return 0

cdef inline int cut(c_array column, Py_ssize_t size) except -1 nogil:
    if size < Py_SIZE(column):
        kernel_sized(column, size)
    return 0

cdef inline int set_item(c_array column, Py_ssize_t index, int64_t value) noexcept nogil:
    column.data.as_longlongs[index] = value
    return 0

cdef inline int64_t item(c_array column, Py_ssize_t index) noexcept nogil:
    return column.data.as_longlongs[index]
