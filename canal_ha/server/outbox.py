"""Outbox: writes one reply at a time, as fast as the client takes it. A slow client costs no memory beside the ring's.

On a plain connection the outbox gives the views themselves to the socket, many at once. The reactor only says when
there is room again. Twisted's own `write` takes bytes alone and copies them twice. The outbox uses it for TLS, which
copies slices in any case.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.internet.tcp import Connection

from canal_ha.server.send_turns import LITTLE_BYTES, SendTurns

SLICE_BYTES = 128 * 1024
VIEWS_AT_ONCE = 64  # systems take 1024 and more


class Consumer(Protocol):
    """The part of a Twisted transport that an outbox uses."""

    def write(self, data: bytes) -> None: ...

    def registerProducer(self, producer: object, streaming: bool) -> None: ...

    def unregisterProducer(self) -> None: ...


class Outbox:
    """A pull producer while a reply waits. Nobody else writes to the transport."""

    def __init__(self, transport: Consumer, wrote: Callable[[], None], turns: SendTurns) -> None:
        """Begin.

        transport: of the connection.
        wrote: called each time the client has taken something.
        turns: of all connections.
        """
        self.gone = False  # the connection is lost: Twisted tells its producer first
        self._transport = transport
        self._wrote = wrote
        self._turns = turns
        self._pieces: deque[memoryview] = deque()
        self._sent: Deferred[None] | None = None
        self._socket: socket.socket | None = None  # written to directly, without Twisted
        if isinstance(transport, Connection) and not transport.TLS:
            self._socket = transport.getHandle()
            self._when_room: Callable[[], object] = transport.startWriting  # the reactor then calls resumeProducing

    def send(self, pieces: tuple[bytes | memoryview, ...]) -> Deferred[None] | None:
        """Write a reply. Return None if the socket took all of it or the client has gone, else a Deferred of that."""
        if not pieces or self.gone:
            return None
        size = sum(map(len, pieces))
        small = size <= LITTLE_BYTES and not self._pieces
        taken = self._send_small(self._socket, pieces) if self._socket and small else 0
        if taken < size:
            self._pieces.extend(memoryview(piece) for piece in pieces if len(piece))
            self._forget(taken)
        if taken == size or (self._socket and self._push(self._socket)):
            self._wrote()
            return None
        self._sent = sent = Deferred[None]()
        self._transport.registerProducer(self, False)
        return sent

    def resumeProducing(self) -> None:
        """There is room: write more."""
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
        """The connection is lost: drop the reply."""
        self.gone = True
        self._pieces.clear()
        self._finish()

    def _send_small(self, handle: socket.socket, pieces: tuple[bytes | memoryview, ...]) -> int:
        """Give the socket a small reply, as nearly all are, in one call; return how many bytes it took."""
        try:
            return handle.sendmsg(pieces[:VIEWS_AT_ONCE])
        except BlockingIOError:
            return 0
        except OSError:
            self._socket = None  # see _push
            return 0

    def _forget(self, taken: int) -> None:
        """Drop so many bytes, which the socket has taken."""
        pieces = self._pieces
        while pieces and taken >= len(pieces[0]):
            taken -= len(pieces.popleft())
        if taken:
            pieces[0] = pieces[0][taken:]

    def _push(self, handle: socket.socket) -> bool:
        """Give the socket what it takes, at most what SendTurns allows. Return whether nothing is left.

        A socket of this machine can take a row of 64 MiB at once, because its client reads meanwhile.
        """
        pieces = self._pieces
        room = left = self._turns.room
        began_s = self._turns.seconds()
        try:
            while pieces and left > 0:
                taken = handle.sendmsg(_first(pieces, left))
                left -= taken
                self._forget(taken)
        except BlockingIOError:
            pass
        except OSError:
            self._socket = None  # Twisted meets the same error when it writes, and ends the connection
        finally:
            self._turns.wrote(room - left, began_s)
        return not pieces

    def _slice(self) -> bytes:
        """Return a copy of the next SLICE_BYTES or less, because Twisted takes bytes alone."""
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


def _first(pieces: deque[memoryview], room: int) -> list[memoryview]:
    """Return the first views, cut to so many bytes in all."""
    views: list[memoryview] = []
    for piece in islice(pieces, VIEWS_AT_ONCE):
        if len(piece) >= room:
            views.append(piece[:room])
            break
        views.append(piece)
        room -= len(piece)
    return views
