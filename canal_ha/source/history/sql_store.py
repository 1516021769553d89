"""Table histories in SQL: a SQLite file of one node, or a MySQL database that nodes share. Any thread; blocks.

Tables and columns are canal's (docs/protocol.md#table-history), except `meta_coverage`, `meta_definition` and
`meta_snapshot_part`, which are canal-ha's. A snapshot's tables refer to definitions, which all snapshots share.
`binlog_master_id` identifies the server that a row's positions belong to: a MySQL server's uuid, else a server id.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar
from urllib.parse import urlsplit

import pymysql

from canal_ha.config.model import TlsConfig
from canal_ha.decode.ddl.script import statements
from canal_ha.decode.history.definitions import definition_of, table_of
from canal_ha.decode.history.ranges import Range
from canal_ha.decode.history.store import HistoryStore, Kept, Record, TableSnapshot
from canal_ha.errors import HistoryUnavailable
from canal_ha.model.position import LogPosition
from canal_ha.private_files import make_directory, opener
from canal_ha.source.connection.session import CONNECT_TIMEOUT_S
from canal_ha.source.connection.tls import Connection, secured
from canal_ha.source.history.coverage import Coverage, from_place, place_of

FILE = "table_history.db"
PREFERRED = TlsConfig()
_IO_TIMEOUT_S = 10.0
_LOCKED_S = 0.01  # before the next try, if the file is locked

_PART_BYTES = 1 << 19  # of a snapshot in one INSERT: servers refuse one above max_allowed_packet, 1 MB at least
_OF_A_SOURCE = ("meta_history", "meta_snapshot", "meta_snapshot_part")
_AT = "destination, binlog_file, binlog_offest, binlog_master_id, binlog_timestamp"
_OF_SOURCE = "destination = ? AND binlog_master_id = ?"
_AT_PLACE = f"{_OF_SOURCE} AND binlog_file = ? AND binlog_offest = ?"
_TABLES = """
CREATE TABLE IF NOT EXISTS meta_snapshot (
  id {serial}, gmt_create {now}, gmt_modified {now}, destination varchar(128) NOT NULL,
  binlog_file varchar(64) NOT NULL, binlog_offest bigint NOT NULL, binlog_master_id varchar(64) NOT NULL,
  binlog_timestamp bigint NOT NULL, data {text}, extra {text},
  UNIQUE (destination, binlog_master_id, binlog_file, binlog_offest));
CREATE TABLE IF NOT EXISTS meta_history (
  id {serial}, gmt_create {now}, gmt_modified {now}, destination varchar(128) NOT NULL,
  binlog_file varchar(64) NOT NULL, binlog_offest bigint NOT NULL, binlog_master_id varchar(64) NOT NULL,
  binlog_timestamp bigint NOT NULL, use_schema varchar(255), sql_schema varchar(255),
  sql_table varchar(255) NOT NULL DEFAULT '', sql_text {text}, sql_type varchar(32), extra {text},
  UNIQUE (destination, binlog_master_id, binlog_file, binlog_offest, sql_table{name_prefix}));
CREATE TABLE IF NOT EXISTS meta_coverage (
  destination varchar(128) NOT NULL PRIMARY KEY, gmt_modified {now}, data {text});
CREATE TABLE IF NOT EXISTS meta_snapshot_part (
  destination varchar(128) NOT NULL, binlog_master_id varchar(64) NOT NULL, binlog_file varchar(64) NOT NULL,
  binlog_offest bigint NOT NULL, part int NOT NULL, data {text},
  PRIMARY KEY (destination, binlog_master_id, binlog_file, binlog_offest, part)){utf8};
CREATE TABLE IF NOT EXISTS meta_definition (
  destination varchar(128) NOT NULL, digest varchar(32) NOT NULL, sql_text {text},
  PRIMARY KEY (destination, digest)){utf8}
