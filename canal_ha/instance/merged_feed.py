"""MergedFeed: the feed of a destination with several sources. Its own thread merges what the sources' threads bring.

`merge.Merge` decides. Here are the lock of the queues, the clock, and the feeds. If the merge abandons a transaction,
a new feed of that source begins at the transaction.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from canal_ha.errors import CanalError, RingClosed
from canal_ha.instance.feed import Feed, FeedRequest, Move, OpenFeed
from canal_ha.instance.merge import Abandoned, Back, LeftBehind, Merge, Moment, Seen
from canal_ha.instance.status import PartStatus
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Segment

LOOK_S = 0.05  # between two looks at the progress of the sources


@dataclass(frozen=True, slots=True)
class MergedSource:
    """One source.

    address: as people know it.
    open_feed: opens a feed of a destination with this source alone.
    start: where to begin.
    """

    address: str
    open_feed: OpenFeed
    start: LogPosition


class _SourceReader:
    """The current feed of one source, and its state. It belongs to the merging thread as soon as that runs."""

    def __init__(self, member: MergedSource, part: int) -> None:
        self.member = member
        self.part = part
        self.feed: Feed | None = None
        self.turn = 0  # grows when a new feed takes the place of the old one
        self.bytes_before = 0  # that earlier feeds of the source received
        self.error: CanalError | None = None

    @property
    def received_bytes(self) -> int:
        return self.bytes_before + (self.feed.received_bytes if self.feed else 0)


class MergedFeed:
    """See the module. Implements Feed."""

    def __init__(
        self,
        request: FeedRequest,
        members: Sequence[MergedSource],
        *,
        name: str,
        wait_s: float,
        tell: Callable[..., None],
    ) -> None:
        """Open a feed of each source, without starting it.

        request: of the stream.
        members: the sources in the order of their numbers, from 1.
        name: of the thread.
        wait_s: how long the merge waits for a silent source.
        tell: hears of sources that are left behind, and of their return.
        """
        self.decoded: LogPosition | None = None
        self._request = request
        self._tell = tell
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._stopping = False
        self._readers = [_SourceReader(member, part) for part, member in enumerate(members, start=1)]
        starts = [replace(member.start, part=part) for part, member in enumerate(members, start=1)]
        self._merge = Merge(starts, wait_s=wait_s, now=_now(), behind=request.behind)
        for reader, start in zip(self._readers, starts, strict=True):
            reader.feed = self._opened(reader, start, reader.turn)
        self._thread = threading.Thread(target=self._run, name=f"merge-{name}", daemon=True)

    # ---- any thread

    @property
    def received_bytes(self) -> int:
        """Bytes received from all sources."""
        return sum(reader.received_bytes for reader in self._readers)

    @property
    def idle(self) -> bool:
        """Whether no source has anything newer, and everything was delivered."""
        return self._merge.empty and all(feed.idle for feed in self._feeds())

    @property
    def shared(self) -> bool:
        """See Feed."""
        return False

    @property
    def tap(self) -> str:
        """See Feed."""
        return ""

    @property
    def lent(self) -> bool:
        """See Feed."""
        return False

    @property
    def idle_at(self) -> float:
        """When the last of the sources said so."""
        return min(feed.idle_at for feed in self._feeds())

    @property
    def last_event_ms(self) -> int:
        """Of the source that is farthest behind; an idle source is not behind."""
        times = [feed.last_event_ms for feed in self._feeds() if not feed.idle]
        return min(times) if times else max(feed.last_event_ms for feed in self._feeds())

    def parts(self) -> tuple[PartStatus, ...]:
        """Return the figures of each source."""
        return tuple(
            PartStatus(
                part=reader.part,
                source_address=reader.member.address,
                decoded=feed.decoded,
                received_bytes=reader.received_bytes,
                last_event_ms=feed.last_event_ms,
                idle=feed.idle,
                left_behind=self._merge.left_behind(reader.part),
                error=str(reader.error or ""),
            )
            for reader, feed in zip(self._readers, self._feeds(), strict=True)
        )

    def start(self) -> None:
        """See Feed. Raises RuntimeError, and stops all, if the system has no thread for one of the sources."""
        try:
            for feed in self._feeds():
                feed.start()
            self._thread.start()
        except RuntimeError:
            self.stop()
            raise

    def stop(self) -> None:
        """See Feed."""
        with self._lock:
            self._stopping = True
            self._changed.notify_all()
        for feed in self._feeds():
            feed.stop()

    # ---- the sources' threads

    def _opened(self, reader: _SourceReader, start: LogPosition, turn: int) -> Feed:
        """Open a feed of this source alone, without starting it. Its segments count until the source is read again.

        turn: which feed of the source it is.
        """

        def accept(segment: Segment) -> None:
            with self._lock:
                while not self._merge.has_room(reader.part) and not self._over(reader, turn):
                    self._changed.wait()
                if self._over(reader, turn):
                    raise RingClosed("the merged stream was parked or stopped, or reads this source again")
                self._merge.put(reader.part, segment, _now())
                self._changed.notify_all()

        return reader.member.open_feed(
            replace(
                self._request,
                start=replace(start, others=()),
                behind=None,
                busy=lambda busy: None,  # the merging thread puts segments into the ring, not this feed
                accept=accept,
                room=None,
                connected=lambda version: self._connected(reader, version),
                failed=lambda error, retry_in_s: self._failed(reader, error, retry_in_s),
                moved=lambda move: self._moved(reader, move),
            )
        )

    def _over(self, reader: _SourceReader, turn: int) -> bool:
        return self._stopping or reader.turn != turn

    def _connected(self, reader: _SourceReader, version: str) -> None:
        with self._lock:
            reader.error = None
            left = next((each.error for each in self._readers if each.error), None)
        if left is None:
            self._request.connected(version)
        else:
            self._request.failed(left, 0.0)

    def _failed(self, reader: _SourceReader, error: CanalError, retry_in_s: float | None) -> None:
        with self._lock:
            reader.error = error
        self._request.failed(error, retry_in_s)
        if retry_in_s is None:  # a person has to help before this source can go on, so the stream ends
            self.stop()

    def _moved(self, reader: _SourceReader, move: Move) -> None:
        with self._lock:
            self._merge.moved(reader.part, move.after)
        before, after = (replace(each, part=reader.part) for each in (move.before, move.after))
        self._request.moved(replace(move, before=before, after=after))

    # ---- the merging thread

    def _run(self) -> None:
        try:
            self._deliver()
        except RingClosed:
            pass
        except Exception as error:
            failure = CanalError(f"merging {', '.join(each.member.address for each in self._readers)} broke: {error!r}")
            failure.__cause__ = error
            self._request.failed(failure, None)
        finally:
            self.stop()

    def _deliver(self) -> None:
        looked_at = 0.0
        while not self._stopping:
            now = _now()
            if now.s - looked_at >= LOOK_S:
                self._look(now)
                looked_at = now.s
            with self._lock:
                got = self._merge.step(now)
                if got is None:
                    if now.s == looked_at:  # this look changed nothing
                        self.decoded = self._merge.at
                        self._changed.wait(LOOK_S)
                    looked_at = 0.0
                    continue
                self._changed.notify_all()
                at = self._merge.at
            if isinstance(got, Segment):
                self._request.accept(got)
                self.decoded = at
            else:
                self._change(got)

    def _look(self, now: Moment) -> None:
        """Tell the merge how far the sources are. Read each figure before the queues are looked at."""
        for reader, feed in zip(self._readers, self._feeds(), strict=True):
            idle_at = feed.idle_at
            idle = Moment(idle_at, now.ms - int((now.s - idle_at) * 1000)) if idle_at else None
            seen = Seen(feed.decoded, feed.last_event_ms, idle, reader.received_bytes)
            with self._lock:
                self._merge.seen(reader.part, seen, now)

    def _change(self, change: LeftBehind | Abandoned | Back) -> None:
        reader = self._readers[change.part - 1]
        facts: dict[str, object] = {"source": reader.member.address, "client_id": self._request.client_id}
        if isinstance(change, Back):
            self._tell("source.waited_for_again", **facts)
            return
        if reader.error:
            facts["error"] = str(reader.error)
        if isinstance(change, Abandoned):
            facts["reads_again_from"] = str(change.start)
            self._read_again(reader, change.start)
        self._tell("source.left_behind", silent_s=round(change.silent_s, 1), **facts, alarm=True)

    def _read_again(self, reader: _SourceReader, start: LogPosition) -> None:
        old = reader.feed
        new = self._opened(reader, start, reader.turn + 1)
        with self._lock:
            reader.bytes_before = reader.received_bytes
            reader.feed = new
            reader.turn += 1
            self._changed.notify_all()
            stopping = self._stopping
        if old:
            old.stop()
        if not stopping:
            new.start()

    def _feeds(self) -> list[Feed]:
        return [reader.feed for reader in self._readers if reader.feed]


def _now() -> Moment:
    return Moment(time.monotonic(), int(time.time() * 1000))
