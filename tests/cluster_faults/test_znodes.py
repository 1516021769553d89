"""The znode tree compared with canal's at each step. canal's was recorded over the same steps (tests/golden/znodes).

Paths and modes are equal, and so is the JSON except addresses and positions. Deliberate differences are removed before
comparing: `{d}/parse`, `{d}/history`, the start cursor written at SUBSCRIBE, the cursor's keys `consumed` and `source`,
and the data of `cluster/{n}`, where canal has none.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from canal_ha.client.cluster import ClusterConnector
from canal_ha.zookeeper import tree
from lab import MySQL, Node, ZooKeeper, follow
from lab.node import PROGRAM
from lab.process import spawn
from tests.waiting import until

pytestmark = pytest.mark.real

GOLDEN = Path(__file__).parents[1] / "golden" / "znodes" / "steps.json"
FILTER = r"golden\..*"
SESSION_MS = 2000
CURSOR = tree.cursor("example", 1001)
CLIENT_RUNNING = tree.client_running("example", 1001)
OWN_KEYS = ("consumed", "source")  # canal's readers ignore unknown keys

Shape = dict[str, tuple[bool, Any]]
"""Path -> whether it is ephemeral, and what is compared of its data."""


def shape(nodes: dict[str, tuple[bool, str]], servers: tuple[str, str]) -> Shape:
    """Return what is compared of a tree. servers: addresses of the two servers, which become FIRST and SECOND."""
    found: Shape = {}
    for path, (ephemeral, data) in nodes.items():
        if path == tree.parse("example") or path.startswith(tree.history("example")):
            continue
        for address, name in zip(servers, ("FIRST", "SECOND"), strict=True):
            path, data = path.replace(address, name), data.replace(address, name)
        if re.fullmatch(r".*/cluster/(FIRST|SECOND)", path):
            data = ""
        found[path] = (ephemeral, compared(data))
    return found


def compared(data: str) -> Any:
    """Return JSON as pairs in order, in the form of `value_of`; other data unchanged."""
    try:
        return json.loads(
            data, object_pairs_hook=lambda pairs: [value_of(*pair) for pair in pairs if pair[0] not in OWN_KEYS]
        )
    except ValueError:
        return data


def value_of(key: str, value: Any) -> tuple[str, Any]:
    """Return a pair as it is compared: of a position or a time only its type."""
    if key in ("port", "position", "serverId", "timestamp") or (key == "address" and value not in ("FIRST", "SECOND")):
        return key, type(value).__name__
    if key == "journalName":
        return key, value.rpartition(".")[0]  # other tests of this server may have begun new files
    return key, value


class Cluster:
    """Two nodes that the test starts, a session that reads the tree, and canal's recorded steps."""

    def __init__(self, zookeeper: ZooKeeper, database: MySQL, chroot: str) -> None:
        self.hosts = f"{zookeeper.hosts}/{chroot}"
        self.database = database
        settings = {"canal.zookeeper.session.timeout": str(SESSION_MS)}
        follows = {"example": follow(database, {"canal.instance.filter.regex": FILTER})}
        self.first, self.second = (
            Node(follows, zk_servers=self.hosts, properties=settings, name=name) for name in ("first", "second")
        )
        self.operator = KazooClient(zookeeper.hosts)
        self.operator.start()
        self._chroot = f"/{chroot}"
        self._rows = itertools.count(1)
        golden = json.loads(GOLDEN.read_text())["steps"]
        self._steps: Iterator[dict[str, Any]] = iter(golden)

    def nodes(self) -> dict[str, tuple[bool, str]]:
        """Return the whole tree below the chroot: path -> (ephemeral, data)."""
        found: dict[str, tuple[bool, str]] = {}

        def look(path: str) -> None:
            try:
                data, stat = self.operator.get(self._chroot + path)
                children = self.operator.get_children(self._chroot + path)
            except NoNodeError:
                return
            if path:
                found[path] = (stat.ephemeralOwner != 0, data.decode(errors="replace"))
            for child in children:
                look(f"{path}/{child}")

        look("")
        return found

    def data(self, path: str) -> str:
        """Return the data of a node; empty if the node does not exist."""
        return self.nodes().get(path, (False, ""))[1]

    def runs(self, node: Node) -> Callable[[], bool]:
        """Return the condition that `running` names this node."""
        return lambda: node.address in self.data(tree.running("example"))

    def registered(self, node: Node) -> Callable[[], bool]:
        """Return the condition that this node is in both lists."""
        paths = {tree.member(node.address), tree.destination_member("example", node.address)}
        return lambda: paths <= self.nodes().keys()

    def write(self) -> None:
        """Insert a row."""
        self.database.execute(f"INSERT INTO golden.t VALUES ({next(self._rows)})")

    def step(self, name: str, *, start_cursor: bool = False) -> None:
        """Compare with canal's tree at its next step, which must have this name. The trees have 10 s to become equal.

        start_cursor: our tree has the start cursor already, canal's has not.
        """
        golden = next(self._steps)
        assert golden["step"] == name
        theirs = shape(
            {node["path"]: (node["ephemeral"], node["data"] or "") for node in golden["znodes"]},
            ("127.0.0.1:11111", "127.0.0.1:11112"),
        )

        def ours() -> Shape:
            nodes = {path: node for path, node in self.nodes().items() if not path.startswith(tree.NODES)}  # only ours
            mine = shape(nodes, (self.first.address, self.second.address))
            if start_cursor:
                assert CURSOR not in theirs
                mine.pop(CURSOR, None)
            return mine

        try:
            until(lambda: ours() == theirs, seconds=10.0, what=name)
        except AssertionError:
            assert ours() == theirs, f"{name}: {golden['note']}"

    def done(self) -> None:
        """Check that all steps were compared."""
        assert next(self._steps, None) is None


