"""How fast a snapshot is, and how long it will take: figures that a person can believe."""

from __future__ import annotations

from dataclasses import replace

from twisted.internet.task import Clock

from canal_ha.instance.snapshot_rate import UNKNOWN, SnapshotRate
from canal_ha.model.snapshot import SnapshotPhase, SnapshotState

BEGUN = SnapshotState("a1", ("shop.orders",), total=10_000)
NOTHING = {"rows_per_s": 0.0, "left_s": UNKNOWN}


def taken(rate: SnapshotRate, clock: Clock, state: SnapshotState, rows: int, seconds: int) -> SnapshotState:
    """Acknowledge rows once a second; return the state behind them."""
    for _ in range(seconds):
        clock.advance(1.0)
        before, state = state, replace(state, rows=state.rows + rows)
        rate.acknowledged(before, state)
    return state


def test_the_rate_and_the_time_left() -> None:
    """They are of the last minute, also where a snapshot that was nearly done goes on in another process."""
    clock = Clock()
    rate = SnapshotRate(clock.seconds)
    assert rate.of(BEGUN) == NOTHING
    state = taken(rate, clock, replace(BEGUN, rows=8000), 100, 11)
    assert rate.of(state) == {"rows_per_s": 110.0, "left_s": 8.2}  # the first chunk counts, the time before it does not
    state = taken(rate, clock, replace(state, total=100_000), 10, 70)
    assert rate.of(state) == {"rows_per_s": 10.0, "left_s": 9020.0}


def test_a_client_that_takes_nothing_has_no_time_left() -> None:
    """The rate falls while it waits. Nothing is known without a total, or beyond it."""
    clock = Clock()
    rate = SnapshotRate(clock.seconds)
    state = taken(rate, clock, BEGUN, 100, 11)
    clock.advance(10.0)
    assert rate.of(state)["rows_per_s"] == 55.0
    assert rate.of(replace(state, total=0))["left_s"] == UNKNOWN
    assert rate.of(replace(state, total=7))["left_s"] == UNKNOWN
    clock.advance(3600.0)
    assert rate.of(state) == NOTHING


def test_only_what_runs_has_a_rate() -> None:
    """Another snapshot, and rows that were void, begin again."""
    clock = Clock()
    rate = SnapshotRate(clock.seconds)
    state = taken(rate, clock, BEGUN, 100, 11)
    assert rate.of(replace(state, phase=SnapshotPhase.PAUSED)) == NOTHING
    assert rate.of(replace(state, id="b2")) == NOTHING
    void = replace(state, rows=0)
    rate.acknowledged(state, void)
    assert rate.of(void) == NOTHING
    assert rate.of(taken(rate, clock, void, 5, 10))["rows_per_s"] == 5.0
