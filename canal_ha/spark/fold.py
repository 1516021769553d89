"""Folds the changes of one micro-batch into the changes of each table's copy. Pure.

Only the last change of each key counts, and the row that it leaves is inserted or replaced: the copy may already have a
row of a snapshot (`read`). A change of the key is a deletion of the old key and a row of the new one.
TRUNCATE, DROP, RENAME and CREATE first empty a table: the rows that a copy has under that name belong to another table.
Rows of one batch may have different columns; a column that a row's table did not have yet is NULL. If a statement gives
the key other columns, the copy loses every row that was changed before under its former key, and gets those that exist
again under the new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeVar

from canal_ha.decode.ddl.event_types import classify
from canal_ha.decode.ddl.grammar import read
from canal_ha.decode.ddl.statements import (
    AlterTable,
    CreateTable,
    DropColumn,
    DropTables,
    Name,
    RenameTables,
    SetColumn,
    TruncateTables,
)
from canal_ha.decode.ddl.tokens import Unreadable
from canal_ha.errors import SinkRefused
from canal_ha.model.entry import EventType
from canal_ha.pipeline.added import Added, added_columns
from canal_ha.spark.entries import DDL, DELETE, NEW_ROWS, RowLayout
from canal_ha.spark.mysql_types import ColumnType, column_type

Row = dict[str, str | None]
Key = tuple[str | None, ...]
V = TypeVar("V")


class ChangeRow(NamedTuple):
    """One row of Shape.CHANGES.

    op: insert, update, delete, read or ddl.
    schema, table: names of the row's table.
    layout: the columns, as RowLayout.to_json; None for a statement.
    before, after: values as canal's texts; None if the change has no such side.
    ddl: the statement's text; None for a row.
    where: journal and offset, for messages.
    destination: name of the destination.
    seq: number of the segment.
    """

    op: str
    schema: str
    table: str
    layout: str | None
    before: Sequence[str | None] | None
    after: Sequence[str | None] | None
    ddl: str | None
    where: str
    destination: str = ""
    seq: int = 0


class FormerKeys(NamedTuple):
    """Keys of changed rows, from before the key got other columns.

    columns: name -> type of the key's columns at that time.
    keys: their values.
    """

    columns: dict[str, ColumnType]
    keys: list[Key]


@dataclass(slots=True)
class TableChanges:
    """The folded changes of one table.

    schema, table: its names.
    emptied: remove all rows of the copy first.
    arrived: a statement gave it the rows of another table, which came under the other name or never.
    rows: by key; None for a deleted row.
    columns: name -> type of the newest rows, in table order.
    keys: names of the key's columns.
    former: rows to delete before anything else, by keys that the table had before.
    added: columns that statements added, with their values in rows that are not among `rows`.
    retyped: columns that statements declared again.
    dropped: columns that statements removed, in lower case.
    """

    schema: str
    table: str
    emptied: bool = False
    arrived: bool = False
    rows: dict[Key, Row | None] = field(default_factory=dict)
    columns: dict[str, ColumnType] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    former: list[FormerKeys] = field(default_factory=list)
    added: dict[str, Added] = field(default_factory=dict)
    retyped: dict[str, ColumnType] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)

    @property
    def name(self) -> str:
        """schema.table."""
        return f"{self.schema}.{self.table}"

    def has_columns(self, columns: dict[str, ColumnType], keys: tuple[str, ...]) -> None:
        """Note the columns and the key of the next row."""
        if self.rows and keys != self.keys:
            self.former.append(FormerKeys({name: self.columns[name] for name in self.keys}, list(self.rows)))
            self.rows = {tuple(row.get(name) for name in keys): row for row in self.kept}
        self.columns, self.keys = columns, keys

    def alter(self, sql: str, statement: AlterTable) -> None:
        """Apply a statement about this table; earlier rows of the batch get the values that MySQL gave them."""
        for change in statement.changes:
            if isinstance(change, DropColumn):
                self._drop(change.name.lower())
            elif isinstance(change, SetColumn) and change.old is not None:
                made = change.definition.column
                self.retyped[made.name] = column_type(made.mysql_type, 0)
        for added in added_columns(sql):
            self.added[added.name] = added
            for row in self.rows.values():
                if row is not None:
                    row.setdefault(added.name, added.default)

    def empty(self) -> None:
        """Drop all earlier changes and mark the table as emptied."""
        self.emptied, self.arrived = True, False
        self.rows.clear()
        self.former.clear()
        self.added.clear()
        self.retyped.clear()
        self.dropped.clear()

    @property
    def alters(self) -> bool:
        """Whether statements changed the table, even without rows."""
        return bool(self.added or self.retyped or self.dropped)

    def _drop(self, name: str) -> None:
        self.dropped.add(name)
        _forget(self.added, name)
        _forget(self.retyped, name)
        for row in self.rows.values():
            _forget(row or {}, name)

    @property
    def kept(self) -> list[Row]:
        """The rows that exist at the end, in the order of their keys' first change."""
        return [row for row in self.rows.values() if row is not None]

    @property
    def gone(self) -> list[Key]:
        """The keys that do not exist at the end."""
        return [key for key, row in self.rows.items() if row is None]


