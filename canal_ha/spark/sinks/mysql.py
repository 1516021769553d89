"""MySQL or MariaDB: applies each portion of a batch with all its tables, its id and its end in one transaction.

Changed keys are deleted, and existing rows are inserted again. Unlike an upsert, this works if the values of a second
unique key swapped places within the batch. Missing tables and columns are added first, as declared at the source, and
columns with a new declaration are changed. These statements commit separately and can be repeated. The copy compares
texts byte by byte, so keys that differ at the source differ in the copy. A value that the copy cannot hold ends the
query; no value is truncated or changed. No text of the source becomes SQL: declarations are rebuilt and names are
quoted. The sink writes only to allowed databases.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pymysql
from pymysql.constants import ER

from canal_ha.config.model import TlsConfig
from canal_ha.errors import SinkRefused, SourceRefused
from canal_ha.pipeline.databases import SCHEMA, refusal
from canal_ha.pipeline.declaration import declaration
from canal_ha.source.connection.tls import Connection, secured
from canal_ha.spark.fold import Key, Row, TableChanges
from canal_ha.spark.lineage import Epoch, ReportedProgress
from canal_ha.spark.mysql_types import ColumnType, plain
from canal_ha.spark.sinks.batch import MicroBatch

T = TypeVar("T")
STATE_TABLE = "canal_ha_batches"
TARGETS_TABLE = "canal_ha_targets"
PREFERRED = TlsConfig()
CHUNK = 500  # rows per statement
_COLLATIONS = ("utf8mb4_nopad_bin", "utf8mb4_0900_bin", "utf8mb4_bin")  # the last one ignores trailing spaces
_NAME_BYTES = 64 * 3  # of a name of a database or table
_LENIENT = "NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES"
_STRICT = f"{_LENIENT},STRICT_ALL_TABLES"
_SESSION = f"SET SESSION time_zone = '+00:00', foreign_key_checks = 0, sql_mode = '{_STRICT}'"


class MySQL:
    """A sink for MySQL and MariaDB.

    address: host:port.
    user, password: account.
    database: database of the copies; `{schema}` is replaced by the source's schema.
    state_database: database of the sink's state.
    databases: globs of the databases that the sink may write copies to.
    tls: towards the target.
    """

    def __init__(
        self,
        address: str,
        user: str,
        password: str,
        database: str,
        state_database: str,
        databases: Sequence[str],
        tls: TlsConfig = PREFERRED,
    ) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port = host, int(port)
        self._user, self._password = user, password
        self._database, self._state_database, self._databases = database, state_database, databases
        self._tls = tls
        self._collation = ""  # not read yet
        self._ignores_case: bool | None = None  # not read yet

    def check(self) -> str:
        """Connect and create the state tables; return a description. Raises SinkRefused."""
        with self._connect() as connection:
            self._prepare_state(connection)
            version = connection.get_server_info()  # type: ignore[no-untyped-call]  # PyMySQL leaves it untyped
            return f"{version} at {self._host}:{self._port}"

    def apply(self, batch: MicroBatch) -> None:
        """Write what the target does not have yet, each portion of a batch in one transaction. Raises SinkRefused."""
        try:
            with self._connect() as connection, connection.cursor() as cursor:
                self._prepare_state(connection)
                for portion in batch.portions:
                    while not self._applied(connection, cursor, portion):
                        continue
        except pymysql.MySQLError as error:
            raise SinkRefused(f"mysql at {self._host}:{self._port}, batch {batch.batch_id}: {error}") from error

    def _applied(self, connection: pymysql.Connection[Any], cursor: Any, batch: MicroBatch) -> bool:
        """Try to write once; return False if another driver wrote between the read and the transaction."""
        done = self._done(cursor, batch)
        tables = batch.after(done)
        for changes in tables.values():
            self._check_target(changes)
        new_targets = self._new_targets(cursor, batch, tables.values())
        for changes in tables.values():
            self._prepare_table(cursor, changes)
        connection.begin()
        if self._done(cursor, batch, "FOR UPDATE") != done:
            connection.rollback()
            return False
        for changes in tables.values():
            self._write(cursor, changes)
        for (database, table), changes in new_targets.items():
            cursor.execute(
                f"INSERT INTO {self._state(TARGETS_TABLE)} (run, `database`, `table`, source) VALUES (%s, %s, %s, %s)",
                (batch.run, database, table, changes.name),
            )
        self._claim(cursor, batch, done)
        connection.commit()
        return True

    def _connect(self) -> pymysql.Connection[Any]:
        try:
            return Connection(
                host=self._host,
                port=self._port,
                user=self._user,
                password=self._password.encode(),  # PyMySQL would encode text as Latin-1
                charset="utf8mb4",
                autocommit=True,
                init_command=_SESSION,
                **secured(self._tls),
            )
        except (pymysql.MySQLError, SourceRefused) as error:
            raise SinkRefused(f"mysql at {self._host}:{self._port}: {error}") from error

    def _state(self, table: str = STATE_TABLE) -> str:
        return f"{bound(self._state_database)}.{bound(table)}"

    def _prepare_state(self, connection: pymysql.Connection[Any]) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {quoted(self._state_database)}")
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {self._state()} (run VARCHAR(64), spool VARCHAR(64),"
                " segment BIGINT NOT NULL, batch_id BIGINT NOT NULL, applied TIMESTAMP NOT NULL"
                " DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, PRIMARY KEY (run, spool)) ENGINE=InnoDB",
                (),
            )
            cursor.execute(f"SHOW COLUMNS FROM {self._state()} LIKE 'writer'", ())
            if not cursor.fetchall():  # an earlier version created the table
                with _unless_there():
                    cursor.execute(f"ALTER TABLE {self._state()} ADD COLUMN writer VARCHAR(64)", ())
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {self._state(TARGETS_TABLE)} (run VARCHAR(64),"
                f" `database` VARBINARY({_NAME_BYTES}), `table` VARBINARY({_NAME_BYTES}),"
                f" source VARBINARY({2 * _NAME_BYTES + 1}) NOT NULL,"
                " PRIMARY KEY (run, `database`, `table`)) ENGINE=InnoDB",
                (),
            )

    def _done(self, cursor: Any, batch: MicroBatch, locking: str = "") -> dict[str, ReportedProgress]:
        """Read the target's progress, by spool. locking: lock the rows until the transaction ends."""
        cursor.execute(f"SELECT spool, segment, writer FROM {self._state()} WHERE run = %s {locking}", (batch.run,))
        return {
            spool: ReportedProgress(segment, Epoch.parse(writer) if writer else None)
            for spool, segment, writer in cursor.fetchall()
            if spool in batch.ends
        }

    def _claim(self, cursor: Any, batch: MicroBatch, done: Mapping[str, ReportedProgress]) -> None:
        """Store the batch's end. If two drivers insert the first row at once, one of them gets an error."""
        for spool, end in batch.ends_after(done).items():
            writer = str(end.writer) if end.writer else None
            if spool not in done:
                cursor.execute(
                    f"INSERT INTO {self._state()} (run, spool, segment, writer, batch_id) VALUES (%s, %s, %s, %s, %s)",
                    (batch.run, spool, end.seq, writer, batch.batch_id),
                )
            elif end != done[spool]:
                cursor.execute(
                    f"UPDATE {self._state()} SET segment = %s, writer = %s, batch_id = %s"
                    " WHERE run = %s AND spool = %s",
                    (end.seq, writer, batch.batch_id, batch.run, spool),
                )

    def _target(self, changes: TableChanges) -> tuple[str, str]:
        return self._database.replace(SCHEMA, changes.schema), changes.table

    def _check_target(self, changes: TableChanges) -> None:
        """Check that the sink may write the database of a table's copy. Raises SinkRefused."""
        database, _ = self._target(changes)
        why = refusal(database, self._databases, self._state_database)
        if why:
            raise SinkRefused(
                f"mysql at {self._host}:{self._port}: {changes.name} of the source would go into the database"
                f" {database!r}, {why}; list the tables to copy under `tables`, choose another database, such as"
                " 'copy_{schema}', or list what the sink may write under `databases`"
            )

    def _new_targets(
        self, cursor: Any, batch: MicroBatch, tables: Iterable[TableChanges]
    ) -> dict[tuple[str, str], TableChanges]:
        """Return the tables whose first rows are in this batch, by database and table as the server distinguishes them.

        cursor: a cursor on the server.
        batch: the batch.
        tables: its folded changes.
        Raises SinkRefused if two tables of the source would share a target: rows of one would replace, and statements
        about one would empty, those of the other.
        """
        found: dict[tuple[str, str], TableChanges] = {}
        for changes in tables:
            target = self._told_apart(cursor, *self._target(changes))
            if target in found:
                raise self._shared(target, found[target].name, changes.name, "")
            found[target] = changes
        new = {}
        for target, changes in found.items():
            cursor.execute(
                f"SELECT source FROM {self._state(TARGETS_TABLE)} WHERE run = %s AND `database` = %s AND `table` = %s",
                (batch.run, *target),
            )
            row = cursor.fetchone()
            if row is None and changes.rows:
                new[target] = changes
            elif row is not None and row[0].decode() != changes.name:
                gone = (
                    f". If {row[0].decode()} no longer exists, delete its row for run {batch.run!r} from"
                    f" {self._state_database}.{TARGETS_TABLE}, and restart the query"
                )
                raise self._shared(target, row[0].decode(), changes.name, gone)
        return new

    def _told_apart(self, cursor: Any, database: str, table: str) -> tuple[str, str]:
        """Return a target's names, in lower case if the server ignores case; reads the setting once."""
        if self._ignores_case is None:
            cursor.execute("SELECT @@lower_case_table_names")
            self._ignores_case = int(cursor.fetchone()[0]) != 0
        return (database.lower(), table.lower()) if self._ignores_case else (database, table)

    def _shared(self, target: tuple[str, str], one: str, other: str, more: str) -> SinkRefused:
        first, second = sorted((one, other))
        if first.lower() == second.lower():
            advice = "this server ignores the case of names; rename one of the two, or exclude it under `tables`"
        else:
            advice = (
                "exclude one of the two under `tables`, or give each schema its own database:"
                " database = 'copy_{schema}'"
            )
        return SinkRefused(
            f"mysql at {self._host}:{self._port}: {first} and {second} of the source would both go into the table"
            f" {'.'.join(target)}; {advice}{more}"
        )

    def _prepare_table(self, cursor: Any, changes: TableChanges) -> None:
        database, table = self._target(changes)
        collation = self._binary_collation(cursor)
        known = self._known_columns(cursor, database, table)
        if not known:
            if not changes.rows:
                return
            columns = [
                f"{quoted(name)} {declared(changes, name, column, collation)}"
                for name, column in changes.columns.items()
            ]
            keys = ", ".join(map(quoted, changes.keys))
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {quoted(database)}")
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {quoted(database)}.{quoted(table)}"
                f" ({', '.join(columns)}, PRIMARY KEY ({keys})) DEFAULT CHARSET=utf8mb4"
            )
            return
        columns_now = {**{name: added.column for name, added in changes.added.items()}, **changes.columns}
        alter = f"ALTER TABLE {quoted(database)}.{quoted(table)}"
        for name, column in columns_now.items():
            if name.lower() not in known:
                cursor.execute(f"{alter} ADD COLUMN {quoted(name)} {declared(changes, name, column, collation)}")
        for name, column in changes.retyped.items():
            if name.lower() in known:
                cursor.execute(f"{alter} MODIFY COLUMN {quoted(name)} {declared(changes, name, column, collation)}")
        self._check_key(cursor, changes)

    def _check_key(self, cursor: Any, changes: TableChanges) -> None:
        """Raise SinkRefused if rows with different keys of the source would have one key in the copy."""
        database, table = self._target(changes)
        cursor.execute(
            "SELECT column_name FROM information_schema.key_column_usage"
            " WHERE table_schema = %s AND table_name = %s AND constraint_name = 'PRIMARY'",
            (database, table),
        )
        own = {str(name).lower() for (name,) in cursor.fetchall()}
        if changes.rows and own and not {name.lower() for name in changes.keys} <= own:
            keys = ", ".join(map(quoted, changes.keys))
            raise SinkRefused(
                f"mysql at {self._host}:{self._port}: {changes.name} has the key ({', '.join(changes.keys)}) now, and"
                f" its copy has another primary key ({', '.join(sorted(own))}); run: ALTER TABLE"
                f" {quoted(database)}.{quoted(table)} DROP PRIMARY KEY, ADD PRIMARY KEY ({keys});"
                " then start the query again"
            )

    def _binary_collation(self, cursor: Any) -> str:
        """Return the server's strictest binary collation; reads the list once."""
        if not self._collation:
            cursor.execute(
                "SELECT collation_name FROM information_schema.collations WHERE collation_name IN %s", (_COLLATIONS,)
            )
            there = {str(name) for (name,) in cursor.fetchall()}
            self._collation = next((name for name in _COLLATIONS if name in there), _COLLATIONS[-1])
        return self._collation

    def _known_columns(self, cursor: Any, database: str, table: str) -> set[str]:
        cursor.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s",
            (database, table),
        )
        return {str(row[0]).lower() for row in cursor.fetchall()}

    def _write(self, cursor: Any, changes: TableChanges) -> None:
        database, table = self._target(changes)
        target = f"{bound(database)}.{bound(table)}"
        known = self._known_columns(cursor, database, table)
        if not known:
            return  # nothing was copied before, and there is nothing to copy
        if changes.emptied:
            cursor.execute(f"DELETE FROM {target}", ())
        for former in changes.former:
            self._delete(cursor, target, former.columns, former.keys)
        for name in changes.dropped & known:  # if the column is added again, its old values must not reappear
            cursor.execute(f"UPDATE {target} SET {bound(name)} = NULL", ())
        for name, added in changes.added.items():
            if added.default is not None:
                cursor.execute(f"UPDATE {target} SET {bound(name)} = %s", (value(added.default, added.column),))
        if not changes.emptied:
            self._delete(cursor, target, {name: changes.columns[name] for name in changes.keys}, list(changes.rows))
        enums = [name for name, kind in changes.columns.items() if kind.name == "enum"]
        plain_rows: list[Row] = []
        odd: list[Row] = []
        for row in changes.kept:
            (odd if any(row.get(name) == "0" for name in enums) else plain_rows).append(row)
        self._insert(cursor, target, changes.columns, plain_rows)
        if not odd:
            return
        # value 0 marks an invalid label at the source; strict mode rejects it
        cursor.execute("SET SESSION sql_mode = %s", (_LENIENT,))
        for row in odd:
            self._insert(cursor, target, changes.columns, [row])
            cursor.execute("SHOW WARNINGS")
            bent = [text for _, _, text in cursor.fetchall() if not any(f"'{name}'" in text for name in enums)]
            if bent:
                raise SinkRefused(f"mysql at {self._host}:{self._port}: {changes.name}: {bent[0]}")
        cursor.execute("SET SESSION sql_mode = %s", (_STRICT,))

    @staticmethod
    def _delete(cursor: Any, target: str, columns: Mapping[str, ColumnType], keys: Sequence[Key]) -> None:
        names = ", ".join(map(bound, columns))
        for chunk in chunks(keys):
            marks = ", ".join(f"({', '.join(['%s'] * len(columns))})" for _ in chunk)
            values = [value(text, kind) for key in chunk for text, kind in zip(key, columns.values(), strict=True)]
            cursor.execute(f"DELETE FROM {target} WHERE ({names}) IN ({marks})", values)

    @staticmethod
    def _insert(cursor: Any, target: str, types: Mapping[str, ColumnType], rows: Sequence[Row]) -> None:
        columns = list(types.items())
        head = f"INSERT INTO {target} ({', '.join(bound(name) for name, _ in columns)}) VALUES "
        row_marks = f"({', '.join(['%s'] * len(columns))})"
        for chunk in chunks(rows):
            values = [value(row.get(name), kind) for row in chunk for name, kind in columns]
            cursor.execute(head + ", ".join([row_marks] * len(chunk)), values)


