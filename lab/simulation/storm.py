"""One run: nodes, programs and a source at work, faults at random moments, and a quiet end, when all must be well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from canal_ha.errors import CanalError, MetaWriteFailed
from canal_ha.model.position import LogPosition
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Create, Delete, SetData, Znode
from lab.simulation.moves import MoveRequest
from lab.simulation.node import Node
from lab.simulation.program import Program
from lab.simulation.referee import Broken, Referee
from lab.simulation.session import Link
from lab.simulation.source import MemoryOrigin, Server, Source
from lab.simulation.threads import cooperative
from lab.simulation.time import World
from lab.simulation.zookeeper import Ensemble

COMMIT_EVERY_S = 0.25  # on average
HUGE_ROWS = 60
SETTLE_S = 2.0  # a run lasts at least so long after its last fault


class Simulation:
    """Nodes, an ensemble, sources and programs. seed: a seed repeats its run exactly.

    nodes: how many.
    destinations: how many.
    clients: client ids of each destination.
    timeout_s: of ZooKeeper sessions.
    flush_period_ms: 0 writes cursors with each ACK.
    rebalance_delay_s: how long no node must come or go before destinations move; < 0: they never do.
    preferred: numbers of the nodes that the destinations prefer.
    """

    def __init__(
        self,
        seed: int,
        *,
        nodes: int = 3,
        destinations: int = 1,
        clients: int = 1,
        timeout_s: float = 3.0,
        flush_period_ms: int = 1000,
        rebalance_delay_s: float = 0.5,
        preferred: tuple[int, ...] = (1, 2, 3),
    ) -> None:
        self.seed = seed
        self.rebalance_delay_s = rebalance_delay_s
        self.preferred = preferred
        self.random = Random(seed)
        self._random_moves = Random(f"moves {seed}")  # its own, so that other faults stay where they are
        self.timeout_s = timeout_s
        self.flush_period_ms = flush_period_ms
        self.world = World()
        self.ensemble = Ensemble(self.world)
        self.destinations = tuple(f"d{number}" for number in range(destinations))
        self.sources = {name: Source(Random(self.random.random())) for name in self.destinations}
        self.referee = Referee(self.world, self.ensemble, self.sources, Random(self.random.random()))
        self.referee.flush_period_ms = flush_period_ms
        self.log: Any = _Log(self.referee)
        self.fine_since = 0.0  # when the last fault of the ensemble or of a source was over
        self.writing = True
        self._finishing = False
        self._switches: Counter[str] = Counter()  # of the source, that operators have begun; also restored backups
        for source in self.sources.values():
            self._write(source)
        self.nodes = [Node(number, self) for number in range(1, nodes + 1)]
        self.programs = {
            (name, 1001 + number): Program(self, name, 1001 + number, Random(self.random.random()))
            for name in self.destinations
            for number in range(clients)
        }

    def run(self, seconds: float) -> None:
        """Let time pass. Raises Broken."""
        end = self.world.seconds() + seconds
        with cooperative():
            while self.world.seconds() < end and not self.referee.broken:
                self.world.run(min(end, self.world.seconds() + 0.25))
        if self.referee.broken:
            _, promise, what = self.referee.broken[0]
            raise Broken(promise, what)

    def node_called(self, name: str) -> Node | None:
        """Return the node with this address."""
        return next((node for node in self.nodes if node.name == name), None)

    def _write(self, source: Source) -> None:
        """Commit transactions as long as the run lasts."""
        random = source.random
        if self.writing:
            chance = random.random()
            if chance < 0.06:
                source.commit(random.choice("ab"), ddl=True)
            elif chance < 0.08:
                source.commit("".join(random.choices("ab", k=HUGE_ROWS)))
            else:
                source.commit("".join(random.choices("ab", k=random.randint(1, 4))))
        self.world.callLater(random.uniform(0.0, 2 * COMMIT_EVERY_S), self._write, source)

    # ---- what goes wrong

    def trouble(self, node: Node, seconds: float, end: Callable[[], None]) -> None:
        """Something is wrong with a node for a while."""
        node.fine_since = float("inf")

        def over() -> None:
            end()
            current = self.node_called(node.name)
            if current is not None:
                current.fine_since = self.world.seconds()

        self.world.callLater(seconds, over)

    def crash(self, number: int) -> None:
        """Kill a node's process."""
        self.nodes[number].fine_since = float("inf")
        self.nodes[number].kill()

    def restart(self, number: int) -> None:
        """Start the node again: a new process with the old address."""
        self.crash(number)
        self.nodes[number] = Node(number + 1, self)

    def stop_in_order(self, number: int) -> None:
        """Stop a node as SIGTERM does, and start it again later."""
        node = self.nodes[number]
        if node.stopping or node.process.dead:
            return
        node.stop_in_order()

        def again() -> None:
            if self.nodes[number] is node:
                self.restart(number)

        self.world.callLater(self.random.uniform(2.5, 4.0), again)

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

    def move_destination(self, destination: str) -> None:
        """Ask for a move to another node, which may be dead, or write that node into `running`, as a person does.

        Who sees a cluster of the past may ask for a move to the node that runs the destination by now.
        """
        node = self.ensemble.tree.get(tree.running(destination))
        if node is None:
            return
        owner, random = tree.RunningData.from_bytes(node.data).address, self._random_moves
        to = self.random.choice([each.name for each in self.nodes if each.name != owner])
        if random.random() < 0.2:
            self.referee.note(f"{destination}: a person writes that {to} runs it")
            self.ensemble.transaction(0, [SetData(tree.running(destination), tree.RunningData(to).to_bytes())])
            return
        lag_s = random.choice((0.0, random.uniform(0.1, self.timeout_s)))
        to = random.choice((to, owner)) if lag_s else to

        def done(result: object) -> None:
            self.referee.note(f"{destination}: the move to {to}: {result!r}")
            if isinstance(result, Exception) and not isinstance(result, CanalError):
                self.referee.broke("no-surprise", f"the move of {destination} to {to}: {result!r}")

        MoveRequest(
            self.world,
            self.ensemble,
            Random(random.random()),
            timeout_s=self.timeout_s,
            lag_s=lag_s,
            destination=destination,
            to=to,
            done=done,
            log=self.log,
        )

    def pause_destination(self, destination: str, seconds: float) -> None:
        """Keep the destination stopped for a while."""
        path = tree.paused(destination)
        if path not in self.ensemble.tree and tree.destination(destination) in self.ensemble.tree:
            self.ensemble.transaction(0, [Create(path)])
            self.world.callLater(seconds, self.resume_destination, destination)

    def resume_destination(self, destination: str) -> None:
        """End a pause."""
        if tree.paused(destination) in self.ensemble.tree:
            self.ensemble.transaction(0, [Delete(tree.paused(destination))])

    def edit_cursor(self, destination: str, client_id: int) -> None:
        """Write a cursor with zkCli: back, forwards, or where it is. Its text is never exactly what a node writes."""
        path, source = tree.cursor(destination, client_id), self.sources[destination]
        stored = self.ensemble.tree.get(path)
        if stored is None or not stored.data:
            return
        server = source.server_of(LogPosition.from_json(stored.data.decode()))
        most = len(source.log.transactions)
        there = server.index(LogPosition.from_json(stored.data.decode()))
        index = min(most, max(1, there + self.random.randint(-12, 6)))
        data = server.end_of(index).to_json(with_type=False).encode()
        self.ensemble.submit(0, [SetData(path, data)], lambda result: None)

    def slow_leader(self, seconds: float, commit_s: float) -> None:
        """Let the leader take `commit_s` for each write, for a while."""
        self.ensemble.commit_s = commit_s
        self.fine_since = float("inf")

        def over() -> None:
            self.ensemble.commit_s = 0.0
            self.fine_since = self.world.seconds() + commit_s

        self.world.callLater(seconds, over)

    def lose_zookeeper(self) -> None:
        """Lose all data of the ensemble, which comes back empty. All sessions end."""
        self.restore_backup({"": Znode(b"", 0)})

    def restore_backup(self, backup: Mapping[str, Znode]) -> None:
        """Restore the ensemble from a backup. All sessions end."""
        for destination in self.destinations:
            self.referee.meddled(destination, self.timeout_s)
        self.ensemble.restore(backup)
        self._switches.update(self.destinations)  # the answers of those under way say nothing about the backup
        for destination in self.destinations:
            self.referee.restored(destination)

    def switch_source(self, destination: str) -> None:
        """Switch to the other server, as an operator does on the node that runs the destination."""
        for node in self.runners(destination):
            origin = node.origins[destination]
            if origin.switching:
                continue
            origin.switching = True
            before = self.referee.switched(destination, None)  # while it is under way, nobody knows what is durable
            self._switches[destination] += 1

            def done(
                result: object,
                node: Node = node,
                origin: MemoryOrigin = origin,
                before: Server | None = before,
                number: int = self._switches[destination],
            ) -> None:
                origin.switching = False
                answer = result.value if isinstance(result, Failure) else result
                self.referee.note(f"{destination}: {node.name} switches: {answer!r}")
                if number != self._switches[destination]:
                    return  # another one has begun since then, and is what must last: a paused node answers late
                if isinstance(answer, str):  # also if the destination stopped on this node meanwhile
                    chosen = next(server for server in origin.source.servers if server.name == answer)
                    self.referee.switched(destination, chosen)
                elif not isinstance(answer, MetaWriteFailed):
                    self.referee.switched(destination, before)

            Deferred.fromCoroutine(node.embedded.switch_source(destination, "other")).addBoth(done)

    def lose_server(self, destination: str) -> None:
        """Let the server that is read die, and the operator switch to the other one, until both are up again."""
        running = self.runners(destination)
        if not running or any(server.down for server in self.sources[destination].servers):
            return
        server = running[0].origins[destination].server
        server.down = True
        self.fine_since = float("inf")

        def look() -> None:
            if any(node.origins[destination].server is server for node in self.runners(destination)):
                self.switch_source(destination)

        def back() -> None:
            server.down = False
            self.fine_since = self.world.seconds()

        for at in (0.5, 1.5, 2.5):
            self.world.callLater(at, look)
        self.world.callLater(self.random.uniform(3.0, 4.0), back)

    # ---- a storm

    def break_something(self) -> None:
        """Cause a random fault, which ends after a while or at the end of `storm`."""
        random = self.random
        number = random.randrange(len(self.nodes))
        destination = random.choice(self.destinations)
        running = self.runners(destination)
        if running and random.random() < 0.7:
            number = self.nodes.index(running[0])
        node = self.nodes[number]
        client_id = random.choice([key[1] for key in self.programs])
        fault = random.choices(tuple(FAULTS), weights=tuple(FAULTS.values()))[0]
        self.referee.note(f"-- {fault}: {node.name}, {destination}/{client_id}")
        while_s = random.uniform(0.1, 1.8) * self.timeout_s
        match fault:
            case "crash":
                self.crash(number)
                self.world.callLater(while_s, self._restart_dead, number)
            case "restart":
                self.restart(number)
            case "stop in order":
                self.stop_in_order(number)
                if random.random() < 0.4:
                    self.blip(node)
            case "pause":
                node.process.pause()
                self.trouble(node, while_s, node.process.resume)
            case "pause during a write":
                self.slow_leader(0.8, random.uniform(0.3, 0.8))
                freeze_s = random.uniform(1.0, 1.3) * self.timeout_s
                self.world.callLater(random.uniform(0.2, 0.7), node.process.pause)
                self.trouble(node, 0.7 + freeze_s, node.process.resume)
            case "cut off":
                node.session.cut(Link.DOWN, random.uniform(0.0, self.timeout_s * 2 / 3))
                self.trouble(node, while_s, node.session.heal)
            case "stale follower":
                node.session.cut(Link.STALE, random.uniform(0.0, self.timeout_s * 4 / 3))
                self.trouble(node, while_s, node.session.heal)
            case "blip":
                self.blip(node)
            case "late writes":
                self.slow_leader(random.uniform(0.3, 2.0), random.uniform(0.2, 1.5))
                self._move_soon(node, random.uniform(0.0, 1.5))
            case "lagging follower":
                node.session.move(random.uniform(0.05, 1.0))
                self.trouble(node, 2.0, lambda: None)
            case "end session":
                self.trouble(node, self.timeout_s, lambda: None)
                self.end_session(node)
            case "delete running":
                self.trouble(node, self.timeout_s, lambda: None)
                self.delete_running(destination)
            case "ask to release":
                node.session.watch_delay_s = random.uniform(0.0, self.timeout_s)
                self.ask_to_release(destination)
            case "move":
                self.move_destination(destination)
            case "pause destination":
                self.pause_destination(destination, random.uniform(0.0, 6.0))
            case "wall clock steps":
                node.process.wall_offset_s += random.choice((-3600.0, -30.0, -2.0, 2.0, 30.0, 3600.0))
                if random.random() < 0.7:
                    node.session.cut(Link.DOWN, 0.1)
                    self.trouble(node, while_s, node.session.heal)
            case "source cut off":
                node.cut_off_source(True)
                self.trouble(node, while_s, lambda: node.cut_off_source(False))
            case "switch source":
                if random.random() < 0.5:
                    self._be_silent(5.0)
                self.world.callLater(random.uniform(0.0, 1.0), self.switch_source, destination)
            case "lose server":
                self.lose_server(destination)
            case "edit cursor":
                self.edit_cursor(destination, client_id)
            case "edit in silence":
                self._be_silent(5.0)
                self.world.callLater(random.uniform(0.5, 1.5), self.blip, node)
                self.world.callLater(random.uniform(2.3, 3.0), self.edit_cursor, destination, client_id)
            case "second program":
                self.programs[destination, client_id].meet_another()
            case "client cut off":
                self.programs[destination, client_id].cut()
            case _:
                self.programs[destination, client_id].wish(fault)

    def blip(self, node: Node) -> None:
        """Cut a node off for half a second at most, which is no excuse for anything unless it happens twice."""
        blip_s = self.random.uniform(0.1, 0.5)
        if self.world.seconds() < node.blip_at + 2.0:
            self.trouble(node, blip_s + 1.0, lambda: None)
        node.blip_at = self.world.seconds()
        node.session.cut(Link.DOWN, 0.05)
        self.world.callLater(blip_s, node.session.heal)

    def _move_soon(self, node: Node, delay_s: float) -> None:
        self.world.callLater(delay_s, node.session.move, self.random.choice((0.0, 0.3, 1.0)))
        self.trouble(node, delay_s + 2.0, lambda: None)

    def _restart_dead(self, number: int) -> None:
        if self.nodes[number].process.dead:
            self.restart(number)

    def _be_silent(self, seconds: float) -> None:
        """Commit nothing for a while."""
        self.writing = False
        self.world.callLater(seconds, self._write_again)

    def _write_again(self) -> None:
        self.writing = not self._finishing

    def storm(self, seconds: float, every_s: float) -> None:
        """Cause faults at random moments for a while, then end them all."""
        end = self.world.seconds() + seconds
        while self.world.seconds() < end:
            self.run(self.random.uniform(0.0, 2 * every_s))
            with cooperative():  # a node that stops can open a stream
                self.break_something()
        self.run(self.timeout_s)
        with cooperative():
            self.calm()

    def calm(self) -> None:
        """End all faults."""
        self.fine_since = self.world.seconds()
        self.ensemble.commit_s = 0.0
        for destination in self.destinations:
            self.resume_destination(destination)
        for source in self.sources.values():
            for server in source.servers:
                server.down = False
        for program in self.programs.values():
            program.hurry()
        for number, node in enumerate(self.nodes):
            node.session.watch_delay_s = 0.010
            node.session.heal()
            node.cut_off_source(False)
            if node.process.paused:
                node.process.resume()
            if node.process.dead or node.stopping:
                self.restart(number)

    def finish(self) -> None:
        """Let everything settle. Raises Broken unless each destination runs and each client has all rows."""
        self.run(0.5)
        self.writing, self._finishing = False, True
        for _ in range(16):
            self.run(1.0)
            if self.world.seconds() > self.fine_since + SETTLE_S and self._settled():
                break
        self.must_run()
        for destination, client_id in self.programs:
            self.referee.must_be_done(destination, client_id)
        self.run(0.1)

    def _settled(self) -> bool:
        return all(len(self.runners(destination)) == 1 for destination in self.destinations) and all(
            self.referee.is_done(*key) for key in self.programs
        )

    # ---- what must hold

    def runners(self, destination: str) -> list[Node]:
        """Return the nodes that may answer for the destination now."""
        return [node for node in self.nodes if node.alive and node.cluster.runs(destination)]

    def must_run(self) -> None:
        """Raise Broken unless every destination runs on exactly one node, which `running` names."""
        for destination in self.destinations:
            names = [node.name for node in self.runners(destination)]
            node = self.ensemble.tree.get(tree.running(destination))
            said = None if node is None else tree.RunningData.from_bytes(node.data).address
            if names != [said]:
                states = {node.name: node.cluster.states().get(destination) for node in self.nodes}
                raise Broken("somebody-runs", f"{destination} runs on {names}, `running` says {said}: {states}")

    def spread(self) -> list[int]:
        """Return how many destinations run on each living node."""
        return [len(node.cluster.running) for node in self.nodes if not node.process.dead]


