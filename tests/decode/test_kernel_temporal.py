"""Dates and times as text."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from canal_ha.decode.kernel import temporal
from tests.time_zone import zone


def text(put: Callable[..., None], *arguments: object) -> bytes:
    """Return the text that `put` appends to an empty one."""
    out = bytearray()
    put(out, *arguments)
    return bytes(out)


def test_zero_values() -> None:
    """MySQL's zero dates and times are shown as zeros, with and without fractions."""
    assert text(temporal.put_date, bytes(3), 0) == b"0000-00-00"
    assert text(temporal.put_datetime2, b"\x80" + bytes(4), 0, 0) == b"0000-00-00 00:00:00"
    assert text(temporal.put_timestamp2, bytes(5), 0, 2) == b"0000-00-00 00:00:00.00"
    assert text(temporal.put_time2, b"\x80" + bytes(5), 0, 6) == b"00:00:00.000000"
    assert text(temporal.put_year, 0) == b"0000"
    assert text(temporal.put_year, 125) == b"2025"


def test_negative_times() -> None:
    """A negative TIME, stored below the middle of the range, is read with its fraction."""
    assert text(temporal.put_time2, (0x800000 - (1 << 12)).to_bytes(3, "big"), 0, 0) == b"-01:00:00"
    half = (0x80000000 - 50).to_bytes(4, "big")
    assert text(temporal.put_time2, half, 0, 1) == b"-00:00:00.5"
    assert text(temporal.put_time2, (0x800000 + (838 << 12) + (59 << 6) + 59).to_bytes(3, "big"), 0, 0) == b"838:59:59"


def test_timestamps_follow_the_zone_of_the_process() -> None:
    """TIMESTAMP text follows the time zone of the process, to the second of a change to summer time."""
    change = 1_743_296_400  # 2025-03-30 01:00:00 UTC
    with zone("Europe/Berlin"):
        assert text(temporal.put_seconds, change - 1) == b"2025-03-30 01:59:59"
        assert text(temporal.put_seconds, change) == b"2025-03-30 03:00:00"
    assert text(temporal.put_seconds, change) == b"2025-03-30 01:00:00"
    assert text(temporal.put_seconds, 0xFFFFFFFF) == b"2106-02-07 06:28:15"


def test_every_day() -> None:
    """Every day of the TIMESTAMP range has Python's date, and west of Greenwich the range begins in 1969."""
    begin = datetime(1970, 1, 1)
    for day in range((1 << 32) // 86400 + 1):
        seconds = min(day * 86400 + day * 7919 % 86400 + 1, (1 << 32) - 1)
        expected = (begin + timedelta(seconds=seconds)).isoformat(" ")
        assert text(temporal.put_seconds, seconds).decode() == expected
    with zone("America/Los_Angeles"):
        assert text(temporal.put_seconds, 1) == b"1969-12-31 16:00:01"


def test_minutes_whose_offsets_share_a_place() -> None:
    """Cached offsets of minutes that share a place are kept apart, and a new time zone clears them."""
    winter = 1_700_000_000
    summer = winter + 16384 * 60 * 20
    with zone("Europe/Berlin"):
        for seconds, expected in ((winter, "2023-11-14 23:13:20"), (summer, "2024-06-29 13:33:20")) * 2:
            assert text(temporal.put_seconds, seconds).decode() == expected
    assert text(temporal.put_seconds, winter) == b"2023-11-14 22:13:20"


def test_numbers_that_no_clock_shows() -> None:
    """Values out of the range of a clock are shown digit by digit."""
    assert text(temporal.put_date, b"\xff\xff\xff", 0) == b"32767-15-31"
    assert text(temporal.put_datetime, ((1 << 64) - 1).to_bytes(8, "little"), 0) == b"1844674407-37-09 55:16:15"
    assert text(temporal.put_time, (8388607).to_bytes(3, "little"), 0) == b"838:86:07"
    assert text(temporal.put_packed_datetime, (12345 * 13 + 12) << 22 | 31 << 17) == b"12345-12-31 00:00:00"


def test_formats_before_5_6() -> None:
    """DATETIME and TIME before MySQL 5.6 are read from the decimal digits of a little-endian number."""
    assert text(temporal.put_datetime, (20240229235958).to_bytes(8, "little"), 0) == b"2024-02-29 23:59:58"
    assert text(temporal.put_time, (1000001).to_bytes(3, "little"), 0) == b"100:00:01"
    assert text(temporal.put_time, (-8385959).to_bytes(3, "little", signed=True), 0) == b"-838:59:59"
