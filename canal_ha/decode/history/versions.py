"""The known versions of each table, in the order of the positions from which they hold.

No locks here: the history that owns the versions has one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum

from canal_ha.decode.history.definitions import charset_of, columns_of
from canal_ha.model.position import LogPosition
from canal_ha.model.table import Column, TableSchema

NOT_LISTED = frozenset({"mysql", "sys", "information_schema", "performance_schema"})  # schemas without snapshots

Key = tuple[str, str]
Order = tuple[str, int, int, bool, int]  # LogPosition.order


class Trust(Enum):
    """How reliable a version is."""

    KNOWN = "known"
    SHOWN = "shown"  # by an event with names, with columns that the server may have added: see table_match.shows_added
    ASSUMED = "assumed"  # CREATE TABLE IF NOT EXISTS of an unknown table, which may have existed with other columns
    UNCERTAIN = "uncertain"  # changed by a statement whose effect is unknown
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a table, which holds from `order` on.

    cause: the statement that made it; "" if none did.
    wants_texts: take the type texts from the server once, if they agree (canal's parser rejects the statement, or the
    instance prefers the server's texts).
    charset: the table's, which new texts get; "" for the schema's.
    observed: the table was seen in this form at `order`, without a statement there. So the columns hold before it as
    well, back to the last statement about the table.
    if_absent: the statement creates the table only if there is none, and it is unknown whether there was one.
    second: when the statement was written, seconds since 1970; 0 if unknown. All servers that replicate it keep this
    time.
    """

    order: Order
    trust: Trust
    columns: tuple[Column, ...] = ()
    cause: str = ""
    wants_texts: bool = False
    charset: str = ""
    observed: bool = False
    if_absent: bool = False
    second: int = 0
    schemas: dict[tuple[Column, ...], TableSchema] = field(default_factory=dict, init=False, compare=False)

    @property
    def readable(self) -> bool:
        """Whether the version has columns."""
        return self.trust in (Trust.KNOWN, Trust.SHOWN, Trust.ASSUMED)


