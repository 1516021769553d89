"""Runs the statements of a script on a server, and asks the server for the rows before and after each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pymysql

from lab.differential.forms import Outcome, Statement
from lab.differential.steps import At, Rows, Step, Values
from lab.differential.values import same, seen, selected
from lab.differential.world import MARK, Column, Name, Table, World, full, quoted
from lab.mysql import SqlServer

_TABLES = """\
SELECT table_schema AS s, table_name AS t, create_options AS options, table_type AS type
FROM information_schema.tables WHERE table_schema IN ({schemas}) AND table_type <> 'VIEW'"""
_COLUMNS = """\
SELECT table_schema AS s, table_name AS t, column_name AS n, data_type AS kind, column_type AS definition,
 extra AS extra, is_nullable AS nullable
FROM information_schema.columns WHERE table_schema IN ({schemas}) ORDER BY table_schema, table_name, ordinal_position"""
_KEYS = """\
SELECT table_schema AS s, table_name AS t, column_name AS n FROM information_schema.key_column_usage
WHERE table_schema IN ({schemas}) AND constraint_name = 'PRIMARY'"""
_VERSIONED = ("SYSTEM VERSIONED",)
_ROWS_ONLY = ("INSERT", "REPLACE", "UPDATE", "DELETE", "BEGIN", "COMMIT", "SAVEPOINT", "ROLLBACK", "XA", "SET")
_VERSION_COLUMNS = tuple(
    Column(f"row_{end}", "timestamp", "timestamp(6)", f"ROW {end.upper()}") for end in ("start", "end")
)


class Oracle:
    """One session that runs statements, and another one that looks on.

    steps: everything that has run, in order.
    world: the tables now.
    """

    def __init__(self, server: SqlServer, schemas: tuple[str, ...]) -> None:
        """Create the schemas and the table of marks.

        server: a running server.
        schemas: of the script; the first one is the default.
        """
        self._status = server.status_statement
        server.execute(
            *(f"CREATE DATABASE {quoted(schema)} CHARACTER SET utf8mb4" for schema in schemas),
            f"CREATE TABLE {full((schemas[0], MARK))} (n bigint PRIMARY KEY)",
        )
        self._script = server.connect(database=schemas[0]).cursor()
        self._looker = server.connect().cursor()
        self._known: dict[Name, Rows] = {}
        self.steps: list[Step] = []
        self.world = World(schemas)
        self._at = self.position()
        self.marks = 0

    def close(self) -> None:
        """Close both sessions."""
        for cursor in (self._script, self._looker):
            cursor.connection.close()

    def run(self, statement: Statement) -> Outcome:
        """Run a statement as one step."""
        before = {name: self._rows(name) for name in statement.rows_of}
        refused = ""
        for sql in statement.sql:
            try:
                self._script.execute(sql)
                while self._script.nextset():
                    pass
            except pymysql.MySQLError as error:
                refused = refused or str(error)
        if not all(sql.lstrip().upper().startswith(_ROWS_ONLY) for sql in statement.sql) or self._sets(statement):
            self.world = self._seen()
            self._known.clear()
        for name in statement.rows_of:
            self._known.pop(name, None)
        rows = {name: (before[name], self._rows(name)) for name in statement.rows_of}
        end = self.position()
        self.steps.append(Step(len(self.steps), statement.sql, self._at, end, rows, refused))
        self._at = end
        return Outcome(self.world, not refused)

    def mark(self) -> int:
        """Write the next mark; a reader that has it has all steps."""
        self.marks += 1
        self._looker.execute(f"INSERT INTO {full((self.world.schemas[0], MARK))} VALUES ({self.marks})")
        self._at = self.position()
        return self.marks

    def control(self, sql: str) -> None:
        """Run a statement that is not part of the script."""
        self._looker.execute(sql)
        self._at = self.position()

    def position(self) -> At:
        """Return the end of the binlog."""
        self._looker.execute(self._status)
        row = self._looker.fetchone()
        assert row is not None
        return str(row[0]), int(row[1])

    def _sets(self, statement: Statement) -> bool:
        return any(sql.startswith("SET STATEMENT") for sql in statement.sql)

    def _rows(self, name: Name) -> Rows:
        if name not in self._known:
            table = self.world.table(name)
            self._known[name] = Rows() if table is None else Rows(table.columns, self._selected(table))
        return self._known[name]

    def _selected(self, table: Table) -> tuple[Values, ...]:
        """Return the rows of a table; none if the server cannot read it."""
        expressions = ", ".join(map(selected, table.columns))
        past = " FOR SYSTEM_TIME ALL" if table.versioned else ""
        try:
            self._looker.execute(f"SELECT {expressions} FROM {full(table.name)}{past}")
        except pymysql.MySQLError:  # MySQL 5.6 takes an ALTER after which it can neither read nor write the table
            return ()
        return tuple(
            tuple((each.name, same(each, seen(each, value))) for each, value in zip(table.columns, row, strict=True))
            for row in self._looker.fetchall()
        )

    def _seen(self) -> World:
        keys = set(self._asked(_KEYS))
        found: dict[Name, list[Column]] = {}
        for row in self._asked(_COLUMNS):
            found.setdefault((row[0], row[1]), []).append(_column(row, keys))
        tables = [
            Table((schema, table), tuple(found[schema, table]), "partitioned" in (options or ""), kind in _VERSIONED)
            for schema, table, options, kind in sorted(self._asked(_TABLES))
            if table != MARK and (schema, table) in found
        ]
        return replace(self.world, tables=tuple(map(_completed, tables)))

    def _asked(self, statement: str) -> list[Any]:
        """Return the rows for all schemas. There is no join: MariaDB ignores letter case in one."""
        schemas = self.world.schemas
        self._looker.execute(statement.format(schemas=", ".join(["%s"] * len(schemas))), schemas)
        return list(self._looker.fetchall())


def _column(row: Any, keys: set[Any]) -> Column:
    schema, table, name, kind, definition, extra, nullable = row
    definition = definition.decode() if isinstance(definition, bytes) else definition
    return Column(name, kind, definition, extra.upper(), (schema, table, name) in keys, nullable == "YES")


def _completed(table: Table) -> Table:
    if table.versioned and not any("ROW START" in column.extra for column in table.columns):
        return replace(table, columns=table.columns + _VERSION_COLUMNS)
    return table
