"""The columns of tables as of any position, shared by the streams of one instance.

Every table has versions, each with the position from which it holds, so a lagging stream sees the columns of its own
position. Versions come from the binlog's statements, from snapshots, from the names in events, and from the server's
current definitions. A version counts only within a range of positions whose statements are all known. So a current
definition counts for an event only once everything between the event and the present has been read.
Threads: the streams' source threads share it; a lock guards the versions and is never held while fetching.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from copy import copy
from dataclasses import replace
from itertools import count
from threading import Lock
from typing import Protocol

from canal_ha.decode import table_match
from canal_ha.decode.charsets import beyond_doubt, in_doubt
from canal_ha.decode.ddl.create_table import create_table
from canal_ha.decode.ddl.event_types import first_names
from canal_ha.decode.ddl.grammar import read
from canal_ha.decode.ddl.statements import ChangeDatabase
from canal_ha.decode.ddl.tokens import Unreadable, leading
from canal_ha.decode.history.definitions import charset_of, columns_of, definition_of
from canal_ha.decode.history.evidence import Joint, OtherHistory, certain, told_elsewhere
from canal_ha.decode.history.ranges import Range, Ranges, edge
from canal_ha.decode.history.statements import Draft, named
from canal_ha.decode.history.store import Record, Recorder, TableSnapshot
from canal_ha.decode.history.versions import Key, Order, Trust, Version, Versions, position_of
from canal_ha.decode.table_map import TableMap
from canal_ha.decode.told_types import untold
from canal_ha.errors import TableUnknown
from canal_ha.model.position import LogPosition
from canal_ha.model.table import Column, TableSchema

Fetch = Callable[[str, str], str | None]


class TableHistory(Protocol):
    """The tables as a decoder sees them."""

    @property
    def lowers_names(self) -> bool:
        """Whether the server stores the names of tables and schemas in lower case (lower_case_table_names = 1)."""

    def table(self, table_map: TableMap, at: LogPosition) -> TableSchema:
        """Return the columns of the mapped table as of `at`. Raises TableUnknown."""

    def apply(self, at: LogPosition, default_schema: str, sql: str) -> bool:
        """Apply a statement; return whether tables may have other columns or names after it. at: its position."""

    def charset(self, schema: str) -> str:
        """Return the charset that a schema has now for tables that name none; "" if nobody can tell."""


class Ahead(Protocol):
    """Reads statements that a stream has not reached yet. All methods raise the source's errors."""

    def reach(self) -> None:
        """Read every statement between the stream and the nearest snapshot, unless that is done already."""

    def read_on(self) -> LogPosition | None:
        """Read every statement from the stream's position to the newest one; return that, or None if they are gone."""

    def look_back(self, at: LogPosition) -> bool:
        """Read every statement between the stream's range and the one before, and again those up to `at`.

        After that they may have more effect. Return False if there is nothing to read.
        """

    def others(self) -> Collection[OtherHistory]:
        """Return what is stored of the other servers that the destination has read."""

    def joints(self) -> Iterable[Joint]:
        """Return the places where streams went on that had read one of them."""


