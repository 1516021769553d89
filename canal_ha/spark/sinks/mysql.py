"""MySQL or MariaDB: all tables of a batch and its id in one transaction, so that it is there once or not at all.

Changed keys are deleted and, where a row exists, inserted again: unlike an upsert this cannot trip over a second unique
key whose values changed places within the batch. Tables and columns that are missing are added first, as the source
declares them; that commits on its own, and repeating it does no harm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import pymysql

from canal_ha.errors import SinkRefused
from canal_ha.spark.fold import TableChanges
from canal_ha.spark.mysql_types import ColumnType, plain
from canal_ha.spark.sinks.batch import Batch

T = TypeVar("T")
STATE_TABLE = "canal_ha_batches"
CHUNK = 500  # rows per statement
_SESSION = (
    "SET SESSION time_zone = '+00:00', foreign_key_checks = 0,"
    " sql_mode = 'NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO'"
)


class MySQL:
    """address: host:port; database: where tables go, `{schema}` stands for the source's; the ids of batches are kept in
    `state_database`.
    """

    def __init__(self, address: str, user: str, password: str, database: str, state_database: str) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port = host or address, int(port) if host else 3306
        self._user, self._password = user, password
        self._database, self._state_database = database, state_database

    def check(self) -> str:
        """Connect, and make the table of batch ids."""
        with self._connect() as connection:
            self._prepare_state(connection)
            version = connection.get_server_info()  # type: ignore[no-untyped-call]  # PyMySQL leaves it untyped
            return f"{version} at {self._host}:{self._port}"

    def apply(self, batch: Batch) -> None:
        """Write unless the target has it."""
        try:
            with self._connect() as connection, connection.cursor() as cursor:
                self._prepare_state(connection)
                for changes in batch.tables.values():
                    self._prepare_table(cursor, changes)
                connection.begin()
                if self._applied(cursor, batch):
                    connection.rollback()
                    return
                for changes in batch.tables.values():
                    self._write(cursor, changes)
                connection.commit()
        except pymysql.MySQLError as error:
            raise SinkRefused(f"mysql at {self._host}:{self._port}, batch {batch.batch_id}: {error}") from error

    def _connect(self) -> pymysql.Connection[Any]:
        try:
            return pymysql.connect(
                host=self._host,
                port=self._port,
                user=self._user,
                password=self._password,
                charset="utf8mb4",
                autocommit=True,
                init_command=_SESSION,
            )
        except pymysql.MySQLError as error:
            raise SinkRefused(f"mysql at {self._host}:{self._port}: {error}") from error

    def _state(self) -> str:
        return f"{quoted(self._state_database)}.{quoted(STATE_TABLE)}"

    def _prepare_state(self, connection: pymysql.Connection[Any]) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {quoted(self._state_database)}")
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {self._state()} (run VARCHAR(64) PRIMARY KEY, batch_id BIGINT NOT NULL,"
                " applied TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP) ENGINE=InnoDB"
            )

    def _applied(self, cursor: Any, batch: Batch) -> bool:
        """Claim the batch: the row stays locked, and a second driver waits, until this transaction ends."""
        cursor.execute(f"INSERT IGNORE INTO {self._state()} (run, batch_id) VALUES (%s, -1)", (batch.run,))
        cursor.execute(f"SELECT batch_id FROM {self._state()} WHERE run = %s FOR UPDATE", (batch.run,))
        if cursor.fetchone()[0] >= batch.batch_id:
            return True
        cursor.execute(f"UPDATE {self._state()} SET batch_id = %s WHERE run = %s", (batch.batch_id, batch.run))
        return False

    def _target(self, changes: TableChanges) -> tuple[str, str]:
        return self._database.replace("{schema}", changes.schema), changes.table

    def _prepare_table(self, cursor: Any, changes: TableChanges) -> None:
        database, table = self._target(changes)
        known = self._known_columns(cursor, database, table)
        if not known:
            if not changes.rows:
                return
            columns = [f"{quoted(name)} {declared(column)}" for name, column in changes.columns.items()]
            keys = ", ".join(map(quoted, changes.keys))
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {quoted(database)}")
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {quoted(database)}.{quoted(table)}"
                f" ({', '.join(columns)}, PRIMARY KEY ({keys})) DEFAULT CHARSET=utf8mb4"
            )
            return
        columns_now = {**{name: added.column for name, added in changes.added.items()}, **changes.columns}
        for name, column in columns_now.items():
            if name.lower() not in known:
                cursor.execute(
                    f"ALTER TABLE {quoted(database)}.{quoted(table)} ADD COLUMN {quoted(name)} {declared(column)}"
                )

    def _known_columns(self, cursor: Any, database: str, table: str) -> set[str]:
        cursor.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s",
            (database, table),
        )
        return {str(row[0]).lower() for row in cursor.fetchall()}

    def _write(self, cursor: Any, changes: TableChanges) -> None:
        database, table = self._target(changes)
        target = f"{quoted(database)}.{quoted(table)}"
        if not self._known_columns(cursor, database, table):
            return  # nothing was ever copied, and there is nothing to copy
        if changes.emptied:
            cursor.execute(f"DELETE FROM {target}")
        for name, added in changes.added.items():
            if added.default is not None:
                cursor.execute(f"UPDATE {target} SET {quoted(name)} = %s", (value(added.default, added.column),))
        key_types = [changes.columns[name] for name in changes.keys]
        names = ", ".join(map(quoted, changes.keys))
        keys = [] if changes.emptied else list(changes.rows)
        for chunk in chunks(keys):
            marks = ", ".join(f"({', '.join(['%s'] * len(changes.keys))})" for _ in chunk)
            values = [value(text, kind) for key in chunk for text, kind in zip(key, key_types, strict=True)]
            cursor.execute(f"DELETE FROM {target} WHERE ({names}) IN ({marks})", values)
        columns = list(changes.columns.items())
        head = f"INSERT INTO {target} ({', '.join(quoted(name) for name, _ in columns)}) VALUES "
        row_marks = f"({', '.join(['%s'] * len(columns))})"
        for rows in chunks(changes.kept):
            values = [value(row.get(name), kind) for row in rows for name, kind in columns]
            cursor.execute(head + ", ".join([row_marks] * len(rows)), values)


def chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """In portions of CHUNK."""
    return (items[at : at + CHUNK] for at in range(0, len(items), CHUNK))


def quoted(name: str) -> str:
    """An identifier."""
    return f"`{name.replace('`', '``')}`"


def declared(column: ColumnType) -> str:
    """A column's declaration: as the source's; generated columns become plain ones, timestamps may be NULL."""
    return f"{column.text} NULL" if column.name == "timestamp" else column.text


def value(text: str | None, column: ColumnType) -> str | bytes | int | None:
    """What PyMySQL sends. Enum and set go as numbers: their labels may look like some."""
    if text is None:
        return None
    if column.labels or column.name in ("integer", "bit"):
        return int(text)
    return plain(text, column)
