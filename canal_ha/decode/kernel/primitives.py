"""The operations on raw bytes that the hot modules consist of; a compiled build replaces them by inline C.

Readers do not check bounds: the caller has made sure that the bytes exist. Writers append to a bytearray. Hot modules
write `import ... as p` and call `p.name`, which Cython resolves to the C version.
"""

from __future__ import annotations

import re
from array import array
from struct import Struct
from typing import NoReturn
from zlib import crc32

from canal_ha.decode.java_text import UTF8_ERRORS

_HEADER = Struct("<IBIIIH").unpack_from
_I16 = Struct("<h").unpack_from
_U16 = Struct("<H").unpack_from
_I32 = Struct("<i").unpack_from
_U32 = Struct("<I").unpack_from
_I64 = Struct("<q").unpack_from
_U64 = Struct("<Q").unpack_from
_F32 = Struct("<f")
_F64 = Struct("<d")
_ESCAPED = re.compile('["\\\\\x00-\x1f\x7f-\xa0]')
_NAMED = {'"': '\\"', "\n": "\\n", "\r": "\\r", "\\": "\\\\", "\t": "\\t"}
_VARINTS = tuple(bytes([n]) if n < 128 else bytes([n & 127 | 128, n >> 7]) for n in range(16384))


class Broken(Exception):
    """Malformed bytes of an event; the stream adds journal and offset."""


def broken(text: str, number: int = 0) -> NoReturn:
    """Raise Broken. text: may hold one %d, for the number."""
    raise Broken(text % number if "%" in text else text)


def prepare() -> None:
    """Fill a compiled module's own tables; it calls this once, when it is imported."""


def powers_of_ten() -> list[tuple[int, int]]:
    """Return the most significant 128 bits of 10**0 to 10**324, rounded up, as halves."""
    found = []
    for exponent in range(325):
        power = 10**exponent
        shift = power.bit_length() - 128
        power = -(-power >> shift) if shift > 0 else power << -shift
        found.append((power >> 64, power & 0xFFFFFFFFFFFFFFFF))
    return found


# ---- reading


def u8(src: bytes, at: int) -> int:
    """Read one byte."""
    return src[at]


def held(src: bytes) -> int:
    """Return the number of bytes."""
    return len(src)


def is_set(src: bytes, at: int, index: int) -> bool:
    """Read a bit of a bitmap."""
    return src[at + (index >> 3)] >> (index & 7) & 1 != 0


def u16(src: bytes, at: int) -> int:
    """Read a little-endian, unsigned number."""
    value: int = _U16(src, at)[0]
    return value


def u24(src: bytes, at: int) -> int:
    """Read a little-endian, unsigned number."""
    return src[at] | src[at + 1] << 8 | src[at + 2] << 16


def u32(src: bytes, at: int) -> int:
    """Read a little-endian, unsigned number."""
    value: int = _U32(src, at)[0]
    return value


def u48(src: bytes, at: int) -> int:
    """Read a little-endian, unsigned number: a table id."""
    value: int = _U32(src, at)[0] | _U16(src, at + 4)[0] << 32
    return value


def u64(src: bytes, at: int) -> int:
    """Read a little-endian, unsigned number."""
    value: int = _U64(src, at)[0]
    return value


def signed(src: bytes, at: int, size: int) -> int:
    """Read a little-endian two's complement number of 1, 2, 3, 4 or 8 bytes."""
    value: int
    if size == 4:
        value = _I32(src, at)[0]
    elif size == 8:
        value = _I64(src, at)[0]
    elif size == 1:
        value = src[at]
        if value > 127:
            value -= 256
    elif size == 2:
        value = _I16(src, at)[0]
    else:
        value = int.from_bytes(src[at : at + 3], "little", signed=True)
    return value


def little(src: bytes, at: int, size: int) -> int:
    """Read a little-endian, unsigned number of 1 to 8 bytes: lengths, SET masks."""
    if size == 1:
        return src[at]
    return int.from_bytes(src[at : at + size], "little")


def big(src: bytes, at: int, size: int) -> int:
    """Read a big-endian, unsigned number of 1 to 8 bytes: BIT and the packed temporal types."""
    return int.from_bytes(src[at : at + size], "big")


def f64(src: bytes, at: int) -> float:
    """Read eight bytes, little-endian."""
    value: float = _F64.unpack_from(src, at)[0]
    return value


def f32(src: bytes, at: int) -> float:
    """Read four bytes, little-endian."""
    value: float = _F32.unpack_from(src, at)[0]
    return value


