"""ReplayFeed: a feed that pushes given segments from a thread of its own, as a dump would."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from canal_ha.errors import RingClosed
from canal_ha.instance.feed import FeedRequest
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Segment


class ReplayFeed:
    """Pushes the part of `segments` that lies at or behind `request.start`, and then is idle."""

    def __init__(self, request: FeedRequest, segments: Iterable[Segment]) -> None:
        self.request = request
        self.decoded: LogPosition | None = None
        self.received_bytes = 0
        self.last_event_ms = 0
        self.idle = False
        self.idle_at = 0.0
        self.shared = self.lent = False
        self.tap = ""
        self._segments = tuple(segments)
        self._thread = threading.Thread(target=self._run, name="replay", daemon=True)

    def start(self) -> None:
        """See Feed."""
        self._thread.start()

    def stop(self) -> None:
        """See Feed. The closed ring ends the thread."""

    def join(self) -> None:
        """Wait until all segments are accepted or the ring is closed."""
        self._thread.join(10)

    def _run(self) -> None:
        self.request.connected("replay")
        try:
            for segment in self._segments:
                part = _from(segment, self.request.start)
                if part is not None:
                    self.request.accept(part)
                    self.decoded = part.position(len(part) - 1)
                    self.received_bytes += len(part.frames)
                    self.last_event_ms = part.timestamps[-1]
        except RingClosed:
            return
        self.idle_at = time.monotonic()
        self.idle = True


def _from(segment: Segment, start: LogPosition) -> Segment | None:
    """Return the part of a segment that a dump from `start` delivers.

    It begins at `start`, or behind it if consumed.
    """
    if start.consumed:
        last = LogPosition(journal=start.journal, offset=start.offset, sub_index=2**31 - 1)
    else:
        last = LogPosition(journal=start.journal, offset=start.offset - 1, sub_index=2**31 - 1)
    return segment.behind(last)
