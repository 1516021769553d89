"""Streams that read the bytes of one dump: they get what their own dumps would bring, whatever happens to the tap."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

from canal_ha.config.model import DecodeOptions
from canal_ha.decode import decoder, payload
from canal_ha.source.connection.reactor_reads import ReactorReads
from canal_ha.source.connection.reader import DumpReader
from canal_ha.source.server import tap, tapped
from canal_ha.source.server.dump import DumpFailed
from canal_ha.source.server.tap import Taps
from lab import MariaDB, MySQL, SqlServer
from tests.running_reactor import running_reactor
from tests.source.reading import Reading, newest
from tests.source.test_dump_real import dump_threads, insert, make_table
from tests.waiting import until

pytestmark = pytest.mark.real
STREAMS = 3
_RESET = {"mysql": "RESET BINARY LOGS AND GTIDS", "mariadb": "RESET MASTER"}


class Streams:
    """Streams of one server that may follow a tap. Rows have numbers in the order in which they are inserted."""

    def __init__(self, server: SqlServer, database: str, stack: ExitStack) -> None:
        make_table(server, database)
        self.server, self.database = server, database
        self.readings: list[Reading] = []
        self._next = 1
        self._stack = stack
        self._reads = ReactorReads(running_reactor())
        self.taps = Taps(self._reads, STREAMS)
        self._start = newest(server)

    def open(self, count: int, **options: Any) -> list[Reading]:
        """Open streams where the first row was inserted."""
        more = [
            Reading(
                self.server,
                self.database,
                self._start,
                client_id=len(self.readings) + number,
                reads=self._reads,
                taps=self.taps,
                **options,
            )
            for number in range(count)
        ]
        self.readings += more
        for reading in more:
            self._stack.enter_context(reading)
        return more

    def insert(self, count: int, table: str = "t") -> None:
        """Insert rows, each in its own transaction."""
        if table != "t":
            numbers = range(self._next, self._next + count)
            self.server.execute(*(f"INSERT INTO {self.database}.{table} VALUES ({number})" for number in numbers))
        else:
            insert(self.server, self.database, self._next, count)
        self._next += count

    def check(self, *readings: Reading) -> None:
        """Wait until streams have all rows, once and in order."""
        for reading in readings or self.readings:
            assert reading.wait_rows(self._next - 1) == [str(number) for number in range(1, self._next)]

    def settle(self) -> None:
        """Insert rows until all streams follow the tap, and the server sends one dump only."""

        def settled() -> bool:
            self.insert(1)
            self.check()
            return all(each.dump.shared for each in self.readings)

        until(settled, what="all streams at the tap")
        until(lambda: len(dump_threads(self.server)) == 1, seconds=30, what="one dump")

    def kill_dumps(self) -> None:
        """End all dumps of the server."""
        for number in dump_threads(self.server):
            with suppress(Exception):  # it may have ended meanwhile
                self.server.execute(f"KILL {number}")

    @property
    def failures(self) -> list[DumpFailed]:
        """What the streams have reported."""
        return [event for each in self.readings for event in each.events if isinstance(event, DumpFailed)]


@pytest.fixture
def streams(source_server: SqlServer, database: str) -> Iterator[Streams]:
    """Yield streams, none of which is open."""
    with ExitStack() as stack:
        yield Streams(source_server, database, stack)


def test_streams_at_the_end_of_the_binlog_share_one_connection(streams: Streams) -> None:
    """Each gets every row once, in order, and the server sends one dump."""
    streams.open(STREAMS)
    streams.settle()
    streams.insert(20)
    streams.check()
    assert len(dump_threads(streams.server)) == 1
    assert not streams.failures


def test_streams_that_open_together_open_no_dumps_of_their_own(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tap has the place where they begin."""
    own: list[object] = []
    opened = threading.Event()
    wait = tap.Tap.opened

    def together(self: tap.Tap, go_on: Any) -> bool:
        opened.set()
        return wait(self, go_on)

    monkeypatch.setattr(tap.Tap, "opened", together)
    reader = DumpReader

    def counted(*args: Any) -> Any:
        opened.wait(10)  # the first ones are slow, so that all open at once
        own.append(args)
        return reader(*args)

    monkeypatch.setattr("canal_ha.source.server.dump.DumpReader", counted)
    streams.open(STREAMS + 5)
    streams.insert(3)
    streams.check()
    assert len(own) < STREAMS
    assert not streams.failures


