"""A table's columns as of a position, shared by the streams of one instance.

Every table has versions, each with the position from which it holds; a lagging stream sees the columns of its own
position. Versions come from the statements of the binlog and, for tables that none has described yet, from the
table map's metadata or the server's present definition, which is taken only where it agrees with the table map.
Threads: shared by the source threads of the streams; a lock guards the versions and is never held while fetching.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import count
from threading import Lock
from typing import Protocol

from canal_ha.decode import table_match
from canal_ha.decode.ddl import first_names
from canal_ha.decode.ddl_apply import alter
from canal_ha.decode.ddl_grammar import read
from canal_ha.decode.ddl_statements import (
    AlterTable,
    Change,
    ChangeDatabase,
    ChangeIndex,
    CreateTable,
    DropTables,
    Name,
    RenameTables,
    Statement,
)
from canal_ha.decode.ddl_text import create_table
from canal_ha.decode.ddl_tokens import Unreadable, leading
from canal_ha.decode.history_store import Record, Recorder, TableSnapshot
from canal_ha.decode.table_map import TableMap
from canal_ha.errors import TableUnknown
from canal_ha.model.position import LogPosition
from canal_ha.model.table import Column, TableSchema

Fetch = Callable[[str, str], str | None]
Key = tuple[str, str]
Order = tuple[str, int, int, bool, int]  # LogPosition.order


class TableHistory(Protocol):
    """What a decoder asks about tables."""

    def table(self, table_map: TableMap, at: LogPosition) -> TableSchema:
        """The columns of the mapped table as of `at`. Raises TableUnknown."""

    def apply(self, at: LogPosition, default_schema: str, sql: str) -> None:
        """Take in a statement that passed the filters. at: its position."""


class Trust(Enum):
    """How far a version can be believed."""

    KNOWN = "known"
    ASSUMED = "assumed"  # CREATE TABLE IF NOT EXISTS of a table nobody had seen: it may have existed with other columns
    UNCERTAIN = "uncertain"  # touched by a statement whose effect is not known
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Version:
    """What is known of one table from `order` on. cause: the statement, "" when none made it.

    wants_texts: the type texts are to be taken from the server once, where they agree (canal's parser refused the
    statement, or the instance prefers the server's texts).
    """

    order: Order
    trust: Trust
    columns: tuple[Column, ...] = ()
    cause: str = ""
    wants_texts: bool = False
    schemas: dict[tuple[Column, ...], TableSchema] = field(default_factory=dict, init=False, compare=False)

    @property
    def readable(self) -> bool:
        """Whether there are columns to go by."""
        return self.trust in (Trust.KNOWN, Trust.ASSUMED)


class History:
    """All versions of all tables of one instance.

    fetch: SHOW CREATE TABLE's text as of now for (schema, table), None when there is no such table; it may raise what
    the source raises. live_texts: prefer the server's type texts to the statements' (canal.instance.tsdb.enable=false).
    fold_names: names differ in letter case only (lower_case_table_names other than 0). recorder: told of everything
    that is learned from the binlog; from another source thread each time.
    """

    def __init__(
        self,
        fetch: Fetch,
        *,
        live_texts: bool = False,
        fold_names: bool = False,
        recorder: Recorder | None = None,
    ) -> None:
        self._fetch = fetch
        self._live_texts = live_texts
        self.fold_names = fold_names
        self._recorder = recorder
        self._versions: dict[Key, list[Version]] = {}
        self._lock = Lock()
        self._numbers = count(1)

    def view(self, at: LogPosition | None) -> TableHistory:
        """The tables as one stream sees them, which reads every statement behind `at`, its start (None: unknown)."""
        return _View(self, None if at is None else at.order)

    def clear(self) -> None:
        """Forget everything: positions of another source say nothing about this one's."""
        with self._lock:
            self._versions.clear()

    # ---- asked by table maps

    def table(self, table_map: TableMap, at: LogPosition, since: Order | None) -> TableSchema:
        """The columns as of `at`. since: from where on the asking stream has read every statement."""
        key = self._key(table_map.schema, table_map.name)
        with self._lock:
            version = self._find(key, at.order)
        if version is not None and version.readable:
            confirmed = version.trust is Trust.KNOWN or table_map.names is not None
            columns = table_match.agreeing(version.columns, table_map, exact=False) if confirmed else None
            if columns is not None:
                if not version.wants_texts:
                    return self._schema(version, table_map, columns)
                texts = table_match.by_name(self._fetched(table_map))
                columns = table_match.with_texts(columns, texts, table_map)
                rest = version.columns[len(columns) :]
                told = replace(version, columns=columns + rest, wants_texts=False)
                return self._keep(key, told, table_map, columns, at)
        columns = self._resolve(version, table_map, at)
        order = at.order
        if version is None:
            order = min(order, since or order)
        elif version.trust is not Trust.KNOWN:
            order = version.order
        cause = version.cause if version is not None else ""
        return self._keep(key, Version(order, Trust.KNOWN, columns, cause), table_map, columns, at)

    def _resolve(self, version: Version | None, table_map: TableMap, at: LogPosition) -> tuple[Column, ...]:
        """The columns of a table whose versions do not tell. Raises TableUnknown."""
        known = version.columns if version is not None else ()
        present = self._fetched(table_map)
        if table_map.names is not None:
            sources = (known, present) if known and not self._live_texts else (present, known)
            return table_match.rebuilt(table_map, *map(table_match.by_name, sources))
        changes = self._changes_behind(self._key(table_map.schema, table_map.name), at.order)
        # what the server says now holds for an event only if no statement in between is known
        columns = None if changes else table_match.agreeing(present, table_map, exact=True)
        if columns is None and version is not None and version.trust is Trust.ASSUMED:
            columns = table_match.agreeing(known, table_map, exact=True)
        if columns is None:
            raise TableUnknown(_unknown(version, table_map, at, bool(present)))
        return columns

    def _fetched(self, table_map: TableMap) -> tuple[Column, ...]:
        text = self._fetch(table_map.schema, table_map.name)
        if text is None:
            return ()
        return _created(text)

    def _keep(
        self, key: Key, version: Version, table_map: TableMap, columns: tuple[Column, ...], at: LogPosition
    ) -> TableSchema:
        """Record what a table map settled; hidden columns are found anew each time, as statements never name them."""
        version = replace(version, columns=tuple(column for column in version.columns if not column.hidden))
        with self._lock:
            self._record(key, version, over_known=True)
        if self._recorder and all(column.mysql_type for column in version.columns):
            schema, table = table_map.schema, table_map.name
            since = _position(version.order)
            self._recorder.record(Record(at, schema, create_table(table, version.columns), table, since))
        return self._schema(version, table_map, columns)

    def _schema(self, version: Version, table_map: TableMap, columns: tuple[Column, ...]) -> TableSchema:
        with self._lock:
            schema = version.schemas.get(columns)
            if schema is None:
                schema = TableSchema(table_map.schema, table_map.name, columns, next(self._numbers))
                version.schemas[columns] = schema
        return schema

    # ---- told by statements

    def apply(self, at: LogPosition, default_schema: str, sql: str) -> None:
        """Record what a statement changes, from `at` on.

        What is known at this very position stays: another stream was here before.
        """
        if self._take(at, default_schema, sql) and self._recorder:
            self._recorder.record(Record(at, default_schema, sql))

    def _take(self, at: LogPosition, default_schema: str, sql: str) -> bool:
        """Whether the statement says anything about tables."""
        try:
            statement = read(sql)
        except Unreadable:
            names = first_names(leading(sql))
            if names is None:
                return False
            with self._lock:
                for key in [self._named(name, default_schema) for name in names] or list(self._versions):
                    self._record(key, Version(at.order, Trust.UNCERTAIN, cause=sql))
            return True
        if statement is None:
            return False
        with self._lock:
            draft = _Draft(self, at.order, sql, default_schema)
            draft.take(statement)
            for key, version in draft.versions.items():
                self._record(key, version)
        return bool(draft.versions) or isinstance(statement, ChangeDatabase)

    # ---- told by what was kept

    def restore(self, records: Iterable[Record], snapshots: Iterable[TableSnapshot] = ()) -> None:
        """Take in what was recorded, in the order in which it holds. Nothing of it is recorded again."""
        items: list[tuple[tuple[object, ...], Record | TableSnapshot]] = [(record.order, record) for record in records]
        items += [((snapshot.at.order, False), snapshot) for snapshot in snapshots]
        for _, item in sorted(items, key=lambda pair: pair[0]):
            if isinstance(item, TableSnapshot):
                for (schema, table), sql in item.tables.items():
                    self._restore(item.at, schema, table, sql)
            elif item.table:
                self._restore(item.since or item.at, item.schema, item.table, item.sql)
            else:
                self._take(item.at, item.schema, item.sql)

    def _restore(self, at: LogPosition, schema: str, table: str, sql: str) -> None:
        columns = _created(sql)
        if not columns:
            return
        key = self._key(schema, table)
        with self._lock:
            known = self._find(key, at.order)
            if known is None or known.trust is not Trust.KNOWN or known.columns != columns:
                cause = known.cause if known is not None and known.order == at.order else ""
                self._record(key, Version(at.order, Trust.KNOWN, columns, cause), over_known=True)

    def reach_back(self, start: LogPosition, at: LogPosition) -> None:
        """What is known at `at` held before, back to the last statement about it, or to `start`.

        Every statement between the two must have been applied.
        """
        with self._lock:
            for key, versions in self._versions.items():
                version = next((version for version in versions if version.order == at.order), None)
                if version is None or version.trust is not Trust.KNOWN:
                    continue
                before = self._before(key, at.order)
                if before is None:
                    self._record(key, Version(start.order, Trust.KNOWN, version.columns))
                elif before.trust in (Trust.UNCERTAIN, Trust.ASSUMED):
                    self._record(key, replace(version, order=before.order, cause=before.cause))

    def _named(self, name: Name, default_schema: str) -> Key:
        return self._key(name.schema or default_schema, name.table)

    def _key(self, schema: str, table: str) -> Key:
        return (schema.lower(), table.lower()) if self.fold_names else (schema, table)

    def forget_before(self, at: LogPosition) -> None:
        """Drop what held before `at` alone."""
        with self._lock:
            for versions in self._versions.values():
                del versions[: max(0, bisect_right(versions, at.order, key=_order) - 1)]

    # ---- versions; the lock is held

    def _find(self, key: Key, order: Order) -> Version | None:
        versions = self._versions.get(key, [])
        index = bisect_right(versions, order, key=_order)
        return versions[index - 1] if index else None

    def _before(self, key: Key, order: Order) -> Version | None:
        versions = self._versions.get(key, [])
        index = bisect_left(versions, order, key=_order)
        return versions[index - 1] if index else None

    def _changes_behind(self, key: Key, order: Order) -> bool:
        """Whether a statement behind `order` is known to change this table."""
        with self._lock:
            versions = self._versions.get(key, [])
            return any(version.cause for version in versions[bisect_right(versions, order, key=_order) :])

    def _record(self, key: Key, version: Version, *, over_known: bool = False) -> None:
        versions = self._versions.setdefault(key, [])
        index = bisect_left(versions, version.order, key=_order)
        if index < len(versions) and versions[index].order == version.order:
            if over_known or versions[index].trust in (Trust.UNCERTAIN, Trust.ASSUMED):
                versions[index] = version
        else:
            versions.insert(index, version)

    def _of_schema(self, schema: str) -> Iterator[Key]:
        folded = schema.lower() if self.fold_names else schema
        return (key for key in self._versions if key[0] == folded)


class _View:
    """One stream's sight of the history."""

    def __init__(self, history: History, since: Order | None) -> None:
        self._history = history
        self._since = since

    def table(self, table_map: TableMap, at: LogPosition) -> TableSchema:
        return self._history.table(table_map, at, self._since)

    def apply(self, at: LogPosition, default_schema: str, sql: str) -> None:
        self._history.apply(at, default_schema, sql)


class _Draft:
    """The versions that one statement makes, while it is worked through."""

    def __init__(self, history: History, order: Order, sql: str, default_schema: str) -> None:
        self.versions: dict[Key, Version] = {}
        self._history = history
        self._order = order
        self._sql = sql
        self._default_schema = default_schema

    def take(self, statement: Statement) -> None:
        """Work one statement in."""
        match statement:
            case CreateTable(temporary=False):
                self._create(statement)
            case AlterTable():
                self._alter(statement)
            case DropTables(names, temporary=False):
                for name in names:
                    self._set(self._key(name), Trust.DROPPED)
            case RenameTables(pairs):
                for old, new in pairs:
                    self._rename(self._key(old), self._key(new))
            case ChangeIndex(name=name, changes=(_, *_)):
                self._change(self._key(name), statement.changes)
            case ChangeDatabase(schema=schema, drops=True):
                for key in self._history._of_schema(schema):
                    self._set(key, Trust.DROPPED)

    def _key(self, name: Name) -> Key:
        return self._history._named(name, self._default_schema)

    def _get(self, key: Key) -> Version | None:
        return self.versions.get(key) or self._history._before(key, self._order)

    def _set(self, key: Key, trust: Trust, columns: tuple[Column, ...] = (), wants_texts: bool = False) -> None:
        texts = wants_texts or (self._history._live_texts and trust is Trust.KNOWN)
        self.versions[key] = Version(self._order, trust, columns, self._sql, texts)

    def _create(self, statement: CreateTable) -> None:
        key = self._key(statement.name)
        known = self._get(key)
        if statement.if_not_exists and known is not None and known.trust is not Trust.DROPPED:
            return
        if statement.like is not None:
            source = self._get(self._key(statement.like))
            if source is not None and source.readable:
                self._set(key, source.trust, source.columns, source.wants_texts)
            else:
                self._set(key, Trust.UNCERTAIN)
        elif statement.selected:
            self._set(key, Trust.UNCERTAIN)
        else:
            fresh = not statement.if_not_exists or known is not None
            self._set(key, Trust.KNOWN if fresh else Trust.ASSUMED, statement.columns, statement.refused)

    def _alter(self, statement: AlterTable) -> None:
        key = self._key(statement.name)
        if statement.changes:
            self._change(key, statement.changes)
        if statement.split_off is not None:
            version = self._get(key)
            if version is not None and version.readable:
                self._set(self._key(statement.split_off), version.trust, version.columns, version.wants_texts)
        if statement.absorbed is not None:
            self._set(self._key(statement.absorbed), Trust.DROPPED)
        if statement.renamed is not None:
            self._rename(key, self._key(statement.renamed))

    def _change(self, key: Key, changes: tuple[Change, ...]) -> None:
        version = self._get(key)
        if version is None or not version.readable:
            self._set(key, Trust.UNCERTAIN)
            return
        try:
            self._set(key, version.trust, alter(version.columns, changes), version.wants_texts)
        except Unreadable:
            self._set(key, Trust.UNCERTAIN)

    def _rename(self, old: Key, new: Key) -> None:
        version = self._get(old)
        if version is None:
            self._set(new, Trust.UNCERTAIN)
        else:
            self._set(new, version.trust, version.columns, version.wants_texts)
        self._set(old, Trust.DROPPED)


def _order(version: Version) -> Order:
    return version.order


def _position(order: Order) -> LogPosition:
    """A position of this order."""
    base, number, offset, consumed, sub_index = order
    journal = f"{base}.{number:06d}" if number else base
    return LogPosition(journal, offset, consumed=consumed, sub_index=sub_index)


def _created(sql: str) -> tuple[Column, ...]:
    """The columns of a statement that creates a table; none when it cannot be read."""
    try:
        statement = read(sql)
    except Unreadable:
        return ()
    return statement.columns if isinstance(statement, CreateTable) else ()


def _unknown(version: Version | None, table_map: TableMap, at: LogPosition, present: bool) -> str:
    if version is None or not version.cause:
        reason = "no statement in the binlog since the stream's start describes it"
    else:
        reason = f"what is known of it ends with: {version.cause[:500]}"
    if present:
        reason += "; the server's present definition does not agree with the event"
    else:
        reason += "; the server has no such table any more"
    return (
        f"columns of {table_map.schema}.{table_map.name} at {at} are not known for certain: the event has"
        f" {len(table_map.types)}, {reason}. Set binlog_row_metadata=FULL on the source for what comes, and let this"
        " stream start behind the position or exclude the table (canal.instance.filter.black.regex)"
    )
