"""Dumps on real servers: delivery, breaks, refusals, stops."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from canal_ha.config.model import DecodeOptions, TlsConfig
from canal_ha.decode.table_map import TableMap
from canal_ha.errors import PositionLost, SourceRefused, SourceUnavailable, TableUnknown
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind
from canal_ha.model.table import TableSchema
from canal_ha.source.server.dump import DumpStarted
from lab import MariaDB, MySQL, SqlServer
from tests.source.reading import ColumnsOfMetadata, Reading, newest, purge
from tests.waiting import until

pytestmark = pytest.mark.real


@pytest.fixture
def mysql_alone() -> Iterator[MySQL]:
    """Yield a MySQL server that a test may stop."""
    with MySQL() as server:
        yield server


def make_table(server: SqlServer, database: str) -> None:
    """Create a schema with one small table."""
    server.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v INT)")


def insert(server: SqlServer, database: str, first: int, count: int) -> list[str]:
    """Insert rows `first`... one by one, each its own transaction; return their ids as text."""
    with server.connect() as connection, connection.cursor() as cursor:
        for number in range(first, first + count):
            cursor.execute(f"INSERT INTO {database}.t VALUES ({number}, 0)")
    return [str(number) for number in range(first, first + count)]


def dump_threads(server: SqlServer) -> list[int]:
    """Return the connection ids of the dumps that the server serves."""
    return [int(row["Id"]) for row in server.query("SHOW PROCESSLIST") if "Binlog Dump" in str(row["Command"])]


def test_a_dump_that_ended_leaves_no_memory_to_the_garbage_collection(source_server: SqlServer, database: str) -> None:
    """The decoder and the memory of TLS go with the dump. A node collects garbage of longer life rarely."""
    make_table(source_server, database)
    gc.collect()
    gc.disable()
    try:
        with Reading(source_server, database, newest(source_server)) as reading:
            insert(source_server, database, 1, 1)
            reading.wait_rows(1)
            dump = reading.dump
            sockets = filter(None, [getattr(each, "_sock", None) for each in dump._connections])
            parts = [weakref.ref(part) for part in (dump._decoder, *sockets)]
        assert len(parts) == 2
        assert [type(part()).__name__ for part in parts if part()] == []
    finally:
        gc.enable()


def test_rows_arrive(source_server: SqlServer, database: str) -> None:
    """Committed rows arrive in order, the connection is reported once, and the dump's figures are up to date."""
    make_table(source_server, database)
    with Reading(source_server, database, newest(source_server)) as reading:
        expected = insert(source_server, database, 1, 20)
        assert reading.wait_rows(20) == expected
        connected = reading.connected()
        assert connected.server_id == 1
        assert bool(connected.uuid) == (source_server.flavor == "mysql")
        assert connected.version[:3] == source_server.version[:3]
        end = source_server.position()
        dump = reading.dump
        until(lambda: dump.decoded and (dump.decoded.journal, dump.decoded.offset) == end, what="the end")
        until(lambda: dump.idle, seconds=5, what="idleness")
        assert dump.received_bytes > 0
        assert abs(dump.last_event_ms / 1000 - time.time()) < 60
        assert reading.events == [connected]


def test_inclusive_and_consumed_starts(source_server: SqlServer, database: str) -> None:
    """A dump from the offset of an END delivers that END again, unless the position is marked as consumed."""
    make_table(source_server, database)
    begin = newest(source_server)
    with Reading(source_server, database, begin) as reading:
        insert(source_server, database, 1, 2)
        reading.wait_rows(2)
        until(lambda: reading.segments[-1].kinds[-1] == EntryKind.END, what="the end")
        last = reading.segments[-1]
        at = last.position(len(last) - 1)
    with Reading(source_server, database, at) as reading:
        expected = insert(source_server, database, 3, 1)
        assert reading.wait_rows(1) == expected
        assert reading.offsets()[0] == (at.journal, at.offset)
        assert reading.segments[0].kinds[0] == EntryKind.END
    marked = LogPosition(at.journal, at.offset, consumed=True)
    with Reading(source_server, database, marked) as reading:
        assert reading.wait_rows(1) == expected
        assert (at.journal, at.offset) not in reading.offsets()


