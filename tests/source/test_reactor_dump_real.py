"""Dumps on real servers that the reactor reads: what it takes itself, and what it leaves to the dump's thread."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any

import pytest

from canal_ha.config.model import TlsConfig
from canal_ha.decode.table_map import TableMap
from canal_ha.errors import NoThread, SourceUnavailable
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Segment
from canal_ha.model.table import TableSchema
from canal_ha.source.connection import heartbeats
from canal_ha.source.server.calm import SMALL_BYTES
from canal_ha.source.server.dump import DumpFailed, DumpStarted
from lab import MySQL, SqlServer
from tests.running_reactor import Blocked, running_reactor
from tests.source.reading import ColumnsOfMetadata, Reading, newest
from tests.source.test_dump_real import dump_threads, insert, make_table
from tests.waiting import until

pytestmark = pytest.mark.real
reactor: Any = running_reactor()


class Tables(ColumnsOfMetadata):
    """A history that notes on which threads it is asked."""

    def __init__(self) -> None:
        self.threads: set[str] = set()

    def table(self, table_map: TableMap, at: LogPosition) -> TableSchema:
        """See ColumnsOfMetadata."""
        self.threads.add(threading.current_thread().name)
        return super().table(table_map, at)

    def apply(self, at: LogPosition, default_schema: str, sql: str) -> bool:
        """See ColumnsOfMetadata."""
        self.threads.add(threading.current_thread().name)
        return super().apply(at, default_schema, sql)


class Watched(Reading):
    """A Reading that keeps the thread on which each segment came."""

    def __init__(self, server: SqlServer, database: str, **options: Any) -> None:
        super().__init__(server, database, newest(server), **options)
        self.threads: list[str] = []
        self.before_accept = self._note
        self._server, self._database, self._next = server, database, 1

    def _note(self, segment: Segment) -> None:
        self.threads.append(threading.current_thread().name)

    def insert(self, count: int) -> None:
        """Insert rows, each in its own transaction, and wait for them."""
        insert(self._server, self._database, self._next, count)
        self._next += count
        assert self.wait_rows(self._next - 1) == [str(number) for number in range(1, self._next)]

    def lend(self) -> None:
        """Insert rows until the reactor delivers them."""

        def by_reactor() -> bool:
            self.insert(1)
            return self.by_reactor

        until(by_reactor, what="a row that the reactor delivers")

    @property
    def by_reactor(self) -> bool:
        """Whether the reactor delivered the last segment."""
        return not self.threads[-1].startswith("dump-")


def test_the_reactor_delivers_small_transactions_and_the_thread_everything_else(
    source_server: SqlServer, database: str
) -> None:
    """New tables and statements may ask the source, and large transactions take long."""
    make_table(source_server, database)
    tables = Tables()
    with Watched(source_server, database, history=tables) as reading:
        reading.lend()
        source_server.execute(
            f"CREATE TABLE {database}.other (id INT PRIMARY KEY)", f"INSERT INTO {database}.other VALUES (0)"
        )
        until(lambda: "0" in reading.rows(), what="the row of the other table")
        assert not reading.by_reactor
        assert len(tables.threads) == 1
        assert all(name.startswith("dump-") for name in tables.threads)


def dump_threads_here() -> list[str]:
    """Return the names of the threads of dumps in this process."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("dump-")]


