"""Outbox: one reply at a time, in slices as the peer takes them, so that a slow client costs little memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from twisted.internet.defer import Deferred, succeed

SLICE_BYTES = 128 * 1024


class Consumer(Protocol):
    """What an outbox uses of a Twisted transport."""

    def write(self, data: bytes) -> None: ...

    def registerProducer(self, producer: object, streaming: bool) -> None: ...

    def unregisterProducer(self) -> None: ...


class Outbox:
    """A pull producer while something is to be written. `wrote` is called each time the peer has taken something."""

    def __init__(self, transport: Consumer, wrote: Callable[[], None]) -> None:
        self.gone = False  # the connection is: Twisted tells its producer first
        self._transport = transport
        self._wrote = wrote
        self._pieces: deque[memoryview] = deque()
        self._sent: Deferred[None] | None = None

    def send(self, pieces: tuple[bytes | memoryview, ...]) -> Deferred[None]:
        """Write a reply; fires when the transport has passed it on whole, or never will."""
        if not pieces or self.gone:
            return succeed(None)
        self._pieces.extend(map(memoryview, pieces))
        self._sent = sent = Deferred[None]()
        self._transport.registerProducer(self, False)
        return sent

    def resumeProducing(self) -> None:
        """Write the next slice: everything before it has left."""
        self._wrote()
        if self._pieces:
            self._transport.write(self._slice())
            return
        self._transport.unregisterProducer()
        self._finish()

    def stopProducing(self) -> None:
        """The connection is gone."""
        self.gone = True
        self._pieces.clear()
        self._finish()

    def _slice(self) -> bytes:
        """The next SLICE_BYTES or less, copied: Twisted takes nothing but bytes."""
        taken: list[memoryview] = []
        room = SLICE_BYTES
        while self._pieces and room:
            piece = self._pieces.popleft()
            if len(piece) > room:
                self._pieces.appendleft(piece[room:])
            taken.append(piece[:room])
            room -= len(taken[-1])
        return b"".join(taken)

    def _finish(self) -> None:
        sent, self._sent = self._sent, None
        if sent:
            sent.callback(None)
