"""Faults in a cluster, one after another, while rows are written: what is lost, and how long recovery takes.

The cluster has three ZooKeepers (tickTime 500), MySQL and MariaDB, three nodes with sessions of 6 s, and four
destinations with a client each. Two clients have a second process that stands by. Each fault prints one line.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient

from canal_ha.client.cluster import ClusterConnector
from canal_ha.client.rows import rows_of
from lab import MariaDB, MySQL
from lab.cluster.delivery import Delivery
from lab.cluster.fencing import judge
from lab.cluster.history import transactions
from lab.cluster.members import Member
from lab.cluster.readers import Reader
from lab.cluster.sessions import password_of
from tests.cluster_faults.stage import PATIENCE_S, SESSION_S, Stage, at_least
from tests.waiting import until

pytestmark = pytest.mark.real

DESTINATIONS: dict[str, type[MySQL] | type[MariaDB]] = {"one": MySQL, "two": MySQL, "three": MariaDB, "four": MariaDB}
DOUBLED = ("one", "three")
# Other tests run beside these. `python -m lab.chaos` judges the bounds of docs/guarantees.md, on a machine of its own.
ORDERLY_S = 5.0
TAKE_OVER_S = SESSION_S + 6.0

HEAD = f"{'fault':34} {'lost':>5} {'order':>6} {'repeated':>9} {'acked again':>12} {'old epoch':>10} {'seconds':>8}"


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage(DESTINATIONS, DOUBLED) as stage:
        print(f"\n{HEAD}")
        yield stage


class Fault:
    """A fault, from its beginning to its verdict. affected: destinations that it stops."""

    def __init__(self, stage: Stage, name: str, affected: tuple[str, ...]) -> None:
        assert affected
        self.name = name
        self.affected = affected
        self.began = time.monotonic()
        self.seconds = 0.0
        self.acked_again = 0
        self._stage = stage
        self._repeated = {name: stage.deliveries[name].repeated_rows for name in DESTINATIONS}
        self._acked_again = {name: stage.deliveries[name].acked_transactions_repeated for name in DESTINATIONS}

    def over(self, condition: Callable[[], bool]) -> None:
        """Wait for the condition, then for all rows committed by then; print the verdict and check it."""
        until(condition, seconds=PATIENCE_S, what=f"recovery from: {self.name}")
        heads = {name: ledger.head for name, ledger in self._stage.ledgers.items()}
        self._stage.caught_up()
        deliveries = self._stage.deliveries
        self.seconds = max(deliveries[name].silence_s(self.began) for name in self.affected)
        lost = sum(deliveries[name].lost(head) for name, head in heads.items())
        disorder = [line for delivery in deliveries.values() for line in delivery.out_of_order]
        repeated = sum(deliveries[name].repeated_rows - before for name, before in self._repeated.items())
        self.acked_again = sum(
            deliveries[name].acked_transactions_repeated - before for name, before in self._acked_again.items()
        )
        fencing = judge(transactions(self._stage.ensemble), DESTINATIONS)
        print(
            f"{self.name:34} {lost:5} {len(disorder):6} {repeated:9} {self.acked_again:12}"
            f" {len(fencing.from_old_epoch):10} {self.seconds:8.2f}",
            flush=True,
        )
        assert lost == 0
        assert disorder == []
        assert fencing.claims >= len(DESTINATIONS)
        assert fencing.cursor_writes > 0
        assert (fencing.from_old_epoch, fencing.unfenced, fencing.backwards) == ([], [], [])

    def within(self, seconds: float) -> None:
        """Check that no affected destination was without new rows for longer."""
        assert self.seconds <= seconds, f"{self.seconds:.2f} s without a row\n{self._stage.describe()}"


def owner(stage: Stage, destination: str) -> Member:
    """Wait for an owner of the destination, and return it."""
    return until(lambda: stage.owner(destination), seconds=PATIENCE_S, what=f"an owner of {destination}")


def active_client(stage: Stage, destination: str) -> tuple[Reader, Delivery]:
    """Return the process that reads the destination, and its delivery."""
    delivery = stage.deliveries[destination]
    return next(reader for reader in stage.readers if reader.name == delivery.active), delivery


def all_up(stage: Stage) -> None:
    """Wait until all nodes are registered, all destinations run and all cursors are written.

    Each fault begins there.
    """

    def ready() -> bool:
        members = stage.nodes()
        return (
            all(member.address in members for member in stage.members)
            and len(stage.ensemble.followers()) == 2
            and all(stage.owner(name) for name in DESTINATIONS)
        )

    until(ready, seconds=PATIENCE_S, what="a whole cluster")
    stage.caught_up()
    stage.flushed()


def test_the_running_node_is_killed(stage: Stage) -> None:
    """After SIGKILL, other nodes run its destinations within the session time-out and 2 s."""
    all_up(stage)
    victim = owner(stage, "one")
    fault = Fault(stage, "node: SIGKILL", stage.owned_by(victim))
    victim.node.kill()
    fault.over(stage.moved_from(fault.affected, victim))
    fault.within(TAKE_OVER_S)
    victim.node.launch()


def test_the_running_node_stops_in_order(stage: Stage) -> None:
    """After SIGTERM, other nodes run its destinations, and nothing acknowledged comes again."""
    all_up(stage)
    leaver = owner(stage, "three")
    fault = Fault(stage, "node: orderly stop", stage.owned_by(leaver))
    leaver.node.stop()
    assert leaver.node.exit_code == 0
    fault.over(stage.moved_from(fault.affected, leaver))
    assert fault.acked_again == 0
    fault.within(ORDERLY_S)
    leaver.node.launch()


def test_the_running_node_is_frozen(stage: Stage) -> None:
    """A node frozen for three session time-outs neither serves nor writes for its old destinations when it resumes."""
    all_up(stage)
    frozen = owner(stage, "one")
    fault = Fault(stage, "node: SIGSTOP 18 s, SIGCONT", stage.owned_by(frozen))
    frozen.node.pause()
    until(stage.moved_from(fault.affected, frozen), seconds=PATIENCE_S, what="the take-over")
    at_least(3 * SESSION_S, fault.began)
    frozen.node.resume()
    fault.over(lambda: frozen.address in stage.nodes())
    fault.within(TAKE_OVER_S)


def test_the_running_node_loses_zookeeper_only(stage: Stage) -> None:
    """A node without ZooKeeper stops its instances before its session ends, though it reaches database and clients."""
    all_up(stage)
    lonely = owner(stage, "three")
    fault = Fault(stage, "node: cut off from ZooKeeper", stage.owned_by(lonely))
    lonely.cut_off()
    until(lambda: not lonely.node.running(), seconds=PATIENCE_S, what="the end of what ran there")
    stopped = time.monotonic() - fault.began
    until(stage.moved_from(fault.affected, lonely), seconds=PATIENCE_S, what="the take-over")
    lonely.heal()
    fault.over(lambda: True)
    assert stopped < SESSION_S
    fault.within(TAKE_OVER_S)


@pytest.mark.nightly(
    "tests/cluster_real/test_outages.py: an ensemble without its leader; the tests above: links that are cut"
)
def test_the_follower_of_the_running_node_loses_its_leader(stage: Stage) -> None:
    """The owner's connection works, but its server has lost the leader.

    The owner leaves that server, and no row is lost.
    """
    all_up(stage)
    member = owner(stage, "one")
    leader, follower = stage.ensemble.leader(PATIENCE_S), stage.ensemble.followers()[0]
    member.move_to(follower)
    stage.caught_up()
    fault = Fault(stage, "ZooKeeper: follower cut off", stage.owned_by(member))
    link = stage.coordination.peer_links[follower.my_id, leader.my_id]
    link.cut()
    until(lambda: not member.connected_to(follower), seconds=PATIENCE_S, what="the end of the follower's service")
    link.heal()
    fault.over(lambda: all(stage.owner(name) for name in DESTINATIONS))


def test_the_session_of_the_running_node_ends(stage: Stage) -> None:
    """When somebody ends the owner's session, the destination runs again in another session, on any node."""
    all_up(stage)
    victim = owner(stage, "three")
    running = stage.running("three")
    assert running is not None
    fault = Fault(stage, "node: session expired", stage.owned_by(victim))
    thief = KazooClient(stage.ensemble.hosts, client_id=(running[1], password_of(running[1])))
    thief.start()
    thief.stop()
    thief.close()
    fault.over(lambda: stage.running("three") not in (None, running))


