"""The port and the blocking reader with a real ZooKeeper."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from queue import SimpleQueue

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from canal_ha.cluster.cursors import CursorNodes
from canal_ha.cluster.overview import read_overview
from canal_ha.config.model import ZooKeeperAccess
from canal_ha.errors import TransactionRefused, ZooKeeperUnavailable
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Create, SetData
from canal_ha.zookeeper.race_events import RunningNode, SessionLost, SessionSuspended, SessionUp
from canal_ha.zookeeper.reading import BlockingZnodes
from lab import ZooKeeper
from lab.zookeeper import session
from tests.zookeeper.stage import QueueSession, QueueStage, RealStage, wait_until

pytestmark = pytest.mark.real

AUTH = "canal:secret"


@pytest.fixture
def stage(zookeeper: ZooKeeper) -> Iterator[QueueStage]:
    """Sessions as clients have them, in a chroot of their own that exists."""
    stage = QueueStage(zookeeper.hosts)
    stage.session()
    yield stage
    stage.close()


@pytest.fixture
def operator(stage: QueueStage) -> Iterator[KazooClient]:
    """A client of another program, without rights of its own."""
    with session(stage.hosts) as client:
        yield client


def test_a_node_that_holds_null_reads_as_empty(stage: QueueStage, operator: KazooClient, zookeeper: ZooKeeper) -> None:
    """Java programs create such nodes. Nodes, clients and commands read one as an owner without an address."""
    path = tree.running("example")
    operator.ensure_path(tree.destination("example"))
    operator.create(path, None)
    client = stage.session()
    node_stage = RealStage(zookeeper.hosts)
    node_stage.hosts = stage.hosts
    node = node_stage.session()
    for found in (stage.do(lambda: client.get(path)), node_stage.do(lambda: node.get(path))):
        assert found is not None
        assert (found.data, found.created > 0) == (b"", True)
        assert RunningNode.read(found) == RunningNode(0, 0, "")
    node_stage.close()
    with BlockingZnodes(stage.hosts) as znodes:
        assert read_overview(znodes).destinations[0].runs_on == ""


def test_a_missing_right_has_a_name_for_every_user(stage: QueueStage) -> None:
    """A refused write has the reason `no rights`. The error of a refused read names the key to set."""
    owner = stage.open(auth=AUTH)
    stage.do(owner.start)
    wait_until(lambda: owner.connected, 15.0)
    stage.do(lambda: owner.transaction([Create("/closed")]))
    stranger = stage.session()
    with pytest.raises(TransactionRefused) as refused:
        stage.do(lambda: stranger.transaction([SetData("/closed", b"")]))
    assert refused.value.reason == "no rights"
    with pytest.raises(ZooKeeperUnavailable, match=r"canal\.zookeeper\.auth"):
        stage.do(lambda: stranger.get("/closed"))
    with BlockingZnodes(stage.hosts, read_only=False) as znodes:
        with pytest.raises(TransactionRefused, match="no rights"):
            znodes.transaction([SetData("/closed", b"")])
        with pytest.raises(ZooKeeperUnavailable, match=r"canal\.zookeeper\.auth"):
            znodes.get("/closed")
        assert znodes.get("/open") is None
    with BlockingZnodes(stage.hosts, ZooKeeperAccess(AUTH), read_only=False) as znodes:
        assert znodes.transaction([SetData("/closed", b"mine")]) == (1,)


def test_a_command_that_comes_first_does_not_leave_the_tree_open(stage: QueueStage, operator: KazooClient) -> None:
    """`canal-ha check` with canal.zookeeper.auth creates /otter/canal so that other users cannot read it."""
    with BlockingZnodes(stage.hosts, ZooKeeperAccess(AUTH), read_only=False) as znodes:
        assert CursorNodes(znodes).problems() == []
        assert znodes.children(tree.ROOT) == ()
    with pytest.raises(NoAuthError):
        operator.get_children(tree.ROOT)
    with BlockingZnodes(stage.hosts, read_only=False) as znodes:
        (problem,) = CursorNodes(znodes).problems()
    assert "set canal.zookeeper.auth" in problem


@pytest.mark.timed
def test_a_session_that_cannot_be_resumed_is_replaced() -> None:
    """Two time-outs after the connection was lost, the owner is told of the session's loss. Its thread never blocks."""
    with ZooKeeper() as server:
        stage = QueueStage(server.hosts)
        session = stage.session()
        first, timeout_s = session.id, session.timeout_s
        server.stop()
        wait_until(lambda: SessionSuspended() in session.heard, 10.0)
        began = time.monotonic()
        longest_s = 0.0
        while SessionLost() not in session.heard or time.monotonic() - began < 2.5 * timeout_s:
            asked = time.monotonic()
            with pytest.raises(ZooKeeperUnavailable):
                stage.do(lambda: session.get("/"))
            longest_s = max(longest_s, time.monotonic() - asked)
            assert time.monotonic() - began < 4 * timeout_s
            time.sleep(0.01)
        assert longest_s < 0.5
        server.start()
        wait_until(lambda: len(session.heard) == 4, 20.0)
        assert session.id != first
        assert [type(event) for event in session.heard] == [SessionUp, SessionSuspended, SessionLost, SessionUp]
        stage.close()


def test_two_owners_of_one_watch_hear_once_each(stage: QueueStage) -> None:
    """The same callable, left twice before it fires, counts as one watch. Another callable is another watch."""
    session = stage.session()
    first: list[bool] = []
    second: list[bool] = []
    hear = first.append
    stage.do(lambda: session.get("/w", hear))
    stage.do(lambda: session.get("/w", hear))
    stage.do(lambda: session.children("/w", second.append))
    stage.do(lambda: session.transaction([Create("/w")]))
    wait_until(lambda: first == [False] and second == [False], 5.0)
    stage.pass_time()
    assert (first, second) == ([False], [False])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # kazoo's thread ends, too
def test_an_answer_that_kazoo_cannot_read_is_an_error() -> None:
    """A request without any answer would keep a node from claiming, and from proving that it lives, for good."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        session = QueueSession(f"127.0.0.1:{server.getsockname()[1]}")
        session.port.start()
        connection, _ = server.accept()
        with connection:
            _request(connection)
            connection.sendall(_packet(struct.pack(">iiqi16s?", 0, 3000, 1, 16, bytes(16), False)))
            wait_until(lambda: session.connected, 10.0)
            answers: SimpleQueue[object] = SimpleQueue()
            session.port.get("/a", None, answers.put)
            xid, _ = struct.unpack_from(">ii", _request(connection))
            connection.sendall(_packet(struct.pack(">iqi", xid + 1, 1, 0)))
            assert isinstance(answers.get(timeout=10.0), ZooKeeperUnavailable)
        session.port.stop()
        session.end()


def _request(connection: socket.socket) -> bytes:
    (length,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
    return connection.recv(length, socket.MSG_WAITALL)


def _packet(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content