class History:
    """All versions of all tables of one instance.

    fetch: returns SHOW CREATE TABLE's current text for (schema, table), None if there is no such table; it may raise
    the source's errors.
    charset: returns a schema's current charset, "" if unknown; it may raise the same.
    live_texts: prefer the server's type texts to the statements' (canal.instance.tsdb.enable=false).
    fold_names: table names ignore letter case (lower_case_table_names other than 0).
    lowers_names: see TableHistory.
    recorder: records everything learned from the binlog; called on any source thread.
    in_ranges: statements count only within covered ranges, because there are gaps. False: everything is one range, as
    for binlog files, which are read completely.
    """

    def __init__(
        self,
        fetch: Fetch,
        *,
        charset: Callable[[str], str] = lambda schema: "",
        live_texts: bool = False,
        fold_names: bool = False,
        lowers_names: bool = False,
        recorder: Recorder | None = None,
        in_ranges: bool = False,
    ) -> None:
        self._fetch = fetch
        self.charset = charset
        self.lowers_names = lowers_names
        self._live_texts = live_texts
        self._recorder = recorder
        self._in_ranges = in_ranges
        self._versions = Versions(fold_names=fold_names, floor_of=self._floor)
        self._ranges = Ranges()
        self._lock = Lock()
        self._numbers = count(1)

    @property
    def fold_names(self) -> bool:
        """See above; set it before any version is recorded."""
        return self._versions.fold_names

    @fold_names.setter
    def fold_names(self, folds: bool) -> None:
        self._versions.fold_names = folds

    def view(self, at: LogPosition | None, ahead: Ahead | None = None, *, searching: bool = False) -> TableHistory:
        """Return the tables as one stream sees them.

        at: its start; it reads every statement from there on. None: unknown.
        ahead: reads further for it. Without it the current definition counts for every event that no known statement
        follows.
        searching: only values are compared, and no row is delivered. So a table that is unknown may have any columns
        with the types of the event.
        """
        return _View(self, None if at is None else edge(at).order, ahead, searching)

    # ---- ranges

    def ranges(self) -> Ranges:
        """Return a copy of the ranges whose statements are all known."""
        with self._lock:
            return copy(self._ranges)

    def cover(self, start: LogPosition, end: LogPosition) -> None:
        """Record that every statement between these positions has been applied."""
        with self._lock:
            self._ranges.add(start, end)

    def changed(self, names: Iterable[Key], start: LogPosition, end: LogPosition) -> frozenset[Key]:
        """Return those tables, as (schema, table), that known statements between two positions change.

        names: the tables to check.
        start, end: the positions.
        """
        order, until = edge(start).order, edge(end).order
        return frozenset(name for name in names if self._changed(self._versions.key(*name), order, until))

    def forget(self, known: Range) -> None:
        """Treat a range as unread."""
        with self._lock:
            self._ranges.forget(known)

    def forget_before(self, at: LogPosition) -> None:
        """Drop versions that hold only before `at`."""
        with self._lock:
            self._versions.forget_before(edge(at).order, self._floor(edge(at).order))
            self._ranges.forget_before(at)

    def _floor(self, since: Order | None) -> Order | None:
        """Return the position from which on everything is known to a stream that reads every statement from `since`."""
        if since is None or not self._in_ranges:
            return None
        known = self._ranges.of(since)
        return since if known is None else known.start.order

    # ---- questions of table maps

    def table(self, table_map: TableMap, at: LogPosition, since: Order | None, ahead: Ahead | None) -> TableSchema:
        """Return the columns as of `at`.

        table_map: the event.
        at: its position.
        since: from where on the asking stream has read every statement.
        ahead: reads further for the stream.
        """
        key = self._versions.key(table_map.schema, table_map.name)
        try:
            return self._told(key, table_map, at, since, ahead)
        except TableUnknown:
            with self._lock:
                version = self._versions.at(key, at.order, self._floor(since))
            found = None if version is None else certain(version, table_map)
            if version is None or found is None:
                raise
            return self._schema(version, table_map, found)  # only a charset is in doubt, which few readers need

    def _told(
        self, key: Key, table_map: TableMap, at: LogPosition, since: Order | None, ahead: Ahead | None
    ) -> TableSchema:
        """Return the columns as of `at`, none of them with a charset in doubt. Raises TableUnknown."""
        version, columns = self._known(key, table_map, at.order, since)
        if columns is None and ahead is not None and not table_match.tells_columns(table_map):
            version, columns = self._read_on(key, table_map, at, since, ahead)
        if version is not None and columns is not None:
            if not version.wants_texts:
                return self._schema(version, table_map, columns)
            texts = table_match.by_name(columns_of(self._present(table_map)))
            columns = table_match.with_texts(columns, texts, table_map)
            charset = beyond_doubt(version.charset)
            completed = replace(version, columns=columns, wants_texts=False, charset=charset)
            return self._keep(key, completed, table_map, columns, at)
        columns, charset = self._resolve(key, version, table_map, at)
        shown = table_match.tells_columns(table_map) and table_match.shows_added(table_map)
        trust = Trust.SHOWN if shown else Trust.KNOWN
        if version is None:
            settled = Version(min(at.order, since or at.order), trust, columns, charset=charset, observed=True)
        elif version.trust in (Trust.KNOWN, Trust.SHOWN):
            default = charset if in_doubt(version.charset) else version.charset
            settled = Version(at.order, trust, columns, version.cause, charset=default)
        else:
            settled = replace(version, trust=trust, columns=columns, wants_texts=False, charset=charset)
        return self._keep(key, settled, table_map, columns, at)

    def _known(
        self, key: Key, table_map: TableMap, order: Order, since: Order | None
    ) -> tuple[Version | None, tuple[Column, ...] | None]:
        """Return the version at a position, and its columns if they are certain and agree with the event.

        The version may be a later one that was observed, if no statement lies between.
        """
        with self._lock:
            version = self._versions.at(key, order, self._floor(since))
            known = None if since is None else self._ranges.of(since) or self._ranges.before(order)
            later = None if known is None else self._versions.observed_behind(key, order, known.end.order)
        columns = None if version is None else certain(version, table_map)
        if columns is not None:
            columns = table_match.with_charsets(columns, table_map)
        if columns is not None:
            return version, columns
        if later is not None:
            columns = table_match.agreeing(later.columns, table_map)
            if columns is not None:
                return later, columns
        return version, None

    def _read_on(
        self, key: Key, table_map: TableMap, at: LogPosition, since: Order | None, ahead: Ahead
    ) -> tuple[Version, tuple[Column, ...]]:
        """Return what is known once the statements up to the nearest snapshot or the current definition are read.

        Raises TableUnknown.
        """
        ahead.reach()
        version, columns = self._known(key, table_map, at.order, since)
        if version is not None and columns is not None:
            return version, columns
        definition = self._present(table_map)
        present = columns_of(definition)
        agrees = table_match.agreeing(present, table_map) is not None
        if agrees and not self._changed(key, at.order):
            newest = ahead.read_on()  # after fetching the definition, so that no statement between the two is missed
            if newest is not None and not self._changed(key, at.order, edge(newest).order):
                charset = charset_of(definition)
                observed = Version(edge(newest).order, Trust.KNOWN, present, charset=charset, observed=True)
                self._record(key, observed, table_map, at)
            version, columns = self._known(key, table_map, at.order, since)
        if columns is None:
            self._learn_elsewhere(key, table_map, at, since, ahead)
            version, columns = self._known(key, table_map, at.order, since)
        while columns is None and ahead.look_back(at):
            version, columns = self._known(key, table_map, at.order, since)
        if version is not None and columns is not None:
            return version, columns
        raise TableUnknown(_unknown(version, table_map, at, present=bool(present), agrees=agrees))

    def _learn_elsewhere(
        self, key: Key, table_map: TableMap, at: LogPosition, since: Order | None, ahead: Ahead
    ) -> None:
        """Take over what the histories of other servers know: of this table, and of all tables where streams moved."""
        others, joints = ahead.others(), ahead.joints()
        with self._lock:
            known = None if since is None else self._ranges.of(since)
            if known is None:
                return
            self._take_over(joints, known)
            last = self._versions.at(key, at.order, known.start.order)
            if last is not None and last.trust is not Trust.UNCERTAIN:
                return
            if last is not None and self._versions.changes_behind(key, last.order, at.order):
                last = None
            following = self._versions.statement_behind(key, at.order, known.end.order)
        told = told_elsewhere(self, others, table_map, last, following)
        if told is None:
            return
        if following is not None:
            taken = _observed(told, edge(position_of(following.order)).order)
        else:
            assert last is not None
            taken = replace(last, trust=told.trust, columns=told.columns, charset=told.charset)
        self._record(key, taken, table_map, at)

    def _take_over(self, joints: Iterable[Joint], known: Range) -> None:
        """Record what tables were where streams went on, if a statement behind changes them and nobody read it before.

        joints: those places.
        known: the range around.
        """
        keys = self._versions.keys()
        for joint in joints:
            if not known.start.order <= joint.here <= known.end.order:
                continue
            for key in keys:
                if not self._versions.changes_behind(key, joint.here):
                    continue
                last = self._versions.at(key, joint.here, known.start.order)
                following = self._versions.statement_behind(key, joint.here, known.end.order)
                if following is None or (last is not None and last.trust is not Trust.UNCERTAIN):
                    continue
                # the stream may have passed a statement there that lies behind the place here, perhaps in other words
                passed = any(version.second == following.second for version in joint.other.versions(key))
                told = None if passed else joint.other.as_of(key, joint.left)
                if told is not None and told.trust is Trust.KNOWN:
                    self._versions.record(key, _observed(told, joint.here))

    def like(self, table_map: TableMap, ahead: Ahead) -> TableSchema | None:
        """Return columns that the table had at some time on another server, with the types of this event."""
        for other in ahead.others():
            for version in other.versions((table_map.schema, table_map.name)):
                columns = certain(version, table_map)
                if columns is not None:
                    return self._schema(version, table_map, columns)
        return None

    def versions(self, name: Key) -> Sequence[Version]:
        """See OtherHistory."""
        with self._lock:
            return self._versions.of_table(self._versions.key(*name))

    def as_of(self, name: Key, order: Order) -> Version | None:
        """See OtherHistory."""
        with self._lock:
            known = self._ranges.of(order)
            return None if known is None else self._versions.at(self._versions.key(*name), order, known.start.order)

    def around(self, name: Key, statement: Version) -> Sequence[tuple[Version | None, Version]]:
        """See OtherHistory."""
        with self._lock:
            return self._versions.around(self._versions.key(*name), statement)

    def _changed(self, key: Key, behind: Order, until: Order | None = None) -> bool:
        with self._lock:
            return self._versions.changes_behind(key, behind, until)

    def _resolve(
        self, key: Key, version: Version | None, table_map: TableMap, at: LogPosition
    ) -> tuple[tuple[Column, ...], str]:
        """Return columns and charset of a table that its versions do not settle.

        Either the event has names, or nothing lies ahead.
        Raises TableUnknown.
        """
        known = version.columns if version is not None else ()
        definition = self._present(table_map)
        present, charset = columns_of(definition), charset_of(definition)
        if table_match.tells_columns(table_map):
            sources = (known, present) if known and not self._live_texts else (present, known)
            return table_match.rebuilt(table_map, *map(table_match.by_name, sources)), charset
        # the current definition holds for an event only if no statement after the event is known
        found = table_match.agreeing(present, table_map)
        columns = None if self._changed(key, at.order) else found
        if columns is None and version is not None and version.trust is Trust.ASSUMED:
            columns, charset = table_match.agreeing(known, table_map), version.charset
        if columns is None:
            raise TableUnknown(_unknown(version, table_map, at, present=bool(present), agrees=found is not None))
        return columns, charset

    def _present(self, table_map: TableMap) -> str:
        """Return the current definition; "" if there is none."""
        text = self._fetch(table_map.schema, table_map.name)
        return "" if text is None else definition_of(text)

    def _keep(
        self, key: Key, version: Version, table_map: TableMap, columns: tuple[Column, ...], at: LogPosition
    ) -> TableSchema:
        """Record what a table map settled, without hidden columns: statements omit them, so each event adds them."""
        version = replace(version, columns=tuple(column for column in version.columns if not column.hidden))
        self._record(key, version, table_map, at)
        return self._schema(version, table_map, columns)

    def _record(self, key: Key, version: Version, table_map: TableMap, at: LogPosition) -> None:
        """Record a version. at: position of the table map that asked for it."""
        with self._lock:
            self._versions.record(key, version, over_known=True)
        if self._recorder and version.trust is Trust.KNOWN and all(column.mysql_type for column in version.columns):
            schema, table = table_map.schema, table_map.name
            since = position_of(version.order)
            sql = create_table(table, version.columns, version.charset)
            self._recorder.record(Record(at, schema, sql, table, since))

    def _schema(self, version: Version, table_map: TableMap, columns: tuple[Column, ...]) -> TableSchema:
        with self._lock:
            schema = version.schemas.get(columns)
            if schema is None:
                schema = TableSchema(table_map.schema, table_map.name, columns, next(self._numbers))
                version.schemas[columns] = schema
        return schema

    # ---- statements

    def apply(self, at: LogPosition, default_schema: str, sql: str, since: Order | None) -> bool:
        """Record what a statement changes, from `at` on; return whether it changes tables.

        at: its position.
        default_schema: the session's.
        sql: its text.
        since: as in `table`.
        Versions already known at this position stay, because another stream was here before.
        """
        changes = self._take(at, default_schema, sql, since)
        if changes and self._recorder:
            self._recorder.record(Record(at, default_schema, sql))
        return changes

    def _take(self, at: LogPosition, default_schema: str, sql: str, since: Order | None) -> bool:
        """Apply a statement; return whether it concerns tables."""
        try:
            statement = read(sql)
        except Unreadable:
            names = first_names(leading(sql))
            if names is None:
                return False
            with self._lock:
                keys = [named(self._versions, name, default_schema) for name in names] or self._versions.keys()
                for key in keys:
                    second = at.timestamp_ms // 1000
                    self._versions.record(key, Version(at.order, Trust.UNCERTAIN, cause=sql, second=second))
                if not names:
                    self._versions.record_everywhere(at.order)
            return True
        if statement is None:
            return False
        with self._lock:
            floor = self._floor(since)
            draft = Draft(self._versions, at, sql, default_schema, floor=floor, live_texts=self._live_texts)
            draft.take(statement)
            for key, version in draft.versions.items():
                self._versions.record(key, version)
        return bool(draft.versions) or isinstance(statement, ChangeDatabase)

    # ---- stored records

    def restore(self, records: Iterable[Record], snapshots: Iterable[TableSnapshot] = ()) -> None:
        """Load stored records and snapshots in the order of their positions, without recording them again.

        A statement outside all ranges is left out: statements before it may be missing, and it will be read again.
        """
        items: list[tuple[tuple[object, ...], Record | TableSnapshot]] = [(record.order, record) for record in records]
        items += [((edge(snapshot.at).order, False), snapshot) for snapshot in snapshots]
        for _, item in sorted(items, key=lambda pair: pair[0]):
            if isinstance(item, TableSnapshot):
                self._restore_snapshot(item)
            elif item.table:
                key = self._versions.key(item.schema, item.table)
                order = (item.since or item.at).order
                with self._lock:
                    self._versions.observe(key, order, definition_of(item.sql), self._floor(order))
            elif not self._in_ranges or self._ranges.of(item.at.order):
                self._take(item.at, item.schema, item.sql, item.at.order)

    def _restore_snapshot(self, snapshot: TableSnapshot) -> None:
        order = edge(snapshot.at).order
        with self._lock:
            if snapshot.left_out is not None:
                left_out = frozenset(self._versions.key(*name) for name in snapshot.left_out)
                self._versions.record_listing(order, left_out)
            floor = self._floor(order)
            for (schema, table), definition in snapshot.tables.items():
                self._versions.observe(self._versions.key(schema, table), order, definition, floor)