def as_single(value: float) -> float:
    """Return the nearest number that four bytes hold; value: within their range."""
    nearest: float = _F32.unpack(_F32.pack(value))[0]
    return nearest


def nearest(value: float) -> int:
    """Return the nearest whole number, which 63 bits hold; halves go up."""
    return int(value + 0.5)


def shortest(value: float) -> tuple[int, int]:
    """Return the shortest decimal digits that identify this number, and the power of ten to multiply them by.

    value: more than 0, normal, not a power of two, below 2**52.
    """
    return _significant(repr(value))


def shortest_single(value: float) -> tuple[int, int]:
    """Like `shortest`, for a number that four bytes hold."""
    for precision in range(5, 8):
        text = f"{value:.{precision}e}"
        if as_single(float(text)) == value:
            return _significant(text)
    return _significant(f"{value:.8e}")


def _significant(text: str) -> tuple[int, int]:
    """Parse the output of repr or %e."""
    mantissa, _, exponent = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    return int(whole + fraction), int(exponent or 0) - len(fraction)


def power(exponent: int) -> int:
    """Return a power of ten, from 0 to 19."""
    value: int = 10 ** max(exponent, 0)
    return value


def magnitude(value: int) -> int:
    """Return the value without its sign, unsigned."""
    return abs(value)


def bit(number: int) -> int:
    """Return two to the power of 0 to 63."""
    return 1 << number


def event_header(src: bytes, at: int) -> tuple[int, int, int, int, int, int]:
    """Read (timestamp s, type, server id, length, end position, flags) of the 19-byte event header."""
    header: tuple[int, int, int, int, int, int] = _HEADER(src, at)
    return header


def checksum_holds(src: bytes, start: int, stop: int) -> bool:
    """Return whether the last four bytes of src[start:stop] are the CRC32 of those before them."""
    return crc32(memoryview(src)[start : stop - 4]) == u32(src, stop - 4)


def number(src: bytes, at: int, stop: int) -> tuple[int, int]:
    """Read protobuf's variable-length number, and return where it ends: -1 unless it has 1 to 9 bytes before `stop`."""
    value = 0
    for index in range(min(9, stop - at)):
        byte = src[at + index]
        value |= (byte & 127) << 7 * index
        if byte < 128:
            return value, at + index + 1
    return 0, -1


def stretch(src: bytes, at: int, stop: int) -> tuple[int, int]:
    """Return start and stop of bytes that their length precedes; start is -1 if either does not end before `stop`.

    Start is -1 also if the length takes more than three bytes.
    """
    size = 0
    for index in range(min(3, stop - at)):
        byte = src[at + index]
        size |= (byte & 127) << 7 * index
        if byte < 128:
            start = at + index + 1
            return (start, start + size) if size <= stop - start else (-1, -1)
    return -1, -1


def same_bytes(src: bytes, start: int, stop: int, other: bytes) -> bool:
    """Return src[start:stop] == other."""
    return src[start:stop] == other


def has_null(src: bytes, at: int, count: int) -> bool:
    """Return whether one of the first `count` bits of a null bitmap is set; later bits mean nothing."""
    return int.from_bytes(src[at : at + ((count + 7) >> 3)], "little") & ((1 << count) - 1) != 0


def ones(src: bytes, at: int, count: int) -> int:
    """Return how many of the first `count` bits of a bitmap are set."""
    return (int.from_bytes(src[at : at + ((count + 7) >> 3)], "little") & ((1 << count) - 1)).bit_count()


def ends_in(out: bytearray, start: int, text: bytearray) -> bool:
    """Return whether the output from `start` on is this text."""
    return out[start:] == text


def same_piece(src: bytes, start: int, stop: int, other: bytes) -> bool:
    """Like `same_bytes`, for bytes that a plan keeps."""
    return src[start:stop] == other


def piece_size(data: bytes) -> int:
    """Return the size of bytes that a plan keeps."""
    return len(data)


def byte_at(out: bytearray, index: int) -> int:
    """Return one byte of the output."""
    return out[index]


def same_source(src: bytes, start: int, other: int, size: int) -> bool:
    """Return whether two stretches of an event are equal."""
    return src[start : start + size] == src[other : other + size]


def is_utf8(src: bytes, start: int, stop: int) -> bool:
    """Return whether src[start:stop] is well-formed UTF-8."""
    data = src[start:stop]
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


# ---- writing


def put(out: bytearray, data: bytes | bytearray) -> None:
    """Append."""
    out += data


def size(out: bytearray) -> int:
    """Return the size of the output."""
    return len(out)


def piece(data: bytes) -> bytes:
    """Return bytes that a plan keeps, in the form that the functions below take."""
    return data


