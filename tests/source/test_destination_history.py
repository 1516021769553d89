"""The columns that rows get with lagging and far streams, restarts, present definitions, and failing stores."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from canal_ha.decode.history.ranges import Range, edge
from canal_ha.decode.history.store import HistoryStore, Record, TableSnapshot
from canal_ha.errors import HistoryUnavailable, SourceUnavailable
from canal_ha.model.position import LogPosition
from canal_ha.source.connection.known_only import NotKnown, known_only
from canal_ha.source.history import stretches
from canal_ha.source.history.destination_history import DestinationHistory
from canal_ha.source.history.sql_store import in_file
from canal_ha.source.positions.locate import BinlogEnd
from tests.source.binlog import SCHEMA, Binlog, Stream, installed, look

MODIFY = "ALTER TABLE t MODIFY b int FIRST"
BEGIN = LogPosition("bin.000001", 4)
WIDE = "CREATE TABLE `t` (\n{}\n) ENGINE=InnoDB".format(
    ",\n".join(f"  `c_{column}` varchar(64) COLLATE utf8mb4_bin DEFAULT NULL" for column in range(20))
)


@pytest.fixture
def binlog(monkeypatch: pytest.MonkeyPatch) -> Iterator[Binlog]:
    """Yield a binlog with a table `t (a, b)` but without its CREATE."""
    with installed(monkeypatch, Binlog({"t": ("a", "b")})) as found:
        yield found


def right(*streams: Stream) -> bool:
    """Return whether every row has the columns of its time."""
    rows = [row for stream in streams for row in stream.seen]
    return bool(rows) and all(event.columns == seen for event, seen in rows)


def never_wrong(*streams: Stream) -> bool:
    """Return whether every row has the columns of its time, or was refused."""
    return all(seen in (event.columns, None) for stream in streams for event, seen in stream.seen)


def test_a_stream_that_opens_far_ahead_leaves_the_history_under_one_that_lags(binlog: Binlog) -> None:
    """A lagging stream gets the old names for rows before an ALTER, although another stream opened after it."""
    node = binlog.history()
    lagging = Stream(binlog, node, BEGIN).open()
    binlog.insert("t")
    lagging.read()
    for _ in range(12):
        binlog.rotate()
        binlog.insert("t")
    binlog.run(MODIFY, t=("b", "a"))
    binlog.rotate(12)
    ahead = Stream(binlog, node, binlog.newest).open()
    binlog.insert("t")
    assert right(ahead.read())
    assert right(lagging.read())
    assert len(lagging.seen) == 14


@pytest.mark.parametrize("ahead_first", [True, False])
def test_the_order_in_which_streams_open_does_not_matter(binlog: Binlog, tmp_path: Path, ahead_first: bool) -> None:
    """After a restart both streams get the right columns from the store, whichever opens first."""
    node = binlog.history(in_file("example", tmp_path))
    Stream(binlog, node, BEGIN).open()
    binlog.insert("t")
    look(node, BEGIN)
    node.close()
    binlog.run(MODIFY, t=("b", "a"))
    binlog.rotate(20)
    place = binlog.newest
    binlog.insert("t")
    for _ in range(2):
        node = binlog.history(in_file("example", tmp_path))
        starts = [place, BEGIN] if ahead_first else [BEGIN, place]
        streams = [Stream(binlog, node, start).open() for start in starts]
        assert right(*(stream.read() for stream in streams))
        look(node, BEGIN)
        node.close()


@pytest.mark.parametrize("journals", [1, 3])
def test_a_binlog_that_was_reset_and_grew_while_no_node_ran(binlog: Binlog, tmp_path: Path, journals: int) -> None:
    """Ranges of the binlog before RESET MASTER are not believed, although the new one is as long as they are."""
    node = binlog.history(in_file("example", tmp_path))
    stream = Stream(binlog, node, BEGIN).open()
    for _ in range(journals):
        binlog.insert("t")
        binlog.rotate()
    binlog.run(MODIFY, t=("b", "a"))
    binlog.insert("t")
    assert right(stream.read())
    look(node, BEGIN)
    node.close()
    binlog.begin_anew(t=("a", "b"))
    binlog.rotate(journals)
    for _ in range(30):
        binlog.insert("t")
    node = binlog.history(in_file("example", tmp_path))
    assert right(Stream(binlog, node, replace(BEGIN, journal=binlog.newest.journal)).open().read())
    node.close()


def test_a_binlog_that_is_reset_and_outgrows_the_old_one_between_two_looks(binlog: Binlog) -> None:
    """The first journal has the same name before RESET MASTER and after it; a stream that opens again notices."""
    node = binlog.history()
    stream = Stream(binlog, node, BEGIN).open()
    binlog.insert("t")
    assert right(stream.read())
    look(node, BEGIN)
    binlog.begin_anew(t=("b", "a"))
    for _ in range(5):
        binlog.insert("t")
    look(node, None)
    assert right(Stream(binlog, node, BEGIN).open().read())


def test_rows_without_names_are_not_believed_to_have_them_once_metadata_is_full(binlog: Binlog) -> None:
    """An older row without names is refused, or gets the columns of a statement, although metadata is FULL now."""
    begin = binlog.newest
    binlog.insert("t")
    binlog.run("CREATE TABLE calm (x int)", calm=("x",))
    binlog.insert("calm")
    binlog.run(MODIFY, t=("b", "a"))
    binlog.metadata = "FULL"
    binlog.insert("t")
    stream = Stream(binlog, binlog.history(), begin).open()
    assert [seen for _, seen in stream.read().seen] == [None, ("x",), ("b", "a")]


def test_full_metadata_needs_no_reading_ahead(binlog: Binlog) -> None:
    """If every event carries names, a new history reads none of the binlog ahead."""
    binlog.metadata = "FULL"
    begin = binlog.newest
    for _ in range(5):
        binlog.insert("t")
        binlog.run(MODIFY, t=("b", "a"))
        binlog.rotate()
    assert right(Stream(binlog, binlog.history(), begin).open().read())
    assert not binlog.reads


@pytest.mark.parametrize(
    ("first", "behind", "now"),
    [
        ("CREATE TABLE IF NOT EXISTS n (a int, b int)", "ALTER TABLE n CHANGE a z int", ("z", "b")),
        ("CREATE TABLE IF NOT EXISTS n (a int, b int)", "ALTER TABLE n MODIFY b int FIRST", ("b", "a")),
        ("RENAME TABLE hidden TO n", "ALTER TABLE n CHANGE a z int", ("z", "b")),
        ("CREATE TABLE n (a int, b int) COMMENT 'C:\\'", "ALTER TABLE n MODIFY b int FIRST", ("b", "a")),
    ],
)
@pytest.mark.parametrize("warm", [True, False])
def test_the_present_definition_does_not_count_while_statements_are_unread(
    binlog: Binlog, first: str, behind: str, now: tuple[str, ...], warm: bool
) -> None:
    """A row of a backlog never gets the present columns while statements behind it are unread."""
    node = binlog.history()
    begin = binlog.newest
    if warm:
        look(node, begin)
    binlog.run(first, n=("a", "b"))
    binlog.insert("n")
    binlog.run(behind, n=now)
    binlog.insert("n")
    stream = Stream(binlog, node, begin).open().read()
    assert never_wrong(stream)
    assert stream.seen[1][1] == now
    if warm and first.startswith("CREATE TABLE IF"):
        assert right(stream)


def test_a_definition_that_changes_while_it_is_asked_for_is_not_recorded(binlog: Binlog) -> None:
    """A definition is not recorded if an ALTER runs after it was read and before its position is known."""
    binlog.tables["hidden"] = ("a", "b")
    node = binlog.history()
    begin = binlog.newest
    look(node, begin)
    binlog.run("RENAME TABLE elsewhere.x TO n", n=("a", "b"))
    binlog.insert("n")
    stream = Stream(binlog, node, begin).open()

    def alter() -> None:
        binlog.asking = lambda: None
        binlog.run("ALTER TABLE n MODIFY b int FIRST", n=("b", "a"))
        binlog.insert("n")

    binlog.asking = alter
    assert never_wrong(stream.read())
    assert never_wrong(stream.read())
    assert stream.seen[-1][1] == ("b", "a")


@pytest.mark.timed
def test_ten_thousand_tables_in_fifteen_snapshots_do_not_delay_the_first_row(binlog: Binlog, tmp_path: Path) -> None:
    """A node that takes over knows its first row's columns within 5 s; no two tables share their columns here."""
    store = in_file("example", tmp_path)
    tables = {("s", f"t{table}"): WIDE.replace("c_", f"c{table}_") for table in range(10_000)}
    tables[("s", "t")] = "CREATE TABLE `t` (\n  `a` int,\n  `b` int\n) ENGINE=InnoDB"
    for _ in range(15):
        store.add_snapshot("u", TableSnapshot(binlog.newest, tables))
        binlog.insert("t")
    store.cover("u", [Range(BEGIN, edge(binlog.newest))], {})
    store.close()
    node = binlog.history(in_file("example", tmp_path))
    since_s = time.monotonic()
    assert right(Stream(binlog, node, BEGIN).open().read(1))
    assert time.monotonic() - since_s < 5


