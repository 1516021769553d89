"""Snapshots of tables without a key on real servers: one read, at exactly one place of the stream.

CANAL_HA_SNAPSHOT_READS (how often the table is read beside writers) makes a long run.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any

import pytest
from pymysql import MySQLError

from canal_ha.config.model import DecodeOptions, SnapshotLimits, WhenXa
from canal_ha.model.snapshot import SnapshotPhase, SnapshotState
from canal_ha.source.connection.session import SourceSession
from canal_ha.source.snapshot import without_key
from canal_ha.source.snapshot.result_set import RawRows, RowStream
from canal_ha.source.snapshot.source import SnapshotSource
from canal_ha.source.snapshot.watermark import Visibility
from canal_ha.wire.proto import entry_protocol_pb2 as pb
from lab import MariaDB, MySQL, SqlServer
from lab.transactions import committed
from tests.node.snapshots import SnapshotStream, state
from tests.node.visibilities import WAYS, grant_log_status, mysql_log_status, mysql_out_of_order, mysql_without_gtids
from tests.waiting import until

pytestmark = pytest.mark.real

READS = int(os.environ.get("CANAL_HA_SNAPSHOT_READS", "2"))
FEW = SnapshotLimits(rows_most=3)
Values = tuple[str | None, ...]


class Log:
    """A copy of one table without a key, as docs/how-to/take-a-snapshot.md tells a consumer to keep it.

    rows: how often each row is there. attempts: the numbers of the reads, in order.
    missing: rows that a change removed although the copy did not have them.
    inside: changes of the table that came between the pieces of a read.
    """

    def __init__(self, table: str) -> None:
        self._table = table
        self.rows: Counter[Values] = Counter()
        self.attempts: list[str] = []
        self.pieces: list[int] = []
        self.missing: list[Values] = []
        self.changes = self.inside = 0
        self._changed_at = 0

    def take(self, entries: Iterable[bytes]) -> None:
        """Apply serialized entries. It has the parameters of Copy.take."""
        for raw in entries:
            entry = pb.Entry.FromString(raw)
            name = f"{entry.header.schemaName}.{entry.header.tableName}"
            if entry.entryType != pb.ROWDATA or name != self._table:
                continue
            change = pb.RowChange.FromString(entry.storeValue)
            found = [pair.value for pair in entry.header.props if pair.key == "canal.snapshot"]
            if found:
                _, attempt, piece = found[0].split(".")
                if self.attempts[-1:] != [attempt]:
                    self.attempts.append(attempt)
                    self.rows.clear()
                    self.pieces.clear()
                elif self.changes != self._changed_at:
                    self.inside += 1
                self._changed_at = self.changes
                self.pieces.append(int(piece))
            else:
                self.changes += 1
            for row in change.rowDatas:
                if change.eventType in (pb.UPDATE, pb.DELETE):
                    self._remove(_values(row.beforeColumns))
                if change.eventType in (pb.UPDATE, pb.INSERT):
                    self.rows[_values(row.afterColumns)] += 1

    def _remove(self, values: Values) -> None:
        if not self.attempts:
            return  # a change before the read
        if self.rows[values] <= 0:
            self.missing.append(values)
        self.rows[values] -= 1

    def equals(self, server: SqlServer) -> bool:
        """Return whether the table has the same rows."""
        rows = server.query(f"SELECT * FROM {self._table}")
        expected = Counter(tuple(None if value is None else str(value) for value in row.values()) for row in rows)
        return +self.rows == expected


def _values(columns: Iterable[pb.Column]) -> Values:
    return tuple(None if column.isNull else column.value for column in columns)


def allowed(*tables: str) -> SnapshotState:
    """Return a snapshot of these tables that may lack keys."""
    return replace(state(*tables), without_key=True)


def filled(server: SqlServer, schema: str, rows: int = 20) -> str:
    """Create a table without a key, in which each row is there twice; return its name."""
    server.execute(f"CREATE DATABASE {schema}", f"CREATE TABLE {schema}.t (id INT, v VARCHAR(50))")
    if rows:
        values = ", ".join(f"({number // 2}, 'old')" for number in range(rows))
        server.execute(f"INSERT INTO {schema}.t VALUES {values}")
    return f"{schema}.t"


def stream_of(server: SqlServer, table: str, log: Log | None, **more: object) -> SnapshotStream:
    """Return a stream of the schema of a table with a snapshot of the table."""
    schema = table.split(".")[0]
    more.setdefault("limits", FEW)
    return SnapshotStream(server, rf"{schema}\..*", allowed(table), log, **more)  # type: ignore[arg-type] # a copy


def test_all_rows_come_in_bounded_pieces(source_server: SqlServer, database: str) -> None:
    """Equal rows come as often as the table has them; each piece carries its number, and the last one the end."""
    table = filled(source_server, database)
    log = Log(table)
    with stream_of(source_server, table, log) as stream:
        last = stream.done()
        chunks = stream.chunks()
        states = stream.states()
    assert log.equals(source_server)
    assert log.pieces == list(range(1, 8))
    assert all(sum(chunk.row_counts) <= 3 for chunk in chunks)
    assert (last.rows, last.table, last.chunks) == (20, 1, len(states))
    assert all(each.attempt == last.attempt > 0 for each in states)


def test_a_table_without_rows(source_server: SqlServer, database: str) -> None:
    """The end comes with a transaction that has no rows."""
    table = filled(source_server, database, 0)
    log = Log(table)
    with stream_of(source_server, table, log) as stream:
        assert stream.done().rows == 0
    assert not log.attempts


def test_a_limit_for_selects_on_the_server_drops_no_rows(source_server: SqlServer, database: str) -> None:
    """The server's sql_select_limit ends a SELECT without LIMIT early, and does not say so."""
    table = filled(source_server, database)
    log = Log(table)
    source_server.execute("SET GLOBAL sql_select_limit = 5")
    try:
        with stream_of(source_server, table, log) as stream:
            stream.done()
    finally:
        source_server.execute("SET GLOBAL sql_select_limit = DEFAULT")
    assert log.equals(source_server)