"""

Connect = Callable[[], Any]
P = ParamSpec("P")
T = TypeVar("T")

_DEADLOCK = 1213  # MySQL rolled this transaction back so that another one could continue
_CACHED_STATEMENTS = 8  # of a connection to a file
_ATTEMPTS = 10  # of a transaction; with many nodes beside it, one can lose several deadlocks


class Fencing(Protocol):
    """Keeps a node from writing when another one has claimed the destination."""

    @property
    def holder(self) -> str:
        """Text that no other claim has."""

    def confirm(self) -> None:
        """Raise HistoryUnavailable if another node has claimed the destination since."""


def _despite_deadlocks(transaction: Callable[P, T]) -> Callable[P, T]:
    """Repeat a transaction that lost a deadlock."""

    @wraps(transaction)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(_ATTEMPTS - 1):
            try:
                return transaction(*args, **kwargs)
            except HistoryUnavailable as error:
                if not isinstance(error.__cause__, pymysql.MySQLError) or error.__cause__.args[:1] != (_DEADLOCK,):
                    raise
        return transaction(*args, **kwargs)

    return run


class SqlStore:
    """One destination's history behind a DB-API connection. Methods raise HistoryUnavailable.

    destination: its name.
    connect: opens a connection.
    where: file or host:port/database, for messages.
    mark: placeholder of parameters.
    ignore: makes an INSERT or UPDATE skip duplicates.
    types: column types and clauses of the dialect.
    claim: fences the writes; None for a node that runs the destination without ZooKeeper.
    shared: see HistoryStore.
    """

    def __init__(
        self,
        destination: str,
        connect: Connect,
        *,
        where: str,
        mark: str,
        ignore: str,
        types: Mapping[str, str],
        claim: Fencing | None = None,
        shared: bool,
    ) -> None:
        self.shared = shared
        self._destination = destination
        self._connect = connect
        self._where = where
        self._mark = mark
        self._ignore = ignore
        self._types = types
        self._claim = claim
        self._lock = threading.Lock()
        self._connection: Any = None

    @_despite_deadlocks
    def load(self, source: str) -> Kept:
        """See HistoryStore. From now on no node that claimed the destination earlier can write."""
        with self._cursor() as cursor:
            covered = self._covered(cursor, claiming=True)
            if self._claim:
                self._claim.confirm()  # with the row locked, so that no earlier claim comes in between
                self._cover(cursor, covered)
            return self._kept(cursor, source, covered)

    @_despite_deadlocks
    def others(self, source: str) -> Mapping[str, Kept]:
        """See HistoryStore."""
        with self._cursor() as cursor:
            covered = self._covered(cursor)
            return {other: self._kept(cursor, other, covered) for other in covered if other != source}

    def count(self) -> int:
        """See HistoryStore."""
        with self._cursor() as cursor:
            self._run(cursor, "SELECT COUNT(*) FROM meta_history WHERE destination = ?")
            return int(cursor.fetchone()[0])

    @_despite_deadlocks
    def add(self, source: str, records: Sequence[Record]) -> None:
        """See HistoryStore."""
        with self._cursor() as cursor:
            if self._claim:
                self._covered(cursor)  # refuses a node that does not own the destination any more
            for record in records:
                self._run(
                    cursor,
                    f"INSERT {self._ignore} INTO meta_history ({_AT}, use_schema, sql_schema, sql_table, sql_text,"
                    " sql_type, extra) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    *_at_values(source, record.at),
                    record.schema,
                    record.schema,
                    record.table,
                    record.sql,
                    "FIRST" if record.table else "DDL",
                    json.dumps({"sub": record.at.sub_index, "since": record.since and place_of(record.since)}),
                )

    @_despite_deadlocks
    def add_snapshot(self, source: str, snapshot: TableSnapshot) -> None:
        """See HistoryStore."""
        place = (source, snapshot.at.journal, snapshot.at.offset)
        with self._cursor() as cursor:
            self._covered(cursor)  # lock: definitions must not expire before this snapshot refers to them
            self._run(
                cursor,
                f"SELECT 1 FROM meta_snapshot WHERE {_AT_PLACE}",
                *place,
            )
            if cursor.fetchone():
                return
            self._run(cursor, "SELECT digest FROM meta_definition WHERE destination = ?")
            stored = {str(digest) for (digest,) in cursor.fetchall()}
            digests = {definition: _digest(definition) for definition in set(snapshot.tables.values())}
            new = {digest: definition for definition, digest in digests.items() if digest not in stored}
            self._run_each(
                cursor, "INSERT INTO meta_definition (destination, digest, sql_text) VALUES (?, ?, ?)", new.items()
            )
            # an older node that cleared the history has left the parts
            self._run(
                cursor,
                f"DELETE FROM meta_snapshot_part WHERE {_AT_PLACE}",
                *place,
            )
            self._run_each(
                cursor,
                "INSERT INTO meta_snapshot_part (destination, binlog_master_id, binlog_file, binlog_offest, part, data)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                ((*place, number, part) for number, part in enumerate(_parts(snapshot, digests))),
            )
            # older nodes find a snapshot without tables
            self._run(
                cursor,
                f"INSERT INTO meta_snapshot ({_AT}, data, extra) VALUES (?, ?, ?, ?, ?, '{{}}', ?)",
                *_at_values(source, snapshot.at),
                json.dumps({"sub": snapshot.at.sub_index, "parts": True, "complete": snapshot.left_out is not None}),
            )

    @_despite_deadlocks
    def cover(self, source: str, ranges: Sequence[Range], times: Mapping[str, int]) -> None:
        """See HistoryStore."""
        with self._cursor() as cursor:
            covered = self._covered(cursor)
            covered.setdefault(source, Coverage()).add(ranges, times)
            self._cover(cursor, covered)

    @_despite_deadlocks
    def expire(self, source: str, before: LogPosition, stale_ms: int) -> None:
        """See HistoryStore."""
        journal, offset = before.journal, before.offset
        earlier = (
            "(length(binlog_file) < ? OR (length(binlog_file) = ?"
            " AND (binlog_file < ? OR (binlog_file = ? AND binlog_offest < ?))))"
        )
        values = (source, len(journal), len(journal), journal, journal, offset)
        with self._cursor() as cursor:
            covered = self._covered(cursor)
            for table in _OF_A_SOURCE:
                self._run(cursor, f"DELETE FROM {table} WHERE {_OF_SOURCE} AND {earlier}", *values)
            own = covered.setdefault(source, Coverage())
            own.expired = before
            self._run(
                cursor,
                "SELECT binlog_master_id FROM meta_snapshot WHERE destination = ? GROUP BY binlog_master_id"
                " HAVING MAX(binlog_timestamp) < ?",
                stale_ms,
            )
            for (stale,) in cursor.fetchall():
                if str(stale) != source:
                    self._forget_source(cursor, covered, str(stale))
            self._forget_definitions(cursor)
            self._cover(cursor, covered)

    @_despite_deadlocks
    def clear(self, source: str) -> None:
        """See HistoryStore."""
        with self._cursor() as cursor:
            covered = self._covered(cursor)
            self._forget_source(cursor, covered, source)
            self._forget_definitions(cursor)
            self._cover(cursor, covered)

    def close(self) -> None:
        """See HistoryStore."""
        with self._lock:
            self._forget()

    # ---- holding the lock

    def _covered(self, cursor: Any, *, claiming: bool = False) -> dict[str, Coverage]:
        """Return what is covered, by source, and lock it until the transaction ends.

        claiming: the owner reads for the first time. Any other call raises HistoryUnavailable if another node has done
        so since.
        """
        # create the row first: locking a missing row locks a gap, and two transactions that did so block each other
        self._run(cursor, f"INSERT INTO meta_coverage (destination, data) VALUES (?, '{{}}') {self._types['if_there']}")
        self._run(cursor, f"SELECT data FROM meta_coverage WHERE destination = ?{self._types['lock']}")
        body = json.loads(cursor.fetchone()[0])
        holder = body.get("holder")
        if self._claim and holder is not None and holder != self._claim.holder and not claiming:
            raise HistoryUnavailable(
                f"{self._destination}: the table history in {self._where} belongs to {holder} now; this node writes no"
                " more"
            )
        if "sources" in body or not body:
            return {source: Coverage.read(known) for source, known in body.get("sources", {}).items()}
        # an older format: one range of one source, whose rows carry the id of the server that first wrote each event
        source = str(body["source"])
        for table in _OF_A_SOURCE:
            update = f"UPDATE {self._ignore} {table} SET binlog_master_id = ? WHERE destination = ?"
            cursor.execute(update.replace("?", self._mark), (source, self._destination))
        covered = {source: Coverage.read({"ranges": [[body["start"], body["end"]]]})}
        self._cover(cursor, covered)
        return covered

    def _kept(self, cursor: Any, source: str, covered: Mapping[str, Coverage]) -> Kept:
        """Return everything stored of a source."""
        self._run(
            cursor,
            "SELECT binlog_file, binlog_offest, binlog_timestamp, extra, use_schema, sql_table, sql_text"
            f" FROM meta_history WHERE {_OF_SOURCE}",
            source,
        )
        records = tuple(_record(row) for row in cursor.fetchall())
        self._run(
            cursor,
            f"SELECT binlog_file, binlog_offest, binlog_timestamp, extra, data FROM meta_snapshot WHERE {_OF_SOURCE}",
            source,
        )
        rows = cursor.fetchall()
        parts: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
        self._run(
            cursor,
            f"SELECT binlog_file, binlog_offest, data FROM meta_snapshot_part WHERE {_OF_SOURCE}",
            source,
        )
        for journal, offset, data in cursor.fetchall():
            parts[(str(journal), int(offset))].append(json.loads(data))
        self._run(cursor, "SELECT digest, sql_text FROM meta_definition WHERE destination = ?")
        definitions = {str(digest): str(text) for digest, text in cursor.fetchall()}
        snapshots = tuple(_snapshot(row, parts, definitions) for row in rows)
        own = covered.get(source, Coverage())
        return Kept(tuple(own.ranges), records, snapshots, own.times)

    def _cover(self, cursor: Any, covered: Mapping[str, Coverage]) -> None:
        sources = {source: known.body() for source, known in covered.items()}
        data = json.dumps({"sources": sources, **({"holder": self._claim.holder} if self._claim else {})})
        update = "UPDATE meta_coverage SET gmt_modified = CURRENT_TIMESTAMP, data = ? WHERE destination = ?"
        cursor.execute(update.replace("?", self._mark), (data, self._destination))

    def _forget_source(self, cursor: Any, covered: dict[str, Coverage], source: str) -> None:
        covered.pop(source, None)
        for table in _OF_A_SOURCE:
            self._run(cursor, f"DELETE FROM {table} WHERE {_OF_SOURCE}", source)

    def _forget_definitions(self, cursor: Any) -> None:
        """Drop the definitions that no snapshot refers to any more."""
        self._run(cursor, "SELECT data FROM meta_snapshot_part WHERE destination = ?")
        parts = (json.loads(data) for (data,) in cursor.fetchall())
        used = {digest for part in parts for tables in part["tables"].values() for digest in tables.values()}
        self._run(cursor, "SELECT digest FROM meta_definition WHERE destination = ?")
        unused = [(str(digest),) for (digest,) in cursor.fetchall() if digest not in used]
        self._run_each(cursor, "DELETE FROM meta_definition WHERE destination = ? AND digest = ?", unused)

    def _run(self, cursor: Any, sql: str, *values: object) -> None:
        cursor.execute(sql.replace("?", self._mark), (self._destination, *values))

    def _run_each(self, cursor: Any, sql: str, rows: Iterable[tuple[object, ...]]) -> None:
        """Run a statement for each row. PyMySQL joins INSERTs up to 1 MB."""
        cursor.executemany(sql.replace("?", self._mark), [(self._destination, *row) for row in rows])

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        """One transaction. Raises HistoryUnavailable."""
        with self._lock:
            try:
                if self._connection is None or not _alive(self._connection):
                    self._connection = self._opened()
                cursor = self._connection.cursor()
                yield cursor
                self._connection.commit()
                if isinstance(self._connection, sqlite3.Connection):  # a node may have a thousand of them
                    self._connection.execute("PRAGMA shrink_memory")
            except HistoryUnavailable:
                self._forget()  # releases the lock
                raise
            except (sqlite3.Error, pymysql.MySQLError, OSError, ValueError) as error:
                self._forget()
                raise HistoryUnavailable(
                    f"{self._destination}: cannot use the table history in {self._where}: {error};"
                    " check canal.instance.tsdb.dir, or tsdb.url, dbUsername and dbPassword"
                ) from error

    def _opened(self) -> Any:
        connection = self._connect()
        cursor = connection.cursor()
        for statement in _TABLES.format(**self._types).split(";"):
            cursor.execute(statement)
        connection.commit()
        return connection

    def _forget(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error, pymysql.MySQLError, OSError):
                self._connection.close()
            self._connection = None


def in_file(destination: str, directory: Path) -> HistoryStore:
    """Return a history in a file of this directory, which is created when needed."""

    def connect() -> sqlite3.Connection:
        make_directory(directory)
        os.close(opener(str(directory / FILE), os.O_RDWR | os.O_CREAT))  # the files beside it get its mode
        connection = sqlite3.connect(
            directory / FILE, check_same_thread=False, timeout=_IO_TIMEOUT_S, cached_statements=_CACHED_STATEMENTS
        )
        _write_ahead(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    now = "timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP"
    types = {
        "serial": "integer PRIMARY KEY AUTOINCREMENT",
        "now": now,
        "text": "text",
        "utf8": "",
        "name_prefix": "",
        "lock": "",
        "if_there": "ON CONFLICT DO NOTHING",
    }
    return SqlStore(
        destination, connect, where=str(directory / FILE), mark="?", ignore="OR IGNORE", types=types, shared=False
    )


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Turn write-ahead logging on. If others do so at the same moment, SQLite fails at once, whatever its time-out."""
    until = time.monotonic() + _IO_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() >= until:
                raise
            time.sleep(_LOCKED_S)


