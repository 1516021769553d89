"""Relocation into another server's binlog, on a MariaDB whose sessions set server id and time as replication does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from canal_ha.config.model import DecodeOptions
from canal_ha.decode.decoder import Decoder
from canal_ha.decode.filters import FieldFilter, TableFilter
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Source
from canal_ha.source.connection.flavor import examine
from canal_ha.source.connection.session import SourceSession
from canal_ha.source.positions import relocate
from canal_ha.source.positions.fingerprints import Fingerprint, Recent
from canal_ha.source.positions.relocate import Relocation, relocated
from canal_ha.source.positions.scan import Scanner
from canal_ha.source.server.dump import DumpEvent, SourceMoved
from lab import MariaDB
from tests.source.reading import ColumnsOfMetadata, Reading, config_of, newest
from tests.waiting import until

SKEW_S = -90
TORN = bytes.fromhex("00000000 02 01000000 e8030000 00000000 0000") + b"INSERT INTO"  # the beginning of a query event
OWN = 1000  # added to the values that the server wrote itself


def located(
    server: MariaDB, schema: str, at: LogPosition, fingerprints: Sequence[Fingerprint] = (), **settings: Any
) -> Relocation:
    """Return the relocation of a position.

    fingerprints: of the last transactions.
    settings: of the instance.
    """
    config = config_of(server, **settings)

    def decoder_at(start: LogPosition) -> Decoder:
        return Decoder(
            source=Source("", 0),
            journal=start.journal,
            position=start.offset,
            options=DecodeOptions(),
            tables=TableFilter(rf"{schema}\..*", ""),
            fields=FieldFilter("", ""),
            history=ColumnsOfMetadata(),
        )

    with closing(SourceSession(config, config.master)) as session:
        return relocated(Scanner(session, examine(session), config, config.master), at, fingerprints, {}, decoder_at)


@pytest.mark.real
@pytest.mark.parametrize("packetwise_bytes", [1 << 30, 0])
def test_the_window_is_measured_by_the_clock_of_the_origin(
    mariadb: MariaDB, database: str, packetwise_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The origin's clock measures the window, although half of the rows are the server's own and 90 s behind.

    The window begins right before the origin's first row in it, or somewhat earlier if it is searched in slices.
    """
    monkeypatch.setattr(relocate, "PACKETWISE_BYTES", packetwise_bytes)
    monkeypatch.setattr(relocate, "SLICE_BYTES", 300)
    origin = 77 if packetwise_bytes else 78
    begun = int(time.time()) - 1000
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {database}")
        cursor.execute(f"CREATE TABLE {database}.t (second int)")
        own = int(mariadb.query("SELECT @@GLOBAL.server_id AS own")[0]["own"])
        for second in range(0, 300, 3):
            for server_id, skew_s, mark in ((origin, 0, 0), (own, SKEW_S, OWN)):
                cursor.execute(f"SET SESSION server_id = {server_id}, timestamp = {begun + second + skew_s}")
                cursor.execute(f"INSERT INTO {database}.t VALUES ({second + mark})")
            if second % 90 == 0:
                cursor.execute("FLUSH BINARY LOGS")
    at = LogPosition("other.000009", 4, (begun + 280) * 1000, origin, server="another")
    found = located(mariadb, database, at)
    assert found.how == "time"
    first = min(second for second in seconds(mariadb, database, found.at) if second < OWN)
    assert first == 219 if packetwise_bytes else first <= 219
    assert found.again == len(range(first, 280, 3))
    if packetwise_bytes:
        assert located(mariadb, database, replace(at, timestamp_ms=(begun + 5000) * 1000)).again == 0


