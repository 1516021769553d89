"""What is known of each table, and from which position on: versions in the order of their positions.

No locks here: the history that owns them holds its own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from canal_ha.model.position import LogPosition
from canal_ha.model.table import Column, TableSchema

Key = tuple[str, str]
Order = tuple[str, int, int, bool, int]  # LogPosition.order


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


class Versions:
    """All versions of all tables. fold_names: names differ in letter case only."""

    def __init__(self, *, fold_names: bool) -> None:
        self.fold_names = fold_names
        self._tables: dict[Key, list[Version]] = {}

    def key(self, schema: str, table: str) -> Key:
        """What a table is kept under."""
        return (schema.lower(), table.lower()) if self.fold_names else (schema, table)

    def at(self, key: Key, order: Order) -> Version | None:
        """What holds at a position."""
        versions = self._tables.get(key, [])
        index = bisect_right(versions, order, key=_order)
        return versions[index - 1] if index else None

    def before(self, key: Key, order: Order) -> Version | None:
        """What holds until a position."""
        versions = self._tables.get(key, [])
        index = bisect_left(versions, order, key=_order)
        return versions[index - 1] if index else None

    def changes_behind(self, key: Key, order: Order) -> bool:
        """Whether a statement behind a position is known to change this table."""
        versions = self._tables.get(key, [])
        return any(version.cause for version in versions[bisect_right(versions, order, key=_order) :])

    def record(self, key: Key, version: Version, *, over_known: bool = False) -> None:
        """Add a version. One that is known at this very position already stays, unless it may be replaced."""
        versions = self._tables.setdefault(key, [])
        index = bisect_left(versions, version.order, key=_order)
        if index < len(versions) and versions[index].order == version.order:
            if over_known or versions[index].trust in (Trust.UNCERTAIN, Trust.ASSUMED):
                versions[index] = version
        else:
            versions.insert(index, version)

    def keys(self) -> list[Key]:
        """Every table."""
        return list(self._tables)

    def of_schema(self, schema: str) -> Iterator[Key]:
        """Every table of a schema."""
        folded = schema.lower() if self.fold_names else schema
        return (key for key in self._tables if key[0] == folded)

    def beginning(self, order: Order) -> Iterator[tuple[Key, Version]]:
        """Every table with a version from exactly this position on, and that."""
        for key in self.keys():
            version = self.at(key, order)
            if version is not None and version.order == order:
                yield key, version

    def forget_before(self, order: Order) -> None:
        """Drop what held before a position alone, and tables that were gone by then."""
        for key, versions in list(self._tables.items()):
            del versions[: max(0, bisect_right(versions, order, key=_order) - 1)]
            if len(versions) == 1 and versions[0].trust is Trust.DROPPED and versions[0].order <= order:
                del self._tables[key]

    def clear(self) -> None:
        """Forget everything."""
        self._tables.clear()


def position_of(order: Order) -> LogPosition:
    """A position of this order."""
    base, number, offset, consumed, sub_index = order
    journal = f"{base}.{number:06d}" if number else base
    return LogPosition(journal, offset, consumed=consumed, sub_index=sub_index)


def _order(version: Version) -> Order:
    return version.order