@pytest.fixture
def cluster(zookeeper: ZooKeeper, mysql: MySQL, database: str) -> Iterator[Cluster]:
    mysql.execute("DROP DATABASE IF EXISTS golden", "CREATE DATABASE golden", "CREATE TABLE golden.t (a int)")
    zookeeper_chroot = f"golden-{database}"
    cluster = Cluster(zookeeper, mysql, zookeeper_chroot)
    yield cluster
    for node in (cluster.first, cluster.second):
        node.__exit__()
    cluster.operator.stop()
    cluster.operator.close()


def test_the_tree_is_canals_at_every_step(cluster: Cluster) -> None:
    """Two servers and their client: subscribe, ack, roll back, crash, return, stop, unsubscribe, kill."""
    first, second = cluster.first, cluster.second
    cluster.step("empty")
    first.start()
    cluster.step("one_server_idle")
    second.start()
    cluster.step("two_servers_idle")

    client = ClusterConnector(cluster.hosts, "example", call_timeout_s=30.0, zk_session_timeout_ms=SESSION_MS)
    client.connect()
    cluster.step("client_connected")
    client.subscribe(FILTER)
    cluster.step("client_subscribed")

    cluster.write()
    batch = next_batch(client)
    cluster.step("batch_got_unacked")
    acknowledge(cluster, client, batch)
    cluster.step("acked")
    cluster.write()
    next_batch(client)
    client.rollback()
    batch = next_batch(client)
    cluster.step("rollback_and_got_again")
    acknowledge(cluster, client, batch)
    cluster.step("acked_2")
    with ClusterConnector(cluster.hosts, "example", call_timeout_s=30.0, zk_session_timeout_ms=SESSION_MS) as waiting:
        assert waiting.standing_by is not None
        cluster.step("second_client_waiting")

    cluster.write()
    next_batch(client)
    cluster.step("before_kill")
    first.kill()
    cluster.step("killed_active_2s")
    until(cluster.runs(second), what="the take-over")
    cluster.step("failed_over")
    batch = next_batch(client)
    cluster.step("client_followed")
    acknowledge(cluster, client, batch)
    cluster.step("acked_on_new")
    first.start()
    until(cluster.registered(first), what="the first server's return")
    cluster.step("old_server_back")
    second.stop()
    cluster.step("graceful_takeover")
    cluster.step("graceful_takeover_4s")

    cluster.write()
    next_batch(client)
    client.unsubscribe()
    # canal's client finds its own node deleted, connects again, and subscribes again with the filter it was given
    client.subscribe(FILTER)
    cluster.step("client_unsubscribed", start_cursor=True)
    client.disconnect()
    cluster.step("client_disconnected", start_cursor=True)
    process = spawn([PROGRAM, "client", "--zk", cluster.hosts, "--destination", "example", "--filter", FILTER])
    try:
        cluster.step("client_reconnected", start_cursor=True)
    finally:
        process.kill()
        process.wait()
    cluster.step("client_killed", start_cursor=True)
    until(lambda: CLIENT_RUNNING not in cluster.nodes(), what="the end of the client's session")
    cluster.step("client_session_expired", start_cursor=True)
    first.stop()
    cluster.step("all_servers_stopped", start_cursor=True)
    cluster.done()


def next_batch(client: ClusterConnector) -> int:
    """Return the id of the next batch that is not empty."""

    def get() -> int | None:
        message = client.get_without_ack(100, 1000)
        return message.id if message else None

    return until(get, what="a batch")


def acknowledge(cluster: Cluster, client: ClusterConnector, batch: int) -> None:
    """Acknowledge a batch, and wait until the cursor in ZooKeeper has moved."""
    before = cluster.data(CURSOR)
    client.ack(batch)
    until(lambda: cluster.data(CURSOR) != before, what="the cursor's move")
