"""Segments with entries of any bytes, for tests of the rooms behind the decoder."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from canal_ha.model.segment import EntryKind, Segment, Source

HERE = Source("127.0.0.1", 3306)


@dataclass(frozen=True)
class Item:
    """An entry of a segment: its offset, its kind and its bytes."""

    offset: int
    kind: EntryKind = EntryKind.ROWS
    body: bytes = b"entry"
    sub: int = 0
    timestamp_ms: int = 1_000
    rows: int = 1


def segment(items: Sequence[Item], *, journal: str = "mysql-bin.000001", server_id: int = 1, gtid: str = "") -> Segment:
    """Return a segment of these entries."""
    frames = bytearray()
    ends = array("q")
    for item in items:
        frames += b"\x12" + _varint(len(item.body)) + item.body
        ends.append(len(frames))
    return Segment(
        source=HERE,
        journal=journal,
        frames=bytes(frames),
        ends=ends,
        offsets=array("q", [item.offset for item in items]),
        subs=array("i", [item.sub for item in items]),
        timestamps=array("q", [item.timestamp_ms for item in items]),
        event_lengths=array("q", [len(item.body) for item in items]),
        row_counts=array("i", [item.rows if item.kind is EntryKind.ROWS else 0 for item in items]),
        kinds=bytes(item.kind for item in items),
        run_starts=array("q", [0]),
        run_server_ids=array("q", [server_id]),
        run_gtids=(gtid,),
        entry_ends=array("q", accumulate(len(item.body) for item in items)),
        row_ends=array("q", accumulate(item.rows if item.kind is EntryKind.ROWS else 0 for item in items)),
    )


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
