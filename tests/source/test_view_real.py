"""Where to begin on real servers: newest, oldest, configured, by time, by GTID set, inside a transaction."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace

import pytest

from canal_ha.config.model import DecodeOptions
from canal_ha.errors import PositionLost, SourceRefused, SourceUnavailable
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind
from canal_ha.source.connection.flavor import examine
from canal_ha.source.connection.session import SourceSession
from canal_ha.source.positions.scan import Scanner
from canal_ha.source.server.view import View
from lab import MariaDB, MySQL, SqlServer
from tests.source.reading import Reading, config_of, newest, purge
from tests.source.test_dump_real import insert, make_table

pytestmark = pytest.mark.real


def view_of(server: SqlServer, *, gtid_on: bool = False, **start: object) -> View:
    """Return a view with this configured start."""
    config = config_of(server, decode=DecodeOptions(gtid_on=gtid_on))
    return View(replace(config, master=replace(config.master, **start)))  # type: ignore[arg-type]  # mixed fields


def rows_from(server: SqlServer, database: str, start: LogPosition, count: int) -> list[str]:
    """Return the first rows that a dump from this position delivers."""
    with Reading(server, database, start) as reading:
        return reading.wait_rows(count)


def test_newest_and_oldest(source_server: SqlServer) -> None:
    """newest() and oldest() are the ends of the binlog; newest() has the configured address and the server's time."""
    view = view_of(source_server)
    at = view.newest()
    assert (at.journal, at.offset) == source_server.position()
    assert (at.address, at.port, at.server_id) == ("127.0.0.1", source_server.port, 1)
    assert abs(at.timestamp_ms / 1000 - time.time()) < 60
    assert view.oldest().journal == source_server.journals()[0]
    assert view.version.startswith(source_server.version)
    assert view.start(None).journal == at.journal
    view.close()
    view.newest()
    view.close()


def test_newest_tells_gtids(source_server: SqlServer, database: str) -> None:
    """In GTID mode the newest position carries the executed set."""
    make_table(source_server, database)
    view = view_of(source_server, gtid_on=True)
    assert view.newest().gtid == source_server.gtid_set()
    view.close()


def test_lost_connection_is_replaced(source_server: SqlServer) -> None:
    """A query on a connection that the server has closed is repeated on a new one."""
    view = view_of(source_server)
    view.newest()
    for row in source_server.query("SHOW PROCESSLIST"):
        if row["User"] == "canal":
            source_server.execute(f"KILL {row['Id']}")
    assert (view.newest().journal, view.newest().offset) == source_server.position()
    view.close()


def test_configured_journal(source_server: SqlServer) -> None:
    """A configured journal starts at its first event, or at the configured position."""
    journal = source_server.journals()[0]
    assert view_of(source_server, journal=journal).start(None).offset == 4
    assert view_of(source_server, journal=journal, position=120).start(newest(source_server)).offset == 120


def test_kept_start(source_server: SqlServer) -> None:
    """Without a configured start the kept start is used."""
    kept = newest(source_server)
    assert view_of(source_server).start(kept) == kept


@pytest.mark.parametrize("kind", [MySQL, MariaDB])
def test_purged_kept_start(kind: type[SqlServer]) -> None:
    """A kept start in a purged journal is replaced by the oldest position, with a warning."""
    with kind() as server:
        kept = newest(server)
        oldest = purge(server)
        warnings: list[str] = []
        view = View(config_of(server), warn=warnings.append)
        assert (view.start(kept).journal, view.start(kept).offset) == (oldest, 4)
        assert kept.journal in warnings[0]
        server.stop()
        with pytest.raises(SourceUnavailable):
            view.newest()


def test_refused_views(source_server: SqlServer) -> None:
    """The error for an account without REPLICATION CLIENT has the GRANT."""
    source_server.execute("CREATE USER IF NOT EXISTS 'poor'@'%' IDENTIFIED BY 'poor'")
    view = View(config_of(source_server, user="poor", password="poor"))
    with pytest.raises(SourceRefused, match=r"GRANT SELECT, .* ON \*\.\* TO 'poor'@'%'"):
        view.newest()


