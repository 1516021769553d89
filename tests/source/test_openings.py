"""Who may open a dump, in which order, and that nobody waits long for one that hangs."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from canal_ha.source.connection.openings import COUNTS_S, Openings
from lab.waiting import until

PATIENCE_S = 20


class Clock:
    """A clock that stands still until it is moved."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def nothing() -> None:
    """Go on."""


def test_so_many_open_at_once_and_the_next_one_when_one_is_done() -> None:
    """In the order in which they came; another server has places of its own."""
    openings, order = Openings(2, Clock()), list[int]()
    for dump in (1, 2):
        openings.enter("s", dump, nothing)
    openings.enter("t", 3, nothing)
    with ThreadPoolExecutor(3) as pool:

        def opens(dump: int) -> None:
            openings.enter("s", dump, nothing)
            order.append(dump)

        waiting = []
        for number, dump in enumerate((4, 5, 6), start=1):
            waiting.append(pool.submit(opens, dump))
            until(lambda count=number: len(openings._waiting.get("s", {})) == count)  # type: ignore[misc] # its default
        assert not order
        openings.leave("s", 1)
        waiting[0].result(PATIENCE_S)
        openings.leave("s", 4)
        waiting[1].result(PATIENCE_S)
        openings.leave("s", 2)
        waiting[2].result(PATIENCE_S)
        assert order == [4, 5, 6]
    for server, dump in (("s", 5), ("s", 6), ("t", 3), ("t", 3)):
        openings.leave(server, dump)
    assert not openings._began
    assert not openings._waiting


def test_one_that_hangs_delays_the_others_for_a_moment_only() -> None:
    """A stream may have to read journals before it begins."""
    clock = Clock()
    openings = Openings(1, clock)
    openings.enter("s", 1, nothing)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(openings.enter, "s", 2, nothing)
        until(lambda: bool(openings._waiting))
        clock.now += COUNTS_S
        other.result(PATIENCE_S)
    openings.leave("s", 1)
    openings.leave("s", 2)
    assert not openings._began


def test_one_that_is_stopped_waits_no_longer_and_takes_no_place() -> None:
    """What ends the wait reaches the caller."""
    openings, stopped = Openings(1, Clock()), threading.Event()
    openings.enter("s", 1, nothing)

    def go_on() -> None:
        stopped.set()
        raise ValueError("stopped")

    with pytest.raises(ValueError, match="stopped"):
        openings.enter("s", 2, go_on)
    openings.leave("s", 1)
    openings.enter("s", 3, nothing)
    openings.leave("s", 3)
    assert not openings._began
    assert not openings._waiting
