"""The intake: which entries become durable when, and which are dropped after a reconnect."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.decode.kernel.entries import Entries
from canal_ha.model.position import LogPosition
from canal_ha.pipeline.intake import Intake, SegmentDraft
from canal_ha.pipeline.redelivery import Spooled, UpTo, ends_whole
from canal_ha.wire.proto import entry_protocol_pb2 as pb
from canal_ha.wire.proto.canal_protocol_pb2 import Messages
from tests.spark.entries import begin, ddl, end, frames, insert, logged_statement


def fresh(segment_bytes: int = 1 << 20) -> Intake:
    """Return the intake of an empty spool."""
    return Intake(segment_bytes)


def transaction(offset: int, *, count: int = 1, **more: Any) -> list[bytes]:
    """Return BEGIN, rows and END; offsets rise by ten."""
    inner = [insert(offset + 10 * (n + 1), offset + n, **more) for n in range(count)]
    return [begin(offset, **more), *inner, end(offset + 10 * (count + 1), **more)]


def reconnected(
    spooled: list[bytes], cursor: LogPosition | None, *, segment: int = 2, gtids: str = "", oldest: int = 0
) -> Intake:
    """Return the intake of a spool with these entries, after a connection.

    segment: entries in each segment. oldest: segments that the spool has removed.
    """
    intake = fresh()
    parts = [frames(spooled[at : at + segment]) for at in range(0, len(spooled), segment)]
    intake.connected("", Spooled(parts[oldest:][::-1], cursor, gtids if ends_whole(parts[-1]) else ""))
    return intake


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


@pytest.mark.parametrize("size", [1, 100])
def test_a_piece_knows_whether_it_has_statements(size: int) -> None:
    """Readers look for changes that the source logged as statements only there. The parts of a batch add up."""
    logged = logged_statement(410, "UPDATE t SET name = 'y'", "UPDATE")
    for entries, expected in (
        (transaction(100) + transaction(200), False),
        ([*transaction(100), ddl(300, "ALTER TABLE t ADD x INT")], True),
        ([*transaction(100), begin(400), logged, end(420), *transaction(500)], True),
    ):
        intake = fresh()
        for first in range(0, len(entries), size):
            intake.add(first, walk(entries[first : first + size]))
        [piece] = drain(intake)
        assert piece.statements is expected


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
    found: list[bytes] = []
    for at in range(0, len(entries), size):
        intake.add(at + 1, walk(entries[at : at + size]))
        found += [entry for piece in drain(intake) for entry in entries_of(piece)]
    return found


@given(st.integers(0, 11), st.integers(0, 11), st.integers(1, 5), st.booleans())
def test_redelivery_from_anywhere_adds_each_entry_once(cut: int, back: int, size: int, told: bool) -> None:
    """No entry is lost or doubled, wherever the connection breaks and however far back the server starts again."""
    entries = [entry for number in range(3) for entry in transaction(100 * (number + 1), count=2, time=9000 - number)]
    intake = fresh()
    found = delivered(intake, entries[:cut], size)
    durable = len(found)
    first = Messages.FromString(frames(entries[min(back, durable) :][:1])).messages[0]
    offset = pb.Entry.FromString(first).header.logfileOffset
    intake.connected("", Spooled([frames(found)], LogPosition("bin.000001", offset) if told else None, ""))
    found += delivered(intake, entries[min(back, durable) :], size)
    assert found == entries


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
    found = delivered(intake, entries[:cut], size)
    durable = list(found)
    back = min(back, len(durable))
    last = pb.Entry.FromString(entries[max(back, 1) - 1])
    at_end = cursor == "consumed" and last.entryType == pb.TRANSACTIONEND
    place = LogPosition("bin.000001", last.header.logfileOffset, consumed=at_end)
    intake.connected("", Spooled([frames(durable)], None if cursor == "untold" else place, ""))
    found += delivered(intake, entries[back:], size)
    assert [entry for entry in found if is_row(entry)] == [entry for entry in entries if is_row(entry)]


def is_row(entry: bytes) -> bool:
    """Return whether an entry has rows."""
    return pb.Entry.FromString(entry).entryType == pb.ROWDATA


def kept(intake: Intake, *deliveries: list[bytes]) -> list[bytes]:
    """Deliver each list as a batch; return the entries that become durable, and check that all batches are done."""
    found = []
    for number, entries in enumerate(deliveries, 1):
        intake.add(number, walk(entries))
        found += [entry for piece in drain(intake) for entry in entries_of(piece)]
    assert intake.acknowledged() == list(range(1, len(deliveries) + 1))
    return found


def test_redelivered_rows_of_two_origins_come_once() -> None:
    """A replica of two masters, a group or a ring logs the server ids of several origins in one binlog."""
    spooled = [entry for n in range(1, 9) for entry in transaction(100 * n, server=1 + n % 2, time=1000 * n)]
    new = transaction(900, server=1, time=9000)
    for cursor in (None, LogPosition("bin.000001", 100), LogPosition("bin.000001", 520, 5000, 2, consumed=True)):
        again = spooled if cursor is None or cursor.offset == 100 else spooled[15:]
        assert kept(reconnected(spooled, cursor), again, new) == new


RESET = [
    ({"journal": "bin.000007"}, {"journal": "bin.000001"}),
    ({"journal": "bin.000001"}, {"journal": "bin.000001"}),
]


@pytest.mark.parametrize(("before", "after"), RESET, ids=["lower journal", "same journal"])
def test_a_reset_of_the_binary_logs_within_a_second_loses_no_row(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Positions start again. Neither they nor times tell the rows of both binary logs apart."""
    spooled = transaction(5000, **before)
    new = [begin(4000, **after), insert(4010, 7, **after), end(4020, **after)]
    for cursor in (None, LogPosition(after["journal"], 4, 1000, 1), LogPosition(before["journal"], 5020, 1000, 1)):
        assert kept(reconnected(spooled, cursor), new) == new


