"""Inputs and commands of a node's race for a destination; race_events.py has those that both races share (pure).

Inputs are facts from ZooKeeper, answers to earlier commands, and requests of the node. election.py executes commands.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

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


class StopReason(Enum):
    """Why an instance stops. After an orderly reason it may flush first; otherwise it must write nothing."""

    SHUTDOWN = "orderly stop"
    HAND_OVER = "handed over on request"
    OPERATOR = "an operator set active to false"
    PAUSED = "an operator paused the destination"
    FAILED = "the instance failed"
    SESSION_LOST = "session lost"
    LEASE_OVER = "no answer from ZooKeeper within the lease"
    FENCED = "another claim moved the epoch"
    TAKEN = "running belongs to another session"
    VANISHED = "running was deleted"
    RESET = "the destination was deleted"

    @property
    def orderly(self) -> bool:
        """Whether ownership still holds, so that the instance can flush its cursors before the node releases it."""
        return self in _ORDERLY


_ORDERLY = (StopReason.SHUTDOWN, StopReason.HAND_OVER, StopReason.OPERATOR, StopReason.PAUSED, StopReason.FAILED)


# ---- inputs


@dataclass(frozen=True, slots=True)
class DestinationSeen:
    """The answer to Look.

    version: the data version of `{d}`, which was read first; None when it does not exist.
    running: the `running` node; None when it does not exist.
    created: the czxid of `{d}`; 0 when it does not exist or is unknown.
    paused: an operator keeps the destination stopped.
    """

    ticket: int
    version: int | None
    running: RunningNode | None
    created: int = 0
    paused: bool = False


@dataclass(frozen=True, slots=True)
class LookFailed:
    """ZooKeeper did not answer the Look."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Turn:
    """The node may claim this destination now."""


@dataclass(frozen=True, slots=True)
class Elapsed:
    """The delay of a Wait is over."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """The claim was done. epoch: the data version of `{d}` after it."""

    ticket: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ClaimFailed:
    """The claim failed. unknown: its answer was lost, so it may have succeeded."""

    ticket: int
    unknown: bool = False


@dataclass(frozen=True, slots=True)
class EpochMismatch:
    """ZooKeeper refused a write or probe of ours because `{d}` has left our epoch."""


@dataclass(frozen=True, slots=True)
class LeaseOver:
    """The lease ended: no quorum write was answered for too long."""


@dataclass(frozen=True, slots=True)
class CursorsLoaded:
    """The instance has loaded its cursors. A restore is durable then."""


@dataclass(frozen=True, slots=True)
class InstanceFailed:
    """The instance could not start, or cannot continue here."""


@dataclass(frozen=True, slots=True)
class InstanceStopped:
    """StopInstance is done."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """Release the destination in good order, stand by for a while, then race again."""


Input = (
    SessionEvent
    | NodeEvent
    | DestinationSeen
    | LookFailed
    | Turn
    | Elapsed
    | Claimed
    | ClaimFailed
    | EpochMismatch
    | LeaseOver
    | CursorsLoaded
    | InstanceFailed
    | InstanceStopped
    | Released
    | Join
    | Leave
    | HandOver
)

# ---- commands


@dataclass(frozen=True, slots=True)
class ClaimDestination:
    """Make `running` ours and move the epoch, in one transaction.

    version: the required version of `{d}`; None: create `{d}` first.
    jumps: how often to write `{d}` again in this transaction, so that a node recreated at version 0, or restored at an
    earlier version, does not repeat an old epoch.
    held: version of a `running` node that is already ours and stays.
    leftover: version of a `running` node of an earlier session of this process; replace it.
    """

    ticket: int
    version: int | None
    jumps: int = 0
    held: int | None = None
    leftover: int | None = None


@dataclass(frozen=True, slots=True)
class ReleaseDestination:
    """Set `running` to inactive and delete it, in one fenced transaction."""

    ticket: int
    epoch: int


@dataclass(frozen=True, slots=True)
class OfferDestination:
    """Set `running` to inactive and name the successor, in one fenced transaction. Answered with Released."""

    ticket: int
    epoch: int
    successor: str


@dataclass(frozen=True, slots=True)
class RewriteRunning:
    """Write our address into our `running`, which is at `version`, in a fenced transaction. It has no answer."""

    epoch: int
    version: int


@dataclass(frozen=True, slots=True)
class WantTurn:
    """Join the queue of claims. step_s: see spread.py."""

    step_s: float


@dataclass(frozen=True, slots=True)
class DropTurn:
    """Leave the queue of claims."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Feed Elapsed after `delay_s`."""

    ticket: int
    delay_s: float


@dataclass(frozen=True, slots=True)
class StartInstance:
    """Start to serve. restore: ZooKeeper has lost data; write back the cursors that this node knew to be durable."""

    epoch: int
    restore: bool = False


@dataclass(frozen=True, slots=True)
class StopInstance:
    """Stop serving, then feed InstanceStopped."""

    reason: StopReason


Command = (
    Look
    | ClaimDestination
    | ReleaseDestination
    | OfferDestination
    | RewriteRunning
    | WantTurn
    | DropTurn
    | Wait
    | StartInstance
    | StopInstance
    | StandingBy
    | Left
)
