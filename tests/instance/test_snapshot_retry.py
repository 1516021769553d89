"""Why a snapshot does not go on, and when it is tried again."""

from __future__ import annotations

from dataclasses import replace

from twisted.internet.task import Clock

from canal_ha.instance.snapshot_retry import SnapshotRetry
from canal_ha.model.snapshot import SnapshotPhase, SnapshotState

RUNNING = SnapshotState("a1", ("shop.orders",))
NOTHING = {"failing": "", "retry_in_s": 0.0}


def test_the_last_failure_until_the_snapshot_goes_on() -> None:
    """The time until the next attempt runs down to 0, and the failure stays while the attempt is made."""
    clock = Clock()
    retry = SnapshotRetry(clock.seconds)
    assert retry.of(RUNNING) == NOTHING
    retry.failed("db:3306 is away", 4.0)
    clock.advance(1.5)
    assert retry.of(RUNNING) == {"failing": "db:3306 is away", "retry_in_s": 2.5}
    clock.advance(9.0)
    assert retry.of(RUNNING) == {"failing": "db:3306 is away", "retry_in_s": 0.0}
    assert retry.of(replace(RUNNING, phase=SnapshotPhase.PAUSED)) == NOTHING
    retry.goes_on()
    assert retry.of(RUNNING) == NOTHING
