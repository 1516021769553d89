"""Clusters in virtual time: whatever fails, at most one owner can write, and in the end a node runs."""

from __future__ import annotations

import os

import pytest
from twisted.internet.defer import Deferred

from canal_ha.zookeeper import tree
from lab.simulation.session import Link
from tests.sim.cluster import Broken, Simulation

SEEDS = int(os.environ.get("CANAL_HA_SEEDS") or ("2000" if os.environ.get("CANAL_HA_LONG") else "500"))
CHUNKS = 10


def storm(seed: int, *, lax: bool = False) -> Simulation:
    """Take three nodes through 14 s of faults, then let them recover. Odd seeds have two destinations."""
    simulation = Simulation(seed, destinations=1 + seed % 2, lax=lax)
    simulation.run(2.0)
    simulation.storm(14.0, 1.5)
    simulation.run(8.0)
    return simulation


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_whatever_breaks_one_owner_writes_and_somebody_runs(chunk: int) -> None:
    """Only the session of the newest claim writes cursors; in the end exactly one node runs each destination.

    Cursors never go back nor past what was acknowledged, and no node serves beyond its lease. The faults are crashes,
    restarts, pauses, cut links, stale followers, lost answers, late watches, ended sessions, and deleted and released
    `running` nodes.
    """
    writes = serves = 0
    for seed in range(chunk, SEEDS, CHUNKS):
        try:
            simulation = storm(seed)
            simulation.must_run()
        except Broken as broken:
            raise AssertionError(f"seed {seed}: {broken}") from broken
        writes += simulation.referee.writes
        serves += simulation.referee.serves
    assert writes > 10 * SEEDS / CHUNKS
    assert serves > 20 * SEEDS / CHUNKS


def test_a_seed_repeats_exactly() -> None:
    """The same seed gives the same run, so that a failed run can be repeated."""
    first, second = storm(7), storm(7)
    assert first.referee.owner == second.referee.owner
    assert first.referee.durable == second.referee.durable
    assert first.ensemble.tree == second.ensemble.tree


def test_without_the_epoch_check_the_referee_finds_a_second_writer() -> None:
    """If the version of `{d}` is not checked, an invariant breaks within 500 seeds: the simulation needs the epoch."""
    for seed in range(500):
        try:
            storm(seed, lax=True)
        except Broken as broken:
            print(f"seed {seed}: {broken}")
            return
    raise AssertionError("500 seeds without a forbidden write")


def test_destinations_spread_and_spread_again() -> None:
    """In 19 of 20 seeds, 3 nodes run 4 of 12 destinations each, give or take one, and 2 nodes 6 each after a crash."""
    good = 0
    for seed in range(20):
        simulation = Simulation(seed, nodes=3, destinations=12)
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
        durable = simulation.referee.durable["d0"]
        for node in simulation.nodes:
            node.session.cut(Link.DOWN, notice_s=0.1)
        simulation.run(simulation.timeout_s)
        durable = simulation.referee.durable["d0"]
        simulation.ensemble.wipe()
        for node in simulation.nodes:
            simulation.world.callLater(simulation.random.uniform(0.0, 1.0), node.session.heal)
        simulation.run(2.5)
        assert simulation.runners("d0") == [owner]
        assert simulation.referee.durable["d0"] >= durable
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
        durable = simulation.referee.durable["d0"]
        simulation.ensemble.wipe()
        simulation.ensemble.tree.update(backup)
        for node in simulation.nodes:
            simulation.world.callLater(simulation.random.uniform(0.0, 1.0), node.session.heal)
        simulation.run(3.5)
        assert simulation.runners("d0") == [owner]
        assert simulation.referee.durable["d0"] >= durable
        simulation.run(2.0)
        simulation.must_run()


def test_a_deleted_destination_begins_anew() -> None:
    """No cursor is restored (the referee counts ACKs from 0 again), all nodes are listed again, and one runs it."""
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
    owner.instances["d0"].ownership.failed("a row that cannot be read")
    simulation.run(0.5)
    (other,) = simulation.runners("d0")
    assert other is not owner


def test_a_node_hands_over_on_request() -> None:
    """Another node runs the destination half a second later, from the last ACK, which was flushed."""
    simulation = Simulation(6)
    simulation.run(5.0)
    (owner,) = simulation.runners("d0")
    acked = simulation.referee.acked["d0"]
    owner.cluster.hand_over("d0")
    simulation.run(0.5)
    (other,) = simulation.runners("d0")
    assert other is not owner
    assert simulation.referee.durable["d0"] >= acked


def test_destinations_come_and_go() -> None:
    """A lazy destination is only listed until it is asked for. A removed one is released and no longer listed."""
    simulation = Simulation(8)
    simulation.run(2.0)
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
