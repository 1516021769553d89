"""Turns a statement into new versions of the tables that it changes, from its position on. Pure."""

from __future__ import annotations

from canal_ha.decode.ddl.apply import alter, default_charset
from canal_ha.decode.ddl.statements import (
    AlterTable,
    Change,
    ChangeDatabase,
    ChangeIndex,
    ConvertCharset,
    CreateTable,
    DefaultCharset,
    DropTables,
    Name,
    RenameTables,
    SetVisibility,
    Statement,
)
from canal_ha.decode.ddl.tokens import Unreadable
from canal_ha.decode.history.versions import Key, Order, Trust, Version, Versions
from canal_ha.model.position import LogPosition
from canal_ha.model.table import Column


def named(known: Versions, name: Name, default_schema: str) -> Key:
    """Return the key of a table that a statement names."""
    return known.key(name.schema or default_schema, name.table)


class Draft:
    """The versions that one statement makes.

    known: the versions before it.
    at, sql, default_schema: the statement.
    floor: see Versions.
    live_texts: see History.
    """

    def __init__(
        self, known: Versions, at: LogPosition, sql: str, default_schema: str, *, floor: Order | None, live_texts: bool
    ) -> None:
        self.versions: dict[Key, Version] = {}
        self._known = known
        self._order = at.order
        self._second = at.timestamp_ms // 1000
        self._floor = floor
        self._sql = sql
        self._default_schema = default_schema
        self._live_texts = live_texts

    def take(self, statement: Statement) -> None:
        """Apply one statement."""
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
                for key in self._known.of_schema(schema):
                    self._set(key, Trust.DROPPED)
                self._known.record_everywhere(self._order, schema)

    def _key(self, name: Name) -> Key:
        return named(self._known, name, self._default_schema)

    def _get(self, key: Key) -> Version | None:
        return self.versions.get(key) or self._known.before(key, self._order, self._floor)

    def _absent(self, key: Key) -> bool:
        return self._known.absent(key, self._order, self._floor)

    def _set(
        self,
        key: Key,
        trust: Trust,
        columns: tuple[Column, ...] = (),
        wants_texts: bool = False,
        *,
        charset: str = "",
        if_absent: bool = False,
    ) -> None:
        texts = wants_texts or (self._live_texts and trust is Trust.KNOWN)
        self.versions[key] = Version(
            self._order, trust, columns, self._sql, texts, charset, if_absent=if_absent, second=self._second
        )

    def _copy(self, key: Key, version: Version) -> None:
        self._set(key, version.trust, version.columns, version.wants_texts, charset=version.charset)

    def _create(self, statement: CreateTable) -> None:
        key = self._key(statement.name)
        known = self._get(key)
        if statement.if_not_exists and known is not None and known.trust is not Trust.DROPPED:
            return
        if statement.like is not None:
            source = self._get(self._key(statement.like))
            if source is not None and source.readable:
                self._copy(key, source)
            else:
                self._set(key, Trust.UNCERTAIN)
        elif statement.selected:
            self._set(key, Trust.UNCERTAIN)
        else:
            fresh = not statement.if_not_exists or known is not None or self._absent(key)
            trust = Trust.KNOWN if fresh else Trust.ASSUMED
            self._set(key, trust, statement.columns, statement.refused, charset=statement.charset, if_absent=not fresh)

    def _alter(self, statement: AlterTable) -> None:
        key = self._key(statement.name)
        if statement.changes:
            self._change(key, statement.changes)
        if statement.split_off is not None:
            version = self._get(key)
            if version is not None and version.readable:
                self._copy(self._key(statement.split_off), version)
        if statement.absorbed is not None:
            self._set(self._key(statement.absorbed), Trust.DROPPED)
        if statement.renamed is not None:
            self._rename(key, self._key(statement.renamed))

    def _change(self, key: Key, changes: tuple[Change, ...]) -> None:
        version = self._get(key)
        if version is None or not version.readable or version.trust is Trust.SHOWN:
            if not all(isinstance(change, SetVisibility | ConvertCharset | DefaultCharset) for change in changes):
                self._set(key, Trust.UNCERTAIN)
            return
        try:
            columns = alter(version.columns, changes, version.charset)
            charset = default_charset(version.columns, changes, version.charset)
            self._set(key, version.trust, columns, version.wants_texts, charset=charset)
        except Unreadable:
            self._set(key, Trust.UNCERTAIN)

    def _rename(self, old: Key, new: Key) -> None:
        version = self._get(old)
        if version is None:
            self._set(new, Trust.UNCERTAIN)
        else:
            self._copy(new, version)
        self._set(old, Trust.DROPPED)
