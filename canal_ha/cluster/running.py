"""Who runs a destination: one node's half of the race, as a pure machine (docs/protocol.md#ownership).

    IDLE ── Join ──► OFFLINE ── session ──► LOOKING ──► STANDBY      another session owns `running`
                                              ├───────► WAITING      nobody does: a turn or a hold-back comes first
                                              │            └──► CLAIMING ──► RUNNING ──► STOPPING ──► RELEASING
                                              └── ours already, or left by us ──┘

Ownership is the `running` node's ephemeralOwner, never the address in it, and what it is worth is the epoch, the data
version of `{d}`: whoever claims moves it, and every durable write checks it. Whatever is unclear is looked at again.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from canal_ha.cluster.inputs import (
    Claim,
    Claimed,
    ClaimFailed,
    Command,
    DropTurn,
    Elapsed,
    EpochMismatch,
    HandOver,
    Input,
    InstanceFailed,
    InstanceStopped,
    LeaseOver,
    Looked,
    LookFailed,
    Release,
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
    SessionLost,
    SessionSuspended,
    SessionUp,
    StandingBy,
)

HOLD_BACK_S = 5.0  # after letting go on request: canal's delay, long enough for any other node to take it
FAILURE_FIRST_S = 1.0  # back-off of an instance that fails: doubles up to
FAILURE_MOST_S = 60.0  # this, and starts again after having run this long
LOOK_AGAIN_S = 0.5  # after a look that got no answer
JUMP_MOST = 1000
GRACE_S = 0.25  # after `running` vanished: a person's deleteall comes to its end before anybody creates nodes again


class State(Enum):
    """Where this node stands in the race."""

    IDLE = auto()
    OFFLINE = auto()
    LOOKING = auto()
    STANDBY = auto()
    WAITING = auto()
    CLAIMING = auto()
    RUNNING = auto()
    STOPPING = auto()
    RELEASING = auto()


class Race:
    """One destination on one node. randint: random whole number of a range, both ends included, as random.randint."""

    def __init__(self, randint: Callable[[int, int], int]) -> None:
        self._randint = randint
        self.state = State.IDLE
        self.epoch = -1
        self.standing_by_for = ""  # address of the owner while STANDBY
        self._ticket = 0
        self._session_id = 0
        self._past_sessions: set[int] = set()
        self._timeout_s = 0.0
        self._connected = False
        self._leaving = False
        self._stop_reason = StopReason.SHUTDOWN
        self._orderly = True  # how the last owner went: at first sight nobody crashed
        self._graced = False
        self._hold_until = 0.0
        self._failures = 0
        self._running_since = 0.0
        self._last_owner_was_us = False
        self._restore = False
        self._seen_version = 0  # of `{d}`, and in which session
        self._seen_session = 0
        self._version: int | None = None
        self._handlers: dict[type, Callable[..., list[Command]]] = {
            SessionUp: self._session_up,
            SessionSuspended: self._session_suspended,
            SessionLost: self._session_lost,
            NodeEvent: self._node_event,
            Looked: self._looked,
            LookFailed: self._look_failed,
            Turn: self._turn,
            Elapsed: self._elapsed,
            Claimed: self._claimed,
            ClaimFailed: self._claim_failed,
            EpochMismatch: lambda event, now: self._step_down(StopReason.FENCED),
            LeaseOver: lambda event, now: self._step_down(StopReason.LEASE_OVER),
            InstanceFailed: self._instance_failed,
            InstanceStopped: self._instance_stopped,
            Released: self._released,
            Join: self._join,
            Leave: self._leave,
            HandOver: self._hand_over,
        }

    @property
    def serving(self) -> bool:
        """GETs and ACKs may be answered, if the lease holds."""
        return self.state is State.RUNNING

    @property
    def writing(self) -> bool:
        """Durable writes may be tried, if the lease holds: while serving, and while stopping in good order."""
        return self.state is State.RUNNING or (self.state is State.STOPPING and self._stop_reason.orderly)

    def step(self, event: Input, now: float) -> list[Command]:
        """Feed one fact; return what to do, in order. now: seconds, monotonic."""
        return self._handlers[type(event)](event, now)

    # ---- session

    def _session_up(self, event: SessionUp, now: float) -> list[Command]:
        commands: list[Command] = []
        if event.session_id != self._session_id:
            commands += self._session_lost(SessionLost(), now)
            self._session_id = event.session_id
        self._timeout_s = event.timeout_s
        self._connected = True
        if self.state is State.RUNNING:
            return [*commands, self._look()]  # the watches went with the connection
        if self.state is State.OFFLINE:
            commands += self._start_looking()
        return commands

    def _session_suspended(self, event: SessionSuspended, now: float) -> list[Command]:
        self._connected = False
        return self._go_offline()

    def _session_lost(self, event: SessionLost, now: float) -> list[Command]:
        self._connected = False
        if self._session_id:
            self._past_sessions.add(self._session_id)
            self._session_id = 0
        return self._step_down(StopReason.SESSION_LOST) + self._go_offline()

    def _go_offline(self) -> list[Command]:
        if self.state in (State.IDLE, State.OFFLINE, State.RUNNING, State.STOPPING):
            return []  # an instance goes on within its lease
        self._ticket += 1
        if self._leaving:
            return self._left()
        self.state = State.OFFLINE
        return [DropTurn()]

    # ---- looking

    def _look(self) -> Look:
        self._ticket += 1
        return Look(self._ticket)

    def _start_looking(self) -> list[Command]:
        if not self._connected:
            if self._leaving:
                return self._left()
            self.state = State.OFFLINE
            return [DropTurn()]
        self.state = State.LOOKING
        return [DropTurn(), self._look()]

    def _node_event(self, event: NodeEvent, now: float) -> list[Command]:
        if self.state is State.RUNNING:
            return [self._look()]
        if self.state not in (State.LOOKING, State.STANDBY, State.WAITING):
            return []
        if not event.deleted:
            self._orderly = True  # changed before it goes, if it goes: that is how owners let go
        return self._start_looking()

    def _look_failed(self, event: LookFailed, now: float) -> list[Command]:
        if event.ticket != self._ticket or self.state not in (State.LOOKING, State.RUNNING):
            return []
        return self._left() if self._leaving else [self._wait(LOOK_AGAIN_S)]

    def _elapsed(self, event: Elapsed, now: float) -> list[Command]:
        if event.ticket != self._ticket:
            return []
        if self.state is State.RUNNING:
            return [self._look()]
        return self._start_looking() if self.state in (State.LOOKING, State.WAITING) else []

    def _wait(self, delay_s: float) -> Wait:
        self._ticket += 1
        return Wait(self._ticket, delay_s)

    def _looked(self, event: Looked, now: float) -> list[Command]:
        if event.ticket != self._ticket:
            return []
        if self.state is State.RUNNING:
            return self._looked_at_ours(event)
        if self.state is not State.LOOKING:
            return []
        self._notice_wipe(event.version or 0, now)
        self._version = event.version
        seen = event.running
        if seen is not None and seen.owner == self._session_id:
            if event.version is not None and (self._leaving or not seen.active or now < self._hold_until):
                return self._release(event.version)
            return self._claim(held=seen.version)
        if self._leaving:
            return self._left()
        if seen is None:
            return self._nobody_runs(now)
        if seen.owner in self._past_sessions:
            return self._claim(leftover=seen.version)
        self._last_owner_was_us = self._restore = False
        self._orderly, self._graced = not seen.active, False
        self.state = State.STANDBY
        self.standing_by_for = seen.address
        return [StandingBy(seen.address)]

    def _looked_at_ours(self, event: Looked) -> list[Command]:
        if event.version is None:
            self._last_owner_was_us = False  # a person reset the destination: nothing is put back
            return self._step_down(StopReason.RESET)
        self._seen_version, self._seen_session = event.version, self._session_id
        if event.running is None:
            return self._step_down(StopReason.VANISHED)
        if event.running.owner != self._session_id:
            return self._step_down(StopReason.TAKEN)
        if event.version != self.epoch:
            return self._step_down(StopReason.FENCED)
        if not event.running.active:
            return self._step_down(StopReason.OPERATOR)
        return []

    def _notice_wipe(self, version: int, now: float) -> None:
        """Tell an emptied ensemble from a destination that a person reset.

        `{d}` begins again at version 0 in both cases; in the same session a person did it, and cursors are forgotten.
        In a new session data was lost: the owner of that time puts its cursors back, others give it time to.
        """
        if version == 0 and self._seen_version > 0:
            if self._seen_session == self._session_id:
                self._last_owner_was_us = False
            elif self._last_owner_was_us:
                self._restore = True
            else:
                self._hold_until = max(self._hold_until, now + self._timeout_s)
        self._seen_version, self._seen_session = version, self._session_id

    def _nobody_runs(self, now: float) -> list[Command]:
        if self._restore:
            return self._claim()
        self.state = State.WAITING
        if not self._orderly and not self._graced:
            self._graced = True
            self._hold_until = max(self._hold_until, now + GRACE_S)
        if now < self._hold_until:
            return [self._wait(self._hold_until - now)]
        return [WantTurn(ORDERLY_STEP_S if self._orderly else VANISHED_STEP_S)]

    # ---- claiming

    def _turn(self, event: Turn, now: float) -> list[Command]:
        return self._claim() if self.state is State.WAITING else []

    def _claim(self, *, held: int | None = None, leftover: int | None = None) -> list[Command]:
        self.state = State.CLAIMING
        self._ticket += 1
        jumps = 0 if self._version else self._randint(1, JUMP_MOST)
        return [Claim(self._ticket, self._version, jumps, held, leftover)]

    def _claimed(self, event: Claimed, now: float) -> list[Command]:
        if event.ticket != self._ticket or self.state is not State.CLAIMING:
            # The answer came after we had given up on it; a look finds the node to be ours.
            return self._start_looking() if self.state in (State.STANDBY, State.WAITING, State.LOOKING) else []
        self.epoch = self._seen_version = event.epoch
        self._seen_session = self._session_id
        self._last_owner_was_us = True
        if self._leaving:
            return self._release(event.epoch)
        self.state = State.RUNNING
        self._running_since = now
        restore, self._restore = self._restore, False
        return [StartInstance(event.epoch, restore), self._look()]

    def _claim_failed(self, event: ClaimFailed, now: float) -> list[Command]:
        if event.ticket != self._ticket or self.state is not State.CLAIMING:
            return []
        return self._start_looking()

    # ---- letting go

    def _step_down(self, reason: StopReason) -> list[Command]:
        if self.state is State.STOPPING and not reason.orderly:
            self._stop_reason = reason  # ownership went while the instance was stopping: nothing left to release
        if self.state is not State.RUNNING:
            return []
        self.state = State.STOPPING
        self._ticket += 1
        self._stop_reason = reason
        self._orderly, self._graced = reason.orderly, False
        return [StopInstance(reason)]

    def _instance_failed(self, event: InstanceFailed, now: float) -> list[Command]:
        if self.state is not State.RUNNING:
            return []
        self._failures = self._failures + 1 if now - self._running_since < FAILURE_MOST_S else 1
        back_off = min(FAILURE_MOST_S, FAILURE_FIRST_S * 2.0 ** min(self._failures - 1, 10))
        self._hold_until = now + back_off
        return self._step_down(StopReason.FAILED)

    def _instance_stopped(self, event: InstanceStopped, now: float) -> list[Command]:
        if self.state is not State.STOPPING:
            return []
        if self._stop_reason in (StopReason.OPERATOR, StopReason.HAND_OVER):
            self._hold_until = max(self._hold_until, now + HOLD_BACK_S)
        if self._stop_reason.orderly and self._connected:
            return self._release(self.epoch)
        return self._start_looking()

    def _release(self, epoch: int) -> list[Command]:
        self.state = State.RELEASING
        self._last_owner_was_us = False
        self._ticket += 1
        return [Release(self._ticket, epoch)]

    def _released(self, event: Released, now: float) -> list[Command]:
        if event.ticket != self._ticket or self.state is not State.RELEASING:
            return []
        return self._start_looking()

    # ---- wishes of the node

    def _join(self, event: Join, now: float) -> list[Command]:
        self._leaving = False
        if self.state is not State.IDLE:
            return []
        self.state = State.OFFLINE
        return self._start_looking()

    def _leave(self, event: Leave, now: float) -> list[Command]:
        self._leaving = True
        if self.state is State.RUNNING:
            return self._step_down(StopReason.SHUTDOWN)
        if self.state in (State.LOOKING, State.CLAIMING, State.STOPPING, State.RELEASING):
            return []  # it may be ours: what we do next ends in Left
        return self._left()

    def _hand_over(self, event: HandOver, now: float) -> list[Command]:
        return self._step_down(StopReason.HAND_OVER)

    def _left(self) -> list[Command]:
        self.state = State.IDLE
        self._ticket += 1
        return [DropTurn(), Left()]
