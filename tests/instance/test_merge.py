"""Merging several sources: order, complete transactions, no loss, and the position of each source in a cursor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import hypothesis.strategies as st
from hypothesis import given

from canal_ha.instance.merge import (
    QUEUE_BYTES,
    SILENCE_S,
    Abandoned,
    Back,
    LeftBehind,
    Merge,
    Moment,
    Seen,
)
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment, Source
from canal_ha.store.take import Piece, ack_point
from tests.segments import Item, segment

WAIT_S = 10.0
START_MS = 1_700_000_000_000


def moment(at_s: float) -> Moment:
    """Return a moment of virtual time, which starts at 0."""
    return Moment(at_s, START_MS + int(at_s * 1000))


def start(part: int) -> LogPosition:
    """Return the start position of a source."""
    return LogPosition("mysql-bin.000001", 4, address=f"source{part}", part=part)


def transaction(part: int, number: int, at_s: float, rows: int = 1, *, begins: bool = True) -> list[Item]:
    """Return the begin, the rows and the end of a transaction.

    part: number of the source.
    number: number of the transaction in its source; each has 1000 bytes.
    at_s: time of the commit.
    rows: number of row events.
    begins: False as on MariaDB, which has the statement before each change and no begin.
    """
    time_ms = moment(at_s).ms
    at = 1000 * (number + 1)
    items = [Item(at, EntryKind.BEGIN, b"%d begin %d" % (part, number), timestamp_ms=time_ms)] if begins else []
    items += [
        Item(at + 2 * row + note, kind, b"%d %s %d.%d" % (part, name, number, row), timestamp_ms=time_ms)
        for row in range(rows)
        for note, kind, name in ((1, EntryKind.QUERY, b"note"), (2, EntryKind.ROWS, b"row"))
        if kind == EntryKind.ROWS or not begins
    ]
    return [*items, Item(at + 500, EntryKind.END, b"%d end %d" % (part, number), timestamp_ms=time_ms)]


def of(part: int, items: Sequence[Item]) -> Segment:
    """Return a segment of this source, marked as cut if it ends inside a transaction."""
    cut = bool(items) and (items[-1].kind in (EntryKind.BEGIN, EntryKind.ROWS) or b" note " in items[-1].body)
    return replace(segment(items), source=Source(f"source{part}", 3306), cut=cut)


def merging(parts: int = 2, *, wait_s: float = WAIT_S, behind: LogPosition | None = None) -> Merge:
    """Return a merge from the beginning of every source."""
    starts = [start(part) for part in range(1, parts + 1)]
    return Merge(starts, wait_s=wait_s, now=moment(0), behind=behind)


def bodies(segment: Segment) -> list[str]:
    """Return the entries as texts."""
    return [entry.decode() for entry in segment.entries()]


def drained(merge: Merge, at_s: float) -> list[str]:
    """Return all entries that can be delivered now, as texts; a change of a source appears as its class name."""
    out: list[str] = []
    while (got := merge.step(moment(at_s))) is not None:
        out += bodies(got) if isinstance(got, Segment) else [type(got).__name__]
    return out


def ends(texts: Sequence[str]) -> list[str]:
    """Return only the ends of transactions, as source.number."""
    return [".".join(text.split(" end ")) for text in texts if " end " in text]


def idle(at_s: float, decoded: LogPosition | None = None) -> Seen:
    """Return the report of a source that has nothing newer at this time."""
    return Seen(decoded, idle=moment(at_s))


# ---- one rule each


def test_the_earlier_comes_first() -> None:
    """Transactions of both sources come by time, and wait while the other source may still have an earlier one."""
    merge = merging()
    merge.put(1, of(1, transaction(1, 0, 1) + transaction(1, 1, 5)), moment(6))
    assert drained(merge, 6) == []
    merge.put(2, of(2, transaction(2, 0, 3) + transaction(2, 1, 9)), moment(9))
    assert ends(drained(merge, 9)) == ["1.0", "2.0", "1.1"]


def test_an_idle_source_holds_nobody_up() -> None:
    """A heartbeat after the transaction says that no earlier one exists; a heartbeat before it does not."""
    merge = merging()
    merge.seen(2, idle(1), moment(1))
    merge.put(1, of(1, transaction(1, 0, 1.5)), moment(2))
    assert drained(merge, 2) == []
    merge.seen(2, idle(2.5), moment(3))
    assert ends(drained(merge, 3)) == ["1.0"]


def test_what_is_old_needs_no_new_heartbeat() -> None:
    """A source that catches up does not wait for a source that was idle at a later time."""
    merge = merging()
    merge.seen(2, idle(100), moment(100))
    merge.put(1, of(1, transaction(1, 0, 50) + transaction(1, 1, 99)), moment(101))
    assert ends(drained(merge, 101)) == ["1.0"]


def test_filtered_transactions_tell_the_time() -> None:
    """If all transactions of a source are filtered out, their times still say how far it is."""
    merge = merging()
    merge.put(1, of(1, transaction(1, 0, 5)), moment(6))
    merge.seen(2, Seen(start(2), moment(4).ms), moment(6))
    assert drained(merge, 6) == []
    merge.seen(2, Seen(replace(start(2), offset=900), moment(5).ms), moment(6))
    got = merge.step(moment(6))
    assert isinstance(got, Segment)
    assert got.position(2).of(2) == replace(start(2), offset=900)


def test_a_silent_source_is_waited_for_once() -> None:
    """After wait_s the others continue. They wait again when the source returns, and none of its rows is lost."""
    merge = merging()
    merge.put(1, of(1, transaction(1, 0, 1)), moment(1))
    assert drained(merge, 9.9) == []
    assert drained(merge, 10) == ["LeftBehind", "1 begin 0", "1 row 0.0", "1 end 0"]
    merge.put(1, of(1, transaction(1, 1, 11)), moment(11))
    assert ends(drained(merge, 11)) == ["1.1"]
    merge.put(2, of(2, transaction(2, 0, 2)), moment(12))
    merge.put(1, of(1, transaction(1, 2, 12)), moment(12))
    assert drained(merge, 12) == ["Back", "2 begin 0", "2 row 0.0", "2 end 0"]
    merge.seen(2, idle(13), moment(13))
    assert ends(drained(merge, 13)) == ["1.2"]


def test_a_source_that_only_connects_is_silent() -> None:
    """A few bytes without events, as from a server that ends every dump, are no sign of life; many bytes are."""
    merge = merging()
    merge.put(1, of(1, transaction(1, 0, 1)), moment(1))
    for at_s in range(2, 10):
        merge.seen(2, Seen(start(2), received_bytes=300 * at_s), moment(at_s))
    assert drained(merge, 10)[:1] == ["LeftBehind"]
    merge.seen(2, Seen(start(2), received_bytes=2 << 20), moment(11))
    assert drained(merge, 11) == ["Back"]


def test_a_large_transaction_stays_whole() -> None:
    """Another source's transactions do not separate its pieces, however early they are."""
    merge = merging()
    large = transaction(1, 0, 1, rows=4)
    merge.seen(2, idle(2), moment(2))
    merge.put(1, of(1, large[:3]), moment(1.5))
    assert len(drained(merge, 2)) == 3
    merge.put(2, of(2, transaction(2, 0, 1)), moment(3))
    assert drained(merge, 3) == []
    merge.put(1, of(1, large[3:] + transaction(1, 1, 4)), moment(4))
    assert ends(drained(merge, 4)) == ["1.0", "2.0"]


