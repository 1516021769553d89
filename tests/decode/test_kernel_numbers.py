"""DECIMAL, FLOAT and DOUBLE as text."""

from __future__ import annotations

import gzip
import struct
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.decode.kernel import numbers
from canal_ha.decode.kernel.primitives import Broken

JAVA = Path(__file__).parents[1] / "golden" / "java17_numbers.txt.gz"


def pack_decimal(unscaled: int, precision: int, decimals: int) -> bytes:
    """Return MySQL's packed form of unscaled / 10**decimals (strings/decimal.cc, decimal2bin)."""
    digits = str(abs(unscaled)).rjust(precision, "0")
    whole, fraction = digits[: precision - decimals], digits[precision - decimals :]
    groups = []
    if len(whole) % 9:
        groups.append(whole[: len(whole) % 9])
    rest = whole[len(whole) % 9 :]
    groups += [rest[i : i + 9] for i in range(0, len(rest), 9)]
    groups += [fraction[i : i + 9] for i in range(0, len(fraction), 9)]
    raw = b"".join(int(group).to_bytes((0, 1, 1, 2, 2, 3, 3, 4, 4, 4)[len(group)], "big") for group in groups)
    if unscaled < 0:
        raw = bytes(byte ^ 0xFF for byte in raw)
    return bytes([raw[0] ^ 0x80]) + raw[1:]


def test_java_texts() -> None:
    """Numbers have the text that Java 17 prints, which for half of them is not the shortest that round-trips."""
    for line in gzip.decompress(JAVA.read_bytes()).decode().splitlines():
        kind, bits, text = line.split()
        if kind == "d":
            made = numbers.double_text(struct.pack("<Q", int(bits, 16)), 0)
        else:
            made = numbers.float_text(struct.pack("<I", int(bits, 16)), 0)
        assert made.decode() == text, (kind, bits)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_survive(value: float) -> None:
    """The text of a double reads back as the same double."""
    assert float(numbers.double_text(struct.pack("<d", value), 0)) == value


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_floats_survive(value: float) -> None:
    """The text of a float reads back as the same float."""
    text = float(numbers.float_text(struct.pack("<f", value), 0))
    assert struct.pack("<f", text) == struct.pack("<f", value)


@pytest.mark.parametrize(
    ("value", "precision", "decimals", "text"),
    [
        ("5.00", 10, 2, b"5.0"),
        ("1.50", 10, 2, b"1.50"),
        ("-0.01", 10, 2, b"-0.01"),
        ("0", 65, 30, b"0." + b"0" * 27),
        ("0", 20, 10, b"0." + b"0" * 9),
        ("-123456789012", 12, 0, b"-123456789012"),
        ("0.5", 1, 1, b"0.5"),
    ],
)
def test_decimal_texts(value: str, precision: int, decimals: int, text: bytes) -> None:
    """canal leaves out the last, partial group of fraction digits when it is zero."""
    assert (
        numbers.decimal_text(
            pack_decimal(int(Decimal(value).scaleb(decimals)), precision, decimals), 0, precision, decimals
        )
        == text
    )


@given(st.data(), st.integers(1, 65))
def test_decimals_survive(data: st.DataObject, precision: int) -> None:
    """The text of a decimal is the number that was packed."""
    decimals = data.draw(st.integers(0, min(precision, 30)))
    digits = data.draw(st.integers(-(10**precision) + 1, 10**precision - 1))
    value = Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -decimals))
    raw = pack_decimal(digits, precision, decimals)
    assert len(raw) == numbers.decimal_size(precision, decimals)
    assert Decimal(numbers.decimal_text(raw, 0, precision, decimals).decode()) == value


def test_decimal_groups_are_checked() -> None:
    """A group of nine digits with a larger number raises Broken."""
    with pytest.raises(Broken):
        numbers.decimal_text(b"\xff\xff\xff\xff", 0, 9, 0)
