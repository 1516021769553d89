"""Junction: where the chunks of a snapshot enter a stream.

Two threads pass segments on here, one at a time: the stream's feed, and the snapshot. A chunk enters between two
transactions, never inside one. The lock is held while a full ring blocks either of them; closing the ring ends that.

A table without a key has no windows. A hold stops the feed before changes that the read of the table does not see,
until the pieces of the read have entered.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from canal_ha.errors import CanalError, RingClosed, SnapshotRefused
from canal_ha.model.position import LogPosition, split_journal
from canal_ha.model.segment import EntryKind, Segment
from canal_ha.source.snapshot.hold import Hold
from canal_ha.source.snapshot.watermark import Reached
from canal_ha.source.snapshot.window import KeyTexts, Window

_POLL_S = 0.02  # an idle stream passes the end of the binlog without a segment


@dataclass(frozen=True, slots=True)
class Watched:
    """What a window looks for in the stream.

    keys: returns the keys of the table's rows in a segment, before and after each change.
    altered: whether the entry of a statement may concern the table.
    shared: see Window.
    """

    keys: Callable[[Segment], Iterable[KeyTexts]]
    altered: Callable[[bytes], bool]
    shared: Callable[[KeyTexts], bool] = lambda key: False


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class _Due:
    """A chunk that waits for the stream to pass the end of its window. See Junction.put."""

    end: Reached
    make: Callable[[LogPosition], Segment]


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
        self._wanted: Watched | None = None  # a window is to open for it
        self._watched: Watched | None = None
        self._window: Window | None = None
        self._opened: Opened | None = None
        self._chunk: _Due | None = None
        self._failure: Exception | None = None
        self._hold: Hold | None = None
        self._held = False  # the feed waits, and nothing before the hold's end is left
        self._stopped = False

    # ---- the feed's thread

    def accept(self, segment: Segment) -> None:
        """Pass a segment of the stream on."""
        with self._changed:
            if self._chunk or self._wanted:
                self._step()
            if self._hold:
                segment = self._wait_in_hold(segment)
            self._pass(segment)

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
            if self._window:
                self._window.altered = True
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

    # ---- the snapshot's thread

    def open(self, watched: Watched) -> Opened | None:
        """Open a window at the next end of a transaction. Return None once stopped."""
        with self._changed:
            self._window = self._watched = self._chunk = self._opened = None
            self._wanted = watched
            while not self._stopped:
                self._step()
                if opened := self._taken():
                    return opened
                self._changed.wait(_POLL_S)
        return None

    def put(self, end: Reached, make: Callable[[LogPosition], Segment]) -> bool:
        """Pass a chunk on as soon as the stream has passed the end of its window; return False if it cannot be used.

        end: the end of the binlog after the chunk's SELECT.
        make: makes the segment for the stream at a boundary, without rows of the window. Called on either thread.
        Raises what `make` and `accept` raise.
        """
        with self._changed:
            window = self._window
            assert window is not None
            self._chunk = _Due(end, make)
            while self._chunk and window.valid and not self._stopped:
                self._step()
                if self._chunk:
                    self._changed.wait(_POLL_S)
            used = self._chunk is None
            self._window = self._watched = self._chunk = None
            failure, self._failure = self._failure, None
        if failure:
            raise failure
        return used

    def caught_up(self, end: Reached) -> bool:
        """Whether the stream has passed a place of the binlog, or reads another server by now."""
        at = self._decoded()
        return at is not None and (at.server not in ("", end.server) or end.by(at.journal, at.offset))

    # ---- the snapshot's thread, for a table without a key

    def hold(self, hold: Hold) -> tuple[Reached, LogPosition | None] | None:
        """Stop the stream where `hold` says; return `brought` and `before` of Opened. Return None once stopped."""
        with self._changed:
            self._hold = hold
            while not self._stopped:
                if at := self._boundary():
                    return Reached.behind(at), self._before
                self._changed.wait(_POLL_S)
        return None

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
        if self._window and self._watched:
            self._record(segment, self._window, self._watched)

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

    def _taken(self) -> Opened | None:
        opened, self._opened = self._opened, None
        return opened

    def _step(self) -> None:
        """Do what waits, if the stream is between two transactions."""
        at = self._place()
        if at is None:
            return
        if self._wanted:
            self._watched, self._wanted = self._wanted, None
            self._window = Window(shared=self._watched.shared)
            self._opened = Opened(self._window, _brought(self._last, at), at, self._before)
            self._changed.notify_all()
        elif self._chunk and self._window and self._window.valid and self._passed(self._chunk.end, at):
            chunk, self._chunk = self._chunk, None
            try:
                self._accept(chunk.make(at))
            except Exception as error:
                self._failure = error
            self._changed.notify_all()

    def _passed(self, end: Reached, at: LogPosition) -> bool:
        """Whether the stream has passed the end of a window, and nothing behind the boundary `at`."""
        last = self._last
        return not (last is not None and _inside(last, at)) and end.by(at.journal, at.offset)

    @staticmethod
    def _record(segment: Segment, window: Window, watched: Watched) -> None:
        """Take the segment's changes of the table."""
        kinds = segment.kinds
        if EntryKind.ROWS in kinds:
            try:
                window.record(watched.keys(segment))
            except CanalError as error:
                window.refused = error  # it ends the snapshot, and not the stream
            except Exception as error:
                window.refused = SnapshotRefused(f"the stream's changes of the table cannot be read: {error!r}")
        if window.valid and (EntryKind.DDL in kinds or EntryKind.QUERY in kinds):
            window.altered = any(
                watched.altered(segment.entry(index))
                for index, kind in enumerate(kinds)
                if kind in (EntryKind.DDL, EntryKind.QUERY)
            )


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
