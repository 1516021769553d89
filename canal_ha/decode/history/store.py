"""The stored form of a table history, and the protocol of its stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from canal_ha.decode.history.ranges import Range
from canal_ha.model.position import LogPosition


@dataclass(frozen=True, slots=True)
class Record:
    """A statement at its position; or, with `table`, the columns that a table map at `at` settled.

    schema: the statement's default schema, or the table's.
    sql: the statement, or one that creates the table.
    table: "" for a statement.
    since: from where on a settled table holds; None for a statement.
    """

    at: LogPosition
    schema: str
    sql: str
    table: str = ""
    since: LogPosition | None = None

    @property
    def order(self) -> tuple[object, ...]:
        """Sort key: from where on it holds; a settled table sorts after the statement that it settles."""
        return ((self.since or self.at).order, bool(self.table))


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """The tables of a source as of one position.

    tables: (schema, table) -> its definition.
    left_out: tables that the snapshot omits because they changed meanwhile; any other table not in `tables` did not
    exist. None: `tables` may be incomplete.
    """

    at: LogPosition
    tables: dict[tuple[str, str], str] = field(repr=False)
    left_out: frozenset[tuple[str, str]] | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """Everything stored of one destination and one source.

    ranges: their statements are all among `records`.
    times: journal -> when it was created, ms since 1970; of journals of the covered binlog.
    """

    ranges: tuple[Range, ...] = ()
    records: tuple[Record, ...] = ()
    snapshots: tuple[TableSnapshot, ...] = ()
    times: Mapping[str, int] = field(default_factory=dict)


class HistoryStore(Protocol):
    """Stores one destination's history, separately for each source. Blocks; any thread.

    source: the server that the positions belong to: a MySQL server's uuid, else a server id.
    shared: other nodes have written what it holds, so a node cannot do without it.
    Every method raises HistoryUnavailable.
    """

    shared: bool

    def load(self, source: str) -> Kept:
        """Return everything stored of a source, unordered."""

    def others(self, source: str) -> Mapping[str, Kept]:
        """Return the same for each source but this one."""

    def count(self) -> int:
        """Return the number of records, of all sources."""

    def add(self, source: str, records: Sequence[Record]) -> None:
        """Store these records durably. A record that exists already is not an error."""

    def add_snapshot(self, source: str, snapshot: TableSnapshot) -> None:
        """Store a snapshot durably."""

    def cover(self, source: str, ranges: Sequence[Range], times: Mapping[str, int]) -> None:
        """Join these ranges with the stored ones; expired ranges do not come back. times: see Kept; replaces others."""

    def expire(self, source: str, before: LogPosition, stale_ms: int) -> None:
        """Drop everything before a position, and other sources without a snapshot since `stale_ms`."""

    def clear(self, source: str) -> None:
        """Drop everything of a source, because its binlog was reset."""

    def close(self) -> None:
        """Close connections. What is still called afterwards may fail."""


class Recorder(Protocol):
    """Records what a history learns. Called on source threads."""

    def record(self, record: Record) -> None:
        """Store this record, if it is new."""
