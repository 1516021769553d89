"""The two claims that an instance of a node can have: one in ZooKeeper, and one on a node of its own."""

from __future__ import annotations

from collections.abc import Callable

from canal_ha.cluster.ownership import Ownership
from canal_ha.errors import CanalError, Fenced, NotRunningHere


class OwnedClaim:
    """Implements instance.Claim while this node owns the destination in ZooKeeper."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership

    def check(self) -> None:
        """Raise NotRunningHere when the lease is over."""
        if not self._ownership.lease_ok():
            raise NotRunningHere(self._ownership.destination)

    def lost(self, error: CanalError) -> None:
        """Let another node try. After a Fenced write the race steps down by itself, and knows the reason."""
        if not isinstance(error, Fenced):
            self._ownership.failed(str(error))


class UndisputedClaim:
    """Implements instance.Claim on a node without ZooKeeper, where nobody else runs the destination."""

    def __init__(self, gave_up: Callable[[CanalError], None]) -> None:
        self._gave_up = gave_up

    def check(self) -> None:
        """Do nothing: the claim is always good."""

    def lost(self, error: CanalError) -> None:
        """Hand the error to the node, which starts the instance again."""
        self._gave_up(error)
