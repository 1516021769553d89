"""What a race is told and what it answers: the vocabulary of running.py.

Inputs are ZooKeeper facts, answers to earlier commands, and wishes of the node. An answer carries the ticket of the
command it belongs to; an answer to an older ticket is out of date. Commands are executed by election.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class StopReason(Enum):
    """Why an instance stops. Orderly ones may flush first; after the others nothing can be made durable any more."""

    SHUTDOWN = "orderly stop"
    HAND_OVER = "handed over on request"
    OPERATOR = "an operator set active to false"
    FAILED = "the instance failed"
    SESSION_LOST = "session lost"
    LEASE_OVER = "no answer from ZooKeeper within the lease"
    FENCED = "another claim moved the epoch"
    TAKEN = "running belongs to another session"
    VANISHED = "running was deleted"
    RESET = "the destination was deleted"

    @property
    def orderly(self) -> bool:
        """Ownership still holds: flush cursors, then let go."""
        return self in (StopReason.SHUTDOWN, StopReason.HAND_OVER, StopReason.OPERATOR, StopReason.FAILED)


@dataclass(frozen=True, slots=True)
class Running:
    """The `running` node as read. owner: session id; version: its data version."""

    owner: int
    version: int
    address: str
    active: bool = True


# ---- inputs


@dataclass(frozen=True, slots=True)
class SessionUp:
    """Connected; a new session when `session_id` differs from the last one. timeout_s: as negotiated."""

    session_id: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class SessionSuspended:
    """The connection is gone, the session perhaps not."""


@dataclass(frozen=True, slots=True)
class SessionLost:
    """The session is gone, and its ephemeral nodes with it (or soon)."""


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A watch fired. deleted: a node vanished; otherwise it was created or its data changed."""

    deleted: bool


@dataclass(frozen=True, slots=True)
class Looked:
    """Answer to Look. version: data version of `{d}`, read first, None when there is no such node."""

    ticket: int
    version: int | None
    running: Running | None


@dataclass(frozen=True, slots=True)
class LookFailed:
    """Answer to Look: none to be had."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Turn:
    """It is this destination's turn to be claimed."""


@dataclass(frozen=True, slots=True)
class Elapsed:
    """The time of a Wait is over."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """Answer to Claim: ours. epoch: data version of `{d}` after the claim."""

    ticket: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ClaimFailed:
    """Answer to Claim: refused, or (unknown) perhaps done and the answer lost."""

    ticket: int
    unknown: bool = False


@dataclass(frozen=True, slots=True)
class EpochMismatch:
    """A write or probe of ours was refused because `{d}` is not at our epoch any more."""


@dataclass(frozen=True, slots=True)
class LeaseOver:
    """Too long without an answered quorum write."""


@dataclass(frozen=True, slots=True)
class InstanceFailed:
    """The instance could not start, or cannot go on here."""


@dataclass(frozen=True, slots=True)
class InstanceStopped:
    """StopInstance is done."""


@dataclass(frozen=True, slots=True)
class Released:
    """Answer to Release, whatever came of it: what is true now is for the next look."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Join:
    """Take part in the race."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Let go in good order and take no further part."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """Let go in good order, stand by for a while, then take part again."""


Input = (
    SessionUp
    | SessionSuspended
    | SessionLost
    | NodeEvent
    | Looked
    | LookFailed
    | Turn
    | Elapsed
    | Claimed
    | ClaimFailed
    | EpochMismatch
    | LeaseOver
    | InstanceFailed
    | InstanceStopped
    | Released
    | Join
    | Leave
    | HandOver
)

# ---- commands


@dataclass(frozen=True, slots=True)
class Look:
    """Read `{d}`, then `running`, leaving watches on both."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Claim:
    """One transaction that makes `running` ours and moves the epoch.

    version: `{d}` must be at it; None: create `{d}` first. jumps: further writes of `{d}` in the same transaction, so
    that a node which began again at version 0 does not come to an epoch that once was. held: version of a `running`
    node that is ours already and stays; leftover: version of one of an earlier session of this process, replaced.
    """

    ticket: int
    version: int | None
    jumps: int = 0
    held: int | None = None
    leftover: int | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """One fenced transaction: `running` set to inactive and deleted."""

    ticket: int
    epoch: int


@dataclass(frozen=True, slots=True)
class WantTurn:
    """Queue for a claim. step_s: see spread.py."""

    step_s: float


@dataclass(frozen=True, slots=True)
class DropTurn:
    """Leave the queue."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Feed Elapsed after `delay_s`."""

    ticket: int
    delay_s: float


@dataclass(frozen=True, slots=True)
class StartInstance:
    """Start serving. restore: ZooKeeper came back empty; put back the cursors this node last knew to be durable."""

    epoch: int
    restore: bool = False


@dataclass(frozen=True, slots=True)
class StopInstance:
    """Stop serving, then feed InstanceStopped."""

    reason: StopReason


@dataclass(frozen=True, slots=True)
class StandingBy:
    """Another node runs it: for the log and for whoever asks where it runs."""

    address: str


@dataclass(frozen=True, slots=True)
class Left:
    """Leave is done."""


Command = Look | Claim | Release | WantTurn | DropTurn | Wait | StartInstance | StopInstance | StandingBy | Left
