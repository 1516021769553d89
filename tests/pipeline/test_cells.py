"""Texts of Arrow columns for COPY and VALUES: what servers read is what was there, for any value and any slice."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.pipeline.cells import copy_rows, has_nul, literals, payload, statements, value_rows, without_nul

TEXTS = st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=8)
BYTES = st.lists(st.none() | st.binary(max_size=20), min_size=1, max_size=8)
_COPY = {"\\": "\\", "n": "\n", "r": "\r", "t": "\t"}


def copied(line: str) -> str | None:
    """Read a cell of COPY as PostgreSQL does."""
    if line == "\\N":
        return None
    pieces = iter(line)
    return "".join(_COPY[next(pieces)] if piece == "\\" else piece for piece in pieces)


def quoted(literal: str | None) -> str | None:
    """Read a literal as MySQL does."""
    if literal is None:
        return None
    assert literal[0] == literal[-1] == "'"
    found, pieces = "", iter(literal[1:-1])
    for piece in pieces:
        if piece in "\\'":
            after = next(pieces)
            assert (piece, after) in {("\\", "\\"), ("\\", "0"), ("'", "'")}
            piece = "\0" if after == "0" else after
        found += piece
    return found


@given(TEXTS, st.integers(0, 3))
def test_texts_survive(texts: list[str | None], first: int) -> None:
    """In both forms, with every character, and in a slice."""
    column = pa.array(texts, pa.string()).slice(first)
    assert [quoted(each) for each in literals(column).to_pylist()] == texts[first:]
    plain = without_nul(column)
    lines = bytes(payload(copy_rows([plain, plain]))).decode()
    rows = [tuple(map(copied, line.split("\t"))) for line in lines.split("\n")[:-1]] if texts[first:] else []
    assert rows == [(text, text) for text in plain.to_pylist()]
    assert has_nul(column) == any("\0" in text for text in texts[first:] if text)
    assert not has_nul(plain)


@given(BYTES, st.integers(0, 3))
def test_bytes_survive(values: list[bytes | None], first: int) -> None:
    """As hexadecimal digits in both forms."""
    column = pa.array(values, pa.binary()).slice(first)
    kept = values[first:]
    assert literals(column).to_pylist() == [None if each is None else f"x'{each.hex()}'" for each in kept]
    lines = ["\\N" if each is None else f"\\\\x{each.hex()}" for each in kept]
    assert [line[:-1] for line in copy_rows([column]).to_pylist()] == lines


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([Decimal("0.0000000001"), None], pa.decimal128(38, 10)), ["'1E-10'", None]),
        (pa.array([Decimal(2**64 - 1)], pa.decimal128(20, 0)), ["18446744073709551615"]),
        (pa.array([True, False, None]), ["1", "0", None]),
        (pa.array([0.1, -0.0, 5e-324]), ["'0.1'", "'-0'", "'5e-324'"]),
        (
            pa.array([3.4028234663852886e38, -3.4028234663852886e38], pa.float32()),
            ["'3.4028234663852886e+38'", "'-3.4028234663852886e+38'"],
        ),
        (pa.array([-719162, None], pa.date32()), ["'0001-01-01'", None]),
        (pa.array([1], pa.timestamp("us", "UTC")), ["'1970-01-01 00:00:00.000001'"]),
        (pa.array([], pa.binary()), []),
    ],
)
def test_other_values_are_exact(column: pa.Array, expected: list[str | None]) -> None:
    """Decimals and floats are texts, because numbers with an exponent are doubles."""
    assert literals(column).to_pylist() == expected


@given(st.lists(st.integers(0, 10**6), min_size=0, max_size=40), st.integers(1, 60), st.integers(1, 10))
def test_statements_have_each_row_once(numbers: list[int], most_bytes: int, most_rows: int) -> None:
    """None is longer than allowed, unless one row is."""
    rows = value_rows([pa.array(numbers, pa.int64())])
    made = statements(rows.slice(0), b"H ", b" T", most_bytes, most_rows, " OR ")
    found = [row for each in made for row in each.decode()[2:-2].split(" OR ")]
    assert found == [f"({number})" for number in numbers]
    for each in made:
        count = each.count(b"(")
        assert count <= most_rows
        assert count == 1 or len(each) <= most_bytes + len(" OR ")
