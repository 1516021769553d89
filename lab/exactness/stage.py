"""Real parts for one snapshot: ZooKeeper, a source with a standby, nodes, writers, and one client with a copy."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from canal_ha.model.position import LogPosition
from canal_ha.model.snapshot import SnapshotState
from canal_ha.zookeeper import tree
from lab.chaos.schedule import Setting
from lab.chaos.source import Source
from lab.exactness.client import CLIENT_ID
from lab.exactness.copy import Copy
from lab.exactness.table import COLUMNS, FILTER, ROW_BYTES, TABLE, create
from lab.exactness.writers import Writers
from lab.mysql import CANAL, SqlServer
from lab.node import PROGRAM, Node, follow
from lab.process import spawn, temporary_directory
from lab.proxy import Network
from lab.staged import Staged
from lab.waiting import until
from lab.zookeeper import ZooKeeper

Mode = Literal["gtid", "position", "log-status"]

DESTINATION = "exact"
NODES = 3
PATIENCE_S = 180.0
RING_KIB = 64
ROWS_A_CHUNK = RING_KIB * 1024 // 4 // ROW_BYTES  # a chunk takes a quarter of the ring at most
NEAR_ROWS = 12 * ROWS_A_CHUNK

_PACKAGE = str(Path(__file__).parents[2])
_SETTINGS = {
    "canal.instance.filter.regex": FILTER.replace("\\", "\\\\"),
    "canal.instance.memory.buffer.size": str(RING_KIB),
    "canal.instance.detecting.enable": "true",
    "canal.instance.detecting.sql": "select 1",
    "canal.instance.detecting.interval.time": "1",
    "canal.instance.detecting.retry.threshold": "2",
    "canal.instance.detecting.heartbeatHaEnable": "true",
    "canal.instance.network.soTimeout": "10",
}
_STRETCHED = {
    "mysql": ("SET GLOBAL binlog_group_commit_sync_delay = 15000",),
    "mariadb": ("SET GLOBAL binlog_commit_wait_count = 100", "SET GLOBAL binlog_commit_wait_usec = 4000"),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does.

    mode: how canal-ha follows the source. position: without GTIDs, where a snapshot of MySQL locks its rows.
        log-status: the same, and the account may ask performance_schema.log_status.
    chunks: about how many the table has.
    faults: how many there are; at least one of them is a switch of the source.
    seed: of faults, writers and clients.
    unsafe: the nodes' snapshots do not wait until a SELECT sees what the stream has brought.
    connections: that read the table side by side.
    xa: rows are written in XA transactions.
    """

    database: Literal["mysql", "mariadb"]
    mode: Mode
    chunks: int
    faults: int
    seed: int
    unsafe: bool = False
    connections: int = 1
    xa: bool = False

    @property
    def keys(self) -> int:
        """How many keys the table has."""
        return self.chunks * ROWS_A_CHUNK * 8 // 7


class _UnsafeNode(Node):
    def command(self) -> Sequence[str]:
        return [sys.executable, "-m", "lab.exactness.unsafe", *super().command()[1:]]


