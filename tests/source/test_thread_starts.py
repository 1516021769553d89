"""How many dumps get a thread back at once: in order, few at a time, and never stopped by one that takes long."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

import pytest

from canal_ha.config.model import InstanceConfig, SourceConfig
from canal_ha.errors import SourceUnavailable
from canal_ha.model.position import LogPosition
from canal_ha.source.connection import thread_starts
from canal_ha.source.connection.identity import replica
from canal_ha.source.connection.idle_sessions import account_of
from canal_ha.source.connection.reactor_reads import ReactorReads
from canal_ha.source.connection.thread_starts import COUNTS_S, Elsewhere, ThreadStarts
from canal_ha.source.server.dump import Dump, Upstream
from tests.running_reactor import running_reactor
from tests.waiting import until

SERVER = "a server"


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
    starts = ThreadStarts(Calls(), most=2, elsewhere=lambda call: call())
    for number in range(4):
        starts.begin(SERVER, number, lambda number=number: began.append(number))  # type: ignore[misc]  # no need to infer it
    assert began == [0, 1]
    starts.settled(SERVER, 1)
    assert began == [0, 1, 2]
    starts.settled(SERVER, 0)
    starts.settled(SERVER, 2)
    assert began == [0, 1, 2, 3]


def test_a_dump_that_settles_again_or_never_began_changes_nothing() -> None:
    """A stop may come before its turn."""
    began: list[int] = []
    starts = ThreadStarts(Calls(), most=1, elsewhere=lambda call: call())
    starts.settled(SERVER, "nobody")
    starts.begin(SERVER, 1, lambda: began.append(1))
    starts.settled(SERVER, 1)
    starts.settled(SERVER, 1)
    starts.begin(SERVER, 2, lambda: began.append(2))
    assert began == [1, 2]


def test_those_that_take_long_hold_nobody_up() -> None:
    """A client without room may keep a thread for hours."""
    began: list[int] = []
    calls = Calls()
    now = [0.0]
    starts = ThreadStarts(calls, most=1, clock=lambda: now[0], elsewhere=lambda call: call())
    for number in range(3):
        starts.begin(SERVER, number, lambda number=number: began.append(number))  # type: ignore[misc]  # no need to infer it
    assert began == [0]
    assert [seconds for seconds, _ in calls.later] == [COUNTS_S]
    now[0] = COUNTS_S
    calls.later.pop()[1]()
    assert began == [0, 1]
    now[0] += COUNTS_S
    calls.later.pop()[1]()
    assert began == [0, 1, 2]
    assert not calls.later


def test_whoever_starts_a_thread_does_not_wait_until_it_runs() -> None:
    """On busy processors that takes a tenth of a second, in which the reactor would answer nobody."""
    release, began = threading.Event(), threading.Event()
    starts = ThreadStarts(Calls())
    starts.begin(SERVER, 1, lambda: began.set() if release.wait(20) else None)
    assert not began.is_set()
    release.set()
    assert began.wait(20)


def test_the_reactor_does_not_wait_for_the_thread_that_starts_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """That one ends after a minute without calls, and the next call waited until a new one ran."""
    monkeypatch.setattr(thread_starts, "IDLE_S", 0.05)
    elsewhere, done = Elsewhere(), threading.Event()
    interval = sys.getswitchinterval()

    def keeps_busy() -> None:
        while not done.is_set():
            pass

    busy = threading.Thread(target=keeps_busy, daemon=True)
    busy.start()
    try:
        for _ in range(2):
            made = threading.Event()
            sys.setswitchinterval(1.0)  # for so long a thread that has work keeps the interpreter
            began = time.monotonic()
            elsewhere(made.set)
            assert time.monotonic() - began < 0.5
            sys.setswitchinterval(interval)
            assert made.wait(20)
            until(lambda: not elsewhere._runs, what="the end of the thread")
    finally:
        sys.setswitchinterval(interval)
        done.set()
        busy.join(20)


def test_calls_are_made_in_order_and_again_after_the_thread_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle node has no thread for this."""
    monkeypatch.setattr(thread_starts, "IDLE_S", 0.05)
    elsewhere = Elsewhere()
    made: list[int] = []
    for number in range(100):
        elsewhere(lambda number=number: made.append(number))  # type: ignore[misc]  # no need to infer it
    until(lambda: len(made) == 100, what="all calls")
    until(lambda: not elsewhere._runs, what="the end of the thread")
    elsewhere(lambda: made.append(100))
    until(lambda: len(made) == 101, what="a call on another thread")
    assert made == list(range(101))


def test_a_dump_waits_while_there_can_be_no_thread() -> None:
    """The next look tries again."""
    calls, began, refuse = Calls(), list[int](), [True]

    def elsewhere(call: Callable[[], None]) -> None:
        if refuse[0]:
            raise RuntimeError("can't start new thread")
        call()

    starts = ThreadStarts(calls, elsewhere=elsewhere)
    starts.begin(SERVER, 1, lambda: began.append(1))
    assert not began
    refuse[0] = False
    calls.later.pop()[1]()
    assert began == [1]


def test_a_call_that_fails_keeps_no_other_from_being_made() -> None:
    """Else no dump of the node would ever get a thread again."""
    elsewhere, made = Elsewhere(), threading.Event()

    def fail() -> None:
        raise MemoryError

    elsewhere(fail)
    elsewhere(made.set)
    assert made.wait(20)


def test_the_dumps_of_one_server_delay_those_of_no_other() -> None:
    """A server that hangs may have hundreds of dumps."""
    began: list[str] = []
    starts = ThreadStarts(Calls(), most=1, elsewhere=lambda call: call())
    starts.begin("hangs", 1, lambda: began.append("one"))
    starts.begin("hangs", 2, lambda: began.append("two"))
    starts.begin("works", 3, lambda: began.append("three"))
    assert began == ["one", "three"]


def test_dumps_that_stop_while_they_wait_for_a_server_that_hangs_leave_nothing() -> None:
    """A destination is given up in no time, and the node keeps nothing of it."""
    reads, asked = ReactorReads(running_reactor()), list[int]()
    config = InstanceConfig("example", SourceConfig(host="192.0.2.1", port=3306))

    def route() -> Upstream:
        asked.append(1)
        raise SourceUnavailable("nobody answers")

    dumps = [
        Dump(
            config,
            route,
            replica=replica("example", 1001 + number, server_id=0),
            start=LogPosition("binlog.000001", 4),
            accept=lambda segment: None,
            report=lambda event: None,
            reads=reads,
        )
        for number in range(3 * thread_starts.MOST)
    ]
    server = account_of(config, config.master)
    for number in range(thread_starts.MOST):
        reads.soon(reads.threads.begin, server, number, lambda: None)
    for dump in dumps:
        dump.start()
        dump.stop()
    began = time.monotonic()
    assert all(dump.join(20) for dump in dumps)
    assert time.monotonic() - began < 2 * COUNTS_S
    assert not asked
    until(lambda: reads.threads._began[server].keys().isdisjoint(dumps), what="nothing of the dumps")