def test_another_source_between_a_statement_and_its_rows_moves_no_cursor_there() -> None:
    """CREATE TABLE ... SELECT of MariaDB has no begin. With the set of its statement, a standby sends no rows."""
    merge = merging()
    items = [
        Item(100, EntryKind.DDL, b"1 create", timestamp_ms=moment(1).ms),
        Item(110, EntryKind.QUERY, b"1 note", timestamp_ms=moment(3).ms),
        Item(120, EntryKind.ROWS, b"1 rows", timestamp_ms=moment(3).ms),
        Item(130, EntryKind.END, b"1 end", timestamp_ms=moment(3).ms),
    ]
    merge.put(1, replace(of(1, items), run_gtids=("0-1-8",)), moment(4))
    merge.put(2, of(2, [*transaction(2, 0, 2), *transaction(2, 1, 9)]), moment(9))
    acks = []
    while (got := merge.step(moment(9))) is not None:
        assert isinstance(got, Segment)
        acks.append((bodies(got)[0], ack_point([Piece(got, 0, len(got))])))
    assert [body for body, _ in acks] == ["1 create", "2 begin 0", "1 note"]
    own = [ack and ack.of(1) for _, ack in acks]
    assert [at and at.offset for at in own] == [None, 4, 130]


def test_a_transaction_whose_source_dies_is_read_again() -> None:
    """The other source continues after wait_s. The dead one is read again from the begin, where its cursors stand."""
    merge = merging()
    merge.seen(2, idle(2), moment(2))
    large = transaction(1, 0, 1, rows=4)
    merge.put(1, of(1, large[:3]), moment(1))
    assert len(drained(merge, 2)) == 3
    merge.put(2, of(2, transaction(2, 0, 3)), moment(3))
    assert drained(merge, 10.9) == []
    got = merge.step(moment(11))
    assert isinstance(got, Abandoned)
    assert (got.part, got.start.order) == (1, of(1, large).position(0).order)
    rest = merge.step(moment(11))
    assert isinstance(rest, Segment)
    assert rest.position(2).of(1) == got.start
    merge.put(1, of(1, large), moment(20))
    merge.seen(2, idle(21), moment(21))
    assert ends(drained(merge, 21)) == ["1.0"]


