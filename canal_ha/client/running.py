"""Decides whether this process is the active one of its client id (docs/protocol.md#client-running). Pure.

    IDLE ── Join ──► OFFLINE ── SessionUp ──► LOOKING ──► STANDBY     another session holds the node
                                                 ├──────► WAITING     it disappeared: a delay first
                                                 │            └─► CLAIMING ──► ACTIVE ──► RELEASING
                                                 └── free, ours already, or left by us ──────┘

The node is `{d}/{c}/running`. A process holds it if its session is the node's ephemeralOwner; the address in the node
does not matter. The lease ends before the session can, so that a process stops in time (zookeeper/lease.py). In unclear
situations the machine reads the node again.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from canal_ha.client.running_inputs import (
    Activate,
    ClaimConsumer,
    Command,
    ConsumerSeen,
    Deactivate,
    Held,
    Input,
    NodeConnected,
    Probe,
    RaceTick,
    Reason,
    Refused,
    ReleaseConsumer,
    Rewrite,
    Unanswered,
)
from canal_ha.zookeeper.lease import Lease
from canal_ha.zookeeper.race_events import (
    Join,
    Leave,
    Left,
    Look,
    NodeEvent,
    Released,
    SessionLost,
    SessionSuspended,
    SessionUp,
    StandingBy,
)
from canal_ha.zookeeper.tree import RunningData

TAKEOVER_DELAY_S = 1.0  # after the node disappeared, because its process may come back (canal: 5 s)
HOLD_BACK_S = 5.0  # after an operator set active to false; canal's delay
LOOK_AGAIN_S = 0.5  # after a read without a reply
DELETED_S = 0.5  # after our node was deleted, so that a deleteall or an unsubscribe can finish


class SeatState(Enum):
    """The state of this process in the race."""

    IDLE = auto()
    OFFLINE = auto()
    LOOKING = auto()
    STANDBY = auto()
    WAITING = auto()
    CLAIMING = auto()
    ACTIVE = auto()
    RELEASING = auto()


class Seat:
    """The state machine of one process in the race.

    client_id: written to the node with the address.
    address: written to the node before there is a connection: this host's IP, without a port.
    past_sessions: ids of this process's ended sessions, shared by all its connectors. A node of such a session is
        replaced.
    takeover_delay_s: how long to wait after the node disappeared.
    """

    def __init__(
        self,
        client_id: int,
        address: str,
        *,
        past_sessions: set[int],
        takeover_delay_s: float = TAKEOVER_DELAY_S,
    ) -> None:
        self.state = SeatState.IDLE
        self.standing_by_for = ""  # address of the active process while in STANDBY
        self._client_id = client_id
        self._address = address
        self._past_sessions = past_sessions
        self._takeover_delay_s = takeover_delay_s
        self._ticket = 0
        self._look_ticket = 0  # the newest read of an active process
        self._session_id = 0
        self._lease = Lease()
        self._connected = False
        self._leaving = False
        self._orderly = True  # whether the last holder released the node; True before the first read
        self._hold_until = 0.0
        self._wait_until: float | None = None
        self._version = 0
        self._probe_at = 0.0
        self._look_at: float | None = None  # when an active process reads the node again
        self._since = 0  # ticket of the claim that made this process active

    def active(self, now: float) -> bool:
        """Return whether this process may act as the active one now. Callable from any thread."""
        return self.state is SeatState.ACTIVE and self._lease.holds(now)

    @property
    def lease_until(self) -> float:
        """When this process stops being active unless ZooKeeper answers before; 0.0 without a lease."""
        return self._lease.over_at() or 0.0

    @property
    def wakes_at(self) -> float | None:
        """When RaceTick is due; None if only other events change the state."""
        if self.state is SeatState.ACTIVE:
            due = (self.lease_until, self._probe_at, self._look_at) if self._connected else (self.lease_until,)
            return min(moment for moment in due if moment is not None)
        return self._wait_until

    def step(self, event: Input, now: float) -> list[Command]:
        """Handle one event; return the commands, in order. now: seconds, monotonic."""
        handler = TABLE.get((self.state, type(event)))
        return [] if handler is None else handler(self, event, now)

    # ---- requests of the connector

    def _join(self, event: Join, now: float) -> list[Command]:
        self._leaving = False
        self.state = SeatState.OFFLINE
        return self._look() if self._connected else []

    def _leave(self, event: Leave, now: float) -> list[Command]:
        self._leaving = True
        if self.state is SeatState.ACTIVE:
            return [Deactivate(Reason.STOPPED), *self._release()]
        if self.state in (SeatState.LOOKING, SeatState.CLAIMING, SeatState.RELEASING):
            return []  # the node may be ours; the next answer leads to Left
        return self._left()

    def _left(self) -> list[Command]:
        self.state = SeatState.IDLE
        self._ticket += 1
        self._wait_until = None
        return [Left()]

    def _connected_to_node(self, event: NodeConnected, now: float) -> list[Command]:
        self._address = event.local_address
        return self._look_at_ours()

    # ---- session

    def _session_up(self, event: SessionUp, now: float) -> list[Command]:
        commands: list[Command] = []
        if self._session_id and event.session_id != self._session_id:
            commands = self._session_lost(SessionLost(), now)
        if event.session_id != self._session_id:
            self._session_id = event.session_id
            self._lease.begin(event.timeout_s)
        self._lease.resume(event.timeout_s)
        self._connected = True
        if self.state is SeatState.ACTIVE:
            return self._look_at_ours()  # watches went with the connection
        return commands + (self._look() if self.state is SeatState.OFFLINE else [])

    def _session_suspended(self, event: SessionSuspended, now: float) -> list[Command]:
        self._connected = False
        return self._go_offline()

    def _session_lost(self, event: SessionLost, now: float) -> list[Command]:
        self._connected = False
        if self._session_id:
            self._past_sessions.add(self._session_id)
            self._session_id = 0
            self._lease.end()
        if self.state is not SeatState.ACTIVE:
            return self._go_offline()
        return self._lose(Reason.SESSION_LOST)

    def _go_offline(self) -> list[Command]:
        if self.state in (SeatState.IDLE, SeatState.ACTIVE):
            return []  # an active process stays active within its lease
        if self._leaving:
            return self._left()  # the node is deleted with the session
        self.state = SeatState.OFFLINE
        self._ticket += 1
        self._wait_until = None
        return []

    # ---- looking

    def _look(self) -> list[Command]:
        if not self._connected:
            return self._go_offline()
        self.state = SeatState.LOOKING
        self._wait_until = None
        self._ticket += 1
        return [Look(self._ticket)]

    def _look_at_ours(self) -> list[Command]:
        self._look_at = None
        if not self._connected:
            return []
        self._ticket += 1
        self._look_ticket = self._ticket
        return [Look(self._ticket)]

    def _node_event(self, event: NodeEvent, now: float) -> list[Command]:
        if not event.deleted:
            self._orderly = True  # a process that releases the node changes it before deleting it
        return self._look()

    def _our_node_event(self, event: NodeEvent, now: float) -> list[Command]:
        return self._look_at_ours()

    def _refused(self, event: Refused, now: float) -> list[Command]:
        return self._look() if event.ticket == self._ticket else []

    def _unanswered(self, event: Unanswered, now: float) -> list[Command]:
        if event.ticket != self._ticket:
            return []
        if self._leaving and self.state is SeatState.LOOKING:
            return self._left()
        self.state = SeatState.LOOKING
        self._ticket += 1
        self._wait_until = now + LOOK_AGAIN_S
        return []

    def _ours_refused(self, event: Refused, now: float) -> list[Command]:
        return self._look_at_ours() if event.ticket >= self._since else []

    def _ours_unanswered(self, event: Unanswered, now: float) -> list[Command]:
        if event.ticket >= self._since:
            self._look_at = now + LOOK_AGAIN_S
        return []

    def _looked(self, event: ConsumerSeen, now: float) -> list[Command]:
        if event.ticket != self._ticket:
            return []
        seen = event.seen
        if seen is not None and seen.owner == self._session_id:
            self._version = seen.version
            if self._leaving:
                return self._release()
            if not seen.active:
                self._hold_until = now + HOLD_BACK_S
                return self._release()
            return self._claim(held=seen.version)
        if self._leaving:
            return self._left()
        if seen is None:
            return self._claim_free_node(now)
        if not seen.owner or seen.owner in self._past_sessions:  # no session holds a persistent node
            return self._claim(leftover=seen.version)
        self.state = SeatState.STANDBY
        self._orderly = not seen.active
        if seen.address == self.standing_by_for:
            return []
        self.standing_by_for = seen.address
        return [StandingBy(seen.address)]

    def _claim_free_node(self, now: float) -> list[Command]:
        claim_at = self._hold_until if self._orderly else max(self._hold_until, now + self._takeover_delay_s)
        if claim_at <= now:
            return self._claim()
        self.state = SeatState.WAITING
        self._wait_until = claim_at
        return []

    def _looked_at_ours(self, event: ConsumerSeen, now: float) -> list[Command]:
        if event.ticket != self._look_ticket:
            return []
        seen = event.seen
        if seen is None:
            self._hold_until = max(self._hold_until, now + DELETED_S)
            return self._lose(Reason.VANISHED)
        if seen.owner != self._session_id:
            return self._lose(Reason.TAKEN)
        self._version = seen.version
        if not seen.active:
            self._hold_until = now + HOLD_BACK_S
            return [Deactivate(Reason.OPERATOR), *self._release()]
        if seen.address != self._address:
            self._ticket += 1
            return [Rewrite(self._ticket, self._data(), seen.version)]
        return self._probe(now)

    def _lose(self, reason: Reason) -> list[Command]:
        """Stop being active, and claim the node again without a delay if it is free."""
        self.state = SeatState.OFFLINE
        self._orderly = True
        return [Deactivate(reason), *self._look()]

    # ---- holding

    def _data(self, *, active: bool = True) -> RunningData:
        return RunningData(self._address, active, self._client_id)

    def _claim(self, *, held: int | None = None, leftover: int | None = None) -> list[Command]:
        self.state = SeatState.CLAIMING
        self._wait_until = None
        self._ticket += 1
        return [ClaimConsumer(self._ticket, self._data(), held, leftover)]

    def _claimed(self, event: Held, now: float) -> list[Command]:
        if event.ticket != self._ticket:
            return []
        self._extend(event)
        if self._leaving or not self._lease.holds(now):
            return self._release()
        self.state = SeatState.ACTIVE
        self._since = event.ticket
        self.standing_by_for = ""
        return [Activate(), *self._look_at_ours()]

    def _still_held(self, event: Held, now: float) -> list[Command]:
        if event.ticket >= self._since:
            self._extend(event)
        return []

    def _extend(self, event: Held) -> None:
        self._version = event.version
        self._lease.answered(event.sent_at)
        self._probe_at = event.sent_at + self._lease.probe_interval_s

    def _probe(self, now: float) -> list[Command]:
        self._ticket += 1
        self._probe_at = now + self._lease.probe_interval_s
        return [Probe(self._ticket, self._version)]

    def _tick_active(self, event: RaceTick, now: float) -> list[Command]:
        if not self._lease.holds(now):
            return self._lose(Reason.LEASE_OVER)
        if not self._connected:
            return []
        looks = self._look_at_ours() if self._look_at is not None and now >= self._look_at else []
        return looks + (self._probe(now) if now >= self._probe_at else [])

    def _tick_waiting(self, event: RaceTick, now: float) -> list[Command]:
        return self._look() if self._wait_until is not None and now >= self._wait_until else []

    def _waited(self, event: RaceTick, now: float) -> list[Command]:
        if self._wait_until is None or now < self._wait_until:
            return []
        return self._claim() if self._connected else []

    def _release(self) -> list[Command]:
        self.state = SeatState.RELEASING
        self._wait_until = None
        self._lease.end()
        self._ticket += 1
        return (
            [ReleaseConsumer(self._ticket, self._data(active=False), self._version)]
            if self._connected
            else self._let_go()
        )

    def _let_go(self) -> list[Command]:
        return self._left() if self._leaving else self._go_offline()

    def _released(self, event: Released, now: float) -> list[Command]:
        if event.ticket != self._ticket:
            return []
        return self._left() if self._leaving else self._look()


_RACING = (SeatState.LOOKING, SeatState.STANDBY, SeatState.WAITING, SeatState.CLAIMING, SeatState.RELEASING)
_JOINED = (SeatState.OFFLINE, *_RACING, SeatState.ACTIVE)

TABLE: dict[tuple[SeatState, type], Callable[..., list[Command]]] = {
    (SeatState.IDLE, Join): Seat._join,
    **{(state, Leave): Seat._leave for state in _JOINED},
    **{(state, SessionUp): Seat._session_up for state in SeatState},
    **{(state, SessionSuspended): Seat._session_suspended for state in SeatState},
    **{(state, SessionLost): Seat._session_lost for state in SeatState},
    (SeatState.LOOKING, ConsumerSeen): Seat._looked,
    (SeatState.LOOKING, Unanswered): Seat._unanswered,
    (SeatState.LOOKING, RaceTick): Seat._tick_waiting,
    (SeatState.LOOKING, NodeEvent): Seat._node_event,
    (SeatState.STANDBY, NodeEvent): Seat._node_event,
    (SeatState.WAITING, NodeEvent): Seat._node_event,
    (SeatState.WAITING, RaceTick): Seat._waited,
    (SeatState.CLAIMING, Held): Seat._claimed,
    (SeatState.CLAIMING, Refused): Seat._refused,
    (SeatState.CLAIMING, Unanswered): Seat._unanswered,
    (SeatState.ACTIVE, NodeEvent): Seat._our_node_event,
    (SeatState.ACTIVE, ConsumerSeen): Seat._looked_at_ours,
    (SeatState.ACTIVE, Held): Seat._still_held,
    (SeatState.ACTIVE, Refused): Seat._ours_refused,
    (SeatState.ACTIVE, Unanswered): Seat._ours_unanswered,
    (SeatState.ACTIVE, NodeConnected): Seat._connected_to_node,
    (SeatState.ACTIVE, RaceTick): Seat._tick_active,
    (SeatState.RELEASING, Released): Seat._released,
}
"""(state, input) -> handler. Any other pair changes nothing."""
