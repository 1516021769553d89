"""Feed: reads the source for one stream and pushes segments from a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from canal_ha.errors import CanalError
from canal_ha.model.position import LogPosition
from canal_ha.model.privacy import ANYTHING, Within
from canal_ha.model.segment import Segment


class Feed(Protocol):
    """One dump. It passes segments to `FeedRequest.accept` in order, from its own thread or that of a shared dump."""

    @property
    def received_bytes(self) -> int:
        """Bytes received from the source."""

    @property
    def last_event_ms(self) -> int:
        """Source time of the newest event; 0 before the first."""

    @property
    def idle(self) -> bool:
        """Whether the source has said that nothing newer exists."""

    @property
    def idle_at(self) -> float:
        """When the source last said so, by time.monotonic(). Everything before was accepted then."""

    @property
    def decoded(self) -> LogPosition | None:
        """Everything before this position was accepted."""

    @property
    def shared(self) -> bool:
        """Whether it follows a dump that other streams follow too."""

    @property
    def tap(self) -> str:
        """The name of the dump for many streams of a server that it reads; "" for none."""

    @property
    def lent(self) -> bool:
        """Whether the reactor reads it."""

    def start(self) -> None:
        """Begin to read; returns at once."""

    def stop(self) -> None:
        """Ask the feed to end; returns at once. A closed ring accepts nothing any more."""


@dataclass(frozen=True, slots=True)
class Move:
    """A feed goes on in another server's binlog.

    before: the feed's position in the old binlog.
    after: its position in the new binlog.
    whole: whether everything before `after` was delivered, and nothing behind it.
    facts: for the log.
    again: whether what was delivered may come again behind `after`.
    """

    before: LogPosition
    after: LogPosition
    whole: bool
    facts: Mapping[str, object]
    again: bool = True


class RingRoom(Protocol):
    """The room in a stream's ring. patient: whether `accept` waits for room; False: it takes every segment at once."""

    patient: bool

    @property
    def full(self) -> bool:
        """Whether `accept` has to wait."""

    @property
    def over_budget(self) -> bool:
        """Whether the ring holds more than its size, perhaps of a transaction whose end its client waits for."""

    @property
    def drained(self) -> bool:
        """Whether the client has got everything."""


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """What to read, and where to report. The feed calls the functions on its own thread.

    client_id: the client's.
    read: tells a private read from others; "" for a client's stream.
    filter: the client's table filter.
    start: a transaction boundary.
    accept: takes segments; blocks while the ring is full; raises RingClosed when the ring is closed.
    connected: called with the server's version after each connection.
    failed: called with an error and the seconds until the next attempt; None: the feed has ended for good.
    moved: called before the feed passes on anything of another server.
    behind: an earlier feed of the stream has passed on everything up to here; the ring leaves it out.
    await_room: called before a large event is received; blocks and raises like `accept`.
    await_taken: waits until a GET waits, or at most so many bytes of segments wait for one; raises like `accept`.
    busy: called with True before the feed decodes a small chunk, and with False after that, even if it failed.
    room: what `accept` waits for; None: it may wait for other things too, so it needs a thread of its own.
    exact: whether values are in the exact form (docs/protocol.md#exact).
    within: the most that the client's account may read.
    snapshot_ended: called with the state of the client's snapshot when it ends by an error.
    snapshot_failing: called with an error after which the snapshot is tried again, and the seconds until then.
    snapshot_goes_on: called when the snapshot goes on after such an error.
    altering: called with the default schema and the text of each statement that may alter tables, before the feed
        passes its entry on, also if a filter drops that.
    """

    client_id: int
    read: str
    filter: str
    start: LogPosition
    accept: Callable[[Segment], None]
    connected: Callable[[str], None]
    failed: Callable[[CanalError, float | None], None]
    moved: Callable[[Move], None] = lambda move: None
    behind: LogPosition | None = None
    await_room: Callable[[], None] = lambda: None
    await_taken: Callable[[int], None] = lambda most: None
    busy: Callable[[bool], None] = lambda busy: None
    room: RingRoom | None = None
    exact: bool = False
    within: Within = ANYTHING
    snapshot_ended: Callable[[str], None] = lambda state: None
    snapshot_failing: Callable[[CanalError, float], None] = lambda error, retry_in_s: None
    snapshot_goes_on: Callable[[], None] = lambda: None
    altering: Callable[[str, str], None] | None = None


OpenFeed = Callable[[FeedRequest], Feed]
