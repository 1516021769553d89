"""The durable state of one destination: a snapshot, the changes to it, and the protocol of backends that store it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from canal_ha.model.identity import ClientIdentity
from canal_ha.model.position import LogPosition


@dataclass(frozen=True, slots=True)
class CursorMoved:
    """The client's cursor moved to this position."""

    client_id: int
    position: LogPosition


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The client subscribed. A blank filter neither writes nor clears the stored one (docs/protocol.md#znodes)."""

    identity: ClientIdentity


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """The client unsubscribed; its cursor and filter are removed."""

    client_id: int


@dataclass(frozen=True, slots=True)
class StartKept:
    """The position where the first client of the destination will begin."""

    position: LogPosition


@dataclass(frozen=True, slots=True)
class StartForgotten:
    """The first client has its cursor, so the kept start is void."""


@dataclass(frozen=True, slots=True)
class ServersChosen:
    """The destination reads from these servers: host:port for each of its sources; "" for one that never switched."""

    addresses: tuple[str, ...]


Change = CursorMoved | Subscribed | Unsubscribed | StartKept | StartForgotten | ServersChosen


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The durable state of one destination.

    clients, cursors: by client id.
    start: kept for the first client.
    servers: see ServersChosen; () before the first switch.
    unreadable: why the cursor or the filter of a stored client cannot be read, by client id; it is not in `clients`.
    """

    clients: dict[int, ClientIdentity] = field(default_factory=dict)
    cursors: dict[int, LogPosition] = field(default_factory=dict)
    start: LogPosition | None = None
    servers: tuple[str, ...] = ()
    unreadable: dict[int, str] = field(default_factory=dict)


class MetaBackend(Protocol):
    """Stores one destination's snapshot. Meta never starts a call while another one is running."""

    async def load(self) -> Snapshot:
        """Return the stored snapshot. Raises MetaUnreadable."""
        ...

    async def write(self, changes: tuple[Change, ...]) -> None:
        """Make all changes durable, in their order.

        Raises MetaWriteFailed (try again) or Fenced. Then a first part of them, or all, may be durable or become so.
        Raises ClientsRefused if only the changes of some clients are not durable.
        """
        ...

    async def holder(self, client_id: int) -> str:
        """Return which process has the lock of a client id; "" if none has. Raises ZooKeeperUnavailable."""
        ...


class CursorLoss(Enum):
    """How a stored cursor got lost."""

    DELETED = "deleted"
    MALFORMED = "malformed"  # somebody has written what is no cursor
    OLDER = "older"  # the store has been restored from a backup


class CursorEdits(Protocol):
    """Hears what an operator does to stored cursors. A backend calls it between `load` and the end of its ownership."""

    def cursor_replaced(self, client_id: int, cursor: LogPosition) -> None:
        """The operator wrote this client's cursor: go on from there."""
        ...

    def cursor_lost(self, client_id: int, loss: CursorLoss) -> None:
        """The store has lost this client's cursor: write it again."""
        ...

    def client_mended(self, identity: ClientIdentity, cursor: LogPosition | None) -> None:
        """The operator repaired a client that was unreadable: from now on it counts as subscribed."""
        ...

    def nodes_skipped(self, text: str) -> None:
        """The backend goes on without nodes that it cannot use. text: names some of them."""
        ...


OpenBackend = Callable[[CursorEdits], MetaBackend]


def same_or_filled(old: ClientIdentity | None, new: ClientIdentity) -> ClientIdentity:
    """Return `new`; if its filter is blank, return `old`, if any."""
    return old if old is not None and not new.filter.strip() else new


def apply(snapshot: Snapshot, changes: Iterable[Change]) -> Snapshot:
    """Return the snapshot after these changes; the given one is unchanged."""
    clients, cursors, start = dict(snapshot.clients), dict(snapshot.cursors), snapshot.start
    servers, unreadable = snapshot.servers, dict(snapshot.unreadable)
    for change in changes:
        match change:
            case CursorMoved(client_id, position):
                cursors[client_id] = position
                unreadable.pop(client_id, None)
            case Subscribed(identity):
                unreadable.pop(identity.client_id, None)
                clients[identity.client_id] = same_or_filled(clients.get(identity.client_id), identity)
            case Unsubscribed(client_id):
                clients.pop(client_id, None)
                cursors.pop(client_id, None)
                unreadable.pop(client_id, None)
            case StartKept(position):
                start = position
            case StartForgotten():
                start = None
            case ServersChosen(addresses):
                servers = addresses
    return Snapshot(clients, cursors, start, servers, unreadable)
