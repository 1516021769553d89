"""ReactorZnodes: the node's ZooKeeper session for threads that wait for its answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from canal_ha.cluster.ownership import Ownership
from canal_ha.errors import ZooKeeperUnavailable
from canal_ha.instance.from_thread import answer_of
from canal_ha.instance.stream import Reactor
from canal_ha.zookeeper.operations import Operation, Znode

ANSWER_WITHIN_S = 10.0  # without a connection the session refuses at once, so this is a slow ensemble

T = TypeVar("T")


class ReactorZnodes:
    """Implements source.history.WaitingZnodes. Any thread except the reactor's."""

    def __init__(self, ownership: Ownership, reactor: Reactor) -> None:
        """ownership: of the destination; its lease guards every write. reactor: Twisted's."""
        self._ownership = ownership
        self._reactor = reactor

    def get(self, path: str) -> Znode | None:
        """See WaitingZnodes."""
        return self._answer(lambda: self._ownership.get(path))

    def children(self, path: str) -> tuple[str, ...]:
        """See WaitingZnodes."""
        return self._answer(lambda: self._ownership.children(path))

    def transaction(self, operations: Sequence[Operation]) -> tuple[int, ...]:
        """See WaitingZnodes."""
        return self._answer(lambda: self._ownership.transaction(operations))

    def _answer(self, request: Callable[[], Awaitable[T]]) -> T:
        try:
            return answer_of(self._reactor, request, ANSWER_WITHIN_S)
        except TimeoutError:
            raise ZooKeeperUnavailable(f"ZooKeeper has not answered for {ANSWER_WITHIN_S:g} s") from None