@pytest.mark.real
def test_large_transactions_do_not_move_the_window_to_an_older_journal(
    mariadb: MariaDB, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The window begins as exactly as with small ones, although no slice of the journal ends between two of them."""
    monkeypatch.setattr(relocate, "PACKETWISE_BYTES", 0)
    origin, begun = 79, int(time.time()) - 1000
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {database}")
        cursor.execute(f"CREATE TABLE {database}.t (second int, pad mediumtext)")
        cursor.execute("FLUSH BINARY LOGS")
        for second in range(0, 300, 3):
            cursor.execute(f"SET SESSION server_id = {origin}, timestamp = {begun + second}")
            cursor.execute(f"INSERT INTO {database}.t VALUES ({second}, REPEAT('x', 50000))")
        cursor.execute(f"INSERT INTO {database}.t VALUES ({297 + OWN}, '')")
    found = located(mariadb, database, LogPosition("other.000009", 4, (begun + 280) * 1000, origin, server="another"))
    assert min(seconds(mariadb, database, found.at)) == 219


@pytest.mark.real
def test_an_origin_that_just_began_to_write_brings_only_the_window_before_it_again() -> None:
    """A switch right after a switch looks back from the new origin's first row, not from the binlog's beginning.

    The window has 1 s, and about as much for clocks that have whole seconds.
    """
    with MariaDB() as server:
        server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (second int)", "RESET MASTER")
        own = int(server.query("SELECT @@GLOBAL.server_id AS own")[0]["own"])
        with server.connect() as connection, connection.cursor() as cursor:
            for number in range(28):
                cursor.execute(f"SET SESSION server_id = {own if number < 23 else 77}")
                cursor.execute(f"INSERT INTO shop.t VALUES ({number})")
                time.sleep(0.25)
        at = LogPosition("other.000009", 4, int(time.time()) * 1000, 77, server="another")
        with Reading(server, "shop", located(server, "shop", at, fallback_interval_s=1).at) as reading:
            until(lambda: "27" in reading.rows(), what="the last row")
            first = min(int(row) for row in reading.rows())
    assert 0 < first <= 19


@pytest.mark.real
@pytest.mark.parametrize("stopped_s", [30, 1000])
def test_a_server_whose_replication_stopped_before_the_window_lags(
    mariadb: MariaDB, database: str, stopped_s: int
) -> None:
    """A server that has nothing of the window lags, and nobody knows how many transactions come again."""
    now = int(time.time())
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {database}")
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute(f"SET SESSION server_id = 80, timestamp = {now - stopped_s}")
        cursor.execute(f"CREATE TABLE {database}.t (second int)")
    known = (Fingerprint(now, b"unseen"),)
    found = located(mariadb, database, LogPosition("other.000009", 4, now * 1000, 80, server="another"), known)
    assert (found.how, found.lags, found.again) == ("time", True, None)


@pytest.mark.real
def test_transactions_of_a_third_server_are_counted_as_coming_again(mariadb: MariaDB, database: str) -> None:
    """After two switches the window holds transactions of the first master, too."""
    now = int(time.time())
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {database}")
        cursor.execute("FLUSH BINARY LOGS")
        for origin, second in ((81, now - 300), (82, now - 30), (82, now - 20), (81, now - 10)):
            cursor.execute(f"SET SESSION server_id = {origin}, timestamp = {second}")
            cursor.execute(f"CREATE TABLE {database}.t{second} (id int)")
    found = located(mariadb, database, LogPosition("other.000009", 4, (now - 10) * 1000, 81, server="another"))
    assert (found.how, found.again) == ("time", 3)


@pytest.mark.real
def test_a_torn_journal_in_the_window_is_no_end() -> None:
    """The search goes on after a journal that a crash truncated."""
    with MariaDB() as server:
        server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id int PRIMARY KEY)")
        server.execute(*(f"INSERT INTO shop.t VALUES ({number})" for number in (1, 2)))
        own = int(server.query("SELECT @@GLOBAL.server_id AS own")[0]["own"])
        at = LogPosition("other.000009", 4, int(time.time() + 30) * 1000, own, server="another")
        before = located(server, "shop", at).again or 0
        server.kill()
        journal = sorted(server.data.glob("mysql-bin.0*"))[-1]
        with journal.open("ab") as file:
            file.write(TORN)
        server.start()
        server.execute(*(f"INSERT INTO shop.t VALUES ({number})" for number in (3, 4, 5)))
        assert located(server, "shop", at).again == before + 3


@pytest.mark.real
def test_a_transaction_that_the_new_server_committed_early_is_delivered() -> None:
    """The old server wrote A, B, C, D and the new one A, B, D, C, E: a stream that has A, B, C gets D, C, E."""
    with MariaDB() as server:
        second = int(time.time())

        def write(*values: int) -> LogPosition:
            with server.connect() as connection, connection.cursor() as cursor:
                cursor.execute(f"SET SESSION server_id = 77, timestamp = {second}")
                for value in values:
                    cursor.execute(f"INSERT INTO shop.t VALUES ({value})")
            return newest(server)

        server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id int)")
        with Reading(server, "shop", newest(server)) as reading:
            at = write(1, 2, 3)
            reading.wait_rows(3)
            until(lambda: reading.segments[-1].kinds[-1] == EntryKind.END, what="the end")
            recent = Recent()
            for segment in reading.segments:
                recent.add(segment)
        server.execute("RESET MASTER")
        write(1, 2, 4, 3, 5)
        start = replace(at, timestamp_ms=second * 1000, server_id=77, server="another", trail=recent.trail())
        with Reading(server, "shop", start) as reading:
            assert reading.wait_rows(3) == ["4", "3", "5"]
            moved = next(event for event in reading.events if isinstance(event, SourceMoved))
            assert (moved.found.how, moved.found.missing, moved.found.again) == ("content", 0, 2)


@pytest.mark.real
@pytest.mark.parametrize("ordered", [True, False])
def test_a_transaction_that_the_old_server_held_back_is_delivered(ordered: bool) -> None:
    """The old server, a replica, has not committed 0, but later ones, of which the cursor has the last 16.

    ordered: whether the replica keeps the order. If it does, 0 never came, and nothing comes again.
    """
    with MariaDB() as server:
        second = int(time.time())

        def write(*values: int) -> LogPosition:
            with server.connect() as connection, connection.cursor() as cursor:
                cursor.execute(f"SET SESSION server_id = 77, timestamp = {second}")
                for value in values:
                    cursor.execute(f"INSERT INTO shop.t VALUES ({value})")
            return newest(server)

        server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id int)")
        with Reading(server, "shop", newest(server)) as reading:
            at = write(*range(1, 21))
            reading.wait_rows(20)
            until(lambda: reading.segments[-1].kinds[-1] == EntryKind.END, what="the end")
            recent = Recent()
            for segment in reading.segments:
                recent.add(replace(segment, source=Source("replica", 3306, "", 78, ordered)))
        server.execute("RESET MASTER")
        write(*range(22))
        cursor = replace(at, timestamp_ms=second * 1000, server_id=77, server="another")
        cursor = replace(cursor, trail=recent.trail(), origins=recent.origins())
        with Reading(server, "shop", cursor) as reading:
            until(lambda: "21" in reading.rows(), what="the last row")
            assert reading.rows() == [str(value) for value in (range(21, 22) if ordered else range(22))]
            moved = next(event for event in reading.events if isinstance(event, SourceMoved))
            assert (moved.found.how, moved.found.ordered) == ("content", ordered)


@pytest.mark.real
def test_a_transaction_that_stayed_open_for_minutes_is_not_skipped() -> None:
    """The old server committed A 300 s after its rows, then B. The new binlog has them at the time of their rows."""
    with MariaDB() as server:
        begun = int(time.time()) - 400

        def write(second: int, value: int) -> LogPosition:
            with server.connect() as connection, connection.cursor() as cursor:
                cursor.execute(f"SET SESSION server_id = 77, timestamp = {second}")
                cursor.execute(f"INSERT INTO shop.t VALUES ({value})")
            return newest(server)

        server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id int)")
        with Reading(server, "shop", newest(server)) as reading:
            at = write(begun, 1)
            reading.wait_rows(1)
            until(lambda: reading.segments[-1].kinds[-1] == EntryKind.END, what="the end")
            recent = Recent()
            for segment in reading.segments:
                recent.add(segment)
        server.execute("RESET MASTER")
        for second, value in ((begun - 900, 0), (begun, 1), (begun + 5, 2), (begun + 400, 3)):
            write(second, value)
        start = replace(at, timestamp_ms=(begun + 300) * 1000, server_id=77, server="another", trail=recent.trail())
        with Reading(server, "shop", start) as reading:
            until(lambda: "3" in reading.rows(), what="the last row")
            assert reading.rows() == ["2", "3"]
            moved = next(event for event in reading.events if isinstance(event, SourceMoved))
            assert (moved.found.how, moved.found.missing, moved.found.again) == ("content", 0, 0)


@pytest.mark.real
def test_a_place_on_another_server_counts_only_when_the_move_was_told(mariadb: MariaDB, database: str) -> None:
    """A snapshot compares it with the ends of its windows, of the old server until it hears of the move."""
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (a int)")
    start = LogPosition("other.000009", 4, int(time.time()) * 1000, 77, server="another")
    reading = Reading(mariadb, database, start)
    decoded: list[LogPosition | None] = []

    def report(event: DumpEvent) -> None:
        if isinstance(event, SourceMoved):
            decoded.append(reading.dump.decoded)

    reading.dump._report = report
    with reading:
        mariadb.execute(f"INSERT INTO {database}.t VALUES (1)")
        until(lambda: "1" in reading.rows(), what="the row")
    assert decoded == [None]


def seconds(server: MariaDB, schema: str, start: LogPosition) -> list[int]:
    """Return the values written from this position on."""
    with Reading(server, schema, start) as reading:
        until(lambda: str(297 + OWN) in reading.rows(), what="the last row")
        return [int(row) for row in reading.rows()]
