"""Executes the commands of all races of this node against one session. Reactor thread.

One lease, one probe and one queue of claims serve all destinations. What a race decides is in running.py; here facts
become inputs, commands become requests, and answers become inputs again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from canal_ha.cluster import inputs as i
from canal_ha.cluster.members import Members
from canal_ha.cluster.ownership import Ownership
from canal_ha.cluster.running import Race, RaceState
from canal_ha.cluster.session import ClusterSession
from canal_ha.cluster.spread import Turns
from canal_ha.errors import TransactionRefused, ZooKeeperUnavailable
from canal_ha.meta.repository import Snapshot
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.lease import Lease
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
    SessionLost,
    SessionUp,
    StandingBy,
)


class Owner(Protocol):
    """Who runs instances: the node. Calls for one destination never overlap, and start and stop alternate."""

    async def start(self, destination: str, ownership: Ownership) -> None:
        """Start to serve. Cancelled when ownership goes meanwhile; an exception hands the destination on."""
        ...

    async def stop(self, destination: str, reason: i.StopReason) -> None:
        """Stop to serve; flush cursors if `reason.orderly`. Called also after a start that failed or was cancelled."""
        ...


@dataclass
class Candidate:
    """One destination's place in the election."""

    destination: str
    race: Race
    inbox: deque[i.Input] = field(default_factory=deque)
    busy: bool = False
    timer: Any = None
    starting: Deferred[Any] | None = None
    ownership: Ownership | None = None
    durable: Snapshot | None = None  # what was last known to be in ZooKeeper, by this node's last ownership
    left: list[Deferred[None]] = field(default_factory=list)


