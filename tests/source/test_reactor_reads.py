"""The reactor reads sockets for threads that wait: what it gives back, when, and in whose turn."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from twisted.internet.task import Clock

from canal_ha.source.connection.reactor_reads import PIECE_BYTES, Lent, ReactorReads
from tests.running_reactor import Blocked, running_reactor
from tests.waiting import until

reactor: Any = running_reactor()


class Reader:
    """A thread that lends its end of a connection. taken: what was received, each piece with its thread."""

    def __init__(self, reads: ReactorReads, eat: Callable[[bytes], bool] = lambda piece: True, silent_s: float = 30.0):
        self.taken: list[tuple[bytes, str]] = []
        self.answer: bool | BaseException | None = None
        self.peer, self._own = socket.socketpair()
        self._own.setblocking(False)
        self._reads, self._eat, self._silent_s = reads, eat, silent_s
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Reader:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.peer.close()
        self.thread.join(10)
        self._own.close()
        assert not self.thread.is_alive()

    def _run(self) -> None:
        back = threading.Event()
        lent = self._reads.lent(self._own, self._take, self._silent_s, back.set)
        self._reads.soon(lent.begin)
        back.wait()
        try:
            lent.raise_error()
            self.answer = not lent.silent
        except ValueError as error:
            self.answer = error

    def _take(self, piece: bytes) -> bool:
        self.taken.append((piece, threading.current_thread().name))
        return self._eat(piece)


def test_the_reactor_takes_pieces_until_one_of_them_ends_it() -> None:
    """The thread goes on as soon as a piece asks for it, and then has the socket for itself."""
    with Reader(ReactorReads(reactor), lambda piece: piece != b"end") as reader:
        reader.peer.sendall(b"one")
        until(lambda: bool(reader.taken), what="the first piece")
        assert reader.thread.is_alive()
        reader.peer.sendall(b"end")
        reader.thread.join(10)
        assert reader.answer is True
        reader.peer.sendall(b"more")
        with Blocked():  # it has looked at all sockets before
            pass
        assert [piece for piece, _ in reader.taken] == [b"one", b"end"]
        assert {name for _, name in reader.taken}.isdisjoint({reader.thread.name})
        assert reader._own.recv(10) == b"more"


def test_the_end_of_a_connection_is_left_to_the_thread() -> None:
    """Its own receive sees the end again, and has the words for it."""
    with Reader(ReactorReads(reactor)) as reader:
        reader.peer.close()
        reader.thread.join(10)
        assert reader.answer is True
        assert reader._own.recv(10) == b""


def test_an_error_while_decoding_is_raised_in_the_thread() -> None:
    """The reactor goes on."""

    def fail(piece: bytes) -> bool:
        raise ValueError("broken")

    with Reader(ReactorReads(reactor), fail) as reader:
        reader.peer.sendall(b"one")
        reader.thread.join(10)
        assert isinstance(reader.answer, ValueError)


def test_a_silent_source_ends_the_wait() -> None:
    """A piece begins the time anew."""
    with Reader(ReactorReads(reactor), silent_s=0.4) as reader:
        for _ in range(4):
            time.sleep(0.2)
            reader.peer.sendall(b"one")
        assert reader.answer is None
        reader.thread.join(10)
        assert reader.answer is False


def test_a_source_that_was_heard_late_is_not_silent() -> None:
    """A reactor that stands still, as in a frozen container, must not end all connections."""
    with Reader(ReactorReads(reactor), silent_s=1.0) as reader:
        with Blocked():
            reader.peer.sendall(b"in time")
            time.sleep(1.5)
        until(lambda: bool(reader.taken) or reader.answer is not None, what="the late piece")
        assert reader.answer in (None, True)  # it reads on, or the thread finds what waits


def test_an_error_found_late_is_raised_too() -> None:
    """The time-out of a silent source hides no error of what came at last."""
    begun = threading.Event()

    def fail(piece: bytes) -> bool:
        begun.set()
        time.sleep(0.6)
        raise ValueError("broken")

    with Reader(ReactorReads(reactor), fail, silent_s=0.3) as reader:
        reader.peer.sendall(b"one")
        assert begun.wait(10)
        reader.thread.join(10)
        assert isinstance(reader.answer, ValueError)


def test_a_connection_that_ends_before_the_reactor_begins_is_given_back() -> None:
    """A stop does not wait for a reader that the reactor never gets."""
    with Blocked():
        reader = Reader(ReactorReads(reactor)).__enter__()
        reader._own.shutdown(socket.SHUT_RDWR)
    reader.thread.join(10)
    assert reader.answer is True
    reader.__exit__()


def test_calls_behind_a_piece_come_before_the_next_piece_and_after_earlier_calls() -> None:
    """What a piece leads to needs no wake-up. Calls of other threads still arrive, in their order."""
    reads = ReactorReads(reactor)
    order: list[str] = []

    def eat(piece: bytes) -> bool:
        reads.call(order.append, f"call of {piece.decode()}")
        order.append(f"piece {piece.decode()}")
        return True

    with Reader(reads, eat) as reader:
        reads.call(order.append, "from a thread")
        until(lambda: bool(order), what="the call")
        reader.peer.sendall(b"1")
        until(lambda: len(order) == 3, what="the first piece")
        reader.peer.sendall(b"2")
        until(lambda: len(order) == 5, what="the second piece")
        assert order == ["from a thread", "piece 1", "call of 1", "piece 2", "call of 2"]


def test_an_answer_comes_before_the_rest_of_the_work_on_a_piece() -> None:
    """`answer` makes the calls so far, and none is made twice."""
    reads = ReactorReads(reactor)
    order: list[str] = []

    def eat(piece: bytes) -> bool:
        reads.call(order.append, "call")
        reads.answer()
        order.append("rest")
        return True

    with Reader(reads, eat) as reader:
        reader.peer.sendall(b"1")
        until(lambda: len(order) >= 2, what="the piece")
    assert order == ["call", "rest"]


def test_a_call_that_fails_ends_neither_the_others_nor_the_reading(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, like the error of any call of the reactor."""
    reads = ReactorReads(reactor)
    done: list[int] = []

    def eat(piece: bytes) -> bool:
        reads.call(lambda: 1 // 0)
        reads.call(done.append, 1)
        return True

    with Reader(reads, eat) as reader:
        reader.peer.sendall(b"one")
        until(lambda: len(done) == 1, what="the second call")
        reader.peer.sendall(b"two")
        until(lambda: len(done) == 2, what="the next piece")
        assert reader.thread.is_alive()
    assert "ZeroDivisionError" in caplog.text


def test_a_transaction_that_reaches_many_dumps_leaves_turns_to_other_work() -> None:
    """Each round of the reactor reads for 5 ms. None of the dumps is left out for long."""
    reads = ReactorReads(reactor)
    order: list[int] = []  # 0: a turn of other work
    count = 20
    with ExitStack() as stack:

        def eats(number: int) -> Callable[[bytes], bool]:
            def eat(piece: bytes) -> bool:
                order.append(number)
                time.sleep(0.003)
                return True

            return eat

        readers = [stack.enter_context(Reader(reads, eats(number))) for number in range(1, count + 1)]
        until(lambda: len(reactor.getReaders()) > count, what="all readers")

        def turn() -> None:
            order.append(0)
            if not over.is_set():
                reactor.callLater(0, turn)

        over = threading.Event()
        with Blocked():
            for reader in readers:
                reader.peer.sendall(b"row")
            reactor.callFromThread(turn)
        until(lambda: all(reader.taken for reader in readers), what="all pieces")
        over.set()
        rounds = "".join("t" if each == 0 else "p" for each in order).strip("t").split("t")
        assert max(len(each) for each in rounds) <= 2, order
        assert len({each for each in order if each}) == count


def test_a_dump_that_always_has_more_starves_no_other() -> None:
    """Those that a round leaves out come first in the next one."""
    reads = ReactorReads(reactor)
    taken: list[int] = []

    def eats(number: int) -> Callable[[bytes], bool]:
        def eat(piece: bytes) -> bool:
            taken.append(number)
            time.sleep(0.006)
            return True

        return eat

    with ExitStack() as stack:
        readers = [stack.enter_context(Reader(reads, eats(number))) for number in range(3)]
        until(lambda: len(reactor.getReaders()) > 3, what="all readers")
        with Blocked():
            for reader in readers:
                reader.peer.sendall(bytes(8 * PIECE_BYTES))
        until(lambda: len(taken) >= 21, what="pieces of all")
        for first in range(0, 18, 3):
            assert len(set(taken[first : first + 6])) == 3, taken


def test_a_piece_is_small() -> None:
    """A source that has much to send cannot keep the reactor: it takes one small piece at a time."""
    with Reader(ReactorReads(reactor)) as reader:
        reader.peer.sendall(bytes(5 * PIECE_BYTES))
        until(lambda: sum(len(piece) for piece, _ in reader.taken) == 5 * PIECE_BYTES, what="all bytes")
        assert max(len(piece) for piece, _ in reader.taken) <= PIECE_BYTES


def test_a_socket_that_is_lent_again_and_again_leaves_one_timer() -> None:
    """A dump goes to and fro with each busy moment. Each time that left a timer would keep the reactor busier."""
    clock = _Lending()
    reads = ReactorReads(clock)
    peer, own = socket.socketpair()
    with peer, own:
        for _ in range(10):
            reads.soon(reads.lent(own, lambda piece: True, 30.0, lambda: None).begin)
            lent = clock.readers.pop()
            assert isinstance(lent, Lent)
            lent.give_back()
        reads.soon(reads.lent(own, lambda piece: True, 30.0, lambda: None).begin)
        clock.advance(1.0)
        assert len(clock.getDelayedCalls()) == 1


class _Lending(Clock):
    """A reactor whose time stands still, and in whose thread the test runs."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: list[object] = []

    def callFromThread(self, call: Callable[..., object], *args: object) -> None:
        call(*args)

    def addReader(self, reader: object) -> None:
        self.readers.append(reader)

    def removeReader(self, reader: object) -> None:
        """Forget nothing: the test does."""
