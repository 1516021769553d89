"""Executes the commands of all races of this node against one session. Reactor thread.

One lease, one probe and one queue of claims serve all destinations. running.py decides what a race does; this module
turns facts into inputs, commands into requests, and answers into inputs again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from canal_ha.cluster import inputs as i
from canal_ha.cluster.denials import Denials
from canal_ha.cluster.members import Members
from canal_ha.cluster.ownership import Ownership
from canal_ha.cluster.running import Race, RaceState
from canal_ha.cluster.session import ClusterSession, answers_to
from canal_ha.cluster.spread import Turns
from canal_ha.errors import TransactionRefused, ZnodeDenied, ZooKeeperUnavailable
from canal_ha.meta.znodes import Stored
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.lease import Lease
from canal_ha.zookeeper.operations import Check, Create, Delete, Operation, SetData, Znode
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
    """The node, which runs instances. Calls for one destination never overlap; start and stop alternate."""

    async def start(self, destination: str, ownership: Ownership) -> None:
        """Start to serve. Cancelled if ownership is lost meanwhile; an exception lets another node take over."""
        ...

    async def stop(self, destination: str, reason: i.StopReason) -> None:
        """Stop serving; flush cursors if `reason.orderly`. Also called after a start that failed or was cancelled."""
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
    stored: Stored | None = None  # what this node, if it was the last owner, knew to be in ZooKeeper
    left: list[Deferred[None]] = field(default_factory=list)
    leaving: bool = False  # the node asked for its end last
    paused: bool | None = None  # as it was seen, while its watch tells of every change; None: to be asked for
    pause_watch: int = 0  # counts these watches: an answer to a request before the last one has no watch any more

    def forget_pause(self) -> None:
        """Ask whether the destination is paused at the next look: the watch has fired, or is gone."""
        self.paused = None
        self.pause_watch += 1


class Election:
    """The races of this node, one for each destination.

    node: registerIp:port, which `running` names.
    session: the ZooKeeper session.
    members: the live nodes; claims wait until their list is stable.
    owner: runs the instances.
    clock: seconds and callLater of a reactor.
    random: orders claims and delays them.
    denials: gets what ZooKeeper denies.
    log: structlog's.
    """

    def __init__(
        self,
        node: str,
        session: ClusterSession,
        members: Members,
        owner: Owner,
        *,
        clock: Any,
        random: Random,
        denials: Denials,
        log: Any,
    ) -> None:
        self.lease = Lease()
        self._node = node
        self._session = session
        self._members = members
        self._owner = owner
        self._clock = clock
        self._random = random
        self._denials = denials
        self._log = log
        self._candidates: dict[str, Candidate] = {}
        self._session_id = 0
        self._turns = Turns(random.uniform)
        self._claiming: str | None = None
        self._turn_timer: Any = None
        self._settled = False  # whether the member list was stable once in this session
        self._lease_timer: Any = None
        self._probe_timer: Any = None
        self._probing = False
        self._watches: dict[tuple[str, str], Callable[[bool], None]] = {}
        self._releasing: Deferred[None] | None = None  # what `released` waits for

    # ---- what the node asks for

    def add(self, destination: str) -> None:
        """Take part in the race for this destination."""
        candidate = self._candidates.get(destination)
        if candidate is None:
            candidate = self._candidates[destination] = Candidate(destination, Race(self._random.randint, self._node))
            if self._session.connected:  # an earlier race has heard of it
                self._feed(candidate, SessionUp(self._session.id, self._session.timeout_s))
        candidate.leaving = False
        self._feed(candidate, Join())
        self._tell_left(candidate)  # a pending removal need not wait any longer

    async def remove(self, destination: str) -> None:
        """Stop the instance in good order, release the destination, and take no further part.

        Without ZooKeeper this does not wait for the release, which follows when the same session is back.
        """
        candidate = self._candidates.get(destination)
        if candidate is None:
            return
        done: Deferred[None] = Deferred()
        candidate.left.append(done)
        candidate.leaving = True
        self._feed(candidate, Leave())
        await done

    async def released(self) -> None:
        """Wait until ZooKeeper has released the destinations that were removed without its answer.

        Once the session may have expired, nothing is left to wait for.
        """
        proven_at = self.lease.proven_at()
        if proven_at is None or not self._unreleased():
            return
        self._releasing = Deferred()
        most_s = max(0.0, proven_at + self._session.timeout_s - self._clock.seconds())
        timer = self._clock.callLater(most_s, self._released)
        await self._releasing
        _cancel(timer)

    def _unreleased(self) -> bool:
        return any(candidate.race.unreleased for candidate in self._candidates.values())

    def _released(self) -> None:
        releasing, self._releasing = self._releasing, None
        if releasing is not None:
            releasing.callback(None)

    def hand_over(self, destination: str) -> None:
        """Let another node take the destination, if it runs here; this node then stands back for a while."""
        if destination in self._candidates:
            self._feed(self._candidates[destination], i.HandOver())

    def runs(self, destination: str) -> bool:
        """Return whether the destination runs on this node and the node may act as its owner now."""
        candidate = self._candidates.get(destination)
        return candidate is not None and candidate.race.serving and self._lease_holds()

    @property
    def claims(self) -> bool:
        """Whether this node claims a destination, or waits for its turn to."""
        return self._claiming is not None or self._turn_timer is not None

    @property
    def running(self) -> tuple[str, ...]:
        """The destinations that run here."""
        return tuple(sorted(name for name, candidate in self._candidates.items() if candidate.race.serving))

    def states(self) -> dict[str, tuple[str, str]]:
        """Return for each destination the state of its race and the address of the owner while standing by."""
        return {
            name: (candidate.race.state.name, candidate.race.standing_by_for)
            for name, candidate in self._candidates.items()
        }

    # ---- session

    def session_changed(self, event: SessionEvent) -> None:
        """Take a session event and pass it to every race."""
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
        for candidate in self._candidates.values():
            candidate.forget_pause()
        self._feed_all(event)
        if isinstance(event, SessionUp):
            for candidate in self._candidates.values():
                if candidate.ownership is not None:
                    candidate.ownership.watch_again()
            self._probe_soon(0.0)

    def _feed_all(self, event: i.Input) -> None:
        for candidate in tuple(self._candidates.values()):
            self._feed(candidate, event)

    # ---- the races

    def _feed(self, candidate: Candidate, event: i.Input) -> None:
        candidate.inbox.append(event)
        if candidate.busy:
            return
        candidate.busy = True
        try:
            while candidate.inbox:
                for command in candidate.race.step(candidate.inbox.popleft(), self._clock.seconds()):
                    self._execute(candidate, command)
        finally:
            candidate.busy = False
        if self._claiming == candidate.destination and candidate.race.state is not RaceState.CLAIMING:
            self._claiming = None
        if candidate.leaving and candidate.race.state is RaceState.IDLE and self._takes_part(candidate):
            del self._candidates[candidate.destination]
            if self._releasing is not None and not self._candidates:
                self._released()
        self._next_turn()

    def _execute(self, candidate: Candidate, command: i.Command) -> None:
        match command:
            case Look(ticket):
                self._spawn(candidate, self._look(candidate, ticket))
            case i.ClaimDestination():
                self._spawn(candidate, self._claim(candidate, command))
            case i.ReleaseDestination(ticket, epoch):
                self._spawn(candidate, self._release(candidate, ticket, epoch))
            case i.OfferDestination(ticket, epoch, successor):
                self._spawn(candidate, self._release(candidate, ticket, epoch, successor))
            case i.RewriteRunning(epoch, version):
                self._spawn(candidate, self._rewrite(candidate, epoch, version))
            case i.WantTurn(step_s):
                self._turns.want(candidate.destination, step_s)
            case i.DropTurn():
                self._turns.drop(candidate.destination)
            case i.Wait(ticket, delay_s):
                _cancel(candidate.timer)
                candidate.timer = self._clock.callLater(delay_s, self._feed, candidate, i.Elapsed(ticket))
            case i.StartInstance(epoch, restore):
                self._start(candidate, epoch, restore)
            case i.StopInstance(reason):
                self._spawn(candidate, self._stop(candidate, reason))
            case StandingBy(address):
                candidate.stored = None  # another owner moves the cursors from now on
                self._log.info("running.standby", destination=candidate.destination, running_on=address)
            case Left():
                _cancel(candidate.timer)
                self._denials.allowed(tree.destination(candidate.destination))
                self._tell_left(candidate)

    def _tell_left(self, candidate: Candidate) -> None:
        waiting, candidate.left = candidate.left, []
        for done in waiting:
            done.callback(None)

    def _spawn(self, candidate: Candidate, work: Coroutine[Deferred[Any], Any, None]) -> None:
        Deferred.fromCoroutine(work).addErrback(self._broken, candidate)

    def _broken(self, failure: Failure, candidate: Candidate) -> None:
        """Handle an unexpected error: the instance stops, so that another node can take over."""
        self._log.error("election.failed", destination=candidate.destination, error=failure.getTraceback())
        self._feed(candidate, i.InstanceFailed())

    # ---- requests

    async def _write(self, operations: Sequence[Operation]) -> tuple[int, ...]:
        """Make a quorum write. Its answer extends the lease, counted from the moment of sending."""
        sent_at, session_id = self._clock.seconds(), self._session.id
        versions = await self._session.transaction(operations)
        if session_id == self._session_id:
            self.lease.answered(sent_at)
            self._watch_lease()
        return versions

    async def _look(self, candidate: Candidate, ticket: int) -> None:
        path = tree.destination(candidate.destination)
        try:
            node, running, paused = await self._read(candidate)
        except ZooKeeperUnavailable as error:
            if isinstance(error, ZnodeDenied) and self._takes_part(candidate):
                self._denials.denied(path, error)
            self._feed(candidate, i.LookFailed(ticket))
            return
        self._denials.allowed(path)
        version, created = (None, 0) if node is None else (node.version, node.created)
        seen = i.DestinationSeen(ticket, version, RunningNode.read(running), created, paused)
        self._feed(candidate, seen)

    async def _read(self, candidate: Candidate) -> tuple[Znode | None, Znode | None, bool]:
        """Return `{d}` and `running`, and whether `paused` exists. All are asked for before the first answer.

        `{d}` is asked for first: a claim between the reads makes its version too old. Whether the destination is paused
        is known until the watch there fires, or the connection is gone and the watch with it.
        """
        destination, session = candidate.destination, self._session
        watch = self._watch(candidate, "destination") if candidate.race.serving else None
        requests: list[Coroutine[Deferred[Any], Any, Any]] = [
            session.get(tree.destination(destination), watch),
            session.get(tree.running(destination), self._watch(candidate, "running")),
        ]
        asked_in = None if candidate.paused is not None else candidate.pause_watch
        if asked_in is not None:
            requests.append(session.exists(tree.paused(destination), self._watch(candidate, "paused")))
        node, running, *found = await answers_to(requests)
        if asked_in is not None and asked_in == candidate.pause_watch:
            candidate.paused = found[0]
        return node, running, found[0] if found else bool(candidate.paused)

    def _takes_part(self, candidate: Candidate) -> bool:
        return self._candidates.get(candidate.destination) is candidate

    def _watch(self, candidate: Candidate, what: str) -> Callable[[bool], None]:
        key = (candidate.destination, what)
        if key not in self._watches:
            self._watches[key] = partial(self._fired, *key)
        return self._watches[key]

    def _fired(self, destination: str, what: str, deleted: bool) -> None:
        if destination in self._candidates:
            candidate = self._candidates[destination]
            if what == "paused":
                candidate.forget_pause()
            self._feed(candidate, NodeEvent(deleted))

    async def _claim(self, candidate: Candidate, claim: i.ClaimDestination) -> None:
        path, running = tree.destination(candidate.destination), tree.running(candidate.destination)
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
            self._log.info("running.claim_lost", destination=candidate.destination, reason=refused.reason)
            self._feed(candidate, i.ClaimFailed(claim.ticket))
        except ZooKeeperUnavailable as error:
            self._log.warning("running.claim_unanswered", destination=candidate.destination, error=str(error))
            self._feed(candidate, i.ClaimFailed(claim.ticket, unknown=True))
        else:
            self._feed(candidate, i.Claimed(claim.ticket, versions[-1]))

    async def _release(self, candidate: Candidate, ticket: int, epoch: int, successor: str = "") -> None:
        """Let any node claim the destination; with a successor, only that one for now."""
        destination, running = candidate.destination, tree.running(candidate.destination)
        operations: list[Operation] = [
            Check(tree.destination(destination), epoch),
            SetData(running, tree.RunningData(self._node, active=False, successor=successor).to_bytes()),
        ]
        if not successor:
            operations.append(Delete(running))
        try:
            await self._session.transaction(operations)
        except (TransactionRefused, ZooKeeperUnavailable) as error:
            self._log.warning("running.release_failed", destination=destination, error=str(error))
        else:
            about = {"successor": successor} if successor else {}
            self._log.info("running.released", destination=destination, node=self._node, **about)
        self._feed(candidate, Released(ticket))

    async def _rewrite(self, candidate: Candidate, epoch: int, version: int) -> None:
        destination, running = candidate.destination, tree.running(candidate.destination)
        try:
            await self._write(
                [
                    Check(tree.destination(destination), epoch),
                    SetData(running, tree.RunningData(self._node).to_bytes(), version),
                ]
            )
        except (TransactionRefused, ZooKeeperUnavailable) as error:
            self._log.warning("running.not_corrected", destination=destination, error=str(error))
        else:
            self._log.warning("running.corrected", destination=destination, node=self._node)

    # ---- instances

    def _start(self, candidate: Candidate, epoch: int, restore: bool) -> None:
        self._log.info(
            "running.claimed", destination=candidate.destination, node=self._node, epoch=epoch, cursors_put_back=restore
        )
        ownership = candidate.ownership = Ownership(
            candidate.destination,
            epoch,
            self._session,
            holds=lambda: candidate.race.writing and self._lease_holds(),
            write=self._write,
            fenced=lambda: self._feed(candidate, i.EpochMismatch()),
            failed=lambda reason: self._instance_failed(candidate, reason),
            later=self._clock.callLater,
            before=candidate.stored,
            restore=restore,
        )
        self._probe_soon(self.lease.probe_interval_s)
        candidate.starting = Deferred.fromCoroutine(self._run_start(candidate, ownership))

    async def _run_start(self, candidate: Candidate, ownership: Ownership) -> None:
        failure = ""
        try:
            await self._owner.start(candidate.destination, ownership)
        except Exception as error:
            failure = repr(error)
        if candidate.ownership is not ownership:
            return  # _stop has cancelled the start, and nobody asks any more
        if ownership.stored is not None:
            self._feed(candidate, i.CursorsLoaded())
        if failure:
            self._instance_failed(candidate, failure)  # whatever it was, another node may fare better

    def _instance_failed(self, candidate: Candidate, reason: str) -> None:
        self._log.error("running.instance_failed", destination=candidate.destination, error=reason)
        self._feed(candidate, i.InstanceFailed())

    async def _stop(self, candidate: Candidate, reason: i.StopReason) -> None:
        self._log.info("running.stopping", destination=candidate.destination, node=self._node, reason=reason.value)
        ownership, candidate.ownership = candidate.ownership, None
        if candidate.starting is not None:
            candidate.starting.cancel()
            candidate.starting = None
        try:
            await self._owner.stop(candidate.destination, reason)
        except Exception as error:
            # A node that cannot stop the instance must not keep the destination.
            self._log.error("running.stop_failed", destination=candidate.destination, error=repr(error))
        if ownership is not None:
            candidate.stored = ownership.stored or candidate.stored
            ownership.end()
        self._feed(candidate, i.InstanceStopped())

    # ---- turns

    def _next_turn(self) -> None:
        """Wait for the next claim, unless one is under way or waited for already."""
        if self.claims or not self._turns.queued or not self._session.connected:
            return
        share = math.ceil(len(self._candidates) / max(1, len(self._members.names)))
        running = sum(candidate.race.serving for candidate in self._candidates.values())
        delay_s = self._turns.delay(running, share)
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
                self._feed(self._candidates[destination], i.Turn())
                return
        self._next_turn()

    # ---- lease

    def _lease_holds(self) -> bool:
        if self.lease.holds(self._clock.seconds()):
            return True
        self._clock.callLater(0, self._check_lease)  # noticed before the timer fired, because the process was paused
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
        """Send a probe, one at a time, unless another quorum write has proven the lease recently."""
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
        candidates = [candidate for candidate in self._candidates.values() if candidate.race.serving]
        self._probing = True
        try:
            await self._write(
                [Check(tree.destination(candidate.destination), candidate.race.epoch) for candidate in candidates]
            )
        except TransactionRefused as refused:
            self._feed(candidates[refused.index], i.EpochMismatch())
            self._probe_soon(0.0)  # the lease is not proven for the others yet
        except ZooKeeperUnavailable:
            pass  # the lease keeps running out
        finally:
            self._probing = False


def _cancel(timer: Any) -> None:
    if timer is not None and timer.active():
        timer.cancel()
