"""Shared dumps: streams of one destination that want the same entries, at the same place, read them from one dump.

A stream begins with a dump of its own. When it has decoded what the source has sent, it may follow the shared dump of
its kind: its own connection ends, and what the shared dump decodes is passed to it. A follower keeps all that it knows
of its place, so it can leave at any moment: it then goes on as after a broken connection.

A stream joins only at a boundary that the shared dump has passed too, and gets what that dump has decoded since. The
shared dump keeps its last outputs for this.

A shared dump lasts as long as somebody follows it, so a destination never has more shared dumps than open streams.

A follower whose ring is full is waited for, a second at most, while all other followers have something to take. If one
has nothing to take, it waits for 20 ms at most; in a transaction larger than the rings, whose pieces all clients take
one by one, for half of the time at most. A stream that is still full then leaves, and `take` never waits, so a slow
client does not delay the others for long. If the shared dump fails in any way, all followers leave; it is never
repaired.

Threads: `take` is called on the thread of the shared dump, or on that of the stream while it joins.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from itertools import islice
from typing import Any, Protocol

from canal_ha.decode.outputs import Output, Passed, Rotated
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Segment
from canal_ha.source.positions.fingerprints import keep_copy
from canal_ha.source.server.patience import GRACE_S, ROOM_S, Patience

KEPT_OUTPUTS = 2000  # for streams that join
KEPT_BYTES = 1 << 20
UNUSED_S = 5.0  # a shared dump that nobody has followed yet ends
RETRY_S = 10.0  # between a shared dump that has ended and the next one
_LOOK_S = 0.002  # at a full ring


class SharingStream(Protocol):
    """A stream that can follow a shared dump."""

    received_bytes: int

    @property
    def boundary(self) -> LogPosition | None:
        """Where everything before was accepted, and nothing behind; None inside a transaction."""

    @property
    def full(self) -> bool:
        """Whether it would have to wait for room."""

    @property
    def over_budget(self) -> bool:
        """Whether its ring holds more than its size, of a transaction whose end its client may wait for."""

    @property
    def drained(self) -> bool:
        """Whether its client has got everything."""

    def take(self, output: Output, gtid: str) -> None:
        """Handle what was decoded next, without waiting. Raises any error if it cannot; it is released then.

        gtid: the set executed so far, as of DumpDecoder.gtid_set.
        """

    def release(self) -> None:
        """It follows no longer; any thread."""


class Leader(Protocol):
    """The dump that is shared."""

    received_bytes: int

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def check(self) -> None:
        """Raise an exception of its own if stop() was called."""


class SharedDump:
    """One shared dump and its followers. See the module.

    server: whose binlog it reads, as in LogPosition.
    ended: called once, when it has ended.
    clock: seconds, monotonic.
    """

    def __init__(
        self,
        server: str,
        *,
        ended: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.patient = True  # whether `segment` waits for room; False: its caller has asked whether it would
        self._server = server
        self._on_end = ended
        self._clock = clock
        self._lock = threading.RLock()
        self._leader: Leader | None = None
        self._followers: list[SharingStream] = []
        self._began_at = clock()
        self._counted_bytes = 0
        self._patience = Patience(clock)
        self._ended = False
        # the last outputs, each with the GTID set behind it; the first one has the number `_first`
        self._kept: deque[tuple[Output, str]] = deque()
        self._kept_bytes = 0
        self._first = 0
        self._boundaries: dict[tuple[str, int], tuple[int, str]] = {}  # the number of the output behind it, GTID set

    @property
    def followers(self) -> int:
        """How many streams follow."""
        return len(self._followers)

    def start(self, leader: Leader) -> None:
        """Begin. leader: passes its outputs to `segment` and `passed`."""
        with self._lock:
            if not self._ended:
                self._leader = leader
                leader.start()

    # ---- the followers' threads

    def join(self, follower: SharingStream) -> bool:
        """Let a stream follow, if its boundary is known here.

        True: from now on, the stream must decode nothing itself before it has called `leave`.
        """
        at = follower.boundary
        if at is None or at.server != self._server:
            return False
        with self._lock:
            behind, gtid = self._boundaries.get((at.journal, at.offset), (-1, ""))
            if self._ended or behind < 0 or (gtid and gtid != at.gtid):
                return False
            for output, executed in islice(self._kept, behind - self._first, None):
                if not self._takes(follower, output, executed):
                    follower.release()  # it has taken a part, so its own decoder is behind
                    return True
            self._followers.append(follower)
        return True

    def leave(self, follower: SharingStream) -> None:
        """Stop to follow. Returns when no call of `take` is under way."""
        with self._lock:
            if follower in self._followers:
                self._followers.remove(follower)
            unused = not self._followers
        if unused:
            self.end()

    # ---- the thread of the shared dump

    def segment(self, segment: Segment) -> None:
        """Pass a segment on; wait for room as the module says. Raises what Leader.check raises."""
        if self.patient:
            self._await_room()
        # The rings of several streams hold it, so none may give its memory back. Their fingerprints, and those of this
        # dump, need one copy of its rows: hundreds of copies take memory, and garbage collections visit them all.
        if segment.copied is None:
            keep_copy(segment)
        segment.keep_memory()
        self._pass_on(segment, "", segment.ends[-1])

    def seize(self) -> bool:
        """Keep streams from joining and leaving until `let_go`. Return False, at once, if one of them does so now."""
        return self._lock.acquire(blocking=False)

    def let_go(self) -> None:
        """End what `seize` has begun."""
        self._lock.release()

    @property
    def full(self) -> bool:
        """Whether `segment` would wait, for room or for a stream that joins now."""
        if not self.seize():
            return True
        try:
            return any(follower.full for follower in self._followers)
        finally:
            self.let_go()

    def passed(self, output: Output, gtid: str) -> None:
        """Pass anything else on. Ends the dump if nobody follows it."""
        self._pass_on(output, gtid, 0)
        if not self._followers and self._clock() - self._began_at > UNUSED_S:
            self.end()

    def _await_room(self) -> None:
        leader = self._leader
        assert leader is not None
        until = self._clock() + ROOM_S
        while True:
            with self._lock:
                full = [follower for follower in self._followers if follower.full]
                ready = [each for each in self._followers if each not in full and each.drained] if full else []
                most_s = ROOM_S if all(each.over_budget for each in ready) else GRACE_S
                if full and (self._clock() >= until or self._patience.ends(most_s, waits=bool(ready))):
                    for follower in full:
                        self._release(follower)
                    full = []
            if not full:
                self._patience.ends(ROOM_S, waits=False)
                return
            leader.check()
            time.sleep(_LOOK_S)

    def _pass_on(self, output: Output, gtid: str, size: int) -> None:
        with self._lock:
            self._keep(output, gtid, size)
            self._count_received()
            for follower in tuple(self._followers):
                if not self._takes(follower, output, gtid):
                    self._release(follower)

    def _takes(self, follower: SharingStream, output: Output, gtid: str) -> bool:
        """Pass an output to a follower. Return False if it could not take it."""
        if isinstance(output, Segment) and follower.full:
            return False
        try:
            follower.take(output, gtid)
        except Exception:  # its own dump meets the same error, if it is one, and reports it
            return False
        return True

    def _keep(self, output: Output, gtid: str, size: int) -> None:
        self._kept.append((output, gtid))
        self._kept_bytes += size
        if isinstance(output, Passed | Rotated):
            self._boundaries[output.journal, output.position] = self._first + len(self._kept), gtid
        while len(self._kept) > 1 and (len(self._kept) > KEPT_OUTPUTS or self._kept_bytes > KEPT_BYTES):
            oldest, _ = self._kept.popleft()
            self._first += 1
            if isinstance(oldest, Segment):
                self._kept_bytes -= oldest.ends[-1]
            elif isinstance(oldest, Passed | Rotated):
                at = oldest.journal, oldest.position
                if at in self._boundaries and self._boundaries[at][0] <= self._first:
                    del self._boundaries[at]

    def _count_received(self) -> None:
        """Count what the dump has received for one of the streams, so that the sum over all streams is true."""
        leader = self._leader
        if leader is not None and self._followers:
            self._followers[0].received_bytes += leader.received_bytes - self._counted_bytes
            self._counted_bytes = leader.received_bytes

    # ---- any thread

    def end(self) -> None:
        """End the dump for good; all followers go on by themselves. Returns at once."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
            for follower in tuple(self._followers):
                self._release(follower)
            self._kept.clear()
            self._boundaries.clear()
        if self._leader:
            self._leader.stop()
        self._on_end()

    # ---- under the lock

    def _release(self, follower: SharingStream) -> None:
        self._followers.remove(follower)
        follower.release()


