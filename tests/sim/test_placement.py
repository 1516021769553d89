"""Clusters in virtual time in which destinations move: by themselves, on request, and while things break."""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine, Iterable
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from canal_ha.cluster.cluster import Cluster
from canal_ha.cluster.inputs import StopReason
from canal_ha.cluster.mover import HandedOver
from canal_ha.cluster.ownership import Ownership
from canal_ha.config.model import CanalConfig
from canal_ha.errors import CanalError, PlacementRefused
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Create, SetData, Watch
from lab.simulation.node import Node
from lab.simulation.referee import Broken
from lab.simulation.session import SimulatedSession
from lab.simulation.storm import Simulation
from lab.simulation.time import Process, World
from lab.simulation.zookeeper import Ensemble
from tests.cluster.test_election import Log


class Request:
    """What an operator asks of a node. answer: None while there is none."""

    def __init__(self, asked: Coroutine[Deferred[Any], Any, Any]) -> None:
        self.answer: Any = None
        Deferred.fromCoroutine(asked).addBoth(self._done)

    def _done(self, answer: Any) -> None:
        self.answer = answer

    @property
    def refusal(self) -> str:
        """The text of the error."""
        assert isinstance(self.answer.value, CanalError)
        return str(self.answer.value)


def roles(simulation: Simulation) -> tuple[Node, Node, Node]:
    """Return who runs d0, who gets it, and who is asked for the move."""
    giver = owner(simulation)
    taker, asked = [node for node in simulation.nodes if node is not giver]
    return giver, taker, asked


def owner(simulation: Simulation, destination: str = "d0") -> Node:
    """Return the only node that runs a destination."""
    (found,) = simulation.runners(destination)
    return found


def moves(simulation: Simulation) -> int:
    """Return how many hand-overs were begun."""
    return sum(" stops: handed over" in line for line in simulation.referee.trace)


class BareNode:
    """A node with the real Cluster, which runs nothing. It joins on creation.

    moves: hand-overs that it began.
    log: what it logs.
    session: with the ensemble.
    """

    def __init__(
        self,
        world: World,
        ensemble: Ensemble,
        number: int,
        seed: int,
        destinations: list[str],
        interval_s: float = 1.0,
    ) -> None:
        random = Random(f"{seed} {number}")
        self.moves = 0
        self.log = Log()
        self.process = Process(world, random)
        session = SimulatedSession(ensemble, self.process, random, timeout_s=3.0)
        self.session = session
        address = f"10.0.0.{number}"
        config = CanalConfig(Path("conf"), (), register_ip=address, rebalance_interval_s=interval_s)
        self.cluster = Cluster(config, self.process, session, self, lambda: "", random=random, log=self.log)
        Deferred.fromCoroutine(self.cluster.start())
        for destination in destinations:
            self.cluster.add(destination)

    async def start(self, destination: str, ownership: Ownership) -> None:
        """See Owner."""

    async def stop(self, destination: str, reason: StopReason) -> None:
        """See Owner."""
        self.moves += reason is StopReason.HAND_OVER


@pytest.mark.parametrize("restarts", [10, pytest.param(50, marks=pytest.mark.nightly("this test with 10 restarts"))])
def test_sixty_destinations_stay_even_over_random_restarts(restarts: int) -> None:
    """A minute after each restart no node runs more than 21, and at most 21 destinations have moved for it."""
    world, destinations = World(), [f"d{number}" for number in range(60)]
    ensemble, random = Ensemble(world), Random(1)
    nodes = [BareNode(world, ensemble, number, 0, destinations) for number in range(3)]
    most, moves = [], []
    for seed in range(1, restarts + 1):
        before = [node.moves for node in nodes]
        number = random.randrange(3)
        if random.random() < 0.5:
            nodes[number].process.kill()
        else:
            Deferred.fromCoroutine(nodes[number].cluster.stop())
        world.run(world.now + random.uniform(0.5, 15.0))
        nodes[number].process.kill()
        nodes[number] = BareNode(world, ensemble, number, seed, destinations)
        before[number] = 0
        world.run(world.now + 60.0)
        running = [node.cluster.running for node in nodes]
        assert sorted(chain(*running)) == sorted(destinations)
        most.append(max(map(len, running)))
        moves.append(sum(node.moves for node in nodes) - sum(before))
    print(f"most on one node: {most}; moves: {moves}, together {sum(moves)}")
    assert max(most) <= 21
    assert max(moves) <= 21


