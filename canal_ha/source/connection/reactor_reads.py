"""ReactorReads: at the end of the binlog, the reactor itself receives and decodes what the source sends.

A dump's thread would have to wake up for each transaction, and then to wake up the reactor, which answers the GET. So
the thread lends its socket and waits. The reactor receives a small piece, decodes it and answers, all in one step. It
gives the socket back when more than a small piece waits, and before anything that may block.

One transaction can reach hundreds of dumps. The reactor reads for a few milliseconds in each of its rounds; the sockets
that are left are ready in the next round too.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from socket import MSG_PEEK, socket
from typing import Protocol

PIECE_BYTES = 4 * 1024  # received at once; usually some 0.1 ms of decoding
ROUND_S = 0.005  # of each round of the reactor, and the last piece that begins
GAP_S = 0.001  # without a piece: another round has begun

_LOOK_S = 1.0  # at whether the reactor still runs
_NOTHING_YET = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_log = logging.getLogger(__name__)


class ReadingReactor(Protocol):
    """The part of Twisted's reactor that is used here."""

    running: bool

    def callFromThread(self, call: Callable[..., object], /, *args: object) -> None: ...

    def addReader(self, reader: object, /) -> None: ...

    def removeReader(self, reader: object, /) -> None: ...


class ReactorReads:
    """The sockets that one reactor reads for dumps. See the module."""

    def __init__(self, reactor: ReadingReactor) -> None:
        """reactor: Twisted's."""
        self._reactor = reactor
        self._decoding = 0  # the reactor's thread while it decodes
        self._calls: deque[Callable[[], object]] = deque()
        self._round = 0
        self._used_s = 0.0  # of the round
        self._ended_at = 0.0  # when the last piece was decoded

    # ---- any thread

    def call(self, call: Callable[..., object], *args: object) -> None:
        """Call on the reactor's thread, as callFromThread does. If a piece leads to the call, `answer` makes it."""
        if threading.get_ident() == self._decoding:
            self._calls.append(partial(call, *args))
        else:
            self._reactor.callFromThread(call, *args)

    def read(self, sock: socket, eat: Callable[[bytes], bool], silent_s: float) -> bool:
        """Let the reactor read this socket, which does not block, and wait until it has given it back.

        eat: takes what was received, on the reactor's thread. False: give the socket back. It has to be False for a
            piece of PIECE_BYTES: what TLS has decrypted and not handed out does not wake the reactor.
        silent_s: how long the source may send nothing.
        Return False if the source was silent for longer. Raises what `eat` raises. When the connection ends, the
        caller's next receive tells why.
        """
        lent = _Lent(self, self._reactor, sock, eat)
        self._reactor.callFromThread(lent.begin)
        while not lent.given_back.wait(max(0.0, lent.heard_at + silent_s - time.monotonic())):
            if time.monotonic() >= lent.heard_at + silent_s:
                return self._take_back(lent, sock)
        lent.raise_error()
        return True

    def _take_back(self, lent: _Lent, sock: socket) -> bool:
        """Take back a socket from which the reactor has heard nothing for too long. Return whether bytes came late."""
        heard_at = lent.heard_at
        self._reactor.callFromThread(lent.give_back)
        while not lent.given_back.wait(_LOOK_S):
            if not self._reactor.running:
                return False  # it stopped before it began to read, and will never give the socket back
        lent.raise_error()
        return lent.heard_at > heard_at or something_waits(sock)

    # ---- the reactor's thread

    def admits(self, lent: _Lent) -> bool:
        """Whether a socket that is ready may be read in this round. Each round asks once for each socket."""
        if lent.asked_in == self._round or time.monotonic() - self._ended_at > GAP_S:
            self._round += 1
            self._used_s = 0.0
        lent.asked_in = self._round
        return self._used_s < ROUND_S

    def decode(self, lent: _Lent, piece: bytes) -> bool:
        """Decode a piece and make the calls that are left. Return whether the reactor goes on to read the socket."""
        began_at = time.monotonic()
        self._decoding = threading.get_ident()
        try:
            goes_on = lent.eat(piece)
        finally:
            self.answer()
            self._decoding = 0
            self._ended_at = time.monotonic()
            self._used_s += self._ended_at - began_at
        return goes_on

    def answer(self) -> None:
        """Make the calls to which the piece has led so far."""
        while self._calls:
            try:
                self._calls.popleft()()
            except Exception:
                _log.exception("a call for received rows failed")


class _Lent:
    """One socket, as Twisted's IReadDescriptor. Everything but `given_back` is the reactor's thread's."""

    def __init__(
        self, reads: ReactorReads, reactor: ReadingReactor, sock: socket, eat: Callable[[bytes], bool]
    ) -> None:
        self.given_back = threading.Event()
        self.heard_at = time.monotonic()
        self.asked_in = -1
        self.eat = eat
        self._reads = reads
        self._reactor = reactor
        self._socket = sock
        self._descriptor = sock.fileno()
        self._error: BaseException | None = None

    def raise_error(self) -> None:
        """Raise what `eat` raised, without keeping it: its traceback holds the decoder."""
        error, self._error = self._error, None
        try:
            if error:
                raise error
        finally:
            del error

    def begin(self) -> None:
        """Begin to read."""
        try:
            self._reactor.addReader(self)
        except OSError:  # it is closed already
            self.give_back()

    def give_back(self) -> None:
        """Let the thread go on."""
        if not self.given_back.is_set():
            self._reactor.removeReader(self)
            self.given_back.set()

    def fileno(self) -> int:
        """See IReadDescriptor."""
        return self._descriptor

    def logPrefix(self) -> str:
        """See IReadDescriptor."""
        return "dump"

    def doRead(self) -> None:
        """See IReadDescriptor."""
        if not self._reads.admits(self):
            return
        try:
            piece = self._socket.recv(PIECE_BYTES)
        except _NOTHING_YET:
            return
        except OSError:
            self.give_back()
            return
        self.heard_at = time.monotonic()
        try:
            if piece and self._reads.decode(self, piece):
                return
        except BaseException as error:
            self._error = error
        self.give_back()

    def connectionLost(self, reason: object) -> None:
        """See IReadDescriptor."""
        self.give_back()


def something_waits(sock: socket) -> bool:
    """Return whether bytes, the end or an error of the connection wait in a socket that does not block."""
    try:
        socket.recv(sock, 1, MSG_PEEK)  # not SSLSocket's own recv, which can only take
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
