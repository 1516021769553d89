"""Rights that somebody else has set on the znodes of one client: the other clients do not notice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import structlog
from kazoo.client import KazooClient
from kazoo.security import ACL, OPEN_ACL_UNSAFE, make_acl, make_digest_acl
from twisted.internet.defer import DeferredLock

from canal_ha.cluster.cluster import Cluster
from canal_ha.cluster.cursors import CursorNodes
from canal_ha.cluster.inputs import StopReason
from canal_ha.cluster.overview import read_overview
from canal_ha.cluster.ownership import Ownership
from canal_ha.config.model import CanalConfig
from canal_ha.errors import MetaUnreadable, MetaWriteFailed
from canal_ha.meta.repository import CursorMoved, Subscribed
from canal_ha.meta.write_behind import Meta
from canal_ha.model.identity import ClientIdentity
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.reading import BlockingZnodes
from lab import ZooKeeper
from lab.zookeeper import session
from tests.cluster.test_znodes import Store, at
from tests.zookeeper.stage import RealStage, on_reactor, reactor, wait_until

pytestmark = pytest.mark.real

CURSOR, FILTER = tree.cursor("example", 7), tree.client_filter("example", 7)
FOREIGN = [make_digest_acl("stranger", "secret", all=True)]
READ_ONLY = [*FOREIGN, make_acl("world", "anyone", read=True)]


@pytest.fixture
def stage(zookeeper: ZooKeeper) -> Iterator[RealStage]:
    """Yield a stage in a chroot of its own."""
    stage = RealStage(zookeeper.hosts)
    yield stage
    stage.close()


@pytest.fixture
def stranger(stage: RealStage) -> Iterator[KazooClient]:
    """Yield a session of an account of its own."""
    with session(stage.hosts, auth_data=[("digest", "stranger:secret")]) as client:
        yield client


def two_clients(stage: RealStage) -> Store:
    """Return a store with the clients 7 and 1001 at offset 4."""
    store = Store(stage)
    store.load()
    for client_id in (7, 1001):
        store.write(Subscribed(ClientIdentity("example", client_id, r"a\..*")), CursorMoved(client_id, at(4)))
    return store


@pytest.mark.parametrize("path", [CURSOR, FILTER])
def test_a_client_whose_znode_nobody_may_read_does_not_stop_the_claim(
    stage: RealStage, stranger: KazooClient, path: str
) -> None:
    """Only this client is refused, and its znode is named. Once the rights are repaired, the client is back."""
    two_clients(stage)
    stranger.set_acls(path, FOREIGN)
    store = Store(stage)
    meta = Meta("example", store.backend, turn=DeferredLock())
    stage.do(meta.load)
    assert [each.client_id for each in meta.clients()] == [1001]
    assert meta.unreadable[7].startswith(f"{path}: ")
    assert "denies access" in meta.unreadable[7]
    with pytest.raises(MetaUnreadable, match=path):
        stage.do(lambda: meta.subscribe(ClientIdentity("example", 7), at(9)))
    meta.move(1001, at(50))
    assert stage.do(meta.flush) == ((1001, at(50)),)
    wait_until(lambda: bool(store.delayed), 5.0)
    stranger.set_acls(path, OPEN_ACL_UNSAFE)
    store.delayed.pop()()
    wait_until(lambda: store.mended == [(ClientIdentity("example", 7, r"a\..*"), 4)], 5.0)


def test_the_last_owner_cannot_write_such_a_client_again_and_goes_on(stage: RealStage, stranger: KazooClient) -> None:
    """It knows the cursor, but has no right to the znode."""
    store = two_clients(stage)
    before = store.backend.stored
    stranger.set_acls(CURSOR, FOREIGN)
    for restore in (False, True):
        found = Store(stage, before, restore=restore).load()
        assert (list(found.clients), list(found.unreadable)) == ([1001], [7])


@pytest.mark.parametrize("rights", [READ_ONLY, FOREIGN])
def test_a_client_whose_cursor_nobody_may_write_does_not_stop_the_cursors_of_the_others(
    stage: RealStage, stranger: KazooClient, rights: list[ACL]
) -> None:
    """Its own cursor waits, and the reason has the znode; the flush after the repair writes it."""
    store = two_clients(stage)
    meta = Meta("example", store.backend, turn=DeferredLock())
    stage.do(meta.load)
    stranger.set_acls(CURSOR, rights)
    meta.move(7, at(60))
    meta.move(1001, at(60))
    assert stage.do(meta.flush) == ((1001, at(60)),)
    assert list(meta.refused) == [7]
    assert CURSOR in meta.refused[7]
    assert meta.due == (7,)
    assert store.cursor() == 60
    stage.do(lambda: meta.subscribe(ClientIdentity("example", 1002), at(9)))
    meta.move(1001, at(70))
    assert stage.do(meta.flush) == ((1001, at(70)),)
    stranger.set_acls(CURSOR, OPEN_ACL_UNSAFE)
    assert stage.do(meta.flush) == ((7, at(60)),)
    assert not meta.refused
    assert not meta.due


def test_such_a_client_can_unsubscribe(stage: RealStage, stranger: KazooClient) -> None:
    """The rights of the parent decide who deletes a znode."""
    store = two_clients(stage)
    stranger.set_acls(CURSOR, FOREIGN)
    meta = Meta("example", store.backend, turn=DeferredLock())
    stage.do(meta.load)
    stage.do(lambda: meta.unsubscribe(7))
    assert store.read(tree.client("example", 7)) is None


def test_a_client_whose_parent_has_foreign_rights_cannot_subscribe_and_harms_nobody(
    stage: RealStage, stranger: KazooClient
) -> None:
    """Its znode is there without filter and cursor, and nothing can be created below."""
    two_clients(stage)
    stranger.create(tree.client("example", 8), acl=FOREIGN)
    store = Store(stage)
    meta = Meta("example", store.backend, turn=DeferredLock())
    stage.do(meta.load)
    with pytest.raises(MetaWriteFailed, match=tree.client("example", 8)):
        stage.do(lambda: meta.subscribe(ClientIdentity("example", 8), at(9)))
    meta.move(1001, at(60))
    assert stage.do(meta.flush) == ((1001, at(60)),)


def test_commands_show_the_other_clients(stage: RealStage, stranger: KazooClient) -> None:
    """`canal-ha status --zk` and `canal-ha cursor` name the znode and go on."""
    two_clients(stage)
    stranger.set_acls(CURSOR, FOREIGN)
    stranger.create(tree.destination("closed"), acl=FOREIGN)
    with BlockingZnodes(stage.hosts) as znodes:
        cursors, unreadable = CursorNodes(znodes).read_all("example")
        assert (cursors, unreadable) == ({1001: at(4)}, (CURSOR,))
        closed, example = read_overview(znodes).destinations
    assert "denies access" in closed.problem
    seven, other = example.clients
    assert other.cursor == at(4)
    assert CURSOR in seven.problem
    assert "denies access" in seven.problem


class Runs:
    """Runs nothing. started: the destinations that a node has started."""

    def __init__(self) -> None:
        self.started: list[str] = []

    async def start(self, destination: str, ownership: Ownership) -> None:
        """See Owner."""
        self.started.append(destination)

    async def stop(self, destination: str, reason: StopReason) -> None:
        """See Owner."""


def test_a_destination_runs_again_after_a_pause_that_its_nodes_may_not_read(
    stage: RealStage, stranger: KazooClient
) -> None:
    """ZooKeeper tells of a change only those who may read the znode, but everybody whether it exists."""
    paused = tree.paused("example")
    stranger.ensure_path(tree.destination("example"))
    stranger.create(paused, acl=FOREIGN)
    owner, session = Runs(), stage.open()
    config = CanalConfig(Path("conf"), (), register_ip="127.0.0.1")
    cluster = Cluster(config, reactor, session, owner, lambda: "", random=Random(1), log=structlog.get_logger())

    async def begin() -> None:
        await cluster.start()
        cluster.add("example")

    on_reactor(begin)
    wait_until(lambda: bool(cluster.denials.paths) or cluster.states()["example"][0] == "PAUSED", 10.0)
    stranger.delete(paused)
    wait_until(lambda: owner.started == ["example"], 10.0)
    assert not cluster.denials.paths
    on_reactor(cluster.stop)
