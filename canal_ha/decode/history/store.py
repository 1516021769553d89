"""What a table history keeps where it survives, and what it asks of such a place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from canal_ha.decode.history.ranges import Range
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
    """The tables of a source as of one position. tables: (schema, table) -> a statement that creates it.

    left_out: tables of which the snapshot says nothing, because they changed meanwhile; a table that is in neither did
    not exist. None: tables may be missing without a word.
    """

    at: LogPosition
    tables: dict[tuple[str, str], str] = field(repr=False)
    left_out: frozenset[tuple[str, str]] | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """Everything a place holds of one destination and one source. ranges: where every statement is among `records`."""

    ranges: tuple[Range, ...] = ()
    records: tuple[Record, ...] = ()
    snapshots: tuple[TableSnapshot, ...] = ()


class HistoryStore(Protocol):
    """A place for one destination's history, of each source apart. Blocks; any thread.

    source: whose positions these are, a MySQL server's uuid, else a server id. Every method raises HistoryUnavailable.
    """

    def load(self, source: str) -> Kept:
        """Everything of a source, in no order."""

    def count(self) -> int:
        """How many records there are, of all sources."""

    def add(self, source: str, records: Sequence[Record]) -> None:
        """Keep these, durably. One that is there already is no error."""

    def add_snapshot(self, source: str, snapshot: TableSnapshot) -> None:
        """Keep it, durably."""

    def cover(self, source: str, ranges: Sequence[Range]) -> None:
        """Join these with the ranges that are there; what was expired does not come back."""

    def expire(self, source: str, before: LogPosition, stale_ms: int) -> None:
        """Drop what lies before a position, and other sources without a snapshot since `stale_ms`."""

    def clear(self, source: str) -> None:
        """Drop everything of a source: its binlog began anew."""

    def close(self) -> None:
        """Let go of connections; the next call opens others."""


class Recorder(Protocol):
    """Whom a history tells what it learns. Called on source threads."""

    def record(self, record: Record) -> None:
        """Keep this, if it is new."""