def in_mysql(
    destination: str, url: str, user: str, password: str, claim: Fencing | None = None, *, tls: TlsConfig = PREFERRED
) -> HistoryStore:
    """Return a history in a MySQL or MariaDB database.

    destination: its name.
    url: jdbc:mysql://host:port/database or mysql://…
    user, password: the database account.
    claim: fences the writes.
    tls: towards that database.
    """
    parts = urlsplit(url.removeprefix("jdbc:"))
    database = parts.path.strip("/")

    def connect() -> Any:
        connection = Connection(
            host=parts.hostname or "127.0.0.1",
            port=parts.port or 3306,
            user=user,
            password=password.encode(),
            charset="utf8mb4",
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=_IO_TIMEOUT_S,
            write_timeout=_IO_TIMEOUT_S,
            program_name="canal-ha",
            **secured(tls),
        )
        try:
            with suppress(pymysql.err.OperationalError):  # the account may use the database but not create it
                connection.cursor().execute(f"CREATE DATABASE IF NOT EXISTS `{database}`")
            connection.select_db(database)
        except BaseException:
            connection.close()
            raise
        return connection

    now = "timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP"
    types = {
        "serial": "bigint NOT NULL AUTO_INCREMENT PRIMARY KEY",
        "now": now,
        "text": "longtext",
        "utf8": " DEFAULT CHARSET=utf8mb4",
        "name_prefix": "(64)",  # of a table's longest name: MySQL 5.6 indexes 767 bytes of a column at most
        "lock": " FOR UPDATE",
        "if_there": "ON DUPLICATE KEY UPDATE destination = VALUES(destination)",
    }
    where = f"{parts.hostname}:{parts.port or 3306}/{database}"
    return SqlStore(
        destination, connect, where=where, mark="%s", ignore="IGNORE", types=types, claim=claim, shared=True
    )


