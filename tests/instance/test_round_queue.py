"""The queue of streams that one transaction wakes."""

from __future__ import annotations

from functools import partial

from twisted.internet.task import Clock

from canal_ha.instance.round_queue import GAP_S, ROUND_S, RoundQueue


class Wakes:
    """Wakes that take a millisecond each. done: their numbers, with the time."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.queue = RoundQueue(self.clock)
        self.done: list[int] = []

    def wake(self, number: int) -> None:
        self.clock.rightNow += 0.001
        self.done.append(number)

    def round(self) -> int:
        """Let the reactor run one round; return how many were woken in it."""
        before = len(self.done)
        (call,) = self.clock.calls
        self.clock.calls.clear()
        call.func()
        return len(self.done) - before


def test_a_stream_alone_is_woken_at_once() -> None:
    """So is each of many, if the reactor does something else in between."""
    wakes = Wakes()
    for number in range(100):
        wakes.queue.soon(partial(wakes.wake, number))
        wakes.clock.rightNow += 2 * GAP_S
    assert wakes.done == list(range(100))
    assert not wakes.clock.getDelayedCalls()


def test_hundreds_of_streams_are_woken_in_turns_of_a_few_milliseconds() -> None:
    """None is left out, and they keep their order."""
    wakes = Wakes()
    for number in range(200):
        wakes.queue.soon(partial(wakes.wake, number))
    most = round(ROUND_S * 1000) + 1
    assert 0 < len(wakes.done) <= most
    while wakes.clock.getDelayedCalls():
        assert 0 < wakes.round() <= most
    assert wakes.done == list(range(200))


def test_a_wake_that_comes_while_others_wait_is_behind_them() -> None:
    """Also one that a wake itself brings."""
    wakes = Wakes()
    for number in range(8):
        wakes.queue.soon(partial(wakes.wake, number))

    def bring() -> None:
        wakes.queue.soon(partial(wakes.wake, 9))
        wakes.wake(8)

    wakes.queue.soon(bring)
    while wakes.clock.getDelayedCalls():
        wakes.round()
    assert wakes.done == list(range(10))
