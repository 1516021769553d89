"""Conversion of texts to values in Arrow's memory layout."""

from __future__ import annotations

import struct
from datetime import date, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canal_ha.decode.kernel import codes
from canal_ha.decode.kernel.columns import Groups, Target
from canal_ha.decode.kernel.primitives import Broken
from tests.sampling import examples

EPOCH = datetime(1970, 1, 1)


def put(target: Target, text: str | bytes) -> bytes | None:
    """Put a text; return the bytes appended to `data`, or None if it is refused and nothing is appended."""
    raw = text.encode() if isinstance(text, str) else text
    before, count = len(target.data), target.count
    if target.put(b"<" + raw + b">", 1, 1 + len(raw)):
        assert target.count == count + 1
        return bytes(target.data[before:])
    assert (len(target.data), target.count, target.refused) == (before, count, raw)
    return None


def integer(width: int, text: str) -> int | None:
    data = put(Target(codes.INTEGER, width), text)
    return None if data is None else int.from_bytes(data, "little", signed=True)


@settings(max_examples=examples(100))
@given(st.integers(-(2**65), 2**65) | st.integers(-300, 300), st.sampled_from((1, 2, 4, 8)))
def test_whole_numbers(value: int, width: int) -> None:
    """A number that fits the width is stored, with or without leading zeros; others are refused."""
    fits = -(1 << 8 * width - 1) <= value < 1 << 8 * width - 1
    assert integer(width, str(value)) == (value if fits else None)
    assert integer(width, f"{value:06d}") == (value if fits else None)


@pytest.mark.parametrize("text", ["", "-", "+1", " 1", "1 ", "1.0", "0x1", "1_0", "\u0661", "--1", "1e3", "9" * 20])
def test_what_is_no_whole_number(text: str) -> None:
    """A text that is not at most 19 digits, after an optional minus, is refused."""
    assert integer(8, text) is None


def decimal(precision: int, scale: int, text: str) -> int | None:
    data = put(Target(codes.DECIMAL, 0, precision, scale), text)
    return None if data is None else int.from_bytes(data, "little", signed=True)


@settings(max_examples=examples(100))
@given(st.integers(1, 38), st.data())
def test_decimals(precision: int, data: st.DataObject) -> None:
    """A number that fits precision and scale is stored, with any number of trailing zeros; others are refused."""
    scale = data.draw(st.integers(0, precision))
    digits = data.draw(st.integers(-(10**precision) + 1, 10**precision - 1))
    sign = "-" * (digits < 0)
    text = f"{abs(digits):0{scale + 1}d}"
    whole, fraction = sign + text[: len(text) - scale], text[len(text) - scale :]
    assert decimal(precision, scale, f"{whole}.{fraction}") == digits
    assert decimal(precision, scale, f"{whole}.{fraction.rstrip('0')}") == digits
    assert decimal(precision, scale, f"{whole}.{fraction}000") == digits
    assert decimal(precision, scale, f"{whole}.{fraction}001") is None
    assert decimal(precision, scale, f"{sign}1{'0' * (precision - scale)}.{fraction}") is None


@pytest.mark.parametrize("text", ["", "-", ".", "-.", "1.2.3", "1e5", "+1", " 1", "1,5", "x"])
def test_what_is_no_decimal(text: str) -> None:
    """A text that is not digits, with an optional minus and point, is refused."""
    assert decimal(38, 10, text) is None


@settings(max_examples=examples(100))
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floating_point(value: float) -> None:
    """Numbers in Python's or Java's notation become the nearest double, and the nearest single within its range."""
    for text in (repr(value), repr(value).replace("e+", "E").replace("e", "E")):
        assert put(Target(codes.DOUBLE), text) == struct.pack("<d", value)
        try:
            expected: bytes | None = struct.pack("<f", value)
        except OverflowError:
            expected = None
        assert put(Target(codes.SINGLE), text) == expected


@settings(max_examples=examples(200))
@given(st.integers(-(10**17), 10**17), st.integers(0, 25), st.integers(-30, 30), st.sampled_from(("", "e", "E", "E+")))
def test_decimal_fractions(digits: int, decimals: int, exponent: int, notation: str) -> None:
    """A decimal fraction in any notation becomes the nearest double."""
    sign, text = "-" * (digits < 0), f"{abs(digits):0{decimals + 1}d}"
    text = f"{sign}{text[: len(text) - decimals]}.{text[len(text) - decimals :]}"
    if notation:
        text += f"{notation.rstrip('+' if exponent < 0 else '')}{exponent}"
    assert put(Target(codes.DOUBLE), text) == struct.pack("<d", float(text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nan",
        "inf",
        "Infinity",
        "1e999",
        " 1.0",
        "1_0.0",
        "0x1p3",
        "1.0f",
        "e5",
        "--1",
        "1e",
        "1e+",
        ".",
        "-",
        "1e1e1",
        "1.2.3",
        "1-",
    ],
)
def test_what_is_no_floating_point_number(text: str) -> None:
    """Names, malformed numbers and numbers that are too large are refused."""
    assert put(Target(codes.DOUBLE), text) is None


