"""Tapped: the place of one stream at a tap. See tap.py."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from canal_ha.errors import SourceUnavailable
from canal_ha.source.connection.dump_connection import Eater, Lending
from canal_ha.source.connection.identity import ReplicaIdentity
from canal_ha.source.connection.reactor_reads import KeepsError, ReactorReads

TAP_BYTES = 64 * 1024  # received at once
QUEUED_BYTES = 4 << 20  # for a stream whose thread decodes; if more come, the tap waits, or the stream leaves it


class TapOver(Exception):
    """The tap brings no more bytes to this stream, which therefore opens a dump of its own."""


class Followed(Protocol):
    """The tap of a stream. The reactor's thread.

    reads: the reactor's reads.
    replica: its identity in the server's list of replicas.
    """

    reads: ReactorReads
    replica: ReplicaIdentity

    def left(self, tapped: Tapped, /) -> None:
        """It follows no longer."""

    def behind(self, tapped: Tapped, /) -> None:
        """The reactor has to decode something for it."""

    def consumed(self, tapped: Tapped, /) -> None:
        """The reactor has nothing to decode for it."""

    def crowds(self, tapped: Tapped, /) -> None:
        """Its thread has too much to decode."""


class Tapped(KeepsError):
    """One stream's place at a tap. It takes the place of the stream's own connection, and of its DumpReader.

    Threads: of the dump, where nothing else is said; one at a time, or the reactor's while it is lent.

    piece_bytes: see Lendable.
    eat: decodes a piece on the reactor's thread; False gives it back.
    open: whether `close` was not called.
    taken_bytes: how many bytes its thread has taken.
    left, asked_in: see ReactorReads.
    """

    piece_bytes = TAP_BYTES
    silent = False

    def __init__(self, tap: Followed, pieces: Iterable[bytes]) -> None:
        self.open = True
        self.taken_bytes = 0
        self.left = False
        self.asked_in = -1
        self.eat: Callable[[bytes], bool] = lambda piece: False
        self._tap = tap
        self._pieces = deque(pieces)
        self._bytes = sum(map(len, self._pieces))
        self._changed = threading.Condition()
        self._back: Callable[[], None] | None = None  # while the reactor decodes
        self._asked_back: Callable[[], None] | None = None  # likewise, between `lent` and `begin`
        self._wants_beat = True
        self._ended = False
        self._interrupted = False
        self._eater: Eater | None = None

    # ---- any thread

    @property
    def name(self) -> str:
        """Of the tap, in the server's list of replicas."""
        return self._tap.replica.name

    def interrupt(self) -> None:
        """End the wait of whoever reads here."""
        with self._changed:
            self._interrupted = True
            self._changed.notify()
        self._tap.reads.soon(self.give_back)

    @property
    def something_waits(self) -> bool:
        """Whether bytes are left to decode."""
        return bool(self._pieces)

    # ---- the dump's thread

    def takes(self, eater: Eater) -> Tapped:
        """Say who takes the bytes in `read`."""
        self._eater = eater
        return self

    def read(self) -> None:
        """See DumpReader. Raises TapOver too."""
        eater = self._eater
        assert eater is not None
        while True:
            room = eater.room()
            if room is None:
                if not self._pieces and eater.lends():
                    raise Lending(self)
                eater.eat(memoryview(self._next()))
            else:
                rest = self._next(len(room))
                with room:
                    room[: len(rest)] = rest
                eater.received(len(rest))

    def _next(self, most: int = TAP_BYTES) -> bytes:
        """Wait for bytes and return them, at most so many."""
        with self._changed:
            while not self._pieces:
                if self._interrupted:
                    raise SourceUnavailable("the wait for bytes was interrupted")
                if self._ended:
                    raise TapOver
                self._changed.wait()
            piece = self._pieces.popleft()
            if len(piece) > most:
                self._pieces.appendleft(piece[most:])
                piece = piece[:most]
            self._bytes -= len(piece)
            self.taken_bytes += len(piece)
            return piece

    def hand_over(self, packets: Iterable[bytes]) -> None:
        """See DumpConnection: there is no library that wants to see packets."""

    def lent(self, reads: ReactorReads, eat: Callable[[bytes], bool], back: Callable[[], None]) -> Tapped:
        """Return what the reactor is to read, itself. See ReactorReads.lent.

        The reactor decodes from `begin` on, when the thread of the dump has done all that it had to do.
        """
        self.eat, self._asked_back = eat, back
        return self

    def silence(self) -> SourceUnavailable:
        """See DumpConnection: a tap that is silent ends, so no stream tells of it."""
        return SourceUnavailable("the source is silent")

    def close(self) -> None:
        """Leave the tap."""
        self.open = False
        self._tap.reads.soon(self._tap.left, self)

    # ---- the reactor's thread

    @property
    def lending(self) -> bool:
        """Whether the reactor decodes."""
        return self._back is not None

    def begin(self) -> None:
        """Decode what is there, and what comes."""
        self._back, self._asked_back = self._asked_back, None
        if self._interrupted or self._ended:
            self.give_back()
        elif self._pieces:
            self._tap.behind(self)
            self._turn()

    def push(self, piece: bytes, *, beats: bool, repeated: bool) -> None:
        """Take a piece. beats: it is a heartbeat. repeated: it says the same as the last one."""
        if self._back is None:
            self._queue(piece)
            return
        if repeated and not self._wants_beat:
            return
        self._wants_beat = not beats
        self._pieces.append(piece)
        self._bytes += len(piece)
        self._tap.behind(self)
        self._turn()

    def _queue(self, piece: bytes) -> None:
        """Keep a piece for the thread."""
        with self._changed:
            self._wants_beat = True
            self._pieces.append(piece)
            self._bytes += len(piece)
            self._changed.notify()
        if self.full:
            self._tap.crowds(self)

    @property
    def full(self) -> bool:
        """Whether its thread has too much to decode."""
        return self._bytes > QUEUED_BYTES

    def overflow(self) -> None:
        """Lose what is left to decode, so that the stream opens a dump of its own."""
        with self._changed:
            self._pieces.clear()
            self._bytes = 0
            self._ended = True
            self._changed.notify()
        self._tap.left(self)

    def _turn(self) -> None:
        if self._tap.reads.admits(self):
            self.take_turn()

    def take_turn(self) -> None:
        """Decode a piece. See ReactorReads."""
        if self._back is None or not self._pieces:
            return
        piece = self._pieces.popleft()
        self._bytes -= len(piece)
        goes_on = False
        try:
            goes_on = self._tap.reads.decode(self, piece)
        except BaseException as error:
            self._error = error
        if not goes_on:
            self.give_back()
        elif self._pieces:
            self._tap.reads.leave(self)
        else:
            self._tap.consumed(self)

    def end(self) -> None:
        """The tap has ended."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self.give_back()

    def detach(self) -> None:
        """See Lent. Nothing moves a stream from one tap to another."""
        raise AssertionError("a tap does not lose a stream to another one")

    def give_back(self) -> None:
        """Let a thread go on."""
        back, self._back = self._back, None
        if back:
            self._tap.consumed(self)
            back()
