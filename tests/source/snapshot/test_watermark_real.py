"""What covers XA COMMIT, which is in the binlog before a SELECT sees its rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from canal_ha.model.snapshot import SnapshotRange
from canal_ha.source.snapshot.source import Read, SnapshotSource
from canal_ha.source.snapshot.watermark import Visibility
from lab import MariaDB, MySQL, SqlServer
from lab.replica import Replica
from lab.transactions import committed
from tests.node.visibilities import WAYS, grant_log_status, mysql_log_status, mysql_with_gtids
from tests.source.reading import config_of
from tests.waiting import until

pytestmark = pytest.mark.real


@contextmanager
def source_of(server: SqlServer) -> Iterator[SnapshotSource]:
    """Yield a connection of a snapshot."""

    def fetch(schema: str, table: str) -> str:
        return str(server.query(f"SHOW CREATE TABLE {schema}.{table}")[0]["Create Table"])

    source = SnapshotSource(config_of(server), fetch)
    try:
        yield source
    finally:
        source.close()


def filled(server: SqlServer, schema: str) -> str:
    """Create a table of three rows, give the account its rights, and return the table's name."""
    server.execute(
        f"CREATE DATABASE {schema}",
        f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO {schema}.t VALUES (10, 0), (20, 0), (30, 0)",
    )
    if server.flavor == "mysql":
        grant_log_status(server)
    return f"{schema}.t"


def has(server: SqlServer, table: str) -> bool:
    """Return whether the table is there."""
    return bool(
        server.query(f"SELECT 1 FROM information_schema.tables WHERE CONCAT(table_schema, '.', table_name) = '{table}'")
    )


def commit_xa(server: SqlServer, table: str) -> None:
    """Change a row in an XA transaction."""
    with server.connect(autocommit=False) as connection:
        assert committed(connection, lambda cursor: cursor.execute(f"UPDATE {table} SET v = v + 1 WHERE id = 10"), "x")


@pytest.mark.parametrize("make", [mysql_log_status, MariaDB], ids=lambda make: make.__name__)
def test_selects_lock_from_the_first_xa_commit_on(make: Callable[[], SqlServer], database: str) -> None:
    """Also on a connection that begins after it: the commit may still go on."""
    with make() as server:
        table = filled(server, database)
        with source_of(server) as source:
            assert source.way_now() is WAYS[make]
            commit_xa(server, table)
            assert source.way_now() is Visibility.LOCKING_READ
        with source_of(server) as source:
            assert source.way is Visibility.LOCKING_READ


def test_gtids_cover_xa_commit(database: str) -> None:
    """The session owns the GTID until the transaction is committed, so no rows are locked."""
    with mysql_with_gtids() as server:
        commit_xa(server, filled(server, database))
        with source_of(server) as source:
            assert source.way_now() is Visibility.OWNED_GTIDS


@pytest.mark.parametrize("make", [MySQL, MariaDB])
def test_the_applier_of_a_replica_counts_too(make: type[SqlServer], database: str) -> None:
    """Its XA COMMIT is no statement of a client."""
    more = {"gtid": False, "extra": ["--performance-schema=ON"]} if make is MySQL else {}
    with make(**more) as server, make(server_id=2, **more) as standby:  # type: ignore[arg-type]  # of MySQL alone
        replica = Replica(standby)
        replica.follow(server.port, server.position())
        table = filled(server, database)
        until(lambda: has(standby, table), what="the table")
        with source_of(standby) as source:
            assert source.way_now() in (Visibility.LOG_STATUS, Visibility.CONSISTENT_SNAPSHOT)
            commit_xa(server, table)
            until(lambda: standby.query(f"SELECT v FROM {table} WHERE id = 10")[0]["v"] == 1, what="the row")
            assert source.way_now() is Visibility.LOCKING_READ


@pytest.mark.parametrize("make", [mysql_log_status, MariaDB], ids=lambda make: make.__name__)
def test_a_locking_select_waits_for_rows_and_lets_others_insert_beside_them(
    make: Callable[[], SqlServer], database: str
) -> None:
    """It waits for the row of a prepared transaction. Meanwhile it locks the rows before that one, and no gap."""
    with make() as server:
        table = filled(server, database)
        commit_xa(server, table)
        with source_of(server) as source, server.connect() as connection, connection.cursor() as cursor:
            for statement in (
                "XA START 'y'",
                f"UPDATE {table} SET v = 9 WHERE id = 30",
                "XA END 'y'",
                "XA PREPARE 'y'",
            ):
                cursor.execute(statement)
            read: list[Read] = []
            thread = threading.Thread(target=lambda: read.append(chunk(source, database)))
            thread.start()
            thread.join(0.5)
            with server.connect() as other, other.cursor() as inserting:
                inserting.execute("SET SESSION innodb_lock_wait_timeout = 1")
                inserting.execute(f"INSERT INTO {table} VALUES (15, 0)")
            assert not read
            cursor.execute("XA COMMIT 'y'")
            thread.join(10)
            assert read[0].locked
            assert b"\x0230\x019" in read[0].rows.whole().packets


def chunk(source: SnapshotSource, schema: str) -> Read:
    """Read the whole table."""
    target = source.target(schema, "t")
    return source.read(target, SnapshotRange(0), "", 100, 1 << 20, source.end(), lambda seconds: None)
