"""Alarms of a stream: when they begin, when they end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from canal_ha.instance.alarms import Alarms, Outlook
from canal_ha.instance.status import StreamStatus
from canal_ha.model.position import LogPosition

STREAM = StreamStatus(1001, "", "open", cursor=LogPosition("bin.000001", 4), seconds_behind=0.5, put_seq=9, ack_seq=9)
DAY = 86400.0


def told(alarms: Alarms, stream: StreamStatus, now: float, outlook: Outlook | None = None) -> list[tuple[str, bool]]:
    """(alarm, whether it begins)."""
    return [(change.alarm, change.begins) for change in alarms.step(stream, outlook or Outlook(), now)]


def test_each_begins_once_and_ends_once() -> None:
    """Lag beyond the limit, and back."""
    alarms = Alarms(lag_s=10, unmoved_s=0)
    late = replace(STREAM, seconds_behind=11.0)
    assert [told(alarms, each, 0) for each in (STREAM, late, late, STREAM)] == [
        [],
        [("lag", True)],
        [],
        [("lag", False)],
    ]


def test_a_cursor_stands_still_only_while_rows_wait() -> None:
    """Time counts from when rows began to wait; an acknowledgement ends it."""
    alarms = Alarms(lag_s=0, unmoved_s=10)
    waiting = replace(STREAM, put_seq=12)
    assert told(alarms, STREAM, 0) == told(alarms, STREAM, 100) == told(alarms, waiting, 109) == []
    assert told(alarms, waiting, 111) == [("unmoved", True)]
    assert told(alarms, replace(waiting, cursor=LogPosition("bin.000001", 9)), 112) == [("unmoved", False)]


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
    """In the last quarter of a journal's life, at most a day before its end, and when it is gone."""
    assert told(Alarms(0, 0), STREAM, 0, outlook) == ([("purge", True)] if near else [])