def test_rows_after_one_that_is_dated_in_the_future_are_kept() -> None:
    """SET TIMESTAMP, or a clock that is set back, makes later rows look older."""
    spooled = transaction(300, time=2_147_483_000_000)
    new = transaction(200, journal="bin.000001", time=1000)
    assert kept(reconnected(spooled, None), new) == new


def test_equal_server_ids_of_merged_sources_lose_no_row() -> None:
    """New rows of one source have lower positions than spooled ones of the other, in journals of the same name."""
    one = transaction(900, journal="binlog.000007")
    two = transaction(300, journal="binlog.000002")
    cursor = LogPosition("binlog.000007", 920, 1000, 1, consumed=True, part=1)
    both = cursor.beside([LogPosition("binlog.000002", 200, 1000, 1, part=2)])
    assert kept(reconnected(one, both), two) == two


def test_merged_sources_each_begin_again_at_a_place_of_their_own() -> None:
    """New rows of one source may come before redelivered ones of the other, or among them."""
    one, two = ([transaction(100 * n, server=server) for n in range(1, 6)] for server in (1, 2))
    spooled = [*one[0], *two[0], *one[1], *one[2], *two[1]]
    acknowledged = LogPosition("bin.000001", 120, 1000, 2, consumed=True, part=2)
    cursor = acknowledged.beside([LogPosition("bin.000001", 120, 1000, 1, consumed=True, part=1)])
    again = [*one[1], *one[2], *one[3], *two[1], *one[4], *two[2]]
    assert kept(reconnected(spooled, cursor), again) == [*one[3], *one[4], *two[2]]
    removed = reconnected(spooled, cursor, segment=3, oldest=3)
    assert kept(removed, again) == again, "a part of what comes again must not make the rest older than its past"


def test_what_a_spool_has_removed_comes_again_in_order() -> None:
    """The last change of each key must be its newest one: nothing is dropped behind the first entry that is kept."""
    old, spooled = transaction(100), transaction(200)
    assert kept(reconnected(spooled, LogPosition("bin.000001", 100)), [*old, *spooled]) == [*old, *spooled]


STANDBY: dict[str, Any] = {"journal": "bin.000003"}


