"""Values from texts, and the buffers of Arrow's memory layout; a compiled build replaces these by inline C.

A `put_` function appends the value of a text, little-endian, and returns True. If the text is invalid or the value does
not fit, it appends nothing and returns False. The caller checks positions, as in primitives.
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

NOTHING = 2  # for a date that is no day, which is neither a date nor an error


# ---- numbers of protobuf


def int64(value: int) -> int:
    """Return 64 bits as a signed number."""
    return value - (value >> 63 << 64)


def int32(value: int) -> int:
    """Return the lower 32 bits as a signed number."""
    value &= 0xFFFFFFFF
    return value - (value >> 31 << 32)


# ---- fixed sizes


def put_zeros(out: bytearray, size: int) -> None:
    """Append zeros, in place of a NULL."""
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


def put_marks(ops: bytearray, rows: bytearray, places: bytearray, op: int, row: int, place: int, count: int) -> None:
    """Append `count` times `op` in 8 bits, as many numbers from `row` on, and as often `place`, both in 32 bits."""
    ops += _I8(op) * count
    for index in range(count):
        rows += _I32(row + index)
    places += _I32(place) * count


def put_ended(out: bytearray, ends: bytearray, src: bytes, start: int, stop: int) -> bool:
    """Append src[start:stop], and where it ends in `out`; return False if 32 bits cannot say that."""
    if len(out) + stop - start > 0x7FFFFFFF:
        return False
    out += src[start:stop]
    ends += _I32(len(out))
    return True


def put_integer(out: bytearray, src: bytes, start: int, stop: int, size: int) -> bool:
    """Append a whole number of 1, 2, 4 or 8 bytes."""
    text = src[start:stop]
    if not _INTEGER(text):
        return False
    try:
        out += _PACKS[size](int(text))
    except error:
        return False
    return True


def put_decimal(out: bytearray, src: bytes, start: int, stop: int, precision: int, scale: int) -> bool:
    """Append a decimal number of 16 bytes; the text may have fewer or more zeros behind `scale`."""
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
    """Append the nearest floating point number of 8 bytes; its range is checked."""
    value = _number(src[start:stop])
    if value is None:
        return False
    out += _F64(value)
    return True


def put_single(out: bytearray, src: bytes, start: int, stop: int) -> bool:
    """Append a floating point number of 4 bytes; its range is checked."""
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
    """Append a date as days since 1970; return NOTHING for one that is no day, and append nothing."""
    done, days = day(src, start, stop)
    if done == 1:
        out += _I32(days)
    return done


def day(src: bytes, start: int, stop: int) -> tuple[int, int]:
    """Return what `put_day` returns, and the days."""
    found = _DAY(src[start:stop])
    if found is None:
        return False, 0
    days = _days(*map(int, found.groups()))
    if days is None:
        return NOTHING if _storable(src[start:stop]) else False, 0
    return True, days


def _days(year: int, month: int, day: int) -> int | None:
    """Return days since 1970; None for what is no day."""
    try:
        return date(year, month, day).toordinal() - _EPOCH
    except ValueError:
        return None


def _storable(day: bytes) -> bool:
    """Return whether MySQL can store a day, with NO_ZERO_DATE off or ALLOW_INVALID_DATES on."""
    parts = int(day[:4]), int(day[5:7]), int(day[8:])
    return not all(parts) or (parts[1] <= 12 and parts[2] <= 31)


def put_instant(out: bytearray, src: bytes, start: int, stop: int) -> int:
    """Append date and time as microseconds since 1970; return NOTHING for a date that is no day, and append nothing."""
    done, micros = instant(src, start, stop)
    if done == 1:
        out += _I64(micros)
    return done


def instant(src: bytes, start: int, stop: int) -> tuple[int, int]:
    """Return what `put_instant` returns, and the microseconds."""
    found = _INSTANT(src[start:stop])
    if found is None:
        return False, 0
    days = _days(int(found[1][:4]), int(found[1][5:7]), int(found[1][8:]))
    if days is None:
        return NOTHING if _storable(found[1]) else False, 0
    seconds = ((days * 24 + int(found[2])) * 60 + int(found[3])) * 60 + int(found[4])
    return True, seconds * 1_000_000 + int((found[5] or b"0").ljust(6, b"0"))


def put_places(out: bytearray, data: bytearray, width: int, places: bytearray) -> None:
    """Append the values of 4 or 8 bytes in `data` at each place of 32 bits. Raises IndexError."""
    values = memoryview(data).cast("i" if width == 4 else "q")
    with memoryview(bytearray(width * (len(places) >> 2))) as made:
        to = made.cast("i" if width == 4 else "q")
        for index, place in enumerate(memoryview(places).cast("i")):
            to[index] = values[place]
        out += made


def places_size(offsets: bytearray, places: bytearray, width: int) -> int:
    """Return the bytes of the texts at these places. width: bytes of a place, 1 or 4. Raises IndexError."""
    ends = memoryview(offsets).cast("i")
    return sum(ends[place + 1] - ends[place] for place in memoryview(places).cast("i" if width == 4 else "b"))


def put_text_places(
    out: bytearray, ends: bytearray, data: bytearray, offsets: bytearray, places: bytearray, width: int, size: int
) -> None:
    """Append the text at each place, and where it ends in `out`. size: as places_size returns it. Raises IndexError."""
    known = memoryview(offsets).cast("i")
    for place in memoryview(places).cast("i" if width == 4 else "b"):
        out += data[known[place] : known[place + 1]]
        ends += _I32(len(out))


# ---- texts and bytes


def put_narrow(out: bytearray, src: bytes, start: int, stop: int) -> bool:
    """Append the bytes that Latin-1 characters in UTF-8 represent."""
    text = src[start:stop]
    if not text.isascii():
        try:
            text = text.decode().encode("latin-1")
        except UnicodeError:
            return False
    out += text
    return True


def as_text(src: bytes, start: int, stop: int) -> str:
    """Decode UTF-8. Raises UnicodeDecodeError."""
    return src[start:stop].decode()


def as_integer(src: bytes, start: int, stop: int) -> object:
    """Return int() of a text; the text itself if that fails."""
    text = src[start:stop].decode()
    try:
        return int(text)
    except ValueError:
        return text


def mark(bitmap: bytearray, index: int, valid: bool) -> None:
    """Set the bit of a value in a bitmap that ends with it, or lacks the byte for it."""
    if index >> 3 == len(bitmap):
        bitmap.append(0)
    if valid:
        bitmap[index >> 3] |= 1 << (index & 7)
