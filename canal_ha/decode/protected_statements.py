"""What statements may tell about protected columns."""

from __future__ import annotations

from collections.abc import Iterator

from canal_ha.decode.ddl.grammar import read
from canal_ha.decode.ddl.statements import (
    AlterTable,
    CreateTable,
    Name,
    RenameColumn,
    RenameTables,
    SetColumn,
    Statement,
)
from canal_ha.decode.ddl.tokens import TokenKind, Unreadable, tokenize
from canal_ha.decode.filters import TableFilter
from canal_ha.decode.privacy import Privacy

# Statements with these words can contain values of rows: queries, partitions by value, bodies of programs.
_WITH_VALUES = frozenset(["SELECT", "VALUES", "VIEW", "PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "PACKAGE"])


def tells_nothing(sql: str, privacy: Privacy) -> bool:
    """Return whether the text of a DDL statement can be delivered: it names no protected column and holds no query."""
    try:
        tokens = tokenize(sql)
    except Unreadable:
        return False
    names = (
        token.value.lower() for token in tokens if token.kind in (TokenKind.WORD, TokenKind.QUOTED, TokenKind.TEXT)
    )
    return privacy.columns.isdisjoint(names) and not any(token.word in _WITH_VALUES for token in tokens)


def exposed(sql: str, default_schema: str, privacy: Privacy, tables: TableFilter) -> tuple[str, str] | None:
    """Return the old and the new name of a protected column that is less protected under the new one; None without one.

    The name is new because the statement renames the column or its table, or makes a table of another one.

    sql: the statement.
    default_schema: of the session.
    privacy: the rules.
    tables: what the stream gets; a column elsewhere needs no protection.
    """
    try:
        statement = read(sql)
    except Unreadable:
        return None
    for old, new, columns in _renamed(statement):
        if not tables.accepts(new.schema or default_schema, new.table):
            continue
        before = privacy.columns_of(old.schema or default_schema, old.table)
        after = privacy.columns_of(new.schema or default_schema, new.table)
        for column, protection in before.items():
            name = columns.get(column, column)
            if after.get(name, 0) < protection:
                return f"{old.table}.{column}", f"{new.table}.{name}"
    return None


def _renamed(statement: Statement | None) -> Iterator[tuple[Name, Name, dict[str, str]]]:
    """Yield tables before and after a statement, and the renamed columns, in lower case."""
    match statement:
        case AlterTable(name, changes, _, renamed, split_off):
            columns: dict[str, str] = {}
            for change in changes:
                if isinstance(change, RenameColumn):
                    columns[change.old.lower()] = change.new.lower()
                elif isinstance(change, SetColumn) and change.old is not None:
                    columns[change.old.lower()] = change.definition.column.name.lower()
            yield name, renamed or name, columns
            if split_off is not None:
                yield name, split_off, {}
        case RenameTables(pairs):
            for old, new in pairs:
                yield old, new, {}
        case CreateTable(name=name, like=Name() as like):
            yield like, name, {}
