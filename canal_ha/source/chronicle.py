"""Chronicle: a destination's table history, made to reach as far back as its streams read, and kept where it survives.

A snapshot of all tables is the base; from there every statement is recorded, up to `Coverage.end`. A stream that
begins outside of what is covered has the statements of the stretch between looked up in the binlog first, so that a
table's columns are never those of another time. Threads: streams' own and the pool; one lock; blocks on MySQL.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Protocol

from canal_ha.config.model import InstanceConfig
from canal_ha.decode.history import Fetch, History, TableHistory
from canal_ha.decode.history_store import Coverage, HistoryStore, Kept, Record, TableSnapshot
from canal_ha.errors import CanalError, HistoryUnavailable, PositionLost
from canal_ha.model.position import LogPosition, split_journal
from canal_ha.source import locate
from canal_ha.source.flavor import Flavor, examine
from canal_ha.source.scan import Scanner
from canal_ha.source.session import Interruptible, Session
from canal_ha.source.tables import Tables

_TABLES = (
    "SELECT table_schema AS s, table_name AS t FROM information_schema.tables WHERE table_type IN ('BASE TABLE',"
    " 'SYSTEM VERSIONED') AND table_schema NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')"
)


MOST_RECORDS = 5000  # kept, if cursors let them go, before a snapshot takes their place: a bound to time and memory


class Reading(Protocol):
    """A dump that tells the history of every statement it passes. decoded: everything before it was told."""

    @property
    def decoded(self) -> LogPosition | None: ...


class Tell(Protocol):
    """Takes what a person on call should know; any thread."""

    def __call__(self, name: str, /, *, alarm: bool = False, **facts: object) -> None: ...


class Chronicle:
    """See the module. store: None keeps nothing. most_records: statements after which a snapshot is due before its
    time, and older ones are expired. Calls raise SourceUnavailable, SourceRefused.
    """

    def __init__(
        self,
        config: InstanceConfig,
        fetch: Fetch,
        store: HistoryStore | None,
        tell: Tell,
        *,
        clock: Callable[[], float] = time.time,
        most_records: int = MOST_RECORDS,
        opening: Callable[[Interruptible], None] = lambda connection: None,
    ) -> None:
        self._config = config
        self._opening = opening
        self._tables = Tables(config, opening=opening)
        self._store = store
        self._tell = tell
        self._clock = clock
        self._most_records = most_records
        self._open: Session | None = None
        self._history = History(fetch, live_texts=not config.decode.table_history, recorder=self)
        self._turn = threading.Lock()
        self._coverage: Coverage | None = None
        self._durable: Coverage | None = None  # as the store has it
        self._loaded = False
        self._snapshots: list[LogPosition] = []
        self._statements = 0  # recorded since the last snapshot
        self._readings: weakref.WeakSet[Reading] = weakref.WeakSet()
        self._recording = threading.Lock()
        self._seen: set[tuple[str, int, int, str]] = set()
        self._pending: list[Record] = []
        self._failing = False

    # ---- streams

    def view(self, start: LogPosition) -> TableHistory:
        """The tables as a stream from `start` sees them; looks up first what it takes to know them."""
        with self._turn, self._session() as session:
            server = self._prepare(session)
            self._reach(start, Scanner(session, server, self._config, self._config.master, self._opening), server)
        return self._history.view(start)

    def follow(self, reading: Reading) -> None:
        """From now on count what this dump has decoded as covered; its view was asked for from where it began."""
        with self._turn:
            self._readings.add(reading)

    # ---- recording

    def record(self, record: Record) -> None:
        """Keep what the history learned, before the stream goes on. A failure is an alarm, and `look` tries again."""
        with self._recording:
            if not self._is_new(record):
                return
            self._statements += not record.table
            if self._store is None:
                return
            self._pending.append(record)
            if not self._failing:
                self._write(self._store)

    def _is_new(self, record: Record) -> bool:
        key = (record.at.journal, record.at.offset, record.at.sub_index, record.table)
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def _write(self, store: HistoryStore) -> bool:
        """Write what is pending; the lock for recording is held."""
        try:
            store.add(self._pending)
        except HistoryUnavailable as error:
            self._failed(error)
            return False
        self._pending = []
        self._written()
        return True

    def _failed(self, error: HistoryUnavailable) -> None:
        if not self._failing:
            self._tell("history.unavailable", error=str(error), alarm=True)
        self._failing = True

    def _written(self) -> None:
        if self._failing:
            self._tell("history.available")
        self._failing = False

    # ---- the pool, now and then

    def look(self, oldest: LogPosition | None) -> None:
        """Begin to cover, say how far, take a snapshot when one is due. oldest: the last cursor of all."""
        with self._turn, self._session() as session:
            self._prepare(session)
            if self._snapshot_due() and self._coverage:
                self._keep_snapshot(self._snapshot(session))
                self._expire(oldest)
            self._note()

    def close(self) -> None:
        """Say how far it is covered and let go of every connection."""
        with self._turn:
            self._advance()
            self._note()
            self._tables.close()
            self._let_go()
            with self._recording:  # a stream may still decode what it has received
                store, self._store = self._store, None
            if store:
                store.close()

    def _note(self) -> None:
        """Make durable what is covered, once everything that belongs to it is."""
        store, coverage = self._store, self._coverage
        if store is None or coverage is None:
            return
        with self._recording:
            if self._pending and not self._write(store):
                return
        if coverage == self._durable:
            return
        try:
            store.cover(coverage)
        except HistoryUnavailable as error:
            self._failed(error)
        else:
            self._durable = coverage
            self._written()

    # ---- holding the turn

    @contextmanager
    def _session(self) -> Iterator[Session]:
        """The connection for questions, which stays open; a new one when it does not answer any more."""
        if self._open is None or not self._open.alive():
            self._open = Session(self._config, self._config.master, opening=self._opening)
        try:
            yield self._open
        except CanalError:  # rights that are granted afterwards count for new connections only
            self._let_go()
            raise

    def _let_go(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _prepare(self, session: Session) -> Flavor:
        """Load what was kept, unless it is of another binlog; have a base."""
        server = examine(session)
        source = server.uuid or str(server.server_id)
        self._history.fold_names = server.folds_names
        if not self._loaded:
            self._load(server)
        self._advance()  # before the end is asked for: a busy stream is beyond it otherwise
        newest = locate.newest(session, server, self._config, self._config.master)
        if self._coverage and (self._coverage.source != source or self._coverage.end.order > newest.order):
            self._tell("history.of_another_binlog", covered=self._coverage.source, source=source)
            self._start_over()
        if self._coverage is None:
            snapshot = self._snapshot(session)
            self._coverage = Coverage(source, snapshot.at, snapshot.at, snapshot.at)
            self._keep_snapshot(snapshot)
            self._note()
        return server

    def _load(self, server: Flavor) -> None:
        kept = Kept()
        if self._store:
            try:
                kept = self._store.load()
            except HistoryUnavailable as error:
                if self._config.tsdb_url and server.row_metadata != "FULL":
                    raise  # what other nodes have recorded is needed here
                self._failed(error)
                self._store = None
        self._loaded = True
        self._coverage = self._durable = kept.coverage
        if kept.coverage is None:
            if kept.records or kept.snapshots:
                self._start_over()
            return
        self._snapshots = sorted((snapshot.at for snapshot in kept.snapshots), key=lambda at: at.order)
        for record in kept.records:
            self._is_new(record)
        self._history.restore(kept.records, kept.snapshots)
        self._history.reach_back(kept.coverage.start, kept.coverage.base)

    def _start_over(self) -> None:
        """Forget everything; a fresh base is needed."""
        self._history.clear()
        self._coverage = self._durable = None
        self._snapshots = []
        self._readings.clear()
        with self._recording:
            self._seen.clear()
            self._pending = []
        if self._store:
            try:
                self._store.clear()
            except HistoryUnavailable as error:  # what is left there must not be taken for ours
                self._failed(error)
                self._store = None

    def _advance(self) -> None:
        for reading in self._readings:
            self._cover_to(reading.decoded)

    def _cover_to(self, at: LogPosition | None) -> None:
        if at is not None and self._coverage is not None and at.order > self._coverage.end.order:
            self._coverage = replace(self._coverage, end=at)

    def _reach(self, start: LogPosition, scanner: Scanner, server: Flavor) -> None:
        """Cover `start`: read the statements between it and what is covered. With FULL row metadata, which names the
        columns in every event, a stretch before the base is left alone.
        """
        assert self._coverage is not None
        if start.order > self._coverage.end.order and not self._read_on(start, scanner):
            self._start_over()
            self._prepare(scanner.session)
        if start.order >= self._coverage.start.order or server.row_metadata == "FULL":
            return
        with suppress(PositionLost):  # the dump meets the same, and says so
            scanner.statements(start, self._coverage.start, self._history.apply)
            before = self._coverage.start
            self._coverage = replace(self._coverage, start=start)
            self._history.reach_back(start, before)
        self._note()

    def _read_on(self, start: LogPosition, scanner: Scanner) -> bool:
        """Cover everything up to `start`; False when that is gone, or too far."""
        assert self._coverage is not None
        if self._is_far(start):
            return False
        try:
            self._cover_to(scanner.statements(self._coverage.end, start, self._history.apply))
        except PositionLost:
            return False
        self._cover_to(start)
        return True

    def _is_far(self, start: LogPosition) -> bool:
        """Whether what is covered ends more journals ago than it may take to read everything since `start`."""
        assert self._coverage is not None
        base, number = split_journal(start.journal)
        covered_base, covered = split_journal(self._coverage.end.journal)
        return base != covered_base or number - covered > 8

    # ---- snapshots

    def _snapshot(self, session: Session) -> TableSnapshot:
        """All tables that did not change around one position: read before it and after it, and the same."""
        server = examine(session)
        before = self._definitions(session)
        at = locate.newest(session, server, self._config, self._config.master)
        after = self._definitions(session)
        return TableSnapshot(at, {name: sql for name, sql in before.items() if after.get(name) == sql})

    def _definitions(self, session: Session) -> dict[tuple[str, str], str]:
        names = [(str(row["s"]), str(row["t"])) for row in session.query(_TABLES)]
        fetched = ((name, self._tables.fetch(*name)) for name in names)
        return {name: sql for name, sql in fetched if sql}

    def _keep_snapshot(self, snapshot: TableSnapshot) -> None:
        self._history.restore((), (snapshot,))
        self._snapshots.append(snapshot.at)
        self._statements = 0
        if self._store:
            try:
                self._store.add_snapshot(snapshot)
            except HistoryUnavailable as error:
                self._failed(error)

    def _snapshot_due(self) -> bool:
        interval_h = self._config.tsdb_snapshot_interval_h
        if self._statements >= self._most_records:
            return True
        if interval_h <= 0 or not self._statements or not self._snapshots:
            return False
        return self._clock() * 1000 - self._snapshots[-1].timestamp_ms >= interval_h * 3_600_000

    def _expire(self, oldest: LogPosition | None) -> None:
        """Drop what lies before the newest snapshot that has expired and that every cursor is behind.

        When there are too many records the age of snapshots does not count.
        """
        with self._recording:
            many = len(self._seen) > self._most_records
        limit_ms = self._clock() * 1000 - self._config.tsdb_snapshot_expire_h * 3_600_000
        expired = [at for at in self._snapshots if many or at.timestamp_ms < limit_ms]
        bases = [at for at in expired if oldest is not None and at.order <= oldest.order]
        if not bases or self._coverage is None or bases[-1].order <= self._coverage.start.order:
            return
        base = replace(self._coverage, start=bases[-1], base=bases[-1])
        if self._store:
            try:
                self._store.expire(base)
            except HistoryUnavailable as error:
                self._failed(error)
                return
        self._coverage = self._durable = base
        self._snapshots = [at for at in self._snapshots if at.order >= bases[-1].order]
        self._history.forget_before(bases[-1])
        with self._recording:
            self._seen = {seen for seen in self._seen if LogPosition(seen[0], seen[1]).order >= bases[-1].order}