def test_a_stream_that_opens_later_begins_at_the_tap_in_the_next_journal_too(streams: Streams) -> None:
    """The tap knows the format of the current journal."""
    streams.open(STREAMS)
    streams.settle()
    streams.server.execute("FLUSH BINARY LOGS")
    streams.settle()
    streams._start = newest(streams.server)
    before = streams._next
    late = Reading(
        streams.server, streams.database, streams._start, client_id=77, reads=streams._reads, taps=streams.taps
    )
    with late:
        until(lambda: late.dump.shared or late.failure, what="the late stream")
        streams.insert(5)
        assert late.wait_rows(5) == [str(number) for number in range(before, before + 5)]
        streams.check()


def test_statements_and_new_tables_are_decoded_on_a_thread_and_the_stream_comes_back(streams: Streams) -> None:
    """A statement may ask the source. Meanwhile the tap keeps the bytes."""
    streams.open(STREAMS)
    streams.settle()
    until(lambda: all(each.dump.lent for each in streams.readings), what="streams that the reactor reads")
    for number in range(3):
        streams.server.execute(f"CREATE TABLE {streams.database}.other{number} (id INT PRIMARY KEY)")
        streams.insert(2, f"other{number}")
        streams.insert(1)
    streams.check()
    streams.settle()
    assert not streams.failures


@pytest.mark.parametrize("size", [100_000, 6_000_000])
def test_large_transactions_come_through_a_tap(streams: Streams, size: int) -> None:
    """A row of several pieces, and one of more than the tap keeps for a stream."""
    streams.open(STREAMS)
    streams.settle()
    streams.server.execute(
        f"CREATE TABLE {streams.database}.large (id INT PRIMARY KEY, text LONGTEXT)",
    )
    streams.server.execute(f"INSERT INTO {streams.database}.large VALUES ({streams._next}, REPEAT('x', {size}))")
    streams._next += 1
    streams.insert(3)
    streams.check()
    streams.settle()


