"""A cluster: three ZooKeepers, a source with a standby, three nodes, three clients, and a link between each two."""

from __future__ import annotations

import random
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.chaos import rows
from lab.chaos.clock import Clock
from lab.chaos.schedule import Setting
from lab.chaos.source import Source
from lab.chaos.writer import SCHEMA, Writer
from lab.cluster import java
from lab.cluster.coordination import Coordination
from lab.cluster.delivery import Delivery
from lab.cluster.java import JavaClient
from lab.cluster.members import Member
from lab.cluster.readers import COMMAND_LINE, Reader
from lab.node import Node, follow
from lab.process import temporary_directory
from lab.proxy import Link, Network
from lab.staged import Staged
from lab.waiting import until

DESTINATION = "chaos"
PATIENCE_S = 120.0
PARKED_AFTER_S = 2
REST_S = 6.0
"""How long a client that is told to park does not ask."""

_PACKAGE = str(Path(__file__).parents[2])
_HOLDING = ("env", f"PYTHONPATH={_PACKAGE}", sys.executable, "-m", "lab.cluster.holding")
JAVA, PLAIN, HOLDING = "java", "plain", "holding"
CLIENTS: Mapping[str, int] = {JAVA: java.CLIENT_ID, PLAIN: 1002, HOLDING: 1003}
"""Client ids. plain: the command line client. holding: keeps batches in flight and can be told to park."""

_SETTINGS = {
    "canal.instance.filter.regex": rf"{SCHEMA}\\..*",
    "canal.instance.detecting.enable": "true",
    "canal.instance.detecting.sql": "select 1",
    "canal.instance.detecting.interval.time": "1",
    "canal.instance.detecting.retry.threshold": "2",
    "canal.instance.detecting.heartbeatHaEnable": "true",
    "canal.instance.stream.idle": str(PARKED_AFTER_S),
    "canal.instance.network.soTimeout": "10",
}


@dataclass(frozen=True, slots=True)
class Attended:
    """A member of the cluster, the link by which clients reach it, and its clock."""

    member: Member
    service: Link
    clock: Clock