class Versions:
    """All versions of all tables.

    fold_names: table names ignore letter case.
    floor_of: returns the floor for a position.
    floor: a position; versions before it do not count, because statements in between may be unknown. None: all count.
    """

    def __init__(self, *, fold_names: bool, floor_of: Callable[[Order], Order | None] = lambda order: None) -> None:
        self.fold_names = fold_names
        self._floor_of = floor_of
        self._tables: dict[Key, list[Version]] = {}
        self._unread: dict[Key, list[tuple[Order, str]]] = {}  # definitions to parse when the table is asked for
        self._everywhere: list[
            tuple[Order, str]
        ] = []  # statements that may change unknown tables of a schema ("": any)
        self._listings: list[tuple[Order, frozenset[Key]]] = []  # positions where all tables were listed, except these

    def key(self, schema: str, table: str) -> Key:
        """Return the key of a table."""
        return (schema.lower(), table.lower()) if self.fold_names else (schema, table)

    def at(self, key: Key, order: Order, floor: Order | None = None) -> Version | None:
        """Return the version that holds at a position."""
        versions = self._settled(key)
        return _last(versions, bisect_right(versions, order, key=_order), floor)

    def before(self, key: Key, order: Order, floor: Order | None = None) -> Version | None:
        """Return the version that holds until a position."""
        versions = self._settled(key)
        return _last(versions, bisect_left(versions, order, key=_order), floor)

    def observed_behind(self, key: Key, order: Order, end: Order) -> Version | None:
        """Return the version of an existing table that was observed behind a position, not after `end`.

        Return None if a known statement in between changed the table. CREATE TABLE IF NOT EXISTS changes nothing there.
        """
        versions = self._settled(key)
        for version in versions[bisect_right(versions, order, key=_order) :]:
            if version.order > end:
                return None
            if version.observed or (version.if_absent and version.trust is Trust.KNOWN):
                return None if self._changed_everywhere(key, order, version.order) else version
            if not version.if_absent:
                return None
        return None

    def statement_behind(self, key: Key, order: Order, end: Order) -> Version | None:
        """Return the version that the next statement about an existing table makes, behind a position, up to `end`.

        Return None if there is none, or if it may not be the next one.
        """
        versions = self._settled(key)
        for version in versions[bisect_right(versions, order, key=_order) :]:
            if version.order > end or version.observed:
                return None
            if version.cause and not version.if_absent:
                return None if self._changed_everywhere(key, order, version.order) else version
        return None

    def around(self, key: Key, statement: Version) -> list[tuple[Version | None, Version]]:
        """Return the versions before and from a statement on, for each time that it was recorded here.

        statement: a version that the statement made of the same table, perhaps in another server's binlog. A server
        may word the DROP of another one differently, so a table that is gone since the same second was dropped alike.
        """
        found = []
        for made in self._settled(key):
            same = made.cause == statement.cause or made.trust is statement.trust is Trust.DROPPED
            if same and 0 < made.second == statement.second:
                held = self.before(key, made.order, self._floor_of(made.order))
                unsure = held is not None and self._changed_everywhere(key, held.order, made.order)
                found.append((None if unsure else held, made))
        return found

    def changes_behind(self, key: Key, order: Order, until: Order | None = None) -> bool:
        """Return whether a known statement behind a position, and before `until`, changes an existing table."""
        settles = any(not _is_edge(order) for order, _ in self._unread.get(key, ()))
        versions = self._settled(key) if settles else self._tables.get(key, [])
        behind = versions[bisect_right(versions, order, key=_order) :]
        changes = (version for version in behind if version.cause and not version.if_absent)
        known = any(until is None or version.order < until for version in changes)
        return known or self._changed_everywhere(key, order, until)

    def absent(self, key: Key, order: Order, floor: Order | None) -> bool:
        """Return whether an unknown table did not exist at a position: an earlier list of all tables lacks it."""
        index = bisect_right(self._listings, order, key=_first)
        if not index:
            return False
        listed, left_out = self._listings[index - 1]
        counts = (floor is None or listed >= floor) and key not in left_out and key[0].lower() not in NOT_LISTED
        return counts and not self._changed_everywhere(key, listed, order)

    def of_table(self, key: Key) -> list[Version]:
        """Return all versions of a table."""
        return [*self._settled(key)]

    def record(self, key: Key, version: Version, *, over_known: bool = False) -> None:
        """Add a version. A version already known at its position stays, unless it may be replaced."""
        versions = self._tables.setdefault(key, [])
        index = bisect_left(versions, version.order, key=_order)
        if index < len(versions) and versions[index].order == version.order:
            if over_known or versions[index].trust in (Trust.SHOWN, Trust.UNCERTAIN, Trust.ASSUMED):
                versions[index] = version
        else:
            versions.insert(index, version)

    def observe(self, key: Key, order: Order, definition: str, floor: Order | None) -> None:
        """Record that a table has this definition at a position.

        order: a snapshot's edge, or the position of a statement whose result a table map showed.
        floor: as above, for `order`.
        """
        unread = self._unread.setdefault(key, [])
        if unread and unread[-1][1] == definition and _is_edge(order):
            last = unread[-1][0]
            known = last <= order and (floor is None or last >= floor)
            if known and not any(last < version.order <= order for version in self._tables.get(key, ())):
                return
        unread.append((order, definition))

    def record_everywhere(self, order: Order, schema: str = "") -> None:
        """Record a statement that may change unknown tables. schema: their schema; "" for any."""
        folded = schema.lower() if self.fold_names else schema
        index = bisect_left(self._everywhere, (order, folded))
        if self._everywhere[index : index + 1] != [(order, folded)]:
            self._everywhere.insert(index, (order, folded))

    def record_listing(self, order: Order, left_out: frozenset[Key]) -> None:
        """Record that all tables were listed at a position. left_out: those without a definition."""
        index = bisect_left(self._listings, order, key=_first)
        self._listings.insert(index, (order, left_out))

    def keys(self) -> list[Key]:
        """Return every table."""
        return list(dict.fromkeys((*self._tables, *self._unread)))

    def of_schema(self, schema: str) -> list[Key]:
        """Return every table of a schema."""
        folded = schema.lower() if self.fold_names else schema
        return [key for key in self.keys() if key[0] == folded]

    def forget_before(self, order: Order, floor: Order | None = None) -> None:
        """Drop versions that hold only before a position, and tables dropped by then. floor: as above, for `order`."""
        self._forget_unread_before(order, floor)
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

    def _forget_unread_before(self, order: Order, floor: Order | None) -> None:
        """Drop definitions that hold only before a position; settle those of tables that have other versions, too."""
        for key, unread in list(self._unread.items()):
            versions = self._tables.get(key, [])
            held = _last(versions, bisect_right(versions, order, key=_order), floor)
            kept = [seen for seen in unread if held is None or seen[0] >= held.order]
            before = [seen for seen in kept if seen[0] <= order]
            if before and (held is not None or not all(_is_edge(place) for place, _ in before)):
                self._unread[key] = kept
                self._settled(key)
                continue
            kept = [seen for seen in kept if seen[0] > order]
            last = max(before, default=None)
            if last is not None and (floor is None or last[0] >= floor):
                kept.insert(0, (order, last[1]))
            if kept:
                self._unread[key] = kept
            else:
                del self._unread[key]

    def _settled(self, key: Key) -> list[Version]:
        """Parse the definitions of a table that are still unread; return its versions."""
        for order, definition in self._unread.pop(key, ()):
            columns = columns_of(definition)
            if columns:
                self._settle(key, order, columns, charset_of(definition))
        return self._tables.get(key, [])

    def _settle(self, key: Key, order: Order, columns: tuple[Column, ...], charset: str) -> None:
        known = self.at(key, order, self._floor_of(order))
        if known is not None and known.trust is Trust.KNOWN and known.columns == columns:
            return
        if known is not None and known.order == order:
            version = replace(known, trust=Trust.KNOWN, columns=columns, wants_texts=False, charset=charset)
        elif _is_edge(order):
            version = Version(order, Trust.KNOWN, columns, charset=charset, observed=True)
        else:  # a table map settled it after a statement that will be read again
            cause = f"a statement at {position_of(order)}"
            version = Version(order, Trust.KNOWN, columns, cause, charset=charset)
        self.record(key, version, over_known=True)

    def _changed_everywhere(self, key: Key, behind: Order, until: Order | None) -> bool:
        """Return whether a statement between two positions may have changed a table that it does not name."""
        index = bisect_right(self._everywhere, behind, key=_first)
        return any(
            schema in ("", key[0]) and (until is None or order < until) for order, schema in self._everywhere[index:]
        )


def _last(versions: list[Version], index: int, floor: Order | None) -> Version | None:
    """Return the version before an index; None if it is below the floor.

    A version that an event showed is passed over if the one before it is known.
    """
    found = None
    for at in range(index - 1, -1, -1):
        version = versions[at]
        if floor is not None and version.order < floor:
            break
        if version.trust is not Trust.SHOWN or not version.observed:
            return version if found is None or version.trust is Trust.KNOWN else found
        found = found or version
    return found


def _is_edge(order: Order) -> bool:
    """Return whether a position is the edge before an event."""
    return order[-1] < 0


def _first(item: tuple[Order, object]) -> Order:
    return item[0]


def position_of(order: Order) -> LogPosition:
    """Return a position with this order."""
    base, number, offset, consumed, sub_index = order
    journal = f"{base}.{number:06d}" if number else base
    return LogPosition(journal, offset, consumed=consumed, sub_index=sub_index)


def _order(version: Version) -> Order:
    return version.order