def _forget(columns: dict[str, V], lower: str) -> None:
    for name in [name for name in columns if name.lower() == lower]:
        del columns[name]


@lru_cache(maxsize=4096)
def layout_of(text: str) -> RowLayout:
    """Parse a layout; many rows share it."""
    return RowLayout.from_json(text)


def fold(changes: Iterable[ChangeRow], keys: Mapping[str, Sequence[str]]) -> dict[str, TableChanges]:
    """Fold changes by table.

    changes: in position order.
    keys: key columns of tables without a primary key, or to use instead of it.
    Raises SinkRefused for a table without key, and for rows with columns missing from the binlog.
    """
    tables: dict[str, TableChanges] = {}
    for change in changes:
        if change.op == DDL:
            _statement(tables, change)
            continue
        name = f"{change.schema}.{change.table}"
        table = _table(tables, change.schema, change.table)
        assert change.layout is not None
        layout = layout_of(change.layout)
        _check(layout, change, name)
        table.has_columns(_columns(change.layout), tuple(keys.get(name) or (layout.names[at] for at in layout.keys)))
        places = _places(layout, table.keys, name)
        old = None if change.op in NEW_ROWS else tuple(change.before[at] for at in places)  # type: ignore[index]
        if change.op == DELETE:
            table.rows[old or ()] = None
            continue
        assert change.after is not None
        new = tuple(change.after[at] for at in places)
        if old is not None and old != new:
            table.rows[old] = None
        table.rows[new] = dict(zip(layout.names, change.after, strict=True))
    return tables


def _statement(tables: dict[str, TableChanges], change: ChangeRow) -> None:
    sql = change.ddl or ""
    try:
        statement = read(sql)
    except Unreadable:
        _unreadable(tables, change)
        return

    def table(name: Name) -> TableChanges:
        return _table(tables, name.schema or change.schema, name.table)

    match statement:
        case DropTables(names, temporary=False) | TruncateTables(names):
            for name in names:
                table(name).empty()
        case RenameTables(pairs):
            for old, new in pairs:
                table(old).empty()
                table(new).arrived = True
        case CreateTable(name, temporary=False, if_not_exists=False):
            table(name).empty()
        case AlterTable(name, renamed=renamed):
            table(name).alter(sql, statement)
            if renamed is not None:
                table(name).empty()
                table(renamed).arrived = True


def _unreadable(tables: dict[str, TableChanges], change: ChangeRow) -> None:
    """Apply a statement that the grammar does not know, classified by canal's own patterns."""
    for result in classify(change.ddl or "", change.schema):
        if result.event_type in (EventType.TRUNCATE, EventType.ERASE) and result.table:
            _table(tables, result.schema or change.schema, result.table).empty()
        elif result.event_type is EventType.RENAME and result.origin_table:
            _table(tables, result.origin_schema or change.schema, result.origin_table).empty()
            if result.table:
                _table(tables, result.schema or change.schema, result.table).arrived = True


def _table(tables: dict[str, TableChanges], schema: str, name: str) -> TableChanges:
    return tables.setdefault(f"{schema}.{name}", TableChanges(schema, name))


def _check(layout: RowLayout, change: ChangeRow, name: str) -> None:
    if layout.partial:
        raise SinkRefused(
            f"canal: the binlog holds only some columns of {name} at {change.where}; a copy needs"
            " binlog_row_image=FULL at the source, and no field filter"
        )


@lru_cache(maxsize=4096)
def _columns(layout: str) -> dict[str, ColumnType]:
    return {name: column_type(text, code) for name, text, code in layout_of(layout).columns}


@lru_cache(maxsize=4096)
def _places(layout: RowLayout, keys: tuple[str, ...], name: str) -> tuple[int, ...]:
    if not keys:
        raise SinkRefused(f"canal: {name} has no primary key: list its key columns under [keys] in the pipeline's file")
    missing = [key for key in keys if key not in layout.names]
    if missing:
        raise SinkRefused(f"canal: {name} has no column {missing[0]}, which the pipeline's file names as its key")
    return tuple(layout.names.index(key) for key in keys)
