"""Read entries and rows that have the usual form, without objects for their parts.

A compiled build replaces these functions by inline C, which declines what has another form. Interpreted, they decline
everything: then the general readers read it, with the same result.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from canal_ha.decode.kernel.columns import Target
    from canal_ha.decode.kernel.layouts import ColumnLayout


class Head:
    """The fields of an Entry, as Entries has them.

    known: whether the entry was read; the other fields count only then.
    ascii: whether journal, schema, table and gtid are ASCII.
    """

    known = ascii = partial = False
    kind = offset = server_id = time_ms = 0
    journal_start = journal_stop = schema_start = schema_stop = table_start = table_stop = 0
    gtid_start = gtid_stop = snapshot_start = snapshot_stop = own_gtid_start = own_gtid_stop = 0
    store_start = store_stop = 0


_DECLINED = Head()


def forms(count: int) -> bytearray:
    """Return what `head` needs to remember so many entries."""
    return bytearray()


def head(
    forms: bytearray,
    which: int,
    src: bytes,
    start: int,
    stop: int,
    kind: int,
    kinds: int,
    snapshot: bytes,
    own_gtid: bytes,
    partial: bytes,
) -> Head:
    """Read the Entry src[start:stop] without its content.

    forms, which: the remembered entry that may be similar; this one takes its place.
    kind: its entryType if it has none.
    kinds: the largest entryType that counts.
    snapshot, own_gtid, partial: names of properties.
    """
    return _DECLINED


class ChangeFields:
    """The fields of a RowChange before the one at `pos`, which has another form than usual or is the end."""

    def __init__(self, pos: int, event_type: int) -> None:
        self.pos = pos
        self.event_type = event_type
        self.is_ddl = False


def change(src: bytes, start: int, stop: int, event_type: int, event_types: int, found: array[int]) -> ChangeFields:
    """Read the RowChange src[start:stop], and append start and stop of each RowData.

    event_type: its eventType if it has none.
    event_types: the largest eventType that counts.
    """
    return ChangeFields(start, event_type)


def prepare(
    room: bytearray, columns: list[ColumnLayout], targets: list[Target | None], twins: list[int], tags: list[int]
) -> None:
    """Store in `room` what `put_rows` compares and fills.

    columns: of a RowData, in order; their variants must stay referenced while `room` is used, as the targets and their
        bytearrays must.
    targets: what takes the value of each column; None leaves it out.
    twins: an earlier column that must have the same value; -1 for none.
    tags: of their fields.
    """


def put_rows(room: bytearray, index: int, src: bytes, rows: array[int], row: int, count: int) -> tuple[int, int]:
    """Put rows; return the row that comes next, and its column that `put_one` has to put; -1: the row was declined.

    index: the column to begin with; if it is not 0, the row is the one that this function has returned.
    rows: start and stop of each RowData in turn.
    row, count: the first row, and the number of all.
    """
    return row, -1


def put_one(room: bytearray, index: int, src: bytes, target: Target) -> bool:
    """Put one value like Target.put."""
    return True
