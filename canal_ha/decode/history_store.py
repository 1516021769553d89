"""What a table history keeps where it survives, and what it asks of such a place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from canal_ha.model.position import LogPosition


@dataclass(frozen=True, slots=True)
class Record:
    """A statement at its position; or, with a table, what a table map at `at` settled.

    schema: the statement's default schema, or the table's; table: "" for a statement; sql: the statement, or one that
    creates the table; since: from where a settled table holds (`at` for a statement).
    """

    at: LogPosition
    schema: str
    sql: str
    table: str = ""
    since: LogPosition | None = None

    @property
    def order(self) -> tuple[object, ...]:
        """Sort key: from where it holds, what was settled behind the statement it settles."""
        return ((self.since or self.at).order, bool(self.table))


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """The tables of a source as of one position. tables: (schema, table) -> a statement that creates it."""

    at: LogPosition
    tables: dict[tuple[str, str], str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Coverage:
    """Every statement between `start` and `end` is recorded, of the source with this id.

    base: where the first snapshot was taken. source: a MySQL server's uuid, else a server id.
    """

    source: str
    start: LogPosition
    end: LogPosition
    base: LogPosition


@dataclass(frozen=True, slots=True)
class Kept:
    """Everything a place holds of one destination."""

    coverage: Coverage | None = None
    records: tuple[Record, ...] = ()
    snapshots: tuple[TableSnapshot, ...] = ()


class HistoryStore(Protocol):
    """A place for one destination's history. Blocks; any thread. Every method raises HistoryUnavailable."""

    def load(self) -> Kept:
        """Everything, in no order."""

    def add(self, records: Sequence[Record]) -> None:
        """Keep these, durably. One that is there already is no error."""

    def add_snapshot(self, snapshot: TableSnapshot) -> None:
        """Keep it, durably."""

    def cover(self, coverage: Coverage) -> None:
        """Replace what is said to be covered."""

    def expire(self, coverage: Coverage) -> None:
        """Drop what lies before the base of this, which is covered from now on."""

    def clear(self) -> None:
        """Drop everything."""

    def close(self) -> None:
        """Let go of connections; the next call opens others."""


class Recorder(Protocol):
    """Whom a history tells what it learns. Called on source threads."""

    def record(self, record: Record) -> None:
        """Keep this, if it is new."""
