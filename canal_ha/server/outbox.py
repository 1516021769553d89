"""Outbox: one reply at a time, as the peer takes it, so that a slow client costs no memory beside the ring's.

On a plain connection the socket is given the views themselves, many at once, and the reactor is asked only to say when
there is room again. Twisted's own `write` takes nothing but bytes, which it copies twice; it serves TLS, where slices
are copied in any case.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.internet.tcp import Connection

SLICE_BYTES = 128 * 1024
TURN_BYTES = 1024 * 1024  # until others get their turn
VIEWS_AT_ONCE = 64  # systems take 1024 and more


class Consumer(Protocol):
    """What an outbox uses of a Twisted transport."""

    def write(self, data: bytes) -> None: ...

    def registerProducer(self, producer: object, streaming: bool) -> None: ...

    def unregisterProducer(self) -> None: ...


class Outbox:
    """A pull producer while something is to be written. `wrote` is called each time the peer has taken something.

    Nobody else writes to the transport.
    """

    def __init__(self, transport: Consumer, wrote: Callable[[], None]) -> None:
        self.gone = False  # the connection is: Twisted tells its producer first
        self._transport = transport
        self._wrote = wrote
        self._pieces: deque[memoryview] = deque()
        self._sent: Deferred[None] | None = None
        self._socket: socket.socket | None = None  # where bytes go without Twisted's help
        if isinstance(transport, Connection) and not transport.TLS:
            self._socket = transport.getHandle()
            self._when_room: Callable[[], object] = transport.startWriting  # has the reactor call resumeProducing

    def send(self, pieces: tuple[bytes | memoryview, ...]) -> Deferred[None] | None:
        """Write a reply. None: it is passed on whole, or never will be; as a Deferred it fires when that is so."""
        if not pieces or self.gone:
            return None
        self._pieces.extend(memoryview(piece) for piece in pieces if len(piece))
        if self._socket and self._push(self._socket):
            self._wrote()
            return None
        self._sent = sent = Deferred[None]()
        self._transport.registerProducer(self, False)
        return sent

    def resumeProducing(self) -> None:
        """Write more: there is room."""
        self._wrote()
        if self._pieces and self._socket:
            self._push(self._socket)
            if self._pieces and self._socket:
                self._when_room()
                return
        if self._pieces:
            self._transport.write(self._slice())
        else:
            self._transport.unregisterProducer()
            self._finish()

    def stopProducing(self) -> None:
        """The connection is gone."""
        self.gone = True
        self._pieces.clear()
        self._finish()

    def _push(self, handle: socket.socket) -> bool:
        """Give the socket what it takes, up to TURN_BYTES; whether nothing is left."""
        pieces = self._pieces
        room = TURN_BYTES
        try:
            while pieces and room > 0:
                taken = handle.sendmsg(islice(pieces, VIEWS_AT_ONCE))
                room -= taken
                while taken >= len(pieces[0]):
                    taken -= len(pieces.popleft())
                    if not pieces:
                        return True
                pieces[0] = pieces[0][taken:]
        except BlockingIOError:
            pass
        except OSError:
            self._socket = None  # Twisted finds the same when it writes, and ends the connection
        return not pieces

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
