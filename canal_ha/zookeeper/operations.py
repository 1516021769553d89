"""Znodes, the operations of a transaction, and the small Protocol through which the cursor store uses a session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from canal_ha.errors import ZnodeDenied


@dataclass(frozen=True, slots=True)
class Znode:
    """A node as it was read.

    data: empty also when the node holds null, as nodes made by Java programs often do.
    version: the version of its data.
    owner: the session id of an ephemeral node; 0 for a persistent one.
    created: its czxid, which no other node shares; 0 when unknown. Comparisons ignore it: a writer does not learn it.
    """

    data: bytes
    version: int
    owner: int = 0
    created: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Check:
    """Demand that the node exists and that its data is at this version."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """Create the node. It must not exist; its parent must."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Replace the data. version: the version that the data must be at, -1 for any."""

    path: str
    data: bytes
    version: int = -1


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the node. It must exist and have no children. version: as for SetData."""

    path: str
    version: int = -1


Operation = Check | Create | SetData | Delete


Watch = Callable[[bool], None]
"""Called once when a node has changed, with whether it was deleted."""


class Znodes(Protocol):
    """A ZooKeeper session as the cursor store sees it. Every method raises ZooKeeperUnavailable."""

    async def get(self, path: str) -> Znode | None:
        """Return the node, or None when it does not exist."""
        ...

    async def get_all(self, paths: Sequence[str]) -> tuple[Znode | ZnodeDenied | None, ...]:
        """Return the node at each path, as `get` does, or the error if only its rights forbid to read it.

        All are asked for before the first answer.
        """
        ...

    async def children(self, path: str) -> tuple[str, ...]:
        """Return the sorted names of the node's children; none when the node does not exist."""
        ...

    async def transaction(self, operations: Sequence[Operation]) -> tuple[int, ...]:
        """Do all operations or none. Return each node's data version afterwards, 0 for a deleted node.

        Raises TransactionRefused when an operation did not fit. After ZooKeeperUnavailable nobody knows whether the
        transaction was done.
        """
        ...

    def watch(self, path: str, changed: Callable[[Znode | None], None]) -> None:
        """Call `changed` with the node whenever it may have changed; with None when it is gone.

        A node that this session may not read yet is tried again until it may.
        """
        ...
