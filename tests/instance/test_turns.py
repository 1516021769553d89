"""The queue of conversations that go on in the next rounds of the reactor."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from canal_ha.instance.round_queue import ROUND_S, RoundQueue


def take_turns(queue: RoundQueue, clock: Clock, done: list[str], name: str, seconds: float) -> None:
    """Work for some seconds in each of three turns."""

    async def work() -> None:
        for _ in range(3):
            await queue.turn()
            clock.rightNow += seconds
            done.append(name)

    Deferred.fromCoroutine(work())


def test_conversations_go_on_one_after_the_other() -> None:
    """None gets a second turn before all others had one."""
    clock, done = Clock(), list[str]()
    queue = RoundQueue(clock)
    for name in "abc":
        take_turns(queue, clock, done, name, 0.0)
    for _ in range(3):
        clock.advance(0)
    assert "".join(done) == "abcabcabc"
    assert not clock.getDelayedCalls()


def test_a_round_ends_after_a_few_milliseconds() -> None:
    """The other conversations go on in the next rounds, so that timers and sockets get their turn between them."""
    clock, done = Clock(), list[str]()
    queue = RoundQueue(clock)
    for number in range(100):
        take_turns(queue, clock, done, str(number), 0.001)
    (call,) = clock.getDelayedCalls()
    call.func()  # Clock.advance would run all rounds at once
    assert ROUND_S <= len(done) / 1000 <= ROUND_S + 0.001
    while clock.getDelayedCalls():
        clock.advance(0)
    assert done == [str(number) for number in range(100)] * 3


def test_a_turn_that_nobody_wants_any_more_is_left_out() -> None:
    """Its conversation has ended."""
    clock, done = Clock(), list[str]()
    queue = RoundQueue(clock)
    queue.turn().addErrback(lambda failure: done.append("cancelled")).cancel()
    take_turns(queue, clock, done, "b", 0.0)
    clock.advance(0)
    assert done == ["cancelled", "b", "b", "b"]
