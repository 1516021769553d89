"""Which statements may change a table that a snapshot is reading. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import lru_cache

from canal_ha.decode.ddl.grammar import read
from canal_ha.decode.ddl.statements import (
    AlterTable,
    Change,
    ChangeDatabase,
    ChangeIndex,
    CreateTable,
    DropColumn,
    DropTables,
    Name,
    RenameColumn,
    RenameTables,
    SetColumn,
    Statement,
    TruncateTables,
)
from canal_ha.decode.ddl.tokens import Unreadable
from canal_ha.decode.types import type_name
from canal_ha.model.table import Column
from canal_ha.wire.proto import entry_protocol_pb2 as pb

_ESCAPED = re.compile('[`"\\\\]')  # characters of a name that a statement may write in another way
_OF_A_SCHEMA = re.compile("database|schema")
_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "integer", "bigint"})


def concerns(entry: bytes, *, schema: str, table: str) -> bool:
    """Return whether the entry of a statement may concern a table; True in doubt.

    entry: serialized.
    schema, table: names, compared without case.
    """
    parsed = pb.Entry.FromString(entry)
    change = pb.RowChange.FromString(parsed.storeValue)
    if not change.isDdl:
        return False  # the statement behind changes of rows, which come as rows
    if not change.sql:
        return True  # hidden, because a protected column may be in it
    default_schema = change.ddlSchemaName or parsed.header.schemaName
    try:
        statement = read(change.sql)
    except Unreadable:
        statement = None
    match statement:
        case None:  # some statement that the grammar does not know
            text = f"{parsed.header.schemaName}.{parsed.header.tableName} {change.sql}"
            return _mentions(text, table) or (_mentions(text, schema) and _mentions(text, "database", "schema"))
        case ChangeDatabase(changed):
            return changed.lower() == schema.lower()
        case DropTables(names) | TruncateTables(names):
            return _among(names, default_schema, schema, table)
        case RenameTables(pairs):
            return _among([name for pair in pairs for name in pair], default_schema, schema, table)
        case AlterTable(name):
            return _among([name, *_others(statement)], default_schema, schema, table)
        case CreateTable(name) | ChangeIndex(_, name):
            return _among([name], default_schema, schema, table)


def replaces(sql: str, default_schema: str, *, schema: str, table: str, key: Collection[str] | None) -> bool:
    """Return whether a statement can put other rows under the name of a table, or other values into its key.

    True in doubt. It is fast for many tables and one statement.
    sql, default_schema: the statement.
    schema, table, key: names of the table, and of the columns of its key; compared without case. key None: unknown.
    """
    match _parsed(sql):
        case Unreadable():
            return table.lower() in sql.lower() and _mentions(sql, table)
        case CreateTable(name, temporary=False, if_not_exists=False):  # it was dropped, or OR REPLACE drops it
            names = [name]
        case DropTables(dropped, temporary=False):
            names = list(dropped)
        case RenameTables(pairs):
            names = [name for pair in pairs for name in pair]
        case AlterTable(name, changes) as statement:
            others = _others(statement)
            columns = None if key is None else {column.lower() for column in key}
            other_rows = others or statement.imported or any(_gives_values(change, columns) for change in changes)
            names = [name, *others] if other_rows else []
        case ChangeDatabase(changed, drops=True):
            return changed.lower() == schema.lower()
        case _:
            return False
    return _among(names, default_schema, schema, table)


def may_name(sql: str, tables: tuple[str, ...]) -> list[int]:
    """Return the indices of the tables that a statement may name, or whose schema it may drop. Faster than `replaces`.

    tables: each with its schema, as schema.table.
    """
    text = sql.lower()
    of_a_schema = _OF_A_SCHEMA.search(text) is not None
    return [
        number
        for number, (schema, table) in enumerate(_sought(tables))
        if table in text or (of_a_schema and schema in text)
    ]


@lru_cache(maxsize=8)  # a snapshot asks for the same tables again and again
def _sought(tables: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return schema and name of each table in lower case; "" if a statement can write them in another way."""
    names = ((each if each.isascii() and not _ESCAPED.search(each) else ".").lower().partition(".") for each in tables)
    return [(schema, table) for schema, _, table in names]


def refills(sql: str, default_schema: str, *, schema: str, table: str) -> bool:
    """Return whether a statement can give a table rows that the stream does not bring; True in doubt.

    A table that was created is empty. Arguments: see `replaces`.
    """
    match _parsed(sql):
        case Unreadable():
            return table.lower() in sql.lower() and _mentions(sql, table)
        case RenameTables(pairs):
            names = [new for _, new in pairs]
        case AlterTable(name) as statement:
            takes = statement.absorbed or statement.exchanged or statement.imported
            others = (statement.renamed, statement.split_off, statement.exchanged)
            names = [each for each in (name if takes else None, *others) if each]
        case _:
            return False
    return _among(names, default_schema, schema, table)


@lru_cache(maxsize=1)
def _parsed(sql: str) -> Statement | Unreadable | None:
    """Return a statement; None if it changes no table; the error if the grammar does not know it."""
    try:
        return read(sql)
    except Unreadable as error:
        return error


def _others(statement: AlterTable) -> list[Name]:
    """Return the tables that take rows from the altered one, or give it theirs, or their name."""
    others = (statement.renamed, statement.split_off, statement.absorbed, statement.exchanged)
    return [other for other in others if other]


def _among(names: Iterable[Name], default_schema: str, schema: str, table: str) -> bool:
    """Return whether a table is one of these. default_schema: of names without one."""
    wanted = (schema.lower(), table.lower())
    return any(((name.schema or default_schema).lower(), name.table.lower()) == wanted for name in names)


def _mentions(text: str, *names: str) -> bool:
    """Return whether a text has one of these names as a whole word."""
    quoted = "|".join(re.escape(name.replace("`", "``")) for name in names)
    return re.search(rf"(?<![\w$])(?:{quoted})(?![\w$])", text, re.IGNORECASE) is not None


def _gives_values(change: Change, columns: Collection[str] | None) -> bool:
    """Return whether a change can put other values, in another order, under the name of one of these columns.

    columns: in lower case; None: any column.
    """
    match change:
        case SetColumn(definition, old):
            new = definition.column.name
            if old and old.lower() == new.lower() and not definition.generated and _is_integer(definition.column):
                return False  # a type that is no number shows in the texts of the key
            names = [old or new, new]
        case RenameColumn(old, new):
            names = [old, new]
        case DropColumn(name):
            names = [name]
        case _:
            return False
    return columns is None or any(name.lower() in columns for name in names)


def _is_integer(column: Column) -> bool:
    return type_name(column.mysql_type) in _INTEGERS
