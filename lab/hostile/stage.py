"""The stage of the attacks: a database, ZooKeeper, two nodes with accounts, and a victim whose rows are timed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from canal_ha.wire.scramble import secret_of
from lab.mysql import MariaDB, MySQL
from lab.node import Node, follow
from lab.ports import free_port
from lab.process import spawn
from lab.staged import Staged
from lab.waiting import until
from lab.zookeeper import ZooKeeper

DESTINATION, ELSEWHERE = "example", "other"
DATABASE = "hostile"
TABLE = f"{DATABASE}.t"
VICTIM, VICTIM_ID = ("victim", "the victim's password"), 1001
INSIDER, INSIDER_IDS = ("insider", "a password of its own"), range(2000, 3000)
"""An attacker with an account for the victim's destination, and for other client ids."""
STRANGER = ("stranger", "another password")
"""An attacker with an account for another destination."""
BOSS = ("boss", "the operator's password")
MOST, MOST_OF_ADDRESS = 1000, 500
"""Connections that a node and an address may have: few enough to be open together before the first is too late."""
PATIENCE_S = 60.0


def _accounts() -> str:
    def account(login: tuple[str, str], rights: str) -> str:
        return f'[accounts.{login[0]}]\npasswords = ["{secret_of(login[1]).hex()}"]\n{rights}\n\n'

    reads = 'roles = ["read"]\ndestinations = ["{}"]\nclient_ids = {}'
    return (
        account(VICTIM, reads.format(DESTINATION, f"[{VICTIM_ID}]"))
        + account(INSIDER, reads.format(DESTINATION, f'["{INSIDER_IDS[0]}-{INSIDER_IDS[-1]}"]'))
        + account(STRANGER, reads.format(ELSEWHERE, "[1001]"))
        + account(BOSS, 'roles = ["read", "admin"]\ndestinations = ["*"]')
    )


@dataclass(frozen=True, slots=True)
class Arrival:
    """A row of the victim. written_at: CLOCK_MONOTONIC, s."""

    number: int
    written_at: float
    delay_s: float


class Victim:
    """The victim's process, and what it has told."""

    def __init__(self, zookeeper: str, database_port: int, directory: Path) -> None:
        self.arrivals: list[Arrival] = []
        self._errors = (directory / "victim.log").open("wb")
        self._process = spawn(
            [sys.executable, "-m", "lab.hostile.victim", zookeeper, str(database_port)],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=Path(__file__).parents[2],
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.arrivals.append(Arrival(*json.loads(line)))

    def worst_s(self, since: float) -> float:
        """Wait for a row that is written from now on; return the longest delay of those written after `since`."""
        now = time.monotonic()
        until(lambda: bool(self.arrivals) and self.arrivals[-1].written_at > now, seconds=PATIENCE_S, what="a row")
        return max(each.delay_s for each in self.arrivals if each.written_at > since)

    def lost(self) -> list[int]:
        """Return the numbers of rows that did not arrive although later ones did."""
        numbers = {each.number for each in self.arrivals}
        return sorted(set(range(1, max(numbers) + 1)) - numbers) if numbers else []

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._errors.close()


class Stage(Staged):
    """When the block begins, everything runs and the victim gets rows. flavor: mysql or mariadb."""

    def __init__(self, flavor: str = "mysql") -> None:
        super().__init__()
        self.database = MySQL() if flavor == "mysql" else MariaDB()
        self.zookeeper = ZooKeeper()
        self.nodes: list[Node] = []
        self.admin_protocol_ports: dict[str, int] = {}
        """Of each node, by its name."""
        self.victim: Victim

    def _start(self) -> None:
        enter = self._stack.enter_context
        enter(self.database)
        enter(self.zookeeper)
        self.database.execute(f"CREATE DATABASE {DATABASE}", f"CREATE TABLE {TABLE} (id int PRIMARY KEY)")
        for name in ("node1", "node2"):
            self.admin_protocol_ports[name] = free_port()
            node = Node(
                dict.fromkeys((DESTINATION, ELSEWHERE), follow(self.database)),
                zk_servers=self.zookeeper.hosts,
                properties={
                    "canal.accounts.file": "../conf/accounts.toml",
                    "canal.client.connections.max": str(MOST),
                    "canal.client.connections.address.max": str(MOST_OF_ADDRESS),
                    "canal.admin.port": str(self.admin_protocol_ports[name]),
                    "canal.cluster.rebalance.delay": "-1",  # both destinations stay on the node that is attacked
                },
                name=name,
                login=BOSS,
            )
            (node.conf / "accounts.toml").write_text(_accounts())
            self.nodes.append(enter(node))
        self.victim = Victim(self.zookeeper.hosts, self.database.port, self.nodes[0].directory)
        self._stack.callback(self.victim.stop)
        self.victim.worst_s(0.0)

    @property
    def owner(self) -> Node:
        """The node that runs the victim's destination: the target."""
        return until(self._owner, seconds=PATIENCE_S, what="an owner")

    def _owner(self) -> Node | None:
        return next((node for node in self.nodes if node.alive() and DESTINATION in node.running()), None)


def logs_kib(node: Node) -> float:
    """Return the size of the node's log files, without the audit's lines of what was allowed, which have no limit."""
    size = 0
    for file in (node.directory / "logs").rglob("*"):
        if file.parent.name == "audit":
            with file.open("rb") as lines:
                size += sum(len(line) for line in lines if b'"result": "ok"' not in line)
        elif file.is_file():
            size += file.stat().st_size
    return size / 1024
