"""Dates and times in canal's text form (docs/protocol.md#temporal), appended to a text.

TIMESTAMP uses the time zone of this process; in the exact form (docs/protocol.md#exact) it is in UTC.
"""

from __future__ import annotations

from array import array
from time import localtime

import canal_ha.decode.kernel.primitives as p

_MINUTES = 16384  # minutes whose offsets from UTC are cached; a power of two

# A minute since 1970, plus one, times 2**20, and its seconds east of UTC plus 2**19, at the place of its last bits.
_offsets = array("q", bytes(8 * _MINUTES))


def fraction_size(decimals: int) -> int:
    """Return the bytes of the stored fraction of a second with that many digits."""
    return (decimals + 1) >> 1


def _scale(decimals: int) -> int:
    """Return the microseconds in one unit of the stored fraction."""
    return 10000 if decimals < 3 else 100 if decimals < 5 else 1


def _put_fraction(text: bytearray, stored: int, decimals: int) -> None:
    """Append the first digits of the microseconds."""
    p.put_byte(text, 0x2E)
    size = p.size(text) + decimals
    p.put_padded(text, stored * _scale(decimals), 6)
    p.truncate(text, size)


def put_date(text: bytearray, src: bytes, at: int) -> None:
    """Append a DATE: three bytes."""
    value = p.u24(src, at)
    p.put_date(text, value >> 9, value >> 5 & 15, value & 31)


def put_datetime2(text: bytearray, src: bytes, at: int, decimals: int) -> None:
    """Append a DATETIME(decimals): five bytes, then the fraction."""
    packed = p.big(src, at, 5) - p.bit(39)
    put_packed_datetime(text, -packed if packed < 0 else packed)
    if decimals:
        _put_fraction(text, p.big(src, at + 5, fraction_size(decimals)), decimals)


def put_packed_datetime(text: bytearray, packed: int) -> None:
    """Append year and month times 2**22, day times 2**17, hour times 2**12, minute times 2**6, second."""
    month = packed >> 22
    p.put_date(text, month // 13, month % 13, packed >> 17 & 31)
    p.put_byte(text, 0x20)
    p.put_clock(text, packed >> 12 & 31, packed >> 6 & 63, packed & 63)


def put_timestamp2(text: bytearray, src: bytes, at: int, decimals: int, utc: bool = False) -> None:
    """Append a TIMESTAMP(decimals): four bytes, then the fraction. utc: in UTC, not in local time."""
    put_seconds(text, p.big(src, at, 4), utc)
    if decimals:
        _put_fraction(text, p.big(src, at + 4, fraction_size(decimals)), decimals)


def put_seconds(text: bytearray, seconds: int, utc: bool = False) -> None:
    """Append seconds since 1970; 0 is MySQL's zero date. utc: in UTC, not in local time."""
    if not seconds:
        p.put(text, b"0000-00-00 00:00:00")
    elif utc:
        _put_moment(text, seconds)
    else:
        _put_local(text, seconds)


def _put_local(text: bytearray, seconds: int) -> None:
    """Append seconds since 1970 in local time."""
    minute = seconds // 60
    known = p.item(_offsets, minute & _MINUTES - 1)
    if known >> 20 != minute + 1:
        known = (minute + 1 << 20) + _east(seconds) + (1 << 19)
        p.set_item(_offsets, minute & _MINUTES - 1, known)
    _put_moment(text, seconds + (known & (1 << 20) - 1) - (1 << 19))


def _put_moment(text: bytearray, seconds: int) -> None:
    """Append the date and time of seconds since 1970, without converting a time zone."""
    day = seconds // 86400
    rest = seconds - day * 86400
    _put_day(text, day)
    p.put_byte(text, 0x20)
    p.put_clock(text, rest // 3600, rest // 60 % 60, rest % 60)


def _east(seconds: int) -> int:
    """Return by how many seconds local time is ahead of UTC."""
    return localtime(seconds).tm_gmtoff


def _put_day(text: bytearray, days: int) -> None:
    """Append the date that many days after 1970 began. Years here begin in March, so that a leap day ends them."""
    days += 719468  # since March of the year 0
    era = days // 146097  # 400 years
    days -= era * 146097
    years = (days - days // 1460 + days // 36524 - days // 146096) // 365
    days -= 365 * years + years // 4 - years // 100
    month = (5 * days + 2) // 153
    day = days - (153 * month + 2) // 5 + 1
    if month < 10:
        p.put_date(text, era * 400 + years, month + 3, day)
    else:
        p.put_date(text, era * 400 + years + 1, month - 9, day)


def forget_zone() -> None:
    """Clear the cache, because the time zone of the process has changed."""
    for index in range(_MINUTES):
        p.set_item(_offsets, index, 0)


def put_time2(text: bytearray, src: bytes, at: int, decimals: int) -> None:
    """Append a TIME(decimals): three bytes and the fraction form one number, offset by half its range."""
    bits = fraction_size(decimals) << 3
    value = p.big(src, at, 3 + (bits >> 3)) - p.bit(bits + 23)
    if value < 0:
        p.put_byte(text, 0x2D)
        value = -value
    put_packed_time(text, value >> bits)
    if decimals:
        _put_fraction(text, value & p.bit(bits) - 1, decimals)


def put_packed_time(text: bytearray, packed: int) -> None:
    """Append hours times 2**12, minute times 2**6, second."""
    p.put_clock(text, packed >> 12 & 1023, packed >> 6 & 63, packed & 63)


def put_datetime(text: bytearray, src: bytes, at: int) -> None:
    """Append a DATETIME before 5.6: eight bytes, the decimal digits yyyymmddhhmmss."""
    value = p.u64(src, at)
    day = value // 1000000
    time = value % 1000000
    p.put_date(text, day // 10000, day // 100 % 100, day % 100)
    p.put_byte(text, 0x20)
    p.put_clock(text, time // 10000, time // 100 % 100, time % 100)


def put_time(text: bytearray, src: bytes, at: int) -> None:
    """Append a TIME before 5.6: three bytes, the decimal digits hhmmss with a sign."""
    value = p.signed(src, at, 3)
    if value < 0:
        p.put_byte(text, 0x2D)
        value = -value
    p.put_clock(text, value // 10000, value // 100 % 100, value % 100)


def put_year(text: bytearray, value: int) -> None:
    """Append a YEAR: one byte, years since 1900; 0 is the zero year."""
    p.put_padded(text, 1900 + value if value else 0, 4)
