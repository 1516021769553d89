"""BinlogRead: one connection reads the binlog from a position on, or a snapshot, without a durable cursor.

It is a stream whose cursor lives in memory and ends with it: docs/protocol.md#private-reads. Reactor thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from canal_ha.errors import CanalError, EndOfRange, SnapshotUnreadable
from canal_ha.instance.claim import Claim
from canal_ha.instance.stream import Accept, Stream
from canal_ha.model.batch import GetAnswer
from canal_ha.model.get_request import GetRequest
from canal_ha.model.position import LogPosition
from canal_ha.model.privacy import ANYTHING, Within
from canal_ha.model.segment import Segment
from canal_ha.model.snapshot import SnapshotState

LOOK_MS = 100.0  # the feed may reach the end without an entry that would wake the GET


class BinlogRead:
    """See the module."""

    def __init__(
        self,
        start: LogPosition,
        until: LogPosition | None,
        *,
        claim: Claim,
        closed: Callable[[BinlogRead], None],
        account: str = "",
    ) -> None:
        """Make a read that waits for `begin`.

        start: where it begins. With a snapshot, it ends behind the snapshot's last chunk.
        until: where it ends, without the entry there; None for no end.
        claim: the instance's.
        closed: called once, when the read is over.
        account: of the client, for its quota; "" without one.
        """
        self.account = account
        self.start = start
        self._until = until
        self._chunks_over = False  # the last chunk of the snapshot is in the ring
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
        """Return the next batch. Raises EndOfRange after the last entry before the end, and SnapshotUnreadable."""
        stream = self._opened()
        left_ms = request.wait_ms
        bounded = self._until is not None or bool(self.start.snapshot)
        while True:
            ended = self._ended(stream)
            look_ms = LOOK_MS if left_ms is None else min(LOOK_MS, left_ms)
            turn_ms = left_ms if not bounded else 0.0 if ended else look_ms
            message = await stream.get(replace(request, wait_ms=turn_ms))
            self._claim.check()
            if message.batch is not None or not bounded:
                return message
            if ended:
                raise EndOfRange("end of range")
            if error := stream.snapshot_error:
                raise SnapshotUnreadable(error)
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
        if self.start.snapshot:
            return partial(self._accept_chunks, accept)
        until = self._until
        if until is None:
            return accept

        def accept_before(segment: Segment) -> None:
            before = segment.before(until)
            if before is not None:
                accept(before)

        return accept_before

    def _accept_chunks(self, accept: Accept, segment: Segment) -> None:
        """Pass segments on up to the snapshot's last chunk."""
        if self._chunks_over:
            return
        accept(segment)
        state = SnapshotState.from_text(segment.chunk_end.snapshot) if segment.chunk_end else None
        self._chunks_over = state is not None and not state.active

    def _opened(self) -> Stream:
        if self._stream is None or self._closed:
            raise CanalError(f"this read is over: {self._why}; begin another one after the last position")
        return self._stream

    def _ended(self, stream: Stream) -> bool:
        if self.start.snapshot:
            return self._chunks_over and stream.drained
        decoded = stream.decoded
        return self._until is not None and decoded is not None and decoded.order >= self._until.order and stream.drained
