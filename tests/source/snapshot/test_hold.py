"""Where a stream is held for the read of a table without a key: the hold alone, and the junction with it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from canal_ha.errors import RingClosed
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment
from canal_ha.source.snapshot.hold import Hold, touching
from canal_ha.source.snapshot.junction import Junction
from canal_ha.source.snapshot.marker import marker
from canal_ha.source.snapshot.watermark import Reached
from canal_ha.wire.proto import entry_protocol_pb2 as pb
from tests.segments import HERE, Item, segment
from tests.waiting import until

JOURNAL = "mysql-bin.000001"
NEXT = "mysql-bin.000002"


def reached(offset: int, journal: str = JOURNAL) -> Reached:
    """Return a place of the server."""
    return Reached(journal, offset, "s")


def transactions(*offsets: int, cut: bool = False) -> Segment:
    """Return transactions of a row entry each, whose ends start at these offsets."""
    items = [each for offset in offsets for each in (Item(offset - 5, EntryKind.ROWS), Item(offset, EntryKind.END))]
    return replace(segment(items[:-1] if cut else items), cut=cut)


def hold_of(*touched: int) -> Hold:
    """Return a hold for changes at these offsets."""
    return Hold(lambda found: [at for at, offset in enumerate(found.offsets) if offset in touched])


def test_until_the_read_is_open_no_change_of_the_table_passes() -> None:
    """Others do, but no transaction of several pieces: its next one may change the table."""
    hold = hold_of(105)
    assert hold.passes(transactions(110)) == 0
    assert hold.passes(transactions(120)) == 2
    assert hold.passes(transactions(120, cut=True)) == 0


def test_changes_that_the_read_sees_pass_and_others_wait() -> None:
    """A segment is divided where the read stands."""
    hold = hold_of(105, 125, 145)
    hold.limit(reached(120), reached(120))
    assert hold.passes(transactions(110)) == 2
    assert hold.passes(transactions(110, cut=True)) == 1
    assert hold.passes(transactions(110, 130)) == 2
    assert hold.passes(transactions(130)) == 0
    assert hold.passes(transactions(140)) == 2
    assert hold.passes(transactions(140, cut=True)) == 0
    assert hold.passes(transactions(140, 150)) == 0
    hold.limit(reached(4, NEXT), reached(4, NEXT))
    assert hold.passes(transactions(130)) == 2
    hold.limit(reached(999, "mysql-bin.000000"), reached(999, "mysql-bin.000000"))
    assert hold.passes(transactions(110)) == 0
    assert not hold.void


def test_a_change_that_the_read_may_or_may_not_see_makes_it_void() -> None:
    """Then everything passes."""
    hold = hold_of(105, 125)
    hold.limit(reached(101), reached(120))
    assert hold.passes(transactions(130)) == 0
    assert hold.passes(transactions(110)) == 2
    assert hold.void
    assert hold.passes(transactions(130)) == 2


class Stage:
    """A junction whose feed the test plays, on a thread."""

    def __init__(self) -> None:
        self.taken: list[Segment] = []
        self.decoded = LogPosition(JOURNAL, 100, server="s")
        self.errors: list[Exception] = []
        self.junction = Junction(self.taken.append, lambda: self.decoded)
        self._threads: list[threading.Thread] = []

    def feed(self, *segments: Segment) -> threading.Thread:
        """Let the feed pass segments on. It has passed their ends only when it has passed all of them."""

        def run() -> None:
            try:
                for each in segments:
                    self.junction.accept(each)
                self.decoded = LogPosition(JOURNAL, segments[-1].offsets[-1] + 10, server="s")
            except RingClosed as error:
                self.errors.append(error)

        return self._started(run)

    def limit(self, doubt: int, end: int) -> list[bool]:
        """Say what the read sees, on a thread; return the list that gets the answer."""
        answers: list[bool] = []
        self._started(lambda: answers.append(self.junction.limit(reached(doubt), reached(end))))
        return answers

    def _started(self, run: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self._threads.append(thread)
        return thread

    def offsets(self) -> list[int]:
        """Return the first offset of each segment taken."""
        return [each.offsets[0] for each in self.taken]


def piece(at: LogPosition) -> Segment:
    """Return a piece without rows."""
    return marker(at, HERE)


def test_the_pieces_enter_before_the_change_that_waits() -> None:
    """What the feed has passed stands before them, although its boundary does not tell it yet."""
    stage = Stage()
    hold = hold_of(125)
    assert stage.junction.hold(hold) == (reached(100), None)
    feed = stage.feed(transactions(110), transactions(130))
    until(lambda: len(stage.taken) == 1, what="the first transaction")
    answers = stage.limit(115, 118)
    until(lambda: answers == [True], what="the place of the read")
    places: list[LogPosition] = []
    for _ in range(2):
        assert stage.junction.enter(lambda at: places.append(at) or piece(at))  # type: ignore[func-returns-value] # None
    assert [(at.offset, at.consumed) for at in places] == [(110, True)] * 2
    feed.join(0.1)
    assert stage.offsets() == [105, 110, 110]
    stage.junction.release()
    feed.join(5)
    assert stage.offsets() == [105, 110, 110, 125]


def test_a_segment_is_divided_where_the_read_stands() -> None:
    """The pieces enter between its transactions."""
    stage = Stage()
    stage.junction.hold(hold_of(105, 125))
    feed = stage.feed(transactions(110, 130))
    answers = stage.limit(120, 120)
    until(lambda: answers == [True], what="the place of the read")
    assert stage.junction.enter(piece)
    stage.junction.release()
    feed.join(5)
    assert stage.offsets() == [105, 110, 125]
    assert [list(each.offsets) for each in stage.taken[::2]] == [[105, 110], [125, 130]]


def test_transactions_of_other_tables_pass_between_the_pieces() -> None:
    """The stream of the other tables goes on, and an idle stream has a place, too."""
    stage = Stage()
    stage.junction.hold(hold_of())
    assert stage.limit(90, 100) is not None
    assert stage.junction.enter(piece)
    stage.feed(transactions(110)).join(5)
    assert stage.junction.enter(piece)
    assert stage.offsets() == [100, 105, 120]


def test_a_read_that_is_void_enters_nothing() -> None:
    """A change in doubt, or another server."""
    stage = Stage()
    stage.junction.hold(hold_of(105))
    answers = stage.limit(101, 120)
    stage.feed(transactions(110)).join(5)
    until(lambda: answers == [False], what="the void read")
    assert not stage.junction.enter(piece)
    stage.junction.release()
    stage.junction.hold(hold_of())
    stage.junction.moved(None, None)
    assert not stage.junction.enter(piece)


def test_a_stop_ends_the_wait_of_a_held_feed() -> None:
    """The change that waits does not get into the stream."""
    stage = Stage()
    stage.junction.hold(hold_of(125))
    feed = stage.feed(transactions(110), transactions(130))
    until(lambda: len(stage.taken) == 1, what="the first transaction")
    stage.junction.stop()
    feed.join(0.2)
    assert not stage.junction.enter(piece)
    stage.junction.release()
    feed.join(5)
    assert stage.offsets() == [105]
    assert stage.errors
    assert stage.junction.hold(hold_of()) is None


def test_a_hold_lets_a_transaction_end_that_has_begun() -> None:
    """Its first piece has passed, so its rest passes, too; what comes behind it waits."""
    stage = Stage()
    stage.feed(transactions(110, cut=True)).join(5)
    held: list[object] = []
    threading.Thread(target=lambda: held.append(stage.junction.hold(hold_of(115, 125))), daemon=True).start()
    feed = stage.feed(transactions(120, cut=True), transactions(120, 130))
    until(lambda: bool(held), what="the end of the transaction")
    feed.join(0.1)
    assert stage.offsets() == [105, 115, 115]
    stage.junction.release()
    feed.join(5)
    assert stage.offsets() == [105, 115, 115, 125]


def entry(table: str, *, schema: str = "shop", sql: str = "") -> bytes:
    """Return an entry of rows, or of a statement."""
    change = pb.RowChange(isDdl=bool(sql), sql=sql)
    header = pb.Header(schemaName=schema, tableName=table)
    return pb.Entry(header=header, entryType=pb.ROWDATA, storeValue=change.SerializeToString()).SerializeToString()


def test_entries_that_change_the_table() -> None:
    """Rows of the table, by its whole name, and statements that may concern it."""
    items = [
        Item(10, EntryKind.BEGIN),
        Item(20, EntryKind.ROWS, entry("orders")),
        Item(30, EntryKind.ROWS, entry("orders2")),
        Item(40, EntryKind.ROWS, entry("orders", schema="shop2")),
        Item(50, EntryKind.DDL, entry("a", sql="RENAME TABLE a TO b, orders TO c")),
        Item(60, EntryKind.DDL, entry("a", sql="DROP TABLE a")),
        Item(70, EntryKind.END),
    ]
    assert list(touching("shop", "orders")(segment(items))) == [1, 4]
    assert list(touching("shop", "items")(segment(items))) == []
