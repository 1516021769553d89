"""Tables whose columns change often, and a record of each row as it was written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from canal_ha.client.rows import Row
from lab import SqlServer

Written = tuple[str, dict[str, Any]]  # table, columns by name


@dataclass
class Shapes:
    """A schema with tables of integer columns. written: every inserted row, in order."""

    server: SqlServer
    schema: str
    tables: dict[str, list[str]] = field(default_factory=dict)
    written: list[Written] = field(default_factory=list)
    random: Random = field(default_factory=lambda: Random(20))
    _number: int = 0
    _connection: Any = None

    def create(self, count: int = 4) -> None:
        """Create the schema and its first tables."""
        self.server.execute(f"CREATE DATABASE {self.schema}")
        for _ in range(count):
            self._create()

    def change(self, statements: int) -> None:
        """Run about `statements` statements, half of them inserts.

        All columns are integers: only their names tell them apart.
        """
        kinds = [self._add, self._drop, self._rename_column, self._swap, self._rename, self._replace, self._index]
        for _ in range(statements // 2):
            self.random.choice(kinds)()
            self.insert(self.random.choice(list(self.tables)))

    def insert(self, table: str) -> None:
        """Insert one row of random values, and note it in `written`."""
        self._number += 1
        row: dict[str, Any] = {"id": self._number}
        row |= {column: self.random.randrange(1_000_000) for column in self.tables[table]}
        values = ", ".join(str(value) for value in row.values())
        self._run(f"INSERT INTO {{}}.{table} VALUES ({values})")
        self.written.append((table, row))

    def insert_everywhere(self) -> None:
        """Insert one row into each table."""
        for table in self.tables:
            self.insert(table)

    def _run(self, sql: str) -> None:
        if self._connection is None:
            self._connection = self.server.connect()
        with self._connection.cursor() as cursor:
            cursor.execute(sql.format(f"`{self.schema}`"))

    def _next(self, letter: str) -> str:
        self._number += 1
        return f"{letter}{self._number}"

    def _table(self) -> str:
        return self.random.choice(list(self.tables))

    def _create(self) -> None:
        table, columns = self._next("t"), [self._next("c") for _ in range(self.random.randint(2, 4))]
        defined = "".join(f", {column} int" for column in columns)
        self._run(f"CREATE TABLE {{}}.{table} (id int PRIMARY KEY{defined})")
        self.tables[table] = columns

    def _add(self) -> None:
        table, column = self._table(), self._next("c")
        if self.random.random() < 0.5:
            self._run(f"ALTER TABLE {{}}.{table} ADD COLUMN {column} int AFTER id")
            self.tables[table].insert(0, column)
        else:
            self._run(f"ALTER TABLE {{}}.{table} ADD {column} int")
            self.tables[table].append(column)

    def _drop(self) -> None:
        table = self._table()
        if len(self.tables[table]) > 1:
            column = self.random.choice(self.tables[table])
            self._run(f"ALTER TABLE {{}}.{table} DROP COLUMN {column}")
            self.tables[table].remove(column)

    def _rename_column(self) -> None:
        table, new = self._table(), self._next("c")
        at = self.random.randrange(len(self.tables[table]))
        self._run(f"ALTER TABLE {{}}.{table} CHANGE {self.tables[table][at]} {new} int")
        self.tables[table][at] = new

    def _swap(self) -> None:
        table = self._table()
        columns = self.tables[table]
        self._run(f"ALTER TABLE {{}}.{table} MODIFY {columns[-1]} int AFTER id")
        columns.insert(0, columns.pop())

    def _rename(self) -> None:
        table, new = self._table(), self._next("t")
        self._run(f"RENAME TABLE {{0}}.{table} TO {{0}}.{new}")
        self.tables[new] = self.tables.pop(table)

    def _replace(self) -> None:
        self._run(f"DROP TABLE {{}}.{self._table_out()}")
        self._create()

    def _table_out(self) -> str:
        table = self._table()
        del self.tables[table]
        return table

    def _index(self) -> None:
        self._run(f"CREATE INDEX {self._next('i')} ON {{}}.{self._table()} (id)")


def seen(rows: Sequence[Row]) -> list[Written]:
    """Return the rows that a client got in the form of `written`; leave out entries without an after image."""
    return [(row.table, dict(row.after)) for row in rows if row.after is not None]
