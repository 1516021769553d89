"""Writes to the database and records the rows that must arrive."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Self

import pymysql

SCHEMA, TABLE = "shop", "orders"

CREATE = f"""\
CREATE TABLE {SCHEMA}.{TABLE} (
  id BIGINT UNSIGNED NOT NULL PRIMARY KEY, customer VARCHAR(60) NOT NULL, amount DECIMAL(12,2), paid TINYINT(1),
  status ENUM('new','sent','returned') NOT NULL, placed DATETIME NOT NULL, weight DOUBLE, photo BLOB,
  version INT NOT NULL) DEFAULT CHARSET=utf8mb4"""

COMPARED = ("id", "customer", "amount", "paid", "placed", "version")
"""The columns in which the table rebuilt from arrived rows is compared with the database's."""


def comparable(column: str, value: object) -> object:
    """Return a value as text, None or a number; amounts as numbers because canal's text for 10.00 is 10.0."""
    if value is None:
        return None
    return Decimal(str(value)) if column == "amount" else str(value)


@dataclass(frozen=True, slots=True)
class Change:
    """One changed row; each is unique. version: of the row after the change, or before a DELETE."""

    kind: str
    key: int
    version: int


class Writer:
    """Changes the table and records committed changes in binlog order. Use it from one thread at a time.

    committed: all changes; starts: the indexes in it at which transactions begin.
    """

    def __init__(self, connection: pymysql.Connection[Any], show: Callable[[str], None]) -> None:
        self.committed: list[Change] = []
        self.starts: set[int] = set()
        self._connection = connection
        self._show = show
        self._versions: dict[int, int] = {}
        self._pending: list[Change] = []
        self._keys = itertools.count(1000)

    def create(self) -> None:
        """Create schema and table."""
        self._run(f"CREATE DATABASE {SCHEMA}")
        self._run(CREATE)

    def story(self) -> Iterator[None]:
        """Make changes of every kind, one transaction at a time, and show the statements."""
        insert = f"INSERT INTO {SCHEMA}.{TABLE} VALUES "
        self._transaction(
            insert + "(1, 'Ada', 12.50, 1, 'new', '2024-02-29 10:00:00', 0.1, x'00ff', 1),"
            " (2, 'Grace', 99999999.99, 0, 'new', '1999-12-31 23:59:59', 1e100, NULL, 1),"
            " (3, 'Ελένη 🦉', -0.01, NULL, 'sent', '2024-06-01 00:00:00', -2.5, '', 1)",
            inserted=(1, 2, 3),
        )
        yield
        self._transaction(
            f"UPDATE {SCHEMA}.{TABLE} SET paid = 1, status = 'sent', version = version + 1 WHERE id = 2", updated=(2,)
        )
        yield
        self._run(f"ALTER TABLE {SCHEMA}.{TABLE} ADD COLUMN discount DECIMAL(4,2) DEFAULT 0.05 AFTER amount")
        yield
        self._transaction(
            f"INSERT INTO {SCHEMA}.{TABLE} (id, customer, amount, discount, status, placed, version)"
            " VALUES (4, '李雷', 10, 0.25, 'new', '2024-06-02 08:30:00', 1)",
            inserted=(4,),
        )
        yield
        self._transaction(f"DELETE FROM {SCHEMA}.{TABLE} WHERE id = 1", deleted=(1,))
        yield
        self._show("BEGIN; UPDATE ... SET version = 99; ROLLBACK      (must not arrive)")
        with self._connection.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(f"UPDATE {SCHEMA}.{TABLE} SET version = 99")
            cursor.execute("ROLLBACK")
        yield

    def bulk(self, rows: int, per_transaction: int = 100) -> None:
        """Insert this many rows; each transaction also changes a fifth and deletes a tenth of its rows."""
        while rows > 0:
            self.mixed(self._connection, min(rows, per_transaction))
            rows -= per_transaction

    def mixed(self, connection: pymysql.Connection[Any], rows: int) -> None:
        """Insert this many rows over this connection, change a fifth and delete a tenth, in one transaction."""
        batch = list(itertools.islice(self._keys, rows))
        changed, gone = batch[: len(batch) // 5], batch[-(len(batch) // 10) :] if len(batch) >= 10 else []
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.executemany(
                f"INSERT INTO {SCHEMA}.{TABLE} (id, customer, amount, status, placed, version)"
                " VALUES (%s, %s, %s, %s, %s, %s)",
                [(key, f"customer {key}", key / 100, "new", "2024-06-03 12:00:00", 1) for key in batch],
            )
            self._note(inserted=batch)
            for statement, some in (("UPDATE {} SET version = version + 1", changed), ("DELETE FROM {}", gone)):
                if some:
                    table = statement.format(f"{SCHEMA}.{TABLE}")
                    cursor.execute(f"{table} WHERE id BETWEEN %s AND %s", (some[0], some[-1]))
            self._note(updated=changed, deleted=gone)
            cursor.execute("COMMIT")
            self._commit()

    def table(self) -> dict[str, tuple[object, ...]]:
        """Return the database's current table: key -> the compared columns."""
        columns = ", ".join(f"CAST({column} AS CHAR)" for column in COMPARED)
        with self._connection.cursor() as cursor:
            cursor.execute(f"SELECT {columns} FROM {SCHEMA}.{TABLE}")
            return {row[0]: tuple(map(comparable, COMPARED, row)) for row in cursor.fetchall()}

    def _run(self, statement: str) -> None:
        self._show(statement)
        with self._connection.cursor() as cursor:
            cursor.execute(statement)

    def _transaction(self, statement: str, **keys: tuple[int, ...]) -> None:
        self._run(statement)
        self._note(**keys)
        self._commit()

    def _note(self, inserted: tuple[int, ...] | list[int] = (), updated: Any = (), deleted: Any = ()) -> None:
        for key in inserted:
            self._versions[key] = 1
            self._pending.append(Change("INSERT", key, 1))
        for key in updated:
            self._versions[key] += 1
            self._pending.append(Change("UPDATE", key, self._versions[key]))
        self._pending.extend(Change("DELETE", key, self._versions.pop(key)) for key in deleted)

    def _commit(self) -> None:
        self.starts.add(len(self.committed))
        self.committed.extend(self._pending)
        self._pending.clear()


class SteadyWrites:
    """Writes small transactions from its own thread and connection, within a `with` block.

    pause_s: pause between two transactions, s. Leaving the block waits for the last one and raises the thread's error.
    """

    def __init__(self, writer: Writer, connection: pymysql.Connection[Any], *, rows: int, pause_s: float) -> None:
        self._writer = writer
        self._connection = connection
        self._rows = rows
        self._pause_s = pause_s
        self._ending = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._write, name="steady-writes", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _write(self) -> None:
        try:
            while not self._ending.wait(self._pause_s):
                self._writer.mixed(self._connection, self._rows)
        except Exception as failure:  # raised again when the block ends
            self._failure = failure
