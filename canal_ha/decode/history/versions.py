"""What is known of each table, and from which position on: versions in the order of their positions.

No locks here: the history that owns them holds its own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from canal_ha.model.position import LogPosition
from canal_ha.model.table import Column, TableSchema

NOT_LISTED = frozenset({"mysql", "sys", "information_schema", "performance_schema"})  # schemas without snapshots

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
    statement, or the instance prefers the server's texts). observed: the table was seen to be so at `order`, without a
    statement there: the columns held before it, too, back to the last statement about the table. if_absent: the
    statement creates the table if there is none, and nobody knows whether there was.
    """

    order: Order
    trust: Trust
    columns: tuple[Column, ...] = ()
    cause: str = ""
    wants_texts: bool = False
    observed: bool = False
    if_absent: bool = False
    schemas: dict[tuple[Column, ...], TableSchema] = field(default_factory=dict, init=False, compare=False)

    @property
    def readable(self) -> bool:
        """Whether there are columns to go by."""
        return self.trust in (Trust.KNOWN, Trust.ASSUMED)


class Versions:
    """All versions of all tables. fold_names: names differ in letter case only.

    floor: a position; what is known before it does not count, because statements between may be unknown. None: all
    counts.
    """

    def __init__(self, *, fold_names: bool) -> None:
        self.fold_names = fold_names
        self._tables: dict[Key, list[Version]] = {}
        self._everywhere: list[tuple[Order, str]] = []  # statements that may change tables nobody knows: schema or ""
        self._listings: list[tuple[Order, frozenset[Key]]] = []  # all tables were listed then, but for these

    def key(self, schema: str, table: str) -> Key:
        """What a table is kept under."""
        return (schema.lower(), table.lower()) if self.fold_names else (schema, table)

    def at(self, key: Key, order: Order, floor: Order | None = None) -> Version | None:
        """What holds at a position."""
        versions = self._tables.get(key, [])
        return _last(versions, bisect_right(versions, order, key=_order), floor)

    def before(self, key: Key, order: Order, floor: Order | None = None) -> Version | None:
        """What holds until a position."""
        versions = self._tables.get(key, [])
        return _last(versions, bisect_left(versions, order, key=_order), floor)

    def observed_behind(self, key: Key, order: Order, end: Order) -> Version | None:
        """What was observed behind a position where the table exists, at `end` at the latest, and no known statement
        between them changed. CREATE TABLE IF NOT EXISTS changes nothing there.
        """
        versions = self._tables.get(key, [])
        for version in versions[bisect_right(versions, order, key=_order) :]:
            if version.order > end:
                return None
            if version.observed or (version.if_absent and version.trust is Trust.KNOWN):
                return None if self._changed_everywhere(key, order, version.order) else version
            if not version.if_absent:
                return None
        return None

    def changes_behind(self, key: Key, order: Order, until: Order | None = None) -> bool:
        """Whether a statement behind a position where the table exists, and before `until`, is known to change it."""
        versions = self._tables.get(key, [])
        behind = versions[bisect_right(versions, order, key=_order) :]
        changes = (version for version in behind if version.cause and not version.if_absent)
        known = any(until is None or version.order < until for version in changes)
        return known or self._changed_everywhere(key, order, until)

    def absent(self, key: Key, order: Order, floor: Order | None) -> bool:
        """Whether a table of which nothing is known did not exist at a position: all were listed before, without it."""
        index = bisect_right(self._listings, order, key=_first)
        if not index:
            return False
        listed, left_out = self._listings[index - 1]
        counts = (floor is None or listed >= floor) and key not in left_out and key[0].lower() not in NOT_LISTED
        return counts and not self._changed_everywhere(key, listed, order)

    def record(self, key: Key, version: Version, *, over_known: bool = False) -> None:
        """Add a version. One that is known at this very position already stays, unless it may be replaced."""
        versions = self._tables.setdefault(key, [])
        index = bisect_left(versions, version.order, key=_order)
        if index < len(versions) and versions[index].order == version.order:
            if over_known or versions[index].trust in (Trust.UNCERTAIN, Trust.ASSUMED):
                versions[index] = version
        else:
            versions.insert(index, version)

    def record_everywhere(self, order: Order, schema: str = "") -> None:
        """Remember a statement that may change tables nobody knows. schema: of these tables, "" for any."""
        folded = schema.lower() if self.fold_names else schema
        index = bisect_left(self._everywhere, (order, folded))
        if self._everywhere[index : index + 1] != [(order, folded)]:
            self._everywhere.insert(index, (order, folded))

    def record_listing(self, order: Order, left_out: frozenset[Key]) -> None:
        """Remember that every table was listed at a position. left_out: those that were not looked at closely."""
        index = bisect_left(self._listings, order, key=_first)
        self._listings.insert(index, (order, left_out))

    def keys(self) -> list[Key]:
        """Every table."""
        return list(self._tables)

    def of_schema(self, schema: str) -> Iterator[Key]:
        """Every table of a schema."""
        folded = schema.lower() if self.fold_names else schema
        return (key for key in self._tables if key[0] == folded)

    def forget_before(self, order: Order, floor: Order | None = None) -> None:
        """Drop what held before a position alone, and tables that were gone by then. floor: as above, of `order`."""
        for key, versions in list(self._tables.items()):
            index = bisect_right(versions, order, key=_order)
            held = _last(versions, index, floor)
            kept = versions[index:]
            if held is not None and held.trust is not Trust.DROPPED:
                kept.insert(0, held if held.order == order else replace(held, order=order))
            if kept:
                self._tables[key] = kept
            else:
                del self._tables[key]
        self._everywhere = [changed for changed in self._everywhere if changed[0] >= order]
        self._listings = [listed for listed in self._listings if listed[0] >= order]

    def _changed_everywhere(self, key: Key, behind: Order, until: Order | None) -> bool:
        """Whether a statement between two positions may have changed a table that it does not name."""
        index = bisect_right(self._everywhere, behind, key=_first)
        return any(
            schema in ("", key[0]) and (until is None or order < until) for order, schema in self._everywhere[index:]
        )


def _last(versions: list[Version], index: int, floor: Order | None) -> Version | None:
    """The version before an index, None when it is below the floor."""
    version = versions[index - 1] if index else None
    return version if version is not None and (floor is None or version.order >= floor) else None


def _first(item: tuple[Order, object]) -> Order:
    return item[0]


def position_of(order: Order) -> LogPosition:
    """A position of this order."""
    base, number, offset, consumed, sub_index = order
    journal = f"{base}.{number:06d}" if number else base
    return LogPosition(journal, offset, consumed=consumed, sub_index=sub_index)


def _order(version: Version) -> Order:
    return version.order
