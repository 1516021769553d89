"""What covers XA COMMIT, which is in the binlog before a SELECT sees its rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pymysql
import pytest

from canal_ha.model.snapshot import SnapshotRange
from canal_ha.source.snapshot.source import Read, SnapshotSource, StillLocked
from canal_ha.source.snapshot.watermark import Reached, Visibility, wait_visible
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

    def fetch(schema: str, table: str, _: str) -> str:
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


def prepare_xa(cursor: Any, table: str) -> None:
    """Change a row in an XA transaction, and prepare it."""
    for statement in ("XA START 'y'", f"UPDATE {table} SET v = 9 WHERE id = 30", "XA END 'y'", "XA PREPARE 'y'"):
        cursor.execute(statement)


@pytest.mark.parametrize("make", [mysql_log_status, MariaDB], ids=lambda make: make.__name__)
def test_selects_lock_if_a_transaction_is_prepared_when_the_connection_begins(
    make: Callable[[], SqlServer], database: str
) -> None:
    """The server may have crashed in its XA COMMIT. On MySQL, an account without the right to look does not know."""
    with make() as server:
        table = filled(server, database)
        with server.connect() as connection, connection.cursor() as cursor:
            prepare_xa(cursor, table)
            if server.flavor == "mysql":
                with source_of(server) as source:
                    assert source.way is Visibility.LOG_STATUS
                server.execute("GRANT XA_RECOVER_ADMIN ON *.* TO canal")
            with source_of(server) as source:
                assert source.way is Visibility.LOCKING_READ
            cursor.execute("XA ROLLBACK 'y'")
        with source_of(server) as source:
            assert source.way is WAYS[make]


def test_an_xa_commit_in_which_the_server_crashed_is_waited_for(database: str) -> None:
    """The binlog has it, the engine does not, and the server counts none: older rows came behind the stream's."""
    with MariaDB(extra=["--innodb-flush-log-at-trx-commit=1", "--innodb-lock-wait-timeout=1"]) as server:
        table = filled(server, database)
        with server.connect() as connection, connection.cursor() as cursor:
            prepare_xa(cursor, table)
            server.execute(
                "SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC, rpl_semi_sync_master_timeout = 3600000",
                "SET GLOBAL rpl_semi_sync_master_wait_no_slave = ON, rpl_semi_sync_master_enabled = ON",
            )
            before = server.position()

            def commit() -> None:
                with suppress(pymysql.MySQLError):
                    cursor.execute("XA COMMIT 'y'")

            thread = threading.Thread(target=commit)
            thread.start()
            until(lambda: server.position() != before, what="XA COMMIT in the binlog")
            server.kill()
            thread.join(20)
        server.start()
        assert server.query("SHOW GLOBAL STATUS LIKE 'Com_xa_commit'")[0]["Value"] == "0"
        assert server.query(f"SELECT v FROM {table} WHERE id = 30")[0]["v"] == 0
        with source_of(server) as source, pytest.raises(StillLocked):
            chunk(source, database)
        server.execute("XA COMMIT 'y'")
        with source_of(server) as source:
            assert b"\x0230\x019" in chunk(source, database).rows.whole().packets


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
            prepare_xa(cursor, table)
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


def test_a_select_sees_what_the_stream_brought_whatever_other_sessions_ask(database: str) -> None:
    """MariaDB tells the place of a session's snapshot through one variable that all sessions share."""
    with MariaDB() as server, ExitStack() as stack:
        table = filled(server, database)
        change, status = f"UPDATE {table} SET v = v + 1 WHERE id = 10", "SHOW STATUS LIKE 'binlog_snapshot_%'"
        server.execute(change)
        journal, begin = server.position()
        server.execute(change)
        size = server.position()[1] - begin  # of each transaction
        changes, stopping = [2], threading.Event()

        def repeat(*statements: str) -> None:
            with server.connect() as connection, connection.cursor() as cursor:
                while not stopping.is_set():
                    for statement in statements:
                        cursor.execute(statement)
                    changes[0] += statements == (change,)

        for statements in [(change,)] + 3 * [("START TRANSACTION WITH CONSISTENT SNAPSHOT", *4 * [status], "ROLLBACK")]:
            thread = threading.Thread(target=repeat, args=statements)
            stack.callback(thread.join)
            thread.start()
        session = stack.enter_context(source_of(server)).session()
        stack.callback(session.close)
        stack.callback(stopping.set)
        for _ in range(2500):
            wanted = changes[0] + 2  # the stream has brought it, and the server may not have committed it
            reached = Reached(journal, begin + (wanted - 1) * size, "")
            wait_visible(session, Visibility.CONSISTENT_SNAPSHOT, reached, time.sleep)
            assert session.query(f"SELECT v FROM {table} WHERE id = 10")[0]["v"] >= wanted
            session.query("ROLLBACK")
        stopping.set()
        assert server.position()[1] <= begin + (changes[0] + 1) * size  # no transaction had another size
