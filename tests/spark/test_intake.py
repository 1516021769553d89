"""The intake: which entries become durable when, and which are dropped after a reconnect."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.decode.kernel.entries import Entries
from canal_ha.model.position import LogPosition
from canal_ha.spark.intake import Intake, SegmentDraft
from canal_ha.wire.proto import entry_protocol_pb2 as pb
from canal_ha.wire.proto.canal_protocol_pb2 import Messages
from tests.spark.entries import begin, ddl, end, frames, insert


def fresh(segment_bytes: int = 1 << 20) -> Intake:
    """Return the intake of an empty spool."""
    return Intake(None, 0, segment_bytes)


def transaction(offset: int, *, count: int = 1, time: int = 1000) -> list[bytes]:
    """Return BEGIN, rows and END; offsets rise by ten."""
    inner = [insert(offset + 10 * (n + 1), offset + n, time=time) for n in range(count)]
    return [begin(offset, time=time), *inner, end(offset + 10 * (count + 1), time=time)]


def walk(entries: list[bytes]) -> Entries:
    """Return the entries in the form of a batch."""
    data = frames(entries)
    return Entries(data, 0, len(data))


def entries_of(piece: SegmentDraft) -> list[bytes]:
    """Return the entries of a segment."""
    return list(Messages.FromString(piece.frames).messages)


def drain(intake: Intake) -> list[SegmentDraft]:
    """Make all available segments durable and return them."""
    pieces = []
    while (piece := intake.take()) is not None:
        intake.made_durable(piece)
        pieces.append(piece)
    return pieces


def test_nothing_is_durable_before_the_end_of_its_transaction() -> None:
    """A batch that ends inside a transaction is not acknowledged until the rest arrives."""
    intake = fresh()
    one, two, three = transaction(100)
    intake.add(1, walk([one, two]))
    assert drain(intake) == []
    assert intake.acknowledged() == []
    intake.add(2, walk([three]))
    [piece] = drain(intake)
    assert piece.closed
    assert piece.last == LogPosition("bin.000001", 120, 1000, 1)
    assert piece.rows == {"s.t": 1}
    assert intake.acknowledged() == [1, 2]


def test_a_batch_is_acknowledged_only_up_to_its_open_transaction() -> None:
    """A batch that ends with the begin of another transaction waits for that transaction."""
    intake = fresh()
    following = transaction(200)
    intake.add(1, walk([*transaction(100), following[0]]))
    assert len(drain(intake)) == 1
    assert intake.acknowledged() == []
    intake.add(2, walk(following[1:]))
    drain(intake)
    assert intake.acknowledged() == [1, 2]


def test_a_transaction_that_outgrows_a_segment_is_cut_between_offsets() -> None:
    """Parts are acknowledged, so that the server has room, but not closed. Entries of one offset stay together."""
    intake = fresh(segment_bytes=50)
    intake.add(1, walk([begin(100), insert(110, 1), insert(120, 2)]))
    [piece] = drain(intake)
    assert not piece.closed
    assert piece.last is not None
    assert piece.last.offset == 110
    assert intake.acknowledged() == []
    payload = [insert(130, 3), insert(130, 4), insert(130, 5)]
    intake.add(2, walk(payload))
    assert [piece.last.offset for piece in drain(intake) if piece.last] == [120]
    assert intake.acknowledged() == [1]
    intake.add(3, walk([end(140)]))
    [rest] = drain(intake)
    assert rest.closed
    assert rest.rows == {"s.t": 3}
    assert intake.acknowledged() == [2, 3]


def test_statements_end_a_piece_and_annotations_do_not() -> None:
    """A DDL statement without BEGIN and END is a closed segment."""
    intake = fresh()
    intake.add(1, walk([ddl(100, "ALTER TABLE t ADD x INT")]))
    [piece] = drain(intake)
    assert piece.closed
    assert piece.ddl == {"s.t": "ALTER TABLE t ADD x INT"}


def test_without_ends_of_transactions_silence_is_one() -> None:
    """Rows of a server that sends neither BEGIN nor END become durable after a pause."""
    intake = fresh()
    intake.add(1, walk([insert(100, 1)]))
    assert drain(intake) == []
    intake.quiet()
    assert [piece.closed for piece in drain(intake)] == [True]
    assert intake.acknowledged() == [1]


def delivered(intake: Intake, entries: list[bytes], size: int) -> list[bytes]:
    """Deliver entries in batches of a size; return those that become durable."""
    kept: list[bytes] = []
    for at in range(0, len(entries), size):
        intake.add(at + 1, walk(entries[at : at + size]))
        kept += [entry for piece in drain(intake) for entry in entries_of(piece)]
    return kept


@given(st.integers(0, 11), st.integers(0, 11), st.integers(1, 5), st.booleans())
def test_redelivery_from_anywhere_adds_each_entry_once(cut: int, back: int, size: int, told: bool) -> None:
    """No entry is lost or doubled, wherever the connection breaks and however far back the server starts again."""
    entries = [entry for number in range(3) for entry in transaction(100 * (number + 1), count=2, time=9000 - number)]
    intake = fresh()
    kept: list[bytes] = []

    kept += delivered(intake, entries[:cut], size)
    durable = len(kept)
    first = Messages.FromString(frames(entries[min(back, durable) :][:1])).messages[0]
    offset = pb.Entry.FromString(first).header.logfileOffset
    intake.connected(LogPosition("bin.000001", offset) if told else None)
    kept += delivered(intake, entries[min(back, durable) :], size)
    assert kept == entries


def chunk(offset: int, number: int) -> list[bytes]:
    """Return a transaction of rows of a snapshot, which has the offset of the transaction end before it."""
    return [begin(offset), *(insert(offset, 10 * number + row, snapshot="7") for row in range(2)), end(offset)]


@given(st.integers(0, 22), st.integers(0, 22), st.integers(1, 5), st.sampled_from(["untold", "told", "consumed"]))
def test_rows_of_a_snapshot_that_come_again_are_neither_lost_nor_doubled(
    cut: int, back: int, size: int, cursor: str
) -> None:
    """They have the offset of an entry that is durable, so their content tells whether they are durable."""
    parts = [transaction(100), chunk(120, 1), chunk(120, 2), transaction(200), chunk(220, 3), chunk(220, 4)]
    entries = [entry for part in parts for entry in part]
    intake = fresh()
    kept: list[bytes] = []

    kept += delivered(intake, entries[:cut], size)
    durable = list(kept)
    back = min(back, len(durable))
    last = pb.Entry.FromString(entries[max(back, 1) - 1])
    at_end = cursor == "consumed" and last.entryType == pb.TRANSACTIONEND
    place = LogPosition("bin.000001", last.header.logfileOffset, consumed=at_end)
    intake.connected(None if cursor == "untold" else place)
    kept += delivered(intake, entries[back:], size)
    assert [entry for entry in kept if is_row(entry)] == [entry for entry in entries if is_row(entry)]


def is_row(entry: bytes) -> bool:
    """Return whether an entry has rows."""
    return pb.Entry.FromString(entry).entryType == pb.ROWDATA


def test_after_a_reset_of_the_binary_logs_nothing_is_dropped() -> None:
    """Positions start again, and times do not."""
    intake = Intake(LogPosition("bin.000007", 5000, 9000, 1), 9000, 1 << 20)
    intake.add(1, walk(transaction(100, time=9001)))
    assert sum(len(entries_of(piece)) for piece in drain(intake)) == 3


def test_after_a_change_of_the_source_nothing_is_dropped() -> None:
    """Positions of two servers cannot be compared."""
    intake = Intake(LogPosition("bin.000007", 5000, 9000, 1), 9000, 1 << 20)
    intake.add(1, walk([insert(100, 1, server=2, time=10), end(200, server=2, time=10)]))
    [piece] = drain(intake)
    assert len(entries_of(piece)) == 2
    assert piece.newest_ms == 10


OLD_MASTER = LogPosition("bin.000010", 900, 5000, 1, server="a")
STANDBY: dict[str, Any] = {
    "journal": "bin.000003",
    "time": 5000,
}  # its events keep the server id of the server that first logged them


@pytest.mark.parametrize(
    ("last", "cursor"),
    [
        (OLD_MASTER, replace(OLD_MASTER, consumed=True)),
        (replace(OLD_MASTER, server=""), replace(OLD_MASTER, consumed=True, server="")),
        (OLD_MASTER, replace(OLD_MASTER, offset=700, consumed=True)),
        (OLD_MASTER, LogPosition("bin.000003", 90, 4000, 1, server="b")),
        (OLD_MASTER, LogPosition("bin.000010", 90, 4000, 1, server="b")),
        (OLD_MASTER, None),
    ],
    ids=["all acknowledged", "of a server unknown", "some acknowledged", "moved", "moved to the same number", "untold"],
)
def test_after_a_switch_to_lower_journals_no_row_of_the_last_second_is_dropped(
    last: LogPosition, cursor: LogPosition | None
) -> None:
    """The driver was away during the switch. Without the server's cursor, rows as old as the newest one are dropped."""
    intake = Intake(last, 5000, 1 << 20)
    intake.connected(cursor)
    told = STANDBY if cursor is None or cursor.offset != 90 else STANDBY | {"journal": cursor.journal}
    intake.add(1, walk([begin(100, **told), insert(110, 77, **told), end(120, **told)]))
    assert sum(len(entries_of(piece)) for piece in drain(intake)) == (0 if cursor is None else 3)


