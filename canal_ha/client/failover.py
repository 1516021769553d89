"""Which node next, and when: a cluster connector's decisions as a pure machine.

See docs/protocol.md#cluster-connector.

    CLOSED ── Open ──► STANDBY ── Activated ──► DIALLING ── Dialled ──► ONLINE
                          ▲                      │    ▲                   │
                          │                    Failed └── Tick, Moved     │
                          │                      ▼    │                   │
                          │                     RESTING ◄──── Failed ─────┤
                          └──────────────────── Deactivated ──────────────┘

Without ZooKeeper nobody has to wait for a turn: Open leads to DIALLING. Every connection has a number, its attempt;
what is said of an attempt that is over is not heard. A node that `running` names is dialled at once, whatever the
back-off was, and a connection to any other node is closed then, so that a frozen node holds nobody up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from canal_ha.client.discovery import ServerNode

RETRY_FIRST_S = 0.1  # after the retry at once; doubles up to `interval_s`
REFUSALS = 8  # in a row, before a caller is told, even when it retries for ever: asking again seems not to help


class ConnectorState(Enum):
    """Where the connector stands. DIALLING: `node` is to be connected to as `attempt`, by whoever next needs it."""

    CLOSED = auto()
    STANDBY = auto()
    DIALLING = auto()
    RESTING = auto()
    ONLINE = auto()


class FailureKind(Enum):
    """What went wrong. LOST: the connection, or the destination does not run there; REFUSED: the server said no;
    FATAL: it will always say no.
    """

    LOST = auto()
    REFUSED = auto()
    FATAL = auto()


# ---- inputs


@dataclass(frozen=True, slots=True)
class Open:
    """Connect. waits: not before Activated."""

    waits: bool


@dataclass(frozen=True, slots=True)
class Close:
    """Be done."""


@dataclass(frozen=True, slots=True)
class Activated:
    """This process is the client id's active one."""


@dataclass(frozen=True, slots=True)
class Deactivated:
    """It is not any more."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The directory has news."""


@dataclass(frozen=True, slots=True)
class Dialled:
    """The attempt led to a connection, subscribed and rolled back."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Worked:
    """A request on the attempt's connection was answered: the next failure is a new one."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt, or a request on its connection, failed."""

    attempt: int
    kind: FailureKind


@dataclass(frozen=True, slots=True)
class Tick:
    """Time went on; due at `wakes_at`, harmless at any other time."""


Input = Open | Close | Activated | Deactivated | Moved | Dialled | Worked | Failed | Tick

# ---- commands


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close the connection of this attempt, from whatever thread, whoever waits on it."""

    attempt: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Tell the caller of the last error. The next call tries again."""

    tries: int


Command = HangUp | GiveUp


class Directory(Protocol):
    """Where nodes are found. runs: who runs the destination for certain, None when that is not known."""

    @property
    def runs(self) -> ServerNode | None: ...

    def next(self) -> ServerNode | None: ...


