"""Dates and times as canal prints them (specification 7.4.3). TIMESTAMP follows the time zone of this process."""

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


def _fraction(stored: int, decimals: int) -> bytes:
    micros = b"%06d" % (stored * _FRACTION_SCALE[decimals])
    return b"." + micros[:decimals]


def date_text(src: bytes, at: int) -> bytes:
    """DATE: three bytes."""
    value = p.u24(src, at)
    return b"%04d-%02d-%02d" % (value >> 9, value >> 5 & 15, value & 31)


def datetime2_text(src: bytes, at: int, decimals: int) -> bytes:
    """DATETIME(decimals): five bytes, then the fraction."""
    text = packed_datetime(abs(p.big(src, at, 5) - 0x8000000000))
    if decimals:
        text += _fraction(p.big(src, at + 5, fraction_size(decimals)), decimals)
    return text


def packed_datetime(packed: int) -> bytes:
    """Year and month times 2**22, day times 2**17, hour times 2**12, minute times 2**6, second."""
    month = packed >> 22
    return b"%04d-%02d-%02d %02d:%02d:%02d" % (
        month // 13,
        month % 13,
        packed >> 17 & 31,
        packed >> 12 & 31,
        packed >> 6 & 63,
        packed & 63,
    )


def timestamp2_text(src: bytes, at: int, decimals: int) -> bytes:
    """TIMESTAMP(decimals): four bytes, then the fraction."""
    text = seconds_text(p.big(src, at, 4))
    if decimals:
        text += _fraction(p.big(src, at + 4, fraction_size(decimals)), decimals)
    return text


def seconds_text(seconds: int) -> bytes:
    """Seconds since 1970 in local time; 0 is MySQL's zero date."""
    if seconds == 0:
        return _ZERO
    minute = seconds // 60
    offset = _offsets.get(minute)
    if offset is None:
        if len(_offsets) >= _CACHE_LIMIT:
            _offsets.clear()
        offset = _offsets[minute] = localtime(seconds).tm_gmtoff
    day, rest = divmod(seconds + offset, 86400)
    text = _days.get(day)
    if text is None:
        if len(_days) >= _CACHE_LIMIT:
            _days.clear()
        text = _days[day] = date.fromordinal(_EPOCH + day).isoformat().encode("ascii") + b" "
    return text + b"%02d:%02d:%02d" % (rest // 3600, rest // 60 % 60, rest % 60)


def forget_zone() -> None:
    """The time zone of the process has changed."""
    _offsets.clear()


def time2_text(src: bytes, at: int, decimals: int) -> bytes:
    """TIME(decimals): three bytes and the fraction form one number, offset by half its range."""
    size = fraction_size(decimals)
    value = p.big(src, at, 3 + size) - (0x800000 << (size << 3))
    magnitude = abs(value)
    whole = magnitude >> (size << 3)
    text = b"%02d:%02d:%02d" % (whole >> 12 & 1023, whole >> 6 & 63, whole & 63)
    if decimals:
        text += _fraction(magnitude & (1 << (size << 3)) - 1, decimals)
    return b"-" + text if value < 0 else text


def datetime_text(src: bytes, at: int) -> bytes:
    """DATETIME before 5.6: eight bytes, the decimal digits yyyymmddhhmmss."""
    day, time = divmod(p.u64(src, at), 1000000)
    return b"%04d-%02d-%02d %02d:%02d:%02d" % (
        day // 10000,
        day // 100 % 100,
        day % 100,
        time // 10000,
        time // 100 % 100,
        time % 100,
    )


def time_text(src: bytes, at: int) -> bytes:
    """TIME before 5.6: three bytes, the decimal digits hhmmss with a sign."""
    value = p.signed(src, at, 3)
    digits = abs(value)
    text = b"%02d:%02d:%02d" % (digits // 10000, digits // 100 % 100, digits % 100)
    return b"-" + text if value < 0 else text


def year_text(value: int) -> bytes:
    """YEAR: one byte, years since 1900; 0 is the zero year."""
    return b"%d" % (1900 + value) if value else b"0000"
