"""What a stream needs of its source: something that pushes segments from a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from canal_ha.errors import CanalError
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Segment


class Feed(Protocol):
    """One dump: segments go to `FeedRequest.accept`, in order, from the feed's own thread."""

    @property
    def received_bytes(self) -> int: ...

    @property
    def last_event_ms(self) -> int:
        """Source time of the newest event seen, 0 before the first."""

    @property
    def idle(self) -> bool:
        """Whether the source has said that nothing newer exists."""

    @property
    def idle_at(self) -> float:
        """When, by time.monotonic(), it last said so; everything before was accepted."""

    @property
    def decoded(self) -> LogPosition | None:
        """Everything before it was accepted."""

    def start(self) -> None: ...

    def stop(self) -> None:
        """Ask the feed to end; returns at once. Nothing is accepted after the ring is closed."""


@dataclass(frozen=True, slots=True)
class Move:
    """A feed goes on in another server's binlog. whole: everything before `after` was delivered, and nothing behind
    it; facts: for the log.
    """

    before: LogPosition
    after: LogPosition
    whole: bool
    facts: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """What to read, and whom to tell.

    start: a transaction boundary; accept: blocks while the ring is full, raises RingClosed when it is gone;
    failed(error, retry_in_s): called from the feed's thread; None means that the feed has ended for good;
    moved: called from there, too, before anything of the other server is accepted; behind: what was accepted by an
    earlier feed of the same stream, and is dropped when it comes again; busy(True): called from the feed's thread when
    it has a little to decode before it waits for its source again, busy(False) when it is done, whatever happened.
    """

    client_id: int
    read: str  # "" for a client's stream, else what tells a private read from others
    filter: str
    start: LogPosition
    accept: Callable[[Segment], None]
    connected: Callable[[str], None]
    failed: Callable[[CanalError, float | None], None]
    moved: Callable[[Move], None] = lambda move: None
    behind: LogPosition | None = None
    busy: Callable[[bool], None] = lambda busy: None


OpenFeed = Callable[[FeedRequest], Feed]