def _alive(connection: Any) -> bool:
    """Return whether the connection still works; a server closes idle ones."""
    if isinstance(connection, pymysql.Connection):
        try:
            connection.ping(reconnect=False)
        except pymysql.MySQLError:
            return False
    return True


# ---- rows


def _at_values(source: str, at: LogPosition) -> tuple[object, ...]:
    return (at.journal, at.offset, source, at.timestamp_ms)


def _at(row: Sequence[Any]) -> LogPosition:
    """row: journal, offset, time, extra."""
    extra = json.loads(row[3] or "{}")
    return LogPosition(
        journal=str(row[0]), offset=int(row[1]), timestamp_ms=int(row[2]), sub_index=int(extra.get("sub") or 0)
    )


def _record(row: Sequence[Any]) -> Record:
    since = json.loads(row[3] or "{}").get("since")
    return Record(_at(row), str(row[4] or ""), str(row[6]), str(row[5] or ""), from_place(since) if since else None)


def _snapshot(
    row: Sequence[Any],
    parts: Mapping[tuple[str, int], Sequence[Mapping[str, Any]]],
    definitions: Mapping[str, str],
) -> TableSnapshot:
    """Read a snapshot.

    row: journal, offset, time, extra, data.
    parts: those of all snapshots.
    definitions: by digest.
    """
    at, extra = _at(row), json.loads(row[3] or "{}")
    if not extra.get("parts"):  # an older format, with the statements themselves
        left_out = extra.get("left_out")
        return TableSnapshot(at, _scripted(row[4]), None if left_out is None else _names(left_out))
    own = parts.get((at.journal, at.offset), ())
    tables = {
        (schema, table): definitions[digest]
        for part in own
        for schema, digests in part["tables"].items()
        for table, digest in digests.items()
    }
    left_out = [name for part in own for name in part["left_out"]]
    return TableSnapshot(at, tables, _names(left_out) if extra["complete"] else None)


