"""Ownership of destinations on a real ZooKeeper."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NotEmptyError

from canal_ha.cluster.inputs import StopReason
from canal_ha.cluster.ownership import Ownership
from canal_ha.errors import Fenced, MetaUnreadable
from canal_ha.meta.repository import CursorMoved
from canal_ha.zookeeper import tree
from lab import ZooKeeper
from lab.zookeeper import session
from tests.cluster_real.nodes import CLIENT, Node, owner_of, position
from tests.sampling import LONG
from tests.zookeeper.stage import RealStage, on_reactor, wait_until

pytestmark = pytest.mark.real

MakeNodes = Callable[..., list[Node]]

STRANGERS = 10_000 if LONG else 2_000


@pytest.fixture
def stage(zookeeper: ZooKeeper) -> Iterator[RealStage]:
    """Yield a stage with its own chroot and sessions of 2 s."""
    stage = RealStage(zookeeper.hosts, timeout_ms=2000)
    stage.session()  # creates the chroot
    yield stage
    stage.close()


@pytest.fixture
def nodes(stage: RealStage) -> Iterator[MakeNodes]:
    """Yield a function that starts nodes; all are stopped at the end."""
    made: list[Node] = []

    def make(count: int, destinations: tuple[str, ...] = ("example",)) -> list[Node]:
        new = [Node(stage, 20000 + 2 * (len(made) + number), destinations) for number in range(count)]
        made.extend(new)
        for node in new:
            node.begin()
        return new

    yield make
    for node in made:
        node.end()


@pytest.fixture
def operator(stage: RealStage) -> Iterator[KazooClient]:
    """Yield the session of an operator, as zkCli has one."""
    with session(stage.hosts) as client:
        yield client


def test_one_node_runs_a_destination_and_says_so(nodes: MakeNodes, operator: KazooClient) -> None:
    """One of three nodes wins the race. `running` and the lists are as canal writes them."""
    three = nodes(3)
    owner = owner_of(three, "example")
    time.sleep(0.5)
    assert [node for node in three if node.held] == [owner]
    data, stat = operator.get(tree.running("example"))
    assert data.decode() == f'{{"active":true,"address":"{owner.cluster.node}"}}'
    assert stat.ephemeralOwner == owner.session.id
    assert sorted(operator.get_children(tree.CLUSTER)) == [node.cluster.node for node in three]
    assert sorted(operator.get_children(tree.destination_members("example"))) == [node.cluster.node for node in three]
    assert operator.get(tree.member("127.0.0.1:20000"))[0] == b"127.0.0.1:20001"
    assert operator.get(tree.member("127.0.0.1:20002"))[0] == b"127.0.0.1:20003"


@pytest.mark.timed
def test_destinations_spread(nodes: MakeNodes) -> None:
    """Each of 3 nodes runs 4 of 12 destinations, give or take one. After one has stopped, the others run 6 each.

    The nodes take turns in steps of 20 ms. On a busy machine their turns overlap, and only moves make the numbers even.
    """
    destinations = tuple(f"d{number}" for number in range(12))
    three = nodes(3, destinations)
    wait_until(lambda: sum(len(node.held) for node in three) == 12, 15.0)
    print("spread:", sorted(len(node.held) for node in three))
    assert all(3 <= len(node.held) <= 5 for node in three)
    three[0].end()
    wait_until(lambda: sum(len(node.held) for node in three[1:]) == 12, 15.0)
    print("spread after one left:", sorted(len(node.held) for node in three[1:]))
    assert all(5 <= len(node.held) <= 7 for node in three[1:])


@pytest.mark.timed
def test_an_orderly_stop_hands_over_at_once(nodes: MakeNodes) -> None:
    """The other node runs within a second of the call that stops the owner, and has the last cursor."""
    two = nodes(2)
    owner = owner_of(two, "example")
    owner.subscribe("example", 4)
    owner.move("example", 100)
    standby = two[1 - two.index(owner)]
    began = time.monotonic()
    owner.end()
    wait_until(lambda: "example" in standby.held, 5.0)
    took_s = standby.starts[-1][1] - began
    print(f"hand-over: {took_s * 1000:.0f} ms")
    assert took_s < 1.0
    assert standby.cursor("example") == 100
    assert owner.stops[-1][1] is StopReason.SHUTDOWN


def test_an_expired_owner_stops_and_another_runs(nodes: MakeNodes, stage: RealStage) -> None:
    """When its session is ended, the owner stops and the other node takes over. A late write is refused."""
    two = nodes(2)
    owner = owner_of(two, "example")
    owner.subscribe("example", 4)
    epoch = owner.held["example"].epoch
    standby = two[1 - two.index(owner)]
    # without a path, with which `start` asks for it, and loses the connection if the owner takes the session back
    thief = KazooClient(stage.hosts.partition("/")[0], client_id=owner.session.credentials)
    thief.start()
    thief.stop()
    thief.close()
    wait_until(lambda: "example" in standby.held and standby.held["example"].epoch > epoch, 10.0)
    wait_until(lambda: bool(owner.stops), 10.0)
    assert owner.stops[0][1] is StopReason.SESSION_LOST
    wait_until(lambda: owner.session.connected, 10.0)
    heard: list[str] = []
    unleashed = Ownership(
        "example",
        epoch,
        owner.session,
        holds=lambda: True,  # an owner that has not noticed, and that no lease stops
        write=owner.session.transaction,
        fenced=lambda: heard.append("fenced"),
        failed=heard.append,
        later=lambda delay_s, call: None,
        before=None,
        restore=False,
    )
    late = unleashed.meta(replaced=lambda *edit: None, lost=lambda *_: None, skipped=print, mended=print)

    async def write_late() -> None:
        await late.load()
        await late.write((CursorMoved(CLIENT, position(50)),))

    with pytest.raises(Fenced):
        on_reactor(write_late)
    assert heard == ["fenced"]
    standby.move("example", 60)
    assert standby.cursor("example") == 60


def test_an_operator_takes_a_destination_away(nodes: MakeNodes, operator: KazooClient) -> None:
    """When `active` is set to false, the owner stops in good order and stands back, and the other node takes over."""
    two = nodes(2)
    owner = owner_of(two, "example")
    operator.set(tree.running("example"), b'{"active":false,"address":"x"}')
    standby = two[1 - two.index(owner)]
    wait_until(lambda: "example" in standby.held, 3.0)
    assert owner.stops[-1][1] is StopReason.OPERATOR
    assert not owner.held


def test_a_cursor_edited_by_hand_is_taken_over(nodes: MakeNodes, operator: KazooClient) -> None:
    """An idle client's cursor can be moved with zkCli. A deleted cursor is noticed, and can be written again."""
    (owner,) = nodes(1)
    owner_of([owner], "example")
    owner.subscribe("example", 4)
    owner.move("example", 500)
    path = tree.cursor("example", CLIENT)
    operator.set(path, position(200).to_json(with_type=True).encode())
    wait_until(lambda: bool(owner.replaced), 5.0)
    assert [(client, edit.offset) for client, edit in owner.replaced] == [(CLIENT, 200)]
    owner.move("example", 600)
    assert b'"position":600' in operator.get(path)[0]
    operator.delete(path)
    wait_until(lambda: owner.lost == [CLIENT], 5.0)
    on_reactor(lambda: _rewrite(owner))
    assert b'"position":600' in operator.get(path)[0]