@pytest.mark.parametrize("kind", [MySQL, MariaDB])
def test_start_by_time(kind: type[SqlServer]) -> None:
    """A start by time delivers the rows committed from that time on, whichever journal they are in."""
    with kind() as server:
        make_table(server, "d")
        times: list[int] = []
        for part in range(4):
            times.append(int(time.time() * 1000))
            insert(server, "d", part * 100, 40)
            if part < 3:
                time.sleep(2.1)  # a start by time looks back 1 s, and events have whole seconds
            if part == 1:
                server.execute("FLUSH BINARY LOGS")
        for part in range(4):
            start = view_of(server, timestamp_ms=times[part]).start(None)
            assert rows_from(server, "d", start, 40)[:40] == [str(part * 100 + number) for number in range(40)]
        assert view_of(server, timestamp_ms=1000).start(None) == view_of(server).oldest()
        later = view_of(server, timestamp_ms=int(time.time() * 1000) + 10**6).start(None)
        assert (later.journal, later.offset) == server.position()
        first = server.journals()[0]
        inside = view_of(server, timestamp_ms=times[3], journal=first).start(None)
        assert inside.journal == first
        assert rows_from(server, "d", inside, 80)[0] == "200"
        assert rows_from(server, "d", LogPosition("", 0, timestamp_ms=times[3] + 60_000), 40)[0] == "300"


@pytest.mark.parametrize("kind", [MySQL, MariaDB])
def test_start_by_gtid_set(kind: type[SqlServer]) -> None:
    """A start by GTID set delivers the transactions that the set lacks; if those are purged, it raises PositionLost."""
    with kind() as server:
        make_table(server, "d")
        insert(server, "d", 1, 10)
        executed = server.gtid_set()
        server.execute("FLUSH BINARY LOGS")
        before = server.position()
        end = view_of(server, gtid=executed, gtid_on=True).start(None)
        assert before <= (end.journal, end.offset) <= server.position()  # MariaDB adds a checkpoint by itself
        insert(server, "d", 20, 10)
        start = view_of(server, gtid=executed, gtid_on=True).start(None)
        assert start.gtid == executed
        assert rows_from(server, "d", start, 10) == [str(number) for number in range(20, 30)]
        before = server.position()
        end = view_of(server, gtid=executed).start(None)
        assert before <= (end.journal, end.offset) <= server.position()
        purge(server)
        with pytest.raises(PositionLost, match="purged"):
            view_of(server, gtid=executed, gtid_on=True).start(None)


def test_start_inside_a_transaction(source_server: SqlServer, database: str) -> None:
    """A dump from a rows event, as a user may set by hand, goes back to the begin of its transaction."""
    make_table(source_server, database)
    begin = newest(source_server)
    with source_server.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for number in range(50):
            cursor.execute(f"INSERT INTO {database}.t VALUES ({number}, 0)")
        connection.commit()
    with Reading(source_server, database, begin) as reading:
        reading.wait_rows(50)
        segment = reading.segments[0]
        rows = [offset for offset, kind in zip(segment.offsets, segment.kinds, strict=True) if kind == EntryKind.ROWS]
    with Reading(source_server, database, replace(begin, offset=rows[20])) as reading:
        assert reading.wait_rows(50) == [str(number) for number in range(50)]
        failed = reading.failure(SourceUnavailable)
        assert "inside a transaction" in str(failed.error)


def test_no_event_is_found_where_no_dump_can_begin(source_server: SqlServer) -> None:
    """The dump command has 32 bits for a place. A journal with one huge transaction is longer."""
    config = config_of(source_server)
    with closing(SourceSession(config, config.master)) as session:
        scanner = Scanner(session, examine(session), config, config.master)
        assert scanner.event_at(source_server.position()[0], 2**32 + 7) is None
