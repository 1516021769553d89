"""How long a lease holds."""

from __future__ import annotations

from canal_ha.zookeeper.lease import Lease


def test_a_lease_runs_from_the_sending_of_the_last_answered_write() -> None:
    """A lease is two thirds of the time-out. A late answer to an early write does not shorten it.

    A new session begins without a lease.
    """
    lease = Lease()
    assert not lease.holds(0.0)
    lease.begin(6.0)
    assert lease.probe_interval_s == 1.0
    assert not lease.holds(0.0)
    lease.answered(10.0)
    lease.answered(9.0)
    assert lease.holds(13.99)
    assert not lease.holds(14.0)
    lease.end()
    assert not lease.holds(10.1)
    lease.begin(3.0)
    assert lease.over_at() is None


def test_a_lease_follows_the_time_out_that_a_new_connection_grants() -> None:
    """A new connection can grant another time-out. A shorter one shortens the lease at once."""
    lease = Lease()
    lease.begin(6.0)
    lease.answered(10.0)
    lease.resume(3.0)
    assert lease.over_at() == 12.0
    assert lease.probe_interval_s == 0.5