async def _rewrite(owner: Node) -> None:
    owner.metas["example"].rewrite(CLIENT)
    await owner.metas["example"].flush()


def _delete_all(operator: KazooClient, path: str) -> None:
    """Delete a znode and what is below it, as zkCli deleteall does.

    A standby that takes over creates znodes again between two deletes. ZooKeeper then refuses the last one with
    "Node not empty", and an operator repeats the command.
    """
    while True:
        try:
            operator.delete(path, recursive=True)
        except NotEmptyError:
            continue
        return


def test_a_deleted_destination_begins_anew(nodes: MakeNodes, operator: KazooClient) -> None:
    """After zkCli deleteall the owner stops. A node runs the destination without cursors, and both are listed again."""
    two = nodes(2)
    owner = owner_of(two, "example")
    owner.subscribe("example", 4)
    _delete_all(operator, tree.destination("example"))
    wait_until(lambda: bool(owner.stops), 5.0)
    # a node that took over while the deletion was under way has found a client without a cursor, and stops in turn
    wait_until(lambda: [node.metas["example"].clients() for node in two if "example" in node.held] == [()], 15.0)
    assert owner_of(two, "example").cursor("example") == -1
    members = [tree.destination_member("example", node.cluster.node) for node in two]
    wait_until(lambda: all(operator.exists(member) for member in members), 5.0)


