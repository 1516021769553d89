"""The table history compared with information_schema of real servers, after each statement of a corpus.

Row events follow each statement. The history reads only statements from the binlog: the table maps are stripped of
names and keys, and there is no server to ask. So every column name and key must come from the statements.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pymysql
import pytest

from canal_ha.decode.ddl.grammar import read
from canal_ha.decode.ddl.statements import CreateTable
from canal_ha.decode.entries import parse_query
from canal_ha.decode.history.history import History, TableHistory
from canal_ha.decode.table_map import TableMap, parse_table_map
from canal_ha.errors import TableUnknown
from canal_ha.model.position import LogPosition
from lab.mysql import SqlServer
from tests.compat.ddl_corpus import random_alter, statements

pytestmark = pytest.mark.real

Described = list[tuple[str, bool]]  # name, part of the primary key
_QUERY, _TABLE_MAP = 2, 19


@dataclass(frozen=True)
class Marked:
    """The tables, by name, as the server describes them at an offset of its binlog.

    statement: the last one before it.
    """

    offset: int
    tables: dict[str, Described]
    statement: str


def events(server: SqlServer, journal: str, start: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield (offset, type, body) of every event from `start` on."""
    data = (server.data / journal).read_bytes()
    offset = start
    while offset < len(data):
        size = struct.unpack_from("<I", data, offset + 9)[0]
        yield offset, data[offset + 4], data[offset + 19 : offset + size - 4]
        offset += size


def described(cursor: Any, database: str, prefix: str) -> dict[str, Described]:
    """Return the columns of the tables with this prefix, as the server describes them.

    Keys come from the constraints: column_key is also PRI for a unique key over NOT NULL columns.
    """
    cursor.execute(
        "SELECT table_name, column_name FROM information_schema.key_column_usage"
        " WHERE table_schema = %s AND table_name LIKE %s AND constraint_name = 'PRIMARY'",
        [database, f"{prefix}%"],
    )
    keys = set(cursor.fetchall())
    cursor.execute(
        "SELECT table_name, column_name FROM information_schema.columns"
        " WHERE table_schema = %s AND table_name LIKE %s ORDER BY table_name, ordinal_position",
        [database, f"{prefix}%"],
    )
    tables: dict[str, Described] = {}
    for table, column in cursor.fetchall():
        tables.setdefault(table, []).append((column, (table, column) in keys))
    return tables


def touch(cursor: Any, tables: dict[str, Described]) -> None:
    """Write a row of default values into each table that takes one, so that a table map is logged."""
    for table in tables:
        with suppress(pymysql.MySQLError):
            cursor.execute(f"REPLACE INTO `{table}` () VALUES ()")


