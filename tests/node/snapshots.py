"""A stream with a snapshot on a real server, and a copy of the tables made of its entries."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from canal_ha.config.model import DecodeOptions, SnapshotLimits, SourceConfig
from canal_ha.errors import CanalError, RingClosed
from canal_ha.instance.feed import Feed, FeedRequest
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment
from canal_ha.model.snapshot import SnapshotPhase, SnapshotState
from canal_ha.node.upstreams import Upstreams
from canal_ha.wire.proto import entry_protocol_pb2 as pb
from lab import SqlServer
from tests.source.reading import config_of, newest
from tests.waiting import until

Row = dict[str, str | None]
Place = tuple[str, tuple[str | None, ...]]  # schema.table, and the key's texts

ROWS_OF_CHUNK = 7


def state(*tables: str, where: Mapping[str, str] | None = None) -> SnapshotState:
    """Return a snapshot of these tables that has not begun."""
    return SnapshotState("s1", tables, where or {})


@dataclass
class Copy:
    """A copy of tables as a consumer keeps it: INSERT and UPDATE put a row in its place, DELETE and
    TRUNCATE remove rows.

    keys: the key's columns of each table, `schema.table`.
    version: the column that grows with every change of a row; "" if there is none.

    older: rows that came although the copy had, or had removed, a newer version.
    snapshot_rows: how many rows came from a snapshot.
    """

    keys: Mapping[str, tuple[str, ...]]
    version: str = ""
    rows: dict[Place, Row] = field(default_factory=dict)
    older: list[tuple[Place, int, int]] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    snapshot_rows: int = 0
    _seen: dict[Place, int] = field(default_factory=dict)

    def take(self, entries: Iterable[bytes]) -> None:
        """Apply serialized entries."""
        for raw in entries:
            entry = pb.Entry.FromString(raw)
            if entry.entryType != pb.ROWDATA:
                continue
            change = pb.RowChange.FromString(entry.storeValue)
            table = f"{entry.header.schemaName}.{entry.header.tableName}"
            if change.isDdl or change.sql:
                if change.eventType == pb.TRUNCATE:
                    self.rows = {place: row for place, row in self.rows.items() if place[0] != table}
                self.statements.append(change.sql)
                continue
            from_snapshot = any(pair.key == "canal.snapshot" for pair in entry.header.props)
            self.snapshot_rows += len(change.rowDatas) if from_snapshot else 0
            for row in change.rowDatas:
                before, after = _row(row.beforeColumns), _row(row.afterColumns)
                if change.eventType in (pb.UPDATE, pb.DELETE):
                    gone = self._place(table, before)
                    self.rows.pop(gone, None)
                    if change.eventType == pb.DELETE:
                        self._met(gone, before, removed=True)
                if change.eventType != pb.DELETE:
                    place = self._place(table, after)
                    self._met(place, after, removed=False)
                    self.rows[place] = after

    def _place(self, table: str, row: Row) -> Place:
        return table, tuple(row[name] for name in self.keys[table])

    def _met(self, place: Place, row: Row, *, removed: bool) -> None:
        """Compare the version of a row with the newest one of its place: a removed row must not come back."""
        if not self.version:
            return
        now = 2 * int(row[self.version] or 0) + removed
        if now < self._seen.get(place, 0):
            self.older.append((place, now, self._seen[place]))
        self._seen[place] = max(now, self._seen.get(place, 0))


def _row(columns: Any) -> Row:
    return {column.name: None if column.isNull else column.value for column in columns}


class SnapshotStream:
    """A context manager: a feed with a snapshot, from the end of the binlog, or from another position.

    taken: the segments in the order of the stream.
    told: events of the destination, by name. failures: errors of the stream itself.
    room: while it is clear, the ring is full.
    """

    def __init__(
        self,
        server: SqlServer,
        filter: str,
        snapshot: SnapshotState,
        copy: Copy | None = None,
        *,
        start: LogPosition | None = None,
        limits: SnapshotLimits | None = None,
        options: DecodeOptions | None = None,
        before: Callable[[Segment], None] = lambda segment: None,
        standby_port: int = 0,
        **config: Any,
    ) -> None:
        self.copy = copy
        self.taken: list[Segment] = []
        self.told: list[tuple[str, dict[str, object]]] = []
        self.failures: list[CanalError] = []
        self.ended = ""  # the state after an error
        self.tries: list[str] = []  # the errors after which the snapshot was tried again, and "" when it went on
        self.room = threading.Event()
        self.room.set()
        self.blocked = threading.Event()
        self._closed = False
        self._before = before
        if standby_port:
            config["standby"] = SourceConfig("127.0.0.1", standby_port)
        limits = limits or SnapshotLimits(rows_most=ROWS_OF_CHUNK)
        settings = config_of(server, decode=options or DecodeOptions(), snapshot=limits, **config)
        self.upstreams = Upstreams(settings, self._tell)
        self.start = replace(start or newest(server), snapshot=snapshot.text)
        self.feed: Feed = self.upstreams.open_feed(
            FeedRequest(
                client_id=1001,
                read="",
                filter=filter,
                start=self.start,
                accept=self._accept,
                connected=lambda version: None,
                failed=lambda error, retry_in_s: self.failures.append(error),
                snapshot_ended=self._ended,
                snapshot_failing=lambda error, retry_in_s: self.tries.append(str(error)),
                snapshot_goes_on=lambda: self.tries.append(""),
            )
        )

    def _tell(self, event: str, /, *, alarm: bool = False, **facts: object) -> None:
        self.told.append((event, facts))

    def _ended(self, text: str) -> None:
        self.ended = text

    def __enter__(self) -> SnapshotStream:
        self.feed.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.feed.stop()
        self._closed = True
        self.room.set()
        self.upstreams.close()

    def _accept(self, segment: Segment) -> None:
        self._before(segment)
        if not self.room.is_set():
            self.blocked.set()
        self.room.wait()
        if self._closed:
            raise RingClosed("closed")
        if self.copy:
            self.copy.take(segment.entries())
        self.taken.append(segment)

    def threads(self) -> list[threading.Thread]:
        """Return the threads of snapshots that run."""
        return [each for each in threading.enumerate() if each.name.startswith("snapshot-")]

    # ---- what has come

    def states(self) -> list[SnapshotState]:
        """Return the progress that each chunk carries, in order."""
        ends = [segment.chunk_end for segment in list(self.taken) if segment.chunk_end]
        return [found for end in ends if (found := SnapshotState.from_text(end.snapshot)) is not None]

    def done(self, seconds: float = 30.0) -> SnapshotState:
        """Wait for the end of the snapshot and return its last state."""

        def last() -> SnapshotState | None:
            assert not self.ended, self.ended
            states = self.states()
            return states[-1] if states and states[-1].phase is SnapshotPhase.DONE else None

        return until(last, seconds=seconds, what=f"the end of the snapshot; told: {self.told}, {self.failures}")

    def failed(self, seconds: float = 30.0) -> SnapshotState:
        """Wait until the snapshot has ended with an error and return its state."""
        until(lambda: bool(self.ended), seconds=seconds, what=f"the failure of the snapshot; told: {self.told}")
        found = SnapshotState.from_text(self.ended)
        assert found is not None
        assert found.phase is SnapshotPhase.FAILED
        return found

    def caught_up(self, server: SqlServer, seconds: float = 30.0) -> None:
        """Wait until the stream has passed the present end of the binlog."""
        journal, offset = server.position()

        def there() -> bool:
            at = self.feed.decoded
            return at is not None and (at.journal, at.offset) >= (journal, offset)

        until(there, seconds=seconds, what=f"{journal}:{offset}; {self.failures}")

    def chunks(self) -> list[Segment]:
        """Return the segments of the snapshot that have rows."""
        return [each for each in list(self.taken) if each.chunk_end and EntryKind.ROWS in each.kinds]