class Election:
    """node: registerIp:port, what `running` says. clock: seconds and callLater of a reactor. log: structlog's."""

    def __init__(
        self,
        node: str,
        session: ClusterSession,
        members: Members,
        owner: Owner,
        *,
        clock: Any,
        random: Random,
        log: Any,
    ) -> None:
        self.lease = Lease()
        self._node = node
        self._session = session
        self._members = members
        self._owner = owner
        self._clock = clock
        self._random = random
        self._log = log
        self._seats: dict[str, Candidate] = {}
        self._session_id = 0
        self._turns = Turns(random.uniform)
        self._claiming: str | None = None
        self._turn_timer: Any = None
        self._settled = False  # the member list was stable once in this session
        self._lease_timer: Any = None
        self._probe_timer: Any = None
        self._probing = False
        self._watches: dict[tuple[str, str], Callable[[bool], None]] = {}

    # ---- what the node asks for

    def add(self, destination: str) -> None:
        """Take part in the race for this destination."""
        seat = self._seats.get(destination)
        if seat is None:
            seat = self._seats[destination] = Candidate(destination, Race(self._random.randint))
        if self._session.connected:
            self._feed(seat, SessionUp(self._session.id, self._session.timeout_s))
        self._feed(seat, Join())
        self._tell_left(seat)  # whoever waited for the end of an earlier stay waits no longer

    async def remove(self, destination: str) -> None:
        """Stop the instance in good order, release the destination, and take no further part."""
        seat = self._seats.get(destination)
        if seat is None:
            return
        done: Deferred[None] = Deferred()
        seat.left.append(done)
        self._feed(seat, Leave())
        await done
        if seat.race.state is RaceState.IDLE:
            self._seats.pop(destination, None)

    def hand_over(self, destination: str) -> None:
        """Let another node take the destination; this one stands back for a while. Only if it runs here."""
        if destination in self._seats:
            self._feed(self._seats[destination], i.HandOver())

    def runs(self, destination: str) -> bool:
        """Whether the destination runs on this node and the node may act as its owner now."""
        seat = self._seats.get(destination)
        return seat is not None and seat.race.serving and self._lease_holds()

    @property
    def running(self) -> tuple[str, ...]:
        """Destinations that run here."""
        return tuple(sorted(name for name, seat in self._seats.items() if seat.race.serving))

    def states(self) -> dict[str, tuple[str, str]]:
        """Per destination: where this node stands in its race, and the address of the owner while standing by."""
        return {name: (seat.race.state.name, seat.race.standing_by_for) for name, seat in self._seats.items()}

    # ---- session

    def session_changed(self, event: SessionEvent) -> None:
        """Hear what the session says, before every destination does."""
        if isinstance(event, SessionUp):
            if event.session_id != self._session_id:
                self._session_id = event.session_id
                self._settled = False
                self.lease.begin(event.timeout_s)
            self.lease.resume(event.timeout_s)
            _cancel(self._lease_timer)
            self._lease_timer = None
            self._watch_lease()
        elif isinstance(event, SessionLost):
            self.lease.end()
            self._session_id = 0
        self._feed_all(event)
        if isinstance(event, SessionUp):
            for seat in self._seats.values():
                if seat.ownership is not None:
                    seat.ownership.watch_again()
            self._probe_soon(0.0)

    def _feed_all(self, event: i.Input) -> None:
        for seat in tuple(self._seats.values()):
            self._feed(seat, event)

    # ---- the races

    def _feed(self, seat: Candidate, event: i.Input) -> None:
        seat.inbox.append(event)
        if seat.busy:
            return
        seat.busy = True
        try:
            while seat.inbox:
                for command in seat.race.step(seat.inbox.popleft(), self._clock.seconds()):
                    self._execute(seat, command)
        finally:
            seat.busy = False
        if self._claiming == seat.destination and seat.race.state is not RaceState.CLAIMING:
            self._claiming = None
        self._next_turn()

    def _execute(self, seat: Candidate, command: i.Command) -> None:
        match command:
            case Look(ticket):
                self._spawn(seat, self._look(seat, ticket))
            case i.ClaimDestination():
                self._spawn(seat, self._claim(seat, command))
            case i.ReleaseDestination(ticket, epoch):
                self._spawn(seat, self._release(seat, ticket, epoch))
            case i.WantTurn(step_s):
                self._turns.want(seat.destination, step_s)
            case i.DropTurn():
                self._turns.drop(seat.destination)
            case i.Wait(ticket, delay_s):
                _cancel(seat.timer)
                seat.timer = self._clock.callLater(delay_s, self._feed, seat, i.Elapsed(ticket))
            case i.StartInstance(epoch, restore):
                self._start(seat, epoch, restore)
            case i.StopInstance(reason):
                self._spawn(seat, self._stop(seat, reason))
            case StandingBy(address):
                self._log.info("running.standby", destination=seat.destination, running_on=address)
            case Left():
                _cancel(seat.timer)
                self._tell_left(seat)

    def _tell_left(self, seat: Candidate) -> None:
        waiting, seat.left = seat.left, []
        for done in waiting:
            done.callback(None)

    def _spawn(self, seat: Candidate, work: Coroutine[Deferred[Any], Any, None]) -> None:
        Deferred.fromCoroutine(work).addErrback(self._broken, seat)

    def _broken(self, failure: Failure, seat: Candidate) -> None:
        """Something nobody foresaw: the instance stops and another node gets its chance."""
        self._log.error("election.failed", destination=seat.destination, error=failure.getTraceback())
        self._feed(seat, i.InstanceFailed())

    # ---- requests

    async def _write(self, operations: Sequence[Operation]) -> tuple[int, ...]:
        """A quorum write. Its answer extends the lease, from the moment it was sent."""
        sent_at, session_id = self._clock.seconds(), self._session.id
        versions = await self._session.transaction(operations)
        if session_id == self._session_id:
            self.lease.answered(sent_at)
            self._watch_lease()
        return versions

    async def _look(self, seat: Candidate, ticket: int) -> None:
        path = tree.destination(seat.destination)
        try:
            node = await self._session.get(path, self._watch(seat, "destination") if seat.race.serving else None)
            running = await self._session.get(tree.running(seat.destination), self._watch(seat, "running"))
        except ZooKeeperUnavailable:
            self._feed(seat, i.LookFailed(ticket))
            return
        version = None if node is None else node.version
        self._feed(seat, i.DestinationSeen(ticket, version, RunningNode.read(running)))

    def _watch(self, seat: Candidate, what: str) -> Callable[[bool], None]:
        key = (seat.destination, what)
        if key not in self._watches:
            self._watches[key] = partial(self._fired, seat.destination)
        return self._watches[key]

    def _fired(self, destination: str, deleted: bool) -> None:
        if destination in self._seats:
            self._feed(self._seats[destination], NodeEvent(deleted))

    async def _claim(self, seat: Candidate, claim: i.ClaimDestination) -> None:
        path, running = tree.destination(seat.destination), tree.running(seat.destination)
        operations: list[Operation] = []
        if claim.leftover is not None:
            operations.append(Delete(running, claim.leftover))
        if claim.held is not None:
            operations.append(Check(running, claim.held))
        else:
            operations.append(Create(running, tree.RunningData(self._node).to_bytes(), ephemeral=True))
        operations.append(SetData(path, b"", claim.version or 0))
        operations += [SetData(path, b"")] * claim.jumps
        try:
            if claim.version is None:
                await self._session.ensure(path)
            versions = await self._write(operations)
        except TransactionRefused as refused:
            self._log.info("running.claim_lost", destination=seat.destination, reason=refused.reason)
            self._feed(seat, i.ClaimFailed(claim.ticket))
        except ZooKeeperUnavailable as error:
            self._log.warning("running.claim_unanswered", destination=seat.destination, error=str(error))
            self._feed(seat, i.ClaimFailed(claim.ticket, unknown=True))
        else:
            self._feed(seat, i.Claimed(claim.ticket, versions[-1]))

    async def _release(self, seat: Candidate, ticket: int, epoch: int) -> None:
        running = tree.running(seat.destination)
        try:
            await self._session.transaction(
                [
                    Check(tree.destination(seat.destination), epoch),
                    SetData(running, tree.RunningData(self._node, active=False).to_bytes()),
                    Delete(running),
                ]
            )
        except (TransactionRefused, ZooKeeperUnavailable) as error:
            self._log.warning("running.release_failed", destination=seat.destination, error=str(error))
        else:
            self._log.info("running.released", destination=seat.destination, node=self._node)
        self._feed(seat, Released(ticket))

    # ---- instances

    def _start(self, seat: Candidate, epoch: int, restore: bool) -> None:
        self._log.info(
            "running.claimed", destination=seat.destination, node=self._node, epoch=epoch, cursors_put_back=restore
        )
        ownership = seat.ownership = Ownership(
            seat.destination,
            epoch,
            self._session,
            holds=lambda: seat.race.writing and self._lease_holds(),
            write=self._write,
            fenced=lambda: self._feed(seat, i.EpochMismatch()),
            failed=lambda reason: self._instance_failed(seat, reason),
            restore=seat.durable if restore else None,
        )
        self._probe_soon(self.lease.probe_interval_s)
        seat.starting = Deferred.fromCoroutine(self._run_start(seat, ownership))

    async def _run_start(self, seat: Candidate, ownership: Ownership) -> None:
        try:
            await self._owner.start(seat.destination, ownership)
        except CancelledError:
            return  # by _stop, which goes on from here
        except Exception as error:
            # Whatever it was, another node may fare better.
            self._instance_failed(seat, repr(error))

    def _instance_failed(self, seat: Candidate, reason: str) -> None:
        self._log.error("running.instance_failed", destination=seat.destination, error=reason)
        self._feed(seat, i.InstanceFailed())

    async def _stop(self, seat: Candidate, reason: i.StopReason) -> None:
        self._log.info("running.stopping", destination=seat.destination, node=self._node, reason=reason.value)
        ownership, seat.ownership = seat.ownership, None
        if seat.starting is not None:
            seat.starting.cancel()
            seat.starting = None
        try:
            await self._owner.stop(seat.destination, reason)
        except Exception as error:
            # Whatever it was, the destination must not stay with a node that cannot even stop it.
            self._log.error("running.stop_failed", destination=seat.destination, error=repr(error))
        if ownership is not None:
            seat.durable = ownership.durable or seat.durable
            ownership.end()
        self._feed(seat, i.InstanceStopped())

    # ---- turns

    def _next_turn(self) -> None:
        """Wait for the next claim, unless one is under way or waited for already."""
        if self._claiming is not None or self._turn_timer is not None or not self._session.connected:
            return
        delay_s = self._turns.delay(len(self.running))
        if delay_s is None:
            return
        if not self._settled:
            unstable_s = self._members.stable_in(self._clock.seconds())
            if unstable_s != 0.0:
                self._turn_timer = self._clock.callLater(unstable_s or 0.05, self._turn, False)
                return
            self._settled = True
        self._turn_timer = self._clock.callLater(delay_s, self._turn, True)

    def _turn(self, waited: bool) -> None:
        self._turn_timer = None
        if waited and self._claiming is None and self._session.connected:
            destination = self._turns.take()
            if destination is not None:
                self._claiming = destination
                self._feed(self._seats[destination], i.Turn())
                return
        self._next_turn()

    # ---- lease

    def _lease_holds(self) -> bool:
        if self.lease.holds(self._clock.seconds()):
            return True
        self._clock.callLater(0, self._check_lease)  # found out before the timer did: the process was stopped
        return False

    def _watch_lease(self) -> None:
        over_at = self.lease.over_at()
        if over_at is not None and self._lease_timer is None:
            delay_s = max(0.0, over_at - self._clock.seconds())
            self._lease_timer = self._clock.callLater(delay_s, self._lease_due)

    def _lease_due(self) -> None:
        self._lease_timer = None
        self._check_lease()
        if self.lease.holds(self._clock.seconds()):
            self._watch_lease()

    def _check_lease(self) -> None:
        if not self.lease.holds(self._clock.seconds()):
            self._feed_all(i.LeaseOver())

    def _probe_soon(self, delay_s: float) -> None:
        _cancel(self._probe_timer)
        self._probe_timer = self._clock.callLater(delay_s, self._probe_due)

    def _probe_due(self) -> None:
        """Send a probe when no other quorum write of late has proven the lease; one at a time."""
        self._probe_timer = None
        if not self.running or not self._session.connected:
            return
        interval_s = self.lease.probe_interval_s
        proven_at, now = self.lease.proven_at(), self._clock.seconds()
        fresh_s = 0.0 if proven_at is None else proven_at + interval_s - now
        if fresh_s > interval_s / 10:
            self._probe_soon(fresh_s)
            return
        if not self._probing:
            Deferred.fromCoroutine(self._probe())
        self._probe_soon(interval_s)

    async def _probe(self) -> None:
        seats = [seat for seat in self._seats.values() if seat.race.serving]
        self._probing = True
        try:
            await self._write([Check(tree.destination(seat.destination), seat.race.epoch) for seat in seats])
        except TransactionRefused as refused:
            self._feed(seats[refused.index], i.EpochMismatch())
            self._probe_soon(0.0)  # the others are not proven yet
        except ZooKeeperUnavailable:
            pass  # the lease runs on
        finally:
            self._probing = False


def _cancel(timer: Any) -> None:
    if timer is not None and timer.active():
        timer.cancel()
