"""What cursors need of ZooKeeper: nodes, transactions and watches, behind one small Protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Znode:
    """A node as read. version: of its data; owner: session id of an ephemeral node, 0 for a persistent one."""

    data: bytes
    version: int
    owner: int = 0


@dataclass(frozen=True, slots=True)
class Check:
    """The node must exist and its data be at this version."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """The node must not exist, its parent must."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """version: what the data must be at, -1 for any."""

    path: str
    data: bytes
    version: int = -1


@dataclass(frozen=True, slots=True)
class Delete:
    """The node must exist and have no children. version: as for SetData."""

    path: str
    version: int = -1


Operation = Check | Create | SetData | Delete


class Znodes(Protocol):
    """A ZooKeeper session as cursors see it. Every method raises ZooKeeperUnavailable."""

    async def get(self, path: str) -> Znode | None:
        """The node, None when there is none."""
        ...

    async def children(self, path: str) -> tuple[str, ...]:
        """Names of the node's children, sorted; none when there is no such node."""
        ...

    async def transaction(self, operations: Sequence[Operation]) -> tuple[int, ...]:
        """Do all or nothing. Returns per operation the data version its node has now, 0 for a deleted one.

        Raises TransactionRefused when an operation did not fit. After ZooKeeperUnavailable it may be done or not.
        """
        ...

    def watch(self, path: str, changed: Callable[[Znode | None], None]) -> None:
        """From now on call `changed` with the node as it is (None: gone) whenever it may have changed."""
        ...
