"""Race: one node's part in the race to run a destination (docs/protocol.md#ownership; pure).

    IDLE ── Join ──► OFFLINE ── session ──► LOOKING ──► STANDBY      another session owns `running`
                                              ├───────► PAUSED       nobody does, as an operator wants it
                                              ├───────► WAITING      nobody does: a turn or a hold-back comes first
                                              │            └──► CLAIMING ──► RUNNING ──► STOPPING ──► RELEASING
                                              └── ours already, or left by us ──┘

A node owns the destination if its session is the ephemeralOwner of `running`; the address in `running` decides nothing.
Clients follow that address, so an owner corrects a foreign one.
The data version of `{d}` is the epoch: every claim increments it, and every durable write checks it. When the machine
does not know the state, it looks again.

An owner hands the destination to a chosen node without a moment in which `running` does not exist: it stops, names the
successor in `running`, and the successor replaces the node in its claim. If the successor does not do so soon, the
owner releases the destination to any node.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from canal_ha.cluster.inputs import (
    ClaimDestination,
    Claimed,
    ClaimFailed,
    Command,
    CursorsLoaded,
    DestinationSeen,
    DropTurn,
    Elapsed,
    EpochMismatch,
    HandOver,
    Input,
    InstanceFailed,
    InstanceStopped,
    LeaseOver,
    LookFailed,
    OfferDestination,
    ReleaseDestination,
    RewriteRunning,
    StartInstance,
    StopInstance,
    StopReason,
    Turn,
    Wait,
    WantTurn,
)
from canal_ha.cluster.spread import ORDERLY_STEP_S, VANISHED_STEP_S
from canal_ha.zookeeper.race_events import (
    Join,
    Leave,
    Left,
    Look,
    NodeEvent,
    Released,
    RunningNode,
    SessionLost,
    SessionSuspended,
    SessionUp,
    StandingBy,
)

OFFER_S = 2.0  # in which the successor of an orderly hand-over claims; then any other node may
HOLD_BACK_S = 5.0  # after a requested release: canal's delay, in which this node takes only what is handed to it
FAILURE_FIRST_S = 1.0  # back-off after an instance failed; it doubles up to
FAILURE_MOST_S = 60.0  # this, and starts afresh once an instance has run that long
LOOK_AGAIN_S = 0.5  # after a look without an answer; and between two corrections of the address in `running`
JUMP_MOST = 1000  # most extra writes of a `{d}` at version 0 or an earlier one than before, so that no epoch repeats
HEAD_START_S = 1.5  # of the last owner, which knows the newest cursors, soon after this node's own reconnect
RECOVERING_SESSIONS = 2.0  # session time-outs after which an owner has given up a session that cannot be resumed
GRACE_S = 0.25  # after `running` vanished: lets an operator's deleteall finish before a node creates anything


_REQUESTED = (StopReason.OPERATOR, StopReason.HAND_OVER)


class RaceState(Enum):
    """Where this node stands in the race."""

    IDLE = auto()
    OFFLINE = auto()
    LOOKING = auto()
    STANDBY = auto()
    PAUSED = auto()
    WAITING = auto()
    CLAIMING = auto()
    RUNNING = auto()
    STOPPING = auto()
    RELEASING = auto()


class Race:
    """One destination on one node. randint: as random.randint. node: its address, by which an owner may choose it."""

    def __init__(self, randint: Callable[[int, int], int], node: str) -> None:
        self._randint = randint
        self._node = node
        self.state = RaceState.IDLE
        self.epoch = -1
        self._owner = ""  # the one that this node stood by for last
        self._ticket = 0
        self._session_id = 0
        self._past_sessions: set[int] = set()
        self._timeout_s = 0.0
        self._connected = False
        self._leaving = False
        self._may_hold = False  # whether `running` may belong to this session
        self._stop_reason = StopReason.SHUTDOWN
        self._orderly = True  # whether the last owner released it; at first nobody has crashed
        self._graced = False
        self._hold_until = 0.0
        self._failed_until = 0.0  # the part of it that an offer does not end
        self._successor = ""  # to whom the instance is handed once it has stopped
        self._offered_until = 0.0
        self._failures = 0
        self._running_since = 0.0
        self._rewritten_until = 0.0  # when the address in `running` may be corrected again
        self._last_owner_was_us = False
        self._restore = False  # ZooKeeper lost what this node knew, and does not have it back yet
        self._seen_version = 0  # version of `{d}`, its czxid, and the session in which they were seen
        self._seen_created = 0
        self._seen_session = 0
        self._recovering_until = 0.0  # after a reconnect: the owner may need this long for a session
        self._went_back = False  # `{d}` is at an earlier version than before
        self._version: int | None = None

    @property
    def standing_by_for(self) -> str:
        """The owner's address while this node stands by, else ""."""
        return self._owner if self.state is RaceState.STANDBY else ""

    @property
    def serving(self) -> bool:
        """Whether the instance may answer GETs and ACKs, provided that the lease holds."""
        return self.state is RaceState.RUNNING

    @property
    def writing(self) -> bool:
        """Whether durable writes are allowed, provided that the lease holds: while serving and in an orderly stop."""
        return self.state is RaceState.RUNNING or (self.state is RaceState.STOPPING and self._stop_reason.orderly)

    @property
    def unreleased(self) -> bool:
        """Whether this node has left the race, but `running` may still be its own until the session is back."""
        return self._leaving and self._may_hold and self.state is RaceState.OFFLINE

    def step(self, event: Input, now: float) -> list[Command]:
        """Feed one fact; return what to do, in order. now: seconds, monotonic."""
        handler = TABLE.get((self.state, type(event)))
        return [] if handler is None else handler(self, event, now)

    # ---- session

    def _session_up(self, event: SessionUp, now: float) -> list[Command]:
        commands: list[Command] = []
        if self._session_id or self._past_sessions:
            self._recovering_until = now + RECOVERING_SESSIONS * event.timeout_s
            was_away = not self._connected or event.session_id != self._session_id
            if was_away and self.state is not RaceState.RUNNING:  # an owner may have crashed unseen
                self._orderly, self._graced = False, False
        if event.session_id != self._session_id:
            commands = self.step(SessionLost(), now)
            self._session_id = event.session_id
        self._timeout_s = event.timeout_s
        self._connected = True
        if self.state is RaceState.RUNNING:
            return [*commands, self._look()]  # the disconnection removed the watches
        if self.state in (RaceState.OFFLINE, RaceState.STANDBY, RaceState.PAUSED):  # these watches may be gone too
            return commands + self._start_looking()
        return commands

    def _suspended(self, event: SessionSuspended, now: float) -> list[Command]:
        self._connected = False
        return []  # the instance continues within its lease

    def _suspended_in_race(self, event: SessionSuspended, now: float) -> list[Command]:
        self._connected = False
        return self._go_offline()

    def _lost(self, event: SessionLost, now: float) -> list[Command]:
        self._forget_session()
        return []

    def _lost_offline(self, event: SessionLost, now: float) -> list[Command]:
        self._forget_session()
        return self._left() if self._leaving else []

    def _lost_in_race(self, event: SessionLost, now: float) -> list[Command]:
        self._forget_session()
        return self._go_offline()

    def _lost_ours(self, event: SessionLost, now: float) -> list[Command]:
        self._forget_session()
        return self._step_down(StopReason.SESSION_LOST)

    def _lost_while_stopping(self, event: SessionLost, now: float) -> list[Command]:
        self._forget_session()
        self._stop_reason = StopReason.SESSION_LOST
        return []

    def _forget_session(self) -> None:
        self._connected = False
        if self._session_id:
            self._past_sessions.add(self._session_id)
            self._session_id = 0
        self._may_hold = False

    def _go_offline(self) -> list[Command]:
        self._ticket += 1
        if self._leaving:
            return self._left_unseen()
        self.state = RaceState.OFFLINE
        return [DropTurn()]

    # ---- looking

    def _look(self) -> Look:
        self._ticket += 1
        return Look(self._ticket)

    def _start_looking(self) -> list[Command]:
        if not self._connected:
            if self._leaving:
                return self._left_unseen()
            self.state = RaceState.OFFLINE
            return [DropTurn()]
        self.state = RaceState.LOOKING
        return [DropTurn(), self._look()]

    def _node_event(self, event: NodeEvent, now: float) -> list[Command]:
        if not event.deleted:
            self._orderly = True  # an owner that releases the node changes it before deleting it
        return self._start_looking()

    def _our_node_event(self, event: NodeEvent, now: float) -> list[Command]:
        return [self._look()]

    def _look_failed(self, event: LookFailed, now: float) -> list[Command]:
        if event.ticket != self._ticket:
            return []
        return self._left_unseen() if self._leaving else [self._wait(LOOK_AGAIN_S)]

    def _waited(self, event: Elapsed, now: float) -> list[Command]:
        return self._start_looking() if event.ticket == self._ticket else []

    def _waited_as_owner(self, event: Elapsed, now: float) -> list[Command]:
        return [self._look()] if event.ticket == self._ticket else []

    def _wait(self, delay_s: float) -> Wait:
        self._ticket += 1
        return Wait(self._ticket, delay_s)

    def _looked(self, event: DestinationSeen, now: float) -> list[Command]:
        if event.ticket != self._ticket:
            return []
        self._notice_loss(event, now)
        self._version = event.version
        seen = event.running
        paused = event.paused and not self._restore  # cursors that only this node knows come first
        self._may_hold = seen is not None and seen.owner == self._session_id
        if seen is not None and seen.owner == self._session_id:
            stays = self._restore and seen.active and not self._leaving
            if stays and now < self._hold_until:
                return [self._wait(self._hold_until - now)]
            if not seen.active and now < self._offered_until and not (self._leaving or paused):
                return [self._wait(self._offered_until - now)]
            if event.version is not None and (self._leaving or not seen.active or paused or now < self._hold_until):
                return self._release(event.version)
            return self._claim(held=seen.version)
        if self._leaving:
            return self._left()
        if seen is None:
            return self._pause() if paused else self._nobody_runs(now)
        if not seen.owner or seen.owner in self._past_sessions:  # no session holds a persistent node
            return self._pause() if paused else self._claim(leftover=seen.version)
        self._last_owner_was_us = self._restore = False
        self._orderly, self._graced = not seen.active, False
        if not (seen.active or paused or now < self._failed_until) and seen.successor == self._node:
            self._hold_until = 0.0  # who hands it to this node asks later than who made the node stand back
            return [StandingBy(seen.address), *self._claim(leftover=seen.version)]
        self.state = RaceState.STANDBY
        self._owner = seen.address
        return [StandingBy(seen.address)]

    def _looked_at_ours(self, event: DestinationSeen, now: float) -> list[Command]:
        if event.ticket != self._ticket:
            return []
        if event.version is None:
            self._last_owner_was_us = self._restore = False  # an operator reset the destination
            return self._step_down(StopReason.RESET)
        self._notice_loss(event, now)
        if event.running is None:
            return self._step_down(StopReason.VANISHED)
        if event.running.owner != self._session_id:
            return self._step_down(StopReason.TAKEN)
        if event.version != self.epoch:
            return self._step_down(StopReason.FENCED)
        if event.paused and not self._restore:
            return self._step_down(StopReason.PAUSED)
        if not event.running.active:
            return self._step_down(StopReason.OPERATOR)
        if event.running.successor not in ("", self._node):
            return self._step_down(StopReason.HAND_OVER, event.running.successor)
        return self._corrected(event.running, now)

    def _corrected(self, running: RunningNode, now: float) -> list[Command]:
        """Write our address into `running` if it names another node: clients would connect to that one."""
        if running.address == self._node:
            return []
        if now < self._rewritten_until:
            return [self._wait(self._rewritten_until - now)]
        self._rewritten_until = now + LOOK_AGAIN_S
        return [RewriteRunning(self.epoch, running.version), self._wait(LOOK_AGAIN_S)]

    def _pause(self) -> list[Command]:
        self.state = RaceState.PAUSED
        self._orderly = True
        return []

    def _notice_loss(self, seen: DestinationSeen, now: float) -> None:
        """Distinguish an ensemble that lost data from a destination that an operator reset.

        An ensemble restored from a backup shows an earlier `{d}`, which nothing else does. An emptied one and a reset
        both put `{d}` at version 0: in the same session an operator did it, and the cursors are forgotten. After a loss
        the last owner writes its cursors back, and the other nodes give it time to do so.
        """
        version, created = seen.version or 0, seen.created
        earlier = 0 < created <= self._seen_created and (created, version) < (self._seen_created, self._seen_version)
        began_anew = version == 0 and self._seen_version > 0
        if began_anew and not earlier and self._seen_session == self._session_id:
            self._last_owner_was_us = self._restore = False
        elif began_anew or earlier:
            self._went_back = True
            if self._last_owner_was_us:
                self._restore = True
            else:
                self._hold_until = max(self._hold_until, now + self._timeout_s)
        self._seen_version, self._seen_created, self._seen_session = version, created, self._session_id

    def _nobody_runs(self, now: float) -> list[Command]:
        if self._restore and self._stop_reason not in _REQUESTED:
            return self._claim()
        self.state = RaceState.WAITING
        if not self._orderly and not self._graced:
            self._graced = True
            recovering = now < self._recovering_until and not self._last_owner_was_us
            self._hold_until = max(self._hold_until, now + (HEAD_START_S if recovering else GRACE_S))
        if now < self._hold_until:
            return [self._wait(self._hold_until - now)]
        return [WantTurn(ORDERLY_STEP_S if self._orderly else VANISHED_STEP_S)]

    # ---- claiming

    def _turn(self, event: Turn, now: float) -> list[Command]:
        return self._claim()

    def _claim(self, *, held: int | None = None, leftover: int | None = None) -> list[Command]:
        self.state = RaceState.CLAIMING
        self._may_hold = True
        self._ticket += 1
        jumps = 0 if self._version and not self._went_back else self._randint(1, JUMP_MOST)
        return [ClaimDestination(self._ticket, self._version, jumps, held, leftover)]

    def _claimed(self, event: Claimed, now: float) -> list[Command]:
        if event.ticket != self._ticket:
            return []
        self.epoch = self._seen_version = event.epoch
        self._seen_session = self._session_id
        self._last_owner_was_us, self._went_back = True, False
        if self._leaving:
            return self._release(event.epoch)
        self.state = RaceState.RUNNING
        self._running_since = now
        return [StartInstance(event.epoch, self._restore), self._look()]

    def _claimed_late(self, event: Claimed, now: float) -> list[Command]:
        return self._start_looking()  # this answer is out of date; the look finds that the node is ours

    def _claim_failed(self, event: ClaimFailed, now: float) -> list[Command]:
        return self._start_looking() if event.ticket == self._ticket else []

    # ---- releasing

    def _step_down(self, reason: StopReason, successor: str = "") -> list[Command]:
        self.state = RaceState.STOPPING
        self._successor = successor
        self._ticket += 1
        self._stop_reason = reason
        self._orderly, self._graced = reason.orderly, False
        return [StopInstance(reason)]

    def _lease_over(self, event: LeaseOver, now: float) -> list[Command]:
        return self._step_down(StopReason.LEASE_OVER)

    def _lease_over_while_stopping(self, event: LeaseOver, now: float) -> list[Command]:
        self._stop_reason = StopReason.LEASE_OVER  # ownership is gone, so there is nothing left to release
        return []

    def _loaded(self, event: CursorsLoaded, now: float) -> list[Command]:
        restored, self._restore = self._restore, False
        return [self._look()] if restored else []  # a pause has waited for it

    def _fenced(self, event: EpochMismatch, now: float) -> list[Command]:
        return self._step_down(StopReason.FENCED)

    def _fenced_while_stopping(self, event: EpochMismatch, now: float) -> list[Command]:
        self._stop_reason = StopReason.FENCED
        return []

    def _instance_failed(self, event: InstanceFailed, now: float) -> list[Command]:
        self._failures = self._failures + 1 if now - self._running_since < FAILURE_MOST_S else 1
        back_off = min(FAILURE_MOST_S, FAILURE_FIRST_S * 2.0 ** min(self._failures - 1, 10))
        self._hold_until = self._failed_until = now + back_off
        return self._step_down(StopReason.FAILED)

    def _instance_stopped(self, event: InstanceStopped, now: float) -> list[Command]:
        if self._stop_reason in _REQUESTED:
            self._hold_until = max(self._hold_until, now + HOLD_BACK_S)
        if self._restore and self._stop_reason is StopReason.FAILED:
            return self._start_looking()  # another node does not know the cursors: begin again here
        if self._stop_reason.orderly and self._connected:
            return self._offer(now) if self._successor and not self._leaving else self._release(self.epoch)
        return self._start_looking()

    def _release(self, epoch: int) -> list[Command]:
        self.state = RaceState.RELEASING
        self._last_owner_was_us = False
        self._ticket += 1
        return [ReleaseDestination(self._ticket, epoch)]

    def _offer(self, now: float) -> list[Command]:
        self.state = RaceState.RELEASING
        self._last_owner_was_us = False
        self._offered_until = now + OFFER_S
        self._ticket += 1
        return [OfferDestination(self._ticket, self.epoch, self._successor)]

    def _released(self, event: Released, now: float) -> list[Command]:
        return self._start_looking() if event.ticket == self._ticket else []

    # ---- requests of the node

    def _join(self, event: Join, now: float) -> list[Command]:
        self._leaving = False
        return self._start_looking()

    def _stay(self, event: Join, now: float) -> list[Command]:
        self._leaving = False
        return []

    def _leave(self, event: Leave, now: float) -> list[Command]:
        self._leaving = True
        return self._left()

    def _leave_offline(self, event: Leave, now: float) -> list[Command]:
        self._leaving = True
        return self._left_unseen()

    def _leave_next(self, event: Leave, now: float) -> list[Command]:
        self._leaving = True
        return []  # the destination may be ours; the transitions that follow end in Left

    def _leave_ours(self, event: Leave, now: float) -> list[Command]:
        self._leaving = True
        return self._step_down(StopReason.SHUTDOWN)

    def _hand_over(self, event: HandOver, now: float) -> list[Command]:
        return self._step_down(StopReason.HAND_OVER)

    def _left(self) -> list[Command]:
        self.state = RaceState.IDLE
        self._ticket += 1
        return [DropTurn(), Left()]

    def _left_unseen(self) -> list[Command]:
        """End the leave without an answer of ZooKeeper.

        The session may hold `running` and lives on with the other destinations, so the next connection looks once more
        and releases it. Nobody waits for that.
        """
        if not self._session_id:
            return self._left()
        self.state = RaceState.OFFLINE
        self._ticket += 1
        return [DropTurn(), Left()]