def test_clocks_ahead_hold_nobody_for_long() -> None:
    """A time in the future counts as the time of arrival."""
    merge = merging()
    merge.put(1, of(1, transaction(1, 0, 10_000)), moment(5))
    merge.put(2, of(2, transaction(2, 0, 6)), moment(6))
    assert ends(drained(merge, 6)) == ["1.0"]


def test_nobody_is_waited_for_without_a_wait() -> None:
    """With wait_s=0 complete transactions come as they arrive. An unfinished one delays the others for SILENCE_S."""
    merge = merging(wait_s=0)
    merge.put(1, of(1, transaction(1, 0, 5)), moment(5))
    assert ends(drained(merge, 5)) == ["1.0"]
    merge.put(2, of(2, transaction(2, 0, 1, rows=2)[:2]), moment(6))
    merge.put(1, of(1, transaction(1, 1, 1)), moment(6))
    assert len(drained(merge, 6 + SILENCE_S - 0.1)) == 2
    assert drained(merge, 6 + SILENCE_S) == ["Abandoned", "1 begin 1", "1 row 1.0", "1 end 1"]


def test_a_stream_goes_on_inside_a_transaction() -> None:
    """If a stream is parked inside a large transaction, the rest of the transaction comes first afterwards."""
    large = of(2, transaction(2, 0, 9, rows=4))
    behind = replace(large.position(2), part=2, others=(start(1),))
    merge = merging(behind=behind)
    merge.put(1, of(1, transaction(1, 0, 1)), moment(9))
    assert drained(merge, 9) == []
    merge.put(2, large, moment(9))
    merge.seen(2, idle(10), moment(10))
    assert ends(drained(merge, 10)) == ["2.0", "1.0"]


def test_entries_of_one_event_stay_together() -> None:
    """Entries that share an offset, as in a compressed payload, stay together: a cursor cannot separate them."""
    merge = merging()
    one = [Item(10, EntryKind.DDL, b"a", 0, moment(1).ms), Item(10, EntryKind.DDL, b"b", 1, moment(9).ms)]
    merge.put(1, of(1, one), moment(9))
    merge.put(2, of(2, transaction(2, 0, 5) + transaction(2, 1, 20)), moment(20))
    came = drained(merge, 20)
    assert came.index("b") == came.index("a") + 1


def test_a_boundary_inside_is_none() -> None:
    """While a transaction is open, the position of its source stays before it."""
    merge = merging(wait_s=0)
    merge.put(1, of(1, transaction(1, 0, 1, rows=4)[:3]), moment(1))
    assert len(drained(merge, 1)) == 3
    before = merge.at
    merge.seen(1, Seen(replace(start(1), offset=5000)), moment(2))
    assert merge.at == before


def test_room() -> None:
    """The queue stops a source that is ahead, so its memory is bounded."""
    merge = merging()
    assert merge.has_room(1)
    merge.put(1, of(1, [Item(10, EntryKind.QUERY, bytes(QUEUE_BYTES))]), moment(1))
    assert not merge.has_room(1)
    assert merge.has_room(2)
    merge.seen(2, idle(2), moment(2))
    assert isinstance(merge.step(moment(2)), Segment)
    assert merge.has_room(1)


# ---- any sources


@dataclass(frozen=True)
class Act:
    """One step of reading, after a pause of `silence_s`.

    It reads the next `entries` entries of a source. If all are read, the source reports that it is idle.
    """

    part: int
    entries: int
    silence_s: float


@st.composite
def histories(draw: st.DrawFn, *, parts: int = 3) -> tuple[list[list[Item]], list[Act]]:
    """Draw each source's binlog, with its transactions in the order of time, and the steps of reading."""
    binlogs = []
    for part in range(1, parts + 1):
        items: list[Item] = []
        at_s = 0
        begins = draw(st.booleans())
        for number in range(draw(st.integers(0, 5))):
            at_s += draw(st.integers(0, 6))
            kind = draw(st.sampled_from([EntryKind.END, EntryKind.END, EntryKind.DDL, EntryKind.QUERY]))
            if kind == EntryKind.END:
                items += transaction(part, number, at_s, rows=draw(st.integers(1, 6)), begins=begins)
            else:
                statement = b"%d end %d" % (part, number)
                items.append(Item(1000 * (number + 1), kind, statement, timestamp_ms=moment(at_s).ms))
        binlogs.append(items)
    silences = st.sampled_from([0.0, 0.5, 0.5, WAIT_S])
    acts = st.lists(st.builds(Act, st.integers(1, parts), st.integers(0, 9), silences), max_size=40)
    return binlogs, draw(acts)