def test_after_a_switch_without_gtids_nothing_is_dropped() -> None:
    """The same transactions have other positions, in journals that may have the same names."""
    spooled = transaction(900, journal="bin.000010")
    for cursor in (None, LogPosition("bin.000010", 700), LogPosition("bin.000003", 90, 4000, 1)):
        told = [begin(110, **STANDBY), insert(120, 900, **STANDBY), end(130, **STANDBY)]
        assert kept(reconnected(spooled, cursor), told) == told


@pytest.mark.parametrize(
    ("held", "again", "new"),
    [
        ("a-b:1-8,c-d:1-3", ("a-b:1-7,c-d:1-3", "a-b:7"), ("a-b:1-9,c-d:1-3", "a-b:9")),
        ("a-b:1-8", ("A-B:1-3:5-8", "a-b:8"), ("a-b:1-8,c-d:1", "c-d:1")),
        ("0-1-8,7-2-4", ("0-1-7", ""), ("0-2-9,7-2-4", "")),
        ("a-b:1-8:tag:1-2", ("a-b:1-8:tag:1", "a-b:tag:1"), ("a-b:1-8:tag:1-3", "a-b:tag:3")),
        ("a-b:1-8", ("a-b:1-8", "a-b:8"), ("a-b:1-8", "")),
        ("0-1-8", ("0-1-8", ""), ("0-2-8", "")),
    ],
    ids=["MySQL", "gaps", "MariaDB", "tags", "anonymous", "numbers-of-another-server"],
)
def test_after_a_switch_with_gtids_what_comes_again_is_dropped(
    held: str, again: tuple[str, str], new: tuple[str, str]
) -> None:
    """Positions are those of another server, and each entry carries the executed set; MySQL's, its own GTID too."""
    spooled = transaction(900, journal="bin.000010", gtid=held)
    known, unknown = (
        transaction(offset, gtid=text, own=own, **STANDBY) for offset, (text, own) in ((100, again), (200, new))
    )
    cursor = LogPosition("bin.000003", 90, consumed=True)
    assert kept(reconnected(spooled, cursor, gtids=held), known, unknown) == unknown


def test_rows_behind_a_durable_statement_with_the_same_gtid_are_new() -> None:
    """CREATE TABLE ... SELECT of MariaDB: its statement has no begin, and its rows have the same GTID."""
    statement = ddl(900, "CREATE TABLE s.t (id INT)", "CREATE", gtid="0-1-8")
    rest = [insert(920, 1, gtid="0-1-8"), end(930, gtid="0-1-8")]
    cursor = LogPosition("bin.000001", 800, consumed=True)
    assert kept(reconnected([*transaction(700, gtid="0-1-7"), statement], cursor, gtids="0-1-8"), rest) == rest


def test_rows_of_a_snapshot_behind_a_durable_transaction_are_new() -> None:
    """They have the GTID set of what is before them, which the spool has."""
    spooled = transaction(900, gtid="a-b:1-8")
    chunk = insert(920, 1, snapshot="s", gtid="a-b:1-8")
    cursor = LogPosition("bin.000001", 920, consumed=True)
    again = [begin(910, gtid="a-b:1-8"), chunk, end(920, gtid="a-b:1-8")]
    assert chunk in kept(reconnected(spooled, cursor, gtids="a-b:1-8"), again)


def test_what_is_durable_behind_the_cursor_is_dropped_once() -> None:
    """After a crash the stored cursor may be old."""
    spooled = [*transaction(100), *transaction(200)]
    intake = reconnected(spooled, LogPosition("bin.000001", 120, 1000, 1, consumed=True))
    assert kept(intake, [*transaction(200), *transaction(300)]) == transaction(300)


def test_a_range_of_one_binlog_goes_on_behind_its_last_entry() -> None:
    """There is no spool. The read ends when the source switches, so positions tell what comes again."""
    intake = fresh()
    assert kept(intake, transaction(100)) == transaction(100)
    intake.connected(again=UpTo(intake.durable))
    assert kept(intake, [*transaction(100), *transaction(200)]) == transaction(200)


def test_dropped_entries_are_acknowledged() -> None:
    """A batch that holds only durable entries is acknowledged, so that the cursor advances."""
    intake = reconnected(transaction(100), None)
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