def test_what_is_durable_behind_the_cursor_is_dropped_once() -> None:
    """After a crash the stored cursor may be old. Durable entries behind it are found by position on one server."""
    intake = Intake(LogPosition("bin.000001", 220, 1000, 1, server="a"), 1000, 1 << 20)
    intake.connected(LogPosition("bin.000001", 120, 1000, 1, consumed=True, server="a"))
    intake.add(1, walk([*transaction(200), *transaction(300)]))
    [piece] = drain(intake)
    assert entries_of(piece) == transaction(300)
    assert piece.last is not None
    assert piece.last.server == "a"


def test_with_several_sources_each_place_may_be_where_redelivery_begins() -> None:
    """Entries do not name their source, so the last position has no server."""
    first = LogPosition("bin.000001", 900, 1000, 1, consumed=True, server="a", part=1)
    second = LogPosition("bin.000001", 120, 1000, 2, consumed=True, server="b", part=2)
    intake = Intake(LogPosition("bin.000001", 220, 1000, 2), 1000, 1 << 20)
    intake.connected(first.beside([second]))
    intake.add(1, walk([begin(200, server=2), insert(210, 1, server=2), end(220, server=2)]))
    intake.add(2, walk([begin(300, server=2), insert(310, 2, server=2), end(320, server=2)]))
    [piece] = drain(intake)
    assert len(entries_of(piece)) == 3
    assert piece.last is not None
    assert piece.last.server == ""