def refuse_one_thread(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the next dump get no thread. Return the names of the threads that were refused so far."""
    start, refused = threading.Thread.start, list[str]()

    def refuse_once(thread: threading.Thread) -> None:
        if thread.name.startswith("dump-") and not refused:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    return refused


def test_a_dump_that_the_reactor_reads_has_no_thread(source_server: SqlServer, database: str) -> None:
    """A thousand streams at the end of the binlog need no thousand threads. What may block begins one."""
    make_table(source_server, database)
    with Watched(source_server, database) as reading:
        reading.lend()
        until(lambda: not dump_threads_here(), what="the thread to end")
        reading.insert(3)
        assert reading.by_reactor
        assert not dump_threads_here()
        source_server.execute(f"CREATE TABLE {database}.other (id INT PRIMARY KEY)")
        reading.insert(1)
        assert reading.threads[-1].startswith("dump-")
        reading.lend()
        until(lambda: not dump_threads_here(), what="the thread to end again")
        reading.dump.stop()
        assert reading.dump.join(10)
    assert not dump_threads_here()


def test_a_dump_goes_on_when_there_can_be_threads_again(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reactor gives a socket back at a moment at which the process has too many threads."""
    make_table(source_server, database)
    with Watched(source_server, database) as reading:
        reading.lend()
        until(lambda: not dump_threads_here(), what="the thread to end")
        refused = refuse_one_thread(monkeypatch)
        source_server.execute(f"CREATE TABLE {database}.other (id INT PRIMARY KEY)")
        reading.insert(1)
        assert len(refused) == 1


def test_a_dump_that_gets_no_thread_says_so_and_begins_later(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator sees which limit to raise."""
    make_table(source_server, database)
    refuse_one_thread(monkeypatch)
    with Watched(source_server, database) as reading:
        reading.insert(1)
        errors = [event.error for event in reading.events if isinstance(event, DumpFailed)]
        assert [type(error) for error in errors] == [NoThread]
        assert "ulimit -u" in str(errors[0])


def test_a_large_transaction_between_small_ones_keeps_its_place(source_server: SqlServer, database: str) -> None:
    """Its first bytes may come to the reactor; the thread goes on inside it."""
    make_table(source_server, database)
    with Watched(source_server, database) as reading:
        reading.lend()
        expected = reading.rows()
        values = ",".join(f"({number},0)" for number in range(1_000_000, 1_000_000 + 20_000))
        source_server.execute(f"INSERT INTO {database}.t VALUES {values}")
        expected += [str(number) for number in range(1_000_000, 1_000_000 + 20_000)]
        expected += insert(source_server, database, 2_000_000, 20)
        assert reading.wait_rows(len(expected), 60) == expected
        assert any(name.startswith("dump-") for name in reading.threads[-21:])
        assert len(set(reading.offsets())) == len(reading.offsets())


def test_a_full_ring_blocks_the_dumps_thread_and_not_the_reactor(source_server: SqlServer, database: str) -> None:
    """The segment that has no room waits on the thread, with all that comes behind it."""
    make_table(source_server, database)
    with Watched(source_server, database) as reading:
        reading.lend()
        count = len(reading.rows())
        reading.gate.clear()
        expected = reading.rows() + insert(source_server, database, 1000, 5)
        assert reading.blocked.wait(10)
        turned = threading.Event()
        reactor.callFromThread(turned.set)
        assert turned.wait(5)
        assert len(reading.rows()) == count
        reading.gate.set()
        assert reading.wait_rows(count + 5) == expected


def test_a_connection_that_breaks_while_the_reactor_reads_it(source_server: SqlServer, database: str) -> None:
    """The dump goes on without loss or repeat, each time."""
    make_table(source_server, database)
    with Watched(source_server, database) as reading:
        for round_ in range(3):
            reading.lend()
            for thread in dump_threads(source_server):
                source_server.execute(f"KILL {thread}")
            until(partial(_has_connected, reading, round_ + 2), what="another connection")
        reading.insert(10)
        assert reading.failure(SourceUnavailable).retry_in_s is not None
        assert len(set(reading.offsets())) == len(reading.offsets())


def _has_connected(reading: Reading, times: int) -> bool:
    return sum(isinstance(event, DumpStarted) for event in reading.events) == times


@pytest.mark.timed
def test_stop_while_the_reactor_reads(source_server: SqlServer, database: str) -> None:
    """stop() returns at once, on the reactor's thread too, and ends the dump."""
    make_table(source_server, database)
    with Watched(source_server, database) as reading:
        reading.lend()
        reactor.callFromThread(reading.dump.stop)
        assert reading.dump.join(1)
        assert not [each for each in reactor.getReaders() if type(each).__name__ == "Lent"]


def test_a_server_that_falls_silent_while_the_reactor_reads(database: str) -> None:
    """The dump fails after the read time-out, as when its thread reads, and goes on later."""
    with MySQL() as server:
        make_table(server, database)
        with Watched(server, database, so_timeout_s=2.5) as reading:
            reading.lend()
            server.pause()
            failed = reading.failure(SourceUnavailable, seconds=10)
            assert "nothing arrived for 2.5 s, not even a heartbeat" in str(failed.error)
            server.resume()
            reading.insert(3)


def test_the_reactor_reads_tls(mysql: MySQL, database: str) -> None:
    """A row of almost one piece takes two TLS records, and what is left of them is not forgotten."""
    make_table(mysql, database)
    mysql.execute(f"ALTER TABLE {database}.t ADD COLUMN text VARCHAR({SMALL_BYTES})")
    with Watched(mysql, database, tls=TlsConfig("REQUIRED"), history=_WithText()) as reading:
        expected: list[str] = []
        for number in range(60):
            size = SMALL_BYTES - 300 if number % 10 == 9 else number
            mysql.execute(f"INSERT INTO {database}.t VALUES ({number}, 0, REPEAT('x', {size}))")
            expected.append(str(number))
            assert reading.wait_rows(len(expected)) == expected
        assert any(not name.startswith("dump-") for name in reading.threads)


@pytest.mark.timed
def test_what_tls_has_decrypted_waits_for_nothing(mysql: MySQL, database: str) -> None:
    """A small receive buffer takes a part of a TLS record. The rest wakes no reactor."""
    make_table(mysql, database)
    with Watched(mysql, database, tls=TlsConfig("REQUIRED"), receive_buffer_bytes=1024) as reading:
        reading.insert(3)
        count = 3
        for first in range(1000, 15_000, 1000):
            inserts = [f"INSERT INTO {database}.t VALUES ({number},0)" for number in range(first, first + 90)]
            mysql.execute("BEGIN", *inserts, "COMMIT")
            began = time.monotonic()
            reading.wait_rows(count := count + 90)
            assert time.monotonic() - began < 0.5


class _WithText(ColumnsOfMetadata):
    """Columns of metadata of which the third is a text."""

    def table(self, table_map: TableMap, at: LogPosition) -> TableSchema:
        """See ColumnsOfMetadata."""
        found = super().table(table_map, at)
        columns = tuple(
            type(each)(each.name, "int" if index < 2 else f"varchar({SMALL_BYTES})")
            for index, each in enumerate(found.columns)
        )
        return TableSchema(found.schema, found.name, columns)


def test_idleness_is_known_while_the_reactor_reads(source_server: SqlServer, database: str) -> None:
    """A heartbeat tells it, unless something came behind it while the reactor was busy."""
    make_table(source_server, database)
    with Watched(source_server, database) as reading:
        reading.lend()
        before = time.monotonic()
        until(lambda: reading.dump.idle_at > before, seconds=10, what="a heartbeat")
        assert reading.dump.idle
        known: list[float] = []
        reading.before_accept = lambda segment: known.append(reading.dump.idle_at)
        with Blocked():
            idle_at = reading.dump.idle_at
            time.sleep(1.5)  # a heartbeat waits in the buffer
            insert(source_server, database, 5000, 1)
            time.sleep(0.1)
        until(lambda: "5000" in reading.rows(), what="the row")
        assert known == [idle_at]


def test_a_dump_counts_for_the_heartbeats_once_and_no_longer_than_it_lives(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after its connection was lost."""
    counted = heartbeats.Heartbeats()
    monkeypatch.setattr(heartbeats, "OF_PROCESS", counted)
    make_table(source_server, database)
    with Watched(source_server, database) as reading:
        for _ in range(2):
            reading.insert(1)
            assert counted._dumps == 1
            for thread in dump_threads(source_server):
                source_server.execute(f"KILL {thread}")
        reading.insert(1)
        assert counted._dumps == 1
    until(lambda: counted._dumps == 0, what="the end of the dump")