class _View:
    """The history as one stream sees it."""

    def __init__(self, history: History, since: Order | None, ahead: Ahead | None, searching: bool) -> None:
        self._history = history
        self._since = since
        self._ahead = ahead
        self._searching = searching

    @property
    def lowers_names(self) -> bool:
        return self._history.lowers_names

    def table(self, table_map: TableMap, at: LogPosition) -> TableSchema:
        try:
            return self._history.table(table_map, at, self._since, self._ahead)
        except TableUnknown:
            found = self._history.like(table_map, self._ahead) if self._searching and self._ahead else None
            if found is None:
                raise
            return found

    def charset(self, schema: str) -> str:
        return self._history.charset(schema)

    def apply(self, at: LogPosition, default_schema: str, sql: str) -> bool:
        return self._history.apply(at, default_schema, sql, self._since)


def _observed(version: Version, order: Order) -> Version:
    """Return a version of another server's as one that was observed here."""
    return replace(version, order=order, cause="", observed=True, if_absent=False, second=0)


def _unknown(version: Version | None, table_map: TableMap, at: LogPosition, *, present: bool, agrees: bool) -> str:
    """Return the message for unknown columns.

    present: the server has a definition now.
    agrees: that definition agrees with the event.
    """
    if version is None or not version.cause:
        reason = "no statement in the binlog since the stream's start describes the table"
    else:
        reason = f"the last known statement about it is: {version.cause[:500]}"
    if agrees:
        reason += "; the server's current definition may be a later one: later statements change the table, or are gone"
    elif present:
        reason += "; the server's current definition does not agree with the event"
    else:
        reason += "; the table does not exist on the server any more"
    event, advice = f"{len(table_map.types)} columns", ""
    if table_map.names is None:
        advice = "Set binlog_row_metadata=FULL on the source for future events. "
    else:
        untold_types = ", ".join(f"{table_map.names[index]} ({what})" for index, what in untold(table_map))
        event += f" and does not tell the types of {untold_types}"
    return (
        f"columns of {table_map.schema}.{table_map.name} at {at} are not known for certain: the event has {event};"
        f" {reason}. {advice}Start this stream after the position (canal-ha cursor set), or exclude the table"
        " (canal.instance.filter.black.regex)"
    )