class Failover:
    """retry_times: failures in a row before the caller is told, None for never; interval_s: the longest back-off;
    uniform: as random.uniform.
    """

    def __init__(
        self,
        directory: Directory,
        *,
        retry_times: int | None,
        interval_s: float,
        uniform: Callable[[float, float], float],
    ) -> None:
        self.state = ConnectorState.CLOSED
        self.node: ServerNode | None = None
        self.attempt = 0
        self.failures = 0  # in a row
        self._directory = directory
        self._retry_times = retry_times
        self._interval_s = interval_s
        self._uniform = uniform
        self._in_vain = 0  # failures in a row, since a node was last named
        self._tries = 0  # failures the caller was not told of
        self._refusals = 0
        self._rest_until = 0.0

    @property
    def wakes_at(self) -> float | None:
        """When Tick is due, None when only facts can change anything."""
        return self._rest_until if self.state is ConnectorState.RESTING else None

    def step(self, event: Input, now: float) -> list[Command]:
        """Feed one fact; return what to do, in order. now: seconds, monotonic."""
        handler = TABLE.get((self.state, type(event)))
        return [] if handler is None else handler(self, event, now)

    # ---- opening, closing, turns

    def _open(self, event: Open, now: float) -> list[Command]:
        self._forget_failures()
        if not event.waits:
            return self._dial(now)
        self.state = ConnectorState.STANDBY
        return []

    def _close(self, event: Close, now: float) -> list[Command]:
        return self._leave_node(ConnectorState.CLOSED)

    def _deactivated(self, event: Deactivated, now: float) -> list[Command]:
        return self._leave_node(ConnectorState.STANDBY)

    def _activated(self, event: Activated, now: float) -> list[Command]:
        self._forget_failures()
        return self._dial(now)

    def _leave_node(self, state: ConnectorState) -> list[Command]:
        self.state = state
        return [HangUp(self.attempt)]

    # ---- dialling

    def _dial(self, now: float) -> list[Command]:
        self.node = self._directory.next()
        self.attempt += 1
        self.state = ConnectorState.DIALLING
        return self._fail(FailureKind.LOST, now) if self.node is None else []

    def _dialled(self, event: Dialled, now: float) -> list[Command]:
        if event.attempt == self.attempt:
            self.state = ConnectorState.ONLINE
        return []

    def _worked(self, event: Worked, now: float) -> list[Command]:
        if event.attempt == self.attempt:
            self._forget_failures()
        return []

    def _failed(self, event: Failed, now: float) -> list[Command]:
        return self._fail(event.kind, now) if event.attempt == self.attempt else []

    def _fail(self, kind: FailureKind, now: float) -> list[Command]:
        self.failures += 1
        self._in_vain += 1
        self._tries += 1
        self._refusals = self._refusals + 1 if kind is FailureKind.REFUSED else 0
        self.state = ConnectorState.RESTING
        self._rest_until = now + self._rest_s()
        told = kind is FailureKind.FATAL or self._refusals >= REFUSALS
        if told or (self._retry_times is not None and self._tries >= self._retry_times):
            tries, self._tries, self._refusals = self._tries, 0, 0
            return [HangUp(self.attempt), GiveUp(tries)]
        return [HangUp(self.attempt)]

    def _rest_s(self) -> float:
        """Nothing after the first failure, then twice as long each time, a part of it at random."""
        if self._in_vain < 2:
            return 0.0
        longest = min(self._interval_s, RETRY_FIRST_S * 2.0 ** min(self._in_vain - 2, 16))
        return longest * self._uniform(0.5, 1.0)

    def _rested(self, event: Tick, now: float) -> list[Command]:
        return self._dial(now) if now >= self._rest_until else []

    # ---- news

    def _moved_while_resting(self, event: Moved, now: float) -> list[Command]:
        runs = self._directory.runs
        if runs is not None and runs != self.node:
            return self._dial_news(now)
        return self._dial(now) if self.node is None and self._directory.next() is not None else []

    def _moved(self, event: Moved, now: float) -> list[Command]:
        runs = self._directory.runs
        if runs is None or self.node is None:
            return []
        if runs.address == self.node.address and self.node.generation in (0, runs.generation):
            self.node = runs
            return []
        hang_up = HangUp(self.attempt)
        return [hang_up, *self._dial_news(now)]

    def _dial_news(self, now: float) -> list[Command]:
        """A node that was just named may not be ready yet: should it say so, its back-off begins anew."""
        self._in_vain = 0
        return self._dial(now)

    def _forget_failures(self) -> None:
        self.failures = self._in_vain = self._tries = self._refusals = 0


_OPEN = (ConnectorState.STANDBY, ConnectorState.DIALLING, ConnectorState.RESTING, ConnectorState.ONLINE)

TABLE: dict[tuple[ConnectorState, type], Callable[..., list[Command]]] = {
    (ConnectorState.CLOSED, Open): Failover._open,
    **{(state, Close): Failover._close for state in _OPEN},
    **{(state, Deactivated): Failover._deactivated for state in _OPEN},
    (ConnectorState.STANDBY, Activated): Failover._activated,
    (ConnectorState.DIALLING, Dialled): Failover._dialled,
    (ConnectorState.DIALLING, Failed): Failover._failed,
    (ConnectorState.DIALLING, Moved): Failover._moved,
    (ConnectorState.ONLINE, Worked): Failover._worked,
    (ConnectorState.ONLINE, Failed): Failover._failed,
    (ConnectorState.ONLINE, Moved): Failover._moved,
    (ConnectorState.RESTING, Moved): Failover._moved_while_resting,
    (ConnectorState.RESTING, Tick): Failover._rested,
}
"""(state, input) -> what is done; anything else changes nothing."""