def test_a_condition_and_tables_with_keys_beside_it(source_server: SqlServer, database: str) -> None:
    """Tables come in their order, and the state of a table with a key has no attempt."""
    table = filled(source_server, database)
    source_server.execute(
        f"CREATE TABLE {database}.k (id INT PRIMARY KEY)", f"INSERT INTO {database}.k VALUES (1), (2), (3), (4)"
    )
    keyed = f"{database}.k"
    snapshot = replace(allowed(table, keyed), where={table: "id = 3 -- one"})
    log = Log(table)
    with SnapshotStream(source_server, rf"{database}\..*", snapshot, log, limits=FEW) as stream:  # type: ignore[arg-type] # a copy
        last = stream.done()
        keys = [part.after for each in stream.states() for part in each.ranges]
    assert log.rows == Counter({("3", "old"): 2})
    assert (last.rows, last.attempt) == (6, 0)
    assert ("id=3",) in keys


def test_several_connections_read_tables_with_keys_before_or_behind_it(source_server: SqlServer, database: str) -> None:
    """They wait for its read, and no piece of another table comes inside."""
    table = filled(source_server, database)
    tables = [f"{database}.k{number}" for number in range(4)]
    for each in tables:
        rows = ", ".join(f"({number})" for number in range(30))
        source_server.execute(f"CREATE TABLE {each} (id INT PRIMARY KEY)", f"INSERT INTO {each} VALUES {rows}")
    source_server.execute(
        f"CREATE TABLE {database}.other LIKE {table}", f"INSERT INTO {database}.other VALUES (1, 'x')"
    )
    snapshot = allowed(*tables[:2], table, f"{database}.other", *tables[2:])
    log, other = Log(table), Log(f"{database}.other")
    limits = replace(FEW, connections=4)
    with SnapshotStream(source_server, rf"{database}\..*", snapshot, log, limits=limits) as stream:  # type: ignore[arg-type] # a copy
        last = stream.done()
        states = stream.states()
        for segment in stream.taken:
            other.take(segment.entries())
    assert log.equals(source_server)
    assert other.equals(source_server)
    assert (last.rows, last.table, last.ranges) == (4 * 30 + 20 + 1, 6, ())
    reads = [each.attempt for each in states if each.attempt]
    assert len(set(reads)) == 2
    assert reads == sorted(reads)
    assert all(each.ranges[0].after == () for each in states if each.attempt_rows)


STRETCHED = {
    "mysql": "SET GLOBAL binlog_group_commit_sync_delay = 5000",
    "mariadb": "SET GLOBAL binlog_commit_wait_count = 100, GLOBAL binlog_commit_wait_usec = 4000",
}


