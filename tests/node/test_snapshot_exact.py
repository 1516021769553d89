"""A snapshot beside writers that change its rows as fast as they can: the copy equals the table, row by row.

Group commit is stretched, so that transactions reach the stream long before a SELECT sees them.
CANAL_HA_SNAPSHOT_PASSES (how often the table is read) and CANAL_HA_SNAPSHOT_WRITERS make a long run.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any

import pytest

from canal_ha.config.model import SnapshotLimits
from canal_ha.source.snapshot.watermark import Visibility
from lab import MariaDB, SqlServer
from lab.exactness.unsafe import unsafe_watermark
from lab.transactions import committed
from tests.node.snapshots import Copy, Place, Row, SnapshotStream, state
from tests.node.visibilities import WAYS, grant_log_status, mysql_log_status, mysql_with_gtids

pytestmark = pytest.mark.real

PASSES = int(os.environ.get("CANAL_HA_SNAPSHOT_PASSES", "25"))
WRITERS = int(os.environ.get("CANAL_HA_SNAPSHOT_WRITERS", "4"))
KEYS = 40
FEW = SnapshotLimits(rows_most=9)

STRETCHED = {
    "mysql": ("SET GLOBAL binlog_group_commit_sync_delay = 15000",),
    "mariadb": ("SET GLOBAL binlog_commit_wait_count = 100", "SET GLOBAL binlog_commit_wait_usec = 4000"),
}


class Writers:
    """A context manager: threads that update, insert and delete the rows of few keys.

    xa: in XA transactions.
    """

    def __init__(self, server: SqlServer, schema: str, *, xa: bool = False) -> None:
        self._server, self._schema, self._xa = server, schema, xa
        self._stopping = threading.Event()
        self.commits = 0
        self.errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(WRITERS)]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the writers."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        assert not self.errors, self.errors

    def _run(self, seed: int) -> None:
        try:
            self._write(seed)
        except BaseException as error:
            self.errors.append(error)

    def _write(self, seed: int) -> None:
        random = Random(seed)
        with self._server.connect(autocommit=False, database=self._schema) as connection:
            for number in count():
                if self._stopping.is_set():
                    return
                xid = f"{seed}-{number}" if self._xa else ""
                self.commits += committed(connection, lambda cursor: _change(cursor, random), xid)


def _change(cursor: Any, random: Random) -> None:
    """Change the row of some key."""
    key = random.randrange(KEYS)
    # the row of `versions` orders all changes of a key, also beyond a DELETE
    cursor.execute(f"UPDATE versions SET v = v + 1 WHERE id = {key}")
    cursor.execute(f"SELECT v FROM versions WHERE id = {key}")
    version = cursor.fetchall()[0][0]
    if random.random() < 0.3:
        cursor.execute(f"DELETE FROM t WHERE id = {key}")
        if random.random() < 0.5:
            cursor.execute(f"INSERT INTO t VALUES ({key}, {version}, '{seed_text(random)}')")
    elif not cursor.execute(f"UPDATE t SET version = {version}, v = '{seed_text(random)}' WHERE id = {key}"):
        cursor.execute(f"INSERT INTO t VALUES ({key}, {version}, 'new')")


def seed_text(random: Random) -> str:
    """Return a text of some length."""
    return "x" * random.randrange(200)


def prepared(server: SqlServer, schema: str) -> str:
    """Create and fill the tables, stretch group commit, and return the filter of the stream."""
    server.execute(
        f"CREATE DATABASE {schema}",
        f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, version BIGINT NOT NULL, v VARCHAR(200))",
        f"CREATE TABLE {schema}.versions (id INT PRIMARY KEY, v BIGINT NOT NULL)",
        *(f"INSERT INTO {schema}.versions VALUES ({key}, 1)" for key in range(KEYS)),
        *(f"INSERT INTO {schema}.t VALUES ({key}, 1, 'old')" for key in range(KEYS)),
        *STRETCHED[server.flavor],
    )
    return rf"{schema}\.t"


def differences(server: SqlServer, schema: str, copy: Copy) -> list[object]:
    """Return the rows in which the copy and the table differ."""
    rows = server.query(f"SELECT * FROM {schema}.t")
    expected: dict[Place, Row] = {
        (f"{schema}.t", (str(row["id"]),)): {name: str(value) for name, value in row.items()} for row in rows
    }
    places = expected.keys() | copy.rows.keys()
    return [
        (place, expected.get(place), copy.rows.get(place))
        for place in places
        if expected.get(place) != copy.rows.get(place)
    ]


@pytest.mark.parametrize(
    "connections", [4, pytest.param(1, marks=pytest.mark.nightly("the same with four connections"))]
)
@pytest.mark.parametrize("make", WAYS, ids=lambda make: make.__name__)
def test_the_copy_equals_the_table_beside_writers(make: type[SqlServer], database: str, connections: int) -> None:
    """No row is lost, none is older than the stream has brought it, and none comes back after its DELETE."""
    _equal(make, database, connections)


@pytest.mark.parametrize(
    "make",
    [
        mysql_log_status,
        MariaDB,
        pytest.param(mysql_with_gtids, marks=pytest.mark.nightly("GTIDs cover XA COMMIT as they cover COMMIT")),
    ],
    ids=lambda make: make.__name__,
)
def test_rows_of_xa_transactions_do_not_come_back_older(make: type[SqlServer], database: str) -> None:
    """The stream brought an XA COMMIT, and the chunk's SELECT did not see it: the older row came behind the newer."""
    _equal(make, database, 1, xa=True)


def _equal(make: type[SqlServer], database: str, connections: int, *, xa: bool = False) -> None:
    """Read a table beside writers, and compare."""
    with make() as server:
        filter_ = prepared(server, database)
        if WAYS[make] is Visibility.LOG_STATUS:
            grant_log_status(server)
        table = f"{database}.t"
        copy = Copy({table: ("id",)}, version="version")
        with Writers(server, database, xa=xa) as writers:
            limits = replace(FEW, connections=connections)
            stream = SnapshotStream(server, filter_, state(*[table] * PASSES), copy, limits=limits)
            with stream:
                began = time.monotonic()
                last = stream.done(seconds=PASSES * 20)
                seconds = time.monotonic() - began
                writers.stop()
                stream.caught_up(server)
                print(f"{make.__name__}: {last.chunks} chunks, {writers.commits} commits, {seconds:.1f} s")
                assert not stream.failures
        assert not copy.older
        assert not differences(server, database, copy)
        assert last.chunks >= PASSES * 3
        assert connections == 1 or any(len(each.ranges) > 1 for each in stream.states())
        assert copy.snapshot_rows > 0


@pytest.mark.parametrize("make", [mysql_with_gtids, MariaDB], ids=lambda make: make.__name__)
def test_a_read_without_the_wait_for_visibility_is_noticed(make: type[SqlServer], database: str) -> None:
    """The comparison above sees older rows if a chunk is read before it sees what the stream has brought."""
    with make() as server, unsafe_watermark():
        filter_ = prepared(server, database)
        table = f"{database}.t"
        copy = Copy({table: ("id",)}, version="version")
        with (
            Writers(server, database),
            SnapshotStream(server, filter_, state(*[table] * 1000), copy, limits=FEW) as stream,
        ):
            until_s = time.monotonic() + 30
            while not copy.older and time.monotonic() < until_s:
                time.sleep(0.05)
            chunks = len(stream.chunks())
        assert copy.older, f"{chunks} chunks"