def test_the_active_client_is_killed(stage: Stage) -> None:
    """The process that stands by continues within the session time-out and 2 s."""
    all_up(stage)
    active, delivery = active_client(stage, "one")
    fault = Fault(stage, "client: SIGKILL", ("one",))
    active.kill()
    fault.over(lambda: delivery.active != active.name)
    fault.within(TAKE_OVER_S)
    stage.add_reader("one")


def test_the_active_client_loses_zookeeper_only(stage: Stage) -> None:
    """A client without ZooKeeper lets the other process continue, even if it reaches its node.

    The two never read at once.
    """
    all_up(stage)
    active, delivery = active_client(stage, "three")
    fault = Fault(stage, "client: cut off from ZooKeeper", ("three",))
    for link in active.links:
        link.cut()
    until(lambda: delivery.active != active.name, seconds=PATIENCE_S, what="the other process's turn")
    for link in active.links:
        link.heal()
    fault.over(lambda: True)
    fault.within(TAKE_OVER_S)


def test_the_leader_of_zookeeper_restarts(stage: Stage) -> None:
    """The ensemble elects another leader, and all destinations have an owner again, the same one or another."""
    all_up(stage)
    fault = Fault(stage, "ZooKeeper: leader restarted", tuple(DESTINATIONS))
    leader = stage.ensemble.leader(PATIENCE_S)
    leader.kill()
    stage.ensemble.leader(PATIENCE_S)
    leader.start()
    fault.over(lambda: all(stage.owner(name) for name in DESTINATIONS))


