"""Recording: passes the table history of one source to its store.

Threads: the streams' own and the pool; a lock. Blocks on the store.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from canal_ha.decode.history.ranges import Range
from canal_ha.decode.history.store import HistoryStore, Kept, Record, TableSnapshot
from canal_ha.errors import HistoryFenced, HistoryUnavailable
from canal_ha.model.position import LogPosition
from canal_ha.model.tell import Tell


class Recording:
    """Implements decode.Recorder. A failure of the store raises an alarm; the next `note` tries again.

    store: None for memory only.
    source: see HistoryStore.
    tell: reports events.
    begun_anew: sources for which the store may hold an earlier binlog; it is cleared before the next use.
    """

    def __init__(self, store: HistoryStore | None, source: str, tell: Tell, begun_anew: set[str]) -> None:
        self.source = source
        self._begun_anew = begun_anew
        self.statements = 0  # recorded since the last snapshot
        self._store = store
        self._tell = tell
        self._expiring = threading.Lock()  # taken before `_lock`; statements are recorded meanwhile
        self._lock = threading.Lock()
        self._seen: set[tuple[str, int, int, str]] = set()
        self._pending: list[Record] = []
        self._pending_snapshots: list[TableSnapshot] = []
        self._durable: tuple[tuple[Range, ...], Mapping[str, int]] = ((), {})
        self._failing = False

    @property
    def size(self) -> int:
        """The number of records. Does not wait, unlike what holds the lock while the store answers."""
        return len(self._seen)

    def load(self) -> Kept:
        """Return the stored history. Raises HistoryUnavailable."""
        if self._store is None:
            return Kept()
        with self._lock:
            self._clear(self._store)
        kept = self._store.load(self.source)
        with self._lock:
            for record in kept.records:
                self._is_new(record)
        self._durable = (kept.ranges, kept.times)
        return kept

    def record(self, record: Record) -> None:
        """Store a record before the stream continues."""
        with self._lock:
            if not self._is_new(record):
                return
            self.statements += not record.table
            if self._store is None:
                return
            self._pending.append(record)
            if not self._failing:
                self._write(self._store)

    def keep_snapshot(self, snapshot: TableSnapshot) -> None:
        """Store a snapshot and restart the count of statements."""
        with self._lock:
            self.statements = 0
            if self._store:
                self._pending_snapshots.append(snapshot)
                self._write(self._store)

    def has(self, ranges: tuple[Range, ...], times: Mapping[str, int]) -> bool:
        """Whether the store has everything, and these ranges. Does not wait. The arguments are those of `note`."""
        waits = self._pending or self._pending_snapshots
        return self._store is None or (not waits and self._durable == (ranges, times))

    def note(self, ranges: tuple[Range, ...], times: Mapping[str, int]) -> None:
        """Store the covered ranges, once all their records and snapshots are stored. times: see Kept."""
        covered = (ranges, dict(times))
        with self._lock:  # held throughout: otherwise old ranges could be stored for a binlog that has begun anew
            store = self._store
            if store is None:
                return
            if (self._pending or self._pending_snapshots) and not self._write(store):
                return
            if covered == self._durable:
                return
            try:
                self._clear(store)
                store.cover(self.source, *covered)
            except HistoryUnavailable as error:
                self.failed(error)
            else:
                self._durable = covered
                self._written()

    def expire(self, before: LogPosition, stale_ms: int) -> None:
        """Drop what lies before a position.

        The store keeps it while it fails, or while it does not have the snapshot that stands there: a later call drops
        it.
        """
        with self._expiring:
            store = self._store
            with self._lock:
                lacks = any(kept.at.order <= before.order for kept in self._pending_snapshots)
            if store and not lacks:
                try:
                    with self._lock:
                        self._clear(store)
                    store.expire(self.source, before, stale_ms)
                except HistoryUnavailable as error:
                    self.failed(error)
        with self._lock:
            self._seen = {seen for seen in self._seen if LogPosition(seen[0], seen[1]).order >= before.order}
            self._pending_snapshots = [kept for kept in self._pending_snapshots if kept.at.order >= before.order]
            self._pending = [record for record in self._pending if record.at.order >= before.order]

    def end(self) -> None:
        """Store nothing from now on, even if a stream still decodes received bytes."""
        with self._expiring, self._lock:
            self._store = None

    def failed(self, error: HistoryUnavailable) -> None:
        """Report the failure, once. A node that lost the destination says so elsewhere."""
        if isinstance(error, HistoryFenced):
            return
        if not self._failing:
            self._tell("history.unavailable", error=str(error), alarm=True)
        self._failing = True

    # ---- holding the lock

    def _clear(self, store: HistoryStore) -> None:
        """Clear the records of an earlier binlog. Raises HistoryUnavailable; the next call tries again."""
        if self.source in self._begun_anew:
            store.clear(self.source)
            self._begun_anew.discard(self.source)

    def _is_new(self, record: Record) -> bool:
        key = (record.at.journal, record.at.offset, record.at.sub_index, record.table)
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def _write(self, store: HistoryStore) -> bool:
        """Write what is pending; return False if the store fails."""
        try:
            self._clear(store)
            if self._pending:
                store.add(self.source, self._pending)
                self._pending = []
            while self._pending_snapshots:
                store.add_snapshot(self.source, self._pending_snapshots[0])
                del self._pending_snapshots[0]
        except HistoryUnavailable as error:
            self.failed(error)
            return False
        self._written()
        return True

    def _written(self) -> None:
        if self._failing:
            self._tell("history.available")
        self._failing = False
