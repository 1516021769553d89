"""What is told of taps that cannot be opened: pure."""

from __future__ import annotations

import pytest

from canal_ha.source.server.tap_records import FAILURES, LASTS_S, TapEnd, TapRecords

SERVER = "db:3306"


def test_a_tap_that_cannot_be_opened_for_hours_writes_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    """The alarm lasts, and tells the newest error."""
    records = TapRecords()
    for number in range(1000):
        records.failed("key", SERVER, f"error {number}", 1000.0 + 10 * number)
    assert len(caplog.records) <= FAILURES
    (alarm,) = records.alarms(11000.0)
    assert "error 999" in alarm.text
    assert alarm.since == 1000.0
    assert records.ended[TapEnd.UNOPENED.value] == 1000


def test_the_alarm_ends_with_a_tap_that_opens_or_when_nobody_tries_any_more() -> None:
    """A tap that opens once in a while is no alarm."""
    records = TapRecords()
    for _ in range(5):
        for _ in range(FAILURES - 1):
            records.failed("key", SERVER, "error", 1000.0)
        assert records.alarms(1000.0) == ()
        records.flows("key", SERVER, "canal-ha/tap/1")
    for _ in range(FAILURES):
        records.failed("other", SERVER, "error", 2000.0)
    assert len(records.alarms(2000.0)) == 1
    assert records.alarms(2001.0 + LASTS_S) == ()
    records.failed("other", SERVER, "error", 2001.0 + LASTS_S)
    assert records.alarms(2001.0 + LASTS_S) == ()


def test_the_alarm_does_not_say_that_streams_read_while_the_server_refuses_them_too() -> None:
    """The streams try dumps of their own. Whether these work, the tap does not know."""
    records = TapRecords()
    for _ in range(FAILURES):
        records.failed("key", SERVER, "Access denied", 1000.0)
    (alarm,) = records.alarms(1000.0)
    assert "opens a dump of its own instead" in alarm.text
    assert "reads" not in alarm.text
