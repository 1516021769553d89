"""A table's columns as of a position, shared by the streams of one instance.

Every table has versions, each with the position from which it holds; a lagging stream sees the columns of its own
position. Versions come from the statements of the binlog and, for tables that none has described yet, from the
table map's metadata or the server's present definition, which is taken only where it agrees with the table map.
Threads: shared by the source threads of the streams; a lock guards the versions and is never held while fetching.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count
from threading import Lock
from typing import Protocol

from canal_ha.decode import table_match
from canal_ha.decode.ddl import first_names
from canal_ha.decode.ddl_grammar import read
from canal_ha.decode.ddl_statements import ChangeDatabase
from canal_ha.decode.ddl_text import create_table
from canal_ha.decode.ddl_tokens import Unreadable, leading
from canal_ha.decode.history_statements import Draft, created, named
from canal_ha.decode.history_store import Record, Recorder, TableSnapshot
from canal_ha.decode.history_versions import Key, Order, Trust, Version, Versions, position_of
from canal_ha.decode.table_map import TableMap
from canal_ha.errors import TableUnknown
from canal_ha.model.position import LogPosition
from canal_ha.model.table import Column, TableSchema

Fetch = Callable[[str, str], str | None]


class TableHistory(Protocol):
    """What a decoder asks about tables."""

    def table(self, table_map: TableMap, at: LogPosition) -> TableSchema:
        """The columns of the mapped table as of `at`. Raises TableUnknown."""

    def apply(self, at: LogPosition, default_schema: str, sql: str) -> None:
        """Take in a statement that passed the filters. at: its position."""


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
        self._recorder = recorder
        self._versions = Versions(fold_names=fold_names)
        self._lock = Lock()
        self._numbers = count(1)

    @property
    def fold_names(self) -> bool:
        """See above; set before anything is known."""
        return self._versions.fold_names

    @fold_names.setter
    def fold_names(self, folds: bool) -> None:
        self._versions.fold_names = folds

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
        key = self._versions.key(table_map.schema, table_map.name)
        with self._lock:
            version = self._versions.at(key, at.order)
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
        columns = self._resolve(key, version, table_map, at)
        order = at.order
        if version is None:
            order = min(order, since or order)
        elif version.trust is not Trust.KNOWN:
            order = version.order
        cause = version.cause if version is not None else ""
        return self._keep(key, Version(order, Trust.KNOWN, columns, cause), table_map, columns, at)

    def _resolve(self, key: Key, version: Version | None, table_map: TableMap, at: LogPosition) -> tuple[Column, ...]:
        """The columns of a table whose versions do not tell. Raises TableUnknown."""
        known = version.columns if version is not None else ()
        present = self._fetched(table_map)
        if table_map.names is not None:
            sources = (known, present) if known and not self._live_texts else (present, known)
            return table_match.rebuilt(table_map, *map(table_match.by_name, sources))
        with self._lock:
            changes = self._versions.changes_behind(key, at.order)
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
        return created(text)

    def _keep(
        self, key: Key, version: Version, table_map: TableMap, columns: tuple[Column, ...], at: LogPosition
    ) -> TableSchema:
        """Record what a table map settled; hidden columns are found anew each time, as statements never name them."""
        version = replace(version, columns=tuple(column for column in version.columns if not column.hidden))
        with self._lock:
            self._versions.record(key, version, over_known=True)
        if self._recorder and all(column.mysql_type for column in version.columns):
            schema, table = table_map.schema, table_map.name
            since = position_of(version.order)
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
                keys = [named(self._versions, name, default_schema) for name in names] or self._versions.keys()
                for key in keys:
                    self._versions.record(key, Version(at.order, Trust.UNCERTAIN, cause=sql))
            return True
        if statement is None:
            return False
        with self._lock:
            draft = Draft(self._versions, at.order, sql, default_schema, live_texts=self._live_texts)
            draft.take(statement)
            for key, version in draft.versions.items():
                self._versions.record(key, version)
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
        columns = created(sql)
        if not columns:
            return
        key = self._versions.key(schema, table)
        with self._lock:
            known = self._versions.at(key, at.order)
            if known is None or known.trust is not Trust.KNOWN or known.columns != columns:
                cause = known.cause if known is not None and known.order == at.order else ""
                self._versions.record(key, Version(at.order, Trust.KNOWN, columns, cause), over_known=True)

    def reach_back(self, start: LogPosition, at: LogPosition) -> None:
        """What is known at `at` held before, back to the last statement about it, or to `start`.

        Every statement between the two must have been applied.
        """
        with self._lock:
            for key, version in self._versions.beginning(at.order):
                if version.trust is not Trust.KNOWN:
                    continue
                before = self._versions.before(key, at.order)
                if before is None:
                    self._versions.record(key, Version(start.order, Trust.KNOWN, version.columns))
                elif before.trust in (Trust.UNCERTAIN, Trust.ASSUMED):
                    self._versions.record(key, replace(version, order=before.order, cause=before.cause))

    def forget_before(self, at: LogPosition) -> None:
        """Drop what held before `at` alone."""
        with self._lock:
            self._versions.forget_before(at.order)


class _View:
    """One stream's sight of the history."""

    def __init__(self, history: History, since: Order | None) -> None:
        self._history = history
        self._since = since

    def table(self, table_map: TableMap, at: LogPosition) -> TableSchema:
        return self._history.table(table_map, at, self._since)

    def apply(self, at: LogPosition, default_schema: str, sql: str) -> None:
        self._history.apply(at, default_schema, sql)


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
