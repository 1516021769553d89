"""DestinationHistory: the table history of a destination, for every position that its streams read.

It covers ranges of positions. Each range begins with a snapshot of all tables, or is read up to one, and every
statement in it is recorded. When a stream begins outside all ranges, the statements between it and a range are read
first; far from all ranges a new one begins. A range that an open stream reads is never dropped. So a table's columns
always belong to the position asked for. Threads: the streams' own and the pool; one lock, which is not held while
definitions are asked for; blocks on MySQL.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from canal_ha.config.model import InstanceConfig
from canal_ha.decode.history.definitions import definition_of
from canal_ha.decode.history.history import Fetch, History, TableHistory
from canal_ha.decode.history.ranges import Range, edge
from canal_ha.decode.history.store import HistoryStore, TableSnapshot
from canal_ha.decode.history.versions import Key
from canal_ha.errors import CanalError, HistoryUnavailable, PositionLost, SourceUnavailable
from canal_ha.model.position import LogPosition, split_journal
from canal_ha.model.tell import Tell
from canal_ha.source.connection.flavor import Flavor, examine
from canal_ha.source.connection.session import Interruptible, SourceSession
from canal_ha.source.connection.tables import Tables
from canal_ha.source.history.recording import Recording
from canal_ha.source.positions import locate
from canal_ha.source.positions.scan import Scanner

_TABLES = (
    "SELECT table_schema AS s, table_name AS t FROM information_schema.tables WHERE table_type IN ('BASE TABLE',"
    " 'SYSTEM VERSIONED') AND table_schema NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')"
)
_MAY_SEE_ALL = (  # the list lacks tables that an account has no right to
    "SELECT 1 AS may FROM information_schema.user_privileges"
    " WHERE privilege_type = 'SELECT' AND REPLACE(grantee, '''', '') = CURRENT_USER()"
)

_ANY = ("", "")  # stands for a table changed by a statement whose table names are unreadable

MOST_RECORDS = 5000  # before a snapshot replaces them, if cursors allow: bounds time and memory
MOST_RANGES = 16  # with snapshots: bounds memory; further ranges are joined by reading what lies between
NEAR_JOURNALS = 8  # up to this distance, read on from a range and do not begin another
GIVEN_OUT_WITHIN_S = 5.0  # until a server sends what it has written; with sync_binlog=1 MySQL syncs it to disk first
_AGAIN_S = 0.01  # first pause before reading again; later ones are longer


T = TypeVar("T")


class _SnapshotWanted(Exception):
    """A question cannot be answered before there is another snapshot."""


class HistoryDump(Protocol):
    """A dump that passes every statement to the history. decoded: the position up to which it has done so."""

    @property
    def decoded(self) -> LogPosition | None: ...


class DestinationHistory:
    """The table history of one destination. See the module. Calls raise SourceUnavailable, SourceRefused.

    config: of the destination.
    fetch: returns the current text of a table.
    store: where the history is stored; None for memory only.
    tell: reports events.
    clock: seconds since 1970.
    most_records: statements after which an early snapshot is taken and older records expire.
    opening: called with each connection before it connects.
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
        self._fetch = fetch
        self._store = store
        self._tell = tell
        self._clock = clock
        self._most_records = most_records
        self._open: SourceSession | None = None
        self._turn = threading.Lock()
        self._one_snapshot = threading.Lock()  # taken before `_turn`; those who wait for it want the same snapshot
        self._taken = 0  # snapshots
        self._begun_anew: set[str] = set()
        self._recording = Recording(store, "", tell, self._begun_anew)
        self._history = History(fetch, in_ranges=True)
        self._loaded = False
        self._snapshots: list[LogPosition] = []
        self._streams: weakref.WeakKeyDictionary[HistoryDump, _Opened] = weakref.WeakKeyDictionary()

    # ---- streams

    def view(self, start: LogPosition, reading: HistoryDump | None = None) -> TableHistory:
        """Return the tables as of `start`, after reading what is needed to know them.

        reading: the stream's dump. From now on its decoded statements count as covered, and its ranges are kept.
        """

        def opened(scanner: Scanner, newest: LogPosition) -> TableHistory:
            stream = _Opened(self, self._history, edge(start), reading)
            if reading is not None:
                self._streams[reading] = stream
            # FULL metadata names the columns in every event, so reading can wait until an event lacks the names
            self._reach(stream.since, newest, scanner, lazily=scanner.server.row_metadata == "FULL")
            return self._history.view(start, stream)

        return self._asked(opened)

    def reach(self, stream: _Opened) -> None:
        """See Ahead. stream: one whose view was asked for here."""
        with self._turn:
            self._advance()
            if stream.reached and self._place(stream):
                return

        def reached(scanner: Scanner, newest: LogPosition) -> None:
            self._reach(self._place(stream), newest, scanner, lazily=False)
            stream.reached = True

        self._asked(reached, strict=True)

    def read_on(self, stream: _Opened) -> LogPosition | None:
        """See Ahead. stream: one whose view was asked for here."""

        def read(scanner: Scanner, newest: LogPosition) -> LogPosition | None:
            at, end = self._place(stream), edge(newest)
            while True:
                ranges = self._history.ranges()
                known = ranges.of(at.order) or Range(at, at)
                if known.end.order >= end.order:
                    return end
                behind = ranges.behind(known.end.order)
                until = end if behind is None or behind.start.order > end.order else behind.start
                if not self._read(known.end, until, scanner):
                    return None

        return self._asked(read, strict=True)

    def look_back(self, stream: _Opened, until: LogPosition) -> bool:
        """See Ahead. stream: one whose view was asked for here."""
        with self._turn:
            at, ranges = self._place(stream), self._history.ranges()
            known = ranges.of(at.order) or Range(at, at)
            before = None if stream.gone_before else ranges.ending_before(known.start.order)
            if before is None and stream.again_from == known.start:
                return False
            with self._session() as session:
                scanner = self._scanner(session, examine(session))
                if before is not None:
                    stream.gone_before = not self._read(before.end, known.start, scanner)
                    if stream.gone_before:
                        return False
                # ranges may have joined: apply again the statements that had no effect without the earlier ones
                found = self._read(known.start, edge(until), scanner)
            stream.again_from = (self._history.ranges().of(at.order) or known).start
            return found

    # ---- the pool, at intervals

    def look(self, cursors: Collection[LogPosition] | None) -> None:
        """Begin to cover, record the ranges, and take a snapshot if it is due.

        cursors: of all clients, in this binlog; None if they are unknown. Then nothing is dropped.
        """

        def looked(scanner: Scanner, newest: LogPosition) -> None:
            if self._snapshot_due():
                if self._has_many():  # the snapshot must lie in the last range
                    self._reach(edge(newest), newest, scanner, lazily=False)
                raise _SnapshotWanted
            if cursors is not None:
                self._expire(cursors, lambda: locate.oldest(scanner.session, scanner.server, self._config.master))
            self._trim()
            self._note()

        self._asked(looked)

    def close(self) -> None:
        """Record the covered ranges and close every connection."""
        with self._turn:
            self._advance()
            self._note()
            self._tables.close()
            self._disconnect()
            self._recording.end()
            store, self._store = self._store, None
            if store:
                store.close()

    def _note(self) -> None:
        """Store the covered ranges. A range without a snapshot is of no use to another node."""
        if self._loaded:
            self._recording.note(tuple(known for known in self._history.ranges() if self._has_snapshot(known)))

    # ---- taking the lock

    def _asked(self, question: Callable[[Scanner, LogPosition], T], *, strict: bool | None = None) -> T:
        """Return what a question answers under the lock. Whenever it wants a snapshot, take one without the lock.

        question: takes a scanner and the newest position; may raise _SnapshotWanted.
        strict: see _prepare; None: unless every event carries names.
        """
        while True:
            with self._turn, self._session() as session:
                server = examine(session)
                try:
                    newest = self._prepare(
                        session, server, strict=server.row_metadata != "FULL" if strict is None else strict
                    )
                    return question(self._scanner(session, server), newest)
                except _SnapshotWanted:
                    taken = self._taken
            self._take_snapshot(taken)

    def _take_snapshot(self, taken: int) -> None:
        """Take a snapshot of all tables at the newest position, without those that statements change meanwhile.

        Streams go on meanwhile, and others open: the lock is not held while definitions are asked for.
        taken: how many snapshots there were when this one was wanted; if there are more now, none is taken.
        """
        with self._one_snapshot:
            with self._turn, self._session() as session:
                if self._taken != taken:
                    return
                history = self._history
                first = edge(locate.newest(session, examine(session), self._config, self._config.master))
                names = self._names(session)
            found = self._tables.fetch_all(sorted(names))
            with self._turn, self._session() as session:
                if self._history is history:  # otherwise another server answers now
                    self._keep_snapshot(session, first, names, found)

    # ---- holding the lock

    @contextmanager
    def _session(self) -> Iterator[SourceSession]:
        """Yield the connection for questions, which stays open; reconnect if it does not answer any more."""
        if self._open is None or not self._open.alive():
            self._open = SourceSession(self._config, self._config.master, opening=self._opening)
        try:
            yield self._open
        except CanalError:  # rights granted later apply to new connections only
            self._disconnect()
            raise

    def _disconnect(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _scanner(self, session: SourceSession, server: Flavor) -> Scanner:
        return Scanner(session, server, self._config, self._config.master, self._opening)

    def _prepare(self, session: SourceSession, server: Flavor, *, strict: bool) -> LogPosition:
        """Load this server's stored history, make sure that there is a range, and return the newest position.

        strict: raise if the store fails, because the records of other nodes are needed.
        Raises HistoryUnavailable, and _SnapshotWanted if there is no range.
        """
        source = server.uuid or str(server.server_id)
        if self._recording.source != source:
            if self._recording.source:
                self._tell("history.of_another_binlog", covered=self._recording.source, source=source)
            self._begin(source, server)
        if not self._loaded:
            self._load(strict=strict)
        self._advance()  # before asking for the end, which a busy stream would pass
        newest = locate.newest(session, server, self._config, self._config.master)
        if any(known.end.order > newest.order for known in self._history.ranges()):
            self._tell("history.of_another_binlog", covered=source, source=source)
            self._begun_anew.add(source)
            self._begin(source, server)
            self._loaded = True
        if not len(self._history.ranges()):
            raise _SnapshotWanted
        return newest

    def _begin(self, source: str, server: Flavor) -> None:
        """Begin a new history; streams that still decode another binlog keep the old one."""
        self._recording.end()
        self._recording = Recording(self._store, source, self._tell, self._begun_anew)
        self._history = History(
            self._fetch,
            live_texts=not self._config.decode.table_history,
            fold_names=server.folds_names,
            recorder=self._recording,
            in_ranges=True,
        )
        self._snapshots = []
        self._streams.clear()
        self._loaded = False

    def _load(self, *, strict: bool) -> None:
        try:
            kept = self._recording.load()
        except HistoryUnavailable as error:
            if self._config.tsdb_url:
                if strict:
                    raise  # the records of other nodes are needed here
                self._recording.failed(error)
                return
            self._recording.failed(error)
            self._recording.end()
            self._loaded = True
            return
        self._loaded = True
        if not kept.ranges:  # the records may have gaps anywhere
            return
        for known in kept.ranges:
            self._history.cover(known.start, known.end)
        ranges = self._history.ranges()
        snapshots = [snapshot for snapshot in kept.snapshots if ranges.of(edge(snapshot.at).order)]
        self._snapshots = sorted((*self._snapshots, *(snapshot.at for snapshot in snapshots)), key=lambda at: at.order)
        self._history.restore(kept.records, snapshots)

    def _advance(self) -> None:
        """Count what streams have decoded as covered."""
        for stream in tuple(self._streams.values()):
            place = stream.decoded()
            if place is not None:
                self._history.cover(stream.since, place)

    def _place(self, stream: _Opened) -> LogPosition:
        """Return the position of a stream, at the end of the range that it has read."""
        if stream.history is not self._history:
            raise SourceUnavailable(
                f"{self._config.destination}: the source's binlog is another one than when reading began at"
                f" {stream.since}; the dump starts again"
            )
        return stream.decoded() or stream.since

    # ---- ranges

    def _reach(self, at: LogPosition, newest: LogPosition, scanner: Scanner, *, lazily: bool) -> None:
        """Put a position into a range with a snapshot, by reading the shorter stretch of statements.

        at: the position to cover.
        newest: the end of the binlog.
        scanner: reads the stretch: from the range before `at`, or up to the one behind it.
        lazily: only read on from a range nearby.
        Raises _SnapshotWanted if there is no range behind `at`.
        """
        lost = False
        if at.order > newest.order:  # journals that were renamed do not sort
            return
        while True:
            ranges = self._history.ranges()
            known = ranges.of(at.order)
            if known is not None and (lazily or self._has_snapshot(known)):
                return
            start, end = (at, at) if known is None else (known.start, known.end)
            before = ranges.ending_before(start.order)
            behind = ranges.behind(end.order)
            ahead = _journals(end, behind.start if behind else newest)
            if before is not None and not lost and self._is_near(_journals(before.end, start), ahead, lazily=lazily):
                lost = not self._read(before.end, start, scanner)
                continue
            if behind is None:
                raise _SnapshotWanted
            if lazily:
                return
            if not self._read(end, behind.start, scanner):  # the dump meets the same error and reports it
                return

    def _is_near(self, back: float, ahead: float, *, lazily: bool) -> bool:
        """Return whether to read the stretch from the range before.

        back: journals to the range before.
        ahead: journals to the next range.
        lazily: see _reach.
        """
        if back == float("inf"):
            return False
        return back <= NEAR_JOURNALS or self._has_many() or (not lazily and back <= ahead)

    def _has_many(self) -> bool:
        return sum(self._has_snapshot(known) for known in self._history.ranges()) >= MOST_RANGES

    def _read(self, start: LogPosition, end: LogPosition, scanner: Scanner) -> bool:
        """Read every statement between two edges and cover what was read. Return False if they are gone.

        Raises SourceUnavailable if the server does not send them in time.
        """
        apply, at, wait_s = self._history.view(start).apply, start, _AGAIN_S
        until_s = time.monotonic() + GIVEN_OUT_WITHIN_S
        while (at.journal, at.offset) != (end.journal, end.offset):
            try:
                at = edge(scanner.statements(at, end, apply))
            except PositionLost:
                return False
            if at.order >= end.order:
                break
            self._history.cover(start, at)
            if time.monotonic() > until_s:
                raise SourceUnavailable(
                    f"{scanner.session.where.address}: the binlog ends at {end}, but a dump has ended at {at} for"
                    f" {GIVEN_OUT_WITHIN_S:g} s; tables are read again. Check the server's disk (sync_binlog=1)"
                )
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, 0.5)
        self._history.cover(start, end)
        self._note()
        return True

    def _has_snapshot(self, known: Range) -> bool:
        return any(known.start.order <= edge(at).order <= known.end.order for at in self._snapshots)

    def _trim(self) -> None:
        """Forget the oldest ranges that have no snapshot and no stream; nothing is lost with them."""
        ranges = self._history.ranges()
        read = [stream.since.order for stream in self._streams.values()]
        idle = [
            known
            for known in ranges
            if not self._has_snapshot(known)
            and not any(known.start.order <= since <= known.end.order for since in read)
        ]
        for known in idle[: max(0, len(ranges) - MOST_RANGES + 1)]:
            self._history.forget(known)

    # ---- snapshots

    def _keep_snapshot(
        self, session: SourceSession, first: LogPosition, names: frozenset[Key], found: Sequence[tuple[Key, str | None]]
    ) -> None:
        """Record a snapshot.

        first: the newest position before the tables were listed.
        names: the list.
        found: their definitions; None for a table that was gone.
        """
        server = examine(session)
        names |= self._names(session)  # the binlog may name a table before the list does
        at = locate.newest(session, server, self._config, self._config.master)
        if not self._read(first, edge(at), self._scanner(session, server)):
            raise SourceUnavailable(f"{session.where.address}: {first} was purged while reading tables; trying again")
        changed = self._history.changed(names, first, at)
        tables = {name: definition_of(sql) for name, sql in found if sql and name not in changed}
        all_listed = session.query(_MAY_SEE_ALL) and not self._history.changed([_ANY], first, at)
        left_out = names - tables.keys() if all_listed else None
        snapshot = TableSnapshot(at, tables, left_out)
        self._history.restore((), (snapshot,))
        self._snapshots.append(snapshot.at)
        self._recording.keep_snapshot(snapshot)
        self._taken += 1
        self._note()

    def _names(self, session: SourceSession) -> frozenset[Key]:
        return frozenset((str(row["s"]), str(row["t"])) for row in session.query(_TABLES))

    def _snapshot_due(self) -> bool:
        statements = self._recording.statements
        if statements >= self._most_records:
            return True
        interval_h = self._config.tsdb_snapshot_interval_h
        if interval_h <= 0 or not statements or not self._snapshots:
            return False
        return self._clock() * 1000 - self._snapshots[-1].timestamp_ms >= interval_h * 3_600_000

    def _expire(self, cursors: Collection[LogPosition], begin: Callable[[], LogPosition]) -> None:
        """Drop what lies before the newest expired snapshot that every stream, and every cursor in use, has passed.

        With too many records every snapshot counts as expired.

        cursors: of all clients. One that is older than snapshots may get, or whose journal is purged, does not count:
        its client may never come back.
        begin: returns the beginning of the binlog.
        """
        many = self._recording.size > self._most_records
        limit_ms = int(self._clock() * 1000 - self._config.tsdb_snapshot_expire_h * 3_600_000)
        expired = [at for at in self._snapshots if many or at.timestamp_ms < limit_ms]
        first = next(iter(self._history.ranges()), None)
        if not expired or first is None or edge(expired[-1]).order <= first.start.order:
            return
        oldest = begin().order
        recent = (cursor for cursor in cursors if not 0 < cursor.timestamp_ms < limit_ms)
        in_use = [cursor for cursor in recent if not cursor.journal or cursor.order >= oldest]
        needed = [*in_use, *(stream.needed() for stream in self._streams.values())]
        bases = [at for at in expired if all(need is not None and at.order <= need.order for need in needed)]
        if not bases or edge(bases[-1]).order <= first.start.order:
            return
        base = bases[-1]
        if not self._recording.expire(base, limit_ms):
            return
        self._snapshots = [at for at in self._snapshots if at.order >= base.order]
        self._history.forget_before(base)
        for stream in self._streams.values():
            stream.since = max(stream.since, edge(base), key=lambda at: at.order)


