"""Snapshots of table definitions: when they are taken, what expires with them, and what that costs the source."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from canal_ha.config.model import InstanceConfig
from canal_ha.decode.history.store import HistoryStore, Kept
from canal_ha.decode.table_map import TableMap
from canal_ha.model.position import LogPosition
from canal_ha.source.connection.tables import Tables
from canal_ha.source.history.destination_history import DestinationHistory
from canal_ha.source.history.sql_store import in_file
from canal_ha.source.server.view import View
from lab import SqlServer
from tests.source.reading import config_of, newest

DAY_S = 86400 + 60  # beyond canal.instance.tsdb.snapshot.interval
LONG = 3


class Site:
    """A table whose columns change, and a history that is given each statement. now: seconds of the history's clock."""

    def __init__(self, server: SqlServer, database: str, directory: Path, most_records: int) -> None:
        self.now = time.time()
        self.config: InstanceConfig = config_of(server, tsdb_dir=str(directory))
        self.store: HistoryStore = in_file("example", directory)
        self.decoded: LogPosition | None = newest(server)
        self._server = server
        self._database = database
        self._tables = Tables(self.config)
        self._columns = 0
        view = View(self.config)
        self._source = view.newest().server
        view.close()
        self.history = DestinationHistory(
            self.config,
            self._tables.fetch,
            self.store,
            self._tell,
            clock=lambda: self.now,
            most_records=most_records,
        )
        server.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
        self.decoded = newest(server)
        self.view = self.history.view(self.decoded, self)

    def change(self, times: int = 1) -> LogPosition:
        """Add columns, give each statement to the history, and return the position of the last one."""
        first = newest(self._server)
        statements = []
        for _ in range(times):
            self._columns += 1
            statements.append(f"ALTER TABLE {self._database}.t ADD c{self._columns} int")
        self._server.execute(*statements)
        for number, sql in enumerate(statements, 1):
            at = replace(first, offset=first.offset + number)
            self.view.apply(at, self._database, sql)
        self.decoded = newest(self._server)
        return at

    def columns(self, at: LogPosition, count: int) -> list[str]:
        """Return the table's column names as of a position where it has `count` columns."""
        types, metas = bytes([LONG] * count), (0,) * count
        table_map = TableMap(1, self._database, "t", types, metas, (True,) * count, None, None, ())
        return [column.name for column in self.view.table(table_map, at).columns]

    def kept(self) -> Kept:
        """Return what the store holds."""
        return self.store.load(self._source)

    def close(self) -> None:
        """Close the history and its connections."""
        self.history.close()
        self._tables.close()

    def _tell(self, name: str, /, *, alarm: bool = False, **facts: object) -> None:
        raise AssertionError(f"{name} {facts}")


@pytest.fixture
def site(source_server: SqlServer, database: str, tmp_path: Path) -> Iterator[Site]:
    """A Site whose history takes a snapshot after four statements."""
    site = Site(source_server, database, tmp_path, most_records=4)
    yield site
    site.close()


@pytest.mark.real
def test_snapshots_and_their_expiry(site: Site) -> None:
    """A snapshot is due a day after the last one if a table changed.

    Old snapshots and records expire unless a cursor of the last days needs them.
    """
    site.history.look(None)
    assert len(site.kept().snapshots) == 1
    early = site.change()
    site.history.look([early])
    assert len(site.kept().snapshots) == 1
    site.now += DAY_S
    site.history.look([early])
    assert len(site.kept().snapshots) == 2
    site.history.look([early])
    assert len(site.kept().snapshots) == 2
    late = site.change()
    site.now += 30 * DAY_S
    early, late = (replace(at, timestamp_ms=int(site.now * 1000)) for at in (early, late))
    site.history.look([early])
    assert (len(site.kept().snapshots), len(site.kept().records)) == (3, 2)
    assert site.columns(early, 2) == ["id", "c1"]
    site.change()
    site.now += DAY_S
    site.history.look([late])
    kept = site.kept()
    assert (len(kept.snapshots), len(kept.records)) == (3, 2)
    assert [known.start.order > early.order for known in kept.ranges] == [True]
    assert site.columns(late, 3) == ["id", "c1", "c2"]
    assert site.columns(newest_of(site), 4) == ["id", "c1", "c2", "c3"]


@pytest.mark.real
def test_many_statements(site: Site, source_server: SqlServer) -> None:
    """The stored history stays small while cursors follow, and its connections are reused."""
    logins: set[int] = set()

    def processes() -> set[int]:
        """Return the connections of the account. Some of an earlier test may just be ending."""
        rows = source_server.query("SHOW PROCESSLIST")
        return {int(row["Id"]) for row in rows if row["User"] == site.config.username}

    others = processes()
    for _ in range(4):
        at = site.change(4)
        site.history.look([at])
        logins |= processes() - others
    kept = site.kept()
    assert len(kept.records) <= 8
    assert len(kept.snapshots) <= 3
    assert site.columns(newest_of(site), 17)[-1] == "c16"
    assert len(logins) <= 2  # one for questions, one for definitions of tables


def newest_of(site: Site) -> LogPosition:
    """Return the position up to which the history has read."""
    assert site.decoded is not None
    return site.decoded
