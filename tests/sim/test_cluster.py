"""Clusters in virtual time, and one kind of fault at a time."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred

from canal_ha.cluster.inputs import StopReason
from canal_ha.errors import LocalProtocolError
from canal_ha.zookeeper import tree
from lab.simulation.referee import Broken
from lab.simulation.session import Link
from lab.simulation.source import MemoryOrigin, Source
from lab.simulation.storm import Simulation


def durable_row(simulation: Simulation) -> int:
    """Return the last row before the durable cursor of the only client."""
    row = simulation.referee.consumer("d0", 1001).durable
    assert row is not None
    return row


def test_destinations_spread_and_spread_again() -> None:
    """In 19 of 20 seeds, 3 nodes run 4 of 12 destinations each, give or take one, and 2 nodes 6 each after a crash."""
    good = 0
    for seed in range(20):
        simulation = Simulation(seed, nodes=3, destinations=12, clients=0)
        simulation.run(5.0)
        simulation.must_run()
        before = simulation.spread()
        simulation.crash(0)
        simulation.run(10.0)
        simulation.must_run()
        after = simulation.spread()
        good += all(3 <= count <= 5 for count in before) and all(5 <= count <= 7 for count in after)
    assert good >= 19


def test_a_dead_owner_is_followed_within_a_second_of_its_session() -> None:
    """Another node runs within the session time-out and a second after a crash, at whatever moment."""
    for seed in range(40):
        simulation = Simulation(seed)
        simulation.run(3.0 + seed * 0.07)
        (owner,) = simulation.runners("d0")
        simulation.crash(simulation.nodes.index(owner))
        simulation.run(simulation.timeout_s + 1.0)
        simulation.must_run()


def test_a_frozen_owner_does_not_blame_another_claim() -> None:
    """It stops because its lease is over. With an unflushed cursor too, nobody but ZooKeeper tells of a new epoch."""
    told = set()
    for seed in range(20):
        simulation = Simulation(seed, nodes=1)
        simulation.run(3.0 + seed * 0.07)
        (owner,) = simulation.runners("d0")
        owner.process.pause()
        simulation.run(simulation.timeout_s * 0.9)
        owner.process.resume()
        simulation.run(0.5)
        told |= {line.partition(": ")[2] for line in simulation.referee.trace if " stops: " in line}
    assert told == {f"{owner.name} stops: {StopReason.LEASE_OVER.value}"}


def test_an_owner_that_is_cut_off_stops_before_another_starts() -> None:
    """An owner stops within its lease if its link is down, and if a follower without a leader answers its reads."""
    for link in (Link.DOWN, Link.STALE):
        simulation = Simulation(3)
        simulation.run(3.0)
        (owner,) = simulation.runners("d0")
        owner.session.cut(link, notice_s=60.0)
        simulation.run(simulation.timeout_s * 2 / 3 + 0.1)
        assert simulation.runners("d0") == []
        simulation.run(simulation.timeout_s * 1 / 3 + 1.0)
        (other,) = simulation.runners("d0")
        assert other is not owner


def test_an_emptied_ensemble_gets_its_cursors_back() -> None:
    """When all data is gone, the former owner claims first and restores its cursor, in any order of reconnecting."""
    for seed in range(30):
        simulation = Simulation(seed)
        simulation.run(8.0)
        (owner,) = simulation.runners("d0")
        durable = durable_row(simulation)
        for node in simulation.nodes:
            node.session.cut(Link.DOWN, notice_s=0.1)
        simulation.run(simulation.timeout_s)
        durable = durable_row(simulation)
        simulation.lose_zookeeper()
        for node in simulation.nodes:
            simulation.world.callLater(simulation.random.uniform(0.0, 1.0), node.session.heal)
        simulation.run(2.5)
        assert simulation.runners("d0") == [owner]
        assert durable_row(simulation) >= durable
        simulation.run(2.0)
        simulation.must_run()


@pytest.mark.parametrize("claims_since", [False, True])
def test_an_ensemble_restored_from_an_older_backup_gets_its_cursors_back(claims_since: bool) -> None:
    """The former owner claims first and restores its cursor.

    claims_since: whether the destination was claimed after the backup; else only the cursor shows that data is lost.
    """
    for seed in range(30):
        simulation = Simulation(seed)
        simulation.run(8.0)
        backup = {path: node for path, node in simulation.ensemble.tree.items() if not node.owner}
        if claims_since:
            (owner,) = simulation.runners("d0")
            simulation.restart(simulation.nodes.index(owner))
        simulation.run(12.0)
        (owner,) = simulation.runners("d0")
        for node in simulation.nodes:
            node.session.cut(Link.DOWN, notice_s=0.1)
        simulation.run(simulation.timeout_s)
        durable = durable_row(simulation)
        simulation.restore_backup(backup)
        for node in simulation.nodes:
            simulation.world.callLater(simulation.random.uniform(0.0, 1.0), node.session.heal)
        simulation.run(3.5)
        assert simulation.runners("d0") == [owner]
        assert durable_row(simulation) >= durable
        simulation.run(2.0)
        simulation.must_run()


def test_a_deleted_destination_begins_anew() -> None:
    """No cursor is restored, all nodes are listed again, and one runs it."""
    for seed in range(30):
        simulation = Simulation(seed)
        simulation.run(6.0)
        simulation.delete_destination("d0")
        simulation.run(3.0)
        simulation.must_run()
        assert len(simulation.ensemble.children(tree.destination_members("d0"))) == 3


def test_an_instance_that_fails_goes_to_another_node() -> None:
    """Another node runs the destination within half a second; the node where the instance failed stands back."""
    simulation = Simulation(5)
    simulation.run(3.0)
    (owner,) = simulation.runners("d0")
    owner.ownerships["d0"].failed("a row that cannot be read")
    simulation.run(0.5)
    (other,) = simulation.runners("d0")
    assert other is not owner


def test_a_node_hands_over_on_request() -> None:
    """Another node runs the destination half a second later, from the last ACK, which was flushed."""
    simulation = Simulation(6)
    simulation.run(5.0)
    (owner,) = simulation.runners("d0")
    instance = owner.embedded.running("d0")
    cursor = instance.meta.cursor(1001) if instance else None
    assert cursor is not None
    owner.cluster.hand_over("d0")
    simulation.run(0.5)
    (other,) = simulation.runners("d0")
    assert other is not owner
    assert durable_row(simulation) >= simulation.sources["d0"].row(cursor)


def test_destinations_come_and_go() -> None:
    """A lazy destination is only listed until it is asked for. A removed one is released and no longer listed."""
    simulation = Simulation(8)
    simulation.run(2.0)
    simulation.sources["lazy"] = Source(simulation.random)
    first, second = simulation.nodes[:2]
    for node in (first, second):
        node.cluster.add("lazy", race=False)
    simulation.run(1.0)
    assert len(simulation.ensemble.children(tree.destination_members("lazy"))) == 2
    assert simulation.runners("lazy") == []
    first.cluster.add("lazy")
    simulation.run(1.0)
    assert simulation.runners("lazy") == [first]
    second.cluster.add("lazy")
    Deferred.fromCoroutine(first.cluster.remove("lazy"))
    simulation.run(1.0)
    assert simulation.runners("lazy") == [second]
    assert simulation.ensemble.children(tree.destination_members("lazy")) == (second.name,)


def switched_during_stops() -> int:
    """Switch the source while its node stops. Return how often only the next owner did it. Raises Broken."""
    by_the_next = 0
    for seed in range(20):
        simulation = Simulation(seed)
        simulation.run(4.0)
        (owner,) = simulation.runners("d0")
        origin = owner.origins["d0"]
        before = origin.server
        simulation.slow_leader(1.0, 0.8)
        simulation.switch_source("d0")
        simulation.run(0.01 + seed * 0.02)
        simulation.stop_in_order(simulation.nodes.index(owner))
        simulation.run(simulation.timeout_s + 4.0)
        (successor,) = simulation.runners("d0")
        by_the_next += origin.server is before and successor.origins["d0"].server is not before
    return by_the_next


def test_a_switch_during_a_stop_is_answered_with_what_the_next_owner_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the choice is durable, the answer names the new server. The simulation notices an answer that denies it."""
    assert switched_during_stops() > 0
    switch = MemoryOrigin.switch

    def deny(origin: MemoryOrigin, to: str, reason: str, /) -> str:
        before = origin.server
        answer = switch(origin, to, reason)
        if origin.server is before:
            raise LocalProtocolError("d0 is stopping")
        return answer

    monkeypatch.setattr(MemoryOrigin, "switch", deny)
    with pytest.raises(Broken, match="switch-is-durable"):
        switched_during_stops()