class Stage(Staged):
    """When the block begins, everything runs: the client has subscribed, and rows are written."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.logs = temporary_directory("exactness")
        self.copy = Copy(self.logs / "copy.db")
        self._network = Network(plan.seed)
        self.source = Source(Setting(plan.database, plan.mode == "gtid", "FULL"), self._network)
        if plan.mode == "log-status":
            for server in self.source.servers:
                server.extra += ("--performance-schema=ON",)
        self.zookeeper = ZooKeeper()
        self.writers = Writers(self.source.primary, plan.keys, self._near, plan.seed, xa=plan.xa)
        self.nodes: list[Node] = []
        self._client: subprocess.Popen[Any] | None = None
        self._clients = 0
        self._operator: KazooClient

    def _start(self) -> None:
        enter = self._stack.enter_context
        self._stack.callback(self.copy.close)
        enter(self._network)
        enter(self.zookeeper)
        self._operator = KazooClient(self.zookeeper.hosts, timeout=30.0)
        self._operator.start()
        self._stack.callback(self._operator.stop)
        self.source.start(self._stack)
        if self.plan.mode == "log-status":
            self.source.primary.execute(
                f"GRANT BACKUP_ADMIN ON *.* TO {CANAL}",
                f"GRANT SELECT ON performance_schema.log_status TO {CANAL}",
            )
        if self.plan.database == "mariadb":
            self.source.primary.execute(f"GRANT REPLICA MONITOR ON *.* TO {CANAL}")
        for server in self.source.servers:
            create(server, self.plan.keys)
        self.source.caught_up()
        self.stretch(self.source.primary)
        self.nodes = [self._node(number) for number in range(1, NODES + 1)]
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            enter(node)
        self._stack.callback(self.kill_client)
        self.start_client()
        until(lambda: self.snapshot() is not None, seconds=PATIENCE_S, what="the subscription")
        enter(self.writers)  # behind the subscription, so that all changes are in the stream

    def stretch(self, server: SqlServer) -> None:
        """Stretch group commit: transactions reach the binlog long before a SELECT sees them."""
        server.execute(*_STRETCHED[server.flavor])

    def _node(self, number: int) -> Node:
        primary, standby = (self.source.links[server].address for server in self.source.servers)
        settings = {
            **_SETTINGS,
            "canal.instance.master.address": primary,
            "canal.instance.standby.address": standby,
            "canal.instance.gtidon": str(self.plan.mode == "gtid").lower(),
            "canal.instance.snapshot.connections": str(self.plan.connections),
        }
        kind = _UnsafeNode if self.plan.unsafe else Node
        return kind(
            {DESTINATION: follow(self.source.primary, settings)},
            zk_servers=self.zookeeper.hosts,
            name=f"node{number}",
            properties={"canal.zookeeper.session.timeout": "2000"},
            environment={"PYTHONPATH": _PACKAGE},
        )

    def _near(self) -> range:
        first = min(self.copy.front() + 1, self.plan.keys - NEAR_ROWS)
        return range(max(0, first), min(self.plan.keys, first + NEAR_ROWS))

    # ---- the client

    def start_client(self) -> None:
        """Start a process of the client, the first one or one behind a killed one."""
        self._clients += 1
        command = [sys.executable, "-m", "lab.exactness.client", "--zk", self.zookeeper.hosts]
        command += ["--destination", DESTINATION, "--copy", str(self.logs / "copy.db")]
        command += ["--seed", str(self.plan.seed * 1000 + self._clients)]
        with (self.logs / "client.log").open("ab") as log:
            self._client = spawn(["env", f"PYTHONPATH={_PACKAGE}", *command], stdout=log, stderr=log)

    def kill_client(self) -> None:
        """Kill the client, as a crash does."""
        if self._client is not None:
            self._client.kill()
            self._client.wait()
            self._client = None

    # ---- looking

    def owner(self) -> Node:
        """Wait for a node that runs the destination and is alive, and return it."""

        def look() -> Node | None:
            try:
                data, _ = self._operator.get(tree.running(DESTINATION))
            except NoNodeError:
                return None
            address = tree.RunningData.from_bytes(data).address
            return next((node for node in self.nodes if node.alive() and node.address == address), None)

        return until(look, seconds=PATIENCE_S, what="an owner")

    def switched(self) -> bool:
        """Let the destination read from the other server; return False if that is refused."""
        command = [PROGRAM, "source", "switch", "--destination", DESTINATION, "--conf", str(self.owner().conf)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def snapshot(self) -> SnapshotState | None:
        """Return what the client has acknowledged of its snapshot, as its cursor has it."""
        try:
            data, _ = self._operator.get(tree.cursor(DESTINATION, CLIENT_ID))
        except NoNodeError:
            return None
        return SnapshotState.from_text(LogPosition.from_json(data.decode()).snapshot)

    def share(self) -> float:
        """Return about which share of the table the client has; 1 behind the end of the snapshot.

        Rows tell it, because a node writes the cursor once a second, and four connections read a table in that time.
        """
        state = self.snapshot()
        if state and not state.active:
            return 1.0  # the snapshot leaves rows out that the stream has brought
        return self.copy.read() / (self.plan.keys * 7 / 8)

    def check(self) -> None:
        """Raise AssertionError if a writer or the client has ended by itself."""
        assert not self.writers.errors, f"a writer failed: {self.writers.errors[0]!r}"
        assert self._client is None or self._client.poll() is None, f"the client ended\n{self._client_log()}"

    def _client_log(self) -> str:
        return "\n".join((self.logs / "client.log").read_text(errors="replace").splitlines()[-20:])

    def differences(self) -> list[str]:
        """Return in which rows the copy and the table differ. Nobody may write, and the copy must have caught up."""
        rows = self.source.primary.query(f"SELECT {', '.join(COLUMNS)} FROM {TABLE}")
        table = {int(row["id"]): tuple(row[name] for name in COLUMNS) for row in rows}
        copy = self.copy.rows()
        return [
            f"key {key}: the table has {_told(table.get(key))}, the copy {_told(copy.get(key))}"
            for key in sorted(table.keys() | copy.keys())
            if table.get(key) != copy.get(key)
        ]

    def describe(self) -> str:
        """Return a text for messages: how far the snapshot is, and what client and nodes have logged."""
        lines = [f"copy at {self.copy.front()} of {self.plan.keys}, cursor {self.snapshot()}", self._client_log()]
        for node in self.nodes:
            lines += [f"--- {node.name} {node.address}, alive: {node.alive()}", node.log_tail(8)]
            lines += node.log_file(DESTINATION).splitlines()[-12:]
        return "\n".join(lines)

    def keep(self, directory: Path) -> None:
        """Copy the logs of all parts and the client's file to this directory."""
        for node in self.nodes:
            shutil.copytree(node.directory / "logs", directory / node.name, dirs_exist_ok=True)
            shutil.copy(node.log, directory)
        for server in (*self.source.servers, self.zookeeper):
            shutil.copy(server.log, directory / f"{server.name}-{server.port}.log")
        shutil.copytree(self.logs, directory, dirs_exist_ok=True)


def _told(row: tuple[Any, ...] | None) -> str:
    return "no row" if row is None else f"version {row[1]}, {row[2][:1]} * {len(row[2])}"
