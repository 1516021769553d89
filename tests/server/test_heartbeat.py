"""The heartbeat tells how late the reactor runs."""

from __future__ import annotations

import os
import threading
import time
from hashlib import sha256

import pytest
from twisted.internet.task import Clock

from canal_ha.node.processor_wait import ProcessorWait
from canal_ha.server.counters import RequestCounters
from canal_ha.server.heartbeat import BEAT_S, LOG_EVERY_S, Heartbeat
from canal_ha.server.metrics import CanalCollector


def run(clock: Clock, seconds: float) -> None:
    """Let a reactor run that is never late."""
    for _ in range(round(seconds / BEAT_S)):
        clock.advance(BEAT_S)


def beating() -> tuple[Clock, Heartbeat]:
    clock = Clock()
    heartbeat = Heartbeat(clock)
    heartbeat.start()
    return clock, heartbeat


def test_a_reactor_in_time() -> None:
    """There is no delay and no stall."""
    clock, heartbeat = beating()
    run(clock, 10)
    assert heartbeat.take_longest() == pytest.approx((0, 0), abs=1e-6)
    assert heartbeat.stalls == heartbeat.own_stalls == 0


def test_the_longest_delay_counts_until_it_is_read() -> None:
    """A delay of more than 100 ms is a stall; the longest delay is read once."""
    clock, heartbeat = beating()
    for late in (0.09, 0.3, 0.2):
        clock.advance(BEAT_S + late)
        run(clock, 1)
    assert heartbeat.stalls == 2
    assert heartbeat.take_longest() == pytest.approx((0.3, 0.3))
    run(clock, 1)
    assert heartbeat.take_longest() == pytest.approx((0, 0), abs=1e-6)


def test_a_delay_that_lasts() -> None:
    """The scrape can be the first call after a block: it shows the delay of the beat that has not run yet."""
    clock, heartbeat = beating()
    clock.rightNow += BEAT_S + 0.5
    assert heartbeat.take_longest() == pytest.approx((0.5, 0.5))


def test_a_wait_for_a_processor_is_not_the_nodes_own() -> None:
    """Of each delay, what the thread waited for a processor is taken off the node's own part."""
    clock, waited = Clock(), [7.0]
    heartbeat = Heartbeat(clock, lambda: waited[0])
    heartbeat.start()
    run(clock, 1)
    for late, waiting in ((0.3, 0.28), (0.25, 0.1)):
        waited[0] += waiting
        clock.advance(BEAT_S + late)
        run(clock, 1)
    assert heartbeat.take_longest() == pytest.approx((0.3, 0.15))
    assert (heartbeat.stalls, heartbeat.own_stalls) == (2, 1)


def test_the_system_tells_the_wait_of_the_own_thread() -> None:
    """With more threads than processors that compute without the interpreter's lock, a thread has to wait."""
    ended = threading.Event()

    def compute() -> None:
        data = bytes(1 << 20)
        while not ended.is_set():
            sha256(data)

    threads = [threading.Thread(target=compute) for _ in range(4 * (os.cpu_count() or 1))]
    waited = ProcessorWait()
    before = waited()
    for thread in threads:
        thread.start()
    until = time.monotonic() + 30
    data = bytes(1 << 20)
    while waited() - before < 0.1 and time.monotonic() < until:
        sha256(data)
    ended.set()
    for thread in threads:
        thread.join()
    assert 0.1 <= waited() - before < 30


def test_long_stalls_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """A stall of more than a second has a line, which counts those that were left out before it."""
    clock, heartbeat = beating()
    clock.advance(BEAT_S + 0.9)
    for _ in range(4):
        clock.advance(BEAT_S + 1.5)
    clock.advance(BEAT_S + LOG_EVERY_S)
    lines = [str(record.msg) for record in caplog.records if "reactor.stalled" in str(record.msg)]
    assert len(lines) == 2
    assert "'seconds': 1.5, 'own': 1.5, 'left_out': 0" in lines[0]
    assert "'left_out': 3" in lines[1]
    assert heartbeat.stalls == 6


def test_a_stopped_heartbeat_leaves_no_timer() -> None:
    """A node that stops keeps no timer of the heartbeat."""
    clock, heartbeat = beating()
    heartbeat.stop()
    assert not clock.getDelayedCalls()
    clock.advance(5)
    assert heartbeat.take_longest() == (0, 0)


def test_the_page_shows_delays_and_stalls() -> None:
    """A scrape shows the longest delay since the scrape before, and the stalls since the start."""
    clock, heartbeat = beating()
    collector = CanalCollector(list, RequestCounters(lambda name: True), heartbeat=heartbeat)
    clock.advance(BEAT_S + 0.25)

    def scraped() -> list[float]:
        return [
            sample.value
            for family in collector.collect()
            if family.name.startswith("canal_reactor")
            for sample in family.samples
        ]

    assert scraped() == [pytest.approx(0.25), pytest.approx(0.25), 1, 1]
    assert scraped() == [pytest.approx(0, abs=1e-6), pytest.approx(0, abs=1e-6), 1, 1]
