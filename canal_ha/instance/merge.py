"""Merge: makes one sequence of the segments of several sources, by event time, with whole transactions. Pure.

Each source has a lane: a queue of decoded segments that wait, and a lower bound for the time of the next one. The time
of a transaction is that of its end. Of a piece of a large transaction, it is that of the piece's last entry. Within a
source the time never falls, whatever the source's clock does, and it is never later than the transaction's arrival.

The merge delivers the earliest transaction as soon as no other source can have an earlier one, because that source

- has a later transaction waiting, or had something later before;
- or is idle: after this transaction arrived, it has said that nothing newer exists;
- or is left behind: it gave no sign of life for wait_s. Its transactions then come out of order, and none is lost.

After a piece of a transaction, its rest comes before anything else. If its source falls silent in the middle, the merge
abandons the transaction: the source is read again from the transaction's begin, as after a fail-over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment
from canal_ha.store.take import Piece, ack_point

QUEUE_BYTES = 4 << 20  # decoded frames of one source that may wait for the others; one segment always may
HEARTBEAT_SLACK_MS = 2000  # event times are whole seconds, and tell when a commit began
SIGN_BYTES = 1 << 20  # so many bytes are a sign of life, even if they hold no entry for the client
SILENCE_S = 30.0  # until the merge abandons a transaction, if it waits for no source


class Moment(NamedTuple):
    """One moment on two clocks.

    s: monotonic, seconds.
    ms: since 1970.
    """

    s: float
    ms: int


@dataclass(frozen=True, slots=True)
class Seen:
    """How far a source has come. It is read before the lanes are looked at.

    decoded: everything before this position was put.
    last_event_ms: the time of its newest event; 0 before the first.
    idle: when it said that nothing newer exists; None if something does.
    received_bytes: received so far.
    """

    decoded: LogPosition | None
    last_event_ms: int = 0
    idle: Moment | None = None
    received_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """The other sources go on without this one, because it was silent for so long."""

    part: int
    silent_s: float


@dataclass(frozen=True, slots=True)
class Abandoned:
    """As LeftBehind, in the middle of a transaction: read this source again from `start`."""

    part: int
    silent_s: float
    start: LogPosition


@dataclass(frozen=True, slots=True)
class Back:
    """A source that was left behind gives signs of life again. The others wait for it."""

    part: int


class _Unit(NamedTuple):
    """A transaction, a piece of one, or a single statement at the head of a queue.

    end: its last entry, exclusive.
    key_ms: its time.
    closes: whether a transaction is over there.
    """

    end: int
    key_ms: int
    closes: bool


@dataclass(slots=True)
class _Held:
    segment: Segment
    first: int
    arrived: Moment


@dataclass(slots=True)
class _Lane:
    """One source.

    at: the source's position: everything before it was delivered.
    key_ms: the next transaction is not earlier than this time.
    sign_s: when the source last gave a sign of life.
    """

    part: int
    at: LogPosition
    sign_s: float
    queue: deque[_Held] = field(default_factory=deque)
    bytes: int = 0
    key_ms: int = 0
    idle_s: float = -1.0
    left_behind: bool = False
    back: bool = False
    seen: Seen = field(default_factory=lambda: Seen(None))

    def sign(self, now: Moment) -> None:
        self.sign_s = now.s
        if self.left_behind:
            self.left_behind = False
            self.back = True

    def head(self, *, open_: bool = False) -> _Unit:
        """Return what comes next. open_: a piece of it was delivered before."""
        held = self.queue[0]
        end, closes = _unit(held.segment, held.first, open_=open_)
        key_ms = max(self.key_ms, min(held.segment.timestamps[end - 1], held.arrived.ms))
        return _Unit(end, key_ms, closes)


class Merge:
    """See the module."""

    def __init__(
        self, starts: Sequence[LogPosition], *, wait_s: float, now: Moment, behind: LogPosition | None = None
    ) -> None:
        """Begin with empty lanes.

        starts: where each source begins, in the order of their numbers, from 1.
        wait_s: how long the merge waits for a silent source; 0 delivers transactions as they arrive.
        now: this moment.
        behind: what was delivered of these sources before; it may end inside a transaction.
        """
        self._lanes = [_Lane(start.part, replace(start, others=()), now.s) for start in starts]
        self._wait_s = wait_s
        self._open: _Lane | None = None
        self._preferred: tuple[_Lane, LogPosition] | None = None
        if behind is not None and behind.part:
            self._preferred = (self._lane(behind.part), replace(behind, others=()))

    # ---- in

    def has_room(self, part: int) -> bool:
        """Whether a segment of this source may be put."""
        return self._lane(part).bytes < QUEUE_BYTES

    def put(self, part: int, segment: Segment, now: Moment) -> None:
        """Take the next segment of this source."""
        lane = self._lane(part)
        lane.sign(now)
        if len(segment):
            lane.queue.append(_Held(segment, 0, now))
            lane.bytes += segment.ends[-1]

    def seen(self, part: int, seen: Seen, now: Moment) -> None:
        """Take note of how far a source has come."""
        lane, before = self._lane(part), self._lane(part).seen
        new_idle = seen.idle is not None and seen.idle.s > lane.idle_s
        farther = seen.decoded is not None and (before.decoded is None or seen.decoded.order > before.decoded.order)
        if before.decoded is None:
            farther = False  # where it begins
        if (
            new_idle
            or farther
            or seen.last_event_ms > before.last_event_ms
            or seen.received_bytes >= before.received_bytes + SIGN_BYTES
        ):
            lane.sign(now)
            lane.seen = seen
        elif before.decoded is None or seen.received_bytes < before.received_bytes:
            lane.seen = seen
        if seen.idle is not None and new_idle:
            lane.idle_s = seen.idle.s
        if lane.queue:
            return
        lane.key_ms = max(lane.key_ms, min(seen.last_event_ms, now.ms))
        if seen.idle is not None:
            lane.key_ms = max(lane.key_ms, seen.idle.ms - HEARTBEAT_SLACK_MS)
        if self._open is not lane and seen.decoded is not None and _leads_on(lane.at, seen.decoded):
            lane.at = replace(seen.decoded, part=part, others=())

    def moved(self, part: int, at: LogPosition) -> None:
        """This source goes on in another server's binlog. The segments put before are of the old one."""
        lane = self._lane(part)
        if not lane.queue and self._open is not lane:
            lane.at = replace(at, part=part, others=())

    # ---- out

    def step(self, now: Moment) -> Segment | LeftBehind | Abandoned | Back | None:
        """Return what comes next; None while the merge has to wait."""
        for lane in self._lanes:
            if lane.back:
                lane.back = False
                return Back(lane.part)
        if self._open is not None:
            return self._go_on(self._open, now)
        only = self._preference(now)
        lanes = [lane for lane in self._lanes if lane.queue and (only is None or lane is only)]
        if not lanes:
            return None
        heads = {lane.part: lane.head() for lane in lanes}
        first = min(lanes, key=lambda lane: (heads[lane.part].key_ms, lane.part))
        head = heads[first.part]
        others = [] if only else [lane for lane in self._lanes if lane is not first]
        for lane in others:
            if not lane.queue and self._holds_back(lane, head.key_ms, first.queue[0].arrived.s):
                return self._left_behind(lane, now)
        bounds = [(heads[lane.part].key_ms, lane.part) for lane in others if lane.queue]
        bounds += [
            (lane.key_ms, first.part)
            for lane in others
            if not lane.queue and self._holds_back(lane, lane.key_ms + 1, first.queue[0].arrived.s)
        ]
        return self._take(first, head, min(bounds, default=None))

    @property
    def at(self) -> LogPosition:
        """The positions of all sources: everything before them was delivered."""
        return self._lanes[0].at.beside(lane.at for lane in self._lanes[1:])

    def left_behind(self, part: int) -> bool:
        """Whether the merge does not wait for this source at the moment."""
        return self._lane(part).left_behind

    @property
    def empty(self) -> bool:
        """Whether everything that was put was delivered."""
        return not any(lane.queue for lane in self._lanes)

    # ---- inside

    def _lane(self, part: int) -> _Lane:
        return self._lanes[part - 1]

    def _holds_back(self, lane: _Lane, key_ms: int, arrived_s: float) -> bool:
        """Whether a source with an empty queue may still bring something earlier than this."""
        return lane.key_ms < key_ms and lane.idle_s < arrived_s and not lane.left_behind and self._wait_s > 0

    def _left_behind(self, lane: _Lane, now: Moment) -> LeftBehind | None:
        silent_s = now.s - lane.sign_s
        if silent_s < self._wait_s:
            return None
        lane.left_behind = True
        return LeftBehind(lane.part, silent_s)

    def _preference(self, now: Moment) -> _Lane | None:
        """Return the one source to deliver from while its transaction, begun by an earlier feed, is not complete."""
        if self._preferred is None:
            return None
        lane, behind = self._preferred
        if lane.at.order >= behind.order or (not lane.queue and now.s - lane.sign_s >= self._wait_s):
            self._preferred = None
            return None
        return lane

    def _go_on(self, lane: _Lane, now: Moment) -> Segment | Abandoned | None:
        if lane.queue:
            return self._take(lane, lane.head(open_=True), (-1, 0))
        silent_s = now.s - lane.sign_s
        if silent_s < (self._wait_s or SILENCE_S):
            return None
        self._open = None
        lane.left_behind = True
        return Abandoned(lane.part, silent_s, lane.at)

    def _take(self, lane: _Lane, unit: _Unit, bound: tuple[int, int] | None) -> Segment:
        """Deliver this unit and those behind it in its segment that come before `bound`: a time and a source."""
        held = lane.queue[0]
        segment, first = held.segment, held.first
        end, key_ms, closes = unit
        if bound is None and closes:
            newest_ms = min(max(segment.timestamps[end - 1 :]), held.arrived.ms)
            closes, end, key_ms = not segment.cut, len(segment), max(key_ms, newest_ms)
        lane.key_ms = key_ms
        while end < len(segment) and closes and bound is not None:
            held.first = end
            ahead = lane.head()
            if (ahead.key_ms, lane.part) > bound:
                break
            end, key_ms, closes = ahead
            lane.key_ms = key_ms
        held.first = end
        if end == len(segment):
            lane.queue.popleft()
            lane.bytes -= segment.ends[-1]
        self._open = None if closes else lane
        ack = ack_point([Piece(segment, first, end)])
        if ack is not None:
            lane.at = replace(ack, part=lane.part, others=())
        others = tuple(other.at for other in self._lanes if other is not lane)
        return replace(segment.slice(first, end), part=lane.part, others=others)