def test_annotations_of_mariadb(mariadb: MariaDB, database: str) -> None:
    """A dump from file and position asks MariaDB for the statements of its rows."""
    make_table(mariadb, database)
    with Reading(mariadb, database, newest(mariadb)) as reading:
        insert(mariadb, database, 1, 1)
        reading.wait_rows(1)
        assert EntryKind.QUERY in reading.segments[0].kinds


def test_killed_connection_resumes(source_server: SqlServer, database: str) -> None:
    """After each of three killed connections the dump goes on without loss or repeat."""
    make_table(source_server, database)
    with Reading(source_server, database, newest(source_server)) as reading:
        reading.connected()
        expected: list[str] = []
        for round_ in range(3):
            expected += insert(source_server, database, round_ * 100, 30)
            for thread in dump_threads(source_server):
                source_server.execute(f"KILL {thread}")
            expected += insert(source_server, database, round_ * 100 + 50, 30)
            reading.wait_rows(len(expected))
        assert reading.wait_rows(len(expected)) == expected
        assert len(set(reading.offsets())) == len(reading.offsets())
        failed = reading.failure(SourceUnavailable)
        assert failed.retry_in_s is not None
        assert failed.retry_in_s <= 0.5
        assert sum(isinstance(event, DumpStarted) for event in reading.events) >= 2


def test_break_inside_a_large_transaction(source_server: SqlServer, database: str) -> None:
    """After a break inside a transaction its accepted pieces do not come again, and the rest does."""
    make_table(source_server, database)
    start = newest(source_server)
    count = 20_000
    with source_server.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for first in range(0, count, 1000):
            values = ",".join(f"({number},0)" for number in range(first, first + 1000))
            cursor.execute(f"INSERT INTO {database}.t VALUES {values}")
        connection.commit()
    pieces = DecodeOptions(transaction_size=4)
    reading = Reading(source_server, database, start, options=pieces, receive_buffer_bytes=4096)
    kills = 0

    def kill_once(segment: object) -> None:
        nonlocal kills
        if len(reading.segments) in (3, 9) and kills < 2:
            kills += 1
            for thread in dump_threads(source_server):
                source_server.execute(f"KILL {thread}")
            time.sleep(0.2)

    reading.before_accept = kill_once
    with reading:
        assert reading.wait_rows(count, 60) == [str(number) for number in range(count)]
        offsets = reading.offsets()
        assert len(set(offsets)) == len(offsets)
        assert kills == 2


@pytest.mark.parametrize("kind", [MySQL, MariaDB])
@pytest.mark.parametrize("crash", [False, True])
def test_restarted_server_resumes(kind: type[SqlServer], crash: bool) -> None:
    """After a stop or a crash of the server the dump goes on in the next journal, without loss or repeat."""
    with kind() as server:
        make_table(server, "d")
        with Reading(server, "d", newest(server)) as reading:
            expected = insert(server, "d", 1, 20)
            reading.wait_rows(20)
            if crash:
                server.kill()
            else:
                server.stop()
            reading.failure(SourceUnavailable)
            server.start()
            expected += insert(server, "d", 100, 20)
            assert reading.wait_rows(40) == expected
            assert len(set(reading.offsets())) == len(reading.offsets())


def test_rotation(source_server: SqlServer, database: str) -> None:
    """The dump follows a new journal, and `decoded` moves into it at once."""
    make_table(source_server, database)
    with Reading(source_server, database, newest(source_server)) as reading:
        expected = insert(source_server, database, 1, 5)
        source_server.execute("FLUSH BINARY LOGS")
        expected += insert(source_server, database, 10, 5)
        assert reading.wait_rows(10) == expected
        journal = source_server.position()[0]
        assert {one for one, _ in reading.offsets()} >= {journal}
        source_server.execute("FLUSH BINARY LOGS")
        journal = source_server.position()[0]
        until(lambda: reading.dump.decoded and reading.dump.decoded.journal == journal, what="the new journal")


