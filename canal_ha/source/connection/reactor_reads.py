"""ReactorReads: at the end of the binlog, the reactor itself receives and decodes what the source sends.

A dump's thread would have to wake up for each transaction, and then to wake up the reactor, which answers the GET. So
the thread lends its socket and ends; another one goes on when the reactor gives the socket back. The reactor receives a
small piece, decodes it and answers, all in one step. It gives the socket back when more than a small piece waits, and
before anything that may block.

One transaction can reach hundreds of dumps. The reactor reads for a few milliseconds in each of its rounds. The sockets
that are left wait in a queue, and come first in the next round.
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

from canal_ha.source.connection.thread_starts import ThreadStarts

PIECE_BYTES = 16 * 1024  # received at once; usually some 0.2 ms of decoding
ROUND_S = 0.005  # of each round of the reactor, and the last piece that begins

_LOOK_S = 1.0  # at whether a source is silent for too long
NOTHING_YET = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_log = logging.getLogger(__name__)


class ReadingReactor(Protocol):
    """The part of Twisted's reactor that is used here."""

    def callFromThread(self, call: Callable[..., object], /, *args: object) -> None: ...

    def addReader(self, reader: object, /) -> None: ...

    def removeReader(self, reader: object, /) -> None: ...

    def callLater(self, delay: float, call: Callable[..., object], /) -> object: ...


class TakesTurns(Protocol):
    """What takes turns in the rounds of the reactor.

    asked_in: the round in which it last asked for a turn; -1 before the first time.
    left: whether it waits for the next round.
    eat: decodes a piece; see ReactorReads.lent.
    """

    asked_in: int
    left: bool
    eat: Callable[[bytes], bool]

    def take_turn(self) -> None:
        """Decode a piece, if there is one."""


class MayBeSilent(Protocol):
    """What may be silent for some time only. heard_at: when bytes last came; silent_s: how long none may come."""

    heard_at: float
    silent_s: float

    def take_back(self) -> None:
        """It was silent for too long."""


class ReactorReads:
    """The sockets that one reactor reads for dumps. See the module.

    threads: begins the threads of dumps that get their sockets back.
    """

    def __init__(self, reactor: ReadingReactor) -> None:
        """reactor: Twisted's."""
        self._reactor = reactor
        self.threads = ThreadStarts(self)
        self._decoding = 0  # the reactor's thread while it decodes
        self._calls: deque[Callable[[], object]] = deque()
        self._round = 0
        self._used_s = 0.0  # of the round
        self._left: deque[TakesTurns] = deque()  # for the next round
        self._lent: set[MayBeSilent] = set()
        self._looks = False  # at whether a source is silent: a call waits

    # ---- any thread

    def call(self, call: Callable[..., object], *args: object) -> None:
        """Call on the reactor's thread, as callFromThread does. If a piece leads to the call, `answer` makes it."""
        if threading.get_ident() == self._decoding:
            self._calls.append(partial(call, *args))
        else:
            self._reactor.callFromThread(call, *args)

    def lent(self, sock: socket, eat: Callable[[bytes], bool], silent_s: float, back: Callable[[], None]) -> Lent:
        """Return this socket, which does not block, for the reactor. Its `begin` lets the reactor read it.

        eat: takes what was received, on the reactor's thread. False: give the socket back. It has to be False for a
            piece of PIECE_BYTES: what TLS has decrypted and not handed out does not wake the reactor.
        silent_s: how long the source may send nothing.
        back: called on the reactor's thread when the socket is given back. When the connection ends, the next receive
            tells why.
        """
        return Lent(self, sock, eat, silent_s, back)

    def soon(self, call: Callable[..., object], *args: object) -> None:
        """Call on the reactor's thread, in its next round."""
        self._reactor.callFromThread(call, *args)

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        """Call on the reactor's thread after some time."""
        self._reactor.callFromThread(self._reactor.callLater, seconds, call)

    # ---- the reactor's thread

    def call_later(self, seconds: float, call: Callable[[], object]) -> None:
        """Call after some time."""
        self._reactor.callLater(seconds, call)

    def add(self, reader: object) -> None:
        """Let the reactor read from an IReadDescriptor. Raises OSError if it is closed already."""
        self._reactor.addReader(reader)

    def remove(self, reader: object) -> None:
        """Undo `add`."""
        self._reactor.removeReader(reader)

    def begun(self, lent: MayBeSilent) -> None:
        """Watch whether a source is silent for too long."""
        self._lent.add(lent)
        self._look_later()

    def ended(self, lent: MayBeSilent) -> None:
        """Watch it no longer."""
        self._lent.discard(lent)

    def _look_later(self) -> None:
        """Look at silent sources once more, unless that waits already."""
        if self._lent and not self._looks:
            self._looks = True
            self._reactor.callLater(_LOOK_S, self._end_silent)

    def _end_silent(self) -> None:
        self._looks = False
        now = time.monotonic()
        for lent in [each for each in self._lent if now >= each.heard_at + each.silent_s]:
            lent.take_back()
        self._look_later()

    def admits(self, lent: TakesTurns) -> bool:
        """Whether a socket that is ready may be read now. If not, the next round reads it."""
        if not self._left and lent.asked_in == self._round:  # each round asks once for each socket
            self._begin_round()
        lent.asked_in = self._round
        if not self._left and self._used_s < ROUND_S:
            return True
        if not lent.left:
            self.leave(lent)
        return False

    @property
    def behind(self) -> bool:
        """Whether sockets that are ready wait for the next round."""
        return bool(self._left)

    def _begin_round(self) -> None:
        self._round += 1
        self._used_s = 0.0

    def leave(self, lent: TakesTurns) -> None:
        """Give it a turn in the next round."""
        if not self._left:
            self._reactor.callLater(0, self._read_left)
        lent.left = True
        self._left.append(lent)

    def _read_left(self) -> None:
        """Begin a round with the sockets that the last one has left."""
        self._begin_round()
        left, self._left = self._left, deque()
        while left and self._used_s < ROUND_S:
            lent = left.popleft()
            lent.left = False
            lent.asked_in = self._round
            lent.take_turn()
        for lent in left:
            self.leave(lent)

    def decode(self, lent: TakesTurns, piece: bytes) -> bool:
        """Decode a piece and make the calls that are left. Return whether the reactor goes on to read the socket."""
        began_s = time.monotonic()
        self._decoding = threading.get_ident()
        try:
            goes_on = lent.eat(piece)
        finally:
            self.answer()
            self._decoding = 0
            self._used_s += time.monotonic() - began_s
        return goes_on

    def answer(self) -> None:
        """Make the calls to which the piece has led so far."""
        while self._calls:
            try:
                self._calls.popleft()()
            except Exception:
                _log.exception("a call for received rows failed")