FAULTS = {
    "crash": 2,
    "restart": 1,
    "stop in order": 3,
    "pause": 2,
    "pause during a write": 2,
    "cut off": 3,
    "stale follower": 1,
    "blip": 1,
    "late writes": 4,
    "lagging follower": 2,
    "end session": 1,
    "delete running": 1,
    "ask to release": 1,
    "move": 3,
    "pause destination": 1,
    "wall clock steps": 1,
    "source cut off": 1,
    "switch source": 2,
    "lose server": 1,
    "edit cursor": 2,
    "edit in silence": 2,
    "second program": 2,
    "client cut off": 2,
    "die": 2,
    "roll back": 3,
    "change filter": 3,
    "unsubscribe": 1,
}
"""What can go wrong, and how often beside the others."""


def prepare(seed: int) -> Simulation:
    """Return the cluster of a seed before anything has happened."""
    shape = Random(f"shape {seed}")
    return Simulation(
        seed,
        nodes=2,
        clients=shape.choice((1, 1, 2)),
        timeout_s=2.0,
        flush_period_ms=shape.choice((1000, 1000, 1000, 300, 0)),
        preferred=shape.choice(((1, 2), (1, 2), (2,))),
    )


def act(simulation: Simulation) -> None:
    """Take the cluster through its run. Raises Broken."""
    simulation.run(1.0)
    simulation.storm(5.0, 0.5)
    simulation.finish()


class _Log:
    """A log that drops everything except what must never happen."""

    def __init__(self, referee: Referee) -> None:
        self._referee = referee

    def info(self, event: str, **keys: object) -> None:
        """Do nothing."""

    warning = info

    def error(self, event: str, **keys: object) -> None:
        """Note an error that the election did not foresee. It breaks the run."""
        if event in ("election.failed", "running.stop_failed"):
            self._referee.broke("no-surprise", f"{event} {keys}")