def _parts(snapshot: TableSnapshot, digests: Mapping[str, str]) -> Iterator[str]:
    """Yield the tables of a snapshot as JSON texts of bounded size. digests: by definition."""
    tables: dict[str, dict[str, str]] = defaultdict(dict)
    left_out: list[tuple[str, str]] = []
    size = 0
    for schema, table in (*snapshot.tables, *sorted(snapshot.left_out or ())):
        definition = snapshot.tables.get((schema, table))
        if definition is None:
            left_out.append((schema, table))
        else:
            tables[schema][table] = digests[definition]
        size += 64 + 4 * len(table) + 4 * len(schema)
        if size >= _PART_BYTES:
            yield json.dumps({"tables": tables, "left_out": left_out}, ensure_ascii=False)
            tables.clear()
            left_out.clear()
            size = 0
    yield json.dumps({"tables": tables, "left_out": left_out}, ensure_ascii=False)


def _digest(definition: str) -> str:
    return hashlib.blake2b(definition.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _names(pairs: Iterable[Sequence[Any]]) -> frozenset[tuple[str, str]]:
    return frozenset((str(schema), str(table)) for schema, table in pairs)


def _scripted(text: str) -> dict[tuple[str, str], str]:
    """Read tables from a JSON object of scripts, by schema."""
    named = (
        ((schema, table_of(sql)), definition_of(sql))
        for schema, script in json.loads(text).items()
        for sql in statements(script)
    )
    return {(schema, table): definition for (schema, table), definition in named if table is not None}
