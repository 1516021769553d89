"""Facts, requests and commands shared by the race for a destination and the race for a client id (pure).

Nodes race for `{d}/running`, client processes for `{d}/{c}/running`. Each race adds its own in cluster/inputs.py and
client/running_inputs.py. An answer carries the ticket of its command; an answer with an older ticket is out of date.
"""

from __future__ import annotations

from dataclasses import dataclass

from canal_ha.zookeeper.operations import Znode
from canal_ha.zookeeper.tree import RunningData


@dataclass(frozen=True, slots=True)
class RunningNode:
    """A `running` node as it was read.

    owner: the id of the session that holds it.
    version: the version of its data.
    address: the owner's address.
    active: False if an operator asked the owner to release the node, or the owner is releasing it.
    successor: the node to which the owner hands the destination, or shall hand it; "" for none.
    """

    owner: int
    version: int
    address: str
    active: bool = True
    successor: str = ""

    @classmethod
    def read(cls, node: Znode | None) -> RunningNode | None:
        """Decode a node, whoever wrote it; None if there is none."""
        if node is None:
            return None
        data = RunningData.from_bytes(node.data)
        return cls(node.owner, node.version, data.address, data.active, data.successor)


# ---- facts


@dataclass(frozen=True, slots=True)
class SessionUp:
    """The session is connected. It is a new one if `session_id` differs from the last. timeout_s: as negotiated."""

    session_id: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class SessionSuspended:
    """The connection is gone; the session may still live."""


@dataclass(frozen=True, slots=True)
class SessionLost:
    """The session is gone. Its ephemeral nodes are gone too, or will be soon."""


SessionEvent = SessionUp | SessionSuspended | SessionLost


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A watch fired. deleted: the node vanished; otherwise somebody created it or changed its data."""

    deleted: bool


@dataclass(frozen=True, slots=True)
class Released:
    """The answer to Release, whether it succeeded or not. The next look shows the actual state."""

    ticket: int


# ---- requests of the owner


@dataclass(frozen=True, slots=True)
class Join:
    """Take part in the race."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Release the node in good order and leave the race; ends in Left."""


# ---- commands


@dataclass(frozen=True, slots=True)
class Look:
    """Read the contested node and watch it. A node of the cluster reads and watches `{d}` first."""

    ticket: int


@dataclass(frozen=True, slots=True)
class StandingBy:
    """Somebody else holds the node. address: the owner's, for the log and for status requests."""

    address: str


@dataclass(frozen=True, slots=True)
class Left:
    """Leave is done."""