def put_piece(out: bytearray, data: bytes) -> None:
    """Append bytes that a plan keeps."""
    out += data


def put_byte(out: bytearray, value: int) -> None:
    """Append one byte."""
    out.append(value)


def put_slice(out: bytearray, src: bytes, start: int, stop: int) -> None:
    """Append src[start:stop]."""
    out += src[start:stop]


def lay(room: bytearray, at: int, src: bytes, start: int, size: int) -> None:
    """Copy src[start:start + size] to room[at:]. room: of reuse.room, with so much memory behind `at`."""
    room[at : at + size] = src[start : start + size]


def put_column(out: bytearray, tag: int, fixed: bytes, src: bytes, start: int, stop: int, after: bytes) -> bool:
    """Append a Column with the value src[start:stop]; return whether that is ASCII.

    Column: tag, length, fixed, 0x42, the value's length, the value, after.
    """
    value = src[start:stop]
    _put_around(out, tag, fixed, value, after)
    return value.isascii()


def put_text_column(out: bytearray, tag: int, fixed: bytes, text: bytearray, after: bytes) -> int:
    """`put_column` of a text just made; return its length."""
    _put_around(out, tag, fixed, text, after)
    return len(text)


def put_latin1_column(out: bytearray, tag: int, fixed: bytes, src: bytes, start: int, stop: int, after: bytes) -> int:
    """`put_column` of bytes as UTF-8, one character for each; return the length of the UTF-8."""
    value = src[start:stop].decode("latin-1").encode()
    _put_around(out, tag, fixed, value, after)
    return len(value)


def put_number_column(out: bytearray, tag: int, fixed: bytes, value: int, after: bytes) -> int:
    """`put_column` of the decimal digits of a signed 64-bit number; return how many there are."""
    text = b"%d" % value
    _put_around(out, tag, fixed, text, after)
    return len(text)


def _put_around(out: bytearray, tag: int, fixed: bytes, value: bytes | bytearray, after: bytes) -> None:
    length = varint(len(value))
    body = len(fixed) + 1 + len(length) + len(value) + len(after)
    out += b"%c%b%b\x42%b" % (tag, varint(body), fixed, length)
    out += value
    out += after


def repeat_column(out: bytearray, tag: int, start: int, stop: int) -> None:
    """Append the output from start to stop once more, with another tag."""
    out.append(tag)
    out += out[start + 1 : stop]


def digits_size(value: int) -> int:
    """Return how many decimal digits an unsigned number has."""
    return len(b"%d" % value)


def put_digits(out: bytearray, value: int) -> None:
    """Append the decimal digits of a signed 64-bit number."""
    out += b"%d" % value


def put_unsigned(out: bytearray, value: int) -> None:
    """Append the decimal digits of an unsigned 64-bit number."""
    out += b"%d" % value


def whole(high: int, low: int, negative: bool) -> int:
    """Return the last 64 bits of high * 10**18 + low, in two's complement; high: at most 18."""
    value = high * 10**18 + low
    return (-value if negative else value) & 0xFFFFFFFFFFFFFFFF


def put_little(out: bytearray, value: int, size: int) -> None:
    """Append the last 1 to 8 bytes of an unsigned number, little-endian."""
    out += (value & (1 << 8 * size) - 1).to_bytes(size, "little")


def put_big(out: bytearray, value: int, size: int) -> None:
    """Append the last 0 to 8 bytes of an unsigned number, big-endian."""
    out += (value & (1 << 8 * size) - 1).to_bytes(size, "big")


def put_padded(out: bytearray, value: int, width: int) -> None:
    """Append the decimal digits of an unsigned number, with zeros before them up to `width`, at most 20."""
    out += b"%0*d" % (width, value)


def put_date(out: bytearray, year: int, month: int, day: int) -> None:
    """Append yyyy-mm-dd; no number is negative."""
    out += b"%04d-%02d-%02d" % (year, month, day)


def put_clock(out: bytearray, hours: int, minutes: int, seconds: int) -> None:
    """Append hh:mm:ss; no number is negative."""
    out += b"%02d:%02d:%02d" % (hours, minutes, seconds)


def put_upper_half(out: bytearray, value: int, size: int) -> None:
    """Append the decimal digits of a negative number of `size` bytes, read as unsigned."""
    out += b"%d" % (value + (1 << (size << 3)))


def put_text(out: bytearray, src: bytes, start: int, stop: int) -> None:
    """Append UTF-8 text, malformed bytes as U+FFFD."""
    data = src[start:stop]
    out += data if data.isascii() else data.decode("utf-8", UTF8_ERRORS).encode()


