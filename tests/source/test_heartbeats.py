"""The period of heartbeats, for many dumps and short time-outs."""

from __future__ import annotations

import pytest

from canal_ha.source.connection.heartbeats import DUMPS, HEARTBEAT_S, MOST_S, Heartbeats

READ_TIMEOUT_S = 30.0
ALARM_LAG_S = 300.0


def test_few_dumps_have_a_heartbeat_every_second() -> None:
    """Their streams know that they are idle as soon as possible."""
    heartbeats = Heartbeats()
    assert {heartbeats.begin(READ_TIMEOUT_S, ALARM_LAG_S) for _ in range(DUMPS)} == {HEARTBEAT_S}


def test_a_thousand_dumps_have_few_heartbeats() -> None:
    """The source sends less than a third of what it would send otherwise, and none waits longer than allowed."""
    heartbeats = Heartbeats()
    periods = [heartbeats.begin(READ_TIMEOUT_S, ALARM_LAG_S) for _ in range(1000)]
    assert sum(1 / period for period in periods) < 300
    assert max(periods) == MOST_S
    assert periods == sorted(periods)


def test_dumps_that_ended_do_not_count() -> None:
    """A stream that opens after others have parked has a heartbeat every second again."""
    heartbeats = Heartbeats()
    for _ in range(1000):
        heartbeats.begin(READ_TIMEOUT_S, ALARM_LAG_S)
    for _ in range(1000):
        heartbeats.end()
    assert heartbeats.begin(READ_TIMEOUT_S, ALARM_LAG_S) == HEARTBEAT_S


@pytest.mark.parametrize("read_timeout_s", [0.5, 2.0, 6.0, 30.0])
def test_a_heartbeat_comes_in_time_for_the_read_timeout(read_timeout_s: float) -> None:
    """Several may be missed, unless the time-out is shorter than a few seconds."""
    heartbeats = Heartbeats()
    period_s = max(heartbeats.begin(read_timeout_s, ALARM_LAG_S) for _ in range(1000))
    assert period_s <= max(HEARTBEAT_S, read_timeout_s / 3)


@pytest.mark.parametrize(("alarm_lag_s", "period_s"), [(0.0, MOST_S), (300.0, MOST_S), (4.0, 2.0), (0.5, HEARTBEAT_S)])
def test_no_stream_is_behind_for_want_of_a_heartbeat(alarm_lag_s: float, period_s: float) -> None:
    """An alarm of a stream that has all rows would wake somebody for nothing."""
    heartbeats = Heartbeats()
    assert max(heartbeats.begin(READ_TIMEOUT_S, alarm_lag_s) for _ in range(1000)) == period_s