_RESTING = (RaceState.STANDBY, RaceState.PAUSED, RaceState.WAITING)
_WATCHING = (RaceState.LOOKING, *_RESTING)
_RACING = (*_WATCHING, RaceState.CLAIMING, RaceState.RELEASING)
_JOINED = (RaceState.OFFLINE, *_RACING, RaceState.RUNNING, RaceState.STOPPING)

TABLE: dict[tuple[RaceState, type], Callable[..., list[Command]]] = {
    **{(state, Join): Race._stay for state in _JOINED},
    **{(state, Join): Race._join for state in (RaceState.IDLE, RaceState.OFFLINE)},
    **{(state, Leave): Race._leave for state in (RaceState.IDLE, *_RESTING)},
    (RaceState.OFFLINE, Leave): Race._leave_offline,
    **{
        (state, Leave): Race._leave_next
        for state in (RaceState.LOOKING, RaceState.CLAIMING, RaceState.STOPPING, RaceState.RELEASING)
    },
    (RaceState.RUNNING, Leave): Race._leave_ours,
    **{(state, SessionUp): Race._session_up for state in RaceState},
    **{(state, SessionSuspended): Race._suspended for state in RaceState},
    **{(state, SessionSuspended): Race._suspended_in_race for state in _RACING},
    (RaceState.IDLE, SessionLost): Race._lost,
    (RaceState.OFFLINE, SessionLost): Race._lost_offline,
    **{(state, SessionLost): Race._lost_in_race for state in _RACING},
    (RaceState.RUNNING, SessionLost): Race._lost_ours,
    (RaceState.STOPPING, SessionLost): Race._lost_while_stopping,
    **{(state, NodeEvent): Race._node_event for state in _WATCHING},
    **{(state, Claimed): Race._claimed_late for state in _WATCHING},
    (RaceState.LOOKING, DestinationSeen): Race._looked,
    (RaceState.LOOKING, LookFailed): Race._look_failed,
    (RaceState.LOOKING, Elapsed): Race._waited,
    (RaceState.WAITING, Elapsed): Race._waited,
    (RaceState.WAITING, Turn): Race._turn,
    (RaceState.CLAIMING, Claimed): Race._claimed,
    (RaceState.CLAIMING, ClaimFailed): Race._claim_failed,
    (RaceState.RUNNING, NodeEvent): Race._our_node_event,
    (RaceState.RUNNING, DestinationSeen): Race._looked_at_ours,
    (RaceState.RUNNING, LookFailed): Race._look_failed,
    (RaceState.RUNNING, Elapsed): Race._waited_as_owner,
    (RaceState.RUNNING, LeaseOver): Race._lease_over,
    (RaceState.RUNNING, EpochMismatch): Race._fenced,
    (RaceState.RUNNING, CursorsLoaded): Race._loaded,
    (RaceState.RUNNING, InstanceFailed): Race._instance_failed,
    (RaceState.RUNNING, HandOver): Race._hand_over,
    (RaceState.STOPPING, LeaseOver): Race._lease_over_while_stopping,
    (RaceState.STOPPING, EpochMismatch): Race._fenced_while_stopping,
    (RaceState.STOPPING, InstanceStopped): Race._instance_stopped,
    (RaceState.RELEASING, Released): Race._released,
}
"""(state, input) -> handler. Any other pair changes nothing."""
