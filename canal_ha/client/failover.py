"""Decides which node a cluster connector tries next, and when. A pure state machine.

See docs/protocol.md#cluster-connector.

    CLOSED ── Open ──► STANDBY ── Activated ──► DIALLING ── Dialled ──► ONLINE
                          ▲                      │    ▲                   │
                          │                    Failed └── Tick, Moved     │
                          │                      ▼    │                   │
                          │                     RESTING ◄──── Failed ─────┤
                          └──────────────────── Deactivated ──────────────┘

Without ZooKeeper there is no race for the client id: Open leads to DIALLING. Every connection has a number, its
    attempt; events of an earlier attempt are ignored. A node that `running` newly names is dialled at once, whatever
    the back-off was. A connection to any other node is then closed, so that a frozen node blocks no client.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from canal_ha.client.discovery import ServerNode

RETRY_FIRST_S = 0.1  # after the immediate first retry; doubles up to `interval_s`
REFUSALS = 8  # consecutive refusals before the caller gets the error, even if it retries forever


class ConnectorState(Enum):
    """The state of the connector. DIALLING: the next call that needs a connection connects to `node` as `attempt`."""

    CLOSED = auto()
    STANDBY = auto()
    DIALLING = auto()
    RESTING = auto()
    ONLINE = auto()


class FailureKind(Enum):
    """The kind of a failure.

    LOST: the connection failed, or the destination does not run there.
    REFUSED: the server refused the request.
    FATAL: the server would refuse every retry.
    TURN_OVER: this process's turn was over for a moment. Nothing is wrong with the node, and no retry is used up.
    """

    LOST = auto()
    REFUSED = auto()
    FATAL = auto()
    TURN_OVER = auto()


# ---- inputs


@dataclass(frozen=True, slots=True)
class Open:
    """Connect. waits: wait for Activated first."""

    waits: bool


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connector."""


@dataclass(frozen=True, slots=True)
class Activated:
    """This process became the active one of its client id."""


@dataclass(frozen=True, slots=True)
class Deactivated:
    """This process is no longer active."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The directory changed."""


@dataclass(frozen=True, slots=True)
class Dialled:
    """The attempt connected, subscribed and rolled back."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Worked:
    """A request on the attempt's connection was answered; failures count from 0 again."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt, or a request on its connection, failed."""

    attempt: int
    kind: FailureKind


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed; due at `wakes_at`, harmless at other times."""


Input = Open | Close | Activated | Deactivated | Moved | Dialled | Worked | Failed | Tick

# ---- commands


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close the connection of this attempt, on any thread, even if a call waits on it."""

    attempt: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Raise the last error in the caller. The next call tries again."""

    tries: int


Command = HangUp | GiveUp


class Directory(Protocol):
    """Where nodes are found. runs: the owner of the destination; None if unknown."""

    @property
    def runs(self) -> ServerNode | None: ...

    def next(self) -> ServerNode | None: ...


class Failover:
    """The machine.

    directory: where nodes are found.
    retry_times: consecutive failures before the caller gets the error; None: retry forever.
    interval_s: longest back-off, s.
    uniform: like random.uniform.
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
        self.failures = 0  # consecutive failures
        self._directory = directory
        self._retry_times = retry_times
        self._interval_s = interval_s
        self._uniform = uniform
        self._backoff_failures = 0  # consecutive failures since a node was last named
        self._tries = 0  # failures since the caller last got an error
        self._refusals = 0
        self._rest_until = 0.0

    @property
    def wakes_at(self) -> float | None:
        """When Tick is due; None if only other events change the state."""
        return self._rest_until if self.state is ConnectorState.RESTING else None

    def step(self, event: Input, now: float) -> list[Command]:
        """Handle one event; return the commands, in order. now: seconds, monotonic."""
        handler = TABLE.get((self.state, type(event)))
        return [] if handler is None else handler(self, event, now)

    # ---- opening, closing, activity

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
        if event.attempt != self.attempt:
            return []
        if event.kind is FailureKind.TURN_OVER:
            hang_up = HangUp(self.attempt)
            return [hang_up, *self._dial(now)]
        return self._fail(event.kind, now)

    def _fail(self, kind: FailureKind, now: float) -> list[Command]:
        self.failures += 1
        self._backoff_failures += 1
        self._tries += 1
        self._refusals = self._refusals + 1 if kind is FailureKind.REFUSED else 0
        self.state = ConnectorState.RESTING
        self._rest_until = now + self._rest_s()
        give_up = kind is FailureKind.FATAL or self._refusals >= REFUSALS
        if give_up or (self._retry_times is not None and self._tries >= self._retry_times):
            tries, self._tries, self._refusals = self._tries, 0, 0
            return [HangUp(self.attempt), GiveUp(tries)]
        return [HangUp(self.attempt)]

    def _rest_s(self) -> float:
        """Return the pause: none after the first failure, then doubling, with a random part."""
        if self._backoff_failures < 2:
            return 0.0
        longest = min(self._interval_s, RETRY_FIRST_S * 2.0 ** min(self._backoff_failures - 2, 16))
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
        """Dial a newly named node. It may not be ready yet, so its back-off starts again."""
        self._backoff_failures = 0
        return self._dial(now)

    def _forget_failures(self) -> None:
        self.failures = self._backoff_failures = self._tries = self._refusals = 0


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
"""(state, input) -> handler. Any other pair changes nothing."""
