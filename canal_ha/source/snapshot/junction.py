"""Junction: where the chunks of a snapshot enter a stream.

Threads pass segments on here, one at a time: the stream's feed, and those of the snapshot. A chunk enters between two
transactions, never inside one. The lock is held while a full ring blocks any of them; closing the ring ends that.

A table without a key has no windows. A hold stops the feed before changes that the read of the table does not see,
until the pieces of the read have entered.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from canal_ha.errors import CanalError, RingClosed, SnapshotRefused
from canal_ha.model.position import LogPosition, split_journal
from canal_ha.model.segment import EntryKind, Segment, Source
from canal_ha.source.snapshot.hold import Hold
from canal_ha.source.snapshot.watermark import Pause, Reached
from canal_ha.source.snapshot.window import KeyTexts, Window

_POLL_S = 0.02  # an idle stream passes the end of the binlog without a segment
_BEHIND_S = 0.2  # between looks at a stream that may be far behind
_FLOWS_S = 1.0  # behind a segment of the feed, changes still flow


@dataclass(frozen=True, slots=True)
class Watched:
    """What a window looks for in the stream. Equal ones, of windows on one table, look once.

    keys: returns the keys of the table's rows in a segment, before and after each change.
    altered: whether the entry of a statement may concern the table.
    shared: see Window.
    """

    keys: Callable[[Segment], Iterable[KeyTexts]]
    altered: Callable[[bytes], bool]
    shared: Callable[[KeyTexts], bool] = lambda key: False


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """A window that has begun.

    brought: what the stream had brought.
    at: its last boundary.
    before: how far it had read another server, some of which this one may lack; None if nothing is missing.
    """

    window: Window
    brought: Reached
    at: LogPosition
    before: LogPosition | None


@dataclass(slots=True, eq=False)
class _Wanted:
    """A window that waits for the end of a transaction."""

    watched: Watched
    opened: Opened | None = None


@dataclass(slots=True, eq=False)
class _Due:
    """A chunk that waits for the stream to pass the end of its window. See Junction.put."""

    window: Window
    end: Reached
    make: Callable[[LogPosition], Segment | None]
    passed: bool = False
    used: bool = False
    failure: Exception | None = None


class Junction:
    """See the module.

    accept: takes the segments; blocks while the ring is full.
    decoded: returns the boundary up to which the feed has accepted everything; None while it is unknown.
    before: see Opened.
    """

    def __init__(
        self,
        accept: Callable[[Segment], None],
        decoded: Callable[[], LogPosition | None],
        before: LogPosition | None = None,
    ) -> None:
        self._accept = accept
        self._decoded = decoded
        self._before = before
        self._changed = threading.Condition()  # its lock is the one of the module's text
        self._last: Segment | None = None  # the feed's last segment
        self._passed_at = -_FLOWS_S  # when it came, monotonic, s
        self._wanted: list[_Wanted] = []
        self._windows: dict[Window, Watched] = {}  # the open ones
        self._due: list[_Due] = []  # in the order of `put`
        self._hold: Hold | None = None
        self._held = False  # the feed waits, and nothing before the hold's end is left
        self._ahead: Callable[[LogPosition, Source], Segment | None] | None = None
        self._stopped = False

    # ---- the feed's thread

    def accept(self, segment: Segment) -> None:
        """Pass a segment of the stream on, and before it at most one chunk, so that it does not wait for all."""
        with self._changed:
            if self._ahead:
                segment = self._put_ahead(self._ahead, segment)
            if self._due or self._wanted:
                self._step()
            if self._hold:
                segment = self._wait_in_hold(segment)
            self._pass(segment)

    def ahead(self, make: Callable[[LogPosition, Source], Segment | None]) -> None:
        """Pass a segment on before the next one of the stream, or behind the transaction that this one ends.

        make: makes it for a position behind which it stands, and the source of the stream; None if it is not needed.
        """
        with self._changed:
            self._ahead = make

    def moved(self, before: LogPosition | None, executed: str | None) -> None:
        """The feed goes on with another server.

        before: its last boundary in the old server's binlog; None if the new one has everything that it has brought.
        executed: the GTID set of that; None or "" if nobody knows.
        """
        with self._changed:
            if before and self._last:  # there can be more behind the boundary
                before = max(before, self._last.position(len(self._last) - 1), key=lambda at: at.order)
            self._before = before and replace(before, gtid=executed or before.gtid)
            self._last = None
            for window in self._windows:
                window.altered = True
            if self._hold:
                self._hold.void = True
            self._changed.notify_all()

    def stop(self) -> None:
        """End every wait. Does not wait for the lock, which a full ring may hold."""
        self._stopped = True
        if self._changed.acquire(blocking=False):
            try:
                self._changed.notify_all()
            finally:
                self._changed.release()

    # ---- a snapshot's thread

    @property
    def flows(self) -> bool:
        """Whether the feed has brought something a moment ago."""
        return time.monotonic() - self._passed_at < _FLOWS_S

    def open(self, watched: Watched) -> Opened | None:
        """Open a window at the next end of a transaction; `close` ends it. Return None once stopped."""
        wanted = _Wanted(watched)
        with self._changed:
            self._wanted.append(wanted)
            while not self._stopped:
                self._step()
                if wanted.opened:
                    return wanted.opened
                self._changed.wait(_POLL_S)
        return None

    def standing(self) -> tuple[Reached, LogPosition | None] | None:
        """Return `brought` and `before` of Opened, as they are between two transactions; None once stopped."""
        with self._changed:
            while not self._stopped:
                if at := self._boundary():
                    return Reached.behind(at), self._before
                self._changed.wait(_POLL_S)
        return None

    def narrow(self, window: Window, keys: Sequence[KeyTexts]) -> None:
        """Tell an open window the keys of its chunk's rows, in their order. The stream brings nothing meanwhile."""
        with self._changed:
            window.read(keys)

    def put(self, window: Window, end: Reached, make: Callable[[LogPosition], Segment | None]) -> bool:
        """Pass a chunk on as soon as the stream has passed the end of its window; return False if it cannot be used.

        window: open.
        end: the end of the binlog after the chunk's SELECT.
        make: makes the segment for the stream at a boundary, without rows of the window; None if the chunk cannot be
            used any more. Called on any thread, one call at a time.
        Raises what `make` and `accept` raise.
        """
        due = _Due(window, end, make)
        with self._changed:
            self._due.append(due)
            while not due.passed and window.valid and not self._stopped:
                if not self._step():
                    self._changed.wait(_POLL_S)
            if not due.passed:
                self._due.remove(due)
        if due.failure:
            raise due.failure
        return due.used

    def close(self, window: Window) -> None:
        """End a window."""
        with self._changed:
            self._windows.pop(window, None)

    def catch_up(self, end: Reached, pause: Pause) -> None:
        """Wait until the stream has passed a place of the binlog, or reads another server. pause: see wait_visible."""
        while True:
            at = self._decoded()
            if at is not None and (at.server not in ("", end.server) or end.by(at.journal, at.offset)):
                return
            pause(_BEHIND_S)

    # ---- a snapshot's thread, for a table without a key, while no other thread reads

    def hold(self, hold: Hold) -> tuple[Reached, LogPosition | None] | None:
        """Stop the stream where `hold` says; return what `standing` does."""
        with self._changed:
            self._hold = hold
            return self.standing()

    def limit(self, doubt: Reached, end: Reached) -> bool:
        """Tell the hold what the read sees, see Hold, and wait until the stream has passed `end`.

        Return False if the read cannot be used.
        """
        with self._changed:
            hold = self._hold
            assert hold is not None
            hold.limit(doubt, end)
            self._held = False
            self._changed.notify_all()
            while not (self._held or hold.void or self._stopped):
                if (at := self._boundary()) and end.by(at.journal, at.offset + at.consumed):
                    break
                self._changed.wait(_POLL_S)
            return not (hold.void or self._stopped)

    def enter(self, make: Callable[[LogPosition], Segment]) -> bool:
        """Pass a piece of the read on between two transactions; return False if the read cannot be used any more.

        make: makes the segment for the stream behind a position. Raises what `make` and `accept` raise.
        """
        with self._changed:
            hold = self._hold
            assert hold is not None
            while not (hold.void or self._stopped):
                if at := self._boundary():
                    self._accept(make(at))
                    return True
                self._changed.wait(_POLL_S)
        return False

    def release(self) -> None:
        """End the hold."""
        with self._changed:
            self._hold = None
            self._held = False
            self._changed.notify_all()

    # ---- holding the lock

    def _pass(self, segment: Segment) -> None:
        self._accept(segment)
        self._last = segment
        self._passed_at = time.monotonic()
        if self._windows:
            self._record(segment)

    def _put_ahead(self, make: Callable[[LogPosition, Source], Segment | None], segment: Segment) -> Segment:
        """Pass on what `ahead` was told, if the stream is between two transactions; return the rest of the segment."""
        if self._last is not None and self._last.cut:
            count = segment.kinds.find(EntryKind.END) + 1
            if not 0 < count < len(segment):
                return segment
            self._pass(segment.slice(0, count))
            segment = segment.slice(count, len(segment))
        if at := self._boundary():
            self._ahead = None
            if made := make(at, segment.source):
                self._accept(made)
        return segment

    def _wait_in_hold(self, segment: Segment) -> Segment:
        """Pass what the hold lets pass; return the rest once all of it may pass. Raises RingClosed once stopped."""
        while self._hold and (count := self._passing(self._hold, segment)) < len(segment):
            if count:
                self._pass(segment.slice(0, count))
                segment = segment.slice(count, len(segment))
            self._held = self._hold.end is not None
            self._changed.notify_all()
            self._changed.wait()
            if self._stopped:
                raise RingClosed("the stream was stopped while a snapshot held it")
        return segment

    def _passing(self, hold: Hold, segment: Segment) -> int:
        """Return how many of the segment's first entries may pass.

        A transaction that began to pass before the hold passes to its end, because nothing can enter inside it.
        """
        if hold.end is None and not hold.void and self._last is not None and self._last.cut:
            return segment.kinds.find(EntryKind.END) + 1 or len(segment)
        return hold.passes(segment)

    def _place(self) -> LogPosition | None:
        """Return the boundary that the feed has told; None inside a transaction, or if it is unknown."""
        at, last = self._decoded(), self._last
        if at is None or not at.journal:
            return None
        if last is not None and (_is_of_another_server(last, at) or (last.cut and _inside(last, at))):
            return None
        return at

    def _boundary(self) -> LogPosition | None:
        """Return the position behind all that the stream has brought; None inside a transaction, or if unknown."""
        at, last = self._place(), self._last
        return last.position(len(last) - 1, consumed=True) if at and last is not None and _inside(last, at) else at

    def _step(self) -> bool:
        """Open the windows that wait and pass one chunk on, if the stream is between two transactions.

        Return whether a chunk has passed, or turned out to be useless.
        """
        at = self._place()
        if at is None:
            return False
        for wanted in self._wanted:
            window = Window(shared=wanted.watched.shared)
            self._windows[window] = wanted.watched
            wanted.opened = Opened(window, _brought(self._last, at), at, self._before)
        if self._wanted:
            self._wanted.clear()
            self._changed.notify_all()
        due = next((each for each in self._due if each.window.valid and self._passed(each.end, at)), None)
        if due is None:
            return False
        self._due.remove(due)
        due.passed = True
        segment = None
        try:
            if segment := due.make(at):
                self._accept(segment)
                due.used = True
        except Exception as error:
            due.failure = error
            if segment:
                self._stopped = True  # the snapshot's state counts its rows, so no chunk may follow
        self._changed.notify_all()
        return True

    def _passed(self, end: Reached, at: LogPosition) -> bool:
        """Whether the stream has passed the end of a window, and nothing behind the boundary `at`."""
        last = self._last
        return not (last is not None and _inside(last, at)) and end.by(at.journal, at.offset)

    def _record(self, segment: Segment) -> None:
        """Take the segment's changes of the tables."""
        rows = EntryKind.ROWS in segment.kinds
        statements = [index for index, kind in enumerate(segment.kinds) if kind in (EntryKind.DDL, EntryKind.QUERY)]
        if not rows and not statements:
            return
        for watched in set(self._windows.values()):
            windows = [window for window, each in self._windows.items() if each == watched]
            try:
                keys = list(watched.keys(segment)) if rows else []
            except Exception as error:  # it ends the snapshot, and not the stream
                refused = error if isinstance(error, CanalError) else None
                text = f"the stream's changes of the table cannot be read: {error!r}"
                for window in windows:
                    window.refused = refused or SnapshotRefused(text)
                continue
            altered = any(watched.altered(segment.entry(index)) for index in statements)
            for window in windows:
                window.record(keys)
                window.altered = window.altered or altered


def _inside(last: Segment, at: LogPosition) -> bool:
    """Whether the stream has brought more than what lies before a boundary."""
    return (split_journal(last.journal), last.offsets[-1]) >= (split_journal(at.journal), at.offset)


def _is_of_another_server(last: Segment, at: LogPosition) -> bool:
    """Whether the feed is about to tell that it goes on with another server, which has this boundary."""
    return "" not in (at.server, last.source.server) and at.server != last.source.server


def _brought(last: Segment | None, at: LogPosition) -> Reached:
    """Return what the stream has brought: its last segment, or everything before the boundary if there is none yet."""
    if last is None:
        return Reached.behind(at)
    return Reached(last.journal, last.offsets[-1] + 1, last.source.server)