@pytest.mark.parametrize("kind", [MySQL, MariaDB])
def test_purged_journal(kind: type[SqlServer]) -> None:
    """A start in a purged journal or beyond a journal's end ends the dump with PositionLost."""
    with kind() as server:
        make_table(server, "d")
        start = newest(server)
        oldest = purge(server)
        with Reading(server, "d", start) as reading:
            failed = reading.failure(PositionLost)
            assert failed.retry_in_s is None
            assert start.journal in str(failed.error)
            assert f"the oldest journal is {oldest}" in str(failed.error)
            assert reading.dump.join(5)
        with Reading(server, "d", LogPosition(oldest, 10**8)) as reading:
            failed = reading.failure(PositionLost)
            assert f"{oldest}:100000000 lies beyond the end" in str(failed.error)


def test_a_start_inside_an_event_is_retried(source_server: SqlServer, database: str) -> None:
    """The server cannot tell such a start from a damaged file, so the error says what to do and no position is lost."""
    make_table(source_server, database)
    journal, offset = source_server.position()
    insert(source_server, database, 1, 30)
    with Reading(source_server, database, LogPosition(journal, offset + 3)) as reading:
        failed = reading.failure(SourceUnavailable)
        assert f"cannot send its binlog from {journal}:{offset + 3}" in str(failed.error)
        assert "set the cursor to one where an event begins" in str(failed.error)
        assert failed.retry_in_s is not None


@pytest.mark.parametrize("kind", [MySQL, MariaDB])
def test_a_journal_that_the_server_cannot_open_for_a_while(kind: type[SqlServer]) -> None:
    """The dump is retried while the server cannot open the journal, and then delivers every row."""
    with kind() as server:
        make_table(server, "d")
        start = newest(server)
        expected = insert(server, "d", 1, 3)
        server.execute("FLUSH BINARY LOGS")
        expected += insert(server, "d", 10, 3)
        file = server.data / start.journal
        away = file.rename(file.with_name("away"))
        with Reading(server, "d", start) as reading:
            failed = reading.failure(SourceUnavailable)
            assert start.journal in str(failed.error)
            assert failed.retry_in_s is not None
            away.rename(file)
            assert reading.wait_rows(6) == expected


def test_wrong_password(source_server: SqlServer, database: str) -> None:
    """The error for a wrong password names the key and the GRANT, and the dump tries again."""
    with Reading(source_server, database, newest(source_server), password="wrong") as reading:
        failed = reading.failure(SourceRefused)
        assert "canal.instance.dbUsername" in str(failed.error)
        assert "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'canal'@'%'" in str(failed.error)
        assert failed.retry_in_s is not None


def test_missing_grant(source_server: SqlServer, database: str) -> None:
    """The error for an account without REPLICATION SLAVE has the GRANT for it; after that the dump begins by itself."""
    make_table(source_server, database)
    user = f"u{database}"
    source_server.execute(f"CREATE USER '{user}'@'127.0.0.1' IDENTIFIED BY 'p'")
    with Reading(source_server, database, newest(source_server), user=user, password="p") as reading:
        failed = reading.failure(SourceRefused)
        grant = f"GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{user}'@'127.0.0.1'"
        assert grant in str(failed.error)
        source_server.execute(grant)
        expected = insert(source_server, database, 1, 1)
        assert reading.wait_rows(1) == expected


@pytest.mark.parametrize("kind", [MySQL, MariaDB])
def test_binlog_off(kind: type[SqlServer]) -> None:
    """The error for a server without a binary log has the option to set."""
    with (
        kind(extra=["--skip-log-bin"], gtid=False) as server,
        Reading(server, "d", LogPosition("mysql-bin.000001", 4)) as reading,
    ):
        failed = reading.failure(SourceRefused)
        assert "log-bin=mysql-bin" in str(failed.error)
        assert failed.retry_in_s is not None


