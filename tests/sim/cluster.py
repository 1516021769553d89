"""A cluster in virtual time whose nodes run the real election, members and cursor store, and its invariants.

Only the instance is simulated: it loads cursors through Meta, acknowledges a few rows now and then while its lease
holds, and flushes once a second. The referee checks every write that ZooKeeper accepts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import structlog
from twisted.internet.defer import Deferred, DeferredLock

from canal_ha.cluster.cluster import Cluster
from canal_ha.cluster.inputs import StopReason
from canal_ha.cluster.ownership import Ownership
from canal_ha.config.model import CanalConfig
from canal_ha.errors import CanalError
from canal_ha.meta.write_behind import Meta
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.position import LogPosition
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Create, Delete, Operation, SetData
from lab.simulation.session import Link, SimulatedSession
from lab.simulation.time import Process, World
from lab.simulation.zookeeper import Ensemble

CLIENT_ID = 1001
FLUSH_S = 1.0
ACK_S = 0.5


class Broken(AssertionError):
    """An invariant does not hold."""


class Referee:
    """Checks every transaction that ZooKeeper accepts and every ACK that a node answers."""

    def __init__(self, world: World, ensemble: Ensemble) -> None:
        self.acked: dict[str, int] = {}  # destination -> furthest offset acknowledged to a client
        self.durable: dict[str, int] = {}
        self.owner: dict[str, int] = {}  # session of the newest claim
        self.writes = 0
        self.serves = 0
        self.broken: list[str] = []  # raised by Simulation.run, because the code under test might catch it
        self._meddled: dict[str, float] = {}
        self._world = world
        self._ensemble = ensemble
        ensemble.commits.append(self._committed)

    def _committed(self, session_id: int, operations: Sequence[Operation], versions: tuple[int, ...]) -> None:
        for operation in operations:
            if not isinstance(operation, Create | SetData):
                continue
            parts = operation.path.split("/")
            if len(parts) == 5 and isinstance(operation, SetData):  # the destination itself: a claim
                self.owner[parts[4]] = session_id
            elif parts[-1] == "cursor":
                self._cursor_written(parts[4], session_id, LogPosition.from_json(operation.data.decode()).offset)

    def _cursor_written(self, destination: str, session_id: int, offset: int) -> None:
        self.writes += 1
        if self.owner.get(destination) != session_id:
            self.broken.append(
                f"{destination}: session {session_id} wrote a cursor, {self.owner.get(destination)} owns it"
            )
        if offset < self.durable.get(destination, 0):
            self.broken.append(f"{destination}: the cursor went back from {self.durable[destination]} to {offset}")
        if offset > self.acked.get(destination, 0):
            self.broken.append(
                f"{destination}: cursor {offset} is past what was acknowledged, {self.acked.get(destination)}"
            )
        self.durable[destination] = offset

    def served(self, destination: str, session_id: int, offset: int) -> None:
        """Note that a node answered for the destination, and acknowledged up to `offset`."""
        self.serves += 1
        excused = self._world.seconds() < self._meddled.get(destination, -1.0)
        if session_id not in self._ensemble.sessions and not excused:
            self.broken.append(f"{destination}: served beyond the end of session {session_id}")
        if self.owner.get(destination) != session_id and not excused:
            self.broken.append(f"{destination}: session {session_id} served, {self.owner.get(destination)} owns it")
        self.acked[destination] = max(offset, self.acked.get(destination, 0))

    def meddled(self, destination: str, for_s: float) -> None:
        """Note that a person deleted `running` or ended a session early.

        Until the owner notices, within its lease, two nodes may serve the destination, though only one can write.
        """
        self._meddled[destination] = self._world.seconds() + for_s

    def reset(self, destination: str) -> None:
        """Note that a person deleted the destination, which begins anew."""
        self.acked.pop(destination, None)
        self.durable.pop(destination, None)


class Instance:
    """A running destination on a node."""

    def __init__(self, node: Node, destination: str, ownership: Ownership) -> None:
        self.node, self.destination, self.ownership = node, destination, ownership
        backend = ownership.meta(
            replaced=lambda client_id, position: self.meta.replaced(client_id, position),
            lost=lambda client_id: self.meta.rewrite(client_id),
        )
        self.meta = Meta(destination, backend, turn=DeferredLock())
        self.stopped = False

    async def start(self) -> None:
        """Load the cursors, subscribe the only client, and begin to acknowledge and to flush."""
        await self.meta.load()
        if self.meta.cursor(CLIENT_ID) is None:
            self.node.referee.acked.setdefault(self.destination, 0)
            await self.meta.subscribe(ClientIdentity(self.destination, CLIENT_ID), _position(0))
        self._acknowledge()
        self._flush_later()

    def _acknowledge(self) -> None:
        if self.stopped:
            return
        if self.ownership.lease_ok():
            cursor = self.meta.cursor(CLIENT_ID)
            offset = (cursor.offset if cursor else 0) + self.node.random.randint(0, 9)
            self.node.referee.served(self.destination, self.node.session.id, offset)
            self.meta.move(CLIENT_ID, _position(offset))
        self.node.process.callLater(self.node.random.uniform(0, 2 * ACK_S), self._acknowledge)

    def _flush_later(self) -> None:
        if not self.stopped:
            self.node.process.callLater(FLUSH_S, lambda: Deferred.fromCoroutine(self._flush_again()))

    async def _flush_again(self) -> None:
        await self.flush()
        self._flush_later()

    async def flush(self) -> None:
        """Flush the cursors if the lease holds. After an error they stay due."""
        if self.ownership.lease_ok():
            try:
                await self.meta.flush()
            except CanalError:
                return


def _position(offset: int) -> LogPosition:
    return LogPosition("mysql-bin.000001", offset, address="127.0.0.1")


class Node:
    """A process: its time, its session and its Cluster. It is also the Owner of its instances."""

    def __init__(self, number: int, simulation: Simulation) -> None:
        self.name = f"10.0.0.{number}:11111"
        self.random = Random(simulation.random.random())
        self.referee = simulation.referee
        self.process = Process(simulation.world, self.random)
        self.session = SimulatedSession(simulation.ensemble, self.process, self.random, timeout_s=simulation.timeout_s)
        self.instances: dict[str, Instance] = {}
        config = CanalConfig(simulation.conf_dir, (), register_ip=f"10.0.0.{number}")
        self.cluster = Cluster(
            config, self.process, self.session, self, lambda: self.name, random=self.random, log=simulation.log
        )
        Deferred.fromCoroutine(self.cluster.start())
        for destination in simulation.destinations:
            self.cluster.add(destination)

    async def start(self, destination: str, ownership: Ownership) -> None:
        """See Owner."""
        instance = self.instances[destination] = Instance(self, destination, ownership)
        await instance.start()

    async def stop(self, destination: str, reason: StopReason) -> None:
        """See Owner."""
        instance = self.instances.pop(destination)
        instance.stopped = True
        if reason.orderly:
            await instance.flush()


class Simulation:
    """Nodes, an ensemble, and faults. seed: a seed repeats its run exactly. lax: without the check of epochs."""

    def __init__(
        self,
        seed: int,
        *,
        nodes: int = 3,
        destinations: int = 1,
        timeout_s: float = 3.0,
        lax: bool = False,
        verbose: bool = False,
    ) -> None:
        self.conf_dir = Path("conf")
        self.random = Random(seed)
        self.timeout_s = timeout_s
        self.world = World()
        self.ensemble = Ensemble(self.world, lax=lax)
        self.referee = Referee(self.world, self.ensemble)
        self.log: Any = structlog.get_logger() if verbose else _Silent(self.referee)
        self.destinations = tuple(f"d{number}" for number in range(destinations))
        self.nodes = [Node(number, self) for number in range(1, nodes + 1)]

    def run(self, seconds: float) -> None:
        """Let time pass. Raises Broken."""
        self.world.run(self.world.seconds() + seconds)
        if self.referee.broken:
            raise Broken(self.referee.broken[0])

    # ---- what goes wrong

    def crash(self, number: int) -> None:
        """Kill a node's process."""
        self.nodes[number].process.kill()

    def restart(self, number: int) -> None:
        """Start the node again: a new process with the old address."""
        self.nodes[number].process.kill()
        self.nodes[number] = Node(number + 1, self)

    def delete_running(self, destination: str) -> None:
        """Delete `running`, as a person does."""
        if tree.running(destination) in self.ensemble.tree:
            self.referee.meddled(destination, self.timeout_s)
            self.ensemble.transaction(0, [Delete(tree.running(destination))])

    def delete_destination(self, destination: str) -> None:
        """Delete the destination with everything below it, as a person does."""
        below = [path for path in self.ensemble.tree if f"{path}/".startswith(f"{tree.destination(destination)}/")]
        self.referee.meddled(destination, self.timeout_s)
        self.referee.reset(destination)
        self.ensemble.transaction(0, [Delete(path) for path in sorted(below, reverse=True)])

    def end_session(self, node: Node) -> None:
        """End a session before its time-out, as a person does."""
        for destination in self.destinations:
            self.referee.meddled(destination, self.timeout_s)
        self.ensemble.expire(node.session.id)

    def ask_to_release(self, destination: str) -> None:
        """Set `active` to false, as a person does."""
        node = self.ensemble.tree.get(tree.running(destination))
        if node is not None:
            data = tree.RunningData(tree.RunningData.from_bytes(node.data).address, active=False)
            self.ensemble.transaction(0, [SetData(tree.running(destination), data.to_bytes())])

    def break_something(self) -> None:
        """Cause a random fault, which ends after a while or at the end of `storm`."""
        number = self.random.randrange(len(self.nodes))
        node = self.nodes[number]
        destination = self.random.choice(self.destinations)
        while_s = self.random.uniform(0.1, 2.5) * self.timeout_s
        notice_s = self.random.uniform(0.0, self.timeout_s * 2 / 3)
        match self.random.randrange(10):
            case 0:
                self.crash(number)
                self.world.callLater(while_s, self.restart, number)
            case 1:
                self.restart(number)
            case 2 | 3:
                node.process.pause()
                self.world.callLater(while_s, node.process.resume)
            case 4 | 5:
                node.session.cut(Link.DOWN, notice_s)
                self.world.callLater(while_s, node.session.heal)
            case 6:
                node.session.cut(Link.STALE, notice_s * 2)
                self.world.callLater(while_s, node.session.heal)
            case 7:
                self.end_session(node)
            case 8:
                self.delete_running(destination)
            case 9:
                node.session.watch_delay_s = self.random.uniform(0.0, self.timeout_s)
                self.ask_to_release(destination)

    def storm(self, seconds: float, every_s: float) -> None:
        """Cause faults at random moments for a while, then end them all."""
        end = self.world.seconds() + seconds
        while self.world.seconds() < end:
            self.run(self.random.uniform(0.0, 2 * every_s))
            self.break_something()
        self.run(3 * self.timeout_s)
        for number, node in enumerate(self.nodes):
            node.session.watch_delay_s = 0.010
            node.session.heal()
            if node.process.dead:
                self.restart(number)
            elif node.process.paused:
                node.process.resume()

    # ---- what must hold

    def runners(self, destination: str) -> list[Node]:
        """Return the nodes that may answer for the destination now."""
        return [
            node
            for node in self.nodes
            if not node.process.dead and not node.process.paused and node.cluster.runs(destination)
        ]

    def must_run(self) -> None:
        """Raise Broken unless every destination runs on exactly one node, which `running` names."""
        for destination in self.destinations:
            names = [node.name for node in self.runners(destination)]
            node = self.ensemble.tree.get(tree.running(destination))
            said = None if node is None else tree.RunningData.from_bytes(node.data).address
            if names != [said]:
                states = {node.name: node.cluster.states().get(destination) for node in self.nodes}
                raise Broken(f"{destination} runs on {names}, `running` says {said}: {states}")

    def spread(self) -> list[int]:
        """Return how many destinations run on each living node."""
        return [len(node.cluster.running) for node in self.nodes if not node.process.dead]


class _Silent:
    """A log that drops everything except what must never happen."""

    def __init__(self, referee: Referee) -> None:
        self._referee = referee

    def info(self, event: str, **keys: object) -> None:
        """Do nothing."""

    warning = info

    def error(self, event: str, **keys: object) -> None:
        """Note an error that the election did not foresee. It breaks the run."""
        if event == "election.failed":
            self._referee.broken.append(str(keys))