@pytest.mark.nightly("the same of sixty destinations")
def test_the_share_of_a_lost_node_of_two_thousand_destinations_runs_again_within_seconds() -> None:
    """Five seconds after the end of its session, the other four run them, and none many more than another."""
    world, destinations = World(), [f"d{number}" for number in range(2000)]
    ensemble = Ensemble(world)
    nodes = [BareNode(world, ensemble, number, 0, destinations) for number in range(5)]
    world.run(60.0)
    lost, *others = nodes
    share = set(lost.cluster.running)
    assert sorted(chain(*(node.cluster.running for node in nodes))) == sorted(destinations)
    assert 390 <= len(share) <= 410
    lost.process.kill()
    world.run(world.now + 3.0 + 5.0)
    running = [node.cluster.running for node in others]
    assert sorted(chain(*running)) == sorted(destinations)
    assert max(map(len, running)) - min(map(len, running)) <= 40


@pytest.mark.parametrize(("interval_s", "least", "most"), [(0.1, 20, 20), (1.0, 4, 8)])
def test_moves_follow_each_other_as_fast_as_configured(interval_s: float, least: int, most: int) -> None:
    """A third node gets 20 destinations within some seconds, or only some of them."""
    world, destinations = World(), [f"d{number}" for number in range(60)]
    ensemble = Ensemble(world)

    def node(number: int) -> BareNode:
        return BareNode(world, ensemble, number, number, destinations, interval_s)

    nodes = [node(0), node(1)]
    world.run(world.now + 60.0)
    nodes.append(node(2))
    world.run(world.now + 17.0)
    assert least <= len(nodes[2].cluster.running) <= most


def test_a_settled_cluster_moves_nothing() -> None:
    """Numbers that differ by one are even enough."""
    simulation = Simulation(2, nodes=3, destinations=7, clients=0)
    simulation.run(20.0)
    before = moves(simulation)
    simulation.run(300.0)
    assert moves(simulation) == before


def test_a_node_that_moves_nothing_does_not_read_every_destination_when_a_node_is_gone() -> None:
    """With thousands of them, all nodes would read at the moment at which they take over what the lost one ran."""
    world, destinations = World(), [f"d{number}" for number in range(100)]
    ensemble = Ensemble(world)
    nodes = [BareNode(world, ensemble, number, 0, destinations) for number in range(3)]
    world.run(60.0)
    read = Counter[int]()
    for number, node in enumerate(nodes):
        _count_members_read(node.session, read, number)
    nodes[2].process.kill()
    world.run(world.now + 60.0)
    assert read[0] >= 100  # the first by name balances the cluster
    assert 0 < read[1] < 50


def _count_members_read(session: SimulatedSession, read: Counter[int], number: int) -> None:
    """Count the destinations whose members a node reads."""
    children = session.children

    async def counted(path: str, watch: Watch | None = None) -> tuple[str, ...]:
        read[number] += path.endswith("/cluster") and path != tree.CLUSTER
        return await children(path, watch)

    session.children = counted  # type: ignore[method-assign]


def test_one_destination_moves_at_a_time() -> None:
    """While a hand-over is under way, no other begins."""
    simulation = Simulation(3, nodes=3, destinations=12, clients=0)
    simulation.run(5.0)
    simulation.crash(0)
    simulation.run(10.0)
    simulation.restart(0)
    offered = []
    for _ in range(1500):
        simulation.run(0.01)
        nodes = [simulation.ensemble.tree.get(tree.running(name)) for name in simulation.destinations]
        offered.append(sum(bool(node and tree.RunningData.from_bytes(node.data).successor) for node in nodes))
    assert max(offered) == 1
    assert sorted(simulation.spread()) == [4, 4, 4]


def test_nothing_moves_while_nodes_come_and_go() -> None:
    """Moves wait until the list of nodes has been the same for the delay."""
    simulation = Simulation(4, nodes=3, destinations=9, clients=0, rebalance_delay_s=5.0)
    simulation.run(10.0)
    simulation.crash(0)
    simulation.run(10.0)
    before = moves(simulation)
    for _ in range(4):
        simulation.restart(0)
        simulation.run(4.0)
    assert moves(simulation) == before
    simulation.run(20.0)
    assert sorted(simulation.spread()) == [3, 3, 3]


def test_a_destination_moves_to_the_nodes_that_it_prefers_and_stays_there() -> None:
    """It runs elsewhere while none of them is alive, and comes back."""
    simulation = Simulation(5, nodes=3, destinations=4, clients=1, preferred=(2,))
    preferred = simulation.nodes[1]
    simulation.run(20.0)
    assert preferred.cluster.running == simulation.destinations
    simulation.crash(1)
    simulation.run(10.0)
    simulation.must_run()
    simulation.restart(1)
    simulation.run(20.0)
    assert simulation.nodes[1].cluster.running == simulation.destinations