def test_dropped_entries_are_acknowledged() -> None:
    """A batch that holds only durable entries is acknowledged, so that the cursor advances."""
    intake = Intake(LogPosition("bin.000001", 120, 1000, 1), 1000, 1 << 20)
    intake.add(5, walk(transaction(100)))
    assert drain(intake) == []
    assert intake.acknowledged() == [5]


def test_what_came_of_an_overdue_transaction_is_acknowledged() -> None:
    """The server may need an ACK to have room for the transaction's end, so all but the last event can be acknowledged.

    The last event may have more entries, so its batch waits. No micro-batch ends with such a part.
    """
    intake = fresh()
    one, two, three, four = transaction(100, count=2)
    intake.add(1, walk([one]))
    intake.add(2, walk([two]))
    intake.add(3, walk([three]))
    assert drain(intake) == []
    assert str(intake.unfinished) == str(LogPosition("bin.000001", 120, 1000, 1))
    intake.overdue()
    [piece] = drain(intake)
    assert not piece.closed
    assert entries_of(piece) == [one, two]
    assert intake.acknowledged() == [1, 2]
    assert drain(intake) == []
    intake.add(4, walk([four]))
    assert not intake.unfinished
    [rest] = drain(intake)
    assert rest.closed
    assert entries_of(rest) == [three, four]
    assert intake.acknowledged() == [3, 4]


def test_rows_without_boundaries_are_not_held_for_ever() -> None:
    """If the server omits most begins and ends, overdue rows count as complete, even after an end that it sent."""
    intake = fresh()
    intake.add(1, walk(transaction(100)))
    assert [piece.closed for piece in drain(intake)] == [True]
    intake.add(2, walk([insert(200, 1), insert(300, 2)]))
    intake.quiet()
    assert drain(intake) == []
    intake.overdue()
    [piece] = drain(intake)
    assert piece.closed
    assert piece.rows == {"s.t": 2}
    assert intake.acknowledged() == [1, 2]


def test_silence_inside_a_transaction_does_not_end_it() -> None:
    """After a begin, a pause does not close the transaction."""
    intake = fresh()
    one, two, three = transaction(100)
    intake.add(1, walk([one, two]))
    intake.quiet()
    assert drain(intake) == []
    intake.add(2, walk([three]))
    [piece] = drain(intake)
    assert entries_of(piece) == [one, two, three]
