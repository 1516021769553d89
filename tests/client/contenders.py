"""Processes that compete to be the active client, in virtual time, each with the real machine and its own session."""

from __future__ import annotations

from collections.abc import Coroutine
from random import Random
from typing import Any

from twisted.internet.defer import Deferred

from canal_ha.client import running_inputs as i
from canal_ha.client.running import Seat, SeatState
from canal_ha.errors import TransactionRefused, ZooKeeperUnavailable
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Create, Delete, SetData
from canal_ha.zookeeper.race_events import (
    Join,
    Leave,
    Left,
    Look,
    NodeEvent,
    Released,
    RunningNode,
)
from lab.simulation.session import Link, SimulatedSession
from lab.simulation.time import Process, Timer, World
from lab.simulation.zookeeper import Ensemble

CLIENT = 1001
PATH = tree.client_running("example", CLIENT)
TIMEOUT_S = 6.0


class Contender:
    """One process, which connects at once when it becomes active. told: its machine's commands with their times."""

    def __init__(self, name: str, world: World, ensemble: Ensemble, random: Random) -> None:
        self.name = name
        self.told: list[tuple[float, i.Command]] = []
        self.process = Process(world, random)
        self.session = SimulatedSession(ensemble, self.process, random, timeout_s=TIMEOUT_S)
        self.seat = Seat(CLIENT, name, past_sessions=set())
        self._timer: Timer | None = None
        self.session.listen(self.feed)
        self._spawn(self.session.start())
        self.feed(Join())

    def active(self) -> bool:
        """Return whether it would send an acknowledgement now, if it were not paused."""
        return not self.process.dead and self.seat.active(self.process.seconds())

    def leave(self) -> None:
        """Leave the race; the session is closed when the node is released."""
        self.feed(Leave())

    def feed(self, event: i.Input) -> None:
        """Give the machine one event and execute its commands."""
        for command in self.seat.step(event, self.process.seconds()):
            self.told.append((self.process.seconds(), command))
            self._execute(command)
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.seat.wakes_at is not None:
            delay_s = max(0.0, self.seat.wakes_at - self.process.seconds())
            self._timer = self.process.callLater(delay_s + 1e-6, self.feed, i.RaceTick())

    def _execute(self, command: i.Command) -> None:
        match command:
            case Look(ticket):
                self._spawn(self._look(ticket))
            case i.ClaimConsumer() | i.Rewrite() | i.Probe() | i.ReleaseConsumer():
                self._spawn(self._write(command))
            case i.Activate():
                self.process.callLater(0.01, self.feed, i.NodeConnected(f"{self.name}:40000"))
            case Left():
                self._spawn(self.session.stop())

    async def _look(self, ticket: int) -> None:
        try:
            node = await self.session.get(PATH, self._node_changed)
        except ZooKeeperUnavailable:
            self.feed(i.Unanswered(ticket))
            return
        self.feed(i.ConsumerSeen(ticket, RunningNode.read(node)))

    def _node_changed(self, deleted: bool) -> None:
        self.feed(NodeEvent(deleted))

    async def _write(self, command: i.Writing) -> None:
        operations, sent_at = i.operations(command, PATH), self.process.seconds()
        answer: i.Input
        try:
            versions = await self.session.transaction(operations)
            answer = i.Held(command.ticket, versions[-1], sent_at)
        except ZooKeeperUnavailable:
            answer = i.Unanswered(command.ticket)
        except TransactionRefused as refused:
            if refused.reason == "missing" and isinstance(operations[refused.index], Create):
                await self._try(self.session.ensure(PATH.rpartition("/")[0]))
            answer = i.Refused(command.ticket)
        self.feed(Released(command.ticket) if isinstance(command, i.ReleaseConsumer) else answer)

    async def _try(self, work: Coroutine[Deferred[Any], Any, None]) -> None:
        try:
            await work
        except ZooKeeperUnavailable:
            return

    def _spawn(self, work: Coroutine[Deferred[Any], Any, None]) -> None:
        Deferred.fromCoroutine(work)


class Contest:
    """Several contenders on one ensemble. Every step checks that at most one is active."""

    def __init__(self, seed: int, count: int = 2) -> None:
        self.random = Random(seed)
        self.world = World()
        self.ensemble = Ensemble(self.world)
        self.born = 0
        self.meddled = False
        self.contenders: list[Contender] = []
        for _ in range(count):
            self.join()

    def join(self) -> Contender:
        """Add a new process."""
        self.born += 1
        contender = Contender(f"10.0.0.{self.born}", self.world, self.ensemble, self.random)
        self.contenders.append(contender)
        return contender

    def run(self, seconds: float, step_s: float = 0.02) -> None:
        """Let time pass. Fails if two contenders are active at any step, unless `meddle` was called."""
        until = self.world.seconds() + seconds
        while self.world.seconds() < until:
            self.world.run(min(until, self.world.seconds() + step_s))
            active = [contender.name for contender in self.contenders if contender.active()]
            assert len(active) <= 1 or self.meddled, f"{active} are active at {self.world.seconds()}"

    def winner(self) -> Contender:
        """Return the active contender."""
        (active,) = [contender for contender in self.contenders if contender.active()]
        return active

    def wait_for(self, contender: Contender, seconds: float = 30.0) -> float:
        """Wait until a contender is active; return how long that took, s."""
        began = self.world.seconds()
        while not contender.active():
            assert self.world.seconds() - began < seconds, f"not active: {contender.seat.state}"
            self.run(0.02)
        return self.world.seconds() - began

    def break_something(self) -> None:
        """Break or repair something at random: a link, a process or the node."""
        random, contender = self.random, self.random.choice(self.contenders)
        match random.randrange(8):
            case 0 | 1:
                contender.session.cut(random.choice([Link.DOWN, Link.STALE]), random.uniform(0.1, TIMEOUT_S))
            case 2 | 3:
                for each in self.contenders:
                    each.session.heal()
            case 4:
                contender.process.pause()
            case 5:
                for each in self.contenders:
                    each.process.resume()
            case 6:
                contender.process.kill()
                self.contenders.remove(contender)
                self.join()
            case 7:
                self.set_inactive()

    def set_inactive(self) -> None:
        """Take the turn from the active client, as an operator can."""
        if PATH in self.ensemble.tree:
            data = b'{"active":false,"address":"x","clientId":1001}'
            self.ensemble.transaction(0, [SetData(PATH, data)])

    def meddle(self) -> None:
        """Delete the node or end a session from outside.

        A client that is cut off does not notice, so two may be active for the time of a lease.
        """
        self.meddled = True
        contender = self.random.choice(self.contenders)
        if self.random.random() < 0.5 and contender.session.id:
            self.ensemble.expire(contender.session.id)
        elif PATH in self.ensemble.tree:
            self.ensemble.transaction(0, [Delete(PATH)])

    def mend(self) -> None:
        """Repair all links and resume all processes."""
        for contender in self.contenders:
            contender.session.heal()
            contender.process.resume()

    @property
    def standing_by(self) -> list[Contender]:
        """The contenders that see another active one."""
        return [contender for contender in self.contenders if contender.seat.state is SeatState.STANDBY]