class KeepsError:
    """Keeps what `eat` raised on the reactor's thread, until the dump's thread raises it."""

    _error: BaseException | None = None

    def raise_error(self) -> None:
        """Raise what `eat` raised, without keeping it: its traceback holds the decoder."""
        error, self._error = self._error, None
        try:
            if error:
                raise error
        finally:
            del error


class Lent(KeepsError):
    """One socket that the reactor reads, as Twisted's IReadDescriptor."""

    def __init__(
        self,
        reads: ReactorReads,
        sock: socket,
        eat: Callable[[bytes], bool],
        silent_s: float,
        back: Callable[[], None],
    ) -> None:
        self.heard_at = time.monotonic()
        self.silent_s = silent_s
        self.asked_in = -1
        self.left = False  # for the next round
        self.eat = eat
        self._reads = reads
        self._socket = sock
        self._descriptor = sock.fileno()
        self._back: Callable[[], None] | None = back  # None: it was called
        self._taken_back = False  # because nothing was heard

    # ---- any thread

    @property
    def silent(self) -> bool:
        """Whether the source was silent for too long."""
        return self._taken_back and not something_waits(self._socket)

    # ---- the reactor's thread

    @property
    def lending(self) -> bool:
        """Whether the reactor reads."""
        return self._back is not None

    def begin(self) -> None:
        """Begin to read."""
        self._reads.begun(self)
        try:
            self._reads.add(self)
        except OSError:  # it is closed already
            self.give_back()

    def detach(self) -> None:
        """Read no longer. Nobody hears of it."""
        self._back = None
        self._reads.ended(self)
        self._reads.remove(self)

    def give_back(self) -> None:
        """Let its thread go on."""
        back = self._back
        if back:
            self.detach()
            back()

    def take_back(self) -> None:
        """Give it back, because nothing was heard for too long."""
        self._taken_back = True
        self.give_back()

    def fileno(self) -> int:
        """See IReadDescriptor."""
        return self._descriptor

    def logPrefix(self) -> str:
        """See IReadDescriptor."""
        return "dump"

    def doRead(self) -> None:
        """See IReadDescriptor."""
        if self._reads.admits(self):
            self.take_turn()

    def take_turn(self) -> None:
        """Receive a piece, if there is one, and decode it."""
        if not self._back:
            return
        try:
            piece = self._socket.recv(PIECE_BYTES)
        except NOTHING_YET:
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
