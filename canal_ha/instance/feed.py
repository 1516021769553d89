"""What a stream needs of its source: something that pushes segments from a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from canal_ha.errors import CanalError
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Segment


class Feed(Protocol):
    """One dump: segments go to `FeedRequest.accept`, in order, from the feed's own thread.

    last_event_ms: source time of the newest event seen, 0 before the first; idle: the source has said that nothing
    newer exists.
    """

    received_bytes: int
    last_event_ms: int
    idle: bool

    @property
    def decoded(self) -> LogPosition | None:
        """Everything before it was accepted."""

    def start(self) -> None: ...

    def stop(self) -> None:
        """Ask the feed to end; returns at once. Nothing is accepted after the ring is closed."""


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """What to read, and whom to tell.

    start: a transaction boundary; accept: blocks while the ring is full, raises RingClosed when it is gone;
    failed(error, retry_in_s): called from the feed's thread; None means that the feed has ended for good.
    """

    client_id: int
    read: str  # "" for a client's stream, else what tells a private read from others
    filter: str
    start: LogPosition
    accept: Callable[[Segment], None]
    connected: Callable[[str], None]
    failed: Callable[[CanalError, float | None], None]


OpenFeed = Callable[[FeedRequest], Feed]