@settings(max_examples=examples(100))
@given(st.datetimes(), st.integers(0, 6))
def test_dates_and_times(value: datetime, digits: int) -> None:
    """Dates from 0001-01-01 on, and times with zero to six fraction digits, are stored."""
    data = put(Target(codes.DAY), value.date().isoformat())
    assert data == struct.pack("<i", (value.date() - EPOCH.date()).days)
    value = value.replace(microsecond=value.microsecond // 10 ** (6 - digits) * 10 ** (6 - digits))
    text = value.strftime("%H:%M:%S") + (f".{value.microsecond:06d}"[: digits + 1] if digits else "")
    data = put(Target(codes.INSTANT), f"{value.date().isoformat()} {text}")
    assert data == struct.pack("<q", (value - EPOCH) // timedelta(microseconds=1))


@settings(max_examples=examples(100))
@given(st.integers(0, 9999), st.integers(0, 13), st.integers(0, 32))
def test_days_that_are_none(year: int, month: int, day: int) -> None:
    """A date that MySQL stores and no calendar has is NULL; a month or day that MySQL does not store is refused."""
    target = Target(codes.DAY)
    data = put(target, f"{year:04d}-{month:02d}-{day:02d}")
    if not year or not month or not day:
        assert (data, target.nulls) == (bytes(4), 1)
        return
    try:
        expected = struct.pack("<i", (date(year, month, day) - EPOCH.date()).days)
    except ValueError:
        assert (data, target.nulls) == ((bytes(4), 1) if month <= 12 and day <= 31 else (None, 0))
    else:
        assert data == expected


@pytest.mark.parametrize(
    "text",
    ["2024-01-01", "2024-01-01 24:00:00", "2024-01-01 00:60:00", "2024-01-01 00:00:60", "2024-01-01T00:00:00",
     "2024-01-01 00:00:00.", "2024-01-01 00:00:00.1234567", "2024-01-01 00:00:0", "2024/01/01 00:00:00",
     "2024-01-01 00:00:00 ", "2024-01-01 0x:00:00", "2024-1-01 00:00:000", "", "0000-00-00 25:00:00"],
)  # fmt: skip
def test_times_that_are_none(text: str) -> None:
    """A malformed time is refused, even after a zero date."""
    assert put(Target(codes.INSTANT), text) is None


def test_zero_dates_are_null() -> None:
    """A zero date among other values is NULL and keeps its place."""
    target = Target(codes.INSTANT)
    for text in ("1970-01-01 00:00:01", "0000-00-00 00:00:00", "2020-00-00 00:00:00.000", "1970-01-01 00:00:02"):
        put(target, text)
    assert struct.unpack("<4q", target.data) == (1_000_000, 0, 0, 2_000_000)
    assert (target.nulls, bytes(target.validity)) == (2, b"\x09")


@settings(max_examples=examples(100))
@given(st.binary(max_size=40), st.integers(0, 50))
def test_bytes(value: bytes, width: int) -> None:
    """Bytes carried as characters are stored, and filled with zeros up to the width."""
    assert put(Target(codes.BINARY, width), value.decode("latin-1")) == value.ljust(width, b"\0")


@pytest.mark.parametrize("text", ["€", "aĀ", b"\xc3", b"\xc3\x28", b"\xc1\x80", b"\x80", b"\xff", b"ab\xc2"])
def test_characters_that_are_no_byte(text: str | bytes) -> None:
    """A text with characters above U+00FF or malformed UTF-8 is refused, and nothing of it is stored."""
    target = Target(codes.BINARY)
    assert put(target, "ok") == b"ok"
    assert put(target, text) is None
    assert struct.unpack("<2i", target.offsets) == (0, 2)


def test_texts() -> None:
    """Texts are stored unchanged; malformed UTF-8 raises Broken."""
    target = Target(codes.TEXT)
    for text in ("", "é", "\U0001f600 and more"):
        assert put(target, text) == text.encode()
    for broken in (b"\xff", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82"):
        with pytest.raises(Broken, match="no UTF-8"):
            target.put(broken, 0, len(broken))
    assert target.count == 3


def test_bits() -> None:
    """The texts 0 and 1 of a bit(1) become the bytes 0 and 1."""
    target = Target(codes.BOOLEAN)
    for text in ("0", "1"):
        put(target, text)
    assert target.data == b"\0\1"


@settings(max_examples=examples(100))
@given(st.lists(st.booleans(), max_size=70))
def test_validity(valid: list[bool]) -> None:
    """Columns and lists have one validity bit for each value, and none while no value is NULL."""
    target, groups = Target(codes.INTEGER, 2), Groups()
    for index, present in enumerate(valid):
        target.put(b"7", 0 if present else codes.NULL, 1)
        if present:
            groups.put(index)
        else:
            groups.put_null(index)
    expected = b""
    if not all(valid):
        bits = sum(1 << index for index, present in enumerate(valid) if present)
        expected = bits.to_bytes((len(valid) + 7) // 8, "little")
    for kept in (target, groups):
        assert (kept.count, kept.nulls, bytes(kept.validity)) == (len(valid), valid.count(False), expected)
    assert struct.unpack(f"<{len(valid)}h", target.data) == tuple(7 if present else 0 for present in valid)
    assert len(groups.offsets) == 4 * len(valid) + 4