def test_a_client_unsubscribes_and_subscribes_across_a_fail_over(stage: Stage) -> None:
    """An unsubscribed client stays forgotten when the node dies.

    When it subscribes again, it begins at the binlog's end.
    """
    all_up(stage)
    victim = owner(stage, "one")
    ledger = stage.ledgers["one"]
    with ClusterConnector(stage.ensemble.hosts, "one", 1002, call_timeout_s=PATIENCE_S) as client:
        client.subscribe()
        first = read(client, ledger.head + 1)
        assert first == list(range(first[0], first[-1] + 1))
        client.unsubscribe()
        assert not stage.cursor_exists("one", 1002)
        fault = Fault(stage, "node: SIGKILL after unsubscribe", stage.owned_by(victim))
        victim.node.kill()
        until(stage.moved_from(fault.affected, victim), seconds=PATIENCE_S, what="the take-over")
        assert not stage.cursor_exists("one", 1002)
        before = ledger.head
        client.subscribe()
        after = ledger.head
        again = read(client, after + 1)
    assert before < again[0] <= after + 1
    assert again == list(range(again[0], again[-1] + 1))
    fault.over(lambda: True)
    fault.within(TAKE_OVER_S)
    victim.node.launch()


def read(client: ClusterConnector, to: int) -> list[int]:
    """Return the numbers of the rows up to `to` at least; acknowledge each batch."""
    numbers: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while not numbers or numbers[-1] < to:
        assert time.monotonic() < deadline, f"no row {to}"
        message = client.get_without_ack(100, 200)
        for row in rows_of(message.entries):
            assert row.after is not None
            number = row.after["id"]
            assert isinstance(number, int)
            numbers.append(number)
        client.ack(message.id)
    return numbers