def test_the_reactor_decompresses_no_transaction(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes may be hundreds of megabytes of rows: streams read these on their threads."""
    threads: set[str] = set()
    pieces, rows = payload.pieces, decoder._decompressed_rows

    def of_payload(body: bytes) -> Iterator[bytes]:
        threads.add(threading.current_thread().name)
        return pieces(body)

    def of_rows(body: bytes, kind: int) -> bytes:
        threads.add(threading.current_thread().name)
        return rows(body, kind)

    monkeypatch.setattr(payload, "pieces", of_payload)
    monkeypatch.setattr(decoder, "_decompressed_rows", of_rows)
    streams.open(STREAMS)
    streams.settle()
    setting = "binlog_transaction_compression" if streams.server.flavor == "mysql" else "log_bin_compress"
    streams.server.execute(f"SET GLOBAL {setting} = ON")
    try:
        streams.server.execute(f"CREATE TABLE {streams.database}.long (id INT PRIMARY KEY, text LONGTEXT)")
        streams.server.execute(f"INSERT INTO {streams.database}.long VALUES ({streams._next}, REPEAT('x', 10000))")
        streams._next += 1
        streams.check()
    finally:
        streams.server.execute(f"SET GLOBAL {setting} = OFF")
    streams.settle()
    assert threads
    assert all(name.startswith("dump-") for name in threads)
    assert not streams.failures


def test_a_stream_without_room_leaves_the_tap_and_the_others_go_on(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It loses nothing, and comes back once its client has caught up."""
    monkeypatch.setattr(tapped, "QUEUED_BYTES", 2000)
    slow, *others = streams.open(STREAMS + 1)
    streams.settle()
    slow.gate.clear()
    streams.insert(60)
    streams.check(*others)
    until(lambda: not slow.dump.lent, what="the slow stream on a thread")
    assert slow.rows() != others[0].rows()
    slow.gate.set()
    streams.check()
    streams.settle()
    assert not streams.failures


def test_streams_go_on_when_the_connection_of_the_tap_ends(streams: Streams) -> None:
    """Each opens a dump of its own, at once and without a report, and they share one again later."""
    streams.open(STREAMS)
    streams.settle()
    streams.kill_dumps()
    streams.insert(5)
    streams.check()
    assert not streams.failures


def test_a_stream_stops_and_reroutes_at_a_tap(streams: Streams) -> None:
    """The others notice nothing; a tap that nobody follows ends."""
    streams.open(STREAMS)
    streams.settle()
    first, second, *_ = streams.readings
    first.dump.reroute()
    streams.insert(3)
    streams.check()
    second.dump.stop()
    assert second.dump.join(10)
    streams.readings.remove(second)
    streams.insert(3)
    streams.check()


def test_a_tap_that_nobody_follows_ends(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection costs the server a thread."""
    monkeypatch.setattr(tap, "UNUSED_S", 0.5)
    streams.open(STREAMS)
    streams.settle()
    for reading in streams.readings:
        reading.dump.stop()
        assert reading.dump.join(10)
    until(lambda: not dump_threads(streams.server), what="the end of the tap")


def test_streams_in_gtid_mode_move_to_a_tap(streams: Streams) -> None:
    """Their own dumps find the place; the bytes behind it are the same."""
    streams.open(STREAMS, options=DecodeOptions(gtid_on=True))
    streams.settle()
    streams.insert(5)
    streams.check()
    assert not streams.failures


def test_an_idle_source_keeps_a_stream_at_a_tap_idle(streams: Streams) -> None:
    """A heartbeat reaches each stream once behind each row."""
    streams.open(STREAMS)
    streams.settle()
    for _ in range(2):
        until(lambda: all(each.dump.idle for each in streams.readings), what="idle streams")
        streams.insert(1)
        streams.check()
        until(lambda: all(each.dump.idle for each in streams.readings), what="idle streams again")


@contextmanager
def _writing(streams: Streams, seconds: float, rng: random.Random) -> Iterator[None]:
    """Insert rows and make tables meanwhile, and for `seconds`."""
    until_s = time.monotonic() + seconds
    errors: list[BaseException] = []

    def write() -> None:
        tables = 0
        try:
            while time.monotonic() < until_s:
                match rng.randrange(12):
                    case 0:
                        tables += 1
                        streams.server.execute(f"CREATE TABLE {streams.database}.n{tables} (id INT PRIMARY KEY)")
                        streams.insert(1, f"n{tables}")
                    case 1:
                        streams.server.execute("FLUSH BINARY LOGS")
                    case 2:
                        time.sleep(0.2)
                    case _:
                        streams.insert(rng.randrange(1, 20))
        except BaseException as error:
            errors.append(error)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    yield
    writer.join(60)
    assert not writer.is_alive()
    assert not errors


@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_lost_or_repeated_at_taps_that_come_and_go(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Streams without room, killed dumps, rotations, statements and reroutes, at random moments."""
    rng = random.Random(seed)
    monkeypatch.setattr(tapped, "QUEUED_BYTES", 8000)
    monkeypatch.setattr(tap, "KEPT_BYTES", 4000)
    monkeypatch.setattr(tap, "RETRY_S", 0.3)
    monkeypatch.setattr(tap, "UNUSED_S", 1.0)
    streams.open(STREAMS + 3)
    followed = 0
    with _writing(streams, 12.0, rng):
        until_s = time.monotonic() + 12.0
        while time.monotonic() < until_s:
            time.sleep(rng.random() * 0.4)
            followed += sum(each.dump.shared for each in streams.readings)
            one = rng.choice(streams.readings)
            match rng.randrange(6):
                case 0:
                    one.gate.clear()
                case 1:
                    one.dump.reroute()
                case 2:
                    streams.kill_dumps()
                case _:
                    for each in streams.readings:
                        each.gate.set()
    for each in streams.readings:
        each.gate.set()
    streams.check()
    assert followed > 0


def test_the_reactor_decodes_nothing_before_the_thread_has_lent(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it gives back what is not lent yet. A second thread begins then, and the tap waits for the first one."""
    lent = tapped.Tapped.lent
    delayed: list[str] = []

    def slowly(self: tapped.Tapped, *args: Any) -> tapped.Tapped:
        self = lent(self, *args)
        if threading.current_thread().name.startswith("dump-"):
            delayed.append("")
            time.sleep(0.5)
        return self

    streams.open(STREAMS)
    streams.settle()
    monkeypatch.setattr(tapped.Tapped, "lent", slowly)
    streams.server.execute(f"CREATE TABLE {streams.database}.other (id INT PRIMARY KEY)")

    def lends_again() -> bool:
        streams.insert(1)
        return bool(delayed)

    until(lends_again, what="streams that lend again")
    streams.server.execute(f"CREATE TABLE {streams.database}.another (id INT PRIMARY KEY)")  # gives back
    for _ in range(10):
        streams.insert(1)
        time.sleep(0.1)
    began = time.monotonic()
    streams.check()
    assert time.monotonic() < began + 10
    until(lambda: all(each.dump.lent for each in streams.readings), what="streams that the reactor reads")
    assert not streams.failures
    assert len(dump_threads(streams.server)) == 1


@pytest.mark.parametrize("gtid_on", [False, True])
@pytest.mark.parametrize("rows", [2, 9])  # the new binlog ends before the old place, or behind it
@pytest.mark.parametrize("make", [MySQL, MariaDB])
def test_a_stream_gets_no_rows_of_the_binlog_before_a_reset(
    make: Callable[[], SqlServer], database: str, rows: int, *, gtid_on: bool
) -> None:
    """The server keeps the dump of the tap open, and the new binlog has the same places."""
    with make() as server, ExitStack() as stack:
        streams = Streams(server, database, stack)
        server.execute(_RESET[server.flavor])
        streams._start = newest(server)
        streams.open(STREAMS)
        until(lambda: all(each.dump.shared for each in streams.readings), what="all streams at the tap")
        streams.insert(5)
        streams.check()
        server.execute(_RESET[server.flavor])
        time.sleep(1.1)  # what the server has told a second ago counts
        streams.insert(rows)
        late = Reading(
            server,
            database,
            streams._start,
            client_id=77,
            reads=streams._reads,
            taps=streams.taps,
            options=DecodeOptions(gtid_on=gtid_on),
        )
        with late:
            numbers = [str(number) for number in range(6, 6 + rows)]
            assert late.wait_rows(rows) == numbers
            until(lambda: late.dump.lent, what="a stream that the reactor reads")
            time.sleep(1)  # in which it may move
            streams.insert(1)
            assert late.wait_rows(rows + 1) == [*numbers, str(6 + rows)]


def test_a_stream_that_stops_while_it_waits_for_a_tap_leaves_nothing_there(streams: Streams) -> None:
    """Else the tap would keep bytes for it, and not end."""
    streams.open(STREAMS)
    streams.settle()
    streams._start = newest(streams.server)
    late = Reading(
        streams.server, streams.database, streams._start, client_id=77, reads=streams._reads, taps=streams.taps
    )
    (one,) = streams.taps._taps.values()
    followed = len(one._followers)
    asks, stopped = threading.Event(), threading.Event()
    soon = one.reads.soon

    def later(call: Any, *args: Any) -> None:
        if getattr(call, "__name__", "") == "find":
            asks.set()
            threading.Thread(target=lambda: (stopped.wait(10), soon(call, *args))).start()  # a busy reactor
        else:
            soon(call, *args)

    one.reads.soon = later  # type: ignore[method-assign]  # of this test's own reads
    late.dump.start()
    assert asks.wait(10)
    late.dump.stop()
    assert late.dump.join(10)
    stopped.set()
    one.reads.soon = soon  # type: ignore[method-assign]  # as above
    time.sleep(0.5)
    assert len(one._followers) == followed


def test_bytes_at_which_a_tap_fails_are_lost_for_no_stream(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    """What TLS has decrypted is read in a later call, behind whose failure the reactor would go on."""
    streams.open(STREAMS)
    streams.settle()
    (one,) = streams.taps._taps.values()
    take = tap.Tap._take
    failures = [RuntimeError("unforeseen")]

    def fails_once(self: tap.Tap, piece: bytes) -> None:
        if failures:
            raise failures.pop()
        take(self, piece)

    monkeypatch.setattr(tap.Tap, "_take", fails_once)
    removed = threading.Event()
    one.reads.soon(one.reads.remove, one)
    one.reads.soon(removed.set)
    assert removed.wait(10)
    streams.insert(2)
    one.reads.soon(one._read_again)
    one.reads.soon(lambda: one.reads.add(one) if one.flows else None)
    until(lambda: not failures, what="the failure")
    streams.insert(2)
    streams.check()