def run(
    server: SqlServer, database: str, groups: Iterator[tuple[str, list[str]]], setting: str = ""
) -> tuple[str, int, list[Marked]]:
    """Execute the statements that the server accepts. Return its journal, the start offset and the marks.

    groups: (prefix of the tables that the statements make, statements).
    setting: what to add to SET SESSION.
    """
    server.execute(f"CREATE DATABASE `{database}` CHARACTER SET utf8mb4")
    journal, start = server.position()
    marks: list[Marked] = []
    with server.connect(database=database, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET SESSION sql_mode = 'NO_ENGINE_SUBSTITUTION'{setting}")
        seen: dict[str, Described] = {}
        for table, group in groups:
            for statement in group:
                try:
                    cursor.execute(statement)
                except pymysql.MySQLError:
                    continue
                tables = described(cursor, database, table)
                cursor.execute(server.status_statement)
                marks.append(Marked(int(cursor.fetchone()[1]), tables, statement))
                touch(cursor, {name: columns for name, columns in tables.items() if seen.get(name) != columns})
                seen |= tables
    return journal, start, marks


def disagreements(server: SqlServer, database: str, journal: str, start: int, marks: list[Marked]) -> Iterator[str]:
    """Yield each difference between the server's descriptions and the history, which is fed from the binlog."""
    view = History(lambda schema, table: None).view(LogPosition(journal, start))
    index = -1
    told: set[tuple[int, str]] = set()
    for offset, kind, body in events(server, journal, start):
        while index + 1 < len(marks) and marks[index + 1].offset <= offset:
            index += 1
        at = LogPosition(journal, offset)
        if kind == _QUERY:
            query = parse_query(body)
            if query.sql not in ("BEGIN", "COMMIT"):
                view.apply(at, query.schema, query.sql)
        elif kind == _TABLE_MAP:
            table_map = parse_table_map(body)
            if table_map.schema == database and (index, table_map.name) not in told:
                told.add((index, table_map.name))
                # rows of CREATE TABLE ... SELECT are logged before the mark of the statement
                mark = marks[index] if table_map.name in marks[index].tables else marks[index + 1]
                yield from compared(view, table_map, at, mark)


def compared(view: TableHistory, table_map: TableMap, at: LogPosition, mark: Marked) -> Iterator[str]:
    """Strip a table map of names and keys, and yield how the history's columns for it differ from the mark."""
    expected = mark.tables[table_map.name]
    with_names = [(name, index in (table_map.primary_key or ())) for index, name in enumerate(table_map.names or ())]
    try:
        schema = view.table(replace(table_map, names=None, primary_key=None), at)
    except TableUnknown as error:
        yield f"{mark.statement}\n   {error}\n   the event has {with_names}"
        return
    found = [(column.name, column.key) for column in schema.columns if not column.hidden]
    visible = [column for column in found if column[0] not in ("row_start", "row_end")]
    if visible != expected and found != expected:
        yield f"{mark.statement}\n   found    {found}\n   expected {expected}\n   event    {with_names}"


def test_every_statement_of_the_corpus(source_server: SqlServer, database: str) -> None:
    """After each statement that the server accepts, the history has the server's column names and primary key."""
    journal, start, marks = run(source_server, database, statements(source_server.flavor))
    wrong = list(disagreements(source_server, database, journal, start, marks))
    print(f"{source_server.flavor}: {len(marks)} statements taken")
    assert len(marks) > 400
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong)


@pytest.mark.nightly("the test above: the same statements")
def test_every_statement_with_generated_primary_keys(mysql: SqlServer, database: str) -> None:
    """The history has the primary key that MySQL adds to a table without one: the logged statement has it."""
    setting = ", SESSION sql_generate_invisible_primary_key = ON"
    journal, start, marks = run(mysql, database, statements("mysql"), setting)
    wrong = list(disagreements(mysql, database, journal, start, marks))
    assert any(("my_row_id", True) in columns for mark in marks for columns in mark.tables.values())
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong)


def test_definitions_of_the_server_are_read(source_server: SqlServer, database: str) -> None:
    """SHOW CREATE TABLE of each table of the corpus parses to the columns and primary key that the server has."""
    run(source_server, database, statements(source_server.flavor))
    wrong = []
    with source_server.connect(database=database) as connection, connection.cursor() as cursor:
        tables = described(cursor, database, "")
    with source_server.connect(database=database, use_unicode=False) as connection, connection.cursor() as cursor:
        for table, columns in tables.items():
            cursor.execute(f"SHOW CREATE TABLE `{table}`")
            statement = read(cursor.fetchone()[1].decode("utf-8", "replace"))  # MariaDB shows binary defaults raw
            assert isinstance(statement, CreateTable)
            found = [(column.name, column.key) for column in statement.columns]
            visible = [column for column in found if column[0] not in ("row_start", "row_end")]
            if columns not in (visible, found):
                wrong.append((table, found, columns))
    assert not wrong


def test_random_alters(source_server: SqlServer, database: str) -> None:
    """After any sequence of ALTER TABLE that the server accepts, the history has the server's columns."""
    random = Random(20)

    def groups() -> Iterator[tuple[str, list[str]]]:
        with source_server.connect(database=database, autocommit=True) as connection, connection.cursor() as cursor:
            for table in ("r0", "r1", "r2", "r3"):
                yield table, [f"CREATE TABLE {table} (a int PRIMARY KEY, b varchar(20), c bigint unsigned NOT NULL)"]
                for _ in range(150):
                    columns = [name for name, _ in described(cursor, database, table)[table]]
                    yield table, [random_alter(table, columns, random)]

    journal, start, marks = run(source_server, database, groups())
    wrong = list(disagreements(source_server, database, journal, start, marks))
    print(f"{source_server.flavor}: {len(marks)} statements taken")
    assert len(marks) > 150
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong)