@pytest.mark.parametrize(
    ("variable", "value", "text"),
    [
        ("binlog_format", "STATEMENT", "SET GLOBAL binlog_format = ROW"),
        ("binlog_row_image", "MINIMAL", "SET GLOBAL binlog_row_image = FULL"),
    ],
)
@pytest.mark.parametrize("kind", [MySQL, MariaDB])
def test_settings_refused(kind: type[SqlServer], variable: str, value: str, text: str) -> None:
    """The error for a binlog without whole rows has the statement to run; after that the dump connects."""
    with kind() as server:
        start = newest(server)
        server.execute(f"SET GLOBAL {variable} = {value}")
        with Reading(server, "d", start, binlog_images=("FULL",)) as reading:
            assert text in str(reading.failure(SourceRefused).error)
            server.execute(text)
            reading.connected()


@pytest.mark.timed
def test_stop_while_waiting_for_the_source(source_server: SqlServer, database: str) -> None:
    """stop() returns at once and ends a dump that waits for bytes."""
    with Reading(source_server, database, newest(source_server)) as reading:
        reading.connected()
        began = time.monotonic()
        reading.dump.stop()
        assert time.monotonic() - began < 0.1
        assert reading.dump.join(1)
        assert len(reading.events) == 1


@pytest.mark.timed
def test_stop_while_the_ring_is_full(source_server: SqlServer, database: str) -> None:
    """stop() returns at once although `accept` blocks; the thread ends when the ring is closed."""
    make_table(source_server, database)
    reading = Reading(source_server, database, newest(source_server))
    reading.gate.clear()
    with reading:
        insert(source_server, database, 1, 3)
        assert reading.blocked.wait(10)
        began = time.monotonic()
        reading.dump.stop()
        assert time.monotonic() - began < 0.1
        assert not reading.dump.join(0.2)
        reading.close()
        assert reading.dump.join(1)
        assert reading.segments == []


def test_stop_while_pausing(mysql: MySQL, database: str) -> None:
    """stop() ends the pause between two attempts."""
    with Reading(mysql, database, newest(mysql), password="wrong") as reading:
        reading.failure(SourceRefused)
        reading.dump.stop()
        assert reading.dump.join(1)


def test_two_streams_coexist(source_server: SqlServer, database: str) -> None:
    """The dumps of two client ids run side by side; neither ends the other."""
    make_table(source_server, database)
    start = newest(source_server)
    with (
        Reading(source_server, database, start, client_id=1001) as one,
        Reading(source_server, database, start, client_id=1002) as other,
    ):
        one.connected()
        other.connected()
        expected = insert(source_server, database, 1, 10)
        assert one.wait_rows(10) == expected
        assert other.wait_rows(10) == expected
        time.sleep(1.5)
        assert len(one.events) == len(other.events) == 1


def test_same_stream_ends_the_older_dump(source_server: SqlServer, database: str) -> None:
    """A second dump of a stream, as of a new owner, ends the first one, which reports that it will retry."""
    make_table(source_server, database)
    start = newest(source_server)
    with Reading(source_server, database, start) as old:
        old.connected()
        with Reading(source_server, database, start) as new:
            new.connected()
            failed = old.failure(SourceUnavailable)
            assert failed.retry_in_s is not None
            old.dump.stop()
            expected = insert(source_server, database, 1, 10)
            assert new.wait_rows(10) == expected
            assert len(new.events) == 1


def test_many_rows_through_a_slow_consumer(source_server: SqlServer, database: str) -> None:
    """No row is lost while the consumer blocks."""
    make_table(source_server, database)
    reading = Reading(source_server, database, newest(source_server))
    reading.gate.clear()
    with reading:
        expected = insert(source_server, database, 1, 300)
        time.sleep(0.5)
        threading.Timer(0.5, reading.gate.set).start()
        assert reading.wait_rows(300) == expected