class Stage(Staged):
    """When the block begins, everything runs, rows are written, and they arrive everywhere.

    seed: of links and writer.
    """

    def __init__(self, setting: Setting, seed: int) -> None:
        super().__init__()
        self.setting = setting
        self._seed = seed
        self.network = Network(seed)
        self.coordination = Coordination(self.network)
        self.ensemble = self.coordination.ensemble
        self.source = Source(setting, self.network)
        self.writer = Writer(self.source.primary, seed)
        self.nodes: list[Attended] = []
        self.deliveries = {name: Delivery(inferred=name == PLAIN, flaw=rows.flaw) for name in CLIENTS}
        self.clients: dict[str, Reader | JavaClient] = {}
        self.remarks: list[str] = []  # about the step under way
        self.logs = temporary_directory("chaos")
        self._client_links: dict[str, list[Link]] = {}
        self._started = 0

    def _start(self) -> None:
        enter = self._stack.enter_context
        enter(self.network)
        for server in self.ensemble.nodes:
            server.launch()
        self.source.start(self._stack)
        enter(self.coordination)
        self.writer.create()
        self.source.caught_up()
        for number in range(1, 4):
            self.nodes.append(self._node(number))
            self.nodes[-1].member.node.launch()
        for attended in self.nodes:
            enter(attended.member.node)
        until(lambda: self.owner() is not None, seconds=PATIENCE_S, what="the first race")
        self._stack.callback(self._end_clients)
        for name in CLIENTS:
            links = [self.network.link(zookeeper.port) for zookeeper in self.ensemble.nodes]
            self._client_links[name] = links
            self.start_client(name)
        until(self._subscribed, seconds=PATIENCE_S, what="the first subscriptions")
        enter(self.writer)
        self.recovered()

    def _subscribed(self) -> bool:
        """Return whether all clients have a cursor. Raises AssertionError if one has ended."""
        for name, client in self.clients.items():
            if client.process.poll() is not None:
                raise AssertionError(f"the client {name} ended: {(self.logs / f'{name}.log').read_text()[-2000:]}")
        return None not in map(self._cursor, CLIENTS)

    def _node(self, number: int) -> Attended:
        links = {zookeeper: self.network.link(zookeeper.port) for zookeeper in self.ensemble.nodes}
        primary, standby = (self.source.links[server].address for server in self.source.servers)
        settings = {
            **_SETTINGS,
            "canal.instance.master.address": primary,
            "canal.instance.standby.address": standby,
            "canal.instance.gtidon": str(self.setting.gtid).lower(),
        }
        # clients use the published address: the link listens there, on the node's port, and forwards to the node
        host = f"127.0.1.{number}"
        clock = Clock(self.logs / f"clock{number}")
        node = Node(
            {DESTINATION: follow(self.source.primary, settings)},
            zk_servers=",".join(link.address for link in links.values()),
            name=f"node{number}",
            properties={"canal.register.ip": host},
            environment=clock.environment(),
        )
        service = self.network.link(node.port, at=(host, node.port))
        return Attended(Member(node, links, address=service.address), service, clock)

    def _end_clients(self) -> None:
        for client in self.clients.values():
            client.kill()

    # ---- clients

    def start_client(self, name: str) -> None:
        """Start a process of this client, the first one or one behind a killed one."""
        self._started += 1
        log = self.logs / f"{name}.log"
        links = self._client_links[name]
        if name == JAVA:
            hosts = ",".join(link.address for link in links)
            self.clients[name] = JavaClient(hosts, DESTINATION, self.deliveries[name], log)
            return
        command = (*_HOLDING, "--rest", str(REST_S)) if name == HOLDING else COMMAND_LINE
        process = f"{name}{self._started}"
        self.clients[name] = Reader(
            process, links, DESTINATION, self.deliveries[name], log, client_id=CLIENTS[name], command=command
        )

    def park(self) -> None:
        """Make the holding client stop asking for REST_S."""
        self.clients[HOLDING].process.send_signal(signal.SIGUSR1)

    # ---- who and where

    @property
    def links(self) -> list[Link]:
        """Every link, in an order that depends on nothing."""
        return [
            *self.coordination.peer_links.values(),
            *self.source.links.values(),
            *self.source.replication.values(),
            *(attended.service for attended in self.nodes),
            *(link for attended in self.nodes for link in attended.member.links.values()),
            *(link for links in self._client_links.values() for link in links),
        ]

    def owner(self) -> Attended | None:
        """Return the node that runs the destination, if any."""
        running = self.running()
        return next((each for each in self.nodes if running and each.member.address == running[0]), None)

    def victim(self) -> Attended:
        """Wait for an owner whose process is alive, and return it."""

        def look() -> Attended | None:
            owner = self.owner()
            return owner if owner is not None and owner.member.node.alive() else None

        return until(look, seconds=PATIENCE_S, what="an owner")

    def running(self) -> tuple[str, int] | None:
        """Return address and session of the owner, if any."""
        return self.coordination.running(DESTINATION)

    def _cursor(self, name: str) -> int | None:
        """Return the version of a client's cursor; None if there is none."""
        return self.coordination.cursor_version(DESTINATION, CLIENTS[name])

    # ---- waiting

    def recovered(self) -> None:
        """Wait until all parts are up, all rows committed by now have arrived, and all cursors are written.

        Raises AssertionError with a description if that takes too long.
        """
        try:
            self._recovered()
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from None

    def _recovered(self) -> None:
        def whole() -> bool:
            assert self.writer.error is None, f"the writer failed: {self.writer.error!r}"
            members = self.coordination.members()
            return (
                all(attended.member.address in members for attended in self.nodes)
                and len(self.ensemble.followers()) == 2
                and self.owner() is not None
                and not self.writer.busy
            )

        until(whole, seconds=PATIENCE_S, what="a whole cluster")
        head = self.writer.head
        for name, delivery in self.deliveries.items():
            until(lambda d=delivery: d.highest >= head, seconds=PATIENCE_S, what=f"{name}'s rows up to {head}")  # type: ignore[misc]
        before = {name: self._cursor(name) for name in CLIENTS}
        until(
            lambda: all(self._cursor(name) != version for name, version in before.items()),
            seconds=PATIENCE_S,
            what="a write of all cursors",
        )

    def describe(self) -> str:
        """Return a text for messages: who runs what, how far it is, and what clients and nodes have logged."""
        lines = [f"running {self.running()}, committed {self.writer.head}"]
        for name, delivery in self.deliveries.items():
            client = self.clients.get(name)
            ended = client.process.poll() if client else None
            lines += [f"--- {name}: delivered {delivery.highest}, ended: {ended}", *tail(self.logs / f"{name}.log")]
        for attended in self.nodes:
            node = attended.member.node
            lines += [f"--- {node.name} {attended.member.address}, alive: {node.alive()}", node.log_tail(12)]
            lines += node.log_file(DESTINATION).splitlines()[-12:]
        return "\n".join(lines)

    def keep(self, directory: Path) -> None:
        """Copy the logs of all parts to this directory."""
        for attended in self.nodes:
            node = attended.member.node
            shutil.copytree(node.directory / "logs", directory / node.name, dirs_exist_ok=True)
            shutil.copy(node.log, directory)
        for server in (*self.source.servers, *self.ensemble.nodes):
            shutil.copy(server.log, directory / f"{server.name}-{server.port}.log")
        shutil.copytree(self.logs, directory, dirs_exist_ok=True)


def tail(path: Path) -> list[str]:
    """Return the last lines of a log."""
    return path.read_text(errors="replace").splitlines()[-8:] if path.exists() else []


def sleep_until(moment: float) -> None:
    """Sleep until this moment (monotonic seconds)."""
    time.sleep(max(0.0, moment - time.monotonic()))


def drawn(chance: random.Random, links: list[Link], share: float) -> list[Link]:
    """Return about this share of the links, at least one, in random order."""
    return chance.sample(links, max(1, round(len(links) * share)))
