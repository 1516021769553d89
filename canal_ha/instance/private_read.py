"""BinlogRead: one connection reads the binlog from a position on, without a durable cursor.

It is a stream whose cursor lives in memory and ends with it: docs/protocol.md#private-reads. Reactor thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from canal_ha.errors import CanalError, EndOfRange
from canal_ha.instance.claim import Claim
from canal_ha.instance.stream import Accept, Stream
from canal_ha.model.batch import GetAnswer
from canal_ha.model.get_request import GetRequest
from canal_ha.model.position import LogPosition
from canal_ha.model.privacy import ANYTHING, Within
from canal_ha.model.segment import Segment

LOOK_MS = 100.0  # the feed may reach the end without an entry that would wake the GET


class BinlogRead:
    """See the module."""

    def __init__(
        self, until: LogPosition | None, *, claim: Claim, closed: Callable[[BinlogRead], None], account: str = ""
    ) -> None:
        """Make a read that waits for `begin`.

        until: where it ends, without the entry there; None for no end.
        claim: the instance's.
        closed: called once, when the read is over.
        account: of the client, for its quota; "" without one.
        """
        self.account = account
        self._until = until
        self._claim = claim
        self._on_closed = closed
        self._stream: Stream | None = None
        self._closed = False
        self._why = ""
        self._when_over: Callable[[str], None] | None = None

    @property
    def silent_s(self) -> float:
        """Seconds since the last GET; 0.0 while one waits."""
        return self._stream.silent_s if self._stream else 0.0

    def begin(self, stream: Stream, filter_text: str, *, exact: bool, within: Within = ANYTHING) -> None:
        """Open the stream. exact, within: see Stream.subscribed."""
        stream.subscribed(filter_text, exact=exact, within=within)
        self._stream = stream

    async def get(self, request: GetRequest) -> GetAnswer:
        """Return the next batch. Raises EndOfRange after the last entry before the end."""
        stream = self._opened()
        left_ms = request.wait_ms
        while True:
            ended = self._ended(stream)
            look_ms = LOOK_MS if left_ms is None else min(LOOK_MS, left_ms)
            turn_ms = left_ms if self._until is None else 0.0 if ended else look_ms
            message = await stream.get(replace(request, wait_ms=turn_ms))
            self._claim.check()
            if message.batch is not None or self._until is None:
                return message
            if ended:
                raise EndOfRange("end of range")
            if left_ms is not None:
                left_ms -= look_ms
                if left_ms <= 0:
                    return message

    def ack(self, batch_id: int) -> None:
        """Close the oldest batch."""
        self._opened().ack(batch_id)

    def rollback(self, batch_id: int) -> None:
        """Deliver again what the client has not acknowledged."""
        self._opened().rollback(batch_id)

    def when_over(self, call: Callable[[str], None]) -> None:
        """Call this once when the read is over, with the reason; at once if it is over."""
        if self._closed:
            call(self._why)
        self._when_over = call

    def close(self, why: str) -> None:
        """End the read. why: for its client's next request, and for the audit."""
        if not self._closed:
            self._closed = True
            self._why = why
            self._on_closed(self)
            if self._when_over:
                self._when_over(why)
            if self._stream:
                self._stream.close(EndOfRange("this read is over"))

    def cut(self, accept: Accept) -> Accept:
        """Return `accept`, limited to entries before the end."""
        until = self._until
        if until is None:
            return accept

        def accept_before(segment: Segment) -> None:
            before = segment.before(until)
            if before is not None:
                accept(before)

        return accept_before

    def _opened(self) -> Stream:
        if self._stream is None or self._closed:
            raise CanalError(f"this read is over: {self._why}; begin another one behind the last position")
        return self._stream

    def _ended(self, stream: Stream) -> bool:
        decoded = stream.decoded
        return self._until is not None and decoded is not None and decoded.order >= self._until.order and stream.drained