def test_a_move_hands_over_without_a_moment_in_which_running_is_free() -> None:
    """Nobody else can claim in between. The move says how long it took, and every acknowledged row is durable."""
    for seed in range(20):
        simulation = Simulation(seed, rebalance_delay_s=-1)
        simulation.run(4.0)
        _, taker, asked = roles(simulation)
        request = Request(asked.cluster.mover.move("d0", taker.name))
        while request.answer is None:
            simulation.run(0.005)
            assert simulation.ensemble.tree.get(tree.running("d0")) is not None
        assert isinstance(request.answer, HandedOver)
        assert 0.0 < request.answer.seconds < 1.0
        assert owner(simulation) is taker
        simulation.finish()


def test_a_destination_that_moves_back_soon_does_not_stand_still_and_go_to_a_third_node() -> None:
    """The node that gave it away stands back for a while, but not from a move that names it."""
    for seed in range(10):
        simulation = Simulation(seed, rebalance_delay_s=-1)
        simulation.run(4.0)
        giver, taker, asked = roles(simulation)
        for to in (taker, giver):
            request = Request(asked.cluster.mover.move("d0", to.name))
            while request.answer is None:
                simulation.run(0.005)
            assert isinstance(request.answer, HandedOver)
            assert request.answer.seconds < 1.0
            assert owner(simulation) is to
            simulation.run(0.5)
        simulation.finish()


def test_a_move_that_cannot_be_made_says_why() -> None:
    """Unknown nodes, nodes without the destination, Java nodes and paused destinations are named."""
    simulation = Simulation(6, destinations=2, rebalance_delay_s=-1)
    simulation.run(3.0)
    node = owner(simulation)
    taker = next(each for each in simulation.nodes if each is not node)
    java = "10.0.0.9:11111"
    simulation.ensemble.transaction(0, [Create(tree.destination_member("d0", java))])
    Deferred.fromCoroutine(taker.cluster.remove("d0"))
    simulation.run(0.5)

    def refusal(destination: str, to: str) -> str:
        request = Request(node.cluster.mover.move(destination, to))
        simulation.run(0.5)
        return request.refusal

    assert refusal("nothing", taker.name).startswith("no node has a destination nothing")
    assert refusal("d0", "10.0.0.8:11111").startswith("no node 10.0.0.8:11111 is alive")
    assert refusal("d0", taker.name).startswith(f"{taker.name} does not have d0; ")
    assert refusal("d0", node.name) == f"d0 runs on {node.name} already"
    assert refusal("d0", java).startswith(f"{java} cannot be chosen: it is a Java node")
    pause = Request(node.cluster.mover.pause("d0"))
    simulation.run(1.0)
    assert pause.answer == node.name
    assert refusal("d0", taker.name) == "d0 is paused: resume it first"


def test_a_destination_whose_successor_dies_goes_to_another_node() -> None:
    """The offer lasts 2 s; then any node takes the destination, and the move says that it failed."""
    simulation = Simulation(7, rebalance_delay_s=-1)
    simulation.run(3.0)
    giver = owner(simulation)
    taker, third = [node for node in simulation.nodes if node is not giver]
    request = Request(giver.cluster.mover.move("d0", taker.name))
    simulation.crash(simulation.nodes.index(taker))
    simulation.run(3.5)
    assert owner(simulation) is third
    assert request.refusal.startswith(f"{taker.name} has not taken d0, and {third.name} runs d0")


def third_with_one(interval_s: float, world: World, ensemble: Ensemble) -> list[BareNode]:
    """Start two nodes with 12 destinations, and a third one. Return them when it has got the first of its 4."""
    destinations = [f"d{number}" for number in range(12)]
    nodes = []
    for number, alone_s in enumerate((0.0, 60.0, 0.0)):
        nodes.append(BareNode(world, ensemble, number, number, destinations, interval_s))
        world.run(world.now + alone_s)
    while not nodes[2].cluster.running:
        world.run(world.now + 0.1)
    world.run(world.now + 1.0)
    assert len(nodes[2].cluster.running) == 1
    return nodes


def test_no_destination_is_offered_to_a_node_that_left_between_two_moves() -> None:
    """A long `canal.cluster.rebalance.interval` outlives nodes. A plan ends when a node comes or goes."""
    world = World()
    ensemble = Ensemble(world)
    nodes = third_with_one(40.0, world, ensemble)
    gone = nodes[2].cluster.node
    nodes[2].process.kill()
    world.run(world.now + 5.0)
    offered = set()
    for _ in range(4000):
        world.run(world.now + 0.05)
        offered |= offers(ensemble, [f"d{number}" for number in range(12)])
    assert gone not in offered
    assert sorted(len(node.cluster.running) for node in nodes[:2]) == [6, 6]


