"""The kernel's readers of entries, compared with protobuf's own parser."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from canal_ha.decode import kernel
from canal_ha.decode.kernel import codes
from canal_ha.decode.kernel.fields import Cursor
from canal_ha.decode.kernel.primitives import Broken
from tests.decode import reading
from tests.sampling import LONG

SEED = random.randrange(1 << 30) if LONG else 1
MUTATIONS = 200_000 if LONG else 1500
EXAMPLES = 2000 if LONG else 60


REFUSED = "refused"
GARBLED = "garbled"


def outcome(read: Callable[[bytes], list[reading.Told]], data: bytes) -> list[reading.Told] | str:
    """Return what `read` returns, REFUSED or GARBLED."""
    try:
        return read(data)
    except reading.Garbled:
        return GARBLED
    except (DecodeError, Broken):
        return REFUSED


def agree(data: bytes) -> bool:
    """Check that all readers agree with protobuf; return whether they refuse the data."""
    values, expected_values = outcome(reading.read_values, data), outcome(reading.expected_values, data)
    assert values == (REFUSED if expected_values == GARBLED else expected_values)
    maps, expected_maps = outcome(reading.read_maps, data), outcome(reading.expected_maps, data)
    rows, expected = outcome(reading.read_rows, data), outcome(reading.expected_rows, data)
    if values != REFUSED or not reading.has_rows_of_no_change(data):  # only `read_values` reads such rows
        assert maps == (REFUSED if expected_maps == GARBLED else expected_maps)
        if expected != GARBLED:  # read_rows decodes no text of an image that it does not need
            assert rows == expected
    return values == REFUSED


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 1 << 60), st.integers(0, 30), st.sampled_from((0.0, 0.02, 0.3)))
def test_what_protobuf_reads_is_read(seed: int, count: int, strange: float) -> None:
    """The readers agree with protobuf on fields that are reordered, repeated, unknown or missing."""
    data = reading.frames(seed, count, strange)
    assert not agree(data)


def test_damaged_entries_are_refused_or_read_alike() -> None:
    """The readers refuse the damaged entries that protobuf refuses, and agree with it on the others."""
    refused = 0
    for index in range(MUTATIONS):
        data = reading.mutated(f"{SEED} {index}", reading.frames(f"{SEED} {index % 50}", 3, 0.02))
        try:
            refused += agree(data)
        except BaseException:
            print(f"seed {SEED}, mutation {index}")
            raise
    assert MUTATIONS // 10 < refused < MUTATIONS


KEY, ID = reading.field(0x0A, b"canal.snapshot"), reading.field(0x12, b"7")


@pytest.mark.parametrize(
    ("props", "snapshot"),
    [
        ([], ""),
        ([KEY + ID], "7"),
        ([ID + KEY], "7"),
        ([reading.field(0x0A, b"rowsCount") + ID, KEY + ID, reading.field(0x0A, b"last")], "7"),
        ([reading.UNKNOWN[4] + ID + reading.UNKNOWN[0] + KEY], "7"),
        ([reading.field(0x0A, b"rowsCount") + KEY + reading.field(0x12, b"8") + ID], "7"),
        ([b"\x92\0\x81\x007" + b"\x8a\0\x8e\0canal.snapshot"], "7"),
        ([KEY + ID, KEY + reading.field(0x12, b"8")], "8"),
        ([KEY], ""),
        ([KEY + reading.field(0x12, b"")], ""),
        ([reading.field(0x0A, b"canal.snapshots") + ID], ""),
        ([reading.field(0x12, b"canal.snapshot")], ""),
        ([KEY + reading.field(0x12, b"\xff")], None),
    ],
)
def test_the_snapshot_of_an_entry(props: list[bytes], snapshot: str | None) -> None:
    """It is found in every form of the pair that protobuf allows. None: the entry is refused."""
    header = b"".join(reading.field(0x62, prop) for prop in props)
    row = reading.field(0x62, reading.field(0x12, reading.field(0x1A, b"id")))
    stored = reading.field(0x1A, reading.field(0x10, 1) + row)
    for headers in (reading.field(0x0A, header), reading.field(0x0A, header) + reading.field(0x0A, b"")):
        data = reading.field(0x12, headers + stored)
        assert agree(data) is (snapshot is None)
        if snapshot is not None:
            assert [told for _, _, told, *_ in reading.read_values(data)] == [snapshot]
            assert [head[0] for head, *_ in reading.read_rows(data)] == ["read" if snapshot else "insert"]


@pytest.mark.parametrize("size", range(1, 60))
def test_every_prefix_of_an_entry(size: int) -> None:
    """The readers agree with protobuf on each prefix of an entry."""
    data = reading.frames(3, 2, 0.0)
    agree(data[: len(data) * size // 60])


@pytest.mark.parametrize(
    "data",
    [
        b"\x80" * 10 + b"\1",
        b"\x80" * 11,
        b"\xff\xff\xff\xff\x7f",
        b"\x12\xff\xff\xff\xff\x0f",
        b"\0",
        b"\7",
        b"\x0c",
        b"\x0b",
    ],
)
def test_what_is_no_message(data: bytes) -> None:
    """Numbers without an end, lengths beyond the end, field 0 and unclosed groups are refused."""
    assert outcome(reading.read_maps, data) == outcome(reading.expected_maps, data) == "refused"


def test_groups_within_groups() -> None:
    """90 nested groups are read, as in protobuf; 50,000 raise Broken."""
    cursor = Cursor()
    cursor.src = b"\x0b" * 90 + b"\x0c" * 90
    cursor.check(180)
    assert cursor.pos == 180
    cursor.pos = 0
    cursor.src = b"\x0b" * 50_000
    with pytest.raises(Broken, match="groups within groups"):
        cursor.check(50_000)


def test_constants_are_the_same_in_both() -> None:
    """codes.pxd has the same names and numbers as codes.py."""
    lines = re.findall(r"^    (\w+) = (-?\d+)$", (Path(kernel.__file__).parent / "codes.pxd").read_text(), re.MULTILINE)
    assert {name: int(value) for name, value in lines} == {
        name: value for name, value in vars(codes).items() if name.isupper()
    }
