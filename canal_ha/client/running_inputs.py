"""The inputs and commands of a client process's race; race_events.py has those of both races. Pure.

Inputs are events from ZooKeeper, answers to earlier commands, and requests of the connector. coordination.py executes
the commands; `operations` returns the transaction of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from canal_ha.zookeeper.operations import Check, Create, Delete, Operation, SetData
from canal_ha.zookeeper.race_events import (
    Join,
    Leave,
    Left,
    Look,
    NodeEvent,
    Released,
    RunningNode,
    SessionEvent,
    StandingBy,
)
from canal_ha.zookeeper.tree import RunningData


class Reason(Enum):
    """Why this process is no longer active."""

    STOPPED = "stopped"
    OPERATOR = "an operator set active to false"
    SESSION_LOST = "ZooKeeper session lost"
    LEASE_OVER = "no answer from ZooKeeper within the lease"
    TAKEN = "another process holds the node"
    VANISHED = "the node was deleted"


# ---- inputs


@dataclass(frozen=True, slots=True)
class ConsumerSeen:
    """The answer to Look. seen: the node; None if it does not exist."""

    ticket: int
    seen: RunningNode | None


@dataclass(frozen=True, slots=True)
class Held:
    """Claim, Rewrite or Probe succeeded: the node is ours.

    version: the version of its data now.
    sent_at: when the command was sent.
    """

    ticket: int
    version: int
    sent_at: float


@dataclass(frozen=True, slots=True)
class Refused:
    """Claim, Rewrite or Probe was refused because the node changed after it was read. Nothing was written."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Look, Claim, Rewrite or Probe got no answer. A write may have succeeded."""

    ticket: int


@dataclass(frozen=True, slots=True)
class NodeConnected:
    """This process has connected to a node. local_address: ip:port of its own end of the socket."""

    local_address: str


@dataclass(frozen=True, slots=True)
class RaceTick:
    """Time passed; due at `wakes_at`, harmless at other times."""


Input = (
    Join
    | Leave
    | SessionEvent
    | NodeEvent
    | ConsumerSeen
    | Held
    | Refused
    | Unanswered
    | Released
    | NodeConnected
    | RaceTick
)

# ---- commands


@dataclass(frozen=True, slots=True)
class ClaimConsumer:
    """Claim the node with this data in one transaction; without `held` and `leftover`, create it.

    data: the node's new data.
    held: version of a node that is already ours.
    leftover: version of a node of an earlier session of this process; replace it.
    """

    ticket: int
    data: RunningData
    held: int | None = None
    leftover: int | None = None


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Replace the data of our node, which is at `version`."""

    ticket: int
    data: RunningData
    version: int


@dataclass(frozen=True, slots=True)
class Probe:
    """Prove the lease by a quorum write that changes nothing: check our node at `version`."""

    ticket: int
    version: int


@dataclass(frozen=True, slots=True)
class ReleaseConsumer:
    """Set the node to inactive, which shows the others an orderly end, and delete it, in one transaction."""

    ticket: int
    data: RunningData
    version: int


@dataclass(frozen=True, slots=True)
class Activate:
    """This process is active now."""


@dataclass(frozen=True, slots=True)
class Deactivate:
    """This process is no longer active: close its connection to the node at once."""

    reason: Reason


Command = Look | ClaimConsumer | Rewrite | Probe | ReleaseConsumer | Activate | Deactivate | StandingBy | Left

Writing = ClaimConsumer | Rewrite | Probe | ReleaseConsumer


def operations(command: Writing, path: str) -> tuple[Operation, ...]:
    """Return the one transaction that carries out a command. path: the client's `running` node."""
    match command:
        case ClaimConsumer(_, data, held, leftover):
            if held is not None:
                return (SetData(path, data.to_bytes(), held),)
            replaced = () if leftover is None else (Delete(path, leftover),)
            return (*replaced, Create(path, data.to_bytes(), ephemeral=True))
        case Rewrite(_, data, version):
            return (SetData(path, data.to_bytes(), version),)
        case Probe(_, version):
            return (Check(path, version),)
        case ReleaseConsumer(_, data, version):
            return (SetData(path, data.to_bytes(), version), Delete(path))
