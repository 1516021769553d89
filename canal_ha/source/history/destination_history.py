"""DestinationHistory: the table history of a destination, for every position that its streams read.

It covers ranges of positions. Each range begins with a snapshot of all tables, or is read up to one, and every
statement in it is recorded. When a stream begins outside all ranges, the statements between it and a range are read
first; far from all ranges a new one begins. A range that an open stream reads is never dropped. So a table's columns
always belong to the position asked for. Threads: the streams' own and the pool; one lock, which is not held while
the source is asked; blocks on MySQL.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from canal_ha.config.model import InstanceConfig
from canal_ha.decode.history.evidence import Joint, behind
from canal_ha.decode.history.history import History, TableHistory
from canal_ha.decode.history.ranges import Range, edge
from canal_ha.decode.history.store import HistoryStore, Kept, TableSnapshot
from canal_ha.errors import HistoryUnavailable, SourceUnavailable
from canal_ha.model.position import LogPosition, split_journal
from canal_ha.model.tell import Tell
from canal_ha.source.connection.flavor import Flavor, examine
from canal_ha.source.connection.idle_sessions import SourceSessions
from canal_ha.source.connection.known_only import NotKnown, may_wait
from canal_ha.source.connection.recent_answers import RECENT_S
from canal_ha.source.connection.session import SourceSession
from canal_ha.source.connection.stop_signal import StopSignal
from canal_ha.source.connection.tables import Tables
from canal_ha.source.history.all_tables import all_tables
from canal_ha.source.history.journal_times import JournalTimes
from canal_ha.source.history.recording import Recording
from canal_ha.source.history.stretches import Stretches
from canal_ha.source.positions import locate
from canal_ha.source.positions.locate import BinlogEnd
from canal_ha.source.positions.scan import Scanner

_ANY = ("", "")  # stands for a table changed by a statement whose table names are unreadable

MOST_RECORDS = 5000  # before a snapshot replaces them, if cursors allow: bounds time and memory
MOST_RANGES = 16  # with snapshots: bounds memory; further ranges are joined by reading what lies between
MOST_JOINTS = 256  # of streams that moved here; later ones go before earlier ones
NEAR_JOURNALS = 8  # up to this distance, read on from a range and do not begin another

_NO_ENDS: tuple[float, list[tuple[int | str, ...]]] = (math.inf, [])  # later than any answer


class FetchFrom(Protocol):
    """Returns the current text of a table, from a server with this identity; see Tables.fetch."""

    def __call__(self, schema: str, table: str, server: str = "") -> str | None: ...


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
    stop_signal, older_s: see SourceSessions.
    """

    def __init__(
        self,
        config: InstanceConfig,
        fetch: FetchFrom,
        store: HistoryStore | None,
        tell: Tell,
        *,
        clock: Callable[[], float] = time.time,
        most_records: int = MOST_RECORDS,
        stop_signal: StopSignal | None = None,
        older_s: float = 0.0,
    ) -> None:
        stop_signal = stop_signal or StopSignal()
        self._config = config
        self._opening = stop_signal.opened
        self._sessions = SourceSessions(config, stop_signal=stop_signal, older_s=older_s)
        self._tables = Tables(config, stop_signal=stop_signal, older_s=older_s)
        self._fetch = fetch
        self._store = store
        self._tell = tell
        self._clock = clock
        self._most_records = most_records
        self._turn = threading.Lock()  # never held while the source is asked
        self._one_snapshot = threading.Lock()  # taken before `_turn`; those who wait for it want the same snapshot
        self._noting = threading.Lock()  # taken before `_turn`: what is stored later covers more
        self._taken = 0  # snapshots
        self._stretches = Stretches()
        self._begun_anew: set[str] = set()
        self._recording = Recording(store, "", tell, self._begun_anew)
        self._history = History(fetch, charset=self._tables.charset, in_ranges=True)
        self._joined: deque[tuple[LogPosition, LogPosition]] = deque(maxlen=MOST_JOINTS)
        self._others: Mapping[str, History] | None = None  # None: not asked for yet
        self._loaded = False
        self._times = JournalTimes({})
        self._ends = _NO_ENDS
        self._snapshots: list[LogPosition] = []
        self._streams: weakref.WeakKeyDictionary[HistoryDump, _Opened] = weakref.WeakKeyDictionary()

    # ---- streams

    def view(
        self,
        start: LogPosition,
        reading: HistoryDump | None = None,
        *,
        searching: bool = False,
        sender: str = "",
    ) -> TableHistory:
        """Return the tables as of `start`, after reading what is needed to know them.

        reading: the stream's dump. From now on its decoded statements count as covered, and its ranges are kept.
        searching: see History.view.
        sender: the identity of the server that sends the dump; "" if unknown. If another one answers the questions,
            SourceUnavailable is raised, and the next call asks the server that answers at the address then.
        """
        with self._sessions.lent() as session:
            server = examine(session)
            if sender and server.identity != sender:
                self._tables.close()  # its sessions may lead to the other server, too
                raise SourceUnavailable(
                    f"{session.where.address}: the server that is asked for tables ({server.identity}) is not the one"
                    f" that sends the binlog ({sender}); the dump starts again"
                )
            # FULL metadata names the columns in every event, so reading can wait until an event lacks the names
            lazily = server.row_metadata == "FULL"
            history, newest = self._prepare(session, server, strict=not lazily, opening=True)
            stream = _Opened(self, history, edge(start), reading)
            with self._turn:
                self._check(history, stream.since)
                if reading is not None:
                    self._streams[reading] = stream
            self._reach(history, stream.since, newest, self._scanner(session, server), lazily=lazily)
        return history.view(start, stream, searching=searching)

    def view_at_once(self, start: LogPosition, end: BinlogEnd, reading: HistoryDump) -> TableHistory | None:
        """Return what `view` returns if nothing has to be asked, read or stored for it; else None.

        start, reading: see `view`.
        end: of the binlog, as the server told it a moment ago. It must tell when the newest journal was created: the
            stream may begin because the binlog was reset.
        """
        with self._turn:
            if not end.began_ms or end.began_ms != self._times.newest_ms or not self._is_covered(end):
                return None
            history, at = self._history, edge(start)
            known = history.ranges().of(at.order)
            if known is None or not (end.server.row_metadata == "FULL" or self._has_snapshot(known)):
                return None
            stream = self._streams[reading] = _Opened(self, history, at, reading)
        return history.view(start, stream)

    def reach(self, stream: _Opened) -> None:
        """See Ahead. stream: one whose view was asked for here."""
        with self._turn:
            self._advance()
            if stream.reached and self._place(stream):
                return
        with self._sessions.lent() as session:
            server = examine(session)
            history, newest = self._prepare(session, server, strict=True)
            with self._turn:
                at = self._place(stream)
            self._reach(history, at, newest, self._scanner(session, server), lazily=False)
        stream.reached = True

    def read_on(self, stream: _Opened) -> LogPosition | None:
        """See Ahead. stream: one whose view was asked for here."""
        with self._sessions.lent() as session:
            server = examine(session)
            history, newest = self._prepare(session, server, strict=True)
            with self._turn:
                at, end = self._place(stream), edge(newest)
            while True:
                ranges = history.ranges()
                known = ranges.of(at.order) or Range(at, at)
                if known.end.order >= end.order:
                    return end
                behind = ranges.behind(known.end.order)
                until = end if behind is None or behind.start.order > end.order else behind.start
                if not self._read(history, known.end, until, self._scanner(session, server)):
                    return None

    def look_back(self, stream: _Opened, until: LogPosition) -> bool:
        """See Ahead. stream: one whose view was asked for here."""
        with self._turn:
            at, history = self._place(stream), self._history
        ranges = history.ranges()
        known = ranges.of(at.order) or Range(at, at)
        before = None if stream.gone_before else ranges.ending_before(known.start.order)
        if before is None and stream.again_from == known.start:
            return False
        with self._sessions.lent() as session:
            scanner = self._scanner(session, examine(session))
            if before is not None:
                stream.gone_before = not self._read(history, before.end, known.start, scanner)
                if stream.gone_before:
                    return False
            # ranges may have joined: apply again the statements that had no effect without the earlier ones
            found = self._read(history, known.start, edge(until), scanner, again=True)
        stream.again_from = (history.ranges().of(at.order) or known).start
        return found

    def joined(self, left: LogPosition, here: LogPosition) -> None:
        """Learn that two positions are the same place, because a stream went on there.

        left: in the binlog of another server.
        here: in this one.
        """
        with self._turn:
            self._joined.append((left, here))

    def joints(self) -> list[Joint]:
        """See Ahead."""
        others = self.others()
        with self._turn:
            return [
                Joint(others[left.server], behind(left), behind(here))
                for left, here in self._joined
                if left.server in others and here.server == self._recording.source
            ]

    def others(self) -> Mapping[str, History]:
        """Return what is stored of the other servers that the destination has read, by their identity."""
        with self._turn:
            store, source, begun = self._store, self._recording.source, self._history
            if self._others is not None or store is None:
                return self._others or {}
        try:
            kept = store.others(source)
        except HistoryUnavailable:
            if store.shared:
                raise
            return {}
        others = {name: History(self._fetch, fold_names=begun.fold_names, in_ranges=True) for name in kept}
        for name, history in others.items():
            _restore(history, kept[name])
        with self._turn:
            if self._history is begun:
                self._others = others
        return others

    # ---- the pool, at intervals

    def goes_on(self, end: BinlogEnd) -> bool:
        """Record the ranges if this is still the binlog that is covered, and nothing is due. Return False if not.

        end: of the binlog. The source is not asked.
        Raises NotKnown, if this thread must not wait, instead of waiting for another thread or the store.
        """
        if not may_wait():
            return self._goes_on_at_once(end)
        with self._turn:
            goes_on = self._is_covered(end)
        if goes_on:
            self._put_in_order()
        return goes_on

    def _goes_on_at_once(self, end: BinlogEnd) -> bool:
        if not self._turn.acquire(blocking=False):
            raise NotKnown
        try:
            goes_on = self._is_covered(end)
            if goes_on:
                self._trim()
                noted = self._recording.has(self._with_snapshots(), dict(self._times.known))
        finally:
            self._turn.release()
        if goes_on and not noted:
            raise NotKnown
        return goes_on

    def look(self, cursors: Collection[LogPosition] | None) -> None:
        """Begin to cover, record the ranges, and take a snapshot if it is due.

        cursors: of all clients, in this binlog; None if they are unknown. Then nothing is dropped.
        """
        self._look(cursors)
        self._put_in_order()

    def _put_in_order(self) -> None:
        with self._turn:
            self._trim()
        self._note()

    def _look(self, cursors: Collection[LogPosition] | None) -> None:
        with self._sessions.lent() as session:
            server = examine(session)
            history, newest = self._prepare(session, server, strict=server.row_metadata != "FULL")
            with self._turn:
                due, many, taken = self._snapshot_due(), self._has_many(), self._taken
            if due:
                scanner = self._scanner(session, server)
                if many:  # the snapshot must lie in the last range
                    self._reach(history, edge(newest), newest, scanner, lazily=False)
                self._take_snapshot(history, newest, taken, scanner)
            if cursors is not None:
                self._expire(history, cursors, lambda: locate.oldest(session, server, self._config.master))

    def close(self) -> None:
        """Record the covered ranges and close what is idle."""
        with self._turn:
            self._advance()
        self._note()
        with self._turn:
            self._recording.end()
            store, self._store = self._store, None
            if store:
                store.close()
        self._tables.close()
        self._sessions.close()

    # ---- asking the source, without the lock

    def _scanner(self, session: SourceSession, server: Flavor) -> Scanner:
        return Scanner(session, server, self._config, self._config.master, self._opening)

    def _prepare(
        self, session: SourceSession, server: Flavor, *, strict: bool, opening: bool = False
    ) -> tuple[History, LogPosition]:
        """Load this server's stored history and make sure that there is a range.

        Return the history, and the newest position.
        strict: raise if the store fails, because the records of other nodes are needed.
        opening: a stream begins to read, perhaps because the binlog was reset and its dump ended.
        Raises HistoryUnavailable.
        """
        source = server.uuid or str(server.server_id)
        while True:
            with self._turn:
                if self._recording.source != source:
                    if self._recording.source:
                        self._tell("history.of_another_binlog", covered=self._recording.source, source=source)
                    self._begin(source, server)
                if not self._loaded:
                    self._load(strict=strict)
                self._advance()  # before asking for the end, which a busy stream would pass
                history, taken, times = self._history, self._taken, self._times
                ends = [known.end.order for known in history.ranges()]
            newest = locate.newest(session, server, self._config, self._config.master)
            same = times.agree(newest.journal, self._scanner(session, server), again=opening)
            with self._turn:
                if self._history is not history:  # another caller began a new one meanwhile
                    continue
                if not same or any(end > newest.order for end in ends):
                    self._tell("history.of_another_binlog", covered=source, source=source)
                    self._begun_anew.add(source)
                    self._begin(source, server)
                    self._loaded = True
                    continue
            if not ends:
                recent_s = 0.0 if source in self._begun_anew else RECENT_S
                self._take_snapshot(history, newest, taken, self._scanner(session, server), recent_s)
            return history, newest

    def _note(self) -> None:
        """Store the covered ranges."""
        with self._noting:
            with self._turn:
                recording = self._recording
                covered = self._with_snapshots()
                loaded, times = self._loaded, dict(self._times.known)
            if loaded:
                recording.note(covered, times)

    # ---- holding the lock

    def _is_covered(self, end: BinlogEnd) -> bool:
        """Whether this is still the binlog that is covered, and nothing is due."""
        seen_at, seen = self._ends
        self._advance()
        self._ends = time.monotonic(), [known.end.order for known in self._history.ranges()]
        if seen_at > end.asked_at:
            seen = self._ends[1]  # which may lie beyond `end`, because streams have read on since it was asked for
        return (
            self._loaded
            and self._recording.source == end.server.identity
            and self._times.looked_at == end.newest.journal
            and all(each <= end.newest.order for each in seen)
            and bool(self._ends[1])
            and not self._snapshot_due()
            and not self._expired(self._limit_ms)
        )

    def _with_snapshots(self) -> tuple[Range, ...]:
        """Return the covered ranges. A range without a snapshot is of no use to another node."""
        return tuple(known for known in self._history.ranges() if self._has_snapshot(known))

    def _check(self, history: History, at: LogPosition) -> None:
        """Raise SourceUnavailable if another server answers now. at: where a stream began to read."""
        if history is not self._history:
            raise SourceUnavailable(
                f"{self._config.destination}: the source's binlog is another one than when reading began at {at};"
                " the dump starts again"
            )

    def _begin(self, source: str, server: Flavor) -> None:
        """Begin a new history; streams that still decode another binlog keep the old one."""
        self._recording.end()
        self._recording = Recording(self._store, source, self._tell, self._begun_anew)
        self._history = History(
            lambda schema, table: self._fetch(schema, table, source),
            charset=lambda schema: self._tables.charset(schema, source),
            live_texts=not self._config.decode.table_history,
            fold_names=server.folds_names,
            lowers_names=server.lowers_names,
            recorder=self._recording,
            in_ranges=True,
        )
        self._others = None
        self._snapshots = []
        self._times = JournalTimes({})
        self._ends = _NO_ENDS
        self._streams.clear()
        self._loaded = False

    def _load(self, *, strict: bool) -> None:
        try:
            kept = self._recording.load()
        except HistoryUnavailable as error:
            if self._store is not None and self._store.shared:
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
        self._times = JournalTimes(kept.times)
        snapshots = _restore(self._history, kept)
        self._snapshots = sorted((*self._snapshots, *(snapshot.at for snapshot in snapshots)), key=lambda at: at.order)

    def _advance(self) -> None:
        """Count what streams have decoded as covered."""
        for stream in tuple(self._streams.values()):
            place = stream.decoded()
            if place is not None:
                self._history.cover(stream.since, place)

    def _place(self, stream: _Opened) -> LogPosition:
        """Return the position of a stream, at the end of the range that it has read."""
        self._check(stream.history, stream.since)
        return stream.decoded() or stream.since

    # ---- ranges

    def _reach(self, history: History, at: LogPosition, newest: LogPosition, scanner: Scanner, *, lazily: bool) -> None:
        """Put a position into a range with a snapshot, by reading the shorter stretch of statements.

        history: where the ranges are.
        at: the position to cover.
        newest: the end of the binlog.
        scanner: reads the stretch: from the range before `at`, or up to the one behind it.
        lazily: only read on from a range nearby.
        """
        lost = False
        if at.order > newest.order:  # journals that were renamed do not sort
            return
        while True:
            with self._turn:
                self._check(history, at)
                ranges, taken = history.ranges(), self._taken
                known = ranges.of(at.order)
                if known is not None and (lazily or self._has_snapshot(known)):
                    return
                start, end = (at, at) if known is None else (known.start, known.end)
                before = ranges.ending_before(start.order)
                behind = ranges.behind(end.order)
                ahead = _journals(end, behind.start if behind else newest)
                back = float("inf") if before is None or lost else _journals(before.end, start)
                near = self._is_near(back, ahead, lazily=lazily)
            if before is not None and near:
                lost = not self._read(history, before.end, start, scanner)
            elif behind is None:
                self._take_snapshot(history, newest, taken, scanner)
            elif lazily or not self._read(history, end, behind.start, scanner):
                return  # if the statements are gone, the dump meets the same error and reports it

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

    def _read(
        self, history: History, start: LogPosition, end: LogPosition, scanner: Scanner, *, again: bool = False
    ) -> bool:
        """Read a stretch and store that it is covered; see Stretches."""
        if not self._stretches.read(history, Range(start, end), scanner, again=again):
            return False
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

    def _take_snapshot(
        self, history: History, newest: LogPosition, taken: int, scanner: Scanner, recent_s: float = 0.0
    ) -> None:
        """Take a snapshot of all tables at the newest position, without those that statements change meanwhile.

        history: where it belongs.
        newest: the end of the binlog, as it was just now.
        taken: how many snapshots there were when this one was wanted; if there are more now, none is taken.
        scanner: asks and reads.
        recent_s: see `all_tables`.
        """
        with self._one_snapshot:
            with self._turn:
                if self._taken != taken:
                    return
                self._check(history, newest)
                recording = self._recording  # it stores nothing any more once another server's history begins
                began_ms = self._times.newest_ms
            read = all_tables(self._config, scanner, self._tables, began_ms, recent_s)
            first, at = edge(read.before), read.behind
            if not self._read(history, first, edge(at), scanner):
                raise SourceUnavailable(
                    f"{scanner.session.where.address}: {first} was purged while reading tables; trying again"
                )
            changed = history.changed(read.names, first, at)
            tables = {name: sql for name, sql in read.definitions.items() if name not in changed}
            all_listed = read.complete and not history.changed([_ANY], first, at)
            left_out = read.names - tables.keys() if all_listed else None
            snapshot = TableSnapshot(at, tables, left_out)
            recording.keep_snapshot(snapshot)  # first, so that no range is covered without it
            with self._turn:
                self._check(history, first)
                history.restore((), (snapshot,))
                self._snapshots.append(snapshot.at)
                self._taken += 1
        self._note()

    def _snapshot_due(self) -> bool:
        statements = self._recording.statements
        if statements >= self._most_records:
            return True
        interval_h = self._config.tsdb_snapshot_interval_h
        if interval_h <= 0 or not statements or not self._snapshots:
            return False
        return self._clock() * 1000 - self._snapshots[-1].timestamp_ms >= interval_h * 3_600_000

    @property
    def _limit_ms(self) -> int:
        """The time of the oldest snapshot that is not too old, ms since 1970."""
        return int(self._clock() * 1000 - self._config.tsdb_snapshot_expire_h * 3_600_000)

    def _expired(self, limit_ms: int) -> list[LogPosition]:
        """Return the snapshots that are too old, or one of too many, without those at the beginning."""
        many = self._recording.size > self._most_records
        first = next(iter(self._history.ranges()), None)
        if first is None:
            return []
        old = (at for at in self._snapshots if many or at.timestamp_ms < limit_ms)
        return [at for at in old if edge(at).order > first.start.order]

    def _expire(self, history: History, cursors: Collection[LogPosition], begin: Callable[[], LogPosition]) -> None:
        """Drop what lies before the newest expired snapshot that every stream, and every cursor in use, has passed.

        With too many records every snapshot counts as expired.

        history: where the snapshots belong.
        cursors: of all clients. One that is older than snapshots may get, or whose journal is purged, does not count:
        its client may never come back.
        begin: returns the beginning of the binlog.
        """
        limit_ms = self._limit_ms
        with self._turn:
            expired = self._expired(limit_ms)
        if not expired:
            return
        oldest = begin().order
        recent = (cursor for cursor in cursors if not 0 < cursor.timestamp_ms < limit_ms)
        in_use = [cursor for cursor in recent if not cursor.journal or cursor.order >= oldest]
        with self._turn:
            if self._history is not history:
                return
            needed = [*in_use, *(stream.needed() for stream in self._streams.values())]
            bases = [at for at in expired if all(need is not None and at.order <= need.order for need in needed)]
            if not bases:
                return
            base, recording = bases[-1], self._recording
            self._snapshots = [at for at in self._snapshots if at.order >= base.order]
            history.forget_before(base)
            for stream in self._streams.values():
                stream.since = max(stream.since, edge(base), key=lambda at: at.order)
        recording.expire(base, limit_ms)  # without the lock; a store that fails expires with the next base


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

    def others(self) -> Collection[History]:
        return self._destination_history.others().values()

    def joints(self) -> list[Joint]:
        return self._destination_history.joints()


def _restore(history: History, kept: Kept) -> list[TableSnapshot]:
    """Load what is stored of one source; return the snapshots that lie in its ranges."""
    for known in kept.ranges:
        history.cover(known.start, known.end)
    ranges = history.ranges()
    snapshots = [snapshot for snapshot in kept.snapshots if ranges.of(edge(snapshot.at).order)]
    history.restore(kept.records, snapshots)
    return snapshots


def _journals(start: LogPosition, end: LogPosition) -> float:
    """Return how many journals `end` lies behind `start`; infinity if their names do not tell."""
    base, number = split_journal(start.journal)
    other, further = split_journal(end.journal)
    return further - number if base == other and further >= number else float("inf")
