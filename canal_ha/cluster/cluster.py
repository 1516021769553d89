"""Cluster: everything of this room that a node holds on to. Reactor thread."""

from __future__ import annotations

import socket
from collections.abc import Callable
from random import Random
from typing import Any

import structlog
from twisted.internet.defer import Deferred, gatherResults

from canal_ha.cluster.election import Election, Owner
from canal_ha.cluster.members import Members
from canal_ha.cluster.session import ClusterSession
from canal_ha.config.model import CanalConfig
from canal_ha.zookeeper.race_events import SessionEvent, SessionUp


class Cluster:
    """This node's part in the cluster. status_address: host:port of its status endpoint, published beside its name.

    owner: runs the instances. random: decides the order and the small part of delays.
    """

    def __init__(
        self,
        config: CanalConfig,
        reactor: Any,
        session: ClusterSession,
        owner: Owner,
        status_address: Callable[[], str],
        *,
        random: Random | None = None,
        log: Any = None,
    ) -> None:
        self.node = node_address(config)
        log = log or structlog.get_logger("canal.cluster")
        self._log = log
        self._session = session
        self.members = Members(self.node, session, status_address, clock=reactor, log=log)
        self._election = Election(
            self.node, session, self.members, owner, clock=reactor, random=random or Random(), log=log
        )
        self._known: set[str] = set()

    async def start(self) -> None:
        """Begin to connect; returns at once. Without ZooKeeper nothing runs, and the log says so until it is there."""
        self._log.info("cluster.starting", node=self.node)
        self._session.listen(self._session_changed)
        await self._session.start()

    async def stop(self) -> None:
        """Orderly: stop every instance (which flushes), release what ran, leave the lists, close the session."""
        await gatherResults(
            [Deferred.fromCoroutine(self._election.remove(destination)) for destination in sorted(self._known)]
        )
        await self.members.stop()
        await self._session.stop()
        self._log.info("cluster.stopped", node=self.node)

    # ---- destinations

    def add(self, destination: str, *, race: bool = True) -> None:
        """This node can run the destination. race=False only says so (a lazy one); add again to take part."""
        self._known.add(destination)
        self.members.register(destination)
        if race:
            self._election.add(destination)

    async def remove(self, destination: str) -> None:
        """This node runs the destination no more; released in good order when it did."""
        self._known.discard(destination)
        await self._election.remove(destination)
        await self.members.unregister(destination)

    def hand_over(self, destination: str) -> None:
        """Let another node take the destination, in good order; this one stands back for 5 s, then races again."""
        self._election.hand_over(destination)

    def runs(self, destination: str) -> bool:
        """Whether this node may answer for the destination right now."""
        return self._election.runs(destination)

    @property
    def running(self) -> tuple[str, ...]:
        """Destinations that run here."""
        return self._election.running

    def states(self) -> dict[str, tuple[str, str]]:
        """Per destination: IDLE … RUNNING as in running.py, and the owner's address while standing by."""
        return self._election.states()

    def _session_changed(self, event: SessionEvent) -> None:
        if isinstance(event, SessionUp):
            self.members.connected()
        self._election.session_changed(event)


def node_address(config: CanalConfig) -> str:
    """registerIp:port: canal.register.ip, else canal.ip, else the address this machine uses towards others."""
    return f"{config.register_ip or config.ip or local_address()}:{config.port}"


def local_address() -> str:
    """The local IPv4 address of the default route; loopback on a machine without one. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # TEST-NET-1: only asks the kernel which way it would go
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