def test_streams_open_while_a_snapshot_asks_for_definitions(binlog: Binlog) -> None:
    """Ten thousand tables take a server seconds. A stream whose range is known does not wait for them."""
    node = binlog.history(most_records=2)
    stream = Stream(binlog, node, BEGIN).open()
    for name in ("c", "d", "e"):
        binlog.run(f"ALTER TABLE t ADD {name} int", t=(*binlog.tables["t"], name))
    stream.read()
    asking, go_on = Event(), Event()

    def wait() -> None:
        asking.set()
        assert go_on.wait(10)

    binlog.asking = wait
    looking = Thread(target=node.look, args=([BEGIN],))
    looking.start()
    assert asking.wait(10)
    other = Stream(binlog, node, BEGIN)
    opening = Thread(target=other.open)
    opening.start()
    opening.join(10)
    waits = opening.is_alive()
    go_on.set()
    opening.join()
    looking.join()
    binlog.insert("t")
    assert not waits
    assert right(other.read(), stream.read())
    assert len(node._snapshots) == 2


def test_streams_open_while_another_reads_a_long_stretch(binlog: Binlog) -> None:
    """A client that lags by gigabytes keeps no other one waiting; two that lag alike read the stretch once."""
    for _ in range(50):
        binlog.insert("t")
    node = binlog.history()
    tip = Stream(binlog, node, binlog.newest).open()
    reading, go_on = Event(), Event()

    def wait() -> None:
        reading.set()
        assert go_on.wait(10)

    binlog.reading = wait
    lagging = [Stream(binlog, node, BEGIN) for _ in range(5)]
    threads = [Thread(target=stream.open) for stream in lagging]
    for thread in threads:
        thread.start()
    assert reading.wait(10)
    other = Stream(binlog, node, tip.decoded)
    opening = Thread(target=other.open)
    opening.start()
    opening.join(10)
    waits = opening.is_alive()
    go_on.set()
    for thread in (*threads, opening):
        thread.join()
    binlog.insert("t")
    assert not waits
    assert right(other.read(), *(stream.read() for stream in lagging))
    assert binlog.reads == 50