@contextmanager
def writing(server: SqlServer, table: str, writers: int = 3, *, xa: bool = False) -> Iterator[None]:
    """Insert, update and delete rows as fast as it goes, several rows in a transaction. xa: in an XA one."""
    stopping = threading.Event()
    errors: list[BaseException] = []

    def change(cursor: Any, random: Random, seed: int) -> None:
        number = random.randrange(40) + 1000 * seed
        cursor.execute(f"INSERT INTO {table} VALUES ({number}, 'a'), ({number}, 'b')")
        if random.random() < 0.5:
            cursor.execute(f"UPDATE {table} SET v = 'c{random.random()}' WHERE id = {number} LIMIT 1")
        if random.random() < 0.7:
            cursor.execute(f"DELETE FROM {table} WHERE id = {number} LIMIT 3")

    def write(seed: int) -> None:
        random = Random(seed)
        try:
            with server.connect(autocommit=False) as connection:
                connection.query("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
                for number in count():
                    if stopping.is_set():
                        return
                    committed(connection, lambda cursor: change(cursor, random, seed), f"{seed}-{number}" if xa else "")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(writers)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
        assert not errors


OTHERS = pytest.mark.nightly("the other servers")


@pytest.mark.parametrize(
    "make",
    [pytest.param(make, marks=OTHERS if make in (mysql_out_of_order, mysql_log_status) else ()) for make in WAYS],
    ids=lambda make: make.__name__,
)
def test_the_copy_equals_the_table_beside_writers(make: Callable[[], SqlServer], database: str) -> None:
    """Every row is there as often as in the table; no change comes inside a read or removes a row that is not there."""
    _equal(make, database)


@pytest.mark.parametrize("make", [mysql_log_status, MariaDB], ids=lambda make: make.__name__)
def test_no_row_of_an_xa_transaction_is_lost(make: Callable[[], SqlServer], database: str) -> None:
    """The stream passed an XA COMMIT before the read, and the read did not see it: its rows never came."""
    _equal(make, database, xa=True)


def _equal(make: Callable[[], SqlServer], database: str, *, xa: bool = False) -> None:
    """Read a table beside writers, and compare."""
    with make() as server:
        table = filled(server, database, 300)
        server.execute(STRETCHED[server.flavor], f"GRANT LOCK TABLES ON {database}.* TO canal")
        if WAYS[make] is Visibility.LOG_STATUS:
            grant_log_status(server)
        for _ in range(READS):
            log = Log(table)
            with stream_of(server, table, log, limits=SnapshotLimits(rows_most=40)) as stream:
                with writing(server, table, xa=xa):
                    stream.done(60)
                    time.sleep(0.3)
                    until(lambda log=log: log.changes > 0, what="changes behind the read")  # type: ignore[misc]
                stream.caught_up(server)
                assert not stream.failures
            assert log.equals(server)
            assert not log.missing
            assert not log.inside


@pytest.mark.parametrize("make", [mysql_log_status, MariaDB], ids=lambda make: make.__name__)
def test_a_read_waits_for_a_prepared_transaction_whose_connection_is_gone(
    make: Callable[[], SqlServer], database: str
) -> None:
    """MariaDB keeps nobody from LOCK TABLES who waits for such a transaction."""
    with make() as server:
        table = filled(server, database)
        server.execute(f"GRANT LOCK TABLES ON {database}.* TO canal")
        if WAYS[make] is Visibility.LOG_STATUS:
            grant_log_status(server)
        with server.connect(autocommit=False) as connection:
            assert committed(connection, lambda cursor: cursor.execute(f"DELETE FROM {table} WHERE id = 1"), "first")
        with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
            cursor.execute("XA START 'second'")
            cursor.execute(f"UPDATE {table} SET v = 'new' WHERE id = 2")
            cursor.execute("XA END 'second'")
            cursor.execute("XA PREPARE 'second'")
        log = Log(table)
        with stream_of(server, table, log) as stream:
            time.sleep(1.0)
            assert not log.attempts
            until(lambda: _committed_prepared(server, "second"), what="the end of the connection that has prepared")
            stream.done()
            stream.caught_up(server)
        assert log.equals(server)
        assert not log.missing


def _committed_prepared(server: SqlServer, xid: str) -> bool:
    try:
        server.execute(f"XA COMMIT '{xid}'")
    except MySQLError:
        return False
    return True


# ---- beside the stream


class During:
    """Runs statements when a read has taken its first rows from the server, on a thread, because they may wait."""

    def __init__(self, patch: pytest.MonkeyPatch, server: SqlServer, *statements: str) -> None:
        self.thread = threading.Thread(target=server.execute, args=statements, daemon=True)
        self.reads = 0
        take = RowStream.take

        def taking(rows: RowStream, most_bytes: int, most_rows: int = 0) -> RawRows:
            self.reads += 1
            taken = take(rows, most_bytes, most_rows)
            if self.reads == 1:
                self.thread.start()
                self.thread.join(0.3)
            return taken

        patch.setattr(RowStream, "take", taking)


def test_changes_of_the_table_come_behind_the_read_and_others_flow(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream is held at the first change of the table, and not before it."""
    table = filled(source_server, database)
    source_server.execute(f"CREATE TABLE {database}.other (id INT)")
    during = During(
        monkeypatch,
        source_server,
        f"INSERT INTO {database}.other VALUES (1)",
        "DO SLEEP(0.3)",  # else the stream can bring it together with the change that is held
        f"UPDATE {table} SET v = 'new' WHERE id = 3",
        f"INSERT INTO {database}.other VALUES (2)",
        f"DELETE FROM {table} WHERE id = 4",
    )
    log = Log(table)
    with stream_of(source_server, table, log, limits=SnapshotLimits(rows_most=3, rows_per_s=20)) as stream:
        stream.done()
        during.thread.join(10)
        stream.caught_up(source_server)
        ends = [index for index, each in enumerate(stream.taken) if each.chunk_end]
        others = [index for index, each in enumerate(stream.taken) if b"other" in bytes(each.frames)]
    assert others[0] < ends[-1] < others[1]
    assert log.equals(source_server)
    assert not log.missing
    assert not log.inside


def test_a_statement_waits_for_the_read(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows have the columns that the table had when the read began, and the statement comes behind them."""
    table = filled(source_server, database)
    during = During(monkeypatch, source_server, f"ALTER TABLE {table} ADD COLUMN w INT NOT NULL DEFAULT 5 FIRST")
    log = Log(table)
    with stream_of(source_server, table, log) as stream:
        stream.done()
        during.thread.join(10)
        stream.caught_up(source_server)
        last = next(index for index, each in enumerate(stream.taken) if b"ADD COLUMN w" in bytes(each.frames))
        assert not [each for each in stream.taken[last:] if each.chunk_end]
    assert log.rows == Counter({(str(number), "old"): 2 for number in range(10)})


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        ("ALTER TABLE {0} ADD COLUMN w INT NOT NULL DEFAULT 5", {(str(number), "old", "5"): 2 for number in range(10)}),
        ("TRUNCATE TABLE {0}", {}),
        ("RENAME TABLE {0} TO {0}_old, {0}_new TO {0}", {("7", "new"): 1}),
        ("ALTER TABLE {0} ADD PRIMARY KEY (id)", None),
    ],
    ids=["columns", "truncate", "swap", "key"],
)
def test_a_statement_before_the_read_is_open(
    source_server: SqlServer,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    statement: str,
    rows: dict[Values, int] | None,
) -> None:
    """The table is read as it is when the read begins, also by a key that it has got meanwhile."""
    table = filled(source_server, database, 20)
    if rows is None:
        source_server.execute(f"DELETE FROM {table}", f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
    source_server.execute(
        f"CREATE TABLE {table}_new (id INT, v VARCHAR(50))", f"INSERT INTO {table}_new VALUES (7, 'new')"
    )
    session, calls = SnapshotSource.session, []

    def altering(source: SnapshotSource) -> SourceSession:
        calls.append(source)
        if len(calls) == 1:
            source_server.execute(statement.format(table))
        return session(source)

    monkeypatch.setattr(SnapshotSource, "session", altering)
    log = Log(table)
    with stream_of(source_server, table, log if rows is not None else None) as stream:
        last = stream.done()
        stream.caught_up(source_server)
    if rows is None:
        assert (last.rows, last.attempt) == (2, 0)
    else:
        assert log.rows == Counter(rows)
        assert log.equals(source_server)


def test_a_swap_of_tables_waits_until_the_read_is_open(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of one table never stand for the other one: the swap waits, or the read begins again behind it."""
    table = filled(source_server, database)
    source_server.execute(
        f"CREATE TABLE {table}_new (id INT, v VARCHAR(50))",
        f"INSERT INTO {table}_new VALUES (7, 'new'), (8, 'new')",
    )
    swap = threading.Thread(
        target=source_server.execute, args=(f"RENAME TABLE {table} TO {table}_old, {table}_new TO {table}",)
    )
    asked = SourceSession.query
    waited: list[bool] = []

    def swapping(session: SourceSession, sql: str, *values: object) -> list[dict[str, object]]:
        if sql.startswith("START TRANSACTION WITH") and not waited:
            swap.start()
            swap.join(0.3)
            waited.append(swap.is_alive())
            source_server.execute(f"INSERT INTO {table}_new VALUES (9, 'late')")
        return asked(session, sql, *values)

    monkeypatch.setattr(SourceSession, "query", swapping)
    log = Log(table)
    with stream_of(source_server, table, log) as stream:
        stream.done()
        swap.join(10)
        stream.caught_up(source_server)
        renamed = next(index for index, each in enumerate(stream.taken) if b"RENAME" in bytes(each.frames))
        first = next(index for index, each in enumerate(stream.taken) if each.chunk_end)
    assert waited == [True]
    assert log.equals(source_server) if renamed < first else len(log.rows) == 10


def test_the_table_is_dropped(source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshot ends with an error that names the table; the stream goes on."""
    table = filled(source_server, database)
    session = SnapshotSource.session

    def dropping(source: SnapshotSource) -> SourceSession:
        source_server.execute(f"DROP TABLE {table}")
        return session(source)

    monkeypatch.setattr(SnapshotSource, "session", dropping)
    with stream_of(source_server, table, Log(table)) as stream:
        assert table in stream.failed().error
        source_server.execute(f"CREATE TABLE {database}.other (id INT)")
        stream.caught_up(source_server)
        assert not stream.failures


def test_a_table_that_always_changes_is_locked_for_the_opening(
    mysql: MySQL, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MySQL does not tell the place of a consistent snapshot; after some tries, writers wait while it opens."""
    table = filled(mysql, database)
    mysql.execute(f"GRANT LOCK TABLES ON {database}.* TO canal")
    sees: list[bool] = []
    opening = SourceSession.query

    def changing(session: SourceSession, sql: str, *values: object) -> list[dict[str, object]]:
        if sql.startswith("START TRANSACTION WITH"):
            writer = threading.Thread(target=mysql.execute, args=(f"INSERT INTO {table} VALUES (99, 'new')",))
            writer.start()
            writer.join(0.5 if len(sees) == 2 else 20.0)
            sees.append(not writer.is_alive())
        return opening(session, sql, *values)

    monkeypatch.setattr(without_key, "TRIES", 2)
    monkeypatch.setattr(SourceSession, "query", changing)
    log = Log(table)
    with stream_of(mysql, table, log) as stream:
        stream.done()
        until(lambda: log.equals(mysql), what="equality")
    assert sees == [True, True, False]
    assert not log.missing


# ---- beginning again


def test_a_new_feed_begins_a_new_attempt(source_server: SqlServer, database: str) -> None:
    """From the cursor of any piece. The number is larger, and the rows of the broken attempt do not count."""
    table = filled(source_server, database)
    log = Log(table)
    with stream_of(source_server, table, log) as stream:
        whole = stream.done()
        cursor = stream.chunks()[2].chunk_end
    assert cursor is not None
    kept = SnapshotState.from_text(cursor.snapshot)
    assert kept is not None
    assert (kept.rows, kept.attempt_rows, kept.phase) == (9, 9, SnapshotPhase.RUNNING)
    source_server.execute(f"DELETE FROM {table} WHERE id < 3", f"INSERT INTO {table} VALUES (100, 'new')")
    with SnapshotStream(source_server, rf"{database}\..*", kept, log, start=cursor, limits=FEW) as second:  # type: ignore[arg-type] # a copy
        last = second.done()
        second.caught_up(source_server)
    assert log.equals(source_server)
    assert (last.rows, last.chunks) == (15, 3 + 6)
    assert last.attempt > whole.attempt
    assert len(log.attempts) == 2


def test_the_connection_of_a_read_is_killed(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The changes that were held flow, and a new attempt follows."""
    table = filled(source_server, database)
    source_server.execute(
        f"ALTER TABLE {table} MODIFY v LONGTEXT", f"UPDATE {table} SET v = REPEAT('x', 20000) WHERE id > 1"
    )
    take = RowStream.take
    takes: list[int] = []

    def killing(rows: RowStream, most_bytes: int, most_rows: int = 0) -> RawRows:
        takes.append(int(rows._session.connection.thread_id()))  # type: ignore[no-untyped-call] # PyMySQL's
        if len(takes) == 3:
            source_server.execute(f"KILL {takes[0]}", f"INSERT INTO {table} VALUES (-1, 'new')")
        return take(rows, most_bytes, most_rows)

    monkeypatch.setattr(RowStream, "take", killing)
    log = Log(table)
    slow = replace(allowed(table), where={table: "SLEEP(IF(id = 9, 1.5, 0)) = 0"})
    with SnapshotStream(source_server, rf"{database}\..*", slow, log, limits=FEW) as stream:  # type: ignore[arg-type] # a copy
        last = stream.done()
        stream.caught_up(source_server)
        assert [event for event, _ in stream.told] == ["snapshot.failing"]
        assert [bool(text) for text in stream.tries] == [True, False]
        assert not stream.failures
    assert log.equals(source_server)
    assert last.rows == 21
    assert len(log.attempts) == 2


def test_a_full_ring_holds_the_read_back(source_server: SqlServer, database: str) -> None:
    """The rows stay on the server, and a stop ends the read at once."""
    table = filled(source_server, database, 10)
    for _ in range(10):
        source_server.execute(f"INSERT INTO {table} SELECT id, REPEAT('x', 50) FROM {table}")
    stream = stream_of(source_server, table, Log(table))
    stream.room.clear()
    with stream:
        until(stream.blocked.is_set, what="a piece")
        source_server.execute(f"INSERT INTO {table} VALUES (1, 'new')")
        time.sleep(0.3)
        assert not stream.taken
    names = [each.name for each in threading.enumerate() if each.name.startswith("snapshot-")]
    until(lambda: not [each for each in threading.enumerate() if each.name in names], what="the end of the threads")


# ---- refusals


def test_rows_at_xa_prepare_are_refused(source_server: SqlServer, database: str) -> None:
    """The stream brings rows that no consistent read sees."""
    table = filled(source_server, database)
    with stream_of(source_server, table, Log(table), xa=WhenXa.PREPARE) as stream:
        assert "canal.instance.xa = prepare" in stream.failed().error


def test_an_engine_without_transactions_is_refused(source_server: SqlServer, database: str) -> None:
    """A consistent snapshot does not hold for it."""
    table = filled(source_server, database)
    source_server.execute(f"ALTER TABLE {table} ENGINE = MyISAM")
    with stream_of(source_server, table, Log(table)) as stream:
        assert "storage engine has no transactions" in stream.failed().error


def test_the_missing_right_to_lock_is_named(database: str) -> None:
    """MySQL without GTIDs, and without the right to ask what is visible."""
    with mysql_without_gtids() as server:
        table = filled(server, database)
        user = f"u{database[-10:]}"
        server.execute(
            f"CREATE USER {user} IDENTIFIED BY 'secret'",
            f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user}",
            f"GRANT SELECT ON {database}.* TO {user}",
        )
        options = DecodeOptions(table_history=False)
        with stream_of(server, table, Log(table), username=user, password="secret", options=options) as stream:
            error = stream.failed().error
    assert f"GRANT LOCK TABLES ON `{database}`.* TO '{user}'@'%'" in error


def test_mariadb_needs_the_right_to_lock_from_its_first_xa_commit_on(database: str) -> None:
    """Before, it tells the place of a read that any account makes."""
    with MariaDB() as server:
        table = filled(server, database)
        with stream_of(server, table, Log(table)) as stream:
            assert stream.done().rows == 20
        with server.connect(autocommit=False) as connection:
            assert committed(connection, lambda cursor: cursor.execute(f"DELETE FROM {table} WHERE id = 1"), "x")
        with stream_of(server, table, Log(table)) as stream:
            assert f"GRANT LOCK TABLES ON `{database}`.* TO 'canal'@'%'" in stream.failed().error