def test_unsubscribing_deletes_everything_of_a_client(nodes: MakeNodes, operator: KazooClient) -> None:
    """Cursor, filter, marks of another meta mode and the client's `running` are deleted. Filter text is stored raw."""
    (owner,) = nodes(1)
    owner_of([owner], "example")
    owner.subscribe("example", 4)
    assert operator.get(tree.client_filter("example", CLIENT))[0] == rb"shop\..*"
    operator.create(tree.client_running("example", CLIENT), b"{}", ephemeral=True)
    operator.create(f"{tree.client('example', CLIENT)}/mark/0000000001", b"{}", makepath=True)
    on_reactor(lambda: owner.metas["example"].unsubscribe(CLIENT))
    assert operator.exists(tree.client("example", CLIENT)) is None


def test_a_leftover_of_an_earlier_process_is_replaced(
    nodes: MakeNodes, stage: RealStage, operator: KazooClient
) -> None:
    """The node replaces its own list entry of an earlier session, and so stays listed when that session ends."""
    operator.create(tree.member("127.0.0.1:20000"), ephemeral=True, makepath=True)
    (node,) = nodes(1)
    owner_of([node], "example")
    assert operator.get(tree.member("127.0.0.1:20000"))[1].ephemeralOwner == node.session.id
    operator.stop()
    time.sleep(0.3)
    assert on_reactor(lambda: node.session.children(tree.CLUSTER)) == ("127.0.0.1:20000",)
    left = on_reactor(lambda: node.session.get(tree.member("127.0.0.1:20000")))
    assert left is not None
    assert left.data == b"127.0.0.1:20001"
    operator.start()


def test_a_digest_guards_what_we_write(zookeeper: ZooKeeper) -> None:
    """With canal.zookeeper.auth another session cannot read a node's znodes, and the node runs its destination."""
    stage = RealStage(zookeeper.hosts, auth="canal:secret")
    stage.session()
    node = Node(stage, 20900, ("example",))
    node.begin()
    owner_of([node], "example")
    with session(stage.hosts) as stranger, pytest.raises(NoAuthError):
        stranger.get(tree.running("example"))
    node.end()
    stage.close()


def test_the_time_out_is_the_negotiated_one(zookeeper: ZooKeeper) -> None:
    """The session's time-out is what the server grants: here at least 1 s and at most 60 s."""
    stage = RealStage(zookeeper.hosts, timeout_ms=100)
    assert stage.session().timeout_s == 1.0
    stage.close()
    stage = RealStage(zookeeper.hosts, timeout_ms=90_000)
    assert stage.session().timeout_s == 60.0
    stage.close()


def test_a_stranger_with_znodes_of_its_own_keeps_no_node_from_running(nodes: MakeNodes, operator: KazooClient) -> None:
    """Children of any name and data, thousands of client ids, and a persistent `running` node: the claim succeeds."""
    destination = tree.destination("example")
    operator.ensure_path(f"{destination}/cluster/²")
    operator.create(tree.running("example"), b"[" * 100_000)  # persistent: no session holds it
    operator.create(f"{destination}/²")
    operator.create(tree.source("example"), b"\xff")
    operator.create(tree.parse("example"), b'\\"' * 20_000)
    operator.create(f"{destination}/history", b"[" * 100_000)
    operator.create(tree.cursor("example", 7), b"[" * 100_000, makepath=True)
    operator.create(tree.cursor("example", -5), position(40).to_json(with_type=True).encode(), makepath=True)
    made = [operator.create_async(tree.client("example", number)) for number in range(10_000, 10_000 + STRANGERS)]
    made += [operator.create_async(f"{destination}/{number}") for number in range(70_000, 70_000 + STRANGERS)]
    for each in made:
        each.get()
    began = time.monotonic()
    (node,) = nodes(1)
    owner_of([node], "example", timeout_s=30.0)
    print(f"running after {time.monotonic() - began:.1f} s")
    meta = node.metas["example"]
    assert meta.cursor(-5) == position(40)
    assert len(meta.clients()) == STRANGERS + 1
    node.subscribe("example", 4)
    with pytest.raises(MetaUnreadable, match=tree.cursor("example", 7)):
        meta.check_readable(7)
    operator.delete(tree.cursor("example", 7))
    wait_until(lambda: 7 in {client.client_id for client in node.mended}, 10.0)
    node.move("example", 50)
    time.sleep(3.0)
    assert "example" in node.held