class _StreamsOfKind:
    """The streams of one kind that read the newest part of the binlog, and their shared dump."""

    def __init__(self) -> None:
        self.streams: set[SharingStream] = set()
        self.shared: SharedDump | None = None
        self.not_before = 0.0  # for the next shared dump


class SharedDumps:
    """The shared dumps of one destination. Any thread.

    make: makes the dump of a kind that begins at a boundary. It passes its outputs on, and calls `end` if it fails.
    clock: seconds, monotonic.
    """

    def __init__(
        self,
        make: Callable[[Any, LogPosition, SharedDump], Leader],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._clock = clock
        self._lock = threading.Lock()
        self._kinds: dict[Hashable, _StreamsOfKind] = {}
        self._closed = False

    @property
    def kinds(self) -> int:
        """How many kinds of streams there are."""
        return len(self._kinds)

    def offer(self, kind: Hashable, follower: SharingStream) -> SharedDump | None:
        """Return the shared dump that a stream may join, None if there is none. The second stream of a kind starts it.

        kind: equal for streams that decode the same entries.
        follower: a stream that has decoded everything that it has received.
        """
        with self._lock:
            of_kind = self._kinds.setdefault(kind, _StreamsOfKind())
            of_kind.streams.add(follower)
            shared, at = of_kind.shared, follower.boundary
            if shared or at is None or self._closed or len(of_kind.streams) < 2 or self._clock() < of_kind.not_before:
                return shared
            shared = of_kind.shared = SharedDump(at.server, ended=lambda: self._over(of_kind), clock=self._clock)
        try:
            shared.start(self._make(kind, at, shared))
        except RuntimeError:  # the system has no thread for it: the stream goes on alone
            shared.end()
            return None
        except BaseException:
            shared.end()  # it must not stay as the one of its kind
            raise
        return shared

    def several(self, kind: Hashable) -> bool:
        """Whether there are two streams of a kind, or more."""
        of_kind = self._kinds.get(kind)
        return of_kind is not None and len(of_kind.streams) > 1

    def gone(self, kind: Hashable, follower: SharingStream) -> None:
        """The stream has ended."""
        with self._lock:
            of_kind = self._kinds.get(kind)
            if of_kind is None:
                return
            of_kind.streams.discard(follower)
            if of_kind.streams:
                return
            del self._kinds[kind]
        if of_kind.shared:
            of_kind.shared.end()

    def end(self, *, close: bool = False) -> None:
        """End all shared dumps. close: start none from now on."""
        with self._lock:
            self._closed = self._closed or close
            shared = [of_kind.shared for of_kind in self._kinds.values() if of_kind.shared]
        for each in shared:
            each.end()

    def _over(self, of_kind: _StreamsOfKind) -> None:
        with self._lock:
            of_kind.shared = None
            of_kind.not_before = self._clock() + RETRY_S