def played(
    merge: Merge, binlogs: Sequence[Sequence[Item]], acts: Sequence[Act], *, at_s: float = 100.0
) -> Iterator[Segment | LeftBehind | Abandoned | Back]:
    """Yield what comes from sources whose binlogs are complete and read in pieces; at the end all are idle."""
    read = [0] * len(binlogs)

    def do(act: Act, now: Moment) -> None:
        binlog, first = binlogs[act.part - 1], read[act.part - 1]
        if act.entries and first < len(binlog):
            merge.put(act.part, of(act.part, binlog[first : first + act.entries]), now)
            read[act.part - 1] = min(len(binlog), first + act.entries)
        elif first == len(binlog):
            merge.seen(act.part, Seen(None, idle=now), now)

    rest = [Act(part, 4, 0.1) for _ in range(40) for part in range(1, len(binlogs) + 1)]
    for act in [*acts, *rest]:
        at_s += act.silence_s
        do(act, moment(at_s))
        while (got := merge.step(moment(at_s))) is not None:
            if isinstance(got, Abandoned):
                read[got.part - 1] = sum(not _again(item.offset, got.start) for item in binlogs[got.part - 1])
            yield got


@given(histories())
def test_any_sources(drawn: tuple[list[list[Item]], list[Act]]) -> None:
    """For any sources, read in any pieces with any silences, nothing is lost and the order within a source holds.

    Transactions are complete. Until a source is left behind, times never fall.
    """
    binlogs, acts = drawn
    merge = merging(3)
    came: list[tuple[int, str, int]] = []
    times: list[int] = []
    open_: int | None = None
    late = False
    for got in played(merge, binlogs, acts):
        if not isinstance(got, Segment):
            late |= not isinstance(got, Back)
            if isinstance(got, Abandoned):
                open_ = None
                came = [each for each in came if each[0] != got.part or not _again(each[2], got.start)]
            continue
        assert open_ in (None, got.part)
        for index, text in enumerate(bodies(got)):
            came.append((got.part, text, got.offsets[index]))
            if got.kinds[index] in (EntryKind.BEGIN, EntryKind.ROWS, EntryKind.END) or " note " in text:
                open_ = None if got.kinds[index] == EntryKind.END else got.part
            if not late:
                times.append(got.timestamps[index])
    for part, binlog in enumerate(binlogs, start=1):
        assert [text for of_, text, _ in came if of_ == part] == [item.body.decode() for item in binlog]
    assert times == sorted(times)
    assert merge.empty


@given(histories(), st.integers(0, 100), st.integers(0, 100))
def test_any_cursor(drawn: tuple[list[list[Item]], list[Act]], stop: int, inside: int) -> None:
    """From the ack point of any batch, each source continues exactly after its acknowledged entries.

    Nothing is lost, and entries that come again start at the begin of a transaction.
    """
    binlogs, acts = drawn
    handed: list[Segment] = []
    for got in played(merging(3), binlogs, acts):
        if isinstance(got, Segment):
            handed.append(got)
        if isinstance(got, Abandoned) or len(handed) > stop:
            break
    if not handed:
        return
    *whole, last = handed
    pieces = [Piece(each, 0, len(each)) for each in whole] + [Piece(last, 0, 1 + inside % len(last))]
    cursor = ack_point(pieces)
    if cursor is None:
        return
    got_of = {part: [text for piece in pieces for text in _texts(piece, part)] for part in (1, 2, 3)}
    for part, binlog in enumerate(binlogs, start=1):
        stood = cursor.of(part)
        assert stood is not None
        again = [item for item in binlog if _again(item.offset, stood)]
        texts = [item.body.decode() for item in binlog]
        done = texts[: len(texts) - len(again)]
        assert got_of[part][: len(done)] == done  # nothing lost
        repeated = got_of[part][len(done) :]
        assert not done or " end " in done[-1] or "begin" in done[-1]
        assert sum(" end " in text for text in repeated) <= _statements(binlog) or part == cursor.part


def _again(offset: int, start: LogPosition) -> bool:
    """Return whether a dump from `start` delivers the event at this offset."""
    return offset > start.offset or (offset == start.offset and not start.consumed)


def _statements(binlog: Sequence[Item]) -> int:
    return sum(item.kind == EntryKind.QUERY for item in binlog)


def _texts(piece: Piece, part: int) -> list[str]:
    return bodies(piece.segment)[piece.first : piece.last] if piece.segment.part == part else []