def is_plain(src: bytes, start: int, stop: int) -> bool:
    """Return whether JSON needs no escapes for src[start:stop]: printable ASCII without quotes and backslashes."""
    data = src[start:stop]
    return data.isascii() and _ESCAPED.search(data.decode()) is None


def put_quoted(out: bytearray, src: bytes, start: int, stop: int) -> None:
    """Append UTF-8 text as a string of JSON, escaped as canal does; malformed bytes as U+FFFD."""
    text = src[start:stop].decode("utf-8", UTF8_ERRORS)
    out += f'"{_ESCAPED.sub(_escape, text)}"'.encode()


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    return _NAMED.get(char) or f"\\u{ord(char):04x}"


def varint(value: int) -> bytes:
    """A protobuf varint; value: 0 or more."""
    if value < 16384:
        return _VARINTS[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint_size(value: int) -> int:
    """Return the size of `varint(value)`."""
    if value < 128:
        return 1
    if value < 16384:
        return 2
    size = 3
    value >>= 21
    while value:
        size += 1
        value >>= 7
    return size


def put_varint(out: bytearray, value: int) -> None:
    """Append a varint; value: 0 or more."""
    out += _VARINTS[value] if value < 16384 else varint(value)


def put_frame(
    out: bytearray,
    journal: bytes,
    offset: int,
    clock: bytes,
    names: bytes,
    length: int,
    change: int,
    mark: bytes,
    props: bytes | bytearray,
    rows: int,
    gtid: bytes | bytearray,
    entry_type: int,
    store: int,
) -> int:
    """Append what precedes a storeValue of `store` bytes: a Messages field's tag and length, then Entry and Header.

    Return the length of the Entry.

    The other parameters are the Header's fields in order. They are encoded, except numbers: logfileOffset, eventLength,
    the eventType (change, 0 for none), the rowsCount among the props (0 for none). `mark` precedes the other props of
    an entry with rows.
    """
    header = b"%b%b%b%b\x50%b" % (journal, varint(offset), clock, names, varint(length))
    if change:
        header += bytes([0x58, change])
    if rows:
        header += mark
    header += props
    if rows:
        number = b"%d" % rows
        header += b"\x62%c\x0a\x09rowsCount\x12%c%b" % (13 + len(number), len(number), number)
    header += gtid
    entry = b"\x0a%b%b\x10%c\x1a%b" % (varint(len(header)), header, entry_type, varint(store))
    out += b"\x12" + varint(len(entry) + store) + entry
    return len(entry) + store


def reserve(out: bytearray, size: int) -> None:
    """Append `size` bytes, to be filled in later."""
    out += bytes(size)


def fill(out: bytearray, at: int, size: int, data: bytes | bytearray) -> None:
    """Replace `size` reserved bytes by `data`; later bytes move only if the lengths differ."""
    out[at : at + size] = data


def fill_varint(out: bytearray, at: int, size: int, value: int) -> None:
    """`fill` with a varint."""
    out[at : at + size] = _VARINTS[value] if value < 16384 else varint(value)


def as_text(out: bytearray, start: int, stop: int) -> str:
    """Return a part of the output as text; it is UTF-8."""
    return out[start:stop].decode()


def set_byte(out: bytearray, at: int, value: int) -> None:
    """Replace one byte."""
    out[at] = value


def truncate(out: bytearray, size: int) -> None:
    """Drop the output from `size` on."""
    del out[size:]


def remove(out: bytearray, at: int) -> None:
    """Remove one byte."""
    del out[at]


def forget(out: bytearray, size: int) -> None:
    """Drop the first `size` bytes of the output."""
    del out[:size]


def same_text(out: bytearray, start: int, other: int, size: int) -> bool:
    """Return whether two stretches of the output are equal."""
    return out[start : start + size] == out[other : other + size]


# ---- flat arrays


def length(column: array[int]) -> int:
    """Return the number of elements."""
    return len(column)


def push(column: array[int], value: int) -> None:
    """Append to an array of type 'q'."""
    column.append(value)


def push_small(column: array[int], value: int) -> None:
    """Append to an array of type 'i'."""
    column.append(value)


def hold(column: array[int], size: int) -> None:
    """Reserve memory for so many elements in an empty array, if possible."""


def cut(column: array[int], size: int) -> None:
    """Drop the elements from `size` on."""
    del column[size:]


def set_item(column: array[int], index: int, value: int) -> None:
    """Replace an element of an array of type 'q'."""
    column[index] = value


def item(column: array[int], index: int) -> int:
    """Return an element of an array of type 'q'."""
    return column[index]
