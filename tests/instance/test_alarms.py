"""Alarms of a stream: when they begin and when they end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from canal_ha.instance.alarms import Alarms, Outlook
from canal_ha.instance.status import StreamStatus
from canal_ha.model.position import LogPosition

STREAM = StreamStatus(1001, "", "open", cursor=LogPosition("bin.000001", 4), seconds_behind=0.5, put_seq=9, ack_seq=9)
FULL = replace(STREAM, put_seq=19, get_seq=19, ring_entries=10, ring_capacity=10, ring_bytes=70, ring_bytes_budget=1000)
DAY = 86400.0


def told(alarms: Alarms, stream: StreamStatus, now: float, outlook: Outlook | None = None) -> list[tuple[str, bool]]:
    """Return the changes as (alarm, whether it begins)."""
    return [(change.alarm, change.begins) for change in alarms.step(stream, outlook or Outlook(), now)]


def test_each_begins_once_and_ends_once() -> None:
    """The lag exceeds the limit, stays there, and goes back."""
    alarms = Alarms(lag_s=10, unmoved_s=0)
    late = replace(STREAM, seconds_behind=11.0)
    seen = ((STREAM, 0), (late, 1), (late, 10), (late, 11), (late, 12), (STREAM, 13), (late, 14))
    assert [told(alarms, *each) for each in seen] == [[], [], [], [("lag", True)], [], [("lag", False)], []]


def test_a_first_subscription_to_an_idle_database_is_no_lag() -> None:
    """The newest event is old until the source has said that there is no newer one. It was an alarm at once."""
    alarms = Alarms(lag_s=300, unmoved_s=0)
    idle = replace(STREAM, seconds_behind=0.0)
    seen = (
        (replace(STREAM, seconds_behind=578.0), 0),
        (replace(STREAM, seconds_behind=583.0), 5),
        (idle, 10),
        (idle, 60),
    )
    assert [told(alarms, *each) for each in seen] == [[], [], [], []]


def test_a_stream_that_rested_after_a_late_moment_has_no_lag_at_its_next_one() -> None:
    """The time counted from the first moment, hours before."""
    alarms = Alarms(lag_s=10, unmoved_s=0)
    late = replace(STREAM, seconds_behind=11.0)
    assert not alarms.rests(9, Outlook(), 0)
    assert told(alarms, late, 0) == []  # a transaction came between the two looks, and was filtered out
    assert alarms.rests(9, Outlook(), 5)
    assert not alarms.rests(None, Outlook(), 3600)
    assert told(alarms, late, 3600) == []
    assert told(alarms, late, 3610) == [("lag", True)]


def test_a_cursor_stands_still_only_while_rows_wait() -> None:
    """The time counts from when rows began to wait, and an acknowledgement ends it."""
    alarms = Alarms(lag_s=0, unmoved_s=10)
    waiting = replace(STREAM, put_seq=12)
    assert told(alarms, STREAM, 0) == told(alarms, STREAM, 100) == told(alarms, waiting, 109) == []
    assert told(alarms, waiting, 111) == [("unmoved", True)]
    assert told(alarms, replace(waiting, cursor=LogPosition("bin.000001", 9)), 112) == [("unmoved", False)]


def test_a_ring_full_of_unacknowledged_batches_is_an_alarm() -> None:
    """The alarm begins if nothing is acknowledged for too long; the next acknowledgement or roll-back ends it."""
    for after in (replace(FULL, ack_seq=12, ring_entries=7), replace(FULL, get_seq=9)):
        alarms = Alarms(0, 0, blocked_s=30)
        assert told(alarms, FULL, 0) == told(alarms, FULL, 30) == []
        assert told(alarms, FULL, 31) == [("blocked", True)]
        assert told(alarms, FULL, 90) == []
        assert told(alarms, after, 91) == [("blocked", False)]


def test_a_full_ring_that_flows_is_no_alarm() -> None:
    """Each acknowledgement or put restarts the time. Rows that the client has not fetched are lag, not this alarm."""
    alarms = Alarms(0, 0, blocked_s=30)
    for now in range(0, 200, 20):
        assert told(alarms, replace(FULL, put_seq=19 + now, get_seq=19 + now, ack_seq=9 + now), now) == []
    alarms = Alarms(0, 0, blocked_s=30)
    for now in range(0, 200, 20):  # a transaction larger than the ring
        assert told(alarms, replace(FULL, put_seq=19 + now, get_seq=19 + now, ring_entries=10 + now), now) == []
    alarms = Alarms(0, 0, blocked_s=30)
    waiting = replace(FULL, get_seq=9)
    assert told(alarms, waiting, 0) == told(alarms, waiting, 100) == []


@pytest.mark.parametrize(
    ("outlook", "near"),
    [
        (Outlook(-1.0, 30 * DAY), False),
        (Outlook(0.0, 30 * DAY), True),
        (Outlook(0.0, 0.0), True),
        (Outlook(25 * 3600.0, 30 * DAY), False),
        (Outlook(23 * 3600.0, 30 * DAY), True),
        (Outlook(1000.0, 3600.0), False),
        (Outlook(800.0, 3600.0), True),
    ],
)
def test_a_purge_is_near(outlook: Outlook, near: bool) -> None:
    """A purge is near in the last quarter of a journal's life, at most a day before its end, and after its end."""
    assert told(Alarms(0, 0), STREAM, 0, outlook) == ([("purge", True)] if near else [])


def test_no_purge_is_near_once_the_stream_has_stopped_at_it() -> None:
    """The other alarm takes its place until the stream goes on."""
    alarms = Alarms(0, 0)
    assert told(alarms, STREAM, 0, Outlook(0.0, DAY)) == [("purge", True)]
    seen = [(change.alarm, change.begins) for change in alarms.step(STREAM, Outlook(0.0, DAY), 1, lost=True)]
    assert seen == [("purge", False), ("lost", True)]
    assert told(alarms, STREAM, 2) == [("lost", False)]