def test_a_stretch_that_one_caller_cannot_read_is_tried_by_the_next(binlog: Binlog) -> None:
    """The connection of the first ends in the middle; those who waited for it do not wait for ever."""
    binlog.insert("t")
    node = binlog.history()
    Stream(binlog, node, binlog.newest).open()
    failures = [SourceUnavailable("the connection is lost")]

    def fail() -> None:
        time.sleep(0.05)
        if failures:
            raise failures.pop()

    binlog.reading = fail
    streams = [Stream(binlog, node, BEGIN) for _ in range(2)]

    def open_anyhow(stream: Stream) -> None:
        with suppress(SourceUnavailable):
            stream.open()

    threads = [Thread(target=open_anyhow, args=(stream,)) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    opened = [stream for stream in streams if stream.view is not None]
    assert len(opened) == 1
    assert right(opened[0].read())


def test_streams_that_open_together_take_one_snapshot(binlog: Binlog) -> None:
    """Each definition is asked for once when a node takes over."""
    asked: list[int] = []

    def wait() -> None:
        asked.append(1)
        time.sleep(0.05)

    binlog.asking = wait
    node = binlog.history()
    streams = [Stream(binlog, node, BEGIN) for _ in range(6)]
    threads = [Thread(target=stream.open) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    binlog.insert("t")
    assert right(*(stream.read() for stream in streams))
    assert len(asked) == 1


def test_a_statement_that_is_written_but_not_given_out_yet_is_read_before_a_snapshot_counts(
    binlog: Binlog, tmp_path: Path
) -> None:
    """A snapshot counts only when an ALTER that ran meanwhile is read, although the first reads end before it."""
    node = binlog.history(in_file("example", tmp_path))
    begin = binlog.newest

    def alter() -> None:
        binlog.asking = lambda: None
        binlog.early = 2
        binlog.run(MODIFY, t=("b", "a"))

    binlog.asking = alter
    stream = Stream(binlog, node, begin).open()
    binlog.insert("t")
    assert right(stream.read())
    node.close()
    node = binlog.history(in_file("example", tmp_path))
    assert right(Stream(binlog, node, begin).open().read())


def test_what_is_never_given_out_is_not_covered(binlog: Binlog, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the server does not give out its newest events in time, opening fails; a later attempt reads everything."""
    monkeypatch.setattr(stretches, "GIVEN_OUT_WITHIN_S", 0.05)
    node = binlog.history()
    look(node, None)
    begin = binlog.newest
    binlog.run(MODIFY, t=("b", "a"))
    binlog.insert("t")
    place = binlog.newest
    binlog.insert("t")
    binlog.early = 1_000_000
    with pytest.raises(SourceUnavailable, match="sync_binlog"):
        Stream(binlog, node, place).open()
    assert [known.end.order < place.order for known in node._history.ranges()] == [True]
    binlog.early = 0
    assert right(Stream(binlog, node, begin).open().read(), Stream(binlog, node, place).open().read())


def test_a_table_that_no_snapshot_holds_is_looked_up_once(binlog: Binlog) -> None:
    """A table that no snapshot has is looked up once for all streams."""
    binlog.tables["mysql_only"] = ("x", "y")
    node = binlog.history()
    begin = binlog.newest
    binlog.tables.pop("mysql_only")
    look(node, begin)
    binlog.tables["mysql_only"] = ("x", "y")
    asked: list[int] = []
    binlog.asking = lambda: asked.append(1)
    for _ in range(3):
        binlog.insert("mysql_only")
    assert right(Stream(binlog, node, begin).open().read())
    assert right(Stream(binlog, node, begin).open().read())
    assert len(asked) == 1


def test_ranges_join_and_are_bounded(binlog: Binlog) -> None:
    """Streams that open ever further ahead begin a bounded number of ranges, and all rows are right."""
    node = binlog.history()
    lagging = Stream(binlog, node, BEGIN).open()
    others = []
    for number in range(40):
        binlog.rotate(10)
        columns = binlog.tables["t"][::-1]
        binlog.run(f"ALTER TABLE t MODIFY {columns[0]} int FIRST", t=columns)
        others.append(Stream(binlog, node, binlog.newest).open())
        binlog.insert("t")
        others[-1].read()
        assert number or len(node._history.ranges()) == 2
    assert len(node._history.ranges()) <= 16
    assert right(*others)
    assert right(lagging.read())
    look(node, None)
    assert len(node._history.ranges()) == 1


def look_if_due(node: DestinationHistory, end: BinlogEnd) -> None:
    """Look as an instance does that knows the end of the binlog."""
    if not node.goes_on(end):
        node.look([BEGIN])


def test_a_look_that_knows_the_end_asks_nothing_while_the_binlog_goes_on(binlog: Binlog) -> None:
    """Neither on an idle server nor while a stream reads, also beyond an end that is a second old."""
    node = binlog.history()
    stream = Stream(binlog, node, BEGIN).open()
    binlog.insert("t")
    stream.read()
    look_if_due(node, binlog.end)
    asked = binlog.asked
    for _ in range(3):
        look_if_due(node, end := binlog.end)
        binlog.insert("t")
        stream.read()
        look_if_due(node, replace(binlog.end, newest=end.newest))
    assert binlog.asked == asked


def test_a_stream_that_begins_where_the_history_is_known_asks_nothing(binlog: Binlog) -> None:
    """A thousand streams of a server open at once. Each begins at a place that its history covers."""
    node = binlog.history()
    look(node, None)
    other = Stream(binlog, node, BEGIN).open()
    binlog.insert("t")
    other.read()
    look_if_due(node, binlog.end)
    asked = binlog.asked
    stream = Stream(binlog, node, binlog.newest)
    assert stream.decoded is not None
    stream.view = node.view_at_once(stream.decoded, binlog.end, stream)
    assert binlog.asked == asked
    binlog.run(MODIFY, t=("b", "a"))
    row = binlog.insert("t")
    assert stream.read().seen == [(row, ("b", "a"))]


@pytest.mark.parametrize("change", ["anew", "journal", "server", "behind", "unknown"])
def test_a_stream_that_begins_at_a_place_of_which_less_is_known_asks(binlog: Binlog, change: str) -> None:
    """The binlog may be another one, or the place lie outside of what the history covers."""
    node = binlog.history()
    if change != "unknown":
        look(node, None)
        look_if_due(node, binlog.end)
    if change == "anew":
        for _ in range(3):
            binlog.insert("t")
        before = Stream(binlog, node, BEGIN).open().read()
        look_if_due(node, binlog.end)
        assert before.seen
        binlog.begin_anew(t=("p", "q"))
    elif change == "journal":
        binlog.rotate()
    elif change == "server":
        binlog.uuid = "v"
    at = binlog.newest
    if change == "behind":
        binlog.insert("t")
        at = binlog.newest
    stream = Stream(binlog, node, at)
    assert node.view_at_once(at, binlog.end, stream) is None
    stream.open()
    row = binlog.insert("t")
    assert stream.read().seen == [(row, binlog.tables["t"])]


def test_a_stream_at_a_tap_gets_no_columns_of_before_a_reset_when_the_binlog_has_grown_again(binlog: Binlog) -> None:
    """The end tells nothing then. When the journal was created does."""
    node = binlog.history()
    look(node, None)
    binlog.insert("t")
    at = binlog.newest
    other = Stream(binlog, node, BEGIN).open().read()
    look_if_due(node, binlog.end)
    assert other.seen
    binlog.begin_anew(t=("p", "q"))
    while binlog.newest.order < at.order:
        binlog.insert("t")
    stream = Stream(binlog, node, at)
    assert node.view_at_once(at, binlog.end, stream) is None
    stream.open()
    row = binlog.insert("t")
    assert stream.read().seen == [(row, ("p", "q"))]


def test_destinations_that_begin_together_ask_for_the_definitions_once(binlog: Binlog) -> None:
    """A server has ten thousand tables and a thousand destinations. After RESET MASTER the answer does not count."""
    asked: list[str] = []
    binlog.asking = lambda: asked.append("definition")
    nodes = [binlog.history() for _ in range(3)]
    for node in nodes:
        look(node, None)
    assert asked == ["definition"]
    streams = [Stream(binlog, node, binlog.newest).open() for node in nodes]
    rows = [binlog.insert("t")]
    binlog.run(MODIFY, t=("b", "a"))
    rows.append(binlog.insert("t"))
    for stream in streams:
        assert stream.read().seen == [(rows[0], ("a", "b")), (rows[1], ("b", "a"))]
    binlog.begin_anew(t=("p", "q"))
    late = Stream(binlog, binlog.history(), binlog.newest).open()
    row = binlog.insert("t")
    assert late.read().seen == [(row, ("p", "q"))]


def test_a_look_on_the_reactor_waits_for_no_store_that_takes_long(binlog: Binlog, tmp_path: Path) -> None:
    """The reactor itself brings ZooKeeper's answer to the thread that stores a statement."""
    store = in_file("example", tmp_path)
    node = binlog.history(store, clock=lambda: 1.0)
    stream = Stream(binlog, node, BEGIN).open()
    binlog.insert("t")
    stream.read()
    for _ in range(2):
        look_if_due(node, binlog.end)
    add, stores, answered, looked = store.add, Event(), Event(), Event()

    def slow(*args: Any) -> None:
        stores.set()
        assert answered.wait(20)
        add(*args)

    store.add = slow  # type: ignore[assignment, method-assign]  # of this test's own store
    end = binlog.end
    binlog.run(MODIFY, t=("b", "a"))

    def look_at_once() -> None:
        with suppress(NotKnown), known_only():
            node.goes_on(end)
        looked.set()

    threads = [Thread(target=stream.read), Thread(target=look_at_once)]
    threads[0].start()
    assert stores.wait(10)
    threads[1].start()
    in_time = looked.wait(5)
    answered.set()
    for thread in threads:
        thread.join(10)
    assert in_time


def test_a_look_that_knows_the_end_asks_when_the_binlog_is_another_one(binlog: Binlog) -> None:
    """After RESET MASTER the end lies before what a stream has read; a new journal and another server show, too."""
    node = binlog.history()
    stream = Stream(binlog, node, BEGIN).open()
    for _ in range(3):
        binlog.insert("t")
    stream.read()
    for _ in range(2):
        look_if_due(node, binlog.end)
    changes: list[Callable[[], None]] = [
        lambda: binlog.begin_anew(t=("b", "a")),
        binlog.rotate,
        lambda: setattr(binlog, "uuid", "v"),
    ]
    for change in changes:
        asked = binlog.asked
        change()
        look_if_due(node, binlog.end)
        assert binlog.asked > asked
        look_if_due(node, binlog.end)
        asked = binlog.asked
        look_if_due(node, binlog.end)
        assert binlog.asked == asked
    assert right(Stream(binlog, node, BEGIN).open().read()) is False  # it holds no row yet
    binlog.insert("t")
    assert right(Stream(binlog, node, BEGIN).open().read())


def test_a_history_of_another_binlog_is_kept_for_its_own(binlog: Binlog, tmp_path: Path) -> None:
    """The histories of two servers of one destination are kept apart, even at the same positions."""
    node = binlog.history(in_file("example", tmp_path))
    Stream(binlog, node, BEGIN).open()
    binlog.insert("t")
    binlog.run(MODIFY, t=("b", "a"))
    look(node, BEGIN)
    node.close()
    first, binlog.uuid, binlog.tables = binlog.tables, "v", {"t": ("q", "r")}
    binlog.events, events = [], binlog.events
    other = binlog.history(in_file("example", tmp_path))
    place = binlog.newest
    binlog.insert("t")
    assert right(Stream(binlog, other, place).open().read())
    look(other, BEGIN)
    other.close()
    binlog.uuid, binlog.tables, binlog.events = "u", first, events
    node = binlog.history(in_file("example", tmp_path))
    assert right(Stream(binlog, node, BEGIN).open().read())


@pytest.mark.parametrize("open_reads", [True, False])
def test_snapshots_and_expiry_go_on_with_many_ranges(binlog: Binlog, tmp_path: Path, open_reads: bool) -> None:
    """With many ranges of private reads, the newest range still gets snapshots, and its records still expire."""
    binlog.metadata = "FULL"
    for _ in range(400):
        binlog.rotate()
        binlog.insert("t")
    node = binlog.history(in_file("example", tmp_path), clock=lambda: 1.0, most_records=20)
    main = Stream(binlog, node, binlog.newest).open()
    assert main.decoded is not None
    look(node, main.decoded)
    reads = []
    for number in range(17):
        reads.append(Stream(binlog, node, LogPosition(f"bin.{5 + number * 20:06d}", 4)).open().read(1))
        look(node, main.decoded)
    if not open_reads:
        reads.clear()
    first = node._snapshots[-1]
    for number in range(300):
        binlog.run(f"ALTER TABLE t ADD c{number} int", t=(*binlog.tables["t"], f"c{number}"))
        main.read()
        if number % 10 == 0:
            look(node, main.decoded)
    assert node._snapshots[-1].order > first.order
    if not open_reads:
        assert node._recording.size <= 60
        assert len(node._history.ranges()) < 16


def test_what_cursors_let_go_of_is_expired_without_another_snapshot(binlog: Binlog, tmp_path: Path) -> None:
    """Records expire when the last cursor moves on, even without a statement since the last snapshot."""
    node = binlog.history(in_file("example", tmp_path), clock=lambda: 1.0, most_records=4)
    stream = Stream(binlog, node, BEGIN).open()
    for number in range(9):
        binlog.run(f"ALTER TABLE t ADD c{number} int", t=(*binlog.tables["t"], f"c{number}"))
    stream.read()
    look(node, BEGIN)
    assert node._recording.size == 9
    binlog.insert("t")
    look(node, stream.read().decoded)
    assert node._recording.size == 0


@pytest.mark.parametrize("abandoned", ["old", "purged"])
def test_an_abandoned_client_id_does_not_keep_the_history(binlog: Binlog, tmp_path: Path, abandoned: str) -> None:
    """A cursor that nobody moves any more, or that nobody can read from any more, holds nothing back."""
    now_s = 1.0
    node = binlog.history(in_file("example", tmp_path), clock=lambda: now_s, most_records=4)
    stream = Stream(binlog, node, BEGIN).open()
    left = replace(BEGIN, timestamp_ms=1000)
    for number in range(20):
        binlog.run(f"ALTER TABLE t ADD c{number} int", t=(*binlog.tables["t"], f"c{number}"))
        binlog.insert("t")
        stream.read()
        assert stream.decoded
        node.look([left, replace(stream.decoded, timestamp_ms=int(now_s * 1000))])
    assert node._recording.size == 20
    if abandoned == "old":
        now_s = 16 * 24 * 3600
    else:
        binlog.rotate()
        binlog.purged = 1
        binlog.insert("t")
        stream.read()
    assert stream.decoded
    node.look([left, replace(stream.decoded, timestamp_ms=int(now_s * 1000))])
    assert node._recording.size < 8
    assert right(stream.read())


def test_without_clients_the_history_does_not_grow(binlog: Binlog, tmp_path: Path) -> None:
    """The last client is gone; nothing of what it needed stays behind the last snapshot."""
    node = binlog.history(in_file("example", tmp_path), clock=lambda: 1.0, most_records=4)
    stream = Stream(binlog, node, BEGIN).open()
    for number in range(9):
        binlog.run(f"ALTER TABLE t ADD c{number} int", t=(*binlog.tables["t"], f"c{number}"))
    stream.read()
    node.look([BEGIN])
    del stream
    node.look([])
    assert node._recording.size == 0


@pytest.mark.parametrize("lagging_reads_on", [True, False])
def test_statements_of_a_range_count_once_the_range_before_it_is_joined(binlog: Binlog, lagging_reads_on: bool) -> None:
    """An ALTER of a table that a later range does not know is applied when the earlier range reaches it."""
    binlog.metadata = "FULL"
    node = binlog.history()
    lagging = Stream(binlog, node, binlog.newest).open()
    look(node, lagging.decoded)
    binlog.rotate(20)
    place = binlog.newest
    binlog.run("ALTER TABLE t ADD c int", t=("a", "b", "c"))
    binlog.rotate()
    binlog.metadata = "MINIMAL"
    binlog.insert("t")
    binlog.run("ALTER TABLE t ADD d int", t=("a", "b", "c", "d"))
    binlog.metadata = "FULL"
    ahead = Stream(binlog, node, place).open()
    ahead.read(1)
    if lagging_reads_on:
        lagging.read(1)
        look(node, place)
    assert right(ahead.read(), Stream(binlog, node, place).open().read())
    assert right(lagging.read())


class Failing:
    """A store that raises HistoryUnavailable while `fails` is set."""

    def __init__(self, store: HistoryStore) -> None:
        self.fails = False
        self.shared = self.lent = False
        self._store = store

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*values: object) -> Any:
            if self.fails and name != "close":
                raise HistoryUnavailable("out of reach")
            return getattr(self._store, name)(*values)

        return call


@pytest.mark.parametrize("restarts", [True, False])
def test_what_a_failing_store_holds_of_a_reset_binlog_is_not_believed_later(
    binlog: Binlog, tmp_path: Path, restarts: bool
) -> None:
    """If the binlog is reset while the store fails, the store's old statements are not used for the new binlog."""
    store = Failing(in_file("example", tmp_path))
    node = binlog.history(store)
    stream = Stream(binlog, node, BEGIN).open()
    for _ in range(30):
        binlog.insert("t")
    binlog.run(MODIFY, t=("b", "a"))
    stream.read()
    look(node, BEGIN)
    binlog.begin_anew(t=("x", "y"))
    store.fails = True
    look(node, None)
    del stream
    begin = binlog.newest
    stream = Stream(binlog, node, begin).open()
    binlog.insert("t")
    stream.read()
    look(node, begin)
    store.fails = False
    for _ in range(40):
        binlog.insert("t")
    assert right(stream.read())
    if not restarts:
        look(node, begin)
    node.close()
    node = binlog.history(in_file("example", tmp_path))
    assert right(Stream(binlog, node, begin).open().read())


def test_records_without_a_range_are_not_believed(binlog: Binlog, tmp_path: Path) -> None:
    """Records outside any range, as a crash leaves them, are not used: a statement between them may be missing."""
    binlog.tables.clear()
    begin = binlog.newest
    binlog.run("CREATE TABLE t (a int, b int)", t=("a", "b"))
    binlog.run(MODIFY, t=("b", "a"))
    binlog.insert("t")
    binlog.run("ALTER TABLE t ADD c int", t=("b", "a", "c"))
    binlog.insert("t")
    store = in_file("example", tmp_path)
    store.add("u", [Record(event.at, SCHEMA, event.sql) for event in (binlog.events[0], binlog.events[3])])
    store.close()
    node = binlog.history(in_file("example", tmp_path))
    assert right(Stream(binlog, node, begin).open().read())


def test_what_a_stream_reads_is_not_expired_under_it(binlog: Binlog, tmp_path: Path) -> None:
    """The records that a private read needs do not expire before it ends, although it has no cursor."""
    now = [0.0]
    node = binlog.history(in_file("example", tmp_path), clock=lambda: now[0], most_records=2)
    private = Stream(binlog, node, BEGIN).open()
    binlog.insert("t")
    ahead = Stream(binlog, node, BEGIN).open()
    for number in range(6):
        binlog.run(f"ALTER TABLE t ADD c{number} int", t=(*binlog.tables["t"], f"c{number}"))
        binlog.insert("t")
        ahead.read()
        look(node, binlog.newest)
    assert right(ahead, private.read())
    del private
    binlog.run("ALTER TABLE t ADD d int", t=(*binlog.tables["t"], "d"))
    binlog.run("ALTER TABLE t ADD e int", t=(*binlog.tables["t"], "e"))
    ahead.read()
    look(node, binlog.newest)
    assert [known.start.order > BEGIN.order for known in node._history.ranges()] == [True]
