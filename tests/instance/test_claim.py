"""Requests to an instance whose node loses the destination."""

from __future__ import annotations

import pytest

from canal_ha.errors import CanalError, NotRunningHere
from canal_ha.model.identity import ClientIdentity
from tests.instance.test_regained import OneNode
from tests.instance.test_stream import now

IDENTITY = ClientIdentity("example", 1001, "")


class Lease:
    """A claim that is good for so many checks."""

    def __init__(self) -> None:
        self.checks: float = float("inf")

    def check(self) -> None:
        """See Claim."""
        self.checks -= 1
        if self.checks < 0:
            raise NotRunningHere("example")

    def lost(self, error: CanalError) -> None:
        """See Claim."""


@pytest.mark.parametrize("checks", [0, 1, 2])
def test_a_known_client_is_not_told_a_cursor_by_a_node_whose_lease_is_over(checks: int) -> None:
    """The subscription of a known client writes nothing that ZooKeeper could refuse.

    checks: before the subscription, behind its filter, or also while it is answered.
    """
    lease = Lease()
    node = OneNode(lease)
    node.claim()
    now(node.embedded.subscribe(IDENTITY))
    lease.checks = checks
    with pytest.raises(NotRunningHere):
        now(node.embedded.subscribe(IDENTITY))


def test_a_node_whose_lease_is_over_unsubscribes_nobody() -> None:
    """The client's cursor belongs to the node that has taken over."""
    lease = Lease()
    node = OneNode(lease)
    node.claim()
    now(node.embedded.subscribe(IDENTITY))
    lease.checks = 0
    with pytest.raises(NotRunningHere):
        now(node.embedded.unsubscribe(IDENTITY))
    assert node.instance.meta.cursor(1001) is not None
