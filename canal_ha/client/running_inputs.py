"""What a client's race is told and what it answers: the vocabulary of running.py.

Inputs are ZooKeeper facts, answers to earlier commands, and wishes of the connector. An answer carries the ticket of
the command it belongs to. Commands are executed by coordination.py; `operations` says what each writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from canal_ha.zookeeper.operations import Check, Create, Delete, Operation, SetData
from canal_ha.zookeeper.tree import RunningData


class Reason(Enum):
    """Why this process is not active any more."""

    STOPPED = "stopped"
    OPERATOR = "an operator set active to false"
    SESSION_LOST = "ZooKeeper session lost"
    LEASE_OVER = "no answer from ZooKeeper within the lease"
    TAKEN = "another process holds the node"
    VANISHED = "the node was deleted"


@dataclass(frozen=True, slots=True)
class Seen:
    """The node as read. owner: session id; version: its data version."""

    owner: int
    version: int
    address: str
    active: bool = True


# ---- inputs


@dataclass(frozen=True, slots=True)
class Join:
    """Take part in the race."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Let go in good order and take no further part; ends in Left."""


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
    """The watch fired. deleted: the node vanished; otherwise it was created or its data changed."""

    deleted: bool


@dataclass(frozen=True, slots=True)
class Looked:
    """Answer to Look: the node, None when there is none."""

    ticket: int
    seen: Seen | None


@dataclass(frozen=True, slots=True)
class Held:
    """Answer to Claim, Rewrite or Probe: the node is ours, its data at `version`. sent_at: when that was asked."""

    ticket: int
    version: int
    sent_at: float


@dataclass(frozen=True, slots=True)
class Refused:
    """Answer to Claim, Rewrite or Probe: the tree is not as it was when we looked. Nothing was done."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Instead of an answer to Look, Claim, Rewrite or Probe: none to be had, or an error nobody foresaw."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Released:
    """Answer to Release, whatever came of it."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Connected:
    """This process is connected to a node now. local_address: ip:port of its end of the socket."""

    local_address: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time went on; due at `wakes_at`, harmless at any other time."""


Input = (
    Join
    | Leave
    | SessionUp
    | SessionSuspended
    | SessionLost
    | NodeEvent
    | Looked
    | Held
    | Refused
    | Unanswered
    | Released
    | Connected
    | Tick
)

# ---- commands


@dataclass(frozen=True, slots=True)
class Look:
    """Read the node, leaving a watch."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Claim:
    """Make the node ours with this data, in one transaction.

    held: version of one that is ours already and stays; leftover: version of one of an earlier session of this
    process, replaced; neither: create it, with its parents when they are missing.
    """

    ticket: int
    data: RunningData
    held: int | None = None
    leftover: int | None = None


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Set the data of our node, which is at `version`."""

    ticket: int
    data: RunningData
    version: int


@dataclass(frozen=True, slots=True)
class Probe:
    """A quorum write that changes nothing: check our node at `version`."""

    ticket: int
    version: int


@dataclass(frozen=True, slots=True)
class Release:
    """One transaction: set the node to inactive, so that those who stand by see an orderly end, and delete it."""

    ticket: int
    data: RunningData
    version: int


@dataclass(frozen=True, slots=True)
class Activate:
    """This process is the active one."""


@dataclass(frozen=True, slots=True)
class Deactivate:
    """It is not any more: close the connection to the node at once."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class StandingBy:
    """Another process is active; its address, for the log."""

    address: str


@dataclass(frozen=True, slots=True)
class Left:
    """Leave is done."""


Command = Look | Claim | Rewrite | Probe | Release | Activate | Deactivate | StandingBy | Left

Writing = Claim | Rewrite | Probe | Release


def operations(command: Writing, path: str) -> tuple[Operation, ...]:
    """The one transaction that carries out a command. path: of the client's `running` node."""
    match command:
        case Claim(_, data, held, leftover):
            if held is not None:
                return (SetData(path, data.to_bytes(), held),)
            replaced = () if leftover is None else (Delete(path, leftover),)
            return (*replaced, Create(path, data.to_bytes(), ephemeral=True))
        case Rewrite(_, data, version):
            return (SetData(path, data.to_bytes(), version),)
        case Probe(_, version):
            return (Check(path, version),)
        case Release(_, data, version):
            return (SetData(path, data.to_bytes(), version), Delete(path))