@pytest.mark.timed
def test_dump_over_tls(mysql: MySQL, database: str) -> None:
    """An account that requires TLS can read with PREFERRED, REQUIRED and VERIFY_CA, but not without TLS."""
    make_table(mysql, database)
    user = f"u{database}"
    mysql.execute(
        f"CREATE USER '{user}'@'%' IDENTIFIED BY 'pässwörd' REQUIRE SSL",
        f"GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{user}'@'%'",
    )
    account: dict[str, Any] = {"user": user, "password": "pässwörd"}
    start = newest(mysql)
    expected = insert(mysql, database, 1, 200)
    ca_file = str(mysql.data / "ca.pem")
    for tls in (TlsConfig("PREFERRED"), TlsConfig("REQUIRED"), TlsConfig("VERIFY_CA", ca_file)):
        with Reading(mysql, database, start, tls=tls, **account) as reading:
            assert reading.wait_rows(200) == expected
            began = time.monotonic()
            reading.dump.stop()
            assert reading.dump.join(1)
            assert time.monotonic() - began < 1
    with Reading(mysql, database, start, tls=TlsConfig("VERIFY_IDENTITY", ca_file), **account) as reading:
        assert "certificate" in str(reading.failure(SourceRefused).error)
    with Reading(mysql, database, start, tls=TlsConfig("DISABLED"), **account) as reading:
        reading.failure(SourceRefused)


def test_empty_password(source_server: SqlServer, database: str) -> None:
    """An account without a password may read."""
    user = f"u{database}"
    source_server.execute(
        f"CREATE USER '{user}'@'%' IDENTIFIED BY ''",
        f"GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{user}'@'%'",
    )
    with Reading(source_server, database, newest(source_server), user=user, password="") as reading:
        reading.connected()


def test_silent_server(mysql_alone: MySQL) -> None:
    """If the server sends nothing, not even a heartbeat, the dump fails after the read time-out."""
    with Reading(mysql_alone, "d", newest(mysql_alone), so_timeout_s=2.5) as reading:
        reading.connected()
        mysql_alone.pause()
        failed = reading.failure(SourceUnavailable, seconds=10)
        assert "not even a heartbeat" in str(failed.error)
        mysql_alone.resume()


def test_configured_server_id_of_somebody_else(mysql: MySQL, database: str) -> None:
    """A configured slaveId of another replica is refused with an error that names the key; that replica goes on."""
    start = newest(mysql)
    with Reading(mysql, database, start, client_id=1, server_id=4711) as other:
        other.connected()
        with Reading(mysql, database, start, client_id=2, server_id=4711) as reading:
            assert "canal.instance.mysql.slaveId" in str(reading.failure(SourceRefused).error)
        assert len(other.events) == 1


class _Moody(ColumnsOfMetadata):
    """A history that always fails on the table `unknown`, and once on each other table."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def table(self, table_map: TableMap, at: LogPosition) -> TableSchema:
        self.asked.append(table_map.name)
        if table_map.name == "unknown":
            raise TableUnknown(f"{table_map.schema}.unknown: nobody knows its columns")
        if self.asked.count(table_map.name) == 1:
            raise SourceUnavailable("no answer")
        return super().table(table_map, at)


def test_tables_that_cannot_be_told(source_server: SqlServer, database: str) -> None:
    """After SourceUnavailable the history is asked again; TableUnknown ends the dump after complete transactions."""
    make_table(source_server, database)
    source_server.execute(f"CREATE TABLE {database}.unknown (id INT PRIMARY KEY)")
    with Reading(source_server, database, newest(source_server), history=_Moody()) as reading:
        expected = insert(source_server, database, 1, 10)
        source_server.execute(f"INSERT INTO {database}.unknown VALUES (1)")
        failed = reading.failure(TableUnknown)
        assert failed.retry_in_s is None
        assert reading.dump.join(5)
        assert reading.rows() == expected
        assert reading.failure(SourceUnavailable).retry_in_s is not None
