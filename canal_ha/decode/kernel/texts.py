"""Values from texts, and the buffers of Arrow's memory layout; a compiled build replaces them by inline C.

A `put_` of a text appends its value, little-endian, and says True; when the text is not one, or the value does not fit,
it appends nothing and says False. Positions are checked by the caller, as in primitives.
"""

from __future__ import annotations

import re
from datetime import date
from struct import Struct, error

_I8 = Struct("<b").pack
_I16 = Struct("<h").pack
_I32 = Struct("<i").pack
_I64 = Struct("<q").pack
_F32 = Struct("<f").pack
_F64 = Struct("<d").pack
_PACKS = {1: _I8, 2: _I16, 4: _I32, 8: _I64}
_INTEGER = re.compile(rb"-?[0-9]{1,19}").fullmatch
_NUMBER = re.compile(rb"[0-9.eE+-]+").fullmatch
_DECIMAL = re.compile(rb"(-?)([0-9]*)(?:\.([0-9]*))?").fullmatch
_DAY = re.compile(rb"([0-9]{4})-([0-9]{2})-([0-9]{2})").fullmatch
_INSTANT = re.compile(
    rb"([0-9]{4}-[0-9]{2}-[0-9]{2}) ([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(?:\.([0-9]{1,6}))?"
).fullmatch
_EPOCH = date(1970, 1, 1).toordinal()
_DIGITS = 38  # of a decimal of 128 bits

NOTHING = 2  # what a date of zeros is: no date, and no mistake


# ---- numbers of protobuf


def int64(value: int) -> int:
    """64 bits as a signed number."""
    return value - (value >> 63 << 64)


def int32(value: int) -> int:
    """The lower 32 bits as a signed number."""
    value &= 0xFFFFFFFF
    return value - (value >> 31 << 32)


# ---- fixed sizes


def put_zeros(out: bytearray, size: int) -> None:
    """Append zeros: the place of a NULL."""
    out += bytes(size)


def put_i8(out: bytearray, value: int) -> None:
    """Append a signed number of 8 bits."""
    out += _I8(value)


def put_i32(out: bytearray, value: int) -> None:
    """Append a signed number of 32 bits."""
    out += _I32(value)


def put_i64(out: bytearray, value: int) -> None:
    """Append a signed number of 64 bits."""
    out += _I64(value)


def put_integer(out: bytearray, src: bytes, start: int, stop: int, size: int) -> bool:
    """A whole number of so many bytes: 1, 2, 4 or 8."""
    text = src[start:stop]
    if not _INTEGER(text):
        return False
    try:
        out += _PACKS[size](int(text))
    except error:
        return False
    return True


def put_decimal(out: bytearray, src: bytes, start: int, stop: int, precision: int, scale: int) -> bool:
    """A decimal number of 16 bytes; zeros behind `scale` may be left out or be too many."""
    found = _DECIMAL(src[start:stop])
    if found is None:
        return False
    sign, whole, fraction = found.groups()
    fraction = fraction or b""
    if (not whole and not fraction) or fraction[scale:].strip(b"0"):
        return False
    digits = (whole + fraction[:scale].ljust(scale, b"0")).lstrip(b"0")
    if len(digits) > precision:
        return False
    value = int(digits or b"0")
    out += (-value if sign else value).to_bytes(16, "little", signed=True)
    return True


def put_double(out: bytearray, src: bytes, start: int, stop: int) -> bool:
    """A floating point number of 8 bytes, the nearest; not beyond its range."""
    value = _number(src[start:stop])
    if value is None:
        return False
    out += _F64(value)
    return True


def put_single(out: bytearray, src: bytes, start: int, stop: int) -> bool:
    """A floating point number of 4 bytes; not beyond its range."""
    value = _number(src[start:stop])
    if value is None:
        return False
    try:
        out += _F32(value)
    except OverflowError:
        return False
    return True


def _number(text: bytes) -> float | None:
    if not _NUMBER(text):
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return None if value in (float("inf"), float("-inf")) else value


def put_day(out: bytearray, src: bytes, start: int, stop: int) -> int:
    """A date as days since 1970; NOTHING for one with zeros, which appends nothing."""
    found = _DAY(src[start:stop])
    if found is None:
        return False
    year, month, day = map(int, found.groups())
    if not year or not month or not day:
        return NOTHING
    try:
        out += _I32(date(year, month, day).toordinal() - _EPOCH)
    except ValueError:
        return False
    return True


def put_instant(out: bytearray, src: bytes, start: int, stop: int) -> int:
    """Date and time as microseconds since 1970; NOTHING for a date with zeros, which appends nothing."""
    found = _INSTANT(src[start:stop])
    if found is None:
        return False
    year, month, day = int(found[1][:4]), int(found[1][5:7]), int(found[1][8:])
    if not year or not month or not day:
        return NOTHING
    try:
        days = date(year, month, day).toordinal() - _EPOCH
    except ValueError:
        return False
    seconds = ((days * 24 + int(found[2])) * 60 + int(found[3])) * 60 + int(found[4])
    out += _I64(seconds * 1_000_000 + int((found[5] or b"0").ljust(6, b"0")))
    return True


def put_places(out: bytearray, data: bytearray, width: int, places: bytearray) -> None:
    """For every place, 32 bits, the value of 4 or 8 bytes that is there in `data`. Raises IndexError."""
    values = memoryview(data).cast("i" if width == 4 else "q")
    with memoryview(bytearray(width * (len(places) >> 2))) as made:
        to = made.cast("i" if width == 4 else "q")
        for index, place in enumerate(memoryview(places).cast("i")):
            to[index] = values[place]
        out += made


def places_size(offsets: bytearray, places: bytearray, width: int) -> int:
    """Bytes of the texts that are at these places, each of so many bytes: 1 or 4. Raises IndexError."""
    ends = memoryview(offsets).cast("i")
    return sum(ends[place + 1] - ends[place] for place in memoryview(places).cast("i" if width == 4 else "b"))


def put_text_places(
    out: bytearray, ends: bytearray, data: bytearray, offsets: bytearray, places: bytearray, width: int
) -> None:
    """For every place the text that is there, and where it ends in `out`. Raises IndexError."""
    known = memoryview(offsets).cast("i")
    for place in memoryview(places).cast("i" if width == 4 else "b"):
        out += data[known[place] : known[place + 1]]
        ends += _I32(len(out))


# ---- texts and bytes


def put_narrow(out: bytearray, src: bytes, start: int, stop: int) -> bool:
    """The bytes that Latin-1 characters in UTF-8 stand for."""
    text = src[start:stop]
    if not text.isascii():
        try:
            text = text.decode().encode("latin-1")
        except UnicodeError:
            return False
    out += text
    return True


def as_text(src: bytes, start: int, stop: int) -> str:
    """UTF-8 as a str. Raises UnicodeDecodeError."""
    return src[start:stop].decode()


def as_integer(src: bytes, start: int, stop: int) -> object:
    """What int() makes of a text; the text itself where it makes nothing of it."""
    text = src[start:stop].decode()
    try:
        return int(text)
    except ValueError:
        return text


def mark(bitmap: bytearray, index: int, valid: bool) -> None:
    """Set the bit of a value in a bitmap that ends with it, or is one byte short of that."""
    if index >> 3 == len(bitmap):
        bitmap.append(0)
    if valid:
        bitmap[index >> 3] |= 1 << (index & 7)
