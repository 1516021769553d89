"""Tells what a statement does to the rows of tables, beyond what the binlog has as row changes. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from canal_ha.decode.ddl.event_types import changed_rows, classify
from canal_ha.decode.ddl.grammar import read
from canal_ha.decode.ddl.statements import AlterTable, CreateTable, DropTables, Name, RenameTables, TruncateTables
from canal_ha.decode.ddl.tokens import Unreadable
from canal_ha.model.entry import EventType
from canal_ha.pipeline.added import added_columns


@dataclass(frozen=True, slots=True)
class StatementEffect:
    """What a statement does to one table.

    schema, table: its names.
    emptied: all rows that the table had are gone.
    refilled: the table has rows now that the binlog does not have under this name, from RENAME, a partition, a file or
        a query.
    selected: a query made them (CREATE TABLE ... SELECT). Where the source logs rows, the statement has no query.
    alter: its changes of columns; None if there are none.
    readable: whether the statement could be parsed; otherwise its changes of columns are unknown.
    computed: added columns of which the server computed the values in existing rows.
    """

    schema: str
    table: str
    emptied: bool = False
    refilled: bool = False
    selected: bool = False
    alter: AlterTable | None = None
    readable: bool = True
    computed: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """schema.table."""
        return f"{self.schema}.{self.table}"


def effects(sql: str, schema: str) -> list[StatementEffect]:
    """Return the effects of a statement, one for each table that it names, in their order.

    sql: its text; "" if a node keeps it back.
    schema: of names without one.
    """
    try:
        statement = read(sql)
    except Unreadable:
        return _by_patterns(sql, schema)
    found: dict[tuple[str, str], StatementEffect] = {}

    def put(name: Name, *, emptied: bool = False, refilled: bool = False, alter: AlterTable | None = None) -> None:
        key = (name.schema or schema, name.table)
        before = found.get(key, StatementEffect(*key))
        emptied_now = before.emptied or emptied
        refilled_now = refilled or (before.refilled and not emptied)
        computed = tuple(each.name for each in added_columns(sql) if not each.known) if alter else before.computed
        found[key] = StatementEffect(*key, emptied_now, refilled_now, alter=alter or before.alter, computed=computed)

    match statement:
        case DropTables(names, temporary=False) | TruncateTables(names):
            for name in names:
                put(name, emptied=True)
        case RenameTables(pairs):
            for old, new in pairs:
                put(old, emptied=True)
                put(new, refilled=True)
        case CreateTable(name, temporary=False, selected=True):
            return [StatementEffect(name.schema or schema, name.table, not statement.if_not_exists, True, True)]
        case CreateTable(name, temporary=False, if_not_exists=False):
            put(name, emptied=True)
        case AlterTable(name):
            put(name, alter=statement)
            if statement.renamed is not None:
                put(name, emptied=True)
                put(statement.renamed, refilled=True)
            if statement.imported:
                put(name, emptied=True)
                put(name, refilled=True)
            for other in (statement.exchanged, statement.absorbed, statement.split_off):
                if other is not None:
                    put(name, emptied=True)
                    put(name, refilled=True)
                    put(other, emptied=True)
                    put(other, refilled=other is not statement.absorbed)
    return list(found.values())


def changes_unnamed(sql: str) -> bool:
    """Return whether a statement may change rows of other tables than the one that its entry names.

    A node in canal's form, or of an earlier version, names the first table, or an alias.
    """
    return any(result.table is None for result in changed_rows(sql, ""))


def changes_columns(sql: str, schema: str, table: str) -> bool:
    """Return whether a statement may give a table other columns. schema: of the table, and of names without one."""
    mine = [effect for effect in effects(sql, schema) if (effect.schema, effect.table) == (schema, table)]
    return any(not effect.readable or (effect.alter is not None and effect.alter.changes) for effect in mine)


def _by_patterns(sql: str, schema: str) -> list[StatementEffect]:
    """Return the effects of a statement that the grammar does not know, as far as canal's own patterns tell."""
    found = []
    for result in classify(sql, schema):
        table, place = result.table, result.schema or schema
        if result.event_type is EventType.RENAME and result.origin_table:
            found.append(StatementEffect(result.origin_schema or schema, result.origin_table, True, readable=False))
            if table:
                found.append(StatementEffect(place, table, refilled=True, readable=False))
        elif table:
            emptied = result.event_type in (EventType.TRUNCATE, EventType.ERASE)
            found.append(StatementEffect(place, table, emptied, readable=False))
    return found