@contextmanager
def _unless_there() -> Iterator[None]:
    """Ignore the error that another driver added the column first."""
    try:
        yield
    except pymysql.MySQLError as error:
        if error.args[0] != ER.DUP_FIELDNAME:
            raise


def chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Split items into chunks of CHUNK."""
    return (items[at : at + CHUNK] for at in range(0, len(items), CHUNK))


def quoted(name: str) -> str:
    """Return a quoted identifier."""
    return f"`{name.replace('`', '``')}`"


def bound(name: str) -> str:
    """Return a quoted identifier for a statement with values, where PyMySQL interprets percent signs."""
    return quoted(name).replace("%", "%%")


def declared(changes: TableChanges, name: str, column: ColumnType, collation: str) -> str:
    """Declare a column as the source does, but generated columns become plain ones and timestamps may be NULL.

    changes: the column's table.
    name, column: the column.
    collation: of texts, ENUM and SET.
    """
    sql = declaration(column.text, changes.name, name).sql(collation)
    return f"{sql} NULL" if column.name == "timestamp" else sql


def value(text: str | None, column: ColumnType) -> str | bytes | int | None:
    """Convert a value for PyMySQL. Enum and set become numbers, because labels may look like numbers."""
    if text is None:
        return None
    if column.name in ("enum", "set", "integer", "bit"):
        return int(text)
    return plain(text, column)