def _leads_on(at: LogPosition, decoded: LogPosition) -> bool:
    """Whether a source has come farther in its binlog, or has gone to another server's."""
    return decoded.order > at.order or bool(decoded.server and at.server and decoded.server != at.server)


def _unit(segment: Segment, first: int, *, open_: bool) -> tuple[int, bool]:
    """Return where the unit that begins at `first` ends, exclusive, and whether a transaction is over there.

    MariaDB writes transactions without a begin, and a statement before each change. A statement outside of transactions
    has no end, so it belongs to the transaction behind it.
    """
    kinds = segment.kinds
    begins = kinds[first] == EntryKind.BEGIN
    if not open_ and not begins and kinds[first] not in (EntryKind.ROWS, EntryKind.QUERY):
        end = first + 1
    else:
        done = kinds.find(EntryKind.END, first)
        behind = first + (not open_)
        nexts = [kinds.find(EntryKind.BEGIN, behind), -1 if begins or open_ else kinds.find(EntryKind.DDL, behind)]
        other = min((at for at in nexts if at >= 0), default=len(segment))
        end = done + 1 if 0 <= done < other else other
    closes = end < len(segment) or not segment.cut
    while closes and end < len(segment) and segment.offsets[end] == segment.offsets[end - 1]:
        end += 1  # entries of one event stay together
    return end, closes
