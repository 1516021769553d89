"""How many dumps get a thread back at once: in order, few at a time, and never stopped by one that takes long."""

from __future__ import annotations

from collections.abc import Callable

from canal_ha.source.connection.thread_starts import COUNTS_S, ThreadStarts


class Calls:
    """A reactor in whose thread the test runs. later: what it is to call after some time."""

    def __init__(self) -> None:
        self.later: list[tuple[float, Callable[[], object]]] = []

    def soon(self, call: Callable[..., object], *args: object) -> None:
        """Call at once."""
        call(*args)

    def call_later(self, seconds: float, call: Callable[[], object]) -> None:
        """Keep the call."""
        self.later.append((seconds, call))


def test_few_begin_at_once_and_the_next_one_when_one_has_settled() -> None:
    """First come, first served."""
    began: list[int] = []
    starts = ThreadStarts(Calls(), most=2)
    for number in range(4):
        starts.begin(number, lambda number=number: began.append(number))  # type: ignore[misc]  # no need to infer it
    assert began == [0, 1]
    starts.settled(1)
    assert began == [0, 1, 2]
    starts.settled(0)
    starts.settled(2)
    assert began == [0, 1, 2, 3]


def test_a_dump_that_settles_again_or_never_began_changes_nothing() -> None:
    """A stop may come before its turn."""
    began: list[int] = []
    starts = ThreadStarts(Calls(), most=1)
    starts.settled("nobody")
    starts.begin(1, lambda: began.append(1))
    starts.settled(1)
    starts.settled(1)
    starts.begin(2, lambda: began.append(2))
    assert began == [1, 2]


def test_those_that_take_long_hold_nobody_up() -> None:
    """A client without room may keep a thread for hours."""
    began: list[int] = []
    calls = Calls()
    now = [0.0]
    starts = ThreadStarts(calls, most=1, clock=lambda: now[0])
    for number in range(3):
        starts.begin(number, lambda number=number: began.append(number))  # type: ignore[misc]  # no need to infer it
    assert began == [0]
    assert [seconds for seconds, _ in calls.later] == [COUNTS_S]
    now[0] = COUNTS_S
    calls.later.pop()[1]()
    assert began == [0, 1]
    now[0] += COUNTS_S
    calls.later.pop()[1]()
    assert began == [0, 1, 2]
    assert not calls.later
