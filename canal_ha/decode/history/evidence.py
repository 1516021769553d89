"""Evidence of a table's columns: a version that agrees with an event, known here or from another server's binlog. Pure.

Servers that replicate from each other have the same statements about a table, in the same order. A replica keeps the
text and the time of each statement. So a table has the same columns between two statements on every such server, and
one of the statements is enough to find them there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from canal_ha.decode import table_match
from canal_ha.decode.history.ranges import edge
from canal_ha.decode.history.versions import Key, Order, Trust, Version
from canal_ha.decode.table_map import TableMap
from canal_ha.model.position import LogPosition
from canal_ha.model.table import Column


class OtherHistory(Protocol):
    """The table history of another server."""

    def around(self, name: Key, statement: Version) -> Sequence[tuple[Version | None, Version]]:
        """Return the versions before and from a statement on, for each time that it was recorded there.

        name: schema and table.
        statement: a version that the statement made of this table here.
        """

    def as_of(self, name: Key, order: Order) -> Version | None:
        """Return the version of a table at a position of a known range."""

    def versions(self, name: Key) -> Sequence[Version]:
        """Return all known versions of a table."""


@dataclass(frozen=True, slots=True)
class Joint:
    """The same place in two binlogs: a stream left one there and went on in the other.

    other: the history of the first.
    left: there, as from `behind`.
    here: in the second, as from `behind`.
    """

    other: OtherHistory
    left: Order
    here: Order


def behind(at: LogPosition) -> Order:
    """Return the order of a stream's position: behind the statement there if it is consumed, else before it."""
    return at.order if at.consumed else edge(at).order


def certain(version: Version, table_map: TableMap) -> tuple[Column, ...] | None:
    """Return the columns of a version if they are certain, but for charsets, and agree with the event."""
    sure = version.trust in (Trust.KNOWN, Trust.SHOWN) or table_match.tells_columns(table_map)
    return table_match.agreeing(version.columns, table_map) if version.readable and sure else None


def told_elsewhere(
    here: OtherHistory,
    others: Iterable[OtherHistory],
    table_map: TableMap,
    since: Version | None,
    until: Version | None,
) -> Version | None:
    """Return the version of an event's table that other servers know; None if they know none, or disagree.

    here: the history of the event's server.
    others: those of the other servers.
    table_map: the event.
    since: the version that the last statement about the table before the event makes here; None if it is unknown.
    until: the same for the next statement.
    """
    name = (table_map.schema, table_map.name)
    told: list[Version] = []
    for statement, side in ((until, 0), (since, 1)):
        if statement is None:
            continue
        times = len(here.around(name, statement))
        for other in others:
            found = [versions[side] for versions in other.around(name, statement)]
            known = [version for version in found if version is not None and version.trust is not Trust.UNCERTAIN]
            if len(known) == len(found) == times:  # else it is open which one of equal statements this is
                told += known
    columns = {certain(version, table_map) for version in told}
    return told[0] if len(columns) == 1 and None not in columns else None
