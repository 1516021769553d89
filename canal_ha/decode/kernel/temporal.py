"""Dates and times as canal prints them (specification 7.4.3), appended to a text.

TIMESTAMP follows the time zone of this process.
"""

from __future__ import annotations

from datetime import date
from time import localtime

import canal_ha.decode.kernel.primitives as p

_EPOCH = date(1970, 1, 1).toordinal()
_FRACTION_SCALE = (1, 10000, 10000, 100, 100, 1, 1)  # stored fraction -> microseconds, by declared digits
_CACHE_LIMIT = 65536
_ZERO = b"0000-00-00 00:00:00"

_offsets: dict[int, int] = {}  # minute since 1970 -> seconds east of UTC
_days: dict[int, bytes] = {}  # day since 1970 -> text with a blank behind it


def fraction_size(decimals: int) -> int:
    """Bytes of the fraction of a second stored with that many digits."""
    return (decimals + 1) >> 1


def _put_fraction(text: bytearray, stored: int, decimals: int) -> None:
    """The first digits of the microseconds."""
    p.put_byte(text, 0x2E)
    size = len(text) + decimals
    p.put_padded(text, stored * _FRACTION_SCALE[decimals], 6)
    p.truncate(text, size)


def _put_date(text: bytearray, year: int, month: int, day: int) -> None:
    p.put_padded(text, year, 4)
    p.put_byte(text, 0x2D)
    p.put_padded(text, month, 2)
    p.put_byte(text, 0x2D)
    p.put_padded(text, day, 2)


def _put_clock(text: bytearray, hours: int, minutes: int, seconds: int) -> None:
    p.put_padded(text, hours, 2)
    p.put_byte(text, 0x3A)
    p.put_padded(text, minutes, 2)
    p.put_byte(text, 0x3A)
    p.put_padded(text, seconds, 2)


def put_date(text: bytearray, src: bytes, at: int) -> None:
    """DATE: three bytes."""
    value = p.u24(src, at)
    _put_date(text, value >> 9, value >> 5 & 15, value & 31)


def put_datetime2(text: bytearray, src: bytes, at: int, decimals: int) -> None:
    """DATETIME(decimals): five bytes, then the fraction."""
    packed = p.big(src, at, 5) - 0x8000000000
    put_packed_datetime(text, -packed if packed < 0 else packed)
    if decimals:
        _put_fraction(text, p.big(src, at + 5, fraction_size(decimals)), decimals)


def put_packed_datetime(text: bytearray, packed: int) -> None:
    """Year and month times 2**22, day times 2**17, hour times 2**12, minute times 2**6, second."""
    month = packed >> 22
    _put_date(text, month // 13, month % 13, packed >> 17 & 31)
    p.put_byte(text, 0x20)
    _put_clock(text, packed >> 12 & 31, packed >> 6 & 63, packed & 63)


def put_timestamp2(text: bytearray, src: bytes, at: int, decimals: int) -> None:
    """TIMESTAMP(decimals): four bytes, then the fraction."""
    put_seconds(text, p.big(src, at, 4))
    if decimals:
        _put_fraction(text, p.big(src, at + 4, fraction_size(decimals)), decimals)


def put_seconds(text: bytearray, seconds: int) -> None:
    """Seconds since 1970 in local time; 0 is MySQL's zero date."""
    if seconds == 0:
        p.put(text, _ZERO)
        return
    minute = seconds // 60
    offset = _offsets.get(minute)
    if offset is None:
        if len(_offsets) >= _CACHE_LIMIT:
            _offsets.clear()
        offset = _offsets[minute] = localtime(seconds).tm_gmtoff
    local = seconds + offset
    day = local // 86400
    rest = local - day * 86400
    known = _days.get(day)
    if known is None:
        if len(_days) >= _CACHE_LIMIT:
            _days.clear()
        known = _days[day] = date.fromordinal(_EPOCH + day).isoformat().encode("ascii") + b" "
    p.put(text, known)
    _put_clock(text, rest // 3600, rest // 60 % 60, rest % 60)


def forget_zone() -> None:
    """The time zone of the process has changed."""
    _offsets.clear()


def put_time2(text: bytearray, src: bytes, at: int, decimals: int) -> None:
    """TIME(decimals): three bytes and the fraction form one number, offset by half its range."""
    bits = fraction_size(decimals) << 3
    value = p.big(src, at, 3 + (bits >> 3)) - p.bit(bits + 23)
    if value < 0:
        p.put_byte(text, 0x2D)
        value = -value
    put_packed_time(text, value >> bits)
    if decimals:
        _put_fraction(text, value & p.bit(bits) - 1, decimals)


def put_packed_time(text: bytearray, packed: int) -> None:
    """Hours times 2**12, minute times 2**6, second."""
    _put_clock(text, packed >> 12 & 1023, packed >> 6 & 63, packed & 63)


def put_datetime(text: bytearray, src: bytes, at: int) -> None:
    """DATETIME before 5.6: eight bytes, the decimal digits yyyymmddhhmmss."""
    value = p.u64(src, at)
    day = value // 1000000
    time = value % 1000000
    _put_date(text, day // 10000, day // 100 % 100, day % 100)
    p.put_byte(text, 0x20)
    _put_clock(text, time // 10000, time // 100 % 100, time % 100)


def put_time(text: bytearray, src: bytes, at: int) -> None:
    """TIME before 5.6: three bytes, the decimal digits hhmmss with a sign."""
    value = p.signed(src, at, 3)
    if value < 0:
        p.put_byte(text, 0x2D)
        value = -value
    _put_clock(text, value // 10000, value // 100 % 100, value % 100)


def put_year(text: bytearray, value: int) -> None:
    """YEAR: one byte, years since 1900; 0 is the zero year."""
    p.put_padded(text, 1900 + value if value else 0, 4)