class _Opened:
    """One open stream of a destination's history. Implements decode.Ahead.

    since: the position from which on it has read every statement.
    history: of the binlog that it reads.
    reached: its range has a snapshot.
    gone_before: the statements before its range cannot be read any more.
    again_from: the start of its range when its statements were last read again.
    """

    def __init__(
        self, destination_history: DestinationHistory, history: History, since: LogPosition, reading: HistoryDump | None
    ) -> None:
        self.since = since
        self.history = history
        self.reached = False
        self.gone_before = False
        self.again_from: LogPosition | None = None
        self._destination_history = destination_history
        self._reading = None if reading is None else weakref.ref(reading)
        claimed = None if reading is None else reading.decoded
        # a dump that has to begin earlier than its position decodes the same events again
        self._behind = claimed if claimed is not None and edge(claimed).order > since.order else None

    def decoded(self) -> LogPosition | None:
        """Return the edge up to which it has read; None if unknown."""
        reading = self._reading() if self._reading else None
        at = reading.decoded if reading is not None else None
        if at is None or (self._behind is not None and at.order <= self._behind.order):
            return None
        return edge(at)

    def needed(self) -> LogPosition | None:
        """Return the first position for which it may ask for tables; None if that may be any."""
        reading = self._reading() if self._reading else None
        if reading is None or reading.decoded is None:
            return None
        return self.decoded() or self.since

    def reach(self) -> None:
        self._destination_history.reach(self)

    def read_on(self) -> LogPosition | None:
        return self._destination_history.read_on(self)

    def look_back(self, at: LogPosition) -> bool:
        return self._destination_history.look_back(self, at)


def _journals(start: LogPosition, end: LogPosition) -> float:
    """Return how many journals `end` lies behind `start`; infinity if their names do not tell."""
    base, number = split_journal(start.journal)
    other, further = split_journal(end.journal)
    return further - number if base == other and further >= number else float("inf")