def test_an_operator_can_rebalance_while_the_node_waits_between_two_moves() -> None:
    """The moves are made at once, and the node makes none of its older plan after them."""
    world = World()
    nodes = third_with_one(40.0, world, Ensemble(world))
    request = Request(nodes[0].cluster.mover.rebalance())
    world.run(world.now + 5.0)
    assert [each.move.moved_to for each in request.answer] == [nodes[2].cluster.node] * 3
    made = sum(node.moves for node in nodes)
    world.run(world.now + 300.0)
    assert sum(node.moves for node in nodes) == made
    assert [len(node.cluster.running) for node in nodes] == [4, 4, 4]
    assert "placement.not_moved" not in nodes[0].log.events


def successors(simulation: Simulation) -> set[str]:
    """Return the nodes to which destinations are being handed over."""
    return offers(simulation.ensemble, simulation.destinations)


def offers(ensemble: Ensemble, destinations: Iterable[str]) -> set[str]:
    """Return the nodes to which destinations are being handed over."""
    nodes = [ensemble.tree.get(tree.running(name)) for name in destinations]
    return {tree.RunningData.from_bytes(node.data).successor for node in nodes if node} - {""}


def test_a_node_that_dies_while_it_gets_a_destination_gets_its_share_soon_after_it_is_back() -> None:
    """The hand-over fails, and the minute after a failure counts only while the nodes stay the same."""
    simulation = Simulation(12, nodes=3, destinations=12, clients=0)
    simulation.run(5.0)
    simulation.crash(2)
    simulation.run(10.0)
    simulation.restart(2)
    while simulation.nodes[2].name not in successors(simulation):
        simulation.run(0.01)
    simulation.crash(2)
    simulation.run(10.0)
    simulation.restart(2)
    simulation.run(20.0)
    assert sorted(simulation.spread()) == [4, 4, 4]


def test_a_pause_lasts_over_restarts_of_all_nodes() -> None:
    """No node runs the destination until it is resumed; the others go on."""
    simulation = Simulation(8, destinations=2)
    simulation.run(4.0)
    pause = Request(simulation.nodes[0].cluster.mover.pause("d0"))
    simulation.run(1.0)
    assert isinstance(pause.answer, str)
    for number in range(3):
        simulation.restart(number)
        simulation.run(4.0)
        assert simulation.runners("d0") == []
    assert len(simulation.runners("d1")) == 1
    resume = Request(simulation.nodes[0].cluster.mover.resume("d0"))
    simulation.run(2.0)
    assert resume.answer == owner(simulation).name
    simulation.finish()


def test_the_referee_notices_a_paused_destination_that_runs() -> None:
    """A node that does not look at the pause breaks the promise."""
    simulation = Simulation(9)
    simulation.run(3.0)
    node = owner(simulation)
    node.session.watch_delay_s = 1e6
    simulation.ensemble.transaction(0, [Create(tree.paused("d0"))])
    with pytest.raises(Broken, match="paused-stays-stopped"):
        simulation.run(10.0)


def test_an_operator_can_pause_and_resume_once() -> None:
    """A second pause and a second resume are refused."""
    simulation = Simulation(10)
    simulation.run(3.0)
    mover = simulation.nodes[0].cluster.mover
    for asked, refused in ((mover.pause, "d0 is paused already"), (mover.resume, "d0 is not paused")):
        first = Request(asked("d0"))
        simulation.run(2.0)
        assert isinstance(first.answer, str)
        second = Request(asked("d0"))
        simulation.run(1.0)
        assert second.refusal == refused


def test_a_request_that_meets_another_is_refused() -> None:
    """`running` changed between the look and the request."""
    simulation = Simulation(11, rebalance_delay_s=-1)
    simulation.run(3.0)
    giver = owner(simulation)
    taker = next(node for node in simulation.nodes if node is not giver)
    data = tree.RunningData(giver.name, successor=taker.name).to_bytes()
    giver.process.pause()
    simulation.ensemble.transaction(0, [SetData(tree.running("d0"), data)])
    request = Request(taker.cluster.mover.move("d0", taker.name))
    simulation.run(0.5)
    assert isinstance(request.answer.value, PlacementRefused)
    assert "is handing d0 to" in request.refusal


def test_a_move_that_was_decided_before_a_claim_does_not_make_running_name_the_former_owner() -> None:
    """Each new owner's `running` begins at the same version, so a node that reads it late sees no difference there."""
    for seed in range(10):
        simulation = Simulation(seed, timeout_s=2.0, rebalance_delay_s=-1)
        simulation.run(3.0)
        _, taker, asked = roles(simulation)
        asked.session.move(1.0)  # to a follower that is a second behind
        simulation.run(0.3)
        Request(taker.cluster.mover.move("d0", taker.name))
        while simulation.runners("d0") != [taker]:
            simulation.run(0.005)
        late = Request(asked.cluster.mover.move("d0", taker.name))
        simulation.run(0.2)
        simulation.must_run()
        assert late.refusal.endswith("was changed at the same moment: try again")
